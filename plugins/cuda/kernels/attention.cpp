// SPDX-License-Identifier: Apache-2.0
// attention, by one of seven texts: with wgmma on sm_90, where the copy engine can bring the keys
// (attention_bulk) and where it cannot; for few query rows to a key head (decoding); with sums in
// f32, for heads up to 128 wide, on tensor cores that take tf32, with wgmma or without, or by FMAs;
// else for every dtype and device. Where query rows give too few blocks, the keys are split as
// well, and a second kernel joins the parts.
#include "attention.hpp"

#include <algorithm>
#include <optional>

#include "../kernels.hpp"
#include "attention_bulk.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kRows = 64, kKeys = 64;  // of a block (attention.cu)
constexpr int64_t kWgmmaRows = 128;
constexpr int64_t kDecodeRows = 16, kDecodeKeys = 16, kDecodeWarps = 4;
constexpr int64_t kMostSplits = 64, kFewestKeys = 256;

struct Forward {
  AttentionProblem p;
  std::optional<AttentionBulk> bulk{};
  TypedCode<args::Attention> attention, merge;
  int64_t blocks = 0;
  uint32_t threads = 256, shared = 0;
  bool want_lse = false, early = false;

  void run(const sdk::Call& c) const {
    AttentionArguments a = p.with(c);
    a.o = c.outputs[0], a.lse = want_lse ? c.outputs[1] : nullptr, a.parts = c.scratch;
    if (bulk) return bulk->run(c, a);
    attention.launch(c, {.blocks = blocks, .threads = threads, .shared = shared, .early = early},
                     a);
    if (a.splits > 1) merge.launch(c, {.blocks = p.heads() * p.rows(), .threads = 128}, a);
  }
};

int64_t shared_bytes(const AttentionProblem& p) {
  if (p.mma) return 64 * 2 * (2 * (p.padded_dim + 8) + p.padded_v_dim + 8);
  const int64_t most = std::max(p.padded_dim, p.padded_v_dim);
  return 64 * element_bytes(p.sum) * (p.padded_dim + 1 + most + 1 + kKeys + 1);
}
int64_t wgmma_shared_bytes(const AttentionProblem& p) {
  const int64_t keys = p.wgmma_width() > 128 ? 128 : 64;
  constexpr int64_t kStages = 3, kBarrier = 8;
  return 2 * (kWgmmaRows * AttentionProblem::wgmma_padded(p.arguments.dim) +
              kStages * keys * p.wgmma_width()) +
         kBarrier;
}
// How the kernels of f32 lie over rows and keys: attention_split.cu has a warp for 16 rows,
// attention_split_wgmma.cu a warpgroup for 64, attention_fma.cu, for wider heads, a thread for
// some. With few blocks they are small, so that there are more.
struct FloatTile {
  bool split = false;  // on tensor cores, numbers being sums of two
  bool wgmma = false;  // on those of sm_90
  int64_t rows = 0, keys = 0;
  uint32_t threads = 128;
  std::vector<std::string> defines{};

  FloatTile(const AttentionProblem& p, const Properties& device) {
    constexpr int64_t kWidestSplit = 64, kLanes = 16, kGroups = 8;
    constexpr int kWgmmaMajor = 9;  // later devices have it no more
    const auto blocks = [&](int64_t tile) { return p.heads() * blocks_for(p.rows(), tile); };
    split = device.major >= 8 && p.dtype == TENON_DTYPE_F32 &&
            std::max(p.padded_dim, p.padded_v_dim) <= kWidestSplit &&
            blocks(16) >= device.multiprocessors;  // else FMAs are sooner
    wgmma = split && device.major == kWgmmaMajor && p.wide_floats && p.rows() > 32;
    defines = p.defines;
    if (wgmma) {
      rows = p.rows() > 64 && blocks(128) >= device.multiprocessors ? 128 : 64;
      threads = static_cast<uint32_t>(rows * 2);
      defines.insert(defines.end(),
                     {define("DP", wgmma_padded(p.padded_dim)),
                      define("VP", wgmma_padded(p.padded_v_dim)), define("GROUPS", rows / 64)});
      return;
    }
    rows = 64;
    while (rows > 16 && (p.rows() <= rows / 2 || blocks(rows) < device.multiprocessors)) rows /= 2;
    keys = p.arguments.k_len > 32 ? 64 : p.arguments.k_len > 16 ? 32 : 16;
    defines.insert(defines.end(), {define("DP", p.padded_dim), define("VP", p.padded_v_dim),
                                   define("WIDE", p.wide_floats ? 1 : 0)});
    if (split) {
      threads = static_cast<uint32_t>(rows * 2);
      defines.insert(defines.end(), {define("WARPS", rows / 16), define("KEYS", keys)});
    } else {
      defines.insert(defines.end(), {define("TR", rows / kGroups), define("TC", keys / kLanes)});
    }
  }
  static int64_t wgmma_padded(int64_t dim) { return blocks_for(dim, 32) * 32; }
  static bool takes(const AttentionProblem& p) {
    constexpr int64_t kWidest = 128;
    return !p.mma && p.sum == TENON_DTYPE_F32 && std::max(p.padded_dim, p.padded_v_dim) <= kWidest;
  }
  int64_t shared_bytes(const AttentionProblem& p) const {
    const int64_t dim = p.padded_dim, v_dim = p.padded_v_dim;
    constexpr int64_t kParts = 2, kWgmmaKeys = 64;
    if (wgmma) return 4 * kParts * kWgmmaKeys * (wgmma_padded(dim) + wgmma_padded(v_dim));
    if (split) return 4 * ((rows + keys) * (dim % 32 == 0 ? dim + 16 : dim) + keys * (v_dim + 4));
    return 4 * ((rows + keys) * (dim + 4) + keys * (v_dim + 4) + rows * (keys + 16));
  }
};
int64_t decode_shared_bytes(const AttentionProblem& p, int64_t stages) {
  const int64_t keys = stages * kDecodeKeys * 2 * (p.padded_dim + 8 + p.padded_v_dim + 8);
  const int64_t sums = kDecodeRows * 4 * (p.padded_v_dim + 2);
  return kDecodeWarps * std::max(keys, sums);
}
// Pipeline stages of attention_decode.cu; 0 where that kernel does not take the problem.
int64_t decode_stages(const AttentionProblem& p, int64_t room) {
  const AttentionArguments& a = p.arguments;
  if (!p.mma || !p.wide || p.rows() > kDecodeRows || std::max(a.dim, a.v_dim) > 128) return 0;
  for (const int64_t stages : {3, 2})
    if (decode_shared_bytes(p, stages) <= room) return stages;
  return 0;
}

// Splits the keys so that there are about `wanted` blocks instead of `blocks`.
void split_keys(AttentionArguments& a, int64_t blocks, int64_t wanted) {
  if (blocks == 0 || blocks * 2 > wanted || a.k_len < 2 * kFewestKeys) return;
  const int64_t splits =
      std::clamp<int64_t>(wanted / blocks, 1, std::min(kMostSplits, a.k_len / kFewestKeys));
  a.split_keys = static_cast<int32_t>(blocks_for(blocks_for(a.k_len, splits), kKeys) * kKeys);
  a.splits = static_cast<int32_t>(blocks_for(a.k_len, a.split_keys));
}

sdk::Kernel make_attention(const sdk::op::attention& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  Forward f;
  f.p = attention_problem(n, device, {});
  AttentionProblem& p = f.p;
  AttentionArguments& a = p.arguments;
  f.want_lse = n.want_lse;
  const int64_t multiprocessors = device.properties().multiprocessors;
  const int64_t room = device.properties().shared_per_block;
  const int64_t stages = decode_stages(p, room);
  const bool decode = stages > 0;
  f.blocks = p.heads() * (decode ? 1 : blocks_for(p.rows(), kRows));
  // A decoding block has much under way: with one on a multiprocessor more splits only cost time.
  split_keys(a, f.blocks, (decode ? 1 : 2) * multiprocessors);
  const bool wgmma = p.wgmma && !decode && a.splits == 1 && wgmma_shared_bytes(p) <= room;
  const FloatTile tile(p, device.properties());
  const bool floats = FloatTile::takes(p) && a.splits == 1 && tile.shared_bytes(p) <= room;
  std::vector<std::string> defines = wgmma    ? p.wgmma_defines()
                                     : floats ? tile.defines
                                              : p.tile_defines();
  if (!wgmma && !floats) defines.emplace_back(a.splits > 1 ? "SPLIT=1" : "SPLIT=0");
  if (decode) defines.push_back(define("STAGES", stages));
  if (wgmma) f.blocks = p.heads() * blocks_for(p.rows(), kWgmmaRows);
  if (floats) f.blocks = p.heads() * blocks_for(p.rows(), tile.rows);
  f.blocks *= a.splits;
  f.early = floats && (!tile.split || tile.wgmma) && device.properties().early_starts;
  f.threads = floats ? tile.threads : p.mma && !wgmma ? 128 : 256;
  const int64_t shared = decode   ? decode_shared_bytes(p, stages)
                         : wgmma  ? wgmma_shared_bytes(p)
                         : floats ? tile.shared_bytes(p)
                                  : shared_bytes(p);
  if (shared > room)
    throw sdk::Refusal::shape("heads of " + std::to_string(a.dim) + " and " +
                              std::to_string(a.v_dim) + " elements do not fit on chip");
  if (f.blocks >= kNarrowIndex || p.heads() * p.rows() >= kNarrowIndex)
    throw sdk::Refusal::shape("too many query rows for one launch");
  f.shared = static_cast<uint32_t>(shared);
  const Entry<args::Attention>& entry = decode                 ? entries::attention_decode
                                        : wgmma                ? entries::attention_wgmma
                                        : floats && tile.wgmma ? entries::attention_split_wgmma
                                        : floats && tile.split ? entries::attention_split
                                        : floats               ? entries::attention_fma
                                                               : entries::attention;
  std::vector<Code> codes;
  if (wgmma && AttentionBulk::takes(p, room))
    codes.push_back(f.bulk.emplace(device, p).code());
  else
    codes.push_back(f.attention = device.code(entry, defines, f.shared));
  if (a.splits > 1)
    codes.push_back(
        f.merge = device.code(decode ? entries::attention_decode_merge : entries::attention_merge,
                              defines));
  sdk::Kernel kernel = kernel_of(codes, [f](const sdk::Call& c) { f.run(c); });
  if (a.splits > 1)
    kernel.scratch = static_cast<uint64_t>(a.splits * p.heads() * p.rows() * (a.v_dim + 2) *
                                           element_bytes(p.sum));
  const double flops = 2.0 * static_cast<double>(p.heads() * p.rows()) *
                       static_cast<double>(a.k_len) * (a.dim + a.v_dim);
  kernel.cost = 5e-6 + flops / (p.mma ? 2e14 : p.sum == TENON_DTYPE_F64 ? 5e12 : 1e13);
  return kernel;
}

constexpr sdk::Row kTable[] = {
    sdk::row<sdk::op::attention, make_attention>(),
    sdk::row<sdk::op::attention_backward, make_attention_backward>(),
};

}  // namespace

std::span<const sdk::Row> attention_rows() { return kTable; }

}  // namespace tenon::cuda
