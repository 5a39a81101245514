// SPDX-License-Identifier: Apache-2.0
// The norms of rows: what a run hands to the vector code. `rms` leaves the mean out.
#pragma once

#include <cstdint>

#include "tenon/kernel.hpp"

namespace tenon::cpu {

// Pointers may be null where the op's operand or output is optional. Those called "acc" are in the
// accumulation type.
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
  void* mean = nullptr;  // acc
  void* inv = nullptr;   // acc
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
};
// dgamma and dbeta are sums over these rows, in acc; null where not wanted.
void norm_backward(const NormBackward& a, int64_t first_row, int64_t end_row, void* dgamma,
                   void* dbeta);

sdk::Kernel make_layer_norm(const sdk::op::layer_norm& n, const sdk::Node& node);
sdk::Kernel make_layer_norm_backward(const sdk::op::layer_norm_backward& n, const sdk::Node& node);
sdk::Kernel make_residual_layer_norm(const sdk::op::residual_layer_norm& n, const sdk::Node& node);
sdk::Kernel make_rms_norm(const sdk::op::rms_norm& n, const sdk::Node& node);
sdk::Kernel make_rms_norm_backward(const sdk::op::rms_norm_backward& n, const sdk::Node& node);
sdk::Kernel make_residual_rms_norm(const sdk::op::residual_rms_norm& n, const sdk::Node& node);

}  // namespace tenon::cpu
