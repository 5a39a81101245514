// SPDX-License-Identifier: Apache-2.0
// config.json of families whose keys are not Llama's (Falcon, MPT, BLOOM, GPT-J), of Llama 4, and
// of mixtures of experts.
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

// Keys of a family that shares none with Llama but the vocabulary.
Json own(const char* type, Json keys) {
  keys.update({{"model_type", type}, {"vocab_size", 96}});
  return keys;
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

}  // namespace

TEST_SUITE("llm/config mixed") {
  TEST_CASE("alibi: slopes of a power of two of heads, and of other numbers") {
    CHECK(alibi(4).slopes == std::vector<double>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8});
    CHECK(alibi(6).slopes == std::vector<double>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3});
    CHECK(alibi(2, 4).slopes == std::vector<double>{0x1p-2, 0x1p-4});
    CHECK(alibi(1).slopes == std::vector<double>{0x1p-8});
    CHECK(alibi(16).slopes[0] == doctest::Approx(std::exp2(-0.5)));
  }

  TEST_CASE("falcon: heads of keys, norms, biases instead of rope") {
    const Json base{{"hidden_size", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 8}};
    const auto falcon = [&](const Json& more) { return own("falcon", with(base, more)); };
    ModelConfig c = parse(falcon({{"num_kv_heads", 8}}));  // of no effect beside multi_query
    CHECK(c.kv_heads == 1);
    CHECK(c.parallel);
    CHECK_FALSE(c.two_norms);
    CHECK(c.ffn == 256);
    CHECK(c.context == 2048);
    CHECK(c.tied);
    CHECK(c.activation == "gelu");
    c = parse(falcon({{"new_decoder_architecture", true}, {"num_kv_heads", 2}}));
    CHECK(c.kv_heads == 2);
    CHECK(c.two_norms);
    c = parse(falcon({{"new_decoder_architecture", true}, {"num_ln_in_parallel_attn", 1}}));
    CHECK(c.kv_heads == 8);
    CHECK_FALSE(c.two_norms);
    c = parse(falcon(
        {{"alibi", true}, {"multi_query", false}, {"parallel_attn", false}, {"rope_theta", 5.0}}));
    CHECK(c.kv_heads == 8);
    CHECK_FALSE(c.parallel);
    CHECK(c.alibi.slopes.size() == 8);
    CHECK(c.alibi.scale == doctest::Approx(1 / std::sqrt(8.0)));
    CHECK(c.no_rope[1]);
    CHECK(has(refused(falcon({{"multi_query", false}, {"num_kv_heads", 2}})), "'num_kv_heads'"));
    CHECK(has(refused(falcon({{"num_ln_in_parallel_attn", 2}})), "'num_ln_in_parallel_attn'"));
    CHECK(has(refused(falcon({{"apply_residual_connection_post_layernorm", true}})),
              "'apply_residual_connection_post_layernorm'"));
    CHECK(has(refused(falcon({{"ff_factor", 3}})), "'ff_factor'"));
    CHECK(has(refused(falcon({{"n_head_kv", 2}})), "'n_head_kv'"));
  }

  TEST_CASE("mpt, bloom, gptj: their names of sizes, and what is refused") {
    const Json sizes{{"d_model", 64}, {"n_layers", 2}, {"n_heads", 4}};
    const auto mpt = [&](const Json& attention, const Json& more = Json::object()) {
      return own("mpt", with(with(sizes, {{"attn_config", attention}}), more));
    };
    ModelConfig c = parse(mpt({{"clip_qkv", 6.0}, {"alibi_bias_max", 16}, {"softmax_scale", 0.5}},
                              {{"architectures", {"MPTForCausalLM"}}}));
    CHECK(c.clip_qkv == 6);
    CHECK(c.attention_scale == 0.5);
    CHECK(c.alibi.slopes == alibi(4, 16).slopes);
    CHECK(c.ffn == 256);
    CHECK_FALSE(c.norm_bias);
    for (const char* key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id"})
      CHECK(has(refused(mpt({{key, true}})), key));
    CHECK(has(refused(mpt({{"alibi", false}})), "'alibi'"));
    CHECK(has(refused(mpt({{"kv_n_heads", 2}})), "config.json: attn_config: 'kv_n_heads'"));
    CHECK(has(refused(mpt({{"attn_type", "multiquery_attention"}})), "'attn_type'"));
    CHECK(has(refused(mpt({}, {{"logit_scale", 2.0}})), "'logit_scale'"));
    CHECK(has(refused(mpt({}, {{"expansion_ratio", 2}})), "'expansion_ratio'"));
    CHECK(has(refused(mpt({}, {{"architectures", {"OtherForCausalLM"}}})), "'MptForCausalLM'"));

    const Json bloom{{"n_embed", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
    c = parse(own("bloom", with(bloom, {{"seq_length", 512}, {"offset_alibi", 100}})));
    CHECK(c.dim == 64);
    CHECK(c.layers == 2);
    CHECK(c.context == 512);
    CHECK(c.activation == "gelu_tanh");
    CHECK(c.qkv_bias);
    CHECK(
        parse(own("bloom", with(bloom, {{"n_layer", 3}, {"num_hidden_layers", nullptr}}))).layers ==
        3);
    CHECK(has(
        refused(own("bloom", with(bloom, {{"apply_residual_connection_post_layernorm", true}}))),
        "'apply_residual_connection_post_layernorm'"));
    CHECK(has(refused(own("bloom", with(bloom, {{"n_inner", 128}}))), "'n_inner'"));

    const Json gptj{{"n_embd", 64}, {"n_layer", 2}, {"n_head", 4}, {"rotary_dim", 8}};
    c = parse(own("gptj", gptj));
    CHECK(c.rope.dims == 8);
    CHECK(c.rope_interleaved);
    CHECK(c.parallel);
    CHECK_FALSE(c.two_norms);
    CHECK_FALSE(c.tied);
    for (const Json& dims : {Json(7), Json(18), Json(nullptr)})
      CHECK(has(refused(own("gptj", with(gptj, {{"rotary_dim", dims}}))), "'rotary_dim'"));
  }

  TEST_CASE("llama4: chunks, layers without rope, layers with experts") {
    const Json base{{"intermediate_size_mlp", 4096}, {"num_hidden_layers", 5}};
    const auto llama4 = [&](const Json& more) { return of_type("llama4_text", with(base, more)); };
    ModelConfig c = parse(llama4({{"interleave_moe_layer_step", 2}}));
    CHECK(c.no_rope == std::vector<bool>{false, false, false, true, false});
    CHECK(c.local == std::vector<bool>{true, true, true, false, true});
    CHECK(c.sparse == std::vector<bool>{false, true, false, true, false});
    CHECK(c.chunk == 8192);
    CHECK(c.window == 0);
    CHECK(c.ffn == 4096);
    CHECK(c.moe.ffn == 8192);
    CHECK(c.moe.weigh_inputs);
    CHECK(c.query_beta == 0.1);
    c = parse(llama4({{"attention_chunk_size", nullptr},
                      {"no_rope_layers", {1, 0, 1, 1, 0}},
                      {"moe_layers", {4}},
                      {"attn_temperature_tuning", 0}}));
    CHECK(c.chunk == 0);
    CHECK_FALSE(c.local[0]);
    CHECK(c.no_rope == std::vector<bool>{false, true, false, false, true});
    CHECK(c.sparse == std::vector<bool>{false, false, false, false, true});
    CHECK(c.query_beta == 0);
    CHECK(parse(llama4({{"attn_temperature_tuning", 4}, {"attn_scale", 0.5}})).query_beta == 0.5);
    CHECK(has(refused(llama4({{"no_rope_layers", {1, 0}}})), "'no_rope_layers'"));
    CHECK(has(refused(llama4({{"moe_layers", {5}}})), "'moe_layers'"));
    CHECK(has(refused(llama4({{"layer_types", {"full_attention"}}})), "'layer_types'"));
    CHECK(has(refused(llama4({{"layer_types",
                               Json::array({"full_attention", "full_attention", "sliding_attention",
                                            "full_attention", "full_attention"})}})),
              "'chunked_attention'"));
    const Json all{{"model_type", "llama4"},
                   {"image_token_index", 5},
                   {"text_config", llama4({{"tie_word_embeddings", false}})},
                   {"vision_config", {{"hidden_size", 32}}}};
    CHECK(parse(all).architecture->model_type == "llama4_text");
  }

  TEST_CASE("mixtures: ernie4_5_moe, hunyuan_v1_moe, dots1") {
    ModelConfig c = parse(of_type("ernie4_5_moe", {{"moe_num_experts", 8},
                                                   {"moe_k", 2},
                                                   {"moe_intermediate_size", 24},
                                                   {"moe_layer_start_index", 2},
                                                   {"moe_layer_end_index", 9},
                                                   {"moe_layer_interval", 2}}));
    for (int64_t i = 0; i < 16; ++i)
      CHECK(c.sparse[static_cast<size_t>(i)] == (i >= 2 && i <= 9 && i % 2 == 1));
    CHECK(c.moe.shared_ffn == 48);
    CHECK(c.moe.correction_bias);
    CHECK(c.moe.score == "softmax");
    CHECK(c.rope.theta == 5e5);
    CHECK(has(refused(of_type("ernie4_5_moe", {{"moe_norm_min", 0.1}})), "'moe_norm_min'"));

    const std::vector<int64_t> same(16, 2), four(16, 4);
    c = parse(of_type("hunyuan_v1_moe", {{"num_experts", four}, {"moe_topk", same}}));
    CHECK(c.moe.experts == 4);
    CHECK(c.moe.per_token == 2);
    CHECK(c.moe.shared_ffn == 8192);
    std::vector<int64_t> other = same;
    other[3] = 1;
    CHECK(has(refused(of_type("hunyuan_v1_moe", {{"num_experts", 4}, {"moe_topk", other}})),
              "'moe_topk'"));
    CHECK(has(refused(of_type("hunyuan_v1_moe", {{"num_experts", 4}, {"moe_topk", 5}})),
              "'moe_topk'"));
    CHECK(has(refused(of_type("hunyuan_v1_moe", {{"moe_intermediate_size", 16}})),
              "'moe_intermediate_size'"));

    const Json dots{{"n_routed_experts", 8}, {"num_experts_per_tok", 2}, {"n_shared_experts", 1}};
    c = parse(of_type("dots1", dots));
    CHECK(c.moe.score == "sigmoid");
    CHECK_FALSE(c.moe.normalize);
    CHECK(c.sparse[0]);
    CHECK_FALSE(c.local[15]);
    c = parse(of_type("dots1", with(dots, {{"max_window_layers", 3}, {"sliding_window", 64}})));
    CHECK_FALSE(c.local[2]);
    CHECK(c.local[3]);
    Json without = dots;
    without.erase("n_shared_experts");
    CHECK(has(refusal(of_type("dots1", without), TENON_CORRUPT), "'n_shared_experts' is missing"));
  }

  TEST_CASE("apertus: its activation, and rope that files leave out") {
    ModelConfig c = parse(of_type("apertus", Json::object()));
    CHECK(c.activation == "xielu");
    CHECK(c.rope.type == RopeConfig::Type::llama3);
    CHECK(c.rope.theta == 12e6);
    CHECK(c.qk_norm);
    CHECK(parse(of_type("apertus", {{"hidden_act", "relu2"}})).activation == "relu2");
    CHECK(has(refused(of_type("apertus", {{"hidden_act", "other"}})), "'hidden_act'"));
    CHECK(has(refused(of_type("apertus", {{"rope_theta", 5e5}})), "'rope_theta'"));
    // No other family has this activation.
    CHECK(has(refused(of_type("arcee", {{"hidden_act", "xielu"}})), "'hidden_act'"));
  }

  TEST_CASE("rope llama3: low and high frequencies may be equal") {
    const Json rope{{"rope_type", "llama3"},
                    {"factor", 16.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 1.0},
                    {"original_max_position_embeddings", 8192}};
    const ModelConfig c = parse(with(llama(), {{"rope_scaling", rope}}));
    const std::vector<double> f = c.rope.frequencies(4096);
    for (size_t i = 0; i < f.size(); ++i) {
      const double plain = std::pow(1e4, -2.0 * static_cast<double>(i) / 64);
      CHECK(f[i] == doctest::Approx(8192 * plain > 2 * 3.14159265358979 ? plain : plain / 16));
    }
    Json bad = rope;
    bad["high_freq_factor"] = 0.5;
    CHECK(has(refusal(with(llama(), {{"rope_scaling", bad}}), TENON_INVALID_ARGUMENT),
              "high_freq_factor must be at least low_freq_factor"));
  }
}
