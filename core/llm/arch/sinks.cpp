// SPDX-License-Identifier: Apache-2.0
// Attention with sinks. The weights of a query sum to e^lse / (e^lse + e^sink) instead of 1, where
// lse is the logarithm of the sum of e^score over the keys.
#include "llm/arch/step.hpp"

namespace tenon::llm {

Value Step::attend_with_sinks(Value q, Value keys, Value values, Value sinks,
                              const Attention& options, const std::string& name) {
  op::attention a = attention_of(q, keys, values, options);
  a.want_lse = true;
  const auto both = g.add(a, name);
  const int64_t heads = g.type(sinks).dims[0];
  const Value over = binary("sub", cast(both[1], f32), reshape(sinks, {heads, 1}));
  const Value share = g.add(op::unary{.kind = "sigmoid", .x = over}, name + ".share");
  const Value of_heads =
      reshape(g.add(op::transpose{.perm = {0, 2, 1}, .x = share}), {s.batch, s.time, heads, 1});
  return cast(binary("mul", cast(both[0], f32), of_heads), s.compute);
}

}  // namespace tenon::llm
