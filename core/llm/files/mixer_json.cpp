// SPDX-License-Identifier: Apache-2.0
// Keys of GGUF to config.json of Mamba-2, Granite 4, Falcon-H1, Nemotron-H and Jamba.
#include <algorithm>
#include <cmath>

#include "llm/files/key_fields.hpp"
#include "llm/files/mixer_keys.hpp"

namespace tenon::llm::files {
namespace {

class Reader {
 public:
  Reader(const Gguf& model, const Family& family, const std::string& file, Json& out)
      : model_(model), family_(family), k_(model, family, file), out_(out) {}

  void read_all() {
    layers_ = size("block_count");
    if (layers_ > 4096)
      k_.refuse("block_count", std::to_string(layers_) + "; expected at most 4096");
    dim_ = size("embedding_length");
    inner_ = size("ssm.inner_size");
    out_["num_hidden_layers"] = layers_;
    out_["hidden_size"] = dim_;
    const double eps = k_.real(k_.has("attention.layer_norm_rms_epsilon") || !is_nemotron(family_)
                                   ? "attention.layer_norm_rms_epsilon"
                                   : "attention.layer_norm_epsilon");
    out_[family_.gguf == "mamba2" || is_nemotron(family_) ? "layer_norm_epsilon" : "rms_norm_eps"] =
        eps;
    if (family_.gguf == "mamba2") return mamba2();
    out_["max_position_embeddings"] = size("context_length");
    out_["num_attention_heads"] = size("attention.head_count");
    if (family_.gguf == "granitehybrid") granite();
    if (family_.gguf == "falcon-h1") falcon();
    if (is_nemotron(family_)) nemotron();
    if (family_.gguf == "jamba") jamba();
  }

 private:
  int64_t size(const char* name) const {
    const int64_t n = k_.integer(name);
    if (n < 1) k_.refuse(name, "0; expected 1 or more");
    return n;
  }
  int64_t heads() const {
    const int64_t n = size("ssm.time_step_rank");
    if (inner_ % n != 0)
      k_.refuse("ssm.time_step_rank", std::to_string(n) + "; expected a divisor of the " +
                                          std::to_string(inner_) + " of ssm.inner_size");
    return n;
  }
  int64_t expand() const {
    if (inner_ % dim_ != 0)
      k_.refuse("ssm.inner_size", std::to_string(inner_) + "; expected a multiple of the " +
                                      std::to_string(dim_) + " of embedding_length");
    return inner_ / dim_;
  }
  bool is_tensor(int64_t layer, const char* name) const {
    return model_.has_tensor("blk." + std::to_string(layer) + "." + name);
  }
  bool any(const char* name) const {
    for (int64_t i = 0; i < layers_; ++i)
      if (is_tensor(i, name)) return true;
    return false;
  }

  // A number for each layer: a list, or one for all.
  std::vector<int64_t> of_layers(const char* name) const {
    std::vector<int64_t> all = k_.integers(name);
    if (all.size() == 1) all.assign(static_cast<size_t>(layers_), all[0]);
    if (static_cast<int64_t>(all.size()) != layers_)
      k_.refuse(name, "a list of " + std::to_string(all.size()) + "; expected " +
                          std::to_string(layers_) + ", one for each layer");
    for (const int64_t n : all)
      if (n < 0 || n > INT32_MAX) k_.refuse(name, "a list with " + std::to_string(n));
    return all;
  }
  // Which layers have attention; sets num_key_value_heads.
  std::vector<bool> attention() const {
    int64_t heads = 0;
    std::vector<bool> attends;
    for (const int64_t n : of_layers("attention.head_count_kv")) {
      if (n > 0 && heads > 0 && n != heads)
        k_.refuse("attention.head_count_kv", "a list of different numbers; expected one beside 0");
      heads = std::max(heads, n);
      attends.push_back(n > 0);
    }
    out_["num_key_value_heads"] = heads > 0 ? Json(heads) : out_["num_attention_heads"];
    return attends;
  }

  void mamba2() {
    out_["expand"] = expand();
    out_["num_heads"] = heads();
    out_["head_dim"] = inner_ / heads();
    out_["n_groups"] = size("ssm.group_count");
    out_["state_size"] = size("ssm.state_size");
    out_["conv_kernel"] = size("ssm.conv_kernel");
    out_["hidden_act"] = "silu";
    out_["use_bias"] = false;
    out_["use_conv_bias"] = true;
  }

  void hybrid_mixers() {
    if (family_.gguf != "falcon-h1") out_["mamba_expand"] = expand();
    out_["mamba_n_heads"] = heads();
    out_["mamba_d_head"] = inner_ / heads();
    out_["mamba_n_groups"] = size("ssm.group_count");
    out_["mamba_d_state"] = size("ssm.state_size");
    out_["mamba_d_conv"] = size("ssm.conv_kernel");
    out_["mamba_conv_bias"] = any("ssm_conv1d.bias");
    out_["mamba_proj_bias"] = false;
    out_["hidden_act"] = "silu";
  }

  void rope() {
    if (k_.has("rope.scaling.type") &&
        model_.text(std::string(family_.gguf) + ".rope.scaling.type") != "none")
      k_.refuse("rope.scaling.type", "not supported for this architecture; expected none");
    out_["rope_theta"] = k_.has("rope.freq_base") ? k_.real("rope.freq_base") : 10000.0;
  }

  void granite() {
    const std::vector<bool> attends = attention();
    Json types = Json::array();
    for (const bool a : attends) types.push_back(a ? "attention" : "mamba");
    out_["layer_types"] = types;
    hybrid_mixers();
    const bool rotates = !k_.has("rope.scaling.finetuned") || k_.flag("rope.scaling.finetuned");
    out_["position_embedding_type"] = rotates ? "rope" : "nope";
    if (rotates) rope();
    if (k_.has("attention.key_length")) out_["head_dim"] = size("attention.key_length");
    const int64_t ffn = size("feed_forward_length");
    const bool sparse = !family_.experts.empty();
    out_["intermediate_size"] = ffn;
    out_["shared_intermediate_size"] = sparse ? size("expert_shared_feed_forward_length") : ffn;
    out_["num_local_experts"] = sparse ? size("expert_count") : 0;
    if (sparse) out_["num_experts_per_tok"] = size("expert_used_count");
    out_["attention_bias"] = any("attn_q.bias");
    const auto scale = [&](const char* key, const char* name) {
      if (k_.has(key)) out_[name] = k_.real(key);
    };
    scale("embedding_scale", "embedding_multiplier");
    scale("residual_scale", "residual_multiplier");
    scale("logit_scale", "logits_scaling");
    // Zero stands for the usual scale.
    if (k_.has("attention.scale") && k_.real("attention.scale") > 0)
      scale("attention.scale", "attention_multiplier");
    else
      out_["attention_multiplier"] =
          std::sqrt(out_["num_attention_heads"].get<double>() / static_cast<double>(dim_));
  }

  void falcon() {
    attention();
    hybrid_mixers();
    rope();
    out_["mamba_d_ssm"] = inner_;
    out_["mamba_rms_norm"] = any("ssm_norm.weight");
    out_["mamba_norm_before_gate"] = false;
    out_["intermediate_size"] = size("feed_forward_length");
    if (k_.has("attention.key_length")) out_["head_dim"] = size("attention.key_length");
    out_["attention_bias"] = any("attn_q.bias");
    out_["mlp_bias"] = any("ffn_up.bias");
  }

  void nemotron() {
    const std::vector<bool> attends = attention();
    const std::vector<int64_t> widths = of_layers("feed_forward_length");
    const bool sparse = !family_.experts.empty();
    int64_t width = 0;
    Json types = Json::array();
    for (size_t i = 0; i < attends.size(); ++i) {
      if (widths[i] > 0 && width > 0 && widths[i] != width)
        k_.refuse("feed_forward_length", "a list of different numbers; expected one beside 0");
      width = std::max(width, widths[i]);
      types.push_back(widths[i] > 0 ? (sparse ? "moe" : "mlp")
                      : attends[i]  ? "full_attention"
                                    : "linear_attention");
    }
    out_["layers_block_type"] = types;
    out_["head_dim"] = size("attention.key_length");
    out_["mamba_num_heads"] = heads();
    out_["mamba_head_dim"] = inner_ / heads();
    out_["n_groups"] = size("ssm.group_count");
    out_["ssm_state_size"] = size("ssm.state_size");
    out_["conv_kernel"] = size("ssm.conv_kernel");
    out_["use_conv_bias"] = any("ssm_conv1d.bias");
    out_["use_bias"] = false;
    out_["time_step_min"] = kNemotronLeastStep;
    out_["mamba_hidden_act"] = "silu";
    out_["mlp_hidden_act"] = "relu2";
    out_["mlp_bias"] = any("ffn_up.bias");
    if (width > 0 && !sparse) out_["intermediate_size"] = width;
    if (!sparse) return;
    out_["n_routed_experts"] = size("expert_count");
    out_["num_experts_per_tok"] = size("expert_used_count");
    out_["moe_intermediate_size"] = size("expert_feed_forward_length");
    out_["moe_shared_expert_intermediate_size"] = size("expert_shared_feed_forward_length");
    out_["norm_topk_prob"] = k_.flag("expert_weights_norm");
    out_["routed_scaling_factor"] =
        k_.has("expert_weights_scale") ? k_.real("expert_weights_scale") : 1;
    for (const char* key : {"expert_group_count", "moe_latent_size"})
      if (const int64_t n = k_.integer(key, 0); n > 1)
        k_.refuse(key, std::to_string(n) + "; expected none");
  }

  // Fields for "every `period` layers from `offset` on".
  void set_period(const std::string& which, const std::vector<bool>& chosen, const char* key) {
    int64_t first = -1, period = layers_ + 1;
    for (int64_t i = 0; i < layers_; ++i) {
      if (!chosen[static_cast<size_t>(i)]) continue;
      if (first >= 0) {
        period = i - first;
        break;
      }
      first = i;
    }
    const int64_t offset = first < 0 ? layers_ : first;
    bool regular = offset < period;
    for (int64_t i = 0; i < layers_; ++i)
      regular = regular && chosen[static_cast<size_t>(i)] == (i % period == offset);
    if (!regular) k_.refuse(key, "irregular; expected every n-th layer");
    out_[which + "_layer_period"] = period;
    out_[which + "_layer_offset"] = offset;
  }

  void jamba() {
    set_period("attn", attention(), "attention.head_count_kv");
    std::vector<bool> sparse;
    for (int64_t i = 0; i < layers_; ++i) sparse.push_back(is_tensor(i, "ffn_gate_inp.weight"));
    set_period("expert", sparse, "expert_count");
    const int64_t count = k_.integer("expert_count", 0);
    out_["num_experts"] = std::max<int64_t>(count, 1);
    if (count > 1) out_["num_experts_per_tok"] = size("expert_used_count");
    out_["intermediate_size"] = size("feed_forward_length");
    out_["mamba_expand"] = expand();
    out_["mamba_d_state"] = size("ssm.state_size");
    out_["mamba_d_conv"] = size("ssm.conv_kernel");
    out_["mamba_dt_rank"] = size("ssm.time_step_rank");
    out_["mamba_conv_bias"] = true;
    out_["mamba_proj_bias"] = false;
    out_["hidden_act"] = "silu";
  }

  const Gguf& model_;
  const Family& family_;
  const FileKeys k_;
  Json& out_;
  int64_t layers_ = 0, dim_ = 0, inner_ = 0;
};

}  // namespace

void read_mixer_keys(const Gguf& model, const Family& family, const std::string& file, Json& out) {
  Reader(model, family, file, out).read_all();
}

}  // namespace tenon::llm::files
