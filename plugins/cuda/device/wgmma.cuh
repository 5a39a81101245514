// SPDX-License-Identifier: Apache-2.0
// Products by a warpgroup (4 warps, 64 rows) on the tensor cores of sm_90: wgmma, which reads the
// right operand, and maybe the left one, from shared memory while the threads go on.
//
// A tile in shared memory begins at a multiple of 1024 bytes. It lies in parts of 64 columns, each
// with rows of 128 bytes, in which the 16-byte pieces of row r are exchanged by r % 8: no two rows
// that are read together share banks.
#pragma once
#include "barrier.cuh"
#include "tile.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Before registers of an accumulator or a left operand are used by the first of several products.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void wgmma_wait() {  // until at most N groups are under way
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps uses of these registers behind a wait (and changes before a product).
template <int N>
__device__ __forceinline__ void settle(f32 (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void settle(u32 (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void settle(u32 (&a)[N][4]) {
#pragma unroll
  for (int i = 0; i < N * 4; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
// Keeps the next wait behind the making of x: the assembler would else move it up, and nothing
// would be under way meanwhile. x is hardly ever this number, and the sleep is none.
__device__ __forceinline__ void wait_behind(u32 x) {
  asm volatile("{.reg .pred p; setp.eq.u32 p, %0, 0x7FA50F1E; @p nanosleep.u32 0;}" ::"r"(x)
               : "memory");
}
__device__ __forceinline__ void wait_behind(f32 x) { wait_behind(__float_as_uint(x)); }
template <int N>
__device__ __forceinline__ void wait_behind(const f32 (&x)[N]) {
  u32 all = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) all ^= __float_as_uint(x[i]);
  wait_behind(all);
}
// What threads wrote or copied to shared memory becomes visible to wgmma (before the barrier).
__device__ __forceinline__ void shared_to_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Tells the threads of a block that all of them have copied their part of a tile. Other than at
// __syncthreads a thread says so when its part is there, and waits only when it needs the others':
// warpgroups that are half a tile apart do not wait for each other, and one's products run under
// the other's arithmetic.
struct Arrival {
  u32 barrier, phase = 0;
  // By all threads. place: 8 bytes of shared memory.
  __device__ Arrival(u32 place, int threads) : barrier(place) {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(threads)
                   : "memory");
    __syncthreads();
  }
  // The thread's copies are there, but for the last N groups.
  template <int N>
  __device__ __forceinline__ void arrive() {
    copy_wait<N>();
    shared_to_wgmma();
    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(barrier)
                 : "memory");
  }
  // Until all have arrived once more.
  __device__ __forceinline__ void wait() {
    barrier_wait(barrier, phase);
    phase ^= 1;
  }
};
// Of a block's two warpgroups the second follows when the first goes on.
__device__ __forceinline__ void follow(int group) {
  if (group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
}
__device__ __forceinline__ void go_on(int group) {
  if (group == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
}

// Names a tile of ROWS rows: rows from `row` (a multiple of 8), columns from `col` on. A left
// operand, or a right one whose rows are its columns; or (`across`) a right one as it is stored.
template <int ROWS>
__device__ __forceinline__ u64 tile_name(u32 tile, int row, int col) {
  const u32 address = tile + col / 64 * (ROWS * 128) + row * 128 + col % 64 * 2;
  constexpr u64 kNextEightRows = 1024 >> 4, kNextColumns = ROWS * 128 >> 4, kSwizzle = 1;
  return (u64)((address & 0x3FFFF) >> 4) | kNextColumns << 16 | kNextEightRows << 32 |
         kSwizzle << 62;
}

// Names rows of 64 columns from any row on: an operand whose rows these are, or a right one as it is
// stored.
__device__ __forceinline__ u64 rows_name(u32 tile, u32 row) {
  constexpr u64 kNextEightRows = 1024 >> 4, kSwizzle = 1;
  return (u64)((tile + row * 128 & 0x3FFFF) >> 4) | kNextEightRows << 32 | kSwizzle << 62;
}

#define D8(i)                                                                                 \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#define NAMES16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES32                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES48 \
  NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES64                                                                   \
  NAMES32                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES80 \
  NAMES64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES96 \
  NAMES64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES112 \
  NAMES96        \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES120 NAMES112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES128 \
  NAMES96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"
// d (64 x 64 or 64 x 128; a lane's elements as multiply_add has them) = or += a (64 x 16) b. The
// last argument names the dtype. a from shared memory: b's rows are its columns; a from registers:
// b as it is stored.
#define WGMMA(T, TYPE)                                                                     \
  __device__ __forceinline__ void wgmma(f32(&d)[32], u64 a, u64 b, bool add, T) {          \
    asm volatile(                                                                          \
        "{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16."    \
        "f32." TYPE "." TYPE " {" NAMES32 "}, %32, %33, p, 1, 1, 0, 0;}"                   \
        : D32(0)                                                                           \
        : "l"(a), "l"(b), "r"((int)add));                                                  \
  }                                                                                        \
  __device__ __forceinline__ void wgmma(f32(&d)[64], u64 a, u64 b, bool add, T) {          \
    asm volatile(                                                                          \
        "{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16."   \
        "f32." TYPE "." TYPE " {" NAMES64 "}, %64, %65, p, 1, 1, 0, 0;}"                   \
        : D32(0), D32(32)                                                                  \
        : "l"(a), "l"(b), "r"((int)add));                                                  \
  }                                                                                        \
  __device__ __forceinline__ void wgmma(f32(&d)[32], const u32(&a)[4], u64 b, T) {         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" NAMES32  \
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                               \
                 : D32(0)                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
  }                                                                                        \
  __device__ __forceinline__ void wgmma(f32(&d)[64], const u32(&a)[4], u64 b, T) {         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" NAMES64 \
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                               \
                 : D32(0), D32(32)                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                    \
  }
WGMMA(f16, "f16")
WGMMA(bf16, "bf16")
#undef WGMMA
// The same with other numbers of columns, both operands from shared memory.
#define WGMMA_OF(T, TYPE, COUNT, NAMES, A, B, ADD, COLUMNS, ...)                            \
  __device__ __forceinline__ void wgmma(f32(&d)[COUNT], u64 a, u64 b, bool add, T) {        \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" ADD                                      \
                 ", 0; wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE  \
                 " {" NAMES "}, %" A ", %" B ", p, 1, 1, 0, 0;}"                            \
                 : __VA_ARGS__                                                              \
                 : "l"(a), "l"(b), "r"((int)add));                                          \
  }
#define WGMMA(...)            \
  WGMMA_OF(f16, "f16", __VA_ARGS__) \
  WGMMA_OF(bf16, "bf16", __VA_ARGS__)
WGMMA(48, NAMES48, "48", "49", "50", "96", D32(0), D8(32), D8(40))
WGMMA(80, NAMES80, "80", "81", "82", "160", D32(0), D32(32), D8(64), D8(72))
WGMMA(96, NAMES96, "96", "97", "98", "192", D32(0), D32(32), D32(64))
WGMMA(112, NAMES112, "112", "113", "114", "224", D32(0), D32(32), D32(64), D8(96), D8(104))
WGMMA(120, NAMES120, "120", "121", "122", "240", D32(0), D32(32), D32(64), D8(96), D8(104), D8(112))
WGMMA(128, NAMES128, "128", "129", "130", "256", D32(0), D32(32), D32(64), D32(96))
#undef WGMMA
#undef WGMMA_OF
// The same of f32, cut to tf32, 8 terms at a time: d (64 x 64 to 64 x 256), both operands from
// shared memory, b's rows being its columns. Names count 16 bits as a column.
#define WGMMA_TF32(COUNT, NAMES, A, B, ADD, COLUMNS, ...)                                          \
  __device__ __forceinline__ void wgmma_tf32(f32(&d)[COUNT], u64 a, u64 b, bool add) {             \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" ADD ", 0; wgmma.mma_async.sync.aligned.m64n"    \
                 COLUMNS "k8.f32.tf32.tf32 {" NAMES "}, %" A ", %" B ", p, 1, 1;}"                 \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"((int)add));                                                 \
  }
WGMMA_TF32(32, NAMES32, "32", "33", "34", "64", D32(0))
WGMMA_TF32(48, NAMES48, "48", "49", "50", "96", D32(0), D8(32), D8(40))
WGMMA_TF32(64, NAMES64, "64", "65", "66", "128", D32(0), D32(32))
WGMMA_TF32(96, NAMES96, "96", "97", "98", "192", D32(0), D32(32), D32(64))
WGMMA_TF32(128, NAMES128, "128", "129", "130", "256", D32(0), D32(32), D32(64), D32(96))
#undef WGMMA_TF32
// d (64 x 32, 64 x 64) = or += a (64 x 8, in registers: rows g and g + 8, g being lane / 4, column
// lane % 4, then both rows of column lane % 4 + 4) b.
#define WGMMA_TF32(COUNT, NAMES, A, B, ADD, COLUMNS, ...)                                          \
  __device__ __forceinline__ void wgmma_tf32(f32(&d)[COUNT], const u32(&a)[4], u64 b, bool add) {  \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" ADD ", 0; wgmma.mma_async.sync.aligned.m64n"    \
                 COLUMNS "k8.f32.tf32.tf32 {" NAMES "}, {" A "}, %" B ", p, 1, 1;}"                \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));             \
  }
WGMMA_TF32(16, NAMES16, "%16, %17, %18, %19", "20", "21", "32", D8(0), D8(8))
WGMMA_TF32(32, NAMES32, "%32, %33, %34, %35", "36", "37", "64", D32(0))
#undef WGMMA_TF32
#define R8(i)                                                                                 \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), \
      "+r"(d[i + 6]), "+r"(d[i + 7])
#define R32(i) R8(i), R8(i + 8), R8(i + 16), R8(i + 24)
// The same of bytes, 32 terms at a time: d (64 x 64, 64 x 128), both operands from shared memory, b's
// rows being its columns. Sums wrap.
#define WGMMA_BYTES(L, R, TYPES)                                                             \
  __device__ __forceinline__ void wgmma(u32(&d)[32], u64 a, u64 b, bool add,                 \
                                        BytePairs<L, R>) {                                   \
    asm volatile(                                                                            \
        "{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k32.s32."  \
        TYPES " {" NAMES32 "}, %32, %33, p;}"                                                \
        : R32(0)                                                                             \
        : "l"(a), "l"(b), "r"((int)add));                                                    \
  }                                                                                          \
  __device__ __forceinline__ void wgmma(u32(&d)[64], u64 a, u64 b, bool add,                 \
                                        BytePairs<L, R>) {                                   \
    asm volatile(                                                                            \
        "{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k32.s32." \
        TYPES " {" NAMES64 "}, %64, %65, p;}"                                                \
        : R32(0), R32(32)                                                                    \
        : "l"(a), "l"(b), "r"((int)add));                                                    \
  }
WGMMA_BYTES(i8, i8, "s8.s8")
WGMMA_BYTES(i8, u8, "s8.u8")
WGMMA_BYTES(u8, i8, "u8.s8")
WGMMA_BYTES(u8, u8, "u8.u8")
#undef WGMMA_BYTES
#undef R32
#undef R8
#undef NAMES16
#undef NAMES128
#undef NAMES120
#undef NAMES112
#undef NAMES96
#undef NAMES80
#undef NAMES48
#undef NAMES64
#undef NAMES32
#undef D32
#undef D8

// d = the 64 rows of `left` from `row` on times the rows of `right` (as many as d has columns),
// each DEPTH long.
template <int DEPTH, int LEFT_ROWS, class T, int N>
__device__ __forceinline__ void wgmma_rows(f32 (&d)[N], u32 left, int row, u32 right) {
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16)
    wgmma(d, tile_name<LEFT_ROWS>(left, row, k), tile_name<N * 2>(right, 0, k), k > 0, T{});
}
// d += a (64 x DEPTH) times the DEPTH rows of `right`.
template <int DEPTH, class T, int N>
__device__ __forceinline__ void wgmma_sums(f32 (&d)[N], const u32 (&a)[DEPTH / 16][4], u32 right) {
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) wgmma(d, a[k / 16], tile_name<DEPTH>(right, k, 0), T{});
}

// How THREADS threads copy a tile of ROWS rows of COLS columns: a thread takes the same 8 columns
// of every kRowsAtOnce-th row, behind its back.
template <int ROWS, int COLS, int THREADS>
struct TileCopy {
  static constexpr int kPieces = COLS / 8, kRowsAtOnce = THREADS / kPieces;
  static_assert(ROWS % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0,
                "the exchange is the same for all");
  static __device__ int row() { return threadIdx.x / kPieces; }
  static __device__ int col() { return threadIdx.x % kPieces * 8; }
  // from: where the thread's first row has its columns; step: elements to its next row; count: how
  // many of the rows from its first are there, the others become zeros. Moves both to the next
  // tile.
  template <class T>
  static __device__ __forceinline__ void copy(u32 tile, const T*& from, i64 step, i32& count) {
    const u32 to = place(tile);
#pragma unroll
    for (int i = 0; i < ROWS; i += kRowsAtOnce, from += step)
      copy_async(to + i * 128, from, i < count);
    count -= ROWS;
  }
  // Makes zeros of the thread's pieces of the rows for which `is` holds. All its pieces are there.
  template <class Is>
  static __device__ __forceinline__ void clear(u32 tile, Is is) {
    const u32 to = place(tile);
#pragma unroll 1
    for (int i = 0; i < ROWS; i += kRowsAtOnce)
      if (is(row() + i))
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to + i * 128), "r"(0)
                     : "memory");
  }
  static __device__ u32 place(u32 tile) {  // of the thread's first piece
    return tile + col() / 64 * (ROWS * 128) + row() * 128 + (col() / 8 ^ row()) % 8 * 16;
  }
};
#endif
