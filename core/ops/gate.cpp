// SPDX-License-Identifier: Apache-2.0
// Records of the gate family: group_limited_gate group_limited_gate_backward. They choose the experts
// of each token and their weights.
#include "ops/padded.hpp"
#include "ops/table.hpp"

namespace tenon::core {
namespace {

constexpr std::string_view kScores = "sigmoid softmax identity";
constexpr double kLeastTotal = 1e-20;  // added to what weights are divided by

// ---- shape

void gate_shape(Infer& i, const op::group_limited_gate& n) {
  i.want_float(n.logits, "logits");
  i.want_rank(n.logits, "logits", 2);
  const Shape logits = i.shape(n.logits);
  const DType wide = acc_dtype(i.dtype(n.logits));
  if (n.bias) i.want_dtype(n.bias, "bias", wide), i.want_shape(n.bias, "bias", {logits[1]});
  if (n.n_group < 1 || logits[1] % n.n_group != 0)
    i.fail(Code::invalid_argument,
           "attribute n_group: expected a divisor of the number of experts, ", logits[1],
           ", given ", n.n_group);
  const int64_t size = logits[1] / n.n_group;
  if (n.group_score == "top2_sum" && size < 2)
    i.fail(Code::invalid_argument,
           "attribute group_score: top2_sum expects groups of at least 2 experts, got ", size);
  if (size < 1)
    i.fail(Code::invalid_argument, "operand logits: expected at least one expert, got ",
           i.type(n.logits).text());
  const auto want = [&](std::string_view attr, int64_t given, int64_t most) {
    if (given < 1 || given > most)
      i.fail(Code::invalid_argument, "attribute ", attr, ": expected a number from 1 to ", most,
             ", given ", given);
  };
  want("topk_group", n.topk_group, n.n_group);
  want("top_k", n.top_k, n.topk_group * size);
  i.out(0, {kI32, {logits[0], n.top_k}});
  i.out(1, {wide, {logits[0], n.top_k}});
}

void gate_backward_shape(Infer& i, const op::group_limited_gate_backward& n) {
  i.want_float(n.logits, "logits");
  i.want_rank(n.logits, "logits", 2);
  i.want_index(n.index, "index");
  i.want_rank(n.index, "index", 2);
  i.want_shape(n.index, "index", {i.shape(n.logits)[0], i.shape(n.index)[1]});
  i.want_dtype(n.dy, "dy", acc_dtype(i.dtype(n.logits)));
  i.want_shape(n.dy, "dy", i.shape(n.index));
  i.out(0, i.type(n.logits));
}

// ---- decomposition

Value scores_of(Builder& b, const std::string& score, Value logits) {
  const Value x = b.widen(logits);
  if (score == "softmax") return b.add(op::softmax{.x = x});
  return score == "sigmoid" ? b.unary("sigmoid", x) : x;
}

struct Best {
  Value values, at;
};
Best best_of(Builder& b, Value x, int64_t k) {
  const Results r = b.add(op::topk{.k = k, .x = x});
  return {r[0], r[1]};
}

// The groups that a token may choose from, in ascending order: i64 [T, topk_group].
Value groups_of(Builder& b, const op::group_limited_gate& n, Value grouped) {
  const Value best = n.group_score == "max" ? b.reduce("max", grouped, {2}, false)
                                            : b.sum(best_of(b, grouped, 2).values, {2}, false);
  return b.add(op::sort{.x = best_of(b, best, n.topk_group).at});
}

bool gate_lower(Lower& l, const op::group_limited_gate& n) {
  Builder& b = l.b;
  const Shape x = b.shape(n.logits);
  const int64_t size = x[1] / n.n_group;
  const Value scores = scores_of(b, n.score, n.logits);
  const Value ranked = n.bias ? b.plus(scores, n.bias) : scores;
  Value at;  // i64 [T, top_k]
  if (n.topk_group == n.n_group) {
    at = best_of(b, ranked, n.top_k).at;
  } else {
    const Value grouped = b.reshape(ranked, {x[0], n.n_group, size});
    const Value groups = groups_of(b, n, grouped);
    const Value rows = b.expand(b.unsqueeze(groups, 2), {x[0], n.topk_group, size});
    const Value kept = b.add(op::gather_elements{.axis = 1, .data = grouped, .indices = rows});
    const Value place = best_of(b, b.reshape(kept, {x[0], n.topk_group * size}), n.top_k).at;
    // From a place among the kept groups to one among all experts.
    const Value each = b.scalar_int(kI64, size);
    const Value group = b.add(
        op::gather_elements{.axis = 1, .data = groups, .indices = b.binary("div", place, each)});
    at = b.plus(b.times(group, each), b.binary("mod", place, each));
  }
  l.out(0, b.cast(at, kI32));
  Value weight = b.add(op::gather_elements{.axis = 1, .data = scores, .indices = at});
  if (n.normalize && n.top_k > 1) weight = b.over(weight, b.plus(b.sum(weight, {1}), kLeastTotal));
  l.out(1, b.times(weight, n.routed_scaling));
  return true;
}

bool gate_backward_lower(Lower& l, const op::group_limited_gate_backward& n) {
  Builder& b = l.b;
  const Type x = b.type(n.logits);
  const Value scores = scores_of(b, n.score, n.logits);
  const Value own = b.add(op::gather_elements{.axis = 1, .data = scores, .indices = n.index});
  Value ds = n.dy;
  if (n.normalize) {
    const Value total = b.plus(b.sum(own, {1}), kLeastTotal);
    const Value mean = b.over(b.sum(b.times(ds, own), {1}), total);
    ds = b.over(b.minus(ds, mean), total);
  }
  ds = b.times(ds, n.routed_scaling);
  if (n.score == "sigmoid") ds = b.times(ds, b.times(own, b.minus(b.scalar(b.dtype(own), 1), own)));
  Value dx = b.add(op::scatter_elements_add{
      .axis = 1, .shape = {x.shape[0], x.shape[1]}, .updates = ds, .indices = n.index});
  if (n.score == "softmax") dx = b.add(op::softmax_backward{.dy = dx, .y = scores});
  l.out(0, b.cast(dx, x.dtype));
  return true;
}

// ---- gradient: the choice of experts is fixed, so the bias has none

void gate_grad(Grad& g, const op::group_limited_gate& n) {
  const Value dy = g.dy(1);
  if (!g.wants(n.logits) || !dy) return;
  g.give(n.logits, g.b.add(op::group_limited_gate_backward{.routed_scaling = n.routed_scaling,
                                                           .score = n.score,
                                                           .normalize = n.normalize && n.top_k > 1,
                                                           .dy = dy,
                                                           .logits = n.logits,
                                                           .index = g.y(0)}));
}

// ---- padding: each token by itself

template <class Op>
bool gate_padded(Padded& p, const Op& n) {
  return p.along(n.logits, -1) ? p.refuse("its experts are padded") : true;
}

bool gate_backward_padded(Padded& p, const op::group_limited_gate_backward& n) {
  if (p.along(n.index, -1)) return p.refuse("its choices are padded");
  // Choices of tokens that are not there may be out of range.
  p.fill(n.index, 0, Fill::zero);
  return gate_padded(p, n);
}

constexpr Record<op::group_limited_gate> kGate{
    .shape = gate_shape,
    .words = {{"score", kScores}, {"group_score", "top2_sum max"}},
    .grad = gate_grad,
    .lower = gate_lower,
    .padded = gate_padded<op::group_limited_gate>,
    .flops = no_products,
    .bytes = each_once};
constexpr Record<op::group_limited_gate_backward> kGateBackward{.shape = gate_backward_shape,
                                                                .words = {{"score", kScores}},
                                                                .lower = gate_backward_lower,
                                                                .padded = gate_backward_padded,
                                                                .flops = no_products,
                                                                .bytes = each_once};

}  // namespace

const OpRecord group_limited_gate_def = record<op::group_limited_gate, kGate>();
const OpRecord group_limited_gate_backward_def =
    record<op::group_limited_gate_backward, kGateBackward>();

}  // namespace tenon::core
