// SPDX-License-Identifier: Apache-2.0
// Runs regions and transfers of a lease.
#include "exec/region_runner.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace tenon::core {

void tell_no_callback(const std::exception& why) noexcept {
  try {
    log(LogLevel::info, cat("a thread waits for a device that does not call back: ", why.what()));
  } catch (const std::bad_alloc&) {  // it waits all the same
  }
}

void RegionRunner::run(uint32_t region) const {
  throw_if_cancelled(cancel_);
  if (plan().regions[region].control.plan) return run_hosted(region);
  Instance& instance = *lease_.instances[region];
  Stream* stream = stream_of(region);
  try {
    if (trace_)
      run_traced(instance, region);
    else
      instance.run(run_id_, stream, stream ? &event_of(region) : nullptr, &cancel_);
    if (!stream) note_end(region);
  } catch (const DeviceError& e) {
    explain(e, region);
  }
}

// Each region inside runs under an id of its own, which a failure brings back.
void RegionRunner::run_hosted(uint32_t region) const {
  HostedRegion& hosted = *lease_.hosted[region];
  const uint64_t first_id = ids_.fetch_add(hosted.leaves.size());
  Stream* stream = stream_of(region);
  try {
    const Stretch slice(trace_, Slice::Kind::region, region);
    if (trace_) trace_->regions[region].begin_ns = now_ns();
    hosted.run->run(first_id, stream, cancel_);
    if (stream) stream->synchronize();
    if (trace_) {
      RegionTimes& times = trace_->regions[region];
      times.end_ns = now_ns();
      times.steps.assign(1, {times.begin_ns, times.end_ns});
    }
  } catch (const DeviceError& e) {
    const uint64_t leaf = e.run_id() - first_id;
    if (e.run_id() < first_id || leaf >= hosted.leaves.size()) explain(e, region);
    const ControlLeaf& at = hosted.leaves[leaf];
    const auto& reports = at.plan->regions[at.region].report_of_step;
    const uint32_t report = e.step() < reports.size() ? reports[e.step()] : kNone;
    // With a stream the host may be trips ahead, and a function of a node inside counts its own.
    const bool direct = std::ranges::any_of(lease_.bound->functions[region],
                                            [&](const auto& f) { return &f->plan == at.plan; });
    const std::string trip = stream || !direct || !hosted.run->trips_begun()
                                 ? ""
                                 : cat(", trip ", hosted.run->trips_begun() - 1);
    const NodeReport* node = report == kNone ? nullptr : &at.plan->reports[report];
    throw StepError(e,
                    cat("run ", run_id_, ": ", at.where, trip, ": ",
                        node ? cat(node->op, " '", node->name, "': ") : "", e.what()),
                    run_id_,
                    {.node = node ? node->name : "",
                     .op = node ? node->op : "",
                     .device = at.plan->devices[at.plan->regions[at.region].device]->info().id});
  }
}

void RegionRunner::run_traced(Instance& instance, uint32_t region) const {
  Stream* stream = stream_of(region);
  Event* done = stream ? &event_of(region) : nullptr;
  const Stretch slice(trace_, Slice::Kind::region, region);
  trace_->regions[region].begin_ns = now_ns();
  if (instance.can_measure())
    instance.run_measured(run_id_, stream, done, &cancel_);
  else
    instance.run(run_id_, stream, done, &cancel_);
}

void RegionRunner::wait(uint32_t region) const {
  try {
    {
      const Stretch wait(trace_, Slice::Kind::wait);
      event_of(region).wait();
    }
    note_end(region);
  } catch (const DeviceError& e) {
    explain(e, region);
  }
}

void RegionRunner::note_end(uint32_t region) const {
  if (!trace_) return;
  RegionTimes& times = trace_->regions[region];
  times.end_ns = now_ns();
  Instance& instance = *lease_.instances[region];
  if (instance.can_measure()) {
    try {
      times.steps = instance.step_times(times.begin_ns, times.end_ns);
    } catch (const std::exception&) {  // the run itself succeeded
    }
  }
  // It was enqueued behind the regions before it on its device.
  for (uint32_t r = 0; r < region; ++r)
    if (plan().regions[r].device == plan().regions[region].device &&
        !plan().regions[r].control.plan)
      times.begin_ns = std::max(times.begin_ns, trace_->regions[r].end_ns);
}

void RegionRunner::copy(const PlannedCopy& c) const {
  if (c.size == 0) return;
  throw_if_cancelled(cancel_);
  const Stretch slice(trace_, Slice::Kind::copy, c.size);
  core::copy(*lease_.buffer_at(c.to, c.to_device), c.to.offset,
             *lease_.buffer_at(c.from, c.from_device), c.from.offset, c.size);
}

// Names the node of the step that failed, where the plugin said which step it was.
void RegionRunner::explain(const DeviceError& error, uint32_t region) const {
  const PlannedRegion& planned = plan().regions[region];
  FailedNode at{.device = plan().devices[planned.device]->info().id};
  if (error.step() >= planned.report_of_step.size())
    throw StepError(error, error.what(), run_id_, std::move(at));
  at.step = error.step();
  for (uint32_t r = 0; r < region; ++r)
    at.step += static_cast<uint32_t>(plan().regions[r].report_of_step.size());
  const uint32_t report = planned.report_of_step[error.step()];
  if (report == kNone) throw StepError(error, error.what(), run_id_, std::move(at));
  const NodeReport& node = plan().reports[report];
  at.node = node.name, at.op = node.op;
  throw StepError(error, cat("run ", run_id_, ": ", node.op, " '", node.name, "': ", error.what()),
                  run_id_, std::move(at));
}

}  // namespace tenon::core
