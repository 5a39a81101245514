// SPDX-License-Identifier: Apache-2.0
// Keys of GGUF to config.json.
#include <algorithm>
#include <cmath>

#include "llm/files/config_keys.hpp"
#include "llm/files/expert_keys.hpp"
#include "llm/files/mixer_keys.hpp"
#include "llm/files/own_keys.hpp"
#include "llm/json_text.hpp"

namespace tenon::llm::files {
namespace {

class Reader {
 public:
  Reader(const Gguf& model, const Family& family, const std::string& file)
      : model_(model), family_(family), file_(file) {}

  Json read(const std::string& dtype) {
    out_["architectures"] = {family_.architecture};
    out_["model_type"] = family_.model_type;
    out_["dtype"] = dtype;
    out_["vocab_size"] = vocabulary();
    out_["tie_word_embeddings"] = !model_.has_tensor("output.weight");
    if (family_.hybrid)
      read_mixer_keys(model_, family_, file_, out_);
    else if (!read_own_keys(model_, family_, file_, out_))
      read_decoder();
    token_ids();
    return std::move(out_);
  }

 private:
  void read_decoder() {
    size("context_length", "max_position_embeddings");
    const int64_t hidden = size("embedding_length", "hidden_size");
    size("block_count", "num_hidden_layers");
    if (family_.gguf != "qwen35moe" || has("feed_forward_length"))
      size("feed_forward_length", "intermediate_size");
    const int64_t heads = size("attention.head_count", "num_attention_heads");
    if (!family_.has_short_convolutions())  // see read_hybrid_keys()
      out_["num_key_value_heads"] =
          has("attention.head_count_kv") ? number("attention.head_count_kv") : heads;
    out_[family_.eps] = real(family_.layer_norm() ? "attention.layer_norm_epsilon"
                                                  : "attention.layer_norm_rms_epsilon");
    const int64_t head = has("attention.key_length") ? number("attention.key_length")
                                                     : hidden / std::max<int64_t>(heads, 1);
    if (head < 1)
      throw Error(TENON_CORRUPT, file_ + ": key '" + key("attention.key_length") +
                                     "': expected heads of at least 1 number, got " +
                                     std::to_string(head) + " by " + std::to_string(heads) +
                                     " heads and an embedding_length of " + std::to_string(hidden));
    out_["head_dim"] = head;
    if (family_.names.size() > 4 && model_.has_tensor("blk.0.attn_q.bias") &&
        family_.model_type != "qwen2" && family_.model_type != "qwen2_moe")
      out_["attention_bias"] = true;
    if (model_.has_tensor("blk.0.ffn_up.bias")) out_["mlp_bias"] = true;
    rope(head);
    if (family_.gguf == "deepseek2")
      read_deepseek_keys(model_, family_, file_, out_);
    else
      experts();
    attention();
    if (family_.is_gemma())
      out_["hidden_activation"] = "gelu_pytorch_tanh";
    else
      out_["hidden_act"] = family_.activation;
    if (family_.gguf == "gemma") out_["hidden_act"] = "gelu_pytorch_tanh";
    read_more_keys(model_, family_, file_, out_);
  }

  void token_ids() {
    for (const auto& [key, name] : {std::pair("bos_token_id", "bos_token_id"),
                                    {"eos_token_id", "eos_token_id"},
                                    {"padding_token_id", "pad_token_id"}}) {
      const std::string k = std::string("tokenizer.ggml.") + key;
      // Null, where the defaults of transformers may lie outside of the vocabulary.
      out_[name] = nullptr;
      if (model_.has(k)) out_[name] = in_file([&] { return model_.number<int64_t>(k); });
    }
  }

  std::string key(std::string_view name) const {
    return std::string(family_.gguf) + "." + std::string(name);
  }
  bool has(std::string_view name) const { return model_.has(key(name)); }
  int64_t number(std::string_view name) const {
    const auto n = in_file([&] { return model_.number<int64_t>(key(name)); });
    if (n < 0 || n > INT32_MAX)
      throw Error(TENON_CORRUPT, file_ + ": key '" + key(name) + "' is " + std::to_string(n));
    return n;
  }
  double real(std::string_view name) const {
    return finite(in_file([&] { return model_.number<float>(key(name)); }), key(name), file_);
  }
  int64_t size(std::string_view name, const char* field_name) {
    const int64_t n = number(name);
    if (n < 1) throw Error(TENON_CORRUPT, file_ + ": key '" + key(name) + "' is 0");
    out_[field_name] = n;
    return n;
  }
  // Errors of the API name the key; these name the file, too.
  template <class Read>
  auto in_file(Read read) const -> decltype(read()) {
    try {
      return read();
    } catch (const Error& e) {
      throw Error(e.code(), file_ + ": " + e.what());
    }
  }

  int64_t vocabulary() const {
    if (has("vocab_size")) return number("vocab_size");
    const GgufTensor t = in_file([&] { return model_.tensor("token_embd.weight"); });
    return t.dims.empty() ? 0 : t.dims[0];
  }

  void rope(int64_t head) {
    out_["rope_theta"] = has("rope.freq_base") ? real("rope.freq_base") : 10000.0;
    if (family_.model_type == "gemma3_text")
      out_["rope_local_base_freq"] =
          has("rope.freq_base_swa") ? real("rope.freq_base_swa") : 10000.0;
    if (family_.rope_part > 0)
      out_["partial_rotary_factor"] =
          has("rope.dimension_count") ? part_of(head, number("rope.dimension_count")) : 1.0;
    // A file that says nothing would have a scaled embedding.
    if (family_.model_type == "ministral3" || family_.model_type == "gpt_oss")
      out_["rope_scaling"] = {{"rope_type", "default"}};
    if (model_.has_tensor("rope_freqs.weight")) {
      out_["rope_scaling"] = llama3();
    } else if (model_.has_tensor("rope_factors_long.weight")) {
      out_["original_max_position_embeddings"] = number("rope.scaling.original_context_length");
      out_["rope_scaling"] = {{"rope_type", "longrope"},
                              {"long_factor", list("rope_factors_long.weight")},
                              {"short_factor", list("rope_factors_short.weight")}};
    } else if (has("rope.scaling.type")) {
      const std::string type = in_file([&] { return model_.text(key("rope.scaling.type")); });
      if (type == "none") return;
      if (type != "linear" && type != "yarn")
        throw Error(TENON_UNSUPPORTED, file_ + ": key '" + key("rope.scaling.type") + "' is '" +
                                           type + "'; expected none, linear or yarn");
      Json scaling{{"rope_type", type}, {"factor", real("rope.scaling.factor")}};
      if (has("rope.scaling.original_context_length"))
        scaling["original_max_position_embeddings"] =
            number("rope.scaling.original_context_length");
      for (const std::string name : {"beta_fast", "beta_slow"})
        if (has("rope.scaling.yarn_" + name)) scaling[name] = real("rope.scaling.yarn_" + name);
      if (family_.gguf == "deepseek2" && type == "yarn") {
        // Rounded, as a tenth of it went through an f32.
        const double all = 1e-6 * std::round(1e7 * real("rope.scaling.yarn_log_multiplier"));
        scaling["mscale"] = scaling["mscale_all_dim"] = all;
      }
      if (family_.gguf == "mistral3" && has("rope.scaling.yarn_log_multiplier"))
        scaling["mscale"] = 1.0,
        scaling["mscale_all_dim"] = real("rope.scaling.yarn_log_multiplier");
      if (family_.gguf == "gpt-oss" && type == "yarn") scaling["truncate"] = false;
      out_["rope_scaling"] = scaling;
    }
  }
  // Readers multiply and cut off what is behind the point: 44 * (30.0 / 44) would become 29.
  static double part_of(int64_t head, int64_t dims) {
    const double part = static_cast<double>(dims) / static_cast<double>(head);
    const bool below = static_cast<int64_t>(part * static_cast<double>(head)) < dims;
    return below ? std::nextafter(part, 2.0 * part) : part;
  }
  std::vector<double> list(const char* tensor) const {
    const GgufTensor t = in_file([&] { return model_.tensor(tensor); });
    std::vector<double> out;
    for (const float f : gguf_decode<float>(gguf_format(t.type), t.data))
      out.push_back(finite(f, tensor, file_));
    return out;
  }
  // The fields that the divisors were made from: kept by this converter, else those of all models
  // that were published, if they give the same divisors.
  Json llama3() const {
    Json scaling{{"rope_type", "llama3"},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 8192}};
    const std::vector<double> divisors = list("rope_freqs.weight");
    scaling["factor"] = divisors.empty() ? 1.0 : divisors.back();
    if (model_.has("tenon.rope_scaling")) {
      const Json kept =
          parse_object(model_.text("tenon.rope_scaling"), file_ + ": key 'tenon.rope_scaling'");
      if (!std::ranges::all_of(kept, [](const Json& v) { return v.is_primitive(); }))
        throw Error(TENON_CORRUPT,
                    file_ + ": key 'tenon.rope_scaling': expected a JSON object of numbers");
      return kept;
    }
    Json config = out_;
    for (const double high : {4.0, 1.0}) {  // 1: Llama 4
      scaling["high_freq_factor"] = high;
      config["rope_scaling"] = scaling;
      const std::vector<float> again = rope_tensors(config, file_).at(0).numbers;
      bool same = again.size() == divisors.size();
      for (size_t i = 0; same && i < again.size(); ++i)
        same = std::fabs(again[i] - divisors[i]) <= 1e-3 * divisors[i];
      if (same) return scaling;
    }
    throw Error(TENON_UNSUPPORTED,
                file_ +
                    ": rope_freqs.weight: expected the divisors of llama3 with the factors 1 and "
                    "4, or 1 and 1, and a context of 8192");
  }

  void experts() {
    if (family_.experts.empty()) return;
    if (sets_own_experts(family_)) return;
    const bool local = family_.model_type == "mixtral" || family_.model_type == "gpt_oss" ||
                       family_.model_type == "granitemoe";
    size("expert_count", local ? "num_local_experts" : "num_experts");
    size("expert_used_count", "num_experts_per_tok");
    if (!family_.gguf.starts_with("qwen")) return;
    size("expert_feed_forward_length", "moe_intermediate_size");
    if (family_.gguf == "qwen2moe") return;
    out_["norm_topk_prob"] = !has("expert_weights_norm") || in_file([&] {
      return model_.number<bool>(key("expert_weights_norm"));
    });
  }

  void attention() {
    if (has("attention.causal") &&
        !in_file([&] { return model_.number<bool>(key("attention.causal")); }))
      throw Error(TENON_UNSUPPORTED, file_ + ": key '" + key("attention.causal") +
                                         "' is false; expected true: tokens see earlier ones only");
    // llama.cpp's converter writes 0 for none.
    if (has("attention.sliding_window") && number("attention.sliding_window") > 0) {
      out_["sliding_window"] = number("attention.sliding_window");
      if (family_.gguf.starts_with("qwen")) out_["use_sliding_window"] = true;
    }
    for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (has(name)) out_[name] = real(name);
    if (!family_.is_gemma() || family_.gguf == "gemma") return;
    // Whole in all models that were published; 1 / sqrt of it went through an f32.
    out_["query_pre_attn_scalar"] =
        has("attention.scale")
            ? std::llround(std::clamp(std::pow(real("attention.scale"), -2), 1.0, 1e9))
            : usual_query_scalar(out_, family_, file_);
    if (family_.model_type != "gemma3_text") return;
    const int64_t every =
        has("attention.sliding_window_pattern") ? number("attention.sliding_window_pattern") : 6;
    Json types = Json::array();
    for (int64_t i = 0; i < number("block_count") && i < 4096; ++i)
      types.push_back(every > 0 && (i + 1) % every == 0 ? "full_attention" : "sliding_attention");
    out_["layer_types"] = types;
    out_["sliding_window_pattern"] = every;
  }

  const Gguf& model_;
  const Family& family_;
  const std::string& file_;
  Json out_ = Json::object();
};

}  // namespace

Json config_from_keys(const Gguf& model, const Family& family, const std::string& dtype,
                      const std::string& file) {
  return Reader(model, family, file).read(dtype);
}

}  // namespace tenon::llm::files
