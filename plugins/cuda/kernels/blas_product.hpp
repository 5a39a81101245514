// SPDX-License-Identifier: Apache-2.0
// A product by cuBLASLt. Which of its algorithms runs is chosen when it is tuned: the fastest of
// those that the library proposes, timed in memory of their own, else its first.
#pragma once

#include <memory>

#include "product.hpp"

namespace tenon::cuda {

class BlasProduct {
 public:
  BlasProduct() = default;
  // Can cuBLASLt be asked for it? What follows the product is at most a bias of y's dtype, then a
  // residual or the one activation that it has as we do, with what that is taken of.
  static bool takes(CudaDevice& device, const ProductProblem& problem);
  BlasProduct(CudaDevice& device, const ProductProblem& problem);
  static constexpr uint64_t kMostWorkspace = 32 << 20;  // bytes
  // Does the library propose an algorithm that needs no workspace? Then `tune` always finds one.
  bool is_certain() const;
  // Chooses among the algorithms that need at most so much workspace, once. False: there is none.
  bool tune(uint64_t most_workspace) const;
  uint64_t workspace() const;  // bytes of scratch, of the choice
  void run(const sdk::Call& call, const ProductPointers& p, void* workspace) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tenon::cuda
