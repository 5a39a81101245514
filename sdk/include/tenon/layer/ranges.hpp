// SPDX-License-Identifier: Apache-2.0
// Named ranges around steps, for profilers that show the work that host threads enqueue. They exist
// only if a profiler is attached when the program is compiled.
#pragma once

#include "../stream_plugin.hpp"

namespace tenon::sdk::layer {

// "graph/node: label".
inline std::string range_name(const tenon_blob& blob, const StepBody& body) {
  const tenon_blob_function& function = *tenon_blob_function_at(&blob, 0);
  std::string name(text(tenon_blob_str(&blob, function.name)));
  if (body.node < function.node_count) {
    const tenon_blob_node& n = *tenon_blob_node_at(&blob, &function, body.node);
    const std::string_view node = text(tenon_blob_str(&blob, n.provenance));
    if (!node.empty()) name += (name.empty() ? "" : "/") + std::string(node);
  }
  return name + (name.empty() ? "" : ": ") + body.label;
}

// Open while it lives.
class NamedRange {
 public:
  NamedRange(StreamDevice& device, const std::string& name) : device_(device) {
    device_.range_begin(name);
  }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
  ~NamedRange() { device_.range_end(); }

 private:
  StreamDevice& device_;
};

inline tenon_status* ranged_compile(tenon_device* device, const void* bytes, uint64_t size,
                                    const tenon_compile_options* options,
                                    tenon_program** out) noexcept {
  if (tenon_status* failure = compile(device, bytes, size, options, out)) return failure;
  auto* state = behind<DeviceState>(device);
  auto* shown = static_cast<StreamDevice*>(state->device.get());
  if (!shown->shows_ranges()) return nullptr;
  tenon_status* failure = guarded({state->plugin, "compile"}, [&] {
    const tenon_blob blob = open_blob(bytes, size);
    for (StepBody& body : behind<CompiledProgram>(*out)->program.bodies) {
      if (!body.kernel.run) continue;
      const std::string name = range_name(blob, body);
      if (body.kernel.bind)
        body.kernel.bind = [shown, name, bind = std::move(body.kernel.bind)](const Call& call) {
          return [shown, name, launch = bind(call)](const Launch& at) {
            const NamedRange range(*shown, name);
            launch(at);
          };
        };
      body.kernel.run = [shown, name, run = std::move(body.kernel.run)](const Call& call) {
        const NamedRange range(*shown, name);
        run(call);
      };
    }
  });
  if (failure) {
    program_destroy(*out);
    *out = nullptr;
  }
  return failure;
}

}  // namespace tenon::sdk::layer
