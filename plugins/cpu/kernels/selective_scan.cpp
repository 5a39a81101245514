// SPDX-License-Identifier: Apache-2.0
// selective_scan selective_scan_backward. A block of channels, one in each lane of a vector, goes
// through all steps by itself. Threads share the blocks of all sequences.
#include "selective_scan.hpp"

#include "../kernels.hpp"
#include "../parallel.hpp"
#include "convert.hpp"
#include "slots.hpp"

namespace tenon::cpu {
namespace {

constexpr int64_t kStepCost = 30;  // of a state's step, for grain_for

// The positions of the operands that both ops have, and b and c as floats [B, G, N, L].
struct Operands {
  int u, dt, a, b, c, d, z, dt_bias, h0;
  bool shared_as_given;  // b and c are such floats

  template <class Op>
  explicit Operands(const Op& n, const Scan& s)
      : u(n.u.position()),
        dt(n.dt.position()),
        a(n.a.position()),
        b(n.b.position()),
        c(n.c.position()),
        d(n.d.position()),
        z(n.z.position()),
        dt_bias(n.dt_bias.position()),
        h0(n.h0.position()),
        shared_as_given(s.dtype == TENON_DTYPE_F32 && (s.bdl || s.groups * s.states == 1)) {}

  uint64_t scratch(const Scan& s) const {
    return shared_as_given ? 0 : 2 * aligned(shared_floats(s) * 4);
  }
  static int64_t shared_floats(const Scan& s) { return s.batch * s.groups * s.states * s.steps; }
  ScanOperands at(const Scan& s, const sdk::Call& call, char* scratch) const {
    return {.u = call.in(u),
            .dt = call.in(dt),
            .z = call.in(z),
            .a = call.in<float>(a),
            .b = shared(s, call, b, scratch),
            .c = shared(s, call, c, scratch + scratch_of_one(s)),
            .d = call.in<float>(d),
            .dt_bias = call.in<float>(dt_bias),
            .h0 = call.in<float>(h0)};
  }

 private:
  uint64_t scratch_of_one(const Scan& s) const {
    return shared_as_given ? 0 : aligned(shared_floats(s) * 4);
  }
  const float* shared(const Scan& s, const sdk::Call& call, int k, char* scratch) const {
    if (shared_as_given) return call.in<float>(k);
    float* const to = reinterpret_cast<float*>(scratch);
    const int64_t rows = s.groups * s.states;
    with_f32_or_half(s.dtype, [&]<class T>(T) {
      const T* const from = call.in<T>(k);
      parallel_for(s.batch * rows, grain_for(4 * s.steps), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* const own =
              s.bdl ? from + i * s.steps : from + i / rows * rows * s.steps + i % rows;
          const int64_t pitch = s.bdl ? 1 : rows;
          for (int64_t t = 0; t < s.steps; ++t) to[i * s.steps + t] = to_float(own[t * pitch]);
        }
      });
    });
    return to;
  }
};

template <class Op>
Scan scan_of(const Op& n) {
  const sdk::Type &u = n.u.type(), &b = n.b.type();
  if (!is_float(u.dtype) || u.dtype == TENON_DTYPE_F64) throw sdk::Refusal::dtype("u", u.dtype);
  const bool bdl = n.layout == "bdl";
  return {.dtype = u.dtype,
          .batch = u.dims[0],
          .channels = u.dims[bdl ? 1 : 2],
          .steps = u.dims[bdl ? 2 : 1],
          .states = n.a.type().dims[1],
          .groups = b.rank == 3 ? 1 : b.dims[bdl ? 1 : 2],
          .bdl = bdl,
          .softplus = n.dt_softplus};
}

int64_t block_cost(const Scan& s) { return s.states * (s.steps + 1) * kStepCost; }

sdk::Kernel make_scan(const sdk::op::selective_scan& n, const sdk::Node& node) {
  const Scan scan = scan_of(n);
  const Operands operands(n, scan);
  const int64_t blocks = scan.blocks();
  const Slots slots =
      make_slots(scan.batch * scan.groups * blocks, scan_forward_area(scan) * 4, block_cost(scan));
  sdk::Kernel kernel{.scratch = operands.scratch(scan) + slots.scratch()};
  kernel.cost = static_cast<double>(scan.batch * scan.channels * scan.steps * scan.states) / 4e9;
  kernel.run = [=, y = node.out(0).position(), last = node.out(1).position()](const sdk::Call& c) {
    char* const scratch = static_cast<char*>(c.scratch);
    const ScanOperands in = operands.at(scan, c, scratch);
    float* const h_last = c.out<float>(last);
    slots.run(scratch + operands.scratch(scan), [&](int64_t begin, int64_t end, char* area) {
      for (int64_t k = begin; k < end; ++k)
        scan_forward(
            scan, in,
            scan_block_at(scan, k / blocks / scan.groups, k / blocks % scan.groups, k % blocks),
            reinterpret_cast<float*>(area), c.out(y), h_last);
    });
  };
  return kernel;
}

// Units of the backward op: some blocks of a group of a sequence. Each unit sums db and dc of its
// blocks; the units of a group are added in their order.
class BackwardScan {
 public:
  BackwardScan(const sdk::op::selective_scan_backward& n, const sdk::Node& node)
      : s_(scan_of(n)), operands_(n, s_), dy_(n.dy.position()), dh_last_(n.dh_last.position()) {
    for (int k = 0; k < kOutputs; ++k) out_[k] = node.out(k).position();
    const int64_t rows = s_.batch * s_.groups, blocks = s_.blocks();
    parts_ = std::clamp<int64_t>(divide_up(kUnits, std::max<int64_t>(rows, 1)), 1,
                                 std::max<int64_t>(blocks, 1));
    slots_ = make_slots(blocks ? rows * parts_ : 0, scan_backward_area(s_) * 4,
                        block_cost(s_) * 3 * divide_up(blocks, parts_));
  }

  uint64_t scratch() const { return slots_at() + slots_.scratch(); }

  void run(const sdk::Call& c) const {
    char* const scratch = static_cast<char*>(c.scratch);
    const ScanOperands in = operands_.at(s_, c, scratch);
    float* const sums = reinterpret_cast<float*>(scratch + sums_at());
    float* const shared = sums + each_sequence() * s_.batch;
    parallel_for(2 * shared_floats(), grain_for(4),
                 [&](int64_t begin, int64_t end) { std::fill(shared + begin, shared + end, 0.f); });
    const auto out = [&](Output k) { return c.out(out_[k]); };
    ScanGradients to{.dy = c.in(dy_),
                     .dh_last = c.in<float>(dh_last_),
                     .du = out(kDu),
                     .ddt = out(kDdt),
                     .dz = out(kDz),
                     .da = sums,
                     .dd = sums + s_.batch * s_.channels * s_.states,
                     .dh0 = static_cast<float*>(out(kDh0))};
    to.ddt_bias = to.dd + s_.batch * s_.channels;
    const int64_t blocks = s_.blocks();
    slots_.run(scratch + slots_at(), [&](int64_t begin, int64_t end, char* area) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t row = unit / parts_, part = unit % parts_;
        ScanGradients own = to;
        own.db = shared + unit * s_.states * s_.steps;
        own.dc = own.db + shared_floats();
        for (int64_t k = blocks * part / parts_; k < blocks * (part + 1) / parts_; ++k)
          scan_backward(s_, in, scan_block_at(s_, row / s_.groups, row % s_.groups, k),
                        reinterpret_cast<float*>(area), own);
      }
    });
    add_sequences(to.da, s_.channels * s_.states, out(kDa));
    add_sequences(to.dd, s_.channels, out(kDd));
    add_sequences(to.ddt_bias, s_.channels, out(kDdtBias));
    add_parts(shared, out(kDb));
    add_parts(shared + shared_floats(), out(kDc));
  }

 private:
  enum Output { kDu, kDdt, kDa, kDb, kDc, kDd, kDz, kDdtBias, kDh0, kOutputs };
  static constexpr int64_t kUnits = 16;

  // Of db, and of dc: [B, G, parts, N, L].
  int64_t shared_floats() const { return s_.batch * s_.groups * parts_ * s_.states * s_.steps; }
  int64_t each_sequence() const { return s_.channels * (s_.states + 2); }  // da dd ddt_bias
  uint64_t sums_at() const { return operands_.scratch(s_); }
  uint64_t slots_at() const {
    return sums_at() + aligned((each_sequence() * s_.batch + 2 * shared_floats()) * 4);
  }

  void add_sequences(const float* from, int64_t n, void* output) const {
    if (!output) return;
    float* const to = static_cast<float*>(output);
    parallel_for(n, grain_for(4 * s_.batch), [&](int64_t begin, int64_t end) {
      std::fill(to + begin, to + end, 0.f);
      for (int64_t b = 0; b < s_.batch; ++b)
        for (int64_t i = begin; i < end; ++i) to[i] += from[b * n + i];
    });
  }

  void add_parts(const float* from, void* output) const {
    if (!output) return;
    const int64_t rows = s_.groups * s_.states, one = s_.states * s_.steps;
    with_f32_or_half(s_.dtype, [&]<class T>(T) {
      T* const to = static_cast<T*>(output);
      parallel_for(s_.batch * rows, grain_for(4 * s_.steps * parts_),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const float* const own =
                           from + i / s_.states * parts_ * one + i % s_.states * s_.steps;
                       T* const line =
                           s_.bdl ? to + i * s_.steps : to + i / rows * rows * s_.steps + i % rows;
                       for (int64_t t = 0; t < s_.steps; ++t) {
                         float sum = own[t];
                         for (int64_t p = 1; p < parts_; ++p) sum += own[p * one + t];
                         from_float(sum, line + t * (s_.bdl ? 1 : rows));
                       }
                     }
                   });
    });
  }

  Scan s_;
  Operands operands_;
  int dy_, dh_last_;
  int out_[kOutputs];
  int64_t parts_ = 1;
  Slots slots_{};
};

sdk::Kernel make_scan_backward(const sdk::op::selective_scan_backward& n, const sdk::Node& node) {
  const BackwardScan scan(n, node);
  sdk::Kernel kernel{.scratch = scan.scratch()};
  kernel.run = [scan](const sdk::Call& c) { scan.run(c); };
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::selective_scan, make_scan>(),
    sdk::row<sdk::op::selective_scan_backward, make_scan_backward>(),
};

}  // namespace

std::span<const sdk::Row> selective_scan_rows() { return kRows; }

}  // namespace tenon::cpu
