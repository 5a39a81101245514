// SPDX-License-Identifier: Apache-2.0
// C functions for files of models and of tensors.
#include "api/door.hpp"
#include "api/tensor.hpp"
#include "export/export.hpp"
#include "import/onnx/import.hpp"
#include "import/tensor_file.hpp"
#include "plan/rewrite/bind.hpp"
#include "plan/rewrite/unfuse.hpp"

using namespace tenon::core;

struct tenon_tensors {
  std::vector<NamedTensor> list;
};

namespace {

onnx::ImportOptions import_options(const tenon_graph_import_options* given) {
  const tenon_graph_import_options o = taken(given, "tenon_graph_import_options");
  onnx::ImportOptions out;
  if (o.trainable_count) need(o.trainable, "trainable");
  for (uint32_t i = 0; i < o.trainable_count; ++i) out.trainable.emplace_back(view(o.trainable[i]));
  if (o.fixed_count) need(o.fixed_names, "fixed_names"), need(o.fixed_tensors, "fixed_tensors");
  for (uint32_t i = 0; i < o.fixed_count; ++i) {
    const std::string name(view(o.fixed_names[i]));
    const HostTensor t = host_tensor(o.fixed_tensors[i], name);
    if (!out.fixed.emplace(name, onnx::make_tensor(name, t.type, t.content)).second)
      fail(Code::invalid_argument, "fixed input '", name, "' is there twice");
  }
  return out;
}

}  // namespace

tenon_status* tenon_graph_import(tenon_str path, const tenon_graph_import_options* options,
                                 tenon_store* store, tenon_graph** out_graph) {
  return door("tenon_graph_import", [&] {
    const onnx::ImportOptions o = import_options(options);
    need(out_graph, "out_graph");
    onnx::Imported model = onnx::import_model(onnx::read_model(std::string(view(path))), o);
    auto graph = std::make_unique<tenon_graph>();
    graph->graph = std::move(model.graph);
    if (store)
      for (const auto& [name, t] : model.weights)
        store->store->set(Space::weight, name, {t.dtype, Shape(t.dims)}, t.content());
    *out_graph = graph.release();
  });
}

tenon_status* tenon_graph_export(const tenon_graph* graph, tenon_store* store, tenon_str path,
                                 const tenon_graph_export_options* options) {
  return door("tenon_graph_export", [&] {
    const tenon_graph_export_options o = taken(options, "tenon_graph_export_options");
    if (o.external_data > TENON_EXTERNAL_DATA_ALWAYS)
      fail(Code::invalid_argument, "external_data: expected TENON_EXTERNAL_DATA_*, got ",
           o.external_data);
    if (o.output_count) need(o.outputs, "outputs");
    Graph g = need(graph, "graph").graph;
    if (o.outputs) {
      std::vector<std::string> names;
      for (uint32_t i = 0; i < o.output_count; ++i) names.emplace_back(view(o.outputs[i]));
      g = onnx::part_of(g, names);
    }
    if (o.symbol_count) g = tenon::core::bind(g, numbers_of(o.symbols, o.numbers, o.symbol_count));
    if (g.symbols().empty()) g = expanded(g);
    onnx::export_model(g, std::string(view(path)), o.external_data == TENON_EXTERNAL_DATA_ALWAYS,
                       [&](Space space, const std::string& name, const Type& type) {
                         if (!store)
                           fail(Code::invalid_argument, "export: ", space_name(space), " '", name,
                                "': its content is in a store, and store is NULL");
                         const Type kept = store->store->type(space, name);
                         if (kept != type)
                           fail(Code::shape_mismatch, "export: ", space_name(space), " '", name,
                                "': expected ", type.text(), ", the store has ", kept.text());
                         Bytes content(type_bytes(type));
                         store->store->get(space, name, content.data(), content.size());
                         return content;
                       });
  });
}

tenon_status* tenon_tensors_read(tenon_str path, tenon_tensors** out_tensors) {
  return door("tenon_tensors_read", [&] {
    need(out_tensors, "out_tensors");
    *out_tensors = new tenon_tensors{read_tensors(std::string(view(path)))};
  });
}

void tenon_tensors_destroy(tenon_tensors* tensors) { delete tensors; }

uint32_t tenon_tensors_count(const tenon_tensors* tensors) {
  return tensors ? static_cast<uint32_t>(tensors->list.size()) : 0;
}

tenon_status* tenon_tensors_get(const tenon_tensors* tensors, uint32_t index, tenon_str* out_name,
                                tenon_tensor* out_tensor) {
  return door("tenon_tensors_get", [&] {
    const std::vector<NamedTensor>& list = need(tensors, "tensors").list;
    if (index >= list.size()) fail(Code::not_found, "tensor ", index, ": there are ", list.size());
    const NamedTensor& t = list[index];
    tenon_tensor out{};
    out.dims = t.type.shape.begin();
    out.data = const_cast<std::byte*>(t.content.data());
    out.size = t.content.size();
    out.rank = static_cast<uint32_t>(t.type.shape.rank());
    out.dtype = t.type.dtype;
    out.flags = TENON_TENSOR_READ_ONLY;
    need(out_name, "out_name");
    give(need(out_tensor, "out_tensor"), out, "out_tensor");
    *out_name = c_str(t.name);
  });
}

tenon_status* tenon_tensors_write(tenon_str path, const tenon_str* names,
                                  const tenon_tensor* const* tensors, uint32_t count,
                                  uint32_t deflate) {
  return door("tenon_tensors_write", [&] {
    if (count) need(tensors, "tensors");
    std::vector<HostTensor> kept(count);
    std::vector<TensorView> views;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string_view name = names ? view(names[i]) : std::string_view();
      kept[i] = host_tensor(tensors[i], cat("tensor ", i, " '", name, "'"));
      views.push_back({name, kept[i].type, kept[i].content});
    }
    write_tensors(std::string(view(path)), views, deflate != 0);
  });
}
