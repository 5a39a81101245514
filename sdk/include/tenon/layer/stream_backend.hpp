// SPDX-License-Identifier: Apache-2.0
// The functions of the C ABI that differ for devices with streams. Included by stream_plugin.hpp;
// backend.hpp has the others.
#pragma once

#include "../choices.h"
#include "../native_streams.h"
#include "ranges.hpp"
#include "stream_instance.hpp"

namespace tenon::sdk::layer {

// Streams and events keep the outcomes of runs that may still report a failure.
struct Stream {
  DeviceState* device;
  void* native;
  bool owned;
  std::mutex mutex{};
  Outcomes runs{};  // since the last synchronization

  void add(std::span<const std::shared_ptr<Outcome>> more) {
    const std::lock_guard lock(mutex);
    std::erase_if(runs, [](const auto& o) { return o->went_well(); });
    runs.insert(runs.end(), more.begin(), more.end());
  }
};

struct Event {
  DeviceState* device;
  void* native;
  std::mutex mutex{};
  Outcomes runs{};
};

// Returns the first failure among finished runs.
inline tenon_status* failure_of(const DeviceState& device, const char* function,
                                const Outcomes& runs) noexcept {
  for (const auto& outcome : runs) {
    try {
      if (const Outcome::Trouble* t = outcome->settle())
        return status({device.plugin, function, outcome->run_id(), t->step}, t->code, t->text,
                      t->index);
    } catch (...) {
      return status_of_exception({device.plugin, function});
    }
  }
  return nullptr;
}

// ---- Streams and events

inline tenon_status* stream_create(tenon_device* device, void* native,
                                   tenon_stream** out) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "stream_create"}, [&] {
    auto stream = std::make_unique<Stream>(state, native, native == nullptr);
    if (stream->owned) stream->native = stream_device(*state).stream_create();
    *out = reinterpret_cast<tenon_stream*>(stream.release());
  });
}

inline void stream_destroy(tenon_stream* stream) noexcept {
  auto* s = behind<Stream>(stream);
  if (s->owned) {
    stream_device(*s->device).stream_destroy(s->native);
  } else {
    try {
      stream_device(*s->device).stream_synchronize(s->native);
    } catch (...) {  // there is no one to report to
    }
  }
  delete s;
}

inline tenon_status* stream_synchronize(tenon_stream* stream) noexcept {
  auto* s = behind<Stream>(stream);
  Outcomes runs;
  // What was enqueued before the wait; it stays with the stream if the wait itself fails.
  tenon_status* failed = guarded({s->device->plugin, "stream_synchronize"}, [&] {
    {
      const std::lock_guard lock(s->mutex);
      runs = s->runs;
    }
    stream_device(*s->device).stream_synchronize(s->native);
  });
  if (failed) return failed;
  {
    const std::lock_guard lock(s->mutex);
    std::erase_if(s->runs, [&](const auto& o) { return std::ranges::count(runs, o) != 0; });
  }
  return failure_of(*s->device, "run", runs);
}

inline tenon_status* event_create(tenon_device* device, tenon_event** out) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "event_create"}, [&] {
    auto event = std::make_unique<Event>(state, nullptr);
    event->native = stream_device(*state).event_create();
    *out = reinterpret_cast<tenon_event*>(event.release());
  });
}

inline void event_destroy(tenon_event* event) noexcept {
  auto* e = behind<Event>(event);
  stream_device(*e->device).event_destroy(e->native);
  delete e;
}

inline void record(Event& e, Stream& s) {
  stream_device(*e.device).event_record(e.native, s.native);
  Outcomes runs;
  {
    const std::lock_guard lock(s.mutex);
    runs = s.runs;
  }
  const std::lock_guard lock(e.mutex);
  e.runs.swap(runs);
}

inline tenon_status* event_record(tenon_event* event, tenon_stream* stream) noexcept {
  auto* e = behind<Event>(event);
  return guarded({e->device->plugin, "event_record"}, [&] { record(*e, *behind<Stream>(stream)); });
}

inline tenon_status* stream_wait_event(tenon_stream* stream, tenon_event* event) noexcept {
  auto* s = behind<Stream>(stream);
  auto* e = behind<Event>(event);
  return guarded({s->device->plugin, "stream_wait_event"}, [&] {
    stream_device(*s->device).stream_wait(s->native, e->native);
    const std::lock_guard lock(e->mutex);
    s->add(e->runs);
  });
}

inline tenon_status* event_query(tenon_event* event, uint32_t* out_done) noexcept {
  auto* e = behind<Event>(event);
  bool done = false;
  if (tenon_status* lost = guarded({e->device->plugin, "event_query"},
                                   [&] { done = stream_device(*e->device).event_done(e->native); }))
    return lost;
  *out_done = done;
  if (!done) return nullptr;
  const std::lock_guard lock(e->mutex);
  return failure_of(*e->device, "run", e->runs);
}

inline tenon_status* event_wait(tenon_event* event) noexcept {
  auto* e = behind<Event>(event);
  if (tenon_status* lost = guarded({e->device->plugin, "event_wait"},
                                   [&] { stream_device(*e->device).event_synchronize(e->native); }))
    return lost;
  const std::lock_guard lock(e->mutex);
  return failure_of(*e->device, "run", e->runs);
}

inline tenon_status* event_on_done(tenon_event* event, void (*callback)(void*),
                                   void* user) noexcept {
  auto* e = behind<Event>(event);
  return guarded({e->device->plugin, "event_on_done"},
                 [&] { stream_device(*e->device).event_on_done(e->native, callback, user); });
}

// ---- Copies

// Only memory that the host sees as well has an address there.
inline void* stream_buffer_address(tenon_buffer* buffer) noexcept {
  auto* b = behind<Buffer>(buffer);
  const bool seen = b->kind != TENON_MEMORY_DEVICE ||
                    (b->device->spec.flags & TENON_DEVICE_HOST_ADDRESSABLE) != 0;
  return seen ? stream_device(*b->device).host_address(b->memory) : nullptr;
}

inline void* native_of(tenon_stream* stream) {
  return stream ? behind<Stream>(stream)->native : nullptr;
}

inline tenon_status* stream_buffer_write(tenon_buffer* buffer, uint64_t offset, const void* source,
                                         uint64_t size, tenon_stream* stream) noexcept {
  auto* b = behind<Buffer>(buffer);
  return guarded({b->device->plugin, "buffer_write"}, [&] {
    const Place to = range(*b, offset, size, "a write");
    if (size) stream_device(*b->device).write(to, source, size, native_of(stream));
  });
}

inline tenon_status* stream_buffer_read(tenon_buffer* buffer, uint64_t offset, void* target,
                                        uint64_t size, tenon_stream* stream) noexcept {
  auto* b = behind<Buffer>(buffer);
  return guarded({b->device->plugin, "buffer_read"}, [&] {
    const Place from = range(*b, offset, size, "a read");
    if (size) stream_device(*b->device).read(target, from, size, native_of(stream));
  });
}

inline tenon_status* stream_buffer_copy(tenon_buffer* target, uint64_t target_offset,
                                        tenon_buffer* source, uint64_t source_offset, uint64_t size,
                                        tenon_stream* stream) noexcept {
  auto *to = behind<Buffer>(target), *from = behind<Buffer>(source);
  return guarded({to->device->plugin, "buffer_copy"}, [&] {
    const Place write = range(*to, target_offset, size, "a copy");
    const Place read = range(*from, source_offset, size, "a copy");
    if (size)
      stream_device(*to->device)
          .copy(write, stream_device(*from->device), read, size, native_of(stream));
  });
}

// ---- Derived weights

inline tenon_status* stream_derive(tenon_program* program, const tenon_derive_args* args) noexcept {
  auto* p = behind<CompiledProgram>(program);
  return guarded({p->device->plugin, "derive"}, [&] {
    const Derivation d = derivation_of(*p, *args);
    StreamDevice& device = stream_device(*p->device);
    void *from = d.dense.address(), *to = d.derived.address();
    Call call;
    if (device.has_addresses())
      call.inputs = &from, call.outputs = &to;
    else
      call.input_places = &d.dense, call.output_places = &d.derived;
    run_within(device, [&] {
      call.stream = device.stream_create();
      try {
        d.wanted.enqueue(call);
        device.stream_synchronize(call.stream);
      } catch (...) {
        device.stream_destroy(call.stream);
        throw;
      }
      device.stream_destroy(call.stream);
    });
  });
}

// ---- Imported memory

inline tenon_status* stream_import_info(tenon_device* device, tenon_import_info* out) noexcept {
  const auto* state = behind<DeviceState>(device);
  tenon_import_info info =
      import_info_of(state->spec, (state->spec.flags & TENON_DEVICE_HOST_ADDRESSABLE) != 0);
  if (!stream_device(*state).imports()) info.alignment = 0;
  give_import_info(out, info);
  return nullptr;
}

inline tenon_status* stream_import_buffer(tenon_device* device, const tenon_import_options* options,
                                          tenon_buffer** out) noexcept {
  return import_with(device, options, out, [&](DeviceState& state, void* address) {
    if (!stream_device(state).imports())
      throw Failure(TENON_UNSUPPORTED, "this device imports no memory");
    return stream_device(state).import_memory(address, options->size);
  });
}

inline void stream_buffer_destroy(tenon_buffer* buffer) noexcept {
  const auto* b = behind<Buffer>(buffer);
  if (b->imported) stream_device(*b->device).forget_memory(b->memory, b->size);
  buffer_destroy(buffer);
}

// ---- Streams and events of the driver

inline void* native_stream(tenon_stream* stream) noexcept { return behind<Stream>(stream)->native; }
inline tenon_status* native_wait(tenon_stream* stream, void* native_event) noexcept {
  auto* s = behind<Stream>(stream);
  return guarded({s->device->plugin, "wait"}, [&] {
    check(native_event != nullptr, "the event is null");
    stream_device(*s->device).stream_wait(s->native, native_event);
  });
}
inline tenon_status* native_record(tenon_stream* stream, void* native_event) noexcept {
  auto* s = behind<Stream>(stream);
  return guarded({s->device->plugin, "record"}, [&] {
    check(native_event != nullptr, "the event is null");
    stream_device(*s->device).event_record(native_event, s->native);
  });
}

// ---- Instances

inline tenon_status* stream_instantiate(tenon_program* program, const tenon_binding* binding,
                                        tenon_instance** out) noexcept {
  auto* p = behind<CompiledProgram>(program);
  Where where{p->device->plugin, "instantiate"};
  return guarded(where, [&] {
    auto instance = std::make_unique<StreamInstance>(p);
    instance->rebind(*binding, where);
    *out = reinterpret_cast<tenon_instance*>(instance.release());
  });
}
inline void stream_instance_destroy(tenon_instance* instance) noexcept {
  delete behind<StreamInstance>(instance);
}
inline tenon_status* stream_rebind(tenon_instance* instance,
                                   const tenon_binding* binding) noexcept {
  auto* i = behind<StreamInstance>(instance);
  Where where{i->program().device->plugin, "rebind"};
  return guarded(where, [&] { i->rebind(*binding, where); });
}

struct StreamJob {
  StreamInstance* instance;
  uint64_t run_id;
  bool measured;
  const uint32_t* cancel;
  void* stream = nullptr;
  std::shared_ptr<Outcome> outcome{};
  tenon_status* failure = nullptr;

  static void run(void* arg) noexcept {
    auto* j = static_cast<StreamJob*>(arg);
    uint32_t step = TENON_NONE;
    try {
      j->outcome = j->instance->enqueue(j->run_id, j->stream, j->measured, j->cancel, step);
    } catch (...) {
      const CompiledProgram& p = j->instance->program();
      j->failure =
          status_of_exception({p.device->plugin, "run", j->run_id, step,
                               step == TENON_NONE ? nullptr : &p.program.bodies[step].label});
    }
  }
};

inline tenon_status* stream_run_job(tenon_instance* instance, const tenon_run_args* args,
                                    bool measured) noexcept {
  auto* i = behind<StreamInstance>(instance);
  const DeviceState& device = *i->program().device;
  StreamJob job{i, args->run_id, measured, cancel_word(*args)};
  tenon_status* outside = guarded({device.plugin, "run", args->run_id}, [&] {
    auto* stream = args->stream ? behind<Stream>(args->stream) : nullptr;
    job.stream = stream ? stream->native : i->own_stream();
    device.device->run(StreamJob::run, &job);
    if (!stream) {
      // Also after a failure: the host does not know this stream, and enqueued work may still write
      // the error word.
      try {
        stream_device(device).stream_synchronize(job.stream);
      } catch (...) {
        if (!job.failure) throw;
      }
      return;
    }
    if (job.failure) return;
    if (job.outcome) stream->add({&job.outcome, 1});
    if (args->done) record(*behind<Event>(args->done), *stream);
  });
  if (job.failure || outside) {
    if (outside && job.failure) device.plugin->host->release_status(job.failure);
    return outside ? outside : job.failure;
  }
  return args->stream || !job.outcome ? nullptr : failure_of(device, "run", {job.outcome});
}

inline tenon_status* stream_run(tenon_instance* instance, const tenon_run_args* args) noexcept {
  return stream_run_job(instance, args, false);
}

// ---- Extensions

inline tenon_status* stream_run_measured(tenon_instance* instance,
                                         const tenon_run_args* args) noexcept {
  return stream_run_job(instance, args, true);
}

inline tenon_status* stream_step_times(tenon_instance* instance, tenon_step_time* out,
                                       uint64_t stride, uint32_t count) noexcept {
  auto* i = behind<StreamInstance>(instance);
  const DeviceState& device = *i->program().device;
  return guarded({device.plugin, "times"}, [&] {
    check(count == i->program().program.steps.size(),
          "times of " + std::to_string(count) + " steps, the program has " +
              std::to_string(i->program().program.steps.size()));
    std::vector<tenon_step_time> times(count);
    run_within(*device.device, [&] { i->step_times(times); });
    for (uint32_t k = 0; k < count; ++k) write_time(out, stride, k, times[k]);
  });
}

inline tenon_status* list_choices(tenon_device* device, void (*put)(void* user, tenon_str choice),
                                  void* user) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "list"}, [&] {
    for (const std::string& choice : stream_device(*state).choice_texts())
      put(user, {choice.data(), choice.size()});
  });
}
inline tenon_status* take_choice(tenon_device* device, tenon_str choice) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "take"}, [&] { stream_device(*state).take_choice(text(choice)); });
}

inline const void* stream_extension(tenon_plugin* plugin, tenon_str id) noexcept {
  static constexpr tenon_profiler profiler = {sizeof(tenon_profiler), stream_run_measured,
                                              stream_step_times};
  static constexpr tenon_choices choices = {sizeof(tenon_choices), list_choices, take_choice};
  static constexpr tenon_import_memory imports = {sizeof(tenon_import_memory), stream_import_info,
                                                  stream_import_buffer, buffer_address};
  static constexpr tenon_native_streams natives = {sizeof(tenon_native_streams), native_stream,
                                                   native_wait, native_record};
  static constexpr tenon_derived_weights derived = {sizeof(tenon_derived_weights), stream_derive};
  if (text(id) == TENON_DERIVED_WEIGHTS_ID) return &derived;
  if (text(id) == TENON_IMPORT_MEMORY_ID) return &imports;
  if (text(id) == TENON_NATIVE_STREAMS_ID)
    return behind<PluginState>(plugin)->spec->native_streams ? &natives : nullptr;
  if (text(id) == TENON_PROFILER_ID) return &profiler;
  if (text(id) == TENON_CHOICES_ID) return &choices;
  if (text(id) == TENON_OPS_ID) return ops_of(plugin);
  if (text(id) == TENON_KERNELS_ID) return kernels_of(plugin);
  return text(id) == TENON_PREPARE_ID ? &kPrepare : nullptr;
}

// False if a row of the spec computes in host memory. create() checks the rows of families.
constexpr bool no_host_rows(const PluginSpec& spec) {
  for (const Row& row : spec.rows)
    if (row.host_only) return false;
  return true;
}

constexpr tenon_backend stream_backend_table(const PluginSpec& spec,
                                             CreateFunction create_function) {
  tenon_backend t = backend_table(spec, create_function);
  t.buffer_destroy = stream_buffer_destroy;
  t.buffer_write = stream_buffer_write;
  t.buffer_read = stream_buffer_read;
  t.buffer_address = stream_buffer_address;
  t.compile = ranged_compile;
  t.buffer_copy = stream_buffer_copy;
  t.instantiate = stream_instantiate;
  t.instance_destroy = stream_instance_destroy;
  t.rebind = stream_rebind;
  t.run = stream_run;
  t.stream_create = stream_create;
  t.stream_destroy = stream_destroy;
  t.stream_synchronize = stream_synchronize;
  t.event_create = event_create;
  t.event_destroy = event_destroy;
  t.event_record = event_record;
  t.stream_wait_event = stream_wait_event;
  t.event_query = event_query;
  t.event_wait = event_wait;
  t.event_on_done = event_on_done;
  t.get_extension = stream_extension;
  return t;
}

}  // namespace tenon::sdk::layer
