// SPDX-License-Identifier: Apache-2.0
// Models whose inputs have dims that are not numbers.
#include "import/onnx/prepare.hpp"

namespace tenon::core::onnx {

Imported import_symbolic(const Model& model, const ImportOptions&) {
  for (const ValueInfo* v : model_inputs(model))
    for (const ValueInfo::Dim& d : *v->dims)
      if (d.size < 0)
        fail(Code::unsupported, "onnx: input '", v->name, "': dim '", d.symbol, "' is no number");
  fail(Code::internal, "import_symbolic: all dims are numbers");
}

}  // namespace tenon::core::onnx
