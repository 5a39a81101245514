// SPDX-License-Identifier: Apache-2.0
// Records of the loss family: nll_loss ctc_loss. What losses with one label per item share.
#include <cmath>

#include "ops/index.hpp"
#include "ops/loss.hpp"
#include "ops/padded.hpp"
#include "ops/recurrent.hpp"
#include "ops/table.hpp"

namespace tenon::core {

Type want_labels(const Infer& i, const LabelOperands& n) {
  i.want_float(n.x, n.x_name);
  i.want_index(n.labels, "labels");
  if (i.dtype(n.labels) == kI32 && n.ignore_index != static_cast<int32_t>(n.ignore_index))
    i.fail(Code::invalid_argument,
           "attribute ignore_index: expected a number that fits i32 labels, given ",
           n.ignore_index);
  const Type x = i.type(n.x);
  const int axis = i.axis(n.axis, x.shape.rank());
  Shape items;
  for (int a = 0; a < x.shape.rank(); ++a)
    if (a != axis) items.push(x.shape[a]);
  i.want_shape(n.labels, "labels", items);
  if (x.shape[axis] == 0 && items.elements() != 0)
    i.fail(Code::shape_mismatch, "operand ", n.x_name, ": expected at least one class, got ",
           x.text());
  if (n.weight) {
    if (i.dtype(n.weight) != x.dtype && i.dtype(n.weight) != acc_dtype(x.dtype))
      i.fail(Code::dtype_mismatch, "operand weight: expected ", dtype_name(x.dtype), " or ",
             dtype_name(acc_dtype(x.dtype)), ", got ", i.type(n.weight).text());
    i.want_shape(n.weight, "weight", {x.shape[axis]});
  }
  return {acc_dtype(x.dtype), items};
}

// gather accepts negative indices.
Value strict_index(Builder& b, Value index, Dim dim) {
  const DType t = b.dtype(index);
  return b.where(b.compare("lt", index, b.scalar_int(t, 0)), b.scalar_int(t, dim), index);
}

namespace {

// The same indices, checked at run time.
Value checked(Builder& b, Value index, Dim dim) {
  return b.add(
      op::gather{.data = b.iota({dim}, 0, b.dtype(index)), .indices = strict_index(b, index, dim)});
}

}  // namespace

Items items_of(Builder& b, const LabelOperands& n) {
  const Shape x = b.shape(n.x);
  Items it{.axis = normalize_axis(n.axis, x.rank(), "loss"),
           .classes = 0,
           .x = b.widen(n.x),
           .ignored = {},
           .label = {},
           .weight = {},
           .own = {}};
  it.classes = x[it.axis];
  const DType wide = b.dtype(it.x), index = b.dtype(n.labels);
  it.ignored = b.compare("eq", n.labels, b.scalar_int(index, n.ignore_index));
  it.label = checked(b, b.where(it.ignored, b.scalar_int(index, 0), n.labels), it.classes);
  if (n.weight) {
    it.weight = b.cast(n.weight, wide);
    const Value own = b.add(op::gather{.data = it.weight, .indices = it.label});
    it.own = b.where(it.ignored, b.scalar(wide, 0), own);
  }
  return it;
}

Value along_axis(Builder& b, const Items& it, Value per_class) {
  Shape s;
  for (int i = 0; i < b.shape(it.x).rank(); ++i) s.push(i == it.axis ? it.classes : 1);
  return b.reshape(per_class, s);
}

// One flat gather.
Value at_label(Builder& b, const Items& it) {
  const Shape x = b.shape(it.x), labels = b.shape(it.label);
  Dim outer = 1, inner = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < it.axis) outer *= x[i];
    if (i > it.axis) inner *= x[i];
  }
  const Value label = b.cast(b.reshape(it.label, {outer, inner}), kI64);
  const Value start = b.iota({outer, 1}, 0, kI64, 0, static_cast<double>(it.classes * inner));
  const Value place = b.iota({1, inner}, 1, kI64);
  const Value at = b.plus(b.plus(b.times(label, b.scalar_int(kI64, inner)), place), start);
  const Value flat = b.reshape(it.x, {x.elements()});
  return b.reshape(b.add(op::gather{.data = flat, .indices = at}), labels);
}

Value total_weight(Builder& b, const Items& it) {
  return reduce_loss(b, "sum",
                     it.own ? it.own : b.cast(b.logical("not", it.ignored), b.dtype(it.x)));
}

Value reduce_loss(Builder& b, std::string_view reduction, Value each, const Items& it) {
  if (reduction != "mean") return reduce_loss(b, reduction, each);
  return b.over(reduce_loss(b, "sum", each), total_weight(b, it));
}

namespace {

constexpr std::string_view kReductions = "none sum mean";

// ---- nll_loss

LabelOperands operands_of(const op::nll_loss& n) {
  return {n.axis, n.ignore_index, n.x, "x", n.labels, n.weight};
}

void nll_loss_shape(Infer& i, const op::nll_loss& n) {
  i.out(0, loss_type(n.reduction, want_labels(i, operands_of(n))));
}

bool nll_loss_lower(Lower& l, const op::nll_loss& n) {
  Builder& b = l.b;
  const Items it = items_of(b, operands_of(n));
  Value each = b.neg(at_label(b, it));
  if (it.own) each = b.times(each, it.own);
  each = b.where(it.ignored, b.scalar(b.dtype(each), 0), each);
  l.out(0, reduce_loss(b, n.reduction, each, it));
  return true;
}

// Items that are not there count as ignored ones.
bool nll_loss_padded(Padded& p, const op::nll_loss& n) {
  if (p.along(n.x, n.axis)) return p.refuse("its classes are padded");
  const Value ignored = p.b.scalar_int(p.type(n.labels).dtype, n.ignore_index);
  for (int axis = 0; axis < p.rank(n.labels); ++axis) p.fill(n.labels, axis, ignored);
  return true;
}

constexpr Record<op::nll_loss> kNllLoss{.shape = nll_loss_shape,
                                        .words = {{"reduction", kReductions}},
                                        .lower = nll_loss_lower,
                                        .padded = nll_loss_padded,
                                        .flops = no_products,
                                        .bytes = each_once};

// ---- ctc_loss: the sum over all paths, by the forward recursion. A sequence has 2S+1 states: its
// labels, with a blank before, between and behind them.

// The logarithm of a probability that counts as 0. It is finite, so that no difference is NaN.
constexpr double kImpossible = -1e30;

void ctc_loss_shape(Infer& i, const op::ctc_loss& n) {
  i.want_float(n.x, "x");
  i.want_rank(n.x, "x", 3);
  i.want_index(n.labels, "labels");
  i.want_rank(n.labels, "labels", 2);
  const Shape x = i.shape(n.x), labels = i.shape(n.labels);
  i.want_shape(n.labels, "labels", {x[1], labels[1]});
  for (const auto& [v, name] :
       {std::pair{n.x_lengths, "x_lengths"}, {n.label_lengths, "label_lengths"}}) {
    i.want_index(v, name);
    i.want_shape(v, name, {x[1]});
  }
  if (n.blank < 0 || n.blank >= x[2])
    i.fail(Code::invalid_argument, "attribute blank: expected one of ", x[2], " classes, given ",
           n.blank);
  i.out(0, loss_type(n.reduction, {acc_dtype(i.dtype(n.x)), {x[1]}}));
}

// A sequence in each row, a state in each column.
class Paths {
 public:
  Paths(Builder& builder, const op::ctc_loss& node)
      : b(builder), n(node), x_(b.shape(n.x)), states_(2 * b.shape(n.labels)[1] + 1) {}

  // -ln of the probability of each sequence; above -kImpossible/2 if it has no path.
  Value losses() {
    lengths_ =
        b.reshape(checked(b, b.cast(n.label_lengths, kI64), b.shape(n.labels)[1] + 1), {x_[1], 1});
    const Value last = state_sums();
    const Value end = b.times(lengths_, b.scalar_int(kI64, 2));
    const Value before = b.max(b.minus(end, 1), b.scalar_int(kI64, 0));
    const Value blank = picked(last, end), label = picked(last, before);
    const Value some = b.compare("gt", lengths_, 0);
    const Value total = log_sum({blank, b.where(some, label, impossible(label))}, b);
    return b.neg(b.reshape(total, {x_[1]}));
  }
  // At least 1: what a mean divides by.
  Value divisors() {
    const Value counts = b.max(lengths_, b.scalar_int(kI64, 1));
    return b.cast(b.reshape(counts, {x_[1]}), acc_dtype(b.dtype(n.x)));
  }

 private:
  static Value log_sum(std::vector<Value> terms, Builder& b) {
    Value most = terms[0];
    for (size_t k = 1; k < terms.size(); ++k) most = b.max(most, terms[k]);
    Value sum{};
    for (const Value term : terms) {
      const Value share = b.exp(b.minus(term, most));
      sum = sum ? b.plus(sum, share) : share;
    }
    return b.plus(most, b.log(sum));
  }
  Value impossible(Value like) { return b.scalar(b.dtype(like), kImpossible); }
  Value picked(Value rows, Value at) {
    return b.add(op::gather_elements{.axis = 1, .data = rows, .indices = at});
  }

  // The class of each state, [N, L]. Labels behind the end of a sequence count as blanks.
  Value classes() {
    const Shape s = b.shape(n.labels);
    const Value blank = b.scalar_int(kI64, n.blank);
    const Value counts = b.compare("lt", b.iota({1, s[1]}, 1, kI64), lengths_);
    const Value labels = checked(b, b.where(counts, b.cast(n.labels, kI64), blank), x_[2]);
    const Value blanks = b.expand(blank, {s[0], s[1], 1});
    const Value pairs = b.reshape(b.concat({blanks, b.unsqueeze(labels, 2)}, 2), {s[0], 2 * s[1]});
    return b.concat({pairs, b.expand(blank, {s[0], 1})}, 1);
  }

  // ln of the probability of all paths to each state, after the last step.
  Value state_sums() {
    const Value wide = b.widen(n.x), states = classes();
    const DType t = b.dtype(wide);
    const Value each = b.add(
        op::gather_elements{.axis = 2,
                            .data = wide,
                            .indices = b.expand(b.unsqueeze(states, 0), {x_[0], x_[1], states_})});
    // Two labels that differ need no blank between them.
    const Value odd =
        b.compare("eq", b.binary("mod", b.iota({1, states_}, 1, kI64), b.scalar_int(kI64, 2)),
                  b.scalar_int(kI64, 1));
    const Value other =
        b.compare("ne", states, shifted(b, states, 2, static_cast<double>(n.blank)));
    const Value first = b.compare("lt", b.iota({1, states_}, 1, kI64), b.scalar_int(kI64, 1));
    const Value start = b.where(first, b.scalar(t, 0), b.scalar(t, kImpossible));
    const Value steps = checked(b, b.cast(n.x_lengths, kI64), x_[0] + 1);
    Recurrence walk{.x = b.max(each, b.scalar(t, kImpossible)),
                    .state = {b.expand(start, {x_[1], states_})},
                    .captured = {b.logical("and", odd, other)},
                    .lengths = b.reshape(steps, {x_[1], 1}),
                    .dtype = t};
    walk.step = [](Builder& b, Value x, std::span<const Value> state,
                   std::span<const Value> captured) -> std::vector<Value> {
      const Value none = b.scalar(b.dtype(x), kImpossible);
      const Value two = b.where(captured[0], shifted(b, state[0], 2, kImpossible), none);
      return {b.plus(x, log_sum({state[0], shifted(b, state[0], 1, kImpossible), two}, b))};
    };
    return add_recurrence(b, walk)[0];
  }
  // Column k gets column k - by; the first ones get `fill`.
  static Value shifted(Builder& b, Value rows, int64_t by, double fill) {
    const Shape s = b.shape(rows);
    const int64_t kept = std::max<int64_t>(s[1] - by, 0);
    const Value head = b.full({b.dtype(rows), {s[0], s[1] - kept}}, fill);
    return kept == 0 ? head : b.concat({head, b.narrow(rows, 1, 0, kept)}, 1);
  }

  Builder& b;
  const op::ctc_loss& n;
  const Shape x_;
  const int64_t states_;
  Value lengths_{};
};

bool ctc_loss_lower(Lower& l, const op::ctc_loss& n) {
  Builder& b = l.b;
  Paths paths(b, n);
  Value each = paths.losses();
  const Value none = b.compare("gt", each, -kImpossible / 2);
  each = b.where(none, b.scalar(b.dtype(each), n.zero_infinity ? 0 : HUGE_VAL), each);
  if (n.reduction == "mean") each = b.over(each, paths.divisors());
  l.out(0, reduce_loss(b, n.reduction, each));
  return true;
}

// Sequences that are not there get no steps and no labels, and so the loss 0.
bool ctc_loss_padded(Padded& p, const op::ctc_loss& n) {
  Builder& b = p.b;
  if (p.along(n.x, 2)) return p.refuse("its classes are padded");
  // A length that is out of range without the padding stays so.
  const auto keep_range = [&](Value lengths, Value of, int axis) {
    if (!p.along(of, axis)) return;
    const Value given = b.cast(p.value(lengths), kI64);
    const Value beyond = b.scalar_int(kI64, p.type(of).shape[axis] + 1);
    const Value now = b.where(b.compare("gt", given, p.length_of(of, axis)), beyond, given);
    p.put(lengths, b.cast(now, p.type(lengths).dtype));
  };
  keep_range(n.x_lengths, n.x, 0);
  keep_range(n.label_lengths, n.labels, 1);
  if (!p.along(n.x, 1)) return true;
  p.fill(n.x_lengths, 0, Fill::zero);
  p.fill(n.label_lengths, 0, Fill::zero);
  if (n.reduction != "mean") return true;
  op::ctc_loss each = n;
  p.replace(each);
  each.reduction = "none";
  const Value lengths = b.cast(p.value(n.label_lengths), kI64);
  const DType wide = p.result(0).dtype;
  const Value divisors = b.cast(b.max(lengths, b.scalar_int(kI64, 1)), wide);
  const Value sum = b.sum(b.over(b.add(each), divisors), {0}, false);
  p.out(0, b.over(sum, b.cast(p.length_of(n.x, 1), wide)));
  return true;
}

constexpr Record<op::ctc_loss> kCtcLoss{.shape = ctc_loss_shape,
                                        .words = {{"reduction", kReductions}},
                                        .lower = ctc_loss_lower,
                                        .padded = ctc_loss_padded,
                                        .flops = no_products,
                                        .bytes = each_once};

}  // namespace

const OpRecord nll_loss_def = record<op::nll_loss, kNllLoss>();
const OpRecord ctc_loss_def = record<op::ctc_loss, kCtcLoss>();

}  // namespace tenon::core
