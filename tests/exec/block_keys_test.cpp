// SPDX-License-Identifier: Apache-2.0
// attention: keys in blocks of a pool give the bits of the same keys in order.
#include <algorithm>
#include <string>
#include <vector>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::test;

namespace {

using Floats = std::vector<float>;
constexpr int64_t kHeads = 2, kDim = 32, kRow = kHeads * kDim;

// Attention of some last queries of two sequences, whose keys are in order (block 0) or in blocks.
struct Problem {
  tenon_dtype dtype;
  int64_t keys, block, queries, window;
  bool quantized;  // keys and values are blocks of q8_0

  Floats run(const std::string& device, bool paged) const {
    const int64_t blocks = keys / block, pool = kBatch * blocks;
    const std::vector<int64_t> lengths{keys - 31, keys * 3 / 4 - 20};
    const std::vector<int64_t> q_dims{kBatch, queries, 2 * kHeads, kDim};
    const std::vector<int64_t> dims = paged ? std::vector<int64_t>{pool, block, kHeads, kDim}
                                            : std::vector<int64_t>{kBatch, keys, kHeads, kDim};
    // Block i of the keys is block (i * 7 + 3) % pool of the pool: 7 divides no pool here.
    std::vector<int64_t> table;
    for (int64_t i = 0; i < pool; ++i) table.push_back((i * 7 + 3) % pool);
    const auto content = [&](uint64_t seed) {
      const Floats in_order = noise_of(seed, static_cast<size_t>(kBatch * keys * kRow));
      if (!paged) return in_order;
      Floats mixed(in_order.size());
      const auto size = static_cast<size_t>(block * kRow);
      for (size_t i = 0; i < table.size(); ++i)
        std::copy_n(in_order.data() + i * size, size,
                    mixed.data() + static_cast<size_t>(table[i]) * size);
      return mixed;
    };
    Graph g("blocks");
    const auto in = [&](const char* name, const std::vector<int64_t>& d, bool in_blocks = false) {
      const Value x = g.add(op::cast{.to = dtype, .x = g.input(name, {f32, d})});
      return in_blocks ? Value(g.add(op::cast{.to = TENON_DTYPE_Q8_0, .x = x})) : x;
    };
    op::attention n{.layout = "bshd",
                    .causal = true,
                    .left_window = window,
                    .q = in("q", q_dims),
                    .k = in("k", dims, quantized),
                    .v = in("v", dims, quantized),
                    .kv_len = g.input("kv_len", {i64, {kBatch}}),
                    .past_len = g.input("past_len", {i64, {kBatch}})};
    if (paged) n.block_table = g.input("table", {i64, {kBatch, blocks}});
    g.output("o", g.add(op::cast{.to = f32, .x = g.add(n)}));
    const Store store(runtime());
    const Executable executable(runtime(), g, store, {.device = device});
    // Else a gather would be compared with itself.
    if (paged) CHECK(executable.report().find("gather") == std::string::npos);
    Context run(executable);
    run.set("q", q_dims, noise_of(3, static_cast<size_t>(kBatch * queries * 2 * kRow)));
    run.set("k", dims, content(1)), run.set("v", dims, content(2));
    run.set("kv_len", lengths);
    run.set("past_len", std::vector{lengths[0] - queries, lengths[1] - queries});
    if (paged) run.set("table", {kBatch, blocks}, table);
    run.run();
    return run.get<float>("o");
  }
};

}  // namespace

TEST_CASE("attention: keys in blocks give the bits of keys in order") {
  const char* const other = std::getenv("TENON_CONTROL_DEVICE");
  const std::string device = other ? other : "cpu:0";
  for (const tenon_dtype dtype : {tenon_dtype{f32}, tenon_dtype{f16}, tenon_dtype{bf16}})
    for (const int64_t keys : {480, 960})
      for (const int64_t block : {5, 16, 32, 96, 160})
        for (const int64_t queries : {1, 3, 40})
          for (const int64_t window : {-1, 99})
            for (const bool quantized : {false, true}) {
              CAPTURE(sdk::dtype_name(dtype));
              CAPTURE(keys);
              CAPTURE(block);
              CAPTURE(queries);
              CAPTURE(window);
              CAPTURE(quantized);
              // The copies of a GPU begin at multiples of their size, and are not so small. Halves that it makes
              // of blocks are in order.
              if (device.starts_with("cuda") && !quantized && queries > 16 &&
                  (window >= 0 || block < 16))
                continue;
              if (device.starts_with("cuda") && quantized && dtype == f32)
                continue;  // it has no kernel for them
              const Problem p{dtype, keys, block, queries, window, quantized};
              const Floats o = p.run(device, true);
              REQUIRE(o.size() == static_cast<size_t>(kBatch * queries * 2 * kRow));
              CHECK(std::ranges::any_of(o, [](float v) { return v != 0; }));
              CHECK(o == p.run(device, false));
            }
}
