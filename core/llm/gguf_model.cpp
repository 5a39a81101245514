// SPDX-License-Identifier: Apache-2.0
// Reads language models of GGUF files by the tables of llm/files.
#include "llm/gguf_model.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "llm/embedding.hpp"
#include "llm/files/config_keys.hpp"
#include "llm/files/families.hpp"

namespace tenon::llm {
namespace {

using files::Change;

// The dtype of a tensor in the store. The matrices of experts are one tensor of 3 axes. Products with
// the parts of kv_b_proj, and the positions of GPT-2, take no blocks.
tenon_dtype stored_dtype(const GgufTensor& t, const files::NamePair& pair) {
  if (pair.change == Change::keys || pair.change == Change::values ||
      pair.change == Change::both_halves || pair.gguf == "position_embd")
    return t.dtype == f32 || t.dtype == bf16 ? t.dtype : tenon_dtype{f16};
  if (t.dtype == f32 || t.dtype == f16 || t.dtype == bf16) return t.dtype;
  const auto blocks = static_cast<tenon_dtype>(TENON_DTYPE_BLOCKS + t.type);
  const bool matrix = t.dims.size() == 2 || t.dims.size() == 3;
  return t.dtype == TENON_DTYPE_NONE && matrix && in_gguf(blocks) ? blocks : tenon_dtype{f16};
}

class GgufMetadata : public Metadata {
 public:
  explicit GgufMetadata(std::shared_ptr<const Gguf> model) : model_(std::move(model)) {}
  std::optional<std::string> text(std::string_view key) const override {
    return there(key, [&] { return model_->text(key); });
  }
  std::optional<bool> boolean(std::string_view key) const override {
    return there(key, [&] { return model_->number<bool>(key); });
  }
  std::optional<int64_t> integer(std::string_view key) const override {
    return there(key, [&] { return model_->number<int64_t>(key); });
  }
  std::optional<std::vector<std::string>> texts(std::string_view key) const override {
    return there(key, [&] { return model_->texts(key); });
  }
  std::optional<std::vector<float>> floats(std::string_view key) const override {
    return there(key, [&] { return model_->numbers<float>(key); });
  }
  std::optional<std::vector<int64_t>> integers(std::string_view key) const override {
    return there(key, [&] { return model_->numbers<int64_t>(key); });
  }

 private:
  template <class Read>
  auto there(std::string_view key, Read read) const -> std::optional<decltype(read())> {
    if (!model_->has(key)) return {};
    return read();
  }
  std::shared_ptr<const Gguf> model_;
};

// The name in folders, or of what the file has in place of it.
std::string name_of(const files::NamePair& pair, int64_t layer, std::string_view end,
                    const std::vector<int64_t>& dims) {
  const std::string name = files::numbered(pair.folder, layer);
  const auto replaced = [&](std::string_view last, std::string_view other) {
    return name.substr(0, name.size() - last.size()) + std::string(other) + std::string(end);
  };
  if (pair.change == Change::exponent || pair.change == Change::exponent_column)
    return replaced("A_log", "A");
  if (pair.change == Change::column) return name + ".column";
  if (pair.change == Change::groups) return name + ".grouped";
  if (pair.change == Change::first_half) return replaced("input_linear", "gate_proj");
  if (pair.change == Change::second_half) return replaced("input_linear", "up_proj");
  if (pair.change == Change::by_part) return replaced("query_key_value", "qkv");
  if (pair.change == Change::of_qkv) return replaced("in_proj_qkvz", "in_proj_qkv");
  if (pair.change == Change::of_gate) return replaced("in_proj_qkvz", "in_proj_z");
  if (pair.change == Change::keys) return replaced("kv_b_proj", "k_b_proj");
  if (pair.change == Change::values) return replaced("kv_b_proj", "v_b_proj");
  const bool is_row = pair.change == Change::row && dims.size() == 1;  // else as in the folder
  if ((pair.change == Change::flat || is_row) && (end == ".weight" || pair.whole))
    return name + ".flat";
  return name + std::string(end);
}

// The name of a weight of folders without the number of the expert.
std::string without_expert(std::string name) {
  if (const size_t at = name.find(".#"); at != name.npos) name.erase(at, 2);
  return name;
}

}  // namespace

GgufModel::GgufModel(const std::string& file)
    : file_(file), model_(std::make_shared<const Gguf>(file)) {}

ModelConfig GgufModel::config() const {
  const files::Family& family = files::family_of_gguf(*model_, file_);
  const char* dtype = "float16";
  for (const GgufTensor& t : model_->tensors()) {
    if (t.dims.size() < 2) continue;
    dtype = t.dtype == f32 ? "float32" : t.dtype == bf16 ? "bfloat16" : "float16";
    break;
  }
  ModelConfig config =
      parse_config(files::config_from_keys(*model_, family, dtype, file_).dump(), file_);
  // The two rows that rope turns together are neighbours.
  config.rope_interleaved = config.rope_interleaved || family.permuted;
  config.outputs_first = std::ranges::any_of(
      family.names, [](const files::NamePair& pair) { return pair.change == Change::turned; });
  config.delta.tiled = std::ranges::any_of(
      family.names, [](const files::NamePair& p) { return p.order != files::Order::same; });
  config.falcon.in_weights = family.scales_weights();
  const std::string pooling = std::string(family.gguf) + ".pooling_type";
  try {
    if (model_->has(pooling)) set_gguf_pooling(model_->number<int64_t>(pooling), config);
  } catch (const Error& e) {
    throw Error(e.code(), file_ + ": " + e.what());
  }
  return config;
}

TensorSource GgufModel::tensors(const ModelConfig& config) const {
  const files::Family& family = files::family_of_gguf(*model_, file_);
  struct Planned {
    std::string source, name;
    tenon_dtype dtype;
  };
  std::vector<Planned> planned;
  TensorSource out;
  std::set<std::string, std::less<>> used;
  const auto add = [&](const files::NamePair& pair, int64_t layer) {
    for (const std::string_view end : files::ends_of(pair)) {
      const std::string source = files::numbered(pair.gguf, layer) + std::string(end);
      if (!model_->has_tensor(source)) continue;
      const GgufTensor t = model_->tensor(source);
      const bool plus_one = family.adds_one(source);
      const tenon_dtype dtype = plus_one ? tenon_dtype{f32} : stored_dtype(t, pair);
      const std::string name =
          without_expert(name_of(pair, layer, plus_one ? ".gamma" : end, t.dims));
      planned.push_back({source, name, dtype});
      out.types.emplace(name, TensorType(dtype, t.dims));
      used.insert(source);
    }
  };
  for (const files::NamePair& pair : family.names) {
    const bool of_layer = pair.gguf.find('*') != pair.gguf.npos;
    for (int64_t layer = 0; layer < (of_layer ? config.layers : 1); ++layer) add(pair, layer);
  }
  for (files::ExpertPair pair : family.experts) {
    const std::string joined = without_expert(std::string(pair.folder));
    for (int64_t layer = 0; layer < config.layers; ++layer) add({joined, pair.gguf}, layer);
  }
  std::map<std::string, float> numbers;  // of keys that stand for tensors
  for (const files::NumberList& list : family.lists) {
    const std::vector<float> all = files::numbers_of(list, *model_, config.layers, file_);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string name = files::numbered(list.folder, layer);
      const std::vector<int64_t> dims(list.scalar ? 0 : 1, 1);
      out.types.emplace(name, TensorType(f32, dims));
      numbers.emplace(name, all[static_cast<size_t>(layer)]);
    }
  }
  const auto is_extra = [&](std::string_view name) {
    for (int64_t i = 0; i < config.extra_layers && i < 64; ++i)
      if (name.starts_with(files::numbered("blk.*.", config.layers + i))) return true;
    return false;
  };
  for (const GgufTensor& t : model_->tensors())  // those of rope are a part of the configuration
    if (!used.contains(t.name) && !t.name.starts_with("rope_f") && !is_extra(t.name))
      throw Error(TENON_UNSUPPORTED, file_ + ": tensor '" + std::string(t.name) +
                                         "' is not used by models of the architecture '" +
                                         std::string(family.gguf) + "'");
  out.load = [planned, numbers, types = out.types, model = model_](Store& store) {
    for (const auto& [name, number] : numbers)
      store.set(TENON_SPACE_WEIGHT, name, types.at(name), &number, sizeof number);
    for (const Planned& p : planned)
      model->load(p.source, store, TENON_SPACE_WEIGHT, p.name,
                  in_blocks(p.dtype) ? tenon_dtype{TENON_DTYPE_NONE} : p.dtype);
  };
  return out;
}

std::unique_ptr<Metadata> GgufModel::metadata() const {
  return std::make_unique<GgufMetadata>(model_);
}

std::optional<std::string> GgufModel::chat_template() const {
  if (!model_->has("tokenizer.chat_template")) return {};
  return model_->text("tokenizer.chat_template");
}

}  // namespace tenon::llm
