// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule and its backward op. Keys are short enough that no step lets the state grow.
#include <cmath>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  int64_t batch, tokens, heads, each, keys, values;
  bool by_key = false, l2norm = false, state = false, last = false;
  double scale = TENON_UNSET;
  std::vector<int64_t> ends{};  // cu_seqlens
  tenon_dtype index = i32;
  bool growing = false;    // g > 0
  bool one_grows = false;  // g > 0 at one token of the last value head
  bool gradient = false;

  int64_t sequences() const { return ends.empty() ? batch : static_cast<int64_t>(ends.size()) - 1; }
  Dims states() const { return {sequences(), heads * each, keys, values}; }
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {.id = "plain",
       .sentence = "no optional operands",
       .batch = 2,
       .tokens = 3,
       .heads = 2,
       .each = 1,
       .keys = 3,
       .values = 2,
       .gradient = true},
      {.id = "all",
       .sentence = "two value heads for each key head, states, unit keys",
       .batch = 2,
       .tokens = 3,
       .heads = 2,
       .each = 2,
       .keys = 3,
       .values = 2,
       .l2norm = true,
       .state = true,
       .last = true,
       .scale = 0.7,
       .gradient = true},
      {.id = "by-key",
       .sentence = "a decay for each row of the state",
       .batch = 2,
       .tokens = 3,
       .heads = 2,
       .each = 2,
       .keys = 2,
       .values = 3,
       .by_key = true,
       .state = true,
       .last = true,
       .gradient = true},
      {.id = "packed",
       .sentence = "sequences of several lengths, one of them empty",
       .batch = 1,
       .tokens = 6,
       .heads = 1,
       .each = 2,
       .keys = 3,
       .values = 2,
       .state = true,
       .last = true,
       .ends = {0, 2, 2, 5, 6},
       .gradient = true},
      {.id = "packed-i64",
       .sentence = "packed sequences without states, i64, decays by key",
       .batch = 1,
       .tokens = 9,
       .heads = 2,
       .each = 1,
       .keys = 5,
       .values = 19,
       .by_key = true,
       .l2norm = true,
       .last = true,
       .ends = {0, 4, 9},
       .index = i64},
      {.id = "odd",
       .sentence = "odd sizes",
       .batch = 2,
       .tokens = 19,
       .heads = 1,
       .each = 3,
       .keys = 17,
       .values = 37,
       .l2norm = true,
       .state = true,
       .last = true},
      {.id = "wide",
       .sentence = "heads of 128, more tokens than a chunk",
       .batch = 1,
       .tokens = 70,
       .heads = 1,
       .each = 2,
       .keys = 128,
       .values = 128,
       .l2norm = true,
       .last = true},
      {.id = "chunks",
       .sentence = "several chunks and a rest, from a state",
       .batch = 2,
       .tokens = 150,
       .heads = 1,
       .each = 2,
       .keys = 64,
       .values = 64,
       .state = true,
       .last = true},
      {.id = "whole-chunks",
       .sentence = "whole chunks, values in two parts",
       .batch = 1,
       .tokens = 128,
       .heads = 2,
       .each = 1,
       .keys = 64,
       .values = 128,
       .l2norm = true},
      {.id = "one-grows",
       .sentence = "whole chunks and a rest, a state that grows beside others that do not",
       .batch = 1,
       .tokens = 130,
       .heads = 3,
       .each = 1,
       .keys = 64,
       .values = 64,
       .l2norm = true,
       .state = true,
       .last = true,
       .one_grows = true},
      {.id = "one-grows-shared",
       .sentence = "two value heads for each key head, one of which grows",
       .batch = 1,
       .tokens = 65,
       .heads = 2,
       .each = 2,
       .keys = 64,
       .values = 64,
       .l2norm = true,
       .one_grows = true},
      {.id = "long-values",
       .sentence = "more values than keys, no unit length",
       .batch = 1,
       .tokens = 64,
       .heads = 1,
       .each = 1,
       .keys = 128,
       .values = 256,
       .state = true,
       .last = true},
      {.id = "packed-long",
       .sentence = "packed sequences of several chunks, of none and of a few tokens",
       .batch = 1,
       .tokens = 60,
       .heads = 1,
       .each = 2,
       .keys = 20,
       .values = 19,
       .state = true,
       .last = true,
       .ends = {0, 37, 37, 40, 60}},
      {.id = "growing-long",
       .sentence = "states that grow over more tokens than a chunk",
       .batch = 1,
       .tokens = 20,
       .heads = 1,
       .each = 1,
       .keys = 5,
       .values = 6,
       .state = true,
       .last = true,
       .growing = true},
      {.id = "tall",
       .sentence = "keys of 260 elements",
       .batch = 1,
       .tokens = 5,
       .heads = 1,
       .each = 1,
       .keys = 260,
       .values = 8,
       .by_key = true,
       .l2norm = true,
       .state = true,
       .last = true},
      {.id = "decode",
       .sentence = "one token from a state",
       .batch = 3,
       .tokens = 1,
       .heads = 2,
       .each = 2,
       .keys = 32,
       .values = 48,
       .l2norm = true,
       .state = true,
       .last = true},
      {.id = "growing",
       .sentence = "states that grow",
       .batch = 1,
       .tokens = 4,
       .heads = 1,
       .each = 1,
       .keys = 2,
       .values = 2,
       .state = true,
       .last = true,
       .growing = true,
       .gradient = true},
      {.id = "no-tokens",
       .sentence = "no tokens: the state stays",
       .batch = 2,
       .tokens = 0,
       .heads = 1,
       .each = 2,
       .keys = 3,
       .values = 4,
       .state = true,
       .last = true},
      {.id = "no-batch",
       .sentence = "no sequences",
       .batch = 0,
       .tokens = 2,
       .heads = 1,
       .each = 1,
       .keys = 3,
       .values = 4,
       .last = true},
  };
  return all;
}

template <class Op>
void fill(CaseBuilder& b, const Form& f, Op& n) {
  const int64_t rows = f.heads * f.each;
  const Dims key = {f.batch, f.tokens, f.heads, f.keys}, row = {f.batch, f.tokens, rows};
  const double length = f.l2norm ? 1 : 0.7 / std::sqrt(static_cast<double>(f.keys));
  n.scale = f.scale, n.qk_l2norm = f.l2norm;
  n.q = b.input("q", key);
  n.k = b.input("k", key, Fill::normal(length));
  n.v = b.input("v", {f.batch, f.tokens, rows, f.values});
  Dims decay = row;
  if (f.by_key) decay.push_back(f.keys);
  Fill decays = f.growing ? Fill::uniform(0.1, 0.4) : Fill::uniform(-0.7, -0.01);
  if (f.one_grows) {
    std::vector<double> g(static_cast<size_t>(f.batch * f.tokens * rows));
    for (size_t i = 0; i < g.size(); ++i) g[i] = -0.03 * static_cast<double>(1 + i * 7 % 11);
    g[static_cast<size_t>(6 * rows - 1)] = 0.2;
    decays = Fill::list(std::move(g));
  }
  n.g = b.input("g", b.own_acc(), decay, decays);
  n.beta = b.input("beta", row, Fill::uniform(0.1, 0.9));
  if (f.state) n.state = b.input("state", b.own_acc(), f.states(), Fill::normal());
  if (!f.ends.empty()) n.cu_seqlens = b.ints("cu_seqlens", {f.sequences() + 1}, f.ends, f.index);
}

// Sums may cancel: errors are relative to the largest number.
void give(CaseBuilder& b, const char* name, Value v) {
  b.output(name, v);
  b.scale(name, [&] { return b.binary("add", largest_of(b, v), b.number(1)); });
}

// Relative to the largest number alone.
void give_rounded(CaseBuilder& b, const char* name, Value v) {
  b.output(name, v);
  b.scale(name, [&] { return largest_of(b, v); });
}

void rows(Suite& s, const Form& f) {
  const auto forward = [&](const std::string& id, const DTypes& dtypes, bool rounded) {
    s.add({.id = "delta-rule-" + id,
           .sentence = std::string("gated_delta_rule: ") + f.sentence,
           .dtypes = dtypes,
           .build =
               [=](CaseBuilder& b) {
                 op::gated_delta_rule n;
                 fill(b, f, n);
                 n.want_state_out = f.last;
                 const Node y = b.add(n);
                 const auto to = rounded ? give_rounded : give;
                 to(b, "o", y[0]);
                 if (f.last) to(b, "state_out", y[1]);
               },
           .tolerance = scaled(rounded ? 1e-2 * 0x1p24 : 64),
           .decomposed = 2,
           .gradient = f.gradient,
           .second_order = f.gradient,
           .scales = {0.5}});
  };
  constexpr int64_t kChunk = 64;
  if (f.tokens < kChunk) {
    forward(f.id, kFloats, false);
  } else {
    // Products of chunks may round their operands to bf16 (specification 4: 1e-2).
    forward(f.id, {f32, f16, f64}, false);
    forward(std::string(f.id) + "-rounded", {bf16}, true);
  }
  const auto backward = [&](const std::string& id, const DTypes& dtypes, bool rounded) {
    s.add({.id = "delta-rule-backward-" + id,
           .sentence = std::string("gradient of gated_delta_rule: ") + f.sentence,
           .dtypes = dtypes,
           .build =
               [=](CaseBuilder& b) {
                 op::gated_delta_rule_backward n;
                 fill(b, f, n);
                 n.dout = b.input("dout", b.graph().type(n.v).dims);
                 if (f.last)
                   n.dstate_out = b.input("dstate_out", b.own_acc(), f.states(), Fill::normal());
                 n.want_dq = n.want_dk = n.want_dv = n.want_dg = n.want_dbeta = true;
                 n.want_dstate = f.state;
                 const Node d = b.add(n);
                 const char* const names[] = {"dq", "dk", "dv", "dg", "dbeta", "dstate"};
                 const auto to = rounded ? give_rounded : give;
                 for (size_t k = 0; k < (f.state ? 6 : 5); ++k) to(b, names[k], d[k]);
               },
           .tolerance = scaled(rounded ? 1e-2 * 0x1p24 : 200),
           .decomposed = 2});
  };
  if (f.tokens < kChunk) {
    backward(f.id, kFloats, false);
  } else {
    backward(f.id, {f32, f16, f64}, false);
    backward(std::string(f.id) + "-rounded", {bf16}, true);
  }
}

// By hand. The second token writes what its key lacks: 6 - 1·3.
void known_rows(Suite& s) {
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
            const Form f{.id = "",
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

}  // namespace

void delta_rule_cases(Suite& s) {
  s.floor({.joined = 100, .own_joined = 14});
  for (const Form& f : forms()) rows(s, f);
  known_rows(s);
}

}  // namespace tenon::conform
