// SPDX-License-Identifier: Apache-2.0
// What the files of the delta_rule family share: the operands of both ops, and the kernels that go
// token by token.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {

// How a block keeps columns of a state in registers.
struct DeltaForm {
  static constexpr int64_t kMostRows = 16, kMostLanes = 32, kOwn = 2;  // kOwn: columns of a thread
  int64_t rows = 1, lanes = 1, threads = 128, steps = 16;
  bool by_key = false;

  explicit DeltaForm(int64_t keys) {
    while (rows < std::min<int64_t>(keys, 4)) rows *= 2;
    while (lanes < 8 && rows * lanes < keys) lanes *= 2;
    while (rows < kMostRows && rows * lanes < keys) rows *= 2;
    while (lanes < kMostLanes && rows * lanes < keys) lanes *= 2;
  }
  int64_t keys() const { return rows * lanes; }
  int64_t columns() const { return threads / lanes * kOwn; }
  int64_t token_bytes() const {
    return steps * (keys() * 2 + (by_key ? keys() : 1) + columns() + 1) * 4;
  }
  int64_t backward_bytes() const {
    const int64_t warps = threads / 32, sums = by_key ? 3 : 2;
    return token_bytes() + steps * columns() * 4 + 2 * warps * (sums * keys() + 2) * 4 + 16;
  }
  std::vector<std::string> defines(tenon_dtype dtype) const {
    return {"TYPE=" + type_name("q", dtype), define("BYKEY", by_key),
            define("LANES", lanes),          define("ROWS", rows),
            define("COLUMNS", kOwn),         define("THREADS", threads),
            define("STEPS", steps)};
  }
};

// The operands that both ops have.
struct DeltaProblem {
  tenon_dtype dtype;
  int64_t batch;
  args::DeltaRule s{};
  int q, k, v, g, beta, state, ends;

  template <class Op>
  explicit DeltaProblem(const Op& n)
      : dtype(n.q.type().dtype),
        batch(n.q.type().dims[0]),
        q(n.q.position()),
        k(n.k.position()),
        v(n.v.position()),
        g(n.g.position()),
        beta(n.beta.position()),
        state(n.state.position()),
        ends(n.cu_seqlens.position()) {
    const sdk::Type &key = n.q.type(), &value = n.v.type();
    if (!is_float(dtype) || dtype == TENON_DTYPE_F64) throw sdk::Refusal::dtype("q", dtype);
    const int64_t sequences = n.cu_seqlens ? n.cu_seqlens.type().dims[0] - 1 : batch;
    if (key.dims[3] > DeltaForm::kMostRows * DeltaForm::kMostLanes)
      throw sdk::Refusal::shape("keys of more than 512 elements");
    for (const int64_t size : {value.dims[2], value.dims[3], sequences})
      if (size >= kNarrowIndex / 4)
        throw sdk::Refusal::shape("a head, a value or a batch is too large");
    s.tokens = key.dims[1];
    s.heads = static_cast<int32_t>(key.dims[2]);
    s.each = static_cast<int32_t>(s.heads ? value.dims[2] / s.heads : 0);
    s.keys = static_cast<int32_t>(key.dims[3]), s.values = static_cast<int32_t>(value.dims[3]);
    s.sequences = static_cast<int32_t>(sequences);
    s.scale = static_cast<float>(std::isnan(n.scale) ? 1 / std::sqrt(static_cast<double>(s.keys))
                                                     : n.scale);
    s.unit = n.qk_l2norm;
    s.wide = n.cu_seqlens && n.cu_seqlens.type().dtype == TENON_DTYPE_I64;
  }

  int64_t value_heads() const { return int64_t{s.heads} * s.each; }
  int64_t rows() const { return batch * s.tokens * value_heads(); }
  int64_t state_size() const { return int64_t{s.keys} * s.values; }
  int64_t tiles(const DeltaForm& f) const { return blocks_for(s.values, f.columns()); }
  Grid grid(const DeltaForm& f, int64_t shared) const {
    return {.blocks = launchable(s.sequences * value_heads() * tiles(f)),
            .threads = static_cast<uint32_t>(f.threads),
            .shared = static_cast<uint32_t>(shared)};
  }
  args::DeltaRule at(const sdk::Call& call, const DeltaForm& f) const {
    args::DeltaRule to = s;
    to.q = call.in(q), to.k = call.in(k), to.v = call.in(v), to.beta = call.in(beta);
    to.ends = call.in(ends), to.g = call.in<float>(g), to.state = call.in<float>(state);
    to.tiles = static_cast<int32_t>(tiles(f));
    return to;
  }
};

DeltaForm delta_form(const DeltaProblem& p, bool by_key);

// The gradient, token by token. Its areas of scratch are added to `scratch`.
class DeltaTokenGradients {
 public:
  DeltaTokenGradients(const DeltaProblem& p, const sdk::op::gated_delta_rule_backward& n,
                      const sdk::Node& node, uint64_t& scratch);
  std::vector<Code> codes() const;
  // All heads.
  void launch(const sdk::Call& call) const;
  // The heads of sequences that odd_heads marks; cu_seqlens are absent.
  void launch_odd(const sdk::Call& call, const int32_t* odd_heads) const;
  // dq or dk of all key heads but the odd ones, from sums over the columns of each token.
  void give_keys(const sdk::Call& call, const args::DeltaRule& own, const void* x,
                 const float* from, void* to, float scale) const;
  // Operands and results, without dq_sums and dk_sums.
  args::DeltaChunkGradients results(const sdk::Call& call) const;
  void* dv(const sdk::Call& call) const { return call.out(out_[kDv]); }

 private:
  enum Output { kDq, kDk, kDv, kDg, kDbeta, kDstate, kOutputs };
  args::DeltaRuleGradients walk(const sdk::Call& call, const args::DeltaRule& own,
                                const int32_t* odd_heads) const;

  DeltaProblem p_;
  DeltaForm first_, form_;
  bool by_key_;
  std::array<int, kOutputs> out_{};
  int dout_, dstate_out_;
  CodeFor<entries::delta_rule_check> check_;
  CodeFor<entries::delta_rule_states> states_;
  CodeFor<entries::delta_rule_backward> backward_;
  CodeFor<entries::delta_rule_give_rows> give_rows_;
  CodeFor<entries::delta_rule_give_decays> give_decays_;
  CodeFor<entries::delta_rule_give_keys> give_keys_;
  CodeFor<entries::delta_rule_give_odd> give_odd_;
  uint64_t saved_, rest_, area_, dq_, dk_, dg_, dbeta_;
};

// By chunks of tokens (delta_rule_chunks.cpp); nullopt where chunks do not fit.
std::optional<sdk::Kernel> delta_by_chunks(const DeltaProblem& p,
                                           const sdk::op::gated_delta_rule& n,
                                           const sdk::Node& node);
std::optional<sdk::Kernel> delta_gradients_by_chunks(const DeltaProblem& p,
                                                     const sdk::op::gated_delta_rule_backward& n,
                                                     const sdk::Node& node);

}  // namespace tenon::cuda
