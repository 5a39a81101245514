// SPDX-License-Identifier: Apache-2.0
// node_case PLUGIN_DIR DEVICE: runs ONNX test cases. Each line of standard input has a folder, a
// relative and an absolute tolerance, separated by tabs. The folder has the layout of ONNX's own
// test data: model.onnx, test_data_set_0/input_<k>.pb and output_<k>.pb. For each line, prints the
// folder, a verdict, a remark, and what became of the nodes, separated by tabs. The verdicts:
//
//   pass     the outputs agree
//   fixed    they agree, but inputs had to be constants, because shapes depend on their content
//   fail     an output differs, or the run failed
//   refused  the model cannot be translated; the remark says why
//
// The nodes: how many are native, decomposed and on the cpu as a fallback, then the ops of the
// latter. "3 1 1 sort". Empty if nothing ran.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/number.hpp"
#include "exec/context.hpp"
#include "import/onnx/import.hpp"

namespace tenon::core {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string folder{};
  double relative = 1e-3, absolute = 1e-7;
};

struct Outcome {
  std::string word, remark{}, nodes{};
};

// What became of the nodes of a plan.
std::string verdicts_of(const Plan& plan) {
  size_t native = 0, decomposed = 0, fallback = 0;
  std::string ops;
  for (const NodeReport& r : plan.reports) {
    native += r.verdict == NodeVerdict::native;
    decomposed += r.verdict == NodeVerdict::decomposed;
    if (r.verdict != NodeVerdict::fallback) continue;
    ++fallback;
    ops += ' ' + r.op;
  }
  return cat(native, " ", decomposed, " ", fallback, ops);
}

// Why two tensors differ; empty if they do not.
std::string difference(const Type& type, const Bytes& got, const onnx::Tensor& expected,
                       const Case& c) {
  const Type want{expected.dtype, Shape(std::span<const Dim>(expected.dims))};
  if (type != want) return cat("expected ", want.text(), ", got ", type.text());
  const Bytes content = expected.content();
  const size_t each = tenon_dtype_bits(type.dtype) / 8;
  double number = 0;
  if (sdk::is_f8(type.dtype)) {
    // All NaNs are one, and so are both zeros.
    const auto normal = [&](std::byte v) {
      const auto low = static_cast<uint8_t>(static_cast<uint8_t>(v) & 0x7f);
      const bool nan = type.dtype == TENON_DTYPE_F8E4M3 ? low == 0x7f : low > 0x7c;
      return nan ? uint8_t{0x7f} : low == 0 ? uint8_t{0} : static_cast<uint8_t>(v);
    };
    for (size_t i = 0; i < content.size(); ++i)
      if (normal(got[i]) != normal(content[i]))
        return cat("element ", i, " of ", want.text(), " differs");
    return {};
  }
  if (each == 0 || !load_number(type.dtype, content.data(), &number))
    return content == got ? "" : cat("bytes of ", want.text(), " differ");
  double worst = 0;
  std::string text;
  for (size_t i = 0; i < content.size() / each; ++i) {
    double a = 0, b = 0;
    load_number(type.dtype, got.data() + i * each, &a);
    load_number(type.dtype, content.data() + i * each, &b);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double over = std::fabs(a - b) - c.absolute - c.relative * std::fabs(b);
    const bool bad = is_float(type.dtype) ? !(over <= 0) || std::isinf(a) != std::isinf(b) : true;
    if (!bad) continue;
    if (text.empty() || std::fabs(a - b) > worst) {
      worst = std::fabs(a - b);
      text = cat("element ", i, " of ", want.text(), ": expected ", b, ", got ", a);
    }
  }
  return text;
}

std::vector<onnx::Tensor> tensors_in(const fs::path& folder, std::string_view kind) {
  std::vector<onnx::Tensor> out;
  for (size_t k = 0;; ++k) {
    const fs::path file = folder / "test_data_set_0" / cat(kind, "_", k, ".pb");
    if (!fs::exists(file)) return out;
    out.push_back(onnx::read_tensor(file.string()));
  }
}

class Runner {
 public:
  Runner(const std::string& plugins, std::string device) : device_(std::move(device)) {
    Host::Options options;
    options.plugin_dirs = {plugins};
    options.threads = 2;
    options.use_environment = false;
    runtime_ = std::make_shared<Runtime>(std::move(options));
  }

  Outcome run(const Case& c) const {
    const fs::path folder(c.folder);
    const onnx::Model model = onnx::read_model((folder / "model.onnx").string());
    const std::vector<onnx::Tensor> inputs = tensors_in(folder, "input"),
                                    outputs = tensors_in(folder, "output");
    std::vector<std::string> names;
    for (const onnx::ValueInfo& v : model.graph.inputs) {
      const auto is_default = [&](const onnx::Tensor& t) { return t.name == v.name; };
      if (std::ranges::none_of(model.graph.initializers, is_default)) names.push_back(v.name);
    }
    // First as it is; then with the content of integer inputs; then with that of all.
    std::string refusal;
    for (const int fixing : {0, 1, 2}) {
      onnx::ImportOptions options;
      for (size_t k = 0; k < inputs.size() && k < names.size(); ++k)
        if (fixing == 2 || (fixing == 1 && !is_float(inputs[k].dtype)))
          options.fixed.emplace(names[k], inputs[k]);
      if (fixing && options.fixed.empty()) continue;
      onnx::Imported imported;
      try {
        imported = onnx::import_model(model, options);
      } catch (const Error& e) {
        if (refusal.empty()) refusal = e.what();
        continue;
      }
      try {
        std::string nodes;
        const std::string wrong =
            compare(c, model, names, std::move(imported), inputs, outputs, nodes);
        if (wrong.empty()) return {fixing ? "fixed" : "pass", "", nodes};
        return {"fail", wrong, nodes};
      } catch (const Error& e) {
        return {"fail", e.what()};
      }
    }
    return {"refused", refusal};
  }

 private:
  std::string compare(const Case& c, const onnx::Model& model,
                      const std::vector<std::string>& names, onnx::Imported imported,
                      const std::vector<onnx::Tensor>& inputs,
                      const std::vector<onnx::Tensor>& outputs, std::string& nodes) const {
    const auto store = std::make_shared<Store>();
    for (const auto& [name, tensor] : imported.weights)
      store->set(Space::weight, name, {tensor.dtype, Shape(std::span<const Dim>(tensor.dims))},
                 tensor.content());
    ExecutableOptions options;
    options.device = device_;
    options.allow_fallback = true;
    const auto executable = std::make_shared<Executable>(runtime_, std::move(imported.graph), store,
                                                         std::move(options));
    Context context(executable);
    std::map<std::string, Type, std::less<>> types;
    for (size_t k = 0; k < inputs.size() && k < names.size(); ++k) {
      const std::string& name = names[k];
      if (!executable->graph().find(Space::input, name)) continue;
      const Type type{inputs[k].dtype, Shape(std::span<const Dim>(inputs[k].dims))};
      types.emplace(name, type);
      context.set(name, type, inputs[k].content());
    }
    context.run();
    nodes = verdicts_of(executable->plan_for(executable->bind_inputs(types))->plan);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const std::string& name = model.graph.outputs.at(k).name;
      const Type type = context.output_type(name);
      Bytes got(type_bytes(type));
      context.get(name, got.data(), got.size());
      const std::string wrong = difference(type, got, outputs[k], c);
      if (!wrong.empty()) return cat(name, ": ", wrong);
    }
    return {};
  }

  std::string device_;
  std::shared_ptr<Runtime> runtime_;
};

// On one line.
std::string flat(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

}  // namespace
}  // namespace tenon::core

int main(int argc, char** argv) {
  using namespace tenon::core;
  if (argc != 3) {
    std::cerr << "usage: node_case PLUGIN_DIR DEVICE < cases\n";
    return 2;
  }
  const Runner runner(argv[1], argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    Case c;
    std::istringstream fields(line);
    std::getline(fields, c.folder, '\t');
    fields >> c.relative >> c.absolute;
    Outcome v;
    try {
      v = runner.run(c);
    } catch (const std::exception& e) {
      v = {"fail", e.what()};
    }
    std::cout << c.folder << '\t' << v.word << '\t' << flat(v.remark) << '\t' << v.nodes
              << std::endl;
  }
}
