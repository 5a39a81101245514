// SPDX-License-Identifier: Apache-2.0
// im2col and col2im (specification, domain operators, 6.2), and convolutions as products over
// columns. Columns are gathered from the pixels of a plane, and added to them.
#include "ops/conv.hpp"
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {

int want_image(const Infer& i, Value x, std::string_view operand) {
  const int rank = i.shape(x).rank();
  if (rank < kConvFirst + 1 || rank > kConvFirst + 3)
    i.fail(Code::shape_mismatch, "operand ", operand,
           ": expected [N,C,spatial..] with 1 to 3 spatial axes, got ", i.type(x).text());
  return rank - kConvFirst;
}

namespace {

int64_t pixels_of(const ConvAxes& axes) {
  int64_t pixels = 1;
  for (const ConvAxis& a : axes) pixels *= a.size;
  return pixels;
}

// [taps, windows]: the position in the plane of each tap, `pixels` for one outside.
Value tap_positions(Builder& b, const ConvAxes& axes) {
  const auto number = [&](int64_t v) { return b.scalar_int(kI64, v); };
  Value at, inside;
  const int rank = static_cast<int>(axes.size());
  for (int k = 0; k < rank; ++k) {
    const ConvAxis& a = axes[static_cast<size_t>(k)];
    Shape taps = Shape(std::vector<Dim>(static_cast<size_t>(2 * rank), 1)), windows = taps;
    taps[k] = a.kernel, windows[rank + k] = a.count();
    const Value place = b.plus(
        b.iota(taps, k, kI64, static_cast<double>(-a.before), static_cast<double>(a.dilation)),
        b.iota(windows, rank + k, kI64, 0, static_cast<double>(a.stride)));
    const Value here =
        b.logical("and", b.compare("ge", place, number(0)), b.compare("lt", place, number(a.size)));
    at = at ? b.plus(b.times(at, number(a.size)), place) : place;
    inside = inside ? b.logical("and", inside, here) : here;
  }
  return b.reshape(b.where(inside, at, number(pixels_of(axes))), {taps_of(axes), windows_of(axes)});
}

// ---- shape

constexpr std::string_view kLayouts = "rows unfold";

template <class Op>
ConvAxes want_columns(const Infer& i, const Op& n, const Ints& size) {
  want_entries(i, "kernel", n.kernel, size.size(), 1);
  const ConvAxes axes = want_axes(i, n, n.kernel, size);
  want_windows(i, axes);
  return axes;
}

Shape columns_shape(const Infer& i, bool rows, int64_t n, int64_t c, const ConvAxes& axes) {
  // Checked in parts, so that no product overflows.
  const int64_t windows = sized(i, Shape(counts_of(axes))).elements();
  Ints kernel;
  for (const ConvAxis& a : axes) kernel.push_back(a.kernel);
  const int64_t taps = sized(i, Shape(kernel)).elements();
  const int64_t depth = sized(i, {c, taps}).elements();
  if (rows) return sized(i, {sized(i, {n, windows}).elements(), depth});
  return sized(i, {n, depth, windows});
}

void im2col_shape(Infer& i, const op::im2col& n) {
  want_number(i, n.x, "x");
  want_image(i, n.x, "x");
  const Shape& x = i.shape(n.x);
  const ConvAxes axes = want_columns(i, n, spatial(x));
  i.out(0, {i.dtype(n.x), columns_shape(i, n.layout == "rows", x[0], x[1], axes)});
}

void col2im_shape(Infer& i, const op::col2im& n) {
  want_number(i, n.columns, "columns");
  const bool rows = n.layout == "rows";
  i.want_rank(n.columns, "columns", rows ? 2 : 3);
  if (n.size.empty() || n.size.size() > 3)
    i.fail(Code::invalid_argument, "attribute size: expected 1 to 3 entries, given ",
           text_of(n.size));
  want_entries(i, "size", n.size, n.size.size(), 1);
  const ConvAxes axes = want_columns(i, n, n.size);
  const Shape& columns = i.shape(n.columns);
  const int64_t windows = columns_shape(i, false, 1, 1, axes)[2];
  const int64_t taps = columns_shape(i, false, 1, 1, axes)[1];
  if (columns[1] % taps != 0)
    i.fail(Code::shape_mismatch, "operand columns: expected a multiple of ", taps,
           " taps along axis 1, got ", i.type(n.columns).text());
  if (rows ? columns[0] % windows != 0 : columns[2] != windows)
    i.fail(Code::shape_mismatch, "operand columns: expected ", rows ? "a multiple of " : "",
           windows, " windows along axis ", rows ? 0 : 2, ", got ", i.type(n.columns).text());
  const int64_t batch = rows ? columns[0] / windows : columns[0];
  i.out(0, {i.dtype(n.columns), sized(i, image_shape(batch, columns[1] / taps, n.size))});
}

// ---- decomposition

bool im2col_lower(Lower& l, const op::im2col& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.x);
  const ConvAxes axes = axes_of(n, n.kernel, spatial(x));
  const int64_t taps = taps_of(axes), windows = windows_of(axes);
  const Value planes = b.reshape(n.x, {x[0] * x[1], pixels_of(axes)});
  Value y = b.add(
      op::gather{.axis = 1, .oob = "skip", .data = planes, .indices = tap_positions(b, axes)});
  y = b.reshape(y, {x[0], x[1] * taps, windows});
  if (n.layout == "rows") y = b.reshape(b.transpose(y, {0, 2, 1}), {x[0] * windows, x[1] * taps});
  l.out(0, y);
  return true;
}

bool col2im_lower(Lower& l, const op::col2im& n) {
  Builder& b = l.b;
  const Type type = b.type(n.columns);
  const ConvAxes axes = axes_of(n, n.kernel, n.size);
  const int64_t taps = taps_of(axes), windows = windows_of(axes), depth = type.shape[1];
  const bool rows = n.layout == "rows";
  const int64_t batch = rows ? type.shape[0] / windows : type.shape[0], channels = depth / taps;
  Value columns = is_half(type.dtype) ? b.cast(n.columns, kF32) : n.columns;
  if (rows) columns = b.transpose(b.reshape(columns, {batch, windows, depth}), {0, 2, 1});
  columns = b.reshape(columns, {batch * channels, taps, windows});
  const Value sums = b.add(op::scatter_add{.axis = 1,
                                           .dim = pixels_of(axes),
                                           .oob = "skip",
                                           .updates = columns,
                                           .indices = tap_positions(b, axes)});
  l.out(0, b.reshape(b.cast(sums, type.dtype), image_shape(batch, channels, n.size)));
  return true;
}

// ---- gradient: each is the adjoint of the other

template <class To, class From>
To same_columns(const From& n) {
  To to{};
  to.kernel = n.kernel, to.stride = n.stride, to.pads = n.pads, to.dilation = n.dilation;
  to.layout = n.layout;
  return to;
}

void im2col_grad(Grad& g, const op::im2col& n) {
  if (!g.wants(n.x)) return;
  auto back = same_columns<op::col2im>(n);
  back.size = spatial(g.b.shape(n.x));
  back.columns = g.dy();
  g.give(n.x, g.b.add(back));
}

void col2im_grad(Grad& g, const op::col2im& n) {
  if (!g.wants(n.columns)) return;
  auto forward = same_columns<op::im2col>(n);
  forward.x = g.dy();
  g.give(n.columns, g.b.add(forward));
}

// The batch joins N.
template <class Op>
bool columns_batch(Batch& v, const Op& n) {
  return v.add_folded(n, [](Value) { return Value{}; });
}

bool im2col_padded(Padded& p, const op::im2col& n) {
  return p.any_from(n.x, 1) ? p.refuse("its channels or images are padded") : true;
}
bool col2im_padded(Padded& p, const op::col2im& n) {
  return p.any_from(n.columns, 1) ? p.refuse("its columns are padded") : true;
}

constexpr Record<op::im2col> kIm2col{.shape = im2col_shape,
                                     .words = {{"layout", kLayouts}},
                                     .grad = im2col_grad,
                                     .lower = im2col_lower,
                                     .batch = columns_batch<op::im2col>,
                                     .padded = im2col_padded,
                                     .flops = no_products,
                                     .bytes = each_once};
constexpr Record<op::col2im> kCol2im{.shape = col2im_shape,
                                     .words = {{"layout", kLayouts}},
                                     .grad = col2im_grad,
                                     .lower = col2im_lower,
                                     .batch = columns_batch<op::col2im>,
                                     .padded = col2im_padded,
                                     .flops = no_products,
                                     .bytes = each_once};

// ---- products over columns

// A single tap per window that is its pixel: the planes are the columns.
bool is_each_pixel(const ConvAxes& axes) {
  for (const ConvAxis& a : axes)
    if (a.kernel != 1 || a.stride != 1 || a.before != 0 || a.after != 0) return false;
  return true;
}

template <class Op>
Op columns_op(const ConvAxes& axes) {
  Op n{};
  n.layout = "unfold";
  const size_t rank = axes.size();
  n.pads.resize(2 * rank);
  for (size_t k = 0; k < rank; ++k) {
    n.kernel.push_back(axes[k].kernel), n.stride.push_back(axes[k].stride);
    n.dilation.push_back(axes[k].dilation);
    n.pads[k] = axes[k].before, n.pads[rank + k] = axes[k].after;
  }
  return n;
}

// The columns of x, one per window: [N, C·taps, windows], zero for taps outside of x. And their
// transpose: each column is added to its taps.
Value unfold(Builder& b, Value x, const ConvAxes& axes) {
  const Shape shape = b.shape(x);
  if (is_each_pixel(axes)) return b.reshape(x, {shape[0], shape[1], windows_of(axes)});
  auto n = columns_op<op::im2col>(axes);
  n.x = x;
  return b.add(n);
}

Value fold(Builder& b, Value columns, const ConvAxes& axes) {
  const Shape shape = b.shape(columns);
  Ints size;
  for (const ConvAxis& a : axes) size.push_back(a.size);
  if (is_each_pixel(axes)) return b.reshape(columns, image_shape(shape[0], shape[1], size));
  auto n = columns_op<op::col2im>(axes);
  n.size = size;
  n.columns = columns;
  return b.add(n);
}

DType wide_out(DType t) { return is_half(t) ? kF32 : TENON_DTYPE_NONE; }

// [n, groups, per group, windows]
Value by_group(Builder& b, Value v, const Conv& c, int64_t channels, int64_t windows) {
  return b.reshape(v, {c.n, c.groups, channels / c.groups, windows});
}
Value weight_matrix(Builder& b, Value w, const Conv& c) {
  return b.reshape(w, {1, c.groups, c.m / c.groups, c.depth()});
}

}  // namespace

Value products(Builder& b, Value x, Value w, const Conv& c) {
  const int64_t windows = windows_of(c.axes);
  const Value columns = b.reshape(unfold(b, x, c.axes), {c.n, c.groups, c.depth(), windows});
  const Value y = b.matmul(weight_matrix(b, w, c), columns, false, false, 1, wide_out(b.dtype(x)));
  return b.reshape(y, c.y());
}

Value transposed_products(Builder& b, Value y, Value w, Conv c) {
  if (!any_reached(c.axes)) return b.zeros({acc_dtype(b.dtype(y)), c.x()});
  const int64_t windows = windows_of(c.axes);
  Value columns = b.matmul(weight_matrix(b, w, c), by_group(b, y, c, c.m, windows), true, false, 1,
                           wide_out(b.dtype(y)));
  columns = b.reshape(columns, {c.n, c.groups * c.depth(), windows});
  // Windows may end before the image does: a negative padding, which is left out of the fold.
  const Ints size = c.size();
  bool cut = false;
  for (ConvAxis& a : c.axes)
    if (a.after < 0) a.size += a.after, a.after = 0, cut = true;
  Value x = fold(b, columns, c.axes);
  if (!cut) return x;
  op::pad pad{.before = Ints(size.size() + kConvFirst, 0), .x = x};
  pad.after = pad.before;
  for (size_t k = 0; k < size.size(); ++k) pad.after[k + kConvFirst] = size[k] - c.axes[k].size;
  return b.add(pad);
}

// One product per group, over all windows of all examples.
Value weight_products(Builder& b, Value y, Value x, const Conv& c) {
  const int64_t windows = windows_of(c.axes);
  const auto joined = [&](Value v, int64_t rows) {  // [groups, rows, n·windows]
    v = b.reshape(v, {c.n, c.groups, rows, windows});
    return b.reshape(b.transpose(v, {1, 2, 0, 3}), {c.groups, rows, c.n * windows});
  };
  const Value dw = b.matmul(joined(y, c.m / c.groups), joined(unfold(b, x, c.axes), c.depth()),
                            false, true, 1, wide_out(b.dtype(x)));
  return b.reshape(dw, c.w());
}

constinit const OpRecord im2col_def = record<op::im2col, kIm2col>();
constinit const OpRecord col2im_def = record<op::col2im, kCol2im>();

}  // namespace tenon::core
