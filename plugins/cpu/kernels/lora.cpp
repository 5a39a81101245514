// SPDX-License-Identifier: Apache-2.0
// lora_matmul: computes the narrow product scale·(x·a)·b first. The blocks of the wide product add
// it while they are in cache.
#include <algorithm>
#include <string>

#include "axis.hpp"
#include "convert.hpp"
#include "epilogue.hpp"
#include "gemm.hpp"
#include "matmul.hpp"

namespace tenon::cpu {
namespace {

struct Lora {
  tenon_dtype dtype{}, sum{};
  int64_t out = 0;
  double scale = 1;
  Gemm whole, down, up;  // x·w, x·a, (x·a)·b
  // Offsets in scratch. inner: x·a. rest: (x·a)·b, stored in y if y has the accumulation dtype.
  uint64_t inner = 0, rest = 0, rest_b = 0, work = 0;
  int64_t rank = 0;

  void run(const sdk::Call& c) const {
    char* base = static_cast<char*>(c.scratch);
    const auto nothing = [](const GemmBlock&) {};
    const int64_t size = element_bytes(dtype), wide = element_bytes(sum);
    char* added = sum == dtype ? c.out<char>(0) : base + rest;
    down.run(c.inputs[0], c.inputs[2], base + inner, base + work, nothing, false);
    up.run(base + inner, b_operand(c), added, base + work, nothing, false);
    const auto sink = [&](const GemmBlock& block) {
      for (int64_t i = 0; i < block.rows; ++i) {
        char* sums = static_cast<char*>(block.sums) + i * block.ld * wide;
        const int64_t at = (block.i0 + i) * out + block.j0;
        if (scale != 1)
          epilogue_scale(sum, added + at * wide, scale, nullptr, TENON_DTYPE_NONE, block.cols);
        epilogue_add(sum, sums, added + at * wide, sum, block.cols);
        epilogue_store(sum, sums, c.out<char>(0) + at * size, dtype, block.cols);
      }
    };
    whole.run(c.inputs[0], c.inputs[1], nullptr, base + work, sink, false);
  }
  // b in the accumulation dtype, as the inner product needs it.
  const void* b_operand(const sdk::Call& c) const {
    if (sum == dtype) return c.inputs[3];
    float* to = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + rest_b);
    widen(dtype, c.inputs[3], to, rank * out);
    return to;
  }
};

}  // namespace

sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node&) {
  const sdk::Type &x = n.x.type(), &w = n.w.type(), &a = n.a.type();
  if (!is_float(x.dtype)) throw sdk::Refusal::dtype("x", x.dtype);
  const int64_t in = w.dims[0], out = w.dims[1], rank = a.dims[1];
  int64_t rows = 1;
  for (int k = 0; k + 1 < x.rank; ++k) rows *= x.dims[k];
  Lora lora;
  lora.dtype = x.dtype, lora.sum = gemm_sum_dtype(x.dtype);
  lora.out = out, lora.rank = rank, lora.scale = n.scale;
  const auto rows_of = [](tenon_dtype t, int64_t width) { return GemmOperand{t, width, 1}; };
  lora.whole = Gemm(rows, out, in, rows_of(x.dtype, in), rows_of(x.dtype, out), false);
  lora.down = Gemm(rows, rank, in, rows_of(x.dtype, in), rows_of(x.dtype, rank), true);
  lora.up = Gemm(rows, out, rank, rows_of(lora.sum, rank), rows_of(lora.sum, out), true);
  const uint64_t wide = element_bytes(lora.sum);
  uint64_t size = 0;
  const auto take = [&](uint64_t bytes) {
    const uint64_t at = size;
    size += (bytes + 63) / 64 * 64;
    return at;
  };
  lora.inner = take(static_cast<uint64_t>(rows * rank) * wide);
  if (lora.sum != lora.dtype) {
    lora.rest = take(static_cast<uint64_t>(rows * out) * wide);
    lora.rest_b = take(static_cast<uint64_t>(rank * out) * wide);
  }
  lora.work = take(std::max({lora.whole.scratch(), lora.down.scratch(), lora.up.scratch()}));
  sdk::Kernel kernel;
  kernel.scratch = size;
  kernel.cost = (lora.whole.flops() + lora.down.flops() + lora.up.flops()) / 1e11;
  kernel.run = [lora](const sdk::Call& c) { lora.run(c); };
  return kernel;
}

}  // namespace tenon::cpu
