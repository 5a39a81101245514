// SPDX-License-Identifier: Apache-2.0
// Translates a model whose dims are numbers, node by node.
#include "import/onnx/import.hpp"

#include <algorithm>
#include <set>

#include "import/onnx/prepare.hpp"
#include "import/onnx/scope.hpp"

namespace tenon::core::onnx {
namespace {

// * any characters, ? one.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// "'x', 'y'"; of many names, the first ones.
std::string text_of(const std::vector<std::string_view>& names) {
  constexpr size_t kMost = 16;
  std::string text;
  for (size_t k = 0; k < names.size() && k < kMost; ++k)
    text += cat(k ? ", " : "", "'", names[k], "'");
  if (names.size() > kMost) text += cat(" and ", names.size() - kMost, " others");
  return text.empty() ? "none" : text;
}

// Names that the model does not have are errors.
void check_names(const Model& model, const ImportOptions& options) {
  std::vector<std::string_view> inputs, weights;
  for (const ValueInfo* v : model_inputs(model)) inputs.push_back(v->name);
  for (const Tensor& t : model.graph.initializers)
    if (is_float(t.dtype)) weights.push_back(t.name);
  for (const auto& [name, _] : options.fixed)
    if (std::ranges::find(inputs, name) == inputs.end())
      fail(Code::not_found, "onnx: fixed input '", name, "': expected an input of the model (",
           text_of(inputs), ")");
  for (const std::string& pattern : options.trainable)
    if (std::ranges::none_of(weights, [&](auto name) { return matches(pattern, name); }))
      fail(Code::not_found, "onnx: trainable weight '", pattern,
           "': expected a weight of floats of the model (", text_of(weights), ")");
}

}  // namespace

bool is_trainable(const Tensor& t, const ImportOptions& options) {
  if (!is_float(t.dtype)) return false;
  for (const std::string& pattern : options.trainable)
    if (matches(pattern, t.name)) return true;
  return false;
}

std::vector<const ValueInfo*> model_inputs(const Model& model) {
  std::set<std::string_view> initializers;
  for (const Tensor& t : model.graph.initializers) initializers.insert(t.name);
  for (const auto& [name, t] : model.graph.sparse_initializers) initializers.insert(name);
  std::vector<const ValueInfo*> out;
  for (const ValueInfo& v : model.graph.inputs) {
    if (initializers.contains(v.name)) continue;
    if (v.kind != ValueInfo::Kind::tensor || !v.dims || v.dtype == TENON_DTYPE_NONE)
      fail(Code::unsupported, "onnx: input '", v.name,
           "': expected a tensor of known rank and of a dtype that tenon has");
    out.push_back(&v);
  }
  return out;
}

std::vector<Value> translate_outputs(Scope& scope, const Model& model) {
  scope.opsets = model.opsets;
  scope.add_initializers(model.graph);
  scope.run(model.graph.nodes);
  scope.all.finish();
  std::vector<Value> out;
  for (const ValueInfo& o : model.graph.outputs) {
    if (!scope.find(o.name))
      fail(Code::invalid_argument, "onnx: output '", o.name, "': no node gives it");
    try {
      out.push_back(scope.value(o.name));
    } catch (const Refused& e) {
      fail(e.code, "onnx: output '", o.name, "': ", e.reason);
    }
  }
  return out;
}

Imported import_numeric(const Model& model, const ImportOptions& options) {
  Imported out;
  out.graph.name = model.graph.name;
  Builder b(out.graph);
  Translation all(model);
  all.keeps = [&](const Tensor& t) { return is_trainable(t, options); };
  all.weight = [&](Builder& to, const std::shared_ptr<const Tensor>& t) {
    const Type type{t->dtype, Shape(std::span<const Dim>(t->dims))};
    if (&to.graph != &out.graph)
      return to.graph.constant(type, std::make_shared<const Bytes>(t->content()));
    out.weights.emplace_back(t->name, *t);
    return to.graph.weight(t->name, type, is_trainable(*t, options));
  };
  Scope scope(all, b);
  for (const ValueInfo* v : model_inputs(model)) {
    Item item;
    if (const auto fixed = options.fixed.find(v->name); fixed != options.fixed.end()) {
      const Tensor& t = fixed->second;
      if (t.dtype != v->dtype)
        fail(Code::dtype_mismatch, "onnx: input '", v->name, "': expected ", dtype_name(v->dtype),
             ", got ", dtype_name(t.dtype));
      if (can_be_known(t.dtype) && count_of(t.dims) <= kMostKnown)
        item.known = std::make_shared<const Known>(known_from(t.dtype, t.dims, t.content()));
      else
        item.value = out.graph.constant({t.dtype, Shape(std::span<const Dim>(t.dims))},
                                        std::make_shared<const Bytes>(t.content()));
    } else {
      Shape shape;
      for (const ValueInfo::Dim& d : *v->dims) shape.push(d.size);
      item.value = out.graph.input(v->name, {v->dtype, shape});
    }
    scope.set(v->name, std::move(item));
  }
  const std::vector<Value> outputs = translate_outputs(scope, model);
  for (size_t k = 0; k < outputs.size(); ++k)
    out.graph.output(model.graph.outputs[k].name, outputs[k]);
  return out;
}

Imported import_model(const Model& given, const ImportOptions& options) {
  const Model model = prepared(given);
  check_names(model, options);
  for (const ValueInfo* v : model_inputs(model))
    for (const ValueInfo::Dim& d : *v->dims)
      if (d.size < 0 && !options.fixed.contains(v->name)) return import_symbolic(model, options);
  return import_numeric(model, options);
}

}  // namespace tenon::core::onnx
