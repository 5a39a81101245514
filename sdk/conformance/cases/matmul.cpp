// SPDX-License-Identifier: Apache-2.0
// matmul lora_matmul; linear is in matmul_linear.cpp, batch_linear in matmul_batch.cpp. The error
// scale is the product of absolute values.
#include <cmath>
#include <limits>
#include <tuple>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shapes {
  const char* id;
  const char* sentence;
  Dims a, b;
  bool trans_a = false, trans_b = false;
  int64_t terms() const { return trans_a && a.size() > 1 ? a[a.size() - 2] : a.back(); }
};

// Products of all forms whose sums wrap.
void integer_rows(Suite& s, const std::vector<Shapes>& all) {
  for (const Shapes& c : all)
    s.add({.id = std::string(c.id) + "-wraps",
           .sentence = std::string("matmul of integers, which wraps: ") + c.sentence,
           .dtypes = {i32, i64, u32, u64},
           .build = [c](CaseBuilder& b) {
             const Fill f = Fill::exact({3, -7, 1000003, 0, 5, INT32_MIN, INT32_MAX, -128, 65537,
                                         INT64_MAX, INT64_MIN, 9, -2, 4611686018427387905});
             b.output("y", b.add(op::matmul{.trans_a = c.trans_a,
                                            .trans_b = c.trans_b,
                                            .a = b.input("a", c.a, f),
                                            .b = b.input("b", c.b, f)}));
           }});
  s.add({.id = "matmul-wraps-known",
         .sentence = "matmul of integers: sums beyond 2^53 are exact",
         .dtypes = {i64, u64},
         .build = [](CaseBuilder& b) {
           const Value x = b.input("a", {1, 3}, Fill::exact({int64_t{1} << 53, 1, 1})),
                       y = b.input("b", {3, 1}, Fill::exact({1, 1, -(int64_t{1} << 53)}));
           b.output("y", b.add(op::matmul{.a = x, .b = y}));
           b.expect("y", {1});
         }});
}

void product_rows(Suite& s) {
  const std::vector<Shapes> all = {
      {"matmul", "a plain product of odd sizes", {5, 7}, {7, 3}},
      {"matmul-ta", "a given transposed", {7, 5}, {7, 3}, true, false},
      {"matmul-tb", "b given transposed", {5, 7}, {3, 7}, false, true},
      {"matmul-ta-tb", "both given transposed", {7, 5}, {3, 7}, true, true},
      {"matmul-few-columns",
       "many rows, few columns of b as rows",
       {70, 1136},
       {7, 1136},
       false,
       true},
      {"matmul-few-rows", "few rows, b transposed", {3, 1032}, {37, 1032}, false, true},
      {"matmul-tile", "sizes just over a tile", {33, 65}, {65, 129}},
      {"matmul-large", "sizes of several blocks", {129, 200}, {200, 70}},
      {"matmul-row", "one row", {1, 257}, {257, 33}},
      {"matmul-column", "one column", {33, 257}, {257, 1}},
      {"matmul-one", "one number", {1, 1}, {1, 1}},
      {"matmul-batch", "a batch", {3, 2, 5, 7}, {3, 2, 7, 4}},
      {"matmul-batch-broadcast", "batches that broadcast both ways", {3, 1, 5, 7}, {2, 7, 4}},
      {"matmul-batch-shared", "one b for the batch", {3, 2, 5, 7}, {7, 4}},
      {"matmul-batch-tb", "a batch, b transposed", {3, 5, 7}, {3, 4, 7}, false, true},
      {"matmul-batch-ta", "a batch, a transposed", {3, 7, 5}, {3, 7, 4}, true, false},
      {"matmul-vector-matrix", "a vector times a matrix", {7}, {7, 4}},
      {"matmul-matrix-vector", "a matrix times a vector", {5, 7}, {7}},
      {"matmul-dot", "two vectors", {37}, {37}},
      {"matmul-no-rows", "no rows", {0, 7}, {7, 3}},
      {"matmul-no-terms", "a sum of nothing is zero", {5, 0}, {0, 3}},
      {"matmul-no-batch", "an empty batch", {0, 5, 7}, {7, 3}},
  };
  for (const Shapes& c : all) {
    const bool small = c.terms() < 60 && c.terms() > 0 && c.a[0] > 0;
    s.add({.id = c.id,
           .sentence = std::string("matmul: ") + c.sentence,
           .build =
               [c](CaseBuilder& b) {
                 const Value x = b.input("a", c.a), y = b.input("b", c.b);
                 const op::matmul n{.trans_a = c.trans_a, .trans_b = c.trans_b, .a = x, .b = y};
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   op::matmul m = n;
                   m.a = b.abs(x);
                   m.b = b.abs(y);
                   return b.add(m);
                 });
               },
           .tolerance = product_of(c.terms()),
           .gradient = small,
           .scales = {0.05, 4}});
  }
  integer_rows(s, all);
}

void option_rows(Suite& s) {
  s.add({.id = "matmul-alpha",
         .sentence = "matmul: alpha scales the product",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {4, 9}), y = b.input("b", {9, 5});
               b.output("y", b.add(op::matmul{.alpha = -0.37, .a = x, .b = y}));
               b.scale("y", [&] {
                 return b.add(op::matmul{.alpha = 0.37, .a = b.abs(x), .b = b.abs(y)});
               });
             },
         .tolerance = product_of(9),
         .gradient = true,
         .scales = {1}});
  s.add({.id = "matmul-out-f32",
         .sentence = "matmul: half operands, f32 result",
         .dtypes = kHalves,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {6, 33}), y = b.input("b", {33, 5});
               b.output("y", b.add(op::matmul{.out_dtype = b.as(f32), .a = x, .b = y}));
               b.scale("y", [&] { return b.add(op::matmul{.a = b.abs(x), .b = b.abs(y)}); });
             },
         .tolerance = product_of(33)});
  s.add({.id = "matmul-row-large",
         .sentence = "matmul: one row of halves, a large b transposed",
         .dtypes = kHalves,
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {1, 4104}), y = b.input("b", {1061, 4104});
               const op::matmul n{.trans_b = true, .a = x, .b = y};
               b.output("y", b.add(n));
               op::matmul wide = n;
               wide.out_dtype = b.as(f32);
               b.output("z", b.add(wide));
               for (const char* name : {"y", "z"})
                 b.scale(name, [&] {
                   return b.add(op::matmul{.trans_b = true, .a = b.abs(x), .b = b.abs(y)});
                 });
             },
         .tolerance = product_of(4104),
         .strided = false});
  // Half weights beside f32 activations, and the other way round.
  for (const auto& [id, rows, batch, left] : {std::tuple{"matmul-half-weight", 6, false, false},
                                              {"matmul-half-weight-row", 1, false, false},
                                              {"matmul-half-weight-batch", 5, true, false},
                                              {"matmul-half-left", 7, false, true}})
    s.add(
        {.id = id,
         .sentence = "matmul: one operand a half, the other f32",
         .dtypes = kHalves,
         .build =
             [=, rows = int64_t{rows}](CaseBuilder& b) {
               const Dims a = batch ? Dims{3, rows, 33} : Dims{rows, 33};
               const Value x = b.input("a", left ? b.own() : b.own_acc(), a, Fill::normal());
               const Value y = b.input("b", left ? b.own_acc() : b.own(), {33, 20}, Fill::normal());
               b.output("y", b.add(op::matmul{.a = x, .b = y}));
               b.scale("y", [&] { return b.add(op::matmul{.a = b.abs(x), .b = b.abs(y)}); });
             },
         .tolerance = product_of(33),
         .gradient = !batch,
         .scales = {1}});
  s.add({.id = "linear-half-weight",
         .sentence = "linear: a half weight, the rest f32",
         .dtypes = kHalves,
         .build =
             [](CaseBuilder& b) {
               const tenon_dtype wide = b.own_acc();
               const op::linear n{.act = "relu",
                                  .a = b.input("a", wide, {6, 40}, Fill::normal()),
                                  .b = b.input("b", {40, 24}),
                                  .bias = b.input("bias", wide, {24}, Fill::normal()),
                                  .residual = b.input("residual", wide, {6, 24}, Fill::normal())};
               b.output("y", b.add(n));
               b.scale("y", [&] {
                 op::linear m = n;
                 m.act = "none";
                 m.a = b.abs(n.a), m.b = b.abs(n.b), m.bias = b.abs(n.bias),
                 m.residual = b.abs(n.residual);
                 return b.add(m);
               });
             },
         .tolerance = product_of(42)});
  s.add({.id = "matmul-integers",
         .sentence = "matmul of bytes into i32 is exact",
         .dtypes = {i8, u8},
         .build = [](CaseBuilder& b) {
           const Fill f = b.own() == i8 ? Fill::integers(-128, 127) : Fill::integers(0, 255);
           const Value x = b.input("a", {2, 7, 65}, f), y = b.input("b", {65, 9}, f);
           b.output("y", b.add(op::matmul{.out_dtype = i32, .a = x, .b = y}));
         }});
  s.add({.id = "matmul-zero-times-inf",
         .sentence = "matmul: zero times infinity is NaN, zeros are not skipped",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("a", {2, 2}, Fill::list({0, 1, 1, 2}));
               const Value y = b.input("b", {2, 2}, Fill::list({kInf, 3, 4, 5}));
               b.output("y", b.add(op::matmul{.a = x, .b = y}));
             },
         .tolerance = product_of(2)});
  s.add(
      {.id = "matmul-shapes-refused",
       .sentence = "matmul: contracted lengths that differ are refused",
       .dtypes = {f32},
       .build =
           [](CaseBuilder& b) {
             b.output("y", b.add(op::matmul{.a = b.input("a", {3, 4}), .b = b.input("b", {5, 2})}));
           },
       .error = TENON_SHAPE_MISMATCH,
       .error_text = "operand b"});
}

void lora_rows(Suite& s) {
  struct Form {
    const char* id;
    const char* sentence;
    Dims x;
    int64_t rank, out;
    double scale = 1;
  };
  for (const Form& f :
       {Form{"plain", "odd sizes", {5, 7}, 2, 4}, Form{"scale", "a factor", {5, 7}, 3, 4, -0.4},
        Form{"batch", "a batch of rows", {2, 3, 9}, 2, 5, 2},
        Form{"vector", "a vector", {17}, 4, 9, 0.5},
        Form{"no-rank", "an adapter of rank zero", {4, 5}, 0, 3},
        Form{"no-rows", "no rows", {0, 5}, 2, 3},
        Form{"no-terms", "a sum of nothing", {4, 0}, 2, 3},
        Form{"tile", "sizes over a tile", {67, 130}, 16, 65, 0.7}}) {
    const int64_t in = f.x.back();
    s.add({.id = std::string("lora-matmul-") + f.id,
           .sentence = std::string("lora_matmul: ") + f.sentence,
           .build =
               [=](CaseBuilder& b) {
                 const op::lora_matmul n{.scale = f.scale,
                                         .x = b.input("x", f.x),
                                         .w = b.input("w", {in, f.out}),
                                         .a = b.input("a", {in, f.rank}),
                                         .b = b.input("b", {f.rank, f.out})};
                 b.output("y", b.add(n));
                 b.scale("y", [&] {
                   return b.add(op::lora_matmul{.scale = std::fabs(f.scale),
                                                .x = b.abs(n.x),
                                                .w = b.abs(n.w),
                                                .a = b.abs(n.a),
                                                .b = b.abs(n.b)});
                 });
               },
           .tolerance = product_of(std::max<int64_t>(in, f.rank)),
           .decomposed = 2,
           .gradient = in < 20 && in > 0 && f.x[0] > 0,
           .second_order = f.scale != 1 && in < 20,
           .scales = {0.05, 1}});
  }
  s.add({.id = "lora-matmul-shapes-refused",
         .sentence = "lora_matmul: an adapter that does not fit is refused",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("y", b.add(op::lora_matmul{.x = b.input("x", {3, 4}),
                                                   .w = b.input("w", {4, 5}),
                                                   .a = b.input("a", {4, 2}),
                                                   .b = b.input("b", {3, 5})}));
             },
         .error = TENON_SHAPE_MISMATCH,
         .error_text = "operand b"});
}

}  // namespace

void matmul_cases(Suite& s) {
  s.floor({.joined = 260, .own_joined = 90});
  product_rows(s);
  option_rows(s);
  matmul_linear_rows(s);
  lora_rows(s);
  matmul_batch_rows(s);
}

}  // namespace tenon::conform
