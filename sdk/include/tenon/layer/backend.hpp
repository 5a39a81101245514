// SPDX-License-Identifier: Apache-2.0
// The functions of the C ABI over a PluginSpec. Included by plugin.hpp. All are noexcept. The state
// is owned by the object that create() returns, so there are no static objects with destructors.
#pragma once

#include <algorithm>
#include <cstring>

#include "../derived_weights.h"
#include "../import_memory.h"
#include "../prepare.h"
#include "guest.hpp"
#include "instance.hpp"
#include "lowering.hpp"
#include "objects.hpp"

namespace tenon::sdk::layer {

// ---- Load ---------------------------------------------------------------------------------------

inline std::string range_text(uint32_t major, uint32_t low, uint32_t high) {
  const std::string m = std::to_string(major) + ".";
  return m + std::to_string(low) + (low == high ? "" : " to " + m + std::to_string(high));
}

// True if host and plugin share a version. Otherwise reports both versions to the host.
inline bool agree(const tenon_backend& mine, const tenon_host* host) noexcept {
  try {
    if (!host || !TENON_HAS(tenon_host, host, refuse)) return false;
    std::string reason;
    if (host->abi_major != mine.abi_major || host->abi_minor_max < mine.abi_minor_min ||
        host->abi_minor_min > mine.abi_minor_max) {
      reason = "wants ABI " + range_text(mine.abi_major, mine.abi_minor_min, mine.abi_minor_max) +
               ", host tenon " + std::string(text(host->version)) + " offers " +
               range_text(host->abi_major, host->abi_minor_min, host->abi_minor_max);
    } else if (host->struct_size < TENON_HOST_SIZE_V1) {
      reason = "needs a host table of " + std::to_string(TENON_HOST_SIZE_V1) +
               " bytes, host tenon " + std::string(text(host->version)) + " gives " +
               std::to_string(host->struct_size);
    }
    if (reason.empty()) return true;
    reason = "plugin " + std::string(text(mine.name)) + " " + std::string(text(mine.version)) +
             " " + reason;
    host->refuse(str(reason));
  } catch (...) {
  }
  return false;
}

inline tenon_status* create(const PluginSpec& spec, const tenon_host* host,
                            const tenon_create_options* options, tenon_plugin** out) noexcept {
  PluginState bare{};
  bare.host = host;
  bare.spec = &spec;
  return guarded({&bare, "create"}, [&] {
    auto state = std::make_unique<PluginState>();
    state->host = host;
    state->spec = &spec;
    state->runtime = {host, options->abi_minor, std::max(options->threads, 1u), nullptr};
    if (spec.create) state->state = spec.create(state->runtime);
    state->runtime.state = state->state.get();
    state->rows.assign(spec.rows.begin(), spec.rows.end());
    for (const FamilyRows rows_of : spec.families)
      for (const Row& row : rows_of()) state->rows.push_back(row);
    for (const Row& row : state->rows)
      check(!spec.streams || !row.host_only,
            "row " + std::string(row.op) +
                ": its maker computes in host memory (kHostOnly); expected a kernel that enqueues "
                "work on Call::stream");
    for (const OpDesc desc : spec.ops) state->ops.push_back(desc());
    state->op_list = {sizeof(tenon_ops), state->ops.data(), sizeof(tenon_op_desc),
                      static_cast<uint32_t>(state->ops.size()), 0};
    state->kernels = {sizeof(tenon_kernels), spec.kernels.data(), sizeof(tenon_kernel_row),
                      static_cast<uint32_t>(spec.kernels.size()), 0};
    *out = reinterpret_cast<tenon_plugin*>(state.release());
  });
}

inline void shutdown(tenon_plugin* plugin) noexcept { delete behind<PluginState>(plugin); }

inline tenon_device_info info_of(const DeviceSpec& d, bool streams) {
  tenon_device_info info{};
  info.struct_size = sizeof(info);
  info.kind = str(d.kind);
  info.name = str(d.name);
  info.reason = str(d.reason);
  info.memory_size = d.memory_size;
  info.max_allocation = d.max_allocation;
  info.alignment = d.alignment;
  info.flags = d.flags;
  info.device_class = d.device_class;
  if (!streams) {
    info.flags |= TENON_DEVICE_HOST_ADDRESSABLE | TENON_DEVICE_HOST_THREADS;
    if (!info.device_class) info.device_class = TENON_DEVICE_CLASS_CPU;
  }
  return info;
}

inline tenon_status* enumerate(tenon_plugin* plugin, const tenon_device_list** out) noexcept {
  auto* state = behind<PluginState>(plugin);
  return guarded({state, "enumerate"}, [&] {
    if (state->list.struct_size == 0) {
      if (state->spec->devices) state->devices = state->spec->devices(state->runtime);
      if (state->spec->note)
        state->note = state->spec->note(state->runtime);
      else if (!state->spec->devices)
        state->note = "ops and kernels for devices of other plugins";
      for (const DeviceSpec& d : state->devices)
        state->infos.push_back(info_of(d, state->spec->streams));
      for (const tenon_device_info& i : state->infos) state->info_pointers.push_back(&i);
      state->list = {sizeof(tenon_device_list), state->info_pointers.data(),
                     static_cast<uint32_t>(state->infos.size()), 0, str(state->note)};
    }
    *out = &state->list;
  });
}

// ---- Devices and buffers ------------------------------------------------------------------------

inline tenon_status* device_open(tenon_plugin* plugin, uint32_t index,
                                 const tenon_device_options* options, tenon_device** out) noexcept {
  auto* state = behind<PluginState>(plugin);
  return guarded({state, "device_open"}, [&] {
    if (index >= state->devices.size()) {
      throw Failure(TENON_NOT_FOUND, "device " + std::to_string(index) + " of " +
                                         std::to_string(state->devices.size()) + " does not exist");
    }
    const DeviceSpec& spec = state->devices[index];
    if (!spec.reason.empty()) throw Failure(TENON_UNSUPPORTED, spec.name + ": " + spec.reason);
    uint32_t threads =
        options && TENON_HAS(tenon_device_options, options, threads) ? options->threads : 0;
    if (threads == 0 || threads > state->runtime.threads) threads = state->runtime.threads;
    auto opened = std::make_unique<DeviceState>(state, spec, nullptr);
    opened->device = state->spec->open(state->runtime, index, threads);
    if (!opened->device) throw Failure(TENON_INTERNAL, spec.name + ": open gave no device");
    *out = reinterpret_cast<tenon_device*>(opened.release());
  });
}

inline void device_close(tenon_device* device) noexcept { delete behind<DeviceState>(device); }

// "buffer 'weights' of 64 bytes"
inline std::string buffer_text(const tenon_buffer_options& o) {
  const std::string name = o.name.size ? "'" + std::string(text(o.name)) + "' " : std::string();
  return "buffer " + name + "of " + std::to_string(o.size) + " bytes";
}

inline tenon_status* buffer_create(tenon_device* device, const tenon_buffer_options* options,
                                   tenon_buffer** out) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "buffer_create"}, [&] {
    check(options->size > 0, "a buffer of size 0");
    if (options->kind > TENON_MEMORY_UNIFIED) {
      throw Failure(TENON_UNSUPPORTED, buffer_text(*options) + ": memory kind " +
                                           std::to_string(options->kind) +
                                           " is unknown to this plugin");
    }
    const uint64_t limit =
        state->spec.max_allocation ? state->spec.max_allocation : state->spec.memory_size;
    if (options->kind == TENON_MEMORY_DEVICE && limit != 0 && options->size > limit) {
      throw Failure(TENON_OUT_OF_MEMORY, buffer_text(*options) + " on " + state->spec.name +
                                             ", which allows " + std::to_string(limit));
    }
    auto buffer = std::make_unique<Buffer>(Buffer{state, nullptr, options->size, options->kind});
    try {
      buffer->memory = state->device->allocate(options->size, state->spec.alignment, options->kind);
    } catch (const std::bad_alloc&) {
      throw Failure(TENON_OUT_OF_MEMORY, "no memory for " + buffer_text(*options));
    }
    *out = reinterpret_cast<tenon_buffer*>(buffer.release());
  });
}

inline void buffer_destroy(tenon_buffer* buffer) noexcept {
  auto* b = behind<Buffer>(buffer);
  if (!b->imported) b->device->device->deallocate(b->memory, b->size, b->kind);
  delete b;
}

// Throws if the buffer is too small.
inline Place range(const Buffer& b, uint64_t offset, uint64_t size, const char* what) {
  check(offset <= b.size && size <= b.size - offset,
        std::string(what) + " of " + std::to_string(size) + " bytes at " + std::to_string(offset) +
            " in a buffer of " + std::to_string(b.size));
  return {b.memory, offset};
}
inline void no_stream(const tenon_stream* stream) {
  check(stream == nullptr, "this plugin has no streams");
}

inline tenon_status* buffer_write(tenon_buffer* buffer, uint64_t offset, const void* source,
                                  uint64_t size, tenon_stream* stream) noexcept {
  auto* b = behind<Buffer>(buffer);
  return guarded({b->device->plugin, "buffer_write"}, [&] {
    no_stream(stream);
    const Place to = range(*b, offset, size, "a write");
    if (size) std::memcpy(to.address(), source, size);
  });
}

inline tenon_status* buffer_read(tenon_buffer* buffer, uint64_t offset, void* target, uint64_t size,
                                 tenon_stream* stream) noexcept {
  auto* b = behind<Buffer>(buffer);
  return guarded({b->device->plugin, "buffer_read"}, [&] {
    no_stream(stream);
    const Place from = range(*b, offset, size, "a read");
    if (size) std::memcpy(target, from.address(), size);
  });
}

inline void* buffer_address(tenon_buffer* buffer) noexcept {
  return behind<Buffer>(buffer)->memory;
}

inline tenon_status* buffer_copy(tenon_buffer* target, uint64_t target_offset, tenon_buffer* source,
                                 uint64_t source_offset, uint64_t size,
                                 tenon_stream* stream) noexcept {
  auto *to = behind<Buffer>(target), *from = behind<Buffer>(source);
  return guarded({to->device->plugin, "buffer_copy"}, [&] {
    no_stream(stream);
    const Place write = range(*to, target_offset, size, "a copy");
    const Place read = range(*from, source_offset, size, "a copy");
    if (size) std::memmove(write.address(), read.address(), size);
  });
}

// ---- Query and compile --------------------------------------------------------------------------

inline tenon_blob open_blob(const void* bytes, uint64_t size) {
  tenon_blob blob;
  if (const char* bad = tenon_blob_open(bytes, size, &blob)) throw Failure(TENON_CORRUPT, bad);
  return blob;
}

inline uint64_t import_alignment(const DeviceSpec& d) {
  return d.import_alignment ? d.import_alignment : d.alignment;
}

// A value may be in memory of the app, also an intermediate value that shares the storage of an
// output.
inline Target target_of(const DeviceState& state) {
  return {state.device.get(),
          std::min(import_alignment(state.spec), state.spec.alignment),
          !state.plugin->spec->streams,
          state.plugin->runtime.abi_minor,
          state.plugin->spec->streams ? state.plugin->spec->adopt : adopt_host_kernel,
          state.plugin->spec->withdraws ? &state.withdrawn : nullptr};
}

inline tenon_verdict verdict_of(Lowering& lowering, uint32_t node, QueryResult& result) {
  tenon_verdict v{TENON_VERDICT_REFUSED, TENON_REASON_OTHER, {}, 0, TENON_NONE, 0};
  const auto refuse = [&](uint32_t reason, const char* why) {
    v.reason = reason;
    v.text = str(result.texts.emplace_back(why));
    lowering.leave_out(node);
  };
  try {
    v.cost = lowering.lower(node);
    v.verdict = TENON_VERDICT_NATIVE;
    v.reason = TENON_REASON_NONE;
  } catch (const Refusal& e) {
    refuse(e.reason(), e.what());
  } catch (const Failure& e) {
    // A lost or full device says nothing about the node.
    if (e.code() == TENON_DEVICE_LOST || e.code() == TENON_OUT_OF_MEMORY) throw;
    refuse(TENON_REASON_OTHER, e.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    refuse(TENON_REASON_OTHER, e.what());
  } catch (...) {
    refuse(TENON_REASON_OTHER, "an exception of unknown type");
  }
  return v;
}

inline tenon_status* query(tenon_device* device, const void* bytes, uint64_t size,
                           const tenon_query_result** out) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "query"}, [&] {
    const tenon_blob blob = open_blob(bytes, size);
    const std::vector<Row> rows = rows_of(*state);
    Lowering lowering(rows, blob, target_of(*state));
    auto answer = std::make_unique<QueryResult>();
    for (uint32_t i = 0; i < lowering.node_count(); ++i) {
      answer->verdicts.push_back(verdict_of(lowering, i, *answer));
    }
    answer->result = {sizeof(tenon_query_result), answer->verdicts.data(), sizeof(tenon_verdict),
                      lowering.node_count(), 0};
    *out = &answer.release()->result;
  });
}

inline void query_release(tenon_device*, const tenon_query_result* result) noexcept {
  static_assert(offsetof(QueryResult, result) == 0);
  delete reinterpret_cast<const QueryResult*>(result);
}

// Lets kernels tune; their scratch sizes are final afterwards.
inline void tune(Program& program, const tenon_compile_options* options) {
  const bool limited = options && TENON_HAS(tenon_compile_options, options, scratch_limit) &&
                       options->scratch_limit != 0;
  for (StepBody& body : program.bodies) {
    Kernel& kernel = body.kernel;
    if (!kernel.run || !kernel.tune) continue;
    const uint64_t most =
        limited ? std::min(kernel.scratch, options->scratch_limit) : kernel.scratch;
    const uint64_t chosen = kernel.tune(most);
    check(chosen <= most, body.label + ": tuning chose " + std::to_string(chosen) +
                              " bytes of scratch of at most " + std::to_string(most));
    kernel.scratch = chosen;
  }
}

// Builds all kernels. Withdraws the claims on nodes whose kernels do not build; then throws
// ClaimWithdrawn, and `where` names the first of their steps.
inline void build(Program& program, Withdrawn& withdrawn, Where& where) {
  std::string first, lost;
  for (uint32_t i = 0; i < program.bodies.size(); ++i) {
    const StepBody& body = program.bodies[i];
    if (!body.kernel.run || !body.kernel.prepare) continue;
    std::string why;
    try {
      body.kernel.prepare();
      continue;
    } catch (const Failure& e) {
      // A lost or full device says nothing about the kernel.
      if (e.code() == TENON_DEVICE_LOST || e.code() == TENON_OUT_OF_MEMORY) throw;
      why = e.what();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {
      why = e.what();
    }
    if (body.form.empty()) {  // a copy that no claim stands for
      if (lost.empty()) lost = body.label + ": " + why;
      continue;
    }
    withdrawn.add(body.form, body.label + " does not build: " + why);
    if (!first.empty()) continue;
    first = "does not build, its claim is withdrawn: " + why;
    where.step = i;
    where.label = &body.label;
  }
  if (!first.empty()) throw ClaimWithdrawn(first);
  if (!lost.empty()) throw Failure(TENON_UNSUPPORTED, lost);
}

inline tenon_status* compile(tenon_device* device, const void* bytes, uint64_t size,
                             const tenon_compile_options* options, tenon_program** out) noexcept {
  auto* state = behind<DeviceState>(device);
  Where where{state->plugin, "compile"};
  std::unique_ptr<CompiledProgram> program;  // `where` names a step of it
  return guarded(where, [&] {
    const tenon_blob blob = open_blob(bytes, size);
    const std::vector<Row> rows = rows_of(*state);
    Lowering lowering(rows, blob, target_of(*state));
    for (uint32_t i = 0; i < lowering.node_count(); ++i) {
      try {
        lowering.lower(i);
      } catch (const WithdrawnBefore& e) {
        throw ClaimWithdrawn(e.what());
      } catch (const Refusal& e) {
        const tenon_blob_node& n = *tenon_blob_node_at(&blob, tenon_blob_function_at(&blob, 0), i);
        throw Refusal(e.reason(), "node " + std::to_string(i) + " (" +
                                      std::string(text(tenon_blob_str(&blob, n.op))) +
                                      ") was not claimed: " + e.what());
      }
    }
    program = std::make_unique<CompiledProgram>(CompiledProgram{state, lowering.finish()});
    if (options && TENON_HAS(tenon_compile_options, options, exec_mode))
      program->exec_mode = options->exec_mode;
    tune(program->program, options);
    if (state->plugin->spec->withdraws) build(program->program, state->withdrawn, where);
    for (const StepBody& body : program->program.bodies)
      if (body.kernel.run && body.kernel.prepare) program->parts.push_back(&body);
    if (options && (options->flags & TENON_COMPILE_AOT))
      for (const StepBody* part : program->parts) part->kernel.prepare();
    program->program.publish();
    *out = reinterpret_cast<tenon_program*>(program.release());
  });
}

inline const tenon_program_info* program_info(tenon_program* program) noexcept {
  return &behind<CompiledProgram>(program)->program.info;
}
inline void program_destroy(tenon_program* program) noexcept {
  delete behind<CompiledProgram>(program);
}

// ---- Preparing

inline uint32_t part_count(tenon_program* program) noexcept {
  return static_cast<uint32_t>(behind<CompiledProgram>(program)->parts.size());
}

inline tenon_status* prepare_part(tenon_program* program, uint32_t index) noexcept {
  auto* p = behind<CompiledProgram>(program);
  const bool there = index < p->parts.size();
  const Where where{p->device->plugin, "prepare", 0, TENON_NONE,
                    there ? &p->parts[index]->label : nullptr};
  return guarded(where, [&] {
    check(there, "part " + std::to_string(index) + " of " + std::to_string(p->parts.size()));
    p->parts[index]->kernel.prepare();
  });
}

inline constexpr tenon_prepare kPrepare = {sizeof(tenon_prepare), part_count, prepare_part};

// ---- Derived weights

// A request to derive, checked.
struct Derivation {
  const DerivedValue& wanted;
  Place dense, derived;
};
inline Derivation derivation_of(const CompiledProgram& p, const tenon_derive_args& args) {
  const uint32_t value = args.value;
  const auto wanted = std::ranges::lower_bound(p.program.derived, value, {}, &DerivedValue::value);
  check(wanted != p.program.derived.end() && wanted->value == value,
        "value " + std::to_string(value) + " of the program is no derived weight");
  return {
      *wanted, resolve(*p.device, *args.source, wanted->dense_bytes, false, "the weight"),
      resolve(*p.device, *args.target, p.program.values[value].size, false, "the derived weight")};
}

// Calls body() within Device::run(). Unlike a run, it may throw.
template <class Body>
void run_within(Device& device, Body body) {
  struct Job {
    Body& body;
    std::exception_ptr failure{};
  } job{body};
  device.run(
      [](void* arg) {
        auto* j = static_cast<Job*>(arg);
        try {
          j->body();
        } catch (...) {
          j->failure = std::current_exception();
        }
      },
      &job);
  if (job.failure) std::rethrow_exception(job.failure);
}

inline tenon_status* derive(tenon_program* program, const tenon_derive_args* args) noexcept {
  auto* p = behind<CompiledProgram>(program);
  return guarded({p->device->plugin, "derive"}, [&] {
    const Derivation d = derivation_of(*p, *args);
    run_within(*p->device->device,
               [&] { d.wanted.make(address_of(d.dense), address_of(d.derived)); });
  });
}

// ---- Imported memory

inline constexpr uint32_t kDlpackCpu = 1;

inline tenon_import_info import_info_of(const DeviceSpec& d, bool host_memory) {
  tenon_import_info info{};
  info.alignment = import_alignment(d);
  info.dlpack_type = d.dlpack_type;
  info.dlpack_id = d.dlpack_id;
  if (host_memory && info.dlpack_type == 0) info.dlpack_type = kDlpackCpu;
  return info;
}

// Writes the fields that the host's struct has.
inline void give_import_info(tenon_import_info* out, tenon_import_info info) {
  const uint64_t size = std::min<uint64_t>(out->struct_size, sizeof info);
  info.struct_size = out->struct_size;
  std::memcpy(out, &info, size);
}

inline tenon_status* import_info(tenon_device* device, tenon_import_info* out) noexcept {
  give_import_info(out, import_info_of(behind<DeviceState>(device)->spec, true));
  return nullptr;
}

// import_memory() returns the address or the handle that kernels use.
template <class Import>
tenon_status* import_with(tenon_device* device, const tenon_import_options* options,
                          tenon_buffer** out, Import&& import_memory) noexcept {
  auto* state = behind<DeviceState>(device);
  return guarded({state->plugin, "import_buffer"}, [&] {
    auto buffer =
        std::make_unique<Buffer>(Buffer{state, nullptr, options->size, TENON_MEMORY_DEVICE, true});
    buffer->memory = import_memory(*state, options->address);
    *out = reinterpret_cast<tenon_buffer*>(buffer.release());
  });
}

inline tenon_status* import_buffer(tenon_device* device, const tenon_import_options* options,
                                   tenon_buffer** out) noexcept {
  return import_with(device, options, out, [](DeviceState&, void* address) { return address; });
}

// ---- Instances ----------------------------------------------------------------------------------

inline tenon_status* instantiate(tenon_program* program, const tenon_binding* binding,
                                 tenon_instance** out) noexcept {
  auto* p = behind<CompiledProgram>(program);
  Where where{p->device->plugin, "instantiate"};
  return guarded(where, [&] {
    auto instance = std::make_unique<Instance>(p);
    instance->bind(*binding, where);
    *out = reinterpret_cast<tenon_instance*>(instance.release());
  });
}
inline void instance_destroy(tenon_instance* instance) noexcept {
  delete behind<Instance>(instance);
}

inline tenon_status* rebind(tenon_instance* instance, const tenon_binding* binding) noexcept {
  auto* i = behind<Instance>(instance);
  Where where{i->program().device->plugin, "rebind"};
  return guarded(where, [&] { i->bind(*binding, where); });
}

struct Job {
  Instance* instance;
  uint64_t run_id;
  const uint32_t* cancel;
  tenon_status* failure = nullptr;
};

// The word that the host sets to end a run between two steps, or nullptr.
inline const uint32_t* cancel_word(const tenon_run_args& args) {
  return TENON_HAS(tenon_run_args, &args, cancel) ? args.cancel : nullptr;
}

// Calls body(&job) within Device::run().
inline tenon_status* run_job(Job job, const tenon_run_args* args, void (*body)(void*)) noexcept {
  const DeviceState* device = job.instance->program().device;
  tenon_status* outside = guarded({device->plugin, "run", args->run_id}, [&] {
    no_stream(args->stream);
    device->device->run(body, &job);
  });
  if (outside && job.failure) device->plugin->host->release_status(job.failure);
  return outside ? outside : job.failure;
}

inline tenon_status* run(tenon_instance* instance, const tenon_run_args* args) noexcept {
  return run_job({behind<Instance>(instance), args->run_id, cancel_word(*args)}, args,
                 [](void* arg) {
                   auto* j = static_cast<Job*>(arg);
                   j->instance->run(j->run_id, j->cancel, j->failure);
                 });
}

// ---- Profiler -----------------------------------------------------------------------------------

inline tenon_status* run_measured(tenon_instance* instance, const tenon_run_args* args) noexcept {
  auto* i = behind<Instance>(instance);
  tenon_status* failure =
      guarded({i->program().device->plugin, "run", args->run_id}, [&] { i->clear_times(); });
  if (failure) return failure;
  return run_job({i, args->run_id, cancel_word(*args)}, args, [](void* arg) {
    auto* j = static_cast<Job*>(arg);
    j->instance->run_measured(j->run_id, j->cancel, j->failure);
  });
}

// Writes the fields of a step's time that the host's array has room for.
inline void write_time(tenon_step_time* out, uint64_t stride, uint32_t i,
                       const tenon_step_time& time) {
  std::memcpy(reinterpret_cast<char*>(out) + i * stride, &time,
              std::min<uint64_t>(stride, sizeof time));
}

inline tenon_status* step_times(tenon_instance* instance, tenon_step_time* out, uint64_t stride,
                                uint32_t count) noexcept {
  auto* i = behind<Instance>(instance);
  return guarded({i->program().device->plugin, "times"}, [&] {
    check(count == i->times().size(), "times of " + std::to_string(count) +
                                          " steps, measured are " +
                                          std::to_string(i->times().size()));
    for (uint32_t k = 0; k < count; ++k) write_time(out, stride, k, i->times()[k]);
  });
}

inline const tenon_ops* ops_of(tenon_plugin* plugin) {
  const auto* state = behind<PluginState>(plugin);
  return state->ops.empty() ? nullptr : &state->op_list;
}

inline const tenon_kernels* kernels_of(tenon_plugin* plugin) {
  const auto* state = behind<PluginState>(plugin);
  return state->kernels.row_count ? &state->kernels : nullptr;
}

inline const void* get_extension(tenon_plugin* plugin, tenon_str id) noexcept {
  static constexpr tenon_profiler profiler = {sizeof(tenon_profiler), run_measured, step_times};
  static constexpr tenon_derived_weights derived = {sizeof(tenon_derived_weights), derive};
  static constexpr tenon_import_memory imports = {sizeof(tenon_import_memory), import_info,
                                                  import_buffer, buffer_address};
  if (text(id) == TENON_PROFILER_ID) return &profiler;
  if (text(id) == TENON_PREPARE_ID) return &kPrepare;
  if (text(id) == TENON_OPS_ID) return ops_of(plugin);
  if (text(id) == TENON_KERNELS_ID) return kernels_of(plugin);
  if (text(id) == TENON_IMPORT_MEMORY_ID) return &imports;
  return text(id) == TENON_DERIVED_WEIGHTS_ID ? &derived : nullptr;
}

// ---- The table and the manifest -----------------------------------------------------------------

using CreateFunction = tenon_status* (*)(const tenon_host*, const tenon_create_options*,
                                         tenon_plugin**);

constexpr tenon_backend backend_table(const PluginSpec& spec, CreateFunction create_function) {
  tenon_backend t{};
  t.struct_size = sizeof(t);
  t.abi_major = TENON_ABI_MAJOR;
  t.abi_minor_min = TENON_MIN_HOST_MINOR;
  t.abi_minor_max = TENON_ABI_MINOR;
  t.name = {spec.name.data(), spec.name.size()};
  t.version = {spec.version.data(), spec.version.size()};
  t.vendor = {spec.vendor.data(), spec.vendor.size()};
  t.create = create_function;
  t.shutdown = shutdown;
  t.enumerate = enumerate;
  t.device_open = device_open;
  t.device_close = device_close;
  t.buffer_create = buffer_create;
  t.buffer_destroy = buffer_destroy;
  t.buffer_write = buffer_write;
  t.buffer_read = buffer_read;
  t.buffer_address = buffer_address;
  t.buffer_copy = buffer_copy;
  t.query = query;
  t.query_release = query_release;
  t.compile = compile;
  t.program_info = program_info;
  t.program_destroy = program_destroy;
  t.instantiate = instantiate;
  t.instance_destroy = instance_destroy;
  t.rebind = rebind;
  t.run = run;
  t.get_extension = get_extension;
  return t;
}

// Not constexpr, so that an overlong text does not compile.
inline void manifest_text_is_too_long() {}

template <size_t N>
constexpr void fill(char (&to)[N], std::string_view from) {
  if (from.size() >= N) manifest_text_is_too_long();
  for (size_t i = 0; i < from.size(); ++i) to[i] = from[i];
}

constexpr tenon_manifest_note manifest_note(const PluginSpec& spec, std::string_view kinds,
                                            std::string_view isa) {
  tenon_manifest_note n{};
  n.owner_size = sizeof(TENON_MANIFEST_OWNER);
  n.manifest_size = sizeof(tenon_manifest);
  n.type = TENON_MANIFEST_NOTE_TYPE;
  fill(n.owner, TENON_MANIFEST_OWNER);
  tenon_manifest& m = n.manifest;
  m.magic = TENON_MANIFEST_MAGIC;
  m.struct_size = sizeof(m);
  m.abi_major = TENON_ABI_MAJOR;
  m.abi_minor_min = TENON_MIN_HOST_MINOR;
  m.abi_minor_max = TENON_ABI_MINOR;
  m.arch = TENON_MANIFEST_ARCH;
  m.sanitizers = TENON_MANIFEST_SANITIZERS;
  fill(m.isa, isa);
  fill(m.name, spec.name);
  fill(m.version, spec.version);
  fill(m.vendor, spec.vendor);
  fill(m.kinds, kinds);
  return n;
}

}  // namespace tenon::sdk::layer
