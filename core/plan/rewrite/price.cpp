// SPDX-License-Identifier: Apache-2.0
// Estimates the time of nodes, transfers and runs from a device's rates.
#include "plan/rewrite/price.hpp"

#include <algorithm>

#include "ops/build.hpp"
#include "ops/cost.hpp"

namespace tenon::core {
namespace {

constexpr double kForked = 1 << 17;  // bytes from which threads share a step

double product_rate(const Graph& graph, const NodeInfo& node, const Rates& rates) {
  DType d = TENON_DTYPE_NONE;  // of the first operand that is there: a registered op may lack any
  for (Value v : node.operands)
    if (v && d == TENON_DTYPE_NONE) d = graph.type(v).dtype;
  const AttrValue* precision = node.attr("f32_precision");
  const auto* word = precision ? std::get_if<std::string>(precision) : nullptr;
  const bool tf32 = d == kF32 && word && *word == "tf32";
  const auto at = rates.products.find(tf32 ? "tf32" : dtype_name(d));
  if (at != rates.products.end()) return at->second;
  double slowest = 0;  // the device may take it all the same
  for (const auto& [name, rate] : rates.products)
    slowest = slowest == 0 ? rate : std::min(slowest, rate);
  return slowest;
}

}  // namespace

double price_of(const Graph& graph, const NodeInfo& node, const Rates& rates) {
  const double bytes = least_bytes(graph, node);
  double seconds = bytes / rates.copy;
  if (const double flops = product_flops(graph, node); flops > 0)
    if (const double rate = product_rate(graph, node, rates); rate > 0)
      seconds = std::max(seconds, flops / rate);
  return seconds + rates.step + (bytes >= kForked ? rates.fork : 0);
}

double price_of_transfer(uint64_t bytes, const Rates& from, const Rates& to) {
  const auto n = static_cast<double>(bytes);
  return n / from.from_device + from.transfer + n / to.to_device + to.transfer;
}

double price_of_run(const Graph& graph, const Rates& rates, bool host_addressable) {
  double seconds = rates.run;
  for (NodeId n = 0; n < graph.node_count(); ++n) seconds += price_of(graph, graph[n], rates);
  if (host_addressable) return seconds;
  for (Value v : graph.inputs())
    seconds += static_cast<double>(type_bytes(graph.type(v))) / rates.to_device + rates.transfer;
  for (const Output& o : graph.outputs())
    seconds +=
        static_cast<double>(type_bytes(graph.type(o.value))) / rates.from_device + rates.transfer;
  return seconds;
}

}  // namespace tenon::core
