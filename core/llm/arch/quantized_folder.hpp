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
  // Sets the plain tensors as weights of their names.
  void load_plain(Store& store) const;

  std::vector<Safetensors> files;
  std::map<std::string, Place, std::less<>> places;  // tensors that are as they are
  std::map<std::string, std::shared_ptr<EncodedWeight>, std::less<>> encoded;

 private:
  void find_scaled(const Quantization& quantization);
  void find_packed(const Quantization& quantization);
  void add(const std::string& name, std::unique_ptr<EncodedWeight> weight);
};

// A source of the plain tensors of source->folder, and of those of source->dtypes, which load()
// makes. These have source->type(name), and source->options.dtype if a graph asks for plain ones.
template <class Source>
TensorSource tensors_of(const std::shared_ptr<Source>& source) {
  TensorSource out;
  for (const auto& [name, place] : source->folder.places) out.types.emplace(name, place.entry.type);
  for (const auto& [name, dtype] : source->dtypes) out.types.emplace(name, source->type(name));
  out.plain = [source](const std::string& name) {
    source->dtypes.at(name) = source->options.dtype;
    return source->type(name);
  };
  out.load = [source](Store& store) {
    source->folder.load_plain(store);
    source->load(store);
  };
  return out;
}

}  // namespace tenon::llm
