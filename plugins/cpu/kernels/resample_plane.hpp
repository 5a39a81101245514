// SPDX-License-Identifier: Apache-2.0
// Resizes planes by weighted sums: down the columns, and across the rows. "acc" is the accumulation
// type A, float or double.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "slots.hpp"
#include "tenon/resize_taps.hpp"
#include "tenon/types.h"

namespace tenon::cpu {

// Taps of the outputs of a row, for vectors of outputs. Pixels that neighboring outputs read are
// close to each other, so a few loads and permutations read them for a whole vector. Where they are
// too far apart, they are gathered.
template <class A>
struct AcrossTable {
  using Index = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
  static constexpr int64_t kLoads = 4;  // at most, of one tap of a vector
  struct Form {
    uint8_t loads;  // of each tap; 0: gather
    bool zeros;     // some weights are 0
  };

  int64_t in = 0, out = 0, taps = 0, lanes = 0;
  std::vector<Form> form;     // [blocks]
  std::vector<int64_t> base;  // [blocks][taps][kLoads]: what is loaded
  std::vector<Index> index;   // [blocks][taps][lanes]: in a load, or in the row
  std::vector<Index> load;    // [blocks][taps][lanes]: which load
  std::vector<A> weight;      // [blocks][taps][lanes]

  int64_t blocks() const { return (out + lanes - 1) / lanes; }
};

// Taps of rows.
template <class A>
struct DownTable {
  tenon::ResizeTaps taps;
  std::vector<A> weight;
  int64_t most = 0;   // taps of one output
  int64_t reach = 0;  // rows from the first to the last tap of one output
};

// How planes of in_h·in_w pixels become planes of out_h·out_w.
template <class A>
struct PlanePlan {
  int64_t planes = 0, in_h = 0, in_w = 0, out_h = 0, out_w = 0;
  std::shared_ptr<const AcrossTable<A>> across{};  // null: rows keep their pixels
  std::shared_ptr<const DownTable<A>> down{};      // null: columns keep their pixels
  bool across_first = false;
  int64_t padded_in = 0, pitch = 0;  // elements of a row of x, and of a resized row, in work areas
  Slots slots{};
};

// taps null: that axis keeps its pixels. element_bytes: of x and y, about.
template <class A>
PlanePlan<A> make_plane_plan(int64_t planes, int64_t in_h, int64_t in_w,
                             const tenon::ResizeTaps* down, const tenon::ResizeTaps* across,
                             int64_t element_bytes);

// from, to: the dtypes of x and y. Each is acc, or both are one half dtype, or one of them is.
template <class A>
struct PlaneRun {
  const PlanePlan<A>& plan;
  tenon_dtype from;
  const void* x;
  tenon_dtype to;
  void* y;
  bool nontemporal = false;
};
void run_planes(PlaneRun<float> run, void* scratch);
void run_planes(PlaneRun<double> run, void* scratch);

}  // namespace tenon::cpu
