// SPDX-License-Identifier: Apache-2.0
// Image batches for group_norm and layer_norm2d: how parameters and statistics are read and
// written.
#pragma once

#include "axis.hpp"
#include "norm.hpp"
#include "tenon/norm_ops.hpp"

namespace tenon::cpu {

// Operands and sizes that both norms share.
struct Image : sdk::NormImages {
  tenon_dtype dtype, acc;
  double eps;

  Image(const sdk::Value& x, double given_eps)
      : NormImages(sdk::norm_images_of(x.type())),
        dtype(x.type().dtype),
        acc(acc_dtype(dtype)),
        eps(given_eps) {
    if (!is_float(dtype)) throw sdk::Refusal::dtype("x", dtype);
  }
  int64_t planes() const { return batch * channels; }
  int64_t plane_bytes() const { return pixels * element_bytes(dtype); }

  NormParameter parameter(const sdk::Value& v, uint64_t& scratch) const {
    return {v, channels, acc, scratch};
  }
  // Statistics and converted parameters have the accumulation type.
  double number(const void* list, int64_t k) const {
    if (acc == TENON_DTYPE_F64) return static_cast<const double*>(list)[k];
    return static_cast<const float*>(list)[k];
  }
  void set_number(void* list, int64_t k, double v) const {
    if (acc == TENON_DTYPE_F64) {
      static_cast<double*>(list)[k] = v;
    } else {
      static_cast<float*>(list)[k] = static_cast<float>(v);
    }
  }
};

// A parameter's gradient: one number per channel, rounded once.
struct ChannelOutput {
  int position = -1;
  tenon_dtype dtype{};

  ChannelOutput(const sdk::Node& node, int output) : position(output) {
    if (output >= 0) dtype = node.out(static_cast<size_t>(output)).type().dtype;
  }
  void set(const sdk::Call& c, int64_t channel, double v) const {
    if (position < 0) return;
    if (dtype == TENON_DTYPE_F64) {
      c.out<double>(position)[channel] = v;
    } else {
      const float once = dtype == TENON_DTYPE_F32 ? static_cast<float>(v) : round_to_odd(v);
      narrow(dtype, &once, c.out<char>(position) + channel * element_bytes(dtype), 1);
    }
  }
};

inline const char* plane_of(const Image& m, const void* base, int64_t plane) {
  return static_cast<const char*>(base) + plane * m.plane_bytes();
}
inline char* plane_of(const Image& m, void* base, int64_t plane) {
  return static_cast<char*>(base) + plane * m.plane_bytes();
}

}  // namespace tenon::cpu
