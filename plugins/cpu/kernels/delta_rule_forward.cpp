// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule of a head, token by token. A tile of the state stays in the first-level cache.
#include <algorithm>

#include "delta_rule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_rule_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "delta_rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void forward(const DeltaHead& h, int64_t first, float* area, void* o, float* state_out) {
  float *const tile = area, *const decay = area + h.keys * kColumns;
  const Tile columns(h, first);
  columns.read(h.state, tile);
  for (int64_t t = 0; t < h.tokens; ++t) token<T>(h, columns, t, tile, decay, o);
  columns.write(tile, state_out);
}

void Forward(const DeltaHead& head, int64_t first, float* area, void* o, float* state_out) {
  with_f32_or_half(head.dtype, [&]<class T>(T) { forward<T>(head, first, area, o, state_out); });
}

int64_t ForwardArea(int64_t keys) { return keys * (kColumns + 1) + kColumns; }
int64_t ColumnsOf() { return kColumns; }

}  // namespace
}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(Forward);
HWY_EXPORT(ForwardArea);
HWY_EXPORT(ColumnsOf);

void delta_forward(const DeltaHead& head, int64_t first, float* area, void* o, float* state_out) {
  HWY_DYNAMIC_DISPATCH(Forward)(head, first, area, o, state_out);
}
int64_t delta_forward_area(int64_t keys) { return HWY_DYNAMIC_DISPATCH(ForwardArea)(keys); }
int64_t delta_columns() { return HWY_DYNAMIC_DISPATCH(ColumnsOf)(); }

}  // namespace tenon::cpu
#endif
