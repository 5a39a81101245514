// SPDX-License-Identifier: Apache-2.0
// if, while, scan: the host runs them, out of what the device takes of their functions. Numbers are
// small integers where a dtype is narrow, so that trips add no error.
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

// A function over values like those of the case.
class Body {
 public:
  explicit Body(CaseBuilder& b) : b_(b) {}
  Value like(Value v) { return input(b_.graph().type(v)); }
  Value slice(Value v) {
    TensorType t = b_.graph().type(v);
    t.dims.erase(t.dims.begin());
    return input(t);
  }
  Value binary(const char* kind, Value a, Value b) {
    return graph.add(op::binary{.kind = kind, .a = a, .b = b});
  }
  Value unary(const char* kind, Value x) { return graph.add(op::unary{.kind = kind, .x = x}); }
  Value less(Value a, Value b) { return graph.add(op::compare{.kind = "lt", .a = a, .b = b}); }
  void output(Value v) { graph.output(std::to_string(outputs_++), v); }

  Graph graph{"function"};

 private:
  Value input(const TensorType& t) { return graph.input(std::to_string(inputs_++), t); }
  CaseBuilder& b_;
  int inputs_ = 0, outputs_ = 0;
};

void if_rows(Suite& s) {
  for (const bool yes : {true, false})
    s.add({.id = std::string("if-") + (yes ? "then" : "else"),
           .sentence = std::string("if: the condition is ") + (yes ? "true" : "false"),
           .dtypes = kFloats + DTypes{i32},
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {3, 5}, Fill::integers(-3, 3));
                 const Value w = b.input("w", {5}, Fill::integers(1, 3));
                 const Value cond = b.input("cond", boolean, {}, Fill::list({yes ? 1. : 0.}));
                 Body first(b), second(b);
                 {
                   const Value a = first.like(x), c = first.like(w);
                   first.output(first.binary("mul", a, c));
                   first.output(c);
                 }
                 {
                   const Value a = second.like(x), c = second.like(w);
                   const Value d = second.binary("sub", a, c);
                   second.output(second.binary("mul", d, d));
                   second.output(second.binary("add", c, c));
                 }
                 const Node y = b.add(op::if_{.then_branch = first.graph,
                                              .else_branch = second.graph,
                                              .cond = cond,
                                              .xs = {x, w},
                                              .count_ys = 2});
                 b.output("y", y[0]);
                 b.output("z", y[1]);
               },
           .gradient = true});
}

// All have a bound, so that they end on a device that computes nothing, as in tests of planning.
void while_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    int64_t max_trip;
  };
  for (const Form& f : {Form{"bounded", "the bound ends it", 2},
                        Form{"within", "ends before the bound", 9}, Form{"none", "no trips", 0}})
    s.add({.id = std::string("while-") + f.id,
           .sentence = std::string("while: ") + f.sentence,
           .dtypes = kFloats + DTypes{i32},
           .build = [=](CaseBuilder& b) {
             const Value x = b.input("x", {4}, Fill::exact({1, 2, 0, 1}).fixed());
             const Value w = b.input("w", {4}, Fill::exact({1, 1, 2, 1}).fixed());
             const Value zero = b.graph().scalar<int64_t>(0);
             Body cond(b), body(b);
             {
               const Value n = cond.like(zero);
               static_cast<void>(cond.like(x));
               static_cast<void>(cond.like(w));
               cond.output(cond.less(n, cond.graph.scalar<int64_t>(3)));
             }
             {
               const Value n = body.like(zero), c = body.like(x), a = body.like(w);
               body.output(body.binary("add", n, body.graph.scalar<int64_t>(1)));
               body.output(body.binary("add", body.binary("add", c, c), a));
             }
             const Node y = b.add(op::while_{.cond = cond.graph,
                                             .body = body.graph,
                                             .max_trip = f.max_trip,
                                             .carry = {zero, x},
                                             .captured = {w},
                                             .count_ys = 2});
             b.output("trips", y[0]);
             b.output("y", y[1]);
           }});
}

// c' = c * w + x, y = c' - w.
void scan_rows(Suite& s) {
  for (const bool reverse : {false, true})
    s.add({.id = std::string("scan-") + (reverse ? "reverse" : "forward"),
           .sentence = std::string("scan: from the ") + (reverse ? "last" : "first") + " slice on",
           .dtypes = kFloats + DTypes{i32},
           .build = [=](CaseBuilder& b) {
             const Value c0 = b.input("c0", {2, 3}, Fill::integers(-2, 2));
             const Value xs = b.input("xs", {4, 2, 3}, Fill::integers(-3, 3));
             const Value w = b.input("w", {3}, Fill::integers(0, 2));
             Body body(b);
             const Value c = body.like(c0), x = body.slice(xs), a = body.like(w);
             const Value next = body.binary("add", body.binary("mul", c, a), x);
             body.output(next);
             body.output(body.binary("sub", next, a));
             const Node y = b.add(op::scan{.body = body.graph,
                                           .reverse = reverse,
                                           .carry = {c0},
                                           .xs = {xs},
                                           .captured = {w},
                                           .count_ys = 2});
             b.output("last", y[0]);
             b.output("ys", y[1]);
           }});
  s.add(
      {.id = "scan-cell",
       .sentence = "scan: a recurrent cell, with gradients of both orders",
       .dtypes = {f32, f64},
       .build =
           [](CaseBuilder& b) {
             const Value h0 = b.input("h0", {2, 4});
             const Value xs = b.input("xs", {3, 2, 5});
             const Value w = b.input("w", {5, 4});
             const Value u = b.input("u", {4, 4});
             Body body(b);
             const Value h = body.like(h0), x = body.slice(xs), a = body.like(w), c = body.like(u);
             const Value next =
                 body.unary("tanh", body.binary("add", body.graph.add(op::matmul{.a = x, .b = a}),
                                                body.graph.add(op::matmul{.a = h, .b = c})));
             body.output(next);
             body.output(body.binary("mul", next, next));
             const Node y = b.add(op::scan{
                 .body = body.graph, .carry = {h0}, .xs = {xs}, .captured = {w, u}, .count_ys = 2});
             for (size_t k = 0; k < 2; ++k) {
               const char* name = k ? "ys" : "last";
               b.output(name, y[k]);
               b.scale(name, [&] { return b.binary("add", b.abs(y[k]), b.number(4)); });
             }
           },
       .tolerance = scaled(200),
       .gradient = true,
       .second_order = true,
       .scales = {0.05, 0.5}});
}

}  // namespace

void control_cases(Suite& s) {
  if_rows(s);
  while_rows(s);
  scan_rows(s);
  s.floor({.joined = 0, .own_joined = 0});
}

}  // namespace tenon::conform
