// SPDX-License-Identifier: Apache-2.0
// Writes messages of protocol buffers, sound and unsound ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

namespace tenon::test {

class Proto {
 public:
  Proto& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  Proto& varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(v | 0x80);
    bytes_ += static_cast<char>(v);
    return *this;
  }
  Proto& tag(uint32_t field, uint32_t wire) { return varint(uint64_t{field} << 3 | wire); }
  Proto& number(uint32_t field, int64_t v) {
    return tag(field, 0).varint(static_cast<uint64_t>(v));
  }
  Proto& text(uint32_t field, std::string_view v) { return tag(field, 2).varint(v.size()).raw(v); }
  Proto& message(uint32_t field, const Proto& m) { return text(field, m.bytes_); }
  Proto& real(uint32_t field, float v) { return tag(field, 5).fixed(v); }
  Proto& packed(uint32_t field, std::initializer_list<int64_t> vs) {
    Proto list;
    for (int64_t v : vs) list.varint(static_cast<uint64_t>(v));
    return message(field, list);
  }
  template <class T>
  Proto& packed_fixed(uint32_t field, std::initializer_list<T> vs) {
    Proto list;
    for (T v : vs) list.fixed(v);
    return message(field, list);
  }
  template <class T>
  Proto& fixed(T v) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    return raw({bytes, sizeof bytes});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_{};
};

}  // namespace tenon::test
