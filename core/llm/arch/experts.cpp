// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: the router, the products of the chosen experts, and their weighted sum.
#include <cstring>

#include "llm/arch/step.hpp"

namespace tenon::llm {
namespace {

// The matrices of all experts as one weight [experts, rows, columns].
Value stacked(Step& p, const ExpertNames& names, const std::string& which, int64_t rows,
              int64_t columns) {
  const int64_t count = p.c.moe.experts;
  const std::string joined = names.experts + "." + which;
  // GGUF files have them joined.
  if (p.weights.has(joined + ".weight"))
    return p.weight(joined + ".weight", {count, rows, columns});
  std::vector<std::string> sources;
  for (int64_t e = 0; e < count; ++e)
    sources.push_back(names.experts + "." + std::to_string(e) + "." + which + ".weight");
  const auto join = [count, rows, columns](const std::vector<Tensor>& parts) {
    Tensor all(TensorType(parts[0].dtype(), {count, rows, columns}));
    auto* to = static_cast<std::byte*>(all.data());
    for (const Tensor& t : parts) {
      std::memcpy(to, t.data(), t.size());
      to += t.size();
    }
    return all;
  };
  return p.made(joined, sources, {rows, columns}, TENON_DTYPE_NONE, {count, rows, columns}, join,
                true);
}

// gate * sigmoid(alpha * gate) * (1 + up) within limits.
Value limited(Step& p, Value gate, Value up, const std::string& name) {
  const MoeConfig& m = p.c.moe;
  const auto number = [&](double v) {
    return p.cast(p.g.constant<float>({}, {static_cast<float>(v)}), p.g.dtype(gate));
  };
  const Value a = p.binary("min", gate, number(m.gate_limit));
  const Value b = p.clipped(up, m.gate_limit);
  const Value c = p.g.add(op::unary{.kind = "silu", .alpha = m.gate_alpha, .x = a}, name);
  return p.binary("mul", c, p.binary("add", b, number(1)));
}

// What is added to the scores for the choice.
Value correction(Step& p, const ExpertNames& names) {
  const int64_t count = p.c.moe.experts;
  if (!names.correction_is_row) return p.wide(names.correction, {count});
  const std::string flat = names.correction + ".flat";  // files of GGUF
  if (p.weights.has(flat)) return p.wide(flat, {count});
  return p.reshape(p.wide(names.correction, {1, count}), {count});
}

}  // namespace

Value router_logits(Step& p, Value x, const ExpertNames& names) {
  const ModelConfig& c = p.c;
  const MoeConfig& m = c.moe;
  const Value flat = p.reshape(x, {p.s.batch * p.s.time, c.dim});
  // The router computes in f32, and its weights are not rounded: its choice must not depend on
  // that.
  const Value router = p.weight(names.router + ".weight", {m.experts, c.dim});
  Value logits = p.multiply(p.g.dtype(router) == f32 ? p.cast(flat, f32) : flat, router,
                            names.router, true, {}, {}, true);
  if (m.biases) logits = p.binary("add", logits, p.wide(names.router + ".bias", {m.experts}));
  if (m.score_cap > 0)
    logits = p.scaled(p.g.add(op::unary{.kind = "tanh", .x = p.scaled(logits, 1 / m.score_cap)}),
                      m.score_cap);
  return logits;
}

Routes choose_experts(Step& p, Value x, const ExpertNames& names) {
  const MoeConfig& m = p.c.moe;
  const int64_t chosen = p.s.batch * p.s.time * m.per_token;
  const Value logits = router_logits(p, x, names);
  const Value bias = m.correction_bias ? correction(p, names) : Value{};
  const auto routes = p.g.add(op::group_limited_gate{.n_group = m.groups,
                                                     .topk_group = m.groups_per_token,
                                                     .top_k = m.per_token,
                                                     .routed_scaling = m.scaling,
                                                     .score = m.score,
                                                     .normalize = m.normalize,
                                                     .group_score = m.group_score,
                                                     .logits = logits,
                                                     .bias = bias},
                              names.router + ".choice");
  const Value ids = p.reshape(routes[0], {chosen});
  // The op leaves a single weight as it is; models divide it by itself.
  const Value weight =
      m.normalize && m.per_token == 1
          ? p.g.constant<float>({chosen}, std::vector<float>(static_cast<size_t>(chosen),
                                                             static_cast<float>(m.scaling)))
          : p.reshape(routes[1], {chosen});
  return {ids, weight};
}

Value weighted_experts(Step& p, Value x, const ExpertNames& names, const Routes& routes,
                       Value residual) {
  const ModelConfig& c = p.c;
  const MoeConfig& m = c.moe;
  const int64_t rows = p.s.batch * p.s.time, chosen = rows * m.per_token;
  const Value flat = p.reshape(x, {rows, c.dim}), ids = routes.ids, weight = routes.weights;
  // Each token once for each of its experts.
  Value repeated = p.reshape(p.g.add(op::expand{.shape = {rows, m.per_token, c.dim},
                                                .x = p.reshape(flat, {rows, 1, c.dim})}),
                             {chosen, c.dim});
  if (m.weigh_inputs)
    repeated = p.binary("mul", repeated, p.cast(p.reshape(weight, {chosen, 1}), p.s.compute));
  const Value last_weight = m.weigh_inputs ? Value{} : weight;
  const auto plain = [&](Value a, const std::string& which, int64_t out, int64_t in, Value by) {
    const Value w = stacked(p, names, which, out, in);
    if (in_blocks(p.g.dtype(w)))
      return Value(p.g.add(op::grouped_dequant_matmul{.compute = p.s.block_product,
                                                      .x = p.cast(a, p.s.compute),
                                                      .w = w,
                                                      .ids = ids,
                                                      .p = by},
                           names.experts + "." + which));
    // Grouped products take one dtype.
    const Value y = p.g.add(
        op::grouped_matmul{
            .trans_w = true, .x = p.cast(a, p.g.dtype(w)), .w = w, .ids = ids, .p = by},
        names.experts + "." + which);
    return p.cast(y, p.s.compute);
  };
  const auto product = [&](Value a, const std::string& which, int64_t out, int64_t in, Value by) {
    const Value y = plain(a, which, out, in, by);
    const std::string module = names.experts + ".#." + which;
    const Step::Factors f = p.factors(module, in, out, m.experts);
    if (!f.a) return y;
    const auto grouped = [&](Value from, Value w, Value scale) {
      return p.g.add(
          op::grouped_matmul{
              .trans_w = true, .x = from, .w = p.cast(w, p.g.dtype(from)), .ids = ids, .p = scale},
          module + ".lora");
    };
    const Value u = grouped(p.dropped(p.cast(a, p.s.compute)), f.a, {});
    return p.binary("add", y, grouped(p.scaled(u, f.scale), f.b, by));
  };
  const auto biased = [&](Value y, const std::string& which, int64_t out, Value by) {
    if (!m.biases) return y;
    const Value all = p.parameter(names.experts + "." + which + ".bias", {m.experts, out});
    Value mine = p.g.add(op::gather{.data = all, .indices = ids});
    if (by) mine = p.binary("mul", mine, p.cast(p.reshape(by, {chosen, 1}), p.s.compute));
    return p.binary("add", y, mine);
  };
  const auto without_weight = [&](const std::string& which) {
    return biased(product(repeated, which, m.ffn, c.dim, {}), which, m.ffn, {});
  };
  const Value gate = names.gate.empty() ? Value{} : without_weight(names.gate),
              up = without_weight(names.up);
  const std::string act = names.experts + ".act";
  const Value inner = !gate              ? p.activated(up, c.activation, act)
                      : m.gate_limit > 0 ? limited(p, gate, up, act)
                                         : p.gated(gate, up, c.activation, act);
  const Value y =
      biased(product(inner, names.down, c.dim, m.ffn, last_weight), names.down, c.dim, last_weight);
  const Value sum =
      p.g.add(op::reduce{.kind = "sum", .axes = {1}, .x = p.reshape(y, {rows, m.per_token, c.dim})},
              names.experts + ".sum");
  const Value all = p.reshape(sum, {p.s.batch, p.s.time, c.dim});
  return residual ? p.binary("add", residual, all) : all;
}

Value experts(Step& p, Value x, const ExpertNames& names, Value residual) {
  return weighted_experts(p, x, names, choose_experts(p, x, names), residual);
}

}  // namespace tenon::llm
