// SPDX-License-Identifier: Apache-2.0
// Masks of attention that depend on positions only: chunks, and biases that fall with the distance
// (ALiBi; Press and others: arXiv 2108.12409).
#include <bit>
#include <cmath>

#include "llm/arch/step.hpp"

namespace tenon::llm {

Alibi alibi(int64_t heads, double most) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  Alibi out;
  for (int64_t i = 0; i < heads; ++i) {
    // Behind the heads of the largest power of two: every other slope of twice as many.
    const double exponent =
        i < power ? static_cast<double>(i + 1) / static_cast<double>(power)
                  : static_cast<double>(2 * (i - power) + 1) / static_cast<double>(2 * power);
    out.slopes.push_back(std::exp2(-most * exponent));
  }
  return out;
}

// Keys that attention reads of each sequence.
int64_t Step::keys() const {
  if (s.whole) return s.time;
  return s.block > 0 ? s.table() * s.block : s.capacity;
}

// A key is seen by queries of its own chunk of positions.
Value Step::chunk_mask(int64_t chunk) {
  if (chunk_mask_) return chunk_mask_;
  const Value at = positions();
  const Value first = binary("sub", at, binary("mod", at, constant({chunk})));
  const Value key = g.add(op::iota{.shape = {1, 1, 1, keys()}, .axis = 3, .dtype = i64});
  const int64_t batch = s.whole ? 1 : s.batch;
  return chunk_mask_ =
             g.add(op::compare{.kind = "ge", .a = key, .b = reshape(first, {batch, 1, s.time, 1})},
                   "chunk_mask");
}

// slope * (key - query) for each head. A number that all keys of a query have in common changes
// nothing, so in f32 slope * key does, whatever the query. Halves are exact enough near the query
// only.
Value Step::alibi_mask() {
  if (alibi_mask_) return alibi_mask_;
  const auto heads = static_cast<int64_t>(c.alibi.slopes.size());
  const tenon_dtype dtype = in_blocks(s.cache) ? s.compute : s.cache;
  const auto rounded = [&](Value x) { return c.alibi.in_bf16 ? cast(cast(x, bf16), f32) : x; };
  const Value slopes = rounded(table("alibi.slopes", {1, heads, 1, 1}, [this] {
    return std::vector<float>(c.alibi.slopes.begin(), c.alibi.slopes.end());
  }));
  const auto bias = [&](Value x) { return rounded(binary("mul", slopes, x)); };
  const Value key = g.add(op::iota{.shape = {1, 1, 1, keys()}, .axis = 3, .dtype = f32});
  if (dtype == f32) return alibi_mask_ = scaled(bias(key), c.alibi.scale);
  const int64_t batch = s.whole ? 1 : s.batch;
  const Value query = reshape(cast(positions(), f32), {batch, 1, s.time, 1});
  const Value all =
      c.alibi.in_bf16 ? binary("sub", bias(key), bias(query)) : bias(binary("sub", key, query));
  // Keys behind the query are not seen, and must not overflow.
  const Value zero = g.constant<float>({}, {0.f});
  return alibi_mask_ = cast(scaled(binary("min", all, zero), c.alibi.scale), dtype);
}

bool Step::has_mask(const Attention& options) const {
  return !c.alibi.slopes.empty() || (options.chunk > 0 && options.chunk < keys());
}

Value Step::mask(const Attention& options) {
  if (!has_mask(options)) return {};
  return c.alibi.slopes.empty() ? chunk_mask(options.chunk) : alibi_mask();
}

}  // namespace tenon::llm
