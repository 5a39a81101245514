// SPDX-License-Identifier: Apache-2.0
// The API fuzzer's calls of all but graphs: texts, runtimes, stores, executables, runs.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/dlpack.hpp"
#include "api_world.hpp"
#include "tenon/tenon.h"
#include "tenon/tenon_debug.h"
#include "tenon/tenon_tune.h"

namespace tenon::fuzz {

inline void read_text(tenon_str s) { read(s.data, s.size); }
inline void must_be_json(const tenon_text* text) {
  const tenon_str s = tenon_text_str(text);
  must(nlohmann::json::accept(s.data, s.data + s.size), "a text that should be JSON is none");
}

// ---- Errors, texts, runtimes

inline void status_code(World& w) {
  must(tenon_status_code(w.statuses.any(w.in)) <= 15, "status_code");
}
inline void status_text(World& w) { read_text(tenon_status_text(w.statuses.any(w.in))); }
inline void status_release(World& w) { tenon_status_release(w.statuses.take(w.in)); }
inline void code_name(World& w) { read_text(tenon_code_name(static_cast<tenon_code>(w.number()))); }
inline void text_str(World& w) { read_text(tenon_text_str(w.texts.any(w.in))); }
inline void text_destroy(World& w) { tenon_text_destroy(w.texts.take(w.in)); }
inline void version(World&) { read_text(tenon_version()); }
inline void api_version(World&) { must(tenon_api_version() > 0, "api_version"); }
inline void abi_version(World&) { must(tenon_abi_version() > 0, "abi_version"); }
inline void log_to(World& w) {
  static const auto sink = [](void*, uint32_t, tenon_str text) { read_text(text); };
  tenon_log_to(sink, &w);
}

inline void runtime_create(World& w) {
  if (!w.in.one_in(8)) return;  // it loads plugins, which takes time
  const tenon_str dirs[] = {w.text(TENON_TEST_PLUGINS), w.path(), w.name()};
  tenon_runtime_options o{};
  o.struct_size = w.size_of<tenon_runtime_options>();
  o.plugin_dirs = w.in.one_in(16) ? nullptr : dirs;
  o.plugin_dir_count = w.in.one_in(8) ? 3 : 1;
  o.plugin_files = w.in.one_in(4) ? dirs : nullptr;
  o.plugin_file_count = w.in.one_in(16) ? 2 : 0;
  o.threads = w.in.one_in(8) ? w.number() : 2;
  o.flags = TENON_RUNTIME_NO_ENVIRONMENT | (w.in.one_in(8) ? w.number() : 2);
  Out<tenon_runtime*> out(w.in);
  if (out.filled(w.good(tenon_runtime_create(&o, out.arg()))))
    w.keep(w.runtimes, out.value, tenon_runtime_destroy);
}
inline void runtime_destroy(World& w) { tenon_runtime_destroy(w.runtimes.take(w.in)); }
inline void runtime_device_count(World& w) { tenon_runtime_device_count(w.runtime()); }
inline void runtime_plugin_count(World& w) { tenon_runtime_plugin_count(w.runtime()); }

// Entries: the caller sets the size; what a failed call leaves alone includes it.
template <class Entry, class Call>
bool entry(World& w, Entry& e, Call call) {
  e = {};
  e.struct_size = w.size_of<Entry>();
  const bool null = w.in.one_in(24);
  const bool given = w.good(call(null ? nullptr : &e));
  must(!given || !null, "a call succeeded although its entry had no place");
  return given && e.struct_size >= sizeof(Entry);
}
inline void status_where(World& w) {
  tenon_status_place e;
  if (!entry(w, e, [&](auto* out) { return tenon_status_where(w.statuses.any(w.in), out); }))
    return;
  for (const tenon_str s : {e.node, e.op, e.device}) read_text(s);
}
inline void runtime_device(World& w) {
  tenon_device_entry e;
  if (!entry(w, e,
             [&](auto* out) { return tenon_runtime_device(w.runtime(), w.in.below(5), out); }))
    return;
  for (const tenon_str s : {e.id, e.kind, e.name, e.plugin, e.reason}) read_text(s);
}
inline void runtime_plugin(World& w) {
  tenon_plugin_entry e;
  if (!entry(w, e,
             [&](auto* out) { return tenon_runtime_plugin(w.runtime(), w.in.below(5), out); }))
    return;
  for (const tenon_str s : {e.path, e.stage, e.text, e.name, e.version}) read_text(s);
}
inline void op_count(World&) { must(tenon_op_count() > 0, "op_count"); }
inline void op(World& w) {
  tenon_op_entry e;
  if (!entry(w, e, [&](auto* out) { return tenon_op(w.in.below(300), out); })) return;
  for (const tenon_str s : {e.domain, e.name, e.family, e.level, e.signature, e.origin})
    read_text(s);
  const auto* part = reinterpret_cast<const char*>(e.parts);
  for (uint32_t i = 0; i < e.part_count; ++i, part += e.part_stride)
    read_text(reinterpret_cast<const tenon_op_part*>(part)->name);
}
// Few names, as there is no way back. op_rules_fuzz does more with the rules.
inline void op_register(World& w) {
  static constexpr std::string_view kNames[] = {"twice", "thrice", "x", "a:b"};
  tenon_op_part parts[3] = {};
  for (tenon_op_part& p : parts) {
    p.name = w.text(w.in.one_in(8) ? "y" : "x");
    p.kind = w.in.one_in(8) ? w.number() : 1 + w.in.below(8);
    p.type = w.in.below(10);
  }
  if (!w.in.one_in(3)) {
    parts[0].kind = TENON_PART_OPERAND;
    parts[1].kind = TENON_PART_OUTPUT;
  }
  tenon_op_desc op{};
  op.struct_size = w.size_of<tenon_op_desc>();
  op.domain = w.text(w.in.one_in(16) ? "tenon" : "fuzz");
  op.name = w.text(w.in.of(kNames));
  op.parts = w.in.one_in(24) ? nullptr : parts;
  op.part_stride = w.in.one_in(24) ? w.in.below(100) : sizeof(tenon_op_part);
  op.part_count = op.parts ? w.in.below(4) : w.number();
  op.version = w.in.below(3);
  op.flags = w.in.below(4);
  op.shape = [](void*, const tenon_op_call* c) {
    for (uint32_t k = 0; k < c->output_count; ++k)
      c->give_type(c, k, c->operand_count ? c->operand_types : nullptr);
  };
  op.decompose = [](void*, const tenon_op_call* c) {
    if (c->operand_count) c->give(c, 0, *c->operands);
  };
  if (w.in.one_in(8)) op.shape = nullptr;
  w.good(tenon_op_register(w.in.one_in(24) ? nullptr : &op));
}

inline void json_of(World& w, Out<tenon_text*>& out, tenon_status* status) {
  if (w.good(status, out) && out.arg()) must_be_json(out.value);
}
inline void runtime_calibrate(World& w) {
  if (!w.in.one_in(8)) return;
  static constexpr double kSeconds[] = {1e-9, 1e-9, -1, NAN, INFINITY, -INFINITY};
  uint32_t left = w.in.below(4);
  tenon_calibrate_options o{};
  o.struct_size = w.size_of<tenon_calibrate_options>();
  o.seconds = w.in.of(kSeconds);
  o.progress = [](void* user, tenon_str what, uint32_t, uint32_t) -> uint32_t {
    read_text(what);
    return (*static_cast<uint32_t*>(user))-- != 0;
  };
  o.user = &left;
  // Without the whole struct nothing stops it.
  if (o.struct_size != sizeof o && o.struct_size >= 8) o.struct_size = 4;
  Out<tenon_text*> out(w.in, Need::optional);
  json_of(w, out, tenon_runtime_calibrate(w.runtime(), w.device(), &o, out.arg()));
}
inline void runtime_rates(World& w) {
  Out<tenon_text*> out(w.in);
  json_of(w, out, tenon_runtime_rates(w.runtime(), w.device(), out.arg()));
}
inline void runtime_choices(World& w) {
  Out<tenon_text*> out(w.in);
  json_of(w, out, tenon_runtime_choices(w.runtime(), out.arg()));
}
inline void runtime_take_choices(World& w) {
  static const std::string kDeep = std::string(100000, '[') + std::string(100000, ']');
  static const std::string_view kTexts[] = {
      "{}", "{\"lanes\":[\"a\",\"\"]}", "[1]", "", "{\"template\":[1]}", "{\"cpu\":[\"\xff\"]}",
      kDeep};
  w.good(tenon_runtime_take_choices(w.runtime(),
                                    w.in.one_in(16) ? w.name() : w.text(w.in.of(kTexts))));
}
inline void runtime_fault(World& w) {
  tenon_fault f{};
  f.struct_size = w.size_of<tenon_fault>();
  f.device = w.in.one_in(2) ? w.text("") : w.device();
  f.nth = w.in.below(12);
  f.calls = w.in.one_in(2) ? 0 : 1u << w.in.below(12);
  f.flags = w.in.below(8) ? w.in.below(2) : w.number();
  f.code = static_cast<tenon_code>(w.in.below(15));
  Out<uint64_t> met(w.in, Need::optional);
  met.filled(w.good(tenon_runtime_fault(w.runtime(), w.in.one_in(2) ? nullptr : &f, met.arg())));
}
inline void trace_start(World& w) {
  tenon_trace_options o{w.size_of<tenon_trace_options>(), w.number()};
  w.good(tenon_trace_start(w.runtime(), w.in.one_in(4) ? nullptr : &o));
}
inline void trace_stop(World& w) {
  Out<tenon_text*> out(w.in);
  json_of(w, out, tenon_trace_stop(w.runtime(), out.arg()));
}
inline void trace_save(World& w) {
  if (w.in.one_in(16)) w.good(tenon_trace_save(w.runtime(), w.path()));  // it syncs the disk
}

// ---- Stores

inline void store_create(World& w) {
  Out<tenon_store*> out(w.in);
  if (out.filled(w.good(tenon_store_create(w.runtime(), out.arg()))))
    w.keep(w.stores, out.value, tenon_store_destroy);
}
inline void store_destroy(World& w) { tenon_store_destroy(w.stores.take(w.in)); }
// What a graph reads of a space: its name and type, or false.
inline bool pick(World& w, const tenon_graph* graph, uint32_t space, uint32_t index,
                 tenon_str& name, tenon_tensor_type& type) {
  tenon_value value = 0;
  return index < tenon_graph_count(graph, space) &&
         w.good(tenon_graph_name(graph, space, index, &name, &value, nullptr)) &&
         w.good(tenon_graph_type(graph, value, &type));
}
inline void convert(World& w) {
  std::array<double, 64> target;
  const void* source = w.in.one_in(16) ? nullptr : w.bytes();
  void* to = w.in.one_in(16) ? nullptr : target.data();
  w.good(tenon_convert(w.dtype(), source, w.dtype(), to, w.in.below(65)));
}
inline void store_set(World& w) {
  if (w.in.one_in(4)) {
    w.good(tenon_store_set(w.stores.any(w.in), w.space(), w.name(), w.tensor()));
    return;
  }
  tenon_store* const store = w.stores.any(w.in);
  const tenon_graph* const graph = w.graphs.any(w.in);
  tenon_str name;
  tenon_tensor_type type{};
  type.struct_size = sizeof type;
  for (const uint32_t space : {TENON_SPACE_WEIGHT, TENON_SPACE_STATE})
    for (uint32_t i = 0; pick(w, graph, space, i, name, type); ++i)
      w.good(tenon_store_set(store, space, name, w.tensor(type)));
}
inline void store_get(World& w) {
  w.good(tenon_store_get(w.stores.any(w.in), w.space(), w.name(),
                         w.in.one_in(24) ? nullptr : w.bytes(), w.size()));
}
inline void store_type(World& w) {
  Out<tenon_tensor_type> out(w.in);
  out.filled(w.good(tenon_store_type(w.stores.any(w.in), w.space(), w.name(), out.arg())));
}
inline void store_count(World& w) { tenon_store_count(w.stores.any(w.in), w.space()); }
inline void store_name(World& w) {
  Out<tenon_text*> out(w.in);
  w.good(tenon_store_name(w.stores.any(w.in), w.space(), w.in.below(4), out.arg()), out);
}
inline void store_add_missing(World& w) {
  w.good(tenon_store_add_missing(w.stores.any(w.in), w.graphs.any(w.in)));
}
inline void store_remove(World& w) {
  if (w.in.one_in(4)) w.good(tenon_store_remove(w.stores.any(w.in), w.space(), w.name()));
}
inline void store_load(World& w) {
  w.good(tenon_store_load(w.stores.any(w.in), w.space(), w.path()));
}
inline void store_save(World& w) {
  if (!w.in.one_in(16)) return;  // it syncs the disk
  const tenon_str metadata[] = {w.name(), w.name(), w.name(), w.name()};
  const bool none = w.in.one_in(16);
  w.good(tenon_store_save(w.stores.any(w.in), w.space(), w.path(), none ? nullptr : metadata,
                          none ? w.number() : w.in.below(3)));
}
inline void safetensors_tensors(World& w) {
  const auto each = [](void* user, tenon_str, const tenon_tensor_type*) {
    ++*static_cast<uint64_t*>(user);
  };
  uint64_t seen = 0;
  w.good(tenon_safetensors_tensors(w.path(), w.in.one_in(8) ? nullptr : +each, &seen));
}
inline void safetensors_metadata(World& w) {
  Out<tenon_text*> out(w.in);
  json_of(w, out, tenon_safetensors_metadata(w.path(), out.arg()));
}

inline void safetensors_open(World& w) {
  Out<tenon_safetensors*> out(w.in);
  if (out.filled(w.good(tenon_safetensors_open(w.path(), out.arg()))))
    w.keep(w.safetensors, out.value, tenon_safetensors_destroy);
}
inline void safetensors_destroy(World& w) { tenon_safetensors_destroy(w.safetensors.take(w.in)); }
inline void safetensors_count(World& w) { tenon_safetensors_count(w.safetensors.any(w.in)); }
inline void safetensors_get(World& w) {
  Out<tenon_str> name(w.in);
  Out<tenon_tensor> tensor(w.in);
  const bool given = w.good(
      tenon_safetensors_get(w.safetensors.any(w.in), w.in.below(3), name.arg(), tensor.arg()));
  const bool both[] = {name.filled(given), tensor.filled(given)};
  if (!both[0] || !both[1]) return;
  read_text(name.value);
  if (tensor.value.struct_size >= sizeof(tenon_tensor)) read(tensor.value.data, tensor.value.size);
}
inline void safetensors_load(World& w) {
  w.good(tenon_safetensors_load(w.safetensors.any(w.in), w.in.below(3), w.stores.any(w.in),
                                w.space(), w.name()));
}

// ---- Files of models and tensors

inline void graph_import(World& w) {
  const tenon_str patterns[] = {w.text("w*"), w.name(), w.text("?")},
                  names[] = {w.name(), w.name()};
  const tenon_tensor* const tensors[] = {w.tensor(), nullptr};
  tenon_graph_import_options o{};
  o.struct_size = w.size_of<tenon_graph_import_options>();
  o.trainable = w.in.one_in(16) ? nullptr : patterns;
  o.trainable_count = o.trainable ? w.in.below(4) : w.number();
  o.fixed_names = w.in.one_in(16) ? nullptr : names;
  o.fixed_tensors = w.in.one_in(16) ? nullptr : tensors;
  const bool both = o.fixed_names && o.fixed_tensors;
  o.fixed_count = both ? (w.in.one_in(4) ? 1 + w.in.below(2) : 0) : w.number();
  Out<tenon_graph*> out(w.in);
  const tenon_str path = w.in.one_in(8) ? w.path() : w.text(w.folder + "/model.onnx");
  if (out.filled(w.good(
          tenon_graph_import(path, w.in.one_in(8) ? nullptr : &o, w.stores.any(w.in), out.arg()))))
    w.keep(w.graphs, out.value, tenon_graph_destroy);
}
inline void graph_export(World& w) {
  const tenon_str outputs[] = {w.name(), w.name()};
  const tenon_str symbols[] = {w.name(), w.text("N")};
  const int64_t numbers[] = {4, 3};
  tenon_graph_export_options o{};
  o.struct_size = w.size_of<tenon_graph_export_options>();
  o.outputs = w.in.one_in(2) ? nullptr : outputs;
  o.output_count = o.outputs ? w.in.below(3) : (w.in.one_in(8) ? w.number() : 0);
  o.symbols = w.in.one_in(4) ? nullptr : symbols;
  o.numbers = w.in.one_in(8) ? nullptr : numbers;
  o.symbol_count = o.symbols && o.numbers ? w.in.below(3) : (w.in.one_in(8) ? w.number() : 0);
  o.external_data = w.in.below(3);
  w.good(tenon_graph_export(w.graphs.any(w.in), w.stores.any(w.in), w.path(),
                            w.in.one_in(4) ? nullptr : &o));
}
inline void tensors_read(World& w) {
  Out<tenon_tensors*> out(w.in);
  if (out.filled(w.good(tenon_tensors_read(w.path(), out.arg()))))
    w.keep(w.tensor_files, out.value, tenon_tensors_destroy);
}
inline void tensors_destroy(World& w) { tenon_tensors_destroy(w.tensor_files.take(w.in)); }
inline void tensors_count(World& w) {
  tenon_tensors* const some = w.tensor_files.any(w.in);
  must(some || tenon_tensors_count(some) == 0, "NULL has tensors");
}
inline void tensors_get(World& w) {
  Out<tenon_str> name(w.in);
  Out<tenon_tensor> tensor(w.in);
  const bool given =
      w.good(tenon_tensors_get(w.tensor_files.any(w.in), w.in.below(3), name.arg(), tensor.arg()));
  const bool both[] = {name.filled(given), tensor.filled(given)};
  if (!both[0] || !both[1]) return;
  read_text(name.value);
  if (tensor.value.struct_size >= sizeof(tenon_tensor)) read(tensor.value.data, tensor.value.size);
}
inline void tensors_write(World& w) {
  if (!w.in.one_in(16)) return;  // it syncs the disk
  const tenon_str names[] = {w.name(), w.name()};
  const tenon_tensor* const tensors[] = {w.tensor(), nullptr};
  const bool none = w.in.one_in(16);
  w.good(tenon_tensors_write(w.path(), w.in.one_in(8) ? nullptr : names, none ? nullptr : tensors,
                             none ? w.number() : w.in.below(w.in.one_in(8) ? 3 : 2),
                             w.in.below(2)));
}

inline void available_memory(World&) { tenon_available_memory(); }
inline void report_crashes(World& w) { w.good(tenon_report_crashes()); }
inline void active_calls(World& w) {
  char text[64];
  const uint64_t size = w.in.below(sizeof text + 1);
  uint64_t steps = 0;
  const bool none = w.in.one_in(8);
  const uint32_t count =
      tenon_active_calls(none ? nullptr : text, none ? 0 : size, w.in.one_in(4) ? nullptr : &steps);
  if (count != 0 && !none && size > 0)
    must(std::memchr(text, 0, size) != nullptr, "a text that ends");
}

// ---- Executables and runs

inline void executable_create(World& w) {
  tenon_executable_options o{};
  o.struct_size = w.size_of<tenon_executable_options>();
  o.device = w.device();
  o.fallback = w.in.one_in(24) ? w.number() : w.in.below(2);
  o.flags = w.in.one_in(24) ? w.number() : w.in.below(8);
  o.exec_mode = w.in.one_in(24) ? w.number() : w.in.below(5);
  o.lanes = w.in.one_in(3) ? w.number() : 0;
  o.compile_mode = w.in.one_in(24) ? w.number() : w.in.below(2);
  static constexpr auto kProgress = [](void*, uint32_t, uint32_t) -> uint32_t { return 1; };
  static constexpr auto kStop = [](void*, uint32_t, uint32_t) -> uint32_t { return 0; };
  if (w.in.one_in(2)) o.progress = w.in.one_in(8) ? +kStop : +kProgress;
  static constexpr std::string_view kLists[] = {
      "template:0,cpu:0", "lanes:0,lanes:1", "cpu,template,cpu", ",", "auto,cpu:0", "cpu:0,"};
  if (w.in.one_in(3)) o.device = w.text(w.in.of(kLists));
  const tenon_str patterns[] = {w.text("*"), w.name(), w.text("[a-")},
                  devices[] = {w.device(), w.text("template"), w.text("cpu:0")};
  const uint64_t limits[] = {uint64_t{w.number()} << 8, 0, w.in.below(1 << 16)};
  if (w.in.one_in(3)) {
    o.pin_patterns = w.in.one_in(24) ? nullptr : patterns;
    o.pin_devices = w.in.one_in(24) ? nullptr : devices;
    o.pin_count = w.in.below(4);
  }
  if (w.in.one_in(3)) {
    o.memory_limits = w.in.one_in(24) ? nullptr : limits;
    o.memory_limit_count = w.in.below(4);
  }
  static constexpr std::string_view kSizes[] = {"pow2",     "4,8", "exact", "pow2:3..",
                                                "pow2:..5", "0",   ""};
  const tenon_str bucket_symbols[] = {w.text("N"), w.name(), w.text("N")},
                  bucket_sizes[] = {w.text(w.in.of(kSizes)), w.text("pow2"), w.name()};
  if (w.in.one_in(3)) {
    o.bucket_symbols = w.in.one_in(24) ? nullptr : bucket_symbols;
    o.bucket_sizes = w.in.one_in(24) ? nullptr : bucket_sizes;
    o.bucket_count = w.in.one_in(8) ? w.in.below(4) : 1;
  }
  Out<tenon_executable*> out(w.in);
  if (out.filled(w.good(tenon_executable_create(w.runtime(), w.graphs.any(w.in), w.stores.any(w.in),
                                                w.in.one_in(8) ? nullptr : &o, out.arg()))))
    w.keep(w.executables, out.value, tenon_executable_destroy);
}
inline void executable_destroy(World& w) { tenon_executable_destroy(w.executables.take(w.in)); }
inline void executable_report(World& w) {
  const tenon_str symbols[] = {w.text("N"), w.name(), w.text("N")};
  const int64_t numbers[] = {w.dim(), w.dim(), w.dim()};
  const bool none = w.in.one_in(24);
  Out<tenon_text*> out(w.in);
  json_of(w, out,
          tenon_executable_report(w.executables.any(w.in), none ? nullptr : symbols, numbers,
                                  none ? w.number() : w.in.below(4), out.arg()));
}
inline void context_create(World& w) {
  Out<tenon_context*> out(w.in);
  if (out.filled(w.good(tenon_context_create(w.executables.any(w.in), out.arg()))))
    w.keep(w.contexts, out.value, tenon_context_destroy);
}
inline void context_destroy(World& w) { tenon_context_destroy(w.contexts.take(w.in)); }
inline void context_set(World& w) {
  tenon_context* const context = w.contexts.any(w.in);
  if (w.in.one_in(4)) {
    w.good(tenon_context_set(context, w.name(), w.tensor()));
    return;
  }
  // The inputs of every graph, this context's among them.
  tenon_str name;
  tenon_tensor_type type{};
  type.struct_size = sizeof type;
  for (const tenon_graph* graph : w.graphs.live)
    for (uint32_t i = 0; pick(w, graph, TENON_SPACE_INPUT, i, name, type); ++i)
      w.good(tenon_context_set(context, name, w.tensor(type)));
}
// Binds what the graphs call so, or what no graph has.
template <class Bind>
void bind_each(World& w, Bind&& bind) {
  if (w.in.one_in(4)) return bind(w.in.one_in(2) ? w.name() : w.output(), w.tensor());
  tenon_str name;
  tenon_tensor_type type{};
  type.struct_size = sizeof type;
  for (const tenon_graph* graph : w.graphs.live) {
    for (uint32_t i = 0; pick(w, graph, TENON_SPACE_INPUT, i, name, type); ++i)
      bind(name, w.tensor(type));
    if (w.in.one_in(2)) bind(w.output(), w.tensor(type));
  }
}
inline void context_bind(World& w) {
  tenon_context* const context = w.contexts.any(w.in);
  bind_each(w, [&](tenon_str name, const tenon_tensor* tensor) {
    w.good(tenon_context_bind(context, name, tensor));
  });
}
inline void context_unbind(World& w) {
  w.good(tenon_context_unbind(w.contexts.any(w.in), w.in.one_in(2) ? w.name() : w.output()));
}
// A caller with an older version of the struct gets no device.
inline void read_device(const tenon_tensor& t) {
  if (t.struct_size >= offsetof(tenon_tensor, device) + sizeof t.device) read_text(t.device);
}
inline void context_output(World& w) {
  Out<tenon_tensor> out(w.in);
  if (out.filled(w.good(tenon_context_output(w.contexts.any(w.in), w.output(), out.arg()))))
    read_device(out.value);
}
inline void context_on_end(World& w) {
  static std::atomic<uint32_t> ends;
  const auto count = [](void* user, tenon_code code) {
    must(code <= TENON_CANCELLED, "a run ended with an unknown code");
    ++*static_cast<std::atomic<uint32_t>*>(user);
  };
  w.good(tenon_context_on_end(w.contexts.any(w.in), w.in.one_in(4) ? nullptr : +count, &ends));
}
inline void context_cancel(World& w) { tenon_context_cancel(w.contexts.any(w.in)); }

// ---- DLPack

// A tensor of DLPack over a copy of one of ours; counts those that nobody has deleted.
struct Lent {
  core::dlpack::Managed managed{};
  std::array<int64_t, TENON_MAX_RANK> shape{}, strides{};
  std::array<unsigned char, 4096> bytes{};
  static std::atomic<int>& alive() {
    static std::atomic<int> count{0};
    return count;
  }
  Lent() { ++alive(); }
  ~Lent() { --alive(); }
};

inline Lent* lent(World& w, const tenon_tensor* tensor) {
  auto* const out = new Lent;
  core::dlpack::Managed& m = out->managed;
  m.major = w.in.one_in(24) ? w.number() : 1;
  m.context = out;
  m.deleter = [](core::dlpack::Managed* all) { delete static_cast<Lent*>(all->context); };
  m.flags = w.in.one_in(8) ? w.number() : 0;
  core::dlpack::Tensor& t = m.tensor;
  t.data = out->bytes.data();
  t.byte_offset = w.in.one_in(8) ? w.in.below(64) : 0;
  const bool known = tensor && tensor->rank <= TENON_MAX_RANK && tensor->dims;
  t.rank = known && !w.in.one_in(24) ? static_cast<int32_t>(tensor->rank)
                                     : static_cast<int32_t>(w.number());
  t.dtype = core::dlpack::dtype_of(known ? tensor->dtype : w.dtype());
  if (w.in.one_in(24)) t.dtype.bits = static_cast<uint8_t>(w.number());
  if (w.in.one_in(24)) t.dtype.lanes = static_cast<uint16_t>(w.number());
  static constexpr int32_t kTypes[] = {1, 1, 1, 3, 2, 12, 0, -1};
  t.device = {w.in.of(kTypes), static_cast<int32_t>(w.in.one_in(8) ? w.number() : 0)};
  // Nothing states how many bytes there are: the producer vouches for them.
  int64_t stride = 1;
  for (int k = TENON_MAX_RANK - 1; k >= 0; --k) {
    const auto at = static_cast<size_t>(k);
    out->shape[at] = known && k < static_cast<int>(tensor->rank) ? tensor->dims[k] : 1;
    out->strides[at] = stride;
    const bool fits = out->shape[at] >= 0 && out->shape[at] <= 8 && stride <= 64;
    if (!fits) out->shape[at] = w.in.one_in(2) ? INT64_MIN : -1;
    stride *= fits ? std::max<int64_t>(out->shape[at], 1) : 1;
  }
  t.shape = w.in.one_in(24) ? nullptr : out->shape.data();
  if (w.in.one_in(2)) t.strides = out->strides.data();
  return out;
}

inline DLManagedTensorVersioned* handle_of(Lent* lent) {
  return reinterpret_cast<DLManagedTensorVersioned*>(&lent->managed);
}
inline void context_bind_dlpack(World& w) {
  tenon_context* const context = w.contexts.any(w.in);
  bind_each(w, [&](tenon_str name, const tenon_tensor* tensor) {
    Lent* const tensor_lent = w.in.one_in(24) ? nullptr : lent(w, tensor);
    if (!w.good(tenon_context_bind_dlpack(context, name,
                                          tensor_lent ? handle_of(tensor_lent) : nullptr)))
      delete tensor_lent;
  });
}
inline void context_output_dlpack(World& w) {
  tenon_context* const context = w.contexts.any(w.in);
  Out<DLManagedTensorVersioned*> out(w.in);
  if (!out.filled(w.good(tenon_context_output_dlpack(context, w.output(), out.arg())))) return;
  auto* const managed = reinterpret_cast<core::dlpack::Managed*>(out.value);
  must(managed->major == 1 && managed->deleter, "an output given away is not of DLPack 1");
  // At once, or by the context that reads it, which may be the one that wrote it.
  if (w.in.one_in(2) ||
      !w.good(tenon_context_bind_dlpack(w.contexts.any(w.in), w.name(), out.value)))
    managed->deleter(managed);
}
inline void tensor_from_dlpack(World& w) {
  Lent* const tensor_lent = lent(w, w.tensor());
  Out<tenon_tensor> out(w.in);
  if (out.filled(w.good(tenon_tensor_from_dlpack(
          w.runtime(), w.in.one_in(24) ? nullptr : handle_of(tensor_lent), out.arg()))))
    read_device(out.value);
  delete tensor_lent;
}

// ---- Streams and events of the app: the only stream that there is here is tenon's own

inline void context_stream(World& w) {
  Out<void*> out(w.in);
  tenon_context* const context = w.contexts.any(w.in);
  const tenon_str device = w.device();
  if (out.filled(w.good(tenon_context_stream(context, device, out.arg()))))
    must(out.value != nullptr, "a stream without a handle");
}
inline void context_use_stream(World& w) {
  w.good(tenon_context_use_stream(w.contexts.any(w.in), w.device(), nullptr));
}
inline void context_wait_event(World& w) {
  w.good(tenon_context_wait_event(w.contexts.any(w.in), w.device(), nullptr));
}
inline void context_record_event(World& w) {
  w.good(tenon_context_record_event(w.contexts.any(w.in), w.device(), nullptr));
}
inline void runtime_import_alignment(World& w) {
  Out<uint64_t> out(w.in);
  tenon_runtime* const runtime = w.runtime();
  if (out.filled(w.good(tenon_runtime_import_alignment(runtime, w.device(), out.arg()))))
    must((out.value & (out.value - 1)) == 0, "an alignment that is no power of two");
}

inline void context_run(World& w) { w.good(tenon_context_run(w.contexts.any(w.in))); }
inline void context_run_async(World& w) { w.good(tenon_context_run_async(w.contexts.any(w.in))); }
inline void context_query(World& w) {
  Out<uint32_t> done(w.in);
  // The failure of a run comes with the answer.
  w.good(tenon_context_query(w.contexts.any(w.in), done.arg()));
}
inline void context_wait(World& w) { w.good(tenon_context_wait(w.contexts.any(w.in))); }
inline void context_output_type(World& w) {
  Out<tenon_tensor_type> out(w.in);
  out.filled(w.good(tenon_context_output_type(w.contexts.any(w.in), w.output(), out.arg())));
}
inline void context_get(World& w) {
  tenon_context* const context = w.contexts.any(w.in);
  const tenon_str name = w.output();
  uint64_t size = w.size();
  tenon_tensor_type type{};
  type.struct_size = sizeof type;
  if (!w.in.one_in(8) && w.good(tenon_context_output_type(context, name, &type))) {
    size = 4;
    for (uint32_t i = 0; i < type.rank; ++i) size *= static_cast<uint64_t>(type.dims[i]);
  }
  w.good(tenon_context_get(context, name, w.in.one_in(24) ? nullptr : w.bytes(), size));
}

}  // namespace tenon::fuzz
