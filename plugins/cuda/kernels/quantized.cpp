// SPDX-License-Identifier: Apache-2.0
// The family quantized: its rows, convolutions, and what follows the sums. Other ops of the family are
// decomposed into elementwise ones, which are fused.
#include "quantized.hpp"

#include "../kernels.hpp"
#include "conv.hpp"

namespace tenon::cuda {
namespace {

using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

constexpr int64_t kMostTerms = 33025;  // of a sum of products of bytes that fits 32 bits
constexpr int64_t kMostCounted = int64_t{1} << 31;

Kernel make_qconv(const sdk::op::qconv& n, const Node& node) {
  const sdk::Type &x = n.x.type(), &w = n.w.type(), &y = node.out(0).type();
  if (y.elements() == 0) return {.run = [](const sdk::Call&) {}};
  const ConvGeometry g =
      conv_geometry(x.dtype, x.shape(), y.shape(),
                    {w.shape().subspan(2), n.stride, n.pads, n.dilation}, n.groups);
  ConvProblem p{.geometry = g, .from = n.x, .w = n.w};
  p.ending.aligned.push_back(node.out(0));
  p.quantized = QuantizedEnding(n, n.x, n.x_zero, n.w, n.w_zero, node, g.taps() * (g.c / g.groups));
  Kernel kernel = takes_planes(p) ? conv_by_planes(node, p) : conv_by_tiles(node, p);
  kernel.cost = p.seconds();
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::qmatmul, make_qmatmul>(),
    sdk::row<sdk::op::qconv, make_qconv>(),
};

}  // namespace

void QuantizedEnding::check(int64_t terms_of) const {
  if (!is_byte(x)) throw Refusal::dtype("x", x);
  if (!is_byte(w)) throw Refusal::dtype("w", w);
  if (terms_of == 0 || terms_of >= kMostCounted || (y != TENON_DTYPE_I32 && terms_of > kMostTerms))
    throw Refusal::shape("sums of " + std::to_string(terms_of) + " terms are not supported");
}
std::vector<std::string> QuantizedEnding::defines() const {
  return {"FILTER=" + type_name("w", w), "RESULT=" + type_name("y", y)};
}
args::QuantizedEnds QuantizedEnding::of(const sdk::Call& c, const void* w_sums) const {
  return {.bias = c.in<int32_t>(bias),
          .multiplier = c.in<float>(multiplier),
          .x_zero = c.in(x_zero),
          .w_zero = c.in(w_zero),
          .y_zero = c.in(y_zero),
          .w_sums = static_cast<const int32_t*>(w_sums),
          .y = c.outputs[0],
          .terms = terms,
          .multiplier_step = several_multipliers,
          .w_zero_step = several_zeros,
          .relu = relu};
}

ByteRowSums::ByteRowSums(CudaDevice& device, tenon_dtype w, int64_t rows_of, int64_t pieces_of)
    : code(device.code(entries::byte_row_sums, {"TYPE=" + type_name("w", w)})),
      rows(static_cast<uint32_t>(rows_of)),
      pieces(static_cast<uint32_t>(pieces_of)) {}
void ByteRowSums::run(const sdk::Call& call, const void* w, void* sums) const {
  code.launch(call, {.blocks = blocks_for(rows, 8), .threads = 256}, w,
              static_cast<uint32_t*>(sums), rows, pieces);
}

std::span<const sdk::Row> quantized_rows() { return kRows; }

}  // namespace tenon::cuda
