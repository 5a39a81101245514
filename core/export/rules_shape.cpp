// SPDX-License-Identifier: Apache-2.0
// Ops that move elements, as nodes of ONNX.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/number.hpp"
#include "export/call.hpp"

namespace tenon::core::onnx {
namespace {

constexpr int64_t kFirst = std::numeric_limits<int64_t>::min(),
                  kLast = std::numeric_limits<int64_t>::max();

void write_narrow(Call& c) {
  const auto n = decode<op::narrow>(c.node);
  Ints starts, ends, axes, steps;
  for (int k = 0; k < c.rank(n.x); ++k) {
    const auto i = static_cast<size_t>(k);
    const int64_t start = n.start.empty() ? 0 : n.start[i], step = n.step.empty() ? 1 : n.step[i];
    int64_t end = step > 0 ? kLast : kFirst;
    if (!n.len.empty()) {
      end = start + n.len[i] * step;
      if (n.len[i] == 0) end = start;
      if (end < 0) end = kFirst;
    }
    if (start == 0 && step == 1 && (n.len.empty() || n.len[i] == c.dim(n.x, k))) continue;
    starts.push_back(start);
    ends.push_back(end);
    axes.push_back(k);
    steps.push_back(step);
  }
  const Ref x = c.in(n.x);
  if (axes.empty()) return c.out(c.e.add("Identity", {x}));
  c.out(c.e.add("Slice", {x, c.e.ints(starts), c.e.ints(ends), c.e.ints(axes), c.e.ints(steps)}));
}

void write_concat(Call& c) {
  const auto n = decode<op::concat>(c.node);
  std::vector<Ref> xs;
  for (Value v : n.xs) xs.push_back(c.in(v));
  c.out(c.e.add("Concat", xs, {attribute("axis", n.axis)}));
}

void write_transpose(Call& c) {
  const auto n = decode<op::transpose>(c.node);
  Ints perm = n.perm;
  if (perm.empty()) {
    perm = count_up(c.rank(n.x));
    std::ranges::reverse(perm);
  }
  const Ref x = c.in(n.x);
  c.out(perm.empty() ? c.e.add("Identity", {x})
                     : c.e.add("Transpose", {x}, {attribute("perm", perm)}));
}

void write_expand(Call& c) {
  const auto n = decode<op::expand>(c.node);
  Ints shape = n.shape;
  for (int64_t& d : shape)
    if (d == -1) d = 1;  // which keeps the dim
  c.out(c.e.add("Expand", {c.in(n.x), c.e.ints(shape)}));
}

void write_reshape(Call& c) {
  const auto n = decode<op::reshape>(c.node);
  std::vector<Attribute> attributes;
  if (n.allow_zero) attributes.push_back(attribute("allowzero", 1));
  c.out(c.e.add("Reshape", {c.in(n.x), c.e.ints(n.shape)}, std::move(attributes)));
}

// Mirrors with the edge, which ONNX lacks: slices that run backward.
Ref symmetric(Call& c, Ref x, const Ints& before, const Ints& after) {
  for (size_t k = 0; k < before.size(); ++k) {
    const auto axis = static_cast<int64_t>(k);
    std::vector<Ref> parts;
    if (before[k]) parts.push_back(c.e.slice(x, axis, before[k] - 1, kFirst, -1));
    parts.push_back(x);
    if (after[k]) parts.push_back(c.e.slice(x, axis, -1, -after[k] - 1, -1));
    x = c.e.concat(parts, axis);
  }
  return x;
}

void write_pad(Call& c) {
  const auto n = decode<op::pad>(c.node);
  const auto rank = static_cast<size_t>(c.rank(n.x));
  const Ints before = n.before.empty() ? Ints(rank, 0) : n.before,
             after = n.after.empty() ? Ints(rank, 0) : n.after;
  const Ref x = c.in(n.x);
  if (std::ranges::all_of(before, [](int64_t v) { return v == 0; }) &&
      std::ranges::all_of(after, [](int64_t v) { return v == 0; }))
    return c.out(c.e.add("Identity", {x}));
  if (n.mode == "symmetric") return c.out(symmetric(c, x, before, after));
  Ints pads = before;
  pads.insert(pads.end(), after.begin(), after.end());
  Ref value;
  if (n.mode == "constant" && n.value != 0) {
    double unused = 0;
    const Bytes zero(8);
    if (tenon_dtype_bits(x.dtype) % 8 || !load_number(x.dtype, zero.data(), &unused))
      c.refuse("pads ", dtype_name(x.dtype), " with ", n.value);
    value = c.e.scalar(x.dtype, n.value);
  }
  c.out(c.e.add("Pad", {x, c.e.ints(pads), value}, {attribute("mode", n.mode)}));
}

// The elements along the axis; a long line is computed by the model.
Ref line(Call& c, const op::iota& n, int64_t count) {
  constexpr int64_t kMostStored = 1024;
  Emitter& e = c.e;
  const bool whole = !is_float(n.dtype);
  if (count <= kMostStored) {
    const size_t each = tenon_dtype_bits(n.dtype) / 8;
    Bytes bytes(static_cast<size_t>(count) * each);
    for (int64_t k = 0; k < count; ++k) {
      std::byte* at = bytes.data() + static_cast<size_t>(k) * each;
      if (whole) {
        const auto v =
            static_cast<uint64_t>(static_cast<int64_t>(n.start)) +
            static_cast<uint64_t>(static_cast<int64_t>(n.step)) * static_cast<uint64_t>(k);
        std::memcpy(at, &v, each);  // the low bytes
      } else {
        store_number(n.dtype, at, n.start + n.step * static_cast<double>(k));
      }
    }
    return e.constant({n.dtype, {count}}, std::make_shared<const Bytes>(std::move(bytes)));
  }
  Ref y = e.range(e.integer(count));
  const DType t = whole ? kI64 : kF64;
  y = e.cast(y, t);
  const auto number = [&](double v) {
    return whole ? e.integer(static_cast<int64_t>(v)) : e.scalar(t, v);
  };
  if (n.step != 1) y = e.add("Mul", {y, number(n.step)});
  if (n.start != 0) y = e.add("Add", {y, number(n.start)});
  return e.cast(y, n.dtype);
}

void write_iota(Call& c) {
  const auto n = decode<op::iota>(c.node);
  if (!c.is_known(c.node.outputs[0])) c.refuse("its shape is known only when the model runs");
  const auto rank = static_cast<int>(n.shape.size());
  const auto axis = static_cast<size_t>(from_front(n.axis, rank));
  Ref y = line(c, n, n.shape[axis]);
  if (rank > 1) {
    Ints along(static_cast<size_t>(rank), 1);
    along[axis] = n.shape[axis];
    y = c.e.add("Reshape", {y, c.e.ints(along)}, {attribute("allowzero", 1)});
    y = c.e.add("Expand", {y, c.e.ints(n.shape)});
  }
  c.out(y);
}

constexpr ExportRule kRules[] = {
    {"narrow", write_narrow}, {"concat", write_concat},   {"transpose", write_transpose},
    {"expand", write_expand}, {"reshape", write_reshape}, {"pad", write_pad},
    {"iota", write_iota},
};

}  // namespace

std::span<const ExportRule> shape_export_rules() { return kRules; }

}  // namespace tenon::core::onnx
