// SPDX-License-Identifier: Apache-2.0
// A folder whose weights are quantized: which tensors are parts of an encoded weight, and the rest.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "llm/arch/encoded_weight.hpp"

namespace tenon::llm {

struct QuantizedFolder {
  struct Place {
    size_t file, index;
    Safetensors::Entry entry;
  };

  // Throws for missing scales and wrong dims or dtypes, with the folder's name.
  QuantizedFolder(const std::string& folder, const Quantization& quantization);

  // Null if no plain tensor has this name.
  const Safetensors::Entry* find(const std::string& name) const;
  // Biases of zeros of encoded weights: old files have them in all modules.
  std::set<std::string, std::less<>> empty_biases() const;

  std::vector<Safetensors> files;
  std::map<std::string, Place, std::less<>> places;  // tensors that are as they are
  std::map<std::string, std::shared_ptr<EncodedWeight>, std::less<>> encoded;

 private:
  void find_scaled(const Quantization& quantization);
  void find_packed(const Quantization& quantization);
  void add(const std::string& name, std::unique_ptr<EncodedWeight> weight);
};

}  // namespace tenon::llm
