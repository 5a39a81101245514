// SPDX-License-Identifier: Apache-2.0
// Kernels of products for other families, and the maker of lora_matmul, which has a file of its own.
#pragma once

#include "product.hpp"
#include "tenon/kernel.hpp"

namespace tenon::cuda {

// Positions of operands and outputs, -1 where absent.
struct ProductPlaces {
  int a, b, bias = -1, residual = -1, pre_act = -1, y = 0;
  ProductPointers of(const sdk::Call& c) const {
    const auto in = [&](int k) { return c.in(k); };
    return {in(a), in(b), in(bias), in(residual), c.outputs[y], c.out(pre_act)};
  }
};
// One product with all that follows it, in the fastest way. Throws sdk::Refusal.
sdk::Kernel make_product(const sdk::Node& node, ProductProblem p, const ProductPlaces& places);

sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node);

}  // namespace tenon::cuda
