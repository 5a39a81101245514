// SPDX-License-Identifier: Apache-2.0
// group_limited_gate: a warp for each token. Its backward op is decomposed: it reads and writes few
// elements beside elementwise steps.
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

sdk::Kernel make_gate(const sdk::op::group_limited_gate& n, const sdk::Node& node) {
  const sdk::Type& x = n.logits.type();
  if (!is_float(x.dtype) || x.dtype == TENON_DTYPE_F64) throw Refusal::dtype("logits", x.dtype);
  if (n.n_group > 32) throw Refusal::attribute("n_group", std::to_string(n.n_group));
  if (n.top_k > 32) throw Refusal::attribute("top_k", std::to_string(n.top_k));
  if (x.dims[1] > 4096) throw Refusal::shape("more than 4096 experts");
  int score = 0;
  if (n.score == "softmax")
    score = 1;
  else if (n.score == "identity")
    score = 2;
  else if (n.score != "sigmoid")
    throw Refusal::attribute("score", n.score);
  const args::Gate g{.tokens = x.dims[0],
                     .experts = static_cast<int32_t>(x.dims[1]),
                     .groups = static_cast<int32_t>(n.n_group),
                     .kept = static_cast<int32_t>(n.topk_group),
                     .chosen = static_cast<int32_t>(n.top_k),
                     .scaling = static_cast<float>(n.routed_scaling),
                     .by_max = n.group_score == "max",
                     .normalize = n.normalize && n.top_k > 1};
  CudaDevice& device = device_of(node);
  constexpr int64_t kWarps = 4;
  const int64_t shared = kWarps * 2 * x.dims[1] * 4;
  if (shared > device.properties().shared_room("gate.cu", "route"))
    throw Refusal::shape("the experts do not fit shared memory");
  const auto code = device.code(entries::gate_route,
                                {"TYPE=" + type_name("logits", x.dtype), define("SCORE", score)},
                                static_cast<uint32_t>(shared));
  const Grid grid{.blocks = launchable(blocks_for(g.tokens, kWarps)),
                  .threads = 32 * kWarps,
                  .shared = static_cast<uint32_t>(shared)};
  return kernel_of({code}, [=, bias = n.bias.position()](const sdk::Call& c) {
    code.launch(c, grid, c.inputs[0], static_cast<const float*>(c.in(bias)),
                static_cast<int32_t*>(c.outputs[0]), static_cast<float*>(c.outputs[1]), g);
  });
}

constexpr sdk::Row kRows[] = {sdk::row<sdk::op::group_limited_gate, make_gate>()};

}  // namespace

std::span<const sdk::Row> gate_rows() { return kRows; }

}  // namespace tenon::cuda
