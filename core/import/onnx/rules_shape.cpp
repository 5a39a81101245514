// SPDX-License-Identifier: Apache-2.0
// Rules: ops that move elements or change shapes.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

// The result of a reshape, known or not.
void give_reshaped(Call& c, const Ints& dims) {
  if (const Known* x = c.known(0)) return c.out(known_reshape(*x, dims));
  c.out(c.b.reshape(c.value(0), shape_of(dims)));
}

void reshape(Call& c) {
  const Shape from = c.shape(0);
  Ints dims = c.ints(1, "shape");
  const bool zero_is_zero = c.opset >= 14 && c.flag("allowzero", false);
  const int64_t count = from.elements();
  int64_t known = 1, open = -1;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] == 0 && !zero_is_zero) {
      if (static_cast<int>(k) >= from.rank())
        c.wrong("shape: entry ", k, " is 0, but the input has rank ", from.rank());
      dims[k] = from[static_cast<int>(k)];
    }
    if (dims[k] == -1) {
      if (open >= 0) c.wrong("shape: expected at most one -1");
      open = static_cast<int64_t>(k);
    } else if (dims[k] < 0) {
      c.wrong("shape: expected numbers >= -1, got ", dims[k]);
    } else if (__builtin_mul_overflow(known, dims[k], &known)) {
      c.wrong("shape: too many elements");
    }
  }
  if (open >= 0) {
    if (known == 0 ? count != 0 : count % known != 0)
      c.wrong("shape: ", count, " elements of ", from.text(), " do not fill it");
    dims[static_cast<size_t>(open)] = known == 0 ? 0 : count / known;
  }
  if (count_of(dims) != count)
    c.wrong("shape: expected ", count, " elements as ", from.text(), ", got ", count_of(dims));
  give_reshaped(c, dims);
}

void flatten(Call& c) {
  const Shape s = c.shape(0);
  int64_t axis = c.i("axis", 1);
  if (axis < 0) axis += s.rank();
  if (axis < 0 || axis > s.rank()) c.wrong("axis: expected [-", s.rank(), ", ", s.rank(), "]");
  const int at = static_cast<int>(axis);
  give_reshaped(c, {product(s, 0, at), product(s, at, s.rank())});
}

// Axes are an attribute before opset 13.
std::optional<Ints> axes_of(Call& c) {
  if (c.opset >= 13) return c.has(1) ? std::optional(c.ints(1, "axes")) : std::nullopt;
  return c.has_attr("axes") ? std::optional(c.is("axes")) : std::nullopt;
}

void squeeze(Call& c) {
  const Shape s = c.shape(0);
  const std::optional<Ints> given = axes_of(c);
  Ints axes;
  if (given)
    axes = c.axes(*given, s.rank());
  else
    for (int k = 0; k < s.rank(); ++k)
      if (s[k] == 1) axes.push_back(k);
  Ints dims;
  for (const int64_t k : other_axes(axes, s.rank())) dims.push_back(s[static_cast<int>(k)]);
  for (const int64_t k : axes)
    if (s[static_cast<int>(k)] != 1) c.wrong("axes: axis ", k, " of ", s.text(), " is not 1");
  give_reshaped(c, dims);
}

void unsqueeze(Call& c) {
  const Shape s = c.shape(0);
  const std::optional<Ints> given = axes_of(c);
  if (!given) c.wrong("axes are required");
  const int rank = s.rank() + static_cast<int>(given->size());
  const Ints axes = c.axes(*given, rank);
  Ints dims;
  for (int64_t k = 0, next = 0; k < rank; ++k)
    dims.push_back(
        std::find(axes.begin(), axes.end(), k) != axes.end() ? 1 : s[static_cast<int>(next++)]);
  give_reshaped(c, dims);
}

void transpose(Call& c) {
  const int rank = c.rank(0);
  Ints perm = c.is("perm");
  if (!c.has_attr("perm")) {
    perm = iota_list(rank);
    std::reverse(perm.begin(), perm.end());
  }
  Ints sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != iota_list(rank))
    c.wrong("attribute perm: expected a permutation of ", rank, " axes");
  if (c.folds()) return c.out(known_transpose(*c.known(0), perm));
  c.out(c.b.transpose(c.value(0), perm));
}

void concat(Call& c) {
  if (c.inputs() == 0) c.wrong("expected at least one input");
  if (!c.has_attr("axis")) c.wrong("attribute axis is required");
  const int axis = c.axis(c.i("axis", 0), c.rank(0));
  if (c.folds()) {
    std::vector<const Known*> parts;
    for (size_t k = 0; k < c.inputs(); ++k) parts.push_back(&c.need(k, "input"));
    return c.out(known_concat(parts, axis));
  }
  std::vector<Value> xs;
  for (size_t k = 0; k < c.inputs(); ++k) xs.push_back(c.value(k));
  c.out(c.b.concat(std::move(xs), axis));
}

void give_narrowed(Call& c, size_t output, const Ints& start, const Ints& len, const Ints& step) {
  if (c.known(0)) return c.out(output, known_narrow(*c.known(0), start, len, step));
  if (len == dims_of(c.shape(0)) && step == Ints(step.size(), 1))
    return c.out_item(output, Item{.value = c.value(0)});
  c.out(output, c.b.add(op::narrow{.start = start, .len = len, .step = step, .x = c.value(0)}));
}

void split(Call& c) {
  const Shape s = c.shape(0);
  const int axis = c.axis(c.i("axis", 0), s.rank());
  const auto count = static_cast<int64_t>(c.outputs());
  Ints parts = c.opset < 13 ? c.is("split") : c.has(1) ? c.ints(1, "split") : Ints{};
  if (parts.empty()) {
    const int64_t number = c.i("num_outputs", count);
    if (number != count) c.wrong("attribute num_outputs: expected ", count, ", got ", number);
    const int64_t each = (s[axis] + number - 1) / number;
    for (int64_t k = 0; k < number; ++k)
      parts.push_back(std::max<int64_t>(0, std::min(each, s[axis] - k * each)));
  }
  if (static_cast<int64_t>(parts.size()) != count)
    c.wrong("split: expected ", count, " lengths, got ", parts.size());
  int64_t sum = 0;
  for (const int64_t p : parts) {
    if (p < 0 || p > s[axis]) c.wrong("split: a length of ", p, " of ", s[axis]);
    sum += p;
  }
  if (sum != s[axis]) c.wrong("split: lengths sum to ", sum, ", expected ", s[axis]);
  Ints start(static_cast<size_t>(s.rank()), 0), len = dims_of(s), step(start.size(), 1);
  for (size_t k = 0; k < parts.size(); ++k) {
    len[static_cast<size_t>(axis)] = parts[k];
    give_narrowed(c, k, start, len, step);
    start[static_cast<size_t>(axis)] += parts[k];
  }
}

void slice(Call& c) {
  const Shape s = c.shape(0);
  const bool attributes = c.opset < 10;
  const Ints starts = attributes ? c.is("starts") : c.ints(1, "starts");
  const Ints ends = attributes ? c.is("ends") : c.ints(2, "ends");
  Ints axes = iota_list(static_cast<int64_t>(starts.size())), steps(starts.size(), 1);
  if (attributes && c.has_attr("axes")) axes = c.is("axes");
  if (!attributes && c.has(3)) axes = c.ints(3, "axes");
  if (!attributes && c.has(4)) steps = c.ints(4, "steps");
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    c.wrong("expected as many ends, axes and steps as starts, ", starts.size());
  axes = c.axes(std::move(axes), s.rank());
  Ints start(static_cast<size_t>(s.rank()), 0), len = dims_of(s), step(start.size(), 1);
  for (size_t k = 0; k < axes.size(); ++k) {
    const auto a = static_cast<size_t>(axes[k]);
    const int64_t d = len[a], by = steps[k];
    if (by == 0) c.wrong("steps: expected numbers other than 0");
    const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? d : d - 1;
    const auto place = [&](int64_t p) { return std::clamp(p < 0 ? p + d : p, low, high); };
    const int64_t from = place(starts[k]), to = place(ends[k]);
    // As unsigned numbers, so that no distance overflows.
    const auto stride = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
    const int64_t distance = by > 0 ? to - from : from - to;
    len[a] = distance <= 0
                 ? 0
                 : static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
    start[a] = len[a] == 0 ? 0 : from;
    step[a] = len[a] < 2 ? 1 : by;
  }
  give_narrowed(c, 0, start, len, step);
}

void expand(Call& c) {
  const Ints to = broadcast_dims(dims_of(c.shape(0)), c.ints(1, "shape"));
  if (c.folds() && fits(to)) return c.out(known_expand(*c.known(0), to));
  c.out(c.b.expand(c.value(0), shape_of(to)));
}

void tile(Call& c) {
  const Shape s = c.shape(0);
  const Ints repeats = c.sane(c.ints(1, "repeats"), "repeats");
  if (static_cast<int>(repeats.size()) != s.rank())
    c.wrong("repeats: expected ", s.rank(), " numbers, got ", repeats.size());
  Builder& b = c.b;
  if (c.folds()) {
    Known y = *c.known(0);
    Ints to;
    bool small = true;
    for (size_t k = 0; k < repeats.size(); ++k) {
      if (repeats[k] < 0 || repeats[k] > kMostKnown) small = false;
      to.push_back(small ? repeats[k] * s[static_cast<int>(k)] : kMostKnown + 1);
    }
    if (small && fits(to)) {
      for (size_t k = 0; k < repeats.size(); ++k) {
        if (repeats[k] == 0) {
          y = known_full(y.dtype, to, 0);
          break;
        }
        const std::vector<const Known*> copies(static_cast<size_t>(repeats[k]), &y);
        y = known_concat(copies, static_cast<int>(k));
      }
      return c.out(std::move(y));
    }
  }
  Value x = c.value(0);
  for (int k = 0; k < s.rank(); ++k) {
    const int64_t times = repeats[static_cast<size_t>(k)];
    if (times < 0) c.wrong("repeats: expected numbers >= 0, got ", times);
    if (times == 1) continue;
    const Shape now = b.shape(x);
    // [before, 1, d·behind] to [before, times, d·behind]
    const int64_t before = product(now, 0, k), behind = product(now, k, now.rank());
    Shape to = now;
    if (__builtin_mul_overflow(to[k], times, &to[k])) c.wrong("repeats: too many elements");
    x = b.reshape(b.expand(b.reshape(x, {before, 1, behind}), {before, times, behind}), to);
  }
  c.out(x);
}

// Blocks of channels become blocks of pixels, or the other way round.
void depth_to_space(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t k = c.i("blocksize", 0);
  const std::string mode = c.s("mode", "DCR");
  if (s.rank() != 4 || k < 1 || s[1] % (k * k))
    c.wrong("expected [N, C, H, W] with C a multiple of the square of blocksize ", k, ", got ",
            s.text());
  if (mode != "DCR" && mode != "CRD")
    c.wrong("attribute mode: expected DCR or CRD, got '", mode, "'");
  const int64_t depth = s[1] / (k * k);
  const bool depth_last = mode == "DCR";
  const Value x = depth_last ? b.reshape(c.value(0), {s[0], k, k, depth, s[2], s[3]})
                             : b.reshape(c.value(0), {s[0], depth, k, k, s[2], s[3]});
  const Ints perm = depth_last ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3};
  c.out(b.reshape(b.transpose(x, perm), {s[0], depth, s[2] * k, s[3] * k}));
}

void space_to_depth(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int64_t k = c.i("blocksize", 0);
  const std::string mode = c.s("mode", "DCR");
  if (s.rank() != 4 || k < 1 || s[2] % k || s[3] % k)
    c.wrong("expected [N, C, H, W] with H and W multiples of blocksize ", k, ", got ", s.text());
  const Value x = b.reshape(c.value(0), {s[0], s[1], s[2] / k, k, s[3] / k, k});
  const Ints perm = mode == "CRD" ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4};
  c.out(b.reshape(b.transpose(x, perm), {s[0], s[1] * k * k, s[2] / k, s[3] / k}));
}

constexpr Rule kRules[] = {
    {"Reshape", 5, reshape},
    {"Flatten", 1, flatten},
    {"Squeeze", 1, squeeze},
    {"Unsqueeze", 1, unsqueeze},
    {"Transpose", 1, transpose},
    {"Concat", 4, concat},
    {"Split", 2, split},
    {"Slice", 1, slice},
    {"Expand", 8, expand},
    {"Tile", 6, tile},
    {"DepthToSpace", 1, depth_to_space},
    {"SpaceToDepth", 1, space_to_depth},
};

}  // namespace

std::span<const Rule> shape_rules() { return kRules; }

}  // namespace tenon::core::onnx
