// SPDX-License-Identifier: Apache-2.0
// Packs the weights of convolutions into panels of rows.
#include <algorithm>

#include "conv.hpp"
#include "convert.hpp"
#include "gemm.hpp"
#include "gemm_core.hpp"

namespace tenon::cpu {

PackedTaps::PackedTaps(const TapConv& conv, tenon_dtype dtype, int64_t row_panel,
                       int64_t most_steps)
    : conv_(conv), dtype_(dtype), sum_(gemm_sum_dtype(dtype)), row_panel_(row_panel) {
  const int64_t depth = std::max<int64_t>(conv_.depth(), 1);
  steps_ = divide_up(depth, divide_up(depth, most_steps));
}

std::string PackedTaps::layout() const {
  std::string text = "taps";
  for (const int64_t n : {static_cast<int64_t>(dtype_), conv_.groups, conv_.m, conv_.c,
                          conv_.w_group, conv_.w_m, conv_.w_c, row_panel_, steps_})
    text += " " + std::to_string(n);
  for (const int64_t t : conv_.w_tap) text += "," + std::to_string(t);
  return text;
}

uint64_t PackedTaps::bytes() const {
  const int64_t elements = conv_.groups * round_up(conv_.m, row_panel_) * conv_.depth();
  return static_cast<uint64_t>(round_up(elements * element_bytes(sum_), 64));
}

const char* PackedTaps::at(const void* packed, int64_t group, int64_t row, int64_t step) const {
  const int64_t padded = round_up(conv_.m, row_panel_), depth = conv_.depth();
  const int64_t steps = std::min(steps_, depth - step);
  return static_cast<const char*>(packed) +
         (group * padded * depth + step * padded + row * steps) * element_bytes(sum_);
}

// The rows of a panel, tap by tap: the elements of a tap are w_m apart.
template <class T>
void PackedTaps::pack_panel(const T* w, int64_t group, int64_t row, char* packed) const {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int64_t rows = std::min(row_panel_, conv_.m - row), depth = conv_.depth();
  const T* const base = w + group * conv_.w_group + row * conv_.w_m;
  int64_t c = 0, tap = 0;
  for (int64_t s = 0; s < depth; s += steps_) {
    const int64_t steps = std::min(steps_, depth - s);
    A* to = reinterpret_cast<A*>(packed + (at(packed, group, row, s) - packed));
    for (int64_t k = 0; k < steps; ++k, to += row_panel_) {
      const T* const from = base + c * conv_.w_c + conv_.w_tap[tap];
      for (int64_t r = 0; r < rows; ++r) {
        if constexpr (std::is_same_v<T, A>)
          to[r] = from[r * conv_.w_m];
        else
          to[r] = to_float(from[r * conv_.w_m]);
      }
      for (int64_t r = rows; r < row_panel_; ++r) to[r] = A{};
      if (++tap == conv_.taps()) tap = 0, ++c;
    }
  }
}

void PackedTaps::pack(const void* w, void* packed) const {
  const int64_t depth = conv_.depth(), from = element_bytes(dtype_);
  const int64_t panels = divide_up(conv_.m, row_panel_);
  if (depth == 0) return;
  const bool in_order = conv_.w_c == conv_.taps() && conv_.w_m == depth;
  const bool across = conv_.taps() == 1 && conv_.w_m == 1;
  char* const to = static_cast<char*>(packed);
  const auto place = [&](int64_t group, int64_t row, int64_t s) {
    return to + (at(packed, group, row, s) - to);
  };
  parallel_for(
      conv_.groups * panels, grain_for(row_panel_ * depth * element_bytes(sum_)),
      [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t group = p / panels, row = p % panels * row_panel_;
          const int64_t rows = std::min(row_panel_, conv_.m - row);
          const char* const base =
              static_cast<const char*>(w) + (group * conv_.w_group + row * conv_.w_m) * from;
          if (in_order || across) {
            for (int64_t s = 0; s < depth; s += steps_) {
              const int64_t steps = std::min(steps_, depth - s);
              const int64_t step = in_order ? 1 : conv_.w_c;
              gemm_pack(dtype_, base + (s * step + (across ? conv_.w_tap[0] : 0)) * from, conv_.w_m,
                        step, rows, steps, row_panel_, steps, place(group, row, s));
            }
            continue;
          }
          with_type(sdk::kFloatTypes, dtype_,
                    [&]<class T>(T) { pack_panel(static_cast<const T*>(w), group, row, to); });
        }
      });
}

}  // namespace tenon::cpu
