// SPDX-License-Identifier: Apache-2.0
// sort: NaN is the greatest, -0 equals +0, equals keep their order in both directions.
#include <algorithm>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

template <class V>
bool less(V a, V b) {
  if constexpr (std::floating_point<V>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

template <class T>
void sort_line(const T* x, T* values, int64_t* indices, int64_t* order, const AxisView& l,
               bool descending) {
  for (int64_t i = 0; i < l.length; ++i) order[i] = i;
  std::sort(order, order + l.length, [&](int64_t i, int64_t j) {
    const auto a = widen(x[i * l.inner]), b = widen(x[j * l.inner]);
    if (descending ? less(b, a) : less(a, b)) return true;
    if (descending ? less(a, b) : less(b, a)) return false;
    return i < j;
  });
  for (int64_t i = 0; i < l.length; ++i) {
    values[i * l.inner] = x[order[i] * l.inner];
    indices[i * l.inner] = order[i];
  }
}

}  // namespace

Kernel make_sort(const op::sort& n, const Node&) {
  const Type& x = n.x.type();
  const AxisView l = along_axis(x, n.axis);
  return with_type(kPlainTypes, "x", x.dtype, [&]<class T>(T) {
    const auto run = [l, descending = n.descending](const sdk::Call& c) {
      for (int64_t o = 0; o < l.outer; ++o) {
        for (int64_t i = 0; i < l.inner; ++i) {
          const int64_t at = o * l.length * l.inner + i;
          sort_line(c.in<T>(0) + at, c.out<T>(0) + at, c.out<int64_t>(1) + at,
                    static_cast<int64_t*>(c.scratch), l, descending);
        }
      }
    };
    return Kernel{.run = run, .scratch = static_cast<uint64_t>(l.length) * sizeof(int64_t)};
  });
}

}  // namespace tenon::sample
