// SPDX-License-Identifier: Apache-2.0
// cross_entropy cross_entropy_backward, and softmax of very long rows.
#include <cmath>
#include <limits>

#include "cases/softmax.hpp"
#include "rows.hpp"

namespace tenon::conform {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Loss {
  const char* id;
  const char* sentence;
  Dims dims;
  int64_t axis = -1;
  const char* reduction = "mean";
  bool weight = false;
  double smoothing = 0;
  int64_t ignore = -100;
  bool very_long = false;
};

template <class Op>
void set_loss(CaseBuilder& b, const Loss& c, Op& n) {
  n.axis = c.axis;
  n.ignore_index = c.ignore;
  n.label_smoothing = c.smoothing;
  n.reduction = c.reduction;
  n.logits = b.input("logits", c.dims, Fill::normal(2));
  Dims items;
  const size_t axis = c.axis < 0 ? c.dims.size() - 1 : static_cast<size_t>(c.axis);
  for (size_t k = 0; k < c.dims.size(); ++k)
    if (k != axis) items.push_back(c.dims[k]);
  const int64_t last = c.dims[axis] - 1;
  std::vector<int64_t> labels = {0, 2, 4, 1, -100, 3, 2};
  if (c.ignore == 2) labels = {0, 2, 4, 1, 2, 3, 3};
  if (c.very_long) labels = {4095, 2, 8200, last - 9, c.ignore, 4096, last};
  if (items == Dims{1}) labels = {last};
  n.labels = b.ints("labels", items, labels);
  if (c.weight) n.weight = b.input("weight", {c.dims[axis]}, Fill::uniform(0.3, 2).fixed());
}

const std::vector<Loss>& losses() {
  static const std::vector<Loss> all = {
      {"mean", "the mean over kept items", {11, 5}},
      {"sum", "the sum", {11, 5}, -1, "sum"},
      {"none", "each item's loss", {11, 5}, -1, "none"},
      {"weight", "class weights", {11, 5}, -1, "mean", true},
      {"smooth", "label smoothing", {11, 5}, -1, "sum", false, 0.2},
      {"weight-smooth", "class weights and smoothing", {11, 5}, -1, "mean", true, 0.1},
      {"axis1", "classes on axis 1 of three", {3, 5, 4}, 1, "mean", true, 0.1},
      {"axis0-none", "classes on axis 0", {5, 7}, 0, "none", false, 0.1},
      {"ignore", "an ignored class of its own", {11, 5}, -1, "mean", false, 0, 2},
      {"long", "many classes", {7, 1031}, -1, "mean"},
      {.id = "very-long", .sentence = "very many classes", .dims = {7, 16411}, .very_long = true},
      {.id = "very-long-sum",
       .sentence = "very many classes with weights, the sum",
       .dims = {7, 16411},
       .reduction = "sum",
       .weight = true,
       .very_long = true},
      {.id = "very-long-none",
       .sentence = "very many classes, each item's loss",
       .dims = {7, 16411},
       .reduction = "none",
       .ignore = 2,
       .very_long = true},
      {.id = "very-long-weight",
       .sentence = "very many classes with weights",
       .dims = {7, 16411},
       .weight = true,
       .very_long = true},
      {.id = "very-long-one",
       .sentence = "very many classes, one item",
       .dims = {1, 16411},
       .very_long = true},
  };
  return all;
}

void loss_rows(Suite& s, const Loss& c) {
  const int64_t n = c.dims[0] * 32 + c.dims[1];
  const double size =
      std::string_view(c.reduction) == "sum" ? 10.0 * static_cast<double>(c.dims[0]) : 10;
  s.add({.id = std::string("cross-entropy-") + c.id,
         .sentence = std::string("cross entropy: ") + c.sentence,
         .build =
             [=](CaseBuilder& b) {
               op::cross_entropy e{.want_lse = true};
               set_loss(b, c, e);
               const Node out = b.add(e);
               b.output("loss", out[0]);
               b.scale("loss", [&] { return b.number(size); });
               b.output("lse", out[1]);
               b.scale("lse", [&] { return b.number(10); });
             },
         .tolerance = sum_of(n),
         .decomposed = 2,
         .gradient = c.dims[1] < 1000});
  for (const bool lse : {false, true}) {
    s.add({.id = std::string("cross-entropy-backward-") + c.id + (lse ? "-lse" : ""),
           .sentence = std::string("gradient of cross entropy: ") + c.sentence,
           .build =
               [=](CaseBuilder& b) {
                 op::cross_entropy_backward e{};
                 set_loss(b, c, e);
                 const bool none = std::string_view(c.reduction) == "none";
                 e.dy = b.input("dy", b.own_acc(), none ? b.graph().type(e.labels).dims : Dims{},
                                Fill::normal());
                 if (lse) {
                   op::cross_entropy f{.axis = c.axis,
                                       .ignore_index = c.ignore,
                                       .logits = e.logits,
                                       .labels = e.labels,
                                       .want_lse = true};
                   e.lse = b.add(f)[1];
                 }
                 const Value out = b.add(e);
                 b.output("dx", out);
                 b.scale("dx", [&] {
                   if (c.very_long)  // where gradients are far smaller than one
                     return softmax_scale(b, e.logits, out, c.axis, false);
                   return b.number(std::string_view(c.reduction) == "mean" ? 2.0 : 8.0);
                 });
               },
           .tolerance = sum_of(c.dims[1]),
           .decomposed = 2});
  }
}

// Rows of numbers among huge ones, of huge ones alone where `whole`, and of what is no number.
std::vector<double> huge_rows(int64_t n, bool whole) {
  std::vector<double> x;
  const auto add_row = [&](auto&& at) {
    for (int64_t i = 0; i < n; ++i) x.push_back(at(i));
  };
  add_row([n](int64_t i) { return i < n - 8 ? -3.3e38 : static_cast<double>(i - n + 8); });
  add_row([](int64_t i) { return i < 4096 ? -1e10 : static_cast<double>(i % 7); });
  if (whole) {
    add_row([](int64_t i) { return i % 5 == 0 ? 3e30 : -3e30; });
    add_row([](int64_t) { return 1e10; });
  }
  add_row([](int64_t i) { return i == 9000 ? 2.0 : -kInf; });
  add_row([](int64_t) { return -kInf; });
  add_row([](int64_t i) { return i == 5 ? kInf : 1.0; });
  add_row([](int64_t i) { return i == 16000 ? kNan : 1.0; });
  return x;
}

void huge_losses(Suite& s) {
  constexpr int64_t kClasses = 16411;
  const std::vector<int64_t> labels = {kClasses - 1, 4098, 9000, 3, 5, 0};
  const auto items = static_cast<int64_t>(labels.size());
  s.add({.id = "softmax-huge-long",
         .sentence = "long rows of huge numbers, and of what is no number",
         .build =
             [=](CaseBuilder& b) {
               const Value x =
                   b.input("x", {items + 2, kClasses}, Fill::list(huge_rows(kClasses, true)));
               const Value y = b.add(op::softmax{.x = x});
               b.output("y", y);
               b.scale("y", [&] { return b.binary("mul", b.abs(y), b.number(16)); });
             },
         .tolerance = sum_of(kClasses)});
  s.add({.id = "cross-entropy-huge-long",
         .sentence = "losses of long rows with huge numbers, and with what is no number",
         .build =
             [=](CaseBuilder& b) {
               const Value x =
                   b.input("logits", {items, kClasses}, Fill::list(huge_rows(kClasses, false)));
               const Value at = b.ints("labels", {items}, labels, i32);
               const Node out = b.add(op::cross_entropy{
                   .reduction = "none", .logits = x, .labels = at, .want_lse = true});
               for (const int k : {0, 1}) {
                 const std::string name = k == 0 ? "loss" : "lse";
                 b.output(name, out[static_cast<size_t>(k)]);
                 b.scale(name, [&] { return b.number(16); });
               }
             },
         .tolerance = sum_of(kClasses)});
  s.add({.id = "cross-entropy-backward-huge-long",
         .sentence = "gradients of losses of long rows with huge numbers, and what is no number",
         .build =
             [=](CaseBuilder& b) {
               const Value x =
                   b.input("logits", {items, kClasses}, Fill::list(huge_rows(kClasses, false)));
               const Value at = b.ints("labels", {items}, labels, i32);
               const Value dy = b.input("dy", b.own_acc(), {items}, Fill::normal());
               const Value dx = b.add(op::cross_entropy_backward{
                   .reduction = "none", .dy = dy, .logits = x, .labels = at});
               b.output("dx", dx);
               b.scale("dx", [&] { return b.binary("mul", b.abs(dx), b.number(16)); });
             },
         .tolerance = sum_of(kClasses)});
  s.add({.id = "cross-entropy-label-too-large-long",
         .sentence = "a label outside of very many classes is an error",
         .dtypes = {f16, bf16},
         .build =
             [=](CaseBuilder& b) {
               const Value y = b.ints("labels", {3}, {0, kClasses, 1});
               b.output("loss", b.add(op::cross_entropy{.logits = b.input("logits", {3, kClasses}),
                                                        .labels = y}));
             },
         .error = TENON_INDEX_OUT_OF_RANGE,
         .error_text = ""});
}

// Gradients of losses whose logits are far from zero together, by the fused op and by itself with
// the lse that forward keeps.
void offset_losses(Suite& s) {
  for (const Offset& offset : offsets())
    s.add({.id = std::string("cross-entropy-offset-") + offset.id,
           .sentence = "the gradient of cross entropy of logits that are far from zero together",
           .dtypes = offset.dtypes,
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("logits", {6, 5}, Fill::list(offset.numbers()));
                 const Value y = b.ints("labels", {6}, {0, 2, 4, 1, -100, 3});
                 const Node loss = b.add(op::cross_entropy{
                     .label_smoothing = 0.1, .logits = x, .labels = y, .want_lse = true});
                 b.output("dx", b.graph().gradients(loss[0], {x})[0]);
                 b.scale("dx", [&] {  // the smoothing's part has no distance
                   return b.binary("add", distance_scale(b, x, {1}), b.number(0.1));
                 });
                 const Value lse = b.reduce("sum", loss[1], {}, false);
                 b.output("dx-lse", b.graph().gradients(lse, {x})[0]);
                 b.scale("dx-lse", [&] { return distance_scale(b, x, {1}); });
               },
           .tolerance = sum_of(15)});
  for (const double smoothing : {0.0, 0.1})
    for (const double offset : {1e3, 1e5})
      s.add(
          {.id = std::string("cross-entropy-value-offset-") + (offset == 1e3 ? "1e3" : "1e5") +
                 (smoothing > 0 ? "-smoothed" : ""),
           .sentence = "the loss of logits that are far from zero together",
           .dtypes = {f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("logits", {2, 3},
                                         Fill::list({offset + 1, offset + 2, offset + 0.5,  //
                                                     -offset, -offset, -offset}));
                 const Value y = b.ints("labels", {2}, {2, 0});
                 const Value loss = b.add(op::cross_entropy{
                     .label_smoothing = smoothing, .reduction = "none", .logits = x, .labels = y});
                 b.output("loss", loss);
                 const double lse = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(0.5));
                 const double spread = lse - 3.5 / 3;
                 b.expect("loss",
                          {(1 - smoothing) * (lse - 0.5) + smoothing * spread, std::log(3.0)});
               },
           .tolerance = ulps(8)});
}

void known_losses(Suite& s) {
  s.add({.id = "cross-entropy-known",
         .sentence = "a -inf logit at the label gives inf, an all -inf row NaN, an ignored item 0",
         .build =
             [](CaseBuilder& b) {
               const Value x =
                   b.input("logits", {4, 2}, Fill::list({-kInf, 1, -kInf, -kInf, 3, 4, 0, 0}));
               const Value y = b.ints("labels", {4}, {0, 0, -100, 1}, i32);
               b.output("loss",
                        b.add(op::cross_entropy{.reduction = "none", .logits = x, .labels = y}));
               b.expect("loss", {kInf, kNan, 0, 0.6931471805599453});
             },
         .tolerance = ulps(8)});
  s.add({.id = "cross-entropy-all-ignored",
         .sentence = "the mean over no kept item is NaN",
         .build = [](CaseBuilder& b) {
           const Value y = b.ints("labels", {3}, {-100});
           b.output("loss",
                    b.add(op::cross_entropy{.logits = b.input("logits", {3, 4}), .labels = y}));
           b.expect("loss", {kNan});
         }});
  for (const int64_t label : {5, -1})
    s.add({.id = std::string("cross-entropy-label-") + (label < 0 ? "negative" : "too-large"),
           .sentence = "a label outside of the classes is an error, a negative one too",
           .dtypes = {f32},
           .build =
               [=](CaseBuilder& b) {
                 const Value y = b.ints("labels", {3}, {0, label, 1});
                 b.output("loss", b.add(op::cross_entropy{.logits = b.input("logits", {3, 5}),
                                                          .labels = y}));
               },
           .error = TENON_INDEX_OUT_OF_RANGE,
           .error_text = ""});
  s.add({.id = "cross-entropy-float-labels",
         .sentence = "labels must be integers",
         .dtypes = {f32},
         .build =
             [](CaseBuilder& b) {
               b.output("loss", b.add(op::cross_entropy{.logits = b.input("logits", {3, 5}),
                                                        .labels = b.input("labels", {3})}));
             },
         .error = TENON_DTYPE_MISMATCH,
         .error_text = "labels"});
}

}  // namespace

void softmax_loss_rows(Suite& s) {
  for (const Loss& c : losses()) loss_rows(s, c);
  huge_losses(s);
  offset_losses(s);
  known_losses(s);
}

}  // namespace tenon::conform
