// SPDX-License-Identifier: Apache-2.0
// Products y = act(alpha·a·bᵀ + bias) + residual in one launch for all b that share a, with all
// that follows, of f32 cut to tf32: of few rows, as when one sequence is encoded (device/thin.cu),
// and on sm_90 of more (device/matmul_wgmma.cu), up to a size from which the library is as fast.
#pragma once

#include <vector>

#include "product.hpp"

namespace tenon::cuda {

// How the blocks of device/matmul_wgmma.cu lie over y: its defines.
struct WgmmaTile {
  int64_t rows = 0, columns = 0, groups = 0, stages = 0, blocks = 0;
  static constexpr int64_t kDepth = 32;  // terms of a stage
  int64_t count(int64_t m, int64_t n) const { return blocks_for(m, rows) * blocks_for(n, columns); }
  uint32_t shared() const {
    constexpr int64_t kBarriers = 2 * 8;
    return static_cast<uint32_t>(stages * ((rows + columns) * kDepth * 4 + kBarriers));
  }
};

class JoinedProduct {
 public:
  static constexpr size_t kMostSets = 8;
  static bool takes(const CudaDevice& device, const ProductProblem& problem);
  // Each is taken, all are of one a and of the same dtypes; where there are several, none has a
  // residual or keeps what goes into an activation.
  JoinedProduct(CudaDevice& device, const std::vector<ProductProblem>& problems);
  Code code() const { return code_; }
  void run(const sdk::Call& call, const std::vector<ProductPointers>& pointers) const;

 private:
  void few_rows(CudaDevice& device, std::vector<std::string> defines);
  void tensor_cores(CudaDevice& device, std::vector<std::string> defines);
  std::vector<ProductProblem> problems_;
  Code code_;
  Grid grid_;
  int64_t columns_ = 1;  // of a block, with few rows
  WgmmaTile tile_;       // without rows: they are few
};

}  // namespace tenon::cuda
