// SPDX-License-Identifier: Apache-2.0
// gated_delta_rule gated_delta_rule_backward in chunks of 64 tokens, by products on tensor cores. What
// needs no state is computed for all chunks at once; then blocks walk through the chunks of a value head.
#include <algorithm>

#include "delta_rule.hpp"

namespace tenon::cuda {
namespace {

constexpr int64_t kTokens = 64, kFacts = 7;  // of device/delta_chunks.cuh

// Shared memory of the kernels, as their texts have it.
uint32_t solve_bytes(int64_t keys) { return static_cast<uint32_t>(20480 + keys * 128); }
enum class DeltaWalk { kWhole, kSave };
uint32_t stage_bytes(int64_t keys, int64_t columns, DeltaWalk walk) {
  const int64_t row = (keys + 8) * 128, save = row + (columns + 8) * 128 + 11008;
  return static_cast<uint32_t>(walk == DeltaWalk::kSave ? save : save + row + 9216);
}
uint32_t gradient_bytes(int64_t keys, int64_t values) {
  const int64_t key_bytes = 256 * (keys + 8);
  return static_cast<uint32_t>(std::max(384 * (values + 8), key_bytes) + key_bytes + 20480 +
                               keys * 16 + keys / 4);
}

// How blocks walk: the columns of a block, and the chunks whose operands are in shared memory.
struct WalkForm {
  int64_t columns = 128, stages = 3;
  uint32_t shared = 0;

  // With fewer columns when the device has room for more blocks, or none for so many columns.
  WalkForm(const DeltaProblem& p, DeltaWalk walk, const Properties& device, const char* entry) {
    const uint32_t room = device.shared_room("delta_walk.cu", entry);
    const auto bytes = [&] { return stage_bytes(p.s.keys, columns, walk); };
    const auto few = [&] {
      return p.s.sequences * p.value_heads() * (p.s.values / columns) <= device.multiprocessors / 2;
    };
    while (columns > 32 && (p.s.values % columns != 0 || few())) columns /= 2;
    while (stages > 1 && stages * bytes() > room) --stages;
    while (columns > 32 && bytes() > room) columns /= 2;
    shared = bytes() <= room ? static_cast<uint32_t>(stages) * bytes() : 0;
  }
  std::vector<std::string> defines(const DeltaProblem& p) const {
    return {"TYPE=" + type_name("q", p.dtype), define("KEYS", p.s.keys), define("COLUMNS", columns),
            define("STAGES", stages)};
  }
  int64_t tiles(const DeltaProblem& p) const { return p.s.values / columns; }
  Grid grid(const DeltaProblem& p) const {
    return {.blocks = launchable(p.s.sequences * p.value_heads() * tiles(p)),
            .threads = static_cast<uint32_t>(columns * 2),
            .shared = shared};
  }
};

template <class Op>
bool fits(const DeltaProblem& p, const Op& n, const sdk::Node& node) {
  const Properties& device = device_of(node).properties();
  return p.dtype == TENON_DTYPE_BF16 && device.major >= 8 && n.g.type().rank == 3 &&
         !n.cu_seqlens && p.s.tokens >= kTokens && (p.s.keys == 64 || p.s.keys == 128) &&
         p.s.values > 0 && p.s.values % 64 == 0 && p.rows() > 0 && on_vectors(n.q) &&
         on_vectors(n.k) && on_vectors(n.v);
}

// Areas of scratch for all chunks.
struct Areas {
  int64_t chunks, sequences;
  bool back;
  uint64_t x, pairs, rest, states, slopes, facts, odd, odd_heads;

  Areas(const DeltaProblem& p, bool back, uint64_t& scratch)
      : chunks(p.batch * blocks_for(p.s.tokens, kTokens) * p.value_heads()),
        sequences(p.s.sequences),
        back(back) {
    // odd_heads is first: the kernels that go token by token read it when all else is over.
    odd_heads = take_scratch(scratch, static_cast<uint64_t>(sequences * p.s.heads) * 4);
    const auto take = [&](bool wanted, int64_t bytes) {
      return wanted ? take_scratch(scratch, static_cast<uint64_t>(chunks * bytes)) : 0;
    };
    constexpr int64_t square = kTokens * kTokens * 2;
    facts = take(true, kFacts * kTokens * 4), odd = take(true, 4);
    x = take(true, square), pairs = take(true, square);
    rest = take(back, kTokens * int64_t{p.s.values} * 2);
    states = take(back, p.state_size() * 2), slopes = take(back, p.state_size() * 2);
  }
  args::DeltaChunks at(const sdk::Call& c) const {
    return {.x = scratch_at(c, x),
            .pairs = scratch_at(c, pairs),
            .rest = back ? scratch_at(c, rest) : nullptr,
            .states = back ? scratch_at(c, states) : nullptr,
            .slopes = back ? scratch_at(c, slopes) : nullptr,
            .facts = scratch_at<float>(c, facts),
            .odd = scratch_at<int32_t>(c, odd),
            .odd_heads = scratch_at<int32_t>(c, odd_heads)};
  }
};
args::DeltaRule with_tiles(args::DeltaRule s, int64_t tiles) {
  s.tiles = static_cast<int32_t>(tiles);
  return s;
}

}  // namespace

std::optional<sdk::Kernel> delta_by_chunks(const DeltaProblem& p,
                                           const sdk::op::gated_delta_rule& n,
                                           const sdk::Node& node) {
  if (!fits(p, n, node)) return std::nullopt;
  CudaDevice& device = device_of(node);
  const Properties& properties = device.properties();
  const WalkForm form(p, DeltaWalk::kWhole, properties, "forward");
  const uint32_t solve_shared = solve_bytes(p.s.keys);
  if (form.shared == 0 || solve_shared > properties.shared_room("delta_chunks.cu", "solve"))
    return std::nullopt;
  const auto solve =
      device.code(entries::delta_chunks_solve,
                  {"TYPE=" + type_name("q", p.dtype), define("KEYS", p.s.keys)}, solve_shared);
  const auto walk = device.code(entries::delta_walk_forward, form.defines(p), form.shared);
  // Takes the heads that chunks cannot.
  const DeltaForm tokens = delta_form(p, false);
  const int64_t shared = tokens.token_bytes();
  const auto forward = device.code(entries::delta_rule_forward, tokens.defines(p.dtype),
                                   static_cast<uint32_t>(shared));
  uint64_t scratch = 0;
  const Areas areas(p, false, scratch);
  const Grid first{.blocks = launchable(areas.chunks), .threads = 128, .shared = solve_shared};
  const Grid second = form.grid(p), third = p.grid(tokens, shared);
  sdk::Kernel kernel =
      kernel_of({solve, walk, forward}, [=, last = node.out(1).position()](const sdk::Call& c) {
        const args::DeltaChunks kept = areas.at(c);
        args::DeltaRule by_token = p.at(c, tokens);
        by_token.odd_heads = kept.odd_heads;
        solve.launch(c, first, by_token, kept);
        walk.launch(c, second, with_tiles(by_token, form.tiles(p)), kept, c.outputs[0],
                    c.out<float>(last));
        forward.launch(c, third, by_token, c.outputs[0], c.out<float>(last));
      });
  kernel.scratch = scratch;
  return kernel;
}

std::optional<sdk::Kernel> delta_gradients_by_chunks(const DeltaProblem& p,
                                                     const sdk::op::gated_delta_rule_backward& n,
                                                     const sdk::Node& node) {
  if (!fits(p, n, node) || !on_vectors(n.dout)) return std::nullopt;
  CudaDevice& device = device_of(node);
  const Properties& properties = device.properties();
  const WalkForm save(p, DeltaWalk::kSave, properties, "save"),
      back(p, DeltaWalk::kWhole, properties, "back");
  const uint32_t solve_shared = solve_bytes(p.s.keys);
  const uint32_t room = properties.shared_room("delta_gradients.cu", "gradients");
  int64_t values = p.s.keys == 128 && p.s.values % 128 == 0 ? 128 : 64;
  if (gradient_bytes(p.s.keys, values) > room) values = 64;
  const uint32_t shared = gradient_bytes(p.s.keys, values);
  if (save.shared == 0 || back.shared == 0 || shared > room ||
      solve_shared > properties.shared_room("delta_chunks.cu", "solve"))
    return std::nullopt;

  std::vector<std::string> defines = {"TYPE=" + type_name("q", p.dtype), define("KEYS", p.s.keys)};
  const auto solve = device.code(entries::delta_chunks_solve, defines, solve_shared);
  const auto walk = device.code(entries::delta_walk_save, save.defines(p), save.shared);
  const auto walk_back = device.code(entries::delta_walk_back, back.defines(p), back.shared);
  defines.push_back(define("VALUES", values));
  const auto gradients = device.code(entries::delta_gradients, defines, shared);

  uint64_t scratch = 0;
  const Areas areas(p, true, scratch);
  const auto floats = [&](bool wanted) {
    const int64_t bytes = p.rows() * p.s.keys * 4;
    return wanted ? take_scratch(scratch, static_cast<uint64_t>(bytes)) : 0;
  };
  const bool shares = p.s.each > 1;
  const uint64_t dq = floats(shares), dk = floats(shares);
  const bool gives_dv = node.out(2).position() >= 0;
  const uint64_t dv =
      gives_dv ? 0 : take_scratch(scratch, static_cast<uint64_t>(p.rows() * p.s.values * 2));
  // The heads that chunks cannot take, whose scratch is that of the chunks: they are over by then.
  uint64_t token_scratch =
      256 *
      ((static_cast<uint64_t>(p.s.sequences) * static_cast<uint64_t>(p.s.heads) * 4 + 255) / 256);
  const DeltaTokenGradients tokens(p, n, node, token_scratch);

  const Grid chunk_grid{.blocks = launchable(areas.chunks), .threads = 128, .shared = solve_shared};
  const Grid save_grid = save.grid(p), back_grid = back.grid(p);
  const Grid gradient_grid{.blocks = launchable(areas.chunks),
                           .threads = static_cast<uint32_t>(p.s.keys * 2),
                           .shared = shared};
  std::vector<Code> codes = tokens.codes();
  codes.insert(codes.end(), {solve, walk, walk_back, gradients});
  sdk::Kernel kernel = kernel_of(std::move(codes), [=](const sdk::Call& c) {
    const args::DeltaChunks kept = areas.at(c);
    args::DeltaRule own = p.at(c, DeltaForm(p.s.keys));
    own.odd_heads = kept.odd_heads;
    args::DeltaChunkGradients to = tokens.results(c);
    if (!gives_dv) to.dv = scratch_at(c, dv);
    if (shares) to.dq_sums = scratch_at<float>(c, dq), to.dk_sums = scratch_at<float>(c, dk);
    solve.launch(c, chunk_grid, own, kept);
    walk.launch(c, save_grid, with_tiles(own, save.tiles(p)), kept);
    walk_back.launch(c, back_grid, with_tiles(own, back.tiles(p)), kept, to);
    gradients.launch(c, gradient_grid, own, kept, to);
    if (shares) {
      const auto sums = [](const float* x) { return x; };
      tokens.give_keys(c, with_tiles(own, 1), own.q, sums(to.dq_sums), to.dq, 1.f);
      tokens.give_keys(c, with_tiles(own, 1), own.k, sums(to.dk_sums), to.dk, 1.f);
    }
    tokens.launch_odd(c, kept.odd_heads);
  });
  kernel.scratch = std::max(scratch, token_scratch);
  return kernel;
}

}  // namespace tenon::cuda
