// SPDX-License-Identifier: Apache-2.0
// Rows of blocks of q8_0 as operands of tensor cores: the 8-bit levels, which halves hold exactly, apart from
// the scales, which multiply sums of 32 products in f32. So no element is rounded.
// Defines: as attention.cuh; ALIGN (of keys and values, in bytes: 2, 4 or 8).
//variant: TT=bf16 TS=f32 MASK=0 ALIGN=8
//variant: TT=f16 TS=f32 MASK=0 ALIGN=2
#pragma once
#include "attention_warps.cuh"

constexpr int kElements = 32, kBytes = 34;  // of a block: a scale in f16, then the levels

#if __CUDA_ARCH__ >= 800
// Rows of BLOCKS blocks in shared memory.
template <int BLOCKS>
struct LevelRows {
  static constexpr int kRowBytes = BLOCKS * kBytes, kLowBit = kRowBytes & -kRowBytes;
  // All rows begin on multiples of this many bytes. Those on 2 may begin in the middle of a word; they lie so in
  // shared memory as well, and `shift` (0 or 2), behind the row, says so.
  static constexpr int kAlign = kLowBit < ALIGN ? kLowBit : ALIGN < 8 ? ALIGN : 8;
  static constexpr bool kShifts = kAlign == 2;
  static constexpr int kPiece = kShifts ? 4 : kAlign;  // bytes of a copy
  static constexpr int kPieces = (kRowBytes + (kShifts ? 2 : 0) + kPiece - 1) / kPiece;
  // An odd multiple of 16 bytes: eight rows that are read together lie in different banks.
  static constexpr int kStride = ((kPieces * kPiece + (kShifts ? 4 : 0) + 15) / 16 | 1) * 16;

  // A warp copies kKeys rows. Of a row that does not exist it leaves what was there: its levels are finite in any
  // case, and scores and weights of keys behind the last do not take its scales. A key whose block is not in the pool
  // takes any scale; the run fails then.
  template <class PlaceOf>
  static __device__ __forceinline__ void load(u8* to, PlaceOf place_of) {
    const int lane = threadIdx.x % 32;
    constexpr int kLanes = 16, kRest = kPieces % kLanes, kBehind = kPieces - kRest;
    const auto copy = [&](int row, int piece, bool is_piece) {
      const Row<u8> from = place_of(row);
      u8* const target = to + row * kStride + piece * kPiece;
      if (!kShifts) return copy_piece(target, from.from + piece * kPiece, from.real && is_piece, kPiece);
      const int shift = (int)((u64)from.from & 2);
      // The last word may have only 2 bytes of the row.
      copy_piece(target, from.from + piece * kPiece - shift, from.real && is_piece,
                 min(shift + kRowBytes - piece * kPiece, kPiece));
      if (piece == 0) *(i32*)(to + row * kStride + kStride - 4) = shift;
    };
#pragma unroll
    for (int piece = 0; piece < kBehind; piece += kLanes)
#pragma unroll
      for (int row = 0; row < kKeys; row += 2) copy(row + lane / kLanes, piece + lane % kLanes, true);
    if constexpr (kRest > 0 && kRest <= 2) {
      copy(lane % kKeys, kBehind + lane / kKeys, lane / kKeys < kRest);
    } else if constexpr (kRest > 0) {
#pragma unroll
      for (int row = 0; row < kKeys; row += 2)
        copy(row + lane / kLanes, kBehind + lane % kLanes, lane % kLanes < kRest);
    }
  }
  // `bytes` of the piece, and zeros behind them.
  static __device__ __forceinline__ void copy_piece(void* to, const void* from, bool real, int bytes) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %4, 0; @p cp.async.ca.shared.global [%0], [%1], %2, %3;}" ::"r"(
            shared_address(to)),
        "l"(from), "n"(kPiece), "r"(bytes), "r"((int)real)
        : "memory");
  }

  // The row of a key in a tile at `from`.
  static __device__ __forceinline__ const u8* row(const u8* from, int key) {
    const u8* const at = from + key * kStride;
    return kShifts ? at + (*(const i32*)(at + kStride - 4) & 2) : at;
  }
  static __device__ __forceinline__ f32 scale(const u8* row, int block) {
    return f16_to_f32(*(const u16*)(row + block * kBytes));
  }
  // Levels 4 · quad to 4 · quad + 3 of a block.
  static __device__ __forceinline__ u32 four(const u8* row, int block, int quad) {
    const u8* const at = row + block * kBytes + 2 + quad * 4;
    if (!kShifts && block % 2 == 1) return *(const u32*)at;
    return *(const u16*)at | (u32)*(const u16*)(at + 2) << 16;
  }
};

// Two of four levels as two numbers of E, the first in the low bits. PAIR: bytes 2 PAIR and 2 PAIR + 1. The byte of a
// level is the low part of a number with units of 1, from which a sum takes the rest.
template <int PAIR>
__device__ __forceinline__ u32 two_levels(u32 four, f16) {
  // 1024 + 128 + level
  const u32 biased = __byte_perm(four, 0x64646464u, PAIR ? 0x4342 : 0x4140) ^ 0x00800080u;
  u32 y;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(biased), "r"(0x64806480u));
  return y;
}
template <int PAIR>
__device__ __forceinline__ u32 two_levels(u32 four, bf16) {
  // 128 + the low 7 bits; less 128, or 256 if the level is negative
  const u32 all = __byte_perm(four, 0x43434343u, PAIR ? 0x4342 : 0x4140);
  const u32 low = all & 0xFF7FFF7Fu, less = (all & 0xFF80FF80u) | 0x80008000u;
  constexpr u32 kOnes = 0x3F803F80u;
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(low), "r"(kOnes), "r"(less));
  return y;
}
#endif
