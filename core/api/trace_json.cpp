// SPDX-License-Identifier: Apache-2.0
// Writes the records of a trace as Chrome trace events.
#include "api/trace_json.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "exec/executable.hpp"

namespace tenon::core {
namespace {

using nlohmann::json;

constexpr uint32_t kHost = 1;  // process number
constexpr size_t kPiece = 1 << 20;

std::string text_of(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The part that all runs of a plan share: {"name":...,"cat":...,"args":{... without its end.
struct StepTexts {
  std::vector<std::vector<std::string>> steps;  // [region][step]
};

// Steps per node. If a node became several steps, none of them has the work of the whole node.
std::vector<uint32_t> steps_of_nodes(const Plan& plan) {
  std::vector<uint32_t> count(plan.reports.size());
  for (const PlannedRegion& region : plan.regions)
    for (uint32_t r : region.report_of_step)
      if (r != kNone) ++count[r];
  return count;
}

std::string step_text(const Plan& plan, const PlannedRegion& region, size_t s,
                      const std::vector<uint32_t>& steps_of) {
  const Program& program = *region.program;
  const Step& step = program.steps()[s];
  uint64_t bytes = 0;
  for (const auto* list : {&step.reads, &step.writes})
    for (uint32_t v : *list) bytes += program.values()[v].size;
  json args{{"device", plan.devices[region.device]->info().id},
            {"step", s},
            {"bytes", bytes},
            {"scratch", step.scratch}};
  std::string name = step.label;
  if (const uint32_t r = region.report_of_step[s]; r != kNone) {
    const NodeReport& node = plan.reports[r];
    args["op"] = node.op;
    args["node"] = node.name;
    args["verdict"] = verdict_name(node.verdict);
    if (!node.provenance.empty()) args["provenance"] = node.provenance;
    if (node.flops > 0 && steps_of[r] == 1) args["flops"] = node.flops;
    if (!node.note.empty()) args["note"] = node.note;
    if (name.empty()) name = node.op;
  }
  std::string text = text_of({{"name", name.empty() ? "step" : name}, {"cat", "step"}});
  text.pop_back();
  text += ",\"args\":" + text_of(args);
  text.pop_back();
  return text;
}

class Writer {
 public:
  Writer(const Trace& trace, const std::function<void(std::string_view)>& sink)
      : trace_(trace), sink_(sink) {}

  void write() {
    out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
    name_process(kHost, "host");
    for (const RunTrace& run : trace_.runs()) write_run(run);
    const auto runs = std::ranges::count_if(trace_.runs(), [](const RunTrace& r) {
      return r.slices.empty() || r.slices[0].kind != Slice::Kind::read;
    });
    out_ += "\n],\"otherData\":" + text_of({{"runs", runs}, {"dropped_runs", trace_.dropped()}}) +
            "}\n";
    sink_(out_);
  }

 private:
  void write_run(const RunTrace& run) {
    const Plan& plan = run.bound->plan;
    std::vector<Slice> slices = run.slices;
    // Outer slices first.
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    for (const Slice& s : slices) {
      name_thread(kHost, s.thread, cat("thread ", s.thread));
      event(kHost, s.thread, s.begin_ns, s.end_ns, slice_text(run, s), run);
      if (s.kind == Slice::Kind::region) write_steps(run, plan, s);
    }
  }

  std::string slice_text(const RunTrace& run, const Slice& s) const {
    const Plan& plan = run.bound->plan;
    json j{{"name", "run"}, {"cat", "run"}};
    json args = json::object();
    switch (s.kind) {
      case Slice::Kind::run:
        if (!run.graph.empty()) j["name"] = cat("run ", run.graph);
        args["graph"] = run.graph;
        if (run.failed) args["failed"] = true;
        break;
      case Slice::Kind::wait:
        j["name"] = j["cat"] = "wait";
        break;
      case Slice::Kind::bind:
        j["name"] = j["cat"] = "bind";
        break;
      case Slice::Kind::copy:
        j["name"] = j["cat"] = "copy";
        args["bytes"] = s.index;
        break;
      case Slice::Kind::write:
        j["name"] = cat("write ", plan.inputs[s.index].name), j["cat"] = "write";
        args["bytes"] = type_bytes(plan.inputs[s.index].type);
        break;
      case Slice::Kind::fill:
        j["name"] = cat("fill ", plan.entries[s.index].name), j["cat"] = "fill";
        args["bytes"] = type_bytes(plan.entries[s.index].type);
        break;
      case Slice::Kind::read: {
        const NamedOutput& out = plan.outputs[s.index];
        j["name"] = cat("read ", out.name), j["cat"] = "read";
        args["bytes"] = type_bytes(plan.output_slots[out.slot].type);
        break;
      }
      case Slice::Kind::region: {
        const PlannedRegion& region = plan.regions[s.index];
        j["name"] = cat("region ", s.index);
        j["cat"] = "region";
        args["device"] = plan.devices[region.device]->info().id;
        args["steps"] = region.program->steps().size();
        args["measured"] = !run.regions[s.index].steps.empty();
        break;
      }
    }
    std::string text = text_of(j);
    text.pop_back();
    text += ",\"args\":" + text_of(args);
    text.pop_back();
    return text;
  }

  void write_steps(const RunTrace& run, const Plan& plan, const Slice& s) {
    const RegionTimes& times = run.regions[s.index];
    Device& device = *plan.devices[plan.regions[s.index].device];
    const bool streams = device.has_streams();
    if (streams && times.steps.empty() && times.end_ns)
      event(process_of(device, 0), 0, times.begin_ns, times.end_ns, slice_text(run, s), run);
    const auto& texts = texts_of(*run.bound).steps[s.index];
    for (size_t i = 0; i < times.steps.size(); ++i) {
      const StepTime& t = times.steps[i];
      if (t.begin_ns == 0 && t.end_ns == 0) continue;
      // If the calling thread computes, its work is inside that thread's slice.
      const bool here = !streams && t.lane == 0;
      event(here ? kHost : process_of(device, t.lane), here ? s.thread : t.lane, t.begin_ns,
            t.end_ns, texts[i], run);
    }
  }

  const StepTexts& texts_of(const BoundPlan& bound) {
    const auto [at, fresh] = texts_.try_emplace(&bound);
    if (!fresh) return at->second;
    const std::vector<uint32_t> steps_of = steps_of_nodes(bound.plan);
    for (const PlannedRegion& region : bound.plan.regions) {
      auto& texts = at->second.steps.emplace_back();
      for (size_t s = 0; s < region.program->steps().size(); ++s)
        texts.push_back(step_text(bound.plan, region, s, steps_of));
    }
    return at->second;
  }

  uint32_t process_of(const Device& device, uint32_t lane) {
    const auto [at, fresh] =
        processes_.try_emplace(&device, kHost + 1 + static_cast<uint32_t>(processes_.size()));
    if (fresh) name_process(at->second, device.info().id);
    name_thread(at->second, lane, cat("lane ", lane));
    return at->second;
  }
  void name_process(uint32_t process, const std::string& name) {
    put(text_of(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}}));
  }
  void name_thread(uint32_t process, uint32_t thread, const std::string& name) {
    if (!threads_.insert({process, thread}).second) return;
    put(text_of({{"ph", "M"},
                 {"name", "thread_name"},
                 {"pid", process},
                 {"tid", thread},
                 {"args", {{"name", name}}}}));
  }

  void event(uint32_t process, uint32_t thread, int64_t begin_ns, int64_t end_ns,
             const std::string& open_text, const RunTrace& run) {
    const int64_t at = begin_ns - trace_.begin_ns(), long_ns = end_ns - begin_ns;
    char tail[192];
    std::snprintf(tail, sizeof tail,
                  "%s\"run\":%llu},\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%lld.%03lld,"
                  "\"dur\":%lld.%03lld}",
                  open_text.ends_with('{') ? "" : ",", static_cast<unsigned long long>(run.id),
                  process, thread, static_cast<long long>(at / 1000),
                  static_cast<long long>(at % 1000), static_cast<long long>(long_ns / 1000),
                  static_cast<long long>(long_ns % 1000));
    put(open_text + tail);
  }

  void put(const std::string& event) {
    if (!first_) out_ += ",\n";
    first_ = false;
    out_ += event;
    if (out_.size() < kPiece) return;
    sink_(out_);
    out_.clear();
  }

  const Trace& trace_;
  const std::function<void(std::string_view)>& sink_;
  std::string out_;
  bool first_ = true;
  std::unordered_map<const BoundPlan*, StepTexts> texts_;
  std::map<const Device*, uint32_t> processes_;
  std::set<std::pair<uint32_t, uint32_t>> threads_;
};

}  // namespace

void write_trace(const Trace& trace, const std::function<void(std::string_view)>& sink) {
  Writer(trace, sink).write();
}

}  // namespace tenon::core
