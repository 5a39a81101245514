// SPDX-License-Identifier: Apache-2.0
// Records of the shape family: narrow concat transpose expand reshape pad iota.
#include <algorithm>
#include <cmath>

#include "ops/check.hpp"
#include "ops/padded.hpp"
#include "ops/place.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr size_t kMaxConcat = 1024;

// ---- narrow

// The number of elements at start, start + step, ... inside [0, dim).
int64_t reach(int64_t dim, int64_t start, int64_t step) {
  if (start < 0 || start >= dim) return 0;
  return step > 0 ? (dim - 1 - start) / step + 1 : -(start / step) + 1;
}

void narrow_shape(Infer& i, const op::narrow& n) {
  Shape shape = i.shape(n.x);
  const Ints start = per_axis(i, "start", n.start, shape.rank(), 0);
  const Ints step = per_axis(i, "step", n.step, shape.rank(), 1);
  const Ints len = per_axis(i, "len", n.len, shape.rank(), -1);
  for (int k = 0; k < shape.rank(); ++k) {
    const auto a = static_cast<size_t>(k);
    const int64_t dim = shape[k];
    if (step[a] == 0) i.fail(Code::invalid_argument, "attribute step: axis ", k, ": given 0");
    if (start[a] < 0 || start[a] > dim)
      i.fail(Code::invalid_argument, "attribute start: axis ", k, ": expected one in [0, ", dim,
             "], given ", start[a]);
    const int64_t most = reach(dim, start[a], step[a]);
    if (!n.len.empty() && (len[a] < 0 || len[a] > most))
      i.fail(Code::invalid_argument, "attribute len: axis ", k, " of length ", dim,
             ": expected one in [0, ", most, "] from start ", start[a], " by step ", step[a],
             ", given ", len[a]);
    shape[k] = n.len.empty() ? most : len[a];
  }
  i.out(0, {i.dtype(n.x), shape});
}

// Writes dy to the positions that narrow read along one axis, and zeros elsewhere.
Value spread(Builder& b, Value dy, int axis, int64_t dim, int64_t start, int64_t step) {
  Shape shape = b.shape(dy);
  const int64_t len = shape[axis];
  if (len == 0) {
    shape[axis] = dim;
    return b.zeros({b.dtype(dy), shape});
  }
  if (len == 1) step = 1;
  if (step < 0) {
    dy = b.narrow(dy, axis, len - 1, len, -1);
    start += (len - 1) * step;
    step = -step;
  }
  const int64_t span = (len - 1) * step + 1;
  if (step > 1) {
    // Inserts step - 1 zeros after each element. Flattened, so that the additional axis fits any
    // rank.
    int64_t outer = 1, inner = 1;
    for (int k = 0; k < axis; ++k) outer *= shape[k];
    for (int k = axis + 1; k < shape.rank(); ++k) inner *= shape[k];
    dy = pad_axis(b, b.reshape(dy, {outer, len, 1, inner}), 2, 0, step - 1);
    shape[axis] = len * step;
    dy = b.narrow(b.reshape(dy, shape), axis, 0, span);
  }
  return pad_axis(b, dy, axis, start, dim - start - span);
}

void narrow_grad(Grad& g, const op::narrow& n) {
  if (!g.wants(n.x)) return;
  Value dx = g.dy();
  const Shape shape = g.b.shape(n.x);
  for (int k = 0; k < shape.rank(); ++k) {
    const auto a = static_cast<size_t>(k);
    const int64_t start = n.start.empty() ? 0 : n.start[a], step = n.step.empty() ? 1 : n.step[a];
    dx = spread(g.b, dx, k, shape[k], start, step);
  }
  g.give(n.x, dx);
}

double narrow_bytes(const Cost& c, const op::narrow&) { return 2 * c.bytes(c.out(0)); }
void prepend(Ints& list, int64_t entry) {
  if (!list.empty()) list.insert(list.begin(), entry);
}

bool narrow_batch(Batch& v, const op::narrow& one) {
  op::narrow n = one;
  prepend(n.start, 0);
  prepend(n.len, v.size());
  prepend(n.step, 1);
  return v.add_all(n);
}

// Elements in front keep their places where the step is 1. Lengths follow from the types.
bool narrow_padded(Padded& p, const op::narrow& n) {
  for (int i = 0; i < p.rank(n.x); ++i) {
    if (p.by_extent(n.x, i) && !p.result_length(0, i))
      return p.refuse("rows that may not be there");
    if (p.along(n.x, i) && !n.step.empty() && n.step[static_cast<size_t>(i)] != 1)
      return p.refuse("a step along a padded axis");
  }
  return true;
}

constexpr Record<op::narrow> kNarrow{.shape = narrow_shape,
                                     .grad = narrow_grad,
                                     .batch = narrow_batch,
                                     .padded = narrow_padded,
                                     .flops = no_products,
                                     .bytes = narrow_bytes,
                                     .traits = kView};

// ---- concat

void concat_shape(Infer& i, const op::concat& n) {
  if (n.xs.size() > kMaxConcat)
    i.fail(Code::invalid_argument, "operand xs: expected 1 to ", kMaxConcat, " tensors, given ",
           n.xs.size());
  Shape shape = i.shape(n.xs[0]);
  const int axis = i.axis(n.axis, shape.rank());
  int64_t length = 0;
  for (size_t k = 0; k < n.xs.size(); ++k) {
    const Value x = n.xs[k];
    if (i.dtype(x) != i.dtype(n.xs[0]))
      i.fail(Code::dtype_mismatch, "operand xs[", k, "]: expected ", dtype_name(i.dtype(n.xs[0])),
             " as xs[0], got ", i.type(x).text());
    Shape expected = shape;
    if (i.shape(x).rank() == shape.rank()) expected[axis] = i.shape(x)[axis];
    if (i.shape(x) != expected)
      i.fail(Code::shape_mismatch, "operand xs[", k, "]: expected shape ", shape.text(),
             " off axis ", axis, " as xs[0], got ", i.type(x).text());
    if (__builtin_add_overflow(length, expected[axis], &length))
      i.fail(Code::invalid_argument, "the joined axis overflows");
  }
  shape[axis] = length;
  i.out(0, {i.dtype(n.xs[0]), sized(i, shape)});
}

void concat_grad(Grad& g, const op::concat& n) {
  const Value dy = g.dy();
  const int axis = normalize_axis(n.axis, g.b.shape(dy).rank(), "concat");
  int64_t start = 0;
  for (const Value x : n.xs) {
    const int64_t length = g.b.shape(x)[axis];
    if (g.wants(x)) g.give(x, g.b.narrow(dy, axis, start, length));
    start += length;
  }
}

bool concat_padded(Padded& p, const op::concat& n) {
  for (size_t k = 0; k + 1 < n.xs.size(); ++k)
    if (p.along(n.xs[k], n.axis))
      return p.refuse("an operand before the last one is padded along the axis");
  return true;
}

constexpr Record<op::concat> kConcat{.shape = concat_shape,
                                     .grad = concat_grad,
                                     .batch = batch_along_axis<op::concat>,
                                     .padded = concat_padded,
                                     .flops = no_products,
                                     .bytes = each_once};

// ---- transpose

void transpose_shape(Infer& i, const op::transpose& n) {
  const Shape& from = i.shape(n.x);
  const int rank = from.rank();
  Shape to;
  if (n.perm.empty()) {
    for (int k = rank - 1; k >= 0; --k) to.push(from[k]);
  } else {
    uint32_t seen = 0;
    for (const int64_t p : n.perm)
      if (p >= 0 && p < rank) seen |= 1u << p;
    if (n.perm.size() != static_cast<size_t>(rank) || seen != (1u << rank) - 1)
      i.fail(Code::invalid_argument, "attribute perm: expected a permutation of 0 to ", rank - 1,
             ", given ", text_of(n.perm));
    for (const int64_t p : n.perm) to.push(from[static_cast<int>(p)]);
  }
  i.out(0, {i.dtype(n.x), to});
}

void transpose_grad(Grad& g, const op::transpose& n) {
  if (!g.wants(n.x)) return;
  const Value dy = g.dy();
  const auto rank = static_cast<size_t>(g.b.shape(dy).rank());
  Ints inverse(rank);
  for (size_t k = 0; k < rank; ++k) {
    const auto from = n.perm.empty() ? rank - 1 - k : static_cast<size_t>(n.perm[k]);
    inverse[from] = static_cast<int64_t>(k);
  }
  g.give(n.x, g.b.transpose(dy, std::move(inverse)));
}

bool transpose_batch(Batch& v, const op::transpose& one) {
  const int rank = v.rank(one.x);
  Ints perm = {0};
  for (int i = 0; i < rank; ++i)
    perm.push_back(1 + (one.perm.empty()
                            ? rank - 1 - i
                            : normalize_axis(one.perm[static_cast<size_t>(i)], rank, "transpose")));
  v.out(0, v.b.transpose(v.given(one.x), perm));
  return true;
}

constexpr Record<op::transpose> kTranspose{.shape = transpose_shape,
                                           .grad = transpose_grad,
                                           .batch = transpose_batch,
                                           .padded = padded_each<op::transpose>,
                                           .flops = no_products,
                                           .bytes = each_once,
                                           .traits = kView};

// ---- expand

void expand_shape(Infer& i, const op::expand& n) {
  const Shape& from = i.shape(n.x);
  if (n.shape.size() > TENON_MAX_RANK)
    i.fail(Code::unsupported, "attribute shape: expected at most 8 dims, given ", n.shape.size());
  const int rank = static_cast<int>(n.shape.size());
  const int out_rank = std::max(rank, from.rank());
  Shape to;
  for (int k = 0; k < out_rank; ++k) {
    const int at = k - (out_rank - rank), of = k - (out_rank - from.rank());
    int64_t want = at < 0 ? 1 : n.shape[static_cast<size_t>(at)];
    if (want < -1 || (want == -1 && of < 0))
      i.fail(Code::invalid_argument, "attribute shape: dim ", at,
             ": expected a length, or -1 for an axis that operand x has, given ", want);
    const int64_t have = of < 0 ? 1 : from[of];
    if (want == -1) want = have;
    if (want != have && want != 1 && have != 1)
      i.fail(Code::shape_mismatch, "operand x: expected a shape that broadcasts to length ", want,
             " at axis ", k, ", got ", i.type(n.x).text());
    to.push(have == 1 ? want : have);
  }
  i.out(0, {i.dtype(n.x), sized(i, to)});
}

void expand_grad(Grad& g, const op::expand& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.sum_to(g.dy(), g.b.shape(n.x)));
}

bool expand_batch(Batch& v, const op::expand& n) {
  const Shape y = v.result(0);
  v.out(0, v.b.expand(v.aligned(n.x, y.rank() - 1), y));
  return true;
}

constexpr Record<op::expand> kExpand{.shape = expand_shape,
                                     .grad = expand_grad,
                                     .batch = expand_batch,
                                     .padded = padded_each<op::expand>,
                                     .flops = no_products,
                                     .bytes = each_once,
                                     .traits = kView};

// ---- reshape

void reshape_shape(Infer& i, const op::reshape& n) {
  const Shape& from = i.shape(n.x);
  if (n.shape.size() > TENON_MAX_RANK)
    i.fail(Code::unsupported, "attribute shape: expected at most 8 dims, given ", n.shape.size());
  Shape to;
  int open = -1;
  int64_t known = 1;
  for (size_t k = 0; k < n.shape.size(); ++k) {
    int64_t d = n.shape[k];
    if (d == 0 && !n.allow_zero) {
      if (k >= static_cast<size_t>(from.rank()))
        i.fail(Code::invalid_argument, "attribute shape: dim ", k,
               " is 0, which copies an axis that operand x does not have: ", i.type(n.x).text());
      d = from[static_cast<int>(k)];
    }
    if (d < -1 || (d == -1 && open >= 0))
      i.fail(Code::invalid_argument, "attribute shape: expected lengths and at most one -1, given ",
             d, " at dim ", k);
    if (d == -1) {
      open = static_cast<int>(k);
    } else if (__builtin_mul_overflow(known, d, &known)) {
      i.fail(Code::invalid_argument, "attribute shape: its size overflows");
    }
    to.push(d == -1 ? 1 : d);
  }
  const int64_t count = from.elements();
  if (open >= 0) {
    if (known == 0)
      i.fail(Code::invalid_argument, "attribute shape: -1 beside a dim of 0 may be any length");
    to[open] = count / known;
    known *= to[open];
  }
  if (known != count)
    i.fail(Code::shape_mismatch, "operand x: expected ", known, " elements for shape ", to.text(),
           ", got ", i.type(n.x).text());
  i.out(0, {i.dtype(n.x), to});
}

void reshape_grad(Grad& g, const op::reshape& n) {
  if (g.wants(n.x)) g.give(n.x, g.b.reshape(g.dy(), g.b.shape(n.x)));
}

bool reshape_batch(Batch& v, const op::reshape& n) {
  v.out(0, v.b.reshape(v.given(n.x), v.result(0)));
  return true;
}

// What counts along a padded axis stays in front of what does not if the axes before it stay, and
// the axes behind it hold as many elements as before or become part of it.
bool reshape_padded(Padded& p, const op::reshape& n) {
  const Shape& from = p.type(n.x).shape;
  const Shape& to = p.result(0).shape;
  const auto outer = [](const Shape& shape, int axis) {
    int64_t count = 1;
    for (int i = 0; i < axis; ++i) count *= shape[i];
    return count;
  };
  const auto inner = [](const Shape& shape, int axis) {
    int64_t count = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) count *= shape[i];
    return count;
  };
  int padded = 0, matched = 0;
  for (int i = 0; i < to.rank(); ++i) padded += bool(p.result_length(0, i));
  for (int i = 0; i < from.rank(); ++i) {
    const Length in = p.length(n.x, i);
    if (!in) continue;
    bool found = false;
    for (int k = 0; k < to.rank() && !found; ++k) {
      const Length out = p.result_length(0, k);
      found = out.number == in.number && outer(from, i) == outer(to, k) &&
              in.times * inner(from, i) == out.times * inner(to, k) &&
              in.plus * inner(from, i) == out.plus * inner(to, k);
    }
    if (!found) return p.refuse("it mixes a padded axis with one before it");
    ++matched;
  }
  return matched == padded ? true : p.refuse("it splits a padded axis");
}

constexpr Record<op::reshape> kReshape{.shape = reshape_shape,
                                       .grad = reshape_grad,
                                       .batch = reshape_batch,
                                       .padded = reshape_padded,
                                       .flops = no_products,
                                       .bytes = each_once,
                                       .traits = kView | kReadsBlocks};

// ---- pad

void pad_shape(Infer& i, const op::pad& n) {
  Shape shape = i.shape(n.x);
  const Ints before = per_axis(i, "before", n.before, shape.rank(), 0);
  const Ints after = per_axis(i, "after", n.after, shape.rank(), 0);
  for (int k = 0; k < shape.rank(); ++k) {
    const int64_t dim = shape[k];
    for (const auto& [attr, given] : {std::pair("before", before[static_cast<size_t>(k)]),
                                      std::pair("after", after[static_cast<size_t>(k)])}) {
      if (given == 0) continue;
      const int64_t most = n.mode == "reflect"            ? dim - 1
                           : n.mode == "symmetric"        ? dim
                           : n.mode == "edge" && dim == 0 ? 0
                                                          : INT64_MAX >> 4;
      if (given < 0 || given > most)
        i.fail(Code::invalid_argument, "attribute ", attr, ": axis ", k, " of length ", dim,
               ": mode ", n.mode, " expected one in [0, ", std::max<int64_t>(most, 0), "], given ",
               given);
      shape[k] += given;
    }
  }
  i.out(0, {i.dtype(n.x), sized(i, shape)});
}

// Adds the padding along one axis back to the elements that the mode copied.
Value unpad_axis(Builder& b, Value dy, int axis, int64_t before, int64_t after,
                 const std::string& mode) {
  if (before == 0 && after == 0) return dy;
  const int64_t dim = b.shape(dy)[axis] - before - after;
  Value dx = b.narrow(dy, axis, before, dim);
  // Element e of a border, counted from x outwards, is a copy of element skip + e, counted from
  // that end.
  const int64_t skip = mode == "reflect" ? 1 : 0;
  for (const bool front : {true, false}) {
    const int64_t size = front ? before : after;
    if (size == 0) continue;
    Value part = b.narrow(dy, axis, front ? before - 1 : before + dim + size - 1, size, -1);
    int64_t at = front ? skip : dim - size - skip;
    if (mode == "edge") {
      part = b.sum(part, {axis});
      at = front ? 0 : dim - 1;
    }
    dx = b.plus(dx, pad_axis(b, part, axis, at, dim - at - b.shape(part)[axis]));
  }
  return dx;
}

void pad_grad(Grad& g, const op::pad& n) {
  if (!g.wants(n.x)) return;
  const Shape shape = g.b.shape(n.x);
  const DType dtype = g.b.dtype(n.x);
  Value dx = n.mode == "constant" ? g.dy() : g.b.widen(g.dy());
  for (int k = shape.rank() - 1; k >= 0; --k) {
    const auto a = static_cast<size_t>(k);
    const int64_t before = n.before.empty() ? 0 : n.before[a];
    const int64_t after = n.after.empty() ? 0 : n.after[a];
    dx = n.mode == "constant" ? g.b.narrow(dx, k, before, shape[k])
                              : unpad_axis(g.b, dx, k, before, after, n.mode);
  }
  g.give(n.x, g.b.cast(dx, dtype));
}

// Of complex numbers: their parts.
bool pad_lower(Lower& l, const op::pad& one) {
  Builder& b = l.b;
  if (!is_complex(b.dtype(one.x))) return false;
  op::pad n = one;
  for (Ints* list : {&n.before, &n.after})
    if (!list->empty()) list->push_back(0);
  n.x = b.as_real(n.x);
  Value y = b.add(n);
  if (n.mode == "constant" && n.value != 0) {  // a real number: no imaginary part
    n.value = 0;
    const int last = b.shape(y).rank() - 1;
    y = b.concat({b.narrow(y, last, 0, 1), b.narrow(b.add(n), last, 1, 1)}, last);
  }
  l.out(0, b.as_complex(y));
  return true;
}

bool pad_batch(Batch& v, const op::pad& one) {
  op::pad n = one;
  prepend(n.before, 0);
  prepend(n.after, 0);
  return v.add_all(n);
}

bool pad_padded(Padded& p, const op::pad& n) {
  for (int i = 0; i < p.rank(n.x); ++i)
    if (p.along(n.x, i) && !n.after.empty() && n.after[static_cast<size_t>(i)] != 0)
      return p.refuse("elements behind a padded axis");
  for (int i = 0; i < p.rank(n.x); ++i)
    if (!p.along(n.x, i) && p.result_length(0, i) && n.mode != "constant")
      return p.refuse("as many copies of elements as a number says");
  return true;
}

constexpr Record<op::pad> kPad{.shape = pad_shape,
                               .words = {{"mode", "constant edge reflect symmetric"}},
                               .grad = pad_grad,
                               .lower = pad_lower,
                               .batch = pad_batch,
                               .padded = pad_padded,
                               .flops = no_products,
                               .bytes = each_once};

// ---- iota

void iota_shape(Infer& i, const op::iota& n) {
  if (!is_float(n.dtype) && !is_integer(n.dtype))
    i.fail(Code::dtype_mismatch, "attribute dtype: expected a float or an integer, given ",
           dtype_name(n.dtype));
  const Shape shape = shape_attr(i, n.shape);
  i.axis(n.axis, shape.rank());
  for (const auto& [attr, given] : {std::pair("start", n.start), std::pair("step", n.step)})
    if (is_integer(n.dtype) && !(std::trunc(given) == given && std::abs(given) < 0x1p63))
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected an integer for dtype ",
             dtype_name(n.dtype), ", given ", given);
  i.out(0, {n.dtype, shape});
}

constexpr Record<op::iota> kIota{
    .shape = iota_shape,
    .words = {{"dtype", "f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64"}},
    .padded = padded_each<op::iota>,
    .flops = no_products,
    .bytes = each_once};

}  // namespace

const OpRecord narrow_def = record<op::narrow, kNarrow>();
const OpRecord concat_def = record<op::concat, kConcat>();
const OpRecord transpose_def = record<op::transpose, kTranspose>();
const OpRecord expand_def = record<op::expand, kExpand>();
const OpRecord reshape_def = record<op::reshape, kReshape>();
const OpRecord pad_def = record<op::pad, kPad>();
const OpRecord iota_def = record<op::iota, kIota>();

}  // namespace tenon::core
