// SPDX-License-Identifier: Apache-2.0
// Finds the encoded weights of a folder.
#include "llm/arch/quantized_folder.hpp"

#include <algorithm>

#include "llm/model_folder.hpp"

namespace tenon::llm {

QuantizedFolder::QuantizedFolder(const std::string& folder, const Quantization& quantization) {
  for (const std::string& file : safetensors_files(folder)) {
    files.emplace_back(file);
    std::vector<Safetensors::Entry> entries = files.back().entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string tensor = entries[i].name;
      if (!places.emplace(tensor, Place{files.size() - 1, i, std::move(entries[i])}).second)
        throw Error(TENON_CORRUPT, file + ": tensor '" + tensor + "' is also in another file");
    }
  }
  try {
    if (quantization.layout == Quantization::Layout::scaled)
      find_scaled(quantization);
    else if (quantization.layout != Quantization::Layout::none)
      find_packed(quantization);
  } catch (const Error& e) {
    throw Error(e.code(), folder + ": " + e.what());
  }
}

const Safetensors::Entry* QuantizedFolder::find(const std::string& name) const {
  const auto at = places.find(name);
  return at == places.end() ? nullptr : &at->second.entry;
}

void QuantizedFolder::find_scaled(const Quantization& quantization) {
  const tenon_dtype dtype = quantization.integers ? TENON_DTYPE_I8 : TENON_DTYPE_F8E4M3;
  std::vector<std::string> names;
  for (const auto& [name, place] : places)
    if (name.ends_with(".weight") && place.entry.type.dtype == dtype) names.push_back(name);
  for (const std::string& name : names) {
    const auto* scale = find(name + "_scale_inv");
    if (!scale) scale = find(name + "_scale");
    if (!scale)
      throw Error(TENON_NOT_FOUND, "weight " + described(*find(name)) + ": its scale '" + name +
                                       "_scale' or '" + name + "_scale_inv' is missing");
    add(name, scaled_weight(*find(name), *scale, quantization));
    const std::string module = name.substr(0, name.size() - 6);
    for (const char* end : {"weight_scale_inv", "weight_scale", "input_scale",
                            "activation_scale"})  // the last two: of activations
      places.erase(module + end);
  }
}

void QuantizedFolder::find_packed(const Quantization& quantization) {
  const std::string end(packed_end(quantization.layout));
  std::vector<std::string> modules;
  for (const auto& [name, place] : places)
    if (name.ends_with(end)) modules.push_back(name.substr(0, name.size() - end.size()));
  for (const std::string& module : modules) {
    const std::string name = module + ".weight";
    if (find(name)) throw Error(TENON_CORRUPT, "'" + name + "' is beside '" + module + end + "'");
    add(name, packed_weight(
                  module, [this](const std::string& n) { return find(n); }, quantization));
    for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx", ".weight_packed",
                             ".weight_scale", ".weight_shape", ".weight_g_idx", ".input_scale"})
      places.erase(module + part);
  }
}

void QuantizedFolder::add(const std::string& name, std::unique_ptr<EncodedWeight> weight) {
  places.erase(name);
  encoded.emplace(name, std::move(weight));
}

void QuantizedFolder::load_plain(Store& store) const {
  for (const auto& [name, place] : places)
    files[place.file].load(place.index, store, TENON_SPACE_WEIGHT, name);
}

std::set<std::string, std::less<>> QuantizedFolder::empty_biases() const {
  std::set<std::string, std::less<>> out;
  for (const auto& [name, weight] : encoded) {
    const std::string bias = name.substr(0, name.size() - 6) + "bias";
    const auto* entry = find(bias);
    if (entry && std::ranges::all_of(entry->data, [](std::byte b) { return b == std::byte{0}; }))
      out.insert(bias);
  }
  return out;
}

}  // namespace tenon::llm
