// SPDX-License-Identifier: Apache-2.0
// Products with decoded weights, which are in scratch memory.
#include <algorithm>
#include <array>
#include <memory>

#include "dequant_problem.hpp"
#include "lines.hpp"
#include "matmul.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr uint64_t kScratchAlignment = 256;

struct DecodedProduct {
  sdk::Kernel otherwise, product;
  CodeFor<entries::dequantize_blocks> decode;
  Grid grid;
  int64_t units = 0;
  size_t operands = 0, w = 0;  // how many, and the position of w
  uint64_t bytes = 0;          // of w, decoded
  bool decodes = true;

  uint64_t tune(uint64_t limit) {
    decodes = bytes + (product.tune ? 0 : product.scratch) <= limit;
    if (!decodes) return otherwise.scratch;
    return bytes + (product.tune ? product.tune(limit - bytes) : product.scratch);
  }
  void prepare() const {
    if (!decodes) return otherwise.prepare();
    decode.prepare();
    if (product.prepare) product.prepare();
  }
  void run(const sdk::Call& call) const {
    if (!decodes) return otherwise.run(call);
    decode.launch(call, grid, call.inputs[w], call.scratch, units);
    std::array<void*, 5> inputs{};
    std::copy_n(call.inputs, operands, inputs.begin());
    inputs[w] = call.scratch;
    sdk::Call c = call;
    c.inputs = inputs.data();
    c.scratch = scratch_at(call, bytes);
    product.run(c);
  }
};

sdk::Kernel product_of(const BlockProblem& p, const sdk::Node& node) {
  if (p.grouped) {
    GroupedProblem problem = *p.grouped;
    problem.w_alignment = kScratchAlignment;
    return make_grouped_product(device_of(node), problem);
  }
  ProductProblem problem;
  problem.a = problem.b = problem.y = p.x.type().dtype, problem.sum = TENON_DTYPE_F32;
  problem.m = p.m, problem.n = p.n, problem.k = p.k, problem.lda = problem.ldb = p.k;
  problem.trans_b = true;
  problem.a_alignment = p.x.alignment(), problem.b_alignment = kScratchAlignment;
  ProductPlaces places{p.x.position(), p.w.position()};
  if (p.bias) {
    problem.bias = p.bias.type().dtype, problem.bias_alignment = p.bias.alignment();
    places.bias = p.bias.position();
  }
  return make_product(node, problem, places);
}

}  // namespace

sdk::Kernel decoded_product(const BlockProblem& p, sdk::Kernel otherwise, const sdk::Node& node) {
  // A matrix alone would fill small devices; of experts, all are decoded.
  constexpr int64_t kMostElements = 128 << 20, kMostOfExperts = 512 << 20;
  const tenon_dtype dtype = p.x.type().dtype;
  const int64_t matrices = p.grouped ? p.grouped->experts : 1, elements = matrices * p.n * p.k,
                size = elements * element_bytes(dtype);
  if (elements > (p.grouped ? kMostOfExperts : kMostElements))
    throw Refusal::shape("w is too large");
  auto work = std::make_shared<DecodedProduct>();
  work->otherwise = std::move(otherwise);
  work->product = product_of(p, node);
  std::vector<std::string> defines = block_defines(p.w);
  defines.push_back(result_define(dtype));
  work->decode = device_of(node).code(entries::dequantize_blocks, defines);
  work->units = elements / unit_of(p.w.type().dtype);
  constexpr int64_t kThreads = 256;
  work->grid = {.blocks = launchable(blocks_for(work->units, kThreads)), .threads = kThreads};
  int last = std::max({p.x.position(), p.w.position(), p.bias.position()});
  if (p.grouped) last = std::max({last, p.grouped->list, p.grouped->p});
  work->operands = static_cast<size_t>(last) + 1;
  work->w = static_cast<size_t>(p.w.position());
  uint64_t scratch = 0;
  take_scratch(scratch, static_cast<uint64_t>(size));
  work->bytes = scratch;
  sdk::Kernel kernel;
  kernel.scratch = work->bytes + work->product.scratch;
  kernel.cost = work->product.cost;
  kernel.can_fail = p.grouped.has_value();
  kernel.tune = [work](uint64_t limit) { return work->tune(limit); };
  kernel.prepare = [work] { work->prepare(); };
  kernel.run = [work](const sdk::Call& c) { work->run(c); };
  return kernel;
}

}  // namespace tenon::cuda
