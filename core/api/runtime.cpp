// SPDX-License-Identifier: Apache-2.0
// C functions for the runtime and the list of ops.
#include <deque>

#include "api/door.hpp"
#include "host/active_call.hpp"
#include "host/control_group.hpp"
#include "host/crash.hpp"
#include "ops/record.hpp"
#include "ops/registry.hpp"
#include "tenon/node.hpp"
#include "tenon/tenon_debug.h"

using namespace tenon::core;

namespace {

std::vector<std::string> strings(const tenon_str* list, uint32_t count, std::string_view what) {
  if (count && !list) fail(Code::invalid_argument, what, " is NULL");
  std::vector<std::string> out;
  for (uint32_t i = 0; i < count; ++i) out.emplace_back(view(list[i]));
  return out;
}

std::string default_text(const tenon::OpPart& part) {
  switch (part.attr_type) {
    case TENON_ATTR_I64:
      return part.default_int == INT64_MIN ? "none" : std::to_string(part.default_int);
    case TENON_ATTR_F64:
      return tenon::is_unset(part.default_float) ? "unset" : cat(part.default_float);
    case TENON_ATTR_BOOL:
      return part.default_int ? "true" : "false";
    case TENON_ATTR_DTYPE:
      return part.default_int ? std::string(dtype_name(static_cast<DType>(part.default_int)))
                              : "none";
    case TENON_ATTR_INTS:
    case TENON_ATTR_FLOATS:
      return "[]";
    case TENON_ATTR_FUNCTION:
      return "graph";
    default:
      return part.required() ? "?" : cat("\"", part.default_str, "\"");
  }
}

std::string signature(std::string_view name, const tenon::OpSchema& schema) {
  std::string operands, attrs, outputs;
  const auto list = [](std::string& to, const auto&... parts) {
    to += cat(to.empty() ? "" : ", ", parts...);
  };
  using Kind = tenon::OpPart::Kind;
  for (const tenon::OpPart& p : schema.parts()) {
    switch (p.kind) {
      case Kind::operand:
        list(operands, p.name);
        break;
      case Kind::optional_operand:
        list(operands, p.name, "?");
        break;
      case Kind::operand_list:
      case Kind::optional_list:
        list(operands, p.name, p.kind == Kind::operand_list ? "..." : "...?");
        break;
      case Kind::attr:
        list(attrs, p.name, "=", default_text(p));
        break;
      case Kind::output:
        list(outputs, p.name);
        break;
      case Kind::optional_output:
        list(outputs, p.name, "?");
        break;
      case Kind::output_list:
        list(outputs, p.name, "...");
        break;
      default:
        break;
    }
  }
  return cat(name, "(", operands, ")", attrs.empty() ? "" : " {", attrs, attrs.empty() ? "" : "}",
             " -> (", outputs, ")");
}

// "kind=sum|mean|max oob=error|clamp"
std::string values(std::span<const Words> words) {
  std::string text;
  for (const Words& w : words) {
    if (w.attr.empty()) continue;
    std::string accepted(w.accepted);
    std::ranges::replace(accepted, ' ', '|');
    text += cat(text.empty() ? "" : " ", w.attr, "=", accepted);
  }
  return text;
}

std::string_view accepted_by(std::string_view attr, std::span<const Words> words) {
  for (const Words& w : words)
    if (!w.attr.empty() && w.attr == attr) return w.accepted;
  return {};
}

// An op as data, made once and kept.
struct OpData {
  const OpRecord* record;
  std::string signature, values;
  std::vector<tenon_op_part> parts;

  explicit OpData(const OpRecord& r)
      : record(&r), signature(::signature(r.name(), *r.schema)), values(::values(r.words)) {
    for (const tenon::OpPart& p : r.schema->parts())
      parts.push_back(tenon::detail::c_part(
          p, p.kind == tenon::OpPart::Kind::attr ? accepted_by(p.name, r.words) : ""));
  }
};

// The data lives as long as the process. Throws not_found behind the last op.
const OpData& op_data(size_t index) {
  static std::mutex& mutex = *new std::mutex;  // never destroyed, as the data
  static std::deque<OpData>& all = *new std::deque<OpData>;
  const std::lock_guard lock(mutex);
  if (index < all.size()) return all[index];
  std::vector<const OpRecord*> records = all_records();
  std::ranges::copy(registered_records(), std::back_inserter(records));
  while (all.size() < records.size()) all.emplace_back(*records[all.size()]);
  if (index >= all.size()) fail(Code::not_found, "op ", index, ": there are ", all.size());
  return all[index];
}

}  // namespace

tenon_status* tenon_runtime_create(const tenon_runtime_options* given,
                                   tenon_runtime** out_runtime) {
  return door("tenon_runtime_create", [&] {
    const tenon_runtime_options o = taken(given, "tenon_runtime_options");
    Host::Options options;
    options.plugin_dirs = strings(o.plugin_dirs, o.plugin_dir_count, "plugin_dirs");
    options.plugin_files = strings(o.plugin_files, o.plugin_file_count, "plugin_files");
    options.threads = o.threads;
    options.use_environment = !(o.flags & TENON_RUNTIME_NO_ENVIRONMENT);
    options.use_builtin_dir = !(o.flags & TENON_RUNTIME_NO_BUILTIN);
    auto out = std::make_unique<tenon_runtime>();
    out->runtime = std::make_shared<Runtime>(std::move(options));
    out->devices = out->runtime->host.devices();
    need(out_runtime, "out_runtime");
    *out_runtime = out.release();
  });
}

void tenon_runtime_destroy(tenon_runtime* runtime) { delete runtime; }

uint32_t tenon_runtime_device_count(const tenon_runtime* runtime) {
  return runtime ? static_cast<uint32_t>(runtime->devices.size()) : 0;
}

tenon_status* tenon_runtime_import_alignment(tenon_runtime* runtime, tenon_str device,
                                             uint64_t* out_alignment) {
  return door("tenon_runtime_import_alignment", [&] {
    const auto opened = need(runtime, "runtime").runtime->host.open(view(device));
    need(out_alignment, "out_alignment") = opened->import_info().alignment;
  });
}

tenon_status* tenon_runtime_device(const tenon_runtime* runtime, uint32_t index,
                                   tenon_device_entry* out) {
  return door("tenon_runtime_device", [&] {
    const auto& devices = need(runtime, "runtime").devices;
    if (index >= devices.size())
      fail(Code::not_found, "device ", index, ": there are ", devices.size());
    const DeviceInfo& d = devices[index];
    tenon_device_entry e{};
    e.id = c_str(d.id);
    e.kind = c_str(d.kind);
    e.name = c_str(d.name);
    e.plugin = c_str(d.plugin);
    e.reason = c_str(d.reason);
    e.memory_size = d.memory_size;
    e.max_allocation = d.max_allocation;
    e.host_addressable = d.host_addressable;
    e.device_class = d.device_class;
    give(need(out, "out"), e, "tenon_device_entry");
  });
}

uint32_t tenon_runtime_plugin_count(const tenon_runtime* runtime) {
  return runtime ? static_cast<uint32_t>(runtime->runtime->host.report().candidates.size()) : 0;
}

tenon_status* tenon_runtime_plugin(const tenon_runtime* runtime, uint32_t index,
                                   tenon_plugin_entry* out) {
  return door("tenon_runtime_plugin", [&] {
    const auto& all = need(runtime, "runtime").runtime->host.report().candidates;
    if (index >= all.size())
      fail(Code::not_found, "plugin ", index, ": the report has ", all.size());
    const LoadCandidate& c = all[index];
    tenon_plugin_entry e{};
    e.path = c_str(c.path);
    e.stage = c_str(stage_name(c.stage));
    e.text = c_str(c.stage == LoadStage::loaded ? c.note : c.text);
    e.name = c_str(c.plugin);
    e.version = c_str(c.version);
    e.code = static_cast<tenon_code>(c.code);
    e.device_count = static_cast<uint32_t>(c.devices.size());
    give(need(out, "out"), e, "tenon_plugin_entry");
  });
}

static_assert(TENON_FAULT_OPEN == kFaultOpen && TENON_FAULT_ALLOCATE == kFaultAllocate &&
              TENON_FAULT_WRITE == kFaultWrite && TENON_FAULT_READ == kFaultRead &&
              TENON_FAULT_COPY == kFaultCopy && TENON_FAULT_QUERY == kFaultQuery &&
              TENON_FAULT_COMPILE == kFaultCompile &&
              TENON_FAULT_INSTANTIATE == kFaultInstantiate && TENON_FAULT_RUN == kFaultRun &&
              TENON_FAULT_STREAM == kFaultStream && TENON_FAULT_WAIT == kFaultWait);

tenon_status* tenon_runtime_fault(tenon_runtime* runtime, const tenon_fault* given,
                                  uint64_t* out_met) {
  return door("tenon_runtime_fault", [&] {
    constexpr uint32_t kAll = 2 * kFaultWait - 1;
    Faults& faults = need(runtime, "runtime").runtime->host.faults();
    uint64_t met = 0;
    if (given) {
      const tenon_fault f = taken(given, "tenon_fault");
      if (f.calls & ~kAll) fail(Code::invalid_argument, "calls ", f.calls, " are not known");
      if (f.flags & ~TENON_FAULT_LASTING)
        fail(Code::invalid_argument, "flags ", f.flags, " are not known");
      if (f.nth && (f.code == TENON_OK || f.code > TENON_INTERNAL))
        fail(Code::invalid_argument, "code ", f.code, " is no failure");
      met = faults.set({.device = std::string(view(f.device)),
                        .calls = f.calls,
                        .nth = f.nth,
                        .code = static_cast<Code>(f.code),
                        .lasting = (f.flags & TENON_FAULT_LASTING) != 0});
    } else {
      met = faults.lift();
    }
    if (out_met) *out_met = met;
  });
}

uint32_t tenon_op_count(void) {
  return static_cast<uint32_t>(all_records().size() + registered_records().size());
}

tenon_status* tenon_op(uint32_t index, tenon_op_entry* out) {
  return door("tenon_op", [&] {
    const OpData& data = op_data(index);
    const OpRecord& r = *data.record;
    constexpr std::string_view levels[] = {"primitive", "core", "meta", "control"};
    tenon_op_entry e{};
    e.domain = c_str(r.domain);
    e.name = c_str(r.schema->name);
    e.family = c_str(r.schema->family);
    e.level = c_str(levels[static_cast<size_t>(r.schema->level)]);
    e.signature = c_str(data.signature);
    e.values = c_str(data.values);
    e.version = r.schema->version;
    e.has_gradient = r.grad != nullptr;
    e.has_decomposition = r.lower != nullptr;
    e.origin = c_str(origin_of(r));
    e.parts = data.parts.data();
    e.part_stride = sizeof(tenon_op_part);
    e.part_count = static_cast<uint32_t>(data.parts.size());
    give(need(out, "out"), e, "tenon_op_entry");
  });
}

tenon_status* tenon_op_register(const tenon_op_desc* op) {
  return door("tenon_op_register", [&] { register_ops({&need(op, "op"), 1}, kOfTheApp); });
}

uint64_t tenon_available_memory(void) {
  try {
    return available_memory();
  } catch (...) {
    return 0;
  }
}

tenon_status* tenon_report_crashes(void) {
  return door("tenon_report_crashes", [] { report_crashes(); });
}

uint32_t tenon_active_calls(char* out_text, uint64_t size, uint64_t* out_steps) {
  bool own = false;
  const uint32_t count = write_active_calls(out_text, out_text ? size : 0, own);
  if (out_steps) *out_steps = call_steps();
  return count;
}
