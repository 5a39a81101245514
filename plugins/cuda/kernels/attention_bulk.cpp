// SPDX-License-Identifier: Apache-2.0
// Host side of attention_bulk.cu and attention_steps_wgmma.cu: the shape of blocks, and descriptors for the copy engine.
#include "attention_bulk.hpp"

#include <algorithm>
#include <numeric>

#include "tensor_map.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kFar = int64_t{1} << 30;      // farther from a step than any key
constexpr int64_t kLongest = int64_t{1} << 29;  // sums of steps, keys and kFar fit in 32 bits

// A step may attend to keys from step + first to step + last.
struct Reach {
  int64_t first, last;
  explicit Reach(const AttentionArguments& a) {
    // Clamps sums, not terms: a far offset and a far window may cancel each other.
    constexpr int64_t kMost = int64_t{1} << 60;
    const int64_t offset = std::clamp(a.offset, -kMost, kMost);
    const int64_t left = std::min(a.left, kMost), right = a.causal ? 0 : std::min(a.right, kMost);
    first = left >= 0 ? std::clamp(offset - left, -kFar, kFar) : -kFar;
    last = right >= 0 ? std::clamp(offset + right + 1, -kFar, kFar) : kFar;
  }
};

// Keys behind those of the last query.
bool may_have_unseen_keys(const AttentionProblem& p) {
  const AttentionArguments& a = p.arguments;
  return p.kv_len >= 0 || p.past_len >= 0 || a.q_len - 1 + Reach(a).last < a.k_len;
}

// Numbers to add, one for each key of a batch, that may be read in pairs.
bool has_columns(const AttentionProblem& p) {
  const AttentionArguments& a = p.arguments;
  const auto& steps = a.mask_strides;
  return p.mask >= 0 && p.mask_alignment >= 4 && steps[1] == 0 && steps[2] == 0 && steps[3] == 1 &&
         steps[0] % 2 == 0 && a.k_len % 2 == 0 && a.softcap == 0;
}

}  // namespace

const AttentionBulk::Form& AttentionBulk::form_of(const AttentionProblem& p, int64_t processors) {
  static constexpr Form kWide{.groups = 2, .keys = 128, .stages = 2, .blocks = 1, .producer = 1},
      kNarrow{.groups = 2, .keys = 64, .stages = 4, .blocks = 2, .producer = 0},
      kFew{.groups = 1, .keys = 64, .stages = 4, .blocks = 2, .producer = 0};
  static constexpr Form kWideSpans{
      .groups = 2, .keys = 64, .stages = 3, .blocks = 1, .producer = 1},
      kNarrowSpans{.groups = 2, .keys = 64, .stages = 4, .blocks = 1, .producer = 1};
  if (p.in_spans()) return p.wgmma_width() > 192 ? kWideSpans : kNarrowSpans;
  if (p.wgmma_width() > 128) return kWide;
  const bool few =
      kFew.rows(p) > 0 && p.heads() * blocks_for(p.rows(), kNarrow.rows(p)) <= processors;
  return few ? kFew : kNarrow;
}

int64_t AttentionBulk::Form::shared(const AttentionProblem& p) const {
  constexpr int64_t kBarrier = 8, kHead = 8, kBarriers = 256;  // kBarrierBytes
  const int64_t dim = p.wgmma_padded(p.arguments.dim), v_dim = p.wgmma_padded(p.arguments.v_dim);
  const int64_t tiles = 2 * (groups * 64 * dim + stages * keys * (dim + v_dim));
  if (p.in_spans()) return tiles + kBarriers + groups * 64 * v_dim * 4;  // sums of earlier spans
  return tiles + (1 + 4 * stages) * kBarrier + kHead;
}

int64_t AttentionBulk::Form::piece(const AttentionProblem& p) const {
  return p.table < 0 ? keys : std::gcd<int64_t>(keys, p.arguments.by_block.value);
}

bool AttentionBulk::takes(const AttentionProblem& p, const Properties& device) {
  const AttentionArguments& a = p.arguments;
  if (!p.wgmma || p.heads() < 1 || a.q_len < 1 || a.k_len < 1 || a.dim < 1 || a.v_dim < 1)
    return false;
  if (a.q_len >= kLongest || a.k_len >= kLongest) return false;
  const Form& form = form_of(p, device.multiprocessors);
  constexpr int64_t kFewest = 16;  // smaller copies take longer than those of threads
  return form.rows(p) > 0 && form.shared(p) <= device.shared_per_block && form.piece(p) >= kFewest;
}

AttentionBulk::AttentionBulk(CudaDevice& device, const AttentionProblem& p)
    : form_(form_of(p, device.properties().multiprocessors)), dtype_(p.dtype) {
  const AttentionArguments& a = p.arguments;
  rows_ = static_cast<int32_t>(form_.rows(p)), piece_ = form_.piece(p);
  grid_.blocks = p.heads() * blocks_for(p.rows(), rows_);
  grid_.threads = static_cast<uint32_t>((form_.groups + form_.producer) * 128);
  grid_.shared = static_cast<uint32_t>(form_.shared(p));
  grid_.early = device.properties().early_starts;
  AttentionProblem shown = p;
  shown.plain = p.plain && !p.in_spans();
  std::vector<std::string> defines = shown.wgmma_defines();
  defines.insert(defines.end(), {define("GROUPS", form_.groups), define("KEYS", form_.keys),
                                 define("STAGES", form_.stages), define("BLOCKS", form_.blocks),
                                 define("PRODUCER", form_.producer)});
  if (p.table >= 0) defines.push_back(define("PIECE", form_.piece(p)));
  if (p.in_spans()) {
    code_ = device.code(entries::attention_steps_wgmma, defines, grid_.shared);
  } else {
    defines.push_back(define("UNSEEN", may_have_unseen_keys(p) ? 1 : 0));
    if (has_columns(p)) defines.emplace_back("COLUMNS=1");
    code_ = device.code(entries::attention_bulk, defines, grid_.shared);
  }
  const auto l2 = static_cast<int64_t>(device.properties().l2_bytes);
  const int64_t bytes = int64_t{a.k_len} * (a.dim + a.v_dim) * 2;
  const int64_t rounds = blocks_for(p.heads(), std::max<int64_t>(l2 * 2 / 5 / bytes, 1));
  heads_at_once_ = static_cast<int32_t>(blocks_for(p.heads(), rounds));
  const Reach reach(a);
  first_ = static_cast<int32_t>(reach.first), last_ = static_cast<int32_t>(reach.last);
}

void AttentionBulk::run(const sdk::Call& call, const AttentionArguments& a) const {
  const auto keys = [&](const void* tensor, int64_t dim, const AttentionStrides& s) {
    const bool pool = a.block_table != nullptr;
    return tensor_map<4>(
        tensor, dtype_,
        {dim, pool ? int64_t{a.by_block.value} : a.k_len, a.k_heads, pool ? a.pool : a.batch},
        {s.step, s.head, s.batch}, {64, piece_, 1, 1});
  };
  args::AttentionWork work{};
  // Successive rows are the heads of a group at one step (attention.cuh).
  work.q = tensor_map<5>(
      a.q, dtype_, {a.dim, a.group, a.q_len, a.k_heads, a.batch},
      {a.q_strides.head, a.q_strides.step, a.q_strides.head * a.group, a.q_strides.batch},
      {64, a.group, rows_ / a.group, 1, 1});
  work.k = keys(a.k, a.dim, a.k_strides);
  work.v = keys(a.v, a.v_dim, a.v_strides);
  work.rows = rows_, work.heads_at_once = heads_at_once_, work.first = first_, work.last = last_;
  code_.launch(call, grid_, a, work);
}

}  // namespace tenon::cuda
