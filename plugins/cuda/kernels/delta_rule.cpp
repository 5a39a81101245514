// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule gated_delta_rule_backward, token by token: a block keeps some columns of the state
// of a value head in registers; columns are independent. bf16 by chunks of tokens.
#include <array>
#include <cmath>
#include <string>

#include "../device.hpp"
#include "../kernels.hpp"
#include "args.hpp"
#include "entries.hpp"
#include "lines.hpp"

namespace tenon::cuda {
namespace {

using sdk::Refusal;

constexpr int64_t kMostRows = 16, kMostLanes = 32, kOwn = 2;  // kOwn: columns of a thread
constexpr int64_t kChunk = 64, kPart = 8;                     // of the kernels

struct Form {
  int64_t rows = 1, lanes = 1, threads = 128, steps = 16;
  bool by_key = false;

  explicit Form(int64_t keys) {
    while (rows < std::min<int64_t>(keys, 4)) rows *= 2;
    while (lanes < 8 && rows * lanes < keys) lanes *= 2;
    while (rows < kMostRows && rows * lanes < keys) rows *= 2;
    while (lanes < kMostLanes && rows * lanes < keys) lanes *= 2;
  }
  int64_t keys() const { return rows * lanes; }
  int64_t columns() const { return threads / lanes * kOwn; }
  int64_t token_bytes() const {
    return steps * (keys() * 2 + (by_key ? keys() : 1) + columns() + 1) * 4;
  }
  int64_t backward_bytes() const {
    const int64_t warps = threads / 32, sums = by_key ? 3 : 2;
    return token_bytes() + steps * columns() * 4 + 2 * warps * (sums * keys() + 2) * 4 + 16;
  }
  std::vector<std::string> defines(tenon_dtype dtype) const {
    return {"TYPE=" + type_name("q", dtype), define("BYKEY", by_key),
            define("LANES", lanes),          define("ROWS", rows),
            define("COLUMNS", kOwn),         define("THREADS", threads),
            define("STEPS", steps)};
  }
};

// The operands that both ops have.
struct Problem {
  tenon_dtype dtype;
  int64_t batch;
  args::DeltaRule s{};
  int q, k, v, g, beta, state, ends;

  template <class Op>
  explicit Problem(const Op& n)
      : dtype(n.q.type().dtype),
        batch(n.q.type().dims[0]),
        q(n.q.position()),
        k(n.k.position()),
        v(n.v.position()),
        g(n.g.position()),
        beta(n.beta.position()),
        state(n.state.position()),
        ends(n.cu_seqlens.position()) {
    const sdk::Type &key = n.q.type(), &value = n.v.type();
    if (!is_float(dtype) || dtype == TENON_DTYPE_F64) throw Refusal::dtype("q", dtype);
    const int64_t sequences = n.cu_seqlens ? n.cu_seqlens.type().dims[0] - 1 : batch;
    if (key.dims[3] > kMostRows * kMostLanes)
      throw Refusal::shape("keys of more than 512 elements");
    for (const int64_t size : {value.dims[2], value.dims[3], sequences})
      if (size >= kNarrowIndex / 4) throw Refusal::shape("a head, a value or a batch is too large");
    s.tokens = key.dims[1];
    s.heads = static_cast<int32_t>(key.dims[2]);
    s.each = static_cast<int32_t>(s.heads ? value.dims[2] / s.heads : 0);
    s.keys = static_cast<int32_t>(key.dims[3]), s.values = static_cast<int32_t>(value.dims[3]);
    s.sequences = static_cast<int32_t>(sequences);
    s.scale = static_cast<float>(std::isnan(n.scale) ? 1 / std::sqrt(static_cast<double>(s.keys))
                                                     : n.scale);
    s.unit = n.qk_l2norm;
    s.wide = n.cu_seqlens && n.cu_seqlens.type().dtype == TENON_DTYPE_I64;
  }

  int64_t value_heads() const { return int64_t{s.heads} * s.each; }
  int64_t rows() const { return batch * s.tokens * value_heads(); }
  int64_t state_size() const { return int64_t{s.keys} * s.values; }
  int64_t tiles(const Form& f) const { return blocks_for(s.values, f.columns()); }
  Grid grid(const Form& f, int64_t shared) const {
    return {.blocks = launchable(s.sequences * value_heads() * tiles(f)),
            .threads = static_cast<uint32_t>(f.threads),
            .shared = static_cast<uint32_t>(shared)};
  }
  args::DeltaRule at(const sdk::Call& call, const Form& f) const {
    args::DeltaRule to = s;
    to.q = call.in(q), to.k = call.in(k), to.v = call.in(v), to.beta = call.in(beta);
    to.ends = call.in(ends), to.g = call.in<float>(g), to.state = call.in<float>(state);
    to.tiles = static_cast<int32_t>(tiles(f));
    return to;
  }
};

Form form_of(const Problem& p, bool by_key) {
  Form f(p.s.keys);
  f.by_key = by_key;
  constexpr int64_t kFew = 48 << 10;
  while (f.steps > 4 && f.token_bytes() > kFew) f.steps /= 2;
  return f;
}
void want_room(int64_t bytes, uint32_t room) {
  if (bytes > int64_t{room}) throw Refusal::shape("keys that do not fit shared memory");
}

// Products of chunks of 64 tokens, on tensor cores: areas of shared memory as in delta_chunks.cu.
constexpr int64_t kChunkTokens = 64, kChunkColumns = 64;
constexpr uint32_t solve_bytes(int64_t keys) { return static_cast<uint32_t>(53760 + keys * 128); }
constexpr uint32_t walk_bytes(int64_t keys) { return static_cast<uint32_t>(22272 + keys * 528); }

bool by_chunks(const sdk::op::gated_delta_rule& n, const sdk::Node& node, const Problem& p) {
  const Properties& device = device_of(node).properties();
  return p.dtype == TENON_DTYPE_BF16 && device.major >= 8 && n.g.type().rank == 3 &&
         !n.cu_seqlens && p.s.tokens >= kChunkTokens && (p.s.keys == 64 || p.s.keys == 128) &&
         p.s.values % kChunkColumns == 0 && on_vectors(n.q) && on_vectors(n.k) && on_vectors(n.v) &&
         on_vectors(node.out(0)) &&
         solve_bytes(p.s.keys) <= device.shared_room("delta_chunks.cu", "solve") &&
         walk_bytes(p.s.keys) <= device.shared_room("delta_chunks.cu", "walk");
}

sdk::Kernel make_chunks(const Problem& p, const sdk::Node& node) {
  CudaDevice& device = device_of(node);
  const int64_t keys = p.s.keys, heads = p.value_heads();
  const std::vector<std::string> defines = {"TYPE=" + type_name("q", p.dtype),
                                            define("KEYS", keys)};
  const auto solve = device.code(entries::delta_chunks_solve, defines, solve_bytes(keys));
  const auto walk = device.code(entries::delta_chunks_walk, defines, walk_bytes(keys));
  // Takes the heads that chunks cannot.
  const Form form = form_of(p, false);
  const int64_t shared = form.token_bytes();
  const auto forward = device.code(entries::delta_rule_forward, form.defines(p.dtype),
                                   static_cast<uint32_t>(shared));
  const int64_t chunks = p.batch * blocks_for(p.s.tokens, kChunkTokens) * heads;
  const int64_t tiles = p.s.values / kChunkColumns;
  uint64_t scratch = 0;
  const auto take = [&](int64_t bytes) {
    return take_scratch(scratch, static_cast<uint64_t>(chunks * kChunkTokens * bytes));
  };
  const uint64_t w = take(keys * 2), u = take(int64_t{p.s.values} * 2), facts = take(3 * 4);
  const uint64_t odd = take_scratch(scratch, static_cast<uint64_t>(chunks) * 4);
  const Grid first{.blocks = launchable(chunks), .threads = 128, .shared = solve_bytes(keys)};
  const Grid second{
      .blocks = launchable(p.batch * heads * tiles), .threads = 128, .shared = walk_bytes(keys)};
  const Grid third = p.grid(form, shared);
  sdk::Kernel kernel =
      kernel_of({solve, walk, forward}, [=, last = node.out(1).position()](const sdk::Call& c) {
        args::DeltaRule own = p.at(c, form);
        own.odd = scratch_at<int32_t>(c, odd);
        const args::DeltaRule by_token = own;
        own.tiles = static_cast<int32_t>(tiles);
        const args::DeltaChunks kept{scratch_at(c, w), scratch_at(c, u),
                                     scratch_at<float>(c, facts), scratch_at<int32_t>(c, odd)};
        solve.launch(c, first, own, kept);
        walk.launch(c, second, own, kept, c.outputs[0], c.out<float>(last));
        forward.launch(c, third, by_token, c.outputs[0], c.out<float>(last));
      });
  kernel.scratch = scratch;
  return kernel;
}

sdk::Kernel make_delta(const sdk::op::gated_delta_rule& n, const sdk::Node& node) {
  const Problem p(n);
  if (by_chunks(n, node, p)) return make_chunks(p, node);
  CudaDevice& device = device_of(node);
  const Form form = form_of(p, n.g.type().rank == 4);
  const int64_t shared = form.token_bytes();
  want_room(shared, device.properties().shared_room("delta_rule.cu", "forward"));
  const auto defines = form.defines(p.dtype);
  const auto check = device.code(entries::delta_rule_check, defines);
  const auto forward =
      device.code(entries::delta_rule_forward, defines, static_cast<uint32_t>(shared));
  const Grid grid = p.grid(form, shared);
  sdk::Kernel kernel =
      kernel_of({check, forward}, [=, last = node.out(1).position()](const sdk::Call& c) {
        const args::DeltaRule own = p.at(c, form);
        if (own.ends) check.launch(c, {.blocks = 1}, own, error_sink(c));
        forward.launch(c, grid, own, c.outputs[0], c.out<float>(last));
      });
  kernel.can_fail = p.ends >= 0;
  return kernel;
}

sdk::Kernel make_delta_backward(const sdk::op::gated_delta_rule_backward& n,
                                const sdk::Node& node) {
  enum Output { kDq, kDk, kDv, kDg, kDbeta, kDstate, kOutputs };
  const Problem p(n);
  std::array<int, kOutputs> out{};
  for (int k = 0; k < kOutputs; ++k) out[static_cast<size_t>(k)] = node.out(k).position();
  CudaDevice& device = device_of(node);
  const bool by_key = n.g.type().rank == 4;
  const Form first = form_of(p, by_key);
  Form form = first;
  constexpr int64_t kSmall = 60 << 10;  // fits the smallest devices
  form.steps = kPart, form.threads = 512;
  while (form.threads > 64 && (form.backward_bytes() > kSmall || form.columns() / 2 >= p.s.values))
    form.threads /= 2;
  const int64_t shared = form.backward_bytes();
  want_room(shared, device.properties().shared_room("delta_rule_backward.cu", "backward"));
  want_room(first.token_bytes(), device.properties().shared_room("delta_rule.cu", "states"));
  const auto check = device.code(entries::delta_rule_check, first.defines(p.dtype));
  const auto states = device.code(entries::delta_rule_states, first.defines(p.dtype),
                                  static_cast<uint32_t>(first.token_bytes()));
  const auto defines = form.defines(p.dtype);
  const auto backward =
      device.code(entries::delta_rule_backward, defines, static_cast<uint32_t>(shared));
  const auto give_rows = device.code(entries::delta_rule_give_rows, defines);
  const auto give_decays = device.code(entries::delta_rule_give_decays, defines);
  const auto give_keys = device.code(entries::delta_rule_give_keys, defines);

  const args::DeltaRule& s = p.s;
  const int64_t rows = p.rows(), tiles = p.tiles(form), decays = by_key ? s.keys : 1;
  // Sequences begin anywhere in the tokens, so each may have one chunk that is not full.
  const int64_t chunks = p.batch * s.tokens / kChunk + s.sequences + 1;
  uint64_t scratch = 0;
  const auto floats = [&](int64_t count) {
    return take_scratch(scratch, static_cast<uint64_t>(count) * 4);
  };
  const uint64_t saved = floats(chunks * p.value_heads() * p.state_size());
  const uint64_t rest = floats(rows * s.values);
  const uint64_t area = floats(s.sequences * p.value_heads() * p.state_size() * (kChunk / kPart));
  const uint64_t dq = floats(tiles * rows * s.keys), dk = floats(tiles * rows * s.keys);
  const uint64_t dg = floats(tiles * rows * decays), dbeta = floats(tiles * rows);
  const Grid first_grid = p.grid(first, first.token_bytes()), grid = p.grid(form, shared);
  const int64_t keys = p.batch * s.tokens * s.heads;
  sdk::Kernel kernel = kernel_of(
      {check, states, backward, give_rows, give_decays, give_keys},
      [=, dout = n.dout.position(), dstate_out = n.dstate_out.position()](const sdk::Call& c) {
        const auto to = [&](Output k) { return c.out(out[k]); };
        const args::DeltaRule own = p.at(c, form);
        const args::DeltaRuleSaved kept{scratch_at<float>(c, saved), scratch_at<float>(c, rest)};
        if (own.ends) check.launch(c, {.blocks = 1}, own, error_sink(c));
        if (rows > 0) states.launch(c, first_grid, p.at(c, first), kept);
        const args::DeltaRuleGradients g{.dout = c.in(dout),
                                         .dstate_out = c.in<float>(dstate_out),
                                         .area = scratch_at<float>(c, area),
                                         .dq = scratch_at<float>(c, dq),
                                         .dk = scratch_at<float>(c, dk),
                                         .dg = scratch_at<float>(c, dg),
                                         .dbeta = scratch_at<float>(c, dbeta),
                                         .dstate = static_cast<float*>(to(kDstate)),
                                         .dv = to(kDv),
                                         .rows = rows};
        backward.launch(c, grid, own, kept, g);
        const auto sums = [](const float* x) { return x; };
        const Grid keys_grid{.blocks = blocks_for(keys, 4), .threads = 128};
        if (to(kDq))
          give_keys.launch(c, keys_grid, own, own.q, sums(g.dq), to(kDq), keys, own.scale);
        if (to(kDk)) give_keys.launch(c, keys_grid, own, own.k, sums(g.dk), to(kDk), keys, 1.f);
        if (to(kDbeta))
          give_rows.launch(c, {.blocks = blocks_for(rows, 256)}, sums(g.dbeta), to(kDbeta), rows,
                           tiles);
        if (to(kDg))
          give_decays.launch(c, {.blocks = blocks_for(rows * decays, 256)}, sums(g.dg),
                             static_cast<float*>(to(kDg)), rows * decays, tiles);
      });
  kernel.scratch = scratch;
  kernel.can_fail = p.ends >= 0;
  return kernel;
}

constexpr sdk::Row kRows[] = {
    sdk::row<sdk::op::gated_delta_rule, make_delta>(),
    sdk::row<sdk::op::gated_delta_rule_backward, make_delta_backward>(),
};

}  // namespace

std::span<const sdk::Row> delta_rule_rows() { return kRows; }

}  // namespace tenon::cuda
