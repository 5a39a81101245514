// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace tenon::core {
namespace {

[[noreturn]] void system_error(const std::string& path, const char* doing) {
  const int number = errno;
  fail(number == ENOENT ? Code::not_found : Code::io_error, path, ": ", doing, ": ",
       std::generic_category().message(number));
}

// Closes on every way out.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

std::span<const std::byte> map_file(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) system_error(path, "open");
  struct stat info {};
  if (::fstat(file.number, &info) != 0) system_error(path, "stat");
  if (!S_ISREG(info.st_mode)) fail(Code::io_error, path, ": is no regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return {};
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (at == MAP_FAILED) system_error(path, "map");
  return {static_cast<const std::byte*>(at), size};
}

void unmap_file(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

FileWriter::FileWriter(const std::string& path) : path_(path) {
  // Not mkstemp: the file gets the mode that any new file gets.
  for (unsigned attempt = 0; file_ < 0; ++attempt) {
    temporary_ = cat(path, ".", ::getpid(), "-", attempt, ".tmp");
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && (errno != EEXIST || attempt == 1000)) system_error(path, "create");
  }
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(file_, at, std::min<size_t>(size, 1 << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      system_error(path_, "write");
    }
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void FileWriter::commit() {
  if (::fsync(file_) != 0) system_error(path_, "sync");
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int number = errno;
    ::unlink(temporary_.c_str());
    errno = number;
    system_error(path_, "replace");
  }
  // The rename is on the disk when its folder is. Some file systems cannot be asked for that
  // (EINVAL).
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  if (const int number = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); number >= 0) {
    const bool good = ::fsync(number) == 0 || errno == EINVAL;
    const int why = errno;
    ::close(number);
    errno = why;
    if (!good) system_error(path_, "sync the folder");
  }
}

}  // namespace tenon::core
