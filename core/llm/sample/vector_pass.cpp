// SPDX-License-Identifier: Apache-2.0
// The passes, with vectors of a fixed number of lanes. CMakeLists.txt turns fused multiply-adds off:
// they would give some processors other bits.
#include "llm/sample/vector_pass.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

// Sanitizers do not work yet when the loader chooses one of the clones.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define TENON_FOR_EACH_ISA [[gnu::target_clones("avx2", "default")]]
#else
#define TENON_FOR_EACH_ISA
#endif

namespace tenon::llm {
namespace {

using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(float))));
using Doubles = double __attribute__((vector_size(kLanes / 2 * sizeof(double))));

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Vectors go by reference: how they are passed by value depends on the instruction set.
[[gnu::always_inline]] inline void load(const float* x, Floats& out) {
  std::memcpy(&out, x, sizeof out);
}

// x: logits, replaced by their weights.
[[gnu::always_inline]] inline void make_weights(float most, float scale, Floats& x) {
  constexpr float kLeast = -87;  // so 2^n below is a normal number
  const Floats power = (x - most) * scale, least = Floats{} + kLeast;
  const Floats p = power > least ? power : least;
  // e^p = 2^n e^r. The addition leaves the nearest integer in the low bits of the sum.
  constexpr float kRound = 0x1.8p23f;
  const Floats rounded = p * 1.44269504f + kRound, n = rounded - kRound;
  const Floats r = (p - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  // Fitted to (e^r - 1 - r) / r^2 up to |r| = ln 2 / 2.
  Floats series = r * 1.3751382e-3f + 8.3689233e-3f;
  series = series * r + 4.1669533e-2f;
  series = series * r + 1.6666518e-1f;
  series = series * r + 4.9999988e-1f;
  Words bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  bits = (bits + 127) << 23;
  Floats factor;
  std::memcpy(&factor, &bits, sizeof factor);
  x = (series * (r * r) + r + 1.0f) * factor;
}

// Adds the first half of x to one vector, and the second half to another.
[[gnu::always_inline]] inline void add_to(const Floats& x, Doubles& low, Doubles& high) {
  using All = double __attribute__((vector_size(kLanes * sizeof(double))));
  const All all = __builtin_convertvector(x, All);
  low += __builtin_shufflevector(all, all, 0, 1, 2, 3);
  high += __builtin_shufflevector(all, all, 4, 5, 6, 7);
}

// Calls take(i, x) for each `Block` numbers, the last ones followed by -infinity.
template <size_t Block, class Take>
[[gnu::always_inline]] inline void for_blocks(const float* x, size_t n, const Take& take) {
  size_t i = 0;
  for (; i + Block <= n; i += Block) take(i / Block, x + i);
  if (i == n) return;
  float rest[Block];
  std::fill(std::copy(x + i, x + n, rest), rest + Block, kExcluded);
  take(i / Block, rest);
}

}  // namespace

TENON_FOR_EACH_ISA void weights(const float* x, size_t n, float most, float scale, float* out) {
  for_blocks<kLanes>(
      x, n, [&](size_t block, const float* from) __attribute__((always_inline)) {
        Floats v;
        load(from, v);
        make_weights(most, scale, v);
        std::memcpy(out + block * kLanes, &v, std::min(kLanes, n - block * kLanes) * sizeof(float));
      });
}

TENON_FOR_EACH_ISA void block_masses(const float* x, size_t n, float most, float scale,
                                     double* masses) {
  for_blocks<kMassBlock>(
      x, n, [&](size_t block, const float* from) __attribute__((always_inline)) {
        Doubles even_low{}, even_high{}, odd_low{},
            odd_high{};  // no array: that would be in memory
        for (size_t i = 0; i < kMassBlock; i += 2 * kLanes) {
          Floats even, odd;
          load(from + i, even);
          load(from + i + kLanes, odd);
          make_weights(most, scale, even);
          make_weights(most, scale, odd);
          add_to(even, even_low, even_high);
          add_to(odd, odd_low, odd_high);
        }
        const Doubles low = even_low + odd_low, high = even_high + odd_high;
        masses[block] =
            ((low[0] + low[1]) + (low[2] + low[3])) + ((high[0] + high[1]) + (high[2] + high[3]));
      });
}

TENON_FOR_EACH_ISA bool group_maxima(const float* x, size_t n, float* maxima) {
  Words unordered{};
  for_blocks<kMaximaBlock>(
      x, n, [&](size_t block, const float* from) __attribute__((always_inline)) {
        constexpr size_t kChains = 4;  // as each comparison waits for the one before it
        Floats most[kChains];
        for (Floats& m : most) m = Floats{} + kExcluded;
        for (size_t i = 0; i < kMaximaBlock; i += kChains * kLanes)
          for (size_t k = 0; k < kChains; ++k) {
            Floats v;
            load(from + i + k * kLanes, v);
            unordered |= static_cast<Words>(!(v < -kExcluded));
            most[k] = v > most[k] ? v : most[k];
          }
        for (size_t k = 1; k < kChains; ++k) most[0] = most[k] > most[0] ? most[k] : most[0];
        std::memcpy(maxima + block * kLanes, &most[0], sizeof most[0]);
      });
  uint32_t any = 0;
  for (size_t i = 0; i < kLanes; ++i) any |= unordered[i];
  return any == 0;
}

TENON_FOR_EACH_ISA void exclude_below(float* x, size_t n, float least) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats v;
    load(x + i, v);
    v = v < least ? Floats{} + kExcluded : v;
    std::memcpy(x + i, &v, sizeof v);
  }
  for (; i < n; ++i)
    if (x[i] < least) x[i] = kExcluded;
}

}  // namespace tenon::llm
