// SPDX-License-Identifier: Apache-2.0
// Folders whose weights are quantized as a source of tensors.
#include <algorithm>
#include <map>

#include "llm/arch/encoded_weight.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {
namespace {

struct Source {
  struct Place {
    size_t file, index;
    Safetensors::Entry entry;
  };
  struct Weight {
    std::shared_ptr<EncodedWeight> encoded;
    tenon_dtype dtype;  // in the store
  };

  Source(const std::string& folder, const Quantization& q, const DecodeOptions& o)
      : quantization(q), options(o) {
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
      if (q.layout == Quantization::Layout::scaled)
        find_scaled();
      else
        find_packed();
    } catch (const Error& e) {
      throw Error(e.code(), folder + ": " + e.what());
    }
  }

  const Safetensors::Entry* find(const std::string& name) const {
    const auto at = places.find(name);
    return at == places.end() ? nullptr : &at->second.entry;
  }

  void find_scaled() {
    const tenon_dtype encoded = quantization.integers ? TENON_DTYPE_I8 : TENON_DTYPE_F8E4M3;
    std::vector<std::string> names;
    for (const auto& [name, place] : places)
      if (name.ends_with(".weight") && place.entry.type.dtype == encoded) names.push_back(name);
    for (const std::string& name : names) {
      const auto* scale = find(name + "_scale_inv");
      if (!scale) scale = find(name + "_scale");
      if (!scale)
        throw Error(TENON_NOT_FOUND, "weight " + described(*find(name)) + ": its scale '" + name +
                                         "_scale' or '" + name + "_scale_inv' is missing");
      as_floats_check(*scale);
      add(name, scaled_weight(*find(name), *scale, quantization));
      const std::string module = name.substr(0, name.size() - 6);
      for (const char* end : {"weight_scale_inv", "weight_scale", "input_scale",
                              "activation_scale"})  // the last two: of activations
        places.erase(module + end);
    }
  }

  static void as_floats_check(const Safetensors::Entry& scale) {
    const tenon_dtype t = scale.type.dtype;
    if (t != f32 && t != f16 && t != bf16)
      throw Error(TENON_UNSUPPORTED, "scale " + described(scale) + ": expected f32, f16 or bf16");
  }

  void find_packed() {
    constexpr std::string_view end = ".qweight";
    std::vector<std::string> modules;
    for (const auto& [name, place] : places)
      if (name.ends_with(end)) modules.push_back(name.substr(0, name.size() - end.size()));
    for (const std::string& module : modules) {
      const std::string name = module + ".weight";
      if (find(name))
        throw Error(TENON_CORRUPT, "'" + name + "' is beside '" + module + ".qweight'");
      add(name, packed_weight(
                    module, [this](const std::string& n) { return find(n); }, quantization));
      for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"})
        places.erase(module + part);
    }
  }

  void add(const std::string& name, std::unique_ptr<EncodedWeight> encoded) {
    places.erase(name);
    const bool plain = encoded->blocks == TENON_DTYPE_NONE || options.inputs_are_rows ||
                       (!options.experts_in_blocks && name.find(".experts.") != name.npos);
    const tenon_dtype dtype = plain ? options.dtype : encoded->blocks;
    weights.emplace(name, Weight{std::move(encoded), dtype});
  }

  bool transposed() const {
    return options.inputs_are_rows && quantization.layout != Quantization::Layout::scaled;
  }
  TensorType type(const Weight& w) const {
    const EncodedWeight& e = *w.encoded;
    return {w.dtype,
            transposed() ? std::vector{e.columns, e.rows} : std::vector{e.rows, e.columns}};
  }

  // Biases of zeros, which old files have in all modules.
  std::set<std::string, std::less<>> empty_biases() const {
    std::set<std::string, std::less<>> out;
    for (const auto& [name, weight] : weights) {
      const std::string bias = name.substr(0, name.size() - 6) + "bias";
      const auto* entry = find(bias);
      if (entry && std::ranges::all_of(entry->data, [](std::byte b) { return b == std::byte{0}; }))
        out.insert(bias);
    }
    return out;
  }

  void load(Store& store) const {
    for (const auto& [name, place] : places)
      files[place.file].load(place.index, store, TENON_SPACE_WEIGHT, name);
    for (const auto& [name, w] : weights)
      store.borrow(TENON_SPACE_WEIGHT, name,
                   std::make_shared<Tensor>(w.encoded->tensor(w.dtype, transposed())));
  }

  const Quantization quantization;
  const DecodeOptions options;
  std::vector<Safetensors> files;
  std::map<std::string, Place, std::less<>> places;  // without those of `weights`
  std::map<std::string, Weight, std::less<>> weights;
};

}  // namespace

TensorSource quantized_tensors(const std::string& folder, const Quantization& quantization,
                               const DecodeOptions& options) {
  const auto source = std::make_shared<Source>(folder, quantization, options);
  TensorSource out;
  for (const auto& [name, place] : source->places) out.types.emplace(name, place.entry.type);
  for (const auto& [name, weight] : source->weights) out.types.emplace(name, source->type(weight));
  out.unneeded = source->empty_biases();
  out.plain = [source](const std::string& name) {
    Source::Weight& weight = source->weights.at(name);
    weight.dtype = source->options.dtype;
    return source->type(weight);
  };
  out.load = [source](Store& store) { source->load(store); };
  return out;
}

}  // namespace tenon::llm
