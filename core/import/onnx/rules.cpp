// SPDX-License-Identifier: Apache-2.0
// Finds the rule of a node.
#include "import/onnx/rules.hpp"

#include <unordered_map>

namespace tenon::core::onnx {

std::vector<std::span<const Rule>> all_rules() {
  return {
#define TENON_ONNX_ROW(family) family##_rules(),
      TENON_ONNX_RULES(TENON_ONNX_ROW)
#undef TENON_ONNX_ROW
  };
}

const Rule* find_rule(std::string_view domain, std::string_view op, int64_t opset) {
  static const auto by_op = [] {
    std::unordered_map<std::string_view, std::vector<const Rule*>> map;
    for (const auto& family : all_rules())
      for (const Rule& r : family) map[r.op].push_back(&r);
    return map;
  }();
  const auto at = by_op.find(op);
  if (at == by_op.end()) return nullptr;
  const Rule* best = nullptr;
  for (const Rule* r : at->second)
    if (r->domain == domain && r->since <= opset && (r->until == 0 || opset <= r->until) &&
        (!best || r->since > best->since))
      best = r;
  return best;
}

}  // namespace tenon::core::onnx
