// SPDX-License-Identifier: Apache-2.0
// Known tensors: from bytes and to bytes, and conversions between dtypes.
#include "import/onnx/known.hpp"

#include <cmath>
#include <cstring>

#include "base/number.hpp"

namespace tenon::core::onnx {
namespace {

template <class T>
int64_t load_integer(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return static_cast<int64_t>(v);
}

int64_t load_integer(DType t, const std::byte* at) {
  switch (t) {
    case TENON_DTYPE_I8:
      return load_integer<int8_t>(at);
    case TENON_DTYPE_I16:
      return load_integer<int16_t>(at);
    case TENON_DTYPE_I32:
      return load_integer<int32_t>(at);
    case TENON_DTYPE_U8:
      return load_integer<uint8_t>(at);
    case TENON_DTYPE_U16:
      return load_integer<uint16_t>(at);
    case TENON_DTYPE_U32:
      return load_integer<uint32_t>(at);
    case TENON_DTYPE_BOOL:
      return load_integer<uint8_t>(at) != 0;
    default:
      return load_integer<int64_t>(at);
  }
}

// Truncates toward zero, saturates, and gives 0 for NaN, as the op cast.
int64_t integer_of(DType t, double value) {
  int64_t bits = 0;
  store_number(t, &bits, value);
  std::byte bytes[8];
  std::memcpy(bytes, &bits, sizeof bytes);
  return load_integer(t, bytes);
}

}  // namespace

double Known::number(size_t i) const {
  if (real()) return reals[i];
  if (dtype == kU64) return static_cast<double>(static_cast<uint64_t>(ints[i]));
  return static_cast<double>(ints[i]);
}

int64_t count_of(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool empty = false, over = false;
  for (const int64_t d : dims) {
    if (d < 0) fail(Code::invalid_argument, "a dim: expected a number >= 0, got ", d);
    if (d == 0)
      empty = true;
    else
      over |= __builtin_mul_overflow(count, d, &count);
  }
  if (empty) return 0;
  if (over) fail(Code::unsupported, "a shape whose number of elements does not fit in 63 bits");
  return count;
}

int64_t wrapped(DType t, int64_t value) {
  if (t == kBool) return value != 0;
  std::byte bytes[8];
  std::memcpy(bytes, &value, sizeof bytes);
  return load_integer(t, bytes);
}

double rounded(DType t, double value) {
  if (t == kF64) return value;
  double bits = 0, out = 0;
  store_number(t, &bits, value);
  load_number(t, &bits, &out);
  return out;
}

Known known_ints(DType dtype, Ints dims, std::vector<int64_t> values) {
  check(static_cast<int64_t>(values.size()) == count_of(dims), "known_ints: a wrong size");
  for (int64_t& v : values) v = wrapped(dtype, v);
  return {dtype, std::move(dims), std::move(values), {}};
}

Known known_reals(DType dtype, Ints dims, std::vector<double> values) {
  check(static_cast<int64_t>(values.size()) == count_of(dims), "known_reals: a wrong size");
  for (double& v : values) v = rounded(dtype, v);
  return {dtype, std::move(dims), {}, std::move(values)};
}

Known known_full(DType dtype, Ints dims, double value) {
  const auto count = static_cast<size_t>(count_of(dims));
  if (is_float(dtype))
    return known_reals(dtype, std::move(dims), std::vector<double>(count, value));
  return {
      dtype,
      std::move(dims),
      std::vector<int64_t>(count, dtype == kBool ? int64_t{value != 0} : integer_of(dtype, value)),
      {}};
}

Known known_cast(const Known& from, DType to) {
  if (from.dtype == to) return from;
  Known out{to, from.dims, {}, {}};
  const auto count = static_cast<size_t>(from.size());
  if (is_float(to)) {
    for (size_t i = 0; i < count; ++i) out.reals.push_back(rounded(to, from.number(i)));
  } else if (from.real()) {
    for (const double v : from.reals)
      out.ints.push_back(to == kBool ? int64_t{v != 0} : integer_of(to, v));
  } else {
    for (const int64_t v : from.ints) out.ints.push_back(wrapped(to, v));
  }
  return out;
}

Known known_from(DType dtype, Ints dims, const Bytes& content) {
  const auto count = static_cast<size_t>(count_of(dims));
  const size_t each = tenon_dtype_bits(dtype) / 8;
  if (content.size() != count * each)
    fail(Code::corrupt, "a tensor: expected ", count * each, " bytes, got ", content.size());
  Known out{dtype, std::move(dims), {}, {}};
  for (size_t i = 0; i < count; ++i) {
    const std::byte* at = content.data() + i * each;
    if (is_float(dtype)) {
      double v = 0;
      load_number(dtype, at, &v);
      out.reals.push_back(v);
    } else {
      out.ints.push_back(load_integer(dtype, at));
    }
  }
  return out;
}

Bytes content_of(const Known& known) {
  const size_t each = tenon_dtype_bits(known.dtype) / 8;
  const auto count = static_cast<size_t>(known.size());
  Bytes out(count * each);
  for (size_t i = 0; i < count; ++i)
    if (known.real())
      store_number(known.dtype, out.data() + i * each, known.reals[i]);
    else
      std::memcpy(out.data() + i * each, &known.ints[i], each);  // little-endian: the low bytes
  return out;
}

}  // namespace tenon::core::onnx
