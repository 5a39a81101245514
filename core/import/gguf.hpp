// SPDX-License-Identifier: Apache-2.0
// GGUF files: metadata (typed keys and values) and tensors, of which many are in block formats. One
// model may be in several files (shards).
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/blocks.hpp"
#include "base/file.hpp"

namespace tenon::core {

// Types of metadata, as the file numbers them.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
// "u8"; empty for an unknown number.
std::string_view gguf_type_name(GgufType type);
// Bytes of a number or bool; 0 for strings, arrays and unknown types.
uint64_t gguf_type_bytes(GgufType type);

// A value of the metadata. It points into the mapped file.
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;     // of an array; else type
  uint64_t count = 1;                  // elements of an array
  std::span<const std::byte> content;  // numbers, not aligned; or strings and arrays as in the file
  std::vector<uint32_t> marks;         // where every 64th string or array is in content
  bool short_sizes = false;            // of version 1: sizes of 32 bits
};

// Element i of a value or array of strings. Throws where there is none.
std::string_view gguf_text(const GgufValue& value, uint64_t i = 0);
// Element i of an array of arrays.
GgufValue gguf_nested(const GgufValue& value, uint64_t i);
// The value as JSON. Numbers that are not finite become null, bytes that are no UTF-8 are replaced.
// Of arrays longer than `most` only that many elements, and "..." at the end.
std::string gguf_json(const GgufValue& value, uint64_t most = UINT64_MAX);

struct GgufTensor {
  std::string_view name;
  uint32_t type = 0;
  const BlockFormat* format = nullptr;  // null: an unknown type, whose size is unknown too
  uint32_t rank = 0;
  uint32_t shard = 0;
  std::array<int64_t, 4> dims{};  // row-major: the last one is contiguous
  uint64_t begin = 0, size = 0;   // bytes within the shard
  std::span<const int64_t> shape() const { return {dims.data(), rank}; }
};

// A model in one or more open files, which are mapped and checked.
class GgufFile {
 public:
  // path: a file, or any shard of a model, whose other shards are beside it.
  explicit GgufFile(const std::string& path);

  uint32_t version() const { return version_; }
  size_t shard_count() const { return shards_.size(); }
  const std::vector<GgufValue>& values() const { return values_; }     // in the file's order
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // likewise, shard by shard
  const GgufValue* find(std::string_view key) const;                   // null: there is none
  const GgufTensor* find_tensor(std::string_view name) const;
  // Throws unsupported for a tensor of an unknown type.
  std::span<const std::byte> content(const GgufTensor& tensor) const;
  // Keeps contents in place.
  std::shared_ptr<const void> owner(const GgufTensor& tensor) const {
    return shards_[tensor.shard];
  }

 private:
  void open_shards(const std::string& path, uint64_t number, uint64_t count);
  void check_names(const std::string& path);

  uint32_t version_ = 0;
  std::vector<std::shared_ptr<const MappedFile>> shards_;
  std::vector<GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> by_key_, by_name_;  // sorted
};

}  // namespace tenon::core
