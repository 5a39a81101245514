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

}  // namespace

// Parts of the terms are other blocks of threads, whose sums are added last.
std::optional<sdk::Kernel> rounded_product(BlockProblem p, CudaDevice& device) {
  if (!rounds_well(p, device)) return {};
  constexpr int64_t kTile = 128, kMostColumns = 128, kChunk = 64, kColumn = 8, kVector = 16,
                    kFewestSpans = 4;  // of a part
  const tenon_block block = tenon_dtype_block(p.w.type().dtype);
  const int64_t row_bytes = p.k / block.elements * block.bytes,
                span = Spans::kTerms / block.elements * block.bytes,
                ahead = span % kVector == 0 ? 0 : kVector - 1,
                stride = (span + ahead + 31) / 64 * 64 + 32,
                columns = p.m <= 64 ? 64 : kMostColumns,
                stage = Spans::kTerms * columns * 2 + kTile * stride,
                stages = stages_that_fit(device, 1, stage);
  if (stages < kLeastStages) return {};
  const int64_t tiles = blocks_for(p.n, kTile), eights = blocks_for(p.m, columns) * columns / 8,
                chunks = blocks_for(p.k, kChunk), blocks_y = blocks_for(p.m, columns),
                parts = std::clamp<int64_t>(
                    device.properties().multiprocessors / (tiles * blocks_y), 1,
                    std::max<int64_t>(1, blocks_for(p.k, Spans::kTerms) / kFewestSpans)),
                split = std::min<int64_t>(parts, 8);
  const int64_t joins = tiles * (kTile / kRowsOfW) * eights;
  if (joins >= kNarrowIndex || chunks >= kNarrowIndex) return {};
  const bool early = device.properties().early_starts;
  const TilesOfX of_x(p, device, columns);
  p.add_defines(of_x);
  std::vector<std::string> order_defines = p.defines;
  order_defines.push_back(define("COLUMNS", columns));
  p.defines.insert(p.defines.end(),
                   {define("COLUMNS", columns), define("STAGES", stages), define("SPLIT", split)});
  const Grid grid{.blocks = launchable(tiles * split),
                  .threads = 32 * (kWarps + 1),
                  .shared = static_cast<uint32_t>(stages * stage),
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
                  box[] = {stride / kColumn, kTile};
    code.launch(c, grid, a, bytes_map(a.w, dims, strides, box), frozen);
    if (split > 1)
      join.launch(c, join_grid, a, static_cast<uint32_t>(tiles * (kTile / kRowsOfW)),
                  static_cast<uint32_t>(eights));
  });
  kernel.scratch = scratch;
  return kernel;
}

}  // namespace tenon::cuda
