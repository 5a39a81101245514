// SPDX-License-Identifier: Apache-2.0
// selective_scan selective_scan_backward. A channel has some lanes of a warp, which share its
// states; a block takes some channels of one group through all steps.
#include <algorithm>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kMostLanes = 16, kMostOwn = 8, kChunk = 8;  // kChunk: of the kernels

struct Form {
  int64_t lanes = 1, own = 1, threads = 128, steps = 64;

  int64_t all() const { return lanes * own; }
  int64_t channels() const { return threads / lanes; }
  uint32_t forward_bytes() const {
    return static_cast<uint32_t>((steps * all() + channels() * (steps + 2)) * 8);
  }
  // size: of an element.
  uint32_t backward_bytes(int64_t size) const {
    return static_cast<uint32_t>(steps * all() * 8 + channels() * (steps + 1) * 16 +
                                 threads / 32 * steps * all() * 8 +
                                 size * steps * (7 * channels() + 2 * all()));
  }
};

// The operands that both ops have.
struct Problem {
  tenon_dtype dtype;
  int64_t batch;
  bool bdl;
  args::SelectiveScan s{};
  int u, dt, a, b, c, d, z, dt_bias, h0;
  int64_t vector = 1, shared_vector = 1;  // elements of an access to u and to b

  template <class Op>
  explicit Problem(const Op& n)
      : dtype(n.u.type().dtype),
        batch(n.u.type().dims[0]),
        bdl(n.layout == "bdl"),
        u(n.u.position()),
        dt(n.dt.position()),
        a(n.a.position()),
        b(n.b.position()),
        c(n.c.position()),
        d(n.d.position()),
        z(n.z.position()),
        dt_bias(n.dt_bias.position()),
        h0(n.h0.position()) {
    if (!is_float(dtype) || dtype == TENON_DTYPE_F64) throw Refusal::dtype("u", dtype);
    const sdk::Type &type = n.u.type(), &shared = n.b.type();
    s.channels = type.dims[bdl ? 1 : 2], s.steps = type.dims[bdl ? 2 : 1];
    const int64_t states = n.a.type().dims[1];
    const int64_t groups = shared.rank == 3 ? 1 : shared.dims[bdl ? 1 : 2];
    if (states > kMostLanes * kMostOwn) throw Refusal::shape("more than 128 states of a channel");
    if (s.channels >= kNarrowIndex || groups >= kNarrowIndex)
      throw Refusal::shape("more than 2^31 channels");
    s.states = static_cast<int32_t>(states), s.groups = static_cast<int32_t>(groups);
    s.each = static_cast<int32_t>(s.channels / groups);
    s.softplus = n.dt_softplus;
    const int64_t width = 16 / element_bytes(dtype);
    const auto moves = [&](std::initializer_list<const sdk::Value*> values) {
      return std::ranges::all_of(values, [](const sdk::Value* v) { return !*v || on_vectors(*v); });
    };
    if ((bdl ? s.steps : s.each) % width == 0 && moves({&n.u, &n.dt, &n.z})) vector = width;
    if ((bdl ? s.steps : states) % width == 0 && moves({&n.b, &n.c})) shared_vector = width;
  }

  // Few states for each lane where there are few channels, so that all multiprocessors work.
  Form form(const CudaDevice& device, int64_t threads) const {
    Form f{.threads = threads};
    while (f.own < std::min<int64_t>(s.states, 4)) f.own *= 2;
    while (f.all() < s.states) (f.lanes < kMostLanes ? f.lanes : f.own) *= 2;
    const int64_t busy = int64_t{device.properties().multiprocessors} * 256;
    while (f.own > 1 && f.lanes < kMostLanes && batch * s.channels * f.lanes < busy)
      f.own /= 2, f.lanes *= 2;
    return f;
  }
  std::vector<std::string> defines(const Form& f) const {
    return {"TYPE=" + type_name("u", dtype),
            define("BLD", !bdl),
            define("VEC", vector),
            define("BVEC", shared_vector),
            define("LANES", f.lanes),
            define("STATES", f.own),
            define("THREADS", f.threads),
            define("STEPS", f.steps),
            define("WHOLE", f.all() == s.states)};
  }
  Grid grid(const Form& f, uint32_t shared) const {
    return {.blocks = launchable(batch * s.groups * blocks_for(s.each, f.channels())),
            .threads = static_cast<uint32_t>(f.threads),
            .shared = shared};
  }
  args::SelectiveScan at(const sdk::Call& call, const Form& f) const {
    args::SelectiveScan to = s;
    to.blocks = static_cast<int32_t>(blocks_for(s.each, f.channels()));
    to.u = call.in(u), to.dt = call.in(dt), to.b = call.in(b), to.c = call.in(c);
    to.z = call.in(z), to.a = call.in<float>(a), to.d = call.in<float>(d);
    to.dt_bias = call.in<float>(dt_bias), to.h0 = call.in<float>(h0);
    return to;
  }
};

// More channels in a block than threads of the forward kernel take, fewer steps: what threads keep
// between the two phases of a tile stays in registers.
Form forward_form(const Problem& p, const CudaDevice& device) {
  Form f = p.form(device, 128);
  f.steps = f.lanes == 1 ? 16 : f.lanes == 2 || f.all() > 32 ? 32 : 64;
  return f;
}

sdk::Kernel make_scan(const sdk::op::selective_scan& n, const sdk::Node& node) {
  Problem p(n);
  if (!on_vectors(node.out(0))) p.vector = 1;
  CudaDevice& device = device_of(node);
  const Form form = forward_form(p, device);
  const uint32_t shared = form.forward_bytes();
  if (shared > device.properties().shared_room("selective_scan.cu", "forward"))
    throw Refusal::shape("the states do not fit shared memory");
  const auto code = device.code(entries::selective_scan_forward, p.defines(form), shared);
  const Grid grid = p.grid(form, shared);
  return kernel_of({code}, [=, last = node.out(1).position()](const sdk::Call& c) {
    code.launch(c, grid, p.at(c, form), c.outputs[0], c.out<float>(last));
  });
}

sdk::Kernel make_scan_backward(const sdk::op::selective_scan_backward& n, const sdk::Node& node) {
  enum Output { kDu, kDdt, kDa, kDb, kDc, kDd, kDz, kDdtBias, kDh0, kOutputs };
  Problem p(n);
  std::array<int, kOutputs> out{};
  for (int k = 0; k < kOutputs; ++k) out[static_cast<size_t>(k)] = node.out(k).position();
  const auto unaligned = [](const sdk::Value& v) { return v && !on_vectors(v); };
  if (unaligned(n.dy) || unaligned(node.out(kDu)) || unaligned(node.out(kDdt)) ||
      unaligned(node.out(kDz)))
    p.vector = 1;
  CudaDevice& device = device_of(node);
  // Four blocks on a multiprocessor of sm_90; one fits the smallest devices.
  constexpr uint32_t kFew = 56 << 10;
  const int64_t size = element_bytes(p.dtype);
  Form form = p.form(device, 128);
  form.steps = 32;
  const auto is_large = [&] { return form.backward_bytes(size) > kFew; };
  if (is_large()) form.steps = 16;
  while (form.threads > 64 && is_large()) form.threads /= 2;
  if (is_large()) form.steps = kChunk;
  // Channels of a tile in whole vectors.
  if (!p.bdl && p.vector > form.channels()) p.vector = 1;
  const uint32_t shared = form.backward_bytes(size);
  if (shared > device.properties().shared_room("selective_scan_backward.cu", "backward"))
    throw Refusal::shape("the states do not fit shared memory");
  const Form first = forward_form(p, device);
  const auto states =
      device.code(entries::selective_scan_states, p.defines(first), first.forward_bytes());
  const auto backward = device.code(entries::selective_scan_backward, p.defines(form), shared);
  const auto sequences = device.code(entries::selective_scan_add_sequences, p.defines(form));
  const auto parts = device.code(entries::selective_scan_add_parts, p.defines(form));
  const args::SelectiveScan& s = p.s;
  const int64_t blocks = blocks_for(s.each, form.channels());
  const auto bytes = [](auto... factors) {
    return static_cast<uint64_t>((int64_t{4} * ... * int64_t{factors}));
  };
  uint64_t scratch = 0;
  const uint64_t before =
      take_scratch(scratch, bytes(p.batch, blocks_for(s.steps, kChunk), s.channels, s.states));
  const uint64_t part =
      take_scratch(scratch, bytes(p.batch, s.groups, blocks, s.steps, 2, s.states));
  const uint64_t da = take_scratch(scratch, bytes(p.batch, s.channels, s.states));
  const uint64_t dd = take_scratch(scratch, bytes(p.batch, s.channels));
  const uint64_t bias = take_scratch(scratch, bytes(p.batch, s.channels));
  const Grid first_grid = p.grid(first, first.forward_bytes()), grid = p.grid(form, shared);
  const Grid parts_grid{
      .blocks = launchable(p.batch * s.groups * blocks_for(s.steps * 2 * s.states, 256)),
      .threads = 256};
  sdk::Kernel kernel = kernel_of(
      {states, backward, sequences, parts},
      [=, dy = n.dy.position(), dh_last = n.dh_last.position()](const sdk::Call& c) {
        const auto to = [&](Output k) { return c.out(out[k]); };
        float* const saved = scratch_at<float>(c, before);
        const args::SelectiveScanGradients g{.dy = c.in(dy),
                                             .dh_last = c.in<float>(dh_last),
                                             .before = saved,
                                             .du = to(kDu),
                                             .ddt = to(kDdt),
                                             .dz = to(kDz),
                                             .parts = scratch_at<float>(c, part),
                                             .da = scratch_at<float>(c, da),
                                             .dd = scratch_at<float>(c, dd),
                                             .ddt_bias = scratch_at<float>(c, bias),
                                             .dh0 = static_cast<float*>(to(kDh0))};
        if (p.s.steps > 0) states.launch(c, first_grid, p.at(c, first), saved);
        const args::SelectiveScan own = p.at(c, form);
        backward.launch(c, grid, own, g);
        const auto add = [&](const float* from, int64_t count, Output k) {
          if (void* const sum = to(k))
            sequences.launch(c, {.blocks = blocks_for(count, 256)}, from, static_cast<float*>(sum),
                             count, p.batch);
        };
        add(g.da, p.s.channels * p.s.states, kDa);
        add(g.dd, p.s.channels, kDd);
        add(g.ddt_bias, p.s.channels, kDdtBias);
        if (to(kDb) || to(kDc))
          parts.launch(c, parts_grid, own, static_cast<const float*>(g.parts), to(kDb), to(kDc));
      });
  kernel.scratch = scratch;
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::selective_scan, make_scan>(),
    sdk::row<sdk::op::selective_scan_backward, make_scan_backward>(),
};

}  // namespace

std::span<const sdk::Row> selective_scan_rows() { return kRows; }

}  // namespace tenon::cuda
