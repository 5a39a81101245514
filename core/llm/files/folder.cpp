// SPDX-License-Identifier: Apache-2.0
// Maps the tensors of a folder.
#include "llm/files/folder.hpp"

#include "llm/arch/config_reader.hpp"
#include "llm/files/matrix.hpp"

namespace tenon::llm::files {
namespace {

Json config_of(const std::string& folder) {
  auto config = read_object(folder + "/config.json");
  if (!config) throw Error(TENON_NOT_FOUND, folder + ": expected a folder with config.json");
  return std::move(*config);
}

Quantization quantization_of(const Json& config, const std::string& file) {
  ConfigReader reader(config, file);
  return read_quantization(reader);
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path)
    : path_(path),
      config_(config_of(path)),
      tensors_from_(path, quantization_of(config_, config_file())),
      empty_biases_(tensors_from_.empty_biases()) {
  const Quantization quantization = quantization_of(config_, config_file());
  config_.erase("quantization_config");
  for (const auto& [name, place] : tensors_from_.places)
    tensors_.emplace(name, Entry{.name = name, .type = place.entry.type, .data = place.entry.data});
  // Layers of GPT-2 have [inputs, outputs], and packed weights of them outputs first, as all do.
  const bool turned = quantization.layout != Quantization::Layout::scaled &&
                      field<std::string>(config_, "model_type", config_file()) == "gpt2";
  for (const auto& [name, weight] : tensors_from_.encoded) {
    const int64_t r = weight->rows, c = weight->columns;
    tensors_.emplace(name, Entry{.name = name,
                                 .type = {f32, turned ? std::vector{c, r} : std::vector{r, c}},
                                 .encoded = weight.get(),
                                 .turned = turned,
                                 .encoded_bytes = static_cast<uint64_t>(r * c)});
  }
}

const ModelFolder::Entry* ModelFolder::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

std::string ModelFolder::own_type() const {
  for (const auto& [name, entry] : tensors_) {
    if (entry.type.dims.size() < 2 || entry.encoded) continue;
    if (entry.type.dtype == f16) return "F16";
    if (entry.type.dtype == bf16) return "BF16";
  }
  return "F32";
}

std::vector<float> ModelFolder::Entry::numbers() const {
  if (!encoded) return widened(type.dtype, data);
  const Tensor made = encoded->tensor(f32, turned);
  const auto values = made.values<float>();
  return {values.begin(), values.end()};
}

}  // namespace tenon::llm::files
