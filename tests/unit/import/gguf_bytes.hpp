// SPDX-License-Identifier: Apache-2.0
// Bytes of GGUF files, sound or not, piece by piece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::test {

class GgufBytes {
 public:
  explicit GgufBytes(uint32_t version = 3, uint64_t tensors = 0, uint64_t keys = 0)
      : short_sizes_(version == 1) {
    out_ = "GGUF";
    u32(version).size(tensors).size(keys);
  }

  template <class T>
  GgufBytes& number(T v) {
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  GgufBytes& u32(uint32_t v) { return number(v); }
  GgufBytes& u64(uint64_t v) { return number(v); }
  GgufBytes& size(uint64_t v) { return short_sizes_ ? u32(static_cast<uint32_t>(v)) : u64(v); }
  GgufBytes& text(std::string_view v) {
    size(v.size());
    out_ += v;
    return *this;
  }
  // A key and the type of its value.
  GgufBytes& key(std::string_view name, uint32_t type) { return text(name).u32(type); }
  // dims: the contiguous one first, as in the file.
  GgufBytes& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                    uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) size(d);
    return u32(type).u64(offset);
  }
  // Pads, then appends bytes 0, 1, 2, ...
  GgufBytes& data(size_t count, size_t alignment = 32) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment);
    for (size_t i = 0; i < count; ++i) out_ += static_cast<char>(i);
    return *this;
  }
  GgufBytes& cut(size_t bytes) {
    out_.resize(out_.size() - bytes);
    return *this;
  }
  const std::string& bytes() const { return out_; }

 private:
  std::string out_;
  bool short_sizes_;
};

}  // namespace tenon::test
