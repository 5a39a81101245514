// SPDX-License-Identifier: Apache-2.0
// attention_backward: facts about query rows (with dout·o), corrected for rows with a large lse; then
// dq by query rows; then dk and dv by keys.
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
  int64_t sums_tile = 64;             // the same for `sums`
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

// Bytes of a block of attention_backward_wgmma.cu: its own side, stages of the other side, facts of
// rows.
int64_t wgmma_shared_bytes(const AttentionProblem& p) {
  constexpr int64_t kSide = 128, kThrough = 64, kStages = 4, kFacts = 16 + 16, kBarrier = 8;
  return 2 * (kSide + kStages * kThrough) * p.wgmma_width() + kStages * kThrough * kFacts +
         kBarrier;
}
// A block of attention_backward.cu: `tile` rows of its own side, `through` of the other one.
struct Tiles {
  int64_t tile = 64, through = 64;
  bool one_buffer = false;

  // The largest that fits in `room` bytes of shared memory.
  Tiles(const AttentionProblem& p, int64_t room) {
    if (p.mma) {
      constexpr int64_t kFewest = 16;
      // Of wide heads the sums need the registers.
      through = p.padded_dim > 64 || p.padded_v_dim > 64 ? 32 : 64;
      while (shared(p) > room && through > kFewest) through /= 2;
    } else {
      while (shared(p) > room && (tile > 16 || !one_buffer)) {
        if (tile > 32 || one_buffer)
          tile /= 2;
        else
          one_buffer = true;
      }
    }
    if (shared(p) > room)
      throw Refusal::shape("heads of " + std::to_string(p.arguments.dim) + " and " +
                           std::to_string(p.arguments.v_dim) +
                           " elements do not fit in shared memory");
  }
  int64_t shared(const AttentionProblem& p) const {
    if (p.mma) return (tile + through) * 2 * (p.padded_dim + 8 + p.padded_v_dim + 8);
    const int64_t dim = p.padded_dim + 1, v_dim = p.padded_v_dim + 1;
    return tile * element_bytes(p.sum) *
           (dim + v_dim + (one_buffer ? std::max(dim, v_dim) : dim + v_dim) + tile + 1);
  }
  std::vector<std::string> defines() const {
    return {define("THROUGH", through), define("ONE_BUFFER", one_buffer ? 1 : 0)};
  }
};
// Bytes of a block of attention_sums.cu: a tile of query rows and one of keys.
int64_t sums_shared_bytes(const AttentionProblem& p, int64_t tile) {
  return p.mma ? 2 * tile * 2 * (p.padded_dim + 8)
               : 2 * tile * element_bytes(p.sum) * (p.padded_dim + 1);
}
// RowFacts of each row (attention_facts.cuh), and a flag for each 64 rows of a head.
int64_t facts_bytes(const AttentionProblem& p) {
  return p.heads() * (p.rows() * 4 * element_bytes(p.sum) + blocks_for(p.rows(), 64) * 4);
}

}  // namespace

sdk::Kernel make_attention_backward(const sdk::op::attention_backward& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  Backward b;
  b.p = attention_problem(n, node, {n.dout, n.o});
  AttentionProblem& p = b.p;
  const AttentionArguments& a = p.arguments;
  if (n.want_dmask) throw Refusal{TENON_REASON_OTHER, "dmask is decomposed"};
  constexpr int64_t kWgmmaTile = 128;
  std::vector<std::string> tiles = p.tile_defines();
  tiles.push_back(define("MMA", p.mma ? 1 : 0));
  const int64_t room = device.properties().shared_room("attention_backward.cu", "keys", tiles);
  const bool wgmma = p.wgmma && wgmma_shared_bytes(p) <= room;
  std::vector<std::string> defines = wgmma ? p.wgmma_defines() : tiles;
  if (wgmma) {
    b.tile = kWgmmaTile;
    b.delta_rows = 128 / (AttentionProblem::wgmma_padded(a.v_dim) / 8);
    b.shared = static_cast<uint32_t>(wgmma_shared_bytes(p));
    b.sums_tile = 64;
  } else {
    const Tiles t(p, room);
    b.tile = b.sums_tile = t.tile;
    b.threads = p.mma ? 128 : 256;
    b.shared = static_cast<uint32_t>(t.shared(p));
    defines.push_back(define("SIZE", t.tile));
    for (std::string& d : t.defines()) defines.push_back(std::move(d));
  }
  if (p.heads() * std::max<int64_t>(p.rows(), a.k_len) >= kNarrowIndex)
    throw Refusal::shape("too many rows for one launch");
  b.dout = n.dout.position(), b.o = n.o.position(), b.lse = n.lse.position();
  b.sums_threads = p.mma ? 128 : 256;
  b.sums_shared = static_cast<uint32_t>(sums_shared_bytes(p, b.sums_tile));
  tiles.push_back(define("SIZE", b.sums_tile));
  b.delta = device.code(wgmma ? entries::attention_wgmma_delta : entries::attention_delta, defines);
  b.queries = device.code(wgmma ? entries::attention_wgmma_queries : entries::attention_queries,
                          defines, b.shared);
  b.keys = device.code(wgmma ? entries::attention_wgmma_keys : entries::attention_keys, defines,
                       b.shared);
  // Up to these sizes of lse its rounding changes weights by a relative error of 1e-6, or of 1e-4
  // if weights are rounded to halves anyway.
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
