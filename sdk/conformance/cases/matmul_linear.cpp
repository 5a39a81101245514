// SPDX-License-Identifier: Apache-2.0
// linear: activations, bias and residual, transposed weights, vectors. The error scale is the
// product of absolute values.
#include <cmath>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

// Weights stored row by row, in rows of 16-byte pieces; few rows as in decoding, and some more.
void transposed_rows(Suite& s) {
  struct Form {
    int64_t rows, terms, columns;
    bool bias = true, residual = true, kept = false, f32_bias = false;
    const char* act = "none";
    double alpha = 1;
  };
  for (const Form& f :
       {Form{1, 64, 40}, Form{1, 4104, 1061, true, true, true, true, "silu", -0.6},
        Form{2, 4104, 1061, false, true}, Form{7, 1032, 2053, true, false},
        Form{16, 2056, 1030, true, true, true, false, "gelu", 0.6},
        Form{5, 72, 33, true, false, true, false, "gelu"},
        Form{6, 80, 33, true, false, true, false, "gelu"},
        Form{18, 208, 24, true, true, false, false, "silu", -0.6},
        Form{17, 200, 24, true, true, true, true, "silu", -0.6}, Form{32, 1032, 9, false, true},
        Form{16, 16, 8, false, false}, Form{130, 72, 70, true, true, true, false, "gelu_tanh", 1.5},
        Form{150, 200, 129}, Form{257, 320, 192, true, false}})
    for (const bool tf32 : {false, true}) {
      const bool large = f.columns > 1000;
      if (large && tf32) continue;
      // A term of tf32 has 11 bits.
      Tolerance tolerance = product_of(f.terms);
      if (tf32) tolerance.factor *= 1 << 13;
      s.add({.id = std::string(tf32 ? "linear-rows-tf32-" : "linear-rows-") +
                   std::to_string(f.rows) + (large ? "-large" : ""),
             .sentence = "linear: " + std::to_string(f.rows) + " rows, b transposed" +
                         (tf32 ? ", of tf32" : ""),
             .dtypes = tf32    ? DTypes{f32}
                       : large ? kHalves
                               : kFloats,
             .build =
                 [=](CaseBuilder& b) {
                   op::linear n{.trans_b = true,
                                .alpha = f.alpha,
                                .f32_precision = tf32 ? "tf32" : "ieee",
                                .act = f.act,
                                .a = b.input("a", {f.rows, f.terms}, Fill::normal()),
                                .b = b.input("b", {f.columns, f.terms}, Fill::normal())};
                   if (f.bias)
                     n.bias = b.input("bias", f.f32_bias ? b.own_acc() : b.own(), {f.columns},
                                      Fill::normal());
                   if (f.residual) n.residual = b.input("residual", {f.rows, f.columns});
                   n.want_pre_act = f.kept;
                   const Node y = b.add(n);
                   const auto size = [&] {
                     const Value size = b.add(op::matmul{.trans_b = true,
                                                         .alpha = std::fabs(f.alpha),
                                                         .a = b.abs(n.a),
                                                         .b = b.abs(n.b)});
                     return n.bias ? b.binary("add", size, b.abs(n.bias)) : size;
                   };
                   b.output("y", y[0]);
                   b.scale("y", [&] {
                     return n.residual ? b.binary("add", size(), b.abs(n.residual)) : size();
                   });
                   if (!f.kept) return;
                   b.output("z", y[1]);
                   b.scale("z", size);
                 },
             .tolerance = tolerance,
             .decomposed = 2,
             .strided = !large});
    }
}

// A vector on either side, as matmul takes it: b is one column, so the bias has one element.
void vector_rows(Suite& s) {
  struct Form {
    const char* id;
    Dims a, b, y, bias;
    bool trans_a = false;
  };
  for (const Form& f :
       {Form{"matrix-vector", {5, 7}, {7}, {5}, {1}},
        Form{"batch-vector", {2, 5, 7}, {7}, {2, 5}, {1}},
        Form{"transposed-vector", {7, 5}, {7}, {5}, {1}, true},
        Form{"vector-matrix", {7}, {7, 4}, {4}, {4}},
        Form{"vector-batch", {7}, {3, 7, 4}, {3, 4}, {4}}, Form{"dot", {7}, {7}, {}, {1}}})
    for (const bool alone : {true, false}) {
      s.add({.id = std::string("linear-") + f.id + (alone ? "" : "-whole"),
             .sentence = std::string("linear: ") + f.id +
                         (alone ? "" : ", with bias, activation, residual and what went into it"),
             .build =
                 [=](CaseBuilder& b) {
                   op::linear n{.trans_a = f.trans_a,
                                .alpha = alone ? 1 : -0.7,
                                .act = alone ? "none" : "gelu",
                                .a = b.input("a", f.a),
                                .b = b.input("b", f.b)};
                   if (!alone) {
                     n.bias = b.input("bias", f.bias);
                     n.residual = b.input("residual", f.y);
                     n.want_pre_act = true;
                   }
                   const Node y = b.add(n);
                   const auto size = [&] {
                     const Value product =
                         b.add(op::matmul{.trans_a = f.trans_a, .a = b.abs(n.a), .b = b.abs(n.b)});
                     return b.binary("add", product, b.number(4));
                   };
                   b.output("y", y[0]);
                   b.scale("y", size);
                   if (alone) return;
                   b.output("z", y[1]);
                   b.scale("z", size);
                 },
             .tolerance = product_of(7),
             .decomposed = 2,
             .gradient = true,
             .scales = {0.05, 1}});
    }
  s.add({.id = "linear-vector-bias-refused",
         .sentence = "linear: b of rank 1 takes a bias of one element",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::linear{.a = b.input("a", {5, 7}),
                                              .b = b.input("b", {7}),
                                              .bias = b.input("bias", {5})})[0]);
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "bias"});
}

}  // namespace

void matmul_linear_rows(Suite& s) {
  for (const UnaryInfo& info : kUnaryKinds) {
    const std::string act(info.name);
    if (act.starts_with("is_")) continue;
    const bool rounds =
        act == "floor" || act == "ceil" || act == "trunc" || act == "round" || act == "sign";
    if (rounds || act == "tan" || act == "asin" || act == "acos" || act == "reciprocal" ||
        act == "rsqrt" || act == "log" || act == "log1p" || act == "sqrt" || act == "sinh" ||
        act == "cosh" || act == "expm1" || act == "square" || act == "log2" || act == "acosh" ||
        act == "atanh")
      continue;  // jumps, poles and steep slopes: their error has no simple bound; unary has them
    s.add(
        {.id = "linear-" + act,
         .sentence = "linear: bias, " + act + ", residual and what went into it",
         .build =
             [=](CaseBuilder& b) {
               const Value x = b.input("a", {3, 5, 7}, Fill::uniform(-0.7, 0.7)),
                           w = b.input("b", {7, 4}, Fill::uniform(-0.7, 0.7));
               const Value bias = b.input("bias", {4}), r = b.input("residual", {3, 5, 4});
               const Node y = b.add(op::linear{
                   .act = act, .a = x, .b = w, .bias = bias, .residual = r, .want_pre_act = true});
               b.output("y", y[0]);
               b.output("z", y[1]);
               const auto size = [&] {
                 return b.binary("add", b.add(op::matmul{.a = b.abs(x), .b = b.abs(w)}),
                                 b.abs(bias));
               };
               b.scale("z", size);
               b.scale("y", [&] {
                 const Value steep = act == "exp" ? b.binary("mul", size(), b.abs(y[0])) : size();
                 return b.binary("add", b.binary("add", steep, b.abs(r)), b.abs(y[0]));
               });
             },
         .tolerance = product_of(7),
         .decomposed = 2,
         .gradient = act == "gelu" || act == "silu" || act == "relu" || act == "tanh",
         .scales = {0.05, 1}});
  }
  for (const char* act : {"relu", "gelu", "gelu_tanh", "silu"}) {
    const auto of = [](CaseBuilder& b, const char* act, Value x, Value w, Value bias) {
      return b.add(op::linear{.act = act, .a = x, .b = w, .bias = bias});
    };
    s.add({.id = std::string("linear-only-") + act,
           .sentence = std::string("linear: bias and ") + act + ", nothing else",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("a", {40, 64}, Fill::normal()),
                             w = b.input("b", {64, 48}, Fill::normal()),
                             bias = b.input("bias", {48}, Fill::normal());
                 b.output("y", of(b, act, x, w, bias));
                 b.scale("y", [&] {
                   return b.binary("add", b.add(op::matmul{.a = b.abs(x), .b = b.abs(w)}),
                                   b.abs(bias));
                 });
               },
           .tolerance = product_of(64)});
    s.add({.id = std::string("linear-nan-") + act,
           .sentence = std::string("linear: ") + act + " keeps NaN",
           .build =
               [=](CaseBuilder& b) {
                 std::vector<double> one(16, 0.0);
                 one[3] = std::nan("");
                 const Value x = b.input("a", {16, 1}, Fill::list(one)),
                             w = b.input("b", {1, 16}, Fill::uniform(1, 2)),
                             bias = b.input("bias", {16}, Fill::uniform(-1, 1));
                 b.output("y", of(b, act, x, w, bias));
                 b.scale("y", [&] { return b.binary("add", b.abs(x), b.abs(bias)); });
               },
           .tolerance = product_of(4)});
    s.add({.id = std::string("linear-kept-") + act,
           .sentence = std::string("linear: bias, ") + act + " and what it is taken of, alone",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("a", {24, 64}, Fill::normal()),
                             w = b.input("b", {64, 40}, Fill::normal()),
                             bias = b.input("bias", {40}, Fill::normal());
                 const Node y = b.add(
                     op::linear{.act = act, .a = x, .b = w, .bias = bias, .want_pre_act = true});
                 b.output("y", y[0]);
                 b.output("z", y[1]);
                 const auto size = [&] {
                   return b.binary("add", b.add(op::matmul{.a = b.abs(x), .b = b.abs(w)}),
                                   b.abs(bias));
                 };
                 b.scale("y", size);
                 b.scale("z", size);
               },
           .tolerance = product_of(64)});
  }
  for (const bool of_bias : {true, false})
    s.add({.id = std::string("linear-part-") + (of_bias ? "bias" : "residual"),
           .sentence = std::string("linear: the ") + (of_bias ? "bias" : "residual") +
                       " is a part of another value",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("a", {32, 64}), w = b.input("b", {64, 40});
                 const Value whole =
                     b.input("whole", of_bias ? Dims{43} : Dims{33, 40}, Fill::normal());
                 const Value part = b.add(op::narrow{
                     .start = of_bias ? std::vector<int64_t>{3} : std::vector<int64_t>{1, 0},
                     .x = whole});
                 b.output("y", b.add(of_bias ? op::linear{.a = x, .b = w, .bias = part}
                                             : op::linear{.a = x, .b = w, .residual = part}));
                 b.scale("y", [&] {
                   return b.binary("add", b.add(op::matmul{.a = b.abs(x), .b = b.abs(w)}),
                                   b.abs(part));
                 });
               },
           .tolerance = product_of(64)});
  for (const int64_t rows : {int64_t{5}, int64_t{130}}) {
    Tolerance tolerance = product_of(64);
    tolerance.factor *= 1 << 13;  // a term has 11 bits
    s.add({.id = "linear-part-bias-tf32-" + std::to_string(rows),
           .sentence = "linear: " + std::to_string(rows) +
                       " rows, b transposed, of tf32, the bias at an odd place of another value",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 const Value whole = b.input("whole", {76}, Fill::normal());
                 const op::linear n{
                     .trans_b = true,
                     .f32_precision = "tf32",
                     .a = b.input("a", {rows, 64}, Fill::normal()),
                     .b = b.input("b", {72, 64}, Fill::normal()),
                     .bias = b.add(op::narrow{.start = {3}, .len = {72}, .x = whole})};
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   return b.binary(
                       "add", b.add(op::matmul{.trans_b = true, .a = b.abs(n.a), .b = b.abs(n.b)}),
                       b.abs(n.bias));
                 });
               },
           .tolerance = tolerance,
           .decomposed = 2});
  }
  transposed_rows(s);
  struct Form {
    const char* id;
    bool bias, residual, f32_bias, trans_b;
  };
  for (const Form& f :
       {Form{"plain", false, false, false, false}, Form{"bias", true, false, false, false},
        Form{"bias-f32", true, false, true, false}, Form{"residual", false, true, false, false},
        Form{"tb", true, true, false, true}}) {
    s.add({.id = std::string("linear-") + f.id,
           .sentence = std::string("linear: ") + f.id,
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("a", {2, 9, 33}),
                             w = b.input("b", f.trans_b ? Dims{17, 33} : Dims{33, 17});
                 op::linear n{.trans_b = f.trans_b, .a = x, .b = w};
                 if (f.bias)
                   n.bias =
                       b.input("bias", f.f32_bias ? b.own_acc() : b.own(), {17}, Fill::normal());
                 if (f.residual) n.residual = b.input("residual", {2, 9, 17});
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   Value size =
                       b.add(op::matmul{.trans_b = f.trans_b, .a = b.abs(x), .b = b.abs(w)});
                   if (n.bias) size = b.binary("add", size, b.abs(n.bias));
                   return n.residual ? b.binary("add", size, b.abs(n.residual)) : size;
                 });
               },
           .tolerance = product_of(33),
           .decomposed = 2});
  }
  vector_rows(s);
}

}  // namespace tenon::conform
