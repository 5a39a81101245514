// SPDX-License-Identifier: Apache-2.0
// swiglu and its gradient, with gate and up apart or packed.
#include <algorithm>

#include "../device.hpp"
#include "elementwise.hpp"
#include "entries.hpp"
#include "swiglu.hpp"
#include "vectors.hpp"

namespace tenon::cuda {
namespace {

using sdk::Call;
using sdk::Kernel;
using sdk::Node;
using sdk::Refusal;

struct Layout {
  args::Gated gated;
  int width = 1;                         // elements of a vector
  int64_t gate_bytes = 0, up_bytes = 0;  // of the first row, in a packed operand
};

Layout make_layout(const sdk::Value& gate, const sdk::Value& up, bool gate_first,
                   const sdk::Value& other, const sdk::Value& out) {
  const sdk::Type& g = gate.type();
  if (!is_float(g.dtype)) throw Refusal::dtype("gate", g.dtype);
  const int64_t size = element_bytes(g.dtype);
  Layout s;
  if (up) {
    s.width = common_width(size, g.elements(), {gate, up, other, out});
    s.gated.groups = s.gated.row = g.elements() / s.width;
    return s;
  }
  const int64_t width = g.rank == 0 ? 1 : g.dims[g.rank - 1], half = width / 2;
  s.width = common_width(size, half, {gate, other, out});
  s.gated = {g.elements() / 2 / s.width, half / s.width, width};
  (gate_first ? s.up_bytes : s.gate_bytes) = half * size;
  return s;
}

std::vector<std::string> defines(const std::string& act, tenon_dtype t, int width) {
  constexpr std::array<std::string_view, 5> kActs = {"silu", "gelu", "gelu_tanh", "relu",
                                                     "sigmoid"};
  if (!find_unary(act)) throw Refusal::unknown("unary kind", act);
  if (std::ranges::find(kActs, act) == kActs.end()) throw Refusal::attribute("act", act);
  return {"T=" + type_name("gate", t), "W=" + std::to_string(width), "ACT=" + act};
}

Grid grid_of(const Layout& s, const Node& node) {
  constexpr uint32_t kThreads = 256;
  return {.blocks = blocks_for(s.gated.groups, kThreads),
          .threads = kThreads,
          .early = device_of(node).properties().early_starts};
}

}  // namespace

Kernel make_swiglu(const sdk::op::swiglu& n, const Node& node) {
  const Layout s = make_layout(n.gate, n.up, n.gate_first, node.out(0), node.out(0));
  const auto code =
      device_of(node).code(entries::swiglu, defines(n.act, n.gate.type().dtype, s.width));
  const int gate = n.gate.position(), up = n.up ? n.up.position() : gate;
  Kernel kernel = kernel_of({code}, [=, grid = grid_of(s, node)](const Call& c) {
    const char* a = c.in<char>(gate) + s.gate_bytes;
    const char* b = c.in<char>(up) + s.up_bytes;
    code.launch(c, grid, a, b, c.outputs[0], s.gated);
  });
  if (n.up) kernel.in_place = {{gate, 0}, {up, 0}};
  return kernel;
}

Kernel make_swiglu_backward(const sdk::op::swiglu_backward& n, const Node& node) {
  if (n.up && !node.out(1)) throw Refusal::shape("swiglu_backward: dup is not wanted");
  Layout s = make_layout(n.gate, n.up, n.gate_first, n.dy, node.out(0));
  const auto code =
      device_of(node).code(entries::swiglu_backward, defines(n.act, n.gate.type().dtype, s.width));
  const bool packed = !n.up;
  const int dy = n.dy.position(), gate = n.gate.position(), up = packed ? gate : n.up.position();
  Kernel kernel = kernel_of({code}, [=, grid = grid_of(s, node)](const Call& c) {
    const char* a = c.in<char>(gate) + s.gate_bytes;
    const char* b = c.in<char>(up) + s.up_bytes;
    char* da = c.out<char>(0) + s.gate_bytes;
    char* db = c.out<char>(packed ? 0 : 1) + s.up_bytes;
    code.launch(c, grid, c.inputs[dy], a, b, da, db, s.gated);
  });
  // A thread reads all that it needs before it writes.
  kernel.in_place = {{gate, 0}};
  if (!packed) kernel.in_place = {{gate, 0}, {up, 0}, {dy, 0}, {gate, 1}, {up, 1}, {dy, 1}};
  return kernel;
}

}  // namespace tenon::cuda
