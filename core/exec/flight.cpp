// SPDX-License-Identifier: Apache-2.0
// One run. The same steps serve a caller that blocks and workers that do not: what has to be waited
// for is either waited for, or asked to call back.
#include "exec/flight.hpp"

namespace tenon::core {

std::shared_ptr<Buffer> Lease::buffer_at(const Place& place, uint32_t device) const {
  switch (place.home) {
    case Home::none:
      return nullptr;
    case Home::arena:
      return arenas[device][place.index];
    case Home::input:
      return inputs[place.index][device];
    case Home::output:
      return outputs[place.index];
    case Home::entry:
      return entry_buffers[place.index][device];
    case Home::constant:
      return bound->constants[device][place.index];
    case Home::derived:
      return derived[place.index];
  }
  return nullptr;
}

Flight::Flight(Context& context, Lease& lease)
    : context_(context),
      executable_(*context.executable_),
      lease_(lease),
      id_(executable_.runtime().next_run.fetch_add(1)),
      pending_(lease_.bound->plan.devices.size(), kNone) {
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

void Flight::run_async() {
  blocking_ = false;
  try {
    // A run that its waiter took may be over, and its context gone, when the worker comes.
    executable_.runtime().workers.post([self = shared_from_this()] {
      if (self->take()) self->drive();
    });
  } catch (...) {
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
  try {
    begin_part();
    if (!advance()) return;
    end_part();
    hand_in_trace();
    end_well();
  } catch (...) {
    end_badly(std::current_exception());
  }
}

bool Flight::advance() {
  if (!wait_in_line()) return false;
  if (!began_) begin();
  const Plan& plan = lease_.bound->plan;
  for (; next_region_ < plan.regions.size(); ++next_region_, next_copy_ = 0)
    if (!do_region()) return false;
  if (!settle_all()) return false;
  for (const PlannedCopy& c : plan.after) do_copy(c);
  return true;
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
  context_.bind(lease_, trace_.get());
  began_ = true;
}

bool Flight::do_region() {
  const Plan& plan = lease_.bound->plan;
  const PlannedRegion& region = plan.regions[next_region_];
  for (; next_copy_ < region.before.size(); ++next_copy_) {
    const PlannedCopy& c = region.before[next_copy_];
    if (!settle(c.from_device) || !settle(c.to_device)) return false;
    do_copy(c);
  }
  Instance& instance = *lease_.instances[next_region_];
  const uint32_t d = region.device;
  try {
    if (Stream* stream = context_.streams_[d].get()) {
      if (!settle(d)) return false;
      run_region(instance, stream, context_.events_[d].get());
      pending_[d] = static_cast<uint32_t>(next_region_);
    } else {
      run_region(instance, nullptr, nullptr);
      region_is_done(static_cast<uint32_t>(next_region_));
    }
  } catch (const DeviceError& e) {
    explain(e, static_cast<uint32_t>(next_region_));
  }
  return true;
}

void Flight::run_region(Instance& instance, Stream* stream, Event* done) {
  if (!trace_) return instance.run(id_, stream, done);
  const Stretch region(trace_.get(), Slice::Kind::region, next_region_);
  trace_->regions[next_region_].begin_ns = now_ns();
  if (instance.can_measure())
    instance.run_measured(id_, stream, done);
  else
    instance.run(id_, stream, done);
}

void Flight::region_is_done(uint32_t region) {
  if (!trace_) return;
  RegionTimes& times = trace_->regions[region];
  times.end_ns = now_ns();
  Instance& instance = *lease_.instances[region];
  if (!instance.can_measure()) return;
  try {
    times.steps = instance.step_times(times.begin_ns, times.end_ns);
  } catch (const std::exception&) {  // the run went well
  }
}

// Waits for what is under way on a device's stream.
bool Flight::settle(uint32_t device) {
  if (pending_[device] == kNone) return true;
  Event& event = *context_.events_[device];
  const uint32_t region = pending_[device];
  try {
    if (!blocking_ && !signalled_ && !event.done()) {
      end_part();
      event.on_done([self = shared_from_this()] {
        self->executable_.runtime().workers.post([self] {
          self->signalled_ = true;
          self->drive();
        });
      });
      return false;
    }
    signalled_ = false;
    pending_[device] = kNone;
    {
      const Stretch wait(trace_.get(), Slice::Kind::wait);
      event.wait();
    }
    region_is_done(region);
  } catch (const DeviceError& e) {
    pending_[device] = kNone;
    explain(e, region);
  }
  return true;
}

bool Flight::settle_all() {
  for (uint32_t d = 0; d < pending_.size(); ++d)
    if (!settle(d)) return false;
  return true;
}

void Flight::do_copy(const PlannedCopy& c) {
  if (c.size == 0) return;
  const Stretch copy(trace_.get(), Slice::Kind::copy, c.size);
  core::copy(*lease_.buffer_at(c.to, c.to_device), c.to.offset,
             *lease_.buffer_at(c.from, c.from_device), c.from.offset, c.size);
}

void Flight::end_well() {
  const Plan& plan = lease_.bound->plan;
  for (size_t e = 0; e < plan.entries.size(); ++e)
    if (plan.entries[e].updated)
      lease_.entries[e]->updated_on(*plan.devices[plan.entries[e].update_device]);
  end_->finish();
}

void Flight::end_badly(std::exception_ptr error) {
  // Nothing may go on using buffers that the context gives up: neither a region under way, nor what
  // a region that failed had enqueued before. Only here does a run that does not block its caller
  // wait for a device.
  if (began_)
    for (const auto& stream : context_.streams_)
      if (stream) {
        try {
          stream->synchronize();
        } catch (const std::exception&) {  // the first failure is the one to tell
        }
      }
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
  end_->finish();
}

// Step -> the node that people know.
void Flight::explain(const DeviceError& error, uint32_t region) const {
  const PlannedRegion& planned = lease_.bound->plan.regions[region];
  const uint32_t report =
      error.step() < planned.report_of_step.size() ? planned.report_of_step[error.step()] : kNone;
  if (report == kNone) throw DeviceError(error);
  const NodeReport& node = lease_.bound->plan.reports[report];
  throw DeviceError(error.code(),
                    cat("run ", id_, ": ", node.op, " '", node.name, "': ", error.what()),
                    error.run_id(), error.step(), error.index(), error.retryable());
}

}  // namespace tenon::core
