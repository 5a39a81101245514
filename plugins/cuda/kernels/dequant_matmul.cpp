// SPDX-License-Identifier: Apache-2.0
// dequant_matmul: products with blocks of quantized weights.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "dequant.hpp"
#include "lines.hpp"
#include "matmul.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

// What the kernels of a product with blocks are told: x [m,k], w [n,k].
struct BlockProblem {
  int64_t m = 1, n, k, units;
  sdk::Value x, w, bias;
  std::vector<std::string> defines;

  BlockProblem(const sdk::op::dequant_matmul& op)
      : n(op.w.type().dims[0]),
        k(op.w.type().dims[1]),
        units(k / unit_of(op.w.type().dtype)),
        x(op.x),
        w(op.w),
        bias(op.bias),
        defines(block_defines(op.w)) {
    const sdk::Type& type = x.type();
    if (!is_float(type.dtype) || type.dtype == TENON_DTYPE_F64)
      throw Refusal::dtype("x", type.dtype);
    if (k >= kNarrowIndex) throw Refusal::shape("2^31 or more elements in a row of w");
    for (int i = 0; i + 1 < type.rank; ++i) m *= type.dims[i];
    if (m >= kNarrowIndex) throw Refusal::shape("2^31 or more rows of x");
    defines.insert(defines.end(),
                   {"TYPE=" + type_name("x", type.dtype),
                    "BIAS=" + type_name("bias", bias ? bias.type().dtype : TENON_DTYPE_F32)});
  }

  args::BlockProduct arguments(const sdk::Call& c) const {
    return {.w = c.in<args::u8>(w.position()),
            .x = c.in(x.position()),
            .bias = c.in(bias.position()),
            .y = c.outputs[0],
            .n = n,
            .k = k,
            .m = m};
  }
  // Those of device/dequant_join.cu.
  std::vector<std::string> join_defines(int64_t split) const {
    return {"TYPE=" + type_name("x", x.type().dtype),
            "BIAS=" + type_name("bias", bias ? bias.type().dtype : TENON_DTYPE_F32),
            define("SPLIT", split)};
  }
  sdk::Kernel kernel(CudaDevice& device, const auto& entry, const Grid& grid) const {
    const auto code = device.code(entry, defines, grid.shared);
    return kernel_of({code},
                     [=, *this](const sdk::Call& c) { code.launch(c, grid, arguments(c)); });
  }
};

// Up to 8 rows of x in any float, by lanes that decode and multiply.
sdk::Kernel few_rows(BlockProblem p, CudaDevice& device) {
  constexpr int64_t kMostRows = 8, kWarps = 4, kBlockRows = 2;  // rows: of x; of w for a warp
  if (p.m > kMostRows) throw Refusal::shape("more than 8 rows of x are decomposed");
  // Warps that share a row of w, so that small w use the whole device. This decides the order of a
  // sum, so it depends on w alone.
  constexpr int64_t kWanted = 4096;
  int64_t split = 1;
  while (split < kWarps && p.n / kBlockRows * split < kWanted && p.units >= 2 * split * 32)
    split *= 2;
  p.defines.insert(p.defines.end(),
                   {define("ROWS", std::max<int64_t>(p.m, 1)),
                    define("VEC", on_vectors(p.x) ? 4 : 1), define("SPLIT", split)});
  const int64_t blocks = p.m == 0 ? 0 : blocks_for(p.n, kWarps / split * kBlockRows);
  return p.kernel(device, entries::dequant_matmul,
                  {.blocks = launchable(blocks), .threads = 32 * kWarps});
}

// Can tensor cores multiply them? The units of an mma share scales, which those of nvfp4 do not.
bool fits_tiles(const BlockProblem& p, const CudaDevice& device) {
  return is_half(p.x.type().dtype) && p.m * p.n * p.k > 0 && device.properties().major >= 8 &&
         on_vectors(p.x) && on_vectors(p.w) && p.w.type().dtype != TENON_DTYPE_NVFP4;
}

// How the kernels on tensor cores copy 256 terms of rows of w to shared memory, in bytes, as in
// device/dequant_spans.cuh.
struct Spans {
  static constexpr int64_t kTerms = 256, kVector = 16;
  bool whole;      // all are whole vectors
  int64_t stride;  // from row to row

  explicit Spans(const BlockProblem& p) {
    const tenon_block block = tenon_dtype_block(p.w.type().dtype);
    const int64_t span = kTerms / block.elements * block.bytes;
    whole = span % kVector == 0 && p.k % kTerms == 0;
    const int64_t vectors = whole ? span / kVector : (span + 2 * kVector - 2) / kVector;
    stride = (blocks_for((vectors - 1) * kVector, 128) * 8 + 1) * kVector;
  }
};

constexpr int64_t kWarps = 8, kRowsOfW = 16;  // of a block of threads, of a warp
constexpr int64_t kLeastStages = 2, kMostStages = 4;

// Warps that share the terms of a row of w: as many as run at once on a large device. This decides the
// order of a sum, so it depends on w alone.
int64_t split_of(const BlockProblem& p) {
  constexpr int64_t kAtOnce = 2112;
  const int64_t spans = blocks_for(p.k, Spans::kTerms), blocks = blocks_for(p.n, kRowsOfW);
  int64_t split = 1;
  while (split < kWarps && 2 * split * blocks <= kAtOnce && 2 * split <= spans) split *= 2;
  return split;
}

// One row of x, on tensor cores, with the copy engine: by device/dequant_row.cu, whose shared memory
// this counts. None where rows of w are not aligned for it, or shared memory is too small.
std::optional<sdk::Kernel> one_row(BlockProblem p, CudaDevice& device) {
  constexpr int kCopyEngineMajor = 9;
  constexpr int64_t kVector = 16, kReserved = 1 << 10, kPad = 32, kBlocks = 2;
  const tenon_dtype format = p.w.type().dtype;
  const tenon_block block = tenon_dtype_block(format);
  if (device.properties().major < kCopyEngineMajor || p.k / block.elements * block.bytes % kVector)
    return {};
  const int64_t spans = blocks_for(p.k, Spans::kTerms);
  int64_t own_spans = 1;  // of a stage
  while (own_spans < kWarps && own_spans < spans) own_spans *= 2;
  const int64_t rows = kWarps / own_spans * kRowsOfW,
                piece = own_spans * Spans::kTerms / block.elements * block.bytes,
                stage = rows * (blocks_for(piece, 128) * 128 + kPad);
  // Scales that warps decode once, of four quads: Scales there.
  constexpr tenon_dtype kShared[] = {TENON_DTYPE_Q2_K, TENON_DTYPE_Q3_K, TENON_DTYPE_Q4_K,
                                     TENON_DTYPE_Q5_K, TENON_DTYPE_Q6_K};
  const bool shares = std::ranges::find(kShared, format) != std::end(kShared);
  const int64_t numbers = 4 * (format == TENON_DTYPE_Q2_K ? 8 : 4) + 4,
                of_scales = shares ? kWarps * kRowsOfW * numbers * 4 : 0;
  // Elements of x and sums of 16 or more of them.
  const int64_t of_x = p.k * 2 + p.k / 16 * 4;
  const auto of_sums = [&](int64_t stages) {  // of spans
    return (blocks_for(stages, blocks_for(spans, own_spans)) + 1) * rows * spans * 4;
  };
  const auto stages_of = [&](int64_t blocks) {
    const int64_t room =
        device.properties().shared_per_block / blocks - kReserved - of_scales - of_x;
    int64_t stages = kMostStages;
    while (stages > 0 && stages * stage + of_sums(stages) > room) --stages;
    return stages;
  };
  const int64_t blocks = stages_of(kBlocks) >= kLeastStages ? kBlocks : 1,
                stages = stages_of(blocks);
  if (stages < kLeastStages) return {};
  p.defines.insert(p.defines.end(), {define("SPLIT", split_of(p)), define("SPANS", own_spans),
                                     define("STAGES", stages)});
  const Grid grid{
      .blocks = std::min(blocks_for(p.n, rows), blocks * device.properties().multiprocessors),
      .threads = 32 * (kWarps + 1),
      .shared = static_cast<uint32_t>(stages * stage + of_x + of_sums(stages)),
      .early = device.properties().early_starts};
  return p.kernel(device, entries::dequant_row, grid);
}

// Stages of `bytes` that fit into shared memory, if `blocks` of threads share it.
int64_t stages_that_fit(const CudaDevice& device, int64_t blocks, int64_t bytes) {
  constexpr int64_t kReserved = 1 << 10;
  const int64_t room = device.properties().shared_per_block / blocks - kReserved;
  return std::min(room / bytes, kMostStages);
}

// Rows of x of a block of threads, in tiles of 8; how many rows of blocks of threads there are.
uint32_t tiles_down(const BlockProblem& p, int64_t tiles) {
  constexpr int64_t kRowsOfX = 8, kMostDown = 65535;
  const int64_t down = blocks_for(p.m, tiles * kRowsOfX);
  if (down > kMostDown) throw Refusal::shape("x has more than 65535 tiles of rows");
  return static_cast<uint32_t>(down);
}

// Few rows of x, on tensor cores. Right for any number of them, and needs no scratch.
sdk::Kernel tiles(BlockProblem p, CudaDevice& device) {
  const Spans spans(p);
  const int64_t stage = kWarps * kRowsOfW * spans.stride;
  int64_t blocks = 2;
  if (stages_that_fit(device, blocks, stage) < kLeastStages) blocks = 1;
  const int64_t stages = stages_that_fit(device, blocks, stage);
  if (stages < kLeastStages) return few_rows(p, device);
  const int64_t split = split_of(p);
  p.defines.insert(p.defines.end(), {define("SPLIT", split), define("STAGES", stages),
                                     define("WHOLE", spans.whole), define("BLOCKS", blocks)});
  const Grid grid{.blocks = launchable(blocks_for(p.n, kWarps / split * kRowsOfW)),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(stages * stage),
                  .blocks_y = tiles_down(p, 1),
                  .early = device.properties().early_starts};
  return p.kernel(device, entries::dequant_tiles, grid);
}

// Elements of x whose sum meets one minimum of w; 0 if the format has no minimums.
int64_t summed_elements(tenon_dtype format) {
  switch (format) {
    case TENON_DTYPE_Q2_K:
      return 16;
    case TENON_DTYPE_Q4_1:
    case TENON_DTYPE_Q5_1:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
      return 32;
    default:
      return 0;
  }
}

// More rows of x, on tensor cores: they are put in order first, and the warps of a block of threads
// share them. Parts of the terms are other blocks of threads, whose sums are added last.
sdk::Kernel wide(BlockProblem p, CudaDevice& device) {
  constexpr int64_t kRowsOfX = 8, kMostTiles = 8, kManyTiles = 8;
  const Spans spans(p);
  const int64_t summed = summed_elements(p.w.type().dtype);
  // Bytes of eight rows of `terms` elements, and of their sums.
  const auto of_x = [&](int64_t terms) { return terms * kRowsOfX * 2; };
  const auto of_sums = [&](int64_t terms) { return summed ? terms / summed * kRowsOfX * 4 : 0; };
  // A warp has so many tiles of 8 rows of x, and of 16 rows of w.
  const auto stage_of = [&](int64_t tiles, int64_t tiles_of_w) {
    return kWarps * tiles_of_w * kRowsOfW * spans.stride +
           tiles * (of_x(Spans::kTerms) + of_sums(Spans::kTerms));
  };
  const auto stages_of = [&](int64_t blocks, int64_t tiles, int64_t tiles_of_w) {
    return stages_that_fit(device, blocks, stage_of(tiles, tiles_of_w));
  };
  const auto fits = [&](int64_t blocks, int64_t tiles, int64_t tiles_of_w) {
    return stages_of(blocks, tiles, tiles_of_w) >= kLeastStages;
  };
  int64_t tiles = 1;
  while (tiles < kMostTiles && tiles * kRowsOfX < p.m) tiles *= 2;
  while (tiles > 1 && !fits(1, tiles, 1)) tiles /= 2;
  if (!fits(1, tiles, 1)) return few_rows(p, device);
  // Many sums take many registers.
  const bool many = tiles >= kManyTiles;
  const int64_t tiles_of_w = many && fits(1, tiles, 2) ? 2 : 1,
                blocks = !many && fits(2, tiles, tiles_of_w) ? 2 : 1,
                stages = stages_of(blocks, tiles, tiles_of_w), split = split_of(p);

  const std::vector<std::string> order_defines = p.defines;
  p.defines.insert(p.defines.end(), {define("TILES", tiles), define("TILES_OF_W", tiles_of_w),
                                     define("SPLIT", split), define("STAGES", stages),
                                     define("WHOLE", spans.whole), define("BLOCKS", blocks)});
  const bool early = device.properties().early_starts;
  const uint32_t down = tiles_down(p, tiles);
  const int64_t blocks_of_w = blocks_for(p.n, kWarps * tiles_of_w * kRowsOfW),
                all_tiles_of_w = blocks_of_w * kWarps * tiles_of_w, eights = down * tiles,
                orders = eights * (p.units / 4), joins = all_tiles_of_w * eights;
  if (joins >= kNarrowIndex) throw Refusal::shape("too many results for one kernel");
  const Grid grid{.blocks = launchable(blocks_of_w * split),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(stages * stage_of(tiles, tiles_of_w)),
                  .blocks_y = down,
                  .early = early};
  const auto by_eight_warps = [&](int64_t all) {
    return Grid{
        .blocks = launchable(blocks_for(all, kWarps)), .threads = 32 * kWarps, .early = early};
  };
  uint64_t scratch = 0;
  take_scratch(scratch, static_cast<uint64_t>(eights * (of_x(p.k) + of_sums(p.k))));
  const uint64_t parts_at = scratch;
  if (split > 1) take_scratch(scratch, static_cast<uint64_t>(split * joins * 128 * 4));
  const auto code = device.code(entries::dequant_wide, p.defines, grid.shared);
  const auto order = device.code(entries::dequant_order, order_defines);
  CodeFor<entries::dequant_join> join;
  std::vector<Code> codes{order, code};
  if (split > 1) codes.push_back(join = device.code(entries::dequant_join, p.join_defines(split)));
  const auto run = [=, order_grid = by_eight_warps(orders),
                    join_grid = by_eight_warps(joins)](const sdk::Call& c) {
    args::BlockProduct a = p.arguments(c);
    order.launch(c, order_grid,
                 args::RowsToOrder{.x = a.x, .y = c.scratch, .eights = eights, .k = p.k, .m = p.m});
    a.x = c.scratch, a.parts = scratch_at(c, parts_at);
    code.launch(c, grid, a);
    if (split > 1)
      join.launch(c, join_grid, a, static_cast<uint32_t>(all_tiles_of_w),
                  static_cast<uint32_t>(eights));
  };
  sdk::Kernel kernel = kernel_of(codes, run);
  kernel.scratch = scratch;
  return kernel;
}

// Many rows of x: w is decoded and rounded to x's dtype, and a product of two matrices follows.
// Where memory is too short for that, tiles.
struct DecodedProduct {
  sdk::Kernel tiles, product;
  CodeFor<entries::dequantize_blocks> decode;
  Grid grid;
  int64_t units = 0;
  int operands = 0, w = 0;  // how many, and the position of w
  uint64_t bytes = 0;       // of w, decoded
  bool by_tiles = false;

  uint64_t tune(uint64_t limit) {
    by_tiles = limit < bytes;
    if (by_tiles) return 0;
    return bytes + (product.tune ? product.tune(limit - bytes) : product.scratch);
  }
  void prepare() const {
    if (by_tiles) return tiles.prepare();
    decode.prepare();
    if (product.prepare) product.prepare();
  }
  void run(const sdk::Call& call) const {
    if (by_tiles) return tiles.run(call);
    decode.launch(call, grid, call.in(w), call.scratch, units);
    std::array<void*, 3> inputs{};
    std::copy_n(call.inputs, operands, inputs.begin());
    inputs[static_cast<size_t>(w)] = call.scratch;
    sdk::Call c = call;
    c.inputs = inputs.data();
    c.scratch = scratch_at(call, bytes);
    product.run(c);
  }
};

sdk::Kernel decoded(const BlockProblem& p, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  constexpr uint64_t kScratchAlignment = 256;
  const tenon_dtype dtype = p.x.type().dtype;
  ProductProblem problem;
  problem.a = problem.b = problem.y = dtype, problem.sum = TENON_DTYPE_F32;
  problem.m = p.m, problem.n = p.n, problem.k = p.k, problem.lda = problem.ldb = p.k;
  problem.trans_b = true;
  problem.a_alignment = p.x.alignment(), problem.b_alignment = kScratchAlignment;
  ProductPlaces places{p.x.position(), p.w.position()};
  if (p.bias) {
    problem.bias = p.bias.type().dtype, problem.bias_alignment = p.bias.alignment();
    places.bias = p.bias.position();
  }
  auto work = std::make_shared<DecodedProduct>();
  work->tiles = tiles(p, device);
  work->product = make_product(node, problem, places);
  std::vector<std::string> defines = block_defines(p.w);
  defines.push_back(result_define(dtype));
  work->decode = device.code(entries::dequantize_blocks, defines);
  work->units = p.n * p.units;
  constexpr int64_t kThreads = 256;
  work->grid = {.blocks = launchable(blocks_for(work->units, kThreads)), .threads = kThreads};
  work->operands = p.bias ? 3 : 2, work->w = p.w.position();
  uint64_t scratch = 0;
  take_scratch(scratch, static_cast<uint64_t>(p.n * p.k * element_bytes(dtype)));
  work->bytes = scratch;
  sdk::Kernel kernel;
  kernel.scratch = work->bytes + work->product.scratch;
  kernel.tune = [work](uint64_t limit) { return work->tune(limit); };
  kernel.prepare = [work] { work->prepare(); };
  kernel.run = [work](const sdk::Call& c) { work->run(c); };
  return kernel;
}

}  // namespace

sdk::Kernel make_dequant_matmul(const sdk::op::dequant_matmul& n, const sdk::Node& node) {
  const BlockProblem p(n);
  CudaDevice& device = device_of(node);
  if (!fits_tiles(p, device)) return few_rows(p, device);
  // From so many rows on it pays to decode w, whose elements then lie in scratch.
  constexpr int64_t kManyRows = 72, kMostBytes = 256 << 20;
  const tenon_dtype x = n.x.type().dtype;
  const bool may_round = n.compute == (x == TENON_DTYPE_F16 ? "f16" : "bf16");
  if (may_round && p.m >= kManyRows && p.n * p.k * element_bytes(x) <= kMostBytes) try {
      return decoded(p, node);
    } catch (const Refusal&) {  // the product: tiles have other limits
    }
  if (p.m == 1)
    if (const auto kernel = one_row(p, device)) return *kernel;
  constexpr int64_t kFewRows = 8;
  return p.m <= kFewRows ? tiles(p, device) : wide(p, device);
}

}  // namespace tenon::cuda
