// SPDX-License-Identifier: Apache-2.0
// What a context keeps between the runs of one plan: buffers, and instances bound to them.
// Private to exec.
#pragma once

#include <memory>
#include <vector>

#include "exec/arena_pool.hpp"
#include "exec/control_run.hpp"
#include "exec/executable.hpp"

namespace tenon::core {

struct Lease {
  explicit Lease(std::shared_ptr<const BoundPlan> bound);
  ~Lease();  // not while it runs
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<const BoundPlan> bound;
  std::vector<std::vector<std::shared_ptr<Buffer>>> inputs;  // [input][device]
  std::vector<uint64_t> input_versions;                      // what the buffers hold
  std::vector<std::shared_ptr<Buffer>> outputs;              // [slot]
  std::vector<std::shared_ptr<Event>> events;                // [region], null without streams
  std::vector<std::shared_ptr<Entry>> entries;               // [entry]
  std::vector<uint64_t> generations;                         // [entry]: bound below, 0 = none
  // What the instances are bound to.
  std::vector<std::vector<std::shared_ptr<Buffer>>> entry_buffers;  // [entry][device]
  std::vector<std::shared_ptr<Buffer>> derived;                     // [derived weight]
  std::vector<std::shared_ptr<Entry>> reads, updates;               // for the store's order
  uint64_t store_version = 0;

  // Working memory, and what is bound to it. While the lease does not run, a pool that is short of
  // memory may take both away: touch them only between borrow() and give_back().
  std::vector<std::vector<std::shared_ptr<ArenaChunk>>> arenas;  // [device][chunk]
  std::vector<std::shared_ptr<Instance>> instances;              // [region], null for a hosted one
  std::vector<std::shared_ptr<HostedRegion>> hosted;             // [region], null for others
  bool ready = false;  // the instances are bound to all the buffers above

  // Borrows the working memory of a run. Clears `ready` if the memory is not that of the last run.
  void borrow();
  void give_back() noexcept;

  std::shared_ptr<Buffer> buffer_at(const Place& place, uint32_t device) const;
};

}  // namespace tenon::core
