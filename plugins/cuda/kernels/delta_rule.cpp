// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule gated_delta_rule_backward, token by token: a block keeps some columns of the state
// of a value head in registers; columns are independent. delta_rule_chunks.cpp has chunks of tokens.
#include "delta_rule.hpp"

#include "../kernels.hpp"

namespace tenon::cuda {

DeltaForm delta_form(const DeltaProblem& p, bool by_key) {
  DeltaForm f(p.s.keys);
  f.by_key = by_key;
  constexpr int64_t kFew = 48 << 10;
  while (f.steps > 4 && f.token_bytes() > kFew) f.steps /= 2;
  return f;
}

namespace {

constexpr int64_t kChunk = 64, kPart = 8;  // of device/delta_rule.cuh

DeltaForm backward_form(const DeltaProblem& p, bool by_key) {
  DeltaForm form = delta_form(p, by_key);
  constexpr int64_t kSmall = 60 << 10;  // fits the smallest devices
  form.steps = kPart, form.threads = 512;
  while (form.threads > 64 && (form.backward_bytes() > kSmall || form.columns() / 2 >= p.s.values))
    form.threads /= 2;
  return form;
}
void want_room(int64_t bytes, uint32_t room) {
  if (bytes > int64_t{room}) throw sdk::Refusal::shape("keys that do not fit shared memory");
}

}  // namespace

DeltaTokenGradients::DeltaTokenGradients(const DeltaProblem& p,
                                         const sdk::op::gated_delta_rule_backward& n,
                                         const sdk::Node& node, uint64_t& scratch)
    : p_(p),
      first_(delta_form(p, n.g.type().rank == 4)),
      form_(backward_form(p, n.g.type().rank == 4)),
      by_key_(n.g.type().rank == 4),
      dout_(n.dout.position()),
      dstate_out_(n.dstate_out.position()) {
  for (int k = 0; k < kOutputs; ++k) out_[static_cast<size_t>(k)] = node.out(k).position();
  CudaDevice& device = device_of(node);
  const int64_t shared = form_.backward_bytes(), first_shared = first_.token_bytes();
  want_room(shared, device.properties().shared_room("delta_rule_backward.cu", "backward"));
  want_room(first_shared, device.properties().shared_room("delta_rule.cu", "states"));
  const auto first = first_.defines(p.dtype), defines = form_.defines(p.dtype);
  check_ = device.code(entries::delta_rule_check, first);
  states_ = device.code(entries::delta_rule_states, first, static_cast<uint32_t>(first_shared));
  backward_ = device.code(entries::delta_rule_backward, defines, static_cast<uint32_t>(shared));
  give_rows_ = device.code(entries::delta_rule_give_rows, defines);
  give_decays_ = device.code(entries::delta_rule_give_decays, defines);
  give_keys_ = device.code(entries::delta_rule_give_keys, defines);
  give_odd_ = device.code(entries::delta_rule_give_odd, defines);

  const args::DeltaRule& s = p.s;
  const int64_t rows = p.rows(), tiles = p.tiles(form_), decays = by_key_ ? s.keys : 1;
  // Sequences begin anywhere in the tokens, so each may have one chunk that is not full.
  const int64_t chunks = p.batch * s.tokens / kChunk + s.sequences + 1;
  const auto floats = [&](int64_t count) {
    return take_scratch(scratch, static_cast<uint64_t>(count) * 4);
  };
  saved_ = floats(chunks * p.value_heads() * p.state_size());
  rest_ = floats(rows * s.values);
  area_ = floats(s.sequences * p.value_heads() * p.state_size() * (kChunk / kPart));
  dq_ = floats(tiles * rows * s.keys), dk_ = floats(tiles * rows * s.keys);
  dg_ = floats(tiles * rows * decays), dbeta_ = floats(tiles * rows);
}

std::vector<Code> DeltaTokenGradients::codes() const {
  return {check_, states_, backward_, give_rows_, give_decays_, give_keys_, give_odd_};
}

args::DeltaChunkGradients DeltaTokenGradients::results(const sdk::Call& call) const {
  const auto to = [&](Output k) { return call.out(out_[k]); };
  return {.dout = call.in(dout_),
          .dstate_out = call.in<float>(dstate_out_),
          .dq = to(kDq),
          .dk = to(kDk),
          .dv = to(kDv),
          .dbeta = to(kDbeta),
          .dg = static_cast<float*>(to(kDg)),
          .dstate = static_cast<float*>(to(kDstate)),
          .dq_sums = nullptr,
          .dk_sums = nullptr};
}

args::DeltaRuleGradients DeltaTokenGradients::walk(const sdk::Call& call,
                                                   const args::DeltaRule& own,
                                                   const int32_t* odd_heads) const {
  const args::DeltaChunkGradients to = results(call);
  const args::DeltaRuleSaved kept{scratch_at<float>(call, saved_), scratch_at<float>(call, rest_)};
  args::DeltaRule before = p_.at(call, first_);
  before.odd_heads = odd_heads;
  if (p_.rows() > 0) states_.launch(call, p_.grid(first_, first_.token_bytes()), before, kept);
  const args::DeltaRuleGradients g{.dout = to.dout,
                                   .dstate_out = to.dstate_out,
                                   .area = scratch_at<float>(call, area_),
                                   .dq = scratch_at<float>(call, dq_),
                                   .dk = scratch_at<float>(call, dk_),
                                   .dg = scratch_at<float>(call, dg_),
                                   .dbeta = scratch_at<float>(call, dbeta_),
                                   .dstate = to.dstate,
                                   .dv = to.dv,
                                   .rows = p_.rows()};
  backward_.launch(call, p_.grid(form_, form_.backward_bytes()), own, kept, g);
  return g;
}

void DeltaTokenGradients::give_keys(const sdk::Call& call, const args::DeltaRule& own,
                                    const void* x, const float* from, void* to, float scale) const {
  const int64_t keys = p_.batch * own.tokens * own.heads;
  if (to)
    give_keys_.launch(call, {.blocks = blocks_for(keys, 4), .threads = 128}, own, x, from, to, keys,
                      scale);
}

void DeltaTokenGradients::launch(const sdk::Call& call) const {
  const args::DeltaRule own = p_.at(call, form_);
  if (own.ends) check_.launch(call, {.blocks = 1}, own, error_sink(call));
  const args::DeltaRuleGradients g = walk(call, own, nullptr);
  const args::DeltaChunkGradients to = results(call);
  const int64_t rows = p_.rows(), tiles = own.tiles, decays = rows * (by_key_ ? own.keys : 1);
  const auto sums = [](const float* x) { return x; };
  give_keys(call, own, own.q, sums(g.dq), to.dq, own.scale);
  give_keys(call, own, own.k, sums(g.dk), to.dk, 1.f);
  if (to.dbeta)
    give_rows_.launch(call, {.blocks = blocks_for(rows, 256)}, sums(g.dbeta), to.dbeta, rows,
                      tiles);
  if (to.dg)
    give_decays_.launch(call, {.blocks = blocks_for(decays, 256)}, sums(g.dg), to.dg, decays,
                        tiles);
}

void DeltaTokenGradients::launch_odd(const sdk::Call& call, const int32_t* odd_heads) const {
  args::DeltaRule own = p_.at(call, form_);
  own.odd_heads = odd_heads;
  const args::DeltaRuleGradients g = walk(call, own, odd_heads);
  const int64_t blocks = int64_t{own.sequences} * own.heads * args::kOddBlocks;
  give_odd_.launch(call, {.blocks = launchable(blocks), .threads = 128}, own, g, results(call));
}

namespace {

sdk::Kernel make_delta(const sdk::op::gated_delta_rule& n, const sdk::Node& node) {
  const DeltaProblem p(n);
  if (auto kernel = delta_by_chunks(p, n, node)) return *std::move(kernel);
  CudaDevice& device = device_of(node);
  const DeltaForm form = delta_form(p, n.g.type().rank == 4);
  const int64_t shared = form.token_bytes();
  want_room(shared, device.properties().shared_room("delta_rule.cu", "forward"));
  const auto defines = form.defines(p.dtype);
  const auto check = device.code(entries::delta_rule_check, defines);
  const auto forward =
      device.code(entries::delta_rule_forward, defines, static_cast<uint32_t>(shared));
  const Grid grid = p.grid(form, shared);
  sdk::Kernel kernel =
      kernel_of({check, forward}, [=, last = node.out(1).position()](const sdk::Call& c) {
        const args::DeltaRule own = p.at(c, form);
        if (own.ends) check.launch(c, {.blocks = 1}, own, error_sink(c));
        forward.launch(c, grid, own, c.outputs[0], c.out<float>(last));
      });
  kernel.can_fail = p.ends >= 0;
  return kernel;
}

sdk::Kernel make_delta_backward(const sdk::op::gated_delta_rule_backward& n,
                                const sdk::Node& node) {
  const DeltaProblem p(n);
  if (auto kernel = delta_gradients_by_chunks(p, n, node)) return *std::move(kernel);
  uint64_t scratch = 0;
  const DeltaTokenGradients tokens(p, n, node, scratch);
  sdk::Kernel kernel =
      kernel_of(tokens.codes(), [tokens](const sdk::Call& c) { tokens.launch(c); });
  kernel.scratch = scratch;
  kernel.can_fail = p.ends >= 0;
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gated_delta_rule, make_delta>(),
    sdk::row<sdk::op::gated_delta_rule_backward, make_delta_backward>(),
};

}  // namespace

std::span<const sdk::Row> delta_rule_rows() { return kRows; }

}  // namespace tenon::cuda
