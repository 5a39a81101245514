// SPDX-License-Identifier: Apache-2.0
// Rules: comparisons, logic and selection.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

template <Kind kind>
void compare(Call& c) {
  if (c.folds())
    if (auto known = known_compare(kind, *c.known(0), c.need(1, "B")))
      return c.out(std::move(*known));
  c.out(c.b.compare(std::string_view(kind), c.value(0), c.value(1)));
}

template <Kind kind>
void logical(Call& c) {
  for (size_t k = 0; k < 2; ++k)
    if (c.dtype(k) != kBool) c.wrong("input ", k, ": expected bool, got ", c.type(k).text());
  if (c.folds() && fits(broadcast_dims(c.need(0, "A").dims, c.need(1, "B").dims)))
    return c.out(known_logical(kind, *c.known(0), c.need(1, "B")));
  c.out(c.b.logical(std::string_view(kind), c.value(0), c.value(1)));
}

void logical_not(Call& c) {
  if (c.dtype(0) != kBool) c.wrong("input 0: expected bool, got ", c.type(0).text());
  if (c.folds()) {
    Known y = *c.known(0);
    for (int64_t& v : y.ints) v = v == 0;
    return c.out(std::move(y));
  }
  c.out(invert(c.b, c.value(0)));
}

void where(Call& c) {
  if (c.dtype(0) != kBool) c.wrong("input 0: expected bool, got ", c.type(0).text());
  if (c.folds() && c.dtype(1) == c.dtype(2)) {
    const Ints dims = broadcast_dims(broadcast_dims(c.need(0, "A").dims, c.need(1, "B").dims),
                                     c.need(2, "Y").dims);
    if (fits(dims)) return c.out(known_where(*c.known(0), c.need(1, "B"), c.need(2, "Y")));
  }
  c.out(c.b.where(c.value(0), c.value(1), c.value(2)));
}

constexpr Rule kRules[] = {
    {"Equal", 7, compare<"eq">},
    {"Less", 7, compare<"lt">},
    {"LessOrEqual", 12, compare<"le">},
    {"Greater", 7, compare<"gt">},
    {"GreaterOrEqual", 12, compare<"ge">},
    {"And", 7, logical<"and">},
    {"Or", 7, logical<"or">},
    {"Xor", 7, logical<"xor">},
    {"Not", 1, logical_not},
    {"Where", 9, where},
};

}  // namespace

std::span<const Rule> logic_rules() { return kRules; }

}  // namespace tenon::core::onnx
