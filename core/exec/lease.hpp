// SPDX-License-Identifier: Apache-2.0
// What a context keeps between the runs of one plan: buffers, and instances bound to them.
// Private to exec.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/app_tensor.hpp"
#include "exec/arena_pool.hpp"
#include "exec/control_run.hpp"
#include "exec/executable.hpp"

namespace tenon::core {

// A buffer for an output. While it has readers, no run writes it.
struct OwnOutput {
  std::shared_ptr<Buffer> buffer;
  std::shared_ptr<std::atomic<uint32_t>> readers = std::make_shared<std::atomic<uint32_t>>(0);
  // acquire: the readers have finished reading before the next run writes.
  bool is_free() const { return readers->load(std::memory_order_acquire) == 0; }
};

// memory: of the context's binding. copied: the run writes a buffer of the lease.
struct BoundOutput {
  size_t output;  // in Plan::outputs
  AppTensor* memory;
  bool copied;
};

struct Lease final : EntryReader, std::enable_shared_from_this<Lease> {
  explicit Lease(std::shared_ptr<const BoundPlan> bound);
  ~Lease() override;  // not while it runs
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::shared_ptr<const BoundPlan> bound;
  // Where the inputs and outputs of the next run are: here, or in memory of the app.
  std::vector<std::vector<std::shared_ptr<Buffer>>> inputs;  // [input][device]
  std::vector<std::shared_ptr<Buffer>> outputs;              // [slot]
  bool moved = false;                                        // since the instances were bound
  uint64_t bindings = 0;                                     // of the context, when placed
  bool shared = false;  // an output has readers, or had some when it was placed
  // Bound to memory of the app, as placed: outputs, and inputs that the run cannot read in place.
  std::vector<BoundOutput> bound_outputs;
  std::vector<size_t> copied_inputs;
  bool copies_app_memory() const {
    return !copied_inputs.empty() ||
           std::ranges::any_of(bound_outputs, [](const BoundOutput& o) { return o.copied; });
  }
  std::vector<std::vector<std::shared_ptr<Buffer>>>
      own_inputs;                                   // [input][device], null: not needed
  std::vector<uint64_t> input_versions;             // what own_inputs hold
  SymbolNumbers numbers;                            // of the last run, for a plan for buckets
  std::shared_ptr<const OutputTypes> output_types;  // likewise
  std::map<uint32_t, Type> cut_types;  // [output] of the last run, where extents were asked for
  const int64_t* number_of(std::string_view input) const;  // null: an input of the graph
  std::vector<std::vector<OwnOutput>> own_outputs;         // [slot]
  std::vector<std::shared_ptr<Event>> events;              // [region], null without streams
  std::vector<std::shared_ptr<Entry>> entries;             // [entry]
  std::vector<uint64_t> generations;                       // [entry]: bound below, 0 = none
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
  // Frees the instances, and with them what keeps the app's memory. Not while it runs.
  void free_instances() noexcept;
  // Unbinds the entries and frees the instances that may use them.
  void let_go() noexcept override;

  // Makes the lease use a buffer; null: its own, made when first needed.
  void use_input(size_t input, uint32_t device, std::shared_ptr<Buffer> buffer);
  void use_output(size_t slot, std::shared_ptr<Buffer> buffer);

  std::shared_ptr<Buffer> buffer_at(const Place& place, uint32_t device) const;

 private:
  void unbind_entries() noexcept;

  std::mutex
      run_mutex_;  // guards what follows, and what let_go() changes while no run is under way
  bool running_ = false;      // between borrow() and give_back()
  bool must_let_go_ = false;  // when the run has ended
  bool unbound_ = false;      // the entries, since the last run
};

}  // namespace tenon::core
