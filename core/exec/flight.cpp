// SPDX-License-Identifier: Apache-2.0
// One run. The same steps serve a caller that blocks and workers that do not: these ask events and
// earlier runs to call back.
#include "exec/flight.hpp"

namespace tenon::core {

Flight::Flight(Context& context, Lease& lease, AppEvents events)
    : context_(context),
      executable_(*context.executable_),
      lease_(lease),
      events_(std::move(events)),
      id_(executable_.runtime().next_run.fetch_add(1)) {
  into_ = executable_.runtime().tracing.current();
  if (into_) {
    trace_ = std::make_unique<RunTrace>();
    trace_->bound = lease_.bound;
    trace_->graph = executable_.graph().name;
    trace_->id = id_;
    trace_->regions.resize(lease_.bound->plan.regions.size());
  }
  waits_ = executable_.store()->enter(lease_.reads, lease_.updates, end_);
}

void Flight::run_blocking() {
  drive();
  rethrow();
}

void Flight::enqueue() {
  async_ = enqueues_ = true;
  take();
  drive();
}

void Flight::run_async() {
  async_ = true;
  blocking_ = false;
  try {
    // A run that its waiter took may be over, and its context gone, when the worker comes.
    executable_.runtime().workers.post([self = shared_from_this()] {
      if (self->take()) self->drive();
    });
  } catch (...) {
    async_ = false;                       // the caller gets the failure
    end_badly(std::current_exception());  // others may wait behind it
    throw;
  }
}

void Flight::wait() {
  if (take()) {
    blocking_ = true;
    drive();
  }
  end_->wait();
}

void Flight::drive() {
  for (;;) {
    std::exception_ptr error;
    try {
      begin_part();
      if (!advance()) return;
      end_part();
      hand_in_trace();
      return end_well();
    } catch (...) {
      error = std::current_exception();
    }
    if (!may_try_again(error)) return end_badly(error);
  }
}

bool Flight::advance() {
  if (!wait_in_line()) return false;
  if (!began_) {
    begin();
    // Once all is enqueued, a worker sees the end, if there is one.
    if (enqueues_ && only_enqueues() && executable_.runtime().workers.available())
      blocking_ = false;
  }
  const Plan& plan = lease_.bound->plan;
  if (!(plan.tasks.empty() ? run_one_region() : run_tasks())) return false;
  const RegionRunner runner = region_runner();
  for (const PlannedCopy& c : plan.after) runner.copy(c);
  context_.finish_outputs(lease_, id_, trace_.get());
  if (!std::exchange(recorded_, true)) context_.record_for_app(lease_, events_);
  return true;
}

// Is nothing left to do once the one region is enqueued?
bool Flight::only_enqueues() const {
  const Plan& plan = lease_.bound->plan;
  return plan.tasks.empty() && plan.after.empty() && !lease_.copies_app_memory();
}

RegionRunner Flight::region_runner() {
  return {lease_,           context_.streams_, id_, executable_.runtime().next_run,
          context_.cancel_, trace_.get()};
}

void Flight::begin_part() {
  if (trace_) part_begin_ns_ = now_ns();
}

void Flight::end_part() {
  if (!trace_) return;
  trace_->add(Slice::Kind::run, part_begin_ns_);
  part_begin_ns_ = now_ns();
}

void Flight::hand_in_trace() noexcept {
  if (!trace_) return;
  into_->add(std::move(*trace_));
  trace_ = nullptr;
  into_ = nullptr;
}

bool Flight::wait_in_line() {
  for (; next_wait_ < waits_.size(); ++next_wait_) {
    Completion& c = *waits_[next_wait_];
    if (blocking_) {
      const Stretch wait(trace_.get(), Slice::Kind::wait);
      c.wait();
      continue;
    }
    end_part();
    if (c.then([self = shared_from_this()] {
          self->executable_.runtime().workers.post([self] { self->drive(); });
        }))
      return false;
    begin_part();
  }
  return true;
}

void Flight::begin() {
  const Stretch bind(trace_.get(), Slice::Kind::bind);
  throw_if_cancelled(context_.cancel_);
  if (!tried_again_) context_.wait_for_app(lease_, events_);
  context_.bind(lease_, trace_.get());
  began_ = true;
}

bool Flight::run_one_region() {
  if (lease_.instances.empty()) return true;
  const RegionRunner runner = region_runner();
  if (!enqueued_) runner.run(0);
  if (!runner.is_enqueued(0)) return true;
  if (!recorded_ && enqueues_ && only_enqueues()) {
    context_.record_for_app(lease_, events_);
    recorded_ = true;
  }
  enqueued_ = true;
  Event& event = runner.event_of(0);
  if (!blocking_ && !signalled_ && !event.done()) {
    end_part();
    try {
      event.on_done([self = shared_from_this()] {
        self->executable_.runtime().workers.post([self] {
          self->signalled_ = true;
          self->drive();
        });
      });
      return false;
    } catch (const std::exception& e) {
      tell_no_callback(e);  // this thread waits; the region's own failure is the one to report
      begin_part();
    }
  }
  runner.wait(0);
  return true;
}

bool Flight::run_tasks() {
  if (!tasks_) {
    Workers& workers = executable_.runtime().workers;
    tasks_ = std::make_shared<TaskRun>(region_runner(), workers);
    if (!blocking_) {
      end_part();
      tasks_->start([self = shared_from_this()] { self->drive(); });
      return false;  // this object may be gone
    }
    tasks_->run();
  }
  tasks_->rethrow();
  return true;
}

// A run that updates nothing can be repeated: no step writes what it reads of inputs and weights.
bool Flight::may_try_again(const std::exception_ptr& error) {
  if (!began_ || tried_again_ || !lease_.updates.empty()) return false;
  // The app's own work may already come behind the run.
  if (enqueued_ && enqueues_) return false;
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError& e) {
    if (!e.retryable()) return false;
  } catch (...) {
    return false;
  }
  synchronize();
  lease_.give_back();
  for (const auto& device : lease_.bound->plan.devices) device->free_idle();
  tried_again_ = true;
  began_ = enqueued_ = signalled_ = false;
  tasks_ = nullptr;
  return true;
}

void Flight::end_well() {
  const Plan& plan = lease_.bound->plan;
  for (size_t e = 0; e < plan.entries.size(); ++e)
    if (plan.entries[e].updated)
      lease_.entries[e]->updated_on(*plan.devices[plan.entries[e].update_device]);
  lease_.give_back();
  tell_app();
  end_->finish();
}

void Flight::end_badly(std::exception_ptr error) {
  // Nothing may go on using buffers that the context gives up: neither a region under way, nor what
  // a region that failed had enqueued before. Only here does a run that does not block its caller
  // wait for a device.
  if (began_) synchronize();
  error_ = error;
  if (trace_) {
    end_part();
    trace_->failed = true;
    hand_in_trace();
  }
  if (began_) {
    std::string why = "the run that would have updated it failed";
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      why = cat("run ", id_, " of graph '", executable_.graph().name, "' failed (", e.what(), ")");
    }
    for (const auto& e : lease_.updates) e->mark_undefined(why);
  }
  lease_.give_back();
  tell_app();
  end_->finish();
}

void Flight::tell_app() noexcept {
  if (!async_ || !context_.on_end_) return;
  Code code = Code::ok;
  try {
    rethrow();
  } catch (const Error& e) {
    code = e.code();
  } catch (const std::bad_alloc&) {
    code = Code::out_of_memory;
  } catch (...) {
    code = Code::internal;
  }
  context_.on_end_(code);
}

void Flight::synchronize() noexcept {
  for (const auto& stream : context_.streams_)
    if (stream) {
      try {
        stream->synchronize();
      } catch (const std::exception&) {  // the first failure is the one to report
      }
    }
}

}  // namespace tenon::core
