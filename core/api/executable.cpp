// SPDX-License-Identifier: Apache-2.0
// Doors of the executable and of the context.
#include <nlohmann/json.hpp>

#include "api/door.hpp"
#include "api/tensor.hpp"

using namespace tenon::core;

namespace {

constexpr const char* kExecNames[] = {"default", "stream", "graph", "eager", "multi_stream"};
constexpr uint32_t kUsualLanes = 4;

void take_modes(const tenon_executable_options& o, ExecutableOptions& options) {
  if (o.exec_mode >= std::size(kExecNames))
    fail(Code::invalid_argument, "exec_mode ", o.exec_mode, " is unknown");
  if (o.compile_mode > TENON_COMPILE_MODE_AOT)
    fail(Code::invalid_argument, "compile_mode ", o.compile_mode, " is unknown");
  if (o.exec_mode != TENON_EXEC_MULTI_STREAM && o.lanes != 0)
    fail(Code::invalid_argument, "lanes ", o.lanes, " with exec_mode ", kExecNames[o.exec_mode],
         ", expected 0: lanes are for multi_stream");
  if (o.lanes > TENON_MAX_LANES)
    fail(Code::invalid_argument, "lanes ", o.lanes, ", expected at most ", TENON_MAX_LANES);
  options.plan.exec_mode = o.exec_mode;
  if (o.exec_mode == TENON_EXEC_MULTI_STREAM) options.plan.lanes = o.lanes ? o.lanes : kUsualLanes;
  options.plan.aot = o.compile_mode == TENON_COMPILE_MODE_AOT;
  if (o.progress)
    options.progress = [call = o.progress, user = o.progress_user](uint32_t done, uint32_t total) {
      return call(user, done, total) == 0;
    };
}

void take_placement(const tenon_executable_options& o, ExecutableOptions& options) {
  if (o.device.size) options.device = view(o.device);
  if (o.pin_count) need(o.pin_patterns, "pin_patterns"), need(o.pin_devices, "pin_devices");
  for (uint32_t i = 0; i < o.pin_count; ++i)
    options.pins.emplace_back(view(o.pin_patterns[i]), view(o.pin_devices[i]));
  if (o.memory_limit_count) need(o.memory_limits, "memory_limits");
  options.plan.memory_limits.assign(o.memory_limits, o.memory_limits + o.memory_limit_count);
}

void take_buckets(const tenon_executable_options& o, ExecutableOptions& options) {
  if (o.bucket_count)
    need(o.bucket_symbols, "bucket_symbols"), need(o.bucket_sizes, "bucket_sizes");
  for (uint32_t i = 0; i < o.bucket_count; ++i) {
    const std::string symbol(view(o.bucket_symbols[i]));
    options.buckets.emplace_back(
        symbol, Buckets::parse(view(o.bucket_sizes[i]), cat("bucket of symbol '", symbol, "'")));
  }
}

// What a run must move at least: each input, weight and state read once, each output and update
// written once.
uint64_t moved_bytes(const Plan& plan) {
  uint64_t bytes = 0;
  for (const PlannedInput& in : plan.inputs) bytes += type_bytes(in.type);
  for (const PlannedEntry& e : plan.entries)
    bytes += type_bytes(e.type) * ((e.devices.empty() ? 0 : 1) + (e.updated ? 1 : 0));
  for (const OutputSlot& out : plan.output_slots) bytes += type_bytes(out.type);
  return bytes;
}

nlohmann::json report_json(const Plan& plan, const PlanOptions& options) {
  using nlohmann::json;
  const auto id = [&](uint32_t d) { return plan.devices[d]->info().id; };
  json out;
  out["nodes"] = json::array();
  for (const NodeReport& r : plan.reports)
    out["nodes"].push_back({{"name", r.name},
                            {"op", r.op},
                            {"device", id(r.device)},
                            {"verdict", verdict_name(r.verdict)},
                            {"reason", r.reason},
                            {"note", r.note},
                            {"flops", r.flops}});
  out["regions"] = json::array();
  out["steps"] = json::array();
  for (size_t r = 0; r < plan.regions.size(); ++r) {
    const PlannedRegion& region = plan.regions[r];
    const auto& steps = region.program->steps();
    const Lanes& lanes = region.lanes;
    out["regions"].push_back({{"device", id(region.device)},
                              {"steps", steps.size()},
                              {"transfers_in", region.before.size()},
                              {"lanes", lanes.count},
                              {"waits", lanes.waits.size()},
                              {"lanes_note", region.lanes_note}});
    auto wait = lanes.waits.begin();
    for (size_t s = 0; s < steps.size(); ++s) {
      const uint32_t node = region.report_of_step[s];
      json after = json::array();
      for (; wait != lanes.waits.end() && wait->step == s; ++wait) after.push_back(wait->after);
      out["steps"].push_back({{"region", r},
                              {"label", steps[s].label},
                              {"scratch", steps[s].scratch},
                              {"node", node == kNone ? "" : plan.reports[node].name},
                              {"lane", lanes.lane.empty() ? 0 : lanes.lane[s]},
                              {"after", std::move(after)}});
    }
  }
  out["memory"] = json::array();
  for (uint32_t d = 0; d < plan.devices.size(); ++d) {
    const MemoryNeed need = memory_need(plan, d);
    const std::vector<uint64_t>& limits = options.memory_limits;
    out["memory"].push_back({{"device", id(d)},
                             {"peak", plan.arenas[d].peak},
                             {"bound", plan.arenas[d].bound},
                             {"weights", need.weights},
                             {"derived_weights", need.derived},
                             {"state", need.state},
                             {"constants", need.constants},
                             {"inputs", need.inputs},
                             {"outputs", need.outputs},
                             {"limit", d < limits.size() ? limits[d] : 0}});
  }
  out["bytes"] = moved_bytes(plan);
  out["exec"] = kExecNames[options.exec_mode];
  out["compile"] = options.aot ? "aot" : "jit";
  out["remarks"] = plan.remarks;
  return out;
}

}  // namespace

tenon_status* tenon_executable_create(tenon_runtime* runtime, const tenon_graph* graph,
                                      tenon_store* store, const tenon_executable_options* given,
                                      tenon_executable** out_executable) {
  return door("tenon_executable_create", [&] {
    const tenon_executable_options o = taken(given, "tenon_executable_options");
    if (o.fallback > TENON_FALLBACK_DENY)
      fail(Code::invalid_argument, "fallback ", o.fallback, " is unknown");
    constexpr uint32_t kFlags = TENON_COMPILE_NO_SIMPLIFY | TENON_COMPILE_DECOMPOSE_ALL |
                                TENON_COMPILE_NO_FUSE | TENON_COMPILE_BATCH_INVARIANT;
    if (o.flags & ~kFlags)
      fail(Code::invalid_argument, "flags ", o.flags, ": bits ", o.flags & ~kFlags, " are unknown");
    ExecutableOptions options;
    take_placement(o, options);
    take_buckets(o, options);
    options.allow_fallback = o.fallback == TENON_FALLBACK_ALLOW;
    options.plan.simplify = !(o.flags & TENON_COMPILE_NO_SIMPLIFY);
    options.plan.fuse = !(o.flags & TENON_COMPILE_NO_FUSE);
    options.plan.decompose_all = o.flags & TENON_COMPILE_DECOMPOSE_ALL;
    options.plan.batch_invariant = o.flags & TENON_COMPILE_BATCH_INVARIANT;
    take_modes(o, options);
    need(out_executable, "out_executable");
    *out_executable = new tenon_executable{
        std::make_shared<Executable>(need(runtime, "runtime").runtime, need(graph, "graph").graph,
                                     need(store, "store").store, std::move(options))};
  });
}

void tenon_executable_destroy(tenon_executable* executable) { delete executable; }

tenon_status* tenon_executable_report(tenon_executable* executable, const tenon_str* symbols,
                                      const int64_t* numbers, uint32_t count,
                                      tenon_text** out_json) {
  return door("tenon_executable_report", [&] {
    const auto bound =
        need(executable, "executable").executable->plan_for(numbers_of(symbols, numbers, count));
    need(out_json, "out_json");
    const PlanOptions& options = executable->executable->plan_options();
    *out_json = new tenon_text{report_json(bound->plan, options)
                                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  });
}

tenon_status* tenon_context_create(tenon_executable* executable, tenon_context** out_context) {
  return door("tenon_context_create", [&] {
    need(out_context, "out_context");
    *out_context = new tenon_context(need(executable, "executable").executable);
  });
}

void tenon_context_destroy(tenon_context* context) { delete context; }

tenon_status* tenon_context_set(tenon_context* context, tenon_str input,
                                const tenon_tensor* tensor) {
  return door("tenon_context_set", [&] {
    Context& c = need(context, "context").context;
    const HostTensor t =
        host_tensor(c.executable().runtime(), tensor, cat("input '", view(input), "'"));
    c.set(view(input), t.type, t.content);
  });
}

tenon_status* tenon_context_bind(tenon_context* context, tenon_str name,
                                 const tenon_tensor* tensor) {
  return door("tenon_context_bind", [&] {
    Context& c = need(context, "context").context;
    c.bind(view(name),
           app_tensor(c.executable().runtime(), tensor, cat("'", view(name), "'"), nullptr));
  });
}

tenon_status* tenon_context_unbind(tenon_context* context, tenon_str name) {
  return door("tenon_context_unbind", [&] { need(context, "context").context.unbind(view(name)); });
}

tenon_status* tenon_context_use_stream(tenon_context* context, tenon_str device,
                                       void* native_stream) {
  return door("tenon_context_use_stream",
              [&] { need(context, "context").context.use_stream(view(device), native_stream); });
}

tenon_status* tenon_context_stream(tenon_context* context, tenon_str device,
                                   void** out_native_stream) {
  return door("tenon_context_stream", [&] {
    void* stream = need(context, "context").context.native_stream(view(device));
    need(out_native_stream, "out_native_stream") = stream;
  });
}

tenon_status* tenon_context_wait_event(tenon_context* context, tenon_str device,
                                       void* native_event) {
  return door("tenon_context_wait_event",
              [&] { need(context, "context").context.wait_event(view(device), native_event); });
}

tenon_status* tenon_context_record_event(tenon_context* context, tenon_str device,
                                         void* native_event) {
  return door("tenon_context_record_event",
              [&] { need(context, "context").context.record_event(view(device), native_event); });
}

tenon_status* tenon_context_on_end(tenon_context* context,
                                   void (*callback)(void* user, tenon_code code), void* user) {
  return door("tenon_context_on_end", [&] {
    Context& c = need(context, "context").context;
    if (callback)
      c.on_end([=](Code code) { callback(user, static_cast<tenon_code>(code)); });
    else
      c.on_end({});
  });
}

void tenon_context_cancel(tenon_context* context) {
  if (context) context->context.cancel();
}

tenon_status* tenon_context_run(tenon_context* context) {
  return door("tenon_context_run", [&] { need(context, "context").context.run(); });
}

tenon_status* tenon_context_run_async(tenon_context* context) {
  return door("tenon_context_run_async", [&] { need(context, "context").context.run_async(); });
}

tenon_status* tenon_context_query(tenon_context* context, uint32_t* out_done) {
  return door("tenon_context_query", [&] {
    Context& c = need(context, "context").context;
    const bool done = c.done();
    need(out_done, "out_done");
    *out_done = done;
    if (done) c.wait();
  });
}

tenon_status* tenon_context_wait(tenon_context* context) {
  return door("tenon_context_wait", [&] { need(context, "context").context.wait(); });
}

tenon_status* tenon_context_output_type(tenon_context* context, tenon_str output,
                                        tenon_tensor_type* out_type) {
  return door("tenon_context_output_type", [&] {
    need(out_type, "out_type");
    give(*out_type, to_c(need(context, "context").context.output_type(view(output))), "out_type");
  });
}

tenon_status* tenon_context_output(tenon_context* context, tenon_str output,
                                   tenon_tensor* out_tensor) {
  return door("tenon_context_output", [&] {
    Context& c = need(context, "context").context;
    need(out_tensor, "out_tensor");
    const Type& type = c.output_type(view(output));
    const OutputPlace place = c.output_place(view(output));
    tenon_tensor t{};
    t.dims = type.shape.begin();
    t.data = place.address;
    t.size = type_bytes(type);
    t.rank = static_cast<uint32_t>(type.shape.rank());
    t.dtype = type.dtype;
    if (place.device) t.device = c_str(place.device->info().id);
    give(*out_tensor, t, "out_tensor");
  });
}

tenon_status* tenon_context_get(tenon_context* context, tenon_str output, void* data,
                                uint64_t size) {
  return door("tenon_context_get", [&] {
    if (size) need(static_cast<char*>(data), "data");
    need(context, "context").context.get(view(output), data, size);
  });
}
