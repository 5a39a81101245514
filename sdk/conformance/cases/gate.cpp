// SPDX-License-Identifier: Apache-2.0
// group_limited_gate and its backward op, and a whole mixture of experts behind the gate. Scores
// differ by more than their rounding, so that all devices choose the same experts.
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Form {
  const char* id;
  const char* sentence;
  int64_t tokens, experts;
  op::group_limited_gate n{};
  bool bias = false, gradient = false;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"default", "as DeepSeek-V3 has it", 7, 32, {}, true},
      {"wide", "256 experts", 33, 256, {}, true},
      {"odd",
       "groups of an odd size",
       5,
       21,
       {.n_group = 3, .topk_group = 2, .top_k = 5},
       true,
       true},
      {"softmax",
       "softmax of the logits",
       5,
       16,
       {.n_group = 4, .topk_group = 2, .top_k = 3, .score = "softmax"},
       true,
       true},
      {"identity",
       "the logits themselves",
       5,
       16,
       {.n_group = 4, .topk_group = 2, .top_k = 3, .score = "identity", .normalize = false},
       false,
       true},
      {"max",
       "groups by their best expert",
       5,
       16,
       {.n_group = 8, .topk_group = 3, .top_k = 2, .group_score = "max"},
       true,
       true},
      {"max-ones",
       "groups of one expert",
       5,
       8,
       {.n_group = 8, .topk_group = 4, .top_k = 4, .group_score = "max"}},
      {"plain",
       "weights that are not normalized",
       6,
       16,
       {.n_group = 2, .topk_group = 1, .top_k = 8, .routed_scaling = 1, .normalize = false},
       false,
       true},
      {"one-of", "one expert", 6, 16, {.n_group = 4, .topk_group = 1, .top_k = 1}, false, true},
      {"all-groups",
       "no group is left out",
       5,
       12,
       {.n_group = 1, .topk_group = 1, .top_k = 4, .score = "softmax"},
       false,
       true},
      {"long", "very many experts", 3, 1536, {.n_group = 16, .topk_group = 5, .top_k = 12}, true},
      {"no-tokens", "no tokens", 0, 32},
  };
  return all;
}

op::group_limited_gate built(CaseBuilder& b, const Form& f) {
  op::group_limited_gate n = f.n;
  // Distances grow with the numbers, so that no two sums of a token are alike.
  std::vector<double> logits;
  for (int64_t t = 0; t < f.tokens; ++t)
    for (int64_t e = 0; e < f.experts; ++e) {
      const auto at =
          static_cast<double>((e * 37 + t * 11) % f.experts) / static_cast<double>(f.experts);
      logits.push_back(4 * at * (0.6 + 0.4 * at) - 1);
    }
  n.logits = b.input("logits", {f.tokens, f.experts},
                     Fill::list(logits.empty() ? std::vector<double>{0} : logits));
  if (f.bias) {
    std::vector<double> bias;
    for (int64_t e = 0; e < f.experts; ++e)
      bias.push_back(0.3 * static_cast<double>(e * 5 % 7) + 0.013 * static_cast<double>(e % 3));
    n.bias = b.input("bias", b.own_acc(), {f.experts}, Fill::list(bias).fixed());
  }
  return n;
}

void form_rows(Suite& s, const Form& f) {
  s.add({.id = std::string("gate-") + f.id,
         .sentence = std::string("group_limited_gate: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               const Node y = b.add(built(b, f));
               b.output("index", y[0]);
               b.output("weight", y[1]);
               b.scale("weight", [&] { return b.number(2.5); });
             },
         .tolerance = scaled(64),
         .decomposed = 2,
         .gradient = f.gradient,
         .second_order = f.gradient,
         .scales = {1}});
  s.add({.id = std::string("gate-backward-") + f.id,
         .sentence = std::string("gradient of group_limited_gate: ") + f.sentence,
         .build =
             [=](CaseBuilder& b) {
               const op::group_limited_gate n = built(b, f);
               std::vector<int64_t> index;  // distinct experts for each token
               for (int64_t t = 0; t < f.tokens; ++t)
                 for (int64_t k = 0; k < n.top_k; ++k)
                   index.push_back((5 * t + k * (f.experts / n.top_k)) % f.experts);
               const Dims dims = {f.tokens, n.top_k};
               b.output(
                   "dlogits",
                   b.add(op::group_limited_gate_backward{
                       .routed_scaling = n.routed_scaling,
                       .score = n.score,
                       .normalize = n.normalize,
                       .dy = b.input("dy", b.own_acc(), dims, Fill::normal()),
                       .logits = n.logits,
                       .index = b.ints("index", dims,
                                       index.empty() ? std::vector<int64_t>{0} : index, i32)}));
               b.scale("dlogits", [&] { return b.number(2.5); });
             },
         .tolerance = scaled(64),
         .decomposed = 2});
}

// Groups {0 1} {2 3} {4 5}. The sums of two are 5, 5 and 6; their largest 3, 5 and 4.
void hand_rows(Suite& s) {
  struct Hand {
    const char* id;
    const char* sentence;
    op::group_limited_gate n{};
    bool bias = false;
    std::vector<double> index, weight;
  };
  const op::group_limited_gate plain{.n_group = 3,
                                     .topk_group = 2,
                                     .top_k = 3,
                                     .routed_scaling = 10,
                                     .score = "identity",
                                     .normalize = false};
  op::group_limited_gate most = plain, shares = plain, one = plain;
  most.group_score = "max";
  shares.group_score = "max", shares.normalize = true;
  one.group_score = "max", one.normalize = true, one.top_k = 1;
  for (const Hand& h :
       {Hand{"sums", "the lower group of equals", plain, false, {4, 0, 1}, {40, 30, 20}},
        Hand{"max", "groups by their best expert", most, false, {2, 4, 5}, {50, 40, 20}},
        Hand{"bias",
             "the bias ranks experts and is in no weight",
             most,
             true,
             {3, 2, 4},
             {0, 50, 40}},
        Hand{"shares",
             "weights are shares",
             shares,
             false,
             {2, 4, 5},
             {50.0 / 11, 40.0 / 11, 20.0 / 11}},
        Hand{"one", "one weight is not normalized", one, false, {2}, {50}}})
    s.add({.id = std::string("gate-hand-") + h.id,
           .sentence = std::string("group_limited_gate: ") + h.sentence,
           .build =
               [=](CaseBuilder& b) {
                 op::group_limited_gate n = h.n;
                 n.logits = b.input("logits", {1, 6}, Fill::list({3, 2, 5, 0, 4, 2}));
                 if (h.bias)
                   n.bias = b.input("bias", b.own_acc(), {6}, Fill::list({0, 0, 0, 9, 0, 0}));
                 const Node y = b.add(n);
                 b.output("index", y[0]);
                 b.expect("index", h.index);
                 b.output("weight", y[1]);
                 b.expect("weight", h.weight);
               },
           .tolerance = ulps(4)});
}

void known_rows(Suite& s) {
  s.add({.id = "gate-ties",
         .sentence = "equal scores: the lower group, then the lower expert",
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("logits", {2, 6}, Fill::list({1, 1, 1, 1, 1, 1, 0, 1, 2, 0, 1, 1}));
               const Node y = b.add(op::group_limited_gate{.n_group = 3,
                                                           .topk_group = 2,
                                                           .top_k = 3,
                                                           .routed_scaling = 3,
                                                           .score = "identity",
                                                           .logits = x});
               b.output("index", y[0]);
               b.expect("index", {0, 1, 2, 2, 4, 5});
               b.output("weight", y[1]);
               b.expect("weight", {1, 1, 1, 1.5, 0.75, 0.75});
             },
         .tolerance = ulps(4)});
  s.add({.id = "gate-nan",
         .sentence = "NaN ranks highest, so it shows in the weights",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("logits", {1, 6}, Fill::list({3, 1, 0, kNan, 2, 2}));
               const Node y = b.add(op::group_limited_gate{.n_group = 3,
                                                           .topk_group = 1,
                                                           .top_k = 2,
                                                           .routed_scaling = 1,
                                                           .score = "identity",
                                                           .normalize = false,
                                                           .logits = x});
               b.output("index", y[0]);
               b.expect("index", {3, 2});
               b.output("weight", y[1]);
               b.expect("weight", {kNan, 0});
             },
         .tolerance = ulps(4)});
  for (const int64_t bad : {6, -7})
    s.add_failure(
        std::string("gate-backward-index-") + (bad < 0 ? "negative" : "too-large"),
        "an expert that does not exist is an error",
        [=](CaseBuilder& b) {
          b.output("dlogits", b.add(op::group_limited_gate_backward{
                                  .dy = b.input("dy", {2, 2}),
                                  .logits = b.input("logits", {2, 6}),
                                  .index = b.ints("index", {2, 2}, {0, 1, 2, bad}, i32)}));
        },
        TENON_INDEX_OUT_OF_RANGE, "");
}

// Tokens go to their experts, through two layers, and come back as weighted sums.
void mixture_rows(Suite& s) {
  constexpr int64_t kTokens = 5, kWidth = 3, kInner = 4, kExperts = 8, kChosen = 3;
  s.add({.id = "gate-mixture",
         .sentence = "gate, products by experts, and the weighted sum of their results",
         .dtypes = {f32, f64},
         .build =
             [](CaseBuilder& b) {
               const Form f{
                   "",  "", kTokens, kExperts, {.n_group = 4, .topk_group = 2, .top_k = kChosen},
                   true};
               const Node gate = b.add(built(b, f));
               Graph& g = b.graph();
               const auto flat = [&](Value v) {
                 return Value(g.add(op::reshape{.shape = {kTokens * kChosen}, .x = v}));
               };
               const Value ids = flat(gate[0]);
               const Value weights = g.add(op::cast{.to = b.dtype(), .x = flat(gate[1])});
               const Value x = b.input("x", {kTokens, 1, kWidth});
               const Value spread = g.add(op::expand{.shape = {kTokens, kChosen, kWidth}, .x = x});
               const Value rows =
                   g.add(op::reshape{.shape = {kTokens * kChosen, kWidth}, .x = spread});
               const Value up = b.input("up", {kExperts, kWidth, kInner});
               const Value down = b.input("down", {kExperts, kInner, kWidth});
               const Value inner =
                   b.unary("silu", b.add(op::grouped_matmul{.x = rows, .w = up, .ids = ids}));
               const Value outer =
                   b.add(op::grouped_matmul{.x = inner, .w = down, .ids = ids, .p = weights});
               const Value parts =
                   g.add(op::reshape{.shape = {kTokens, kChosen, kWidth}, .x = outer});
               b.output("y", b.reduce("sum", parts, {1}, false));
               b.scale("y", [&] { return b.number(20); });
             },
         .tolerance = scaled(200),
         .decomposed = 2,
         .gradient = true,
         .scales = {1}});
}

}  // namespace

void gate_cases(Suite& s) {
  s.floor({.joined = 120, .own_joined = 30});
  for (const Form& f : forms()) form_rows(s, f);
  hand_rows(s);
  known_rows(s);
  mixture_rows(s);
}

}  // namespace tenon::conform
