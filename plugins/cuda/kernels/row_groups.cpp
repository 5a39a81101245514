// SPDX-License-Identifier: Apache-2.0
// Rows by expert: sorted by their ids, or as offsets say.
#include <algorithm>

#include "grouped_matmul.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kPartRows = 128;  // at least; a warp's
constexpr int64_t kOneBlock = 64;   // parts that one block sorts
constexpr int64_t kWarps = 8;
constexpr uint32_t kThreads = 256, kBlockThreads = 1024;

}  // namespace

RowGroups::RowGroups(CudaDevice& device, const GroupedProblem& problem, int64_t tile,
                     Scratch& scratch)
    : rows_(problem.rows),
      experts_(problem.experts),
      tile_(tile),
      most_tiles_(rows_ / tile + std::min(experts_ + 1, rows_)),
      list_(problem.list),
      wide_(problem.wide_list),
      by_ids_(problem.by_ids) {
  if (rows_ >= kNarrowIndex / 2 || experts_ >= kNarrowIndex / 2)
    throw sdk::Refusal::shape("more than 2^30 rows or experts");
  const auto code_of = [&](const Entry<args::RowGroups>& entry) {
    codes_.push_back(device.code(entry));
  };
  starts_ = scratch.take(experts_ + 2, sizeof(int32_t));
  tile_starts_ = scratch.take(experts_ + 1, sizeof(int32_t));
  tiles_ = scratch.take(most_tiles_, sizeof(args::RowTile));
  if (!by_ids_) {
    code_of(entries::group_offsets);
    return;
  }
  // Many experts: larger parts, so that their counts are no more than a few for each row.
  part_rows_ = blocks_for(std::max(kPartRows, (experts_ + 1) / 4), 32) * 32;
  parts_ = std::max<int64_t>(1, blocks_for(rows_, part_rows_));
  counts_ = scratch.take((experts_ + 1) * parts_, sizeof(uint32_t));
  order_ = scratch.take(rows_, sizeof(int32_t));
  if (parts_ <= kOneBlock) {
    code_of(entries::group_rows);
  } else {
    for (const auto& entry : {entries::count_rows, entries::sum_groups, entries::place_rows})
      code_of(entry);
  }
}

void RowGroups::run(const sdk::Call& c) const {
  const args::RowGroups groups{c.inputs[list_],
                               wide_,
                               static_cast<int32_t>(rows_),
                               static_cast<int32_t>(experts_),
                               static_cast<int32_t>(parts_),
                               static_cast<int32_t>(part_rows_),
                               static_cast<int32_t>(tile_),
                               static_cast<int32_t>(most_tiles_),
                               area<uint32_t>(c, counts_),
                               area<int32_t>(c, starts_),
                               area<int32_t>(c, tile_starts_),
                               area<int32_t>(c, order_),
                               area<args::RowTile>(c, tiles_),
                               error_sink(c)};
  const Grid one{.blocks = 1, .threads = kBlockThreads},
      all{.blocks = blocks_for(parts_, kWarps), .threads = kThreads};
  for (size_t k = 0; k < codes_.size(); ++k)
    codes_[k].launch(c, codes_.size() == 1 || k == 1 ? one : all, groups);
}

}  // namespace tenon::cuda
