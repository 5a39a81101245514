// SPDX-License-Identifier: Apache-2.0
// mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
// kl_div nll_loss ctc_loss.
#include <cmath>
#include <functional>
#include <limits>

#include "cases/families.hpp"

namespace tenon::conform {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kRows = 5, kColumns = 7;

// A loss of x and target, both [5, 7].
struct Pair {
  const char* id;
  const char* sentence;
  Fill x, target;
  double largest;  // about, of one item
  std::function<Value(CaseBuilder&, Value x, Value target, const std::string& reduction)> add;
  bool gradient = true;
  std::vector<double> scales = {0.05, 1, 4};
};

template <class Op>
auto plain(Op n = {}) {
  return [n](CaseBuilder& b, Value x, Value target, const std::string& reduction) -> Value {
    Op full = n;
    full.reduction = reduction, full.x = x, full.target = target;
    return b.add(full);
  };
}

auto binary(bool logits, bool weight, bool pos_weight) {
  return [=](CaseBuilder& b, Value x, Value target, const std::string& reduction) -> Value {
    const auto given = [&](const char* name, const Dims& dims) {
      return b.input(name, dims, Fill::uniform(0.3, 2));
    };
    const Value w = weight ? given("weight", {kRows, 1}) : Value{};
    if (!logits)
      return b.add(
          op::binary_cross_entropy{.reduction = reduction, .x = x, .target = target, .weight = w});
    op::binary_cross_entropy_with_logits n{
        .reduction = reduction, .x = x, .target = target, .weight = w};
    if (pos_weight) n.pos_weight = given("pos_weight", {kColumns});
    return b.add(n);
  };
}

const std::vector<Pair>& pairs() {
  const Fill any = Fill::normal(2), part = Fill::uniform(0.05, 0.95);
  const Fill logs = Fill::uniform(-3, -0.1), apart = Fill::distinct(-3, 3);
  // Distances from 3 on, so that no difference quotient meets a kink.
  const Fill below = Fill::uniform(-9, -6);
  static const std::vector<Pair> all = {
      {"mse", "squared distances", any, any, 20, plain<op::mse_loss>()},
      {"l1", "distances", apart, below, 12, plain<op::l1_loss>()},
      {"smooth-l1", "squared distances below beta", any, any, 10, plain(op::smooth_l1_loss{}),
       false},
      {"smooth-l1-near", "distances below beta", any, any, 10,
       plain(op::smooth_l1_loss{.beta = 100})},
      {"smooth-l1-far",
       "distances above beta",
       apart,
       below,
       12,
       plain(op::smooth_l1_loss{.beta = 0.01}),
       true,
       {1, 4}},
      {"smooth-l1-none", "beta 0", apart, below, 12, plain(op::smooth_l1_loss{.beta = 0})},
      {"huber", "squared distances below delta", any, any, 10, plain(op::huber_loss{}), false},
      {"huber-near", "distances below delta", any, any, 20, plain(op::huber_loss{.delta = 100})},
      {"huber-far",
       "distances above delta",
       apart,
       below,
       4,
       plain(op::huber_loss{.delta = 0.25}),
       true,
       {1, 4}},
      {"bce", "probabilities", part, part, 3, binary(false, false, false), true, {1}},
      {"bce-weight",
       "probabilities, weights",
       part,
       part,
       6,
       binary(false, true, false),
       true,
       {1}},
      {"bce-logits", "logits", any, part, 6, binary(true, false, false)},
      {"bce-logits-weight", "logits, weights", any, part, 12, binary(true, true, false)},
      {"bce-logits-pos-weight", "logits, weights of positive items", any, part, 12,
       binary(true, false, true)},
      {"bce-logits-both", "logits, both weights", any, part, 24, binary(true, true, true)},
      {"kl", "probabilities as target", logs, part, 3, plain<op::kl_div>(), true, {1}},
      {"kl-log", "logarithms as target", logs, logs, 3, plain(op::kl_div{.log_target = true})},
  };
  return all;
}

void pair_rows(Suite& s, const Pair& c) {
  std::vector<std::string> reductions = {"none", "sum", "mean"};
  if (std::string_view(c.id).starts_with("kl")) reductions.emplace_back("batchmean");
  for (const std::string& reduction : reductions)
    s.add({.id = std::string(c.id) + "-" + reduction,
           .sentence = std::string("loss of ") + c.sentence + ", " + reduction,
           .build =
               [=](CaseBuilder& b) {
                 const Value x = b.input("x", {kRows, kColumns}, c.x);
                 const Value target = b.input("target", {kRows, kColumns}, c.target);
                 b.output("loss", c.add(b, x, target, reduction));
                 const double items = reduction == "sum"         ? kRows * kColumns
                                      : reduction == "batchmean" ? kColumns
                                                                 : 1;
                 b.scale("loss", [&] { return b.number(c.largest * items); });
               },
           .tolerance = sum_of(kRows * kColumns),
           .gradient = c.gradient,
           .scales = c.scales});
}

void known_pairs(Suite& s) {
  const auto one = [&](const char* id, const char* sentence, const Pair& like,
                       const std::vector<double>& x, const std::vector<double>& target,
                       const std::vector<double>& loss) {
    s.add({.id = id,
           .sentence = sentence,
           .build =
               [=, add = like.add](CaseBuilder& b) {
                 const Dims dims = {static_cast<int64_t>(x.size())};
                 b.output("loss", add(b, b.input("x", dims, Fill::list(x)),
                                      b.input("target", dims, Fill::list(target)), "none"));
                 b.expect("loss", loss);
               },
           .tolerance = ulps(8)});
  };
  const auto of = [](auto add) { return Pair{"", "", Fill::normal(), Fill::normal(), 1, add}; };
  one("smooth-l1-known", "smooth l1 on both sides of its knee",
      of(plain(op::smooth_l1_loss{.beta = 2})), {0, 1, -1, 2, -6}, {0, 0, 0, 0, 0},
      {0, 0.25, 0.25, 1, 5});
  one("huber-known", "huber on both sides of its knee", of(plain(op::huber_loss{.delta = 2})),
      {0, 1, -1, 2, -6}, {0, 0, 0, 0, 0}, {0, 0.5, 0.5, 2, 10});
  one("bce-known", "logarithms of probabilities are at least -100", of(binary(false, false, false)),
      {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 0, 100, 100});
  one("bce-logits-known", "logits beyond the exponential's range", of(binary(true, false, false)),
      {2000, -2000, 2000, -2000}, {1, 0, 0, 1}, {0, 0, 2000, 2000});
  one("kl-known", "a target of 0 costs nothing", of(plain<op::kl_div>()), {-1, 0, -2}, {0, 1, 1},
      {0, 0, 2});
  s.add({.id = "losses-empty",
         .sentence = "losses of nothing: the sum is 0, the mean NaN",
         .build =
             [](CaseBuilder& b) {
               const Value x = b.input("x", {0, 3}), target = b.input("target", {0, 3});
               for (const char* reduction : {"none", "sum", "mean"})
                 b.output(reduction,
                          b.add(op::mse_loss{.reduction = reduction, .x = x, .target = target}));
               b.expect("sum", {0});
               b.expect("mean", {std::numeric_limits<double>::quiet_NaN()});
             },
         .strided = false});
}

void nll_rows(Suite& s) {
  struct Form {
    const char* id;
    Dims dims;
    int64_t axis;
    bool weight;
    int64_t ignore;
  };
  for (const Form& f : {Form{"last", {7, 5}, -1, false, -100}, Form{"weight", {7, 5}, -1, true, 2},
                        Form{"axis1", {3, 5, 2}, 1, true, -100}, Form{"vector", {5}, 0, false, -1}})
    for (const std::string reduction : {"none", "sum", "mean"})
      s.add({.id = std::string("nll-") + f.id + "-" + reduction,
             .sentence = "negative log likelihood, " + reduction,
             .build =
                 [=](CaseBuilder& b) {
                   const Value x = b.input("x", f.dims, Fill::uniform(-3, 0));
                   Dims items = f.dims;
                   items.erase(items.begin() + (f.axis < 0 ? 1 : f.axis));
                   op::nll_loss n{
                       .axis = f.axis, .ignore_index = f.ignore, .reduction = reduction, .x = x};
                   n.labels = b.ints("labels", items, {0, 2, 4, 1, f.ignore, 3});
                   if (f.weight) n.weight = b.input("weight", {5}, Fill::uniform(0.3, 2).fixed());
                   b.output("loss", b.add(n));
                   b.scale("loss", [&] { return b.number(reduction == "sum" ? 40 : 6); });
                 },
             .tolerance = sum_of(7),
             .gradient = true});
  s.add_failure(
      "nll-label-too-large", "a label outside of the classes is an error",
      [](CaseBuilder& b) {
        b.output("loss", b.add(op::nll_loss{.x = b.input("x", {2, 5}),
                                            .labels = b.ints("labels", {2}, {0, 5})}));
      },
      TENON_INDEX_OUT_OF_RANGE, "");
}

// ---- ctc_loss

struct Ctc {
  const char* id;
  const char* sentence;
  int64_t steps, classes;
  std::vector<std::vector<int64_t>> labels;  // of equal size
  std::vector<int64_t> steps_used, labels_used;
  int64_t blank = 0;
  bool zero_infinity = false;
  tenon_dtype index = i64;

  int64_t batch() const { return static_cast<int64_t>(labels.size()); }
};

Value add_ctc(CaseBuilder& b, const Ctc& c, Value x, const char* reduction) {
  std::vector<int64_t> flat;
  for (const auto& row : c.labels) flat.insert(flat.end(), row.begin(), row.end());
  const int64_t length = c.labels.empty() ? 3 : static_cast<int64_t>(c.labels[0].size());
  const auto ints = [&](const char* name, const Dims& dims, const std::vector<int64_t>& values) {
    return b.ints(name, dims, values.empty() ? std::vector<int64_t>{0} : values, c.index);
  };
  return b.add(op::ctc_loss{.blank = c.blank,
                            .zero_infinity = c.zero_infinity,
                            .reduction = reduction,
                            .x = x,
                            .labels = ints("labels", {c.batch(), length}, flat),
                            .x_lengths = ints("x_lengths", {c.batch()}, c.steps_used),
                            .label_lengths = ints("label_lengths", {c.batch()}, c.labels_used)});
}

void ctc_rows(Suite& s) {
  for (const Ctc& c : {
           Ctc{"", "labels that differ", 6, 4, {{1, 2, 3}, {3, 1, 2}}, {6, 6}, {3, 3}},
           Ctc{"-repeated",
               "equal labels need a blank",
               7,
               4,
               {{1, 1, 2}, {2, 2, 2}},
               {7, 7},
               {3, 3}},
           Ctc{"-lengths",
               "several lengths, padded by labels that do not exist",
               6,
               4,
               {{1, 2, 3}, {2, 77, -9}, {0, 0, 0}},
               {6, 4, 5},
               {3, 1, 0}},
           Ctc{"-blank",
               "the last class is blank, i32",
               5,
               4,
               {{0, 2}, {1, 1}},
               {5, 4},
               {2, 2},
               3,
               false,
               i32},
           Ctc{"-none",
               "a sequence without a path",
               4,
               3,
               {{1, 2}, {1, 1}},
               {4, 2},
               {2, 2},
               0,
               true},
           Ctc{"-no-labels", "no labels", 3, 3, {{}, {}}, {3, 0}, {0, 0}},
           Ctc{"-no-steps", "no steps", 0, 3, {{1}, {2}}, {0, 0}, {0, 0}},
           Ctc{"-no-batch", "no sequences", 3, 3, {}, {}, {}},
           Ctc{"-long",
               "many steps and labels",
               60,
               20,
               {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
               {60},
               {12}},
       })
    for (const char* reduction : {"none", "sum", "mean"})
      s.add({.id = "ctc" + std::string(c.id) + "-" + reduction,
             .sentence = std::string("ctc: ") + c.sentence + ", " + reduction,
             .build =
                 [=](CaseBuilder& b) {
                   const Value x =
                       b.input("x", {c.steps, c.batch(), c.classes}, Fill::uniform(-3, -0.1));
                   b.output("loss", add_ctc(b, c, x, reduction));
                   b.scale("loss", [&] { return b.number(static_cast<double>(8 * c.steps + 8)); });
                 },
             .tolerance = scaled(200),
             .gradient = c.steps < 10 && c.batch() > 0,
             .scales = {0.2, 1}});
  // Classes of equal probability 1/3: 1, 2 or 3 of the paths of 1, 2 and 3 steps spell "1", without
  // a blank in its middle.
  for (const bool zero : {false, true})
    s.add({.id = std::string("ctc-known") + (zero ? "-zero-infinity" : ""),
           .sentence = "ctc: paths counted by hand",
           .dtypes = {f32, f64},
           .build =
               [=](CaseBuilder& b) {
                 const Ctc c{"",
                             "",
                             3,
                             3,
                             {{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                             {1, 2, 3, 2, 3},
                             {1, 1, 1, 2, 2},
                             0,
                             zero};
                 const double third = std::log(3.0);
                 const Value x = b.input("x", {3, 5, 3}, Fill::list({-third}));
                 b.output("loss", add_ctc(b, c, x, "none"));
                 b.expect("loss", {third, 2 * third - std::log(3.0), 3 * third - std::log(6.0),
                                   zero ? 0 : kInf, 3 * third});
               },
           .tolerance = ulps(32)});
  s.add_failure(
      "ctc-label-too-large", "ctc: a label outside of the classes is an error",
      [](CaseBuilder& b) {
        const Ctc c{"", "", 3, 3, {{3}}, {3}, {1}};
        b.output("loss", add_ctc(b, c, b.input("x", {3, 1, 3}), "none"));
      },
      TENON_INDEX_OUT_OF_RANGE, "");
  s.add_failure(
      "ctc-too-many-steps", "ctc: more steps than there are is an error",
      [](CaseBuilder& b) {
        const Ctc c{"", "", 3, 3, {{1}}, {4}, {1}};
        b.output("loss", add_ctc(b, c, b.input("x", {3, 1, 3}), "none"));
      },
      TENON_INDEX_OUT_OF_RANGE, "");
}

}  // namespace

void loss_cases(Suite& s) {
  s.floor({.joined = 390, .own_joined = 390});
  for (const Pair& c : pairs()) pair_rows(s, c);
  known_pairs(s);
  nll_rows(s);
  ctc_rows(s);
}

}  // namespace tenon::conform
