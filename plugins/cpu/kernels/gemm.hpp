// SPDX-License-Identifier: Apache-2.0
// The matrix product of matmul and linear: c = a·b. Operands are packed into panels and multiplied
// in register tiles, on AMX (gemm_amx.hpp) or by bf16 dot products (gemm_dot.hpp). Accumulates in
// float for f32, f16 and bf16, double for f64, int32 (exact, modulo 2^32) for 8-bit integers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "../parallel.hpp"
#include "gemm_amx.hpp"
#include "tenon/types.h"

namespace tenon::cpu {

// The accumulation dtype of an operand's dtype.
inline tenon_dtype gemm_sum_dtype(tenon_dtype t) {
  if (t == TENON_DTYPE_I8 || t == TENON_DTYPE_U8) return TENON_DTYPE_I32;
  return t == TENON_DTYPE_F64 ? TENON_DTYPE_F64 : TENON_DTYPE_F32;
}

// An operand: element (i, j) is data[i * row + j * col].
struct GemmOperand {
  tenon_dtype dtype = TENON_DTYPE_NONE;
  int64_t row = 0, col = 0;
};

// Receives a block of finished sums: element (i, j) is sums[(i - i0) * ld + j - j0].
struct GemmBlock {
  void* sums;
  int64_t ld;
  int64_t i0, j0, rows, cols;
};
using GemmSink = FunctionRef<void(const GemmBlock&)>;

// Precision of f32 operands. ieee: as exact as f32 multiply-adds. tf32: operands may be rounded to
// 16 bits of significand. Other dtypes ignore it.
enum class F32Precision : uint8_t { ieee, tf32 };

// A product and its blocking, planned for fixed shapes. c is dense, m x n. With `direct`, the sums
// accumulate in c, which has the accumulation dtype. Otherwise they accumulate in scratch and are
// passed to the sink.
class Gemm {
 public:
  Gemm() = default;
  // slots: limit of pieces that run at once. A Gemm constructed at run time takes the number of
  // slots for which its scratch was sized. columns: columns of all products that share this a; 0
  // means n. row_bits: a row of a gives the same bits, whatever m is, without AMX and bf16 dot
  // products and if a is not transposed. Then the order of sums depends on k and on the layout of b
  // alone.
  Gemm(int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b, bool direct,
       int slots = widest_arena(), F32Precision precision = F32Precision::ieee, int64_t columns = 0,
       bool row_bits = false);

  // Tells whether packing b in advance pays: many runs with the same b, few rows each. After
  // take_packed_b, `run` takes as b the packed_bytes() that pack_b wrote. Products with equal
  // layouts use equal bytes.
  bool wants_packed_b() const;
  void take_packed_b();
  std::string packed_layout() const;
  uint64_t packed_bytes() const;
  void pack_b(const void* b, void* packed) const;

  uint64_t scratch() const { return shared_ + slots_ * (pack_ + sums_); }
  uint64_t serial_scratch() const { return shared_ + pack_ + sums_; }
  // Runs the product, in parallel unless `serial`. Several threads may call sink at once.
  void run(const void* a, const void* b, void* c, void* scratch, GemmSink sink, bool serial) const;

  double flops() const {
    return 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
  }

 private:
  friend class GemmBatch;
  static constexpr int64_t kBlockPanels = 16;  // AMX panels per block
  enum class Method : uint8_t { empty, skinny, share_a, share_b, share_both };
  struct Work {
    const void* a;
    const void* b;
    void* c;
    char* scratch;
    GemmSink sink;
    bool serial;
    std::atomic<uint32_t>& shared_bits;  // of the operand that is packed once
  };
  struct Panels;
  void run_empty(const Work& work) const;
  void run_skinny(const Work& work) const;
  void pack_few(const Work& work) const;
  void run_share_a(const Work& work) const;
  void run_share_b(const Work& work) const;
  void run_share_both(const Work& work) const;
  int64_t panel_offset(AmxSide side, int64_t s, int64_t first) const;
  void pack_whole(const Work& work, AmxSide side, char* to) const;
  void pack_parts(const Work& work, AmxSide side, int64_t from, int64_t until, char* to) const;
  int64_t steps_grain(int64_t width) const;
  void pack_steps(const Work& work, AmxSide side, int64_t origin, int64_t begin, int64_t end,
                  char* to) const;
  void share_both_rows(const Work& work, int64_t i, int64_t rows, int64_t first, int64_t last,
                       const char* a, const char* b) const;
  const char* packed_b_at(const Work& work, int64_t s, int64_t j) const;
  int64_t units() const;
  int64_t grain(int64_t columns) const;
  void skinny_piece(const Work& work, int64_t begin, int64_t end, char* own) const;
  void share_a_piece(const Work& work, int64_t begin, int64_t end, char* own) const;
  void share_a_cols(const Work& work, int64_t j, int64_t cols, char* packed) const;
  void pack_rows(const Work& work, int64_t i, int64_t rows, char* packed, uint32_t* bits) const;
  void share_b_rows(const Work& work, int64_t i, int64_t rows, char* packed,
                    const uint32_t* bits) const;
  Panels rows_of(const Work& work, int64_t i, int64_t rows, int64_t s, int64_t steps) const;
  Panels cols_of(const Work& work, int64_t j, int64_t cols, int64_t s, int64_t steps) const;
  void pack(const Panels& panels, char* to, uint32_t* bits) const;
  void multiply(int64_t m, int64_t n, int64_t s, const char* a, const char* b, char* c,
                int64_t ld) const;
  void recompute(const Work& work, const GemmBlock& block, char* buffer) const;
  void finish(const Work& work, const GemmBlock& block, const uint32_t* bits, char* buffer) const;
  bool on_unit() const { return unit_ != AmxNumber::none; }
  void plan_skinny();
  void plan_panels();
  void plan_share_both(int64_t k_parts, int64_t bytes);
  uint64_t whole_sums() const;
  void plan_unit(F32Precision precision);
  void loop(const Work& work, int64_t n, int64_t grain,
            FunctionRef<void(int, int64_t, int64_t)> body) const;

  int64_t m_ = 0, n_ = 0, k_ = 0;
  int64_t columns_ = 0;
  GemmOperand a_, b_;
  bool direct_ = false;
  bool b_packed_ = false;  // run gets a packed b
  bool row_bits_ = false;
  int64_t lanes_ = 1;     // of the order of sums, see LaneOrder
  bool swapped_ = false;  // skinny: b has few columns and takes a's role
  Method method_ = Method::empty;
  tenon_dtype sum_ = TENON_DTYPE_NONE;
  int64_t sum_size_ = 0;
  int slots_ = 1;
  AmxNumber unit_ = AmxNumber::none;           // none: register tiles
  int64_t row_panel_ = 0, col_panel_ = 0;      // elements per panel of a, of b
  int64_t packed_size_ = 0;                    // bytes of a packed element
  int64_t step_unit_ = 1;                      // steps are padded to a multiple of it
  int64_t steps_ = 0;                          // of k per pass
  int64_t group_ = 0;                          // share_both: steps per group
  int64_t block_rows_ = 0, block_cols_ = 0;    // per block
  uint64_t shared_ = 0, pack_ = 0, sums_ = 0;  // bytes: shared; per slot, packed data and sums
  uint64_t recompute_buffer_ = 0;              // part of sums_: buffer of recompute
};

}  // namespace tenon::cpu
