// SPDX-License-Identifier: Apache-2.0
// Numbers of every dtype on the host: rounding, the unit in the last place, tensors as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tenon/dtype.hpp>
#include <tenon/tenon.hpp>

namespace tenon::conform {

inline constexpr tenon_dtype i4 = TENON_DTYPE_I4, u4 = TENON_DTYPE_U4;
inline constexpr tenon_dtype f8e4m3 = TENON_DTYPE_F8E4M3, f8e5m2 = TENON_DTYPE_F8E5M2;

using sdk::is_f8;
using sdk::is_float;
using sdk::is_integer;
using sdk::is_nibble;
inline std::string dtype_text(tenon_dtype dtype) { return std::string(sdk::dtype_name(dtype)); }
// The dtype that sums of this one are made in; f32 for what has no sums.
inline tenon_dtype acc_dtype(tenon_dtype dtype) { return dtype == f64 ? f64 : f32; }

// Of float dtypes. round_to goes to nearest even, and to infinity beyond the largest.
double round_to(tenon_dtype dtype, double x);
double ulp(tenon_dtype dtype, double x);
double unit_roundoff(tenon_dtype dtype);
double largest(tenon_dtype dtype);

struct HostTensor {
  TensorType type{};
  std::vector<std::byte> bytes{};

  HostTensor() = default;
  explicit HostTensor(TensorType t);
  size_t size() const { return static_cast<size_t>(type.elements()); }
  double real(size_t i) const;            // of any dtype
  int64_t integer(size_t i) const;        // of integer dtypes and bool
  void set_real(size_t i, double x);      // rounds
  void set_integer(size_t i, int64_t x);  // wraps
  std::string text(size_t i) const;
};

// Sets all scales and minima of blocks to numbers of around 2^-6.
void set_block_scales(HostTensor& blocks, const std::function<double()>& next);
// Content of f8e4m3_128, for Fill::f8_specials().
void set_f8_specials(HostTensor& blocks);

// Element k of the result is element from[k] of x.
HostTensor picked(const HostTensor& x, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& from);
// "[1,0,2]": the place of a flat index.
std::string place(const std::vector<int64_t>& dims, size_t flat);

}  // namespace tenon::conform
