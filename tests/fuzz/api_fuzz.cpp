// SPDX-License-Identifier: Apache-2.0
// Calls of every function of the host API in any order, with sound and with nonsensical arguments,
// on objects that are fresh, empty, failed, or outlive their parents. No call crashes; a failure
// says why and writes no result; nothing leaks. A function that is missing here fails the test.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "../unit/import/proto_writer.hpp"
#include "api_calls.hpp"
#include "api_extend_calls.hpp"
#include "api_gguf_calls.hpp"
#include "api_graph_calls.hpp"
#include "host/status.hpp"

namespace tenon::fuzz {
namespace {

struct Call {
  std::string_view name;
  void (*make)(World&);
};
#define TENON_CALL(name) \
  { "tenon_" #name, name }
constexpr Call kCalls[] = {
    TENON_CALL(status_code),
    TENON_CALL(status_text),
    TENON_CALL(status_where),
    TENON_CALL(status_release),
    TENON_CALL(code_name),
    TENON_CALL(text_str),
    TENON_CALL(text_destroy),
    TENON_CALL(version),
    TENON_CALL(api_version),
    TENON_CALL(abi_version),
    TENON_CALL(log_to),
    TENON_CALL(status_create),
    TENON_CALL(text_create),
    TENON_CALL(runtime_share),
    TENON_CALL(runtime_create),
    TENON_CALL(runtime_destroy),
    TENON_CALL(runtime_device_count),
    TENON_CALL(runtime_device),
    TENON_CALL(runtime_plugin_count),
    TENON_CALL(runtime_plugin),
    TENON_CALL(runtime_import_alignment),
    TENON_CALL(runtime_calibrate),
    TENON_CALL(runtime_rates),
    TENON_CALL(runtime_choices),
    TENON_CALL(runtime_take_choices),
    TENON_CALL(runtime_fault),
    TENON_CALL(trace_start),
    TENON_CALL(trace_stop),
    TENON_CALL(trace_save),
    TENON_CALL(op_count),
    TENON_CALL(op),
    TENON_CALL(op_register),
    TENON_CALL(graph_create),
    TENON_CALL(graph_destroy),
    TENON_CALL(graph_parse),
    TENON_CALL(graph_print),
    TENON_CALL(graph_symbol),
    TENON_CALL(graph_symbol_name),
    TENON_CALL(graph_input),
    TENON_CALL(graph_weight),
    TENON_CALL(graph_state),
    TENON_CALL(graph_constant),
    TENON_CALL(graph_add_node),
    TENON_CALL(graph_gradients),
    TENON_CALL(graph_jvp),
    TENON_CALL(graph_checkpoint),
    TENON_CALL(graph_output),
    TENON_CALL(graph_update),
    TENON_CALL(graph_type),
    TENON_CALL(graph_dtype),
    TENON_CALL(graph_count),
    TENON_CALL(graph_name),
    TENON_CALL(graph_output_count),
    TENON_CALL(graph_output_name),
    TENON_CALL(graph_decompose),
    TENON_CALL(graph_minimize),
    TENON_CALL(graph_accumulate),
    TENON_CALL(graph_apply),
    TENON_CALL(convert),
    TENON_CALL(store_create),
    TENON_CALL(store_destroy),
    TENON_CALL(store_set),
    TENON_CALL(store_borrow),
    TENON_CALL(store_get),
    TENON_CALL(store_type),
    TENON_CALL(store_count),
    TENON_CALL(store_name),
    TENON_CALL(store_add_missing),
    TENON_CALL(store_remove),
    TENON_CALL(store_load),
    TENON_CALL(store_save),
    TENON_CALL(graph_import),
    TENON_CALL(graph_export),
    TENON_CALL(tensors_read),
    TENON_CALL(tensors_destroy),
    TENON_CALL(tensors_count),
    TENON_CALL(tensors_get),
    TENON_CALL(tensors_write),
    TENON_CALL(available_memory),
    TENON_CALL(report_crashes),
    TENON_CALL(active_calls),
    TENON_CALL(safetensors_tensors),
    TENON_CALL(safetensors_metadata),
    TENON_CALL(safetensors_open),
    TENON_CALL(safetensors_destroy),
    TENON_CALL(safetensors_count),
    TENON_CALL(safetensors_get),
    TENON_CALL(safetensors_load),
    TENON_CALL(gguf_format_count),
    TENON_CALL(gguf_format_at),
    TENON_CALL(gguf_find_format),
    TENON_CALL(gguf_decode),
    TENON_CALL(gguf_encode),
    TENON_CALL(gguf_open),
    TENON_CALL(gguf_destroy),
    TENON_CALL(gguf_version),
    TENON_CALL(gguf_shard_count),
    TENON_CALL(gguf_key_count),
    TENON_CALL(gguf_key_at),
    TENON_CALL(gguf_find_key),
    TENON_CALL(gguf_numbers),
    TENON_CALL(gguf_text),
    TENON_CALL(gguf_json),
    TENON_CALL(gguf_tensor_count),
    TENON_CALL(gguf_tensor_at),
    TENON_CALL(gguf_find_tensor),
    TENON_CALL(gguf_load),
    TENON_CALL(gguf_writer_create),
    TENON_CALL(gguf_writer_destroy),
    TENON_CALL(gguf_writer_number),
    TENON_CALL(gguf_writer_numbers),
    TENON_CALL(gguf_writer_text),
    TENON_CALL(gguf_writer_texts),
    TENON_CALL(gguf_writer_tensor),
    TENON_CALL(gguf_writer_content),
    TENON_CALL(gguf_writer_commit),
    TENON_CALL(executable_create),
    TENON_CALL(executable_destroy),
    TENON_CALL(executable_report),
    TENON_CALL(context_create),
    TENON_CALL(context_destroy),
    TENON_CALL(context_set),
    TENON_CALL(context_bind),
    TENON_CALL(context_unbind),
    TENON_CALL(context_output),
    TENON_CALL(context_on_end),
    TENON_CALL(context_cancel),
    TENON_CALL(context_bind_dlpack),
    TENON_CALL(context_output_dlpack),
    TENON_CALL(tensor_from_dlpack),
    TENON_CALL(context_stream),
    TENON_CALL(context_use_stream),
    TENON_CALL(context_wait_event),
    TENON_CALL(context_record_event),
    TENON_CALL(context_run),
    TENON_CALL(context_run_async),
    TENON_CALL(context_query),
    TENON_CALL(context_wait),
    TENON_CALL(context_output_type),
    TENON_CALL(context_get),
};
#undef TENON_CALL

// The way from nothing to a run, taken more often than chance would.
constexpr void (*kForward[])(World&) = {
    graph_parse,    store_create, store_set,         store_add_missing,  executable_create,
    context_create, context_set,  context_run_async, context_wait,       context_run,
    context_get,    context_set,  context_run,       context_output_type};

// The names in "TENON_API type name(".
std::set<std::string> declared_in(const std::string& header) {
  constexpr std::string_view kMark = "TENON_API ";
  std::set<std::string> names;
  for (size_t at = header.find(kMark); at != header.npos; at = header.find(kMark, at + 1)) {
    const size_t end = std::min(header.find('(', at), header.size());
    const size_t begin = header.find_last_of(" *", end) + 1;
    const std::string name = header.substr(begin, end - begin);
    if (name.starts_with("tenon_")) names.insert(name);
  }
  return names;
}

void check_that_none_is_missing() {
  std::set<std::string> declared;
  for (const char* header :
       {"tenon.h", "tenon_debug.h", "tenon_extend.h", "tenon_gguf.h", "tenon_tune.h"}) {
    std::ifstream in(std::string(TENON_API_HEADERS "/") + header);
    declared.merge(
        declared_in({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}));
  }
  std::set<std::string> called;
  for (const Call& c : kCalls) called.emplace(c.name);
  for (const std::string& name : declared)
    must(called.count(name) != 0, ("a header has a function without calls here: " + name).c_str());
  must(declared.size() == called.size() && !declared.empty(),
       "the headers lack a function of these");
}

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tenon-fuzz-XXXXXX").string();
  Folder() {
    must(::mkdtemp(path.data()) != nullptr, "no folder for temporary files");
    ::setenv("XDG_CACHE_HOME", path.c_str(), 1);  // calibrate keeps its rates there
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

// y = w + x in ONNX, with x: f32[N,2] and w: f32[2].
void write_model(const std::string& path) {
  using test::Proto;
  constexpr int64_t kFloat = 1;  // TensorProto.DataType
  const Proto shape = Proto().message(1, Proto().text(2, "N")).message(1, Proto().number(1, 2)),
              type = Proto().message(1, Proto().number(1, kFloat).message(2, shape));
  Proto graph;
  graph.message(1, Proto().text(1, "w").text(1, "x").text(2, "y").text(4, "Add"));
  graph.message(5, Proto().number(1, 2).number(2, kFloat).text(8, "w").text(9, "01234567"));
  graph.message(11, Proto().text(1, "x").message(2, type));
  graph.message(12, Proto().text(1, "y").message(2, type));
  const Proto model = Proto().number(1, 9).message(8, Proto().number(2, 19)).message(7, graph);
  std::ofstream(path, std::ios::binary) << model.bytes();
}

// What all inputs share.
struct Stage {
  Folder folder;
  tenon_runtime* runtime = nullptr;
  Stage() {
    check_that_none_is_missing();
    write_model(folder.path + "/model.onnx");
    write_gguf(folder.path + "/a.gguf");
    constexpr std::string_view kTests = TENON_TEST_PLUGINS, kOurs = TENON_PLUGINS;
    const tenon_str dirs[] = {{kTests.data(), kTests.size()}, {kOurs.data(), kOurs.size()}};
    tenon_runtime_options o{};
    o.struct_size = sizeof o;
    o.plugin_dirs = dirs;
    o.plugin_dir_count = 2;
    o.threads = 2;
    o.flags = TENON_RUNTIME_NO_ENVIRONMENT;
    must(tenon_runtime_create(&o, &runtime) == nullptr, "no runtime");
    must(tenon_runtime_device_count(runtime) > 0, "no device in " TENON_TEST_PLUGINS);
  }
  ~Stage() { tenon_runtime_destroy(runtime); }
};

template <class T>
void clear(Pool<T>& pool, void (*destroy)(T*)) {
  for (T* object : pool.live) destroy(object);
  pool.live.clear();
}

void end(World& w) {
  tenon_text* trace = nullptr;
  tenon_status_release(tenon_runtime_fault(w.shared, nullptr, nullptr));
  tenon_status_release(tenon_trace_stop(w.shared, &trace));
  tenon_text_destroy(trace);
  tenon_log_to([](void*, uint32_t, tenon_str) {}, nullptr);
  const bool parents_first = w.in.one_in(2);
  if (parents_first) {
    clear(w.runtimes, tenon_runtime_destroy);
    clear(w.stores, tenon_store_destroy);
    clear(w.graphs, tenon_graph_destroy);
    clear(w.executables, tenon_executable_destroy);
  }
  clear(w.contexts, tenon_context_destroy);
  clear(w.executables, tenon_executable_destroy);
  clear(w.graphs, tenon_graph_destroy);
  clear(w.stores, tenon_store_destroy);
  clear(w.runtimes, tenon_runtime_destroy);
  clear(w.tensor_files, tenon_tensors_destroy);
  clear(w.safetensors, tenon_safetensors_destroy);
  clear(w.ggufs, tenon_gguf_destroy);
  clear(w.gguf_writers, tenon_gguf_writer_destroy);
  clear(w.texts, tenon_text_destroy);
  clear(w.statuses, tenon_status_release);
  must(core::live_status_count() == 0, "a status leaked");
  must(Lent::alive() == 0, "a DLPack tensor was not given back");
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon::fuzz;
  static const Stage stage;
  World w(data, size, stage.runtime, stage.folder.path);
  log_to(w);
  for (uint32_t left = 40 + w.in.below(160); left > 0; --left)
    (w.in.one_in(2) ? w.in.of(kForward) : w.in.of(kCalls).make)(w);
  end(w);
  return 0;
}
