// SPDX-License-Identifier: Apache-2.0
// Models as bytes, and as text.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "import/onnx/model.hpp"

namespace tenon::core::onnx {

// The model as a file of ONNX has it, with the content of all tensors.
std::string write_model(const Model& model);

// An initializer beside those of the model, whose content is written apart: behind its own message,
// or in another file of the model's folder.
struct ApartTensor {
  std::string name{};
  Type type{};
  std::string file{};  // empty: in the model
  uint64_t offset = 0;
};
// The same in pieces, so that no copy of all weights is in memory. put_content(k) writes the content
// of tensor k of the model's own ones.
void write_model(const Model& model, std::span<const ApartTensor> tensors,
                 const std::function<void(std::string_view)>& put,
                 const std::function<void(size_t)>& put_content);

// The model as base 64, and back. Reading fails if a character or the length is wrong.
std::string write_base64(const Model& model);
Model read_base64(std::string_view text);

}  // namespace tenon::core::onnx
