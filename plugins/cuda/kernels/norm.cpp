// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm, their residual forms and backward ops: how a row lies in
// registers. Parameter gradients are summed per group of lanes, then over the groups.
#include <algorithm>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "entries.hpp"
#include "lines.hpp"
#include "tenon/norm_ops.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

// x as rows of n elements.
struct Rows {
  tenon_dtype dtype{}, acc{};
  args::NormShape shape{};
  int64_t lanes = 32, chunks = 1, vec = 1, blocks = 1;
  int64_t ahead = 0;
  uint32_t shared = 0;  // of a block

  Rows(const Value& x, const sdk::NormRows& rows, double eps)
      : dtype(x.type().dtype),
        acc(acc_dtype(dtype)),
        shape{rows.count, eps, static_cast<uint32_t>(rows.length)} {
    if (!is_float(dtype)) throw Refusal::dtype("x", dtype);
    if (rows.length >= kNarrowIndex) throw Refusal::shape("rows are too long for one kernel");
  }
  // Puts a row into registers, `most` elements in each lane; `read` are the operands that are read
  // as vectors. Rows of up to `shortest` vectors may go to a part of a block that is more than a
  // warp.
  void choose_lanes(int64_t most, int64_t shortest, std::initializer_list<const Value*> read) {
    const int64_t bytes = element_bytes(dtype), n = shape.n;
    vec = 16 / bytes;
    for (const Value* v : read)
      if (n % vec != 0 || (*v && v->alignment() % 16 != 0)) vec = 1;
    const auto found = row_lanes(n / vec, most / vec, shortest);
    if (!found)
      throw Refusal::shape("rows of " + std::to_string(n) + " elements do not fit on chip");
    lanes = found->lanes, chunks = found->chunks;
  }
  // Rows ahead of two operands lie in shared memory, for `sums` numbers that a lane keeps for each
  // of its elements. How many blocks are to be at work on a multiprocessor: as many as registers
  // and shared memory are enough for. With fewer than two it is faster not to look ahead (H200).
  void look_ahead(int64_t sums, const CudaDevice& device) {
    constexpr int64_t kOthers = 40, kRegisters = 65536;
    constexpr int64_t kLeastRows = 3, kMostRows = 5, kLeastBlocks = 2;
    const int64_t threads = group_threads(lanes), bytes = vec * element_bytes(dtype);
    const int64_t row = 2 * threads * (chunks * bytes + element_bytes(acc));  // and its statistics
    // Of each block the kernel's own, and what the driver keeps.
    const int64_t others = static_shared("norm.cu", "backward", {}) + 1024;
    const auto all = static_cast<int64_t>(device.properties().shared_per_block);
    const auto fit = [&](int64_t n, int64_t rows) {
      return n * threads * (sums * chunks * vec + kOthers) <= kRegisters &&
             n * ((rows + 1) * row + others) <= all;
    };
    if (acc != TENON_DTYPE_F32 || bytes != 16 || device.properties().major < 8 ||
        !fit(kLeastBlocks, kLeastRows))
      return;
    blocks = kLeastBlocks;
    while (blocks * threads < 1280 && fit(blocks + 1, kLeastRows)) ++blocks;
    ahead = kLeastRows;
    while (ahead < kMostRows && fit(blocks, ahead + 1)) ++ahead;
    shared = static_cast<uint32_t>((ahead + 1) * row);
  }
  Grid grid(int multiprocessors) const {
    Grid g = line_grid(shape.rows, lanes, shared);
    g.blocks = std::min(g.blocks, multiprocessors * blocks);
    return g;
  }
  std::vector<std::string> defines(bool rms, const Value& gamma, const Value& beta,
                                   const Value& bias) const {
    const auto type_of = [&](const char* name, const char* operand, const Value& v) {
      return std::string(name) + "=" + type_name(operand, v ? v.type().dtype : dtype);
    };
    return {"TYPE=" + type_name("x", dtype), type_of("GAMMA", "gamma", gamma),
            type_of("BETA", "beta", beta), type_of("BIAS", "bias", bias), define("LANES", lanes),
            define("CHUNKS", chunks), define("VEC", vec), define("RMS", rms),
            define("AHEAD", ahead),
            // Of longer elements it costs registers.
            define("WHOLE", is_half(dtype) && shape.n == lanes * chunks * vec),
            define("BLOCKS", blocks)};
  }
};

Kernel make_forward(const sdk::NormOp& p, const Node& node) {
  Rows rows(p.x, p.rows, p.eps);
  rows.choose_lanes(rows.acc == TENON_DTYPE_F64 ? kMostOfNorm / 2 : kMostOfNorm,
                    is_half(rows.dtype) ? kShortestOfNorm : 0,
                    {&p.x, &p.residual, &p.bias, &p.gamma, &p.beta});
  // A row as it lies in memory takes few registers: many blocks are under way. Sums take more.
  if (is_half(rows.dtype) && rows.vec > 1)
    rows.blocks = std::max<int64_t>((p.residual ? 768 : 1024) / group_threads(rows.lanes), 1);
  CudaDevice& device = device_of(node);
  std::vector<std::string> defines = rows.defines(p.rms, p.gamma, p.beta, p.bias);
  defines.insert(defines.end(),
                 {"OUT=f32", "GAMMAS=0", "BETAS=0", define("RESIDUAL", p.residual ? 1 : 0)});
  constexpr int64_t kFewChunks = 4;  // the parameters of more would cost blocks
  defines.push_back(define("EAGER", rows.dtype == TENON_DTYPE_F32 && rows.chunks <= kFewChunks));
  const auto code = device.code(entries::norm_forward, defines);
  Grid grid = line_grid(rows.shape.rows, rows.lanes);
  constexpr int64_t kThreadsAtWork = 1024;  // on a multiprocessor: all rows at once
  grid.early = device.properties().early_starts &&
               grid.blocks * grid.threads <= device.properties().multiprocessors * kThreadsAtWork;
  Kernel kernel = kernel_of(
      {code}, [=, x = p.x.position(), residual = p.residual.position(), bias = p.bias.position(),
               gamma = p.gamma.position(), beta = p.beta.position(), sum = p.sum, mean = p.mean,
               inv = p.inv, shape = rows.shape](const Call& c) {
        code.launch(c, grid, c.inputs[x], c.in(residual), c.in(bias), c.in(gamma), c.in(beta),
                    c.outputs[0], c.out(sum), c.out(mean), c.out(inv), shape);
      });
  for (const int from : {p.x.position(), p.residual.position()}) {
    if (from < 0) continue;
    kernel.in_place.push_back({from, 0});
    if (p.sum >= 0) kernel.in_place.push_back({from, p.sum});
  }
  return kernel;
}

Kernel make_backward(const sdk::NormBackwardOp& p, const Node& node) {
  Rows rows(p.x, p.rows, p.eps);
  rows.choose_lanes(rows.acc == TENON_DTYPE_F64 ? 8 : 16, 128, {&p.x, &p.dy, &p.gamma, &p.dsum});
  CudaDevice& device = device_of(node);
  const bool gammas = p.dgamma >= 0, betas = p.dbeta >= 0;
  rows.look_ahead(2 + gammas + betas, device);
  if (rows.ahead == 0) rows.blocks = rows.lanes <= 256 ? 3 : 1;
  // As many groups as are at work at once; each leaves one row of sums.
  const Grid grid = rows.grid(device.properties().multiprocessors);
  const int64_t groups = grid.blocks * groups_per_block(rows.lanes);
  tenon_dtype out = TENON_DTYPE_F32;  // dgamma and dbeta have one dtype
  for (const int k : {p.dbeta, p.dgamma})
    if (k >= 0) out = node.out(static_cast<size_t>(k)).type().dtype;
  uint64_t scratch = 0;
  const auto area = [&](bool wanted) {
    return wanted ? take_scratch(scratch, static_cast<uint64_t>(groups * rows.shape.n *
                                                                element_bytes(rows.acc)))
                  : 0;
  };
  const uint64_t gammas_at = area(gammas), betas_at = area(betas);
  std::vector<std::string> defines = rows.defines(p.rms, p.gamma, {}, {});
  defines.insert(defines.end(), {"OUT=" + type_name("dgamma", out), define("GAMMAS", gammas),
                                 define("BETAS", betas), "RESIDUAL=0"});
  const auto code = device.code(entries::norm_backward, defines, rows.shared);
  std::vector<Code> codes = {code};
  CodeFor<entries::norm_parameters> parameters;
  if (gammas || betas) codes.push_back(parameters = device.code(entries::norm_parameters, defines));
  const Grid join = {.blocks = blocks_for(rows.shape.n, 32) * (gammas + betas),
                     .threads = 1024,
                     .early = device.properties().early_starts};
  Kernel kernel = kernel_of(
      codes, [=, dy = p.dy.position(), x = p.x.position(), gamma = p.gamma.position(),
              mean = p.mean.position(), inv = p.inv.position(), dsum = p.dsum.position(), dx = p.dx,
              dgamma = p.dgamma, dbeta = p.dbeta, shape = rows.shape](const Call& c) {
        void* const none = nullptr;
        void* const of_gamma = gammas ? scratch_at(c, gammas_at) : none;
        void* const of_beta = betas ? scratch_at(c, betas_at) : none;
        code.launch(c, grid, c.inputs[dy], c.inputs[x], c.in(gamma), c.in(mean), c.in(inv),
                    c.in(dsum), c.out(dx), of_gamma, of_beta, shape);
        if (gammas || betas)
          parameters.launch(c, join, of_gamma, of_beta, c.out(dgamma), c.out(dbeta), groups,
                            shape.n);
      });
  kernel.scratch = scratch;
  if (p.dx >= 0)
    for (const int from : {p.dy.position(), p.x.position(), p.dsum.position()})
      if (from >= 0) kernel.in_place.push_back({from, p.dx});
  return kernel;
}

template <class Op>
Kernel make_norm(const Op& n, const Node& node) {
  return make_forward(sdk::norm_op(n), node);
}
template <class Op>
Kernel make_norm_backward(const Op& n, const Node& node) {
  return make_backward(sdk::norm_backward_op(n), node);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::layer_norm, make_norm>(),
    sdk::row<sdk::op::layer_norm_backward, make_norm_backward>(),
    sdk::row<sdk::op::residual_layer_norm, make_norm>(),
    sdk::row<sdk::op::rms_norm, make_norm>(),
    sdk::row<sdk::op::rms_norm_backward, make_norm_backward>(),
    sdk::row<sdk::op::residual_rms_norm, make_norm>(),
};

}  // namespace

std::span<const sdk::Row> norm_rows() { return kRows; }

}  // namespace tenon::cuda
