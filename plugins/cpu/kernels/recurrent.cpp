// SPDX-License-Identifier: Apache-2.0
// lstm and gru: all steps of a layer in one kernel. The weights of the recurrence are packed once,
// where no run changes them, so that a step reads them in memory order.
#include "recurrent.hpp"

#include <algorithm>
#include <string>

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "blocks.hpp"
#include "gemm_core.hpp"
#include "index_policy.hpp"

namespace tenon::cpu {
namespace {

constexpr double kStepFlops = 1e6;  // least work of a step that is worth several threads
constexpr int64_t kBlockRows = 4;   // least sequences of a thread: each thread reads all weights

struct Layer {
  Cell cell{};
  int64_t steps = 0, batch = 0, hidden = 0, directions = 1, gates = 0, panels = 0;
  bool reverse = false;  // of one direction
  int64_t gate[kMostGates] = {};
  int x = -1, r = -1, n_bias = -1, h0 = -1, c0 = -1, lengths = -1;  // positions
  int y = -1, h = -1, c = -1;
  bool packed = false;  // r arrives packed
  tenon_dtype index = TENON_DTYPE_NONE;

  int64_t state() const { return directions * batch * hidden; }
  double flops() const {
    return 2.0 * static_cast<double>(steps * batch * directions * gates) *
           static_cast<double>(hidden * hidden);
  }
  int64_t packed_floats() const { return directions * gates * panels * hidden * recurrent_lanes(); }
  // Scratch: two states of h, one of c, lengths, and packed weights unless they arrive.
  uint64_t lengths_at() const {
    return aligned(static_cast<uint64_t>(3 * state()) * sizeof(float));
  }
  uint64_t weights_at() const { return lengths_at() + aligned(static_cast<uint64_t>(batch) * 8); }
  uint64_t scratch() const {
    return weights_at() + (packed ? 0 : static_cast<uint64_t>(packed_floats()) * sizeof(float));
  }

  void pack(const float* from, float* to) const {
    const int64_t lanes = recurrent_lanes(), each = panels * hidden * lanes;
    parallel_for(directions * gates, grain_for(each * 8), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        gemm_pack(TENON_DTYPE_F32, from + (k / gates * gates * hidden + gate[k % gates]) * hidden,
                  hidden, 1, hidden, hidden, lanes, hidden, to + k * each);
    });
  }
};

// A layer at the addresses of a run.
class LayerRun {
 public:
  LayerRun(const Layer& layer, const sdk::Call& call)
      : l_(layer),
        call_(call),
        h_(at<float>(0)),
        c_(h_ + 2 * l_.state()),
        ends_(at<int64_t>(l_.lengths_at())),
        weights_(call.in<float>(l_.r)) {}

  void run() {
    start(l_.h0, h_);
    if (l_.cell == Cell::lstm) start(l_.c0, c_);
    if (l_.lengths >= 0)
      with_indices(l_.index, call_.inputs[l_.lengths],
                   [&](const auto* given) { std::copy_n(given, l_.batch, ends_); });
    if (!l_.packed) {
      float* const own = at<float>(l_.weights_at());
      l_.pack(weights_, own);
      weights_ = own;
    }
    run_steps();
    if (l_.h >= 0) std::copy_n(h_ + l_.steps % 2 * l_.state(), l_.state(), call_.out<float>(l_.h));
    if (l_.c >= 0) std::copy_n(c_, l_.state(), call_.out<float>(l_.c));
  }

 private:
  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(call_.scratch) + offset);
  }
  void start(int given, float* to) const {
    if (given >= 0)
      std::copy_n(call_.in<float>(given), l_.state(), to);
    else
      std::fill_n(to, l_.state(), 0.f);
  }

  // Sequences are independent: each thread takes some through all steps. Where they are too few for
  // the threads and a step is long, the threads share the units of each step instead.
  void run_steps() const {
    const int64_t threads = width(), directions = l_.directions, panels = l_.panels;
    const int64_t blocks =
        std::clamp<int64_t>(threads / directions, 1, std::max<int64_t>(l_.batch / kBlockRows, 1));
    const double work = l_.flops() / static_cast<double>(std::max<int64_t>(l_.steps, 1));
    if (work >= kStepFlops && directions * blocks < threads) {
      for (int64_t k = 0; k < l_.steps; ++k)
        parallel_for(directions * panels, 1, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end;) {
            const int64_t d = p / panels, last = std::min(end, (d + 1) * panels);
            step(d, k, 0, l_.batch, p - d * panels, last - d * panels);
            p = last;
          }
        });
      return;
    }
    const auto cost = static_cast<int64_t>(l_.flops() / 2) / (directions * blocks);
    parallel_for(directions * blocks, grain_for(cost), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        for (int64_t k = 0; k < l_.steps; ++k)
          step(p / blocks, k, l_.batch * (p % blocks) / blocks,
               l_.batch * (p % blocks + 1) / blocks, 0, panels);
    });
  }

  // Step k of direction d.
  void step(int64_t d, int64_t k, int64_t first_row, int64_t end_row, int64_t first_panel,
            int64_t end_panel) const {
    const int64_t t = l_.reverse || d == 1 ? l_.steps - 1 - k : k;
    const int64_t own = d * l_.batch * l_.hidden, row = t * l_.batch * l_.directions + d;
    RecurrentStep s{.cell = l_.cell,
                    .hidden = l_.hidden,
                    .x = call_.in<float>(l_.x) + row * l_.gates * l_.hidden,
                    .x_row = l_.directions * l_.gates * l_.hidden,
                    .r = weights_ + d * (l_.packed_floats() / l_.directions),
                    .n_bias = l_.n_bias < 0 ? nullptr : call_.in<float>(l_.n_bias) + d * l_.hidden,
                    .h = h_ + k % 2 * l_.state() + own,
                    .next_h = h_ + (k + 1) % 2 * l_.state() + own,
                    .c = c_ + own,
                    .y = call_.out<float>(l_.y) + row * l_.hidden,
                    .y_row = l_.directions * l_.hidden,
                    .lengths = l_.lengths < 0 ? nullptr : ends_,
                    .t = t};
    std::copy_n(l_.gate, kMostGates, s.gate);
    recurrent_step(s, first_row, end_row, first_panel, end_panel);
  }

  const Layer& l_;
  const sdk::Call& call_;
  float *const h_, *const c_;  // two states of h: each step reads one and writes the other
  int64_t* const ends_;
  const float* weights_;
};

template <class Op>
sdk::Kernel make_layer(const Op& n, const sdk::Node& node, Cell cell, std::string_view names) {
  const sdk::Type &x = n.x.type(), &r = n.r.type();
  if (x.dtype != TENON_DTYPE_F32) throw sdk::Refusal::dtype("x", x.dtype);
  Layer layer{.cell = cell,
              .steps = x.dims[0],
              .batch = x.dims[1],
              .hidden = r.dims[2],
              .directions = r.dims[0],
              .gates = gates_of(cell)};
  layer.reverse = n.direction == "reverse";
  layer.panels = (layer.hidden + recurrent_lanes() - 1) / recurrent_lanes();
  for (size_t g = 0; g < names.size(); ++g)
    layer.gate[g] = static_cast<int64_t>(n.gates.find(names[g])) * layer.hidden;
  layer.x = n.x.position(), layer.r = n.r.position();
  layer.h0 = n.h0.position(), layer.lengths = n.lengths.position();
  if (n.lengths) layer.index = n.lengths.type().dtype;
  layer.y = node.out(0).position(), layer.h = node.out(1).position();
  if constexpr (requires { n.c0; })
    layer.c0 = n.c0.position(), layer.c = node.out(2).position();
  else
    layer.n_bias = n.n_bias.position();

  sdk::Kernel kernel;
  if (n.r.frozen() && layer.packed_floats() > 0) {
    const Layer packer = layer;
    std::string layout = "recurrent " + std::to_string(recurrent_lanes());
    for (int64_t g = 0; g < layer.gates; ++g) layout += " " + std::to_string(layer.gate[g]);
    layer.packed = true;
    kernel.derived.push_back(
        {n.r.position(), layout, static_cast<uint64_t>(layer.packed_floats()) * sizeof(float),
         [packer](const void* dense, void* packed) {
           packer.pack(static_cast<const float*>(dense), static_cast<float*>(packed));
         }});
  }
  kernel.scratch = layer.scratch();
  kernel.cost = layer.flops() / 1e11;
  kernel.run = [layer](const sdk::Call& call) { LayerRun(layer, call).run(); };
  return kernel;
}

sdk::Kernel make_lstm(const sdk::op::lstm& n, const sdk::Node& node) {
  return make_layer(n, node, Cell::lstm, "ifgo");
}
sdk::Kernel make_gru(const sdk::op::gru& n, const sdk::Node& node) {
  // The candidate of the other form multiplies the weights by a state that needs r of all units.
  if (!n.reset_after) throw sdk::Refusal::attribute("reset_after", "false");
  return make_layer(n, node, Cell::gru, "rzn");
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::lstm, make_lstm>(),
    sdk::row<sdk::op::gru, make_gru>(),
};

}  // namespace

std::span<const sdk::Row> recurrent_rows() { return kRows; }

}  // namespace tenon::cpu
