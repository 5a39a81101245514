// SPDX-License-Identifier: Apache-2.0
// unary, activation_backward, swiglu and swiglu_backward: selects the kernel for each dtype.
#include <cmath>
#include <string>

#include "elementwise.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;

// neg, abs, sign, square, relu on integers; results wrap.
template <class T>
void integer_tile(UnaryKind kind, const T* x, T* y, int64_t n) {
  using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
  const auto run = [&](auto f) {
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(f(x[i]));
  };
  switch (kind) {
    case UnaryKind::neg:
      return run([](T v) { return U{0} - static_cast<U>(v); });
    case UnaryKind::abs:
      return run([](T v) { return v < 0 ? U{0} - static_cast<U>(v) : static_cast<U>(v); });
    case UnaryKind::sign:
      return run([](T v) { return (v > 0) - (v < 0); });
    case UnaryKind::square:
      return run([](T v) { return static_cast<U>(v) * static_cast<U>(v); });
    default:
      return run([](T v) { return v > 0 ? v : T{0}; });  // relu
  }
}

TileOp test_tiles(tenon_dtype dtype, UnaryKind kind) {
  return with_float("x", dtype, [&]<class T>(T) {
    return tile_op<T, uint8_t, 1>([kind](const auto& x, uint8_t* y, int64_t count) {
      if (kind == UnaryKind::is_nan) {
        for (int64_t i = 0; i < count; ++i) y[i] = std::isnan(x[0][i]);
      } else {
        for (int64_t i = 0; i < count; ++i) y[i] = std::isinf(x[0][i]);
      }
    });
  });
}

Activation make_gate(const std::string& act) {
  const Activation f = make_activation(act);
  switch (f.kind) {
    case UnaryKind::silu:
    case UnaryKind::gelu:
    case UnaryKind::gelu_tanh:
    case UnaryKind::relu:
    case UnaryKind::sigmoid:
      return f;
    default:
      throw Refusal::attribute("act", act);
  }
}

// Layout of gate and up: two tensors, or the two halves of each row of one tensor.
struct Gated {
  int64_t count = 0;   // elements of the result
  int64_t row = 0;     // contiguous elements of gate, and of up
  int64_t stride = 0;  // between rows, for gate and up
  int64_t gate = 0;    // offsets of the first row
  int64_t up = 0;
};

Gated make_gated(const sdk::Value& gate, const sdk::Value& up, bool gate_first) {
  const sdk::Type& g = gate.type();
  if (up) {
    const int64_t count = g.elements();
    return {count, count, count, 0, 0};
  }
  const int64_t width = g.dims[g.rank - 1], half = width / 2;
  return {g.elements() / 2, half, width, gate_first ? 0 : half, gate_first ? half : 0};
}

// Calls body(first element, flat result index, n) for pieces of rows of at most kTile elements.
template <class Body>
void for_gated(const Gated& s, int64_t begin, int64_t end, Body&& body) {
  for (int64_t i = begin; i < end;) {
    const int64_t at = i % s.row, n = std::min({kTile, s.row - at, end - i});
    body(i / s.row * s.stride + at, i, n);
    i += n;
  }
}

// Elements of a dense operand in the accumulation type.
template <class T>
const T* widened(tenon_dtype dtype, const void* base, int64_t at, int64_t n, float* wide) {
  if constexpr (std::is_same_v<T, float>) {
    if (is_half(dtype)) {
      widen(dtype, static_cast<const uint16_t*>(base) + at, wide, n);
      return wide;
    }
  }
  return static_cast<const T*>(base) + at;
}

// y = act(gate) up.
template <class T>
void swiglu_tile(const Activation& f, const T* gate, const T* up, T* y, int64_t n) {
  if constexpr (std::is_same_v<T, float>)
    if (swiglu_vector(f, gate, up, y, n)) return;
  alignas(64) T act[kTile];
  unary_tile(f, gate, act, n);
  binary_tile(BinaryKind::mul, act, up, y, n);
}
// dup may overwrite any operand, dgate may overwrite gate.
template <class T>
void swiglu_slopes_tile(const Activation& f, const T* gate, const T* up, const T* dy, T* dgate,
                        T* dup, int64_t n) {
  if constexpr (std::is_same_v<T, float>)
    if (swiglu_slopes_vector(f, gate, up, dy, dgate, dup, n)) return;
  alignas(64) T product[kTile], act[kTile];
  binary_tile(BinaryKind::mul, dy, up, product, n);
  unary_tile(f, gate, act, n);
  slope_tile(f, gate, product, dgate, n);
  binary_tile(BinaryKind::mul, act, dy, dup, n);
}

}  // namespace

Activation make_activation(std::string_view kind, double alpha, double beta) {
  const UnaryInfo* info = find_unary(kind);
  if (!info) throw Refusal::unknown("unary kind", kind);
  return {info->kind, unary_alpha(*info, alpha), unary_beta(*info, beta)};
}

TileOp unary_tiles(const sdk::op::unary& n, tenon_dtype out) {
  const Activation f = make_activation(n.kind, n.alpha, n.beta);
  const bool test = f.kind == UnaryKind::is_nan || f.kind == UnaryKind::is_inf;
  const tenon_dtype dtype = n.x.type().dtype;
  if (out != (test ? TENON_DTYPE_BOOL : dtype)) throw Refusal::dtype("y", out);
  if (test) return test_tiles(dtype, f.kind);
  if (!is_float(dtype) && find_unary(n.kind)->integer) {
    return with_type(sdk::kIntegerTypes, "x", dtype, [&]<class T>(T) {
      return tile_op<T, T, 1>([kind = f.kind](const auto& x, T* y, int64_t count) {
        integer_tile(kind, x[0], y, count);
      });
    });
  }
  return with_float("x", dtype, [&]<class T>(T) {
    return tile_op<T, T, 1>(
        [f](const auto& x, T* y, int64_t count) { unary_tile(f, x[0], y, count); });
  });
}

Kernel make_unary(const sdk::op::unary& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  return tile_kernel(std::array{n.x}, out, unary_tiles(n, out.dtype));
}

TileOp activation_backward_tiles(const sdk::op::activation_backward& n, tenon_dtype out) {
  Activation f = make_activation(n.kind, n.alpha, n.beta);
  f.ste = n.ste;
  f.from_output = n.from_output;
  if (f.from_output && !find_unary(n.kind)->from_output)
    throw Refusal::attribute("from_output", "true");
  if (f.kind == UnaryKind::is_nan || f.kind == UnaryKind::is_inf)
    throw Refusal::attribute("kind", n.kind);
  const tenon_dtype dtype = n.x.type().dtype;
  if (n.dy.type().dtype != dtype) throw Refusal::dtype("dy", n.dy.type().dtype);
  if (out != dtype) throw Refusal::dtype("dx", out);
  return with_float("x", dtype, [&]<class T>(T) {
    return tile_op<T, T, 2>(
        [f](const auto& x, T* dx, int64_t count) { slope_tile(f, x[0], x[1], dx, count); });
  });
}

Kernel make_activation_backward(const sdk::op::activation_backward& n, const sdk::Node& node) {
  const sdk::Type& out = node.out(0).type();
  return tile_kernel(std::array{n.x, n.dy}, out, activation_backward_tiles(n, out.dtype));
}

Kernel make_swiglu(const sdk::op::swiglu& n, const sdk::Node&) {
  const Activation f = make_gate(n.act);
  const tenon_dtype dtype = n.gate.type().dtype;
  const Gated s = make_gated(n.gate, n.up, n.gate_first);
  const int gate_at = n.gate.position(), up_at = n.up ? n.up.position() : gate_at;
  const int64_t size = element_bytes(dtype);
  Kernel kernel;
  if (n.up) kernel.in_place = {{gate_at, 0}, {up_at, 0}};
  kernel.run = with_float("gate", dtype, [&]<class T>(T) -> std::function<void(const Call&)> {
    return [=](const Call& c) {
      parallel_for(s.count, tile_grain(3 * size), [&](int64_t begin, int64_t end) {
        alignas(64) float wide[2][kTile];
        TileWriter writer(c.outputs[0], dtype);
        for_gated(s, begin, end, [&](int64_t at, int64_t flat, int64_t count) {
          const T* gate = widened<T>(dtype, c.inputs[gate_at], s.gate + at, count, wide[0]);
          const T* up = widened<T>(dtype, c.inputs[up_at], s.up + at, count, wide[1]);
          swiglu_tile(f, gate, up, writer.at<T>(flat), count);
          writer.commit(flat, count);
        });
      });
    };
  });
  return kernel;
}

Kernel make_swiglu_backward(const sdk::op::swiglu_backward& n, const sdk::Node&) {
  const Activation f = make_gate(n.act);
  const tenon_dtype dtype = n.gate.type().dtype;
  const Gated s = make_gated(n.gate, n.up, n.gate_first);
  const bool packed = !n.up;
  if (!packed && !n.want_dup) throw Refusal::shape("swiglu_backward: dup is not wanted");
  const int dy_at = n.dy.position(), gate_at = n.gate.position(),
            up_at = packed ? gate_at : n.up.position();
  const int dgate_at = 0, dup_at = packed ? 0 : 1;
  const int64_t size = element_bytes(dtype);
  Kernel kernel;
  // Each tile of dup is written last, after the last read of all operands but dy.
  kernel.in_place = {{gate_at, 0}};
  if (!packed) kernel.in_place = {{gate_at, 0}, {up_at, 0}, {gate_at, 1}, {up_at, 1}, {dy_at, 1}};
  kernel.run = with_float("gate", dtype, [&]<class T>(T) -> std::function<void(const Call&)> {
    return [=](const Call& c) {
      parallel_for(s.count, tile_grain(5 * size), [&](int64_t begin, int64_t end) {
        alignas(64) float wide[3][kTile];
        TileWriter dgate(c.outputs[dgate_at], dtype), dup(c.outputs[dup_at], dtype);
        for_gated(s, begin, end, [&](int64_t at, int64_t flat, int64_t count) {
          const T* dy = widened<T>(dtype, c.inputs[dy_at], flat, count, wide[0]);
          const T* gate = widened<T>(dtype, c.inputs[gate_at], s.gate + at, count, wide[1]);
          const T* up = widened<T>(dtype, c.inputs[up_at], s.up + at, count, wide[2]);
          swiglu_slopes_tile(f, gate, up, dy, dgate.at<T>(s.gate + at), dup.at<T>(s.up + at),
                             count);
          dgate.commit(s.gate + at, count);
          dup.commit(s.up + at, count);
        });
      });
    };
  });
  return kernel;
}

}  // namespace tenon::cpu
