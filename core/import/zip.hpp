// SPDX-License-Identifier: Apache-2.0
// ZIP archives as .npz uses them: stored and deflated members, also beyond 4 GiB (ZIP64). No
// encryption, no archive in several files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

struct ZipMember {
  std::string name{};
  uint64_t offset = 0;  // of its local header
  uint64_t packed = 0, size = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

// An open archive with a checked directory: all members lie in the file, and together they take no
// more bytes than it has.
class ZipReader {
 public:
  explicit ZipReader(const std::string& path);
  const std::vector<ZipMember>& members() const { return members_; }
  Bytes content(const ZipMember& member) const;  // its checksum is checked

 private:
  struct Directory {
    uint64_t offset = 0, size = 0, count = 0;
  };
  Directory find_directory() const;
  void read_directory(const Directory& directory);

  std::string path_;
  FileReader file_;
  std::vector<ZipMember> members_{};
};

// Writes an archive through a FileWriter: commit() ends it.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path) {}
  // The parts make up the member.
  void add(const std::string& name, std::span<const std::span<const std::byte>> parts,
           bool deflate);
  void commit();

 private:
  void put(const std::string& bytes);

  FileWriter file_;
  uint64_t at_ = 0;
  std::vector<ZipMember> members_{};
};

}  // namespace tenon::core
