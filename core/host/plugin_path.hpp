// SPDX-License-Identifier: Apache-2.0
// The path to a plugin's file, walked from the root by descriptors: who could change the file, or
// put another one in its place.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::core {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// "/proc/<process>/fd/<number>": a path to what the descriptor refers to, whatever is renamed.
// Other processes that may look into this one, such as debuggers, can open it too.
std::string path_of(const Descriptor& descriptor);

struct FileId {
  uint64_t device = 0, inode = 0;
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

// An open file that passed every check, and the directory that it was found in.
struct TrustedFile {
  std::string path;  // canonical
  Descriptor file, directory;
  FileId id;
};

// Opens the regular file at an absolute path. Throws unless only root and this process's user can
// change it, or any directory or symbolic link on the way to it. In a sticky directory (/tmp)
// others may add files; that is accepted everywhere but in the file's own directory.
// The directory `exempt` and those above it are not checked.
TrustedFile open_trusted(const std::string& path, const std::string& exempt = {});

// The same for a directory. A missing one must not be one that others can create. Returns whether
// it exists and this process may search it.
bool check_directory(const std::string& path, const std::string& exempt = {});

}  // namespace tenon::core
