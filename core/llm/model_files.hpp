// SPDX-License-Identifier: Apache-2.0
// A language model on the disk, a folder or a GGUF file: its configuration and its tensors.
#pragma once

#include <string>

#include "llm/arch/config.hpp"
#include "llm/arch/tensors.hpp"

namespace tenon::llm {

// True if the model is a file, which must be a GGUF file, and false if it is a folder. Throws
// NOT_FOUND if nothing is there, and IO_ERROR if it is neither.
bool is_model_file(const std::string& path);

struct ModelFiles {
  ModelConfig config;
  TensorSource tensors;
};
// Reads the configuration, and the names and types of tensors. experts_in_blocks: as in
// GgufModel::tensors().
ModelFiles open_model(const std::string& path, bool experts_in_blocks);

// True for tensors of checkpoints that the logits do not depend on.
bool is_harmless_tensor(const std::string& name, const ModelConfig& config);

// Whether models run on the cpu for `device`, which may be "auto".
bool runs_on_cpu(const Runtime& runtime, const std::string& device);

}  // namespace tenon::llm
