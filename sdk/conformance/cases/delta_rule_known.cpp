// SPDX-License-Identifier: Apache-2.0
// Delta rules known by hand, and what is refused.
#include <limits>

#include "cases/delta_rule.hpp"

namespace tenon::conform {

// By hand. The second token writes what its key lacks: 6 - 1·3.
void delta_rule_known_rows(Suite& s) {
  s.add({.id = "delta-rule-known",
         .sentence = "gated_delta_rule: a state that halves, then takes what its key lacks",
         .build =
             [](CaseBuilder& b) {
               const auto in = [&](const char* name, const Dims& dims, std::vector<double> values) {
                 return b.input(name, dims, Fill::list(std::move(values)));
               };
               op::gated_delta_rule n{.scale = 2};
               n.q = in("q", {1, 2, 1, 2}, {1, 0, 1, 1}), n.k = in("k", {1, 2, 1, 2}, {1, 0, 1, 0});
               n.v = in("v", {1, 2, 1, 1}, {6, 6}), n.beta = in("beta", {1, 2, 1}, {1, 0.5});
               n.g = b.input("g", b.own_acc(), {1, 2, 1}, Fill::list({0, -0.6931471805599453}));
               n.state = b.input("state", b.own_acc(), {1, 1, 2, 1}, Fill::list({4, 8}));
               n.want_state_out = true;
               const Node y = b.add(n);
               // S: (6, 8), then (3, 4) + (1.5, 0)
               b.output("o", y[0]);
               b.expect("o", {12, 17});
               b.output("state_out", y[1]);
               b.expect("state_out", {4.5, 4});
             },
         .tolerance = scaled(64)});
  s.add({.id = "delta-rule-growth",
         .sentence = "gated_delta_rule: the decay meets the state first, so a product with a key "
                     "cannot overflow",
         .dtypes = {f32, f64},
         .build =
             [](CaseBuilder& b) {
               op::gated_delta_rule n{.scale = 1};
               n.q = b.input("q", {1, 1, 1, 2}, Fill::list({1, 0}));
               n.k = b.input("k", {1, 1, 1, 2}, Fill::list({1e4, 0}));
               n.v = b.input("v", {1, 1, 1, 1}, Fill::list({3}));
               n.g = b.input("g", b.own_acc(), {1, 1, 1}, Fill::list({80}));
               n.beta = b.input("beta", {1, 1, 1}, Fill::list({0.5}));
               b.output("o", b.add(n)[0]);  // of a state of zeros
               b.expect("o", {15000});
             },
         .tolerance = scaled(64)});
  // beta = 1, and one key, or keys at right angles: the state maps k to v after each token, so o is v.
  struct Hard {
    const char* id;
    const char* sentence;
    double g, last;  // of all tokens but one; of v's last number
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Hard& hard : {Hard{"growth", "decays above 1 over a chunk", 0.2, 1},
                           Hard{"reset", "a decay of 0 within a chunk", -kInf, 1},
                           Hard{"nan", "NaN does not reach earlier tokens", -0.1, kNan}})
    s.add({.id = std::string("delta-rule-exact-") + hard.id,
           .sentence = std::string("gated_delta_rule: ") + hard.sentence,
           .build =
               [=](CaseBuilder& b) {
                 constexpr int64_t kTokens = 64, kSize = 64;
                 std::vector<double> key(kTokens * kSize), v(kTokens * kSize);
                 std::vector<double> g(kTokens, hard.g == -kInf ? -0.1 : hard.g);
                 g[5] = hard.g;
                 for (size_t i = 0; i < v.size(); ++i) {
                   key[i] = i % kSize == (hard.g > 0 ? 0 : i / kSize);
                   v[i] = static_cast<double>(i * 7 % 11) - 5;
                 }
                 v.back() = hard.last;
                 op::gated_delta_rule n{.scale = 1};
                 n.q = b.input("q", {1, kTokens, 1, kSize}, Fill::list(key));
                 n.k = b.input("k", {1, kTokens, 1, kSize}, Fill::list(key));
                 n.v = b.input("v", {1, kTokens, 1, kSize}, Fill::list(v));
                 n.g = b.input("g", b.own_acc(), {1, kTokens, 1}, Fill::list(g));
                 n.beta =
                     b.input("beta", {1, kTokens, 1}, Fill::list(std::vector<double>(kTokens, 1)));
                 b.output("o", b.add(n)[0]);
                 b.expect("o", v);
                 b.scale("o", [&] { return b.number(5); });
               },
           .tolerance = scaled(64)});
  struct Bad {
    const char* id;
    const char* sentence;
    std::vector<int64_t> ends;
  };
  for (const Bad& bad : {Bad{"start", "cu_seqlens that do not begin with 0", {1, 2, 4}},
                         Bad{"order", "cu_seqlens that decrease", {0, 3, 2, 4}},
                         Bad{"end", "cu_seqlens that do not end with T", {0, 2, 5}}})
    for (const bool backward : {false, true})
      s.add_failure(
          std::string(backward ? "delta-rule-backward-cu-seqlens-" : "delta-rule-cu-seqlens-") +
              bad.id,
          std::string(bad.sentence) + " are an error",
          [=](CaseBuilder& b) {
            const DeltaRuleForm f{.id = "",
                                  .sentence = "",
                                  .batch = 1,
                                  .tokens = 4,
                                  .heads = 1,
                                  .each = 1,
                                  .keys = 2,
                                  .values = 3,
                                  .ends = bad.ends};
            if (backward) {
              op::gated_delta_rule_backward n;
              fill(b, f, n);
              n.dout = b.input("dout", b.graph().type(n.v).dims);
              n.want_dq = true;
              b.output("dq", b.add(n)[0]);
            } else {
              op::gated_delta_rule n;
              fill(b, f, n);
              b.output("o", b.add(n)[0]);
            }
          },
          TENON_INDEX_OUT_OF_RANGE, "");
}

}  // namespace tenon::conform
