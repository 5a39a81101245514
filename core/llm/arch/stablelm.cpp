// SPDX-License-Identifier: Apache-2.0
// StableLM: LayerNorm, a part of each head rotated, optional norms of each head of q and k.
#include <cstring>

#include "llm/arch/families.hpp"

namespace tenon::llm {
namespace {

void read(ConfigReader& r, ModelConfig& c) {
  read_decoder(r, c, {.norm_eps = 1e-5, .eps_key = "layer_norm_eps"});
  c.norm = Norm::layer, c.norm_bias = true;
  c.rope = read_rope(r, c.head_dim, c.context, 1e4, 0.25);
  c.qkv_bias = r.flag("use_qkv_bias", false);
  c.qk_norm = r.flag("qk_layernorm", false);
  c.parallel = r.flag("use_parallel_residual", false);
  r.ignore({"rotary_scaling_factor", "use_flash_attention_2"});
}

// The weights of the norms of all heads as one.
Value own_norms(Step& p, Value x, const std::string& name, int64_t heads) {
  const int64_t dims = p.c.head_dim;
  std::vector<std::string> sources;
  for (int64_t i = 0; i < heads; ++i)
    sources.push_back(name + ".norms." + std::to_string(i) + ".weight");
  const auto join = [heads, dims](const std::vector<Tensor>& parts) {
    Tensor all(TensorType(parts[0].dtype(), {heads, dims}));
    auto* to = static_cast<std::byte*>(all.data());
    for (const Tensor& t : parts) {
      std::memcpy(to, t.data(), t.size());
      to += t.size();
    }
    return all;
  };
  const Value gamma =
      p.made(name + ".weight", sources, {dims}, TENON_DTYPE_NONE, {heads, dims}, join);
  return norm_heads(p, x, gamma, name);
}

Value attention(Step& p, Value normed, int64_t layer, const std::string& name, Value residual) {
  return decoder_attention(p, normed, layer, name, residual,
                           {.q_norm = ".q_layernorm", .k_norm = ".k_layernorm", .norm = own_norms});
}

Value hidden(Step& p) { return decoder_layers(p, attention, decoder_feed_forward); }

}  // namespace

const Architecture kStableLm = {"stablelm", "StableLmForCausalLM", read,
                                hidden,     decoder_norm,          decoder_head};

}  // namespace tenon::llm
