// SPDX-License-Identifier: Apache-2.0
// The nodes of low-rank changes.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Step::Factors Step::factors(const std::string& module, int64_t in, int64_t out, int64_t experts) {
  if (!s.lora) return {};
  const LowRank change = s.lora->of(module, in, out, experts);
  if (change.rank == 0) return {};
  const auto of = [&](const std::string& name, std::vector<int64_t> dims) {
    if (experts > 0) dims.insert(dims.begin(), experts);
    const auto [at, is_new] = weights_.try_emplace(name);
    if (is_new) at->second = g.weight(name, {f32, dims}, s.lora->trainable);
    return at->second;
  };
  return {of(lora_a_name(module), {change.rank, in}), of(lora_b_name(module), {out, change.rank}),
          change.scale};
}

Value Step::dropped(Value x) {
  if (!rng_) return x;
  // Each dropout has random numbers of its own: seed, and a number that counts them.
  const Value rng = binary("add", rng_, constant({0, dropouts_++}));
  return g.add(op::dropout{.p = s.lora->dropout, .x = x, .rng = rng});
}

Value Step::changed(Value y, Value x, const std::string& module, int64_t in, int64_t out) {
  const Factors f = factors(module, in, out);
  if (!f.a) return y;
  const auto times = [&](Value from, Value w, const char* which) {
    return Value(
        g.add(op::matmul{.trans_b = true, .a = from, .b = cast(w, g.dtype(from))}, module + which));
  };
  const Value u = scaled(times(dropped(x), f.a, ".lora_A"), f.scale);
  return binary("add", y, cast(times(u, f.b, ".lora_B"), g.dtype(y)));
}

}  // namespace tenon::llm
