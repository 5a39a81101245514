// SPDX-License-Identifier: Apache-2.0
// Locks a model folder with the file system's locks.
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
#include <string_view>

#include "tenon/tenon.hpp"

namespace tenon::lm {
namespace {

constexpr const char* kName = ".tenon.lock";
constexpr const char* kBeginning = "process ";  // of the text in a lock
// An attempt fails if another training ends at the same time. This many failures mean that the file
// system does not number files consistently.
constexpr int kTries = 100;

// Locks a file, not the folder, because network file systems lock only files that are open for
// writing. A file of another user cannot be written, but usually locked. Never blocks: the file may
// be a pipe. Returns EAGAIN if the file was removed meanwhile; sets `made` if it did not exist.
int open_lock(const char* path, bool& made) {
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int file = ::open(path, O_RDWR | O_CREAT | O_EXCL | kAlways, 0666);
  if (file >= 0) made = true;
  if (file >= 0 || errno != EEXIST) return file;
  file = ::open(path, O_RDWR | kAlways);
  if (file < 0 && errno == EACCES) file = ::open(path, O_RDONLY | kAlways);
  if (file < 0 && errno == ENOENT) errno = EAGAIN;
  return file;
}

// The last holder may have removed the file before it was locked here.
bool is_there(const char* path, int file) {
  struct stat named {
  }, open{};
  return ::stat(path, &named) == 0 && ::fstat(file, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev;
}

std::string holder() {
  char host[256] = {};
  static_cast<void>(::gethostname(host, sizeof host - 1));
  return kBeginning + std::to_string(::getpid()) + " on " + host;
}

// A user's own file of that name is not ours to truncate or remove. A file with a second name (a
// hard link) is not ours either.
bool is_lock(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink > 1) return false;
  char text[300];
  const ssize_t size = ::pread(file, text, sizeof text, 0);
  if (size < 0 || size != info.st_size) return false;
  return size == 0 || std::string_view(text, static_cast<size_t>(size)).starts_with(kBeginning);
}

// For messages: anyone can write the file.
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
  bool made = false;
  int number = 0;  // of the last attempt; 0 if another file took its place
  for (int left = kTries; left > 0; --left) {
    const int file = open_lock(path_.c_str(), made);
    number = file < 0 && errno != EAGAIN ? errno : 0;
    if (number != 0)
      throw Error(TENON_IO_ERROR, path_.string() + ": open: " + std::strerror(number) +
                                      "; it is locked while a training writes to its folder");
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) {
      if (is_there(path_.c_str(), file) && !is_lock(file)) {
        ::close(file);
        throw Error(TENON_IO_ERROR, path_.string() +
                                        ": is not a lock file of a training; move it away, or name "
                                        "another folder with --out");
      }
      // Truncates first, so that a refused process does not read the name of the previous holder.
      const bool empty = ::ftruncate(file, 0) == 0;
      if (!is_there(path_.c_str(), file)) {
        ::close(file);
        continue;
      }
      file_ = file;
      // A failure here, for example on a full disk, only affects a message.
      const std::string text = holder();
      if (empty) static_cast<void>(::pwrite(file_, text.data(), text.size(), 0) < 0);
      return;
    }
    number = errno;
    const std::string who = number == EWOULDBLOCK ? said_holder(file) : "";
    ::close(file);
    if (number == EWOULDBLOCK)
      throw Error(TENON_IO_ERROR,
                  folder.string() + ": another training" + who +
                      " writes to this folder; wait until it ends or stop it, or name another "
                      "folder with --out");
    if (number != EINTR) break;
  }
  if (made) ::unlink(path_.c_str());
  std::cerr << "tenon: " << path_.string() << ": cannot be locked: "
            << (number != 0 ? std::strerror(number) : "another file takes its place each time")
            << "; let no other training write to this folder\n";
}

FolderLock::~FolderLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());  // while it is locked; a process that opened it looks for it again
  ::close(file_);
}

}  // namespace tenon::lm
