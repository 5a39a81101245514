// SPDX-License-Identifier: Apache-2.0
// gather, scatter_add and scatter_reduce as plain loops in double.
#include "evaluate_index.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::core {
namespace {

// A tensor seen along an axis: [outer, length, inner].
struct Lines {
  size_t outer = 1, length, inner = 1;
  Lines(const Shape& s, int64_t axis) : length(0) {
    const int along = normalize_axis(axis, s.rank(), "evaluate");
    for (int k = 0; k < along; ++k) outer *= static_cast<size_t>(s[k]);
    length = static_cast<size_t>(s[along]);
    for (int k = along + 1; k < s.rank(); ++k) inner *= static_cast<size_t>(s[k]);
  }
};

// Place of an index on an axis; -1 where it is skipped.
int64_t place(double index, size_t length, const std::string& oob, std::string_view who) {
  const auto d = static_cast<int64_t>(length);
  auto at = static_cast<int64_t>(index);
  if (oob == "clamp") at = std::clamp<int64_t>(at, -d, d - 1);
  if (at >= -d && at < d) return at < 0 ? at + d : at;
  if (oob != "skip") fail(Code::index_out_of_range, who, ": index ", at);
  return -1;
}

// Calls f(element of rows, element of lines) for what the indices pair.
template <class F>
void pairs(const Lines& l, const Tensor& indices, const std::string& oob, std::string_view who,
           F f) {
  const size_t count = indices.data.size();
  for (size_t o = 0; o < l.outer; ++o)
    for (size_t k = 0; k < count; ++k) {
      const int64_t at = place(indices.data[k], l.length, oob, who);
      if (at < 0) continue;
      for (size_t i = 0; i < l.inner; ++i)
        f((o * count + k) * l.inner + i, (o * l.length + static_cast<size_t>(at)) * l.inner + i);
    }
}

}  // namespace

void evaluate_gather(const op::gather& n, const Tensor& data, const Tensor& indices, Tensor& y) {
  std::ranges::fill(y.data, 0.0);
  pairs(Lines(data.type.shape, n.axis), indices, n.oob, "gather",
        [&](size_t row, size_t from) { y.data[row] = data.data[from]; });
}

void evaluate_scatter_add(const op::scatter_add& n, const Tensor& updates, const Tensor& indices,
                          const Tensor* base, Tensor& y) {
  std::ranges::fill(y.data, 0.0);
  if (base) y.data = base->data;
  pairs(Lines(y.type.shape, n.axis), indices, n.oob, "scatter_add",
        [&](size_t row, size_t to) { y.data[to] += updates.data[row]; });
}

void evaluate_scatter_reduce(const op::scatter_reduce& n, const Tensor& base, const Tensor& indices,
                             const Tensor& updates, Tensor& y) {
  y.data = base.data;
  pairs(Lines(y.type.shape, n.axis), indices, n.oob, "scatter_reduce", [&](size_t row, size_t to) {
    double& at = y.data[to];
    const double x = updates.data[row];
    if (n.kind == "mul")
      at *= x;
    else if (std::isnan(x) || (n.kind == "max" ? x > at : x < at))
      at = x;
  });
}

}  // namespace tenon::core
