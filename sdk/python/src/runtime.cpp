// SPDX-License-Identifier: Apache-2.0
// The class Runtime, and what is known of devices, plugins and ops, as plain data.
#include <sched.h>

#include "common.hpp"

namespace tenon::python {
namespace {

nb::dict device_data(const DeviceEntry& d) {
  nb::dict out;
  out["id"] = d.id;
  out["kind"] = d.kind;
  out["name"] = d.name;
  out["plugin"] = d.plugin;
  out["reason"] = d.reason;
  out["memory_size"] = d.memory_size;
  out["max_allocation"] = d.max_allocation;
  out["device_class"] = d.class_name();
  return out;
}

nb::dict plugin_data(const PluginEntry& p) {
  nb::dict out;
  out["path"] = p.path;
  out["stage"] = p.stage;
  out["text"] = p.text;
  out["name"] = p.name;
  out["version"] = p.version;
  out["code"] = code_name(p.code);
  out["device_count"] = p.device_count;
  return out;
}

nb::object default_of(const tenon_op_part& p) {
  switch (p.type) {
    case TENON_ARG_I64:
      return nb::int_(p.default_int);
    case TENON_ARG_F64:
      return nb::float_(p.default_float);
    case TENON_ARG_BOOL:
      return nb::bool_(p.default_int != 0);
    case TENON_ARG_STR:
      return nb::cast(detail::string(p.default_str));
    case TENON_ARG_DTYPE:
      return nb::cast(std::string(sdk::dtype_name(static_cast<tenon_dtype>(p.default_int))));
    case TENON_ARG_INTS:
    case TENON_ARG_FLOATS:
      return nb::make_tuple();
    default:
      return nb::none();
  }
}

constexpr const char* kPartKinds[] = {
    "",          "operand", "optional_operand", "operand_list", "optional_list",
    "attribute", "output",  "optional_output",  "output_list"};
constexpr const char* kArgTypes[] = {"",     "i64",    "f64",   "bool",    "str",
                                     "ints", "floats", "dtype", "function"};

nb::dict part_data(const tenon_op_part& p) {
  nb::dict out;
  out["name"] = detail::string(p.name);
  out["kind"] = p.kind < std::size(kPartKinds) ? kPartKinds[p.kind] : "";
  if (p.kind == TENON_PART_ATTRIBUTE) {
    out["type"] = p.type < std::size(kArgTypes) ? kArgTypes[p.type] : "";
    out["default"] = default_of(p);
    nb::object words = nb::cast(detail::string(p.values)).attr("split")();
    out["values"] = nb::tuple(words);
  }
  return out;
}

nb::dict op_data(const OpEntry& op) {
  nb::dict out;
  out["domain"] = op.domain;
  out["name"] = op.name;
  out["family"] = op.family;
  out["level"] = op.level;
  out["signature"] = op.signature;
  out["version"] = op.version;
  out["has_gradient"] = op.has_gradient;
  out["has_decomposition"] = op.has_decomposition;
  out["origin"] = op.origin;
  nb::list parts;
  for (const tenon_op_part& p : op.parts) parts.append(part_data(p));
  out["parts"] = parts;
  return out;
}

void check_threads(uint32_t threads) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;  // more processors than a set has
  const auto most = static_cast<uint32_t>(CPU_COUNT(&set));
  if (threads > most)
    fail(TENON_INVALID_ARGUMENT, "threads: " + std::to_string(threads) + "; expected at most " +
                                     std::to_string(most) +
                                     ", the processors that this process may use, or 0");
}

}  // namespace

void add_runtime(nb::module_& m) {
  nb::class_<Kept<Runtime>>(
      m, "Runtime", nb::is_weak_referenceable(),
      "The loaded plugins and their devices. Functions that get none use one of the package.")
      .def(
          "__init__",
          [](Kept<Runtime>* self, uint32_t threads, std::vector<std::string> dirs,
             std::vector<std::string> files, bool use_environment, bool use_builtin_dir) {
            check_not_forked();
            check_threads(threads);
            const RuntimeOptions options{std::move(dirs), std::move(files), threads,
                                         use_environment, use_builtin_dir};
            note_runtime();
            const Unlocked unlocked;
            new (self) Kept<Runtime>(options);
          },
          nb::kw_only(), nb::arg("threads") = 0,
          nb::arg("plugin_dirs") = std::vector<std::string>(),
          nb::arg("plugin_files") = std::vector<std::string>(), nb::arg("use_environment") = true,
          nb::arg("use_builtin_dir") = true,
          "Loads the plugins. threads: computing threads, at most one per processor of the CPU "
          "affinity; 0 = CPU affinity or cgroup\n"
          "quota, whichever is smaller.")
      .def(
          "_devices",
          [](const Kept<Runtime>& r) {
            nb::list out;
            for (const DeviceEntry& d : r->devices()) out.append(device_data(d));
            return out;
          },
          "The devices, as dicts.")
      .def(
          "_plugins",
          [](const Kept<Runtime>& r) {
            nb::list out;
            for (const PluginEntry& p : r->plugins()) out.append(plugin_data(p));
            return out;
          },
          "The files that were considered as plugins, as dicts.")
      .def(
          "start_trace",
          [](const Kept<Runtime>& r, uint64_t most_slices) { r->start_trace(most_slices); },
          nb::arg("most_slices") = 0,
          "Starts to record all runs. most_slices: later runs are counted but not kept; 0 = a "
          "million.")
      .def(
          "stop_trace", [](const Kept<Runtime>& r) { return r->stop_trace(); },
          "Ends the trace and returns it in the Trace Event Format, which Perfetto reads.")
      .def(
          "choices", [](const Kept<Runtime>& r) { return r->choices(); },
          "The choices of algorithms that devices made by timing, as JSON.")
      .def(
          "take_choices",
          [](const Kept<Runtime>& r, std::string_view json) { r->take_choices(json); },
          nb::arg("json"),
          "Offers choices, as choices() returned them, to what is compiled from now on.");
  m.def(
      "_ops",
      [] {
        nb::list out;
        for (const OpEntry& op : list_ops()) out.append(op_data(op));
        return out;
      },
      "The ops, as dicts: domain, name, family, level, signature, version, and parts: operands, "
      "attributes, outputs.");
  m.def(
      "version", [] { return version(); }, "The version of libtenon.");
  m.def(
      "available_memory", [] { return available_memory(); },
      "Bytes of the host's memory that this process may still take; 0 if unknown.");
}

}  // namespace tenon::python
