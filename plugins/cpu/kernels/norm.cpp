// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm, their residual forms and backward ops: checks, scratch and how rows are
// spread. Parameter gradients are summed over fixed blocks of rows, then over the blocks, so that
// the result does not depend on threads.
#include "norm.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "axis.hpp"
#include "convert.hpp"
#include "stream.hpp"

namespace tenon::cpu {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;
using sdk::Type;
using sdk::Value;

// x as rows of n elements, axes [axis, rank) being normalized.
struct Rows {
  tenon_dtype dtype{}, acc{};
  int axis = 0;
  int64_t count = 0, n = 1;

  Rows(const Value& x, int64_t given_axis, double eps)
      : dtype(x.type().dtype), acc(acc_dtype(dtype)) {
    const Type& t = x.type();
    if (!is_float(dtype)) throw Refusal::dtype("x", dtype);
    if (!(eps >= 0) || std::isinf(eps)) throw Refusal::attribute("eps", std::to_string(eps));
    axis = along_axis(t, given_axis).axis;
    for (int i = axis; i < t.rank; ++i) n *= t.dims[i];
    count = 1;
    for (int i = 0; i < axis; ++i) count *= t.dims[i];
  }
  void check_same(std::string_view name, const Value& x, const Value& v) const {
    if (!v) return;
    if (v.type().dtype != dtype) throw Refusal::dtype(name, v.type().dtype);
    if (!v.type().same_shape(x.type()))
      throw Refusal::shape(std::string(name) + " must have the shape of x");
  }
  void check_parameter(std::string_view name, const Value& v) const {
    if (!v) return;
    const tenon_dtype t = v.type().dtype;
    if (t != dtype && t != TENON_DTYPE_F32) throw Refusal::dtype(name, t);
    if (v.type().elements() != n)
      throw Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                           " elements, the normalized dims have " + std::to_string(n));
  }
  void check_statistic(std::string_view name, const Value& v) const {
    if (!v) return;
    if (v.type().dtype != acc) throw Refusal::dtype(name, v.type().dtype);
    if (v.type().elements() != count)
      throw Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                           " elements, x has " + std::to_string(count) + " rows");
  }
};

struct ForwardParts {
  Value x, residual, bias, gamma, beta;
  int sum = -1, mean = -1, inv = -1;  // output positions, -1 = not wanted
};

Kernel make_forward(bool rms, int64_t axis, double eps, const ForwardParts& p) {
  const Rows rows(p.x, axis, eps);
  rows.check_same("residual", p.x, p.residual);
  rows.check_parameter("bias", p.bias);
  rows.check_parameter("gamma", p.gamma);
  rows.check_parameter("beta", p.beta);
  Kernel kernel;
  const auto parameter = [&](const Value& v) {
    return NormParameter(v, rows.n, rows.acc, kernel.scratch);
  };
  const NormParameter bias = parameter(p.bias), gamma = parameter(p.gamma),
                      beta = parameter(p.beta);
  const int x = p.x.position(), residual = p.residual ? p.residual.position() : -1;
  for (const int from : {x, residual}) {
    if (from < 0) continue;
    kernel.in_place.push_back({from, 0});
    if (p.sum >= 0) kernel.in_place.push_back({from, p.sum});
  }
  const int64_t tensors = 2 + (residual >= 0) + (p.sum >= 0);
  const int64_t grain = grain_for(rows.n * bytes_of(rows.dtype) * tensors);
  const int64_t total = rows.count * rows.n * bytes_of(rows.dtype);
  kernel.run = [=, sum = p.sum, mean = p.mean, inv = p.inv](const Call& c) {
    const NormForward a{
        rows.dtype,      rms,
        rows.n,          eps,
        c.inputs[x],     input(c, residual),
        bias.prepare(c), gamma.prepare(c),
        beta.prepare(c), c.outputs[0],
        output(c, sum),  output(c, mean),
        output(c, inv),  streams(c.outputs[0], total, {c.inputs[x], input(c, residual)})};
    parallel_for(rows.count, grain,
                 [&](int64_t begin, int64_t end) { norm_forward(a, begin, end); });
  };
  return kernel;
}

struct BackwardParts {
  Value dy, x, gamma, mean, inv, dsum;
  int dx = -1, dgamma = -1, dbeta = -1;
};

// Sums of a parameter's gradient: one row of partial sums for each block of rows, and where the
// result goes.
struct Partials {
  static constexpr int64_t kMostRows = 1024, kBlocks = 64;

  int64_t rows_per_block = 1, blocks = 0;
  int64_t n = 0, acc_bytes = 4;
  int64_t offset = -1;  // in scratch, -1 = not wanted
  int position = -1;
  tenon_dtype dtype{}, acc{};

  Partials(const Rows& rows, const sdk::Node& node, int output, uint64_t& scratch_bytes)
      : rows_per_block(std::clamp<int64_t>((rows.count + kBlocks - 1) / kBlocks, 1, kMostRows)),
        blocks((rows.count + rows_per_block - 1) / rows_per_block),
        n(rows.n),
        acc_bytes(bytes_of(rows.acc)),
        position(output),
        acc(rows.acc) {
    if (output < 0) return;
    dtype = node.out(output).type().dtype;
    if (dtype != TENON_DTYPE_F32 && dtype != rows.dtype)
      throw Refusal::dtype(output == 1 ? "dgamma" : "dbeta", dtype);
    offset = static_cast<int64_t>(scratch_bytes);
    scratch_bytes += (blocks * n * acc_bytes + 63) / 64 * 64;
  }
  // Zeroed sums of a block.
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
        char* to = static_cast<char*>(c.outputs[position]) + i * bytes_of(dtype);
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

Kernel make_backward(bool rms, int64_t axis, double eps, const BackwardParts& p,
                     const sdk::Node& node) {
  const Rows rows(p.x, axis, eps);
  rows.check_same("dy", p.x, p.dy);
  rows.check_same("dsum", p.x, p.dsum);
  rows.check_parameter("gamma", p.gamma);
  rows.check_statistic("mean", p.mean);
  rows.check_statistic(rms ? "inv_rms" : "inv_std", p.inv);
  Kernel kernel;
  const NormParameter gamma(p.gamma, rows.n, rows.acc, kernel.scratch);
  const Partials dgamma(rows, node, p.dgamma, kernel.scratch),
      dbeta(rows, node, p.dbeta, kernel.scratch);
  const int dy = position_of(p.dy), x = position_of(p.x), mean = position_of(p.mean),
            inv = position_of(p.inv), dsum = position_of(p.dsum);
  if (p.dx >= 0)
    for (const int from : {dy, x, dsum})
      if (from >= 0) kernel.in_place.push_back({from, p.dx});
  const int64_t grain = grain_for(dgamma.rows_per_block * rows.n * bytes_of(rows.dtype) * 3);
  const int64_t total = rows.count * rows.n * bytes_of(rows.dtype);
  kernel.run = [=, dx = p.dx](const Call& c) {
    const NormBackward a{
        rows.dtype,
        rms,
        rows.n,
        eps,
        c.inputs[dy],
        c.inputs[x],
        gamma.prepare(c),
        input(c, mean),
        input(c, inv),
        input(c, dsum),
        output(c, dx),
        dx >= 0 && streams(output(c, dx), total, {c.inputs[dy], c.inputs[x], input(c, dsum)})};
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

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::layer_norm, make_layer_norm>(),
    sdk::row<sdk::op::layer_norm_backward, make_layer_norm_backward>(),
    sdk::row<sdk::op::residual_layer_norm, make_residual_layer_norm>(),
    sdk::row<sdk::op::rms_norm, make_rms_norm>(),
    sdk::row<sdk::op::rms_norm_backward, make_rms_norm_backward>(),
    sdk::row<sdk::op::residual_rms_norm, make_residual_rms_norm>(),
};

}  // namespace

Kernel make_layer_norm(const sdk::op::layer_norm& n, const sdk::Node&) {
  return make_forward(false, n.axis, n.eps,
                      {.x = n.x,
                       .residual = {},
                       .bias = {},
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .mean = n.want_mean ? 1 : -1,
                       .inv = n.want_inv_std ? 2 : -1});
}
Kernel make_residual_layer_norm(const sdk::op::residual_layer_norm& n, const sdk::Node&) {
  return make_forward(false, n.axis, n.eps,
                      {.x = n.x,
                       .residual = n.residual,
                       .bias = n.bias,
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .sum = n.want_sum ? 1 : -1,
                       .mean = n.want_mean ? 2 : -1,
                       .inv = n.want_inv_std ? 3 : -1});
}
Kernel make_rms_norm(const sdk::op::rms_norm& n, const sdk::Node&) {
  return make_forward(true, n.axis, n.eps,
                      {.x = n.x,
                       .residual = {},
                       .bias = {},
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .inv = n.want_inv_rms ? 1 : -1});
}
Kernel make_residual_rms_norm(const sdk::op::residual_rms_norm& n, const sdk::Node&) {
  return make_forward(true, n.axis, n.eps,
                      {.x = n.x,
                       .residual = n.residual,
                       .bias = n.bias,
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .sum = n.want_sum ? 1 : -1,
                       .inv = n.want_inv_rms ? 2 : -1});
}
Kernel make_layer_norm_backward(const sdk::op::layer_norm_backward& n, const sdk::Node& node) {
  return make_backward(false, n.axis, n.eps,
                       {.dy = n.dy,
                        .x = n.x,
                        .gamma = n.gamma,
                        .mean = n.mean,
                        .inv = n.inv_std,
                        .dsum = n.dsum,
                        .dx = n.want_dx ? 0 : -1,
                        .dgamma = n.want_dgamma ? 1 : -1,
                        .dbeta = n.want_dbeta ? 2 : -1},
                       node);
}
Kernel make_rms_norm_backward(const sdk::op::rms_norm_backward& n, const sdk::Node& node) {
  return make_backward(true, n.axis, n.eps,
                       {.dy = n.dy,
                        .x = n.x,
                        .gamma = n.gamma,
                        .mean = {},
                        .inv = n.inv_rms,
                        .dsum = n.dsum,
                        .dx = n.want_dx ? 0 : -1,
                        .dgamma = n.want_dgamma ? 1 : -1,
                        .dbeta = n.want_dbeta ? 2 : -1},
                       node);
}

std::span<const sdk::Row> norm_rows() { return kRows; }

}  // namespace tenon::cpu
