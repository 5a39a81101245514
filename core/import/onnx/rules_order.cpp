// SPDX-License-Identifier: Apache-2.0
// Rules: order, and running sums and products.
#include <cmath>
#include <map>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

template <class Op>
void arg(Call& c) {
  const int axis = c.axis(c.i("axis", 0), c.rank(0));
  c.out(c.b.add(Op{.axis = axis,
                   .keepdims = c.flag("keepdims", true),
                   .select_last = c.flag("select_last_index", false),
                   .x = c.value(0)}));
}

void topk(Call& c) {
  const int axis = c.axis(c.i("axis", -1), c.rank(0));
  const int64_t k = c.opset < 10 ? c.i("k", -1) : c.integer(1, "k");
  const Results y = c.b.add(op::topk{.k = k,
                                     .axis = axis,
                                     .largest = c.flag("largest", true),
                                     .sorted = c.flag("sorted", true),
                                     .x = c.value(0)});
  c.out(0, y[0]);
  c.out(1, y[1]);
}

template <class Op>
void running(Call& c) {
  if (c.dtype(0) == kBool) c.wrong("input 0: expected a number, got bool");
  const int axis = c.axis(c.integer(1, "axis"), c.rank(0));
  c.out(c.b.add(Op{.axis = axis,
                   .exclusive = c.flag("exclusive", false),
                   .reverse = c.flag("reverse", false),
                   .x = c.value(0)}));
}

// The distinct elements, or slices along an axis, of a tensor whose content is known.
void unique(Call& c) {
  const Known& x = c.need(0, "X");
  for (const double v : x.reals)
    if (std::isnan(v)) c.refuse("distinct elements among NaN");
  const bool flat = !c.has_attr("axis"), sorted = c.flag("sorted", true);
  const int axis = flat ? 0 : c.axis(c.i("axis", 0), x.rank());
  const Known data = flat ? known_reshape(x, {x.size()}) : x;
  const auto along = static_cast<size_t>(axis);
  const int64_t length = data.dims[along];
  Ints slice = data.dims;
  slice[along] = 1;
  const Ints step(slice.size(), 1);
  const auto at = [&](int64_t k) {
    Ints start(slice.size(), 0);
    start[along] = k;
    return known_narrow(data, start, slice, step);
  };
  struct Found {
    int64_t first, count;
  };
  std::map<std::pair<std::vector<double>, std::vector<int64_t>>, Found> found;
  std::vector<std::pair<std::vector<double>, std::vector<int64_t>>> keys;
  std::vector<Known> slices;
  for (int64_t k = 0; k < length; ++k) {
    slices.push_back(at(k));
    keys.emplace_back(slices.back().reals, slices.back().ints);
    ++found.try_emplace(keys.back(), Found{k, 0}).first->second.count;
  }
  std::vector<Found> order;
  for (const auto& [key, f] : found) order.push_back(f);
  if (!sorted)
    std::sort(order.begin(), order.end(),
              [](const Found& a, const Found& b) { return a.first < b.first; });
  std::map<int64_t, int64_t> place;  // of a first position
  Ints first, counts, inverse;
  std::vector<const Known*> parts;
  for (const Found& f : order) {
    place[f.first] = static_cast<int64_t>(first.size());
    first.push_back(f.first);
    counts.push_back(f.count);
    parts.push_back(&slices[static_cast<size_t>(f.first)]);
  }
  for (const auto& key : keys) inverse.push_back(place[found.at(key).first]);
  c.out(0, parts.empty() ? data : known_concat(parts, axis));
  c.out(1, known_vector(std::move(first)));
  c.out(2, known_vector(std::move(inverse)));
  c.out(3, known_vector(std::move(counts)));
}

constexpr Rule kRules[] = {
    {"ArgMax", 1, arg<op::argmax>},
    {"ArgMin", 1, arg<op::argmin>},
    {"TopK", 1, topk},
    {"CumSum", 11, running<op::cumsum>},
    {"CumProd", 26, running<op::cumprod>},
    {"Unique", 11, unique},
};

}  // namespace

std::span<const Rule> order_rules() { return kRules; }

}  // namespace tenon::core::onnx
