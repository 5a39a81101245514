// SPDX-License-Identifier: Apache-2.0
// The gradient of the weights of 2d convolutions of halves on sm_90: conv_shifts_weight.cu.
#include <algorithm>

#include "conv.hpp"
#include "tensor_map.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Value;

constexpr int64_t kStep = 64, kGroups = 3, kMostOwnTaps = 3;  // as in the text
constexpr int64_t kRow = 128, kBegin = 16;                    // bytes; rows that come twice

// Cuts the taps into sets; the number of taps of a warpgroup, or 0 where there are too many sets.
int64_t cut_taps(const args::ConvShifts& s, args::ConvShiftWeights& a) {
  std::vector<args::ConvShiftWeightTap> taps;
  for (uint32_t k = 0; k < s.phase[0].planes; ++k)
    for (uint32_t t = 0; t < s.planes[k].taps; ++t) {
      const args::ConvShiftTap& tap = s.taps[s.planes[k].first_tap + t];
      taps.push_back({tap.shift, tap.kernel, k});
    }
  const auto count = static_cast<int64_t>(taps.size());
  const int64_t sets = blocks_for(count, kGroups * kMostOwnTaps), each = blocks_for(count, sets);
  if (sets > args::kMostShiftSets) return 0;
  a.sets = static_cast<uint32_t>(sets);
  uint32_t parts = 0;
  for (uint32_t k = 0; k < a.sets; ++k) {
    args::ConvShiftSet& set = a.set[k];
    set.first_tap = k * static_cast<uint32_t>(each);
    set.taps = static_cast<uint32_t>(std::min(each, count - set.first_tap));
    set.first_part = parts;
    const uint32_t first = taps[set.first_tap].part, last = taps[set.first_tap + set.taps - 1].part;
    set.parts = last - first + 1;
    a.rings = std::max(a.rings, set.parts);
    for (uint32_t plane = first; plane <= last; ++plane) a.parts_of[parts++] = s.planes[plane].part;
    for (uint32_t t = 0; t < set.taps; ++t) {
      a.taps[set.first_tap + t] = taps[set.first_tap + t];
      a.taps[set.first_tap + t].part -= first;
    }
  }
  return blocks_for(each, kGroups);
}

// As Layout of the text.
int64_t shared_of(const args::ConvShiftWeights& a, int64_t slots) {
  constexpr int64_t kBarriers = 16;
  return a.rings * (slots * kStep + kBegin) * kRow + slots * (kStep * kRow + kBarriers);
}

// Cycles that a multiprocessor takes for all blocks, with so many steps in a split.
double cycles_of(const args::ConvShiftWeights& a, int64_t steps, int64_t own_taps,
                 int64_t processors) {
  const int64_t splits = blocks_for(a.steps, steps),
                tiles = int64_t{a.tiles_m} * a.tiles_c * a.sets * a.groups;
  // A step of products, or of what it copies.
  const double step = std::max(static_cast<double>(kGroups * own_taps) * 128,
                               static_cast<double>((a.rings + 1) * kStep * kRow) / 20);
  constexpr double kBlock = 6000, kPerSplit = 1.0 / 1000;  // cycles for an element of all sums
  const double moved = static_cast<double>(int64_t{a.groups} * a.m * a.columns * splits);
  return static_cast<double>(blocks_for(tiles * splits, processors)) *
             (static_cast<double>(steps + a.ahead) * step + kBlock) +
         moved * kPerSplit;
}

}  // namespace

std::optional<Kernel> conv_weight_by_shifts(const Node& node, const ConvGeometry& g,
                                            const Value& dy, const Value& x) {
  constexpr int kWarpgroupsMajor = 9;  // later devices do not have wgmma
  constexpr int64_t kFewChannels = 16, kFewFilters = 32, kFewTaps = 4, kFewSteps = 8;
  CudaDevice& device = device_of(node);
  if (!is_half(g.dtype) || device.properties().major != kWarpgroupsMajor) return {};
  const int64_t m = g.m / g.groups, c = g.c / g.groups;
  if (c < kFewChannels || m < kFewFilters || g.taps() < kFewTaps) return {};
  if (g.groups > 1 && m % 8 != 0) return {};
  const std::optional<ConvShiftPlan> plan = conv_shift_plan({.geometry = g});
  if (!plan) return {};
  const args::ConvShifts& s = plan->shifts;
  args::ConvShiftWeights a;
  const int64_t own_taps = cut_taps(s, a);
  if (own_taps == 0) return {};
  const auto narrow = [](int64_t v) { return static_cast<uint32_t>(v); };
  a.groups = s.groups, a.c = s.c, a.m = s.m, a.padded = s.c_padded;
  a.columns = a.padded * static_cast<int32_t>(g.taps());
  a.tiles_m = narrow(blocks_for(m, 64)), a.tiles_c = narrow(blocks_for(c, 64));
  a.steps = narrow(blocks_for(s.positions, kStep));
  if (a.steps < kFewSteps) return {};
  int64_t halo = 0;
  for (const args::ConvShiftTap& tap : s.taps) halo = std::max<int64_t>(halo, tap.shift);
  a.ahead = narrow((kStep - 1 + halo) / kStep);

  // Stages that are under way: fewer hide too little of the time that they take.
  constexpr int64_t kMostUnderWay = 5, kLeastUnderWay = 2;
  int64_t slots = a.ahead + 1 + kMostUnderWay;
  while (shared_of(a, slots) > device.properties().shared_per_block) --slots;
  if (slots < a.ahead + 1 + kLeastUnderWay) return {};
  a.slots = narrow(slots);

  const int64_t processors = device.properties().multiprocessors;
  const int64_t tiles = int64_t{a.tiles_m} * a.tiles_c * a.sets * a.groups;
  const int64_t most_parts = std::max<int64_t>((64 << 20) / (int64_t{g.m} * a.columns), 1);
  int64_t best = a.steps;
  for (int64_t splits = 2; splits <= std::min<int64_t>({a.steps, most_parts, 2 * processors});
       ++splits) {
    const int64_t steps = blocks_for(a.steps, splits);
    if (cycles_of(a, steps, own_taps, processors) < cycles_of(a, best, own_taps, processors))
      best = steps;
  }
  a.split_steps = narrow(best);
  const int64_t splits = blocks_for(a.steps, best);

  args::ConvGrid windows = plan->grid;
  windows.rows = g.axes[1].out, windows.columns = g.axes[2].out, windows.step = 1;
  windows.row0 = windows.column0 = 0;
  windows.channels = narrow(g.m), windows.padded = narrow(g.groups * ((m + 7) / 8 * 8));
  windows.by_row = Divisor(narrow(windows.columns));
  ConvScratch scratch;
  const ConvPositions positions[] = {{plan->grid, x, scratch}, {windows, dy, scratch}};
  const ConvFiller filler(device, positions);
  const Grid blocks{.blocks = launchable(tiles * splits),
                    .threads = 512,
                    .shared = narrow(shared_of(a, slots)),
                    .early = device.properties().early_starts};
  const auto code =
      device.code(entries::conv_shifts_weight,
                  {"TYPE=" + type_name("x", g.dtype), define("TAPS", own_taps)}, blocks.shared);
  const ConvWeightFinish finish(node, g, splits, a.columns, a.padded);
  const uint64_t sums_at = scratch.add(finish.bytes());
  Kernel kernel =
      kernel_of({filler.code(), code, finish.code},
                [=, of_x = positions[0], of_dy = positions[1], dtype = g.dtype](const Call& call) {
                  args::ConvShiftWeights arguments = a;
                  filler.run(call);
                  arguments.x = of_x.map(call, dtype, a.groups, kStep);
                  arguments.x_begin = of_x.map(call, dtype, a.groups, kBegin);
                  arguments.dy = of_dy.map(call, dtype, a.groups, kStep);
                  arguments.sums = scratch_at(call, sums_at);
                  code.launch(call, blocks, arguments);
                  finish.run(call, arguments.sums);
                });
  kernel.scratch = scratch.size();
  return kernel;
}

}  // namespace tenon::cuda
