// SPDX-License-Identifier: Apache-2.0
// dequant_matmul grouped_dequant_matmul: one row of x for each matrix, by device/dequant_row.cu.
#include <algorithm>

#include "dequant_problem.hpp"
#include "lines.hpp"
#include "tensor_map.hpp"

namespace tenon::cuda {

using sdk::Refusal;

namespace {

// The defines of what happens beside the product. Refuses what dequant_row.cu has not.
std::vector<std::string> neighbour_defines(const BlockProblem& p) {
  std::vector<std::string> d;
  if (p.gamma) {
    constexpr int64_t kVector = 8;
    const auto norm = row_lanes(p.k / kVector, kMostOfNorm / kVector, kShortestOfNorm);
    if (!norm || norm->lanes > 32 * kWarps || p.k % kVector != 0)
      throw Refusal::shape("rows of " + std::to_string(p.k) +
                           " elements are too long for a norm within a product");
    for (const sdk::Value& v : {p.gamma, p.residual})
      if (v && !on_vectors(v)) throw Refusal::shape("the norm's operands are not aligned");
    d = {define("NORM", norm->lanes), define("CHUNKS", norm->chunks),
         "GAMMA=" + type_name("gamma", p.gamma.type().dtype), define("RESIDUAL", bool(p.residual))};
  }
  if (p.gate != "none") {
    if (p.n % kRowsOfW != 0)
      throw Refusal::shape("a gate within a product takes a multiple of 16 rows of w");
    d.push_back("GATE=" + p.gate);
  }
  return d;
}

// How device/dequant_row.cu divides the work: a stage of shared memory has `spans` of 256 terms of each
// of `rows` rows of w.
struct RowPlan {
  int64_t spans = 1, rows;
  int64_t boxes, stride;  // boxes of a stage, bytes of a row of one: as a copy may take
  int64_t blocks = 2;     // of threads that share a multiprocessor
  int64_t stages;
  uint32_t shared;  // bytes

  // No stages: shared memory is too small.
  RowPlan(const BlockProblem& p, const CudaDevice& device) {
    constexpr int64_t kLongestBox = 2048;
    const tenon_block block = tenon_dtype_block(p.w.type().dtype);
    const int64_t all_spans = blocks_for(p.k, Spans::kTerms);
    while (spans < kWarps && spans < all_spans) spans *= 2;
    rows = kWarps / spans * kRowsOfW;
    const int64_t bytes = spans * Spans::kTerms / block.elements * block.bytes;
    for (boxes = 1; (stride = (bytes / boxes + 31) / 64 * 64 + 32) > kLongestBox;) boxes *= 2;
    // x and the sums of its elements that meet minimums, and the row that a norm makes; the sums of the
    // spans of two turns.
    const int64_t summed = summed_elements(p.w.type().dtype);
    const int64_t beside = p.k * 2 + (summed ? p.k / summed * 4 : 0) + (p.gamma ? p.k * 2 : 0) +
                           2 * rows * all_spans * 4;
    const auto stages_of = [&](int64_t sharers) {
      return stages_that_fit(device, sharers, stage(), beside);
    };
    if (stages_of(blocks) < kLeastStages) blocks = 1;
    stages = stages_of(blocks);
    if (stages < kLeastStages) stages = 0;
    shared = static_cast<uint32_t>(stages * stage() + beside);
  }
  int64_t stage() const { return boxes * rows * stride; }
};

}  // namespace

std::optional<sdk::Kernel> one_row_product(BlockProblem p, CudaDevice& device) {
  constexpr int kCopyEngineMajor = 9;
  constexpr int64_t kVector = 16, kColumn = 8;
  const tenon_block block = tenon_dtype_block(p.w.type().dtype);
  const int64_t row_bytes = p.k / block.elements * block.bytes,
                rows_of_w = (p.grouped ? p.grouped->experts : 1) * p.n;
  if (device.properties().major < kCopyEngineMajor || row_bytes % kVector != 0 ||
      rows_of_w >= kNarrowIndex)
    return {};
  const RowPlan plan(p, device);
  if (plan.stages == 0) return {};
  p.defines.insert(p.defines.end(), {define("SPLIT", split_of(p)), define("SPANS", plan.spans),
                                     define("BOXES", plan.boxes), define("STAGES", plan.stages)});
  for (std::string& d : neighbour_defines(p)) p.defines.push_back(std::move(d));
  const TilesOfX tiles(p, device, 1);
  const int64_t at_once = plan.blocks * device.properties().multiprocessors;
  const Grid grid{.blocks = std::min(blocks_for(p.n, plan.rows),
                                     blocks_for(at_once, std::max<int64_t>(p.m, 1))),
                  .threads = 32 * (kWarps + 2),
                  .shared = plan.shared,
                  .early = device.properties().early_starts};
  p.add_defines(tiles);
  const bool frozen = p.w.frozen() && !p.grouped;
  const auto code = device.code(entries::dequant_row, p.defines, grid.shared);
  // A gate takes the rows of a tile from both halves of w.
  const int64_t box_rows = p.gate == "none" ? plan.rows : kRowsOfW / 2;
  return p.kernel(
      tiles, code, grid, [=](const sdk::Call& c, const Grid& g, const args::BlockProduct& a) {
        const int64_t dims[] = {row_bytes / kColumn, rows_of_w}, strides[] = {row_bytes},
                      box[] = {plan.stride / kColumn, box_rows};
        code.launch(c, g, a, bytes_map(a.w, dims, strides, box), frozen);
      });
}

}  // namespace tenon::cuda
