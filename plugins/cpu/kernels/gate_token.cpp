// SPDX-License-Identifier: Apache-2.0
// The choice of experts for one token, compiled for each instruction set.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gate.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gate_token.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include "math-inl.h"
#include "simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t float_lanes() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// Calls body(at, count) for the vectors of n elements.
template <class Body>
HWY_INLINE void for_vectors(int64_t n, const Body& body) {
  const int64_t lanes = float_lanes();
  for (int64_t i = 0; i < n; i += lanes) body(i, std::min(lanes, n - i));
}

template <class T>
HWY_INLINE hn::Vec<Floats> part(const T* x, int64_t n) {
  const Floats d;
  return n == float_lanes() ? load(d, x) : load_n(d, x, static_cast<size_t>(n));
}

// Scores and ranks of all experts. Returns false if some rank is NaN or -inf.
template <class T>
bool rank_experts(const Gate& g, const T* logits, const float* bias, float* scores, float* ranks) {
  const Floats d;
  if (g.score == GateScore::softmax) {
    float most = kLowest, sum = 0;
    for (int64_t e = 0; e < g.experts; ++e) most = std::max(most, to_float(logits[e]));
    for_vectors(g.experts, [&](int64_t i, int64_t n) HWY_ATTR {
      const auto x = load_n(d, logits + i, n, kLowest);
      hn::StoreU(vexp(d, hn::Sub(x, hn::Set(d, most))), d, scores + i);
    });
    for (int64_t e = 0; e < g.experts; ++e) sum += scores[e];
    for_vectors(g.experts, [&](int64_t i, int64_t) HWY_ATTR {
      hn::StoreU(hn::Div(hn::LoadU(d, scores + i), hn::Set(d, sum)), d, scores + i);
    });
  }
  auto odd = hn::Zero(d);
  for_vectors(g.experts, [&](int64_t i, int64_t n) HWY_ATTR {
    auto score = hn::Zero(d);
    if (g.score == GateScore::softmax)
      score = hn::LoadU(d, scores + i);
    else if (g.score == GateScore::sigmoid)
      score = vsigmoid(d, part(logits + i, n)).value();
    else
      score = part(logits + i, n);
    const auto rank = bias ? hn::Add(score, part(bias + i, n)) : score;
    const auto usual = hn::Gt(rank, hn::Set(d, kLowest));
    odd = hn::Or(odd, hn::IfThenElse(usual, hn::Zero(d), hn::Set(d, 1.f)));
    hn::StoreU(score, d, scores + i);
    hn::StoreU(rank, d, ranks + i);
  });
  return hn::AllTrue(d, hn::Eq(odd, hn::Zero(d)));
}

// The largest of n ranks, or the sum of the two largest.
HWY_INLINE float group_score(const float* ranks, int64_t n, bool by_max) {
  const Floats d;
  const auto lowest = hn::Set(d, kLowest);
  auto first = lowest, second = lowest;
  for_vectors(n, [&](int64_t i, int64_t count) HWY_ATTR {
    const auto v = hn::IfThenElse(hn::FirstN(d, count), hn::LoadU(d, ranks + i), lowest);
    second = hn::Max(second, hn::Min(first, v));
    first = hn::Max(first, v);
  });
  const float most = hn::GetLane(hn::MaxOfLanes(d, first));
  if (by_max) return most;
  // Without the lane that holds the largest, whose second one takes its place.
  const auto at = hn::FindFirstTrue(d, hn::Eq(first, hn::Set(d, most)));
  const auto own = hn::Eq(hn::Iota(d, 0.f), hn::Set(d, static_cast<float>(at)));
  return most + hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElse(own, second, first)));
}

// NaN comes before all numbers.
HWY_INLINE bool precedes(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

// The first k of n numbers in order, the earlier one of equals. taken: n flags.
void select_few(const float* x, int64_t n, int64_t k, float* taken, int32_t* to) {
  std::fill_n(taken, n, 0.f);
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i)
      if (taken[i] == 0 && (best < 0 || precedes(x[i], x[best]))) best = i;
    taken[best] = 1;
    to[j] = static_cast<int32_t>(best);
  }
}

// The same where all are above -inf, which replaces what is taken. Behind x there is room.
void select_usual(float* x, int64_t n, int64_t k, int32_t* to) {
  const Floats d;
  const auto lowest = hn::Set(d, kLowest);
  const int64_t lanes = float_lanes();
  hn::StoreU(lowest, d, x + n);
  for (int64_t j = 0; j < k; ++j) {
    auto most = lowest;
    for (int64_t i = 0; i < n; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
    const auto all = hn::MaxOfLanes(d, most);
    for (int64_t i = 0; i < n; i += lanes) {
      const intptr_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), all));
      if (at < 0) continue;
      to[j] = static_cast<int32_t>(i + at);
      x[i + at] = kLowest;
      break;
    }
  }
}

// Scores of groups, as the decomposition adds them: a NaN counts.
float odd_group_score(const float* ranks, int64_t n, bool by_max) {
  int64_t first = 0, second = -1;
  for (int64_t i = 1; i < n; ++i)
    if (precedes(ranks[i], ranks[first]))
      second = first, first = i;
    else if (second < 0 || precedes(ranks[i], ranks[second]))
      second = i;
  return by_max ? ranks[first] : ranks[first] + ranks[second];
}

template <class T>
void route(const Gate& g, const T* logits, const float* bias, float* area, int32_t* index,
           float* weight) {
  const int64_t size = g.size(), row = g.experts + Gate::kRoom, kept = g.kept_groups * size;
  float *const scores = area, *const ranks = area + row, *const some = area + 2 * row;
  float *const group_scores = area + 3 * row, *const taken = group_scores + g.groups;
  const bool usual = rank_experts(g, logits, bias, scores, ranks);

  // The ranks of the kept groups, one group behind the other; taken: which groups these are.
  for (int64_t k = 0; k < g.groups; ++k)
    group_scores[k] = usual ? group_score(ranks + k * size, size, g.by_max)
                            : odd_group_score(ranks + k * size, size, g.by_max);
  int32_t* const order = reinterpret_cast<int32_t*>(some);
  select_few(group_scores, g.groups, g.kept_groups, taken, order);
  int64_t count = 0;
  for (int64_t k = 0; k < g.groups; ++k)
    if (taken[k] != 0) {
      group_scores[count / size] = static_cast<float>(k);
      std::copy_n(ranks + k * size, size, some + count);
      count += size;
    }
  if (usual)
    select_usual(some, kept, g.chosen, index);
  else
    select_few(some, kept, g.chosen, ranks, index);

  float total = 0;
  for (int64_t j = 0; j < g.chosen; ++j) {
    const auto group = static_cast<int64_t>(group_scores[index[j] / size]);
    index[j] = static_cast<int32_t>(group * size + index[j] % size);
    weight[j] = scores[index[j]];
    total += weight[j];
  }
  total += 1e-20f;
  for (int64_t j = 0; j < g.chosen; ++j)
    weight[j] = (g.normalize ? weight[j] / total : weight[j]) * g.scaling;
}

void Token(const Gate& g, const void* logits, const float* bias, float* area, int32_t* index,
           float* weight) {
  with_storage(g.dtype, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, double>)
      route(g, static_cast<const T*>(logits), bias, area, index, weight);
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Token);

void gate_token(const Gate& g, const void* logits, const float* bias, float* area, int32_t* index,
                float* weight) {
  HWY_DYNAMIC_DISPATCH(Token)(g, logits, bias, area, index, weight);
}

}  // namespace tenon::cpu
#endif
