// SPDX-License-Identifier: Apache-2.0
// Products by our own kernels: matmul.cu, dots.cu, matmul_row.cu, matmul_few_rows.cu.
#include "product.hpp"

#include <algorithm>

#include "body_text.hpp"
#include "tenon/unary.hpp"
#include "tensor_map.hpp"

namespace tenon::cuda {
namespace {

static_assert(kBatchRank == std::extent_v<decltype(args::Product::batch_dims)>);

args::Product arguments_of(const ProductProblem& t, const ProductPointers& p) {
  args::Product args{p.a,       p.b,     p.bias, p.residual, p.y,
                     p.pre_act, t.m,     t.n,    t.k,        t.lda,
                     t.ldb,     t.alpha, 0,      0,          static_cast<int64_t>(t.batch.size()),
                     {},        {},      {}};
  std::ranges::copy(t.batch, args.batch_dims);
  std::ranges::copy(t.a_steps, args.a_steps);
  std::ranges::copy(t.b_steps, args.b_steps);
  return args;
}

std::vector<std::string> finish_defines(const ProductProblem& t) {
  std::vector<std::string> d;
  if (t.bias != TENON_DTYPE_NONE) d.push_back("BIAS=" + type_name("bias", t.bias));
  if (t.residual != TENON_DTYPE_NONE) d.push_back("RESIDUAL=" + type_name("residual", t.residual));
  if (t.pre_act) d.emplace_back("PRE_ACT=1");
  if (!t.act.empty()) d.push_back("ACT(x)=" + t.act);
  return d;
}

std::vector<std::string> defines(const ProductProblem& t, int64_t tile, bool mma, bool vector) {
  std::vector<std::string> d = finish_defines(t);
  const auto flag = [&](const char* name, bool on) {
    d.push_back(std::string(name) + (on ? "=1" : "=0"));
  };
  d.push_back("TA=" + type_name("a", t.a));
  d.push_back("TB=" + type_name("b", t.b));
  d.push_back("TS=" + type_name("y", t.sum));
  d.push_back("TY=" + type_name("y", t.y));
  d.push_back("SIZE=" + std::to_string(tile));
  flag("TRANS_A", t.trans_a), flag("TRANS_B", t.trans_b), flag("MMA", mma), flag("WIDE", vector);
  if (t.alpha != 1) d.emplace_back("ALPHA=1");
  return d;
}

constexpr int64_t kElements = 8;  // of 16 bytes, that tensor cores take
constexpr uint64_t kBytes = 16;

// May 16 bytes be loaded at a time?
bool takes_vectors(const ProductProblem& t) {
  const auto fits = [&](uint64_t alignment, int64_t ld, int64_t extent,
                        const std::vector<int64_t>& steps) {
    return alignment >= kBytes && ld % kElements == 0 && extent % kElements == 0 &&
           std::ranges::all_of(steps, [](int64_t s) { return s % kElements == 0; });
  };
  return fits(t.a_alignment, t.lda, t.trans_a ? t.m : t.k, t.a_steps) &&
         fits(t.b_alignment, t.ldb, t.trans_b ? t.k : t.n, t.b_steps);
}

}  // namespace

uint32_t mma_shared(int64_t tile, bool a_by_k, bool b_by_k) {
  constexpr int64_t kDepth = 32, kStages = 4, kPad = 8;
  const auto part = [&](bool by_k) {
    return by_k ? tile * (kDepth + kPad) : kDepth * (tile + kPad);
  };
  return static_cast<uint32_t>(kStages * (part(a_by_k) + part(b_by_k)) * 2);
}

double ProductProblem::seconds() const {
  const double rate = is_half(a) ? 5e14 : sum == TENON_DTYPE_F64 ? 4e13 : tf32 ? 3e14 : 4e13;
  const auto bytes = [](tenon_dtype t, int64_t rows, int64_t cols) {
    return static_cast<double>(element_bytes(t)) * static_cast<double>(rows) *
           static_cast<double>(cols);
  };
  const double moved =
      (bytes(a, m, k) + bytes(b, k, n) + bytes(y, m, n)) * static_cast<double>(batches());
  return 3e-6 + std::max(flops() / rate, moved / 3.5e12);
}

bool is_chain(const ProductProblem& p) {
  return p.alike && is_half(p.a) && p.a == p.b && p.sum == TENON_DTYPE_F32 && !p.trans_a &&
         p.batch.empty();
}

TileProduct::TileProduct(CudaDevice& device, const ProductProblem& problem) : problem_(problem) {
  const ProductProblem& t = problem_;
  if (t.batch.size() > kBatchRank) throw sdk::Refusal::shape("too many batch axes");
  const bool mma = is_half(t.a) && t.a == t.b && device.properties().major >= 8;
  const int64_t blocks = blocks_for(t.m, 128) * blocks_for(t.n, 128) * t.batches();
  if (element_bytes(t.sum) <= 4 && blocks >= device.properties().multiprocessors) tile_ = 128;
  shared_ = mma ? mma_shared(tile_, !t.trans_a, t.trans_b) : 0;
  if (blocks_for(t.m, tile_) * blocks_for(t.n, tile_) >=
      kNarrowIndex / std::max<int64_t>(1, t.batches()))
    throw sdk::Refusal::shape("the product has too many tiles");
  code_ = device.code(entries::product, defines(t, tile_, mma, takes_vectors(t)), shared_);
}

void TileProduct::run(const sdk::Call& call, const ProductPointers& p) const {
  args::Product args = arguments_of(problem_, p);
  args.tiles_m = static_cast<uint32_t>(blocks_for(problem_.m, tile_));
  args.tiles_n = static_cast<uint32_t>(blocks_for(problem_.n, tile_));
  code_.launch(call,
               {.blocks = int64_t{args.tiles_m} * args.tiles_n * problem_.batches(),
                .threads = 256,
                .shared = shared_},
               args);
}

bool DotsProduct::takes(const ProductProblem& p) {
  // Of many rows of halves, the tensor cores of the library are faster. Where rows have the same bits alone and
  // among others, the kernel must not depend on m. Long rows keep all threads busy, and then memory limits both.
  constexpr int64_t kFewColumns = 8, kFewRows = 8, kManyColumns = 512, kMostOfHalves = 64,
                    kLongRow = 1024;
  const int64_t bytes = element_bytes(p.a), vector = static_cast<int64_t>(kBytes) / bytes;
  const auto on_vectors = [&](uint64_t alignment, int64_t ld) {
    return alignment >= kBytes && ld % vector == 0;
  };
  const bool f32 = p.a == TENON_DTYPE_F32 && !p.tf32;
  return (f32 || is_half(p.a)) && p.a == p.b && p.sum == TENON_DTYPE_F32 && !p.trans_a &&
         p.trans_b && p.batch.empty() && p.m > 0 && p.n > 0 && p.k > 0 && p.m < kNarrowIndex &&
         p.k % vector == 0 && on_vectors(p.a_alignment, p.lda) &&
         on_vectors(p.b_alignment, p.ldb) &&
         (f32 ? p.n <= kFewColumns || (p.m <= kFewRows && p.n <= kManyColumns)
              : p.n <= kFewColumns && (is_chain(p) ? p.k >= kLongRow : p.m <= kMostOfHalves));
}

DotsProduct::DotsProduct(CudaDevice& device, const ProductProblem& problem) : problem_(problem) {
  constexpr int64_t kColumns = 8, kManyRows = 64;
  const int64_t rows = problem.m >= kManyRows ? 4 : 1;
  std::vector<std::string> d = finish_defines(problem);
  if (problem.alpha != 1) d.emplace_back("ALPHA=1");
  d.insert(d.end(), {"TYPE=" + type_name("a", problem.a), "TY=" + type_name("y", problem.y),
                     define("ROWS", rows)});
  code_ = device.code(entries::dots, d);
  grid_ = {.blocks = launchable(blocks_for(problem.m, rows) * blocks_for(problem.n, kColumns)),
           .threads = 256,
           .early = device.properties().early_starts};
}

void DotsProduct::run(const sdk::Call& call, const ProductPointers& p) const {
  code_.launch(call, grid_, arguments_of(problem_, p));
}

namespace {

// Is b, transposed, worth a launch that keeps all multiprocessors, and can the copy engine bring it? Less is in
// the cache.
bool is_large_transposed(const CudaDevice& device, const ProductProblem& p) {
  constexpr int64_t kFewest = int64_t{1} << 21;  // elements of b
  constexpr int kCopyEngineMajor = 9;
  return device.properties().major >= kCopyEngineMajor && is_half(p.a) && p.a == p.b &&
         p.sum == TENON_DTYPE_F32 && !p.trans_a && p.trans_b && p.batch.empty() &&
         p.n < kNarrowIndex && p.k < kNarrowIndex && p.ldb == p.k && p.k % kElements == 0 &&
         p.a_alignment >= kBytes && p.b_alignment >= kBytes && p.n * p.k >= kFewest;
}

// Of device/matmul_row.cu.
constexpr int64_t kRowsOfTile = 8, kRowStage = kRowsOfTile * 1024 * 2,
                  kLeastRowStages = 4;  // bytes
// As many as fit with a. They take more than half of the shared memory, so a multiprocessor has one
// block: of a kernel that begins early, one could have two, and another none.
int64_t row_stages(const CudaDevice& device, int64_t k) {
  constexpr int64_t kMost = 8, kBarriers = 2 * 8 * kMost;
  return std::min(kMost, (device.properties().shared_per_block - kBarriers - 2 * k) / kRowStage);
}

}  // namespace

bool RowProduct::takes(const CudaDevice& device, const ProductProblem& p) {
  return !is_chain(p) && is_large_transposed(device, p) && p.m == 1 &&
         row_stages(device, p.k) >= kLeastRowStages;
}

RowProduct::RowProduct(CudaDevice& device, const ProductProblem& problem) : problem_(problem) {
  const int64_t stages = row_stages(device, problem.k);
  std::vector<std::string> d = finish_defines(problem);
  if (problem.alpha != 1) d.emplace_back("ALPHA=1");
  d.insert(d.end(), {"TYPE=" + type_name("a", problem.a), "TY=" + type_name("y", problem.y),
                     define("STAGES", stages)});
  grid_ = {.blocks = std::min<int64_t>(blocks_for(problem.n, kRowsOfTile),
                                       device.properties().multiprocessors),
           .threads = static_cast<uint32_t>(32 * (kRowsOfTile + 1)),
           .shared = static_cast<uint32_t>(stages * kRowStage + 2 * problem.k),
           .early = device.properties().early_starts};
  code_ = device.code(entries::matmul_row, d, grid_.shared);
}

void RowProduct::run(const sdk::Call& call, const ProductPointers& p) const {
  code_.launch(call, grid_, arguments_of(problem_, p), problem_.frozen);
}

namespace {

// Of device/matmul_few_rows.cu. With three tiles, products of 4096 to 28672 columns keep all multiprocessors at
// work, and the pieces of a stage are long.
constexpr int64_t kMostFewRows = 16, kTileRows = 16, kTiles = 3, kPartTerms = 64;
// ROWS of the kernel. For eight rows of a, a tile has one consumer warp, else two.
int64_t few_rows_most(int64_t m) { return m <= kMostFewRows / 2 ? kMostFewRows / 2 : kMostFewRows; }
struct FewRowsStages {
  int64_t piece = 0, count = 0;  // terms of a stage; 0: there is no room
  uint32_t bytes = 0;            // of all of them
};
// The longest pieces of which enough fit. They take more than half of the shared memory, so a
// multiprocessor has one block: of a kernel that begins early, one could have two, and another none.
FewRowsStages few_rows_stages(const CudaDevice& device, int64_t m) {
  constexpr int64_t kLeast = 3, kMost = 8, kPad = 8, kHalf = 2, kAlignedStage = 1024;
  constexpr auto& entry = entries::matmul_few_rows;
  const int64_t room = device.properties().shared_room(entry.file, entry.name);
  for (const int64_t piece : {512, 384, 256, 128}) {
    const int64_t of_a = blocks_for(m * (piece + kPad) * kHalf, kAlignedStage) * kAlignedStage,
                  stage = kTiles * kTileRows * piece * kHalf + of_a;
    const int64_t count = std::min(kMost, room / stage);
    if (count >= kLeast) return {piece, count, static_cast<uint32_t>(count * stage)};
  }
  return {};
}

}  // namespace

bool FewRowsProduct::takes(const CudaDevice& device, const ProductProblem& p) {
  return is_chain(p) && is_large_transposed(device, p) && p.m >= 1 && p.m <= kMostFewRows &&
         p.lda % kElements == 0 && few_rows_stages(device, p.m).count > 0;
}

FewRowsProduct::FewRowsProduct(CudaDevice& device, const ProductProblem& problem)
    : problem_(problem) {
  const FewRowsStages stages = few_rows_stages(device, problem.m);
  const int64_t most = few_rows_most(problem.m), consumers = most == kMostFewRows ? 2 : 1,
                warps = (1 + consumers) * kTiles;  // with the producer of each tile
  std::vector<std::string> d = finish_defines(problem);
  if (problem.alpha != 1) d.emplace_back("ALPHA=1");
  d.insert(d.end(), {"TYPE=" + type_name("a", problem.a), "TY=" + type_name("y", problem.y),
                     define("ROWS", most), define("TILES", kTiles), define("PIECE", stages.piece),
                     define("STAGES", stages.count)});
  grid_ = {.blocks = std::min<int64_t>(blocks_for(problem.n, kTileRows),
                                       device.properties().multiprocessors),
           .threads = static_cast<uint32_t>(32 * warps),
           .shared = stages.bytes,
           .early = device.properties().early_starts};
  code_ = device.code(entries::matmul_few_rows, d, grid_.shared);
}

void FewRowsProduct::run(const sdk::Call& call, const ProductPointers& p) const {
  const int64_t dims[] = {problem_.k, problem_.n}, strides[] = {problem_.k},
                box[] = {kPartTerms, kTileRows};
  // A copy takes one line of each row; with two lines at a time in L2, a large b came at 0.94 of this rate.
  code_.launch(call, grid_, arguments_of(problem_, p),
               tensor_map(p.b, problem_.b, dims, strides, box, kLine), problem_.frozen);
}

ProductFinish::ProductFinish(CudaDevice& device, const ProductProblem& problem)
    : problem_(problem) {
  // The tile's own defines have no meaning here, and are always the same.
  ProductProblem t = problem;
  t.a = t.b = t.sum;
  t.trans_a = t.trans_b = false;
  if (!is_chain(problem)) t.alpha = 1;  // it is in the sums
  const auto aligned = [](tenon_dtype type, uint64_t alignment) {
    return type == TENON_DTYPE_NONE || alignment >= kBytes;
  };
  const bool wide = t.n % kElements == 0 && aligned(t.bias, t.bias_alignment) &&
                    aligned(t.residual, t.residual_alignment);
  each_ = wide ? kElements : 4;
  code_ = device.code(entries::product_finish, defines(t, 64, false, wide), 0);
}

void ProductFinish::run(const sdk::Call& call, const void* sums, const ProductPointers& p) const {
  args::Product args = arguments_of(problem_, p);
  args.a = sums;
  args.m *= problem_.batches();
  code_.launch(call, {.blocks = blocks_for(args.m * args.n, 256 * each_), .threads = 256}, args);
}

std::string activation_text(std::string_view kind, double alpha, double beta, tenon_dtype sum,
                            bool brief) {
  const UnaryInfo* info = find_unary(kind);
  if (!info) throw sdk::Refusal::unknown("act", kind);
  if (info->kind == UnaryKind::is_nan || info->kind == UnaryKind::is_inf)
    throw sdk::Refusal::attribute("act", kind);
  if (brief && sum == TENON_DTYPE_F32 &&
      (info->kind == UnaryKind::gelu || info->kind == UnaryKind::gelu_tanh))
    return "short_" + std::string(kind) + "(x)";
  return "unary_" + std::string(kind) + "(x, " + literal(sum, unary_alpha(*info, alpha)) + ", " +
         literal(sum, unary_beta(*info, beta)) + ")";
}

}  // namespace tenon::cuda
