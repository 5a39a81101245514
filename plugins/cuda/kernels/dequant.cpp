// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks dequant_rows: elements of blocks of quantized weights. dequant_matmul: products with
// such weights.
#include <algorithm>
#include <array>
#include <optional>

#include "../kernels.hpp"
#include "index.hpp"
#include "lines.hpp"
#include "matmul.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kThreads = 256;

// Elements of a unit, which a thread decodes: Unit in device/blocks.cuh.
int64_t unit_of(tenon_dtype format) {
  switch (format) {
    case TENON_DTYPE_Q2_K:
    case TENON_DTYPE_Q3_K:
    case TENON_DTYPE_Q4_K:
    case TENON_DTYPE_Q5_K:
    case TENON_DTYPE_Q6_K:
    case TENON_DTYPE_TQ2_0:
    case TENON_DTYPE_Q1_0:
    case TENON_DTYPE_Q2_0:
      return 16;
    default:
      return 8;
  }
}

// The defines of device/blocks.cuh. Refuses formats that no op decodes.
std::vector<std::string> block_defines(const sdk::Value& w) {
  const tenon_dtype format = w.type().dtype;
  if (!sdk::is_decodable(format) || !w.type().dense()) throw Refusal::dtype("w", format);
  return {define("FORMAT", format - TENON_DTYPE_BLOCKS),
          define("ALIGN", static_cast<int64_t>(std::clamp<uint64_t>(w.alignment(), 1, 16)))};
}

std::string result_define(tenon_dtype to) {
  if (!is_float(to)) throw Refusal::dtype("to", to);
  return "TYPE=" + type_name("to", to);
}

sdk::Kernel make_dequantize_blocks(const sdk::op::dequantize_blocks& n, const sdk::Node& node) {
  std::vector<std::string> defines = block_defines(n.w);
  defines.push_back(result_define(n.to));
  const int64_t units = n.w.type().elements() / unit_of(n.w.type().dtype);
  const Grid grid{.blocks = launchable(blocks_for(units, kThreads)), .threads = kThreads};
  const auto code = device_of(node).code(entries::dequantize_blocks, defines);
  return kernel_of({code}, [=, w = n.w.position()](const sdk::Call& c) {
    code.launch(c, grid, c.in(w), c.outputs[0], args::i64{units});
  });
}

sdk::Kernel make_dequant_rows(const sdk::op::dequant_rows& n, const sdk::Node& node) {
  std::vector<std::string> defines = block_defines(n.w);
  defines.push_back(result_define(n.to));
  const sdk::Type& w = n.w.type();
  const int64_t units = w.dims[1] / unit_of(w.dtype), rows = n.ids.type().elements();
  const int64_t parts = launchable(std::max<int64_t>(blocks_for(units, kThreads), 1));
  const args::BlockRows s{.rows = index_axis(w.dims[0], n.ids.type()),
                          .units = units,
                          .parts = static_cast<uint32_t>(parts)};
  if (rows >= kNarrowIndex) throw Refusal::shape("2^31 or more rows for one kernel");
  const Grid grid{.blocks = launchable(rows * parts), .threads = kThreads};
  const auto code = device_of(node).code(entries::dequant_rows, defines);
  sdk::Kernel kernel =
      kernel_of({code}, [=, w = n.w.position(), ids = n.ids.position()](const sdk::Call& c) {
        args::BlockRows own = s;
        own.w = c.in<args::u8>(w), own.y = c.outputs[0];
        own.rows = axis_at(s.rows, c, ids);
        code.launch(c, grid, own);
      });
  kernel.can_fail = true;
  return kernel;
}

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

// Any number of rows of x, on tensor cores. most_tiles: of 8 rows each, that a warp takes; one tile
// needs no scratch.
sdk::Kernel tiles(BlockProblem p, CudaDevice& device, int64_t most_tiles = 8) {
  constexpr int64_t kRowsOfX = 8, kManyTiles = 8, kReserved = 1 << 10;
  int64_t tiles = 1;
  while (tiles < most_tiles && tiles * kRowsOfX < p.m) tiles *= 2;
  const Spans spans(p);
  // Of blocks of threads that a multiprocessor holds.
  const auto stages_of = [&](int64_t blocks, int64_t stage) {
    const int64_t room = device.properties().shared_per_block / blocks - kReserved;
    return std::min(room / stage, kMostStages);
  };
  const int64_t stage = kWarps * kRowsOfW * spans.stride;
  int64_t blocks = tiles == kManyTiles ? 1 : 2;  // many sums take many registers
  if (stages_of(blocks, stage) < kLeastStages) blocks = 1;
  const int64_t stages = stages_of(blocks, stage);
  if (stages < kLeastStages) return few_rows(p, device);
  const int64_t split = split_of(p);
  std::vector<std::string> order_defines = p.defines;
  p.defines.insert(p.defines.end(),
                   {define("TILES", tiles), define("SPLIT", split), define("STAGES", stages),
                    define("WHOLE", spans.whole), define("BLOCKS", blocks)});
  const int64_t down = blocks_for(p.m, tiles * kRowsOfX);
  constexpr int64_t kMostDown = 65535;
  if (down > kMostDown) throw Refusal::shape("x has more than 65535 tiles of rows");
  const Grid grid{.blocks = launchable(blocks_for(p.n, kWarps / split * kRowsOfW)),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(stages * stage),
                  .blocks_y = static_cast<uint32_t>(down),
                  .early = device.properties().early_starts};
  if (tiles == 1) return p.kernel(device, entries::dequant_tiles, grid);
  const int64_t eights = down * tiles, warps = eights * (p.units / 4);
  const Grid order_grid{.blocks = launchable(blocks_for(warps, kWarps)),
                        .threads = 32 * kWarps,
                        .early = device.properties().early_starts};
  const auto code = device.code(entries::dequant_tiles, p.defines, grid.shared);
  const auto order = device.code(entries::dequant_order, order_defines);
  sdk::Kernel kernel = kernel_of({order, code}, [=](const sdk::Call& c) {
    args::BlockProduct a = p.arguments(c);
    order.launch(c, order_grid,
                 args::RowsToOrder{.x = a.x, .y = c.scratch, .eights = eights, .k = p.k, .m = p.m});
    a.x = c.scratch;
    code.launch(c, grid, a);
  });
  kernel.scratch = static_cast<uint64_t>(eights * kRowsOfX * p.k * 2);
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
    if (by_tiles) return 0;  // one tile needs none
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
  work->tiles = tiles(p, device, 1);
  work->product = make_product(node, problem, places);
  std::vector<std::string> defines = block_defines(p.w);
  defines.push_back(result_define(dtype));
  work->decode = device.code(entries::dequantize_blocks, defines);
  work->units = p.n * p.units;
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
  return tiles(p, device);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::dequantize_blocks, make_dequantize_blocks>(),
    sdk::row<sdk::op::dequant_rows, make_dequant_rows>(),
    sdk::row<sdk::op::dequant_matmul, make_dequant_matmul>(),
};

}  // namespace

std::span<const sdk::Row> dequant_rows() { return kRows; }

}  // namespace tenon::cuda
