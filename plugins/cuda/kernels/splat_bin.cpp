// SPDX-License-Identifier: Apache-2.0
// splat_bin splat_sort, and the radix sort of entries.
#include <algorithm>

#include "splat.hpp"

namespace tenon::cuda {

sdk::Kernel make_splat_bin(const sdk::op::splat_bin& n, const sdk::Node& node) {
  const sdk::Type& means = n.means2d.type();
  const int64_t pairs = means.dims[0] * means.dims[1], blocks = launchable(blocks_for(pairs, 256));
  const args::SplatBin s{.points = means.dims[1],
                         .pairs = pairs,
                         .entries = n.max_intersections,
                         .rows = blocks_for(n.height, n.tile),
                         .columns = blocks_for(n.width, n.tile),
                         .size = static_cast<int32_t>(n.tile)};
  CudaDevice& device = device_of(node);
  const std::vector<std::string> defines = {splat_type("means2d", means.dtype)};
  const auto count = device.code(entries::splat_bin_count, defines);
  const auto sum = device.code(entries::splat_bin_sum, defines);
  const auto emit = device.code(entries::splat_bin_emit, defines);
  const auto fill = device.code(entries::splat_bin_fill, defines);
  const Grid of_pairs{.blocks = blocks}, of_entries{.blocks = blocks_for(s.entries, 1024)};
  sdk::Kernel kernel = kernel_of(
      {count, sum, emit, fill}, [=, radii = n.radii.position(), means2d = n.means2d.position(),
                                 depths = n.depths.position()](const sdk::Call& c) {
        args::SplatBin own = s;
        own.radii = c.in<int32_t>(radii), own.means2d = c.in(means2d), own.depths = c.in(depths);
        own.keys = static_cast<int64_t*>(c.outputs[0]);
        own.ids = static_cast<int32_t*>(c.outputs[1]);
        own.count = static_cast<int64_t*>(c.outputs[2]);
        own.starts = scratch_at<args::i64>(c, 0);
        count.launch(c, of_pairs, own);
        sum.launch(c, {.blocks = 1, .threads = 1024}, own, blocks, error_sink(c));
        emit.launch(c, of_pairs, own);
        fill.launch(c, of_entries, own);
      });
  kernel.scratch = static_cast<uint64_t>(blocks) * sizeof(int64_t);
  kernel.can_fail = true;
  kernel.describe = [entries = s.entries](const sdk::BadData& bad) {
    return "attribute max_intersections: expected at least the number of entries, " +
           std::to_string(bad.position) + ", given " + std::to_string(entries);
  };
  return kernel;
}

// ---- the sort

SplatOrder::SplatOrder(CudaDevice& device, int64_t entries, int64_t numbers, bool by_key,
                       uint64_t& scratch)
    : entries_(entries),
      end_(numbers),
      parts_(blocks_for(entries, 256 * 12)),
      by_key_(by_key),
      bits_(static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(numbers) + 1))) {
  const auto area = [&](int64_t bytes) {
    return take_scratch(scratch, static_cast<uint64_t>(bytes));
  };
  first_at_ = area(entries * 8), second_at_ = area(entries * 8);
  counts_at_ = area(parts_ * 256 * 4), totals_at_ = area(256 * 4), used_at_ = area(4);
  const auto defines = [](int from, int to) {
    return std::vector<std::string>{define("FROM", from), define("TO", to)};
  };
  const auto first = defines(by_key ? 0 : 2, 0), next = defines(1, 0);
  clear_ = device.code(entries::splat_sort_clear, first);
  find_ = device.code(entries::splat_sort_find, first);
  count_first_ = device.code(entries::splat_sort_count, first);
  move_first_ = device.code(entries::splat_sort_move, first);
  sum_ = device.code(entries::splat_sort_sum, first);
  count_ = device.code(entries::splat_sort_count, next);
  move_ = device.code(entries::splat_sort_move, next);
  if (by_key) move_to_tiles_ = device.code(entries::splat_sort_move, defines(1, 1));
}

std::vector<Code> SplatOrder::codes() const {
  std::vector<Code> all = {clear_, find_, sum_, count_first_, count_, move_first_, move_};
  if (by_key_) all.push_back(move_to_tiles_);
  return all;
}

args::SplatSort SplatOrder::run(const sdk::Call& c, const int64_t* keys, const int32_t* ids) const {
  constexpr uint32_t kDigit = 8, kDepth = 32;
  args::SplatSort s{.keys = keys,
                    .ids = ids,
                    .from = nullptr,
                    .to = scratch_at<args::u64>(c, first_at_),
                    .counts = scratch_at<args::u32>(c, counts_at_),
                    .totals = scratch_at<args::u32>(c, totals_at_),
                    .used = scratch_at<args::u32>(c, used_at_),
                    .end = end_,
                    .entries = static_cast<uint32_t>(entries_),
                    .parts = static_cast<uint32_t>(parts_)};
  const Grid grid{.blocks = parts_};
  clear_.launch(c, {.blocks = 1, .threads = 32}, s);
  find_.launch(c, grid, s);
  const auto pass = [&](uint32_t shift, const auto& count, const auto& move) {
    s.shift = shift;
    count.launch(c, grid, s);
    sum_.launch(c, {.blocks = 256}, s);
    move.launch(c, grid, s);
    const args::u64* const other =
        s.from ? s.from : scratch_at<args::u64>(c, second_at_);  // the other area
    s.from = s.to;
    s.to = const_cast<args::u64*>(other);
  };
  if (by_key_) {
    for (uint32_t shift = 0; shift < kDepth; shift += kDigit) {
      if (shift == 0)
        pass(shift, count_first_, move_first_);
      else
        pass(shift, count_, shift + kDigit == kDepth ? move_to_tiles_ : move_);
    }
    for (uint32_t shift = 0; shift < bits_; shift += kDigit) pass(shift, count_, move_);
  } else {
    pass(0, count_first_, move_first_);
    for (uint32_t shift = kDigit; shift < bits_; shift += kDigit) pass(shift, count_, move_);
  }
  return s;
}

sdk::Kernel make_splat_sort(const sdk::op::splat_sort& n, const sdk::Node& node) {
  const int64_t entries = n.keys.type().dims[0];
  const int64_t tiles = n.images * blocks_for(n.height, n.tile) * blocks_for(n.width, n.tile);
  CudaDevice& device = device_of(node);
  uint64_t scratch = 0;
  const SplatOrder order(device, entries, tiles, true, scratch);
  const auto finish = device.code(entries::splat_sort_finish, {define("FROM", 1), define("TO", 0)});
  std::vector<Code> codes = order.codes();
  codes.push_back(finish);
  const Grid grid{.blocks = blocks_for(std::max(entries, tiles), 256)};
  sdk::Kernel kernel =
      kernel_of(codes, [=, keys = n.keys.position(), ids = n.ids.position()](const sdk::Call& c) {
        const args::SplatSort s = order.run(c, c.in<int64_t>(keys), c.in<int32_t>(ids));
        finish.launch(c, grid, s, tiles, static_cast<int32_t*>(c.outputs[0]),
                      static_cast<int32_t*>(c.outputs[1]));
      });
  kernel.scratch = scratch;
  return kernel;
}

}  // namespace tenon::cuda
