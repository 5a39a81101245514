// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::lm {
namespace {

constexpr const char* kName = ".tenon.lock";

// A file and not the folder itself: network file systems lock only what is open for writing. What
// another user left cannot be written, but locked on most. Nothing is waited for: it may be a pipe.
int open_lock(const char* path) {
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int file = ::open(path, O_RDWR | O_CREAT | kAlways, 0666);
  return file < 0 && errno == EACCES ? ::open(path, O_RDONLY | kAlways) : file;
}

// Its last holder may have removed it before it was locked here.
bool is_there(const char* path, int file) {
  struct stat named {
  }, open{};
  return ::stat(path, &named) == 0 && ::fstat(file, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

std::string holder() {
  char host[256] = {};
  static_cast<void>(::gethostname(host, sizeof host - 1));
  return "process " + std::to_string(::getpid()) + " on " + host;
}

// For a message: the file is anyone's.
std::string said_holder(int file) {
  char text[300];
  const ssize_t size = ::pread(file, text, sizeof text, 0);
  if (size <= 0) return "";
  const char* const begin = text;
  const char* end = std::find_if(begin, begin + size, [](char c) { return c < ' ' || c > '~'; });
  return ", " + std::string(begin, end) + ",";
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : path_(folder / kName) {
  for (;;) {
    file_ = open_lock(path_.c_str());
    if (file_ < 0)
      throw Error(TENON_IO_ERROR, path_.string() + ": open: " + std::strerror(errno) +
                                      "; it is locked while a training writes to its folder");
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0) {
      if (is_there(path_.c_str(), file_)) break;
      ::close(file_);
      continue;
    }
    const int number = errno;
    const std::string who = number == EWOULDBLOCK ? said_holder(file_) : "";
    ::close(file_);
    file_ = -1;
    if (number == EINTR) continue;
    if (number == EWOULDBLOCK)
      throw Error(TENON_IO_ERROR,
                  folder.string() + ": another training" + who +
                      " writes to this folder; wait until it ends or stop it, or name another "
                      "folder with --out");
    std::cerr << "tenon: " << path_.string() << ": cannot be locked: " << std::strerror(number)
              << "; let no other training write to this folder\n";
    return;
  }
  // Only a message is poorer where this fails, as on a full disk.
  const std::string text = holder();
  if (::ftruncate(file_, 0) == 0)
    static_cast<void>(::pwrite(file_, text.data(), text.size(), 0) < 0);
}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());  // while it is locked: whoever opened it looks for it again
  ::close(file_);
}

}  // namespace tenon::lm
