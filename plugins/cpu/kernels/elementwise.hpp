// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the elementwise family: tile functions of `unary`, and the loop that walks
// broadcast operands and passes tiles to a kernel.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "axis.hpp"
#include "loops.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

// A unary kind and its parameters.
struct Activation {
  UnaryKind kind{};
  double alpha = 0;
  double beta = 0;
  bool ste = false;
  bool from_output = false;  // the slope is a function of y, not of x
};
// Refuses an unknown kind. Absent parameters get the defaults of the kind.
Activation make_activation(std::string_view kind, double alpha = TENON_UNSET,
                           double beta = TENON_UNSET);

// y = f(x), and dx = dy f'(x), where x is the forward's input or output. May run in place.
double unary_value(const Activation& f, double x);
double unary_slope(const Activation& f, double x);
void unary_tile(const Activation& f, const float* x, float* y, int64_t n);
void unary_tile(const Activation& f, const double* x, double* y, int64_t n);
void slope_tile(const Activation& f, const float* x, const float* dy, float* dx, int64_t n);
void slope_tile(const Activation& f, const double* x, const double* dy, double* dx, int64_t n);
// Only the vector forms. Returns false if the kind has none.
bool unary_vector(const Activation& f, const float* x, float* y, int64_t n);
bool slope_vector(const Activation& f, const float* x, const float* dy, float* dx, int64_t n);
// The same for the kinds that vectors of f64 compute.
bool unary_wide(const Activation& f, const float* x, float* y, int64_t n);
bool slope_wide(const Activation& f, const float* x, const float* dy, float* dx, int64_t n);
// act(gate) up in one pass, and its gradients.
bool swiglu_vector(const Activation& f, const float* gate, const float* up, float* y, int64_t n);
bool swiglu_slopes_vector(const Activation& f, const float* gate, const float* up, const float* dy,
                          float* dgate, float* dup, int64_t n);

enum class BinaryKind : uint8_t {
  add,
  sub,
  mul,
  div,
  max,
  min,
  pow,
  mod,
  fmod,
  atan2,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right
};
BinaryKind find_binary(std::string_view name);  // refuses an unknown kind
void binary_tile(BinaryKind kind, const float* a, const float* b, float* y, int64_t n);
void binary_tile(BinaryKind kind, const double* a, const double* b, double* y, int64_t n);
void pow_wide(const float* a, const float* b, float* y, int64_t n);
bool binary_vector(BinaryKind kind, const float* a, const float* b, float* y, int64_t n);

// y[i] = choose[i] ? yes[i] : no[i] for elements of `size` bytes, copied as bits; y may be yes or no.
void select_elements(int64_t size, const uint8_t* choose, const void* yes, const void* no, void* y,
                     int64_t n);

// An elementwise op on tiles. Operands and result have their own dtype, halves are float. May run
// in place.
using TileOp = std::function<void(const void* const* x, void* y, int64_t n)>;
// Makes the tile function of a node, or throws the Refusal of its kernel. `out` is the dtype of the
// result.
TileOp binary_tiles(const sdk::op::binary& n, tenon_dtype out);
TileOp compare_tiles(const sdk::op::compare& n, tenon_dtype out);
TileOp logical_tiles(const sdk::op::logical& n, tenon_dtype out);
TileOp unary_tiles(const sdk::op::unary& n, tenon_dtype out);
TileOp activation_backward_tiles(const sdk::op::activation_backward& n, tenon_dtype out);
TileOp where_tiles(const sdk::op::where& n, tenon_dtype out);
// The same between any two dtypes, in storage format.
void cast_tile(tenon_dtype from, tenon_dtype to, bool saturate, const void* x, void* y, int64_t n);
bool castable(tenon_dtype t);

sdk::Kernel make_binary(const sdk::op::binary& n, const sdk::Node& node);
sdk::Kernel make_compare(const sdk::op::compare& n, const sdk::Node& node);
sdk::Kernel make_logical(const sdk::op::logical& n, const sdk::Node& node);
sdk::Kernel make_unary(const sdk::op::unary& n, const sdk::Node& node);
sdk::Kernel make_activation_backward(const sdk::op::activation_backward& n, const sdk::Node& node);
sdk::Kernel make_cast(const sdk::op::cast& n, const sdk::Node& node);
sdk::Kernel make_copy(const sdk::op::copy& n, const sdk::Node& node);
sdk::Kernel make_where(const sdk::op::where& n, const sdk::Node& node);
sdk::Kernel make_swiglu(const sdk::op::swiglu& n, const sdk::Node& node);
sdk::Kernel make_swiglu_backward(const sdk::op::swiglu_backward& n, const sdk::Node& node);

// Calls f(T{}) with the accumulation type of a float dtype; refuses other dtypes of operand `name`.
template <class F>
auto with_float(std::string_view name, tenon_dtype t, F&& f) {
  if (t == TENON_DTYPE_F64) return f(double{});
  if (t == TENON_DTYPE_F32 || is_half(t)) return f(float{});
  throw sdk::Refusal::dtype(name, t);
}
// A typed tile function: f(x, y, n), where x is an array of N tiles of T.
template <class T, class R, size_t N, class F>
TileOp tile_op(F f) {
  return [f](const void* const* x, void* y, int64_t n) {
    std::array<const T*, N> tiles;
    for (size_t k = 0; k < N; ++k) tiles[k] = static_cast<const T*>(x[k]);
    f(tiles, static_cast<R*>(y), n);
  };
}

// A kernel that applies op to N operands, element by element.
template <size_t N>
sdk::Kernel tile_kernel(const std::array<sdk::Value, N>& in, const sdk::Type& out, TileOp op) {
  std::array<tenon_dtype, N> dtypes;
  std::array<int, N> positions;
  sdk::Kernel kernel;
  int64_t bytes = element_bytes(out.dtype);
  for (size_t k = 0; k < N; ++k) {
    dtypes[k] = in[k].type().dtype;
    positions[k] = in[k].position();
    bytes += element_bytes(dtypes[k]);
    if (replaceable(in[k].type(), out)) kernel.in_place.push_back({positions[k], 0});
  }
  const Loop loop = [&]<size_t... K>(std::index_sequence<K...>) {
    return make_loop(out.shape(), {&in[K].type()...});
  }
  (std::make_index_sequence<N>());
  kernel.run = [=, op = std::move(op), dtype = out.dtype](const sdk::Call& c) {
    bool nontemporal = beyond_cache(loop.count * bytes);
    for (const int from : positions) nontemporal &= c.inputs[from] != c.outputs[0];
    parallel_for(loop.count, tile_grain(bytes), [&](int64_t begin, int64_t end) {
      [&]<size_t... K>(std::index_sequence<K...>) {
        TileReader readers[] = {
            TileReader(loop, static_cast<int>(K), c.inputs[positions[K]], dtypes[K])...};
        TileWriter writer(c.outputs[0], dtype, nontemporal);
        for_tiles(loop, begin, end, [&](int64_t flat, int64_t n) {
          const void* x[] = {readers[K].work(flat, n)...};
          op(x, writer.work(flat), n);
          writer.commit(flat, n);
        });
      }
      (std::make_index_sequence<N>());
    });
  };
  return kernel;
}

}  // namespace tenon::cpu
