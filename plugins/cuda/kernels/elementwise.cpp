// SPDX-License-Identifier: Apache-2.0
// The rows of the elementwise family: each op is one step of a generated text. The
// gated ones are in swiglu.cpp.
#include "elementwise.hpp"
#include "entries.hpp"

#include "../kernels.hpp"
#include "swiglu.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

tenon_dtype out_dtype(const Node& node) { return node.out(0).type().dtype; }

Kernel finish(const Node& node, BodyText& text, const Register& y,
              const std::vector<sdk::Value>& in) {
  text.output(y, out_dtype(node));
  return elementwise_kernel(device_of(node), std::string(node.op()), text, in,
                            node.out(0).type().shape());
}

// Computed with: no 8-bit floats, no complex numbers.
Register operand(BodyText& text, std::string_view name, const sdk::Value& v) {
  const tenon_dtype t = v.type().dtype;
  if (!is_float(t) && !is_integer(t) && t != TENON_DTYPE_BOOL) throw Refusal::dtype(name, t);
  return text.input(name, t);
}

Kernel make_binary(const sdk::op::binary& n, const Node& node) {
  BodyText text;
  const Register a = operand(text, "a", n.a), b = operand(text, "b", n.b);
  return finish(node, text, binary_step(text, n.kind, a, b), {n.a, n.b});
}

Kernel make_compare(const sdk::op::compare& n, const Node& node) {
  BodyText text;
  const Register a = operand(text, "a", n.a), b = operand(text, "b", n.b);
  return finish(node, text, compare_step(text, n.kind, a, b), {n.a, n.b});
}

Kernel make_logical(const sdk::op::logical& n, const Node& node) {
  BodyText text;
  const Register a = operand(text, "a", n.a);
  const Register b = n.b ? operand(text, "b", n.b) : Register{};
  std::vector<sdk::Value> in = {n.a};
  if (n.b) in.push_back(n.b);
  return finish(node, text, logical_step(text, n.kind, a, b), in);
}

Kernel make_unary(const sdk::op::unary& n, const Node& node) {
  BodyText text;
  const Register x = operand(text, "x", n.x);
  return finish(node, text, unary_step(text, n, x, out_dtype(node)), {n.x});
}

Kernel make_activation_backward(const sdk::op::activation_backward& n, const Node& node) {
  BodyText text;
  const Register x = operand(text, "x", n.x), dy = operand(text, "dy", n.dy);
  return finish(node, text, slope_step(text, n, x, dy, out_dtype(node)), {n.x, n.dy});
}

// To or from 4-bit integers: a thread for each byte of them, which lie dense.
Kernel make_nibble_cast(const sdk::op::cast& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  if (!x.dense())
    throw Refusal(TENON_REASON_DTYPE, "operand x of a cast of 4-bit integers is not dense");
  const auto name = [](std::string_view operand, tenon_dtype t) {
    return is_nibble(t) ? std::string(sdk::dtype_name(t)) : type_name(operand, t);
  };
  if (sdk::is_complex(x.dtype)) throw Refusal::dtype("x", x.dtype);
  const tenon_dtype to = out_dtype(node);
  CudaDevice& device = device_of(node);
  const auto code =
      device.code(entries::cast_nibbles, {"FROM=" + name("x", x.dtype), "TO=" + name("y", to)});
  const int64_t count = x.elements();
  const Grid grid = {.blocks = launchable(blocks_for(count, 512)),
                     .early = device.properties().early_starts};
  return kernel_of({code}, [=, position = n.x.position(),
                            saturate = static_cast<uint32_t>(n.saturate)](const sdk::Call& c) {
    code.launch(c, grid, c.inputs[position], c.outputs[0], count, saturate);
  });
}

// To blocks along the last axis, whose numbers may lie strided.
Kernel make_block_cast(const sdk::op::cast& n, const Node& node) {
  const sdk::Type& x = n.x.type();
  if (!is_float(x.dtype)) throw Refusal::dtype("x", x.dtype);
  const tenon_block block = tenon_dtype_block(TENON_DTYPE_Q8_0);
  constexpr int64_t kThreads = 256, kEach = 4;  // of cast_q8_0.cu
  const int last = x.rank - 1;
  args::CastBlocks s{.count = x.elements() / block.elements, .step = x.strides[last]};
  if (s.count >= kNarrowIndex) throw Refusal::shape("2^31 or more blocks for one kernel");
  std::vector<std::pair<int64_t, int64_t>> axes;  // dims and strides, the last axis first
  bool wide =
      s.step == 1 && n.x.alignment() % static_cast<uint64_t>(kEach * element_bytes(x.dtype)) == 0;
  for (int k = last; k >= 0 && s.count > 0; --k) {
    const int64_t dim = k == last ? x.dims[k] / block.elements : x.dims[k],
                  stride = k == last ? x.strides[k] * block.elements : x.strides[k];
    if (dim == 1) continue;
    wide &= stride % kEach == 0;
    if (!axes.empty() && stride == axes.back().first * axes.back().second)
      axes.back().first *= dim;
    else
      axes.emplace_back(dim, stride);
  }
  if (axes.empty()) axes.emplace_back(1, 0);
  const auto rank = static_cast<int64_t>(axes.size());
  for (int64_t k = 0; k < rank; ++k) {
    const auto& [dim, stride] = axes[static_cast<size_t>(rank - 1 - k)];
    s.divisors[k] = Divisor(static_cast<uint32_t>(dim)), s.strides[k] = stride;
  }
  CudaDevice& device = device_of(node);
  const auto code = device.code(
      entries::cast_q8_0,
      {"FROM=" + type_name("x", x.dtype), define("RANK", rank), define("WIDE", wide ? 1 : 0)});
  const Grid grid = {.blocks = blocks_for(s.count * (block.elements / kEach), kThreads),
                     .threads = kThreads,
                     .early = device.properties().early_starts};
  return kernel_of({code}, [=, position = n.x.position()](const sdk::Call& c) {
    code.launch(c, grid, c.inputs[position], c.outputs[0], s);
  });
}

Kernel make_cast(const sdk::op::cast& n, const Node& node) {
  const tenon_dtype to = out_dtype(node);
  if (to == TENON_DTYPE_Q8_0) return make_block_cast(n, node);
  for (const tenon_dtype t : {n.x.type().dtype, to})
    if (sdk::is_blocks(t)) throw Refusal::dtype("x", t);
  if (is_nibble(to) || is_nibble(n.x.type().dtype)) return make_nibble_cast(n, node);
  BodyText text;
  const Register x = text.input("x", n.x.type().dtype);
  for (const tenon_dtype t : {x.dtype, to})
    if (sdk::is_complex(t)) throw Refusal::dtype("x", t);
  return finish(node, text, cast_step(text, to, n.saturate, x), {n.x});
}

// Bits are moved, of whatever dtype.
Kernel make_where(const sdk::op::where& n, const Node& node) {
  const tenon_dtype dtype = n.a.type().dtype;
  BodyText text;
  const Register cond = text.input("cond", n.cond.type().dtype);
  const Register a = text.input("a", dtype, true), b = text.input("b", dtype, true);
  text.output({cond.text + " ? " + a.text + " : " + b.text, dtype}, dtype, true);
  return elementwise_kernel(device_of(node), "where", text, {n.cond, n.a, n.b},
                            node.out(0).type().shape());
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::binary, make_binary>(sdk::kStrided),
    sdk::row<sdk::op::compare, make_compare>(sdk::kStrided),
    sdk::row<sdk::op::logical, make_logical>(sdk::kStrided),
    sdk::row<sdk::op::unary, make_unary>(sdk::kStrided),
    sdk::row<sdk::op::activation_backward, make_activation_backward>(sdk::kStrided),
    sdk::row<sdk::op::cast, make_cast>(sdk::kStrided | sdk::kBlocks),
    sdk::row<sdk::op::where, make_where>(sdk::kStrided),
    sdk::row<sdk::op::swiglu, make_swiglu>(),
    sdk::row<sdk::op::swiglu_backward, make_swiglu_backward>(),
};

}  // namespace

std::span<const sdk::Row> elementwise_rows() { return kRows; }

}  // namespace tenon::cuda
