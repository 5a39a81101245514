// SPDX-License-Identifier: Apache-2.0
// sgd, adamw and lion: one pass over weight, gradient and moments, in place where the plan allows.
// A weight may be of half precision, its moments are of the accumulation type.
#include <algorithm>
#include <string>
#include <utility>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;
using sdk::Value;

using args::Scalar;
using Update = args::UpdateOf<void, void, void>;

// A number in the data.
struct Number {
  int position = -1;
  int32_t type = 0;

  Number(std::string_view name, const Value& v, std::initializer_list<tenon_dtype> taken) {
    if (!v) return;
    const tenon_dtype t = v.type().dtype;
    if (std::find(taken.begin(), taken.end(), t) == taken.end()) throw Refusal::dtype(name, t);
    if (v.type().elements() != 1)
      throw Refusal::shape("operand " + std::string(name) + " must be one number");
    position = v.position();
    type = t == TENON_DTYPE_F32   ? 1
           : t == TENON_DTYPE_F64 ? 2
           : t == TENON_DTYPE_I32 ? 3
           : t == TENON_DTYPE_I64 ? 4
                                  : 5;
  }
  Scalar at(const Call& c) const { return {c.in(position), type}; }
};
constexpr std::initializer_list<tenon_dtype> kReal = {TENON_DTYPE_F32, TENON_DTYPE_F64},
                                             kWhole = {TENON_DTYPE_I64, TENON_DTYPE_I32};

struct Operands {
  Value w, g;
  std::vector<std::pair<std::string_view, Value>> moments;
  Value lr, scale, apply, step;
};

// A gradient is of the weight's dtype or of f32, or of a half where the weight is an f32 master.
void check(const Operands& o) {
  const tenon_dtype w = o.w.type().dtype, g = o.g.type().dtype;
  if (!is_float(w)) throw Refusal::dtype("w", w);
  if (g != w && !(is_half(w) && g == TENON_DTYPE_F32) && !(w == TENON_DTYPE_F32 && is_half(g)))
    throw Refusal::dtype("g", g);
  if (!o.g.type().same_shape(o.w.type())) throw Refusal::shape("g must have the shape of w");
  for (const auto& [name, buffer] : o.moments) {
    if (!buffer) throw Refusal::shape("operand " + std::string(name) + " is needed");
    if (buffer.type().dtype != acc_dtype(w)) throw Refusal::dtype(name, buffer.type().dtype);
    if (!buffer.type().same_shape(o.w.type()))
      throw Refusal::shape("operand " + std::string(name) + " must have the shape of w");
  }
}

// Elements of a vector: whole accesses of every tensor, at most 16 bytes of the weight.
int64_t vector_of(const Operands& o, const Node& node) {
  const int64_t most = 16 / element_bytes(o.w.type().dtype);
  int64_t width = most;
  const auto limit = [&](const Value& v) {
    const int64_t size = element_bytes(v.type().dtype), bytes = std::min<int64_t>(16, width * size);
    if (v.alignment() == 0 || v.alignment() % static_cast<uint64_t>(bytes) != 0) width = 1;
  };
  limit(o.w), limit(o.g);
  for (const auto& [name, buffer] : o.moments) limit(buffer);
  for (size_t k = 0; k <= o.moments.size(); ++k)
    if (node.out(k)) limit(node.out(k));
  return width;
}

Kernel make(const std::string& rule, const Operands& o, Update u, const Node& node) {
  check(o);
  CudaDevice& device = device_of(node);
  const Number lr("lr", o.lr, kReal), scale("grad_scale", o.scale, kReal),
      apply("apply", o.apply, {TENON_DTYPE_BOOL}), step("step", o.step, kWhole);
  const int64_t width = vector_of(o, node);
  u.count = o.w.type().elements();
  const auto code = device.code(entries::update, {"T=" + type_name("w", o.w.type().dtype),
                                                  "G=" + type_name("g", o.g.type().dtype),
                                                  "V=" + std::to_string(width), "RULE=" + rule});
  constexpr uint32_t kThreads = 256;
  constexpr int64_t kBlocksEach = 16;  // of a multiprocessor
  const Grid grid{.blocks = std::min(blocks_for(u.count / width + u.count % width, kThreads),
                                     kBlocksEach * device.properties().multiprocessors),
                  .threads = kThreads,
                  .early = device.properties().early_starts};
  std::vector<int> moments;
  for (const auto& [name, buffer] : o.moments) moments.push_back(buffer.position());
  Kernel kernel = kernel_of({code}, [=](const Call& c) {
    Update now = u;
    now.w = c.inputs[0], now.g = c.inputs[1], now.w_out = c.outputs[0];
    for (size_t k = 0; k < moments.size(); ++k)
      now.moment[k] = c.inputs[moments[k]], now.moment_out[k] = c.outputs[k + 1];
    now.lr = lr.at(c), now.scale = scale.at(c), now.step = step.at(c), now.apply = apply.at(c);
    code.launch(c, grid, now);
  });
  kernel.in_place = {{0, 0}};
  for (size_t k = 0; k < moments.size(); ++k)
    kernel.in_place.push_back({moments[k], static_cast<int>(k) + 1});
  return kernel;
}

Kernel make_sgd(const sdk::op::sgd& n, const Node& node) {
  const bool momentum = n.momentum != 0;
  if (momentum != n.want_momentum_buf_out)
    throw Refusal::shape("output momentum_buf_out goes with momentum");
  Operands o{n.w, n.g, {}, n.lr, n.grad_scale, n.apply, n.step};
  if (momentum) o.moments.push_back({"momentum_buf", n.momentum_buf});
  Update u;
  u.decay = n.weight_decay;
  u.keep[0] = n.momentum, u.take[0] = 1 - n.dampening;
  u.look_ahead = n.momentum, u.nesterov = n.nesterov;
  return make(momentum ? "momentum" : "sgd", o, u, node);
}

Update moments_of(double beta1, double beta2, double decay) {
  Update u;
  u.keep[0] = beta1, u.take[0] = 1 - beta1;
  u.keep[1] = beta2, u.take[1] = 1 - beta2;
  u.decay = decay;
  return u;
}

Kernel make_adamw(const sdk::op::adamw& n, const Node& node) {
  Update u = moments_of(n.beta1, n.beta2, n.weight_decay);
  u.eps = n.eps;
  return make("adamw", {n.w, n.g, {{"m", n.m}, {"v", n.v}}, n.lr, n.grad_scale, n.apply, n.step}, u,
              node);
}

Kernel make_lion(const sdk::op::lion& n, const Node& node) {
  return make("lion", {n.w, n.g, {{"m", n.m}}, n.lr, n.grad_scale, n.apply, {}},
              moments_of(n.beta1, n.beta2, n.weight_decay), node);
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::sgd, make_sgd>(),
    sdk::row<sdk::op::adamw, make_adamw>(),
    sdk::row<sdk::op::lion, make_lion>(),
};

}  // namespace

std::span<const sdk::Row> optimizer_rows() { return kRows; }

}  // namespace tenon::cuda
