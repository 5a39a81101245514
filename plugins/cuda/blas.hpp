// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, found at run time: our own declarations of what we call. Values are those that its
// documentation fixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver.hpp"

namespace tenon::cuda {

using BlasHandle = struct BlasHandleObject*;
using ProductDesc = struct ProductDescObject*;
using MatrixLayout = struct MatrixLayoutObject*;
using Preference = struct PreferenceObject*;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

namespace blas_value {
inline constexpr int f32 = 0, f64 = 1, f16 = 2, i8 = 3, i32 = 10, bf16 = 14;  // data types
inline constexpr int compute_f32 = 68, compute_tf32 = 77, compute_f64 = 70, compute_i32 = 72;
inline constexpr int trans_a = 3, trans_b = 4, epilogue = 7, bias_pointer = 8, aux_pointer = 11,
                     aux_ld = 12, bias_type = 26;
inline constexpr int batch_count = 5, batch_stride = 6;
// Sums of parts are kept in the compute type, and added in order.
inline constexpr int reduction_mask = 3, reduce_in_compute_type = 2, reduce_never = 0;
inline constexpr int most_workspace = 1, alignment_a = 5, alignment_b = 6, alignment_c = 7,
                     alignment_d = 8;
inline constexpr int epilogue_none = 1, epilogue_bias = 4, epilogue_gelu = 32,
                     epilogue_gelu_bias = 36,
                     epilogue_aux = 128;  // with gelu: what it is taken of is kept as well
}  // namespace blas_value

class Blas {
 public:
#define CALL(need, name, symbol, arguments) int(*name) arguments = nullptr;
#include "blas_calls.def"
  explicit operator bool() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }  // why it cannot be used
  // Other libraries that were found and refused, with the reasons; empty = none.
  const std::string& passed_over() const { return library_.passed_over; }
  const std::string& version() const { return version_; }
  size_t full_version() const { return full_version_; }  // 130002; 0 = unknown
  // Throws sdk::Failure unless status is success.
  void check(const char* call, int status) const;

 private:
  friend class BlasLibraries;
  explicit Blas(const std::vector<std::string>& without);  // paths of libraries not to take
  Library library_{};
  std::string reason_{}, version_{};
  size_t full_version_ = 0;
};

// Of the process: searched when first asked for.
const Blas& blas();
// A handle for the context that is current: one that was given back, else a new one. While none was
// made in this process a library that makes none gives way to the next one. Throws Failure.
BlasHandle take_blas_handle();
// Keeps a handle of the current context for the next device that is opened in it. It is not
// destroyed, because cublasLtDestroy ends the stream captures of other threads, even in the relaxed
// mode (measured with cuBLAS 13.1). Only with a driver before CUDA 12, which cannot tell contexts
// apart, it is.
void give_blas_handle(BlasHandle handle) noexcept;

}  // namespace tenon::cuda
