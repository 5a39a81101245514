// SPDX-License-Identifier: Apache-2.0
// Runs one node on the template plugin and gives its outputs as lists.
#pragma once

#include <cmath>
#include <limits>

#include "fake_host.hpp"

namespace tenon::test {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr tenon_dtype kF64 = TENON_DTYPE_F64, kI64 = TENON_DTYPE_I64;

template <class T>
constexpr tenon_dtype kDtype = TENON_DTYPE_NONE;
template <>
constexpr tenon_dtype kDtype<double> = TENON_DTYPE_F64;
template <>
constexpr tenon_dtype kDtype<float> = TENON_DTYPE_F32;
template <>
constexpr tenon_dtype kDtype<int8_t> = TENON_DTYPE_I8;
template <>
constexpr tenon_dtype kDtype<uint8_t> = TENON_DTYPE_U8;
template <>
constexpr tenon_dtype kDtype<int32_t> = TENON_DTYPE_I32;
template <>
constexpr tenon_dtype kDtype<uint32_t> = TENON_DTYPE_U32;
template <>
constexpr tenon_dtype kDtype<int64_t> = TENON_DTYPE_I64;

struct Tensor {
  Shape shape;
  Bytes bytes;
};
template <class T>
Tensor tensor(Ints dims, const std::vector<T>& content, tenon_dtype dtype = kDtype<T>) {
  return {{dtype, std::move(dims)}, bytes_of(content)};
}
template <class T>
Tensor line(const std::vector<T>& content, tenon_dtype dtype = kDtype<T>) {
  return tensor<T>({static_cast<int64_t>(content.size())}, content, dtype);
}

inline const Plugin& plugin() {
  static Plugin* p = new Plugin(TENON_TEMPLATE_PLUGIN);
  return *p;
}

// All outputs of one node.
inline std::vector<Bytes> eval(const std::string& op, const std::vector<Tensor>& inputs,
                               const std::vector<Shape>& outputs,
                               const std::vector<Attr>& attrs = {}, Problem* problem = nullptr) {
  BlobBuilder b;
  std::vector<uint32_t> operands;
  std::vector<Bytes> contents;
  for (const Tensor& t : inputs) {
    operands.push_back(t.shape.dims == Ints{-1} ? TENON_NONE : b.input(t.shape));
    if (operands.back() != TENON_NONE) contents.push_back(t.bytes);
  }
  const uint32_t first = b.node(op, operands, outputs, attrs);
  for (uint32_t k = 0; k < outputs.size(); ++k) b.output(first + k);
  return plugin().run(b, contents, problem);
}
inline const Tensor kAbsent{{TENON_DTYPE_NONE, {-1}}, {}};

// One output of T.
template <class T>
std::vector<T> eval_as(const std::string& op, const std::vector<Tensor>& inputs, const Ints& dims,
                       const std::vector<Attr>& attrs = {}, tenon_dtype dtype = kDtype<T>) {
  return list_of<T>(eval(op, inputs, {{dtype, dims}}, attrs).at(0));
}
inline Problem problem_of(const std::string& op, const std::vector<Tensor>& inputs,
                          const Shape& output, const std::vector<Attr>& attrs) {
  Problem p;
  eval(op, inputs, {output}, attrs, &p);
  return p;
}

// Equal, NaN to NaN and zeros by sign.
inline bool same(const Doubles& a, const Doubles& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return false;
    if (!std::isnan(a[i]) && (a[i] != b[i] || std::signbit(a[i]) != std::signbit(b[i])))
      return false;
  }
  return true;
}
inline bool near(double a, double b, double relative = 1e-15) {
  return std::fabs(a - b) <= relative * std::fabs(b);
}

}  // namespace tenon::test
