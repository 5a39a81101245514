// SPDX-License-Identifier: Apache-2.0
// dtype, Shape and Type of a value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tenon/dtype.hpp"

namespace tenon::core {

using DType = tenon_dtype;
inline constexpr DType kF32 = TENON_DTYPE_F32, kF16 = TENON_DTYPE_F16, kBF16 = TENON_DTYPE_BF16,
                       kF64 = TENON_DTYPE_F64, kI8 = TENON_DTYPE_I8, kI16 = TENON_DTYPE_I16,
                       kI32 = TENON_DTYPE_I32, kI64 = TENON_DTYPE_I64, kU8 = TENON_DTYPE_U8,
                       kU16 = TENON_DTYPE_U16, kU32 = TENON_DTYPE_U32, kU64 = TENON_DTYPE_U64,
                       kBool = TENON_DTYPE_BOOL;

std::optional<DType> dtype_from_name(std::string_view name);
using sdk::acc_dtype;  // acc(T)
using sdk::dtype_name;
using sdk::is_blocks;
using sdk::is_complex;
using sdk::is_float;    // F
using sdk::is_half;     // H
using sdk::is_index;    // X
using sdk::is_integer;  // I

// A number >= 0, or a symbol: ~s for symbol s of the graph. Only types of inputs contain symbols.
using Dim = int64_t;
constexpr bool is_symbol(Dim d) { return d < 0; }

// Up to 8 dims, row-major.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const Dim> dims) {
    if (dims.size() > TENON_MAX_RANK)
      fail(Code::unsupported, "rank ", dims.size(), " is over the limit of 8");
    for (Dim d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  Dim operator[](int i) const { return dims_[i]; }
  Dim& operator[](int i) { return dims_[i]; }
  std::span<const Dim> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + rank_; }
  void push(Dim d) {
    if (rank_ == TENON_MAX_RANK) fail(Code::unsupported, "rank 9 is over the limit of 8");
    dims_[rank_++] = d;
  }
  bool numeric() const {
    for (Dim d : *this)
      if (is_symbol(d)) return false;
    return true;
  }
  int64_t elements() const;  // of a numeric shape; fails on overflow
  std::string text() const;  // "[4,256]"; symbols as "?"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<Dim, TENON_MAX_RANK> dims_{};
  int rank_ = 0;
};

struct Type {
  DType dtype = TENON_DTYPE_NONE;
  Shape shape;
  std::string text() const;  // "f32[4,256]"
  friend bool operator==(const Type&, const Type&) = default;
};

// The size in bytes of a dense value.
uint64_t type_bytes(const Type& type);

// Blocks lie along the last axis: refuses a type whose last dim is no multiple of a block, or that
// has symbols. Other dtypes pass. Messages start with `who`.
void want_whole_blocks(const Type& type, std::string_view who);

// Maps an axis in [-rank, rank) to [0, rank). Messages start with `who`.
int normalize_axis(int64_t axis, int rank, std::string_view who);
// NumPy broadcasting. Fails with shape_mismatch; messages start with `who`.
Shape broadcast(const Shape& a, const Shape& b, std::string_view who);

}  // namespace tenon::core
