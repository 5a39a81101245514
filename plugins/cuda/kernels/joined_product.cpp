// SPDX-License-Identifier: Apache-2.0
// Makes the kernels of thin.cu and matmul_wgmma.cu for products that share their left operand.
#include "joined_product.hpp"

#include <algorithm>

#include "tensor_map.hpp"

namespace tenon::cuda {
namespace {

constexpr uint64_t kVector = 16;
constexpr int64_t kMostFewRows = 32, kTileRows = 16, kFewColumns = 8;
constexpr int64_t kMostBytes = 8 << 20;  // of b
constexpr int64_t kPieceBytes = 64;      // of a row of b, that a warp takes at a time
constexpr int64_t kMostWarps = 16;
constexpr int64_t kWgmmaRows = 128;  // the fewest
constexpr double kMostFlops = 4e10;  // on the tensor cores

// Of a matrix of f32 with rows of k, of which rows_at_once by 32 are copied at a time, rounded to
// tf32 and in the order of wgmma.cuh.
TensorMap map_of(const void* matrix, int64_t rows, int64_t k, int64_t ld, int64_t rows_at_once) {
  constexpr int kTf32 = 11, kExchanged128 = 3, kWholeLines = 2;
  const int64_t dims[] = {k, rows}, strides[] = {ld * 4}, box[] = {WgmmaTile::kDepth, rows_at_once};
  return tensor_map(matrix, {kTf32, kExchanged128, kWholeLines}, dims, strides, box);
}

// tile.rows = 0: the rows are few, and a block takes `columns`.
template <int N>
void launch(const Code& code, const sdk::Call& call, Grid grid, const WgmmaTile& tile,
            int64_t columns, const std::vector<ProductProblem>& problems,
            const std::vector<ProductPointers>& pointers) {
  const ProductProblem& p = problems[0];
  args::JoinedProducts<N> args{};
  args.a = pointers[0].a, args.residual = pointers[0].residual, args.pre_act = pointers[0].pre_act;
  args.m = p.m, args.k = p.k, args.lda = p.lda, args.alpha = static_cast<float>(p.alpha);
  for (size_t s = 0; s < N; ++s) {
    args.sets[s] = {pointers[s].b, pointers[s].bias, pointers[s].y,
                    problems[s].n, problems[s].ldb,  static_cast<uint32_t>(grid.blocks)};
    grid.blocks += tile.rows ? tile.count(p.m, problems[s].n) : blocks_for(problems[s].n, columns);
  }
  if (!tile.rows) return code.launch_as(entries::thin<N>, call, grid, args);
  args::JoinedMaps<N> maps;
  maps.a = map_of(args.a, p.m, p.k, p.lda, tile.rows);
  for (size_t s = 0; s < N; ++s)
    maps.b[s] = map_of(args.sets[s].b, problems[s].n, p.k, problems[s].ldb, tile.columns);
  code.launch_as(entries::matmul_wgmma<N>, call, grid, args, maps);
}

// What both texts ask of the operands.
bool fits(const ProductProblem& p) {
  if (p.a != p.b || p.sum != TENON_DTYPE_F32 || p.trans_a || !p.trans_b || !p.batch.empty())
    return false;
  if (p.m < 1 || p.n < 1 || p.k < 1) return false;
  const auto bytes = static_cast<int64_t>(element_bytes(p.a));
  const auto rows = [&](uint64_t alignment, int64_t ld) {
    return alignment >= kVector && ld * bytes % static_cast<int64_t>(kVector) == 0;
  };
  return rows(p.a_alignment, p.lda) && rows(p.b_alignment, p.ldb) &&
         p.k * bytes % static_cast<int64_t>(kVector) == 0;
}
// Of whole pieces: all lanes of a warp make as many products.
bool is_few(const CudaDevice& device, const ProductProblem& p) {
  return device.properties().major >= 8 && p.a == TENON_DTYPE_F32 && p.tf32 &&
         p.m <= kMostFewRows && p.k * element_bytes(p.a) % kPieceBytes == 0 &&
         p.n * p.k * element_bytes(p.a) <= kMostBytes;
}
bool is_for_wgmma(const CudaDevice& device, const ProductProblem& p) {
  constexpr int kWgmmaMajor = 9;  // later devices have it no more
  constexpr uint64_t kBiasVector = 8;
  const bool residual = p.residual == TENON_DTYPE_NONE || p.residual_alignment >= kVector;
  const bool bias = p.bias == TENON_DTYPE_NONE || p.bias_alignment >= kBiasVector;
  return device.properties().major == kWgmmaMajor && p.a == TENON_DTYPE_F32 && p.tf32 &&
         p.m >= kWgmmaRows && p.n >= 64 && p.k >= 32 && p.flops() <= kMostFlops && residual && bias;
}

// The tile with which the multiprocessors are done soonest.
const WgmmaTile& tile_for(const CudaDevice& device, const std::vector<ProductProblem>& problems) {
  static constexpr WgmmaTile kTiles[] = {
      {.rows = 192, .columns = 256, .groups = 3, .stages = 4, .blocks = 1},
      {.rows = 192, .columns = 192, .groups = 3, .stages = 4, .blocks = 1},
      {.rows = 128, .columns = 192, .groups = 2, .stages = 5, .blocks = 1},
      {.rows = 128, .columns = 96, .groups = 2, .stages = 7, .blocks = 1},
      {.rows = 128, .columns = 96, .groups = 2, .stages = 4, .blocks = 2},
      {.rows = 128, .columns = 64, .groups = 2, .stages = 4, .blocks = 2},
  };
  const auto cycles = [&](const WgmmaTile& tile) {
    int64_t blocks = 0;
    for (const ProductProblem& p : problems) blocks += tile.count(p.m, p.n);
    const int64_t turns = blocks_for(blocks, device.properties().multiprocessors);
    // Of 8 terms: the products, or the bytes of shared memory that are written and read (each
    // warpgroup reads all columns), 128 in a cycle.
    const int64_t eight = std::max(tile.rows * tile.columns / 128,
                                   (2 * tile.rows + (tile.groups + 1) * tile.columns) / 4);
    const int64_t sums = blocks_for(problems[0].k, WgmmaTile::kDepth) * 4 * eight,
                  written = tile.rows * tile.columns / 4;
    // Of two blocks one multiplies while the other writes.
    return turns * sums + (tile.blocks == 2 ? (turns + 1) * written / 2 : turns * written);
  };
  return *std::ranges::min_element(kTiles, {}, cycles);
}

}  // namespace

bool JoinedProduct::takes(const CudaDevice& device, const ProductProblem& p) {
  return fits(p) && (is_few(device, p) || is_for_wgmma(device, p));
}

JoinedProduct::JoinedProduct(CudaDevice& device, const std::vector<ProductProblem>& problems)
    : problems_(problems) {
  const ProductProblem& p = problems_[0];
  std::vector<std::string> d = {define("SETS", static_cast<int64_t>(problems_.size()))};
  if (p.bias != TENON_DTYPE_NONE) d.push_back("BIAS=" + type_name("bias", p.bias));
  if (p.residual != TENON_DTYPE_NONE) d.push_back("RESIDUAL=" + type_name("residual", p.residual));
  if (p.alpha != 1) d.emplace_back("ALPHA=1");
  if (p.pre_act) d.emplace_back("PRE_ACT=1");
  if (!p.act.empty()) d.push_back("ACT(x)=" + p.act);
  if (std::ranges::all_of(problems_, [&](const auto& one) { return is_few(device, one); }))
    few_rows(device, std::move(d));
  else
    tensor_cores(device, std::move(d));
}

void JoinedProduct::few_rows(CudaDevice& device, std::vector<std::string> defines) {
  const ProductProblem& p = problems_[0];
  const int64_t tiles = blocks_for(p.m, kTileRows);
  // A warp has some pieces on their way at a time; each result is a thread's, of 4 warps a tile.
  constexpr int64_t kPieces = 3;
  const int64_t wanted = blocks_for(p.k * element_bytes(p.a), kPieceBytes * kPieces);
  const int64_t warps = std::clamp(blocks_for(wanted, 4) * 4, tiles * 4, kMostWarps);
  grid_.threads = static_cast<uint32_t>(warps * 32);
  columns_ = kFewColumns;
  grid_.early = device.properties().early_starts;
  defines.insert(defines.end(), {"TY=" + type_name("y", p.y), define("TILES", tiles)});
  code_ = device.code(entries::thin<1>.file, entries::thin<1>.name, defines);
}

void JoinedProduct::tensor_cores(CudaDevice& device, std::vector<std::string> defines) {
  tile_ = tile_for(device, problems_);
  grid_.threads = static_cast<uint32_t>(tile_.groups + 1) * 128;
  grid_.shared = tile_.shared();
  // What two blocks of a multiprocessor do must not wait for a place that the next kernel took.
  grid_.early = device.properties().early_starts && tile_.blocks == 1;
  defines.insert(defines.end(), {define("TILE_ROWS", tile_.rows), define("COLUMNS", tile_.columns),
                                 define("GROUPS", tile_.groups), define("STAGES", tile_.stages),
                                 define("BLOCKS", tile_.blocks)});
  code_ = device.code(entries::matmul_wgmma<1>.file, entries::matmul_wgmma<1>.name, defines,
                      grid_.shared);
}

void JoinedProduct::run(const sdk::Call& call, const std::vector<ProductPointers>& pointers) const {
  using Launch = void (*)(const Code&, const sdk::Call&, Grid, const WgmmaTile&, int64_t,
                          const std::vector<ProductProblem>&, const std::vector<ProductPointers>&);
  static constexpr Launch kLaunches[kMostSets] = {launch<1>, launch<2>, launch<3>, launch<4>,
                                                  launch<5>, launch<6>, launch<7>, launch<8>};
  kLaunches[problems_.size() - 1](code_, call, grid_, tile_, columns_, problems_, pointers);
}

}  // namespace tenon::cuda
