// SPDX-License-Identifier: Apache-2.0
// The kernels of layer_norm and rms_norm, of their backward ops and of their residual forms. This
// file lays out scratch memory and distributes rows over threads. Gradients of parameters are
// summed over fixed blocks of rows, then over the blocks, so results do not depend on the number
// of threads.
#include "norm.hpp"

#include <algorithm>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "convert.hpp"
#include "nontemporal.hpp"
#include "tenon/norm_ops.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;
using sdk::Value;

// x as rows of n elements.
struct Rows {
  tenon_dtype dtype, acc;
  int64_t count, n;

  Rows(const Value& x, const sdk::NormRows& rows)
      : dtype(x.type().dtype), acc(acc_dtype(dtype)), count(rows.count), n(rows.length) {
    if (!is_float(dtype)) throw Refusal::dtype("x", dtype);
  }
};

Kernel make_forward(const sdk::NormOp& p) {
  const Rows rows(p.x, p.rows);
  Kernel kernel;
  const auto parameter = [&](const Value& v) {
    return NormParameter(v, rows.n, rows.acc, kernel.scratch);
  };
  const NormParameter bias = parameter(p.bias), gamma = parameter(p.gamma),
                      beta = parameter(p.beta);
  const int x = p.x.position(), residual = p.residual.position();
  for (const int from : {x, residual}) {
    if (from < 0) continue;
    kernel.in_place.push_back({from, 0});
    if (p.sum >= 0) kernel.in_place.push_back({from, p.sum});
  }
  const int64_t tensors = 2 + (residual >= 0) + (p.sum >= 0);
  const int64_t grain = grain_for(rows.n * element_bytes(rows.dtype) * tensors);
  const int64_t total = rows.count * rows.n * element_bytes(rows.dtype);
  kernel.run = [=, rms = p.rms, eps = p.eps, sum = p.sum, mean = p.mean,
                inv = p.inv](const Call& c) {
    const NormForward a{
        rows.dtype,      rms,
        rows.n,          eps,
        c.inputs[x],     c.in(residual),
        bias.prepare(c), gamma.prepare(c),
        beta.prepare(c), c.outputs[0],
        c.out(sum),      c.out(mean),
        c.out(inv),      bypasses_cache(c.outputs[0], total, {c.inputs[x], c.in(residual)})};
    parallel_for(rows.count, grain,
                 [&](int64_t begin, int64_t end) { norm_forward(a, begin, end); });
  };
  return kernel;
}

// Partial sums of a parameter's gradient: one row per block of rows.
struct Partials {
  static constexpr int64_t kMaxRows = 1024, kBlocks = 64;

  int64_t rows_per_block = 1, blocks = 0;
  int64_t n = 0, acc_bytes = 4;
  int64_t offset = -1;  // in scratch; -1 if not requested
  int position = -1;
  tenon_dtype dtype{}, acc{};

  Partials(const Rows& rows, const sdk::Node& node, int output, uint64_t& scratch_bytes)
      : rows_per_block(std::clamp<int64_t>((rows.count + kBlocks - 1) / kBlocks, 1, kMaxRows)),
        blocks((rows.count + rows_per_block - 1) / rows_per_block),
        n(rows.n),
        acc_bytes(element_bytes(rows.acc)),
        position(output),
        acc(rows.acc) {
    if (output < 0) return;
    dtype = node.out(output).type().dtype;
    offset = static_cast<int64_t>(scratch_bytes);
    scratch_bytes += (blocks * n * acc_bytes + 63) / 64 * 64;
  }
  // Returns the sums of a block, set to zero.
  void* start(const Call& c, int64_t block) const {
    if (offset < 0) return nullptr;
    char* sums = static_cast<char*>(c.scratch) + offset + block * n * acc_bytes;
    std::fill_n(sums, n * acc_bytes, char{0});
    return sums;
  }
  void finish(const Call& c) const {
    if (offset < 0) return;
    if (acc == TENON_DTYPE_F64) return finish_as<double>(c);
    finish_as<float>(c);
  }

 private:
  template <class A>
  void finish_as(const Call& c) const {
    const A* sums = reinterpret_cast<const A*>(static_cast<const char*>(c.scratch) + offset);
    parallel_for(n, grain_for((blocks + 1) * acc_bytes), [&](int64_t begin, int64_t end) {
      constexpr int64_t kColumns = 256;
      for (int64_t i = begin; i < end; i += kColumns) {
        const int64_t columns = std::min(kColumns, end - i);
        double total[kColumns] = {};
        for (int64_t b = 0; b < blocks; ++b)
          for (int64_t k = 0; k < columns; ++k) total[k] += sums[b * n + i + k];
        A rounded[kColumns];
        std::copy_n(total, columns, rounded);
        char* to = static_cast<char*>(c.outputs[position]) + i * element_bytes(dtype);
        if constexpr (std::is_same_v<A, float>) {
          narrow(dtype, rounded, to, columns);
        } else if (dtype == TENON_DTYPE_F32) {
          std::copy_n(total, columns, reinterpret_cast<float*>(to));
        } else {
          std::copy_n(total, columns, reinterpret_cast<double*>(to));
        }
      }
    });
  }
};

Kernel make_backward(const sdk::NormBackwardOp& p, const sdk::Node& node) {
  const Rows rows(p.x, p.rows);
  Kernel kernel;
  const NormParameter gamma(p.gamma, rows.n, rows.acc, kernel.scratch);
  const Partials dgamma(rows, node, p.dgamma, kernel.scratch),
      dbeta(rows, node, p.dbeta, kernel.scratch);
  const int dy = p.dy.position(), x = p.x.position(), mean = p.mean.position(),
            inv = p.inv.position(), dsum = p.dsum.position();
  if (p.dx >= 0)
    for (const int from : {dy, x, dsum})
      if (from >= 0) kernel.in_place.push_back({from, p.dx});
  const int64_t grain = grain_for(dgamma.rows_per_block * rows.n * element_bytes(rows.dtype) * 3);
  const int64_t total = rows.count * rows.n * element_bytes(rows.dtype);
  kernel.run = [=, rms = p.rms, eps = p.eps, dx = p.dx](const Call& c) {
    const NormBackward a{
        rows.dtype,
        rms,
        rows.n,
        eps,
        c.inputs[dy],
        c.inputs[x],
        gamma.prepare(c),
        c.in(mean),
        c.in(inv),
        c.in(dsum),
        c.out(dx),
        dx >= 0 && bypasses_cache(c.out(dx), total, {c.inputs[dy], c.inputs[x], c.in(dsum)})};
    parallel_for(dgamma.blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * dgamma.rows_per_block;
        norm_backward(a, first, std::min(rows.count, first + dgamma.rows_per_block),
                      dgamma.start(c, block), dbeta.start(c, block));
      }
    });
    dgamma.finish(c);
    dbeta.finish(c);
  };
  return kernel;
}

template <class Op>
Kernel make_norm(const Op& n, const sdk::Node&) {
  return make_forward(sdk::norm_op(n));
}
template <class Op>
Kernel make_norm_backward(const Op& n, const sdk::Node& node) {
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

}  // namespace tenon::cpu
