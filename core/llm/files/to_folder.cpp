// SPDX-License-Identifier: Apache-2.0
// A GGUF file to a Hugging Face folder.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "llm/arch/config.hpp"
#include "llm/files/change.hpp"
#include "llm/files/config_keys.hpp"
#include "llm/files/convert.hpp"
#include "llm/files/folder_writer.hpp"
#include "llm/files/hybrid_keys.hpp"
#include "llm/files/matrix.hpp"
#include "llm/files/own_keys.hpp"
#include "llm/files/tokenizer_keys.hpp"

namespace tenon::llm::files {
namespace {

// A tensor of the folder: a tensor of the file, or one expert of it.
struct Planned {
  std::string name{};
  std::string source{};
  std::vector<int64_t> dims{};
  int64_t expert = -1;
  int64_t heads = 0;  // to permute back; 0: as it is
  bool minus_one = false, changes = false;
  Change change = Change::none;
  Order order = Order::same;
  std::vector<float> numbers{};  // instead of a source
  std::string values{};          // the other part of what the source is a part of
  bool as_is() const {
    return heads == 0 && !minus_one && change == Change::none && order == Order::same;
  }
};

class ToFolder {
 public:
  ToFolder(const std::string& file, const std::string& folder, const ConvertOptions& options)
      : file_(file),
        folder_(folder),
        options_(options),
        model_(file),
        family_(family_of_gguf(model_, file)),
        dtype_(target_type()) {}

  Converted convert() {
    const Json config = config_from_keys(model_, family_,
                                         dtype_ == f32   ? "float32"
                                         : dtype_ == f16 ? "float16"
                                                         : "bfloat16",
                                         file_);
    if (family_.joint_experts())
      throw Error(TENON_UNSUPPORTED, file_ + ": models of model_type '" +
                                         std::string(family_.model_type) +
                                         "' are converted to GGUF only; expected another one");
    if (family_.has_parts()) {
      const ModelConfig model = parse_config(config.dump(), file_);
      rows_ = {.heads = model.heads, .key_heads = model.kv_heads};
    }
    if (options_.changes && family_.scales_weights()) {
      ModelConfig model = parse_config(config.dump(), file_);
      model.falcon.in_weights = true;
      options_.changes->check_model(model);
    }
    if (family_.permuted) {
      heads_ = need_size(config, "num_attention_heads", file_);
      kv_heads_ = field<int64_t>(config, "num_key_value_heads", file_).value_or(heads_);
    }
    rows_.linear = linear_heads(config, family_, file_);
    plan(need_size(config, layers_key(config, family_), file_),
         extra_layers(config, family_, file_));
    // Before anything is written: it may fail.
    const TokenizerFiles tokenizer = tokenizer_files(model_, file_);
    make_folder(folder_);
    write_contents();
    write_text(folder_, "config.json",
               config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    write_text(folder_, "tokenizer_config.json", tokenizer.tokenizer_config);
    write_pooling();
    if (!tokenizer.tokenizer.empty()) write_text(folder_, "tokenizer.json", tokenizer.tokenizer);
    if (!tokenizer.note.empty())
      result_.notes.push_back(tokenizer.note + "; the folder has no tokenizer.json");
    result_.tensors = planned_.size();
    return std::move(result_);
  }

 private:
  tenon_dtype target_type() const {
    if (options_.type == "F32") return f32;
    if (options_.type == "F16") return f16;
    if (options_.type == "BF16") return bf16;
    if (!options_.type.empty())
      throw Error(TENON_INVALID_ARGUMENT,
                  "--type " + options_.type + ": expected F32, F16 or BF16 for a folder");
    for (const GgufTensor& t : model_.tensors())
      if (t.dims.size() >= 2) return t.dtype == f32 || t.dtype == bf16 ? t.dtype : f16;
    return f32;
  }

  // extra_layers: behind the others; they are left out.
  void plan(int64_t layers, int64_t extra_layers) {
    std::set<std::string_view> used;
    const auto add = [&](const NamePair& pair, int64_t layer, bool experts) {
      for (const std::string_view end : ends_of(pair)) {
        const std::string source = numbered(pair.gguf, layer) + std::string(end);
        if (!model_.has_tensor(source)) continue;
        const GgufTensor t = model_.tensor(source);
        used.insert(t.name);
        // A part of the tensor of keys, of that of q, k and v, or of the first half.
        if (pair.change == Change::values || pair.change == Change::of_gate ||
            pair.change == Change::second_half)
          continue;
        Planned p{
            .name = numbered(pair.folder, layer) + std::string(end),
            .source = source,
            .dims = dims_back(pair.change, t.dims, source),
            .change = pair.change,
            .order = rows_.linear.value_heads > rows_.linear.key_heads ? pair.order : Order::same};
        if (p.dims.size() == 1 && p.change != Change::exponent &&
            p.change != Change::exponent_column && p.change != Change::by_part)
          p.change = Change::none;  // a bias
        if (pair.change == Change::keys) {
          p.change = pair.change;
          p.values = numbered("blk.*.attn_v_b.weight", layer);
          p.dims = joined_dims(t.dims, model_.tensor(p.values).dims, source);
        }
        if (pair.change == Change::of_qkv) {
          p.values = numbered("blk.*.attn_gate.weight", layer);
          p.dims =
              joined_dims_of_linear(t.dims, model_.tensor(p.values).dims, rows_.linear, source);
        }
        if (pair.change == Change::first_half) {
          // ffn_gate.weight, ffn_gate_shexp.weight
          p.values = source;
          p.values.replace(p.values.find("ffn_gate"), 8, "ffn_up");
          p.dims = stacked_dims(t.dims, model_.tensor(p.values).dims, source);
        }
        if (family_.permuted && pair.gguf.ends_with("attn_q")) p.heads = heads_;
        if (family_.permuted && pair.gguf.ends_with("attn_k")) p.heads = kv_heads_;
        p.minus_one = family_.adds_one(source);
        if (!experts) {
          planned_.push_back(std::move(p));
          continue;
        }
        if (t.dims.size() != 3 || t.dims[0] > 4096)
          throw Error(TENON_SHAPE_MISMATCH, file_ + ": tensor '" + source +
                                                "': expected the matrices of at most 4096 experts");
        p.dims.erase(p.dims.begin());
        for (p.expert = 0; p.expert < t.dims[0]; ++p.expert) {
          if (planned_.size() >= size_t{1} << 18)
            throw Error(TENON_UNSUPPORTED, file_ + ": more than 262144 tensors");
          p.name = numbered(pair.folder, layer, p.expert) + std::string(end);
          planned_.push_back(p);
        }
      }
    };
    if (layers > 4096)
      throw Error(TENON_UNSUPPORTED,
                  file_ + ": " + std::to_string(layers) + " layers; expected at most 4096");
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (const NamePair& pair : family_.names)
        if (layer == 0 || pair.gguf.find('*') != pair.gguf.npos) add(pair, layer, false);
      for (const ExpertPair& pair : family_.experts) add(pair, layer, true);
    }
    for (const NumberList& list : family_.lists) {
      const std::vector<float> numbers = numbers_of(list, model_, layers, file_);
      for (int64_t layer = 0; layer < layers; ++layer)
        planned_.push_back({.name = numbered(list.folder, layer),
                            .source = std::string(list.key),
                            .dims = list.scalar ? std::vector<int64_t>{} : std::vector<int64_t>{1},
                            .numbers = {numbers[static_cast<size_t>(layer)]}});
    }
    const auto is_extra = [&](std::string_view name) {
      for (int64_t i = 0; i < extra_layers && i < 64; ++i)
        if (name.starts_with(numbered("blk.*.", layers + i))) return true;
      return false;
    };
    if (options_.changes) {
      for (Planned& p : planned_)
        p.changes = options_.changes->plan(p.name, p.dims, p.change == Change::turned);
      options_.changes->check_used();
    }
    for (const GgufTensor& t : model_.tensors())
      if (!used.contains(t.name) && !t.name.starts_with("rope_f") && !is_extra(t.name))
        throw Error(TENON_UNSUPPORTED, file_ + ": tensor '" + std::string(t.name) +
                                           "' has no name in folders of model_type '" +
                                           std::string(family_.model_type) + "'");
  }

  // Before memory is taken: a tensor of an unknown format may have any size.
  GgufTensor decodable(const std::string& name) const {
    const GgufTensor t = model_.tensor(name);
    if (t.format.empty() || !gguf_format(t.type).decodes)
      throw Error(TENON_UNSUPPORTED,
                  file_ + ": tensor '" + name + "': its format cannot be decoded");
    return t;
  }

  // The content of a planned tensor, in the dtype of the folder.
  std::shared_ptr<Tensor> made(const Planned& p) {
    if (!p.numbers.empty()) {
      auto out = std::make_shared<Tensor>(TensorType(dtype_, p.dims));
      detail::check(tenon_convert(f32, p.numbers.data(), dtype_, out->data(), p.numbers.size()));
      return out;
    }
    const GgufTensor t = decodable(p.source);
    std::span<const std::byte> data = t.data;
    if (p.expert >= 0) {
      const size_t each = data.size() / static_cast<size_t>(t.dims[0]);
      data = data.subspan(static_cast<size_t>(p.expert) * each, each);
    }
    auto out = std::make_shared<Tensor>(TensorType(dtype_, p.dims));
    if (t.dtype == dtype_ && p.as_is() && !p.changes) {
      if (out->size() > 0) std::memcpy(out->data(), data.data(), data.size());
      return out;
    }
    try {
      std::vector<float> numbers = gguf_decode<float>(gguf_format(t.type), data);
      if (p.heads > 0 && !numbers.empty())
        permute_rope(numbers, p.dims.empty() ? 0 : p.dims[0], p.heads, true);
      if (p.minus_one)
        for (float& v : numbers) v -= 1;
      if (!p.values.empty()) {
        const GgufTensor v = decodable(p.values);
        const std::vector<float> others = gguf_decode<float>(gguf_format(v.type), v.data);
        if (p.change == Change::first_half)
          numbers.insert(numbers.end(), others.begin(), others.end());
        else
          numbers = p.change == Change::of_qkv ? joined_linear(numbers, others, rows_.linear)
                                               : joined_halves(numbers, t.dims, others, v.dims);
      } else {
        numbers = reordered(p.order, std::move(numbers), t.dims, rows_.linear, true, p.source);
        numbers = changed_back(p.change, std::move(numbers), t.dims, rows_, p.source);
      }
      if (p.changes) options_.changes->add(p.name, p.dims, numbers);
      detail::check(tenon_convert(f32, numbers.data(), dtype_, out->data(), numbers.size()));
    } catch (const Error& e) {
      throw Error(e.code(), file_ + ": tensor '" + p.source + "': " + e.what());
    }
    return out;
  }

  void write_contents() {
    std::vector<FolderTensor> tensors;
    for (const Planned& p : planned_)
      tensors.push_back({p.name, {dtype_, p.dims}, [this, &p] { return made(p); }});
    result_.bytes = write_tensors(folder_, tensors, options_);
  }

  // The file of sentence-transformers, if the GGUF file says how its model embeds.
  void write_pooling() const {
    const std::string key = std::string(family_.gguf) + ".pooling_type";
    const int64_t type = model_.has(key) ? model_.number<int64_t>(key) : 0;
    if (type < 1 || type > 3) return;
    std::error_code error;
    std::filesystem::create_directories(folder_ + "/1_Pooling", error);
    write_text(folder_, "1_Pooling/config.json",
               Json{{"pooling_mode_mean_tokens", type == 1},
                    {"pooling_mode_cls_token", type == 2},
                    {"pooling_mode_lasttoken", type == 3}}
                       .dump(2) +
                   "\n");
  }

  const std::string file_, folder_;
  const ConvertOptions& options_;
  const Gguf model_;
  const Family& family_;
  const tenon_dtype dtype_;
  int64_t heads_ = 0, kv_heads_ = 0;
  HeadRows rows_;
  std::vector<Planned> planned_;
  Converted result_;
};

}  // namespace

Converted gguf_to_folder(const std::string& file, const std::string& folder,
                         const ConvertOptions& options) {
  return ToFolder(file, folder, options).convert();
}

}  // namespace tenon::llm::files
