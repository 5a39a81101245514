// SPDX-License-Identifier: Apache-2.0
// Products of halves whose rows must have the same bits alone and among others (is_chain): do ways to
// compute one give the bits of our own tiles? What order a library sums in is not documented, so results
// are compared.
#pragma once

#include "product.hpp"

namespace tenon::cuda {

class ChainCheck {
 public:
  // Throws sdk::Refusal if there is no code of our own tiles, and no compiler.
  ChainCheck(CudaDevice& device, const ProductProblem& problem);
  // Device memory of the whole product, with numbers in it, and where the ways write y.
  struct Memory {
    void *a, *b, *bias, *residual, *y;
  };
  // Which of the ways pass: first with what is in memory, then with operands whose products cancel, so that y
  // is the rounding errors of the sums. Overwrites all of it. Throws Failure.
  std::vector<bool> same(const Memory& memory, const std::vector<StreamTrial::Way>& ways) const;

 private:
  CudaDevice& device_;
  ProductProblem problem_;
  TileProduct tiles_;
  CodeFor<entries::matmul_cancelling> cancelling_;
  CodeFor<entries::matmul_compare> compare_;
};

}  // namespace tenon::cuda
