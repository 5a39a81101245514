// SPDX-License-Identifier: Apache-2.0
// reduce: maps axes to rows or columns, and distributes the work. The partition depends only on
// shapes, so results do not depend on the number of threads.
#include "reduce.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "block_copy.hpp"
#include "convert.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Type;

// x as [outer, n, inner]; n is reduced. `copy` rearranges x if its axes are in another order.
struct Layout {
  int64_t outer = 1, n = 1, inner = 1;
  std::optional<BlockCopy> copy;
};

struct Group {
  int64_t size, stride;
  bool reduced;
};

// Merges neighbouring axes of the same sort; drops axes of length 1.
std::vector<Group> groups_of(const sdk::op::reduce& op, const Type& x) {
  const std::array<bool, sdk::kMaxRank> reduced = sdk::reduced_axes(op, x.rank);
  std::vector<Group> groups;
  for (int i = 0; i < x.rank; ++i) {
    if (x.dims[i] == 1) continue;
    const bool r = reduced[static_cast<size_t>(i)];
    if (!groups.empty() && groups.back().reduced == r) {
      groups.back().size *= x.dims[i];
      groups.back().stride = x.strides[i];
    } else {
      groups.push_back({x.dims[i], x.strides[i], r});
    }
  }
  return groups;
}

Layout layout_of(const sdk::op::reduce& op, const Type& x, bool rows_only) {
  std::vector<Group> groups = groups_of(op, x);
  Layout l;
  const auto count =
      std::count_if(groups.begin(), groups.end(), [](const Group& g) { return g.reduced; });
  if (count <= 1) {
    bool after = false;
    for (const Group& g : groups) {
      (g.reduced ? l.n : after ? l.inner : l.outer) *= g.size;
      after |= g.reduced;
    }
    if (count == 0) std::swap(l.outer, l.inner), l.outer = 1;
    if (l.inner == 1 || !rows_only) return l;
  }
  // Axes that remain come first, reduced ones after them.
  std::stable_partition(groups.begin(), groups.end(), [](const Group& g) { return !g.reduced; });
  l = {};
  std::vector<int64_t> dims, from, to;
  for (const Group& g : groups) {
    (g.reduced ? l.n : l.outer) *= g.size;
    dims.push_back(g.size);
    from.push_back(g.stride);
    to.push_back(0);
  }
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) to[i] = stride, stride *= std::max<int64_t>(dims[i], 1);
  l.copy = block_copy(dims, from, to, element_bytes("x", x.dtype));
  return l;
}

// ---- floats

struct FloatReduce {
  Reduction how;
  tenon_dtype dtype;
  int64_t outer, n, inner;
  int64_t bytes;   // of an element
  int64_t pieces;  // per row, or per column of rows; more than 1 if there are few outputs
  int64_t piece;   // elements, or rows, per piece

  uint64_t scratch() const {
    if (inner == 1) return pieces > 1 ? static_cast<uint64_t>(outer * pieces) * sizeof(Partial) : 0;
    return static_cast<uint64_t>(outer * pieces * inner) * sizeof(double);
  }

  void rows(const char* x, void* y, Partial* partials) const {
    if (pieces == 1) {
      parallel_for(outer, grain_for(n * bytes), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          store_reduced(dtype, how.finish(reduce_run(how.kind, dtype, x + r * n * bytes, n), n), y,
                        r);
      });
      return;
    }
    parallel_for(outer * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / pieces, from = i % pieces * piece;
        partials[i] =
            reduce_run(how.kind, dtype, x + (row * n + from) * bytes, std::min(piece, n - from));
      }
    });
    for (int64_t r = 0; r < outer; ++r) {
      Partial all = partials[r * pieces];
      for (int64_t p = 1; p < pieces; ++p) all = how.join(all, partials[r * pieces + p]);
      store_reduced(dtype, how.finish(all, n), y, r);
    }
  }

  void columns(const char* x, void* y, double* partials) const {
    constexpr int64_t kLine = 128;  // columns per call, if there are that many
    const int64_t stretches = (inner + kLine - 1) / kLine;
    parallel_for(outer * pieces * stretches, grain_for(piece * kLine * bytes),
                 [&](int64_t begin, int64_t end) {
                   while (begin < end) {
                     const int64_t block = begin / stretches, first = begin % stretches;
                     const int64_t last = std::min(stretches, first + end - begin);
                     const int64_t o = block / pieces, row = block % pieces * piece;
                     const int64_t c = first * kLine, width = std::min(inner, last * kLine) - c;
                     reduce_columns(how.kind, dtype, x + ((o * n + row) * inner + c) * bytes,
                                    std::min(piece, n - row), inner, width,
                                    partials + block * inner + c);
                     begin += last - first;
                   }
                 });
    // Row by row of the partial results: their columns are a power of two apart too often.
    constexpr int64_t kTogether = 64;
    parallel_for(outer * inner, grain_for(pieces * 8), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t column = begin % inner;
        const int64_t width = std::min({kTogether, end - begin, inner - column});
        const double* row = partials + begin / inner * pieces * inner + column;
        double all[kTogether];
        std::copy_n(row, width, all);
        for (int64_t p = 1; p < pieces; ++p) how.join_columns(all, row += inner, width);
        for (int64_t i = 0; i < width; ++i)
          store_reduced(dtype, how.finish({all[i]}, n), y, begin + i);
        begin += width;
      }
    });
  }
};

uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

Kernel make_float(const sdk::op::reduce& op, const Type& x) {
  const std::optional<Reduction> known = find_reduction(op.kind);
  if (!known) throw Refusal::attribute("kind", op.kind);
  FloatReduce r{};
  r.how = *known;
  const bool rows_only = r.how.kind == ReduceKind::prod || r.how.kind == ReduceKind::logsumexp;
  const Layout l = layout_of(op, x, rows_only);
  r.dtype = x.dtype;
  r.outer = l.outer;
  r.n = l.n;
  r.inner = l.inner;
  r.bytes = element_bytes("x", x.dtype);
  // Few outputs of many elements: each is computed in pieces.
  constexpr int64_t kFewOutputs = 64, kPieceBytes = 256 << 10;
  r.piece = std::max<int64_t>(r.n, 1);
  if (r.outer * ((r.inner + 127) / 128) < kFewOutputs)
    r.piece =
        std::clamp<int64_t>(kPieceBytes / std::max<int64_t>(r.inner * r.bytes, 1), 1, r.piece);
  r.pieces = (std::max<int64_t>(r.n, 1) + r.piece - 1) / r.piece;

  const uint64_t moved = l.copy ? padded(x.bytes()) : 0;
  return {.run =
              [r, copy = l.copy, moved](const Call& c) {
                auto* scratch = static_cast<char*>(c.scratch);
                const auto* from = c.in<char>(0);
                if (copy) {
                  (*copy)(from, scratch);
                  from = scratch;
                }
                void* work = scratch + moved;
                if (r.inner == 1)
                  r.rows(from, c.outputs[0], static_cast<Partial*>(work));
                else
                  r.columns(from, c.outputs[0], static_cast<double*>(work));
              },
          .scratch = moved + r.scratch()};
}

// ---- integers and bool

// Over columns of [n, inner]: acc[c] = op(acc[c], x[r][c]), wrapping in 64 unsigned bits.
template <class T, class Op>
void fold_columns(const T* x, int64_t n, int64_t inner, int64_t begin, int64_t end, uint64_t* acc,
                  Op op) {
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = begin; c < end; ++c) acc[c - begin] = op(acc[c - begin], x[r * inner + c]);
}

template <class T>
void reduce_integers(const std::string& kind, const T* x, int64_t n, int64_t inner, int64_t begin,
                     int64_t end, T* y) {
  constexpr int64_t kTileColumns = 256;
  for (int64_t from = begin; from < end; from += kTileColumns) {
    const int64_t to = std::min(end, from + kTileColumns);
    uint64_t acc[kTileColumns];
    const auto fold = [&](uint64_t start, auto op) {
      std::fill_n(acc, to - from, start);
      fold_columns(x, n, inner, from, to, acc, op);
    };
    const auto wide = [](T v) { return static_cast<uint64_t>(v); };
    using Limits = std::numeric_limits<T>;
    if (kind == "max")
      fold(wide(Limits::lowest()),
           [&](uint64_t a, T v) { return static_cast<T>(a) < v ? wide(v) : a; });
    else if (kind == "min")
      fold(wide(Limits::max()),
           [&](uint64_t a, T v) { return v < static_cast<T>(a) ? wide(v) : a; });
    else if (kind == "prod")
      fold(1, [&](uint64_t a, T v) { return a * wide(v); });
    else if (kind == "sum_square")
      fold(0, [&](uint64_t a, T v) { return a + wide(v) * wide(v); });
    else if (kind == "l1")
      fold(0, [&](uint64_t a, T v) { return a + (v < T{0} ? -wide(v) : wide(v)); });
    else
      fold(0, [&](uint64_t a, T v) { return a + wide(v); });
    for (int64_t c = from; c < to; ++c) {
      const uint64_t a = acc[c - from];
      if (kind != "mean")
        y[c] = static_cast<T>(a);
      else if (n == 0)
        y[c] = 0;
      else if (std::is_signed_v<T>)
        y[c] = static_cast<T>(static_cast<int64_t>(a) / n);
      else
        y[c] = static_cast<T>(a / static_cast<uint64_t>(n));
    }
  }
}

void reduce_bools(bool any, const uint8_t* x, int64_t n, int64_t inner, int64_t begin, int64_t end,
                  uint8_t* y) {
  for (int64_t c = begin; c < end; ++c) {
    bool result = !any;
    for (int64_t r = 0; r < n && result != any; ++r)
      result = (x[r * inner + c] != 0) == any ? any : !any;
    y[c] = result;
  }
}

template <class T, class Body>
Kernel make_exact(const sdk::op::reduce& op, const Type& x, Body body) {
  const Layout l = layout_of(op, x, false);
  const AxisView view{.axis = 0, .outer = l.outer, .length = l.n, .inner = l.inner};
  return {.run =
              [view, copy = l.copy, body](const Call& c) {
                const T* from = c.in<T>(0);
                if (copy) {
                  (*copy)(from, c.scratch);
                  from = static_cast<const T*>(c.scratch);
                }
                const int64_t cost =
                    std::max<int64_t>(view.length, 1) * static_cast<int64_t>(sizeof(T));
                for_columns(view, 64, cost, [&](int64_t outer, int64_t begin, int64_t end) {
                  body(from + outer * view.length * view.inner, view.length, view.inner, begin, end,
                       c.out<T>(0) + outer * view.inner);
                });
              },
          .scratch = l.copy ? padded(x.bytes()) : 0};
}

template <class T>
Kernel make_integer(const sdk::op::reduce& op, const Type& x) {
  for (const char* kind : {"sum", "mean", "max", "min", "prod", "sum_square", "l1"})
    if (op.kind == kind)
      return make_exact<T>(
          op, x,
          [kind = op.kind](const T* from, int64_t n, int64_t inner, int64_t begin, int64_t end,
                           T* y) { reduce_integers(kind, from, n, inner, begin, end, y); });
  throw Refusal::attribute("kind", op.kind);
}

Kernel make_bool(const sdk::op::reduce& op, const Type& x) {
  const bool any = op.kind == "any" || op.kind == "max";
  if (!any && op.kind != "all" && op.kind != "min") throw Refusal::attribute("kind", op.kind);
  return make_exact<uint8_t>(
      op, x,
      [any](const uint8_t* from, int64_t n, int64_t inner, int64_t begin, int64_t end, uint8_t* y) {
        reduce_bools(any, from, n, inner, begin, end, y);
      });
}

Kernel make_reduce(const sdk::op::reduce& op, const Node&) {
  const Type& x = op.x.type();
  if (is_float(x.dtype)) return make_float(op, x);
  if (x.dtype == TENON_DTYPE_BOOL) return make_bool(op, x);
  return with_type(sdk::kIntegerTypes, "x", x.dtype,
                   [&]<class T>(T) { return make_integer<T>(op, x); });
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::reduce, make_reduce>()};

}  // namespace

Partial Reduction::join(Partial a, Partial b) const {
  switch (kind) {
    case ReduceKind::max:
      return {b.value > a.value || std::isnan(b.value) ? b.value : a.value};
    case ReduceKind::min:
      return {b.value < a.value || std::isnan(b.value) ? b.value : a.value};
    case ReduceKind::prod:
      return {a.value * b.value};
    case ReduceKind::logsumexp: {
      const double m = b.value > a.value || std::isnan(b.value) ? b.value : a.value;
      const auto part = [&](const Partial& p) {
        return p.value == m ? p.scale : p.scale * std::exp(p.value - m);
      };
      return std::isfinite(m) ? Partial{m, part(a) + part(b)} : Partial{m, m < 0 ? 0.0 : 1.0};
    }
    default:
      return {a.value + b.value};
  }
}

void Reduction::join_columns(double* into, const double* row, int64_t n) const {
  const auto take = [&](auto better) {
    for (int64_t i = 0; i < n; ++i)
      into[i] = better(row[i], into[i]) || std::isnan(row[i]) ? row[i] : into[i];
  };
  if (kind == ReduceKind::max) return take(std::greater<>());
  if (kind == ReduceKind::min) return take(std::less<>());
  for (int64_t i = 0; i < n; ++i) into[i] += row[i];
}

double Reduction::finish(Partial p, int64_t n) const {
  double v = p.value;
  if (kind == ReduceKind::logsumexp) v = std::isfinite(v) ? v + std::log(p.scale) : v;
  if (mean) v = n == 0 ? std::numeric_limits<double>::quiet_NaN() : v / static_cast<double>(n);
  return root ? std::sqrt(v) : v;
}

std::optional<Reduction> find_reduction(std::string_view kind) {
  if (kind == "sum") return Reduction{ReduceKind::sum};
  if (kind == "mean") return Reduction{ReduceKind::sum, true};
  if (kind == "max") return Reduction{ReduceKind::max};
  if (kind == "min") return Reduction{ReduceKind::min};
  if (kind == "prod") return Reduction{ReduceKind::prod};
  if (kind == "sum_square") return Reduction{ReduceKind::sum_square};
  if (kind == "l1") return Reduction{ReduceKind::l1};
  if (kind == "l2") return Reduction{ReduceKind::sum_square, false, true};
  if (kind == "logsumexp") return Reduction{ReduceKind::logsumexp};
  return std::nullopt;
}

void store_reduced(tenon_dtype dtype, double v, void* y, int64_t i) {
  with_type(sdk::kFloatTypes, dtype, [&]<class T>(T) { static_cast<T*>(y)[i] = round_once<T>(v); });
}

std::span<const sdk::Row> reduce_rows() { return kRows; }

}  // namespace tenon::cpu
