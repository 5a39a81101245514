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

  TEST_CASE("sarvam_moe: names of keys, and what differs from GLM-4.5") {
    const auto moe = [](const Json& more) { return of_type("sarvam_moe", more); };
    ModelConfig c = parse(moe(Json::object()));
    CHECK(c.head_dim == 64);
    CHECK(c.rope.dims == 64);
    CHECK(c.rope.theta == 8e6);
    CHECK(c.qk_norm);
    CHECK_FALSE(c.qkv_bias);
    CHECK(c.moe.experts == 128);
    CHECK(c.moe.per_token == 6);
    CHECK(c.moe.shared_ffn == 1024);
    CHECK(c.moe.scaling == 2.5);
    CHECK(c.moe.normalize);
    CHECK_FALSE(c.sparse[0]);
    CHECK(c.sparse[1]);
    CHECK(c.extra_layers == 0);
    Json no_key_heads = moe(Json::object());
    no_key_heads.erase("num_key_value_heads");
    CHECK(parse(no_key_heads).kv_heads == 4);
    c = parse(moe({{"architectures", {"SarvamMoEForCausalLM"}},
                   {"num_experts", 16},
                   {"num_shared_experts", 2},
                   {"use_qkv_bias", true},
                   {"num_mtp_layers", 1},
                   {"score_function", "sigmoid"},
                   {"moe_router_enable_expert_bias", true},
                   {"max_window_layers", 16},
                   {"rope_scaling", nullptr}}));
    CHECK(c.moe.experts == 16);
    CHECK(c.moe.shared_ffn == 2048);
    CHECK(c.qkv_bias);
    CHECK(c.extra_layers == 1);
    // Two names of a key agree.
    const Json names{{"num_experts", "n_routed_experts"},
                     {"num_local_experts", "num_experts"},
                     {"num_shared_experts", "n_shared_experts"},
                     {"num_mtp_layers", "num_nextn_predict_layers"}};
    for (const auto& [one, other] : names.items()) {
      CAPTURE(one);
      const std::string second = other;
      CHECK_NOTHROW(parse(moe({{one, 8}, {second, 8}})));
      CHECK_NOTHROW(parse(moe({{one, 8}, {second, nullptr}})));
      CHECK(has(refused(moe({{one, 8}, {second, 9}})), "another name of this key"));
    }
    CHECK(has(refused(moe({{"attention_bias", false}, {"use_qkv_bias", true}})), "'use_qkv_bias'"));
    const Json deepseek{{"type", "deepseek_yarn"}, {"factor", 2.0}};
    const Json wrong{{"use_bias", true},
                     {"score_function", "softmax"},
                     {"moe_router_enable_expert_bias", false},
                     {"norm_topk_prob", nullptr},
                     {"num_mtp_layers", -1},
                     {"mlp_layer_types", {"dense"}},
                     {"sliding_window", 64}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(moe({{key, value}})), ("'" + key + "'").c_str()));
    }
    CHECK(has(refused(moe({{"rope_scaling", deepseek}})), "'type'"));
    CHECK(has(refused(moe({{"n_group", 128}, {"topk_group", 8}})), "'n_group'"));
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "use_qkv_bias"})
      CHECK(has(refusal(moe({{key, "8"}}), TENON_CORRUPT), key));
  }

  TEST_CASE("sarvam_mla: no latent vector of queries, and keys of the authors") {
    const auto mla = [](const Json& more) {
      return of_type("sarvam_mla", with({{"num_key_value_heads", nullptr}}, more));
    };
    ModelConfig c = parse(mla(Json::object()));
    CHECK(c.latent.q_rank == 0);
    CHECK(c.latent.kv_rank == 512);
    CHECK(c.latent.interleaved);
    CHECK(c.moe.experts == 128);
    CHECK(c.moe.per_token == 8);
    CHECK(c.moe.ffn == 2048);
    CHECK(c.moe.groups == 1);
    CHECK(c.moe.scaling == 2.5);
    CHECK_FALSE(c.sparse[0]);
    CHECK(c.sparse[1]);
    CHECK(parse(mla({{"q_lora_rank", 24}})).latent.q_rank == 24);
    Json yarn{{"type", "deepseek_yarn"},
              {"factor", 40.0},
              {"original_max_position_embeddings", 4096},
              {"mscale", 1.0},
              {"mscale_all_dim", 1.0}};
    c = parse(mla({{"architectures", {"SarvamMLAForCausalLM"}},
                   {"head_dim", 576},
                   {"q_head_dim", 192},
                   {"use_qk_norm", true},
                   {"num_experts", 16},
                   {"num_shared_experts", 1},
                   {"rope_theta", 2e4},
                   {"rope_scaling", yarn}}));
    CHECK(c.rope.type == RopeConfig::Type::yarn);
    CHECK(c.rope.dims == 64);
    CHECK(c.rope.theta == 2e4);
    CHECK(c.rope.factor == 40);
    CHECK(c.moe.experts == 16);
    CHECK(has(refused(mla({{"rope_parameters", yarn}})), "'type'"));
    yarn["rope_type"] = "linear";  // the type counts more
    CHECK(parse(mla({{"rope_scaling", yarn}})).rope.type == RopeConfig::Type::yarn);
    yarn["type"] = "other";
    CHECK(has(refused(mla({{"rope_scaling", yarn}})), "'mscale'"));
    CHECK(has(refused(of_type("deepseek_v3",
                              with(kAll, {{"n_routed_experts", 8},
                                          {"num_experts_per_tok", 2},
                                          {"moe_intermediate_size", 8},
                                          {"rope_scaling", {{"type", "deepseek_yarn"}}}}))),
              "'type'"));
    const Json wrong{{"num_key_value_heads", 8}, {"rope_interleave", nullptr},
                     {"topk_method", "greedy"},  {"n_group", 3},
                     {"moe_layer_freq", 2},      {"mlp_bias", true}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(mla({{key, value}})), ("'" + key + "'").c_str()));
    }
    CHECK(has(refused(mla({{"num_experts", 8}, {"n_routed_experts", 16}})), "'num_experts'"));
    CHECK(has(refusal(mla({{"head_dim", 0}}), TENON_INVALID_ARGUMENT), "'head_dim'"));
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
