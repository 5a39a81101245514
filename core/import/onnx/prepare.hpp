// SPDX-License-Identifier: Apache-2.0
// Steps of an import that its parts share.
#pragma once

#include "import/onnx/import.hpp"
#include "import/onnx/scope.hpp"

namespace tenon::core::onnx {

// The model without nodes and outputs that nothing reads. Large constants of nodes and subgraphs
// become initializers, so that they can be weights.
Model prepared(const Model& model);

// Is it a weight for its size, or since rules cannot read its dtype?
bool is_large(const Tensor& t);
bool is_trainable(const Tensor& t, const ImportOptions& options);
// Inputs without a default. Fails if one is no tensor of known rank.
std::vector<const ValueInfo*> model_inputs(const Model& model);
// Translates the model's nodes in a scope that has its inputs. Returns the outputs.
std::vector<Value> translate_outputs(Scope& scope, const Model& model);

Imported import_numeric(const Model& model, const ImportOptions& options);
// One node `onnx`, for a model with dims that are not numbers.
Imported import_symbolic(const Model& model, const ImportOptions& options);

}  // namespace tenon::core::onnx
