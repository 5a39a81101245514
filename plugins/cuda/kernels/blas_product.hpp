// SPDX-License-Identifier: Apache-2.0
// A product by cuBLASLt. Which of its algorithms runs is chosen when it is prepared, and then
// stays.
#pragma once

#include <memory>

#include "product.hpp"

namespace tenon::cuda {

class BlasProduct {
 public:
  BlasProduct() = default;
  // Can cuBLASLt be asked for it? What follows the product is at most a bias of y's dtype, then a
  // residual or the one activation that it has as we do.
  static bool takes(const ProductProblem& problem);
  BlasProduct(CudaDevice& device, const ProductProblem& problem);
  // False: there is no algorithm for it.
  bool prepare() const;
  uint64_t workspace() const;  // bytes of scratch
  void run(const sdk::Call& call, const ProductPointers& p, void* workspace) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tenon::cuda
