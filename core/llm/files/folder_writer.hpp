// SPDX-License-Identifier: Apache-2.0
// Writes the tensors and the small files of a Hugging Face folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llm/files/convert.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::files {

struct FolderTensor {
  std::string name{};
  TensorType type{};
  std::function<std::shared_ptr<Tensor>()> make{};  // called once, when it is written
};

// Creates a folder for a model, and removes the tokenizer and the templates of an earlier one.
void make_folder(const std::string& folder);
// model.safetensors, or numbered files of about options.file_bytes and their index; then removes those
// of an earlier model. Returns the bytes of contents.
uint64_t write_tensors(const std::string& folder, const std::vector<FolderTensor>& tensors,
                       const ConvertOptions& options);
// Written beside its place, then renamed. name: in the folder.
void write_text(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace tenon::llm::files
