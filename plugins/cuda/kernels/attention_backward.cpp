// SPDX-License-Identifier: Apache-2.0
// attention_backward: row sums of dout·o, weights summed again of rows with a large lse, then dq by
// query rows, then dk and dv by keys.
#include <algorithm>

#include "attention.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

struct Backward {
  AttentionProblem p;
  TypedCode<args::Attention> delta, sums, queries, keys;
  int dout = 0, o = 0, lse = 0;
  int64_t tile = 64, delta_rows = 4;  // rows or keys of a block
  int64_t sums_tile = 64;             // the same, of sums
  uint32_t threads = 256, shared = 0, sums_threads = 256, sums_shared = 0;

  void run(const sdk::Call& c) const {
    AttentionArguments a = p.with(c);
    a.dout = c.inputs[dout], a.o = c.inputs[o], a.lse_in = c.inputs[lse];
    a.delta = c.scratch;
    a.dq = c.outputs[0], a.dk = c.outputs[1], a.dv = c.outputs[2];
    delta.launch(c, {.blocks = blocks_for(p.heads() * p.rows(), delta_rows), .threads = 128}, a);
    sums.launch(c,
                {.blocks = p.heads() * blocks_for(p.rows(), sums_tile),
                 .threads = sums_threads,
                 .shared = sums_shared},
                a);
    const Grid grid{.threads = threads, .shared = shared};
    Grid of_rows = grid, of_keys = grid;
    of_rows.blocks = p.heads() * blocks_for(p.rows(), tile);
    of_keys.blocks = p.heads() * blocks_for(a.k_len, tile);
    queries.launch(c, of_rows, a);
    keys.launch(c, of_keys, a);
  }
};

// Those of attention_backward_wgmma.cu: one side whole, the other in stages, what is known of rows.
int64_t wgmma_shared_bytes(const AttentionProblem& p) {
  constexpr int64_t kSide = 128, kThrough = 64, kStages = 4, kFacts = 16 + 16, kBarrier = 8;
  return 2 * (kSide + kStages * kThrough) * p.wgmma_width() + kStages * kThrough * kFacts +
         kBarrier;
}
// Of one block: both sides in tiles, and without tensor cores the weights.
int64_t shared_bytes(const AttentionProblem& p, int64_t tile) {
  if (p.mma) {
    const int64_t through = p.padded_dim > 64 || p.padded_v_dim > 64 ? 32 : 64;
    return (tile + through) * 2 * (p.padded_dim + 8 + p.padded_v_dim + 8);
  }
  return tile * element_bytes(p.sum) * (2 * (p.padded_dim + 1 + p.padded_v_dim + 1) + tile + 1);
}
// Of one block of attention_sums.cu: a tile of queries and one of keys.
int64_t sums_shared_bytes(const AttentionProblem& p, int64_t tile) {
  return p.mma ? 2 * tile * 2 * (p.padded_dim + 8)
               : 2 * tile * element_bytes(p.sum) * (p.padded_dim + 1);
}
// Of a row, RowFacts of attention_facts.cuh; of each 64 rows of a head, whether sums were mended.
int64_t facts_bytes(const AttentionProblem& p) {
  return p.heads() * (p.rows() * 4 * element_bytes(p.sum) + blocks_for(p.rows(), 64) * 4);
}

}  // namespace

sdk::Kernel make_attention_backward(const sdk::op::attention_backward& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  Backward b;
  b.p = attention_problem(n, device, {n.dout, n.o});
  AttentionProblem& p = b.p;
  const AttentionArguments& a = p.arguments;
  if (n.want_dmask) throw Refusal{TENON_REASON_OTHER, "dmask is decomposed"};
  const int64_t most = device.properties().shared_room("attention_backward.cu", "keys");
  const bool wgmma = p.wgmma && wgmma_shared_bytes(p) <= most;
  constexpr int64_t kSmallTile = 32, kWgmmaTile = 128;
  if (wgmma) {
    b.tile = kWgmmaTile;
    b.delta_rows = 128 / (AttentionProblem::wgmma_padded(a.v_dim) / 8);
  } else if (p.mma) {
    b.threads = 128;
  } else if (shared_bytes(p, b.tile) > most) {
    b.tile = kSmallTile;
  }
  const int64_t shared = wgmma ? wgmma_shared_bytes(p) : shared_bytes(p, b.tile);
  if (shared > most)
    throw Refusal::shape("heads of " + std::to_string(a.dim) + " and " + std::to_string(a.v_dim) +
                         " elements do not fit on chip");
  if (p.heads() * std::max<int64_t>(p.rows(), a.k_len) >= kNarrowIndex)
    throw Refusal::shape("too many rows for one launch");
  b.shared = static_cast<uint32_t>(shared);
  b.dout = n.dout.position(), b.o = n.o.position(), b.lse = n.lse.position();
  std::vector<std::string> tiles = p.tile_defines();
  b.sums_tile = p.mma ? 64 : b.tile;
  b.sums_threads = p.mma ? 128 : 256;
  b.sums_shared = static_cast<uint32_t>(sums_shared_bytes(p, b.sums_tile));
  tiles.push_back(define("SIZE", b.sums_tile));
  const std::vector<std::string> defines = wgmma ? p.wgmma_defines() : tiles;
  b.delta = device.code(wgmma ? entries::attention_wgmma_delta : entries::attention_delta, defines);
  b.queries = device.code(wgmma ? entries::attention_wgmma_queries : entries::attention_queries,
                          defines, b.shared);
  b.keys = device.code(wgmma ? entries::attention_wgmma_keys : entries::attention_keys, defines,
                       b.shared);
  // Up to these sizes the rounding of lse changes weights by 1e-6 of themselves, or, where they are
  // rounded to halves anyway, by 1e-4.
  constexpr int64_t kTrusted = 16, kTrustedByHalves = 1024;
  tiles.push_back(define("TRUSTED", wgmma && p.plain ? kTrustedByHalves : kTrusted));
  b.sums = device.code(entries::attention_sums, tiles, b.sums_shared);
  sdk::Kernel kernel =
      kernel_of({b.delta, b.sums, b.queries, b.keys}, [b](const sdk::Call& c) { b.run(c); });
  kernel.scratch = static_cast<uint64_t>(facts_bytes(p));
  const double flops = 2.0 * static_cast<double>(p.heads() * p.rows()) *
                       static_cast<double>(a.k_len) * (4.0 * a.dim + 3.0 * a.v_dim);
  kernel.cost = 1e-5 + flops / (p.mma ? 2e14 : p.sum == TENON_DTYPE_F64 ? 5e12 : 1e13);
  return kernel;
}

}  // namespace tenon::cuda
