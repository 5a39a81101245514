// SPDX-License-Identifier: Apache-2.0
// A program with all addresses fixed, and what it is bound to: slots of buffers, lanes of steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "tenon/backend.h"

namespace tenon::core {

class Buffer;
class Event;
class Program;
class Stream;

// `step` begins when `after`, an earlier step of another lane, is done.
struct LaneWait {
  uint32_t step = 0, after = 0;
  friend bool operator==(const LaneWait&, const LaneWait&) = default;
};

// Which steps of a program may run beside each other. A lane runs its steps in the order of the
// program; all lanes begin with the run, the run ends with the last of them.
struct Lanes {
  uint32_t count = 1;
  std::vector<uint32_t> lane{};   // per step; empty: one lane, no waits
  std::vector<LaneWait> waits{};  // in the order of `step`
};

struct Slot {
  std::shared_ptr<Buffer> buffer;  // null only for size 0 or what nobody touches
  uint64_t offset = 0;
};

struct Binding {
  std::vector<Slot> values;      // one per program value; a view's slot is its base plus its offset
  std::vector<Slot> scratch;     // one per step
  const Lanes* lanes = nullptr;  // null: one lane
};

// A nonzero value asks the run to end before its next step.
using CancelWord = std::atomic<uint32_t>;
inline void throw_if_cancelled(const CancelWord& word) {
  if (word.load(std::memory_order_relaxed)) fail(Code::cancelled, "the run was cancelled");
}
static_assert(sizeof(CancelWord) == sizeof(uint32_t) && CancelWord::is_always_lock_free);

// When a step ran, in nanoseconds of the host's monotonic clock; 0 to 0: it was not measured.
struct StepTime {
  int64_t begin_ns = 0, end_ns = 0;
  uint32_t lane = 0;
};

class Instance {
 public:
  Instance(std::shared_ptr<Program> program, const Binding& binding);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Without a stream: returns when done, throws the failure if there is one. With a stream:
  // enqueues, and records done behind the work when given. cancel: see tenon_run_args; may be null.
  void run(uint64_t run_id, Stream* stream = nullptr, Event* done = nullptr,
           const CancelWord* cancel = nullptr);
  // Does the plugin measure the steps of a run?
  bool can_measure() const;
  // As run, measured.
  void run_measured(uint64_t run_id, Stream* stream = nullptr, Event* done = nullptr,
                    const CancelWord* cancel = nullptr);
  // Of the last measured run, which went well between these times, in the order of the program's
  // steps. Empty when what the plugin says cannot be.
  std::vector<StepTime> step_times(int64_t begin_ns, int64_t end_ns);
  // New addresses; not while it runs. Makes a new instance where the plugin cannot rebind.
  void rebind(const Binding& binding);
  Program& program() const { return *program_; }

 private:
  void destroy(tenon_instance* handle) noexcept;

  std::shared_ptr<Program> program_;
  std::vector<std::shared_ptr<Buffer>> buffers_;  // what it is bound to
  tenon_instance* handle_ = nullptr;
};

}  // namespace tenon::core
