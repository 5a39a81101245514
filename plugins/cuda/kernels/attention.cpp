// SPDX-License-Identifier: Apache-2.0
// attention, by one of nine kernel texts:
//   attention_steps       halves over a cache, where rows must be alike (AttentionProblem::in_spans)
//   attention_steps_wgmma the same for many query rows on sm_90
//   attention_decode      halves, few query rows per key head
//   attention_decode_q8_0 the same with keys and values in blocks of q8_0
//   attention_bulk        halves on sm_90
//   attention             halves on sm_80 and later
//   attention_split_wgmma f32 on sm_90, narrow heads
//   attention_split       f32 on sm_80 and later, narrow heads
//   attention_fma         everything else
// If the query rows give too few blocks, blocks take ranges of the keys as well, and attention_merge,
// or on sm_90 the blocks of a cluster, join their partial sums. With many query rows, attention_dequantize makes halves of
// keys and values in blocks first.
#include "attention.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "../kernels.hpp"
#include "attention_bulk.hpp"

namespace tenon::cuda {
namespace {

int64_t padded_to_32(int64_t dim) { return blocks_for(dim, 32) * 32; }

using Choice = AttentionChoice;

// attention_decode_q8_0.cu: reads the keys once for each 16 rows, most of them from L2.
std::optional<Choice> decode_q8_0_choice(const AttentionProblem& p, const Properties& device) {
  constexpr int64_t kRows = 16, kMostRows = 64, kKeys = 16, kWarps = 4, kNarrow = 256;
  const AttentionArguments& a = p.arguments;
  if (p.rows() > kMostRows && a.q_len > 1) return {};
  // LevelRows in attention_levels.cuh
  const int64_t alignment = std::bit_floor(std::min<uint64_t>(p.block_alignment, 8));
  const auto stride = [&](int64_t dim) {
    const auto bytes = static_cast<int64_t>(tenon_dense_bytes(TENON_DTYPE_Q8_0, dim));
    const int64_t align = std::min(bytes & -bytes, alignment);
    const int64_t piece = std::max<int64_t>(align, 4), moved = align == 2 ? 2 : 0;
    return (blocks_for(blocks_for(bytes + moved, piece) * piece + 2 * moved, 16) | 1) * 16;
  };
  for (const int64_t stages : {3, 2}) {
    const int64_t keys = stages * kKeys * (stride(a.dim) + stride(a.v_dim)),
                  sums = kRows * 4 * (a.v_dim + 2), shared = kWarps * std::max(keys, sums);
    if (shared > device.shared_per_block) continue;
    Choice c{.entry = &entries::attention_decode_q8_0, .rows = kRows, .shared = shared};
    // As many as are on a multiprocessor: they hide each other's waits.
    c.blocks_wanted = a.dim + a.v_dim > kNarrow ? 2 : 3;
    c.early = true;
    c.defines = p.defines;
    c.defines.insert(c.defines.end(), {define("DP", a.dim), define("VP", a.v_dim),
                                       define("ALIGN", alignment), define("STAGES", stages)});
    return c;
  }
  return {};
}

// attention.cu
std::optional<Choice> half_choice(const AttentionProblem& p, const Properties& device) {
  if (!p.mma) return {};
  Choice c{.entry = &entries::attention, .defines = p.tile_defines(), .rows = 64};
  c.shared = 64 * 2 * (2 * (p.padded_dim + 8) + p.padded_v_dim + 8);
  c.blocks_wanted = 2;
  return c.shared <= device.shared_per_block ? std::optional(c) : std::nullopt;
}

// attention_split.cu and attention_split_wgmma.cu: a warp has 16 rows, a warpgroup 64.
std::optional<Choice> split_choice(const AttentionProblem& p, const Properties& device) {
  constexpr int64_t kWidest = 64;
  constexpr int kWgmmaMajor = 9;  // later devices do not have wgmma
  const auto blocks = [&](int64_t rows) { return p.heads() * blocks_for(p.rows(), rows); };
  if (device.major < 8 || p.dtype != TENON_DTYPE_F32 ||
      std::max(p.padded_dim, p.padded_v_dim) > kWidest || blocks(16) < device.multiprocessors)
    return {};  // with few blocks FMAs are faster
  Choice c;
  c.defines = p.defines;
  if (device.major == kWgmmaMajor && p.wide_floats && p.rows() > 32) {
    constexpr int64_t kParts = 2, kKeys = 64;
    const int64_t dim = padded_to_32(p.padded_dim), v_dim = padded_to_32(p.padded_v_dim);
    c.entry = &entries::attention_split_wgmma;
    c.early = true;
    c.rows = p.rows() > 64 && blocks(128) >= device.multiprocessors ? 128 : 64;
    c.shared = 4 * kParts * kKeys * (dim + v_dim);
    c.defines.insert(c.defines.end(),
                     {define("DP", dim), define("VP", v_dim), define("GROUPS", c.rows / 64)});
  } else {
    const int64_t keys = p.arguments.k_len > 32 ? 64 : p.arguments.k_len > 16 ? 32 : 16;
    const int64_t stride = p.padded_dim % 32 == 0 ? p.padded_dim + 16 : p.padded_dim;
    c.entry = &entries::attention_split;
    c.rows = 64;
    while (c.rows > 16 && (p.rows() <= c.rows / 2 || blocks(c.rows) < device.multiprocessors))
      c.rows /= 2;
    c.shared = 4 * ((c.rows + keys) * stride + keys * (p.padded_v_dim + 4));
    c.defines.insert(c.defines.end(), {define("DP", p.padded_dim), define("VP", p.padded_v_dim),
                                       define("WIDE", p.wide_floats ? 1 : 0),
                                       define("WARPS", c.rows / 16), define("KEYS", keys)});
  }
  c.threads = static_cast<uint32_t>(c.rows * 2);
  return c.shared <= device.shared_per_block ? std::optional(c) : std::nullopt;
}

// attention_fma.cu: tiles shrink until there are blocks for all multiprocessors, and until they fit
// in shared memory.
std::optional<Choice> fma_choice(const AttentionProblem& p, const Properties& device) {
  constexpr int64_t kLanes = 16, kGroups = 8;
  const int64_t bytes = element_bytes(p.sum), dim = p.padded_dim, v_dim = p.padded_v_dim;
  // Sums of a thread stay in registers.
  const int64_t words_of_row = v_dim / kLanes * (bytes / 4), most_words = bytes == 4 ? 64 : 32;
  int64_t rows = bytes == 4 ? 64 : 32, keys = 64;
  while (rows / kGroups * words_of_row > most_words) rows /= 2;
  const auto blocks = [&] { return p.heads() * blocks_for(p.rows(), rows); };
  while (rows > 16 && (p.rows() <= rows / 2 || blocks() < device.multiprocessors)) rows /= 2;
  if (p.rows() <= kGroups) rows = kGroups;
  while (keys > kLanes && p.arguments.k_len <= keys / 2) keys /= 2;
  bool one_buffer = false;
  const auto shared = [&] {
    const int64_t buffers = one_buffer ? std::max(dim, v_dim) + 4 : dim + 4 + v_dim + 4;
    return bytes * (rows * (dim + 4) + keys * buffers + rows * (keys + 16));
  };
  while (shared() > device.shared_per_block) {
    if (keys > 32)
      keys /= 2;
    else if (rows > 32)
      rows /= 2;
    else if (!one_buffer)
      one_buffer = true;
    else if (keys > kLanes)
      keys /= 2;
    else if (rows > kGroups)
      rows /= 2;
    else
      return {};
  }
  Choice c{.entry = &entries::attention_fma, .defines = p.defines, .rows = rows};
  c.shared = shared();
  c.early = true;
  c.blocks_wanted = 2;
  c.defines.insert(c.defines.end(),
                   {define("DP", dim), define("VP", v_dim), define("WIDE", p.wide_floats ? 1 : 0),
                    define("TR", rows / kGroups), define("TC", keys / kLanes),
                    define("ONE_BUFFER", one_buffer ? 1 : 0)});
  return c;
}

// attention_steps.cu
std::optional<Choice> steps_choice(const AttentionProblem& p, const Properties& device) {
  constexpr int64_t kRows = 64, kKeys = 64, kThreads = 128;
  if (!p.in_spans()) return {};
  Choice c{.entry = &entries::attention_steps, .defines = p.defines, .rows = kRows};
  c.defines.insert(c.defines.end(), {define("DP", p.padded_dim), define("VP", p.padded_v_dim)});
  c.shared = 2 * (kRows * (p.padded_dim + 8) + kKeys * (p.padded_dim + 8 + p.padded_v_dim + 8)) +
             kThreads * p.padded_v_dim / 2 * 4;
  c.early = true;
  c.in_turn = true;
  return c.shared <= device.shared_per_block ? std::optional(c) : std::nullopt;
}

Choice choose(const AttentionProblem& p, const Properties& device) {
  if (auto c = steps_choice(p, device)) return *c;
  if (auto c = decode_choice(p, device)) return *c;
  for (const auto of : {half_choice, split_choice, fma_choice})
    if (auto c = of(p, device)) return *c;
  throw sdk::Refusal::shape("heads of " + std::to_string(p.arguments.dim) + " and " +
                            std::to_string(p.arguments.v_dim) +
                            " elements do not fit in shared memory");
}

// attention_dequantize.cu
struct Dequantize {
  AttentionProblem p;  // with blocks
  TypedCode<args::Attention, void*, void*, args::u32> code;
  Grid grid;
  args::u32 blocks_each = 0;

  Dequantize(CudaDevice& device, const AttentionProblem& problem) : p(problem) {
    constexpr int64_t kThreads = 256, kWarps = kThreads / 32, kBlocks = 8;  // of a multiprocessor
    const AttentionArguments& a = p.arguments;
    const int64_t wanted = kBlocks * device.properties().multiprocessors;
    blocks_each = static_cast<args::u32>(
        std::clamp<int64_t>(wanted / std::max<int64_t>(a.batch, 1), 1,
                            std::max<int64_t>(blocks_for(a.k_len, kWarps), 1)));
    grid = {.blocks = a.q_len == 0 ? 0 : launchable(int64_t{a.batch} * blocks_each),
            .threads = kThreads,
            .early = device.properties().early_starts};
    std::vector<std::string> defines = p.defines;
    defines.insert(defines.end(), {define("DIM", a.dim), define("V_DIM", a.v_dim)});
    code = device.code(entries::attention_dequantize, defines);
  }
  uint64_t key_bytes() const { return bytes(p.arguments.dim); }
  uint64_t value_bytes() const { return bytes(p.arguments.v_dim); }
  uint64_t bytes(int64_t dim) const {
    const AttentionArguments& a = p.arguments;
    const int64_t elements = int64_t{a.batch} * a.k_len * a.k_heads * dim;
    return static_cast<uint64_t>(blocks_for(elements * element_bytes(p.dtype), 256) * 256);
  }
  // To the first bytes of the scratch.
  void run(const sdk::Call& c) const {
    auto* const to = static_cast<char*>(c.scratch);
    code.launch(c, grid, p.with(c), to, to + key_bytes(), blocks_each);
  }
};

struct Forward {
  AttentionProblem p;
  std::optional<Dequantize> dequantize{};
  std::optional<AttentionBulk> bulk{};
  TypedCode<args::Attention> attention, merge;
  Grid grid;
  bool want_lse = false, merges = false;

  void run(const sdk::Call& c) const {
    AttentionArguments a = p.with(c);
    a.o = c.outputs[0], a.lse = want_lse ? c.outputs[1] : nullptr, a.parts = c.scratch;
    if (dequantize) {
      dequantize->run(c);
      auto* const keys = static_cast<char*>(c.scratch);
      a.k = keys, a.v = keys + dequantize->key_bytes();
      a.parts = keys + dequantize->key_bytes() + dequantize->value_bytes();
    }
    if (bulk) return bulk->run(c, a);
    attention.launch(c, grid, a);
    if (merges) merge.launch(c, {.blocks = p.heads() * p.rows(), .threads = 128}, a);
  }
};

sdk::Kernel make_attention(const sdk::op::attention& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  const Properties& properties = device.properties();
  Forward f;
  f.p = attention_problem(n, node, {});
  AttentionProblem& p = f.p;
  AttentionArguments& a = p.arguments;
  f.want_lse = n.want_lse;
  std::vector<Code> codes;
  std::optional<Choice> of_blocks;
  const bool can_fail = p.table >= 0;
  if (p.in_blocks && !(of_blocks = decode_q8_0_choice(p, properties))) {
    codes.push_back(f.dequantize.emplace(device, p).code);
    p = p.dequantized();
  }
  Choice choice = of_blocks ? *of_blocks : choose(p, properties);
  const bool in_spans = choice.entry == &entries::attention_steps;
  const int64_t cluster = in_spans ? split_spans(a, choice.blocks(p), 1, properties)
                                   : split_keys(a, choice, p, properties);
  const int64_t blocks = choice.blocks(p) * a.splits;
  if (blocks >= kNarrowIndex || p.heads() * p.rows() >= kNarrowIndex)
    throw sdk::Refusal::shape("too many query rows for one launch");
  constexpr int64_t kManyRows = 64;
  const bool may_be_bulk = in_spans ? p.rows() >= kManyRows : choice.entry == &entries::attention;
  if (may_be_bulk && a.splits == 1 && AttentionBulk::takes(p, properties)) {
    codes.push_back(f.bulk.emplace(device, p).code());
  } else {
    choice.defines.push_back(define("SPLIT", choice.split_define(a)));
    if (choice.cluster > 1) choice.defines.push_back(define("CLUSTER", cluster));
    f.grid = {.blocks = blocks,
              .threads = choice.threads,
              .shared = static_cast<uint32_t>(choice.shared),
              .early = choice.early && properties.early_starts};
    codes.push_back(f.attention = device.code(*choice.entry, choice.defines, f.grid.shared));
  }
  f.merges = a.splits > cluster;
  if (f.merges) {
    f.merge = in_spans ? device.code(entries::attention_join, p.join_defines())
                       : device.code(entries::attention_merge, p.merge_defines());
    codes.push_back(f.merge);
  }
  sdk::Kernel kernel = kernel_of(codes, [f](const sdk::Call& c) { f.run(c); });
  if (f.dequantize) kernel.scratch = f.dequantize->key_bytes() + f.dequantize->value_bytes();
  if (a.splits > 1) kernel.scratch += in_spans ? bytes_of_spans(p) : bytes_of_splits(p);
  kernel.can_fail = can_fail;
  const double flops = 2.0 * static_cast<double>(p.heads() * p.rows()) *
                       static_cast<double>(a.k_len) * (a.dim + a.v_dim);
  kernel.cost = 5e-6 + flops / (p.mma ? 2e14 : p.sum == TENON_DTYPE_F64 ? 5e12 : 1e13);
  return kernel;
}

constexpr sdk::Row kTable[] = {
    sdk::row<sdk::op::attention, make_attention>(sdk::kBlocks),
    sdk::row<sdk::op::attention_backward, make_attention_backward>(),
    sdk::row<sdk::op::decode_attention, make_decode_attention>(sdk::kStrided),
};

}  // namespace

std::span<const sdk::Row> attention_rows() { return kTable; }

}  // namespace tenon::cuda
