// SPDX-License-Identifier: Apache-2.0
// Compares a result with its reference under a tolerance, and says where it is off.
#include "judge.hpp"

#include <cmath>

namespace tenon::conform {
namespace {

// Flat index into a tensor that broadcasts to `dims`.
size_t broadcast_index(const std::vector<int64_t>& dims, const std::vector<int64_t>& from,
                       size_t flat) {
  size_t out = 0, stride = 1;
  for (size_t k = 0; k < dims.size(); ++k) {
    const size_t axis = dims.size() - 1 - k;
    const auto at = flat % static_cast<size_t>(dims[axis]);
    flat /= static_cast<size_t>(dims[axis]);
    if (k >= from.size()) continue;
    const int64_t d = from[from.size() - 1 - k];
    if (d != 1) out += at * stride;
    stride *= static_cast<size_t>(d);
  }
  return out;
}

// Two computations in f64 stand against each other, so both may err.
double both_err(tenon_dtype dtype) { return dtype == f64 ? 2 : 1; }

double bound_of(tenon_dtype out, double want, double scale, const Tolerance& t,
                const Verdict& how) {
  if (t.is_exact) return 0;
  const bool half = out == f16 || out == bf16;
  double bound = t.ulps * both_err(out) * ulp(out, want);
  if (half && t.ulps > 0) bound = ulp(out, want);
  if (t.factor > 0)
    bound += both_err(how.dtype) * (t.factor * unit_roundoff(acc_dtype(how.dtype)) * scale +
                                    unit_roundoff(out) * std::fabs(want)) +
             ulp(out, 0);
  return how.times * bound;
}

bool near_enough(tenon_dtype out, double got, double want, double bound) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  const double rounded = round_to(out, want);
  if (got == rounded) return true;
  if (std::isinf(want)) return false;
  // At the edge of the range either side of the border is right within the bound.
  if (std::isinf(got)) return std::fabs(want) + bound >= largest(out) && (got > 0) == (want > 0);
  if (std::isinf(rounded)) return std::fabs(got) + bound >= largest(out) && (got > 0) == (want > 0);
  return std::fabs(got - want) <= bound;
}

}  // namespace

double room(const HostTensor& want, const HostTensor* scale, size_t i, tenon_dtype out,
            const Tolerance& tolerance, const Verdict& how) {
  const double w = want.real(i);
  if (!std::isfinite(w)) return 0;
  const double s =
      scale ? scale->real(broadcast_index(want.type.dims, scale->type.dims, i)) : std::fabs(w);
  return bound_of(out, w, s, tolerance, how);
}

std::string same(const std::string& name, const HostTensor& got, const HostTensor& want,
                 const std::function<double(size_t i)>& between) {
  const tenon_dtype out = got.type.dtype;
  if (got.type != want.type)
    return "output " + name + ": expected " + dtype_text(want.type.dtype) +
           place(want.type.dims, 0) + " of " + std::to_string(want.size()) + " elements, got " +
           dtype_text(out) + " of " + std::to_string(got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool equal = is_float(out) || is_f8(out)
                           ? near_enough(out, got.real(i), want.real(i), between ? between(i) : 0)
                           : got.integer(i) == want.integer(i);
    if (!equal)
      return "output " + name + place(got.type.dims, i) + ": " + want.text(i) +
             " without fusion, " + got.text(i) + " with it";
  }
  return {};
}

std::string judge(const std::string& name, const HostTensor& got, const HostTensor& want,
                  const HostTensor* scale, const Tolerance& tolerance, const Verdict& how) {
  const tenon_dtype out = got.type.dtype;
  const bool real = is_float(out) || is_f8(out);
  if (got.type.dims != want.type.dims ||
      (is_float(out) ? !is_float(want.type.dtype) : out != want.type.dtype))
    return "output " + name + ": expected " + dtype_text(want.type.dtype) +
           place(want.type.dims, 0) + " of " + std::to_string(want.size()) + " elements, got " +
           dtype_text(out) + " of " + std::to_string(got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!real) {
      if (got.integer(i) != want.integer(i))
        return "output " + name + place(got.type.dims, i) + ": expected " + want.text(i) +
               ", got " + got.text(i);
      continue;
    }
    const double w = want.real(i);
    const double bound = room(want, scale, i, out, tolerance, how);
    if (near_enough(out, got.real(i), w, bound)) continue;
    char text[160];
    std::snprintf(text, sizeof text, ": expected %.10g within %.3g, got %.10g, off by %.3g", w,
                  bound, got.real(i), std::fabs(got.real(i) - w));
    return "output " + name + place(got.type.dims, i) + text;
  }
  return {};
}

}  // namespace tenon::conform
