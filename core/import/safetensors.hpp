// SPDX-License-Identifier: Apache-2.0
// safetensors files: u64 header size (little-endian), a JSON header name -> {dtype, shape,
// data_offsets}, the data.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.hpp"

namespace tenon::core {

struct SafetensorsEntry {
  std::string name;
  Type type;
  uint64_t begin = 0, end = 0;  // bytes within the data
};

// An opened file, mapped and checked whole: tensors are inside the file, do not overlap and fill
// it, sizes fit the types.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // by name
  std::span<const std::byte> content(const SafetensorsEntry& e) const {
    return data_.subspan(e.begin, e.end - e.begin);
  }
  const std::string& metadata_json() const { return metadata_; }  // "{}" when there is none

 private:
  void read_header(const std::string& path);

  std::span<const std::byte> file_, data_;
  std::vector<SafetensorsEntry> tensors_;
  std::string metadata_ = "{}";
};

// Writes a temporary beside path and renames it: path holds the old file or the new one, whole.
// content is asked for one tensor at a time; begin and end of entries are computed here.
void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<Bytes(const SafetensorsEntry&)>& content);

}  // namespace tenon::core
