// SPDX-License-Identifier: Apache-2.0
// config.json of families with the latent attention or the experts of DeepSeek, and of variants of
// families that other tests read.
#include <doctest/doctest.h>

#include <cmath>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

Json of_type(const char* type, const Json& more) {
  return with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more);
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

// Heads of keys of latent attention.
const Json kAll{{"num_key_value_heads", 32}};

}  // namespace

TEST_SUITE("llm/config latent") {
  TEST_CASE("glm4_moe_lite: latent attention, and layers with experts") {
    const auto lite = [](const Json& more) { return of_type("glm4_moe_lite", with(kAll, more)); };
    ModelConfig c = parse(lite(Json::object()));
    CHECK(c.latent.q_rank == 768);
    CHECK(c.latent.nope_dim == 192);
    CHECK(c.latent.v_dim == 256);
    CHECK(c.latent.interleaved);
    CHECK_FALSE(c.sparse[0]);
    CHECK(c.sparse[1]);
    CHECK(c.moe.experts == 64);
    CHECK(c.moe.scaling == 1.8);
    CHECK(c.moe.correction_bias);
    std::vector<std::string> types(16, "dense");
    types[3] = "sparse";
    c = parse(lite({{"mlp_layer_types", types}, {"rope_interleave", false}}));
    CHECK(c.sparse[3]);
    CHECK_FALSE(c.sparse[4]);
    CHECK_FALSE(c.latent.interleaved);
    types[5] = "other";
    CHECK(has(refused(lite({{"mlp_layer_types", types}})), "'mlp_layer_types'"));
    CHECK(has(refused(lite({{"mlp_layer_types", {"dense"}}})), "'mlp_layer_types'"));
    CHECK(has(refused(lite({{"first_k_dense_replace", 2}})), "'first_k_dense_replace'"));
    CHECK(has(refused(of_type("glm4_moe_lite", Json::object())), "'num_key_value_heads'"));
  }

  TEST_CASE("mistral4: a part of the head is rotated, queries are scaled") {
    const Json rope{{"rope_type", "yarn"},
                    {"factor", 4.0},
                    {"original_max_position_embeddings", 8192},
                    {"mscale_all_dim", 1.0},
                    {"llama_4_scaling_beta", 0.1},
                    {"partial_rotary_factor", 0.5}};
    const auto mistral = [&](const Json& more) {
      return of_type("mistral4", with(with(kAll, {{"rope_parameters", rope}}), more));
    };
    const ModelConfig c = parse(mistral({{"n_group", 4}, {"topk_group", 2}}));
    CHECK(c.rope.dims == 64);
    CHECK(c.rope.query_beta == 0.1);
    CHECK(c.moe.group_score == "top2_sum");
    CHECK(c.moe.score == "softmax");
    CHECK_FALSE(c.moe.correction_bias);
    CHECK(c.sparse[0]);
    CHECK(has(refused(mistral({{"qk_rope_head_dim", 32}})), "'qk_rope_head_dim'"));
    CHECK(has(refused(mistral({{"n_shared_experts", 0}})), "'n_shared_experts'"));
    CHECK(has(refused(of_type("mistral4", kAll)), "'rope_parameters'"));
  }

  TEST_CASE("minicpm3 and youtu: an MLP, and factors") {
    ModelConfig c = parse(of_type("minicpm3", kAll));
    CHECK(c.latent.v_dim == 64);
    CHECK_FALSE(c.latent.interleaved);
    CHECK(c.embed_scale == 12);
    CHECK(c.residual_scale == doctest::Approx(1.4 / 4));
    CHECK(c.logit_scale == 256.0 / 2048);
    CHECK(c.tied);
    c = parse(
        of_type("minicpm3", with(kAll, {{"scale_depth", nullptr}, {"dim_model_base", nullptr}})));
    CHECK(c.residual_scale == 1);
    CHECK(c.logit_scale == 1);
    c = parse(of_type("youtu", kAll));
    CHECK(c.tied);
    CHECK(c.latent.interleaved);
    CHECK(has(refused(of_type("youtu", with(kAll, {{"n_routed_experts", 8}}))),
              "'n_routed_experts'"));
  }

  TEST_CASE("minimax_m2 and phimoe: experts") {
    ModelConfig c = parse(of_type(
        "minimax_m2", {{"rotary_dim", 64}, {"use_qk_norm", true}, {"attn_type_list", {1, 1}}}));
    CHECK(c.head_dim == 128);
    CHECK(c.rope.dims == 64);
    CHECK(c.moe.experts == 256);
    CHECK(c.moe.score == "sigmoid");
    CHECK(c.moe.ffn == 8192);
    CHECK(parse(of_type("minimax_m2", Json::object())).rope.dims == 128);
    CHECK(has(refused(of_type("minimax_m2", {{"attn_type_list", {0, 1}}})), "'attn_type_list'"));
    CHECK(has(refused(of_type("minimax_m2", {{"qk_norm_type", "per_head"}})), "'qk_norm_type'"));
    CHECK(has(refused(of_type("minimax_m2", {{"shared_intermediate_size", 8}})),
              "'shared_intermediate_size'"));

    c = parse(of_type("phimoe", {{"router_jitter_noise", 0.25}, {"lm_head_bias", true}}));
    CHECK(c.moe.jitter == 0.25);
    CHECK(c.moe.experts == 16);
    CHECK(c.head_bias);
    CHECK(c.norm == Norm::layer);
    CHECK(has(refused(of_type("phimoe", {{"num_experts_per_tok", 3}})), "'num_experts_per_tok'"));
    const std::vector<double> short_factors(32, 1), long_factors(32, 2);
    const Json rope{{"type", "longrope"},
                    {"original_max_position_embeddings", 4096},
                    {"short_factor", short_factors},
                    {"long_factor", long_factors},
                    {"short_mscale", 1.25},
                    {"long_mscale", 1.5}};
    c = parse(of_type("phimoe", {{"rope_scaling", rope}}));
    CHECK(c.rope.amplitude(4096) == 1.25);
    CHECK(c.rope.amplitude(4097) == 1.5);
    // No other family has these amplitudes.
    CHECK(has(refused(of_type("phi3", {{"rope_scaling", rope}})), "'long_mscale'"));
    CHECK(has(
        refused(of_type("phimoe", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}})),
        "'rope_scaling'"));
  }

  TEST_CASE("exaone_moe and solar_open: experts as DeepSeek-V3 chooses them") {
    const ModelConfig c = parse(of_type("exaone_moe", {{"num_shared_experts", 2}}));
    CHECK(c.moe.experts == 64);
    CHECK(c.moe.shared_ffn == 2048);
    CHECK(c.moe.scaling == 2.5);
    CHECK_FALSE(c.sparse[0]);
    CHECK(c.no_rope[3]);
    CHECK(has(refused(of_type("exaone_moe", {{"num_shared_experts", 0}})), "'num_shared_experts'"));
    const ModelConfig solar = parse(of_type("solar_open", Json::object()));
    CHECK(solar.sparse[0]);
    CHECK(solar.rope.theta == 1e6);
    CHECK(solar.moe.ffn == 1280);
    CHECK(has(refused(of_type("solar_open", {{"first_k_dense_replace", 1}})),
              "'first_k_dense_replace'"));
  }

  TEST_CASE("granitemoeshared and hyperclovax: what differs from Granite") {
    CHECK(parse(of_type("granitemoeshared", Json::object())).moe.shared_ffn == 0);
    CHECK(parse(of_type("granitemoeshared", {{"shared_intermediate_size", 48}})).moe.shared_ffn ==
          48);
    ModelConfig c = parse(of_type("hyperclovax", {{"logits_scaling", 0.25}}));
    CHECK(c.logit_scale == 0.25);
    CHECK(c.attention_scale == 0);  // that of the head
    CHECK(c.norms_behind);
    c = parse(of_type("hyperclovax", {{"attention_multiplier", 0.5}, {"use_post_norm", false}}));
    CHECK(c.attention_scale == 0.5);
    CHECK_FALSE(c.norms_behind);
  }

  TEST_CASE("olmo, flex_olmo, internlm3, helium, nanochat, jais2, falcon_mamba") {
    ModelConfig c = parse(of_type("olmo", {{"clip_qkv", 8.0}}));
    CHECK(c.norm == Norm::bare_layer);
    CHECK(c.clip_qkv == 8);
    CHECK(c.norm_eps == 1e-5);
    CHECK(has(refused(of_type("olmo", {{"rms_norm_eps", 1e-6}})), "'rms_norm_eps'"));
    c = parse(of_type("flex_olmo", Json::object()));
    CHECK(c.moe.experts == 7);
    CHECK(c.moe.per_token == 5);
    CHECK(c.rope.theta == 5e5);

    const Json biases{{"qkv_bias", true}, {"bias", true}};
    c = parse(of_type("internlm3", with(biases, {{"architectures", {"LlamaForCausalLM"}}})));
    CHECK(c.qkv_bias);
    CHECK(c.mlp_bias);
    CHECK(c.head_dim == 128);
    CHECK(has(refused(of_type("internlm3", {{"qkv_bias", true}, {"bias", false}})), "'bias'"));
    CHECK(has(refused(of_type("internlm3", with(biases, {{"attention_bias", false}}))),
              "'qkv_bias'"));

    c = parse(of_type("helium", {{"head_dim", 64}}));
    CHECK(c.rope_interleaved);
    CHECK(c.rope.theta == 1e5);
    CHECK_FALSE(c.o_bias);
    CHECK(has(refused(of_type("helium", Json::object())), "'head_dim'"));

    c = parse(of_type("nanochat", Json::object()));
    CHECK(c.norm == Norm::bare_rms);
    CHECK(c.activation == "relu2");
    CHECK(c.logit_softcap == 15);
    CHECK(c.rope.frequencies(8)[0] == -1);

    c = parse(of_type("jais2", Json::object()));
    CHECK(c.norm == Norm::layer);
    CHECK(c.activation == "relu2");
    CHECK(c.o_bias);
    CHECK(c.mlp_bias);

    const Json mamba{{"model_type", "falcon_mamba"},
                     {"vocab_size", 96},
                     {"hidden_size", 64},
                     {"num_hidden_layers", 2},
                     {"mixer_rms_eps", 1e-3}};
    c = parse(mamba);
    CHECK(c.mamba.inner_norms);
    CHECK(c.mamba.bare_norms);
    CHECK(c.mamba.norm_eps == 1e-3);
    CHECK(has(refused(with(mamba, {{"model_type", "mamba"}})), "'mixer_rms_eps'"));
  }
}
