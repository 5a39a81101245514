// SPDX-License-Identifier: Apache-2.0
// sample: temperature, top-k, top-p, min-p and the draw, a block to a row.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "../device.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "random.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Refusal;

}  // namespace

Kernel make_sample(const sdk::op::sample& n, const sdk::Node& node) {
  const sdk::Type& x = n.logits.type();
  if (!is_float(x.dtype)) throw Refusal::dtype("logits", x.dtype);
  if (x.dims[1] >= kNarrowIndex || x.dims[0] >= kNarrowIndex)
    throw Refusal::shape("logits have too many rows or columns for one kernel");
  // f32 holds no temperature below 1e-38, and 1e-30 already leaves only the greatest.
  constexpr double kColdest = 1e-30;
  const auto columns = static_cast<uint32_t>(x.dims[1]);
  const args::Sample s{
      .rows = x.dims[0],
      .columns = columns,
      .top_k = n.top_k < x.dims[1] ? static_cast<uint32_t>(n.top_k) : 0,
      .top_p = n.top_p,
      .temperature =
          n.temperature == 0 ? 0.0f : static_cast<float>(std::max(n.temperature, kColdest)),
      .min_p = static_cast<float>(n.min_p),
      // As fine as a row of weights of 1 allows.
      .fraction = 63 - static_cast<int32_t>(std::bit_width(columns)),
  };
  const uint32_t threads = columns <= 4096 ? 256 : 1024;
  const auto code = device_of(node).code(
      entries::sample, {"TYPE=" + type_name("logits", x.dtype), define("THREADS", threads)});
  Kernel kernel = kernel_of({code}, [=, x = n.logits.position(), rng = n.rng.position(),
                                     want_logprob = n.want_logprob](const Call& c) {
    code.launch(c, {.blocks = s.rows, .threads = threads}, c.inputs[x], c.in<uint64_t>(rng),
                c.outputs[0], want_logprob ? c.outputs[1] : nullptr, s, error_sink(c));
  });
  kernel.can_fail = true;
  return kernel;
}

}  // namespace tenon::cuda
