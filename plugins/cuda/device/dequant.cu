//variant: FORMAT=2 ALIGN=16 TYPE=f32
//variant: FORMAT=12 ALIGN=16 TYPE=bf16
//variant: FORMAT=14 ALIGN=16 TYPE=f16
//variant: FORMAT=39 ALIGN=1 TYPE=f64
//variant: FORMAT=128 ALIGN=4 TYPE=f32
// SPDX-License-Identifier: Apache-2.0
// dequantize_blocks and dequant_rows: a thread for each unit of a block.
//entry: dequantize_blocks = dequantize(In, Out, i64)
//entry: dequant_rows = dequantize_rows(BlockRows)
#define OOB 0
#include "blocks.cuh"
#include "dequant.args.cuh"
#include "index.cuh"

typedef TYPE T;

__device__ inline f32 product_and_sum(f32 scale, f32 level, f32 add) {
  const f32 product = __fmul_rn(scale, level);
  return kAdds ? __fadd_rn(product, add) : product;
}
__device__ inline f64 product_and_sum(f64 scale, f64 level, f64 add) {
  const f64 product = __dmul_rn(scale, level);
  return kAdds ? __dadd_rn(product, add) : product;
}

__device__ inline void write(const u8* block, int unit, T* y) {
  const Unit v = decode(block, unit);
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    Vec<T, 4> to;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      typedef acc_t<T> A;
      to.v[i] = narrow<T>(product_and_sum((A)v.scale[r], (A)level(v.levels[r], i), (A)v.add[r]));
    }
    store(y + run_at(unit, r), to);
  }
}

extern "C" __global__ void __launch_bounds__(256) dequantize(const u8* w, T* y, const i64 units) {
  const i64 u = (i64)blockIdx.x * 256 + threadIdx.x;
  if (u >= units) return;
  const i64 block = u / kUnits;
  write(w + block * kBytes, (int)(u % kUnits), y + block * kElements);
}

extern "C" __global__ void __launch_bounds__(256) dequantize_rows(const BlockRows s) {
  const u32 row = blockIdx.x / s.parts;
  const i64 u = (i64)(blockIdx.x % s.parts) * 256 + threadIdx.x;
  const i64 at = resolve(s.rows, row, u == 0);
  if (u >= s.units || at < 0) return;
  const i64 blocks = s.units / kUnits, block = u / kUnits;
  write(s.w + (at * blocks + block) * kBytes, (int)(u % kUnits),
        static_cast<T*>(s.y) + ((i64)row * blocks + block) * kElements);
}
