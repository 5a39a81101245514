// SPDX-License-Identifier: Apache-2.0
// Products of matrices with what follows them, y = act(alpha·a·b + bias) + residual, as kernels see
// them: by our own kernels, or by cuBLASLt (blas_product).
#pragma once

#include <string>
#include <vector>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

inline constexpr int kBatchRank = 6;

struct ProductProblem {
  tenon_dtype a{}, b{}, sum{}, y{};
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 1, ldb = 1;  // elements from one stored row to the next
  bool trans_a = false, trans_b = false, tf32 = false;
  double alpha = 1;
  uint64_t a_alignment = 0, b_alignment = 0;           // bytes
  bool frozen = false;                                 // nothing writes b
  bool alike = false;                                  // is_batch_invariant()
  std::vector<int64_t> batch{}, a_steps{}, b_steps{};  // outermost first
  // What follows; NONE and empty where absent.
  tenon_dtype bias = TENON_DTYPE_NONE, residual = TENON_DTYPE_NONE;
  uint64_t bias_alignment = 0, residual_alignment = 0;  // bytes
  bool pre_act = false;
  std::string act{};       // text of the value `x`
  std::string act_kind{};  // its name

  int64_t batches() const {
    int64_t count = 1;
    for (const int64_t d : batch) count *= d;
    return count;
  }
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batches());
  }
  double seconds() const;  // estimated
};

// Must each row of the result have the same bits alone and among any number of others? If so (p.alike), all
// kernels of products of halves add the terms of a sum in the order of mma_tile (device/tile.cuh).
bool is_chain(const ProductProblem& p);

struct ProductPointers {
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  void *y = nullptr, *pre_act = nullptr;
};

// Bytes of shared memory of mma_tile (tile.cuh).
uint32_t mma_shared(int64_t tile, bool a_by_k, bool b_by_k);

class TileProduct {
 public:
  TileProduct() = default;
  TileProduct(CudaDevice& device, const ProductProblem& problem);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const ProductPointers& p) const;

 private:
  ProductProblem problem_;
  TypedCode<args::Product> code_;
  int64_t tile_ = 64;
  uint32_t shared_ = 0;
};

// Few columns, in f32 also few rows and not many columns (device/dots.cu): libraries are slow there. With
// few columns in f32, and in halves where is_chain(), a row has the same bits alone and among others.
class DotsProduct {
 public:
  static bool takes(const ProductProblem& p);
  DotsProduct(CudaDevice& device, const ProductProblem& problem);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const ProductPointers& p) const;

 private:
  ProductProblem problem_;
  CodeFor<entries::dots> code_;
  Grid grid_;
};

// One row of halves and a large transposed b: from sm_90 on, by the copy engine (device/matmul_row.cu).
class RowProduct {
 public:
  static bool takes(const CudaDevice& device, const ProductProblem& p);
  RowProduct(CudaDevice& device, const ProductProblem& problem);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const ProductPointers& p) const;

 private:
  ProductProblem problem_;
  CodeFor<entries::matmul_row> code_;
  Grid grid_;
};

// The same of 1 to 16 rows that is_chain() asks to be alike (device/matmul_few_rows.cu).
class FewRowsProduct {
 public:
  static bool takes(const CudaDevice& device, const ProductProblem& p);
  FewRowsProduct(CudaDevice& device, const ProductProblem& problem);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const ProductPointers& p) const;

 private:
  ProductProblem problem_;
  CodeFor<entries::matmul_few_rows> code_;
  Grid grid_;
};

// What follows a product, from its sums, which may lie in y. alpha is in them, unless is_chain().
class ProductFinish {
 public:
  ProductFinish() = default;
  ProductFinish(CudaDevice& device, const ProductProblem& problem);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const void* sums, const ProductPointers& p) const;

 private:
  ProductProblem problem_;
  TypedCode<args::Product> code_;
  int64_t each_ = 4;  // elements of a thread
};

// Text of an activation of `x`, for ProductProblem::act; refuses unknown kinds. brief: of the
// result no more bits count than a half or a product of tf32 has.
std::string activation_text(std::string_view kind, double alpha, double beta, tenon_dtype sum,
                            bool brief = false);

}  // namespace tenon::cuda
