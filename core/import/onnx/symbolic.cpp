// SPDX-License-Identifier: Apache-2.0
// Models whose inputs have dims that are not numbers: they become one node `onnx`, whose model is
// translated for each set of numbers.
#include <list>
#include <mutex>
#include <set>

#include "import/onnx/prepare.hpp"
#include "import/onnx/write.hpp"
#include "ops/onnx.hpp"

namespace tenon::core::onnx {
namespace {

// The model of a node: all operands are inputs, in order.
core::Graph translated(const Model& model, std::span<const Type> operands) {
  core::Graph graph;
  Builder b(graph);
  Translation all(model);
  all.weight = [](Builder& to, const std::shared_ptr<const Tensor>& t) {
    return to.graph.constant({t->dtype, Shape(std::span<const Dim>(t->dims))},
                             std::make_shared<const Bytes>(t->content()));
  };
  Scope scope(all, b);
  const std::vector<const ValueInfo*> inputs = model_inputs(model);
  if (inputs.size() != operands.size())
    fail(Code::invalid_argument, "the model has ", inputs.size(), " inputs, got ", operands.size(),
         " operands");
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ValueInfo& v = *inputs[k];
    const Type& t = operands[k];
    if (t.dtype != v.dtype)
      fail(Code::dtype_mismatch, "input '", v.name, "' of the model: expected ",
           dtype_name(v.dtype), ", got ", t.text());
    bool fits = static_cast<size_t>(t.shape.rank()) == v.dims->size();
    for (int i = 0; fits && i < t.shape.rank(); ++i) {
      const int64_t size = (*v.dims)[static_cast<size_t>(i)].size;
      fits = size < 0 || size == t.shape[i];
    }
    if (!fits)
      fail(Code::shape_mismatch, "input '", v.name, "' of the model does not take ", t.text());
    Item item;
    item.value = graph.input(v.name, t);
    scope.set(v.name, std::move(item));
  }
  const std::vector<Value> outputs = translate_outputs(scope, model);
  for (size_t k = 0; k < outputs.size(); ++k) graph.output(model.graph.outputs[k].name, outputs[k]);
  return graph;
}

// The last models, and the last translations of each. Both are pure functions of what they are found
// by.
class Cache {
 public:
  std::shared_ptr<const core::Graph> graph(const std::string& text,
                                           std::span<const Type> operands) {
    const std::shared_ptr<Entry> entry = entry_of(text);
    const std::lock_guard lock(entry->mutex);
    for (auto at = entry->graphs.begin(); at != entry->graphs.end(); ++at)
      if (std::equal(operands.begin(), operands.end(), at->first.begin(), at->first.end())) {
        entry->graphs.splice(entry->graphs.begin(), entry->graphs, at);
        return entry->graphs.front().second;
      }
    if (!entry->model) entry->model = read_base64(text);
    auto made = std::make_shared<const core::Graph>(translated(*entry->model, operands));
    entry->graphs.emplace_front(std::vector<Type>(operands.begin(), operands.end()), made);
    if (entry->graphs.size() > kMostGraphs) entry->graphs.pop_back();
    return made;
  }

 private:
  static constexpr size_t kMostModels = 8, kMostGraphs = 4;
  struct Entry {
    std::string text;
    std::mutex mutex{};
    std::optional<Model> model{};
    std::list<std::pair<std::vector<Type>, std::shared_ptr<const core::Graph>>> graphs{};
  };

  std::shared_ptr<Entry> entry_of(const std::string& text) {
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end(); ++at)
      if ((*at)->text == text) {
        entries_.splice(entries_.begin(), entries_, at);
        return entries_.front();
      }
    entries_.push_front(std::make_shared<Entry>(text));
    if (entries_.size() > kMostModels) entries_.pop_back();
    return entries_.front();
  }

  std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_;
};

}  // namespace

Imported import_symbolic(const Model& given, const ImportOptions& options) {
  Imported out;
  Model model = given;
  out.graph.name = model.graph.name;
  op::onnx node;
  std::vector<ValueInfo> inputs;
  for (const ValueInfo* v : model_inputs(given)) {
    if (const auto fixed = options.fixed.find(v->name); fixed != options.fixed.end()) {
      Tensor t = fixed->second;
      t.name = v->name;
      model.graph.initializers.push_back(std::move(t));
      continue;
    }
    Shape shape;
    for (size_t k = 0; k < v->dims->size(); ++k) {
      const ValueInfo::Dim& d = (*v->dims)[k];
      if (d.size >= 0)
        shape.push(d.size);
      else
        // Some exporters write ? for any number: two of them need not be equal.
        shape.push(out.graph.symbol(d.symbol.empty() || d.symbol == "?" ? cat(v->name, "_dim_", k)
                                                                        : d.symbol));
    }
    node.xs.push_back(out.graph.input(v->name, {v->dtype, shape}));
    inputs.push_back(*v);
  }
  std::vector<Tensor> kept;
  for (Tensor& t : model.graph.initializers) {
    if (t.dtype == TENON_DTYPE_NONE || (!is_large(t) && !is_trainable(t, options))) {
      kept.push_back(std::move(t));
      continue;
    }
    const Type type{t.dtype, Shape(std::span<const Dim>(t.dims))};
    node.weights.push_back(out.graph.weight(t.name, type, is_trainable(t, options)));
    ValueInfo v{
        .name = t.name, .kind = ValueInfo::Kind::tensor, .element = t.element, .dtype = t.dtype};
    v.dims.emplace();
    for (const int64_t d : t.dims) v.dims->push_back({.size = d});
    inputs.push_back(std::move(v));
    out.weights.emplace_back(t.name, std::move(t));
  }
  model.graph.initializers = std::move(kept);
  model.graph.inputs = std::move(inputs);
  node.model = write_base64(model);
  node.count_ys = model.graph.outputs.size();
  const NodeId id = out.graph.add(node, model.graph.name.empty() ? "model" : model.graph.name);
  for (size_t k = 0; k < model.graph.outputs.size(); ++k)
    out.graph.output(model.graph.outputs[k].name, out.graph[id].outputs[k]);
  return out;
}

}  // namespace tenon::core::onnx

namespace tenon::core {

std::shared_ptr<const Graph> onnx_graph(const std::string& model, std::span<const Type> operands) {
  static onnx::Cache cache;
  return cache.graph(model, operands);
}

}  // namespace tenon::core
