// SPDX-License-Identifier: Apache-2.0
// Seconds that work takes on a device, estimated from its rates: what placement compares.
#pragma once

#include <cstdint>
#include <span>

#include "host/rates.hpp"
#include "ir/graph.hpp"

namespace tenon::core {

// Of one node of a bound graph: reading its operands and writing its outputs at the rate of copies,
// or its products at their rate, whichever is longer.
double price_of(const Graph& graph, const NodeInfo& node, const Rates& rates);

// Of carrying so many bytes in one value from one device to another, by way of the host.
double price_of_transfer(uint64_t bytes, const Rates& from, const Rates& to);

// Of a run of the whole graph: its nodes, and its inputs and outputs carried from and to the host
// where that cannot reach the device's memory.
double price_of_run(const Graph& graph, const Rates& rates, bool host_addressable);

}  // namespace tenon::core
