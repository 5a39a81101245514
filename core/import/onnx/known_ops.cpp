// SPDX-License-Identifier: Apache-2.0
// Arithmetic and movement of known tensors. Floats are computed in f64 and rounded once, integers
// wrap.
#include "import/onnx/known_ops.hpp"

#include <algorithm>
#include <cmath>

#include "import/onnx/known_walk.hpp"

namespace tenon::core::onnx {
namespace {

// For each element of `to`, the element of `from` that broadcasts to it.
Ints broadcast_sources(const Ints& from, const Ints& to) {
  Ints strides = strides_of(from), out;
  const size_t extra = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] == 1) strides[i] = 0;
  out.reserve(static_cast<size_t>(count_of(to)));
  each(to, [&](int64_t, const Ints& at) {
    int64_t flat = 0;
    for (size_t i = 0; i < from.size(); ++i) flat += at[i + extra] * strides[i];
    out.push_back(flat);
  });
  return out;
}

int64_t power(int64_t base, int64_t exponent, bool is_signed) {
  if (is_signed && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t out = 1, b = static_cast<uint64_t>(base), e = static_cast<uint64_t>(exponent);
  for (; e; e >>= 1, b *= b)
    if (e & 1) out *= b;
  return static_cast<int64_t>(out);
}

// The rest of a division, with tenon's rules.
int64_t remainder(DType t, int64_t a, int64_t b, bool floored) {
  if (b == 0) return a;
  if (is_unsigned(t))
    return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  if (b == -1) return 0;
  const int64_t r = a % b;
  return floored && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <class T>
bool holds(std::string_view kind, T a, T b) {
  if (kind == "eq") return a == b;
  if (kind == "ne") return a != b;
  if (kind == "lt") return a < b;
  if (kind == "le") return a <= b;
  if (kind == "gt") return a > b;
  return a >= b;
}

}  // namespace

bool fits(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t d : dims) {
    if (d < 0 || d > kMostKnown) return false;
    count *= d;
    if (count > kMostKnown) return false;
  }
  return dims.size() <= TENON_MAX_RANK;
}

Ints broadcast_dims(const Ints& a, const Ints& b) {
  const Shape to =
      broadcast(Shape(std::span<const Dim>(a)), Shape(std::span<const Dim>(b)), "broadcast");
  return {to.begin(), to.end()};
}

Known known_pick(const Known& x, Ints dims, std::span<const int64_t> sources) {
  Known out{x.dtype, std::move(dims), {}, {}};
  for (const int64_t s : sources)
    if (x.real())
      out.reals.push_back(x.reals[static_cast<size_t>(s)]);
    else
      out.ints.push_back(x.ints[static_cast<size_t>(s)]);
  return out;
}

Known known_reshape(const Known& x, Ints dims) {
  check(count_of(dims) == x.size(), "known_reshape: a wrong size");
  Known out = x;
  out.dims = std::move(dims);
  return out;
}

Known known_expand(const Known& x, const Ints& dims) {
  return known_pick(x, dims, broadcast_sources(x.dims, dims));
}

Known known_transpose(const Known& x, const Ints& perm) {
  const Ints strides = strides_of(x.dims);
  Ints dims, sources;
  for (const int64_t p : perm) dims.push_back(x.dims[static_cast<size_t>(p)]);
  each(dims, [&](int64_t, const Ints& at) {
    int64_t flat = 0;
    for (size_t i = 0; i < at.size(); ++i) flat += at[i] * strides[static_cast<size_t>(perm[i])];
    sources.push_back(flat);
  });
  return known_pick(x, dims, sources);
}

Known known_narrow(const Known& x, const Ints& start, const Ints& len, const Ints& step) {
  const Ints strides = strides_of(x.dims);
  Ints sources;
  each(len, [&](int64_t, const Ints& at) {
    int64_t flat = 0;
    for (size_t i = 0; i < at.size(); ++i) flat += (start[i] + at[i] * step[i]) * strides[i];
    sources.push_back(flat);
  });
  return known_pick(x, len, sources);
}

Known known_concat(std::span<const Known* const> xs, int axis) {
  const auto along = static_cast<size_t>(axis);
  Known out{xs[0]->dtype, xs[0]->dims, {}, {}};
  out.dims[along] = 0;
  int64_t before = 1, behind = 1;
  for (size_t i = 0; i < out.dims.size(); ++i)
    (i < along ? before : behind) *= i == along ? 1 : xs[0]->dims[i];
  for (const Known* x : xs) {
    for (size_t i = 0; i < out.dims.size(); ++i)
      if (x->dims.size() != out.dims.size() || (i != along && x->dims[i] != xs[0]->dims[i]))
        fail(Code::shape_mismatch, "concat: expected equal dims off axis ", axis, ", got ",
             xs[0]->type().text(), " and ", x->type().text());
    if (x->dtype != out.dtype)
      fail(Code::dtype_mismatch, "concat: expected one dtype, got ", xs[0]->type().text(), " and ",
           x->type().text());
    out.dims[along] += x->dims[along];
  }
  for (int64_t o = 0; o < before; ++o)
    for (const Known* x : xs) {
      const int64_t size = x->dims[along] * behind;
      const auto from = static_cast<ptrdiff_t>(o * size),
                 to = static_cast<ptrdiff_t>((o + 1) * size);
      if (x->real())
        out.reals.insert(out.reals.end(), x->reals.begin() + from, x->reals.begin() + to);
      else
        out.ints.insert(out.ints.end(), x->ints.begin() + from, x->ints.begin() + to);
    }
  return out;
}

Known known_gather(const Known& x, const Known& indices, int axis) {
  const auto along = static_cast<size_t>(axis);
  const int64_t length = x.dims[along];
  int64_t before = 1, behind = 1;
  Ints dims;
  for (size_t i = 0; i < along; ++i) before *= x.dims[i], dims.push_back(x.dims[i]);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  for (size_t i = along + 1; i < x.dims.size(); ++i) behind *= x.dims[i], dims.push_back(x.dims[i]);
  Ints sources;
  for (int64_t o = 0; o < before; ++o)
    for (const int64_t given : indices.ints) {
      const int64_t at = given < 0 ? given + length : given;
      if (at < 0 || at >= length)
        fail(Code::index_out_of_range, "gather: expected an index in [", -length, ", ", length,
             "), got ", given);
      for (int64_t t = 0; t < behind; ++t) sources.push_back((o * length + at) * behind + t);
    }
  return known_pick(x, dims, sources);
}

std::optional<Known> known_binary(std::string_view kind, const Known& a, const Known& b) {
  const Ints dims = broadcast_dims(a.dims, b.dims);
  if (!fits(dims) || a.dtype != b.dtype) return {};
  const Ints from_a = broadcast_sources(a.dims, dims), from_b = broadcast_sources(b.dims, dims);
  const DType t = a.dtype;
  Known out{t, dims, {}, {}};
  const bool boolean = t == kBool && kind != "max" && kind != "min";
  if (boolean) return {};
  for (size_t i = 0; i < from_a.size(); ++i) {
    const auto p = static_cast<size_t>(from_a[i]), q = static_cast<size_t>(from_b[i]);
    if (a.real()) {
      const double x = a.reals[p], y = b.reals[q];
      double r = 0;
      if (kind == "add")
        r = x + y;
      else if (kind == "sub")
        r = x - y;
      else if (kind == "mul")
        r = x * y;
      else if (kind == "div")
        r = x / y;
      else if (kind == "max")
        r = std::isnan(x) || std::isnan(y) ? x + y : std::max(x, y);
      else if (kind == "min")
        r = std::isnan(x) || std::isnan(y) ? x + y : std::min(x, y);
      else if (kind == "pow")
        r = std::pow(x, y);
      else if (kind == "fmod")
        r = std::fmod(x, y);
      else
        return {};
      out.reals.push_back(rounded(t, r));
    } else {
      const int64_t x = a.ints[p], y = b.ints[q];
      const auto ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
      const bool less = is_unsigned(t) ? ux < uy : x < y;
      int64_t r = 0;
      if (kind == "add")
        r = static_cast<int64_t>(ux + uy);
      else if (kind == "sub")
        r = static_cast<int64_t>(ux - uy);
      else if (kind == "mul")
        r = static_cast<int64_t>(ux * uy);
      else if (kind == "div")
        r = divide(t, x, y);
      else if (kind == "mod")
        r = remainder(t, x, y, true);
      else if (kind == "fmod")
        r = remainder(t, x, y, false);
      else if (kind == "max")
        r = less ? y : x;
      else if (kind == "min")
        r = less ? x : y;
      else if (kind == "pow")
        r = power(x, y, !is_unsigned(t));
      else
        return {};
      out.ints.push_back(wrapped(t, r));
    }
  }
  return out;
}

std::optional<Known> known_compare(std::string_view kind, const Known& a, const Known& b) {
  const Ints dims = broadcast_dims(a.dims, b.dims);
  if (!fits(dims) || a.dtype != b.dtype) return {};
  const Ints from_a = broadcast_sources(a.dims, dims), from_b = broadcast_sources(b.dims, dims);
  Known out{kBool, dims, {}, {}};
  for (size_t i = 0; i < from_a.size(); ++i) {
    const auto p = static_cast<size_t>(from_a[i]), q = static_cast<size_t>(from_b[i]);
    out.ints.push_back(a.real()          ? holds(kind, a.reals[p], b.reals[q])
                       : a.dtype == kU64 ? holds(kind, static_cast<uint64_t>(a.ints[p]),
                                                 static_cast<uint64_t>(b.ints[q]))
                                         : holds(kind, a.ints[p], b.ints[q]));
  }
  return out;
}

Known known_logical(std::string_view kind, const Known& a, const Known& b) {
  const Ints dims = broadcast_dims(a.dims, b.dims);
  const Ints from_a = broadcast_sources(a.dims, dims), from_b = broadcast_sources(b.dims, dims);
  Known out{kBool, dims, {}, {}};
  for (size_t i = 0; i < from_a.size(); ++i) {
    const int64_t x = a.ints[static_cast<size_t>(from_a[i])],
                  y = b.ints[static_cast<size_t>(from_b[i])];
    out.ints.push_back(kind == "and" ? (x & y) : kind == "or" ? (x | y) : (x ^ y));
  }
  return out;
}

Known known_where(const Known& cond, const Known& a, const Known& b) {
  const Ints dims = broadcast_dims(broadcast_dims(cond.dims, a.dims), b.dims);
  const Known c = known_expand(cond, dims), x = known_expand(a, dims), y = known_expand(b, dims);
  Known out = y;
  for (size_t i = 0; i < c.ints.size(); ++i)
    if (c.ints[i]) {
      if (x.real())
        out.reals[i] = x.reals[i];
      else
        out.ints[i] = x.ints[i];
    }
  return out;
}

}  // namespace tenon::core::onnx
