// SPDX-License-Identifier: Apache-2.0
// qmatmul qconv: all results are exact. The multiplier is f32 in the reference too.
#include "cases/conv.hpp"
#include "cases/families.hpp"

namespace tenon::conform {
namespace {

// Integers of all sizes of a dtype of 8 bits, and its ends.
Fill bytes(tenon_dtype t) {
  return t == i8 ? Fill::integers(-128, 127).with({-128, 127}).fixed()
                 : Fill::integers(0, 255).with({0, 255}).fixed();
}
// Powers of two make halves, which go to the even number.
Value multiplier(CaseBuilder& b, const Dims& dims) {
  const Fill fill = Fill::list({0.0078125, 0.001, 0.00390625, 0.0123, 0.5, 0.0002}).fixed();
  return b.graph().add(op::cast{.to = f32, .x = b.input("multiplier", f32, dims, fill)});
}

// Which operands have zero points; left: that which is no weight.
enum class Zeros { none, left, both };
// What follows the sums.
struct Finish {
  const char* id;
  tenon_dtype to;
  bool per_column, y_zero, relu, bias;
  Zeros zeros;
};
const std::vector<Finish>& finishes() {
  static const std::vector<Finish> all = {
      {"i32", i32, false, false, false, false, Zeros::both},
      {"i32-plain", i32, false, false, false, false, Zeros::none},
      {"i32-bias-relu", i32, true, false, true, true, Zeros::both},
      {"i8", i8, false, true, false, false, Zeros::both},
      {"i8-columns", i8, true, false, false, true, Zeros::both},
      {"u8-relu", u8, true, true, true, true, Zeros::none},
      {"u8", u8, false, true, false, true, Zeros::both},
      {"u8-left", u8, true, true, false, true, Zeros::left},
  };
  return all;
}

// Sets what ops share; `columns` results share a filter or a column.
template <class Op>
void finish(CaseBuilder& b, const Finish& f, int64_t columns, Op& n) {
  n.to = f.to, n.act = f.relu ? "relu" : "none";
  if (f.bias) n.bias = b.input("bias", i32, {columns}, Fill::integers(-90000, 90000).fixed());
  if (f.to == i32) return;
  n.multiplier = multiplier(b, f.per_column ? Dims{columns} : Dims{});
  if (f.y_zero) n.y_zero = b.ints("y_zero", {}, {f.to == i8 ? -20 : 100}, f.to);
}
Value zeros_of(CaseBuilder& b, const char* name, tenon_dtype t, const Dims& dims) {
  return b.input(name, t, dims,
                 t == i8 ? Fill::list({-7, 100, 0, -128, 127}).fixed()
                         : Fill::list({130, 0, 255, 1, 77}).fixed());
}

struct Product {
  const char* id;
  const char* sentence;
  Dims a, b;
};
const std::vector<Product>& products() {
  static const std::vector<Product> all = {
      {"small", "small matrices", {3, 5}, {5, 4}},
      {"odd", "sizes that fill no block", {17, 67}, {67, 35}},
      {"row", "one row", {1, 130}, {130, 70}},
      {"column", "one column", {33, 65}, {65, 1}},
      {"batch", "a batch, and one that is repeated", {2, 3, 6, 9}, {3, 9, 7}},
      {"batch-a", "matrices times one", {4, 5, 12}, {12, 8}},
      {"blocks", "whole blocks", {64, 128}, {128, 96}},
      {"none", "sums of nothing", {3, 0}, {0, 4}},
      {"tall", "more rows than columns", {300, 64}, {64, 16}},
      {"edges", "several blocks, and rests in all directions", {200, 330}, {330, 260}},
      {"deep", "long sums of few results", {5, 4000}, {4000, 40}},
      {"many-blocks", "more blocks than processors", {1500, 20}, {20, 1504}},
  };
  return all;
}

void product_rows(Suite& s, const Product& p, tenon_dtype other, const Finish& f) {
  const char* kind = other == i8 ? "i8" : "u8";
  s.add({.id = std::string("qmatmul-") + p.id + "-" + kind + "-" + f.id,
         .sentence = std::string("qmatmul by ") + kind + ": " + p.sentence,
         .dtypes = {i8, u8},
         .build = [=](CaseBuilder& b) {
           const int64_t columns = p.b.back();
           op::qmatmul n{};
           n.a = b.input("a", p.a, bytes(b.own()));
           n.b = b.input("b", other, p.b, bytes(other));
           if (f.zeros != Zeros::none) n.a_zero = zeros_of(b, "a_zero", b.own(), {});
           if (f.zeros == Zeros::both)
             n.b_zero = zeros_of(b, "b_zero", other, f.per_column ? Dims{columns} : Dims{1});
           finish(b, f, columns, n);
           b.output("y", b.add(n));
         }});
}

void conv_rows(Suite& s, const ConvForm& c, tenon_dtype other, const Finish& f) {
  const char* kind = other == i8 ? "i8" : "u8";
  s.add({.id = std::string("qconv-") + c.id + "-" + kind + "-" + f.id,
         .sentence = std::string("qconv by ") + kind + ": " + c.sentence,
         .dtypes = {i8, u8},
         .build = [=](CaseBuilder& b) {
           auto n = c.windows<op::qconv>();
           n.x = b.input("x", c.x, bytes(b.own()));
           n.w = b.input("w", other, c.w(), bytes(other));
           if (f.zeros != Zeros::none) n.x_zero = zeros_of(b, "x_zero", b.own(), {});
           if (f.zeros == Zeros::both)
             n.w_zero = zeros_of(b, "w_zero", other, f.per_column ? Dims{c.out} : Dims{});
           finish(b, f, c.out, n);
           b.output("y", b.add(n));
         }});
}

// Sums that leave 32 bits.
void long_rows(Suite& s) {
  for (const int64_t depth : {33025, 33026, 70001}) {
    for (const tenon_dtype to : {i32, u8})
      s.add({.id = "qmatmul-depth-" + std::to_string(depth) + (to == i32 ? "-i32" : "-u8"),
             .sentence = "qmatmul: sums of many products of the largest numbers",
             .dtypes = {u8},
             .build = [=](CaseBuilder& b) {
               op::qmatmul n{.to = to};
               n.a = b.input("a", {2, depth}, Fill::list({255}).fixed());
               n.b = b.input("b", i8, {depth, 3}, Fill::list({-128}).fixed());
               n.b_zero = b.ints("b_zero", {3}, {127, -128, 0}, i8);
               if (to != i32) {
                 n.multiplier = b.graph().add(
                     op::cast{.to = f32,
                              .x = b.input("multiplier", f32, {}, Fill::list({0x1p-26}).fixed())});
                 n.y_zero = b.ints("y_zero", {}, {200}, u8);
               }
               b.output("y", b.add(n));
               const double all = static_cast<double>(depth) * 255;
               std::vector<double> want;
               for (int row = 0; row < 2; ++row)
                 for (const double each : {-255.0, 0.0, -128.0}) {
                   if (to == i32) {
                     want.push_back(static_cast<int32_t>(
                         static_cast<uint32_t>(static_cast<int64_t>(all * each))));
                   } else {
                     want.push_back(std::max(
                         0.0, 200 + std::nearbyint(static_cast<float>(all * each) * 0x1p-26)));
                   }
                 }
               b.expect("y", want);
             }});
  }
  s.add({.id = "qconv-depth",
         .sentence = "qconv: sums of many products of the largest numbers",
         .dtypes = {u8},
         .build = [](CaseBuilder& b) {
           op::qconv n{.to = u8};
           n.x = b.input("x", {1, 2, 20000}, Fill::list({255}).fixed());
           n.w = b.input("w", u8, {2, 2, 20000}, Fill::list({255}).fixed());
           n.multiplier = b.graph().add(op::cast{
               .to = f32, .x = b.input("multiplier", f32, {}, Fill::list({0x1p-24}).fixed())});
           b.output("y", b.add(n));
           b.expect("y", {155, 155});  // 40000·255²/2^24 = 155.03
         }});
}

}  // namespace

void quantized_product_rows(Suite& s) {
  for (const Product& p : products()) {
    const bool all = std::string_view(p.id) == "small" || std::string_view(p.id) == "odd";
    for (const tenon_dtype other : {i8, u8})
      for (const Finish& f : finishes())
        if (all || f.to == i8 || (f.to == i32 && f.bias) || f.zeros == Zeros::left)
          product_rows(s, p, other, f);
  }
  std::vector<ConvForm> forms = conv_forms();
  forms.push_back({"pointwise-eights", "1x1 windows, pixels by eights", {2, 40, 8, 9}, 12, {1, 1}});
  forms.push_back({"pointwise-deep", "1x1 windows, many channels", {1, 1100, 4, 4}, 70, {1, 1}});
  for (const ConvForm& c : forms) {
    int64_t work = c.out * c.terms() * c.x[0];
    for (const int64_t d : c.windows_along()) work *= d;
    if (work > 30'000'000) continue;
    const bool all = std::string_view(c.id) == "pads" || std::string_view(c.id) == "groups";
    const bool most = work <= 4'000'000 || std::string_view(c.id) == "many-windows";
    for (const tenon_dtype other : {i8, u8})
      for (const Finish& f : finishes())
        if (all || f.zeros == Zeros::left ||
            (most && std::string_view(f.id) == (other == i8 ? "i8-columns" : "u8")))
          conv_rows(s, c, other, f);
  }
  long_rows(s);
}

}  // namespace tenon::conform
