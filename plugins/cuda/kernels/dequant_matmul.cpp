// SPDX-License-Identifier: Apache-2.0
// dequant_matmul grouped_dequant_matmul: products with blocks of quantized weights. One matrix or
// several, the kernels are the same: TilesOfX says which rows of x meet which.
#include <algorithm>
#include <optional>

#include "dequant_problem.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kFewRows = 8;  // a tile of x, where few rows meet a matrix

// Any float, by lanes that decode and multiply.
sdk::Kernel by_lanes(BlockProblem p, CudaDevice& device) {
  constexpr int64_t kWarps = 4, kBlockRows = 2;  // of w, for a warp
  // Warps that share a row of w, so that small w use the whole device. This decides the order of a
  // sum, so it depends on w alone.
  constexpr int64_t kWanted = 4096;
  int64_t split = 1;
  while (split < kWarps && p.n / kBlockRows * split < kWanted && p.units >= 2 * split * 32)
    split *= 2;
  const TilesOfX tiles(p, device, kFewRows);
  p.defines.insert(p.defines.end(),
                   {define("ROWS", tiles.rows()), define("VEC", on_vectors(p.x) ? 4 : 1),
                    define("SPLIT", split)});
  return p.kernel(
      device, entries::dequant_matmul,
      {.blocks = launchable(blocks_for(p.n, kWarps / split * kBlockRows)), .threads = 32 * kWarps},
      tiles);
}

// Can tensor cores multiply them? The units of an mma share scales, which those of nvfp4 do not.
bool fits_tiles(const BlockProblem& p, const CudaDevice& device) {
  return is_half(p.x.type().dtype) && p.m * p.n * p.k > 0 && device.properties().major >= 8 &&
         on_vectors(p.x) && on_vectors(p.w) && p.w.type().dtype != TENON_DTYPE_NVFP4;
}

// Few rows of x for each matrix, on tensor cores. Right for any number of them.
sdk::Kernel few_rows(BlockProblem p, CudaDevice& device) {
  const Spans spans(p);
  const int64_t stage = kWarps * kRowsOfW * spans.stride;
  int64_t blocks = 2;
  if (stages_that_fit(device, blocks, stage) < kLeastStages) blocks = 1;
  const int64_t stages = stages_that_fit(device, blocks, stage);
  if (stages < kLeastStages) return by_lanes(p, device);
  const int64_t split = split_of(p);
  p.defines.insert(p.defines.end(), {define("SPLIT", split), define("STAGES", stages),
                                     define("WHOLE", spans.whole), define("BLOCKS", blocks)});
  const Grid grid{.blocks = launchable(blocks_for(p.n, kWarps / split * kRowsOfW)),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(stages * stage),
                  .early = device.properties().early_starts};
  return p.kernel(device, entries::dequant_tiles, grid, TilesOfX(p, device, kFewRows));
}

// How device/dequant_wide.cu divides the work.
struct WidePlan {
  static constexpr int64_t kRowsOfX = 8, kMostTiles = 8;
  Spans spans;
  int64_t summed;  // elements of x whose sum meets one minimum of w; 0: there are none
  int64_t tiles = 1, tiles_of_w = 1,
          stages = 0;  // tiles of a warp: of 8 rows of x, of 16 rows of w
  int64_t blocks = 1;  // of a multiprocessor

  // No stages: shared memory is too small.
  WidePlan(const BlockProblem& p, const CudaDevice& device, int64_t rows_of_x)
      : spans(p), summed(summed_elements(p.w.type().dtype)) {
    const auto stages_of = [&](int64_t blocks_, int64_t tiles_, int64_t tiles_of_w_) {
      return stages_that_fit(device, blocks_, stage(tiles_, tiles_of_w_));
    };
    const auto fits = [&](int64_t blocks_, int64_t tiles_, int64_t tiles_of_w_) {
      return stages_of(blocks_, tiles_, tiles_of_w_) >= kLeastStages;
    };
    while (tiles < kMostTiles && tiles * kRowsOfX < rows_of_x) tiles *= 2;
    while (tiles > 1 && !fits(1, tiles, 1)) tiles /= 2;
    if (!fits(1, tiles, 1)) return;
    // Many sums take many registers, those of parts before them too.
    const bool many = tiles == kMostTiles;
    if (many && !p.grouped && fits(1, tiles, 2)) tiles_of_w = 2;
    if (!many && fits(2, tiles, tiles_of_w)) blocks = 2;
    stages = stages_of(blocks, tiles, tiles_of_w);
  }
  // Bytes of eight rows of `terms` elements of x, and of their sums.
  int64_t of_x(int64_t terms) const {
    return terms * kRowsOfX * 2 + (summed ? terms / summed * kRowsOfX * 4 : 0);
  }
  int64_t stage(int64_t tiles_, int64_t tiles_of_w_) const {
    return kWarps * tiles_of_w_ * kRowsOfW * spans.stride + tiles_ * of_x(Spans::kTerms);
  }
  int64_t rows_of_w() const { return kWarps * tiles_of_w * kRowsOfW; }  // of a block of threads
};

// More rows of x, on tensor cores: they are put in order first, and the warps of a block of threads
// share them. Of one matrix, parts of the terms are other blocks of threads, whose sums are added last;
// several matrices give enough blocks.
sdk::Kernel wide(BlockProblem p, CudaDevice& device) {
  const WidePlan plan(p, device, p.grouped ? p.m / p.grouped->experts : p.m);
  if (plan.stages == 0) return by_lanes(p, device);
  const int64_t split = split_of(p);
  const bool apart = split > 1 && !p.grouped;
  const TilesOfX tiles(p, device, plan.tiles * WidePlan::kRowsOfX);
  p.add_defines(tiles);
  std::vector<std::string> order_defines = p.defines;
  order_defines.push_back(define("TILES", plan.tiles));
  p.defines.insert(p.defines.end(),
                   {define("TILES", plan.tiles), define("TILES_OF_W", plan.tiles_of_w),
                    define("SPLIT", split), define("APART", apart), define("STAGES", plan.stages),
                    define("WHOLE", plan.spans.whole), define("BLOCKS", plan.blocks)});
  const bool early = device.properties().early_starts;
  const int64_t blocks_of_w = blocks_for(p.n, plan.rows_of_w()),
                all_tiles_of_w = blocks_of_w * kWarps * plan.tiles_of_w,
                eights = tiles.count() * plan.tiles, orders = eights * (p.units / 4),
                joins = all_tiles_of_w * eights;
  if (std::max(joins, orders) >= kNarrowIndex)
    throw Refusal::shape("too many results for one kernel");
  const Grid grid{
      .blocks = launchable(blocks_of_w * (apart ? split : 1)),
      .threads = 32 * kWarps,
      .shared = static_cast<uint32_t>(plan.stages * plan.stage(plan.tiles, plan.tiles_of_w)),
      .blocks_y = tiles.blocks_y(),
      .early = early};
  const auto by_eight_warps = [&](int64_t all) {
    return Grid{
        .blocks = launchable(blocks_for(all, kWarps)), .threads = 32 * kWarps, .early = early};
  };
  uint64_t scratch = tiles.scratch();
  const uint64_t x_at = take_scratch(scratch, static_cast<uint64_t>(eights * plan.of_x(p.k)));
  const uint64_t parts_at = scratch;
  if (apart) take_scratch(scratch, static_cast<uint64_t>(split * joins * 128 * 4));
  const auto code = device.code(entries::dequant_wide, p.defines, grid.shared);
  const auto order = device.code(entries::dequant_order, order_defines);
  CodeFor<entries::dequant_join> join;
  std::vector<Code> codes = tiles.codes();
  codes.insert(codes.end(), {order, code});
  if (apart) codes.push_back(join = device.code(entries::dequant_join, p.join_defines(split)));
  const auto run = [=, order_grid = by_eight_warps(orders),
                    join_grid = by_eight_warps(joins)](const sdk::Call& c) {
    args::BlockProduct a = p.arguments(c);
    tiles.run(c, a.groups);
    void* const x = scratch_at(c, x_at);
    order.launch(c, order_grid,
                 args::RowsToOrder{
                     .x = a.x, .y = x, .eights = eights, .k = p.k, .m = p.m, .groups = a.groups});
    a.x = x, a.parts = scratch_at(c, parts_at);
    code.launch(c, grid, a);
    if (apart)
      join.launch(c, join_grid, a, static_cast<uint32_t>(all_tiles_of_w),
                  static_cast<uint32_t>(eights));
  };
  sdk::Kernel kernel = kernel_of(codes, run);
  kernel.scratch = scratch;
  kernel.can_fail = tiles.can_fail();
  return kernel;
}

// From so many rows of x for a matrix on it pays to decode w, where it may be rounded, or is not.
constexpr int64_t kManyRows = 72;
// From so many rows on, and up to so many, it is rounded within the product.
constexpr int64_t kFewestRounded = 17, kMostRounded = 512;

sdk::Kernel make_block_product(const BlockProblem& p, const std::string& compute,
                               const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  const bool fits = fits_tiles(p, device);
  const int64_t matrices = p.grouped ? p.grouped->experts : 1;
  const tenon_dtype x = p.x.type().dtype;
  if (p.has_neighbours()) {
    if (fits && p.m == 1)
      if (const auto kernel = one_row_product(p, device)) return *kernel;
    throw Refusal::shape("a norm or a gate within a product takes one row of halves on sm_90");
  }
  // Products of decoded weights add in another order than those of few rows, in f32, or round weights.
  const bool may_decode = x == TENON_DTYPE_F32 ? !is_batch_invariant(node)
                                               : compute == (x == TENON_DTYPE_F16 ? "f16" : "bf16");
  if (may_decode && fits && p.m >= kFewestRounded && p.m <= kMostRounded)
    if (const auto kernel = rounded_product(p, device)) return *kernel;
  if (may_decode && p.m >= kManyRows * matrices) try {
      return decoded_product(p, fits ? few_rows(p, device) : by_lanes(p, device), node);
    } catch (const Refusal&) {  // the product: other kernels have other limits
    }
  if (!fits) return by_lanes(p, device);
  if ((p.m == 1 && !p.grouped) || TilesOfX::alone(p))
    if (const auto kernel = one_row_product(p, device)) return *kernel;
  return p.m <= kFewRows * matrices ? few_rows(p, device) : wide(p, device);
}

}  // namespace

sdk::Kernel make_dequant_matmul(const sdk::op::dequant_matmul& n, const sdk::Node& node) {
  return make_block_product(BlockProblem(n), n.compute, node);
}
sdk::Kernel make_grouped_dequant_matmul(const sdk::op::grouped_dequant_matmul& n,
                                        const sdk::Node& node) {
  return make_block_product(BlockProblem(n), n.compute, node);
}

}  // namespace tenon::cuda
