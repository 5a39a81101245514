// SPDX-License-Identifier: Apache-2.0
// A language model on the disk, a folder or a GGUF file: its configuration and its tensors.
#pragma once

#include <string>

#include "llm/arch/config.hpp"
#include "llm/arch/tensors.hpp"

namespace tenon::llm {

struct ModelFiles {
  ModelConfig config;
  TensorSource tensors;
};
// What a model is read for. compute: the dtype of activations; NONE: f32 on the cpu, elsewhere that of
// the weights.
struct OpenOptions {
  bool on_cpu = true;
  tenon_dtype compute = TENON_DTYPE_NONE;
};
tenon_dtype activations_of(const ModelConfig& config, const OpenOptions& options);
// Reads the configuration, and the names and types of tensors. Experts stay in blocks on the cpu only:
// GPUs have no kernel for their products.
ModelFiles open_model(const std::string& path, const OpenOptions& options);

// True for tensors of checkpoints that the logits do not depend on.
bool is_harmless_tensor(const std::string& name, const ModelConfig& config);

// Whether models run on the cpu for `device`, which may be "auto".
bool runs_on_cpu(const Runtime& runtime, const std::string& device);

}  // namespace tenon::llm
