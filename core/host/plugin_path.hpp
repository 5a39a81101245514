// SPDX-License-Identifier: Apache-2.0
// The path to a plugin's file, walked from the root by descriptors: checks who could change the
// file or replace it.
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

// Returns "/proc/<process>/fd/<number>": a path to the open file, even if it is renamed. Other
// processes with the necessary rights, such as debuggers, can open it too.
std::string path_of(const Descriptor& descriptor);

struct FileId {
  uint64_t device = 0, inode = 0;
  friend auto operator<=>(const FileId&, const FileId&) = default;
};

// An open file that passed all checks, and its directory.
struct TrustedFile {
  std::string path;  // canonical
  Descriptor file, directory;
  FileId id;
};

// Opens the regular file at an absolute path. Throws unless only root and this process's user can
// change it, or any directory or symbolic link on the path. Others may add files to a sticky
// directory (/tmp), unless it is the file's own directory. Does not check the directory `exempt`
// and those above it.
TrustedFile open_trusted(const std::string& path, const std::string& exempt = {});

// The same for a directory. If it is missing, others must not be able to create it. Returns true if
// it exists and this process may search it.
bool check_directory(const std::string& path, const std::string& exempt = {});

}  // namespace tenon::core
