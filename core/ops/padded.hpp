// SPDX-License-Identifier: Apache-2.0
// Padded values: the view of a rule that says what a node needs so that padding changes no result.
//
// An axis is padded where it is longer than what it holds: a number of elements that is known only
// when the graph runs is rounded up when the graph is compiled. What counts stands in front; behind
// it are elements of no meaning: whatever joins elements along a padded axis replaces them first.
#pragma once

#include <array>
#include <optional>

#include "ops/record.hpp"

namespace tenon::core {

// How many elements of an axis count: times * number + plus. `number` is a position in a list of
// numbers that are known when the graph runs; kNone: all of them.
struct Length {
  uint32_t number = kNone;
  int64_t times = 0, plus = 0;
  explicit operator bool() const { return number != kNone; }
  friend bool operator==(const Length&, const Length&) = default;
};
using Lengths = std::array<Length, TENON_MAX_RANK>;  // by axis

bool any(const Lengths& lengths);

// What padding is replaced with: what changes no sum, no product, no minimum and no maximum.
enum class Fill : uint8_t { zero, one, lowest, highest };

// Values of numbers and masks, each written once per graph.
class LengthValues {
 public:
  // numbers: i64 [], by position; absent ones are set later.
  // From `first_extent` on, numbers are extents.
  LengthValues(Builder& b, std::vector<Value> numbers, uint32_t first_extent)
      : b_(b), numbers_(std::move(numbers)), first_extent_(first_extent) {}
  bool is_extent(const Length& length) const { return length && length.number >= first_extent_; }
  void set(uint32_t number, Value value) { numbers_[number] = value; }
  const std::vector<Value>& numbers() const { return numbers_; }
  Value of(const Length& length);  // i64 []
  // bool, true where an element of an axis counts; it broadcasts to a value of this rank.
  Value mask(const Length& length, int64_t padded, int rank, int axis);

 private:
  Builder& b_;
  std::vector<Value> numbers_;
  uint32_t first_extent_;
  std::map<std::array<int64_t, 3>, Value> lengths_{};
  std::map<std::array<int64_t, 6>, Value> masks_{};
};

// The view of a rule. The operands of its op struct are positions. Results of the node are those of
// the same op with the same attributes over the operands, as replaced by the rule, unless the rule
// gives others. The rule answers for this: what counts in the results is what the op gives for that
// which counts in the operands.
class Padded {
 public:
  struct Operand {
    Value value{};
    Type type{};  // with the padding
    Lengths lengths{};
  };
  Padded(Builder& builder, LengthValues& values, std::span<Operand> operands,
         std::span<const Type> types, std::span<const Lengths> results, std::vector<Value>& given,
         bool gradients)
      : b(builder),
        values_(values),
        operands_(operands),
        types_(types),
        results_(results),
        given_(given),
        gradients_(gradients) {}
  Builder& b;

  const Type& type(Value operand) const { return operands_[operand.id].type; }
  int rank(Value operand) const { return type(operand).shape.rank(); }
  Value value(Value operand) const { return operand ? operands_[operand.id].value : Value{}; }
  // An axis of an operand, counted from the front or from the back. Absent operands have none.
  Length length(Value operand, int64_t axis) const;
  bool along(Value operand, int64_t axis) const { return bool(length(operand, axis)); }
  bool any(Value operand) const { return operand && core::any(operands_[operand.id].lengths); }
  // Is an axis from `first` on padded, or one before it?
  bool any_from(Value operand, int first) const;
  bool any_before(Value operand, int end) const;
  bool by_extent(Value operand, int64_t axis) const {
    return values_.is_extent(length(operand, axis));
  }
  // Is the axis of `a` the same multiple of that of `b`, for all numbers?
  bool same_multiple(Value a, Value b, int axis) const;
  Value length_value(const Length& length) { return values_.of(length); }  // i64 []
  Value length_of(Value operand, int64_t axis) { return values_.of(length(operand, axis)); }

  // The results, with the padding.
  size_t result_count() const { return types_.size(); }
  const Type& result(size_t k) const { return types_[k]; }
  Length result_length(size_t k, int64_t axis) const;

  // The op struct over the operands as they are now, instead of positions.
  template <class Op>
  void replace(Op& n) const {
    visit(n, Now{*this});
  }
  // The results of the node, in the order of its outputs.
  void out_all(const Results& results) {
    for (size_t k = 0; k < given_.size() && k < results.outputs.size(); ++k)
      if (results.outputs[k]) given_[k] = results.outputs[k];
  }

  // Replaces an operand.
  void put(Value operand, Value now) { operands_[operand.id].value = now; }
  // Replaces the padding of an operand along an axis, if it has any there.
  void fill(Value operand, int64_t axis, Fill with);
  void fill(Value operand, int64_t axis, Value scalar);  // of the operand's dtype
  // Along each padded axis from `first` on.
  void fill_all(Value operand, Fill with, int first = 0);
  // The same for any value of a padded type.
  Value filled(Value x, const Length& length, int axis, Value scalar);
  Value number(DType dtype, Fill with);
  // Padded indices are clamped to an axis of this length: they may be out of range.
  void clamp_indices(Value indices, int64_t length);
  // In a graph with gradients, operands of an op that has singular points: what counts nowhere must
  // have a finite slope, because its gradient, which is 0, is multiplied by that.
  void avoid_singular(Value operand) {
    if (gradients_ && operand && is_float(type(operand).dtype)) fill_all(operand, Fill::one);
  }
  // Indices of an axis that is padded: a valid one stays on its element, and one that is out of range
  // without the padding stays so (then another index is reported). clamp: they are clamped to what
  // counts.
  void index_counted(Value indices, const Length& length, int64_t padded, bool clamp);

  void out(size_t k, Value value) {
    if (k < given_.size()) given_[k] = value;
  }
  // Replaces the padding of a result of the op itself along an axis: where an op makes zeros or
  // infinities there, other ops would make NaN of them, also in gradients.
  void refill(size_t k, int64_t axis, Fill with) { refills_.push_back({k, axis, with}); }
  void finish();  // once the results of the op are given
  // The rule refuses the node: it is decomposed, or the graph is refused for this reason.
  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }
  const std::string& why() const { return why_; }

 private:
  struct Now {
    const Padded& p;
    template <class T>
    void attr(const char*, T&, const T&) {}
    void operand(const char*, Value& v) { v = p.value(v); }
    void optional(const char*, Value& v) { v = p.value(v); }
    void list(const char*, std::vector<Value>& vs) {
      for (Value& v : vs) v = p.value(v);
    }
    void output(const char*, bool = true) {}
    void output_list(const char*, size_t) {}
  };

  LengthValues& values_;
  std::span<Operand> operands_;
  std::span<const Type> types_;
  std::span<const Lengths> results_;
  std::vector<Value>& given_;
  bool gradients_;
  std::string why_;
  struct Refill {
    size_t result;
    int64_t axis;
    Fill with;
  };
  std::vector<Refill> refills_;
};

// Rules of many ops. Of those that compute each element, or each row along axes that are not padded,
// by itself:
template <class Op>
bool padded_each(Padded&, const Op&) {
  return true;
}
// Of those that need an axis of their operand x whole.
template <class Op>
bool padded_off_axis(Padded& p, const Op& n) {
  return p.along(n.x, n.axis) ? p.refuse("it works along a padded axis") : true;
}

// Of those that compute each example, along the first axis of x, by itself.
template <class Op>
bool padded_examples(Padded& p, const Op& n) {
  if (p.any_from(n.x, 1)) return p.refuse("it works along a padded axis");
  if constexpr (requires { n.window; })
    if (p.any(n.window)) return p.refuse("its window is padded");
  return true;
}

}  // namespace tenon::core
