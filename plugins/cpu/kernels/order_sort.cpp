// SPDX-License-Identifier: Apache-2.0
// sort: a radix sort of (key, index) pairs. Stable in both directions, because a descending key is
// the inverted ascending one.
#include <algorithm>
#include <bit>

#include "axis.hpp"
#include "order.hpp"
#include "order_key.hpp"
#include "radix.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

// A key of up to 32 bits above an index of 32 bits, or 64 bits of each.
struct Packed {
  uint64_t bits;
  template <class Key>
  static Packed of(Key key, int64_t index) {
    return {uint64_t{key} << 32 | static_cast<uint64_t>(index)};
  }
  uint64_t key() const { return bits >> 32; }
  int64_t index() const { return static_cast<int64_t>(bits & 0xFFFFFFFFu); }
};
struct Wide {
  uint64_t bits;
  int64_t place;
  template <class Key>
  static Wide of(Key key, int64_t index) {
    return {key, index};
  }
  uint64_t key() const { return bits; }
  int64_t index() const { return place; }
};

struct Sort {
  AxisView view;
  bool descending = false;
  Slots slots{};
};

template <class T, class Entry>
void sort_row(const T* x, const Sort& s, T* values, int64_t* indices, Entry* a) {
  using Int = OrderInt<T>;
  using Key = std::make_unsigned_t<Int>;
  constexpr Key kSign = static_cast<Key>(std::numeric_limits<Int>::min());
  const Key flip = static_cast<Key>(s.descending ? ~kSign : kSign);
  const int64_t n = s.view.length, step = s.view.inner;
  for (int64_t i = 0; i < n; ++i)
    a[i] = Entry::of(static_cast<Key>(static_cast<Key>(order_key(x[i * step])) ^ flip), i);
  const Entry* sorted =
      radix_sort(a, a + n, n, 8 * sizeof(Key), [](const Entry& e) { return e.key(); });
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = sorted[i].index();
    values[i * step] = x[from * step];
    indices[i * step] = from;
  }
}

template <class T, class Entry>
void sort_rows(const Sort& s, const sdk::Call& c) {
  s.slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r / s.view.inner * s.view.length * s.view.inner + r % s.view.inner;
      sort_row(c.in<T>(0) + at, s, c.out<T>(0) + at, c.out<int64_t>(1) + at,
               reinterpret_cast<Entry*>(area));
    }
  });
}

}  // namespace

sdk::Kernel make_sort(const sdk::op::sort& n, const sdk::Node&) {
  const sdk::Type& x = n.x.type();
  Sort s{.view = along_axis(x, n.axis), .descending = n.descending};
  const bool wide = tenon_dtype_bits(x.dtype) > 32 || s.view.length > int64_t{1} << 32;
  const int64_t entry = wide ? sizeof(Wide) : sizeof(Packed);
  s.slots =
      make_slots(s.view.outer * s.view.inner, 2 * entry * s.view.length, 8 * entry * s.view.length);
  const auto run = with_ordered("x", x.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) == 8)
      return sort_rows<T, Wide>;
    else
      return wide ? sort_rows<T, Wide> : sort_rows<T, Packed>;
  });
  return {.run = [s, run](const sdk::Call& c) { run(s, c); }, .scratch = s.slots.scratch()};
}

}  // namespace tenon::cpu
