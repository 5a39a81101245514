// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files of version 3: metadata in the order in which it is set, tensors in the order in
// which they are added, alignment 32.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "import/gguf.hpp"

namespace tenon::core {

class GgufWriter {
 public:
  // Writes a temporary file; commit() renames it to path.
  explicit GgufWriter(const std::string& path);

  // A number, bool or, if `count` is given, an array of them, dense in the memory of the machine.
  void set(std::string_view key, GgufType type, const void* numbers,
           std::optional<uint64_t> count = {});
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, std::span<const std::string_view> texts);
  // dims: row-major.
  void add(std::string_view name, const BlockFormat& format, std::span<const int64_t> dims);

  // The next bytes of the tensors, in their order; a piece belongs to one tensor. Nothing can be
  // set or added afterwards.
  void content(std::span<const std::byte> piece);
  void commit();

 private:
  struct Tensor {
    std::string name;
    uint64_t size;
  };
  void check_open(std::string_view what) const;
  void key(std::string_view key, GgufType type);
  void finish_header();
  void pass_full();

  std::string path_;
  FileWriter file_;
  std::string keys_, infos_;  // as they go into the file
  std::set<std::string, std::less<>> key_names_, tensor_names_;
  std::vector<Tensor> tensors_;
  uint64_t offset_ = 0;  // of the next tensor that is added
  bool header_done_ = false;
  size_t current_ = 0;    // tensor that gets content
  uint64_t written_ = 0;  // bytes of it
};

}  // namespace tenon::core
