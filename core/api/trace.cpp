// SPDX-License-Identifier: Apache-2.0
// C functions for traces.
#include "api/door.hpp"
#include "api/trace_json.hpp"
#include "base/file.hpp"
#include "tenon/tenon_debug.h"

using namespace tenon::core;

tenon_status* tenon_trace_start(tenon_runtime* runtime, const tenon_trace_options* given) {
  return door("tenon_trace_start", [&] {
    const tenon_trace_options o = taken(given, "tenon_trace_options");
    constexpr uint64_t kMostSlices = 1'000'000;
    need(runtime, "runtime").runtime->tracing.start(o.most_slices ? o.most_slices : kMostSlices);
  });
}

tenon_status* tenon_trace_stop(tenon_runtime* runtime, tenon_text** out_json) {
  return door("tenon_trace_stop", [&] {
    Tracing& tracing = need(runtime, "runtime").runtime->tracing;
    need(out_json, "out_json");
    const auto trace = tracing.stop();
    auto text = std::make_unique<tenon_text>();
    write_trace(*trace, [&](std::string_view piece) { text->text += piece; });
    *out_json = text.release();
  });
}

tenon_status* tenon_trace_save(tenon_runtime* runtime, tenon_str path) {
  return door("tenon_trace_save", [&] {
    Tracing& tracing = need(runtime, "runtime").runtime->tracing;
    FileWriter file{std::string(view(path))};
    const auto trace = tracing.stop();
    write_trace(*trace, [&](std::string_view piece) { file.write(piece.data(), piece.size()); });
    file.commit();
  });
}
