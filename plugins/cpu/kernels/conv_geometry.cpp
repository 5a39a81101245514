// SPDX-License-Identifier: Apache-2.0
// From nodes to sums over taps, and the rows of the matrix of columns.
#include <algorithm>
#include <cstring>
#include <limits>

#include "conv.hpp"
#include "epilogue.hpp"
#include "gemm.hpp"

namespace tenon::cpu {

bool TapConv::pointwise() const {
  if (taps() != 1) return false;
  return std::all_of(axes.begin(), axes.end(), [](const ConvAxis& a) {
    return a.taps[0] == 0 && a.in == a.out && (a.step == 1 || a.out == 1);
  });
}

bool ConvAxis::flat() const { return in == 1 && out == 1 && taps == std::vector<int64_t>{0}; }
bool TapConv::flat() const { return axes[0].flat(); }

namespace {

// Some windows of an axis, the positions origin, origin + stride, ... of the result, and their taps.
struct Part {
  int64_t origin;
  ConvAxis axis;
  std::vector<int64_t> kernel;  // the index of each tap in the kernel

  void add(int64_t tap, int64_t index, bool only_reached) {
    const bool outside = tap >= axis.in || tap + (axis.out - 1) * axis.step < 0;
    if (only_reached && outside) return;
    axis.taps.push_back(tap);
    kernel.push_back(index);
  }
};
using Parts = std::array<Part, kConvAxes>;

// The weights of the taps: those of the filter that begins at 0.
std::vector<int64_t> weights_of(const ConvGeometry& g, const Part& p0, const Part& p1,
                                const Part& p2) {
  std::vector<int64_t> weights;
  for (const int64_t k0 : p0.kernel)
    for (const int64_t k1 : p1.kernel)
      for (const int64_t k2 : p2.kernel)
        weights.push_back((k0 * g.axes[1].kernel + k1) * g.axes[2].kernel + k2);
  return weights;
}

// Flat axes lead, so that rows are long: an image of one column is computed as one row. Neither the
// windows nor the taps change their order.
void lead_with_flat_axes(TapConv& t) {
  const TapConv given = t;
  int to = 0;
  for (const bool flat : {true, false})
    for (int k = 0; k < kConvAxes; ++k) {
      if (given.axes[k].flat() != flat) continue;
      t.axes[to] = given.axes[k], t.y_pitch[to] = given.y_pitch[k];
      ++to;
    }
  if (t.axes[kConvAxes - 1].out == 1) t.y_pitch[kConvAxes - 1] = 1;  // whatever its stride
}

TapConv forward_sums(const ConvGeometry& g, bool only_reached) {
  TapConv t{.batch = g.n, .groups = g.groups, .c = g.c / g.groups, .m = g.m / g.groups};
  std::array<Part, kConvAxes> parts;
  for (int k = 0; k < kConvAxes; ++k) {
    const ConvGeometry::Axis& a = g.axes[k];
    parts[k] = {0, {a.in, a.out, a.stride, {}}, {}};
    for (int64_t j = 0; j < a.kernel; ++j) parts[k].add(j * a.dilation - a.before, j, only_reached);
    t.axes[k] = parts[k].axis;
  }
  t.y_plane = g.windows();
  t.y_pitch = {g.axes[1].out * g.axes[2].out, g.axes[2].out, 1};
  const int64_t count = g.taps();
  t.w_c = count, t.w_m = t.c * count, t.w_group = t.m * t.w_m;
  t.w_tap = weights_of(g, parts[0], parts[1], parts[2]);
  lead_with_flat_axes(t);
  return t;
}

// The phases of an axis: the positions phase, phase + stride, ... of x, and the taps that reach them.
std::vector<Part> phases_of(const ConvGeometry::Axis& a) {
  std::vector<Part> phases;
  for (int64_t phase = 0; phase < std::min(a.stride, a.in); ++phase) {
    Part p{phase, {a.out, (a.in - phase + a.stride - 1) / a.stride, 1, {}}, {}};
    for (int64_t k = 0; k < a.kernel; ++k) {
      const int64_t at = phase + a.before - k * a.dilation;  // stride times the window
      if (at % a.stride == 0) p.add(at / a.stride, k, true);
    }
    phases.push_back(std::move(p));
  }
  return phases;
}

}  // namespace

void check_conv_depth(const ConvGeometry& g) {
  constexpr int64_t kMost = int64_t{1} << 22;  // times the channels
  if (g.taps() > kMost / std::max<int64_t>(g.c / g.groups, 1))
    throw sdk::Refusal::shape("windows of " + std::to_string(g.taps()) + " taps in " +
                              std::to_string(g.c / g.groups) + " channels are not supported");
}

TapConv ConvGeometry::forward() const { return forward_sums(*this, false); }
TapConv ConvGeometry::reached() const { return forward_sums(*this, true); }

int64_t ConvGeometry::phases() const {
  int64_t all = 1;
  for (const Axis& a : axes) {
    const int64_t count = std::min(a.stride, a.in);
    if (all > std::numeric_limits<int64_t>::max() / count)
      return std::numeric_limits<int64_t>::max();
    all *= count;
  }
  return all;
}

std::vector<TapConv> ConvGeometry::transposed() const {
  std::vector<TapConv> all;
  const std::vector<Part> slices = phases_of(axes[0]), rows = phases_of(axes[1]),
                          columns = phases_of(axes[2]);
  for (const Part& p0 : slices)
    for (const Part& p1 : rows)
      for (const Part& p2 : columns) {
        TapConv t{.batch = n, .groups = groups, .c = m / groups, .m = c / groups};
        t.axes = {p0.axis, p1.axis, p2.axis};
        t.y_plane = pixels();
        t.y_origin = (p0.origin * axes[1].in + p1.origin) * axes[2].in + p2.origin;
        t.y_pitch = {axes[0].stride * axes[1].in * axes[2].in, axes[1].stride * axes[2].in,
                     axes[2].stride};
        const int64_t count = taps();
        t.w_m = count, t.w_c = t.m * count, t.w_group = t.c * t.w_c;
        t.w_tap = weights_of(*this, p0, p1, p2);
        lead_with_flat_axes(t);
        all.push_back(std::move(t));
      }
  return all;
}

// ---- rows of the matrix of columns

namespace {

// The windows [first, first + count) of one row of windows, of which the taps read the row `x`.
template <class T>
void strided_part(const T* x, int64_t size, int64_t at, int64_t step, int64_t count, T* line) {
  const int64_t before = at < 0 ? std::min(count, (-at + step - 1) / step) : 0;
  const int64_t inside = at >= size ? 0 : std::min(count, (size - 1 - at) / step + 1);
  std::fill_n(line, before, T{});
  if (step == 1) {
    if (inside > before) std::memcpy(line + before, x + at + before, (inside - before) * sizeof(T));
  } else {
    for (int64_t k = before; k < inside; ++k) line[k] = x[at + k * step];
  }
  const int64_t filled = std::max(before, inside);
  std::fill_n(line + filled, count - filled, T{});
}

// Rows of windows as long as rows of x, without strides: rows follow each other in both, so all are
// one copy, but for the ends of rows whose taps are outside.
template <class T>
void shifted_rows(const ConvAxis& rows, const ConvAxis& columns, int64_t row_tap,
                  int64_t column_tap, const T* x, int64_t first, int64_t count, T* line) {
  const int64_t width = columns.in, shift = row_tap * width + column_tap;
  const int64_t last = first + count;
  const int64_t begin = std::clamp(std::max(-row_tap * width, -shift), first, last);
  const int64_t end =
      std::clamp(std::min((rows.in - row_tap) * width, rows.in * width - shift), begin, last);
  std::fill_n(line, begin - first, T{});
  if (end > begin)
    std::memcpy(line + (begin - first), x + begin + shift, (end - begin) * sizeof(T));
  std::fill_n(line + (end - first), last - end, T{});
  if (column_tap == 0) return;
  const int64_t gap = std::min(column_tap < 0 ? -column_tap : column_tap, width);
  const int64_t offset = column_tap < 0 ? 0 : width - gap;
  for (int64_t row = first / width * width; row < last; row += width) {
    const int64_t from = std::clamp(row + offset, first, last);
    const int64_t to = std::clamp(row + offset + gap, first, last);
    std::fill_n(line + (from - first), to - from, T{});
  }
}

template <class T>
void line_of(const TapConv& conv, int64_t tap, const T* plane, int64_t first, int64_t count,
             T* line) {
  const auto& [a0, a1, a2] = conv.axes;
  const int64_t n1 = static_cast<int64_t>(a1.taps.size()),
                n2 = static_cast<int64_t>(a2.taps.size());
  const int64_t t0 = a0.taps[tap / n2 / n1], t1 = a1.taps[tap / n2 % n1], t2 = a2.taps[tap % n2];
  const int64_t slice = a1.out * a2.out;
  const bool shifted = a1.step == 1 && a2.step == 1 && a2.in == a2.out;
  while (count > 0) {
    const int64_t o0 = first / slice, in_slice = first % slice;
    const int64_t o1 = in_slice / a2.out, o2 = in_slice % a2.out;
    const int64_t i0 = o0 * a0.step + t0, i1 = o1 * a1.step + t1;
    const bool slice_inside = i0 >= 0 && i0 < a0.in;
    int64_t part = std::min(count, slice - in_slice);
    if (!slice_inside) {
      std::fill_n(line, part, T{});
    } else if (shifted) {
      shifted_rows(a1, a2, t1, t2, plane + i0 * a1.in * a2.in, in_slice, part, line);
    } else {
      part = std::min(part, a2.out - o2);
      if (i1 < 0 || i1 >= a1.in) {
        std::fill_n(line, part, T{});
      } else {
        strided_part(plane + (i0 * a1.in + i1) * a2.in, a2.in, o2 * a2.step + t2, a2.step, part,
                     line);
      }
    }
    first += part, line += part, count -= part;
  }
}

}  // namespace

void conv_line(const TapConv& conv, int64_t tap, const void* plane, int64_t first, int64_t count,
               int64_t size, void* line) {
  const auto copy = [&]<class T>(T) {
    line_of(conv, tap, static_cast<const T*>(plane), first, count, static_cast<T*>(line));
  };
  switch (size) {
    case 1:
      return copy(uint8_t{});
    case 2:
      return copy(uint16_t{});
    case 4:
      return copy(uint32_t{});
    default:
      return copy(uint64_t{});
  }
}

// ---- what follows the sums

namespace {

double element_of(const void* x, tenon_dtype dtype, int64_t at) {
  switch (dtype) {
    case TENON_DTYPE_F64:
      return static_cast<const double*>(x)[at];
    case TENON_DTYPE_F16:
      return to_float(static_cast<const F16*>(x)[at]);
    case TENON_DTYPE_BF16:
      return to_float(static_cast<const Bf16*>(x)[at]);
    default:
      return static_cast<const float*>(x)[at];
  }
}

template <class T>
void scattered(const T* from, T* to, int64_t step, int64_t count) {
  for (int64_t k = 0; k < count; ++k) to[k * step] = from[k];
}

}  // namespace

void ConvEnds::run(const sdk::Call& call, tenon_dtype sum, tenon_dtype y, void* sums,
                   int64_t channel, int64_t at, int64_t step, int64_t count) const {
  const int64_t size = element_bytes(y);
  if (y == TENON_DTYPE_F32 && step == 1 && pre_act < 0)
    return run_floats(call, static_cast<float*>(sums), channel, at, count);
  if (bias >= 0) add_value(sum, sums, element_of(call.inputs[bias], bias_dtype, channel), count);
  if (residual >= 0) epilogue_add(sum, sums, call.in<char>(residual) + at * size, y, count);
  if (pre_act >= 0) epilogue_store(sum, sums, call.out<char>(pre_act) + at * size, y, count);
  if (act) {
    if (sum == TENON_DTYPE_F64) {
      unary_tile(*act, static_cast<double*>(sums), static_cast<double*>(sums), count);
    } else {
      unary_tile(*act, static_cast<float*>(sums), static_cast<float*>(sums), count);
    }
  }
  char* const to = call.out<char>(out) + at * size;
  if (step == 1) return epilogue_store(sum, sums, to, y, count);
  if (y != sum) epilogue_store(sum, sums, sums, y, count);  // in place: the result is shorter
  if (size == 2)
    return scattered(static_cast<uint16_t*>(sums), reinterpret_cast<uint16_t*>(to), step, count);
  if (size == 4)
    return scattered(static_cast<float*>(sums), reinterpret_cast<float*>(to), step, count);
  scattered(static_cast<double*>(sums), reinterpret_cast<double*>(to), step, count);
}

float ConvEnds::bias_of(const sdk::Call& call, int64_t channel) const {
  if (bias < 0) return -0.0f;
  return static_cast<float>(element_of(call.inputs[bias], bias_dtype, channel));
}

// In one pass, or two with an activation other than relu.
void ConvEnds::run_floats(const sdk::Call& call, float* sums, int64_t channel, int64_t at,
                          int64_t count) const {
  float* const to = call.out<float>(out) + at;
  // x + -0 is x for all x.
  const float b =
      bias >= 0 ? static_cast<float>(element_of(call.inputs[bias], bias_dtype, channel)) : -0.0f;
  const float* const beside = residual >= 0 ? call.in<float>(residual) + at : nullptr;
  if (!act || act->kind == UnaryKind::relu)
    return epilogue_finish(sums, b, beside, act.has_value(), to, count);
  if (bias >= 0 || beside) epilogue_finish(sums, b, beside, false, sums, count);
  unary_tile(*act, sums, to, count);
}

void ConvEnds::run_rows(const sdk::Call& call, const TapConv& conv, tenon_dtype dtype, void* sums,
                        int64_t pitch, const ConvBand& band, int64_t plane, int64_t channel) const {
  const tenon_dtype sum = gemm_sum_dtype(dtype);
  const int64_t width = band.width, size = element_bytes(sum);
  const int64_t at = plane * conv.y_plane + conv.y_origin + band.slice * conv.y_pitch[0] +
                     band.row * conv.y_pitch[1] + band.column * conv.y_pitch[2];
  char* const first = static_cast<char*>(sums);
  if (conv.dense() && width == conv.axes[2].out) {
    for (int64_t r = 1; r < band.rows && pitch != width; ++r)
      std::memmove(first + r * width * size, first + r * pitch * size, width * size);
    return run(call, sum, dtype, sums, channel, at, 1, band.rows * width);
  }
  for (int64_t r = 0; r < band.rows; ++r)
    run(call, sum, dtype, first + r * pitch * size, channel, at + r * conv.y_pitch[1],
        conv.y_pitch[2], width);
}

}  // namespace tenon::cpu
