// SPDX-License-Identifier: Apache-2.0
// topk: a scan passes only elements that exceed the k-th best so far; the survivors are selected
// and sorted.
#include <algorithm>
#include <string>

#include "axis.hpp"
#include "order.hpp"
#include "slots.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/order_topk.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "order_key-inl.h"

#ifndef TENON_CPU_ORDER_TOPK_ONCE
#define TENON_CPU_ORDER_TOPK_ONCE
namespace tenon::cpu {

// Larger keys first, equal ones by index: a total order, so the result does not depend on the sort
// algorithm.
inline bool ranks_before(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key > b.key : a.index < b.index;
}

// Writes the first k of x[0, n) in that order to the front of `entries`, which has `room`.
using TopOfRow = void (*)(const void* x, int64_t n, int64_t k, int64_t room, Ranked* entries);

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

template <class T, Direction direction>
void top_of_row(const void* row, int64_t n, int64_t k, int64_t room, Ranked* entries) {
  using Int = OrderInt<T>;
  const hn::ScalableTag<Int> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(row);
  int64_t count = 0;
  bool selective = false;  // k entries were found; only keys above `bar` matter now
  Int bar = 0;
  const auto shrink = [&] {
    std::nth_element(entries, entries + k - 1, entries + count, ranks_before);
    count = k;
    bar = static_cast<Int>(entries[k - 1].key);
    selective = true;
  };
  const auto offer = [&](Int key, int64_t index) {
    if (selective && key <= bar) return;
    entries[count++] = {key, index};
    if (count == room) shrink();
  };
  HWY_ALIGN Int keys[hn::MaxLanes(d)];
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = order_keys<T, direction>(d, x + i);
    if (selective && hn::AllFalse(d, hn::Gt(v, hn::Set(d, bar)))) continue;
    hn::Store(v, d, keys);
    for (int64_t j = 0; j < lanes; ++j) offer(keys[j], i + j);
  }
  for (; i < n; ++i) {
    const Int key = order_key(x[i]);
    offer(direction == Direction::up ? key : static_cast<Int>(~key), i);
  }
  if (count > k) shrink();
  std::sort(entries, entries + count, ranks_before);
}

TopOfRow top_of_row_for(tenon_dtype dtype, bool largest) {
  return with_ordered("x", dtype, [&](auto t) -> TopOfRow {
    using T = decltype(t);
    return largest ? top_of_row<T, Direction::up> : top_of_row<T, Direction::down>;
  });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(top_of_row_for);

// Twice k, so that the selection costs O(1) per inserted entry.
int64_t top_room(int64_t n, int64_t k) { return std::min(n, std::max<int64_t>(2 * k, 512)) + 1; }

void top_of_row(const float* x, int64_t n, int64_t k, Ranked* entries) {
  if (k > 0) HWY_DYNAMIC_DISPATCH(top_of_row_for)
  (TENON_DTYPE_F32, true)(x, n, k, top_room(n, k), entries);
}

namespace {

struct TopK {
  AxisView view;
  int64_t k = 0;
  int64_t bytes = 0;
  int64_t room = 0;  // entries
  TopOfRow select = nullptr;

  // One row. `gathered` holds the row if its elements are not contiguous.
  template <class Bits>
  void row(const Bits* x, Bits* values, int64_t* indices, Ranked* entries, Bits* gathered) const {
    const int64_t step = view.inner;
    const Bits* from = x;
    if (step != 1) {
      for (int64_t i = 0; i < view.length; ++i) gathered[i] = x[i * step];
      from = gathered;
    }
    select(from, view.length, k, room, entries);
    for (int64_t i = 0; i < k; ++i) {
      values[i * step] = from[entries[i].index];
      indices[i * step] = entries[i].index;
    }
  }

  template <class Bits>
  void run(const sdk::Call& c, const Slots& slots) const {
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
      Ranked* entries = reinterpret_cast<Ranked*>(area);
      Bits* gathered = reinterpret_cast<Bits*>(entries + room);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t outer = r / view.inner, inner = r % view.inner;
        const int64_t to = outer * k * view.inner + inner;
        row(c.in<Bits>(0) + outer * view.length * view.inner + inner, c.out<Bits>(0) + to,
            c.out<int64_t>(1) + to, entries, gathered);
      }
    });
  }
};

}  // namespace

sdk::Kernel make_topk(const sdk::op::topk& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  TopK t{.view = along_axis(x, n.axis), .k = n.k, .bytes = element_bytes("x", x.dtype)};
  t.select = HWY_DYNAMIC_DISPATCH(top_of_row_for)(x.dtype, n.largest);
  t.room = top_room(t.view.length, t.k);
  const int64_t gathered = t.view.inner == 1 ? 0 : t.view.length * t.bytes;
  const Slots slots =
      make_slots(t.view.outer * t.view.inner,
                 t.room * static_cast<int64_t>(sizeof(Ranked)) + gathered, t.view.length * t.bytes);
  const auto run = [t, slots](const sdk::Call& c) {
    if (t.k == 0) return;
    switch (t.bytes) {
      case 1:
        return t.run<uint8_t>(c, slots);
      case 2:
        return t.run<uint16_t>(c, slots);
      case 4:
        return t.run<uint32_t>(c, slots);
      default:
        return t.run<uint64_t>(c, slots);
    }
  };
  return {.run = run, .scratch = slots.scratch()};
}

}  // namespace tenon::cpu
#endif
