// SPDX-License-Identifier: Apache-2.0
// Rules: constants, shapes as data, ranges and patterns.
#include <cmath>
#include <limits>

#include "import/onnx/helpers.hpp"

namespace tenon::core::onnx {
namespace {

void give_tensor(Call& c, const Tensor& t) {
  if (t.dtype == TENON_DTYPE_NONE) c.refuse("tenon has no dtype for ", element_name(t.element));
  if (can_be_known(t.dtype) && count_of(t.dims) <= kMostKnown)
    return c.out(known_from(t.dtype, t.dims, t.content()));
  c.out(c.b.graph.constant({t.dtype, Shape(std::span<const Dim>(t.dims))},
                           std::make_shared<const Bytes>(t.content())));
}

// Values at some places, 0 elsewhere.
void give_sparse(Call& c, const SparseTensor& t) {
  if (!can_be_known(t.values.dtype)) c.refuse("a sparse tensor of this dtype");
  if (!fits(t.dims)) c.refuse("a sparse tensor of more than ", kMostKnown, " elements");
  const Known values = known_from(t.values.dtype, t.values.dims, t.values.content());
  const Known places = known_from(t.indices.dtype, t.indices.dims, t.indices.content());
  Known out = known_full(values.dtype, t.dims, 0);
  const size_t rank = t.dims.size();
  const bool flat = places.rank() == 1;
  for (size_t i = 0; i < static_cast<size_t>(values.size()); ++i) {
    int64_t at = 0;
    for (size_t k = 0; k < (flat ? 1 : rank); ++k)
      at = flat ? places.ints[i] : at * t.dims[k] + places.ints[i * rank + k];
    if (at < 0 || at >= out.size()) c.wrong("a sparse tensor: place ", at, " of ", out.size());
    if (out.real())
      out.reals[static_cast<size_t>(at)] = values.reals[i];
    else
      out.ints[static_cast<size_t>(at)] = values.ints[i];
  }
  c.out(std::move(out));
}

void constant(Call& c) {
  if (const Attribute* a = c.attr("value"); a && a->t) return give_tensor(c, *a->t);
  if (const Attribute* a = c.attr("sparse_value"); a && a->sparse_t)
    return give_sparse(c, *a->sparse_t);
  if (c.has_attr("value_float")) return c.out(known_reals(kF32, {}, {c.f("value_float", 0)}));
  if (c.has_attr("value_int")) return c.out(known_scalar(c.i("value_int", 0)));
  if (c.has_attr("value_ints")) return c.out(known_vector(c.is("value_ints")));
  if (c.has_attr("value_floats")) {
    const std::vector<double> values = c.fs("value_floats");
    return c.out(known_reals(kF32, {static_cast<int64_t>(values.size())}, values));
  }
  c.refuse("strings have no dtype in tenon");
}

void shape(Call& c) {
  const Ints dims = dims_of(c.shape(0));
  const auto rank = static_cast<int64_t>(dims.size());
  const auto place = [&](int64_t p) { return std::clamp<int64_t>(p < 0 ? p + rank : p, 0, rank); };
  const int64_t start = place(c.i("start", 0)), end = place(c.i("end", rank));
  Ints out;
  for (int64_t k = start; k < end; ++k) out.push_back(dims[static_cast<size_t>(k)]);
  c.out(known_vector(std::move(out)));
}

void size(Call& c) { c.out(known_scalar(c.shape(0).elements())); }

void constant_of_shape(Call& c) {
  const Ints dims = c.ints(0, "shape");
  DType t = kF32;
  Known fill = known_full(kF32, {}, 0);
  if (const Attribute* a = c.attr("value"); a && a->t) {
    t = a->t->dtype;
    if (!can_be_known(t)) c.refuse("attribute value: this dtype");
    fill = known_from(t, a->t->dims, a->t->content());
    if (fill.size() != 1) c.wrong("attribute value: expected one element, got ", fill.size());
    fill.dims.clear();
  }
  count_of(dims);
  if (!fits(dims)) return c.out(c.b.expand(c.constant(fill), shape_of(dims)));
  if (count_of(dims) <= kMostSmall) return c.out(known_expand(fill, dims));
  // As a view in the graph; known too, for rules that need its content.
  Item item{.value = c.b.expand(c.constant(fill), shape_of(dims))};
  int64_t& known = c.scope.all.known;
  if (known + count_of(dims) <= kMostKnownInAll) {
    known += count_of(dims);
    item.known = std::make_shared<const Known>(known_expand(fill, dims));
  }
  c.out_item(0, std::move(item));
}

void range(Call& c) {
  const DType t = c.dtype(0);
  const Known &start = c.need(0, "start"), &limit = c.need(1, "limit"), &delta = c.need(2, "delta");
  for (const Known* k : {&start, &limit, &delta})
    if (k->size() != 1 || k->dtype != t) c.wrong("expected three scalars of one dtype");
  if (delta.number(0) == 0) c.wrong("delta: expected a number other than 0");
  const double steps = std::ceil((limit.number(0) - start.number(0)) / delta.number(0));
  if (!(steps < 9e15)) c.wrong("more elements than fit");
  const auto count = static_cast<int64_t>(std::max(steps, 0.0));
  if (count <= kMostKnown) {
    Known out{t, {count}, {}, {}};
    for (int64_t k = 0; k < count; ++k)
      if (is_float(t))
        out.reals.push_back(rounded(t, start.reals[0] + static_cast<double>(k) * delta.reals[0]));
      else
        out.ints.push_back(wrapped(
            t,
            static_cast<int64_t>(static_cast<uint64_t>(start.ints[0]) +
                                 static_cast<uint64_t>(k) * static_cast<uint64_t>(delta.ints[0]))));
    return c.out(std::move(out));
  }
  c.out(c.b.iota({count}, 0, t, start.number(0), delta.number(0)));
}

void eye_like(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() != 2) c.wrong("input 0: expected a matrix, got ", s.text());
  const int64_t k = c.i("k", 0);
  const DType t = c.has_attr("dtype") ? c.dtype_attr("dtype", 0) : c.dtype(0);
  const Value row = b.iota({s[0], 1}, 0, kI64, static_cast<double>(k)),
              column = b.iota({1, s[1]}, 1, kI64);
  c.out(b.cast(b.compare("eq", row, column), t));
}

// Keeps the elements on one side of a diagonal.
void trilu(Call& c) {
  Builder& b = c.b;
  const Shape s = c.shape(0);
  if (s.rank() < 2) c.wrong("input 0: expected rank 2 or more, got ", s.text());
  const bool upper = c.flag("upper", true);
  const int64_t rows = s[s.rank() - 2], columns = s[s.rank() - 1];
  const Value row = b.iota({rows, 1}, 0, kI64), column = b.iota({1, columns}, 1, kI64);
  const Value k = c.has(1) ? b.reshape(b.cast(c.value(1), kI64), {}) : b.scalar_int(kI64, 0);
  const Value kept = b.compare(upper ? "ge" : "le", column, b.plus(row, k));
  const DType t = c.dtype(0);
  const Value x = c.value(0);
  if (t == kBool) return c.out(b.logical("and", x, kept));
  c.out(b.where(kept, x, b.scalar_int(t, 0)));
}

constexpr Rule kRules[] = {
    {"Constant", 1, constant}, {"Shape", 1, shape},
    {"Size", 1, size},         {"ConstantOfShape", 9, constant_of_shape},
    {"Range", 11, range},      {"EyeLike", 9, eye_like},
    {"Trilu", 14, trilu},
};

}  // namespace

std::span<const Rule> create_rules() { return kRules; }

}  // namespace tenon::core::onnx
