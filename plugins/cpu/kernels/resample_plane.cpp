// SPDX-License-Identifier: Apache-2.0
// The weighted sums of resize, in vectors.
#include "resample_plane.hpp"

#include <algorithm>

#include "nontemporal.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/resample_plane.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target
#include "rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

int64_t lanes_target(bool wide) {
  return static_cast<int64_t>(wide ? hn::Lanes(hn::ScalableTag<double>())
                                   : hn::Lanes(hn::ScalableTag<float>()));
}

// The pixels of one tap of a vector of outputs. at: of the tap, in a list with one entry per tap.
template <int kLoads, class D, class A>
HWY_INLINE hn::Vec<D> read_tap(D d, const AcrossTable<A>& t, const A* row, int64_t at) {
  const hn::RebindToSigned<D> di;
  const auto* index = t.index.data() + at * t.lanes;
  if constexpr (kLoads == 0) {
    return hn::GatherIndex(d, row, hn::LoadU(di, index));
  } else {
    const int64_t* base = t.base.data() + at * AcrossTable<A>::kLoads;
    const auto within = hn::SetTableIndices(d, index);
    auto v = hn::TableLookupLanes(hn::LoadU(d, row + base[0]), within);
    if constexpr (kLoads > 1) {
      const auto load = hn::LoadU(di, t.load.data() + at * t.lanes);
      for (int k = 1; k < kLoads; ++k) {
        const auto here = hn::RebindMask(
            d, hn::Eq(load, hn::Set(di, static_cast<typename AcrossTable<A>::Index>(k))));
        v = hn::IfThenElse(here, hn::TableLookupLanes(hn::LoadU(d, row + base[k]), within), v);
      }
    }
    return v;
  }
}

// One vector of outputs.
template <int kTaps, int kLoads, class D, class A>
HWY_INLINE hn::Vec<D> sum_taps(D d, const AcrossTable<A>& t, const A* row, int64_t block,
                               bool zeros) {
  const int64_t taps = kTaps > 0 ? kTaps : t.taps, first = block * taps;
  const A* weight = t.weight.data() + first * t.lanes;
  auto sum = hn::Zero(d);
  for (int64_t k = 0; k < taps; ++k) {
    const auto w = hn::LoadU(d, weight + k * t.lanes);
    auto v = read_tap<kLoads>(d, t, row, first + k);
    if (zeros) v = hn::IfThenElseZero(hn::Ne(w, hn::Zero(d)), v);
    sum = hn::MulAdd(w, v, sum);
  }
  return sum;
}

// kTaps 0: any number.
template <int kTaps, class D, class A>
HWY_INLINE hn::Vec<D> block_sum(D d, const AcrossTable<A>& t, const A* row, int64_t block) {
  const auto form = t.form[static_cast<size_t>(block)];
  if (form.loads == 1) return sum_taps<kTaps, 1>(d, t, row, block, form.zeros);
  if (form.loads == 2) return sum_taps<kTaps, 2>(d, t, row, block, form.zeros);
  if (form.loads > 2) return sum_taps<kTaps, 4>(d, t, row, block, form.zeros);
  return sum_taps<kTaps, 0>(d, t, row, block, form.zeros);
}

template <int kTaps, class A, class T>
HWY_INLINE void across_row(const AcrossTable<A>& t, const A* row, T* y) {
  const hn::ScalableTag<A> d;
  const int64_t whole = t.out / t.lanes;
  for (int64_t v = 0; v < whole; ++v) store(d, block_sum<kTaps>(d, t, row, v), y + v * t.lanes);
  if (const int64_t rest = t.out - whole * t.lanes; rest > 0)
    store_n(d, block_sum<kTaps>(d, t, row, whole), y + whole * t.lanes, static_cast<size_t>(rest));
}
template <class A, class T>
void across(const AcrossTable<A>& t, const A* row, T* y) {
  if (t.taps == 2) return across_row<2>(t, row, y);
  if (t.taps == 4) return across_row<4>(t, row, y);
  across_row<0>(t, row, y);
}

// y = the weighted sum of rows.
template <int kTaps, class A, class X, class Y>
HWY_INLINE void down_row(const X* const* rows, const A* weight, int64_t count, int64_t n, Y* y) {
  const hn::ScalableTag<A> d;
  const int64_t taps = kTaps > 0 ? kTaps : count;
  each(d, 0, n, [&](auto at) HWY_ATTR {
    auto sum = hn::Mul(hn::Set(d, weight[0]), load(d, rows[0], at));
    for (int64_t k = 1; k < taps; ++k)
      sum = hn::MulAdd(hn::Set(d, weight[k]), load(d, rows[k], at), sum);
    store(d, sum, y, at);
  });
}
template <class A, class X, class Y>
void down(const X* const* rows, const A* weight, int64_t count, int64_t n, Y* y) {
  const hn::ScalableTag<A> d;
  if (count == 0) return each(d, 0, n, [&](auto at) HWY_ATTR { store(d, hn::Zero(d), y, at); });
  if (count == 1) return down_row<1>(rows, weight, count, n, y);
  if (count == 2) return down_row<2>(rows, weight, count, n, y);
  if (count == 4) return down_row<4>(rows, weight, count, n, y);
  down_row<0>(rows, weight, count, n, y);
}

// A row in acc. It is copied if it is of another type, or too short for a vector.
template <class A, class X>
HWY_INLINE const A* wide_row(const X* row, int64_t n, int64_t lanes, A* copy) {
  if constexpr (std::is_same_v<A, X>) {
    if (n >= lanes) return row;
  }
  const hn::ScalableTag<A> d;
  map(
      d, n, [](auto, auto v) HWY_ATTR { return v; }, copy, row);
  return copy;
}

// The parts of a work area.
template <class A, class X>
struct Area {
  Area(const PlanePlan<A>& p, void* area) {
    char* at = static_cast<char*>(area);
    row = reinterpret_cast<A*>(at);
    at += p.padded_in * static_cast<int64_t>(sizeof(A));
    if (!p.down) return;
    rows = reinterpret_cast<const void**>(at);
    at += p.down->most * static_cast<int64_t>(sizeof(void*));
    held = reinterpret_cast<int64_t*>(at);
    at += p.down->reach * static_cast<int64_t>(sizeof(int64_t));
    ring = reinterpret_cast<A*>(at);
  }
  A* row;                       // of x, or the sum of such rows
  const void** rows = nullptr;  // the taps of an output
  int64_t* held = nullptr;      // which rows of x the ring has
  A* ring = nullptr;            // rows of x, resized
};

// Prefetches the rows that a later output reads first. last: the first row that the
// current output does not read.
template <class X>
HWY_INLINE void prefetch_rows(const tenon::ResizeTaps& taps, int64_t later, int64_t last,
                              const X* image, int64_t width) {
  constexpr int64_t kMost = 16 << 10;  // bytes
  if (later >= taps.rows()) return;
  const int64_t end = taps.begin[static_cast<size_t>(later) + 1];
  if (end == 0) return;
  const int64_t begin = std::max(last, taps.index[static_cast<size_t>(end) - 1] - 7);
  const auto* from = reinterpret_cast<const char*>(image + begin * width);
  const auto* to =
      reinterpret_cast<const char*>(image + (taps.index[static_cast<size_t>(end) - 1] + 1) * width);
  for (const char* p = from; p < std::min(to, from + kMost); p += 64) hwy::Prefetch(p);
}

template <class A, class X, class Y>
void run_rows(const PlanePlan<A>& p, const X* x, Y* y, int64_t begin, int64_t end, void* memory,
              bool nontemporal) {
  const Area<A, X> area(p, memory);
  constexpr int64_t kAhead = 4;  // outputs
  NontemporalRow<Y> target(nontemporal, p.out_w);
  const AcrossTable<A>* t = p.across.get();
  const DownTable<A>* h = p.down.get();
  if (h != nullptr && p.across_first) std::fill_n(area.held, h->reach, int64_t{-1});
  for (int64_t r = begin; r < end; ++r) {
    const int64_t plane = r / p.out_h, o = r - plane * p.out_h;
    const X* image = x + plane * p.in_h * p.in_w;
    Y* final = y + r * p.out_w;
    Y* to = target.at(final);
    if (h == nullptr) {
      across(*t, wide_row<A>(image + o * p.in_w, p.in_w, t->lanes, area.row), to);
      target.done(final);
      continue;
    }
    const auto first = h->taps.begin[static_cast<size_t>(o)];
    const auto count = h->taps.begin[static_cast<size_t>(o) + 1] - first;
    const A* weight = h->weight.data() + first;
    const int64_t* index = h->taps.index.data() + first;
    if (count > 0) prefetch_rows(h->taps, o + kAhead, index[count - 1] + 1, image, p.in_w);
    if (t != nullptr && p.across_first) {
      const auto rows = reinterpret_cast<const A**>(area.rows);
      for (int64_t k = 0; k < count; ++k) {
        const int64_t place = index[k] % h->reach, row = plane * p.in_h + index[k];
        A* resized = area.ring + place * p.pitch;
        if (area.held[place] != row) {
          area.held[place] = row;
          across(*t, wide_row<A>(image + index[k] * p.in_w, p.in_w, t->lanes, area.row), resized);
        }
        rows[k] = resized;
      }
      down(rows, weight, count, p.out_w, to);
    } else {
      const auto rows = reinterpret_cast<const X**>(area.rows);
      for (int64_t k = 0; k < count; ++k) rows[k] = image + index[k] * p.in_w;
      if (t == nullptr) {
        down(rows, weight, count, p.out_w, to);
      } else {
        down(rows, weight, count, p.in_w, area.row);
        across(*t, area.row, to);
      }
    }
    target.done(final);
  }
}

template <class A>
void run_any(const PlaneRun<A>& r, int64_t begin, int64_t end, void* area) {
  const auto run = [&]<class X, class Y>(X, Y) {
    run_rows<A, X, Y>(r.plan, static_cast<const X*>(r.x), static_cast<Y*>(r.y), begin, end, area,
                      r.nontemporal);
  };
  if constexpr (std::is_same_v<A, double>) {
    run(double{}, double{});
  } else {
    const auto with_half = [&]<class H>(H) {
      if (r.from == TENON_DTYPE_F32) return run(float{}, H{});
      if (r.to == TENON_DTYPE_F32) return run(H{}, float{});
      run(H{}, H{});
    };
    const tenon_dtype half = r.from == TENON_DTYPE_F32 ? r.to : r.from;
    if (half == TENON_DTYPE_F32) return run(float{}, float{});
    if (half == TENON_DTYPE_F16) return with_half(F16{});
    with_half(Bf16{});
  }
}

void run_float_target(const PlaneRun<float>& r, int64_t begin, int64_t end, void* area) {
  run_any(r, begin, end, area);
}
void run_double_target(const PlaneRun<double>& r, int64_t begin, int64_t end, void* area) {
  run_any(r, begin, end, area);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(lanes_target);
HWY_EXPORT(run_float_target);
HWY_EXPORT(run_double_target);

namespace {

// Finds loads that have the pixels of one tap of a vector: where they start, and where each lane's
// pixel is. Returns how many it takes, or 0 if these are too many.
template <class A>
uint8_t find_loads(AcrossTable<A>& t, int64_t at) {
  using Index = typename AcrossTable<A>::Index;
  const auto first = static_cast<size_t>(at * t.lanes), lanes = static_cast<size_t>(t.lanes);
  Index* index = t.index.data() + first;
  int64_t* base = t.base.data() + at * AcrossTable<A>::kLoads;
  const int64_t low = *std::min_element(index, index + lanes);
  const int64_t high = *std::max_element(index, index + lanes);
  const int64_t count = (high - low) / t.lanes + 1;
  if (count > AcrossTable<A>::kLoads) return 0;
  const int64_t last = std::max<int64_t>(t.in - t.lanes, 0);
  for (int64_t k = 0; k < AcrossTable<A>::kLoads; ++k)
    base[k] = std::min(low + std::min(k, count - 1) * t.lanes, last);
  for (size_t lane = 0; lane < lanes; ++lane) {
    int64_t k = 0;
    while (index[lane] - base[k] >= t.lanes) ++k;
    t.load[first + lane] = static_cast<Index>(k);
  }
  return static_cast<uint8_t>(count);
}

template <class A>
AcrossTable<A> make_across(const tenon::ResizeTaps& taps, int64_t in) {
  using Index = typename AcrossTable<A>::Index;
  AcrossTable<A> t;
  t.in = in, t.out = taps.rows(), t.taps = std::max<int64_t>(taps.most(), 1);
  t.lanes = HWY_DYNAMIC_DISPATCH(lanes_target)(sizeof(A) == 8);
  const auto blocks = static_cast<size_t>(t.blocks());
  const size_t vectors = blocks * static_cast<size_t>(t.taps);
  const size_t elements = vectors * static_cast<size_t>(t.lanes);
  t.form.resize(blocks);
  t.base.resize(vectors * AcrossTable<A>::kLoads);
  t.index.resize(elements), t.load.resize(elements), t.weight.resize(elements);
  for (int64_t v = 0; v < t.blocks(); ++v) {
    auto& form = t.form[static_cast<size_t>(v)];
    form = {1, false};
    bool gathers = false;
    for (int64_t k = 0; k < t.taps; ++k) {
      const int64_t at = v * t.taps + k;
      for (int64_t lane = 0; lane < t.lanes; ++lane) {
        // Lanes behind the end repeat the last output.
        const auto o = static_cast<size_t>(std::min(v * t.lanes + lane, t.out - 1));
        const int64_t first = taps.begin[o], count = taps.begin[o + 1] - first;
        const auto tap = static_cast<size_t>(first + std::min(k, count - 1));
        const auto place = static_cast<size_t>(at * t.lanes + lane);
        t.index[place] = count > 0 ? static_cast<Index>(taps.index[tap]) : Index{0};
        t.weight[place] = k < count ? static_cast<A>(taps.weight[tap]) : A{0};
        form.zeros |= t.weight[place] == 0;
      }
      const uint8_t loads = find_loads(t, at);
      gathers |= loads == 0;
      form.loads = std::max(form.loads, loads);
    }
    if (gathers) form.loads = 0;
    if (gathers) continue;
    for (auto place = static_cast<size_t>(v * t.taps * t.lanes);
         place < static_cast<size_t>((v + 1) * t.taps * t.lanes); ++place) {
      const size_t tap = place / static_cast<size_t>(t.lanes) * AcrossTable<A>::kLoads;
      t.index[place] -= static_cast<Index>(t.base[tap + static_cast<size_t>(t.load[place])]);
    }
  }
  return t;
}

template <class A>
DownTable<A> make_down(const tenon::ResizeTaps& taps) {
  DownTable<A> t{.taps = taps, .weight = {taps.weight.begin(), taps.weight.end()}};
  t.most = taps.most(), t.reach = 1;
  for (size_t o = 0; o + 1 < taps.begin.size(); ++o)
    if (taps.begin[o] < taps.begin[o + 1])
      t.reach = std::max(t.reach, taps.index[static_cast<size_t>(taps.begin[o + 1]) - 1] -
                                      taps.index[static_cast<size_t>(taps.begin[o])] + 1);
  return t;
}

}  // namespace

template <class A>
PlanePlan<A> make_plane_plan(int64_t planes, int64_t in_h, int64_t in_w,
                             const tenon::ResizeTaps* down, const tenon::ResizeTaps* across,
                             int64_t element_bytes) {
  PlanePlan<A> p{.planes = planes, .in_h = in_h, .in_w = in_w, .out_h = in_h, .out_w = in_w};
  if (across != nullptr) {
    p.across = std::make_shared<const AcrossTable<A>>(make_across<A>(*across, in_w));
    p.out_w = across->rows();
  }
  if (down != nullptr) {
    p.down = std::make_shared<const DownTable<A>>(make_down<A>(*down));
    p.out_h = down->rows();
  }
  constexpr int64_t kPad = 64;  // more than a vector
  p.padded_in = (in_w + kPad) / 16 * 16;
  p.pitch = (p.out_w + kPad) / 16 * 16;
  // Sums down the columns are cheap, so the order follows the number of rows that are resized.
  constexpr int64_t kMostRing = 8 << 20;
  p.across_first = p.across && p.down && in_h <= p.out_h &&
                   p.down->reach * p.pitch * static_cast<int64_t>(sizeof(A)) <= kMostRing;
  int64_t area = p.padded_in * static_cast<int64_t>(sizeof(A));
  if (p.down) area += p.down->most * 8;
  if (p.down) area += p.down->reach * 8;
  if (p.across_first) area += p.down->reach * p.pitch * static_cast<int64_t>(sizeof(A));
  const int64_t taps = (p.across ? 2 * p.across->taps : 0) + (p.down ? p.down->most : 0);
  p.slots = make_slots(planes * p.out_h, area, p.out_w * element_bytes * (taps + 1));
  return p;
}

template PlanePlan<float> make_plane_plan(int64_t, int64_t, int64_t, const tenon::ResizeTaps*,
                                          const tenon::ResizeTaps*, int64_t);
template PlanePlan<double> make_plane_plan(int64_t, int64_t, int64_t, const tenon::ResizeTaps*,
                                           const tenon::ResizeTaps*, int64_t);

namespace {
template <class A>
bool is_large(const PlaneRun<A>& run) {
  const PlanePlan<A>& p = run.plan;
  return bypasses_cache(run.y, p.planes * p.out_h * p.out_w * element_bytes(run.to), {run.x});
}
}  // namespace

void run_planes(PlaneRun<float> run, void* scratch) {
  run.nontemporal = is_large(run);
  run.plan.slots.run(scratch, [&](int64_t begin, int64_t end, void* area) {
    HWY_DYNAMIC_DISPATCH(run_float_target)(run, begin, end, area);
  });
}
void run_planes(PlaneRun<double> run, void* scratch) {
  run.nontemporal = is_large(run);
  run.plan.slots.run(scratch, [&](int64_t begin, int64_t end, void* area) {
    HWY_DYNAMIC_DISPATCH(run_double_target)(run, begin, end, area);
  });
}

}  // namespace tenon::cpu
#endif
