// SPDX-License-Identifier: Apache-2.0
// scatter, scatter_add, scatter_reduce and gather_backward. Updates are sorted by (index, position).
// Each row of the result belongs to one thread, which applies its updates in order of position:
// deterministic without atomics.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "../parallel.hpp"
#include "axis.hpp"
#include "block_copy.hpp"
#include "index.hpp"
#include "index_policy.hpp"
#include "nontemporal.hpp"
#include "radix.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/index_scatter.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "simd-inl.h"

#ifndef TENON_CPU_INDEX_SCATTER_ONCE
#define TENON_CPU_INDEX_SCATTER_ONCE
namespace tenon::cpu {

// The updates of one row. The low bits of an entry are the position of its update.
struct Segment {
  const uint64_t* entries = nullptr;
  int64_t count = 0;
  uint64_t position_mask = 0;
};

// y[0, n) = y (keep) or nothing, folded with updates[position * stride + (0..n)] of the segment.
using FoldRows = void (*)(const Segment& s, const void* updates, int64_t stride, void* y, int64_t n,
                          bool keep);

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int64_t kColumns = 1024;  // per partial sum, in the first-level cache
// Longer sums are split into blocks, to bound the error.
constexpr int64_t kRowsInBlock = 128;

template <class T>
using FoldType = std::conditional_t<std::is_integral_v<T>, T, Acc<T>>;

// What nothing folds to.
template <Fold fold, class A>
constexpr A nothing() {
  using Limits = std::numeric_limits<A>;
  if constexpr (fold == Fold::add) {
    return A{};
  } else if constexpr (fold == Fold::mul) {
    return A{1};
  } else if constexpr (fold == Fold::max) {
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  } else {
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
}

template <Fold fold, class D>
HWY_INLINE hn::Vec<D> folded(D d, hn::Vec<D> a, hn::Vec<D> b) {
  constexpr bool kIntegers = std::is_integral_v<hn::TFromD<D>>;
  if constexpr (fold == Fold::add) {
    return hn::Add(a, b);
  } else if constexpr (fold == Fold::mul) {
    return hn::Mul(a, b);
  } else if constexpr (kIntegers) {
    return fold == Fold::max ? hn::Max(a, b) : hn::Min(a, b);
  } else {
    return fold == Fold::max ? max_nan(d, a, b) : min_nan(d, a, b);
  }
}

template <Fold fold, class T>
HWY_INLINE void fold_updates(const uint64_t* entries, int64_t count, uint64_t mask,
                             const T* updates, int64_t stride, FoldType<T>* sum, int64_t n) {
  const hn::ScalableTag<FoldType<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < count; ++k) {
    const T* row = updates + static_cast<int64_t>(entries[k] & mask) * stride;
    if constexpr (fold == Fold::mul && std::is_integral_v<T>) {  // no vectors for every size
      for (int64_t i = 0; i < n; ++i)
        sum[i] = static_cast<T>(static_cast<uint64_t>(sum[i]) * static_cast<uint64_t>(row[i]));
    } else {
      int64_t i = 0;
      for (; i + lanes <= n; i += lanes)
        hn::Store(folded<fold>(d, hn::Load(d, sum + i), load(d, row + i)), d, sum + i);
      if (i < n)
        hn::Store(folded<fold>(d, hn::Load(d, sum + i), load_n(d, row + i, n - i)), d, sum + i);
    }
  }
}

template <Fold fold, class T>
void fold_rows(const Segment& s, const void* updates, int64_t stride, void* y, int64_t n,
               bool keep) {
  using Sum = FoldType<T>;
  const hn::ScalableTag<Sum> d;
  const auto same = [](auto, auto v) HWY_ATTR { return v; };
  HWY_ALIGN Sum total[kColumns];
  HWY_ALIGN Sum block[kColumns];
  const T* from = static_cast<const T*>(updates);
  T* to = static_cast<T*>(y);
  for (int64_t c = 0; c < n; c += kColumns) {
    const int64_t columns = std::min(kColumns, n - c);
    if (keep) {
      map(d, columns, same, total, to + c);
    } else {
      std::fill_n(total, columns, nothing<fold, Sum>());
    }
    if (s.count <= kRowsInBlock || std::is_integral_v<T> || fold != Fold::add) {
      fold_updates<fold>(s.entries, s.count, s.position_mask, from + c, stride, total, columns);
    } else {
      for (int64_t k = 0; k < s.count; k += kRowsInBlock) {
        std::fill_n(block, columns, Sum{});
        fold_updates<fold>(s.entries + k, std::min(kRowsInBlock, s.count - k), s.position_mask,
                           from + c, stride, block, columns);
        map(
            d, columns, [](auto, auto a, auto b) HWY_ATTR { return hn::Add(a, b); }, total, total,
            block);
      }
    }
    map(d, columns, same, to + c, total);
  }
}

FoldRows fold_rows_for(std::string_view operand, tenon_dtype dtype, Fold fold) {
  return with_fold(operand, dtype, fold,
                   []<class T, Fold kind>(T, std::integral_constant<Fold, kind>) -> FoldRows {
                     return fold_rows<kind, T>;
                   });
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {
HWY_EXPORT(fold_rows_for);
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

constexpr int64_t kNoPadding = std::numeric_limits<int64_t>::min();

// Shared by the four ops: updates [outer, count, inner] go to rows of y [outer, length, inner].
struct Scatter {
  IndexAxis axis;
  int64_t outer = 0;
  int64_t inner = 0;
  int64_t count = 0;
  int64_t bytes = 0;  // of an element
  int64_t padding = kNoPadding;
  int position_bits = 0;
  int index_bits = 0;
  FoldRows fold = nullptr;  // null: the last update replaces

  uint64_t scratch() const { return 2 * sizeof(uint64_t) * static_cast<uint64_t>(count); }
};

// Entries (index, position) in ascending order, without skipped updates.
struct Sorted {
  const uint64_t* entries;
  int64_t count;
  int shift;
  int64_t index(int64_t k) const { return static_cast<int64_t>(entries[k] >> shift); }
  int64_t end_of(int64_t k) const {
    const int64_t row = index(k);
    while (++k < count && index(k) == row) {
    }
    return k;
  }
  int64_t first_at_or_after(int64_t row) const {
    return std::lower_bound(entries, entries + count, static_cast<uint64_t>(row) << shift) -
           entries;
  }
};

template <class X>
Sorted sort_updates(const Scatter& s, const X* indices, void* scratch) {
  uint64_t* a = static_cast<uint64_t*>(scratch);
  int64_t n = 0;
  for (int64_t k = 0; k < s.count; ++k) {
    const int64_t at = s.axis.resolve(indices[k]);
    if (at < 0 || at == s.padding) continue;
    a[n++] = static_cast<uint64_t>(at) << s.position_bits | static_cast<uint64_t>(k);
  }
  const int shift = s.position_bits;
  const uint64_t* sorted = radix_sort(a, a + s.count, n, s.index_bits,
                                      [shift](uint64_t entry) { return entry >> shift; });
  return {sorted, n, shift};
}

// Applies entries [k, end) of updates to row `to`. `keep`: the row has its previous content.
void apply(const Scatter& s, const Sorted& sorted, int64_t k, int64_t end, const char* updates,
           NontemporalRow<char>& place, char* to, bool keep) {
  const uint64_t mask = (uint64_t{1} << sorted.shift) - 1;
  const int64_t row = s.inner * s.bytes;
  const auto update = [&](int64_t i) {
    return updates + static_cast<int64_t>(sorted.entries[i] & mask) * row;
  };
  // prefetch distance in updates, and bytes per update
  constexpr int64_t kAhead = 8, kPrefetched = 2048;
  if (const int64_t next = end + kAhead; next < sorted.count)
    for (int64_t i = 0; i < std::min(row, kPrefetched); i += 64)
      __builtin_prefetch(update(next) + i);
  const bool folds = s.fold != nullptr && (keep || end - k > 1);
  if (!folds && place.nontemporal()) return nontemporal_copy(update(end - 1), to, row);
  if (!folds) {
    std::memcpy(to, update(end - 1), static_cast<size_t>(row));
    return;
  }
  s.fold({sorted.entries + k, end - k, mask}, updates, s.inner, place.at(to), s.inner, keep);
  place.done(to);
}

// Visits only rows with updates.
void scatter_in_place(const Scatter& s, const Sorted& sorted, const char* updates, char* y) {
  const int64_t row = s.inner * s.bytes;
  const auto piece = [&](int64_t outer, int64_t begin, int64_t end) {
    NontemporalRow<char> place(false, row);
    int64_t k = begin;
    while (k > 0 && k < end && sorted.index(k) == sorted.index(k - 1)) ++k;
    while (k < end) {
      const int64_t next = sorted.end_of(k);
      apply(s, sorted, k, next, updates + outer * s.count * row, place,
            y + (outer * s.axis.length + sorted.index(k)) * row, true);
      k = next;
    }
  };
  for (int64_t o = 0; o < s.outer; ++o)
    parallel_for(sorted.count, grain_for(3 * row),
                 [&](int64_t begin, int64_t end) { piece(o, begin, end); });
}

// Writes each row of y once: from its updates, from base, or zeros.
void scatter_fresh(const Scatter& s, const Sorted& sorted, const char* base, const char* updates,
                   char* y) {
  const int64_t row = s.inner * s.bytes, length = s.axis.length;
  const bool nontemporal = base == nullptr && row <= kNontemporalRow &&
                           beyond_cache(s.outer * (length + sorted.count) * row);
  const auto plain = [&](int64_t first, int64_t rows) {
    if (base != nullptr) {
      std::memcpy(y + first * row, base + first * row, rows * row);
    } else if (nontemporal) {
      nontemporal_zero(y + first * row, rows * row);
    } else {
      std::memset(y + first * row, 0, rows * row);
    }
  };
  const auto piece = [&](int64_t outer, int64_t begin, int64_t end) {
    NontemporalRow<char> place(nontemporal, row);
    int64_t r = begin;
    for (int64_t k = sorted.first_at_or_after(begin); k < sorted.count; k = sorted.end_of(k)) {
      const int64_t at = sorted.index(k);
      if (at >= end) break;
      plain(outer * length + r, at - r);
      const bool keep = s.fold != nullptr && base != nullptr;
      if (keep) plain(outer * length + at, 1);
      apply(s, sorted, k, sorted.end_of(k), updates + outer * s.count * row, place,
            y + (outer * length + at) * row, keep);
      r = at + 1;
    }
    plain(outer * length + r, end - r);
  };
  const int64_t cost = row * 2 + row * sorted.count / std::max<int64_t>(length, 1);
  parallel_for(s.outer * length, grain_for(cost), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t outer = begin / length, stop = std::min(end, (outer + 1) * length);
      piece(outer, begin - outer * length, stop - outer * length);
      begin = stop;
    }
  });
}

void run_scatter(const Scatter& s, tenon_dtype index, const void* indices, const void* base,
                 const void* updates, void* y, void* scratch) {
  with_indices(index, indices, [&](const auto* list) {
    s.axis.check(list, s.count);
    if (s.outer == 0 || s.inner == 0) return;
    const Sorted sorted = sort_updates(s, list, scratch);
    const char* from = static_cast<const char*>(updates);
    if (base != nullptr && base == y) {
      scatter_in_place(s, sorted, from, static_cast<char*>(y));
    } else {
      scatter_fresh(s, sorted, static_cast<const char*>(base), from, static_cast<char*>(y));
    }
  });
}

Scatter make_shared(const sdk::Type& y, int64_t axis, std::string_view oob,
                    const sdk::Type& indices, const sdk::Type& updates) {
  const AxisView view = along_axis(y, axis);
  Scatter s;
  s.axis = {view.axis, view.length, parse_oob(oob)};
  s.outer = view.outer;
  s.inner = view.inner;
  s.count = indices.elements();
  s.bytes = element_bytes("updates", updates.dtype);
  // Blocks are moved as bytes.
  if (sdk::is_blocks(updates.dtype))
    s.inner = row_bytes("updates", updates.dtype, view.inner), s.bytes = 1;
  s.position_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(s.count, 1)));
  s.index_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(view.length, 1)));
  if (s.position_bits + s.index_bits > 64)
    throw sdk::Refusal::shape("more indices and rows than 64 bits can pair");
  return s;
}

// Of ops with the operands base, indices and updates.
template <class Op>
Kernel make_onto_base(const Op& n, FoldRows fold) {
  const tenon_dtype index = n.indices.type().dtype;
  Scatter s = make_shared(n.base.type(), n.axis, n.oob, n.indices.type(), n.updates.type());
  s.fold = fold;
  return {.run =
              [s, index](const Call& c) {
                run_scatter(s, index, c.inputs[1], c.inputs[0], c.inputs[2], c.outputs[0],
                            c.scratch);
              },
          .scratch = s.scratch(),
          .in_place = {{0, 0}}};
}

}  // namespace

Kernel make_scatter(const sdk::op::scatter& n, const Node&) { return make_onto_base(n, nullptr); }

Kernel make_scatter_reduce(const sdk::op::scatter_reduce& n, const Node&) {
  return make_onto_base(
      n, HWY_DYNAMIC_DISPATCH(fold_rows_for)("base", n.base.type().dtype, parse_fold(n.kind)));
}

Kernel make_scatter_add(const sdk::op::scatter_add& n, const Node& node) {
  const tenon_dtype index = n.indices.type().dtype;
  const sdk::Type& y = n.base ? n.base.type() : node.out(0).type();
  Scatter s = make_shared(y, n.axis, n.oob, n.indices.type(), n.updates.type());
  s.fold = HWY_DYNAMIC_DISPATCH(fold_rows_for)("updates", n.updates.type().dtype, Fold::add);
  const bool has_base = static_cast<bool>(n.base);
  Kernel kernel{.run =
                    [s, index, has_base](const Call& c) {
                      run_scatter(s, index, c.inputs[1], has_base ? c.inputs[2] : nullptr,
                                  c.inputs[0], c.outputs[0], c.scratch);
                    },
                .scratch = s.scratch()};
  if (has_base) kernel.in_place = {{2, 0}};
  return kernel;
}

Kernel make_gather_backward(const sdk::op::gather_backward& n, const Node& node) {
  const tenon_dtype index = n.indices.type().dtype;
  Scatter s = make_shared(node.out(0).type(), n.axis, n.oob, n.indices.type(), n.dy.type());
  s.fold = HWY_DYNAMIC_DISPATCH(fold_rows_for)("dy", n.dy.type().dtype, Fold::add);
  s.padding = n.padding_idx;
  if (s.padding < 0 && s.padding != kNoPadding) s.padding += s.axis.length;
  return {.run =
              [s, index](const Call& c) {
                run_scatter(s, index, c.inputs[1], nullptr, c.inputs[0], c.outputs[0], c.scratch);
              },
          .scratch = s.scratch()};
}

}  // namespace tenon::cpu
#endif
