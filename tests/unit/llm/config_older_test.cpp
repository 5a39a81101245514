// SPDX-License-Identifier: Apache-2.0
// config.json of GPT-Neo, StarCoder, CodeGen, OPT, BioGPT, XGLM and Persimmon: older models, of which
// most name their sizes in other ways than Llama.
#include <doctest/doctest.h>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

Json of(const char* type, const Json& sizes, const Json& more) {
  return with(with(sizes, {{"model_type", type}, {"vocab_size", 96}}), more);
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

const Json kGpt{{"n_embd", 64}, {"n_layer", 2}, {"n_head", 8}};
const Json kNeo{{"hidden_size", 64}, {"num_layers", 4}, {"num_heads", 4}};
const Json kOpt{{"hidden_size", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};

}  // namespace

TEST_SUITE("llm/config older") {
  TEST_CASE("gpt_neo: kinds of attention, repeated") {
    const auto neo = [](const Json& types, const Json& more = Json::object()) {
      return of("gpt_neo", kNeo, with({{"attention_types", types}}, more));
    };
    const Json twice = Json::array({Json::array({{"global", "local"}, 2})});
    ModelConfig c = parse(neo(twice));
    CHECK(c.local == std::vector<bool>{false, true, false, true});
    CHECK(c.window == 256);
    CHECK(c.attention_scale == 1);
    CHECK(c.ffn == 256);
    CHECK(c.o_bias);
    CHECK_FALSE(c.qkv_bias);
    CHECK(c.no_rope[3]);
    c = parse(neo(Json::array({Json::array({Json::array({"local"}), 3}),
                               Json::array({Json::array({"global"}), 1})}),
                  {{"window_size", 9}, {"intermediate_size", 80}}));
    CHECK(c.local == std::vector<bool>{true, true, true, false});
    CHECK(c.window == 9);
    CHECK(c.ffn == 80);
    CHECK_NOTHROW(
        parse(neo(twice, {{"attention_layers", {"global", "local", "global", "local"}}})));
    CHECK(
        has(refused(neo(twice, {{"attention_layers", {"local", "local"}}})), "'attention_layers'"));
    CHECK(has(refused(neo(Json::array({Json::array({{"global", "local"}, 3})}))),
              "'attention_types'"));
    CHECK(has(refused(neo(Json::array({Json::array({Json::array({"chunked"}), 4})}))),
              "kinds 'global' and 'local'"));
    CHECK(has(refused(of("gpt_neo", kNeo, Json::object())), "'attention_types'"));
    for (const Json& wrong : {Json(3), Json::array({3}), Json::array({Json::array({"global", 4})}),
                              Json::array({Json::array({Json::array({"global"}), -1})}),
                              Json::array({Json::array({Json::array({"global"}), 4097})}),
                              Json::array({Json::array({Json::array({"global", "local"}), 4096})})})
      CHECK(has(refusal(neo(wrong), TENON_CORRUPT), "a list of pairs"));
  }

  TEST_CASE("gpt_bigcode: heads of keys") {
    ModelConfig c = parse(of("gpt_bigcode", kGpt, Json::object()));
    CHECK(c.kv_heads == 1);
    CHECK(c.activation == "gelu_tanh");
    CHECK(c.context == 1024);
    CHECK(c.tied);
    c = parse(of("gpt_bigcode", kGpt, {{"multi_query", false}, {"scale_attn_weights", false}}));
    CHECK(c.kv_heads == 8);
    CHECK(c.attention_scale == 1);
    CHECK(has(refused(of("gpt_bigcode", kGpt, {{"num_key_value_heads", 2}})),
              "'num_key_value_heads'"));
    CHECK(has(refused(of("gpt_bigcode", kGpt, {{"add_cross_attention", true}})),
              "'add_cross_attention'"));
    CHECK(has(refused(of("gpt_bigcode", kGpt, {{"other", 1}})), "'other'"));
  }

  TEST_CASE("codegen: heads in four parts") {
    const ModelConfig c = parse(of("codegen", kGpt, {{"rotary_dim", 4}, {"n_ctx", 5}}));
    CHECK(c.context == 2048);
    CHECK(c.rope.dims == 4);
    CHECK(c.rope_interleaved);
    CHECK_FALSE(c.tied);
    CHECK(has(refused(of("codegen", kGpt, {{"rotary_dim", 4}, {"n_head", 2}})),
              "'n_head' is not supported; expected a multiple of 4, got 2"));
  }

  TEST_CASE("opt: norms, and embeddings of another width") {
    ModelConfig c = parse(of("opt", kOpt, Json::object()));
    CHECK(c.ffn == 3072);
    CHECK(c.context == 2048);
    CHECK(c.embed_dim == 64);
    CHECK(c.activation == "relu");
    CHECK(c.norm == Norm::layer);
    CHECK_FALSE(c.norms_behind);
    CHECK(c.last_norm);
    CHECK(c.qkv_bias);
    c = parse(of("opt", kOpt, {{"do_layer_norm_before", false}, {"word_embed_proj_dim", 48}}));
    CHECK(c.norms_behind);
    CHECK_FALSE(c.last_norm);
    CHECK(c.embed_dim == 48);
    c = parse(of("opt", kOpt,
                 {{"_remove_final_layer_norm", true},
                  {"enable_bias", false},
                  {"layer_norm_elementwise_affine", false}}));
    CHECK_FALSE(c.last_norm);
    CHECK_FALSE(c.norms_behind);
    CHECK_FALSE(c.mlp_bias);
    CHECK(c.norm == Norm::bare_layer);
    CHECK(
        has(refused(of("opt", kOpt, {{"activation_function", "mish"}})), "'activation_function'"));
    CHECK(has(refused(of("opt", kOpt, {{"rope_theta", 1e4}})), "'rope_theta'"));
  }

  TEST_CASE("biogpt: the embedding is scaled, the eps is that of OPT") {
    ModelConfig c = parse(of("biogpt", kOpt, {{"layer_norm_eps", 1e-12}}));
    CHECK(c.norm_eps == 1e-5);
    CHECK(c.embed_scale == 8);
    CHECK(c.ffn == 4096);
    CHECK(c.context == 1024);
    CHECK(c.activation == "gelu");
    CHECK(c.qkv_bias);
    CHECK(c.tied);
    c = parse(of("biogpt", kOpt, {{"scale_embedding", false}, {"tie_word_embeddings", false}}));
    CHECK(c.embed_scale == 1);
    CHECK_FALSE(c.tied);
    CHECK(has(refused(of("biogpt", kOpt, {{"ffn_dim", 80}})), "'ffn_dim'"));
  }

  TEST_CASE("xglm: two names of a size, and a position without a row") {
    const Json own{{"d_model", 64}, {"num_layers", 2}, {"attention_heads", 4}};
    ModelConfig c = parse(of("xglm", own, {{"scale_embedding", false}}));
    CHECK(c.dim == 64);
    CHECK(c.embed_scale == 1);
    CHECK(c.zero_position < 0);
    CHECK(c.context == 2048);
    c = parse(of("xglm", own, {{"hidden_size", 32}, {"pad_token_id", 7}}));
    CHECK(c.dim == 32);
    CHECK(c.zero_position == 5);
    CHECK(parse(of("xglm", own, {{"pad_token_id", nullptr}})).zero_position < 0);
    CHECK(has(refused(of("xglm", own, {{"pad_token_id", -1}})), "'pad_token_id'"));
    CHECK(has(refused(of("xglm", own, {{"d_model", 2}, {"attention_heads", 1}})), "'d_model'"));
    CHECK(has(refused(of("xglm", own, {{"add_cross_attention", true}})), "'add_cross_attention'"));
  }

  TEST_CASE("persimmon: norms of heads, half of a head is rotated") {
    const Json sizes = with(kOpt, {{"intermediate_size", 80}, {"max_position_embeddings", 128}});
    ModelConfig c = parse(of("persimmon", sizes, Json::object()));
    CHECK(c.activation == "relu2");
    CHECK(c.qk_norm);
    CHECK(c.rope.dims == 8);
    CHECK(c.kv_heads == 4);
    c = parse(
        of("persimmon", sizes,
           {{"qk_layernorm", false}, {"partial_rotary_factor", 0.25}, {"hidden_act", "gelu"}}));
    CHECK_FALSE(c.qk_norm);
    CHECK(c.rope.dims == 4);
    CHECK(c.activation == "gelu");
    CHECK(has(refused(of("persimmon", sizes, {{"head_dim", 32}})), "'head_dim'"));
  }
}
