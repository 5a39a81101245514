// SPDX-License-Identifier: Apache-2.0
// A language model in a GGUF file: its configuration, tensors, tokenizer and chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "llm/arch/config.hpp"
#include "llm/arch/tensors.hpp"
#include "llm/text/metadata.hpp"

namespace tenon::llm {

// A file, mapped. What it returns keeps the mapping.
class GgufModel {
 public:
  explicit GgufModel(const std::string& file);

  // As config.json describes such a model; the rows of q and k may be in another order.
  ModelConfig config() const;
  // Tensors have the names of folders, with two exceptions: the experts of a layer are one tensor,
  // and norms of Gemma are `gamma`. Plain tensors keep their dtype. Matrices stay in blocks.
  TensorSource tensors(const ModelConfig& config) const;
  // Of the tokenizer.
  std::unique_ptr<Metadata> metadata() const;
  std::optional<std::string> chat_template() const;

 private:
  std::string file_;
  std::shared_ptr<const Gguf> model_;
};

}  // namespace tenon::llm
