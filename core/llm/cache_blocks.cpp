// SPDX-License-Identifier: Apache-2.0
// Asks the planner what becomes of attention over blocks.
#include "llm/cache_blocks.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace tenon::llm {
namespace {

bool is_native(const Runtime& runtime, const std::string& device, int64_t heads,
               const TensorType& keys, const TensorType& values, int64_t block) {
  Graph g("llm.blocks");
  const auto pool = [&](const char* name, const TensorType& rows) {
    return g.input(name, {rows.dtype, {1, block, rows.dims[1], rows.dims[2]}});
  };
  const op::attention a{.layout = "bshd",
                        .causal = true,
                        .q = g.input("q", {keys.dtype, {1, 1, heads, keys.dims[2]}}),
                        .k = pool("k", keys),
                        .v = pool("v", values),
                        .kv_len = g.input("kv_len", {i64, {1}}),
                        .past_len = g.input("past_len", {i64, {1}}),
                        .block_table = g.input("block_table", {i64, {1, 1}})};
  g.output("o", g.add(a, "attention"));
  const Store nothing(runtime);
  const Executable planned(runtime, g, nothing, {.device = device});
  const nlohmann::json report = nlohmann::json::parse(planned.report());
  return std::ranges::all_of(report.at("nodes"), [](const nlohmann::json& node) {
    return node.at("op") != "attention" || node.at("verdict") == "native";
  });
}

}  // namespace

bool attends_in_blocks(const Runtime& runtime, const std::string& device, const ModelConfig& config,
                       std::span<const CacheState> caches, int64_t block) {
  std::set<std::pair<std::vector<int64_t>, std::vector<int64_t>>> asked;
  for (size_t i = 0; i + 1 < caches.size(); i += 2) {
    const TensorType &keys = caches[i].type, &values = caches[i + 1].type;
    if (!asked.insert({keys.dims, values.dims}).second) continue;
    if (!is_native(runtime, device, config.heads, keys, values, block)) return false;
  }
  return !asked.empty();
}

}  // namespace tenon::llm
