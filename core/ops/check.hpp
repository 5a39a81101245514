// SPDX-License-Identifier: Apache-2.0
// Checks shared by the shape rules of several families.
#pragma once

#include <limits>

#include "ops/record.hpp"

namespace tenon::core {

// Returns the shape if its size does not overflow. The error names the op.
inline Shape sized(const Infer& i, const Shape& shape) {
  try {
    shape.elements();
  } catch (const Error& e) {
    i.fail(e.code(), e.what());
  }
  return shape;
}

// "[0,-1]": a list attribute in a message.
inline std::string text_of(const Ints& list) {
  std::string text = "[";
  for (size_t k = 0; k < list.size(); ++k) text += cat(k ? "," : "", list[k]);
  return text + "]";
}

// The attribute `shape` of ops that create a tensor.
inline Shape shape_attr(const Infer& i, const Ints& dims) {
  if (dims.size() > TENON_MAX_RANK)
    i.fail(Code::unsupported, "attribute shape: expected at most 8 dims, given ", dims.size());
  for (const int64_t d : dims)
    if (d < 0) i.fail(Code::invalid_argument, "attribute shape: expected dims >= 0, given ", d);
  return sized(i, Shape(std::span<const Dim>(dims)));
}

// A list attribute with one entry per axis; an empty list means `otherwise` for every axis.
inline Ints per_axis(const Infer& i, std::string_view attr, const Ints& given, int rank,
                     int64_t otherwise) {
  if (given.empty()) return Ints(static_cast<size_t>(rank), otherwise);
  if (given.size() != static_cast<size_t>(rank))
    i.fail(Code::invalid_argument, "attribute ", attr, ": expected one entry per axis, ", rank,
           ", given ", given.size());
  return given;
}

// Entries of a list attribute, each from `least` on.
inline void want_entries(const Infer& i, std::string_view attr, const Ints& list, size_t count,
                         int64_t least) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (list.size() != count)
    i.fail(Code::invalid_argument, "attribute ", attr, ": expected ", count, " entries, given ",
           text_of(list));
  for (const int64_t v : list)
    if (v < least || v > kMost)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected numbers from ", least,
             " to 2^31 - 1, given ", text_of(list));
}

inline void want_number(const Infer& i, Value v, std::string_view operand) {
  if (!is_float(i.dtype(v)) && !is_integer(i.dtype(v)))
    i.fail(Code::dtype_mismatch, "operand ", operand, ": expected a float or an integer, got ",
           i.type(v).text());
}

inline void want_number_or_bool(const Infer& i, Value v, std::string_view operand) {
  if (!is_float(i.dtype(v)) && !is_integer(i.dtype(v)) && i.dtype(v) != kBool)
    i.fail(Code::dtype_mismatch, "operand ", operand,
           ": expected a float, an integer or bool, got ", i.type(v).text());
}

inline void want_ranked(const Infer& i, Value v, std::string_view operand) {
  if (i.shape(v).rank() == 0)
    i.fail(Code::shape_mismatch, "operand ", operand, ": expected rank >= 1, got ",
           i.type(v).text());
}

// An empty axis has no valid index.
inline void want_reachable(const Infer& i, int64_t dim, Value indices, const std::string& oob) {
  if (dim == 0 && i.shape(indices).elements() != 0 && oob != "skip")
    i.fail(Code::index_out_of_range, "operand indices: expected none for an axis of length 0, got ",
           i.type(indices).text());
}

// The rng operand of random ops: seed and offset.
inline void want_rng(const Infer& i, Value rng) {
  i.want_dtype(rng, "rng", kI64);
  i.want_shape(rng, "rng", {2});
}

}  // namespace tenon::core
