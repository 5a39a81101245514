// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: config.json, and the tensors of its safetensors files, mapped. Weights that
// are quantized have the names and dims of the same folder before. Of a model that reads more than
// text, the language model alone.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "llm/arch/joint_experts.hpp"
#include "llm/arch/quantized_folder.hpp"
#include "llm/files/json.hpp"

namespace tenon::llm::files {

class ModelFolder {
 public:
  // Throws for a quantization that is not supported, too.
  explicit ModelFolder(const std::string& path);

  struct Entry {
    std::string name{};
    TensorType type{};                  // f32 if it is encoded
    std::span<const std::byte> data{};  // empty if it is encoded
    EncodedWeight* encoded = nullptr;
    bool turned = false;  // the encoded weight is [columns, rows] of this one

    // A dtype of blocks that has the same numbers, rows and columns; NONE if there is none.
    tenon_dtype blocks() const {
      return encoded && !turned ? encoded->blocks : tenon_dtype{TENON_DTYPE_NONE};
    }
    uint64_t bytes() const { return encoded ? encoded_bytes : data.size(); }
    uint64_t encoded_bytes = 0;  // in the files, about
    // The content as f32 numbers. The tensor must be f32, f16 or bf16.
    std::vector<float> numbers() const;
  };
  const std::string& path() const { return path_; }
  // Without quantization_config.
  const Json& config() const { return config_; }
  std::string config_file() const { return path_ + "/config.json"; }
  bool quantized() const { return !tensors_from_.encoded.empty(); }
  // Tensors of all experts were taken apart: an entry for each matrix, as other families have it.
  bool has_joint_experts() const { return !parts_.empty(); }
  // Null if the folder has no such tensor.
  const Entry* find(const std::string& name) const;
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  // Biases of zeros that quantization has added, perhaps.
  bool is_empty_bias(const std::string& name) const { return empty_biases_.contains(name); }
  // F32, F16 or BF16: the type of the first matrix that is not encoded.
  std::string own_type() const;

 private:
  // full: the name in the files. The name in a model of text; empty for tensors of another part.
  std::string name_of(const std::string& full) const;
  // Throws CORRUPT if another tensor of the files has that name.
  void add(const std::string& full, Entry entry);
  void take_apart(JointLayout layout);

  std::string path_;
  bool wrapped_ = false;  // the language model of one that reads images or sounds, too
  Json config_;
  std::map<std::string, std::string> full_names_;  // of tensors_

  QuantizedFolder tensors_from_;
  std::vector<std::unique_ptr<EncodedWeight>> parts_;
  std::set<std::string, std::less<>> empty_biases_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace tenon::llm::files
