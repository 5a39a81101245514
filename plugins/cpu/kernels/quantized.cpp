// SPDX-License-Identifier: Apache-2.0
// The family quantized: its rows, and the kernels of the products of 8-bit integers.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "conv.hpp"
#include "qconv.hpp"
#include "qgemm.hpp"
#include "quantize.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

constexpr double kRate = 2e11;  // products per second, about

void want_bytes(const Value& v, std::string_view operand) {
  const tenon_dtype t = v.type().dtype;
  if (t != TENON_DTYPE_I8 && t != TENON_DTYPE_U8) throw Refusal::dtype(operand, t);
}

// The number at an operand of 8 bits; 0 if it is absent.
int32_t number_of(const Call& c, int position, tenon_dtype dtype) {
  if (position < 0) return 0;
  return dtype == TENON_DTYPE_U8 ? int32_t{*c.in<uint8_t>(position)}
                                 : int32_t{*c.in<int8_t>(position)};
}
bool has_several(const Value& v) { return v && v.type().elements() > 1; }

// What follows the sums.
struct Ends {
  int bias, multiplier, zero;
  bool multipliers, relu;  // multipliers: several
  tenon_dtype y;

  template <class Op>
  Ends(const Op& n, const Node& node)
      : bias(n.bias.position()),
        multiplier(n.multiplier.position()),
        zero(n.y_zero.position()),
        multipliers(has_several(n.multiplier)),
        relu(n.act == "relu"),
        y(node.out(0).type().dtype) {}

  bool narrow() const { return y != TENON_DTYPE_I32; }
  template <class Run>
  void read(const Call& c, Run* run) const {
    run->bias = bias < 0 ? nullptr : c.in<int32_t>(bias);
    run->multipliers = multiplier < 0 ? nullptr : c.in<float>(multiplier);
    run->y_zero = number_of(c, zero, y);
    if (narrow()) {
      run->low = y == TENON_DTYPE_U8 ? 0 : -128;
      run->high = run->low + 255;
      if (relu) run->low = run->y_zero;
    } else {
      run->low = relu ? 0 : std::numeric_limits<int32_t>::min();
      run->high = std::numeric_limits<int32_t>::max();
    }
    run->y_dtype = y;
    run->y = c.outputs[0];
  }
  // Sums of more terms may not fit i32, which wraps; before a multiplier they must not.
  void want_terms(int64_t terms) const {
    if (terms == 0 || (narrow() && terms > kQMostSteps))
      throw Refusal::shape("sums of " + std::to_string(terms) + " terms are not supported");
  }
};

// Where the matrices of each product begin, in elements.
struct Batches {
  std::vector<int64_t> a, b;
};
Batches batches_of(const sdk::Type& a, const sdk::Type& b, const sdk::Type& y) {
  int64_t count = 1;
  for (int k = 0; k < y.rank - 2; ++k) count *= y.dims[k];
  const auto offset = [&](const sdk::Type& t, int64_t index) {
    int64_t at = 0, step = t.dims[t.rank - 1] * t.dims[t.rank - 2];
    for (int k = y.rank - 3, own = t.rank - 3; own >= 0; --k, --own) {
      if (t.dims[own] != 1) at += index % y.dims[k] * step;
      index /= y.dims[k], step *= t.dims[own];
    }
    return at;
  };
  Batches all;
  for (int64_t i = 0; i < count; ++i) all.a.push_back(offset(a, i)), all.b.push_back(offset(b, i));
  return all;
}

Kernel make_qmatmul(const sdk::op::qmatmul& n, const Node& node) {
  want_bytes(n.a, "a"), want_bytes(n.b, "b");
  const sdk::Type &a = n.a.type(), &b = n.b.type(), &y = node.out(0).type();
  if (y.elements() == 0) return {.run = [](const Call&) {}};
  const Ends ends(n, node);
  const int64_t columns = b.dims[b.rank - 1], depth = b.dims[b.rank - 2];
  ends.want_terms(depth);
  // One matrix b: the rows of all matrices a are those of one product.
  const bool one_b = b.elements() == depth * columns;
  int64_t rows = a.dims[a.rank - 2];
  Batches batches{{0}, {0}};
  if (one_b && a.elements() / depth == y.elements() / columns)
    rows = y.elements() / columns;
  else
    batches = batches_of(a, b, y);
  const bool packs = one_b && n.b.frozen();
  const QGemm gemm(q_unit(), rows, columns, depth, {a.dtype, depth, 1}, {b.dtype, columns, 1},
                   packs);
  const auto count = static_cast<int64_t>(batches.a.size());
  const int64_t pieces = gemm.pieces(), y_size = ends.narrow() ? 1 : 4;
  const int slots = conv_slots(count * pieces);
  const uint64_t own = (gemm.piece_scratch() + 63) / 64 * 64;
  Kernel kernel;
  kernel.scratch = static_cast<uint64_t>(slots) * own;
  kernel.cost = gemm.operations() * static_cast<double>(count) / kRate;
  if (packs)
    kernel.derived.push_back({n.b.position(), gemm.packed_layout(), gemm.packed_bytes(),
                              [gemm](const void* dense, void* to) { gemm.pack_b(dense, to); }});
  kernel.run = [=, at_a = n.a.position(), at_b = n.b.position(), a_zero = n.a_zero.position(),
                b_zeros = n.b_zero.position(), several = has_several(n.b_zero),
                a_dtype = a.dtype](const Call& c) {
    QGemm::Run run{};
    ends.read(c, &run);
    run.multipliers_per_column = ends.multipliers;
    run.a_zero = number_of(c, a_zero, a_dtype);
    run.b_zeros = b_zeros < 0 ? nullptr : c.inputs[b_zeros];
    run.b_zeros_per_column = several;
    parallel_for_slots(count * pieces, 1, slots, [&](int slot, int64_t begin, int64_t end) {
      QGemm::Run of = run;
      for (int64_t piece = begin; piece < end; ++piece) {
        const auto k = static_cast<size_t>(piece / pieces);
        of.a = c.in<char>(at_a) + batches.a[k];
        of.b = c.in<char>(at_b) + batches.b[k];
        of.y = static_cast<char*>(run.y) + piece / pieces * rows * columns * y_size;
        gemm.run_piece(of, piece % pieces,
                       static_cast<char*>(c.scratch) + static_cast<uint64_t>(slot) * own);
      }
    });
  };
  return kernel;
}

Kernel make_qconv(const sdk::op::qconv& n, const Node& node) {
  want_bytes(n.x, "x"), want_bytes(n.w, "w");
  const sdk::Type &x = n.x.type(), &w = n.w.type(), &y = node.out(0).type();
  if (y.elements() == 0) return {.run = [](const Call&) {}};
  const Ends ends(n, node);
  const ConvGeometry g = conv_geometry(n, x.shape(), w.shape().subspan(2), y.shape(), n.groups);
  check_conv_depth(g);
  ends.want_terms(g.taps() * (g.c / g.groups));
  const TapConv sums = g.reached();
  const bool constant = n.w.content() != nullptr;
  const QConv conv(q_unit(), sums, x.dtype, w.dtype, static_cast<bool>(n.w_zero),
                   n.w.frozen() || constant);
  std::shared_ptr<std::vector<char>> held;  // packed constants
  if (constant && conv.wants_packed()) {
    held = std::make_shared<std::vector<char>>(conv.packed_bytes());
    conv.pack(n.w.content(), held->data());
  }
  Kernel kernel;
  kernel.scratch = conv.scratch();
  kernel.cost = static_cast<double>(y.elements()) * static_cast<double>(sums.depth()) / kRate;
  if (n.w.frozen() && conv.wants_packed() && !held)
    kernel.derived.push_back({n.w.position(), conv.packed_layout(), conv.packed_bytes(),
                              [conv](const void* dense, void* to) { conv.pack(dense, to); }});
  kernel.run = [=, at_x = n.x.position(), at_w = n.w.position(), x_zero = n.x_zero.position(),
                w_zeros = n.w_zero.position(), several = has_several(n.w_zero),
                x_dtype = x.dtype](const Call& c) {
    QConvRun run{};
    ends.read(c, &run);
    run.multipliers_per_channel = ends.multipliers;
    run.x = c.inputs[at_x];
    run.w = held ? held->data() : c.inputs[at_w];
    run.x_zero = number_of(c, x_zero, x_dtype);
    run.w_zeros = w_zeros < 0 ? nullptr : c.inputs[w_zeros];
    run.w_zeros_per_channel = several;
    run.scratch = c.scratch;
    conv.run(run);
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::quantize, make_quantize>(),
    sdk::row<sdk::op::dequantize, make_dequantize>(),
    sdk::row<sdk::op::qmatmul, make_qmatmul>(),
    sdk::row<sdk::op::qconv, make_qconv>(),
};

}  // namespace

std::span<const sdk::Row> quantized_rows() { return kRows; }

}  // namespace tenon::cpu
