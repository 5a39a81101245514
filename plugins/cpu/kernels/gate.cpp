// SPDX-License-Identifier: Apache-2.0
// group_limited_gate group_limited_gate_backward. Each thread takes some of the tokens.
#include "gate.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "convert.hpp"
#include "index_policy.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

GateScore score_of(const std::string& name) {
  if (name == "sigmoid") return GateScore::sigmoid;
  if (name == "softmax") return GateScore::softmax;
  if (name == "identity") return GateScore::identity;
  throw sdk::Refusal::attribute("score", name);
}

void want_floats(tenon_dtype t) {
  if (!is_float(t) || t == TENON_DTYPE_F64) throw sdk::Refusal::dtype("logits", t);
}

sdk::Kernel make_gate(const sdk::op::group_limited_gate& n, const sdk::Node&) {
  const sdk::Type& x = n.logits.type();
  want_floats(x.dtype);
  const Gate gate{.dtype = x.dtype,
                  .experts = x.dims[1],
                  .groups = n.n_group,
                  .kept_groups = n.topk_group,
                  .chosen = n.top_k,
                  .scaling = static_cast<float>(n.routed_scaling),
                  .score = score_of(n.score),
                  .by_max = n.group_score == "max",
                  .normalize = n.normalize && n.top_k > 1};
  const auto area = gate.area() * static_cast<int64_t>(sizeof(float));
  const Slots slots = make_slots(x.dims[0], area, 16 * gate.experts);
  const int64_t row = gate.experts * element_bytes(x.dtype);
  sdk::Kernel kernel{.scratch = slots.scratch()};
  kernel.run = [=, bias = n.bias.position()](const sdk::Call& c) {
    const float* const shift = bias < 0 ? nullptr : c.in<float>(bias);
    slots.run(c.scratch, [&](int64_t begin, int64_t end, char* work) {
      for (int64_t t = begin; t < end; ++t)
        gate_token(gate, c.in<char>(0) + t * row, shift, reinterpret_cast<float*>(work),
                   c.out<int32_t>(0) + t * gate.chosen, c.out<float>(1) + t * gate.chosen);
    });
  };
  return kernel;
}

struct Backward {
  int64_t tokens, experts, chosen;
  IndexAxis axis;  // of the experts
  float scaling;
  bool sigmoid, normalize;

  // scores: room for `chosen` of them.
  template <class T, class Index>
  void token(const float* dy, const T* logits, const Index* index, float* scores, T* dx) const {
    std::fill_n(dx, experts, T{});
    float total = 1e-20f, mean = 0;
    for (int64_t j = 0; j < chosen; ++j) {
      const float x = to_float(logits[axis.resolve(index[j])]);
      scores[j] = sigmoid ? 1 / (1 + std::exp(-x)) : x;
      total += scores[j];
      mean += dy[j] * scores[j];
    }
    for (int64_t j = 0; j < chosen; ++j) {
      const float s = scores[j];
      float ds = normalize ? (dy[j] - mean / total) / total : dy[j];
      ds *= scaling;
      T& to = dx[axis.resolve(index[j])];
      from_float(to_float(to) + (sigmoid ? ds * s * (1 - s) : ds), &to);
    }
  }
};

sdk::Kernel make_gate_backward(const sdk::op::group_limited_gate_backward& n, const sdk::Node&) {
  const sdk::Type& x = n.logits.type();
  want_floats(x.dtype);
  const GateScore score = score_of(n.score);
  if (score == GateScore::softmax) throw sdk::Refusal::attribute("score", n.score);
  const Backward work{.tokens = x.dims[0],
                      .experts = x.dims[1],
                      .chosen = n.index.type().dims[1],
                      .axis = {.axis = 1, .length = x.dims[1]},
                      .scaling = static_cast<float>(n.routed_scaling),
                      .sigmoid = score == GateScore::sigmoid,
                      .normalize = n.normalize};
  const Slots slots = make_slots(work.tokens, work.chosen * static_cast<int64_t>(sizeof(float)),
                                 work.experts * element_bytes(x.dtype) + 16 * work.chosen);
  sdk::Kernel kernel{.scratch = slots.scratch()};
  kernel.run = [=, dtype = x.dtype, type = n.index.type().dtype, dy = n.dy.position(),
                logits = n.logits.position(), index = n.index.position()](const sdk::Call& c) {
    with_indices(type, c.inputs[index], [&](const auto* at) {
      work.axis.check(at, work.tokens * work.chosen);
      with_f32_or_half(dtype, [&]<class T>(T) {
        slots.run(c.scratch, [&](int64_t begin, int64_t end, char* area) {
          for (int64_t t = begin; t < end; ++t)
            work.token(c.in<float>(dy) + t * work.chosen, c.in<T>(logits) + t * work.experts,
                       at + t * work.chosen, reinterpret_cast<float*>(area),
                       c.out<T>(0) + t * work.experts);
        });
      });
    });
  };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::group_limited_gate, make_gate>(),
    sdk::row<sdk::op::group_limited_gate_backward, make_gate_backward>(),
};

}  // namespace

std::span<const sdk::Row> gate_rows() { return kRows; }

}  // namespace tenon::cpu
