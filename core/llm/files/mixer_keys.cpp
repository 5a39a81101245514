// SPDX-License-Identifier: Apache-2.0
// config.json of Mamba-2, Granite 4, Falcon-H1, Nemotron-H and Jamba to keys of GGUF.
#include "llm/files/mixer_keys.hpp"

#include <cmath>

#include "llm/files/key_fields.hpp"

namespace tenon::llm::files {
namespace {

class Writer {
 public:
  Writer(GgufWriter& out, const Family& family, const ModelConfig& model, const Json& config,
         const std::string& file)
      : f_(out, family, config, file), out_(out), family_(family), c_(model), m_(model.mamba) {}

  void set_all() {
    f_.set("context_length", c_.context);
    f_.set("embedding_length", c_.dim);
    f_.set("block_count", c_.layers);
    f_.set("vocab_size", c_.vocab);
    f_.set_real("attention.layer_norm_rms_epsilon", c_.norm_eps);
    // llama.cpp asks for it under this name.
    if (is_nemotron(family_)) f_.set_real("attention.layer_norm_epsilon", c_.norm_eps);
    mixers();
    if (family_.gguf == "mamba2") {
      f_.set("feed_forward_length", 0);
      f_.set("attention.head_count", 0);
      return;
    }
    if (c_.activation != family_.activation)
      f_.refuse(is_nemotron(family_) ? "mlp_hidden_act" : "hidden_act", c_.activation,
                std::string(family_.activation));
    f_.set("attention.head_count", c_.heads);
    if (family_.gguf == "granitehybrid") granite();
    if (family_.gguf == "falcon-h1") falcon();
    if (is_nemotron(family_)) nemotron();
    if (family_.gguf == "jamba") jamba();
  }

 private:
  void mixers() {
    const bool first = family_.gguf == "jamba";
    // llama.cpp has no other size.
    const bool doubled = first || family_.gguf == "mamba2" || family_.gguf == "granitehybrid";
    if (doubled && m_.inner != 2 * c_.dim)
      f_.refuse(family_.gguf == "mamba2" ? "expand" : "mamba_expand",
                std::to_string(m_.inner) + " channels", "2");
    if (m_.bias || m_.out_bias)
      f_.refuse(family_.gguf == "mamba2" || is_nemotron(family_) ? "use_bias"
                : m_.bias                                        ? "mamba_proj_bias"
                                                                 : "projectors_bias",
                "true", "false");
    if (!m_.conv_bias && (first || family_.gguf == "mamba2"))
      f_.refuse(first ? "mamba_conv_bias" : "use_conv_bias", "false", "true");
    const double least = is_nemotron(family_) ? kNemotronLeastStep : 0;
    if (m_.least_step != least || std::isfinite(m_.most_step))
      f_.refuse(is_nemotron(family_) ? "time_step_min" : "time_step_limit",
                std::to_string(m_.least_step) + " to " + std::to_string(m_.most_step),
                std::to_string(least) + " and no upper limit");
    f_.set("ssm.conv_kernel", m_.conv_width);
    f_.set("ssm.inner_size", m_.inner);
    f_.set("ssm.state_size", m_.state_size);
    f_.set("ssm.time_step_rank", first ? m_.dt_rank : m_.heads);
    if (!first) f_.set("ssm.group_count", m_.groups);
  }

  // A number of each layer, 0 where it lacks the part.
  void set_list(const char* name, int64_t number, Layers part, Layers other) {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < c_.layers; ++i)
      all.push_back(has_part(c_, part, i) || has_part(c_, other, i) ? static_cast<int32_t>(number)
                                                                    : 0);
    out_.set(f_.key(name), all);
  }
  void kv_heads() {
    set_list("attention.head_count_kv", c_.kv_heads, Layers::attention, Layers::attention);
  }
  void head_size() {
    f_.set("attention.key_length", c_.head_dim);
    f_.set("attention.value_length", c_.head_dim);
  }
  void rope() {
    if (c_.rope.type != llm::RopeConfig::Type::plain)
      f_.refuse("rope_type", "a scaled rope", "'default'");
    f_.set_real("rope.freq_base", c_.rope.theta);
    f_.set("rope.dimension_count", c_.rope.dims);
  }

  void granite() {
    const bool rotates = c_.no_rope.empty();
    kv_heads();
    if (c_.head_dim * c_.heads != c_.dim) head_size();
    if (rotates) rope();
    f_.set_flag("rope.scaling.finetuned", rotates);  // says whether q and k are rotated
    f_.set("feed_forward_length", c_.moe.experts > 0 ? c_.moe.ffn : c_.moe.shared_ffn);
    if (c_.moe.experts > 0) {
      f_.set("expert_count", c_.moe.experts);
      f_.set("expert_used_count", c_.moe.per_token);
      f_.set("expert_shared_feed_forward_length", c_.moe.shared_ffn);
    }
    f_.set_real("attention.scale", c_.attention_scale);
    f_.set_real("embedding_scale", c_.embed_scale);
    f_.set_real("residual_scale", c_.residual_scale);
    f_.set_real("logit_scale", f_.real("logits_scaling", 1));
  }

  void falcon() {
    if (m_.norm == MixerNorm::before_gate) f_.refuse("mamba_norm_before_gate", "true", "false");
    if (c_.tied && c_.embed_scale != c_.logit_scale)
      f_.refuse("tie_word_embeddings", "true", "false beside other factors of both matrices");
    if (c_.qkv_bias) f_.refuse("attention_bias", "true", "false");
    if (c_.mlp_bias) f_.refuse("mlp_bias", "true", "false");
    f_.set("attention.head_count_kv", c_.kv_heads);
    f_.set("feed_forward_length", c_.ffn);
    head_size();
    rope();
  }

  void nemotron() {
    kv_heads();
    head_size();
    const MoeConfig& e = c_.moe;
    set_list("feed_forward_length", e.experts > 0 ? e.ffn : c_.ffn, Layers::dense, Layers::sparse);
    if (e.experts == 0) return;
    if (c_.pattern.find('-') != c_.pattern.npos)
      f_.refuse("layers_block_type", "mlp beside moe", "one of them");
    if (e.groups > 1) f_.refuse("n_group", std::to_string(e.groups), "1");
    f_.set("expert_count", e.experts);
    f_.set("expert_used_count", e.per_token);
    f_.set("expert_feed_forward_length", e.ffn);
    f_.set("expert_shared_feed_forward_length", e.shared_ffn);
    f_.set("expert_shared_count", 1);
    f_.set("expert_group_count", 1);
    f_.set_flag("expert_weights_norm", e.normalize);
    f_.set_real("expert_weights_scale", e.scaling);
  }

  void jamba() {
    kv_heads();
    f_.set("feed_forward_length", c_.ffn);
    f_.set("expert_count", c_.moe.experts);
    f_.set("expert_used_count", c_.moe.per_token);
  }

  Fields f_;
  GgufWriter& out_;
  const Family& family_;
  const ModelConfig& c_;
  const MambaConfig& m_;
};

}  // namespace

void set_mixer_keys(GgufWriter& out, const Family& family, const ModelConfig& model,
                    const Json& config, const std::string& file) {
  Writer(out, family, model, config, file).set_all();
}

bool has_part(const ModelConfig& c, Layers part, int64_t layer) {
  const auto i = static_cast<size_t>(layer);
  if (!c.pattern.empty()) {
    const char letter = c.pattern[i];
    return part == Layers::recurrent   ? letter == 'M'
           : part == Layers::attention ? letter == '*'
           : part == Layers::dense     ? letter == '-'
                                       : letter == 'E';
  }
  const bool all_sparse = c.architecture->model_type == "granitemoehybrid" && c.moe.experts > 0;
  const bool sparse = all_sparse || (i < c.sparse.size() && c.sparse[i]);
  if (part == Layers::sparse) return sparse;
  if (part == Layers::dense) return !sparse;
  if (c.recurrent_layers.empty()) return true;  // both, or mixers alone
  return c.recurrent_layers[i] == (part == Layers::recurrent);
}

void scale_falcon(const ModelConfig& c, const std::string& tensor, std::vector<float>& numbers) {
  const FalconScales& s = c.falcon;
  const MambaConfig& m = c.mamba;
  const auto is = [&](const char* end) { return tensor.ends_with(end); };
  const auto scale = [](std::span<float> part, double factor) {
    for (float& v : part) v = static_cast<float>(v * factor);
  };
  const std::span<float> all(numbers);
  if (is("mamba.in_proj.weight")) {
    const auto columns = static_cast<size_t>(c.dim);
    const int64_t shared = m.groups * m.state_size,
                  rows[] = {m.inner, m.inner, shared, shared, m.heads};
    size_t at = 0;
    for (size_t i = 0; i < 5; ++i) {
      const size_t count = static_cast<size_t>(rows[i]) * columns;
      if (at + count <= all.size()) scale(all.subspan(at, count), m.in_scale * m.part_scales[i]);
      at += count;
    }
    return;
  }
  const std::pair<const char*, double> factors[] = {
      {"embed_tokens.weight", c.embed_scale}, {"lm_head.weight", c.logit_scale},
      {"q_proj.weight", s.attention_in},      {"k_proj.weight", s.attention_in * s.key},
      {"v_proj.weight", s.attention_in},      {"o_proj.weight", s.attention_out},
      {"gate_proj.weight", s.gate},           {"down_proj.weight", s.down},
      {"mamba.out_proj.weight", s.mixer}};
  for (const auto& [end, factor] : factors)
    if (is(end)) scale(all, factor);
}

}  // namespace tenon::llm::files
