// SPDX-License-Identifier: Apache-2.0
// An image batch under group_norm and layer_norm2d: its checks, and how parameters and statistics
// are read and written.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "axis.hpp"
#include "norm.hpp"

namespace tenon::cpu {

// What both norms are told about their operands.
struct Image {
  tenon_dtype dtype{}, acc{};
  int64_t batch = 0, channels = 0, pixels = 1;
  double eps = 0;

  Image(const sdk::Value& x, double given_eps)
      : dtype(x.type().dtype), acc(acc_dtype(dtype)), eps(given_eps) {
    if (!is_float(dtype)) throw sdk::Refusal::dtype("x", dtype);
    if (!(eps >= 0) || std::isinf(eps)) throw sdk::Refusal::attribute("eps", std::to_string(eps));
    if (x.type().rank < 2) throw sdk::Refusal::shape("x must have channels");
    batch = x.type().dims[0], channels = x.type().dims[1];
    for (int i = 2; i < x.type().rank; ++i) pixels *= x.type().dims[i];
  }
  int64_t planes() const { return batch * channels; }
  int64_t plane_bytes() const { return pixels * bytes_of(dtype); }

  void check_same(std::string_view name, const sdk::Value& x, const sdk::Value& v) const {
    if (v.type().dtype != dtype) throw sdk::Refusal::dtype(name, v.type().dtype);
    if (!v.type().same_shape(x.type()))
      throw sdk::Refusal::shape(std::string(name) + " must have the shape of x");
  }
  void check_parameter(std::string_view name, const sdk::Value& v) const {
    if (!v) return;
    const tenon_dtype t = v.type().dtype;
    if (t != dtype && t != TENON_DTYPE_F32) throw sdk::Refusal::dtype(name, t);
    if (v.type().elements() != channels)
      throw sdk::Refusal::shape(std::string(name) + " must have one element for each channel");
  }
  void check_statistic(std::string_view name, const sdk::Value& v, int64_t count) const {
    if (!v) return;
    if (v.type().dtype != acc) throw sdk::Refusal::dtype(name, v.type().dtype);
    if (v.type().elements() != count)
      throw sdk::Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                                " elements, expected " + std::to_string(count));
  }
  NormParameter parameter(const sdk::Value& v, uint64_t& scratch) const {
    return {v, channels, acc, scratch};
  }
  // Statistics and prepared parameters are numbers of the accumulation type.
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

// A parameter's gradient: one number for each channel, rounded once.
struct ChannelOutput {
  int position = -1;
  tenon_dtype dtype{};

  ChannelOutput(const Image& m, const sdk::Node& node, int output) : position(output) {
    if (output < 0) return;
    dtype = node.out(static_cast<size_t>(output)).type().dtype;
    if (dtype != m.dtype && dtype != TENON_DTYPE_F32)
      throw sdk::Refusal::dtype(output == 1 ? "dgamma" : "dbeta", dtype);
  }
  void set(const sdk::Call& c, int64_t channel, double v) const {
    if (position < 0) return;
    if (dtype == TENON_DTYPE_F64) {
      c.out<double>(position)[channel] = v;
    } else {
      const float once = dtype == TENON_DTYPE_F32 ? static_cast<float>(v) : round_to_odd(v);
      narrow(dtype, &once, c.out<char>(position) + channel * bytes_of(dtype), 1);
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
