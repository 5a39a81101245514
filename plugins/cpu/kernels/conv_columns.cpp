// SPDX-License-Identifier: Apache-2.0
// im2col and col2im.
#include <algorithm>

#include "../parallel.hpp"
#include "conv.hpp"
#include "convert.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;

// The geometry of columns: each channel by itself.
template <class Op>
TapConv columns_of(const Op& n, const sdk::Type& x, int64_t windows) {
  sdk::Dims y{x.dims[0], 1};
  int64_t count = 1;
  for (int k = 2; k < x.rank; ++k) {
    const size_t axis = static_cast<size_t>(k - 2), axes = static_cast<size_t>(x.rank - 2);
    const int64_t stride = n.stride.empty() ? 1 : n.stride[axis];
    const int64_t dilation = n.dilation.empty() ? 1 : n.dilation[axis];
    const int64_t pads = n.pads.empty() ? 0 : n.pads[axis] + n.pads[axis + axes];
    y[k] = (x.dims[k] + pads - dilation * (n.kernel[axis] - 1) - 1) / stride + 1;
    count *= y[k];
  }
  if (count != windows) throw sdk::Refusal::attribute("kernel", "windows that do not fit");
  const ConvGeometry g =
      conv_geometry(n, x.shape(), n.kernel, {y.data(), static_cast<size_t>(x.rank)}, 1);
  return g.forward();
}

void check_columns(const sdk::Type& t, std::string_view operand) {
  if (!is_float(t.dtype) && (t.dtype < TENON_DTYPE_I8 || t.dtype > TENON_DTYPE_U64))
    throw sdk::Refusal::dtype(operand, t.dtype);
}

// x[c][pixel] of the taps of a window, one channel after the other.
template <class T>
void window_row(const TapConv& conv, const T* image, int64_t window, T* row) {
  const auto& [a0, a1, a2] = conv.axes;
  const int64_t o2 = window % a2.out * a2.step, o1 = window / a2.out % a1.out * a1.step,
                o0 = window / a2.out / a1.out * a0.step;
  for (int64_t c = 0; c < conv.c; ++c, image += conv.pixels())
    for (const int64_t t0 : a0.taps)
      for (const int64_t t1 : a1.taps) {
        const int64_t i0 = o0 + t0, i1 = o1 + t1;
        const bool inside = i0 >= 0 && i0 < a0.in && i1 >= 0 && i1 < a1.in;
        for (const int64_t t2 : a2.taps) {
          const int64_t i2 = o2 + t2;
          *row++ = inside && i2 >= 0 && i2 < a2.in ? image[(i0 * a1.in + i1) * a2.in + i2] : T{};
        }
      }
}

// The sums of one plane. value(tap, window): the element of the column.
template <class A, class Value>
void fold_plane(const TapConv& conv, A* plane, Value value) {
  const auto& [a0, a1, a2] = conv.axes;
  std::fill_n(plane, conv.pixels(), A{});
  int64_t tap = 0;
  for (const int64_t t0 : a0.taps)
    for (const int64_t t1 : a1.taps)
      for (const int64_t t2 : a2.taps) {
        for (int64_t o0 = 0; o0 < a0.out; ++o0)
          for (int64_t o1 = 0; o1 < a1.out; ++o1) {
            const int64_t i0 = o0 * a0.step + t0, i1 = o1 * a1.step + t1;
            if (i0 < 0 || i0 >= a0.in || i1 < 0 || i1 >= a1.in) continue;
            A* const row = plane + (i0 * a1.in + i1) * a2.in;
            const int64_t window = (o0 * a1.out + o1) * a2.out;
            const int64_t low = t2 < 0 ? (-t2 + a2.step - 1) / a2.step : 0;
            const int64_t high = t2 >= a2.in ? 0 : std::min(a2.out, (a2.in - 1 - t2) / a2.step + 1);
            for (int64_t o2 = low; o2 < high; ++o2)
              row[o2 * a2.step + t2] += value(tap, window + o2);
          }
        ++tap;
      }
}

}  // namespace

Kernel make_im2col(const sdk::op::im2col& n, const sdk::Node& node) {
  const sdk::Type &x = n.x.type(), &y = node.out(0).type();
  check_columns(x, "x");
  const bool rows = n.layout == "rows";
  int64_t taps = 1;
  for (const int64_t k : n.kernel) taps *= k;
  const int64_t windows = rows ? (x.dims[0] > 0 ? y.dims[0] / x.dims[0] : 0) : y.dims[2];
  if (x.elements() == 0 || y.elements() == 0) return {.run = [](const Call&) {}};
  const TapConv conv = columns_of(n, x, windows);
  const int64_t size = element_bytes(x.dtype);
  if (!rows)
    return {.run = [conv, size](const Call& c) {
      const int64_t taps = conv.taps(), windows = conv.windows();
      parallel_for(conv.batch * conv.c * taps, grain_for(windows * size),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t k = begin; k < end; ++k)
                       conv_line(conv, k % taps, c.in<char>(0) + k / taps * conv.pixels() * size, 0,
                                 windows, size, c.out<char>(0) + k * windows * size);
                   });
    }};
  return {.run = [conv, size](const Call& c) {
    const auto copy = [&]<class T>(T) {
      const int64_t windows = conv.windows(), depth = conv.depth();
      parallel_for(conv.batch * windows, grain_for(depth * size), [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k)
          window_row(conv, c.in<T>(0) + k / windows * conv.c * conv.pixels(), k % windows,
                     c.out<T>(0) + k * depth);
      });
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
  }};
}

Kernel make_col2im(const sdk::op::col2im& n, const sdk::Node& node) {
  const sdk::Type &columns = n.columns.type(), &x = node.out(0).type();
  if (!is_float(columns.dtype)) throw sdk::Refusal::dtype("columns", columns.dtype);
  const bool rows = n.layout == "rows";
  if (x.elements() == 0) return {.run = [](const Call&) {}};
  const TapConv conv = columns_of(n, x, rows ? columns.dims[0] / x.dims[0] : columns.dims[2]);
  const tenon_dtype dtype = x.dtype;
  const Slots slots =
      make_slots(conv.batch * conv.c, is_half(dtype) ? conv.pixels() * int64_t{4} : 64,
                 conv.windows() * conv.taps() * element_bytes(dtype));
  return {.run =
              [=](const Call& c) {
                with_type(sdk::kFloatTypes, dtype, [&]<class T>(T) {
                  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
                  const int64_t windows = conv.windows(), taps = conv.taps(), depth = conv.depth();
                  slots.run(c.scratch, [&](int64_t begin, int64_t end, void* area) {
                    for (int64_t k = begin; k < end; ++k) {
                      T* const to = c.out<T>(0) + k * conv.pixels();
                      A* plane;
                      if constexpr (std::is_same_v<T, A>) {
                        plane = to;
                      } else {
                        plane = static_cast<A*>(area);
                      }
                      const T* const from =
                          c.in<T>(0) + (rows ? k / conv.c * windows * depth + k % conv.c * taps
                                             : k * taps * windows);
                      const auto read = [](T v) -> A {
                        if constexpr (std::is_same_v<T, A>) {
                          return v;
                        } else {
                          return to_float(v);
                        }
                      };
                      if (rows) {
                        fold_plane(conv, plane, [&](int64_t tap, int64_t window) {
                          return read(from[window * depth + tap]);
                        });
                      } else {
                        fold_plane(conv, plane, [&](int64_t tap, int64_t window) {
                          return read(from[tap * windows + window]);
                        });
                      }
                      if constexpr (!std::is_same_v<T, A>) narrow(dtype, plane, to, conv.pixels());
                    }
                  });
                });
              },
          .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
