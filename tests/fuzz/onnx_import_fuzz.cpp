// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ONNX model that is translated: refused with an Error, or a sound graph. With
// symbols, also its node's decomposition for some sizes.
#include "check.hpp"
#include "import/onnx/import.hpp"
#include "ir/verify.hpp"
#include "ops/lower.hpp"
#include "plan/rewrite/bind.hpp"

using namespace tenon::core;
using tenon::fuzz::must;

namespace {

void translate(const std::string& bytes) {
  const onnx::Imported model =
      onnx::import_model(onnx::read_model(bytes, ""), {.trainable = {"w*"}});
  verify(model.graph);
  for (const auto& [name, tensor] : model.weights)
    must(bool(model.graph.find(Space::weight, name)), "a weight that the graph does not have");
  if (model.graph.symbols().empty()) return;
  for (const int64_t size : {1, 3}) {
    std::map<std::string, int64_t> symbols;
    for (const std::string& s : model.graph.symbols()) symbols[s] = size;
    verify(lower_meta(tenon::core::bind(model.graph, symbols)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    translate(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error& e) {
    must(e.code() != Code::internal, e.what());
  }
  return 0;
}
