// SPDX-License-Identifier: Apache-2.0
// Rules: sequences of tensors, and optionals. They exist while a model is translated only, so positions in them
// must be known, and no sequence leaves the model.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

using List = std::vector<Item>;

const List& list_of(const Call& c, size_t k) {
  const Item& item = c.item(k);
  if (!item.list) c.wrong("input ", k, ": expected a sequence, got a tensor");
  return *item.list;
}
void give(const Call& c, List list) {
  Item item;
  item.list = std::make_shared<const List>(std::move(list));
  c.out_item(0, std::move(item));
}
size_t position(const Call& c, size_t k, size_t count) {
  int64_t at = c.integer(k, "position");
  if (at < 0) at += static_cast<int64_t>(count);
  if (at < 0 || at > static_cast<int64_t>(count))
    c.wrong("position: expected one in a sequence of ", count, ", got ", c.integer(k, "position"));
  return static_cast<size_t>(at);
}

void construct(Call& c) {
  List list;
  for (size_t k = 0; k < c.inputs(); ++k) list.push_back(c.item(k));
  give(c, std::move(list));
}
void empty(Call& c) { give(c, {}); }
void length(Call& c) { c.out(known_scalar(static_cast<int64_t>(list_of(c, 0).size()))); }

void at(Call& c) {
  const List& list = list_of(c, 0);
  const size_t k = position(c, 1, list.size());
  if (k == list.size())
    c.wrong("position: expected one in a sequence of ", list.size(), ", got ", k);
  c.out_item(0, list[k]);
}

void insert(Call& c) {
  List list = list_of(c, 0);
  const size_t k = c.has(2) ? position(c, 2, list.size()) : list.size();
  list.insert(list.begin() + static_cast<ptrdiff_t>(k), c.item(1));
  give(c, std::move(list));
}

void erase(Call& c) {
  List list = list_of(c, 0);
  if (list.empty()) c.wrong("the sequence is empty");
  const size_t k = c.has(1) ? position(c, 1, list.size()) : list.size() - 1;
  if (k == list.size())
    c.wrong("position: expected one in a sequence of ", list.size(), ", got ", k);
  list.erase(list.begin() + static_cast<ptrdiff_t>(k));
  give(c, std::move(list));
}

void split(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int axis = c.axis(c.i("axis", 0), s.rank());
  Ints lengths;
  bool keepdims = true;
  if ((!c.has(1) || c.rank(1) == 0) && s[axis] > kMostParts)
    c.refuse("a sequence of more than ", kMostParts, " tensors");
  if (!c.has(1)) {
    lengths.assign(static_cast<size_t>(s[axis]), 1);
    keepdims = c.flag("keepdims", true);
  } else if (c.rank(1) == 0) {
    const int64_t each = c.integer(1, "split");
    if (each < 1) c.wrong("split: expected a number from 1 on, got ", each);
    for (int64_t left = s[axis]; left > 0; left -= each) lengths.push_back(std::min(left, each));
  } else {
    lengths = c.ints(1, "split");
  }
  List list;
  int64_t start = 0;
  for (const int64_t len : lengths) {
    if (len < 0 || len > s[axis] - start) c.wrong("split: lengths do not fit ", s[axis]);
    Value part = b.narrow(c.value(0), axis, start, len);
    if (!keepdims) {
      Shape without;
      for (int k = 0; k < s.rank(); ++k)
        if (k != axis) without.push(s[k]);
      part = b.reshape(part, without);
    }
    Item item;
    item.value = part;
    list.push_back(std::move(item));
    start += len;
  }
  if (start != s[axis]) c.wrong("split: lengths sum to ", start, ", expected ", s[axis]);
  give(c, std::move(list));
}

void concat(Call& c) {
  Builder& b = c.b;
  List list = list_of(c, 0);
  if (list.empty()) c.wrong("the sequence is empty");
  const bool stacks = c.flag("new_axis", false);
  std::vector<Value> parts;
  for (Item& item : list) parts.push_back(c.scope.value(item));
  const int axis = c.axis(c.i("axis", 0), b.shape(parts[0]).rank() + (stacks ? 1 : 0));
  if (stacks)
    for (Value& v : parts) v = b.unsqueeze(v, axis);
  c.out_item(0, Item{.value = b.concat(parts, axis)});
}

// An optional that is there is its element; one that is not there is an absent input.
void has_element(Call& c) { c.out(known_ints(kBool, {}, {c.has(0)})); }
void element(Call& c) { c.out_item(0, c.item(0)); }

constexpr Rule kRules[] = {
    {"SequenceConstruct", 11, construct},    {"SequenceEmpty", 11, empty},
    {"SequenceLength", 11, length},          {"SequenceAt", 11, at},
    {"SequenceInsert", 11, insert},          {"SequenceErase", 11, erase},
    {"SplitToSequence", 11, split},          {"ConcatFromSequence", 11, concat},
    {"OptionalHasElement", 15, has_element}, {"OptionalGetElement", 15, element},
};

}  // namespace

std::span<const Rule> sequence_rules() { return kRules; }

}  // namespace tenon::core::onnx
