// SPDX-License-Identifier: Apache-2.0
// Maps files for reading; writes files beside their target and renames them.
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

// Never blocks: a pipe without a writer is refused like any other pipe.
int open_regular(const std::string& path, struct stat& info) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) system_error(path, "open");
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode)) return file;
  ::close(file);
  fail(Code::io_error, path, ": is no regular file");
}

// Pipes and devices are written in place. Replacing /dev/null would break it for everyone.
int open_special(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return -1;
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) system_error(path, "open");
  ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
  return file;
}

}  // namespace

FileReader::FileReader(const std::string& path) : path_(path) {
  struct stat info {};
  file_ = open_regular(path, info);
  size_ = static_cast<uint64_t>(info.st_size);
}

FileReader::~FileReader() { ::close(file_); }

void FileReader::read(uint64_t offset, void* out, size_t size) const {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t n =
        ::pread(file_, at, std::min<size_t>(size, 1 << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_error(path_, "read");
    if (n == 0)
      fail(Code::io_error, path_, ": ends at byte ", offset, ", it had ", size_,
           " when it was opened");
    at += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
}

MappedFile::MappedFile(const FileReader& file) {
  struct stat info {};
  if (::fstat(file.file_, &info) != 0) system_error(file.path_, "map");
  size_ = static_cast<size_t>(info.st_size);
  void* at = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.file_, 0);
  if (at == MAP_FAILED) system_error(file.path_, "map");
  data_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::string& path, size_t most) {
  struct stat info {};
  struct Closer {
    int number;
    ~Closer() { ::close(number); }
  } const file{open_regular(path, info)};
  std::string text;
  for (;;) {
    char piece[4096];
    const ssize_t n = ::read(file.number, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) system_error(path, "read");
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > most) fail(Code::io_error, path, ": has more than ", most, " bytes");
  }
}

FileWriter::FileWriter(const std::string& path) : path_(path), file_(open_special(path)) {
  // Replaces the target of a link, not the link.
  if (char* real = file_ < 0 ? ::realpath(path.c_str(), nullptr) : nullptr) {
    path_ = real;
    std::free(real);
  }
  // mkstemp would set a restrictive mode; this file gets the default mode of new files.
  for (unsigned attempt = 0; file_ < 0; ++attempt) {
    temporary_ = cat(path_, ".", ::getpid(), "-", attempt, ".tmp");
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && (errno != EEXIST || attempt == 1000)) system_error(path, "create");
  }
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(file_, at, std::min<size_t>(size, 1 << 30));
    if (n < 0) {
      if (errno == EINTR) continue;
      failed_ = true;
      system_error(path_, "write");
    }
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void FileWriter::commit() {
  if (failed_) fail(Code::io_error, path_, ": an earlier write failed");
  if (temporary_.empty()) {
    if (::close(std::exchange(file_, -1)) != 0) system_error(path_, "close");
    return;
  }
  if (::fsync(file_) != 0) system_error(path_, "sync");
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int number = errno;
    ::unlink(temporary_.c_str());
    errno = number;
    system_error(path_, "replace");
  }
  // The rename is durable when the folder is synced. Some file systems do not support this
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
