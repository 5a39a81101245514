// SPDX-License-Identifier: Apache-2.0
// lora_matmul: the narrow products scale·(x·a)·b are kept in the type of the sums, and the wide one
// takes them in before it is rounded.
#include <string>

#include "matmul.hpp"
#include "product.hpp"

namespace tenon::cuda {
namespace {

struct Lora {
  TileProduct down, up, whole;  // t = x·a; r = scale·t·b; y = x·w + r
  uint64_t added = 0;           // where r lies in scratch
  void run(const sdk::Call& c) const {
    void *t = c.scratch, *r = static_cast<char*>(c.scratch) + added;
    down.run(c, {.a = c.inputs[0], .b = c.inputs[2], .y = t});
    up.run(c, {.a = t, .b = c.inputs[3], .y = r});
    whole.run(c, {.a = c.inputs[0], .b = c.inputs[1], .residual = r, .y = c.outputs[0]});
  }
};

}  // namespace

sdk::Kernel make_lora_matmul(const sdk::op::lora_matmul& n, const sdk::Node& node) {
  using sdk::Refusal;
  const sdk::Type &x = n.x.type(), &w = n.w.type(), &a = n.a.type();
  if (!is_float(x.dtype)) throw Refusal::dtype("x", x.dtype);
  const int64_t in = w.dims[0], out = w.dims[1], rank = a.dims[1];
  int64_t rows = 1;
  for (int k = 0; k + 1 < x.rank; ++k) rows *= x.dims[k];
  const tenon_dtype sum = acc_dtype(x.dtype);
  constexpr uint64_t kScratchAlignment = 256;
  CudaDevice& device = device_of(node);
  const auto product = [&](tenon_dtype left, tenon_dtype right, tenon_dtype y, int64_t cols,
                           int64_t terms, uint64_t left_alignment, uint64_t right_alignment) {
    ProductProblem p;
    p.a = left, p.b = right, p.sum = sum, p.y = y;
    p.m = rows, p.n = cols, p.k = terms, p.lda = terms, p.ldb = cols;
    p.a_alignment = left_alignment, p.b_alignment = right_alignment;
    return p;
  };
  const ProductProblem down =
      product(x.dtype, x.dtype, sum, rank, in, n.x.alignment(), n.a.alignment());
  ProductProblem up = product(sum, x.dtype, sum, out, rank, kScratchAlignment, n.b.alignment());
  up.alpha = n.scale;
  ProductProblem whole =
      product(x.dtype, x.dtype, x.dtype, out, in, n.x.alignment(), n.w.alignment());
  whole.residual = sum;
  Lora lora{TileProduct(device, down), TileProduct(device, up), TileProduct(device, whole)};
  const auto bytes = [&](int64_t cols) {
    return (static_cast<uint64_t>(rows * cols * element_bytes(sum)) + kScratchAlignment - 1) /
           kScratchAlignment * kScratchAlignment;
  };
  lora.added = bytes(rank);
  sdk::Kernel kernel = kernel_of({lora.down.code(), lora.up.code(), lora.whole.code()},
                                 [lora](const sdk::Call& c) { lora.run(c); });
  kernel.scratch = lora.added + bytes(out);
  kernel.cost = down.seconds() + up.seconds() + whole.seconds();
  return kernel;
}

}  // namespace tenon::cuda
