// SPDX-License-Identifier: Apache-2.0
// matmul linear lora_matmul batch_linear: specification 2.1, 2.2 and 2.4. batch_linear is several
// linear ops with the same a.
#include <algorithm>
#include <cmath>

#include "ops/activation.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

// ---- shape

constexpr std::string_view kProductDtypes = "none f32 f16 bf16 f64 i32 i64 u32 u64",
                           kPrecisions = "ieee tf32";

bool is_byte(DType t) { return t == kI8 || t == kU8; }
bool is_word(DType t) { return t == kI32 || t == kI64 || t == kU32 || t == kU64; }

// A half beside f32: computed in f32, which represents every half.
bool is_mixed(DType a, DType b) { return (a == kF32 && is_half(b)) || (is_half(a) && b == kF32); }
DType common_dtype(DType a, DType b) { return is_mixed(a, b) ? kF32 : a; }

// Checks operands and attributes, and returns the type of the product. name_b: the name of b in
// messages.
template <class Op>
Type product_type(const Infer& i, const Op& n, std::string_view name_b = "b") {
  if (!std::isfinite(n.alpha))
    i.fail(Code::invalid_argument, "attribute alpha: expected a finite number, given ", n.alpha);
  if (!is_mixed(i.dtype(n.a), i.dtype(n.b))) i.want_same_dtype(n.a, "a", n.b, name_b);
  const Shape a = i.shape(n.a), b = i.shape(n.b);
  const auto want_matrix = [&](const Shape& s, bool trans, std::string_view operand) {
    if (s.rank() == 0)
      i.fail(Code::shape_mismatch, "operand ", operand, ": expected rank 1 or more, got a scalar");
    if (s.rank() == 1 && trans)
      i.fail(Code::invalid_argument, "attribute trans_", operand, ": operand ", operand,
             " has rank 1");
  };
  want_matrix(a, n.trans_a, "a");
  want_matrix(b, n.trans_b, "b");

  const int ra = a.rank(), rb = b.rank();
  const Dim ka = a[n.trans_a ? ra - 2 : ra - 1];
  const Dim kb = b[rb == 1 || n.trans_b ? rb - 1 : rb - 2];
  if (ka != kb)
    i.fail(Code::shape_mismatch, "operand ", name_b, ": expected a contracted length of ", ka,
           " as in a ", i.type(n.a).text(), ", got ", kb, " in ", i.type(n.b).text());
  const auto batch = [](const Shape& s) {
    return Shape(s.dims().first(static_cast<size_t>(s.rank() > 2 ? s.rank() - 2 : 0)));
  };
  Shape y = broadcast(batch(a), batch(b), i.who());
  if (ra > 1) y.push(a[n.trans_a ? ra - 1 : ra - 2]);
  if (rb > 1) y.push(b[n.trans_b ? rb - 2 : rb - 1]);
  const DType common = common_dtype(i.dtype(n.a), i.dtype(n.b));
  return {n.out_dtype == TENON_DTYPE_NONE ? common : n.out_dtype, y};
}

template <class Op>
void want_float_product(const Infer& i, const Op& n, DType out) {
  const DType t = common_dtype(i.dtype(n.a), i.dtype(n.b));
  if (out != t && !(is_half(t) && out == kF32))
    i.fail(Code::dtype_mismatch, "attribute out_dtype: expected ", dtype_name(t),
           is_half(t) ? " or f32" : "", ", given ", dtype_name(out));
}

void matmul_shape(Infer& i, const op::matmul& n) {
  const Type y = product_type(i, n);
  const DType t = i.dtype(n.a);
  if (is_float(t)) {
    want_float_product(i, n, y.dtype);
  } else if (is_byte(t) || is_word(t)) {
    const DType out = is_byte(t) ? kI32 : t;
    if (y.dtype != out)
      i.fail(Code::dtype_mismatch, "attribute out_dtype: expected ", dtype_name(out), " for ",
             dtype_name(t), " operands, given ",
             n.out_dtype == TENON_DTYPE_NONE ? "none" : dtype_name(n.out_dtype));
    if (n.alpha != 1)
      i.fail(Code::invalid_argument, "attribute alpha: expected 1 for integers, given ", n.alpha);
  } else {
    i.fail(Code::dtype_mismatch,
           "operand a: expected a float or an integer of 8, 32 or 64 bits, got ",
           i.type(n.a).text());
  }
  i.out(0, y);
}

// ---- gradient

// y = alpha · op(a) · op(b) with operands of rank 2 or more.
struct Product {
  Value a, b;
  bool trans_a, trans_b;
  double alpha;
  std::string precision;

  Value matmul(Builder& g, Value x, Value y, bool trans_x, bool trans_y, DType out) const {
    return g.add(op::matmul{.trans_a = trans_x,
                            .trans_b = trans_y,
                            .alpha = alpha,
                            .out_dtype = out,
                            .f32_precision = precision,
                            .a = x,
                            .b = y});
  }
  Value da(Builder& g, Value dy, DType out) const {
    return trans_a ? matmul(g, b, dy, trans_b, true, out) : matmul(g, dy, b, false, !trans_b, out);
  }
  Value db(Builder& g, Value dy, DType out) const {
    return trans_b ? matmul(g, dy, a, true, trans_a, out) : matmul(g, a, dy, !trans_a, false, out);
  }
};

Shape with_last_two(Shape batch, Dim rows, Dim cols) {
  batch.push(rows);
  batch.push(cols);
  return batch;
}

// If the batch shares a 2-D b, folds the batch into rows, so that each gradient is one product.
void fold_batch(Builder& g, Product& p, Value& dy) {
  const Shape a = g.shape(p.a), b = g.shape(p.b), y = g.shape(dy);
  const int ra = a.rank(), rb = b.rank();
  if (ra <= 2 || rb > ra || p.trans_a) return;
  for (int i = 0; i < rb - 2; ++i)
    if (b[i] != 1) return;
  Dim rows = 1;
  for (int i = 0; i + 1 < ra; ++i) rows *= a[i];
  p.a = g.reshape(p.a, {rows, a[ra - 1]});
  p.b = g.reshape(p.b, {b[rb - 2], b[rb - 1]});
  dy = g.reshape(dy, {rows, y[y.rank() - 1]});
}

// Computes the gradients of a and b from dy, which has y's shape.
template <class Op>
void product_grad(Grad& grad, const Op& n, Value dy) {
  Builder& g = grad.b;
  const Type a = g.type(n.a), b = g.type(n.b);
  // As in NumPy: a vector is a row on the left, a column on the right.
  Shape y = g.shape(dy);
  if (a.shape.rank() == 1 || b.shape.rank() == 1) {
    const bool row = a.shape.rank() == 1, column = b.shape.rank() == 1;
    const int batch = y.rank() - !row - !column;
    const Dim rows = row ? 1 : y[batch], cols = column ? 1 : y[y.rank() - 1];
    y = with_last_two(Shape(y.dims().first(static_cast<size_t>(batch))), rows, cols);
  }
  const Shape a2 = a.shape.rank() == 1 ? Shape{1, a.shape[0]} : a.shape;
  const Shape b2 = b.shape.rank() == 1 ? Shape{b.shape[0], 1} : b.shape;
  Product p{g.reshape(n.a, a2), g.reshape(n.b, b2), n.trans_a, n.trans_b, n.alpha, n.f32_precision};
  Value dy2 = g.cast(g.reshape(dy, y), common_dtype(a.dtype, b.dtype));
  fold_batch(g, p, dy2);

  const auto give = [&](Value operand, const Type& to, const Shape& matrix, Value like, auto rule) {
    if (!grad.wants(operand)) return;
    // The sum over a broadcast batch uses the accumulation dtype.
    const int batch = g.shape(dy2).rank() - 2, own = g.shape(like).rank() - 2;
    bool sums = own < batch;
    for (int i = 0; i < own && !sums; ++i) sums = g.shape(like)[i] != g.shape(dy2)[i + batch - own];
    const DType out = sums && is_half(to.dtype) ? kF32 : TENON_DTYPE_NONE;
    const Value full = rule(out);
    const Value summed = g.sum_to(full, g.shape(like));
    grad.give(operand, g.cast(g.reshape(g.reshape(summed, matrix), to.shape), to.dtype));
  };
  give(n.a, a, a2, p.a, [&](DType out) { return p.da(g, dy2, out); });
  give(n.b, b, b2, p.b, [&](DType out) { return p.db(g, dy2, out); });
}

void matmul_grad(Grad& g, const op::matmul& n) { product_grad(g, n, g.dy()); }

// Only for a half beside f32: widens the half, which is exact.
bool matmul_lower(Lower& l, const op::matmul& n) {
  const DType a = l.type(n.a).dtype, b = l.type(n.b).dtype;
  if (!is_mixed(a, b)) return false;
  op::matmul wide = n;
  wide.a = l.b.cast(n.a, kF32), wide.b = l.b.cast(n.b, kF32);
  l.out(0, l.b.add(wide));
  return true;
}

// The length of the sums in a product.
template <class Op>
double depth_of(const Cost& c, const Op& n) {
  return c.dim(n.a, n.trans_a && c.shape(n.a).rank() > 1 ? 1 : 0);
}
template <class Op>
double product_flops_of(const Cost& c, const Op& n) {
  return 2 * depth_of(c, n) * c.elements(c.out(0) ? c.out(0) : c.out(1));
}
// ---- batch

// The batch is one more axis in front of the batch axes there are.
bool matmul_batch(Batch& v, const op::matmul& n) {
  const int ra = v.rank(n.a), rb = v.rank(n.b);
  op::matmul m = n;
  m.a = v.given(n.a), m.b = v.given(n.b);
  Value y;
  if (ra == 1 && !v.batched(n.b) && rb == 2) {
    y = v.b.add(m);  // vectors as the rows of a matrix
  } else if (rb == 1 && !v.batched(n.a) && ra == 2) {
    std::swap(m.a, m.b);
    m.trans_b = !n.trans_a, m.trans_a = false;
    y = v.b.add(m);
  } else {
    const int axes = std::max({ra, rb, 2});
    // A vector becomes a matrix of one row or column.
    const auto matrix = [&](Value operand, bool column) {
      if (v.rank(operand) > 1) return v.aligned(operand, axes);
      const Dim length = v.type(operand).shape[0];
      Shape shape;
      if (v.batched(operand)) {
        shape.push(v.size());
        for (int i = 2; i < axes; ++i) shape.push(1);
      }
      shape.push(column ? length : 1);
      shape.push(column ? 1 : length);
      return v.b.reshape(v.given(operand), shape);
    };
    m.a = matrix(n.a, false), m.b = matrix(n.b, true);
    y = v.b.add(m);
  }
  v.out(0, v.b.reshape(y, v.result(0)));
  return true;
}

// Padding along the axis that products sum over counts as zero.
template <class Op>
bool product_padded(Padded& p, const Op& n) {
  p.fill(n.a, p.rank(n.a) == 1 ? 0 : (n.trans_a ? -2 : -1), Fill::zero);
  p.fill(n.b, p.rank(n.b) == 1 ? 0 : (n.trans_b ? -1 : -2), Fill::zero);
  return true;
}

constexpr Record<op::matmul> kMatmul{
    .shape = matmul_shape,
    .words = {{"out_dtype", kProductDtypes}, {"f32_precision", kPrecisions}},
    .grad = matmul_grad,
    .lower = matmul_lower,
    .batch = matmul_batch,
    .padded = product_padded<op::matmul>,
    .flops = product_flops_of<op::matmul>,
    .bytes = each_once};

// ---- linear

// The type of the product with its bias.
Type linear_type(const Infer& i, const op::linear& n, std::string_view name_b,
                 std::string_view name_bias) {
  const Type y = product_type(i, n, name_b);
  want_float_product(i, n, y.dtype);
  if (n.bias) {
    if (i.dtype(n.bias) != y.dtype && i.dtype(n.bias) != kF32)
      i.fail(Code::dtype_mismatch, "operand ", name_bias, ": expected ", dtype_name(y.dtype),
             " or f32, got ", i.type(n.bias).text());
    const bool column = i.shape(n.b).rank() == 1;  // b is one column; y has no axis for it
    i.want_shape(n.bias, name_bias, {column ? 1 : y.shape[y.shape.rank() - 1]});
  }
  return y;
}

void linear_shape(Infer& i, const op::linear& n) {
  i.want_float(n.a, "a");
  const Type y = linear_type(i, n, "b", "bias");
  want_act(i, n.act, n.act_alpha, n.act_beta);
  i.want_dtype(n.residual, "residual", y.dtype);
  i.want_shape(n.residual, "residual", y.shape);
  i.out(0, y);
  i.out(1, y);
}

// The gradient before the activation.
Value linear_dz(Grad& g, const op::linear& n) {
  Value dz = g.dy(0);
  if (dz && n.act != "none") {
    const UnaryInfo& info = *find_unary(n.act);
    const bool from_output = info.from_output && !n.residual;  // then pre_act is not needed
    dz = g.b.add(op::activation_backward{.kind = n.act,
                                         .alpha = n.act_alpha,
                                         .beta = n.act_beta,
                                         .from_output = from_output,
                                         .x = from_output ? g.y(0) : g.y(1),
                                         .dy = dz});
  }
  const Value saved = g.dy(1);
  if (!saved) return dz;
  return dz ? g.b.plus(dz, saved) : saved;
}

void linear_grad(Grad& g, const op::linear& n) {
  if (g.dy(0) && g.wants(n.residual)) g.give(n.residual, g.dy(0));
  if (!g.wants(n.a) && !g.wants(n.b) && !g.wants(n.bias)) return;
  const Value dz = linear_dz(g, n);
  if (g.wants(n.bias)) {
    const Type bias = g.b.type(n.bias);
    Value rows = bias.dtype == g.b.dtype(dz) ? dz : g.b.widen(dz);
    if (g.b.shape(n.b).rank() == 1) rows = g.b.unsqueeze(rows, g.b.shape(rows).rank());
    g.give(n.bias, g.b.cast(g.b.sum_to(rows, bias.shape), bias.dtype));
  }
  product_grad(g, n, dz);
}

bool linear_lower(Lower& l, const op::linear& n) {
  Builder& b = l.b;
  const DType in = common_dtype(l.type(n.a).dtype, l.type(n.b).dtype);
  const DType out = n.out_dtype == TENON_DTYPE_NONE ? in : n.out_dtype;
  Value z = b.add(op::matmul{.trans_a = n.trans_a,
                             .trans_b = n.trans_b,
                             .alpha = n.alpha,
                             .out_dtype = is_half(in) ? kF32 : TENON_DTYPE_NONE,
                             .f32_precision = n.f32_precision,
                             .a = n.a,
                             .b = n.b});
  const DType wide = b.dtype(z);
  if (n.bias) {
    const Value bias = b.shape(n.b).rank() == 1 ? b.reshape(n.bias, {}) : n.bias;
    z = b.plus(z, b.cast(bias, wide));
  }
  if (l.wanted(1)) l.out(1, b.cast(z, out));
  Value y = z;
  if (n.act != "none")
    y = b.add(op::unary{.kind = n.act, .alpha = n.act_alpha, .beta = n.act_beta, .x = z});
  if (n.residual) y = b.plus(y, b.cast(n.residual, wide));
  l.out(0, b.cast(y, out));
  return true;
}

// One weight for all examples: the batch is one more axis of a.
bool linear_batch(Batch& v, const op::linear& n) {
  if (v.batched(n.b) || v.batched(n.bias) || v.rank(n.b) != 2) return false;
  return v.add(n, [&](Value x) { return x == n.b || x == n.bias ? v.given(x) : v.all(x); });
}

constexpr Record<op::linear> kLinear{
    .shape = linear_shape,
    .words = {{"out_dtype", kProductDtypes}, {"f32_precision", kPrecisions}, {"act", kActWords}},
    .grad = linear_grad,
    .lower = linear_lower,
    .batch = linear_batch,
    .padded = product_padded<op::linear>,
    .flops = product_flops_of<op::linear>,
    .bytes = each_once};

// ---- lora_matmul

void lora_matmul_shape(Infer& i, const op::lora_matmul& n) {
  i.want_float(n.x, "x");
  if (!std::isfinite(n.scale))
    i.fail(Code::invalid_argument, "attribute scale: expected a finite number, given ", n.scale);
  const Shape& x = i.shape(n.x);
  if (x.rank() == 0)
    i.fail(Code::shape_mismatch, "operand x: expected rank 1 or more, got ", i.type(n.x).text());
  const int64_t in = x[x.rank() - 1];
  for (const auto& [v, operand] : {std::pair(n.w, "w"), {n.a, "a"}, {n.b, "b"}}) {
    i.want_same_dtype(n.x, "x", v, operand);
    i.want_rank(v, operand, 2);
  }
  const int64_t out = i.shape(n.w)[1], rank = i.shape(n.a)[1];
  i.want_shape(n.w, "w", {in, out});
  i.want_shape(n.a, "a", {in, rank});
  i.want_shape(n.b, "b", {rank, out});
  Shape y = x;
  y[x.rank() - 1] = out;
  i.out(0, {i.dtype(n.x), y});
}

// p + scale·q in the accumulation dtype, rounded once.
Value adapted(Builder& g, Value p, Value q, double scale, DType to) {
  return g.cast(g.plus(p, g.times(q, scale)), to);
}

bool lora_matmul_lower(Lower& l, const op::lora_matmul& n) {
  Builder& b = l.b;
  const DType t = l.type(n.x).dtype, wide = acc_dtype(t);
  const Value whole = b.matmul(n.x, n.w, false, false, 1, wide);
  const Value inner = b.matmul(n.x, n.a, false, false, 1, wide);
  l.out(0, adapted(b, whole, b.matmul(inner, b.cast(n.b, wide)), n.scale, t));
  return true;
}

void lora_matmul_grad(Grad& grad, const op::lora_matmul& n) {
  Builder& g = grad.b;
  const Type x = g.type(n.x);
  const DType wide = acc_dtype(x.dtype);
  const int64_t in = x.shape[x.shape.rank() - 1], out = g.shape(n.w)[1];
  int64_t rows = 1;
  for (int k = 0; k + 1 < x.shape.rank(); ++k) rows *= x.shape[k];
  const Value flat = g.reshape(n.x, {rows, in}), dy = g.reshape(grad.dy(), {rows, out});
  const Value back = g.matmul(dy, n.b, false, true, 1, wide);  // dy·bᵀ
  if (grad.wants(n.x)) {
    const Value whole = g.matmul(dy, n.w, false, true, 1, wide);
    const Value inner = g.matmul(back, g.cast(n.a, wide), false, true);
    grad.give(n.x, g.reshape(adapted(g, whole, inner, n.scale, x.dtype), x.shape));
  }
  if (grad.wants(n.w)) grad.give(n.w, g.matmul(flat, dy, true));
  if (grad.wants(n.a)) {
    const Value da = g.matmul(g.widen(flat), back, true, false, n.scale);
    grad.give(n.a, g.cast(da, x.dtype));
  }
  if (grad.wants(n.b)) {
    const Value inner = g.matmul(flat, n.a, false, false, 1, wide);
    const Value db = g.matmul(inner, g.widen(dy), true, false, n.scale);
    grad.give(n.b, g.cast(db, x.dtype));
  }
}

double lora_matmul_flops(const Cost& c, const op::lora_matmul& n) {
  const double k = c.dim(n.x, 0), r = c.dim(n.a, 0), cols = c.dim(n.w, 0);
  return 2 * c.elements(n.x) / std::max(k, 1.0) * (k * cols + k * r + r * cols);
}
constexpr Record<op::lora_matmul> kLoraMatmul{.shape = lora_matmul_shape,
                                              .grad = lora_matmul_grad,
                                              .lower = lora_matmul_lower,
                                              .flops = lora_matmul_flops,
                                              .bytes = each_once};

// ---- batch_linear

// Product t as a linear op.
op::linear linear_of(const op::batch_linear& n, size_t t) {
  return {.trans_a = n.trans_a,
          .trans_b = n.trans_b,
          .alpha = n.alpha,
          .out_dtype = n.out_dtype,
          .f32_precision = n.f32_precision,
          .a = n.a,
          .b = n.bs[t],
          .bias = n.biases.empty() ? Value{} : n.biases[t]};
}

void batch_linear_shape(Infer& i, const op::batch_linear& n) {
  const size_t count = n.bs.size();
  if (!n.biases.empty() && n.biases.size() != count)
    i.fail(Code::invalid_argument, "operand biases: expected none, or one for each of ", count,
           " matrices, got ", n.biases.size());
  if (i.out_count() != count)
    i.fail(Code::invalid_argument, "output ys: expected ", count, ", got ", i.out_count());
  i.want_float(n.a, "a");
  if (n.trans_a && i.shape(n.a).rank() != 2)
    i.fail(Code::shape_mismatch, "operand a: expected rank 2 with trans_a, got ",
           i.type(n.a).text());
  for (size_t t = 0; t < count; ++t) {
    if (!i.wanted(t)) i.fail(Code::invalid_argument, "output ys: entry ", t, " is left out");
    i.want_rank(n.bs[t], cat("bs: entry ", t), 2);
    i.out(t, linear_type(i, linear_of(n, t), cat("bs: entry ", t), cat("biases: entry ", t)));
  }
}

// Its gradient is that of the linear ops.
bool batch_linear_lower(Lower& l, const op::batch_linear& n) {
  for (size_t t = 0; l.wanted(t); ++t) l.out(t, l.b.add(linear_of(n, t)));
  return true;
}

double batch_linear_flops(const Cost& c, const op::batch_linear& n) {
  double results = 0;
  for (size_t t = 0; t < c.out_count(); ++t) results += c.elements(c.out(t));
  return 2 * depth_of(c, n) * results;
}
constexpr Record<op::batch_linear> kBatchLinear{
    .shape = batch_linear_shape,
    .words = {{"out_dtype", kProductDtypes}, {"f32_precision", kPrecisions}},
    .lower = batch_linear_lower,
    .flops = batch_linear_flops,
    .bytes = each_once};

}  // namespace

constinit const OpRecord matmul_def = record<op::matmul, kMatmul>();
constinit const OpRecord linear_def = record<op::linear, kLinear>();
constinit const OpRecord lora_matmul_def = record<op::lora_matmul, kLoraMatmul>();
constinit const OpRecord batch_linear_def = record<op::batch_linear, kBatchLinear>();

}  // namespace tenon::core
