// SPDX-License-Identifier: Apache-2.0
// GGUF files in C++: the classes over tenon_gguf.h. Part of tenon.hpp.
//
//   const tenon::Gguf model("model.gguf");
//   const auto layers = model.number<int64_t>("llama.block_count");
//   model.load("token_embd.weight", store, TENON_SPACE_WEIGHT, "embedding", tenon::f32);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tenon.hpp"
#include "tenon_gguf.h"

namespace tenon {

// tenon_gguf_format.
struct GgufFormat {
  std::string name{};
  uint32_t type = 0, elements = 1, bytes = 0;  // of a block
  tenon_dtype dtype = TENON_DTYPE_NONE;        // of a plain type
  bool decodes = false, encodes = false;

  uint64_t size(int64_t count) const { return static_cast<uint64_t>(count) / elements * bytes; }
};

namespace detail {
inline GgufFormat format(const tenon_gguf_format& f) {
  return {string(f.name), f.type, f.elements, f.bytes, f.dtype, f.decodes != 0, f.encodes != 0};
}
inline tenon_gguf_format found_format(std::string_view name, uint32_t type) {
  tenon_gguf_format f{};
  f.struct_size = sizeof f;
  check(tenon_gguf_find_format(str(name), type, &f));
  return f;
}
inline std::string_view view(tenon_str s) { return {s.data, s.size}; }

// A number of a file as another type. Throws where it does not fit.
template <class To, class From>
To fitting(From number, std::string_view key) {
  bool fits = true;
  if constexpr (std::is_same_v<To, bool>) {
    fits = number == From{0} || number == From{1};
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    fits = std::in_range<To>(number);
  } else if constexpr (std::is_integral_v<To>) {
    fits = number >= -0x1p63 && number < 0x1p63 && std::trunc(number) == number &&
           std::in_range<To>(static_cast<int64_t>(number));
  }
  if (!fits)
    throw Error(TENON_DTYPE_MISMATCH, "key '" + std::string(key) + "': " + std::to_string(number) +
                                          " does not fit the type that is asked for");
  return static_cast<To>(number);
}
}  // namespace detail

inline GgufFormat gguf_format(std::string_view name) {
  return detail::format(detail::found_format(name.empty() ? "?" : name, 0));
}
inline GgufFormat gguf_format(uint32_t type) {
  return detail::format(detail::found_format({}, type));
}
inline std::vector<GgufFormat> gguf_formats() {
  std::vector<GgufFormat> out;
  for (uint32_t i = 0; i < tenon_gguf_format_count(); ++i) {
    tenon_gguf_format f{};
    f.struct_size = sizeof f;
    detail::check(tenon_gguf_format_at(i, &f));
    out.push_back(detail::format(f));
  }
  return out;
}

// See tenon_gguf_decode(). T: float, double, F16 or BF16.
template <class T>
std::vector<T> gguf_decode(const GgufFormat& format, std::span<const std::byte> blocks) {
  std::vector<T> out(format.bytes == 0 ? 0 : blocks.size() / format.bytes * format.elements);
  detail::check(tenon_gguf_decode(format.type, blocks.data(), blocks.size(), detail::dtype_of<T>(),
                                  out.data(), out.size() * sizeof(T)));
  return out;
}
// See tenon_gguf_encode(). importance: empty, or one number per element.
inline std::vector<std::byte> gguf_encode(const GgufFormat& format, std::span<const float> numbers,
                                          std::span<const float> importance = {}) {
  if (!importance.empty() && importance.size() != numbers.size())
    throw Error(TENON_SHAPE_MISMATCH, "gguf_encode: importance has " +
                                          std::to_string(importance.size()) +
                                          " numbers; expected " + std::to_string(numbers.size()));
  std::vector<std::byte> out(format.size(static_cast<int64_t>(numbers.size())));
  detail::check(tenon_gguf_encode(format.type, numbers.data(),
                                  importance.empty() ? nullptr : importance.data(), numbers.size(),
                                  out.data(), out.size()));
  return out;
}

// Names and data live as long as the file is open.
struct GgufKey {
  std::string_view name{};
  uint32_t type = 0, element_type = 0;  // TENON_GGUF_*
  uint64_t count = 1;                   // elements of an array
};
struct GgufTensor {
  std::string_view name{}, format{};  // format: empty if the type is not known
  std::vector<int64_t> dims{};        // row-major
  std::span<const std::byte> data{};
  uint32_t type = 0, shard = 0;
  tenon_dtype dtype = TENON_DTYPE_NONE;  // of a plain type

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    return n;
  }
};

// An open model: see tenon_gguf_open(). Functions throw TENON_NOT_FOUND for a missing name.
class Gguf {
 public:
  explicit Gguf(std::string_view path) {
    tenon_gguf* handle = nullptr;
    detail::check(tenon_gguf_open(detail::str(path), &handle));
    handle_.reset(handle);
  }
  tenon_gguf* handle() const { return handle_.get(); }
  uint32_t version() const { return tenon_gguf_version(handle()); }
  uint32_t shard_count() const { return tenon_gguf_shard_count(handle()); }

  std::vector<GgufKey> keys() const {
    std::vector<GgufKey> out;
    for (uint32_t i = 0; i < tenon_gguf_key_count(handle()); ++i) {
      const tenon_gguf_key k = key_at(i);
      out.push_back({detail::view(k.name), k.type, k.element_type, k.count});
    }
    return out;
  }
  bool has(std::string_view key) const {
    return tenon_gguf_find_key(handle(), detail::str(key)) != TENON_NONE;
  }
  std::string text(std::string_view key) const { return std::string(text_at(index_of(key), 0)); }
  std::vector<std::string> texts(std::string_view key) const {
    const uint32_t index = index_of(key);
    std::vector<std::string> out;
    for (uint64_t i = 0, n = key_at(index).count; i < n; ++i) out.emplace_back(text_at(index, i));
    return out;
  }
  // A number or bool of any type, as T. Throws TENON_DTYPE_MISMATCH if it does not fit.
  template <class T>
  T number(std::string_view key) const {
    if (const tenon_gguf_key k = key_at(index_of(key)); k.type == TENON_GGUF_ARRAY)
      throw Error(TENON_DTYPE_MISMATCH,
                  "key '" + std::string(key) + "': is an array; expected a number");
    return numbers<T>(key).at(0);
  }
  // The numbers of an array, or the one of a key.
  template <class T>
  std::vector<T> numbers(std::string_view key) const {
    const uint32_t index = index_of(key);
    const tenon_gguf_key k = key_at(index);
    std::vector<std::byte> bytes(k.size);
    detail::check(tenon_gguf_numbers(handle(), index, bytes.data(), bytes.size()));
    std::vector<T> out;
    out.reserve(k.count);
    const auto convert = [&]<class From>(From) {
      for (uint64_t i = 0; i < k.count; ++i) {
        From number;
        std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
        out.push_back(detail::fitting<T>(number, key));
      }
    };
    switch (k.element_type) {
      case TENON_GGUF_U8:
        convert(uint8_t{});
        break;
      case TENON_GGUF_I8:
        convert(int8_t{});
        break;
      case TENON_GGUF_U16:
        convert(uint16_t{});
        break;
      case TENON_GGUF_I16:
        convert(int16_t{});
        break;
      case TENON_GGUF_U32:
        convert(uint32_t{});
        break;
      case TENON_GGUF_I32:
        convert(int32_t{});
        break;
      case TENON_GGUF_F32:
        convert(float{});
        break;
      case TENON_GGUF_BOOL:
        convert(uint8_t{});
        break;
      case TENON_GGUF_U64:
        convert(uint64_t{});
        break;
      case TENON_GGUF_I64:
        convert(int64_t{});
        break;
      case TENON_GGUF_F64:
        convert(double{});
        break;
      default:
        break;  // tenon_gguf_numbers has failed
    }
    return out;
  }
  std::string json(std::string_view key, uint64_t most = UINT64_MAX) const {
    tenon_text* text = nullptr;
    detail::check(tenon_gguf_json(handle(), index_of(key), most, &text));
    return detail::take(text);
  }

  std::vector<GgufTensor> tensors() const {
    std::vector<GgufTensor> out;
    for (uint32_t i = 0; i < tenon_gguf_tensor_count(handle()); ++i) out.push_back(tensor_at(i));
    return out;
  }
  bool has_tensor(std::string_view name) const {
    return tenon_gguf_find_tensor(handle(), detail::str(name)) != TENON_NONE;
  }
  GgufTensor tensor(std::string_view name) const { return tensor_at(tensor_index(name)); }
  // See tenon_gguf_load().
  void load(std::string_view tensor, const Store& store, uint32_t space, std::string_view name,
            tenon_dtype to = TENON_DTYPE_NONE) const {
    detail::check(tenon_gguf_load(handle(), tensor_index(tensor), store.handle(), space,
                                  detail::str(name), to));
  }

 private:
  tenon_gguf_key key_at(uint32_t index) const {
    tenon_gguf_key k{};
    k.struct_size = sizeof k;
    detail::check(tenon_gguf_key_at(handle(), index, &k));
    return k;
  }
  std::string_view text_at(uint32_t key, uint64_t element) const {
    tenon_str text{};
    detail::check(tenon_gguf_text(handle(), key, element, &text));
    return detail::view(text);
  }
  GgufTensor tensor_at(uint32_t index) const {
    tenon_gguf_tensor t{};
    t.struct_size = sizeof t;
    detail::check(tenon_gguf_tensor_at(handle(), index, &t));
    return {detail::view(t.name),
            detail::view(t.format),
            {t.dims, t.dims + t.rank},
            {static_cast<const std::byte*>(t.data), t.size},
            t.type,
            t.shard,
            t.dtype};
  }
  uint32_t index_of(std::string_view key) const {
    const uint32_t i = tenon_gguf_find_key(handle(), detail::str(key));
    if (i == TENON_NONE) throw Error(TENON_NOT_FOUND, "key '" + std::string(key) + "' is missing");
    return i;
  }
  uint32_t tensor_index(std::string_view name) const {
    const uint32_t i = tenon_gguf_find_tensor(handle(), detail::str(name));
    if (i == TENON_NONE)
      throw Error(TENON_NOT_FOUND, "tensor '" + std::string(name) + "' is missing");
    return i;
  }

  detail::Handle<tenon_gguf, tenon_gguf_destroy> handle_;
};

// See tenon_gguf_writer_create().
class GgufWriter {
 public:
  explicit GgufWriter(std::string_view path) {
    tenon_gguf_writer* handle = nullptr;
    detail::check(tenon_gguf_writer_create(detail::str(path), &handle));
    handle_.reset(handle);
  }
  tenon_gguf_writer* handle() const { return handle_.get(); }

  void set(std::string_view key, std::string_view text) {
    detail::check(tenon_gguf_writer_text(handle(), detail::str(key), detail::str(text)));
  }
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }
  void set(std::string_view key, const std::vector<std::string>& texts) {
    std::vector<tenon_str> list;
    for (const std::string& t : texts) list.push_back(detail::str(t));
    detail::check(tenon_gguf_writer_texts(handle(), detail::str(key), list.data(), list.size()));
  }
  // The type in the file is that of T.
  template <class T>
  requires std::is_arithmetic_v<T>
  void set(std::string_view key, T number) {
    detail::check(tenon_gguf_writer_number(handle(), detail::str(key), type_of<T>(), &number));
  }
  template <class T>
  requires(std::is_arithmetic_v<T> &&
           !std::is_same_v<T, bool>) void set(std::string_view key, const std::vector<T>& numbers) {
    detail::check(tenon_gguf_writer_numbers(handle(), detail::str(key), type_of<T>(),
                                            numbers.data(), numbers.size()));
  }
  void add(std::string_view name, const GgufFormat& format, const std::vector<int64_t>& dims) {
    detail::check(tenon_gguf_writer_tensor(handle(), detail::str(name), format.type, dims.data(),
                                           static_cast<uint32_t>(dims.size())));
  }
  void content(std::span<const std::byte> piece) {
    detail::check(tenon_gguf_writer_content(handle(), piece.data(), piece.size()));
  }
  void commit() { detail::check(tenon_gguf_writer_commit(handle())); }

 private:
  template <class T>
  static constexpr uint32_t type_of() {
    if constexpr (std::is_same_v<T, bool>)
      return TENON_GGUF_BOOL;
    else if constexpr (std::is_same_v<T, float>)
      return TENON_GGUF_F32;
    else if constexpr (std::is_same_v<T, double>)
      return TENON_GGUF_F64;
    else if constexpr (sizeof(T) == 1)
      return std::is_signed_v<T> ? TENON_GGUF_I8 : TENON_GGUF_U8;
    else if constexpr (sizeof(T) == 2)
      return std::is_signed_v<T> ? TENON_GGUF_I16 : TENON_GGUF_U16;
    else if constexpr (sizeof(T) == 4)
      return std::is_signed_v<T> ? TENON_GGUF_I32 : TENON_GGUF_U32;
    else
      return std::is_signed_v<T> ? TENON_GGUF_I64 : TENON_GGUF_U64;
  }

  detail::Handle<tenon_gguf_writer, tenon_gguf_writer_destroy> handle_;
};

}  // namespace tenon
