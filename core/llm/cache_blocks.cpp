// SPDX-License-Identifier: Apache-2.0
// Asks the planner what becomes of attention over a cache.
#include "llm/cache_blocks.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace tenon::llm {
namespace {

bool is_native(const Runtime& runtime, const std::string& device, int64_t heads,
               tenon_dtype queries, const TensorType& keys, const TensorType& values,
               int64_t block) {
  constexpr int64_t kTokens = 96;  // without blocks any number
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
  const Store nothing(runtime);
  const Executable planned(runtime, g, nothing, {.device = device});
  const nlohmann::json report = nlohmann::json::parse(planned.report());
  return std::ranges::all_of(report.at("nodes"), [](const nlohmann::json& node) {
    const auto& op = node.at("op");
    const bool asked = op == "attention" || op == "scatter" || op == "cast";
    return !asked || node.at("verdict") == "native";
  });
}

}  // namespace

bool attends_natively(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                      tenon_dtype queries, std::span<const CacheState> caches, int64_t block) {
  std::set<std::pair<std::vector<int64_t>, std::vector<int64_t>>> asked;
  for (size_t i = 0; i + 1 < caches.size(); i += 2) {
    const TensorType &keys = caches[i].type, &values = caches[i + 1].type;
    if (!asked.insert({keys.dims, values.dims}).second) continue;
    if (!is_native(runtime, device, config.heads, queries, keys, values, block)) return false;
  }
  return !asked.empty();
}

}  // namespace tenon::llm
