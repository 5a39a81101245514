// SPDX-License-Identifier: Apache-2.0
// What all executables of an app share: plugins, devices and the host's workers.
#pragma once

#include <atomic>
#include <memory>

#include "exec/arena_pool.hpp"
#include "exec/trace.hpp"
#include "exec/workers.hpp"
#include "host/host.hpp"

namespace tenon::core {

struct Runtime {
  explicit Runtime(Host::Options options) : host(std::move(options)) {
    // A device may live longer than the runtime, in a store.
    host.when_short([pools = std::weak_ptr(arenas)](const Device& device) {
      if (const auto p = pools.lock()) p->flush(device);
    });
  }
  const std::shared_ptr<ArenaPools> arenas = std::make_shared<ArenaPools>();
  Host host;
  std::atomic<uint64_t> next_run{1};
  Tracing tracing;
  Workers workers;  // last: its threads end before the plugins do
};

}  // namespace tenon::core
