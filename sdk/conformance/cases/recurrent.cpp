// SPDX-License-Identifier: Apache-2.0
// lstm and gru. Outputs are below 1, and an error of one step passes through the steps behind it.
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

struct Form {
  const char* id;
  const char* sentence;
  int64_t steps, batch, hidden;
  const char* direction = "forward";
  bool states = false;  // h0 and c0 are given, h and c wanted
  std::vector<int64_t> lengths{};
  tenon_dtype index = i64;
  const char* lstm_gates = "ifgo";
  const char* gru_gates = "rzn";
  bool gradient = false;

  int64_t directions() const { return std::string_view(direction) == "bidirectional" ? 2 : 1; }
  Dims state() const { return {directions(), batch, hidden}; }
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {.id = "forward",
       .sentence = "one direction",
       .steps = 3,
       .batch = 2,
       .hidden = 5,
       .gradient = true},
      {.id = "states",
       .sentence = "with first and last states",
       .steps = 3,
       .batch = 2,
       .hidden = 4,
       .states = true,
       .gradient = true},
      {.id = "reverse",
       .sentence = "from the last step on",
       .steps = 3,
       .batch = 2,
       .hidden = 4,
       .direction = "reverse",
       .states = true,
       .gradient = true},
      {.id = "bidirectional",
       .sentence = "both directions",
       .steps = 3,
       .batch = 2,
       .hidden = 3,
       .direction = "bidirectional",
       .states = true,
       .gradient = true},
      {.id = "lengths",
       .sentence = "sequences of several lengths",
       .steps = 4,
       .batch = 4,
       .hidden = 3,
       .direction = "bidirectional",
       .states = true,
       .lengths = {2, 4, 0, 3},
       .gradient = true},
      {.id = "lengths-i32",
       .sentence = "lengths beyond the steps, i32",
       .steps = 3,
       .batch = 3,
       .hidden = 4,
       .lengths = {-1, 9, 1},
       .index = i32},
      {.id = "gates",
       .sentence = "another order of gates",
       .steps = 3,
       .batch = 2,
       .hidden = 4,
       .states = true,
       .lstm_gates = "iofg",
       .gru_gates = "zrn"},
      {.id = "one-step",
       .sentence = "one step of one sequence",
       .steps = 1,
       .batch = 1,
       .hidden = 40,
       .states = true},
      {.id = "vectors",
       .sentence = "whole vectors",
       .steps = 5,
       .batch = 1,
       .hidden = 64,
       .direction = "bidirectional"},
      {.id = "rows",
       .sentence = "more rows than a tile",
       .steps = 5,
       .batch = 17,
       .hidden = 33,
       .states = true},
      {.id = "wide",
       .sentence = "much work in each step",
       .steps = 3,
       .batch = 3,
       .hidden = 300,
       .direction = "reverse",
       .states = true},
      {.id = "no-steps",
       .sentence = "no steps",
       .steps = 0,
       .batch = 2,
       .hidden = 4,
       .states = true},
      {.id = "no-batch", .sentence = "no sequences", .steps = 2, .batch = 0, .hidden = 4},
      {.id = "no-units", .sentence = "no units", .steps = 2, .batch = 2, .hidden = 0},
  };
  return all;
}

// Inputs of a layer, small enough that no gate is saturated.
template <class Op>
void fill(CaseBuilder& b, const Form& f, int64_t gates, Op& n) {
  const int64_t width = gates * f.hidden;
  n.direction = f.direction;
  n.x = b.input("x", {f.steps, f.batch, f.directions() * width});
  n.r = b.input("r", {f.directions(), width, f.hidden}, Fill::normal(0.4));
  if (f.states) n.h0 = b.input("h0", f.state());
  if (!f.lengths.empty()) n.lengths = b.ints("lengths", {f.batch}, f.lengths, f.index);
}

void give(CaseBuilder& b, const char* name, Value v) {
  b.output(name, v);
  b.scale(name, [&] { return b.binary("add", b.abs(v), b.number(1)); });
}

CaseRow row(const Form& f, const std::string& op, Build build) {
  return {.id = op + "-" + f.id,
          .sentence = op + ": " + f.sentence,
          .build = std::move(build),
          .tolerance = scaled(f.hidden > 200 ? 600 : 200),
          .strided = f.hidden < 200,
          .gradient = f.gradient,
          .scales = {0.05, 0.5}};
}

void lstm_rows(Suite& s, const Form& f) {
  s.add(row(f, "lstm", [f](CaseBuilder& b) {
    op::lstm n{.gates = f.lstm_gates};
    fill(b, f, 4, n);
    if (f.states) n.c0 = b.input("c0", f.state());
    n.want_h = n.want_c = f.states;
    const Node y = b.add(n);
    give(b, "y", y[0]);
    if (f.states) give(b, "h", y[1]), give(b, "c", y[2]);
  }));
}

void gru_rows(Suite& s, const Form& f, bool after) {
  s.add(row(f, after ? "gru" : "gru-before", [f, after](CaseBuilder& b) {
    op::gru n{.gates = f.gru_gates, .reset_after = after};
    fill(b, f, 3, n);
    if (after && f.states) n.n_bias = b.input("n_bias", {f.directions(), f.hidden});
    n.want_h = f.states;
    const Node y = b.add(n);
    give(b, "y", y[0]);
    if (f.states) give(b, "h", y[1]);
  }));
}

// By hand: r is 0, so a step depends on its x and on the cell alone.
void known_rows(Suite& s) {
  s.add({.id = "lstm-known",
         .sentence = "lstm: closed and open gates keep and replace the cell",
         .build =
             [](CaseBuilder& b) {
               // i f g o of three steps: the cell takes g, keeps it, and forgets it.
               const Value x = b.input(
                   "x", {3, 1, 4}, Fill::list({99, -99, 99, 99, -99, 99, 0, 99, -99, -99, 0, 99}));
               const Value r = b.input("r", {1, 4, 1}, Fill::list({0}));
               const Node y = b.add(op::lstm{.x = x, .r = r});
               give(b, "y", y[0]);
               b.expect("y", {0.7615941559557649, 0.7615941559557649, 0});
             },
         .tolerance = scaled(4)});
}

}  // namespace

void recurrent_cases(Suite& s) {
  s.floor({.joined = 140, .own_joined = 60});
  for (const Form& f : forms()) lstm_rows(s, f), gru_rows(s, f, true);
  for (const Form& f : forms())
    if (f.gradient || f.steps == 0 || std::string_view(f.id) == "gates") gru_rows(s, f, false);
  known_rows(s);
}

}  // namespace tenon::conform
