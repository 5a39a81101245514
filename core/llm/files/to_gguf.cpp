// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder to a GGUF file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "llm/dims_text.hpp"
#include "llm/embedding.hpp"
#include "llm/files/change.hpp"
#include "llm/files/check_tensors.hpp"
#include "llm/files/config_keys.hpp"
#include "llm/files/convert.hpp"
#include "llm/files/folder.hpp"
#include "llm/files/hybrid_keys.hpp"
#include "llm/files/matrix.hpp"
#include "llm/files/mix.hpp"
#include "llm/files/mixer_keys.hpp"
#include "llm/files/own_keys.hpp"
#include "llm/files/tokenizer_keys.hpp"
#include "llm/model_files.hpp"

namespace tenon::llm::files {
namespace {

// A tensor of the file, and the tensors of the folder that it is made of.
struct Planned {
  std::string name{};
  std::vector<const ModelFolder::Entry*> sources{};
  std::vector<float> numbers{};  // instead of sources
  std::vector<int64_t> dims{};
  GgufFormat format{};
  int64_t heads = 0;  // to permute; 0: as it is
  bool plus_one = false, changes = false, scales = false;
  Change change = Change::none;
  Order order = Order::same;
  tenon_dtype blocks = TENON_DTYPE_NONE;  // of all sources, which stay as they are
  bool as_is() const {
    return heads == 0 && !plus_one && !scales && change == Change::none && order == Order::same;
  }
};

std::string text_of(const TensorType& type) {
  return std::string(sdk::dtype_name(type.dtype)) + dims_text(type.dims);
}

const Family& family_of_files(const ModelFolder& folder) {
  const std::string file = folder.config_file();
  const Family& first = family_of_config(folder.config(), file);
  return first.hybrid ? family_of(engine_config(folder), file) : first;
}

class ToGguf {
 public:
  ToGguf(const std::string& folder, const std::string& file, const ConvertOptions& options)
      : folder_(folder),
        config_(folder_.config()),
        config_file_(folder_.config_file()),
        family_(family_of_files(folder_)),
        options_(options),
        out_(file) {
    mix_ = options.type.empty() ? folder_.own_type() : options.type;
    if (family_.hybrid) engine_ = engine_config(folder_);
    const char* const layers = layers_key(config_, family_);
    model_.layers = engine_ ? engine_->layers : need_size(config_, layers, config_file_);
    if (model_.layers > 4096)
      throw Error(TENON_UNSUPPORTED, config_file_ + ": '" + layers + "' is " +
                                         std::to_string(model_.layers) + "; expected at most 4096");
    if (engine_) {
      rows_.groups = engine_->mamba.groups;
      model_.experts = engine_->moe.experts;
    } else if (family_.has_parts() || !family_.experts.empty()) {
      const ModelConfig model = engine_config(folder_);
      rows_ = {.heads = model.heads, .key_heads = model.kv_heads};
      sparse_ = model.sparse;
      model_.experts = model.moe.experts;
    }
    if (family_.gguf == "deepseek2") {
      rows_ = {need_size(config_, "num_attention_heads", config_file_),
               need_size(config_, "qk_nope_head_dim", config_file_),
               need_size(config_, "v_head_dim", config_file_)};
    }
    recurrent_ = recurrent_layers(config_, family_, config_file_);
    rows_.linear = linear_heads(config_, family_, config_file_);
    if (model_.experts > 4096)
      throw Error(TENON_UNSUPPORTED, config_file_ + ": " + std::to_string(model_.experts) +
                                         " experts; expected at most 4096");
    // Newer files of GPT-NeoX have the usual name, too.
    for (const NamePair& pair : family_.names)
      if (pair.gguf == "output" && folder_.find(std::string(pair.folder) + ".weight")) head_ = pair;
    const std::string head = std::string(head_.folder) + ".weight";
    const bool older = family_.has_short_convolutions() && config_.contains("tie_embedding");
    model_.tied =
        folder_.find(head) == nullptr ||
        field<bool>(config_, older ? "tie_embedding" : "tie_word_embeddings", config_file_)
            .value_or(family_.tied);
  }

  Converted convert() {
    check_quantized();
    plan();
    out_.set("general.architecture", family_.gguf);
    out_.set("general.type", "model");
    out_.set("general.name",
             std::filesystem::path(folder_.path()).lexically_normal().filename().string());
    out_.set("general.file_type", file_type(mix_));
    out_.set("general.quantization_version", uint32_t{2});
    set_config_keys(out_, family_, config_, config_file_, engine_ ? &*engine_ : nullptr);
    set_pooling();
    if (std::string note = set_tokenizer_keys(out_, folder_.path(), config_, options_.pre);
        !note.empty())
      result_.notes.push_back(std::move(note));
    for (const auto& [key, numbers] : lists_) out_.set(key, numbers);
    for (const Planned& p : planned_) out_.add(p.name, p.format, p.dims);
    uint64_t done = 0;
    for (const Planned& p : planned_) {
      if (options_.progress) options_.progress(done, total_, p.name);
      write(p);
      for (const auto* s : p.sources) done += s->bytes();
    }
    out_.commit();
    result_.tensors = planned_.size();
    return std::move(result_);
  }

 private:
  // Quantized weights say themselves what their dims are.
  void check_quantized() const {
    if (!folder_.quantized()) return;
    check_tensors(folder_, engine_config(folder_), [](const ModelFolder::Entry& entry) {
      const tenon_dtype t = entry.type.dtype;  // a file may mix those that are converted
      return t == f16 || t == bf16 ? tenon_dtype{f32} : t;
    });
  }

  // Checkpoints of base models lack the first part of names.
  const ModelFolder::Entry* source(std::string name) {
    const auto* entry = folder_.find(name);
    if (!entry) {
      name.erase(0, name.find('.') + 1);
      entry = folder_.find(name);
    }
    if (!entry) return nullptr;
    const tenon_dtype t = entry->type.dtype;
    if (t != f32 && t != f16 && t != bf16)
      throw Error(TENON_UNSUPPORTED, folder_.path() + ": tensor '" + name + "' is " +
                                         text_of(entry->type) + "; expected f32, f16 or bf16");
    used_.insert(name);
    return entry;
  }

  void plan() {
    for (const NamePair& pair : family_.names)
      if (pair.folder.find('*') == pair.folder.npos && pair.gguf != "output") add(pair, 0);
    if (!model_.tied) add(head_, 0);
    if (folder_.find("lm_head.weight")) used_.insert("lm_head.weight");
    for (RopeTensor& t : rope_tensors(config_, config_file_)) {
      const auto count = static_cast<int64_t>(t.numbers.size());
      planned_.push_back({.name = t.name,
                          .numbers = std::move(t.numbers),
                          .dims = {count},
                          .format = gguf_format("F32")});
    }
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      for (const NamePair& pair : family_.names)
        if (pair.folder.find('*') != pair.folder.npos && pair.change != Change::both_halves &&
            pair.change != Change::old && layer_has(pair.layers, layer))
          add(pair, layer);
      if (layer_has(Layers::sparse, layer))
        for (const ExpertPair& pair : family_.experts) add_experts(pair, layer);
    }
    for (const NumberList& list : family_.lists) add_list(list);
    if (options_.changes) {
      if (engine_) options_.changes->check_model(*engine_);
      for (Planned& p : planned_)
        for (const auto* s : p.sources)
          if (options_.changes->plan(s->name, s->type.dims, p.change == Change::turned))
            p.changes = true;
      options_.changes->check_used();
    }
    keep_blocks();
    for (const auto& [name, entry] : folder_.tensors()) {
      total_ += entry.bytes();
      if (!used_.contains(name) && !is_harmless(name))
        throw Error(TENON_UNSUPPORTED, folder_.path() + ": tensor '" + name +
                                           "' has no name in GGUF for model_type '" +
                                           std::string(family_.model_type) + "'");
    }
  }

  Layers mixer_of(int64_t layer) const {
    return !recurrent_.empty() && recurrent_[static_cast<size_t>(layer)] ? Layers::recurrent
                                                                         : Layers::attention;
  }

  // Tables that are computed; GPT-2's masks; layers that predict further tokens.
  bool is_harmless(const std::string& name) const {
    if (name.ends_with("rotary_emb.inv_freq") || folder_.is_empty_bias(name)) return true;
    if (engine_ && is_harmless_tensor(name, *engine_)) return true;
    if (family_.gguf == "ernie4_5-moe" && name.starts_with("model.mtp_")) return true;
    if (family_.gguf == "gpt2" || family_.gguf == "gptneox")
      return name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
             name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    if (family_.has_linear_attention() && name.starts_with("mtp.")) return true;
    const int64_t more = extra_layers(config_, family_, config_file_);
    for (int64_t i = 0; i < more && i < 64; ++i)
      if (name.starts_with("model.layers." + std::to_string(model_.layers + i) + ".")) return true;
    return false;
  }

  bool layer_has(Layers part, int64_t layer) const {
    if (part == Layers::all) return true;
    if (engine_) return has_part(*engine_, part, layer);
    const bool sparse = !family_.has_dense_layers() || sparse_[static_cast<size_t>(layer)];
    return part == (sparse ? Layers::sparse : Layers::dense) || part == mixer_of(layer);
  }

  void add(const NamePair& pair, int64_t layer) {
    bool found = pair.optional;
    for (const std::string_view end : ends_of(pair)) {
      const std::string name = numbered(pair.folder, layer) + std::string(end);
      const auto* entry = source(name);
      if (!entry) continue;
      found = true;
      Planned p{
          .name = numbered(pair.gguf, layer) + std::string(end),
          .sources = {entry},
          .change = pair.change,
          .order = rows_.linear.value_heads > rows_.linear.key_heads ? pair.order : Order::same};
      p.dims = changed_dims(pair.change, entry->type.dims, rows_, name);
      if (p.dims.size() == 1 && p.change != Change::exponent && p.change != Change::by_part)
        p.change = Change::none;  // a bias
      p.scales = family_.scales_weights();
      const bool q = pair.gguf.ends_with("attn_q"), k = pair.gguf.ends_with("attn_k");
      if (family_.permuted && (q || k)) {
        p.heads = need_size(config_, "num_attention_heads", config_file_);
        if (k)
          p.heads = field<int64_t>(config_, "num_key_value_heads", config_file_).value_or(p.heads);
      }
      p.plus_one = family_.adds_one(p.name);
      choose_format(p, layer);
      planned_.push_back(std::move(p));
    }
    if (!found)
      throw Error(TENON_NOT_FOUND, folder_.path() + ": tensor '" + numbered(pair.folder, layer) +
                                       std::string(ends_of(pair)[0]) + "' is missing");
  }

  void add_experts(const ExpertPair& pair, int64_t layer) {
    Planned p{.name = numbered(pair.gguf, layer) + ".weight"};
    for (int64_t e = 0; e < model_.experts; ++e) {
      const std::string name = numbered(pair.folder, layer, e) + ".weight";
      const auto* entry = source(name);
      if (!entry)
        throw Error(TENON_NOT_FOUND, folder_.path() + ": tensor '" + name + "' is missing");
      if (entry->type.dims.size() != 2 ||
          entry->type.dims != (p.sources.empty() ? entry : p.sources[0])->type.dims)
        throw Error(TENON_SHAPE_MISMATCH, folder_.path() + ": tensor '" + name + "' is " +
                                              text_of(entry->type) +
                                              "; expected a matrix like those of other experts");
      p.sources.push_back(entry);
    }
    p.dims = p.sources[0]->type.dims;
    p.dims.insert(p.dims.begin(), model_.experts);
    choose_format(p, layer);
    planned_.push_back(std::move(p));
  }

  void add_list(const NumberList& list) {
    std::vector<float>& numbers = lists_[std::string(list.key)];
    for (int64_t layer = 0; layer < model_.layers; ++layer) {
      const std::string name = numbered(list.folder, layer);
      const auto* entry = source(name);
      if (!entry)
        throw Error(TENON_NOT_FOUND, folder_.path() + ": tensor '" + name + "' is missing");
      if (entry->type.elements() != 1)
        throw Error(TENON_SHAPE_MISMATCH, folder_.path() + ": tensor '" + name + "' is " +
                                              text_of(entry->type) + "; expected one number");
      numbers.push_back(entry->numbers()[0]);
    }
  }

  void choose_format(Planned& p, int64_t layer) const {
    bool plain = p.dims.size() < 2;
    for (const char* part :
         {"ffn_gate_inp.", "position_embd.", "ssm_conv1d.", "shortconv.conv.", "_norm.", ".bias"})
      plain = plain || p.name.find(part) != p.name.npos;
    plain = plain || p.name.ends_with("ssm_a") || p.change == Change::column;
    p.format = plain ? gguf_format("F32") : format_in(mix_, model_, p.name, layer, p.dims.back());
  }

  // Quantized weights stay in blocks that have the same numbers, unless another format is wanted.
  void keep_blocks() {
    std::map<tenon_dtype, int64_t> elements;
    for (Planned& p : planned_) {
      if (p.sources.empty() || p.changes || p.plus_one || p.scales || p.change != Change::none ||
          p.order != Order::same)
        continue;
      const tenon_dtype blocks = p.sources[0]->blocks();
      if (!in_gguf(blocks) || (!options_.type.empty() && blocks != p.format.dtype) ||
          std::ranges::any_of(p.sources, [&](const auto* s) { return s->blocks() != blocks; }))
        continue;
      p.blocks = blocks;
      p.format = gguf_format(static_cast<uint32_t>(blocks - TENON_DTYPE_BLOCKS));
      elements[blocks] += TensorType(f32, p.dims).elements();
    }
    if (!options_.type.empty() || elements.empty()) return;
    const auto most =
        std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
    mix_ = gguf_format(static_cast<uint32_t>(most->first - TENON_DTYPE_BLOCKS)).name;
  }

  // A tensor goes through memory expert by expert, or as a whole.
  void write(const Planned& p) {
    if (p.sources.empty()) return encode(p, p.numbers);
    for (const auto* s : p.sources) {
      if (p.blocks != TENON_DTYPE_NONE) {
        write_blocks(p, *s);
        continue;
      }
      // Bytes that stay as they are need no detour.
      if (p.format.dtype == s->type.dtype && p.as_is() && !p.changes && !s->encoded) {
        out_.content(s->data);
        result_.bytes += s->data.size();
        continue;
      }
      std::vector<float> numbers = s->numbers();
      if (p.changes) options_.changes->add(s->name, s->type.dims, numbers);
      permute(p, *s, numbers);
      if (p.scales) scale_falcon(*engine_, s->name, numbers);
      if (p.plus_one)
        for (float& v : numbers) v += 1;
      numbers = changed(p.change, std::move(numbers), s->type.dims, rows_);
      encode(p, reordered(p.order, std::move(numbers), p.dims, rows_.linear, false, s->name));
    }
  }

  void write_blocks(const Planned& p, const ModelFolder::Entry& source) {
    const Tensor made = source.encoded->tensor(p.blocks, false);
    const auto* const first = static_cast<const std::byte*>(made.data());
    std::vector<std::byte> rows(first, first + made.size());
    permute(p, source, rows);
    out_.content(rows);
    result_.bytes += rows.size();
  }

  template <class T>
  void permute(const Planned& p, const ModelFolder::Entry& source, std::vector<T>& rows) const {
    if (p.heads == 0 || rows.empty()) return;
    try {
      permute_rope(rows, source.type.dims[0], p.heads, false);
    } catch (const Error& e) {
      throw Error(e.code(), folder_.path() + ": tensor '" + source.name + "': " + e.what());
    }
  }

  void encode(const Planned& p, std::span<const float> numbers) {
    try {
      if (p.format.dtype == f16)
        for (const float v : numbers)
          if (std::fabs(v) >= 65520 && std::isfinite(v))
            throw Error(TENON_NUMERIC_ERROR,
                        std::to_string(v) + " does not fit f16; hint: --type BF16");
      const std::vector<std::byte> bytes =
          encoded(p.format, numbers, p.dims.empty() ? 1 : p.dims.back(), threads());
      out_.content(bytes);
      result_.bytes += bytes.size();
    } catch (const Error& e) {
      throw Error(e.code(), folder_.path() + ": tensor '" + p.name + "': " + e.what());
    }
  }

  // A model for embeddings has the file of sentence-transformers.
  void set_pooling() {
    std::error_code error;
    if (!std::filesystem::exists(folder_.path() + "/1_Pooling/config.json", error)) return;
    ModelConfig config;
    read_folder_pooling(folder_.path(), config);
    if (!config.other_pooling.empty())
      throw Error(TENON_UNSUPPORTED, folder_.path() + "/1_Pooling/config.json: '" +
                                         config.other_pooling +
                                         "' has no form in GGUF; expected mean, cls or last token");
    out_.set(std::string(family_.gguf) + ".pooling_type",
             static_cast<uint32_t>(gguf_pooling(config.pooling)));
  }

  unsigned threads() const {
    return options_.threads ? options_.threads : std::max(1u, std::thread::hardware_concurrency());
  }

  const ModelFolder folder_;
  const Json& config_;
  const std::string config_file_;
  const Family& family_;
  const ConvertOptions& options_;
  GgufWriter out_;
  std::string mix_;
  MixModel model_;
  NamePair head_{"lm_head", "output"};
  std::optional<ModelConfig> engine_;  // of hybrid models
  std::vector<bool> sparse_;  // of a family that has layers without experts: which have them
  HeadRows rows_;
  std::vector<bool> recurrent_;  // per layer; empty: none is
  std::vector<Planned> planned_;
  std::map<std::string, std::vector<float>> lists_;  // keys that stand for tensors
  std::set<std::string> used_;
  uint64_t total_ = 0;  // bytes of the folder's tensors
  Converted result_;
};

}  // namespace

Converted folder_to_gguf(const std::string& folder, const std::string& file,
                         const ConvertOptions& options) {
  return ToGguf(folder, file, options).convert();
}

}  // namespace tenon::llm::files
