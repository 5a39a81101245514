// SPDX-License-Identifier: Apache-2.0
// elementwise_region batch_elementwise_region: bodies, compared with the same ops as separate
// nodes. Bodies with integers of quantized numbers are in fused_quantized.cpp.
#include <cmath>
#include <limits>

#include "cases/fused.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// gelu(p * 1.5 + 0.25) * q
Value chain(BodyBuilder& body, Value p, Value q) {
  const Value t = body.binary("add", body.binary("mul", p, body.number(1.5)), body.number(0.25));
  return body.binary("mul", body.unary("gelu", t), q);
}

void chain_rows(Suite& s) {
  struct Sizes {
    const char* id;
    Dims dims;
  };
  for (const Sizes& z : {Sizes{"small", {5, 33}}, Sizes{"long", {3, 3001}}, Sizes{"scalar", {}},
                         Sizes{"empty", {4, 0, 3}}})
    s.add({.id = std::string("fused-chain-") + z.id,
           .sentence = "gelu(p * 1.5 + 0.25) * q as one fused body",
           .build =
               [=](CaseBuilder& b) {
                 const Value p = b.input("p", z.dims), q = b.input("q", z.dims);
                 BodyBuilder body(b);
                 const Value in_p = body.in(p), in_q = body.in(q);
                 body.out(chain(body, in_p, in_q));
                 b.output("y", body.fused({p, q}));
                 b.scale("y",
                         [&] { return b.binary("add", b.abs(q), b.abs(b.binary("mul", p, q))); });
               },
           .tolerance = scaled(24),
           .decomposed = 256,
           .gradient = std::string_view(z.id) == "small",
           .second_order = std::string_view(z.id) == "small"});
}

void broadcast_rows(Suite& s) {
  s.add({.id = "fused-broadcast",
         .sentence = "operands [N,1], [D], [1,D], [] and [] broadcast inside a fused body",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {7, 300}), column = b.input("column", {7, 1});
               const Value row = b.input("row", {300}), line = b.input("line", {1, 300});
               const Value one = b.input("one", {});
               BodyBuilder body(b);
               const Value in[] = {body.in(x), body.in(column), body.in(row), body.in(line),
                                   body.in(one)};
               Value t = body.binary("sub", in[0], in[1]);
               t = body.binary("mul", t, in[2]);
               t = body.binary("add", t, in[3]);
               body.out(body.binary("mul", body.unary("tanh", t), in[4]));
               b.output("y", body.fused({x, column, row, line, one}));
               b.scale("y", [&] {
                 const Value parts = b.binary("add", b.abs(x), b.abs(column));
                 const Value t = b.binary("add", b.binary("mul", parts, b.abs(row)), b.abs(line));
                 return b.binary("mul", t, b.abs(one));
               });
             },
         .tolerance = scaled(16)});
  s.add({.id = "fused-broadcast-short",
         .sentence = "rows shorter than a tile, broadcast in the middle of four axes",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {3, 5, 4, 6}), m = b.input("m", {3, 1, 4, 1});
               const Value k = b.input("k", {5, 1, 6});
               BodyBuilder body(b);
               const Value in_x = body.in(x), in_m = body.in(m), in_k = body.in(k);
               body.out(body.binary("max", body.binary("add", in_x, in_m), in_k));
               b.output("y", body.fused({x, m, k}));
               b.scale("y", [&] {
                 return b.binary("add", b.binary("add", b.abs(x), b.abs(m)), b.abs(k));
               });
             },
         .tolerance = scaled(4),
         .gradient = true});
}

void output_rows(Suite& s) {
  s.add({.id = "fused-outputs",
         .sentence = "a compare with two readers; inner values leave beside what is made of them",
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {9, 131}, Fill::integers(-4, 4)),
                       y = b.input("y", {9, 131}, Fill::integers(-4, 4));
           BodyBuilder body(b);
           const Value in_x = body.in(x), in_y = body.in(y);
           const Value less = body.compare("lt", in_x, in_y);
           const Value low = body.where(less, in_x, in_y), high = body.where(less, in_y, in_x);
           body.out(less);
           body.out(low);
           body.out(body.binary("sub", high, low));
           const Node r = body.fused({x, y});
           b.output("less", r[0]);
           b.output("low", r[1]);
           b.output("apart", r[2]);
         }});
  s.add({.id = "fused-int",
         .sentence = "integers wrap and compare as their ops do",
         .dtypes = kInts,
         .build = [](CaseBuilder& b) {
           const Fill edges = Fill::exact(
               {0, 1, -1, 2, -3, 7, INT64_MIN, INT64_MAX, INT32_MAX, -32768, 127, -128, 255});
           const Value x = b.input("x", {13, 1}, edges), y = b.input("y", {1, 13}, edges);
           BodyBuilder body(b);
           const Value in_x = body.in(x), in_y = body.in(y);
           const Value t = body.binary("add", body.binary("mul", in_x, in_y), body.number(3));
           body.out(body.where(body.compare("ge", t, in_x), t, body.binary("max", in_x, in_y)));
           b.output("y", body.fused({x, y}));
         }});
  s.add({.id = "fused-int-compare",
         .sentence = "sums of integers that lie together wrap before they are compared",
         .dtypes = {i8, i16, i32, i64},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {5, 64}, Fill::integers(-100, 100)),
                       y = b.input("y", {5, 64}, Fill::integers(-100, 100));
           BodyBuilder body(b);
           const Value in_x = body.in(x), in_y = body.in(y);
           body.out(body.binary("max", in_x, body.unary("abs", in_x)));
           body.out(body.binary("max", in_y, body.binary("add", in_x, in_y)));
           body.out(body.binary("min", in_y, body.binary("sub", in_x, in_y)));
           const Node r = body.fused({x, y});
           b.output("magnitude", r[0]);
           b.output("sum", r[1]);
           b.output("difference", r[2]);
         }});
}

void cast_rows(Suite& s) {
  s.add({.id = "fused-cast-known",
         .sentence = "halves stay wide between steps and round where a cast says so",
         .dtypes = {bf16},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {2}, Fill::list({0x1p-9, 2}));
           for (const bool rounds : {false, true}) {
             BodyBuilder body(b);
             Value t = body.binary("add", body.in(x), body.number(1));
             // The reference, in f64, is told of the rounding.
             if (rounds && b.dtype() != bf16)
               t = body.graph.add(
                   op::cast{.to = b.dtype(), .x = body.graph.add(op::cast{.to = bf16, .x = t})});
             if (rounds && b.dtype() == bf16) t = body.graph.add(op::cast{.to = bf16, .x = t});
             body.out(body.binary("sub", t, body.number(1)));
             b.output(rounds ? "rounded" : "wide", body.fused({x}));
           }
           b.expect("wide", {0x1p-9, 2});
           b.expect("rounded", {0, 2});
         }});
  s.add({.id = "fused-cast",
         .sentence = "steps of several dtypes, half to float to integer to bool",
         .build = [](CaseBuilder& b) {
           const Value x = b.input("x", {3, 417}, Fill::uniform(-9, 9).with({0, -0.5, 0.5, kInf}));
           BodyBuilder body(b);
           const Value in = body.in(x);
           const Value whole = body.graph.add(op::cast{.to = i32, .x = in});
           const Value odd = body.graph.add(
               op::binary{.kind = "mod", .a = whole, .b = body.graph.scalar(int32_t{2})});
           body.out(whole);
           body.out(
               body.where(body.graph.add(op::cast{.to = boolean, .x = odd}), in, body.number(-1)));
           const Node r = body.fused({x});
           b.output("whole", r[0]);
           b.output("y", r[1]);
         }});
}

void fold_rows(Suite& s) {
  struct Shape {
    const char* id;
    Dims dims, axes;
  };
  const std::vector<Shape> shapes = {{"last", {5, 67}, {1}},      {"long-row", {2, 3001}, {-1}},
                                     {"all", {3, 5, 700}, {}},    {"two-last", {4, 3, 5}, {1, 2}},
                                     {"first", {33, 70}, {0}},    {"outer-two", {6, 5, 40}, {0, 1}},
                                     {"middle", {3, 17, 6}, {1}}, {"one", {5, 1}, {1}},
                                     {"none", {3, 0}, {1}}};
  for (const Shape& z : shapes) {
    int64_t terms = 1;
    for (size_t a = 0; a < z.dims.size(); ++a) terms *= std::max<int64_t>(z.dims[a], 1);
    s.add({.id = std::string("fused-fold-") + z.id,
           .sentence = "(x - m)^2 and its sum, mean and maximum",
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", z.dims, Fill::normal()),
                             m = b.input("m", {z.dims.back()}, Fill::normal());
                 for (const char* kind : {"sum", "mean", "max"}) {
                   BodyBuilder body(b);
                   const Value in_x = body.in(x), in_m = body.in(m);
                   const Value square = body.unary("square", body.binary("sub", in_x, in_m));
                   body.out(body.reduce(kind, square, z.axes, true));
                   body.out(square);
                   const Node r = body.fused({x, m});
                   b.output(std::string(kind), r[0]);
                   b.output(std::string(kind) + " of", r[1]);
                 }
                 const auto scale = [&] {
                   return b.unary("square", b.binary("add", b.abs(x), b.abs(m)));
                 };
                 for (const char* kind : {"sum", "mean", "max"}) {
                   b.scale(kind, [&] { return b.reduce(kind, scale(), z.axes); });
                   b.scale(std::string(kind) + " of", scale);
                 }
               },
           .tolerance = {.factor = 2 * std::log2(static_cast<double>(terms) + 1) + 24},
           .gradient = std::string_view(z.id) == "last"});
  }
  for (const char* kind : {"min", "prod", "sum_square", "l1", "l2", "logsumexp"})
    s.add({.id = std::string("fused-fold-kind-") + kind,
           .sentence = std::string("exp(x) * y and its ") + kind,
           .dtypes = {f32, bf16, f64},
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {3, 37}, Fill::uniform(-0.5, 0.5)),
                             y = b.input("y", {3, 37}, Fill::uniform(0.8, 1.2));
                 BodyBuilder body(b);
                 const Value in_x = body.in(x), in_y = body.in(y);
                 body.out(
                     body.reduce(kind, body.binary("mul", body.unary("exp", in_x), in_y), {-1}));
                 b.output("r", body.fused({x, y}));
               },
           .tolerance = scaled(96)});
}

void batch_rows(Suite& s) {
  s.add({.id = "fused-batch",
         .sentence = "one body over three sets of different sizes, one of them empty",
         .build =
             [](CaseBuilder& b) {
               const Dims sizes[] = {{5, 7}, {0, 7}, {3, 1031}};
               std::vector<Value> xs;
               for (int k = 0; k < 3; ++k) {
                 const std::string n = std::to_string(k);
                 xs.push_back(b.input("x" + n, sizes[k]));
                 xs.push_back(b.input("g" + n, {sizes[k][1]}));
               }
               BodyBuilder body(b);
               const Value in_x = body.in(xs[0]), in_g = body.in(xs[1]);
               const Value t = body.binary("mul", in_x, in_g);
               body.out(t);
               body.out(body.unary("silu", t));
               const Node r = b.add(op::batch_elementwise_region{
                   .body = body.graph, .sets = 3, .xs = xs, .count_ys = 6});
               for (size_t k = 0; k < 6; ++k) b.output("y" + std::to_string(k), r[k]);
             },
         .tolerance = {.ulps = 12, .factor = 12},
         .decomposed = 256,
         .gradient = true});
}

void refused_rows(Suite& s) {
  s.add({.id = "fused-operand-refused",
         .sentence = "an operand that is not the body's is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3}), y = b.input("y", {3, 2});
               BodyBuilder body(b);
               body.out(body.unary("exp", body.in(x)));
               b.output("y", body.fused({y}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand xs: entry 0: expected f32[2,3] as in the body, got f32[3,2]"});
  s.add({.id = "fused-step-refused",
         .sentence = "a body with a step that is not elementwise is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3});
               BodyBuilder body(b);
               body.out(body.graph.add(op::softmax{.x = body.in(x)}));
               b.output("y", body.fused({x}));
             },
         .error = TENON_INVALID_ARGUMENT,
         .error_text = "attribute body: softmax cannot be a step of a fused body"});
  s.add({.id = "fused-batch-refused",
         .sentence = "a set of a batch whose operands do not broadcast is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {2, 3}), y = b.input("y", {4});
               BodyBuilder body(b);
               const Value in_a = body.in(x), in_b = body.in(x);
               body.out(body.binary("add", in_a, in_b));
               b.output("y",
                        b.add(op::batch_elementwise_region{
                            .body = body.graph, .sets = 2, .xs = {x, x, x, y}, .count_ys = 2}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand xs: set 1"});
}

}  // namespace

void fused_cases(Suite& s) {
  s.floor({.joined = 100, .own_joined = 0});
  chain_rows(s);
  broadcast_rows(s);
  output_rows(s);
  cast_rows(s);
  fold_rows(s);
  batch_rows(s);
  fused_quantized_rows(s);
  refused_rows(s);
}

}  // namespace tenon::conform
