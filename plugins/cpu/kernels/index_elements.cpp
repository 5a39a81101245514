// SPDX-License-Identifier: Apache-2.0
// gather_elements, scatter_elements_add and scatter_elements_reduce: one index per element. Lines of
// a scatter along the axis are independent: one thread applies all updates of a line, in order.
#include <algorithm>
#include <string>
#include <type_traits>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "convert.hpp"
#include "index.hpp"
#include "index_policy.hpp"
#include "loops.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;

// The indexed tensor and the indices. Off the axis, the indices are no longer than the tensor.
struct Elements {
  IndexAxis axis;
  int rank = 0;
  sdk::Dims whole{}, indices{};  // dims
  sdk::Dims whole_steps{}, index_steps{};
  int64_t count = 0;  // indices

  Elements(const sdk::Type& data, const sdk::Type& at, int64_t given_axis, std::string_view oob)
      : rank(data.rank), whole(data.dims), indices(at.dims), count(at.elements()) {
    const AxisView view = along_axis(data, given_axis);
    axis = {view.axis, view.length, parse_oob(oob)};
    int64_t step = 1, index_step = 1;
    for (int k = rank - 1; k >= 0; --k) {
      whole_steps[k] = step, index_steps[k] = index_step;
      step *= whole[k], index_step *= indices[k];
    }
  }
  bool along_last() const { return axis.axis == rank - 1; }
};

// ---- gather_elements

// Visits the rows of the indices. For each one, gives the position in the data of the elements with
// index 0.
class Rows {
 public:
  Rows(const Elements& e, int64_t row) : e_(e) {
    for (int k = e.rank - 2; k >= 0; --k) {
      at_[k] = row % e.indices[k];
      row /= e.indices[k];
      base_ += at_[k] * step(k);
    }
  }
  int64_t base() const { return base_; }
  void next() {
    for (int k = e_.rank - 2; k >= 0; --k) {
      base_ += step(k);
      if (++at_[k] < e_.indices[k]) return;
      base_ -= at_[k] * step(k);
      at_[k] = 0;
    }
  }

 private:
  int64_t step(int k) const { return k == e_.axis.axis ? 0 : e_.whole_steps[k]; }
  const Elements& e_;
  sdk::Dims at_{};
  int64_t base_ = 0;
};

template <class T, class X>
void gather_range(const Elements& e, const T* data, const X* indices, T* y, int64_t begin,
                  int64_t end) {
  const int64_t length = e.indices[e.rank - 1];
  const int64_t step = e.whole_steps[e.axis.axis], across = e.along_last() ? 0 : 1;
  Rows row(e, begin / length);
  for (int64_t j = begin % length; begin < end; j = 0, row.next()) {
    const int64_t n = std::min(length - j, end - begin);
    const T* from = data + row.base() + j * across;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = e.axis.resolve(indices[begin + k]);
      y[begin + k] = at < 0 ? T{} : from[at * step + k * across];
    }
    begin += n;
  }
}

Kernel make_gather_elements(const sdk::op::gather_elements& n, const Node&) {
  const Elements e(n.data.type(), n.indices.type(), n.axis, n.oob);
  const tenon_dtype index = n.indices.type().dtype;
  const int64_t size = element_bytes("data", n.data.type().dtype);
  if (size > 8) throw sdk::Refusal::dtype("data", n.data.type().dtype);
  return {.run = [e, index, size](const Call& c) {
    with_indices(index, c.inputs[1], [&](const auto* indices) {
      e.axis.check(indices, e.count);
      with_size(size, [&]<class T>(T) {
        parallel_for(e.count, grain_for(2 * size + 8), [&](int64_t begin, int64_t end) {
          gather_range(e, c.in<T>(0), indices, c.out<T>(0), begin, end);
        });
      });
    });
  }};
}

// ---- scatter_elements_add, scatter_elements_reduce

// How the updates of a place fold into what it has: floats as doubles, integers as T, see with_fold.
template <class T, Fold fold>
struct Folding {
  using Sum = std::conditional_t<std::is_integral_v<T>, T, double>;

  static Sum widened(T v) {
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) {
      return static_cast<double>(to_float(v));
    } else {
      return static_cast<Sum>(v);
    }
  }
  static T narrowed(Sum v) {
    if constexpr (std::is_integral_v<T>)
      return v;
    else
      return round_once<T>(v);
  }
  static void apply(Sum& sum, Sum v) {
    using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    if constexpr (fold == Fold::add) sum = static_cast<Sum>(sum + v);
    if constexpr (fold == Fold::mul)
      sum = static_cast<Sum>(static_cast<Wrapping>(sum) * static_cast<Wrapping>(v));
    if constexpr (fold == Fold::max) sum = v > sum || v != v ? v : sum;
    if constexpr (fold == Fold::min) sum = v < sum || v != v ? v : sum;
  }
};

// A piece of work: one position on the leading axes, and a range of columns of the last axis. If
// the scatter axis is the last one, there is one column.
struct Scatter {
  Elements e;
  int64_t columns = 1, width = 1, stretches = 1;
  Slots slots;

  explicit Scatter(const Elements& elements) : e(elements) {
    constexpr int64_t kSums = 8192;  // per piece; they fit the first-level cache
    const int64_t length = std::max<int64_t>(e.axis.length, 1);
    columns = e.along_last() ? 1 : e.whole[e.rank - 1];
    width = std::clamp<int64_t>(kSums / length, 1, std::max<int64_t>(columns, 1));
    stretches = (columns + width - 1) / width;
    int64_t lines = 1;
    for (int k = 0; k < e.rank - 1; ++k)
      if (k != e.axis.axis) lines *= e.whole[k];
    const int64_t bytes = length * width * int64_t{sizeof(double)};
    slots = make_slots(lines * stretches, bytes, 3 * bytes);
  }

  template <class F, class T, class X>
  void run_piece(const X* indices, const T* updates, const T* base, T* y, int64_t piece,
                 typename F::Sum* sums) const {
    int64_t line = piece / stretches, from = 0, index_from = 0;
    const int64_t first = (piece - line * stretches) * width, n = std::min(width, columns - first);
    bool reached = true;
    for (int k = e.rank - 2; k >= 0; --k) {
      if (k == e.axis.axis) continue;
      const int64_t at = line % e.whole[k];
      line /= e.whole[k];
      from += at * e.whole_steps[k], index_from += at * e.index_steps[k];
      reached = reached && at < e.indices[k];
    }
    from += first, index_from += first;
    const int64_t step = e.whole_steps[e.axis.axis];
    for (int64_t i = 0; i < e.axis.length; ++i)
      for (int64_t j = 0; j < n; ++j)
        sums[i * n + j] = base ? F::widened(base[from + i * step + j]) : 0;
    const int64_t index_columns = e.along_last() ? 1 : e.indices[e.rank - 1] - first;
    if (reached)
      apply_updates<F>(indices + index_from, updates + index_from, n, index_columns, sums);
    for (int64_t i = 0; i < e.axis.length; ++i)
      for (int64_t j = 0; j < n; ++j) y[from + i * step + j] = F::narrowed(sums[i * n + j]);
  }

 private:
  template <class F, class T, class X>
  void apply_updates(const X* indices, const T* updates, int64_t n, int64_t index_columns,
                     typename F::Sum* sums) const {
    const int64_t step = e.index_steps[e.axis.axis];
    for (int64_t k = 0; k < e.indices[e.axis.axis]; ++k)
      for (int64_t j = 0; j < std::min(n, index_columns); ++j) {
        const int64_t at = e.axis.resolve(indices[k * step + j]);
        if (at >= 0) F::apply(sums[at * n + j], F::widened(updates[k * step + j]));
      }
  }
};

template <class Op>
Kernel make_elements(const Op& n, const sdk::Type& y, Fold fold) {
  const tenon_dtype dtype = y.dtype, index = n.indices.type().dtype;
  const Scatter s(Elements(y, n.indices.type(), n.axis, n.oob));
  const bool empty = y.elements() == 0;
  const int base = n.base.position(), at = n.indices.position(), updates = n.updates.position();
  Kernel kernel;
  kernel.scratch = s.slots.scratch();
  with_fold("updates", dtype, fold, [&]<class T, Fold kind>(T, std::integral_constant<Fold, kind>) {
    using F = Folding<T, kind>;
    kernel.run = [=](const Call& c) {
      with_indices(index, c.inputs[at], [&](const auto* indices) {
        s.e.axis.check(indices, s.e.count);
        if (empty) return;
        s.slots.run(c.scratch, [&](int64_t begin, int64_t end, void* area) {
          for (int64_t piece = begin; piece < end; ++piece)
            s.run_piece<F>(indices, c.in<T>(updates), c.in<T>(base), c.out<T>(0), piece,
                           static_cast<typename F::Sum*>(area));
        });
      });
    };
  });
  if (base >= 0) kernel.in_place = {{base, 0}};
  return kernel;
}

Kernel make_scatter_elements_add(const sdk::op::scatter_elements_add& n, const Node& node) {
  return make_elements(n, node.out(0).type(), Fold::add);
}
Kernel make_scatter_elements_reduce(const sdk::op::scatter_elements_reduce& n, const Node& node) {
  return make_elements(n, node.out(0).type(), parse_fold(n.kind));
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gather_elements, make_gather_elements>(),
    sdk::row<sdk::op::scatter_elements_add, make_scatter_elements_add>(),
    sdk::row<sdk::op::scatter_elements_reduce, make_scatter_elements_reduce>(),
};

}  // namespace

std::span<const sdk::Row> index_elements_rows() { return kRows; }

}  // namespace tenon::cpu
