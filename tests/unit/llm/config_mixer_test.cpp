// SPDX-License-Identifier: Apache-2.0
// config.json of Mamba-2 and of hybrid models: sizes that follow from others, layers, what is refused.
#include <doctest/doctest.h>

#include <cmath>

#include "config_rig.hpp"
#include "llm/json_text.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

Json of(const char* type, const Json& more) {
  return with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more);
}
bool names(const std::string& message, const char* key) {
  return message.find("'" + std::string(key) + "'") != std::string::npos;
}
std::string refused(const char* type, const Json& more) {
  return refusal(of(type, more), TENON_UNSUPPORTED);
}

}  // namespace

TEST_SUITE("llm/config mixer") {
  TEST_CASE("mamba2: sizes and the limits of a step") {
    // Mamba-Codestral-7B says this much, and writes Infinity as it is.
    const std::string text = R"({"model_type": "mamba2", "vocab_size": 32768, "hidden_size": 4096,
      "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128,
      "conv_kernel": 4, "expand": 2, "intermediate_size": 8192, "norm_before_gate": true,
      "rms_norm": true, "chunk_size": 256, "time_step_limit": [0.0, Infinity],
      "time_step_rank": 256, "tie_word_embeddings": false})";
    ModelConfig c = parse_config(text, "config.json");
    CHECK(c.recurrent());
    CHECK(c.mamba.inner == 8192);
    CHECK(c.mamba.heads == 128);
    CHECK(c.mamba.groups == 8);
    CHECK(c.mamba.norm == MixerNorm::behind_gate);
    CHECK(c.mamba.least_step == 0);
    CHECK(std::isinf(c.mamba.most_step));
    const Json j{{"model_type", "mamba2"},     {"vocab_size", 96}, {"hidden_size", 64},
                 {"num_hidden_layers", 2},     {"num_heads", 8},   {"head_dim", 16},
                 {"tie_word_embeddings", true}};
    const auto limits = [&](const Json& list) { return with(j, {{"time_step_limit", list}}); };
    c = parse(limits({0.25, 0.5}));
    CHECK(c.mamba.least_step == 0.25);
    CHECK(c.mamba.most_step == 0.5);
    CHECK(c.tied);
    CHECK(std::isinf(parse(limits({0.25, tagged_float("Infinity")})).mamba.most_step));
    CHECK(names(refusal(limits({0.5, 0.25}), TENON_UNSUPPORTED), "time_step_limit"));
    CHECK(names(refusal(limits(Json::array({0.5})), TENON_UNSUPPORTED), "time_step_limit"));
    CHECK(names(refusal(limits({0, tagged_float("NaN")}), TENON_CORRUPT), "time_step_limit"));
    const auto other = [&](const char* key, const Json& value) {
      return names(refusal(with(j, {{key, value}}), TENON_UNSUPPORTED), key);
    };
    CHECK(other("head_dim", 32));
    CHECK(other("num_heads", 3));
    CHECK(other("n_groups", 3));
    CHECK(other("intermediate_size", 256));
    CHECK(other("conv_kernel", 1));
    CHECK(other("hidden_act", "gelu"));
    CHECK(other("rms_norm", false));
    CHECK(other("new_key", 1));
  }

  TEST_CASE("granitemoehybrid: mixers, attention, experts, positions") {
    const Json mixer{{"num_hidden_layers", 3},
                     {"layer_types", {"mamba", "attention", "mamba"}},
                     {"mamba_n_heads", 64},
                     {"mamba_d_head", 64},
                     {"mamba_d_state", 128},
                     {"mamba_n_groups", 1},
                     {"shared_intermediate_size", 1024},
                     {"num_local_experts", 8},
                     {"num_experts_per_tok", 3},
                     {"normalization_function", "rmsnorm"},
                     {"position_embedding_type", "nope"}};
    ModelConfig c = parse(of("granitemoehybrid", mixer));
    CHECK(c.recurrent());
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true});
    CHECK(c.no_rope == std::vector<bool>{true, true, true});
    CHECK(c.mamba.inner == 4096);
    CHECK(c.moe.experts == 8);
    CHECK(c.moe.per_token == 3);
    CHECK(c.moe.shared_ffn == 1024);
    const auto more = [&](const Json& changes) { return with(mixer, changes); };
    c = parse(of("granitemoehybrid", more({{"position_embedding_type", "rope"},
                                           {"num_local_experts", 0},
                                           {"mamba_d_head", "auto"}})));
    CHECK(c.no_rope.empty());
    CHECK(c.moe.experts == 0);
    // Of attention alone: no state, so its cache may be a pool of blocks.
    c = parse(
        of("granitemoehybrid",
           more({{"layer_types", Json::array({"attention", "attention", "full_attention"})}})));
    CHECK_FALSE(c.recurrent());
    const auto bad = [&](const char* key, const Json& value) {
      return names(refused("granitemoehybrid", more({{key, value}})), key);
    };
    CHECK(bad("layer_types", {"mamba", "attention"}));
    CHECK(bad("layer_types", {"mamba", "attention", "conv"}));
    CHECK(bad("position_embedding_type", "alibi"));
    CHECK(bad("mamba_d_head", 32));
    CHECK(bad("mamba_n_heads", 48));
    CHECK(bad("normalization_function", "layernorm"));
    CHECK(bad("mlp_bias", true));
  }

  TEST_CASE("falcon_h1: factors, and the norm of the mixer") {
    const Json mixer{{"mamba_d_ssm", 3072},
                     {"mamba_n_heads", 24},
                     {"mamba_d_head", 128},
                     {"mamba_d_state", 256},
                     {"mlp_multipliers", {0.5, 0.25}},
                     {"key_multiplier", 0.125},
                     {"lm_head_multiplier", 0.75}};
    const auto more = [&](const Json& changes) { return of("falcon_h1", with(mixer, changes)); };
    ModelConfig c = parse(more(Json::object()));
    CHECK(c.recurrent());
    CHECK(c.recurrent_layers.empty());
    CHECK(c.mamba.inner == 3072);
    CHECK(c.mamba.norm == MixerNorm::none);
    CHECK(c.falcon.gate == 0.5);
    CHECK(c.falcon.down == 0.25);
    CHECK(c.falcon.key == 0.125);
    CHECK(c.logit_scale == 0.75);
    CHECK(c.mamba.part_scales == std::vector<double>(5, 1));
    CHECK(parse(more({{"mamba_rms_norm", true}})).mamba.norm == MixerNorm::before_gate);
    c = parse(more({{"mamba_rms_norm", true}, {"mamba_norm_before_gate", false}}));
    CHECK(c.mamba.norm == MixerNorm::behind_gate);
    CHECK(names(refusal(more({{"ssm_multipliers", {1.0, 2.0}}}), TENON_UNSUPPORTED),
                "ssm_multipliers"));
    Json null = more({{"mamba_d_ssm", nullptr}, {"mamba_d_head", "auto"}, {"mamba_n_heads", 32}});
    CHECK(parse(null).mamba.inner == 4096);
  }

  TEST_CASE("nemotron_h: the kinds of layers") {
    Json j = of("nemotron_h", {{"hybrid_override_pattern", "M-M*"},
                               {"num_hidden_layers", 4},
                               {"mamba_num_heads", 8},
                               {"mamba_head_dim", 80},
                               {"n_groups", 2},
                               {"head_dim", 128},
                               {"time_step_min", 0.002}});
    ModelConfig c = parse(j);
    CHECK(c.pattern == "M-M*");
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true, false});
    CHECK(c.mamba.inner == 640);
    CHECK(c.mamba.least_step == 0.002);
    CHECK(c.activation == "relu2");
    CHECK(c.moe.experts == 0);
    const auto bad = [&](const Json& changes, const char* key) {
      return names(refusal(with(j, changes), TENON_UNSUPPORTED), key);
    };
    CHECK(bad({{"hybrid_override_pattern", "M-X*"}}, "hybrid_override_pattern"));
    CHECK(bad({{"num_hidden_layers", 5}}, "num_hidden_layers"));
    CHECK(bad({{"layers_block_type", {"moe"}}}, "hybrid_override_pattern"));
    CHECK(bad({{"attention_bias", true}}, "attention_bias"));
    j.erase("hybrid_override_pattern");
    j["layers_block_type"] = {"linear_attention", "moe", "full_attention", "moe"};
    j.update({{"n_routed_experts", 8}, {"n_group", 4}, {"topk_group", 2}});
    c = parse(j);
    CHECK(c.pattern == "ME*E");
    CHECK(c.moe.groups == 4);
    CHECK(c.moe.group_score == "top2_sum");
    CHECK(bad({{"n_group", 8}}, "n_group"));
    CHECK(bad({{"moe_latent_size", 64}}, "moe_latent_size"));
    CHECK(bad({{"layers_block_type", {"conv"}}}, "layers_block_type"));
    CHECK(bad({{"layers_block_type", nullptr}}, "layers_block_type"));
  }

  TEST_CASE("bamba, jamba: which layers have attention and experts") {
    ModelConfig c = parse(of("bamba", {{"num_hidden_layers", 4},
                                       {"attn_layer_indices", {1, 3}},
                                       {"mamba_n_heads", 64},
                                       {"attn_rotary_emb", 32}}));
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true, false});
    CHECK(c.rope.dims == 32);  // half of 64
    CHECK(c.mamba.heads == 64);
    CHECK(names(refused("bamba", {{"attn_layer_indices", {99}}, {"mamba_n_heads", 64}}),
                "attn_layer_indices"));
    const Json four{{"num_hidden_layers", 4}, {"attn_layer_period", 3}, {"attn_layer_offset", 1}};
    c = parse(of("jamba", four));
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true, true});
    CHECK(c.sparse == std::vector<bool>{false, true, false, true});
    CHECK(c.mamba.dt_rank == 128);
    CHECK(c.mamba.inner_norms);
    CHECK(c.mamba.heads == 0);
    CHECK_FALSE(c.moe.normalize);
    CHECK(c.no_rope[1]);
    CHECK(parse(of("jamba", with(four, {{"num_experts", 1}}))).moe.experts == 0);
    CHECK(names(refused("jamba", {{"attn_layer_offset", 8}}), "attn_layer_offset"));
    CHECK(names(refused("jamba", {{"mamba_inner_layernorms", false}}), "mamba_inner_layernorms"));
    CHECK(names(refused("jamba", {{"mamba_dt_rank", "large"}}), "mamba_dt_rank"));
  }

  TEST_CASE("parse_object: names of floats that JSON lacks, outside of strings") {
    const Json j = parse_object(
        R"({"a": [0.0, Infinity, -Infinity], "NaN": NaN, "b": "Infinity\"NaN"})", "file");
    CHECK(j["a"][1] == tagged_float("Infinity"));
    CHECK(j["a"][2] == tagged_float("-Infinity"));
    CHECK(j["NaN"] == tagged_float("NaN"));
    CHECK(j["b"] == "Infinity\"NaN");
    CHECK_THROWS_AS(parse_object(R"({"a": Infinit})", "file"), Error);
  }
}
