// SPDX-License-Identifier: Apache-2.0
// resize with mode nearest: moves elements of any dtype. Rows that come from one row of x are copies
// of each other.
#include <algorithm>
#include <cstring>
#include <memory>

#include "../parallel.hpp"
#include "nontemporal.hpp"
#include "resample.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/resample_nearest.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// after foreach_target

#ifndef TENON_CPU_RESAMPLE_NEAREST_
#define TENON_CPU_RESAMPLE_NEAREST_
namespace tenon::cpu {

// What one output row takes from one row of x.
struct NearestRow {
  int64_t in = 0, out = 0;
  bool copies = false, doubles = false;  // the row as it is; each element twice
  std::vector<int32_t> index{};          // [out]
  // For vectors of `lanes` elements of 4 bytes: where the vector is loaded, and the elements in it.
  // A start of -1: they are too far apart.
  int64_t lanes = 0;
  std::vector<int32_t> start{}, within{};
};

struct NearestPlan {
  int64_t planes = 0;
  std::array<int64_t, 3> in{}, out{};
  std::vector<int64_t> depth{}, row{};  // of x, for each of the output
  NearestRow across{};
};

}  // namespace tenon::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t nearest_lanes_target() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<uint32_t>()));
}

template <class T>
HWY_INLINE void expand(const NearestRow& r, const T* x, T* y) {
  int64_t k = 0;
  if (r.doubles) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 16 / sizeof(T)> few;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d)),
               few_lanes = static_cast<int64_t>(hn::Lanes(few));
    const auto twice = [&](auto tag, int64_t i) HWY_ATTR {
      const auto v = hn::LoadU(tag, x + i);
      hn::StoreInterleaved2(v, v, tag, y + 2 * i);
    };
    int64_t i = 0;
    for (; i + lanes <= r.in; i += lanes) twice(d, i);
    for (; i + few_lanes <= r.in; i += few_lanes) twice(few, i);
    if (i < r.in && r.in >= few_lanes) {  // the last ones, with some that are there already
      twice(few, r.in - few_lanes);
      i = r.in;
    }
    k = 2 * i;
  } else if constexpr (sizeof(T) == 4) {
    const hn::ScalableTag<uint32_t> d;
    const int64_t lanes = r.lanes;
    for (; k + lanes <= r.out; k += lanes) {
      const int32_t start = r.start[static_cast<size_t>(k / lanes)];
      const int32_t* within = r.within.data() + k;
      if (start >= 0) {
        hn::StoreU(hn::TableLookupLanes(hn::LoadU(d, x + start), hn::SetTableIndices(d, within)), d,
                   y + k);
      } else {
        for (int64_t i = k; i < k + lanes; ++i) y[i] = x[r.index[static_cast<size_t>(i)]];
      }
    }
  }
  for (; k < r.out; ++k) y[k] = x[r.index[static_cast<size_t>(k)]];
}

// Output rows [begin, end) of all planes.
template <class T>
void nearest_rows(const NearestPlan& p, const T* x, T* y, int64_t begin, int64_t end,
                  bool nontemporal) {
  const NearestRow& r = p.across;
  const auto bytes = r.out * static_cast<int64_t>(sizeof(T));
  alignas(64) char buffer[kNontemporalRow];
  const bool streams = nontemporal && bytes <= kNontemporalRow;
  int64_t held = -1;
  for (int64_t k = begin; k < end; ++k) {
    const int64_t o = k % p.out[1], slice = k / p.out[1];
    const int64_t plane =
        slice / p.out[0] * p.in[0] + p.depth[static_cast<size_t>(slice % p.out[0])];
    const int64_t source = plane * p.in[1] + p.row[static_cast<size_t>(o)];
    const T* from = x + source * r.in;
    T* to = y + k * r.out;
    if (streams) {
      if (r.copies) {
        nontemporal_copy(from, to, bytes);
        continue;
      }
      if (source != held) expand(r, from, reinterpret_cast<T*>(buffer));
      nontemporal_copy(buffer, to, bytes);
    } else if (source == held) {
      std::memcpy(to, to - r.out, static_cast<size_t>(bytes));
    } else if (r.copies) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      expand(r, from, to);
    }
    held = source;
  }
  if (streams) nontemporal_fence();
}

void nearest_target(const NearestPlan& p, int64_t element_bytes, const void* x, void* y,
                    int64_t begin, int64_t end, bool nontemporal) {
  const auto run = [&]<class T>(T) {
    nearest_rows(p, static_cast<const T*>(x), static_cast<T*>(y), begin, end, nontemporal);
  };
  if (element_bytes == 1) return run(uint8_t{});
  if (element_bytes == 2) return run(uint16_t{});
  if (element_bytes == 4) return run(uint32_t{});
  run(uint64_t{});
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenon::cpu {

HWY_EXPORT(nearest_lanes_target);
HWY_EXPORT(nearest_target);

namespace {

std::vector<int64_t> sources(const ResizeAxes& axes, size_t k) {
  if (axes.changes[k]) return axes.taps[k].index;
  std::vector<int64_t> all(static_cast<size_t>(axes.out[k]));
  for (size_t o = 0; o < all.size(); ++o) all[o] = static_cast<int64_t>(o);
  return all;
}

NearestRow make_row(const ResizeAxes& axes) {
  NearestRow r{.in = axes.in[2], .out = axes.out[2], .copies = !axes.changes[2]};
  if (r.copies) return r;
  const std::vector<int64_t> from = sources(axes, 2);
  r.index.assign(from.begin(), from.end());
  r.doubles = r.out == 2 * r.in;
  for (int64_t o = 0; o < r.out; ++o)
    if (from[static_cast<size_t>(o)] != o / 2) r.doubles = false;
  r.lanes = HWY_DYNAMIC_DISPATCH(nearest_lanes_target)();
  for (int64_t k = 0; k + r.lanes <= r.out; k += r.lanes) {
    const auto begin = r.index.begin() + k;
    const auto [low, high] = std::minmax_element(begin, begin + r.lanes);
    const int64_t start = std::min<int64_t>(*low, r.in - r.lanes);
    const bool near = start >= 0 && *high - start < r.lanes;
    r.start.push_back(near ? static_cast<int32_t>(start) : -1);
    for (int64_t i = 0; i < r.lanes; ++i)
      r.within.push_back(near ? begin[i] - static_cast<int32_t>(start) : 0);
  }
  return r;
}

}  // namespace

sdk::Kernel make_resize_nearest(const ResizeAxes& axes, int64_t bytes) {
  auto plan = std::make_shared<NearestPlan>();
  plan->planes = axes.planes, plan->in = axes.in, plan->out = axes.out;
  plan->depth = sources(axes, 0), plan->row = sources(axes, 1);
  plan->across = make_row(axes);
  const int64_t rows = axes.planes * axes.out[0] * axes.out[1];
  const int64_t row_bytes = axes.out[2] * bytes;
  return {.run = [plan = std::shared_ptr<const NearestPlan>(std::move(plan)), rows, row_bytes,
                  bytes](const sdk::Call& c) {
    const bool nontemporal = bypasses_cache(c.outputs[0], rows * row_bytes, {c.inputs[0]});
    parallel_for(rows, grain_for(2 * row_bytes), [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(nearest_target)
      (*plan, bytes, c.inputs[0], c.outputs[0], begin, end, nontemporal);
    });
  }};
}

}  // namespace tenon::cpu
#endif
