// SPDX-License-Identifier: Apache-2.0
// Norms: shared by their families, and the arguments of the vector code for a range of rows. `rms`
// omits the mean.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convert.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// A parameter of n elements in the accumulation type: used in place, or converted to scratch at the
// start of a run.
struct NormParameter {
  int position = -1;  // of the operand; -1 if absent
  tenon_dtype dtype{};
  int64_t n = 0;
  int64_t scratch = -1;  // offset; -1 if used in place

  NormParameter() = default;
  NormParameter(const sdk::Value& v, int64_t count, tenon_dtype acc, uint64_t& scratch_bytes) {
    if (!v) return;
    position = v.position();
    dtype = v.type().dtype;
    n = count;
    if (dtype == acc) return;
    scratch = static_cast<int64_t>(scratch_bytes);
    scratch_bytes += (n * element_bytes(acc) + 63) / 64 * 64;
  }
  const void* prepare(const sdk::Call& c) const {
    if (scratch < 0) return c.in(position);
    void* to = static_cast<char*>(c.scratch) + scratch;
    if (is_half(dtype)) {
      widen(dtype, c.inputs[position], static_cast<float*>(to), n);
    } else {  // f32 beside f64 data
      std::copy_n(c.in<float>(position), n, static_cast<double*>(to));
    }
    return to;
  }
};

// Pointers are null for absent operands and outputs. "acc" is the accumulation type.
struct NormForward {
  tenon_dtype dtype{};
  bool rms = false;
  int64_t n = 0;  // elements of a row
  double eps = 0;
  const void* x = nullptr;
  const void* residual = nullptr;
  const void* bias = nullptr;   // acc
  const void* gamma = nullptr;  // acc
  const void* beta = nullptr;   // acc
  void* y = nullptr;
  void* sum = nullptr;
  void* mean = nullptr;      // acc
  void* inv = nullptr;       // acc
  bool nontemporal = false;  // for y
};
void norm_forward(const NormForward& a, int64_t first_row, int64_t end_row);

struct NormBackward {
  tenon_dtype dtype{};
  bool rms = false;
  int64_t n = 0;
  double eps = 0;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* gamma = nullptr;  // acc
  const void* mean = nullptr;   // acc
  const void* inv = nullptr;    // acc
  const void* dsum = nullptr;
  void* dx = nullptr;
  bool nontemporal = false;  // for dx
};
// dgamma and dbeta are sums over these rows, in acc; null if not requested.
void norm_backward(const NormBackward& a, int64_t first_row, int64_t end_row, void* dgamma,
                   void* dbeta);

}  // namespace tenon::cpu
