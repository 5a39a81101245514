// SPDX-License-Identifier: Apache-2.0
// grouped_matmul: rows are sorted by expert, then one kernel multiplies tiles of all experts. How
// many rows an expert has is known on the device alone: the grid is for the most tiles there can
// be.
#include "grouped_matmul.hpp"

#include <algorithm>

#include "../kernels.hpp"
#include "index.hpp"
#include "product.hpp"

namespace tenon::cuda {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

GroupedProblem::GroupedProblem(const sdk::Value& x_, const sdk::Value& w_, const sdk::Value& ids,
                               const sdk::Value& offsets, const sdk::Value& p_, bool trans_w_)
    : trans_w(trans_w_) {
  const sdk::Type &xt = x_.type(), &wt = w_.type();
  if (!is_float(xt.dtype)) throw Refusal::dtype("x", xt.dtype);
  rows = xt.dims[0], experts = wt.dims[0];
  in = wt.dims[trans_w ? 2 : 1], out = wt.dims[trans_w ? 1 : 2];
  dtype = xt.dtype, sum = acc_dtype(dtype);
  if (in >= kNarrowIndex || out >= kNarrowIndex) throw Refusal::shape("rows of 2^31 or more");
  by_ids = static_cast<bool>(ids);
  const sdk::Value& numbers = by_ids ? ids : offsets;
  wide_list = numbers.type().dtype == TENON_DTYPE_I64;
  x = x_.position(), w = w_.position(), list = numbers.position();
  x_alignment = x_.alignment(), w_alignment = w_.alignment();
  if (!p_) return;
  p = p_.position(), p_dtype = p_.type().dtype;
}

std::vector<std::string> GroupedProblem::defines() const {
  std::vector<std::string> d = {"TYPE=" + type_name("x", dtype)};
  if (p >= 0) d.push_back("TP=" + type_name("p", p_dtype));
  return d;
}

double GroupedProblem::seconds(int products) const {
  ProductProblem one;
  one.a = one.b = one.y = dtype, one.sum = sum;
  one.m = rows, one.n = out, one.k = in;
  return 5e-6 + products * one.seconds();
}

// ---- Rows times matrices

namespace {

constexpr int64_t kElements = 8;  // of 16 bytes, that tensor cores take
constexpr uint64_t kBytes = 16;

}  // namespace

int64_t RowsProduct::tile_for(const CudaDevice& device, const GroupedProblem& problem, int64_t n) {
  const int64_t of_expert = problem.rows / std::max<int64_t>(problem.experts, 1);
  const int64_t blocks = blocks_for(problem.rows, 128) * blocks_for(n, 128);
  const bool large = element_bytes(problem.sum) <= 4 && of_expert > 64 &&
                     blocks >= device.properties().multiprocessors;
  return large ? 128 : 64;
}

RowsProduct::RowsProduct(CudaDevice& device, const GroupedProblem& problem, const Form& form,
                         int64_t tile, int64_t most_tiles)
    : n_(form.n),
      k_(form.k),
      experts_(problem.experts),
      tiles_m_(most_tiles),
      tiles_n_(blocks_for(form.n, tile)) {
  if (tiles_n_ > 0 && tiles_m_ >= kNarrowIndex / tiles_n_)
    throw Refusal::shape("the product has too many tiles");
  const bool mma = problem.tensor_cores(device);
  const bool vectors = form.a_alignment >= kBytes && problem.w_alignment >= kBytes &&
                       k_ % kElements == 0 && (form.trans ? k_ : n_) % kElements == 0;
  dots_per_tile_ = mma ? 4 : 1;
  shared_ = mma ? mma_shared(tile, true, form.trans) : 0;
  std::vector<std::string> d = problem.defines();
  for (const auto& [name, value] : {std::pair{"SIZE", tile},
                                    {"MMA", mma},
                                    {"WIDE", mma && vectors},
                                    {"TRANS", form.trans},
                                    {"STORE", form.store},
                                    {"DOT", form.dot}})
    d.push_back(define(name, value));
  code_ = device.code(entries::grouped_product, d, shared_);
}

void RowsProduct::run(const Call& c, const RowGroups& groups, const Pointers& p) const {
  const args::GroupedProductOf<void, void> product{p.a,
                                                   p.w,
                                                   p.p,
                                                   p.x,
                                                   p.y,
                                                   p.dots,
                                                   groups.tiles(c),
                                                   groups.order(c),
                                                   n_,
                                                   k_,
                                                   static_cast<int32_t>(experts_),
                                                   static_cast<uint32_t>(tiles_m_),
                                                   static_cast<uint32_t>(tiles_n_)};
  code_.launch(c, {.blocks = tiles_m_ * tiles_n_, .threads = 256, .shared = shared_}, product);
}

// ---- The op

Kernel make_grouped_product(CudaDevice& device, const GroupedProblem& problem) {
  const int64_t tile = RowsProduct::tile_for(device, problem, problem.out);
  Scratch scratch;
  const RowGroups groups(device, problem, tile, scratch);
  const RowsProduct product(
      device, problem, {problem.out, problem.in, problem.trans_w, true, false, problem.x_alignment},
      tile, groups.most_tiles());
  std::vector<Code> codes = groups.codes();
  codes.push_back(product.code());
  Kernel kernel = kernel_of(std::move(codes), [problem, groups, product](const Call& c) {
    groups.run(c);
    product.run(c, groups,
                {.a = c.inputs[problem.x],
                 .w = c.inputs[problem.w],
                 .p = problem.factors(c),
                 .x = nullptr,
                 .y = c.outputs[0],
                 .dots = nullptr});
  });
  kernel.scratch = scratch.size();
  kernel.cost = problem.seconds(1);
  kernel.can_fail = true;
  return kernel;
}

namespace {

Kernel make_grouped_matmul(const sdk::op::grouped_matmul& n, const Node& node) {
  return make_grouped_product(device_of(node),
                              GroupedProblem(n.x, n.w, n.ids, n.offsets, n.p, n.trans_w));
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::grouped_matmul, make_grouped_matmul>(),
    sdk::row<sdk::op::grouped_matmul_backward, make_grouped_matmul_backward>(),
};

}  // namespace

std::span<const sdk::Row> grouped_matmul_rows() { return kRows; }

}  // namespace tenon::cuda
