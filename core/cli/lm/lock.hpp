// SPDX-License-Identifier: Apache-2.0
// Allows one training per folder; two would overwrite each other's saves. Readers need no lock,
// because saves are atomic.
#pragma once

#include <filesystem>

namespace tenon::lm {

// Held until the object or the process ends. The locked file `.tenon.lock` in the folder names the
// holder. After a kill, the file remains, unlocked and without effect.
class FolderLock {
 public:
  // Throws, with a hint, if another process holds the lock. On a file system without locks, prints
  // a warning and holds nothing; training is still possible.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace tenon::lm
