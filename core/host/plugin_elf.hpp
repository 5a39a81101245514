// SPDX-License-Identifier: Apache-2.0
// A shared library as bytes, before any of its code runs: checked program headers, and the requests
// of its dynamic section to the system's loader. Safe on any bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/plugin_path.hpp"

namespace tenon::core {

// The requests to the system's loader: libraries, and folders to search.
struct LinkNames {
  std::vector<std::string> needed;  // DT_NEEDED, DT_AUXILIARY, DT_FILTER
  std::optional<std::string> rpath, runpath;
};

class ElfFile {
 public:
  // Maps the file. Throws unless it is a shared library for this machine whose segments are inside
  // the file. The path is for messages.
  ElfFile(const Descriptor& file, std::string path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  const std::string& path() const { return path_; }
  const void* bytes() const { return bytes_; }
  uint64_t size() const { return size_; }
  LinkNames link_names() const;

 private:
  void check() const;
  template <class Record>
  Record record(uint64_t at) const;
  uint64_t offset_of(uint64_t address) const;
  std::string text_at(uint64_t at) const;

  std::string path_;
  const char* bytes_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tenon::core
