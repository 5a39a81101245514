// SPDX-License-Identifier: Apache-2.0
// Reads files; writes files atomically. Each failure is an io_error (not_found for a missing file)
// with the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tenon::core {

// A regular file, open for reading. It is read, not mapped: if the file shrinks, reading fails,
// where a mapping would end the process.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  uint64_t size() const { return size_; }  // at the time of opening
  void read(uint64_t offset, void* out, size_t size) const;

 private:
  friend class MappedFile;
  std::string path_;
  int file_ = -1;
  uint64_t size_ = 0;
};

// A regular file, mapped for reading: its pages are loaded when they are read, and are no memory of
// the process's own. The file must not become shorter meanwhile: reading what is gone ends the process.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) : MappedFile(FileReader(path)) {}
  // The file that is open, even if its path names another one by now, in its size of now.
  explicit MappedFile(const FileReader& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Returns the content of a regular file of at most `most` bytes. Also works for files of /proc and
// /sys, whose size is unknown.
std::string read_file(const std::string& path, size_t most);

// Writes path.<something>.tmp. commit() syncs it and renames it to path. Without commit, the
// temporary file is removed and path is unchanged. Follows links. Writes pipes and devices in
// place.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t size);
  void commit();

 private:
  std::string path_, temporary_{};  // empty for a pipe or a device
  int file_ = -1;
  bool failed_ = false;  // a write: the file lacks a part
};

}  // namespace tenon::core
