// SPDX-License-Identifier: Apache-2.0
// Runs imported graphs on the cpu.
#pragma once

#include "../unit/import/onnx_rig.hpp"
#include "base/number.hpp"
#include "exec/context.hpp"

namespace tenon::core::onnx {

inline const std::shared_ptr<Runtime>& cpu() {
  static const auto the = [] {
    Host::Options options;
    options.plugin_dirs = {TENON_PLUGINS};
    options.threads = 2;
    options.use_environment = false;
    return std::make_shared<Runtime>(std::move(options));
  }();
  return the;
}

struct Numbers {
  Type type{};
  std::vector<double> data{};
  double operator[](size_t k) const { return data[k]; }
};
inline Numbers numbers(DType dtype, Shape shape, std::vector<double> data) {
  return {{dtype, shape}, std::move(data)};
}
inline Numbers f32(Shape shape, std::vector<double> data) {
  return numbers(kF32, shape, std::move(data));
}

// The outputs for these inputs, in the orders of the graph.
inline std::vector<Numbers> run(Imported imported, const std::vector<Numbers>& inputs) {
  const auto store = std::make_shared<Store>();
  for (const auto& [name, t] : imported.weights)
    store->set(Space::weight, name, {t.dtype, Shape(std::span<const Dim>(t.dims))}, t.content());
  ExecutableOptions options;
  options.device = "cpu:0";
  const auto executable =
      std::make_shared<Executable>(cpu(), std::move(imported.graph), store, std::move(options));
  const core::Graph& g = executable->graph();
  Context context(executable);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Numbers& x = inputs[k];
    const size_t each = tenon_dtype_bits(x.type.dtype) / 8;
    Bytes content(x.data.size() * each);
    for (size_t i = 0; i < x.data.size(); ++i)
      store_number(x.type.dtype, content.data() + i * each, x.data[i]);
    context.set(g[g.inputs().at(k)].name, x.type, content);
  }
  context.run();
  std::vector<Numbers> out;
  for (const Output& o : g.outputs()) {
    Numbers y{context.output_type(o.name), {}};
    Bytes content(type_bytes(y.type));
    context.get(o.name, content.data(), content.size());
    const size_t each = tenon_dtype_bits(y.type.dtype) / 8;
    for (size_t i = 0; i < content.size() / each; ++i) {
      double v = 0;
      load_number(y.type.dtype, content.data() + i * each, &v);
      y.data.push_back(v);
    }
    out.push_back(std::move(y));
  }
  return out;
}
inline std::vector<double> result(const Model& m, const std::vector<Numbers>& inputs) {
  return run(import_model(m, {}), inputs).at(0).data;
}

}  // namespace tenon::core::onnx
