// SPDX-License-Identifier: Apache-2.0
// What all executables of an app share: plugins, devices and the host's workers.
#pragma once

#include <atomic>
#include <memory>

#include "exec/trace.hpp"
#include "exec/workers.hpp"
#include "host/host.hpp"

namespace tenon::core {

struct Runtime {
  explicit Runtime(Host::Options options) : host(std::move(options)) {}
  Host host;
  std::atomic<uint64_t> next_run{1};
  Tracing tracing;
  Workers workers;  // last: its threads end before the plugins do
};

}  // namespace tenon::core
