// SPDX-License-Identifier: Apache-2.0
// binary, compare, logical, unary (the primitive kinds), cast, where. One value at a time, as the
// formulas say.
#include <tenon/blocks.hpp>

#include <functional>

#include "../element.hpp"
#include "../kernels.hpp"

namespace tenon::sample {

namespace {

template <class F>
struct Named {
  std::string_view name;
  F function;
};
template <class F, size_t N>
F find(const Named<F> (&table)[N], const std::string& kind) {
  for (const auto& entry : table)
    if (entry.name == kind) return entry.function;
  throw Refusal::attribute("kind", kind);
}

// ---- cast ---------------------------------------------------------------------------------------

// Element i; of nibbles the first is in the low half of its byte.
template <class T>
auto element(const void* base, int64_t i) {
  if constexpr (kIsNibble<T>) {
    const int code = static_cast<const uint8_t*>(base)[i / 2] >> (i % 2 * 4) & 15;
    return static_cast<int8_t>(std::same_as<T, I4> && code > 7 ? code - 16 : code);
  } else {
    return widen(static_cast<const T*>(base)[i]);
  }
}
// Elements come in order: an even one clears its neighbour.
template <class T, class From>
void set_element(void* base, int64_t i, From x, bool saturate) {
  if constexpr (kIsNibble<T>) {
    int value = 0;
    if constexpr (std::floating_point<From>)  // saturates, integers wrap
      value = static_cast<int>(std::clamp<From>(std::isnan(x) ? 0 : std::trunc(x),
                                                std::same_as<T, I4> ? -8 : 0,
                                                std::same_as<T, I4> ? 7 : 15));
    else
      value = static_cast<int>(x & From(15));
    uint8_t& byte = static_cast<uint8_t*>(base)[i / 2];
    byte = static_cast<uint8_t>(i % 2 ? byte | (value & 15) << 4 : value & 15);
  } else if constexpr (std::same_as<T, F8E4M3>) {
    static_cast<T*>(base)[i] = {F8<4, false>::encode(x, saturate)};
  } else if constexpr (std::same_as<T, F8E5M2>) {
    static_cast<T*>(base)[i] = {F8<5, true>::encode(x, saturate)};
  } else {
    static_cast<T*>(base)[i] = narrow<T>(x);
  }
}

template <class X, class Y>
Kernel cast_kernel(const Type& x, bool saturate) {
  if (kIsNibble<X> && !x.dense()) throw Refusal(TENON_REASON_DTYPE, "operand x is not dense");
  const auto run = [=](const sdk::Call& c) {
    walk(x, x.strides, [&](int64_t k, const auto& at) {
      set_element<Y>(c.outputs[0], k, element<X>(c.inputs[0], at[0]), saturate);
    });
  };
  return {.run = run};
}

// Blocks of 32 numbers, which are rounded to f32 first.
template <class X>
Kernel block_cast(const Type& x) {
  const auto run = [=](const sdk::Call& c) {
    constexpr int64_t kElements = 32, kBytes = 34;
    float numbers[kElements];
    walk(x, x.strides, [&](int64_t k, const auto& at) {
      numbers[k % kElements] = narrow<float>(widen(c.in<X>(0)[at[0]]));
      if ((k + 1) % kElements == 0)
        encode_q8_0(numbers, c.out<unsigned char>(0) + k / kElements * kBytes);
    });
  };
  return {.run = run};
}

// ---- binary -------------------------------------------------------------------------------------

double max_of(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : (a > b ? a : b); }
double min_of(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : (a < b ? a : b); }
double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

constexpr Named<double (*)(double, double)> kFloatBinary[] = {
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"max", max_of},
    {"min", min_of},
    {"pow", [](double a, double b) { return std::pow(a, b); }},
    {"mod", floor_mod},
    {"fmod", [](double a, double b) { return std::fmod(a, b); }},
    {"atan2", [](double a, double b) { return std::atan2(a, b); }},
};

// Unsigned and at least as wide as T and int: arithmetic in it wraps and has no undefined case.
template <class T>
using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;

template <class T>
T wrap_mul(T a, T b) {
  return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
}
template <class T>
bool overflows(T a, T b) {  // the one quotient that does not fit
  return std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == static_cast<T>(-1);
}
template <class T>
T int_div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  return overflows(a, b) ? a : static_cast<T>(a / b);
}
template <class T>
T int_fmod(T a, T b) {
  if (b == 0) return a;
  return overflows(a, b) ? T{0} : static_cast<T>(a % b);
}
template <class T>
T int_mod(T a, T b) {
  const T r = int_fmod(a, b);
  return b != 0 && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}
template <class T>
T int_pow(T a, T b) {
  if (b < 0) {
    const bool odd = (b & 1) != 0;
    if (a == T{1}) return 1;
    return a == static_cast<T>(-1) ? static_cast<T>(odd ? -1 : 1) : T{0};
  }
  T result = 1;
  for (auto n = static_cast<std::make_unsigned_t<T>>(b); n != 0;
       n = static_cast<decltype(n)>(n >> 1)) {
    if (n & 1) result = wrap_mul(result, a);
    a = wrap_mul(a, a);
  }
  return result;
}

// Numbers of places that are negative or at least as many as there are bits shift all of them out.
template <class T>
bool keeps_bits(T places) {
  return static_cast<std::make_unsigned_t<T>>(places) <
         std::numeric_limits<std::make_unsigned_t<T>>::digits;
}
template <class T>
T shift_left(T x, T places) {
  return keeps_bits(places) ? static_cast<T>(Wrapping<T>(x) << places) : T{0};
}
template <class T>
T shift_right(T x, T places) {
  if (keeps_bits(places)) return static_cast<T>(x >> places);
  return static_cast<T>(x < 0 ? -1 : 0);
}

template <class T>
constexpr Named<T (*)(T, T)> kIntBinary[] = {
    {"add", [](T a, T b) { return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b)); }},
    {"sub", [](T a, T b) { return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b)); }},
    {"mul", wrap_mul<T>},
    {"div", int_div<T>},
    {"max", [](T a, T b) { return std::max(a, b); }},
    {"min", [](T a, T b) { return std::min(a, b); }},
    {"pow", int_pow<T>},
    {"mod", int_mod<T>},
    {"fmod", int_fmod<T>},
    {"bit_and", [](T a, T b) { return static_cast<T>(a & b); }},
    {"bit_or", [](T a, T b) { return static_cast<T>(a | b); }},
    {"bit_xor", [](T a, T b) { return static_cast<T>(a ^ b); }},
    {"shift_left", shift_left<T>},
    {"shift_right", shift_right<T>},
};
constexpr Named<bool (*)(bool, bool)> kBoolBinary[] = {
    {"max", [](bool a, bool b) { return a || b; }},
    {"min", [](bool a, bool b) { return a && b; }},
};
constexpr Named<bool (*)(bool, bool)> kLogical[] = {
    {"and", [](bool a, bool b) { return a && b; }},
    {"or", [](bool a, bool b) { return a || b; }},
    {"xor", [](bool a, bool b) { return a != b; }},
};

// y[k] = f(a, b) with a and b widened; from A to Y.
template <class A, class Y, class F>
Kernel binary_kernel(const sdk::Value& a, const sdk::Value& b, const Type& y, F f) {
  const std::array<Dims, 2> strides{broadcast_strides(a.type(), y), broadcast_strides(b.type(), y)};
  const auto run = [=](const sdk::Call& c) {
    const A *a = c.in<A>(0), *b = c.in<A>(1);
    Y* out = c.out<Y>(0);
    walk(y, strides, [&](int64_t k, const auto& at) {
      out[k] = narrow<Y>(f(widen(a[at[0]]), widen(b[at[1]])));
    });
  };
  return {.run = run};
}

// ---- compare ------------------------------------------------------------------------------------

template <class V>
constexpr Named<bool (*)(V, V)> kCompare[] = {
    {"eq", [](V a, V b) { return a == b; }}, {"ne", [](V a, V b) { return a != b; }},
    {"lt", [](V a, V b) { return a < b; }},  {"le", [](V a, V b) { return a <= b; }},
    {"gt", [](V a, V b) { return a > b; }},  {"ge", [](V a, V b) { return a >= b; }},
};

// ---- unary --------------------------------------------------------------------------------------

constexpr Named<double (*)(double)> kFloatUnary[] = {
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::fabs(x); }},
    {"sign", [](double x) { return x > 0   ? 1.0
                                   : x < 0 ? -1.0
                                           : x; }},  // NaN and zero stay
    {"exp", [](double x) { return std::exp(x); }},
    {"expm1", [](double x) { return std::expm1(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"log1p", [](double x) { return std::log1p(x); }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"ceil", [](double x) { return std::ceil(x); }},
    {"trunc", [](double x) { return std::trunc(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},  // half to even
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"tan", [](double x) { return std::tan(x); }},
    {"atan", [](double x) { return std::atan(x); }},
    {"asin", [](double x) { return std::asin(x); }},
    {"acos", [](double x) { return std::acos(x); }},
    {"sinh", [](double x) { return std::sinh(x); }},
    {"cosh", [](double x) { return std::cosh(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"erfc", [](double x) { return std::erfc(x); }},
};
constexpr Named<bool (*)(double)> kFloatTest[] = {
    {"is_nan", [](double x) { return std::isnan(x); }},
    {"is_inf", [](double x) { return std::isinf(x); }},
};
template <class T>
T int_neg(T x) {
  return static_cast<T>(Wrapping<T>(0) - Wrapping<T>(x));
}
template <class T>
constexpr Named<T (*)(T)> kIntUnary[] = {
    {"neg", int_neg<T>},
    {"abs", [](T x) { return x < 0 ? int_neg(x) : x; }},
    {"sign", [](T x) { return static_cast<T>(x > 0   ? 1
                                             : x < 0 ? -1
                                                     : 0); }},
};

template <class X, class Y, class F>
Kernel unary_kernel(const Type& x, F f) {
  const auto run = [=](const sdk::Call& c) {
    const X* in = c.in<X>(0);
    Y* out = c.out<Y>(0);
    walk(x, x.strides, [&](int64_t k, const auto& at) { out[k] = narrow<Y>(f(widen(in[at[0]]))); });
  };
  return {.run = run};
}

}  // namespace

Kernel make_binary(const op::binary& n, const Node& node) {
  const Type &a = n.a.type(), &y = node.out(0).type();
  Kernel kernel = with_type(kPlainTypes, "a", a.dtype, [&]<class T>(T) -> Kernel {
    if constexpr (kIsFloat<T>) return binary_kernel<T, T>(n.a, n.b, y, find(kFloatBinary, n.kind));
    if constexpr (kIsInt<T>) return binary_kernel<T, T>(n.a, n.b, y, find(kIntBinary<T>, n.kind));
    if constexpr (std::same_as<T, Bool>)
      return binary_kernel<T, T>(n.a, n.b, y, find(kBoolBinary, n.kind));
  });
  kernel.in_place = {{0, 0}, {1, 0}};
  return kernel;
}

Kernel make_compare(const op::compare& n, const Node& node) {
  return with_type(kPlainTypes, "a", n.a.type().dtype, [&]<class T>(T) -> Kernel {
    using Wide = decltype(widen(T{}));
    return binary_kernel<T, Bool>(n.a, n.b, node.out(0).type(), find(kCompare<Wide>, n.kind));
  });
}

Kernel make_logical(const op::logical& n, const Node& node) {
  const Type& a = n.a.type();
  if (a.dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("a", a.dtype);
  if (n.kind == "not") return unary_kernel<Bool, Bool>(a, [](bool x) { return !x; });
  const auto function = find(kLogical, n.kind);
  return binary_kernel<Bool, Bool>(n.a, n.b, node.out(0).type(), function);
}

Kernel make_unary(const op::unary& n, const Node&) {
  const Type& x = n.x.type();
  const UnaryInfo* info = find_unary(n.kind);
  if (!info || !info->primitive) throw Refusal::attribute("kind", n.kind);
  if (n.kind == "is_nan" || n.kind == "is_inf") {
    return with_type(kFloatTypes, "x", x.dtype, [&]<class T>(T) {
      return unary_kernel<T, Bool>(x, find(kFloatTest, n.kind));
    });
  }
  Kernel kernel;
  if (is_float(x.dtype)) {
    kernel = with_type(kFloatTypes, "x", x.dtype, [&]<class T>(T) {
      return unary_kernel<T, T>(x, find(kFloatUnary, n.kind));
    });
  } else {
    kernel = with_type(kIntegerTypes, "x", x.dtype, [&]<class T>(T) {
      return unary_kernel<T, T>(x, find(kIntUnary<T>, n.kind));
    });
  }
  kernel.in_place = {{0, 0}};
  return kernel;
}

Kernel make_cast(const op::cast& n, const Node&) {
  const Type& x = n.x.type();
  if (n.to == TENON_DTYPE_Q8_0)
    return with_type(kFloatTypes, "x", x.dtype, [&]<class X>(X) { return block_cast<X>(x); });
  return with_type(kCastTypes, "x", x.dtype, [&]<class X>(X) {
    return with_type(kCastTypes, "y", n.to,
                     [&]<class Y>(Y) { return cast_kernel<X, Y>(x, n.saturate); });
  });
}

Kernel make_where(const op::where& n, const Node& node) {
  const Type y = node.out(0).type();
  const std::array<Dims, 3> strides{broadcast_strides(n.cond.type(), y),
                                    broadcast_strides(n.a.type(), y),
                                    broadcast_strides(n.b.type(), y)};
  return with_bits("a", y.dtype, [&]<class T>(T) {
    const auto run = [=](const sdk::Call& c) {
      const auto* cond = c.in<uint8_t>(0);
      const T *a = c.in<T>(1), *b = c.in<T>(2);
      T* out = c.out<T>(0);
      walk(y, strides,
           [&](int64_t k, const auto& at) { out[k] = cond[at[0]] ? a[at[1]] : b[at[2]]; });
    };
    return Kernel{.run = run};
  });
}

}  // namespace tenon::sample
