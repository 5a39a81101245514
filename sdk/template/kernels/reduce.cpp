// SPDX-License-Identifier: Apache-2.0
// reduce. Sums of floats run in long double, so that the oracle is exact to f64 for any length.
#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Each of these reduces n values; each(f) calls f(x) for every one, and may be called again.
template <class Each>
double max_of(const Each& each, double sign) {  // sign -1: min
  double m = -kInfinity;
  each([&](double x) { m = std::isnan(m) || std::isnan(x) ? NAN : std::max(m, sign * x); });
  return sign * m;
}
template <class Each, class Term>
double sum_of(const Each& each, Term term) {
  long double s = 0;
  each([&](double x) { s += term(x); });
  return static_cast<double>(s);
}
template <class Each>
double logsumexp_of(const Each& each) {
  const double m = max_of(each, 1);
  if (!std::isfinite(m)) return m;
  return m + std::log(sum_of(each, [m](double x) { return std::exp(x - m); }));
}
template <class Each>
double product_of(const Each& each) {
  double p = 1;
  each([&](double x) { p *= x; });
  return p;
}

template <class Each>
double reduce_float(const std::string& kind, int64_t n, const Each& each) {
  const auto square = [](double x) { return x * x; };
  const auto same = [](double x) { return x; };
  if (kind == "sum") return sum_of(each, same);
  if (kind == "mean") return n == 0 ? NAN : sum_of(each, same) / static_cast<double>(n);
  if (kind == "max") return max_of(each, 1);
  if (kind == "min") return max_of(each, -1);
  if (kind == "prod") return product_of(each);
  if (kind == "sum_square") return sum_of(each, square);
  if (kind == "l1") return sum_of(each, [](double x) { return std::fabs(x); });
  if (kind == "l2") return std::sqrt(sum_of(each, square));
  return logsumexp_of(each);
}

// Integers wrap: 64 unsigned bits hold any of them, and the result is cut to T. The mean divides
// the exact sum.
template <class T, class Each>
T reduce_int(const std::string& kind, int64_t n, const Each& each) {
  if (kind == "max" || kind == "min") {
    const bool max = kind == "max";
    T best = max ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    each([&](T x) { best = max ? std::max(best, x) : std::min(best, x); });
    return best;
  }
  uint64_t total = kind == "prod" ? 1 : 0;
  each([&](T x) {
    const auto wide = static_cast<uint64_t>(x);
    if (kind == "prod") {
      total *= wide;
    } else if (kind == "sum_square") {
      total += wide * wide;
    } else {
      total += kind == "l1" && x < 0 ? -wide : wide;
    }
  });
  if (kind != "mean") return static_cast<T>(total);
  if (n == 0) return 0;
  if (std::is_signed_v<T>) return static_cast<T>(static_cast<int64_t>(total) / n);
  return static_cast<T>(total / static_cast<uint64_t>(n));
}

template <class Each>
bool reduce_bool(const std::string& kind, const Each& each) {
  const bool any = kind == "any" || kind == "max";
  bool result = !any;
  each([&](bool x) { result = any ? result || x : result && x; });
  return result;
}

template <class T>
bool takes(const std::string& kind) {
  if (kind == "any" || kind == "all") return true;
  if (kind == "max" || kind == "min") return true;
  if (std::same_as<T, Bool>) return false;
  if (kind == "sum" || kind == "mean" || kind == "prod" || kind == "sum_square" || kind == "l1")
    return true;
  return kIsFloat<T> && (kind == "l2" || kind == "logsumexp");
}

template <class T, class Y, class Reduce>
Kernel kernel_of(const ReduceShape& s, Reduce reduce) {
  const auto run = [s, reduce](const sdk::Call& c) {
    Y* y = c.out<Y>(0);
    walk(s.kept, s.kept.strides, [&](int64_t k, const auto& base) {
      const T* x = c.in<T>(0) + base[0];
      y[k] = narrow<Y>(reduce([&](auto&& f) {
        walk(s.reduced, s.reduced.strides, [&](int64_t, const auto& at) { f(widen(x[at[0]])); });
      }));
    });
  };
  return {.run = run};
}

}  // namespace

Kernel make_reduce(const op::reduce& n, const Node&) {
  const Type& x = n.x.type();
  const ReduceShape s = reduce_shape(n, x);
  const int64_t count = s.reduced.elements();
  const bool truth = n.kind == "any" || n.kind == "all";
  const std::string kind = n.kind;
  return with_type(kPlainTypes, "x", x.dtype, [&]<class T>(T) -> Kernel {
    if (!takes<T>(n.kind))
      throw Refusal::attribute("kind", n.kind + " for " + std::string(sdk::dtype_name(x.dtype)));
    const auto by_bool = [kind](const auto& each) { return reduce_bool(kind, each); };
    if (truth) return kernel_of<T, Bool>(s, by_bool);
    if constexpr (kIsFloat<T>) {
      return kernel_of<T, T>(
          s, [kind, count](const auto& each) { return reduce_float(kind, count, each); });
    } else if constexpr (kIsInt<T>) {
      return kernel_of<T, T>(
          s, [kind, count](const auto& each) { return reduce_int<T>(kind, count, each); });
    } else {
      return kernel_of<T, T>(s, by_bool);
    }
  });
}

}  // namespace tenon::sample
