// SPDX-License-Identifier: Apache-2.0
// Reads and fills the structs of the C interfaces: strings, structs that grow, arrays with a stride.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace tenon::core {

inline tenon_str c_str(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view view(tenon_str s) {
  if (!s.data && s.size) fail(Code::invalid_argument, "a text of ", s.size, " bytes is at NULL");
  return {s.data ? s.data : "", s.size};
}

template <class T>
T& need(T* pointer, std::string_view what) {
  if (!pointer) fail(Code::invalid_argument, what, " is NULL");
  return *pointer;
}

// Checks the size of any version of a struct. All sizes are multiples of 8, so no pointer is cut.
inline void check_struct_size(uint64_t size, std::string_view what) {
  if (size == 0 || size % 8 != 0)
    fail(Code::invalid_argument, what, ": struct_size is ", size,
         ", expected the sizeof of a version of the struct");
}
// Fills the fields that the caller's version of a struct has.
template <class T>
void give(T& out, T filled, std::string_view what) {
  static_assert(sizeof(T) % 8 == 0);
  check_struct_size(out.struct_size, what);
  const uint64_t size = std::min<uint64_t>(out.struct_size, sizeof(T));
  filled.struct_size = out.struct_size;
  std::memcpy(&out, &filled, size);
}
// Reads the fields that the caller's version of a struct has; the others are zero.
template <class T>
T taken(const T* given, std::string_view what) {
  static_assert(sizeof(T) % 8 == 0);
  T all{};
  if (!given) return all;
  check_struct_size(given->struct_size, what);
  std::memcpy(&all, given, std::min<uint64_t>(given->struct_size, sizeof(T)));
  return all;
}
// Element `i` of an array whose elements are at least as large as their first version.
template <class T>
T element(const T* array, uint64_t stride, uint64_t least, uint32_t i, std::string_view what) {
  if (stride < least || stride % 8 != 0)
    fail(Code::invalid_argument, what, ": the stride is ", stride,
         ", expected the sizeof of a version of the struct");
  T all{};
  std::memcpy(&all, reinterpret_cast<const std::byte*>(&need(array, what)) + i * stride,
              std::min<uint64_t>(stride, sizeof(T)));
  return all;
}

}  // namespace tenon::core
