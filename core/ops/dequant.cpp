// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_matmul grouped_dequant_matmul dequant_rows: weights that consist of
// blocks (specification 1.4 to 1.6). The decompositions decode all of w: correct, but slow. A
// dequant_matmul with neighbours is decomposed into the nodes that it stands for, first.
#include <cmath>

#include "ops/check.hpp"
#include "ops/grouped.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kFloats = "f32 f16 bf16 f64", kComputes = "f32 tf32 f16 bf16 int8",
                           kGates = "none silu gelu gelu_tanh relu sigmoid",
                           kNoGradient = "blocks are constants: they have no gradient";

// ---- shape

void want_blocks(const Infer& i, Value w, int rank) {
  const DType t = i.dtype(w);
  if (!is_blocks(t))
    i.fail(Code::dtype_mismatch, "operand w: expected blocks such as q4_k, got ", i.type(w).text());
  if (!sdk::is_decodable(t))
    i.fail(Code::unsupported, "operand w: ", dtype_name(t),
           " takes its elements from a long table, which no op does; expected another format");
  if (rank) i.want_rank(w, "w", rank);
}

void want_float_result(const Infer& i, DType to) {
  if (!is_float(to))
    i.fail(Code::dtype_mismatch, "attribute to: expected a float, given ",
           to == TENON_DTYPE_NONE ? "none" : dtype_name(to));
}

void dequantize_blocks_shape(Infer& i, const op::dequantize_blocks& n) {
  want_blocks(i, n.w, 0);
  want_float_result(i, n.to);
  i.out(0, {n.to, i.shape(n.w)});
}

void want_norm_of_x(const Infer& i, const op::dequant_matmul& n) {
  if (!n.gamma) {
    if (n.residual)
      i.fail(Code::invalid_argument, "operand gamma: expected one beside operand residual");
    return;
  }
  if (!(n.eps >= 0 && std::isfinite(n.eps)))
    i.fail(Code::invalid_argument, "attribute eps: expected 0 or more, given ", n.eps);
  if (i.dtype(n.gamma) != i.dtype(n.x) && i.dtype(n.gamma) != kF32)
    i.fail(Code::dtype_mismatch, "operand gamma: expected ", dtype_name(i.dtype(n.x)),
           " or f32, got ", i.type(n.gamma).text());
  i.want_shape(n.gamma, "gamma", {i.shape(n.w)[1]});
  i.want_same_dtype(n.x, "x", n.residual, "residual");
  i.want_shape(n.residual, "residual", i.shape(n.x));
  if (n.want_sum && !n.residual)
    i.fail(Code::invalid_argument, "output sum: expected operand residual");
}

void dequant_matmul_shape(Infer& i, const op::dequant_matmul& n) {
  i.want_float(n.x, "x");
  want_blocks(i, n.w, 2);
  Shape y = i.shape(n.x);
  const Shape& w = i.shape(n.w);
  if (y.rank() == 0 || y[y.rank() - 1] != w[1])
    i.fail(Code::shape_mismatch, "operand x: expected ", w[1],
           " elements along its last axis, as in w ", i.type(n.w).text(), ", got ",
           i.type(n.x).text());
  if (n.bias && i.dtype(n.bias) != i.dtype(n.x) && i.dtype(n.bias) != kF32)
    i.fail(Code::dtype_mismatch, "operand bias: expected ", dtype_name(i.dtype(n.x)),
           " or f32, got ", i.type(n.bias).text());
  i.want_shape(n.bias, "bias", {w[0]});
  want_norm_of_x(i, n);
  y[y.rank() - 1] = w[0];
  if (n.gate != "none") {
    if (w[0] % 2 != 0)
      i.fail(Code::shape_mismatch,
             "operand w: expected an even number of rows beside attribute gate", ", got ",
             i.type(n.w).text());
    y[y.rank() - 1] = w[0] / 2;
  }
  i.out(0, {i.dtype(n.x), y});
  i.out(1, i.type(n.x));
}

void grouped_dequant_matmul_shape(Infer& i, const op::grouped_dequant_matmul& n) {
  i.want_float(n.x, "x");
  i.want_rank(n.x, "x", 2);
  want_blocks(i, n.w, 3);
  const Shape &x = i.shape(n.x), &w = i.shape(n.w);
  if (x[1] != w[2])
    i.fail(Code::shape_mismatch, "operand x: expected ", w[2],
           " elements along its last axis, as in w ", i.type(n.w).text(), ", got ",
           i.type(n.x).text());
  want_experts(i, n, x[0], w[0]);
  i.out(0, {i.dtype(n.x), {x[0], w[1]}});
}

void dequant_rows_shape(Infer& i, const op::dequant_rows& n) {
  want_blocks(i, n.w, 2);
  want_float_result(i, n.to);
  i.want_index(n.ids, "ids");
  const Shape& w = i.shape(n.w);
  Shape y = i.shape(n.ids);
  if (w[0] == 0 && y.elements() != 0)
    i.fail(Code::index_out_of_range, "operand ids: expected none for a w without rows, got ",
           i.type(n.ids).text());
  if (y.rank() == TENON_MAX_RANK)
    i.fail(Code::unsupported, "operand ids: no axis is left for the elements of a row, got ",
           i.type(n.ids).text());
  y.push(w[1]);
  i.out(0, {n.to, y});
}

// ---- decomposition

// The elements in the dtype in which products of x sum.
Value decoded(Builder& b, Value w, DType x) {
  return b.add(op::dequantize_blocks{.to = acc_dtype(x), .w = w});
}

// Does more happen than the product and its bias?
bool has_neighbours(const op::dequant_matmul& n) { return n.gamma || n.gate != "none"; }
// The nodes that a product with neighbours stands for.
struct Neighbours {
  Value x, sum, product, y;
};
Neighbours neighbours(Builder& b, const op::dequant_matmul& n) {
  Neighbours r{.x = n.x, .sum = {}, .product = {}, .y = {}};
  if (n.residual) {
    const auto norm = b.add(op::residual_rms_norm{
        .eps = n.eps, .x = n.x, .residual = n.residual, .gamma = n.gamma, .want_sum = n.want_sum});
    r.x = norm[0];
    if (n.want_sum) r.sum = norm[1];
  } else if (n.gamma) {
    r.x = b.add(op::rms_norm{.eps = n.eps, .x = n.x, .gamma = n.gamma});
  }
  r.y = r.product =
      b.add(op::dequant_matmul{.compute = n.compute, .x = r.x, .w = n.w, .bias = n.bias});
  if (n.gate != "none") r.y = b.add(op::swiglu{.act = n.gate, .gate = r.product});
  return r;
}

bool dequant_matmul_lower(Lower& l, const op::dequant_matmul& n) {
  Builder& b = l.b;
  if (has_neighbours(n)) {
    const Neighbours r = neighbours(b, n);
    l.out(0, r.y);
    if (l.wanted(1)) l.out(1, r.sum);
    return true;
  }
  const DType x = b.dtype(n.x), wide = acc_dtype(x);
  const Value w = decoded(b, n.w, x);
  const Value y =
      n.bias ? Value(b.add(op::linear{
                   .trans_b = true, .a = b.cast(n.x, wide), .b = w, .bias = b.cast(n.bias, wide)}))
             : b.matmul(b.cast(n.x, wide), w, false, true);
  l.out(0, b.cast(y, x));
  return true;
}

bool grouped_dequant_matmul_lower(Lower& l, const op::grouped_dequant_matmul& n) {
  Builder& b = l.b;
  const DType x = b.dtype(n.x), wide = acc_dtype(x);
  const Value y = b.add(op::grouped_matmul{.trans_w = true,
                                           .x = b.cast(n.x, wide),
                                           .w = decoded(b, n.w, x),
                                           .ids = n.ids,
                                           .offsets = n.offsets,
                                           .p = n.p ? b.cast(n.p, wide) : Value{}});
  l.out(0, b.cast(y, x));
  return true;
}

bool dequant_rows_lower(Lower& l, const op::dequant_rows& n) {
  Builder& b = l.b;
  const Value all = b.add(op::dequantize_blocks{.to = n.to, .w = n.w});
  l.out(0, b.add(op::gather{.data = all, .indices = n.ids}));
  return true;
}

// ---- gradient: of the product with the decoded weights, whatever `compute` is

void dequantize_blocks_grad(Grad& g, const op::dequantize_blocks& n) {
  if (g.wants(n.w)) g.refuse("w", kNoGradient);
}
void dequant_rows_grad(Grad& g, const op::dequant_rows& n) {
  if (g.wants(n.w)) g.refuse("w", kNoGradient);
}

void dequant_matmul_grad(Grad& g, const op::dequant_matmul& n) {
  if (g.wants(n.w)) g.refuse("w", kNoGradient);
  Builder& b = g.b;
  const DType dtype = b.dtype(n.x);
  const auto give = [&](Value to, Value d) {
    if (g.wants(to)) g.give(to, b.cast(d, b.dtype(to)));
  };
  const bool before = g.wants(n.x) || g.wants(n.residual) || g.wants(n.gamma);
  Value dx;  // of what the product reads
  if (g.dy(0) && (before || g.wants(n.bias))) {
    Value dy = g.dy(0);
    if (n.gate != "none")
      dy = b.add(op::swiglu_backward{.act = n.gate, .dy = dy, .gate = neighbours(b, n).product})[0];
    dy = b.widen(dy);
    if (g.wants(n.bias)) give(n.bias, b.sum_to(dy, b.shape(n.bias)));
    if (before) dx = b.cast(b.matmul(dy, decoded(b, n.w, dtype)), dtype);
  }
  if (!before) return;
  Value d = dx;
  if (n.gamma && dx) {
    const Value x = n.residual ? b.plus(b.widen(n.x), b.widen(n.residual)) : n.x;
    const auto back = b.add(op::rms_norm_backward{.eps = n.eps,
                                                  .dy = b.cast(dx, b.dtype(x)),
                                                  .x = x,
                                                  .gamma = n.gamma,
                                                  .want_dx = true,
                                                  .want_dgamma = g.wants(n.gamma)});
    d = back[0];
    if (g.wants(n.gamma)) give(n.gamma, back[1]);
  }
  if (n.want_sum && g.dy(1)) d = d ? b.plus(b.widen(d), b.widen(g.dy(1))) : g.dy(1);
  if (!d) return;
  give(n.x, d);
  give(n.residual, d);
}

void grouped_dequant_matmul_grad(Grad& g, const op::grouped_dequant_matmul& n) {
  if (g.wants(n.w)) g.refuse("w", kNoGradient);
  const bool dx = g.wants(n.x), dp = g.wants(n.p);
  if (!dx && !dp) return;
  Builder& b = g.b;
  const DType x = b.dtype(n.x);
  const Results r = b.add(op::grouped_matmul_backward{.trans_w = true,
                                                      .dy = b.widen(g.dy()),
                                                      .x = b.widen(n.x),
                                                      .w = decoded(b, n.w, x),
                                                      .ids = n.ids,
                                                      .offsets = n.offsets,
                                                      .p = n.p ? b.widen(n.p) : Value{},
                                                      .want_dx = dx,
                                                      .want_dw = false,
                                                      .want_dp = dp});
  if (dx) g.give(n.x, b.cast(r[0], x));
  if (dp) g.give(n.p, b.cast(r[2], b.dtype(n.p)));
}

// ---- batch

// One weight for all examples: the batch is one more axis of x, or of ids.
bool dequant_matmul_batch(Batch& v, const op::dequant_matmul& n) {
  if (v.batched(n.w) || v.batched(n.bias) || v.rank(n.x) == TENON_MAX_RANK) return false;
  if (has_neighbours(n)) return false;
  return v.add(n, [&](Value x) { return v.given(x); });
}
bool dequant_rows_batch(Batch& v, const op::dequant_rows& n) {
  if (v.batched(n.w)) return false;
  return v.add(n, [&](Value x) { return v.given(x); });
}

// ---- padding

// Blocks are never padded.
bool dequantize_blocks_padded(Padded&, const op::dequantize_blocks&) { return true; }
bool dequant_matmul_padded(Padded& p, const op::dequant_matmul& n) {
  if (has_neighbours(n)) return false;
  p.fill(n.x, -1, Fill::zero);
  return true;
}
bool dequant_rows_padded(Padded& p, const op::dequant_rows& n) {
  p.clamp_indices(n.ids, p.type(n.w).shape[0]);
  return true;
}

// ---- costs

double dequant_matmul_flops(const Cost& c, const op::dequant_matmul& n) {
  return 2 * c.elements(n.x) * c.dim(n.w, 1);
}
// Each row is multiplied by the matrix of one expert. The weights of an expert without rows are not
// read.
double grouped_dequant_matmul_flops(const Cost& c, const op::grouped_dequant_matmul& n) {
  return 2 * c.dim(n.x, 0) * c.elements(c.out(0));
}
double grouped_dequant_matmul_bytes(const Cost& c, const op::grouped_dequant_matmul& n) {
  const double experts = std::max(c.dim(n.w, 2), 1.0);
  const double unread = std::max(experts - c.dim(n.x, 1), 0.0) / experts;
  return c.operands_and_outputs() - unread * c.bytes(n.w);
}
// Only rows with an index are read.
double dequant_rows_bytes(const Cost& c, const op::dequant_rows& n) {
  const double rows = std::max(c.dim(n.w, 1), 1.0);
  return c.bytes(c.out(0)) + c.bytes(n.ids) + c.elements(n.ids) * c.bytes(n.w) / rows;
}

constexpr Record<op::dequantize_blocks> kDequantizeBlocks{.shape = dequantize_blocks_shape,
                                                          .words = {{"to", kFloats}},
                                                          .grad = dequantize_blocks_grad,
                                                          .batch = batch_all<op::dequantize_blocks>,
                                                          .padded = dequantize_blocks_padded,
                                                          .flops = no_products,
                                                          .bytes = each_once,
                                                          .traits = kReadsBlocks};
constexpr Record<op::dequant_matmul> kDequantMatmul{
    .shape = dequant_matmul_shape,
    .words = {{"compute", kComputes}, {"gate", kGates}},
    .grad = dequant_matmul_grad,
    .lower = dequant_matmul_lower,
    .batch = dequant_matmul_batch,
    .padded = dequant_matmul_padded,
    .flops = dequant_matmul_flops,
    .bytes = each_once,
    .traits = kReadsBlocks};
constexpr Record<op::grouped_dequant_matmul> kGroupedDequantMatmul{
    .shape = grouped_dequant_matmul_shape,
    .words = {{"compute", kComputes}},
    .grad = grouped_dequant_matmul_grad,
    .lower = grouped_dequant_matmul_lower,
    .padded = grouped_padded<op::grouped_dequant_matmul>,
    .flops = grouped_dequant_matmul_flops,
    .bytes = grouped_dequant_matmul_bytes,
    .traits = kReadsBlocks};
constexpr Record<op::dequant_rows> kDequantRows{.shape = dequant_rows_shape,
                                                .words = {{"to", kFloats}},
                                                .grad = dequant_rows_grad,
                                                .lower = dequant_rows_lower,
                                                .batch = dequant_rows_batch,
                                                .padded = dequant_rows_padded,
                                                .flops = no_products,
                                                .bytes = dequant_rows_bytes,
                                                .traits = kReadsBlocks};

}  // namespace

constinit const OpRecord dequantize_blocks_def = record<op::dequantize_blocks, kDequantizeBlocks>();
constinit const OpRecord dequant_matmul_def = record<op::dequant_matmul, kDequantMatmul>();
constinit const OpRecord grouped_dequant_matmul_def =
    record<op::grouped_dequant_matmul, kGroupedDequantMatmul>();
constinit const OpRecord dequant_rows_def = record<op::dequant_rows, kDequantRows>();

}  // namespace tenon::core
