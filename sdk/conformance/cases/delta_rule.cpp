// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule and its backward op, next to the reference.
#include "cases/delta_rule.hpp"

namespace tenon::conform {
namespace {

const std::vector<DeltaRuleForm>& forms() {
  static const std::vector<DeltaRuleForm> all = {
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

void rows(Suite& s, const DeltaRuleForm& f) {
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

}  // namespace

void delta_rule_cases(Suite& s) {
  s.floor({.joined = 100, .own_joined = 14});
  for (const DeltaRuleForm& f : forms()) rows(s, f);
  delta_rule_known_rows(s);
}

}  // namespace tenon::conform
