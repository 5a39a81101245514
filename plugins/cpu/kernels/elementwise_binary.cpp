// SPDX-License-Identifier: Apache-2.0
// binary, compare, logical and where. Integer arithmetic is defined for all operands: see
// integer_div and the following functions.
#include <array>
#include <cmath>
#include <string>

#include "elementwise.hpp"

namespace tenon::cpu {
namespace {

using sdk::Kernel;
using sdk::Refusal;

template <class Kind, size_t N>
Kind find_kind(std::string_view op, const std::array<std::string_view, N>& names,
               std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Kind>(i);
  throw Refusal::unknown(std::string(op) + " kind", name);
}

constexpr std::array<std::string_view, 15> kBinaryNames = {
    "add",  "sub",   "mul",     "div",    "max",     "min",        "pow",        "mod",
    "fmod", "atan2", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"};

bool is_on_bits(BinaryKind kind) { return kind >= BinaryKind::bit_and; }

// Floored modulo: the result has the sign of the divisor.
template <class T>
T float_mod(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <class T>
T nan_max(T a, T b) {
  return a > b || std::isnan(a) ? a : b;
}
template <class T>
T nan_min(T a, T b) {
  return a < b || std::isnan(a) ? a : b;
}

template <class T>
void float_tile(BinaryKind kind, const T* a, const T* b, T* y, int64_t n) {
  const auto run = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  };
  switch (kind) {
    case BinaryKind::add:
      return run([](T u, T v) { return u + v; });
    case BinaryKind::sub:
      return run([](T u, T v) { return u - v; });
    case BinaryKind::mul:
      return run([](T u, T v) { return u * v; });
    case BinaryKind::div:
      return run([](T u, T v) { return u / v; });
    case BinaryKind::max:
      return run([](T u, T v) { return nan_max(u, v); });
    case BinaryKind::min:
      return run([](T u, T v) { return nan_min(u, v); });
    case BinaryKind::pow:
      return run([](T u, T v) { return std::pow(u, v); });
    case BinaryKind::mod:
      return run([](T u, T v) { return float_mod(u, v); });
    case BinaryKind::fmod:
      return run([](T u, T v) { return std::fmod(u, v); });
    case BinaryKind::atan2:
      return run([](T u, T v) { return std::atan2(u, v); });
    default:
      return;  // of bits: refused
  }
}

// x / 0 has all bits set, x mod 0 = x. The smallest integer / -1 is itself, mod -1 is 0.
template <class T>
T integer_div(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1)
      return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T integer_fmod(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T integer_mod(T a, T b) {
  const T r = integer_fmod(a, b);
  return b != 0 && r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}
// Wraps. Negative exponents: +-1 for base +-1, else 0.
template <class T>
T integer_pow(T base, T exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if constexpr (std::is_signed_v<T>)
      if (base == -1) return exponent & 1 ? static_cast<T>(-1) : T{1};
    return 0;
  }
  uint64_t result = 1, power = static_cast<uint64_t>(base);
  for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1, power *= power)
    if (e & 1) result *= power;
  return static_cast<T>(result);
}

// Numbers of places that are negative or at least as many as there are bits shift all of them out.
template <class T>
T shift_left(T x, T places) {
  using U = std::make_unsigned_t<T>;
  const auto by = static_cast<U>(places);
  return by < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(static_cast<U>(x)) << by) : T{0};
}
// The sign is shifted in.
template <class T>
T shift_right(T x, T places) {
  const auto by = static_cast<std::make_unsigned_t<T>>(places);
  if (by < 8 * sizeof(T)) return static_cast<T>(x >> by);
  return x < 0 ? static_cast<T>(-1) : T{0};
}

template <class T>
void integer_tile(BinaryKind kind, const T* a, const T* b, T* y, int64_t n) {
  // Unsigned and never promoted to int, so it wraps.
  using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
  const auto run = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(a[i], b[i]));
  };
  switch (kind) {
    case BinaryKind::add:
      return run([](T u, T v) { return static_cast<U>(u) + static_cast<U>(v); });
    case BinaryKind::sub:
      return run([](T u, T v) { return static_cast<U>(u) - static_cast<U>(v); });
    case BinaryKind::mul:
      return run([](T u, T v) { return static_cast<U>(u) * static_cast<U>(v); });
    case BinaryKind::div:
      return run([](T u, T v) { return integer_div(u, v); });
    case BinaryKind::max:
      return run([](T u, T v) { return u > v ? u : v; });
    case BinaryKind::min:
      return run([](T u, T v) { return u < v ? u : v; });
    case BinaryKind::pow:
      return run([](T u, T v) { return integer_pow(u, v); });
    case BinaryKind::mod:
      return run([](T u, T v) { return integer_mod(u, v); });
    case BinaryKind::bit_and:
      return run([](T u, T v) { return u & v; });
    case BinaryKind::bit_or:
      return run([](T u, T v) { return u | v; });
    case BinaryKind::bit_xor:
      return run([](T u, T v) { return u ^ v; });
    case BinaryKind::shift_left:
      return run([](T u, T v) { return shift_left(u, v); });
    case BinaryKind::shift_right:
      return run([](T u, T v) { return shift_right(u, v); });
    default:
      return run([](T u, T v) { return integer_fmod(u, v); });  // fmod; atan2 is refused
  }
}

enum class Relation : uint8_t { eq, ne, lt, le, gt, ge };
constexpr std::array<std::string_view, 6> kRelationNames = {"eq", "ne", "lt", "le", "gt", "ge"};

template <class T>
void compare_tile(Relation relation, const T* a, const T* b, uint8_t* y, int64_t n) {
  const auto run = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  };
  switch (relation) {
    case Relation::eq:
      return run([](T u, T v) { return u == v; });
    case Relation::ne:
      return run([](T u, T v) { return u != v; });
    case Relation::lt:
      return run([](T u, T v) { return u < v; });
    case Relation::le:
      return run([](T u, T v) { return u <= v; });
    case Relation::gt:
      return run([](T u, T v) { return u > v; });
    case Relation::ge:
      return run([](T u, T v) { return u >= v; });
  }
}

// Calls f(T{}) with the type in which elements of a dtype are compared.
template <class F>
auto with_comparable(std::string_view name, tenon_dtype t, F&& f) {
  if (is_float(t)) return with_float(name, t, f);
  return with_type(sdk::kIntegerTypes, name, t == TENON_DTYPE_BOOL ? TENON_DTYPE_U8 : t, f);
}

tenon_dtype same_dtype(const sdk::Value& a, const sdk::Value& b) {
  const tenon_dtype dtype = a.type().dtype;
  if (b.type().dtype != dtype)
    throw Refusal(TENON_REASON_DTYPE,
                  "operands differ in dtype: " + std::string(sdk::dtype_name(dtype)) + " and " +
                      std::string(sdk::dtype_name(b.type().dtype)));
  return dtype;
}

}  // namespace

BinaryKind find_binary(std::string_view name) {
  return find_kind<BinaryKind>("binary", kBinaryNames, name);
}

void binary_tile(BinaryKind kind, const float* a, const float* b, float* y, int64_t n) {
  if (kind == BinaryKind::pow) return pow_wide(a, b, y, n);
  if (!binary_vector(kind, a, b, y, n)) float_tile(kind, a, b, y, n);
}
void binary_tile(BinaryKind kind, const double* a, const double* b, double* y, int64_t n) {
  float_tile(kind, a, b, y, n);
}

TileOp binary_tiles(const sdk::op::binary& n, tenon_dtype out) {
  const BinaryKind kind = find_binary(n.kind);
  const tenon_dtype dtype = same_dtype(n.a, n.b);
  if (out != dtype) throw Refusal::dtype("y", out);
  if (is_float(dtype)) {
    if (is_on_bits(kind)) throw Refusal::dtype("a", dtype);
    return with_float("a", dtype, [&]<class T>(T) {
      return tile_op<T, T, 2>(
          [kind](const auto& x, T* y, int64_t count) { binary_tile(kind, x[0], x[1], y, count); });
    });
  }
  const bool extreme = kind == BinaryKind::max || kind == BinaryKind::min;
  if (kind == BinaryKind::atan2 || (dtype == TENON_DTYPE_BOOL && !extreme))
    throw Refusal::dtype("a", dtype);
  return with_comparable("a", dtype, [&]<class T>(T) -> TileOp {
    if constexpr (std::is_integral_v<T>) {
      return tile_op<T, T, 2>(
          [kind](const auto& x, T* y, int64_t count) { integer_tile(kind, x[0], x[1], y, count); });
    }
    throw Refusal::dtype("a", dtype);
  });
}

Kernel make_binary(const sdk::op::binary& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  return tile_kernel(std::array{n.a, n.b}, out, binary_tiles(n, out.dtype));
}

TileOp compare_tiles(const sdk::op::compare& n, tenon_dtype out) {
  const auto relation = find_kind<Relation>("compare", kRelationNames, n.kind);
  if (out != TENON_DTYPE_BOOL) throw Refusal::dtype("y", out);
  return with_comparable("a", same_dtype(n.a, n.b), [&]<class T>(T) {
    return tile_op<T, uint8_t, 2>([relation](const auto& x, uint8_t* y, int64_t count) {
      compare_tile(relation, x[0], x[1], y, count);
    });
  });
}

Kernel make_compare(const sdk::op::compare& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  return tile_kernel(std::array{n.a, n.b}, out, compare_tiles(n, out.dtype));
}

TileOp logical_tiles(const sdk::op::logical& n, tenon_dtype out) {
  enum class Kind : uint8_t { and_, or_, xor_, not_ };
  const auto kind = find_kind<Kind>(
      "logical", std::array<std::string_view, 4>{"and", "or", "xor", "not"}, n.kind);
  if ((kind == Kind::not_) == static_cast<bool>(n.b))
    throw Refusal::attribute("kind", n.kind + (n.b ? " with operand b" : " without operand b"));
  const tenon_dtype dtype = n.b ? same_dtype(n.a, n.b) : n.a.type().dtype;
  if (dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("a", dtype);
  if (out != TENON_DTYPE_BOOL) throw Refusal::dtype("y", out);
  if (kind == Kind::not_) {
    return tile_op<uint8_t, uint8_t, 1>([](const auto& x, uint8_t* y, int64_t count) {
      for (int64_t i = 0; i < count; ++i) y[i] = x[0][i] ^ 1;
    });
  }
  return tile_op<uint8_t, uint8_t, 2>([kind](const auto& x, uint8_t* y, int64_t count) {
    const uint8_t* a = x[0];
    const uint8_t* b = x[1];
    if (kind == Kind::and_) {
      for (int64_t i = 0; i < count; ++i) y[i] = a[i] & b[i];
    } else if (kind == Kind::or_) {
      for (int64_t i = 0; i < count; ++i) y[i] = a[i] | b[i];
    } else {
      for (int64_t i = 0; i < count; ++i) y[i] = a[i] ^ b[i];
    }
  });
}

Kernel make_logical(const sdk::op::logical& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  TileOp op = logical_tiles(n, out.dtype);
  return n.b ? tile_kernel(std::array{n.a, n.b}, out, std::move(op))
             : tile_kernel(std::array{n.a}, out, std::move(op));
}

TileOp where_tiles(const sdk::op::where& n, tenon_dtype out) {
  const tenon_dtype dtype = same_dtype(n.a, n.b);
  if (n.cond.type().dtype != TENON_DTYPE_BOOL) throw Refusal::dtype("cond", n.cond.type().dtype);
  if (out != dtype) throw Refusal::dtype("y", out);
  const int64_t size = is_half(dtype) ? 4 : element_bytes(dtype);
  if (size == 0 || size > 8) throw Refusal::dtype("a", dtype);
  return [size](const void* const* x, void* y, int64_t n) {
    select_elements(size, static_cast<const uint8_t*>(x[0]), x[1], x[2], y, n);
  };
}

Kernel make_where(const sdk::op::where& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  const tenon_dtype dtype = n.a.type().dtype;
  where_tiles(n, out.dtype);  // refuses
  const int64_t size = element_bytes(dtype);
  const Loop loop = make_loop(out.shape(), {&n.cond.type(), &n.a.type(), &n.b.type()});
  Kernel kernel;
  for (const sdk::Value& v : {n.a, n.b})
    if (replaceable(v.type(), out)) kernel.in_place.push_back({v.position(), 0});
  const std::array positions = {n.cond.position(), n.a.position(), n.b.position()};
  kernel.run = [=](const sdk::Call& c) {
    parallel_for(loop.count, tile_grain(3 * size + 1), [&](int64_t begin, int64_t end) {
      TileReader cond(loop, 0, c.inputs[positions[0]], TENON_DTYPE_BOOL);
      TileReader a(loop, 1, c.inputs[positions[1]], dtype),
          b(loop, 2, c.inputs[positions[2]], dtype);
      auto* y = static_cast<std::byte*>(c.outputs[0]);
      for_tiles(loop, begin, end, [&](int64_t flat, int64_t count) {
        select_elements(size, static_cast<const uint8_t*>(cond.raw(flat, count)),
                        a.raw(flat, count), b.raw(flat, count), y + flat * size, count);
      });
    });
  };
  return kernel;
}

}  // namespace tenon::cpu
