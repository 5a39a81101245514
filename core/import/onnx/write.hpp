// SPDX-License-Identifier: Apache-2.0
// Models as bytes, and bytes as text.
#pragma once

#include <string>
#include <string_view>

#include "import/onnx/model.hpp"

namespace tenon::core::onnx {

// The model as a file of ONNX has it, with the content of all tensors.
std::string write_model(const Model& model);

std::string to_base64(std::string_view bytes);
// Fails if a character or the length is wrong.
std::string from_base64(std::string_view text);

}  // namespace tenon::core::onnx
