// SPDX-License-Identifier: Apache-2.0
// safetensors files: u64 header size (little-endian), a JSON header name -> {dtype, shape,
// data_offsets}, the data.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

struct SafetensorsEntry {
  std::string name;
  Type type;
  uint64_t begin = 0, end = 0;  // bytes within the data
};

// An open file whose header was checked whole: tensors are inside the file, do not overlap and fill
// it, sizes fit the types. Contents are read when asked for.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // by name
  Bytes content(const SafetensorsEntry& e) const;
  const std::string& metadata_json() const { return metadata_; }  // "{}" when there is none

 private:
  void read_header(const std::string& path);

  FileReader file_;
  uint64_t data_ = 0;  // where it begins
  std::vector<SafetensorsEntry> tensors_;
  std::string metadata_ = "{}";
};

// Writes a temporary beside path and renames it: path holds the old file or the new one, whole.
// content is asked for one tensor at a time; begin and end of entries are computed here.
void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<Bytes(const SafetensorsEntry&)>& content);

}  // namespace tenon::core
