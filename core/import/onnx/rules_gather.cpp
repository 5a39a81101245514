// SPDX-License-Identifier: Apache-2.0
// Rules: reading elements by index.
#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {

Value flat_index(Builder& b, Value indices, const Shape& dims, int64_t count) {
  const int last = b.shape(indices).rank() - 1;
  Value flat{}, inside{};
  for (int k = 0; k < static_cast<int>(count); ++k) {
    Shape without = b.shape(indices);
    without[last] = 1;
    Shape out;
    for (int i = 0; i < last; ++i) out.push(without[i]);
    Value part = b.reshape(b.narrow(indices, last, k, 1), out);
    part = from_front(b, part, dims[k]);
    const Value in = b.logical("and", b.compare("ge", part, b.scalar_int(kI64, 0)),
                               b.compare("lt", part, b.scalar_int(kI64, dims[k])));
    inside = inside ? b.logical("and", inside, in) : in;
    flat = flat ? b.plus(b.times(flat, b.scalar_int(kI64, dims[k])), part) : part;
  }
  // Out of range on one axis is out of range as a whole, also behind a batch.
  return b.where(inside, flat, b.scalar_int(kI64, int64_t{1} << 62));
}

namespace {

void gather(Call& c) {
  const int axis = c.axis(c.i("axis", 0), c.rank(0));
  if (c.folds() && is_integer(c.dtype(1))) {
    Ints dims = dims_of(c.shape(0));
    dims.erase(dims.begin() + axis);
    for (const int64_t d : c.known(1)->dims) dims.push_back(d);
    if (fits(dims)) return c.out(known_gather(*c.known(0), c.need(1, "indices"), axis));
  }
  c.out(c.b.add(op::gather{.axis = axis, .data = c.value(0), .indices = c.value(1)}));
}

void gather_elements(Call& c) {
  const int axis = c.axis(c.i("axis", 0), c.rank(0));
  c.out(c.b.add(op::gather_elements{.axis = axis, .data = c.value(0), .indices = c.value(1)}));
}

void gather_nd(Call& c) {
  Builder& b = c.b;
  const Shape data = c.shape(0), indices = c.shape(1);
  const int64_t batch = c.i("batch_dims", 0);
  if (data.rank() < 1 || indices.rank() < 1) c.wrong("expected inputs of rank 1 or more");
  const int64_t count = indices[indices.rank() - 1];
  if (batch < 0 || batch >= indices.rank() || batch + count > data.rank() || count < 1)
    c.wrong("indices of ", indices.text(), " with batch_dims ", batch, " do not fit ", data.text());
  const int first = static_cast<int>(batch), last = static_cast<int>(batch + count);
  Shape dims;
  for (int k = first; k < last; ++k) dims.push(data[k]);
  const int64_t batches = product(data, 0, first), places = product(data, first, last);
  if (product(indices, 0, first) != batches) c.wrong("expected equal batch dims");
  Value flat = flat_index(b, b.cast(c.value(1), kI64), dims, count);
  const Shape places_shape = b.shape(flat);
  Shape out = places_shape;
  for (int k = last; k < data.rank(); ++k) out.push(data[k]);
  if (batch > 0) {
    const int64_t each = batches == 0 ? 0 : places_shape.elements() / batches;
    flat = b.plus(b.reshape(flat, {batches, each}),
                  b.iota({batches, 1}, 0, kI64, 0, static_cast<double>(places)));
    flat = b.reshape(flat, {batches * each});
  }
  Shape rows{batches * places};
  for (int k = last; k < data.rank(); ++k) rows.push(data[k]);
  c.out(b.reshape(b.add(op::gather{.data = b.reshape(c.value(0), rows), .indices = flat}), out));
}

void non_zero(Call& c) {
  if (c.folds()) return c.out(known_non_zero(*c.known(0)));
  Builder& b = c.b;
  const Results found = b.add(op::non_zero{.x = c.value(0)});
  c.out(b.swap_last(found[0]));
}

// The elements whose condition holds.
void compress(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (c.dtype(1) != kBool || c.rank(1) != 1)
    c.wrong("condition: expected bool of rank 1, got ", c.type(1).text());
  const bool flat = !c.has_attr("axis");
  const int axis = flat ? 0 : c.axis(c.i("axis", 0), s.rank());
  const Value x = flat ? b.reshape(c.value(0), {s.elements()}) : c.value(0);
  const int64_t length = b.shape(x)[axis];
  Value places{};
  if (const Known* known = c.known(1)) {
    Ints list;
    for (size_t i = 0; i < known->ints.size() && static_cast<int64_t>(i) < length; ++i)
      if (known->ints[i]) list.push_back(static_cast<int64_t>(i));
    places = index_constant(b, list);
  } else {
    const Value condition = b.narrow(c.value(1), 0, 0, std::min(length, c.shape(1)[0]));
    const Results found = b.add(op::non_zero{.x = condition});
    places = b.reduce("sum", found[0], {1}, false);  // drops the axis; a reshape takes no extent
  }
  c.out(b.add(op::gather{.axis = axis, .data = x, .indices = places}));
}

// Each row of a batch reverses its first lengths[b] entries along the time axis.
void reverse_sequence(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  const int batch = c.axis(c.i("batch_axis", 1), s.rank()),
            time = c.axis(c.i("time_axis", 0), s.rank());
  if (batch == time) c.wrong("attribute batch_axis: expected another axis than time_axis");
  Shape along_time, along_batch;
  for (int k = 0; k < s.rank(); ++k) {
    along_time.push(k == time ? s[k] : 1);
    along_batch.push(k == batch ? s[k] : 1);
  }
  const Value at = b.iota(along_time, time, kI64);
  const Value length = b.reshape(b.cast(c.value(1), kI64), along_batch);
  const Value mirrored = b.minus(b.minus(length, at), b.scalar_int(kI64, 1));
  const Value index = b.where(b.compare("lt", at, length), mirrored, at);
  c.out(
      b.add(op::gather_elements{.axis = time, .data = c.value(0), .indices = b.expand(index, s)}));
}

void one_hot(Call& c) {
  Builder& b = c.b;
  const double given = c.number(1, "depth");
  if (!(given >= 0 && given < 2147483648.0)) c.wrong("depth: expected 0 to 2^31 - 1, got ", given);
  const auto depth = static_cast<int64_t>(given);
  if (c.shape(2).elements() != 2) c.wrong("values: expected two elements, got ", c.type(2).text());
  const Shape s = c.shape(0);
  const int axis = c.axis(c.i("axis", -1), s.rank() + 1);
  Value index = from_front(b, b.cast(c.value(0), kI64), depth);
  index = b.unsqueeze(index, axis);
  Shape along;
  for (int k = 0; k <= s.rank(); ++k) along.push(k == axis ? depth : 1);
  const Value hot = b.compare("eq", index, b.iota(along, axis, kI64));
  const Value values = b.reshape(c.value(2), {2});
  c.out(b.where(hot, b.reshape(b.narrow(values, 0, 1, 1), {}),
                b.reshape(b.narrow(values, 0, 0, 1), {})));
}

constexpr Rule kRules[] = {
    {"Gather", 1, gather},       {"GatherElements", 11, gather_elements},
    {"GatherND", 11, gather_nd}, {"NonZero", 9, non_zero},
    {"Compress", 9, compress},   {"ReverseSequence", 10, reverse_sequence},
    {"OneHot", 9, one_hot},
};

}  // namespace

std::span<const Rule> gather_rules() { return kRules; }

}  // namespace tenon::core::onnx
