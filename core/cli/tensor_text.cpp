// SPDX-License-Identifier: Apache-2.0
// Describes and compares tensors.
#include "cli/tensor_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace tenon::cli {
namespace {

std::string number_text(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  return text;
}

// The index of an element: "[0,17]".
std::string index_text(const std::vector<int64_t>& dims, int64_t flat) {
  std::string text;
  for (size_t i = dims.size(); i-- > 0;) {
    text = std::to_string(flat % dims[i]) + (text.empty() ? "" : ",") + text;
    flat /= dims[i];
  }
  return "[" + text + "]";
}

std::string dims_text(const std::vector<int64_t>& dims, const Graph* graph) {
  std::string text;
  for (const int64_t d : dims)
    text +=
        (text.empty() ? "" : ",") + (d >= 0 || !graph ? std::to_string(d) : graph->symbol_name(d));
  return "[" + text + "]";
}

// How much two numbers differ beyond the tolerance; 0 or less: they agree.
double excess(double got, double expected, const Tolerance& t) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (std::isnan(got) || std::isnan(expected))
    return std::isnan(got) && std::isnan(expected) ? 0 : kInfinite;
  if (got == expected) return 0;
  if (std::isinf(got) || std::isinf(expected)) return kInfinite;
  return std::abs(got - expected) - (t.absolute + t.relative * std::abs(expected));
}

template <class Part>
void append_parts(const unsigned char* bytes, size_t size, std::vector<double>& out) {
  for (size_t at = 0; at < size; at += sizeof(Part)) {
    Part part;
    std::memcpy(&part, bytes + at, sizeof part);
    out.push_back(static_cast<double>(part));
  }
}

}  // namespace

std::string dtype_text(tenon_dtype t) { return std::string(sdk::dtype_name(t)); }

std::string type_text(const TensorType& type) {
  return dtype_text(type.dtype) + dims_text(type.dims, nullptr);
}

std::string type_text(const Graph& graph, const TensorType& type) {
  return dtype_text(type.dtype) + dims_text(type.dims, &graph);
}

std::vector<double> numbers_of(const Tensor& t) {
  std::vector<double> out;
  if (sdk::is_float(t.dtype()) || sdk::is_integer(t.dtype()) || t.dtype() == boolean) {
    const Tensor wide = t.to(f64);
    const std::span<const double> all = wide.values<double>();
    out.assign(all.begin(), all.end());
    return out;
  }
  const auto* bytes = static_cast<const unsigned char*>(t.data());
  if (t.dtype() == TENON_DTYPE_C64)
    append_parts<float>(bytes, t.size(), out);
  else if (t.dtype() == TENON_DTYPE_C128)
    append_parts<double>(bytes, t.size(), out);
  else
    out.assign(bytes, bytes + t.size());
  return out;
}

std::string summary(const Tensor& t) {
  double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0;
  size_t count = 0, nan = 0, infinite = 0;
  for (const double v : numbers_of(t)) {
    nan += std::isnan(v);
    infinite += std::isinf(v);
    if (!std::isfinite(v)) continue;
    least = std::min(least, v);
    most = std::max(most, v);
    sum += v;
    ++count;
  }
  std::string text = "no elements";
  if (count > 0)
    text = "min " + number_text(least) + ", max " + number_text(most) + ", mean " +
           number_text(sum / static_cast<double>(count));
  else if (nan + infinite > 0)
    text = "no finite element";
  if (nan > 0) text += ", " + std::to_string(nan) + " NaN";
  if (infinite > 0) text += ", " + std::to_string(infinite) + " infinite";
  return text;
}

Tensor converted(const Tensor& t, tenon_dtype dtype, const std::string& what) {
  if (t.dtype() == dtype) return t;
  if (sdk::is_float(t.dtype()) && sdk::is_float(dtype)) return t.to(dtype);
  if (!sdk::is_integer(t.dtype()) || !sdk::is_integer(dtype))
    throw Error(TENON_DTYPE_MISMATCH,
                what + ": expected " + dtype_text(dtype) + ", got " + dtype_text(t.dtype()));
  Tensor out = t.to(dtype);
  const Tensor back = out.to(t.dtype());
  // Of equal width, a number that does not fit changes its sign.
  const auto negative = [](double v) { return v < 0; };
  if ((t.size() == 0 || std::memcmp(back.data(), t.data(), t.size()) == 0) &&
      std::ranges::any_of(numbers_of(t), negative) ==
          std::ranges::any_of(numbers_of(out), negative))
    return out;
  throw Error(TENON_DTYPE_MISMATCH, what + ": has numbers that do not fit in " + dtype_text(dtype));
}

std::string difference(const Tensor& got, const Tensor& expected, const Tolerance& tolerance) {
  if (got.dtype() != expected.dtype() || got.dims() != expected.dims())
    return "expected " + type_text(expected.type()) + ", got " + type_text(got.type());
  const std::vector<double> a = numbers_of(got), b = numbers_of(expected);
  size_t differ = 0, worst = 0;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double over = excess(a[i], b[i], tolerance);
    if (!(over > 0)) continue;
    if (++differ == 1 || over > most) most = over, worst = i;
  }
  if (differ == 0) return {};
  const int64_t elements = expected.elements();
  const auto each = static_cast<int64_t>(a.size()) / std::max<int64_t>(elements, 1);
  const auto flat = static_cast<int64_t>(worst);
  const bool elementwise = each >= 1;  // two i4 share a byte
  const std::string where =
      elementwise ? index_text(expected.dims(), flat / each) : " at byte " + std::to_string(worst);
  return std::to_string(differ) + " of " + std::to_string(a.size()) +
         " numbers differ, most of all " + where + ": expected " + number_text(b[worst]) +
         ", got " + number_text(a[worst]);
}

}  // namespace tenon::cli
