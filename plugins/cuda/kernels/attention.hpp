// SPDX-License-Identifier: Apache-2.0
// An attention node (forward or backward) as kernels see it: arguments and defines.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

using args::AttentionStrides;
using AttentionArguments = args::Attention;

inline constexpr int64_t kMostSplits = 64;  // of the keys, among blocks of threads

struct AttentionProblem {
  tenon_dtype dtype{}, sum{};
  AttentionArguments arguments{};                                  // without pointers
  int q = 0, k = 0, v = 0, mask = -1, kv_len = -1, past_len = -1;  // positions, -1 = absent
  int table = -1;                                                  // of block_table
  uint64_t mask_alignment = 0;  // of numbers; 0: the mask has none
  int64_t padded_dim = 0, padded_v_dim = 0;
  bool mma = false;          // halves, on tensor cores
  bool wide = false;         // halves that may be loaded 16 bytes at a time
  bool wide_floats = false;  // the same for f32
  bool plain = false;        // scores are products times a positive scale, without mask or cap
  bool wgmma = false;        // the tensor cores of sm_90
  bool alike = false;        // is_batch_invariant()
  // Keys and values are blocks of q8_0, whose strides count bytes; `wide` is that of the queries.
  bool in_blocks = false;
  uint64_t block_alignment = 0;      // of k and v, in bytes
  std::vector<std::string> defines;  // those of attention.cuh

  int64_t heads() const { return int64_t{arguments.batch} * arguments.k_heads; }
  int64_t rows() const { return int64_t{arguments.q_len} * arguments.group; }
  // Those of kernels with mma or FMAs: also DP, VP and WIDE.
  std::vector<std::string> tile_defines() const;
  // Those of kernels with wgmma: also DP and VP with its padding, and PLAIN.
  std::vector<std::string> wgmma_defines() const;
  // Those of attention_merge.cu.
  std::vector<std::string> merge_defines() const;
  // Those of attention_join.cu.
  std::vector<std::string> join_defines() const;
  // Does it have the order of sums of attention_spans.cuh? Attention of halves over a cache has, where rows
  // must be alike.
  bool in_spans() const {
    constexpr int64_t kWidest = 128;
    return alike && wide && past_len >= 0 && kv_len >= 0 && mask < 0 && arguments.v_dim > 0 &&
           std::max(arguments.dim, arguments.v_dim) <= kWidest;
  }
  static int64_t wgmma_padded(int64_t dim) { return dim <= 64 ? 64 : 128; }
  int64_t wgmma_width() const {
    return wgmma_padded(arguments.dim) + wgmma_padded(arguments.v_dim);
  }
  // The same with keys and values as halves, in order: [batch, k_len, k_heads, dim].
  AttentionProblem dequantized() const;
  // The arguments with the addresses of the operands that both directions have.
  AttentionArguments with(const sdk::Call& call) const;
};

// Refuses what no kernel supports. Op: attention or attention_backward. more: operands that are
// read 16 bytes at a time if q, k and v are.
template <class Op>
AttentionProblem attention_problem(const Op& n, const sdk::Node& node,
                                   const std::vector<sdk::Value>& more);

// How one of the texts runs a problem.
struct AttentionChoice {
  const Entry<AttentionArguments>* entry = nullptr;
  std::vector<std::string> defines{};
  int64_t rows = 0;  // query rows of a block
  uint32_t threads = 128;
  int64_t shared = 0;         // bytes of a block
  bool early = false;         // the text waits for earlier kernels, so it may be launched early
  int64_t blocks_wanted = 0;  // on each multiprocessor; 0: the text cannot split the keys
  int64_t cluster = 1;        // blocks that could join their sums; 1: the text cannot
  bool in_turn = false;       // splits take tiles of keys in turn, not ranges
  int64_t tile = args::kSplitStep;  // keys of a tile
  int split_define(const AttentionArguments& a) const {
    return a.splits == 1 ? 0 : in_turn ? 2 : 1;
  }

  int64_t blocks(const AttentionProblem& p) const { return p.heads() * blocks_for(p.rows(), rows); }
};
// attention_decode.cu.
std::optional<AttentionChoice> decode_choice(const AttentionProblem& p, const Properties& device);
// Splits the keys among blocks, where query rows give too few of them. Returns how many blocks of a
// cluster join their sums: all splits, or 1, and then attention_merge.cu does.
int64_t split_keys(AttentionArguments& a, const AttentionChoice& choice, const AttentionProblem& p,
                   const Properties& device);
// Scratch memory for the sums of splits.
uint64_t bytes_of_splits(const AttentionProblem& p);

// The same of problems in_spans(): where `blocks` of threads are too few for the device, several share the
// keys of a row and take spans in turn. Returns how many blocks of a cluster of at most `cluster` join them.
int64_t split_spans(AttentionArguments& a, int64_t blocks, int64_t cluster,
                    const Properties& device);
uint64_t bytes_of_spans(const AttentionProblem& p);

sdk::Kernel make_decode_attention(const sdk::op::decode_attention& n, const sdk::Node& node);
sdk::Kernel make_attention_backward(const sdk::op::attention_backward& n, const sdk::Node& node);

}  // namespace tenon::cuda
