// SPDX-License-Identifier: Apache-2.0
// Maps the tensors of a folder.
#include "llm/files/folder.hpp"

#include "llm/arch/config_reader.hpp"
#include "llm/arch/text_part.hpp"
#include "llm/files/matrix.hpp"

namespace tenon::llm::files {
namespace {

Json config_of(const std::string& folder, bool& wrapped) {
  auto config = read_object(folder + "/config.json");
  if (!config) throw Error(TENON_NOT_FOUND, folder + ": expected a folder with config.json");
  Json text = text_part(*config, folder + "/config.json");
  wrapped = text != *config;
  return text;
}

Quantization quantization_of(const Json& config, const std::string& file) {
  ConfigReader reader(config, file);
  return read_quantization(reader);
}

// Weights of MXFP4 are those of experts, see joint_experts.hpp.
Quantization without_experts(Quantization q) {
  return q.layout == Quantization::Layout::mxfp4 ? Quantization() : q;
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path)
    : path_(path),
      config_(config_of(path, wrapped_)),
      tensors_from_(path, without_experts(quantization_of(config_, config_file()))),
      empty_biases_(tensors_from_.empty_biases()) {
  const Quantization quantization = quantization_of(config_, config_file());
  config_.erase("quantization_config");
  for (const auto& [full, place] : tensors_from_.places)
    if (const std::string name = name_of(full); !name.empty())
      add(full, {.name = name, .type = place.entry.type, .data = place.entry.data});
  // Layers of GPT-2 have [inputs, outputs], and packed weights of them outputs first, as all do.
  const bool turned = quantization.layout != Quantization::Layout::scaled &&
                      field<std::string>(config_, "model_type", config_file()) == "gpt2";
  for (const auto& [full, weight] : tensors_from_.encoded) {
    const std::string name = name_of(full);
    if (name.empty()) continue;
    const int64_t r = weight->rows, c = weight->columns;
    add(full, {.name = name,
               .type = {f32, turned ? std::vector{c, r} : std::vector{r, c}},
               .encoded = weight.get(),
               .turned = turned,
               .encoded_bytes = static_cast<uint64_t>(r * c)});
  }
  take_apart(joint_layout(field<std::string>(config_, "model_type", config_file()).value_or("")));
}

std::string ModelFolder::name_of(const std::string& full) const {
  std::string name = text_tensor(full);
  return name.empty() && !wrapped_ ? full : name;
}

void ModelFolder::add(const std::string& full, Entry entry) {
  const auto [at, added] = full_names_.emplace(entry.name, full);
  if (!added)
    throw Error(TENON_CORRUPT, path_ + ": tensors '" + at->second + "' and '" + full +
                                   "' are both '" + entry.name + "'; expected one of them");
  tensors_.emplace(entry.name, std::move(entry));
}

void ModelFolder::take_apart(JointLayout layout) {
  std::vector<Safetensors::Entry> entries;
  for (const auto& [name, place] : tensors_from_.places) {
    entries.push_back(place.entry);
    entries.back().name = name_of(name);
  }
  std::set<std::string, std::less<>> used;
  std::vector<JointPart> found;
  try {
    found = joint_parts(layout, field<int64_t>(config_, "hidden_size", config_file()).value_or(0),
                        entries, used);
  } catch (const Error& e) {
    throw Error(e.code(), path_ + ": " + e.what());
  }
  for (const std::string& name : used) tensors_.erase(name), full_names_.erase(name);
  const auto add_part = [&](const std::string& joint, const std::string& name,
                            std::unique_ptr<EncodedWeight> weight) {
    const int64_t r = weight->rows, c = weight->columns;
    add(joint, {.name = name,
                .type = {f32, {r, c}},
                .encoded = weight.get(),
                .encoded_bytes = static_cast<uint64_t>(r * c)});
    parts_.push_back(std::move(weight));
  };
  for (const JointPart& part : found) {
    if (part.bias) add_part(part.name(), part.name(), part.matrices(0, part.count));
    for (int64_t e = 0; !part.bias && e < part.count; ++e)
      add_part(part.name(), part.name_of(e), part.matrices(e, 1));
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
