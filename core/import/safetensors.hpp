// SPDX-License-Identifier: Apache-2.0
// safetensors files: u64 header size (little-endian), a JSON header name -> {dtype, shape,
// data_offsets}, the data.
#pragma once

#include <functional>
#include <map>
#include <memory>
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

// An open file with a checked header: tensors are inside the file, do not overlap, fill it, and
// have the size of their type. Contents are read on request.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // by name
  Bytes content(const SafetensorsEntry& e) const;
  // The file, mapped, and where a content is in it: for readers that keep contents in place.
  std::shared_ptr<const MappedFile> map() const {
    return std::make_shared<const MappedFile>(file_);
  }
  // Throws io_error if the file has become shorter since it was opened.
  std::span<const std::byte> content_in(const MappedFile& map, const SafetensorsEntry& e) const;
  const std::string& metadata_json() const { return metadata_; }  // "{}" if there is none

 private:
  void read_header(const std::string& path);

  std::string path_;
  FileReader file_;
  uint64_t data_ = 0;  // where the data starts
  std::vector<SafetensorsEntry> tensors_;
  std::string metadata_ = "{}";
};

// Writes a temporary file and renames it, so path always holds a complete file. Asks for the
// content of one tensor at a time. Computes begin and end of the entries.
void write_safetensors(const std::string& path, std::vector<SafetensorsEntry> entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<Bytes(const SafetensorsEntry&)>& content);

}  // namespace tenon::core
