// SPDX-License-Identifier: Apache-2.0
// concat and iota. The other ops are views of their operand and need no kernel; pad is in
// shape_pad.cpp.
#include "shape.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "block_copy.hpp"
#include "convert.hpp"
#include "elementwise.hpp"
#include "loops.hpp"
#include "tenon/layer/views.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// ---- concat

Kernel make_concat(const sdk::op::concat& n, const Node& node) {
  struct Part {
    int input;
    int64_t offset;  // in bytes, of its first element in y
    BlockCopy copy;
  };
  sdk::Type y = node.out(0).type();
  y.set_dense_strides();
  const AxisView view = along_axis(y, n.axis);
  const int64_t bytes = element_bytes("xs", y.dtype);
  std::vector<Part> parts;
  int64_t at = 0;
  for (const sdk::Value& x : n.xs) {
    const sdk::Type& type = x.type();
    if (type.elements() > 0)
      parts.push_back({x.position(), at * view.inner * bytes,
                       block_copy(type.shape(), type.strides, y.strides, bytes)});
    at += type.dims[view.axis];
  }
  return {.run = [parts](const Call& c) {
    for (const Part& p : parts) p.copy(c.inputs[p.input], c.out<char>(0) + p.offset);
  }};
}

// ---- iota

struct Iota {
  AxisView view;
  double start = 0;
  double step = 1;
};

// y = value(index along the axis), rounded once.
template <class T, class Value>
void write_iota(const AxisView& v, T* y, Value&& value) {
  parallel_for(v.outer * v.length * v.inner, grain_for(sizeof(T)), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t run = begin / v.inner, stop = std::min(end, (run + 1) * v.inner);
      const T t = value(run % v.length);
      if (v.inner == 1) {
        y[begin++] = t;
      } else {
        std::fill(y + begin, y + stop, t);
        begin = stop;
      }
    }
  });
}

// Integers are exact: start and step are integers, and sums wrap.
template <class T>
void iota_integer(const Iota& o, void* y) {
  const uint64_t start = static_cast<uint64_t>(static_cast<int64_t>(o.start));
  const uint64_t step = static_cast<uint64_t>(static_cast<int64_t>(o.step));
  write_iota(o.view, static_cast<T*>(y),
             [=](int64_t i) { return static_cast<T>(start + step * static_cast<uint64_t>(i)); });
}

template <class T>
void iota_float(const Iota& o, void* y) {
  write_iota(o.view, static_cast<T*>(y),
             [&](int64_t i) { return round_once<T>(o.start + o.step * static_cast<double>(i)); });
}

Kernel make_iota(const sdk::op::iota& n, const Node& node) {
  const sdk::Type& y = node.out(0).type();
  using Write = void (*)(const Iota&, void*);
  const auto write = with_number("y", y.dtype, []<class T>(T) -> Write {
    if constexpr (std::is_integral_v<T>)
      return iota_integer<T>;
    else
      return iota_float<T>;
  });
  const Iota o{along_axis(y, n.axis), n.start, n.step};
  return {.run = [o, write](const Call& c) { write(o, c.outputs[0]); }};
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::narrow, sdk::view_narrow>(sdk::kStrided),
    sdk::row<sdk::op::concat, make_concat>(sdk::kStrided),
    sdk::row<sdk::op::transpose, sdk::view_transpose>(sdk::kStrided),
    sdk::row<sdk::op::expand, sdk::view_expand>(sdk::kStrided),
    sdk::row<sdk::op::reshape, sdk::view_reshape>(sdk::kStrided | sdk::kBlocks),
    sdk::row<sdk::op::view_as_real, sdk::view_as_real>(sdk::kStrided),
    sdk::row<sdk::op::view_as_complex, sdk::view_as_complex<make_copy>>(sdk::kStrided),
    sdk::row<sdk::op::pad, make_pad>(),
    sdk::row<sdk::op::iota, make_iota>(),
};

}  // namespace

std::span<const sdk::Row> shape_rows() { return kRows; }

}  // namespace tenon::cpu
