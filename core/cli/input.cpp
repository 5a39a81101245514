// SPDX-License-Identifier: Apache-2.0
// Opens and reads files, and refuses those that would block the command.
#include "cli/input.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "tenon/tenon.hpp"

namespace tenon::cli {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(TENON_IO_ERROR, path + ": " + what);
}

bool is_standard_input(std::string_view path) { return path == "-" || path == "/dev/stdin"; }

// A limit for endless pipes, before the machine runs out of memory.
size_t most_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size) / 2
                               : size_t{1} << 32;
}

// Opens without blocking: a pipe without a writer is empty.
int open_input(const std::string& path) {
  return is_standard_input(path)
             ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
             : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

bool is_device(int file, const struct stat& info) {
  struct stat null {};
  if (S_ISBLK(info.st_mode)) return true;
  if (!S_ISCHR(info.st_mode) || ::isatty(file)) return false;
  return ::stat("/dev/null", &null) != 0 || null.st_rdev != info.st_rdev;
}

std::string read_all(const std::string& path, bool pipes) {
  const Descriptor file{open_input(path)};
  if (file.number < 0)
    throw Error(errno == ENOENT ? TENON_NOT_FOUND : TENON_IO_ERROR,
                path + ": open: " + std::strerror(errno));
  struct stat info {};
  if (::fstat(file.number, &info) != 0) fail(path, std::string("stat: ") + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail(path, "is a directory, expected a file");
  if (!S_ISREG(info.st_mode) && !pipes) fail(path, "is no regular file");
  if (is_device(file.number, info)) fail(path, "is a device, expected a file or a pipe");

  const size_t most = most_bytes();
  std::string bytes;
  if (S_ISREG(info.st_mode) && info.st_size > 0)
    bytes.reserve(std::min(static_cast<size_t>(info.st_size), most) + 1);
  std::string piece(size_t{1} << 16, '\0');
  for (;;) {
    const ssize_t n = ::read(file.number, piece.data(), piece.size());
    if (n == 0) return bytes;
    if (n > 0) {
      bytes.append(piece.data(), static_cast<size_t>(n));
      if (bytes.size() > most)
        fail(path,
             "has more than " + std::to_string(most) + " bytes, half of this machine's memory");
    } else if (errno == EAGAIN) {
      pollfd ready{file.number, POLLIN, 0};
      static_cast<void>(::poll(&ready, 1, -1));
    } else if (errno != EINTR) {
      fail(path, std::string("read: ") + std::strerror(errno));
    }
  }
}

}  // namespace

std::string read_file(const std::string& path) { return read_all(path, false); }
std::string read_input(const std::string& path) { return read_all(path, true); }

bool can_be_read_again(const std::string& path) {
  struct stat info {};
  return !is_standard_input(path) && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace tenon::cli
