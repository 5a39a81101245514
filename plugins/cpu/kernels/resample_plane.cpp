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

// One vector of outputs. kTaps 0: any number.
template <int kTaps, class D, class A>
HWY_INLINE hn::Vec<D> block_sum(D d, const AcrossTable<A>& t, const A* row, int64_t block) {
  const hn::RebindToSigned<D> di;
  const int64_t taps = kTaps > 0 ? kTaps : t.taps, at = block * taps;
  const uint8_t form = t.form[static_cast<size_t>(block)];
  const int64_t* base = t.base.data() + at;
  const auto* index = t.index.data() + at * t.lanes;
  const A* weight = t.weight.data() + at * t.lanes;
  auto sum = hn::Zero(d);
  if (form == 0) {
    for (int64_t k = 0; k < taps; ++k) {
      const auto v = hn::TableLookupLanes(hn::LoadU(d, row + base[k]),
                                          hn::SetTableIndices(d, index + k * t.lanes));
      sum = hn::MulAdd(hn::LoadU(d, weight + k * t.lanes), v, sum);
    }
    return sum;
  }
  for (int64_t k = 0; k < taps; ++k) {
    const auto w = hn::LoadU(d, weight + k * t.lanes);
    const auto v = (form & AcrossTable<A>::kGather) != 0
                       ? hn::GatherIndex(d, row, hn::LoadU(di, index + k * t.lanes))
                       : hn::TableLookupLanes(hn::LoadU(d, row + base[k]),
                                              hn::SetTableIndices(d, index + k * t.lanes));
    sum = hn::IfThenElse(hn::Ne(w, hn::Zero(d)), hn::MulAdd(w, v, sum), sum);
  }
  return sum;
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

template <class A, class X, class Y>
void run_rows(const PlanePlan<A>& p, const X* x, Y* y, int64_t begin, int64_t end, void* memory,
              bool nontemporal) {
  const Area<A, X> area(p, memory);
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

template <class A>
AcrossTable<A> make_across(const tenon::ResizeTaps& taps, int64_t in) {
  AcrossTable<A> t;
  t.in = in, t.out = taps.rows(), t.taps = std::max<int64_t>(taps.most(), 1);
  t.lanes = HWY_DYNAMIC_DISPATCH(lanes_target)(sizeof(A) == 8);
  const auto blocks = static_cast<size_t>(t.blocks());
  const size_t vectors = blocks * static_cast<size_t>(t.taps);
  t.form.resize(blocks);
  t.base.resize(vectors);
  t.index.resize(vectors * static_cast<size_t>(t.lanes));
  t.weight.resize(vectors * static_cast<size_t>(t.lanes));
  for (int64_t v = 0; v < t.blocks(); ++v) {
    uint8_t form = 0;
    const auto place = [&](int64_t k, int64_t lane) {
      return static_cast<size_t>((v * t.taps + k) * t.lanes + lane);
    };
    for (int64_t k = 0; k < t.taps; ++k) {
      int64_t low = in - 1, high = 0;
      for (int64_t lane = 0; lane < t.lanes; ++lane) {
        // Lanes behind the end repeat the last output.
        const auto o = static_cast<size_t>(std::min(v * t.lanes + lane, t.out - 1));
        const int64_t first = taps.begin[o], count = taps.begin[o + 1] - first;
        const auto tap = static_cast<size_t>(first + std::min(k, count - 1));
        const int64_t index = count > 0 ? taps.index[tap] : 0;
        t.index[place(k, lane)] = static_cast<typename AcrossTable<A>::Index>(index);
        t.weight[place(k, lane)] = k < count ? static_cast<A>(taps.weight[tap]) : A{0};
        if (t.weight[place(k, lane)] == 0) form |= AcrossTable<A>::kZeros;
        low = std::min(low, index), high = std::max(high, index);
      }
      const int64_t base = std::min(low, std::max<int64_t>(in - t.lanes, 0));
      t.base[static_cast<size_t>(v * t.taps + k)] = base;
      if (high - base >= t.lanes) form |= AcrossTable<A>::kGather;
    }
    if ((form & AcrossTable<A>::kGather) == 0)
      for (int64_t k = 0; k < t.taps; ++k)
        for (int64_t lane = 0; lane < t.lanes; ++lane)
          t.index[place(k, lane)] -= static_cast<typename AcrossTable<A>::Index>(
              t.base[static_cast<size_t>(v * t.taps + k)]);
    t.form[static_cast<size_t>(v)] = form;
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
