// SPDX-License-Identifier: Apache-2.0
// The ops that only look at their operand otherwise are views; copy, concat and iota write. pad is
// in shape_pad.cpp.
#include "shape.hpp"

#include <algorithm>
#include <cmath>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "strided_copy.hpp"
#include "tenon/layer/views.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

StridedCopy::Side side(const sdk::Type& t, uint64_t alignment) {
  return {{t.strides.data(), static_cast<size_t>(t.rank)}, alignment};
}
sdk::Type dense(sdk::Type t) {
  t.set_dense_strides();
  return t;
}

// Also of the pairs that view_as_complex makes complex numbers of: the output has another type then.
Kernel make_copy(const sdk::op::copy& n, const Node& node) {
  const sdk::Type &x = n.x.type(), y = dense(x);
  if (x.dense()) {
    return {.run = [bytes = x.bytes()](const Call& c) {
      if (bytes == 0) return;
      TENON_CUDA(copy_on_device, reinterpret_cast<Address>(c.outputs[0]),
                 reinterpret_cast<Address>(c.inputs[0]), bytes, static_cast<Stream>(c.stream));
    }};
  }
  want_bytes("x", x.dtype);
  const StridedCopy copy(device_of(node), x.shape(), side(x, n.x.alignment()),
                         side(y, node.out(0).alignment()), element_bytes(x.dtype));
  return kernel_of(copy.codes(),
                   [copy](const Call& c) { copy.launch(c, c.inputs[0], c.outputs[0]); });
}

Kernel make_concat(const sdk::op::concat& n, const Node& node) {
  struct Part {
    int input;
    int64_t offset;  // bytes, of its first element in y
    StridedCopy copy;
  };
  const sdk::Type y = dense(node.out(0).type());
  const AxisView view = along_axis(y, n.axis);
  want_bytes("xs", y.dtype);
  const int64_t bytes = element_bytes(y.dtype);
  std::vector<Part> parts;
  std::vector<Code> codes;
  int64_t at = 0;
  for (const sdk::Value& x : n.xs) {
    const sdk::Type& type = x.type();
    if (type.elements() > 0) {
      const int64_t offset = at * view.inner * bytes;
      const auto aligned = static_cast<uint64_t>(offset == 0 ? 16 : offset & -offset);
      parts.push_back({x.position(), offset,
                       StridedCopy(device_of(node), type.shape(), side(type, x.alignment()),
                                   side(y, std::min(aligned, node.out(0).alignment())), bytes)});
      codes.push_back(parts.back().copy.code());
    }
    at += type.dims[view.axis];
  }
  return kernel_of(std::move(codes), [parts](const Call& c) {
    for (const Part& p : parts) p.copy.launch(c, c.inputs[p.input], c.out<char>(0) + p.offset);
  });
}

// number: the name of Number in device text.
template <class Number>
Kernel iota_kernel(const sdk::op::iota& n, const Node& node, const char* number,
                   const Entry<void*, args::IotaOf<Number>>& entry) {
  const sdk::Type& y = node.out(0).type();
  const AxisView v = along_axis(y, n.axis);
  const args::IotaOf<Number> o{y.elements(), v.length, v.inner, static_cast<Number>(n.start),
                               static_cast<Number>(n.step)};
  constexpr uint32_t kThreads = 256;
  const int64_t width = 16 / element_bytes(y.dtype);
  const auto code = device_of(node).code(
      entry, {"T=" + type_name("y", y.dtype), std::string("NUMBER=") + number, define("V", width)});
  return kernel_of({code}, [=](const Call& c) {
    code.launch(c, {.blocks = blocks_for(o.count, width * kThreads), .threads = kThreads},
                c.outputs[0], o);
  });
}

Kernel make_iota(const sdk::op::iota& n, const Node& node) {
  const tenon_dtype dtype = node.out(0).type().dtype;
  if (is_float(dtype)) return iota_kernel<double>(n, node, "f64", entries::iota_f64);
  if (!is_integer(dtype)) throw Refusal::attribute("dtype", sdk::dtype_name(dtype));
  return iota_kernel<int64_t>(n, node, "i64", entries::iota_i64);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::copy, make_copy>(sdk::kStrided),
    sdk::row<sdk::op::narrow, sdk::view_narrow>(sdk::kStrided),
    sdk::row<sdk::op::transpose, sdk::view_transpose>(sdk::kStrided),
    sdk::row<sdk::op::expand, sdk::view_expand>(sdk::kStrided),
    sdk::row<sdk::op::reshape, sdk::view_reshape>(sdk::kStrided | sdk::kBlocks),
    sdk::row<sdk::op::view_as_real, sdk::view_as_real>(sdk::kStrided),
    sdk::row<sdk::op::view_as_complex, sdk::view_as_complex<make_copy>>(sdk::kStrided),
    sdk::row<sdk::op::concat, make_concat>(sdk::kStrided),
    sdk::row<sdk::op::pad, make_pad>(),
    sdk::row<sdk::op::iota, make_iota>(),
};

}  // namespace

std::span<const sdk::Row> shape_rows() { return kRows; }

}  // namespace tenon::cuda
