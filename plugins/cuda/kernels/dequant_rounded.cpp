// SPDX-License-Identifier: Apache-2.0
// dequant_matmul: many rows of x, by device/dequant_rounded.cu.
#include <algorithm>

#include "dequant_problem.hpp"
#include "lines.hpp"
#include "tensor_map.hpp"

namespace tenon::cuda {

namespace {

// Does device/dequant_rounded.cu multiply them well? Rounded to f16, scales of large levels would be too
// small.
bool rounds_well(const BlockProblem& p, const CudaDevice& device) {
  constexpr int kWgmmaMajor = 9;  // later devices do not have wgmma
  constexpr tenon_dtype kLargeLevels[] = {TENON_DTYPE_Q8_0,   TENON_DTYPE_Q8_1,
                                          TENON_DTYPE_Q8_K,   TENON_DTYPE_IQ4_NL,
                                          TENON_DTYPE_IQ4_XS, TENON_DTYPE_F8E4M3_128};
  const tenon_dtype format = p.w.type().dtype;
  const tenon_block block = tenon_dtype_block(format);
  return device.properties().major == kWgmmaMajor && !p.grouped && p.n < kNarrowIndex &&
         p.k / block.elements * block.bytes % 16 == 0 &&
         (p.x.type().dtype == TENON_DTYPE_BF16 ||
          std::ranges::find(kLargeLevels, format) == std::end(kLargeLevels));
}

// Tiles of rows of w, each for a block of threads, parts of their terms, and stages of shared memory.
struct Tiles {
  int64_t columns;  // rows of x
  int64_t warpgroups = 2, count, split;
  int64_t stride, stage, stages;  // bytes of a row of w and of a stage; how many fit

  // More warps hide more of the latency of arithmetic, and share a stage of x: where registers and shared
  // memory suffice, and blocks are not too few for the device.
  Tiles(const BlockProblem& p, const CudaDevice& device) : columns(p.m <= 64 ? 64 : 128) {
    take(p, device);
    if (columns > 64) return;
    const Tiles small = *this;
    warpgroups = 4;
    take(p, device);
    const int64_t blocks = count * split;
    const bool few =
        blocks < small.count * small.split && 4 * blocks < 3 * device.properties().multiprocessors;
    if (few || stages < kLeastStages) *this = small;
  }
  int64_t rows() const { return 64 * warpgroups; }
  int64_t warps() const { return 4 * warpgroups; }

 private:
  void take(const BlockProblem& p, const CudaDevice& device) {
    constexpr int64_t kMostParts = 8, kFewestSpans = 4;  // of a part
    count = blocks_for(p.n, rows());
    const int64_t blocks = count * blocks_for(p.m, columns),
                  parts = blocks_for(p.k, Spans::kTerms) / kFewestSpans;
    split = std::clamp<int64_t>(device.properties().multiprocessors / blocks, 1,
                                std::clamp<int64_t>(parts, 1, kMostParts));
    const tenon_block block = tenon_dtype_block(p.w.type().dtype);
    const int64_t span = Spans::kTerms / block.elements * block.bytes,
                  ahead = span % Spans::kVector == 0 ? 0 : Spans::kVector - 1;
    stride = (span + ahead + 31) / 64 * 64 + 32;
    stage = Spans::kTerms * columns * 2 + rows() * stride;
    stages = stages_that_fit(device, 1, stage);
  }
};

}  // namespace

// Parts of the terms are other blocks of threads, whose sums are added last.
std::optional<sdk::Kernel> rounded_product(BlockProblem p, CudaDevice& device) {
  if (!rounds_well(p, device)) return {};
  constexpr int64_t kChunk = 64, kColumn = 8;
  const tenon_block block = tenon_dtype_block(p.w.type().dtype);
  const int64_t row_bytes = p.k / block.elements * block.bytes;
  const Tiles of_w(p, device);
  if (of_w.stages < kLeastStages) return {};
  const int64_t columns = of_w.columns, tiles = of_w.count, split = of_w.split,
                blocks_y = blocks_for(p.m, columns), eights = blocks_y * columns / 8,
                chunks = blocks_for(p.k, kChunk), joins = tiles * of_w.warps() * eights;
  if (joins >= kNarrowIndex || chunks >= kNarrowIndex) return {};
  const bool early = device.properties().early_starts;
  const TilesOfX of_x(p, device, columns);
  p.add_defines(of_x);
  std::vector<std::string> order_defines = p.defines;
  order_defines.push_back(define("COLUMNS", columns));
  p.defines.insert(p.defines.end(),
                   {define("WARPGROUPS", of_w.warpgroups), define("COLUMNS", columns),
                    define("STAGES", of_w.stages), define("SPLIT", split)});
  const Grid grid{.blocks = launchable(tiles * split),
                  .threads = static_cast<uint32_t>(32 * (of_w.warps() + 1)),
                  .shared = static_cast<uint32_t>(of_w.stages * of_w.stage),
                  .blocks_y = static_cast<uint32_t>(blocks_y),
                  .early = early};
  const Grid order_grid{.blocks = launchable(chunks),
                        .threads = 256,
                        .blocks_y = static_cast<uint32_t>(blocks_y * (columns / 64)),
                        .early = early};
  const Grid join_grid{
      .blocks = launchable(blocks_for(joins, kWarps)), .threads = 32 * kWarps, .early = early};
  uint64_t scratch = 0;
  const uint64_t x_at =
      take_scratch(scratch, static_cast<uint64_t>(blocks_y * chunks * kChunk * columns * 2));
  const uint64_t parts_at = scratch;
  if (split > 1) take_scratch(scratch, static_cast<uint64_t>(split * joins * 128 * 4));
  const auto order = device.code(entries::dequant_columns, order_defines);
  const auto code = device.code(entries::dequant_rounded, p.defines, grid.shared);
  CodeFor<entries::dequant_join> join;
  std::vector<Code> codes = {order, code};
  if (split > 1) codes.push_back(join = device.code(entries::dequant_join, p.join_defines(split)));
  const bool frozen = p.w.frozen();
  sdk::Kernel kernel = kernel_of(codes, [=](const sdk::Call& c) {
    args::BlockProduct a = p.arguments(c);
    void* const x = scratch_at(c, x_at);
    order.launch(c, order_grid, args::RowsToOrder{.x = a.x, .y = x, .k = p.k, .m = p.m});
    a.x = x, a.parts = scratch_at(c, parts_at);
    const int64_t dims[] = {row_bytes / kColumn, p.n}, strides[] = {row_bytes},
                  box[] = {of_w.stride / kColumn, of_w.rows()};
    code.launch(c, grid, a, bytes_map(a.w, dims, strides, box), frozen);
    if (split > 1)
      join.launch(c, join_grid, a, static_cast<uint32_t>(tiles * of_w.warps()),
                  static_cast<uint32_t>(eights));
  });
  kernel.scratch = scratch;
  return kernel;
}

}  // namespace tenon::cuda
