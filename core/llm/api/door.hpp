// SPDX-License-Identifier: Apache-2.0
// Shared by the C functions: the objects behind the handles, the conversion of exceptions to
// statuses, and structs of older and newer callers.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llm/session.hpp"
#include "tenon/tenon_extend.h"
#include "tenon/tenon_llm.h"

struct tenon_llm {
  std::shared_ptr<tenon::llm::Session> session;
};
struct tenon_llm_generation {
  tenon::llm::Generation generation;
  std::vector<int32_t> top_tokens{};  // of the last piece
  std::vector<float> top_logprobs{};
};
struct tenon_llm_decoder {
  std::shared_ptr<tenon::llm::Session> session;
  tenon::llm::Detokenizer words;
  uint32_t flags;
  std::string text;  // of the last call
};
struct tenon_llm_tokens {
  std::vector<int32_t> ids;
};

namespace tenon::llm {

// The status of the exception in flight. where: the C function.
tenon_status* status_of_current_exception(const char* where) noexcept;

// Runs the body of a C function and converts exceptions to a status.
template <class Body>
tenon_status* door(const char* name, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return status_of_current_exception(name);
  }
}

[[noreturn]] inline void refuse(const std::string& text) {
  throw Error(TENON_INVALID_ARGUMENT, text);
}

template <class T>
T& need(T* pointer, const char* what) {
  if (!pointer) refuse(std::string(what) + " is NULL");
  return *pointer;
}

inline std::string_view view(tenon_str s) {
  if (!s.data && s.size) refuse("a text of " + std::to_string(s.size) + " bytes is at NULL");
  return {s.data ? s.data : "", s.size};
}
inline std::string copy(tenon_str s) { return std::string(view(s)); }

// The numbers of an array as another type.
template <class To, class From>
std::vector<To> numbers(const From* array, uint64_t count, const char* what) {
  if (count) need(array, what);
  return count ? std::vector<To>(array, array + count) : std::vector<To>();
}

inline void check_struct_size(uint64_t size, const char* what) {
  if (size == 0 || size % 8 != 0)
    refuse(std::string(what) + ": struct_size is " + std::to_string(size) +
           "; expected the sizeof of a version of the struct");
}
// Reads the fields that the caller's version of a struct has; the others are zero.
template <class T>
T taken(const T* given, const char* what) {
  static_assert(sizeof(T) % 8 == 0);
  T all{};
  if (!given) return all;
  check_struct_size(given->struct_size, what);
  std::memcpy(&all, given, std::min<uint64_t>(given->struct_size, sizeof(T)));
  return all;
}
// Fills the fields that the caller's version of a struct has.
template <class T>
void give(T& out, T filled, const char* what) {
  static_assert(sizeof(T) % 8 == 0);
  check_struct_size(out.struct_size, what);
  const uint64_t size = std::min<uint64_t>(out.struct_size, sizeof(T));
  filled.struct_size = out.struct_size;
  std::memcpy(static_cast<void*>(&out), &filled, size);
}

inline void check_flags(uint32_t flags, uint32_t known) {
  if (flags & ~known)
    refuse("flags: expected those of " + std::to_string(known) + ", got " + std::to_string(flags));
}

inline tenon_text* new_text(std::string_view text) {
  tenon_text* out = nullptr;
  detail::check(tenon_text_create(detail::str(text), &out));
  return out;
}

}  // namespace tenon::llm
