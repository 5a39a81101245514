// SPDX-License-Identifier: Apache-2.0
// Files: read, and written beside and renamed. Every failure is an io_error (not_found where there
// is none) with the path and the system's word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tenon::core {

// A regular file, open for reading. It is read and not mapped: a file that shrinks meanwhile gives
// an error, where a mapped page that is gone would end the process.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  uint64_t size() const { return size_; }  // when it was opened
  void read(uint64_t offset, void* out, size_t size) const;

 private:
  std::string path_;
  int file_ = -1;
  uint64_t size_ = 0;
};

// All of a regular file, which has at most so many bytes. Files of /proc and /sys, whose size is
// not known, too.
std::string read_file(const std::string& path, size_t most);

// Writes path.<something>.tmp; commit() makes it path, after its bytes are on the disk. Without
// commit the temporary goes away and path stays as it was. Links are followed. A pipe or a device
// is written to as it is.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size);
  void commit();

 private:
  std::string path_, temporary_{};  // no temporary: a pipe or a device
  int file_ = -1;
};

}  // namespace tenon::core
