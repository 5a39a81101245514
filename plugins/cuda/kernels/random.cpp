// SPDX-License-Identifier: Apache-2.0
// random_bits, random_uniform, random_normal and dropout. Element i of a result depends on seed,
// offset and i alone. sample is in random_sample.cpp.
#include "random.hpp"

#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"

namespace tenon::cuda {

namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

// elements: of a block of words.
Kernel make_draw(const std::string& name, const Node& node, int rng, int x, double p,
                 int64_t elements) {
  const sdk::Type& y = node.out(0).type();
  const args::RandomSource s{.p = p, .count = y.elements()};
  const auto code =
      device_of(node).code(entries::draw, {"DRAW=" + name, "T=" + type_name("y", y.dtype)});
  constexpr uint32_t kThreads = 256;
  return kernel_of({code}, [=](const Call& c) {
    args::RandomSource now = s;
    now.rng = c.in<uint64_t>(rng);
    now.x = c.in(x);
    code.launch(c, {.blocks = blocks_for(s.count, elements * kThreads), .threads = kThreads},
                c.outputs[0], now);
  });
}

Kernel make_random_bits(const sdk::op::random_bits& n, const Node& node) {
  return make_draw("bits", node, n.rng.position(), -1, 0, 4);
}

Kernel make_real(const char* name, const sdk::Value& rng, const Node& node) {
  const tenon_dtype t = node.out(0).type().dtype;
  if (t != TENON_DTYPE_F32 && t != TENON_DTYPE_F64)
    throw Refusal::attribute("dtype", sdk::dtype_name(t));
  return make_draw(name, node, rng.position(), -1, 0, 16 / element_bytes(t));
}
Kernel make_random_uniform(const sdk::op::random_uniform& n, const Node& node) {
  return make_real("uniform", n.rng, node);
}
Kernel make_random_normal(const sdk::op::random_normal& n, const Node& node) {
  return make_real("normal", n.rng, node);
}

Kernel make_dropout(const sdk::op::dropout& n, const Node& node) {
  if (!is_float(n.x.type().dtype)) throw Refusal::dtype("x", n.x.type().dtype);
  Kernel kernel = make_draw("dropout", node, n.rng.position(), n.x.position(), n.p, 4);
  kernel.in_place = {{n.x.position(), 0}};
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::random_bits, make_random_bits>(),
    sdk::row<sdk::op::random_uniform, make_random_uniform>(),
    sdk::row<sdk::op::random_normal, make_random_normal>(),
    sdk::row<sdk::op::dropout, make_dropout>(),
    sdk::row<sdk::op::sample, make_sample>(),
};

}  // namespace

std::span<const sdk::Row> random_rows() { return kRows; }

}  // namespace tenon::cuda
