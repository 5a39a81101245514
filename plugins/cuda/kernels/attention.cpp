// SPDX-License-Identifier: Apache-2.0
// attention: 64 query rows to a block. Where that gives too few blocks (decoding), the keys are
// split as well, and a second kernel joins the parts.
#include "attention.hpp"

#include <algorithm>

#include "../kernels.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kRows = 64, kKeys = 64;  // of a block (attention.cu)
constexpr int64_t kMostSplits = 64, kFewestKeys = 256;

uint32_t shared_bytes(const AttentionProblem& p) {
  if (p.mma) return static_cast<uint32_t>(64 * 2 * (2 * (p.padded_dim + 8) + p.padded_v_dim + 8));
  const int64_t most = std::max(p.padded_dim, p.padded_v_dim);
  return static_cast<uint32_t>(64 * type_bytes(p.sum) * (p.padded_dim + 1 + most + 1 + kKeys + 1));
}

struct Forward {
  AttentionProblem p;
  Code attention, merge;
  int64_t blocks = 0;
  uint32_t shared = 0;
  bool want_lse = false;

  void run(const sdk::Call& c) const {
    AttentionArguments a = p.with(c);
    a.o = c.outputs[0], a.lse = want_lse ? c.outputs[1] : nullptr, a.parts = c.scratch;
    attention.launch(
        c, {.blocks = blocks, .threads = p.mma ? uint32_t{128} : uint32_t{256}, .shared = shared},
        a);
    if (a.splits > 1) merge.launch(c, {.blocks = p.heads() * p.rows(), .threads = 128}, a);
  }
};

sdk::Kernel make_attention(const sdk::op::attention& n, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  Forward f;
  f.p = attention_problem(n, device, {});
  AttentionProblem& p = f.p;
  AttentionArguments& a = p.arguments;
  f.want_lse = n.want_lse;
  f.shared = shared_bytes(p);
  if (f.shared > device.properties().shared_per_block)
    throw sdk::Refusal::shape("heads of " + std::to_string(a.dim) + " and " +
                              std::to_string(a.v_dim) + " elements do not fit on chip");
  const int64_t tiles = p.heads() * blocks_for(p.rows(), kRows);
  const int64_t wanted = 2 * int64_t{device.properties().multiprocessors};
  if (tiles > 0 && tiles * 2 <= wanted && a.k_len >= 2 * kFewestKeys) {
    const int64_t splits =
        std::clamp<int64_t>(wanted / tiles, 1, std::min(kMostSplits, a.k_len / kFewestKeys));
    a.split_keys = static_cast<int32_t>(blocks_for(blocks_for(a.k_len, splits), kKeys) * kKeys);
    a.splits = static_cast<int32_t>(blocks_for(a.k_len, a.split_keys));
  }
  f.blocks = tiles * a.splits;
  if (f.blocks >= kNarrowIndex || p.heads() * p.rows() >= kNarrowIndex)
    throw sdk::Refusal::shape("too many query rows for one launch");
  std::vector<std::string> defines = p.defines;
  defines.emplace_back(a.splits > 1 ? "SPLIT=1" : "SPLIT=0");
  f.attention = device.code("attention.cu", "attention", defines, f.shared);
  std::vector<Code> codes = {f.attention};
  if (a.splits > 1) codes.push_back(f.merge = device.code("attention.cu", "merge", defines));
  sdk::Kernel kernel = kernel_of(codes, [f](const sdk::Call& c) { f.run(c); });
  if (a.splits > 1)
    kernel.scratch =
        static_cast<uint64_t>(a.splits * p.heads() * p.rows() * (a.v_dim + 2) * type_bytes(p.sum));
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
