// SPDX-License-Identifier: Apache-2.0
// One training to a folder: two would take turns at overwriting each other's saves. Who only reads
// the folder asks nobody, since a save counts all at once.
#pragma once

#include <filesystem>

namespace tenon::lm {

// Held while it lives, or until the process ends, however it does. The file `.tenon.lock` inside is
// what is locked: it says who holds the lock, and lies there unlocked, with no meaning, where the
// process was killed.
class FolderLock {
 public:
  // Throws where another process holds it, with what to do. Where the file system has no locks it
  // says so on stderr, and nothing is held or left: such a folder can be trained in as well.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace tenon::lm
