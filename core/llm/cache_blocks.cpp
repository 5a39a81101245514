// SPDX-License-Identifier: Apache-2.0
// Asks the planner what becomes of attention over a cache.
#include "llm/cache_blocks.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace tenon::llm {
namespace {

constexpr int64_t kTokens = 96;  // of a cache without blocks: any number

// The nodes of the plan of a graph, as the report has them.
nlohmann::json planned_nodes(const Runtime& runtime, const std::string& device, const Graph& g) {
  const Store nothing(runtime);
  const Executable planned(runtime, g, nothing, {.device = device});
  return nlohmann::json::parse(planned.report()).at("nodes");
}
bool is_native(const nlohmann::json& node) { return node.at("verdict") == "native"; }

bool attends(const Runtime& runtime, const std::string& device, int64_t heads, tenon_dtype queries,
             const TensorType& keys, const TensorType& values, int64_t block) {
  const int64_t tokens = block > 0 ? block : kTokens;
  Graph g("llm.blocks");
  const auto cache = [&](const std::string& name, const TensorType& type) {
    const int64_t row_heads = type.dims[1], dim = type.dims[2];
    Value rows = g.input(name, {type.dtype, {tokens, row_heads, dim}});
    if (in_blocks(type.dtype)) {
      const Value now = g.input(name + "_now", {queries, {1, row_heads, dim}});
      rows = g.add(op::scatter{.oob = "skip",
                               .base = rows,
                               .indices = g.input(name + "_row", {i64, {1}}),
                               .updates = g.add(op::cast{.to = type.dtype, .x = now})});
    }
    return Value(g.add(op::reshape{.shape = {1, tokens, row_heads, dim}, .x = rows}));
  };
  op::attention a{.layout = "bshd",
                  .causal = true,
                  .q = g.input("q", {queries, {1, 1, heads, keys.dims[2]}}),
                  .k = cache("k", keys),
                  .v = cache("v", values),
                  .kv_len = g.input("kv_len", {i64, {1}}),
                  .past_len = g.input("past_len", {i64, {1}})};
  if (block > 0) a.block_table = g.input("block_table", {i64, {1, 1}});
  g.output("o", g.add(a, "attention"));
  return std::ranges::all_of(planned_nodes(runtime, device, g), [](const nlohmann::json& node) {
    const auto& op = node.at("op");
    const bool asked = op == "attention" || op == "scatter" || op == "cast";
    return !asked || is_native(node);
  });
}

bool decodes(const Runtime& runtime, const std::string& device, const ModelConfig& config,
             const TensorType& keys, const TensorType& values, int64_t block) {
  const int64_t tokens = block > 0 ? block : kTokens;
  Graph g("llm.decoding");
  const auto input = [&](const char* name, tenon_dtype dtype, std::vector<int64_t> dims) {
    return g.input(name, {dtype, std::move(dims)});
  };
  const int64_t dim = keys.dims[2], v_dim = values.dims[2], k_heads = keys.dims[1];
  op::decode_attention a{.block_size = block,
                         .q = input("q", keys.dtype, {1, config.heads, dim}),
                         .k = input("k", keys.dtype, {1, k_heads, dim}),
                         .v = input("v", keys.dtype, {1, k_heads, v_dim}),
                         .k_cache = input("k_cache", keys.dtype, {tokens, k_heads, dim}),
                         .v_cache = input("v_cache", keys.dtype, {tokens, k_heads, v_dim}),
                         .rows = input("rows", i64, {1}),
                         .kv_len = input("kv_len", i64, {1}),
                         .past_len = input("past_len", i64, {1})};
  if (config.rope.dims > 0 && config.rope.dims <= dim) {
    a.n_rot = config.rope.dims, a.interleaved = config.rope_interleaved;
    a.cos = input("cos", f32, {tokens, config.rope.dims / 2});
    a.sin = input("sin", f32, {tokens, config.rope.dims / 2});
    a.position_ids = input("positions", i64, {1});
  }
  if (block > 0) a.block_table = input("block_table", i64, {1, 1});
  g.output("o", g.add(a, "decoding"));
  // A device without a kernel gets the nodes that it stands for.
  return std::ranges::any_of(planned_nodes(runtime, device, g), [](const nlohmann::json& node) {
    return node.at("op") == "decode_attention" && is_native(node);
  });
}

// Asks once for each pair of types of keys and values.
template <class Ask>
bool of_all_layers(std::span<const CacheState> caches, Ask ask) {
  std::set<std::pair<std::vector<int64_t>, std::vector<int64_t>>> asked;
  for (size_t i = 0; i + 1 < caches.size(); i += 2) {
    const TensorType &keys = caches[i].type, &values = caches[i + 1].type;
    if (!asked.insert({keys.dims, values.dims}).second) continue;
    if (!ask(keys, values)) return false;
  }
  return !asked.empty();
}

}  // namespace

bool attends_natively(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                      tenon_dtype queries, std::span<const CacheState> caches, int64_t block) {
  return of_all_layers(caches, [&](const TensorType& keys, const TensorType& values) {
    return attends(runtime, device, config.heads, queries, keys, values, block);
  });
}

bool decodes_natively(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                      std::span<const CacheState> caches, int64_t block) {
  return of_all_layers(caches, [&](const TensorType& keys, const TensorType& values) {
    return decodes(runtime, device, config, keys, values, block);
  });
}

}  // namespace tenon::llm
