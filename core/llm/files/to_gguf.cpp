// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder to a GGUF file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "llm/files/config_keys.hpp"
#include "llm/files/convert.hpp"
#include "llm/files/folder.hpp"
#include "llm/files/matrix.hpp"
#include "llm/files/mix.hpp"
#include "llm/files/tokenizer_keys.hpp"

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
  bool plus_one = false, changes = false;
};

std::string text_of(const TensorType& type) {
  std::string text;
  for (const int64_t d : type.dims) text += (text.empty() ? "" : ",") + std::to_string(d);
  return std::string(sdk::dtype_name(type.dtype)) + "[" + text + "]";
}

class ToGguf {
 public:
  ToGguf(const std::string& folder, const std::string& file, const ConvertOptions& options)
      : folder_(folder),
        config_(folder_.config()),
        config_file_(folder_.config_file()),
        family_(family_of_folder(
            field<std::string>(config_, "model_type", config_file_).value_or(""), config_file_)),
        options_(options),
        out_(file) {
    if (config_.contains("quantization_config") && !config_["quantization_config"].is_null())
      throw Error(
          TENON_UNSUPPORTED,
          config_file_ + ": 'quantization_config': expected a folder that is not quantized");
    mix_ = options.type.empty() ? own_type() : options.type;
    model_.layers = need_size(config_, "num_hidden_layers", config_file_);
    if (model_.layers > 4096)
      throw Error(TENON_UNSUPPORTED, config_file_ + ": 'num_hidden_layers' is " +
                                         std::to_string(model_.layers) + "; expected at most 4096");
    if (!family_.experts.empty()) {
      const char* count =
          config_.contains("num_local_experts") ? "num_local_experts" : "num_experts";
      model_.experts = need_size(config_, count, config_file_);
      if (model_.experts > 4096)
        throw Error(TENON_UNSUPPORTED, config_file_ + ": '" + count + "': expected at most 4096");
    }
    model_.tied = folder_.find("lm_head.weight") == nullptr ||
                  field<bool>(config_, "tie_word_embeddings", config_file_).value_or(family_.tied);
  }

  Converted convert() {
    plan();
    out_.set("general.architecture", family_.gguf);
    out_.set("general.type", "model");
    out_.set("general.name",
             std::filesystem::path(folder_.path()).lexically_normal().filename().string());
    out_.set("general.file_type", file_type(mix_));
    out_.set("general.quantization_version", uint32_t{2});
    set_config_keys(out_, family_, config_, config_file_);
    if (std::string note = set_tokenizer_keys(out_, folder_.path(), config_, options_.pre);
        !note.empty())
      result_.notes.push_back(std::move(note));
    for (const Planned& p : planned_) out_.add(p.name, p.format, p.dims);
    uint64_t done = 0;
    for (const Planned& p : planned_) {
      if (options_.progress) options_.progress(done, total_, p.name);
      write(p);
      for (const auto* s : p.sources) done += s->data.size();
    }
    out_.commit();
    result_.tensors = planned_.size();
    return std::move(result_);
  }

 private:
  // The type of most of the folder: that of its first matrix.
  std::string own_type() const {
    for (const auto& [name, entry] : folder_.tensors()) {
      if (entry.type.dims.size() < 2) continue;
      if (entry.type.dtype == f16) return "F16";
      if (entry.type.dtype == bf16) return "BF16";
    }
    return "F32";
  }

  const ModelFolder::Entry* source(const std::string& name) {
    const auto* entry = folder_.find(name);
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
    if (!model_.tied) add({"lm_head", "output"}, 0);
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
        if (pair.folder.find('*') != pair.folder.npos) add(pair, layer);
      for (const ExpertPair& pair : family_.experts) add_experts(pair, layer);
    }
    if (options_.changes) {
      for (Planned& p : planned_)
        for (const auto* s : p.sources)
          if (options_.changes->plan(s->name, s->type.dims)) p.changes = true;
      options_.changes->check_used();
    }
    for (const auto& [name, entry] : folder_.tensors()) {
      total_ += entry.data.size();
      if (!used_.contains(name) && !name.ends_with("rotary_emb.inv_freq"))
        throw Error(TENON_UNSUPPORTED, folder_.path() + ": tensor '" + name +
                                           "' has no name in GGUF for model_type '" +
                                           std::string(family_.model_type) + "'");
    }
  }

  void add(const NamePair& pair, int64_t layer) {
    bool found = false;
    for (const char* end : {".weight", ".bias"}) {
      const std::string name = numbered(pair.folder, layer) + end;
      const auto* entry = source(name);
      if (!entry) continue;
      found = true;
      Planned p{
          .name = numbered(pair.gguf, layer) + end, .sources = {entry}, .dims = entry->type.dims};
      const bool q = pair.gguf.ends_with("attn_q"), k = pair.gguf.ends_with("attn_k");
      if (family_.permuted && (q || k)) {
        p.heads = need_size(config_, "num_attention_heads", config_file_);
        if (k)
          p.heads = field<int64_t>(config_, "num_key_value_heads", config_file_).value_or(p.heads);
      }
      p.plus_one = family_.norm_plus_one && p.name.ends_with("norm.weight");
      choose_format(p, layer);
      planned_.push_back(std::move(p));
    }
    if (!found)
      throw Error(TENON_NOT_FOUND, folder_.path() + ": tensor '" + numbered(pair.folder, layer) +
                                       ".weight' is missing");
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

  void choose_format(Planned& p, int64_t layer) const {
    const bool router = p.name.find("ffn_gate_inp.") != p.name.npos;
    p.format = p.dims.size() < 2 || router ? gguf_format("F32")
                                           : format_in(mix_, model_, p.name, layer, p.dims.back());
  }

  // A tensor goes through memory expert by expert, or as a whole.
  void write(const Planned& p) {
    if (p.sources.empty()) return encode(p, p.numbers);
    for (const auto* s : p.sources) {
      // Bytes that stay as they are need no detour.
      if (p.format.dtype == s->type.dtype && p.heads == 0 && !p.plus_one && !p.changes) {
        out_.content(s->data);
        result_.bytes += s->data.size();
        continue;
      }
      std::vector<float> numbers = widened(s->type.dtype, s->data);
      if (p.changes) options_.changes->add(s->name, s->type.dims, numbers);
      if (p.heads > 0 && !numbers.empty()) {
        try {
          permute_rope(numbers, s->type.dims[0], p.heads, false);
        } catch (const Error& e) {
          throw Error(e.code(), folder_.path() + ": tensor '" + s->name + "': " + e.what());
        }
      }
      if (p.plus_one)
        for (float& v : numbers) v += 1;
      encode(p, numbers);
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
  std::vector<Planned> planned_;
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
