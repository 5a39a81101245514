// SPDX-License-Identifier: Apache-2.0
// Files: mapped for reading, written beside and renamed. Every failure is an io_error with the path
// and the system's word.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tenon::core {

// The file's bytes, read-only; an empty file gives an empty span. Regular files only.
std::span<const std::byte> map_file(const std::string& path);
void unmap_file(std::span<const std::byte> bytes) noexcept;

// Writes path.<something>.tmp; commit() makes it path, after its bytes are on the disk. Without
// commit the temporary goes away and path stays as it was.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size);
  void commit();

 private:
  std::string path_, temporary_;
  int file_ = -1;
};

}  // namespace tenon::core
