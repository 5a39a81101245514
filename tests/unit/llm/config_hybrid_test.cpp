// SPDX-License-Identifier: Apache-2.0
// config.json of models whose layers have a state in place of keys and values, except some: Qwen3-Next,
// Qwen3.5, LFM2.
#include <doctest/doctest.h>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"
#include "llm/arch/text_part.hpp"
#include "llm/model_files.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

Json of(const char* type, const Json& more) {
  Json j = with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more);
  j["num_hidden_layers"] = 5;
  return j;
}
const Json kKinds = {"linear_attention", "full_attention", "linear_attention", "full_attention",
                     "full_attention"};
const std::vector<bool> kRecurrent = {true, false, true, false, false};

}  // namespace

TEST_SUITE("llm/config hybrid") {
  TEST_CASE("qwen3_next: what a file leaves out has the values of the class") {
    const ModelConfig c = parse(of("qwen3_next", Json::object()));
    CHECK(c.recurrent());
    CHECK(c.attends());
    CHECK(c.recurrent_layers == std::vector<bool>{true, true, true, false, true});
    CHECK(c.norm == Norm::rms_plus_one);
    CHECK(c.head_dim == 256);
    CHECK(c.rope.dims == 64);
    CHECK(c.delta.joint);
    CHECK_FALSE(c.delta.tiled);
    CHECK(c.delta.key_heads == 16);
    CHECK(c.delta.value_heads == 32);
    CHECK(c.delta.keys() == 2048);
    CHECK(c.delta.values() == 4096);
    CHECK(c.delta.conv_width == 4);
    CHECK(c.moe.experts == 512);
    CHECK(c.moe.per_token == 10);
    CHECK(c.moe.normalize);
    CHECK(c.moe.shared_ffn == 512);
    CHECK(c.moe.shared_gate);
    CHECK(c.sparse == std::vector<bool>(5, true));
    CHECK(parse(of("qwen3_next", {{"mlp_only_layers", {1}}})).sparse[1] == false);
    CHECK_FALSE(parse(of("qwen3_next", {{"norm_topk_prob", false}})).moe.normalize);
  }

  TEST_CASE("qwen3_5: kinds of layers, with and without attention") {
    ModelConfig c = parse(of("qwen3_5_text", {{"layer_types", kKinds}, {"attention_bias", true}}));
    CHECK(c.recurrent_layers == kRecurrent);
    CHECK_FALSE(c.delta.joint);
    CHECK(c.qkv_bias);
    CHECK(c.o_bias);
    CHECK(c.moe.experts == 0);
    c = parse(of("qwen3_5_text", {{"full_attention_interval", 2}}));
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true, false, true});
    c = parse(of("qwen3_5_text", {{"full_attention_interval", 1}}));
    CHECK_FALSE(c.recurrent());
    CHECK(c.attends());
    c = parse(of("qwen3_5_text", {{"full_attention_interval", 8}}));
    CHECK(c.recurrent());
    CHECK_FALSE(c.attends());
    const Json rope{{"rope_type", "default"},
                    {"rope_theta", 1e7},
                    {"partial_rotary_factor", 0.5},
                    {"mrope_section", {11, 11, 10}},
                    {"mrope_interleaved", true}};
    c = parse(of("qwen3_5_text", {{"rope_parameters", rope}}));
    CHECK(c.rope.dims == 128);
    CHECK(c.rope.theta == 1e7);
  }

  TEST_CASE("qwen3_5_moe: no intermediate_size, and experts in all layers") {
    Json j = of("qwen3_5_moe_text", {{"mlp_only_layers", {1}}, {"norm_topk_prob", false}});
    j.erase("intermediate_size");
    const ModelConfig c = parse(j);
    CHECK(c.moe.experts == 256);
    CHECK(c.moe.per_token == 8);
    CHECK(c.moe.normalize);  // whatever the key says
    CHECK(c.sparse == std::vector<bool>(5, true));
    Json dense = of("qwen3_5_text", Json::object());
    dense.erase("intermediate_size");
    CHECK(refusal(dense, TENON_CORRUPT).find("'intermediate_size'") != std::string::npos);
  }

  TEST_CASE("qwen3_5: the language model of text_config") {
    Json text = of("qwen3_5_text", {{"layer_types", kKinds},
                                    {"rope_parameters", {{"mrope_section", {11, 11, 10}}}}});
    text.erase("architectures");
    const Json j{{"model_type", "qwen3_5"},
                 {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                 {"image_token_id", 5},
                 {"vision_config", {{"depth", 1}}},
                 {"text_config", text}};
    const ModelConfig c = parse(j);
    CHECK(c.wrapper == "qwen3_5");
    CHECK(c.recurrent_layers == kRecurrent);
    CHECK_FALSE(c.tied);
    CHECK(parse(with(j, {{"tie_word_embeddings", true}})).tied);
    CHECK(is_harmless_tensor("model.visual.blocks.0.attn.qkv.weight", c));
    CHECK(is_harmless_tensor("mtp.layers.0.self_attn.q_proj.weight", c));
    CHECK_FALSE(is_harmless_tensor("mtp.layers.0.self_attn.q_proj.weight", parse(llama())));
  }

  TEST_CASE("qwen3_next and qwen3_5: refusals") {
    const auto refused = [](const Json& more) {
      return refusal(of("qwen3_5_text", more), TENON_UNSUPPORTED);
    };
    CHECK(refused({{"linear_num_value_heads", 24}})
              .find("a multiple of the 16 of linear_num_key_heads") != std::string::npos);
    CHECK(refused({{"linear_conv_kernel_dim", 1}}).find("2 to 64") != std::string::npos);
    CHECK(refused({{"attn_output_gate", false}}).find("'attn_output_gate'") != std::string::npos);
    CHECK(refused({{"layer_types", {"linear_attention"}}}).find("one entry for each of the 5") !=
          std::string::npos);
    Json kinds = kKinds;
    kinds[1] = "sliding_attention";
    CHECK(
        refused({{"layer_types", kinds}}).find("entries 'linear_attention' and 'full_attention'") !=
        std::string::npos);
    CHECK(refused({{"num_experts", 8}}).find("'num_experts'") != std::string::npos);
    CHECK(refused({{"mtp_num_hidden_layers", -1}}).find("'mtp_num_hidden_layers'") !=
          std::string::npos);
  }

  TEST_CASE("lfm2: widths, kinds of layers, names of older files") {
    const auto lfm2 = [](const Json& more) { return of("lfm2", with({{"norm_eps", 1e-4}}, more)); };
    ModelConfig c = parse(lfm2({{"full_attn_idxs", {1, 3}}}));
    CHECK(c.recurrent_layers == std::vector<bool>{true, false, true, false, true});
    CHECK(c.norm_eps == 1e-4);
    CHECK(c.tied);
    CHECK(c.rope.theta == 1e6);
    CHECK(c.short_conv.width == 3);
    CHECK_FALSE(c.short_conv.bias);
    // 8192 * 2 / 3 = 5461, and 22 * 256 = 5632 is the next multiple.
    CHECK(c.ffn == 5632);
    CHECK(parse(lfm2({{"block_ff_dim", 12288}})).ffn == 8192);
    CHECK(parse(lfm2({{"block_auto_adjust_ff_dim", false}})).ffn == 8192);
    CHECK(parse(lfm2({{"block_ffn_dim_multiplier", 1.5}, {"block_multiple_of", 100}})).ffn == 8200);
    CHECK(parse(lfm2({{"block_ffn_dim_multiplier", nullptr}})).ffn == 5461);
    CHECK_FALSE(parse(lfm2({{"tie_embedding", false}})).tied);
    c = parse(lfm2({{"layer_types", {"conv", "conv", "full_attention", "conv", "conv"}},
                    {"conv_bias", true},
                    {"conv_L_cache", 5}}));
    CHECK(c.recurrent_layers == std::vector<bool>{true, true, false, true, true});
    CHECK(c.short_conv.bias);
    CHECK(c.short_conv.width == 5);
    // Without a list, all layers have attention.
    CHECK_FALSE(parse(lfm2(Json::object())).recurrent());
    const auto refused = [&](const Json& more) { return refusal(lfm2(more), TENON_UNSUPPORTED); };
    CHECK(refused({{"conv_L_cache", 1}}).find("2 to 64") != std::string::npos);
    CHECK(refused({{"block_use_swiglu", false}}).find("'block_use_swiglu'") != std::string::npos);
    CHECK(refused({{"block_ffn_dim_multiplier", 1e9}}).find("'block_ffn_dim_multiplier'") !=
          std::string::npos);
    CHECK(refused({{"layer_types", kKinds}}).find("entries 'conv' and 'full_attention'") !=
          std::string::npos);
  }

  TEST_CASE("lfm2_moe: experts behind the first layers") {
    Json j = of("lfm2_moe", {{"norm_eps", 1e-5},
                             {"layer_types", {"conv", "conv", "full_attention", "conv", "conv"}},
                             {"num_dense_layers", 1},
                             {"routed_scaling_factor", 1.5}});
    const ModelConfig c = parse(j);
    CHECK(c.sparse == std::vector<bool>{false, true, true, true, true});
    CHECK(c.moe.experts == 32);
    CHECK(c.moe.per_token == 4);
    CHECK(c.moe.score == "sigmoid");
    CHECK(c.moe.correction_bias);
    CHECK(c.moe.scaling == 1.5);
    j.erase("layer_types");
    CHECK(refusal(j, TENON_UNSUPPORTED).find("'layer_types'") != std::string::npos);
  }

  TEST_CASE("models without states, and without keys and values") {
    CHECK(parse(llama()).attends());
    CHECK_FALSE(parse(llama()).recurrent());
    const ModelConfig mamba = parse({{"model_type", "mamba"},
                                     {"vocab_size", 100},
                                     {"hidden_size", 40},
                                     {"num_hidden_layers", 2}});
    CHECK(mamba.recurrent());
    CHECK_FALSE(mamba.attends());
  }
}
