// SPDX-License-Identifier: Apache-2.0
// Qwen2 (biases of q, k and v), Qwen3 (norms of q and k), and their mixtures of experts. Mellum 2: Qwen3
// with experts, and layers with a window and a rope of their own.
#include <algorithm>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read_qwen2(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = true;
  read_optional_window(r, c);
}

void read_qwen3(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  read_optional_window(r, c);
}

void no_window(ConfigReader& r) {
  if (r.flag("use_sliding_window", false)) r.refuse("use_sliding_window", "false");
  r.ignore({"sliding_window", "max_window_layers", "layer_types"});
}

void read_qwen3_moe(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  no_window(r);
  read_qwen_experts(r, c, {.experts = 128, .per_token = 8, .ffn = 768});
}

void read_qwen2_moe(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c);
  c.rope = read_rope(r, c.head_dim, c.context);
  c.qkv_bias = r.flag("qkv_bias", true);
  no_window(r);
  read_qwen_experts(r, c, {.experts = 60, .per_token = 4, .ffn = 1408});
  c.moe.shared_ffn = r.size("shared_expert_intermediate_size", 5632);
  c.moe.shared_gate = true;
}

void read_mellum(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.head_dim = 128});
  read_layer_types(r, c, [](int64_t) { return false; });
  read_typed_ropes(r, c, {.theta = 5e5, .local_theta = 1e4, .named_part = 1});
  c.qkv_bias = c.o_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  read_window_of_types(r, c, 1024);
  read_qwen_experts(r, c, {.experts = 64, .per_token = 8, .ffn = 896, .normalize = true});
  if (std::ranges::find(c.sparse, false) != c.sparse.end())
    r.refuse(r.integers("mlp_only_layers").empty() ? "decoder_sparse_step" : "mlp_only_layers",
             "mlp_layer_types in its place");
  read_dense_and_sparse(r, c, 0);
  // Of layers that predict further tokens, and what transformers does not read.
  r.ignore({"num_nextn_predict_layers", "num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types",
            "use_sliding_window", "max_window_layers"});
}

}  // namespace

void read_qwen_experts(ConfigReader& r, ModelConfig& c, const QwenExperts& defaults) {
  // transformers 5 writes num_local_experts.
  const char* const key = r.has("num_local_experts") ? "num_local_experts" : "num_experts";
  c.moe.experts = r.size(key, defaults.experts, 1 << 16);
  c.moe.per_token = r.size("num_experts_per_tok", defaults.per_token, c.moe.experts);
  c.moe.ffn = r.size("moe_intermediate_size", defaults.ffn);
  c.moe.normalize = r.flag("norm_topk_prob", defaults.normalize);
  const int64_t step = r.size("decoder_sparse_step", 1);
  for (int64_t i = 0; i < c.layers; ++i) c.sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  for (const int64_t i : r.integers("mlp_only_layers")) {
    if (i < 0 || i >= c.layers) r.refuse("mlp_only_layers", "numbers of layers");
    c.sparse[static_cast<size_t>(i)] = false;
  }
}

const Architecture kQwen2 = {"qwen2",        "Qwen2ForCausalLM", read_qwen2,
                             decoder_hidden, decoder_norm,       decoder_head};
const Architecture kQwen3 = {"qwen3",        "Qwen3ForCausalLM", read_qwen3,
                             decoder_hidden, decoder_norm,       decoder_head};
const Architecture kQwen3Moe = {"qwen3_moe",    "Qwen3MoeForCausalLM", read_qwen3_moe,
                                decoder_hidden, decoder_norm,          decoder_head};
const Architecture kMellum = {"mellum",       "MellumForCausalLM", read_mellum,
                              decoder_hidden, decoder_norm,        decoder_head};
const Architecture kQwen2Moe = {"qwen2_moe",    "Qwen2MoeForCausalLM", read_qwen2_moe,
                                decoder_hidden, decoder_norm,          decoder_head};

}  // namespace tenon::llm
