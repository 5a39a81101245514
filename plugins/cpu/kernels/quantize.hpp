// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize: rows of the family quantized, and their loops.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "elementwise.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cpu {

sdk::Kernel make_quantize(const sdk::op::quantize& n, const sdk::Node& node);
sdk::Kernel make_dequantize(const sdk::op::dequantize& n, const sdk::Node& node);

// The number at a constant of one element, as T: float, double or int32_t.
template <class T>
T number_of(const sdk::Value& v, std::string_view operand) {
  const sdk::Type& t = v.type();
  if (t.elements() != 1 || v.content() == nullptr)
    throw sdk::Refusal(TENON_REASON_OTHER,
                       "operand " + std::string(operand) + " is not a constant number");
  if (!castable(t.dtype)) throw sdk::Refusal::dtype(operand, t.dtype);
  const tenon_dtype to = std::is_same_v<T, float>    ? TENON_DTYPE_F32
                         : std::is_same_v<T, double> ? TENON_DTYPE_F64
                                                     : TENON_DTYPE_I32;
  T number;
  if (t.dtype == to)
    std::memcpy(&number, v.content(), sizeof number);
  else
    cast_tile(t.dtype, to, false, v.content(), &number, 1);
  return number;
}

// Steps of fused bodies: one scale and zero point, both constants. out: the dtype of the result.
TileOp quantize_tiles(const sdk::op::quantize& n, tenon_dtype out);
TileOp dequantize_tiles(const sdk::op::dequantize& n, tenon_dtype out);

// A step that does what several do: quantize(a op b) to 8 bits, where op is add, sub or mul. a and b
// are tiles of floats, or of 8-bit integers that are dequantized first.
struct QuantizedBinary {
  struct Operand {
    bool bytes = false;
    uint8_t flip = 0;  // of bytes, as unsigned ones
    int32_t zero = 0;  // of unsigned ones
    float scale = 1;
  };
  BinaryKind kind{};
  Operand a{}, b{};
  int low = 0, high = 0;
  float scale = 1, zero = 0;
};
// None if it is another op, or not between 8 bits and f32.
std::optional<QuantizedBinary::Operand> dequantized_operand(const sdk::op::dequantize& n,
                                                            tenon_dtype out);
std::optional<QuantizedBinary> quantized_binary(const sdk::op::binary& n,
                                                const sdk::op::quantize& q, tenon_dtype out);
TileOp quantized_binary_tiles(const QuantizedBinary& step);

// Which entry of the scales an element has. The tensor is [outer, length, inner], the scales are
// [length] or, with blocks, [outer, blocks, inner]. length 0: one scale.
struct ScaleGrid {
  int64_t length = 0, inner = 1, block = 0, blocks = 0;
  int64_t repeat = 1;  // each entry is that of so many elements side by side, which `length` counts
};

// The runs of elements that share an entry, or have entries side by side (`many`), in flat order.
class ScaleRuns {
 public:
  ScaleRuns(const ScaleGrid& grid, int64_t flat) : grid_(grid) {
    if (grid.length == 0) return;
    at_ = flat % grid.inner, flat /= grid.inner;
    index_ = flat % grid.length, outer_ = flat / grid.length;
    if (grid.block > 0) block_ = index_ / grid.block, left_ = grid.block - index_ % grid.block;
  }
  struct Run {
    int64_t count, entry;
    bool many;
  };
  // The next run, of at most `most` elements.
  Run next(int64_t most) {
    if (grid_.length == 0) return {most, 0, false};
    Run run{};
    if (grid_.inner > 1) {
      const int64_t line = grid_.block > 0 ? outer_ * grid_.blocks + block_ : index_;
      run = {std::min(grid_.inner - at_, most), line, grid_.block > 0};
      if (run.many) run.entry = line * grid_.inner + at_;
      at_ += run.count;
      if (at_ == grid_.inner) at_ = 0, advance(1);
    } else if (grid_.block > 0) {
      run = {std::min({left_, grid_.length - index_, most}), outer_ * grid_.blocks + block_, false};
      advance(run.count);
    } else {
      run = {std::min(grid_.length - index_, most), index_, true};
      advance(run.count);
    }
    return run;
  }

 private:
  void advance(int64_t count) {
    index_ += count, left_ -= count;
    if (index_ == grid_.length)
      index_ = block_ = 0, left_ = grid_.block, ++outer_;
    else if (left_ == 0)
      ++block_, left_ = grid_.block;
  }

  const ScaleGrid grid_;
  int64_t outer_ = 0, index_ = 0, at_ = 0, block_ = 0, left_ = 0;
};

// Tables of the entries: the scale in the dtype of the quotient (f32, or f64 if `wide`), and the zero
// point, likewise for quantize, as int32_t for dequantize.
struct QuantizeLoop {
  tenon_dtype real, integer;  // of the tensors
  int low = 0, high = 0;      // the range of the integers
  ScaleGrid grid{};
  const void *scale = nullptr, *zero = nullptr;
  bool nontemporal;
};
// Sets the range of integers. False for i32, which is only read, and for what is no integer.
bool find_range(tenon_dtype dtype, QuantizeLoop* loop);
// Elements [begin, end); of 4-bit integers, begin is even.
void quantize_range(const QuantizeLoop& loop, const void* x, void* q, int64_t begin, int64_t end);
void dequantize_range(const QuantizeLoop& loop, const void* q, void* y, int64_t begin, int64_t end);

}  // namespace tenon::cpu
