// SPDX-License-Identifier: Apache-2.0
// Rules: padding and cropping.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// The axis repeats itself on both sides.
Value wrapped_around(Builder& b, Value x, int axis, int64_t before, int64_t after) {
  const int64_t d = b.shape(x)[axis];
  std::vector<Value> parts;
  for (int64_t left = before; left > 0;) {
    const int64_t len = left % d ? left % d : d;
    parts.push_back(b.narrow(x, axis, d - len, len));
    left -= len;
  }
  parts.push_back(x);
  for (int64_t left = after; left > 0;) {
    const int64_t len = std::min(left, d);
    parts.push_back(b.narrow(x, axis, 0, len));
    left -= len;
  }
  return b.concat(std::move(parts), axis);
}

// Mirrors repeatedly where the padding is longer than the axis.
Value mirrored(Builder& b, Value x, const Ints& before, const Ints& after) {
  Ints left = before, right = after;
  for (bool again = true; again;) {
    again = false;
    Ints now_left, now_right;
    const Shape s = b.shape(x);
    for (int k = 0; k < s.rank(); ++k) {
      auto& l = left[static_cast<size_t>(k)];
      auto& r = right[static_cast<size_t>(k)];
      const int64_t most = std::max<int64_t>(s[k] - 1, 0);
      now_left.push_back(std::min(l, most));
      now_right.push_back(std::min(r, most));
      l -= now_left.back();
      r -= now_right.back();
      again |= l > 0 || r > 0;
    }
    x = b.add(op::pad{.before = now_left, .after = now_right, .mode = "reflect", .x = x});
  }
  return x;
}

Value padded(Call& c, Value x, Ints before, Ints after, const std::string& mode, Value fill,
             double number) {
  Builder& b = c.b;
  const Shape s = b.shape(x);
  // Negative padding removes elements first.
  Ints start(static_cast<size_t>(s.rank()), 0), len = dims_of(s);
  for (size_t k = 0; k < len.size(); ++k) {
    const int64_t cut_before = std::max<int64_t>(0, -before[k]),
                  cut_after = std::max<int64_t>(0, -after[k]);
    if (cut_before + cut_after > len[k])
      c.wrong("pads: axis ", k, " of ", s.text(), " loses more than it has");
    start[k] = cut_before;
    len[k] -= cut_before + cut_after;
    before[k] = std::max<int64_t>(0, before[k]);
    after[k] = std::max<int64_t>(0, after[k]);
  }
  if (len != dims_of(s)) x = b.add(op::narrow{.start = start, .len = len, .x = x});
  const Ints none(len.size(), 0);
  if (before == none && after == none) return x;
  if (mode == "wrap") {
    for (int k = 0; k < s.rank(); ++k) {
      if (len[static_cast<size_t>(k)] == 0) c.wrong("pads: axis ", k, " has nothing to repeat");
      if ((before[static_cast<size_t>(k)] + after[static_cast<size_t>(k)]) /
              len[static_cast<size_t>(k)] >
          kMostParts)
        c.refuse("pads: axis ", k, " repeats more than ", kMostParts, " times");
      x = wrapped_around(b, x, k, before[static_cast<size_t>(k)], after[static_cast<size_t>(k)]);
    }
    return x;
  }
  if (mode == "reflect") {
    for (size_t k = 0; k < len.size(); ++k)
      if (len[k] < 2 && (before[k] || after[k]))
        c.wrong("pads: axis ", k, " has nothing to mirror");
    return mirrored(b, x, before, after);
  }
  if (mode == "constant" && fill) {
    // Only the run knows the number: pad with 0 and choose.
    const Shape inner = b.shape(x);
    const Value inside = b.add(op::pad{.before = before,
                                       .after = after,
                                       .x = b.expand(c.constant(known_full(kBool, {}, 1)), inner)});
    return b.where(inside, b.add(op::pad{.before = before, .after = after, .x = x}),
                   b.reshape(fill, {}));
  }
  if (mode != "constant" && mode != "edge")
    c.wrong("attribute mode: expected constant, reflect, edge or wrap, got '", mode, "'");
  return b.add(op::pad{.before = before, .after = after, .mode = mode, .value = number, .x = x});
}

void pad(Call& c) {
  const int rank = c.rank(0);
  const bool attributes = c.opset < 11;
  const Ints pads = c.sane(attributes ? c.is("pads") : c.ints(1, "pads"), "pads");
  Ints axes = iota_list(rank);
  if (c.has(3)) axes = c.axes(c.ints(3, "axes"), rank);
  if (pads.size() != 2 * axes.size())
    c.wrong("pads: expected ", 2 * axes.size(), " numbers, got ", pads.size());
  Ints before(static_cast<size_t>(rank), 0), after = before;
  for (size_t k = 0; k < axes.size(); ++k) {
    before[static_cast<size_t>(axes[k])] = pads[k];
    after[static_cast<size_t>(axes[k])] = pads[k + axes.size()];
  }
  double number = attributes ? c.f("value", 0) : 0;
  Value fill{};
  if (!attributes && c.has(2)) {
    const DType t = c.dtype(2);
    const bool exact = is_float(t) || (tenon_dtype_bits(t) <= 32);
    if (c.known(2) && exact)
      number = c.number(2, "constant_value");
    else
      fill = c.value(2);
  }
  c.out_item(0, Item{.value = padded(c, c.value(0), before, after, c.s("mode", "constant"), fill,
                                     number)});
}

void center_crop_pad(Call& c) {
  const Shape s = c.shape(0);
  const Ints to = c.sane(c.ints(1, "shape"), "shape");
  const Ints axes = c.has_attr("axes") ? c.axes(c.is("axes"), s.rank()) : iota_list(s.rank());
  if (axes.size() != to.size())
    c.wrong("shape: expected ", axes.size(), " numbers, got ", to.size());
  Ints before(static_cast<size_t>(s.rank()), 0), after = before;
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t more = to[k] - s[static_cast<int>(axes[k])];
    // The odd pixel: padding goes to the end, cropping starts half a pixel earlier.
    const int64_t first = more >= 0 ? more / 2 : -((-more) / 2);
    before[static_cast<size_t>(axes[k])] = first;
    after[static_cast<size_t>(axes[k])] = more - first;
  }
  c.out_item(0, Item{.value = padded(c, c.value(0), before, after, "constant", {}, 0)});
}

constexpr Rule kRules[] = {
    {"Pad", 2, pad},
    {"CenterCropPad", 18, center_crop_pad},
};

}  // namespace

std::span<const Rule> pad_rules() { return kRules; }

}  // namespace tenon::core::onnx
