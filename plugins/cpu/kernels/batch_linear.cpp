// SPDX-License-Identifier: Apache-2.0
// batch_linear: several products of one operand a in one loop. Biases are added while a block is in
// cache.
#include <string>
#include <vector>

#include "convert.hpp"
#include "gemm_batch.hpp"
#include "matmul.hpp"

namespace tenon::cpu {
namespace {

struct Work {
  GemmBatch products;
  std::vector<Epilogue> epilogues;

  void run(const sdk::Call& c) const {
    const auto sink = [&](size_t t, const GemmBlock& block) {
      if (!epilogues[t].plain()) epilogues[t].run(c, block, 0);
    };
    products.run(c.inputs[0], c.inputs + 1, c.outputs, c.scratch, sink);
  }
};

}  // namespace

sdk::Kernel make_batch_linear(const sdk::op::batch_linear& n, const sdk::Node& node) {
  const Attributes at{n.trans_a, n.trans_b, n.alpha, n.out_dtype, n.f32_precision};
  const sdk::Type& a = n.a.type();
  if (!is_float(a.dtype)) throw sdk::Refusal::dtype("a", a.dtype);
  const size_t count = node.output_count();
  for (size_t t = 0; t < count; ++t)
    if (!node.out(t)) throw sdk::Refusal::shape("every result must be wanted");
  Matrix left = matrix_of(a, true, n.trans_a);
  for (const int64_t d : left.batch) left.rows *= d;

  const tenon_dtype sum = gemm_sum_dtype(a.dtype), result = node.out(0).type().dtype;
  Work work;
  std::vector<GemmBatch::Part> parts;
  for (size_t t = 0; t < count; ++t) {
    const sdk::Type &b = n.bs[t].type(), &y = node.out(t).type();
    check_types(at, a, b, y);
    const Matrix right = matrix_of(b, false, n.trans_b);
    parts.push_back({right.cols, right.layout, n.bs[t].frozen()});
    Epilogue epilogue{.sum = sum,
                      .y = result,
                      .alpha = n.alpha,
                      .out = static_cast<int>(t),
                      .act = {},
                      .n = right.cols};
    if (!n.biases.empty()) epilogue.take_bias(n.biases[t]);
    work.epilogues.push_back(epilogue);
  }
  work.products =
      GemmBatch(left.rows, left.cols, left.layout, parts, sum == result, at.f32_precision());

  sdk::Kernel kernel;
  for (size_t t = 0; t < count; ++t) {
    Gemm& product = work.products.product(t);
    if (!n.bs[t].frozen() || !product.wants_packed_b()) continue;
    const Gemm packer = product;
    product.take_packed_b();
    kernel.derived.push_back(
        {n.bs[t].position(), packer.packed_layout(), packer.packed_bytes(),
         [packer](const void* dense, void* packed) { packer.pack_b(dense, packed); }});
  }
  kernel.scratch = work.products.scratch();
  kernel.cost = work.products.flops() / 1e11;
  kernel.run = [work = std::move(work)](const sdk::Call& c) { work.run(c); };
  return kernel;
}

}  // namespace tenon::cpu
