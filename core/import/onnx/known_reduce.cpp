// SPDX-License-Identifier: Apache-2.0
// Functions of one known tensor: element by element, reductions, and places of elements.
#include <algorithm>
#include <cmath>

#include "import/onnx/known_ops.hpp"
#include "import/onnx/known_walk.hpp"

namespace tenon::core::onnx {

std::optional<Known> known_unary(std::string_view kind, const Known& x) {
  Known out{x.dtype, x.dims, {}, {}};
  if (!x.real()) {
    if (x.dtype == kBool) return {};
    for (const int64_t v : x.ints) {
      const auto minus = static_cast<int64_t>(0 - static_cast<uint64_t>(v));
      int64_t r = 0;
      if (kind == "neg")
        r = minus;
      else if (kind == "abs")
        r = v < 0 && !is_unsigned(x.dtype) ? minus : v;
      else if (kind == "sign")
        r = v == 0 ? 0 : v < 0 && !is_unsigned(x.dtype) ? -1 : 1;
      else
        return {};
      out.ints.push_back(wrapped(x.dtype, r));
    }
    return out;
  }
  for (const double v : x.reals) {
    double r = 0;
    if (kind == "neg")
      r = -v;
    else if (kind == "abs")
      r = std::fabs(v);
    else if (kind == "sign")
      r = std::isnan(v) ? v : static_cast<double>((v > 0) - (v < 0));
    else if (kind == "floor")
      r = std::floor(v);
    else if (kind == "ceil")
      r = std::ceil(v);
    else if (kind == "trunc")
      r = std::trunc(v);
    else if (kind == "round")
      r = std::nearbyint(v);
    else if (kind == "sqrt")
      r = std::sqrt(v);
    else if (kind == "reciprocal")
      r = 1 / v;
    else if (kind == "exp")
      r = std::exp(v);
    else if (kind == "log")
      r = std::log(v);
    else
      return {};
    out.reals.push_back(rounded(x.dtype, r));
  }
  return out;
}

std::optional<Known> known_reduce(std::string_view kind, const Known& x, const Ints& axes,
                                  bool keepdims) {
  if (x.size() == 0 || x.dtype == kBool) return {};
  if (kind != "sum" && kind != "mean" && kind != "max" && kind != "min" && kind != "prod")
    return {};
  Ints kept = x.dims, dims;
  for (const int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
  for (size_t i = 0; i < kept.size(); ++i)
    if (keepdims || std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
      dims.push_back(kept[i]);
  const Ints strides = strides_of(kept);
  const auto count = static_cast<size_t>(count_of(kept));
  const bool product = kind == "prod", largest = kind == "max", smallest = kind == "min";
  std::vector<double> reals(count, product ? 1.0 : 0.0);
  std::vector<int64_t> ints(count, product ? 1 : 0), number(count, 0);
  each(x.dims, [&](int64_t flat, const Ints& at) {
    int64_t to = 0;
    for (size_t i = 0; i < at.size(); ++i) to += kept[i] == 1 ? 0 : at[i] * strides[i];
    const auto o = static_cast<size_t>(to), i = static_cast<size_t>(flat);
    const bool first = number[o]++ == 0;
    if (x.real()) {
      double& r = reals[o];
      const double v = x.reals[i];
      if (largest || smallest)
        r = first || std::isnan(v) ? v
            : std::isnan(r)        ? r
            : largest              ? std::max(r, v)
                                   : std::min(r, v);
      else
        r = product ? r * v : r + v;
    } else {
      int64_t& r = ints[o];
      const int64_t v = x.ints[i];
      const bool less =
          is_unsigned(x.dtype) ? static_cast<uint64_t>(v) < static_cast<uint64_t>(r) : v < r;
      if (largest || smallest)
        r = first || less == smallest ? v : r;
      else
        r = static_cast<int64_t>(product ? static_cast<uint64_t>(r) * static_cast<uint64_t>(v)
                                         : static_cast<uint64_t>(r) + static_cast<uint64_t>(v));
    }
  });
  if (kind == "mean")
    for (size_t o = 0; o < count; ++o) {
      reals[o] /= static_cast<double>(number[o]);
      ints[o] = divide(x.dtype, ints[o], number[o]);
    }
  return x.real() ? known_reals(x.dtype, dims, std::move(reals))
                  : known_ints(x.dtype, dims, std::move(ints));
}

Known known_non_zero(const Known& x) {
  std::vector<Ints> found;
  each(x.dims, [&](int64_t flat, const Ints& at) {
    const auto i = static_cast<size_t>(flat);
    if (x.real() ? x.reals[i] != 0 : x.ints[i] != 0) found.push_back(at);
  });
  std::vector<int64_t> places;
  for (size_t k = 0; k < x.dims.size(); ++k)
    for (const Ints& at : found) places.push_back(at[k]);
  return known_ints(kI64, {static_cast<int64_t>(x.rank()), static_cast<int64_t>(found.size())},
                    std::move(places));
}

}  // namespace tenon::core::onnx
