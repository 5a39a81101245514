// SPDX-License-Identifier: Apache-2.0
// Chooses products, and reads and writes the weights of an adapter in training.
#include "llm/tune/tuned_adapter.hpp"

#include <algorithm>
#include <cmath>

#include "llm/arch/text_part.hpp"
#include "llm/files/matrix.hpp"
#include "llm/tune/adapter.hpp"
#include "llm/tune/module_name.hpp"
#include "llm/tune/random.hpp"

namespace tenon::llm {
namespace {

// Products of attention and MLP in the architectures, by the last part of their names. Not among
// them: the head, routers of experts, and dt_proj of Mamba, of which some implementations read the
// weight alone.
constexpr std::string_view kUsual[] = {"q_proj",       "k_proj",    "v_proj",
                                       "o_proj",       "qkv_proj",  "q_a_proj",
                                       "q_b_proj",     "kv_b_proj", "kv_a_proj_with_mqa",
                                       "gate_proj",    "up_proj",   "down_proj",
                                       "gate_up_proj", "w1",        "w2",
                                       "w3",           "c_attn",    "c_proj",
                                       "in_proj_qkv",  "in_proj_z", "in_proj_qkvz",
                                       "c_fc",         "in_proj",   "x_proj",
                                       "out_proj",     "dense",     "query_key_value",
                                       "fc1",          "fc2",       "dense_h_to_4h",
                                       "input_linear", "fc_in",     "dense_4h_to_h",
                                       "Wqkv",         "fc_out",    "output_linear",
                                       "c_fc_0",       "c_fc_1",    "g_proj"};

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

}  // namespace

TunedAdapter::TunedAdapter(AdapterConfig config, const ModelConfig& model)
    : config_(std::move(config)), model_(model), all_(config_.targets.empty()) {
  trainable = true;
  config_.fan_in_fan_out = model.architecture->model_type == "gpt2";
  if (all_) config_.targets.assign(std::begin(kUsual), std::end(kUsual));
}

LowRank TunedAdapter::of(const std::string& module, int64_t in, int64_t out, int64_t experts) {
  const std::string name = module_in_folder(module);
  seen_.insert(last_part(name));
  if (!config_.targets_module(name)) return {};
  products_.try_emplace(module, Product{in, out, experts});
  return {.rank = config_.rank, .scale = config_.scale_of(name)};
}

void TunedAdapter::finish() {
  std::vector<std::string> kept;
  for (const std::string& target : config_.targets) {
    const bool named = std::ranges::any_of(
        products_, [&](const auto& p) { return names_module(target, module_in_folder(p.first)); });
    if (named) kept.push_back(target);
    if (named || all_) continue;
    std::string known;
    for (const std::string& name : seen_) known += (known.empty() ? "" : ", ") + name;
    throw Error(TENON_NOT_FOUND,
                "the model has no product '" + target + "'; expected some of " + known);
  }
  config_.targets = std::move(kept);
}

AdapterConfig TunedAdapter::stored_config() const {
  AdapterConfig stored = config_;
  if (model_.wrapper.empty()) return stored;
  stored.targets.clear();
  for (const auto& [module, p] : products_)
    for (int64_t e = 0; e < std::max<int64_t>(p.experts, 1); ++e)
      stored.targets.push_back(stored_name(module, p.experts > 0 ? e : -1));
  return stored;
}

std::string TunedAdapter::stored_name(const std::string& module, int64_t expert) const {
  return module_in_whole(of_expert(module_in_folder(module), expert), model_.wrapper);
}

int64_t TunedAdapter::numbers() const {
  int64_t sum = 0;
  for (const auto& [module, p] : products_)
    sum += config_.rank * (p.in + p.out) * std::max<int64_t>(p.experts, 1);
  return sum;
}

template <class Use>
void TunedAdapter::each_tensor(Use use) const {
  for (const auto& [module, p] : products_)
    for (const bool b : {false, true}) {
      const std::vector<int64_t> dims =
          b ? std::vector{p.out, config_.rank} : std::vector{config_.rank, p.in};
      const std::string stored = b ? lora_b_name(module) : lora_a_name(module);
      use(module, stored, b, dims, p.experts);
    }
}

void TunedAdapter::add_weights(Graph& graph) const {
  each_tensor([&](const std::string&, const std::string& stored, bool, std::vector<int64_t> dims,
                  int64_t experts) {
    if (experts > 0) dims.insert(dims.begin(), experts);
    graph.weight(stored, {f32, dims}, true);
  });
}

void TunedAdapter::set_first_values(Store& store, uint64_t seed) const {
  uint64_t tensor = 0;
  each_tensor([&](const std::string& module, const std::string& stored, bool b,
                  std::vector<int64_t> dims, int64_t experts) {
    const uint64_t key = mix(seed, tensor++);
    const double width = 1 / std::sqrt(static_cast<double>(dims.back()));
    if (experts > 0) dims.insert(dims.begin(), experts);
    std::vector<float> numbers(static_cast<size_t>(TensorType(f32, dims).elements()));
    if (!b)
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>(width * (2 * uniform(key, i) - 1));
    // A training from a GGUF file begins as one from the folder does.
    if (experts == 0) reorder_factor(numbers, model_, module, b, dims, false);
    store.set(TENON_SPACE_WEIGHT, stored, dims, numbers);
  });
}

void TunedAdapter::save(const Runtime& runtime, const Store& store, const std::string& file,
                        const std::vector<std::pair<std::string, std::string>>& metadata) const {
  Store out(runtime);
  each_tensor([&](const std::string& module, const std::string& stored, bool b,
                  const std::vector<int64_t>& dims, int64_t experts) {
    const auto all = store.get<float>(TENON_SPACE_WEIGHT, stored);
    const auto size = static_cast<ptrdiff_t>(TensorType(f32, dims).elements());
    for (int64_t e = 0; e < std::max<int64_t>(experts, 1); ++e) {
      std::vector<float> numbers(all.begin() + e * size, all.begin() + (e + 1) * size);
      reorder_factor(numbers, model_, module, b, dims, true);
      const std::string name = stored_name(module, experts > 0 ? e : -1);
      out.set(TENON_SPACE_WEIGHT, b ? lora_b_name(name) : lora_a_name(name), dims, numbers);
    }
  });
  out.save(TENON_SPACE_WEIGHT, file, metadata);
}

void TunedAdapter::load(Store& store, const std::string& file) const {
  const Safetensors all_of_file(file);
  std::map<std::string, Safetensors::Entry> tensors;
  for (Safetensors::Entry& entry : all_of_file.entries()) tensors.emplace(entry.name, entry);
  each_tensor([&](const std::string& module, const std::string& stored, bool b,
                  std::vector<int64_t> dims, int64_t experts) {
    std::vector<float> all;
    for (int64_t e = 0; e < std::max<int64_t>(experts, 1); ++e) {
      const std::string part = stored_name(module, experts > 0 ? e : -1);
      const std::string name = b ? lora_b_name(part) : lora_a_name(part);
      const auto at = tensors.find(name);
      if (at == tensors.end())
        throw Error(TENON_NOT_FOUND, file + ": tensor '" + name + "' is missing");
      if (at->second.type != TensorType(f32, dims))
        throw Error(TENON_SHAPE_MISMATCH, file + ": tensor '" + name + "' does not fit the model");
      std::vector<float> numbers = files::widened(f32, at->second.data);
      reorder_factor(numbers, model_, module, b, dims, false);
      all.insert(all.end(), numbers.begin(), numbers.end());
      tensors.erase(at);
    }
    if (experts > 0) dims.insert(dims.begin(), experts);
    store.set(TENON_SPACE_WEIGHT, stored, dims, all);
  });
  if (!tensors.empty())
    throw Error(TENON_UNSUPPORTED, file + ": tensor '" + tensors.begin()->first +
                                       "' is not of the products that the training changes");
}

}  // namespace tenon::llm
