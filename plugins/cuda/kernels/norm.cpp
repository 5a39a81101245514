// SPDX-License-Identifier: Apache-2.0
// layer_norm, rms_norm, their residual forms and backward ops: checks, and how a row lies in
// registers. Parameter gradients are summed per group of lanes, then over the groups.
#include <algorithm>
#include <cmath>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Type;
using sdk::Value;

// device/norm.cu mirrors it.
struct Shape {
  int64_t rows;
  double eps;
  uint32_t n;
};

// x as rows of n elements, axes [axis, rank) being normalized.
struct Rows {
  tenon_dtype dtype{}, acc{};
  Shape shape{};
  int64_t lanes = 32, chunks = 1, vec = 1;

  Rows(const Value& x, int64_t given_axis, double eps)
      : dtype(x.type().dtype), acc(acc_dtype(dtype)) {
    const Type& t = x.type();
    if (!is_float(dtype)) throw Refusal::dtype("x", dtype);
    if (!(eps >= 0) || std::isinf(eps)) throw Refusal::attribute("eps", std::to_string(eps));
    const int axis = along_axis(t, given_axis).axis;
    int64_t rows = 1, n = 1;
    for (int i = 0; i < t.rank; ++i) (i < axis ? rows : n) *= t.dims[i];
    if (n >= kNarrowIndex) throw Refusal::shape("rows are too long for one kernel");
    shape = {rows, eps, static_cast<uint32_t>(n)};
  }
  // Puts a row into registers, `most` elements in each lane; `read` are the operands that are read
  // as vectors.
  void choose_lanes(int64_t most, std::initializer_list<const Value*> read) {
    const int64_t bytes = type_bytes(dtype), n = shape.n;
    vec = 16 / bytes;
    for (const Value* v : read)
      if (n % vec != 0 || (*v && v->alignment() % 16 != 0)) vec = 1;
    const int64_t vectors = n / vec;
    for (lanes = 32; lanes * (most / vec) < vectors; lanes = lanes == 32 ? 256 : lanes * 2)
      if (lanes == 1024)
        throw Refusal::shape("rows of " + std::to_string(n) + " elements do not fit on chip");
    chunks = std::max<int64_t>((vectors + lanes - 1) / lanes, 1);
  }
  std::vector<std::string> defines(bool rms, const Value& gamma, const Value& beta,
                                   const Value& bias) const {
    const auto type_of = [&](const char* name, const char* operand, const Value& v) {
      return std::string(name) + "=" + type_name(operand, v ? v.type().dtype : dtype);
    };
    return {"TYPE=" + type_name("x", dtype),
            type_of("GAMMA", "gamma", gamma),
            type_of("BETA", "beta", beta),
            type_of("BIAS", "bias", bias),
            define("LANES", lanes),
            define("CHUNKS", chunks),
            define("VEC", vec),
            define("RMS", rms)};
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
    if (v.type().elements() != shape.n)
      throw Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                           " elements, the normalized dims have " + std::to_string(shape.n));
  }
  void check_statistic(std::string_view name, const Value& v) const {
    if (!v) return;
    if (v.type().dtype != acc) throw Refusal::dtype(name, v.type().dtype);
    if (v.type().elements() != shape.rows)
      throw Refusal::shape(std::string(name) + " has " + std::to_string(v.type().elements()) +
                           " elements, x has " + std::to_string(shape.rows) + " rows");
  }
};

int position_of(const Value& v) { return v ? v.position() : -1; }
const void* input(const Call& c, int k) { return k < 0 ? nullptr : c.inputs[k]; }
void* output(const Call& c, int k) { return k < 0 ? nullptr : c.outputs[k]; }

struct ForwardParts {
  Value x{}, residual{}, bias{}, gamma{}, beta{};
  int sum = -1, mean = -1, inv = -1;  // output positions, -1 = not wanted
};

Kernel make_forward(bool rms, int64_t axis, double eps, const ForwardParts& p, const Node& node) {
  Rows rows(p.x, axis, eps);
  rows.check_same("residual", p.x, p.residual);
  rows.check_parameter("bias", p.bias);
  rows.check_parameter("gamma", p.gamma);
  rows.check_parameter("beta", p.beta);
  rows.choose_lanes(rows.acc == TENON_DTYPE_F64 ? 16 : 32,
                    {&p.x, &p.residual, &p.bias, &p.gamma, &p.beta});
  std::vector<std::string> defines = rows.defines(rms, p.gamma, p.beta, p.bias);
  defines.push_back("OUT=f32");
  defines.push_back("PARAMETERS=0");
  const Code code = device_of(node).code("norm.cu", "forward", defines);
  const Grid grid = line_grid(rows.shape.rows, rows.lanes);
  Kernel kernel = kernel_of(
      {code}, [=, x = p.x.position(), residual = position_of(p.residual),
               bias = position_of(p.bias), gamma = position_of(p.gamma), beta = position_of(p.beta),
               sum = p.sum, mean = p.mean, inv = p.inv, shape = rows.shape](const Call& c) {
        code.launch(c, grid, c.inputs[x], input(c, residual), input(c, bias), input(c, gamma),
                    input(c, beta), c.outputs[0], output(c, sum), output(c, mean), output(c, inv),
                    shape);
      });
  for (const int from : {p.x.position(), position_of(p.residual)}) {
    if (from < 0) continue;
    kernel.in_place.push_back({from, 0});
    if (p.sum >= 0) kernel.in_place.push_back({from, p.sum});
  }
  return kernel;
}

struct BackwardParts {
  Value dy{}, x{}, gamma{}, mean{}, inv{}, dsum{};
  int dx = -1, dgamma = -1, dbeta = -1;
};

// A parameter's gradient: where the groups' sums lie and the kernel that joins them.
struct Gradient {
  int position = -1;
  uint64_t offset = 0;
  Code code{};
};

Kernel make_backward(bool rms, int64_t axis, double eps, const BackwardParts& p, const Node& node) {
  Rows rows(p.x, axis, eps);
  rows.check_same("dy", p.x, p.dy);
  rows.check_same("dsum", p.x, p.dsum);
  rows.check_parameter("gamma", p.gamma);
  rows.check_statistic("mean", p.mean);
  rows.check_statistic(rms ? "inv_rms" : "inv_std", p.inv);
  rows.choose_lanes(rows.acc == TENON_DTYPE_F64 ? 8 : 16, {&p.x, &p.dy, &p.gamma, &p.dsum});
  CudaDevice& device = device_of(node);
  const std::vector<std::string> defines = rows.defines(rms, p.gamma, {}, {});
  const auto code_of = [&](const char* entry, tenon_dtype out, bool parameters) {
    std::vector<std::string> all = defines;
    all.push_back("OUT=" + type_name("dgamma", out));
    all.push_back(define("PARAMETERS", parameters));
    return device.code("norm.cu", entry, all);
  };
  // As many groups as are at work at once; each leaves one row of sums.
  const int64_t resident = device.properties().multiprocessors * (rows.lanes <= 256 ? 3 : 1);
  Grid grid = line_grid(rows.shape.rows, rows.lanes);
  grid.blocks = std::min(grid.blocks, resident);
  const int64_t groups = grid.blocks * groups_per_block(rows.lanes);
  uint64_t scratch = 0;
  const auto gradient_of = [&](const char* name, int output) {
    Gradient g{.position = output};
    if (output < 0) return g;
    const tenon_dtype t = node.out(static_cast<size_t>(output)).type().dtype;
    if (t != TENON_DTYPE_F32 && t != rows.dtype) throw Refusal::dtype(name, t);
    g.offset =
        take_scratch(scratch, static_cast<uint64_t>(groups * rows.shape.n * type_bytes(rows.acc)));
    g.code = code_of("parameters", t, true);
    return g;
  };
  const Gradient dgamma = gradient_of("dgamma", p.dgamma), dbeta = gradient_of("dbeta", p.dbeta);
  const bool parameters = p.dgamma >= 0 || p.dbeta >= 0;
  const Code code = code_of("backward", TENON_DTYPE_F32, parameters);
  std::vector<Code> codes = {code};
  for (const Gradient* g : {&dgamma, &dbeta})
    if (g->position >= 0) codes.push_back(g->code);
  Kernel kernel =
      kernel_of(codes, [=, dy = p.dy.position(), x = p.x.position(), gamma = position_of(p.gamma),
                        mean = position_of(p.mean), inv = position_of(p.inv),
                        dsum = position_of(p.dsum), dx = p.dx, shape = rows.shape](const Call& c) {
        const auto sums = [&](const Gradient& g) {
          return g.position < 0 ? nullptr : scratch_at(c, g.offset);
        };
        code.launch(c, grid, c.inputs[dy], c.inputs[x], input(c, gamma), input(c, mean),
                    input(c, inv), input(c, dsum), output(c, dx), sums(dgamma), sums(dbeta), shape);
        for (const Gradient* g : {&dgamma, &dbeta})
          if (g->position >= 0)
            g->code.launch(c, {.blocks = blocks_for(shape.n, 32), .threads = 1024}, sums(*g),
                           c.outputs[g->position], groups, shape.n);
      });
  kernel.scratch = scratch;
  if (p.dx >= 0)
    for (const int from : {p.dy.position(), p.x.position(), position_of(p.dsum)})
      if (from >= 0) kernel.in_place.push_back({from, p.dx});
  return kernel;
}

Kernel make_layer_norm(const sdk::op::layer_norm& n, const Node& node) {
  return make_forward(false, n.axis, n.eps,
                      {.x = n.x,
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .mean = n.want_mean ? 1 : -1,
                       .inv = n.want_inv_std ? 2 : -1},
                      node);
}
Kernel make_residual_layer_norm(const sdk::op::residual_layer_norm& n, const Node& node) {
  return make_forward(false, n.axis, n.eps,
                      {.x = n.x,
                       .residual = n.residual,
                       .bias = n.bias,
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .sum = n.want_sum ? 1 : -1,
                       .mean = n.want_mean ? 2 : -1,
                       .inv = n.want_inv_std ? 3 : -1},
                      node);
}
Kernel make_rms_norm(const sdk::op::rms_norm& n, const Node& node) {
  return make_forward(true, n.axis, n.eps,
                      {.x = n.x, .gamma = n.gamma, .beta = n.beta, .inv = n.want_inv_rms ? 1 : -1},
                      node);
}
Kernel make_residual_rms_norm(const sdk::op::residual_rms_norm& n, const Node& node) {
  return make_forward(true, n.axis, n.eps,
                      {.x = n.x,
                       .residual = n.residual,
                       .bias = n.bias,
                       .gamma = n.gamma,
                       .beta = n.beta,
                       .sum = n.want_sum ? 1 : -1,
                       .inv = n.want_inv_rms ? 2 : -1},
                      node);
}
Kernel make_layer_norm_backward(const sdk::op::layer_norm_backward& n, const Node& node) {
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
Kernel make_rms_norm_backward(const sdk::op::rms_norm_backward& n, const Node& node) {
  return make_backward(true, n.axis, n.eps,
                       {.dy = n.dy,
                        .x = n.x,
                        .gamma = n.gamma,
                        .inv = n.inv_rms,
                        .dsum = n.dsum,
                        .dx = n.want_dx ? 0 : -1,
                        .dgamma = n.want_dgamma ? 1 : -1,
                        .dbeta = n.want_dbeta ? 2 : -1},
                       node);
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

std::span<const sdk::Row> norm_rows() { return kRows; }

}  // namespace tenon::cuda
