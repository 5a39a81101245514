// SPDX-License-Identifier: Apache-2.0
// config.json of language models: keys of single families, and models that read images, too.
#include "llm/arch/config.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "config_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE("llm/config families") {
  TEST_CASE("LayerNorms, windows in some layers, limits: keys of single families") {
    const auto of = [](const char* type, const Json& more) {
      return parse(with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more));
    };
    ModelConfig c = of("cohere2", {{"layer_norm_eps", 1e-4}, {"logit_scale", 0.5}});
    CHECK(c.norm == Norm::layer);
    CHECK_FALSE(c.norm_bias);
    CHECK(c.norm_eps == 1e-4);
    CHECK(c.parallel);
    CHECK(c.rope_interleaved);
    CHECK(c.logit_scale == 0.5);
    CHECK(c.window == 4096);
    CHECK(c.local[2]);
    CHECK_FALSE(c.local[3]);
    CHECK(c.no_rope[3]);
    c = of("phi", Json::object());
    CHECK(c.rope.dims == 32);  // half of 64
    CHECK(c.activation == "gelu_tanh");
    CHECK(of("phi", {{"hidden_act", "relu"}}).activation == "relu");
    CHECK(of("gpt_neox", {{"rotary_pct", 0.125}, {"rotary_emb_base", 5e4}}).rope.dims == 8);
    CHECK(of("gpt_neox", {{"rotary_pct", 0.125}, {"rotary_emb_base", 5e4}}).rope.theta == 5e4);
    CHECK(of("stablelm", Json::object()).rope.dims == 16);
    CHECK(of("nemotron", {{"hidden_act", "relu2"}}).activation == "relu2");
    CHECK(of("nemotron", Json::object()).norm == Norm::layer_plus_one);
    c = of("exaone4", {{"sliding_window_pattern", "LG"}});
    CHECK(c.no_rope == std::vector<bool>{false, true, false, true, false, true, false, true, false,
                                         true, false, true, false, true, false, true});
    CHECK(of("exaone4", {{"sliding_window", nullptr}}).no_rope.empty());
    const Json rope{{"rope_type", "dynamic"}, {"alpha", 16.0}, {"factor", 1.0}};
    CHECK(of("hunyuan_v1_dense", {{"rope_scaling", rope}}).rope.theta ==
          doctest::Approx(1e4 * std::pow(16.0, 64.0 / 62)));
    c = of("olmo3",
           {{"rope_scaling",
             {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 256}}}});
    CHECK(c.rope.type == RopeConfig::Type::yarn);
    CHECK(c.local_rope.type == RopeConfig::Type::plain);
    CHECK(c.local_rope.theta == 5e5);
    const Json plain{{"rope_type", "default"}};
    c = of("gpt_oss", {{"rope_scaling", plain}, {"swiglu_limit", 5.0}});
    CHECK(c.moe.gate_limit == 5);
    CHECK(c.moe.gate_alpha == 1.702);
    CHECK(c.moe.biases);
    CHECK(c.local[0]);
    CHECK_FALSE(c.local[1]);
    const auto refused = [](const char* type, const Json& more) {
      return refusal(with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more),
                     TENON_UNSUPPORTED);
    };
    CHECK(refused("gpt_oss", Json::object()).find("'rope_parameters'") != std::string::npos);
    CHECK(refused("gpt_oss", {{"rope_scaling", plain}, {"hidden_act", "gelu"}})
              .find("'hidden_act'") != std::string::npos);
    CHECK(refused("exaone4", {{"sliding_window_pattern", "LX"}}).find("letters L and G") !=
          std::string::npos);
    CHECK(refused("olmoe", {{"clip_qkv", 8.0}}).find("'clip_qkv'") != std::string::npos);
    CHECK(refused("cohere2", {{"use_parallel_block", false}}).find("'use_parallel_block'") !=
          std::string::npos);
  }

  TEST_CASE("models that read images: the language model of text_config") {
    // Published files of Gemma 3 say no more than this.
    const Json gemma{{"model_type", "gemma3"},
                     {"architectures", {"Gemma3ForConditionalGeneration"}},
                     {"eos_token_id", {1, 106}},
                     {"image_token_index", 262144},
                     {"torch_dtype", "bfloat16"},
                     {"vision_config", {{"hidden_size", 1152}}},
                     {"text_config",
                      {{"hidden_size", 2560},
                       {"intermediate_size", 10240},
                       {"model_type", "gemma3_text"},
                       {"num_hidden_layers", 34},
                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                       {"sliding_window", 1024}}}};
    ModelConfig c = parse(gemma);
    CHECK(c.architecture->model_type == "gemma3_text");
    CHECK(c.vocab == 262208);
    CHECK(c.heads == 8);
    CHECK(c.kv_heads == 4);
    CHECK(c.head_dim == 256);
    CHECK(c.dtype == bf16);
    CHECK(c.tied);
    CHECK(c.end_tokens == std::vector<int64_t>{1, 106});
    CHECK(c.rope.factor == 8);
    // Qwen2-VL before transformers 5: all keys side by side.
    const Json sections{{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
    c = parse(with(llama(), {{"model_type", "qwen2_vl"},
                             {"architectures", {"Qwen2VLForConditionalGeneration"}},
                             {"vision_start_token_id", 7},
                             {"vision_config", {{"depth", 32}}},
                             {"rope_scaling", sections}}));
    CHECK(c.architecture->model_type == "qwen2");
    CHECK(c.rope.type == RopeConfig::Type::plain);
    Json bad = gemma;
    bad.erase("text_config");
    CHECK(refusal(bad, TENON_CORRUPT).find("'text_config' is missing") != std::string::npos);
    bad = gemma;
    bad["text_config"]["model_type"] = "bert";
    CHECK(refusal(bad, TENON_UNSUPPORTED).find("bert") != std::string::npos);
    bad["text_config"]["model_type"] = "gemma3_text";
    bad["text_config"]["layer_scale"] = 2;
    CHECK(refusal(bad, TENON_UNSUPPORTED).find("'layer_scale'") != std::string::npos);
  }

  TEST_CASE("bases of rope for each type of layer: which keys beside the objects count") {
    const auto of = [](const char* type, const Json& more) {
      return parse(with(with(llama(), {{"model_type", type}, {"architectures", nullptr}}), more));
    };
    const Json plain{{"rope_type", "default"}};
    const Json both{{"full_attention", plain}, {"sliding_attention", plain}};
    ModelConfig c = of("gemma3_text", {{"rope_parameters", both}});
    CHECK(c.rope.theta == 1e6);
    CHECK(c.local_rope.theta == 1e4);
    c = of("gemma3_text",
           {{"rope_parameters", both}, {"rope_theta", 3e5}, {"rope_local_base_freq", 7e3}});
    CHECK(c.rope.theta == 3e5);
    CHECK(c.local_rope.theta == 7e3);
    c = of("olmo3", {{"rope_parameters", both}, {"rope_theta", 3e5}});
    CHECK(c.rope.theta == 3e5);
    CHECK(c.local_rope.theta == 5e5);
    c = of("olmo3", {{"rope_theta", 3e5}});
    CHECK(c.rope.theta == 3e5);
    CHECK(c.local_rope.theta == 5e5);
    const Json own{{"full_attention", {{"rope_type", "default"}, {"rope_theta", 2e6}}},
                   {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
    c = of("gemma3_text",
           {{"rope_parameters", own}, {"rope_theta", 3e5}, {"rope_local_base_freq", 7e3}});
    CHECK(c.rope.theta == 2e6);
    CHECK(c.local_rope.theta == 2e4);
  }

  TEST_CASE("gpt_neox: the usual names of rope keys are copies of its own") {
    const auto neox = [](const Json& more) {
      return with(with(llama(), {{"model_type", "gpt_neox"},
                                 {"architectures", nullptr},
                                 {"rotary_emb_base", 2e4},
                                 {"rotary_pct", 0.5}}),
                  more);
    };
    ModelConfig c = parse(neox({{"rope_theta", 2e4}, {"partial_rotary_factor", 0.5}}));
    CHECK(c.rope.theta == 2e4);
    CHECK(c.rope.dims == 32);
    CHECK(refusal(neox({{"rope_theta", 5e4}}), TENON_UNSUPPORTED) ==
          "config.json: 'rope_theta' is not supported; expected 20000.0 by 'rotary_emb_base', "
          "got 50000.0");
    CHECK(refusal(neox({{"partial_rotary_factor", 0.25}}), TENON_UNSUPPORTED) ==
          "config.json: 'partial_rotary_factor' is not supported; expected 0.5 by 'rotary_pct', "
          "got 0.25");
    // Without a base, the default counts; numbers of the object count more than all others.
    CHECK(refusal(neox({{"rotary_emb_base", nullptr}, {"rope_theta", 5e4}}), TENON_UNSUPPORTED)
              .find("expected 10000.0") != std::string::npos);
    const Json rope{{"rope_type", "default"}, {"rope_theta", 5e4}, {"partial_rotary_factor", 0.25}};
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      c = parse(neox({{key, rope}, {"rope_theta", 5e4}, {"partial_rotary_factor", 0.25}}));
      CHECK(c.rope.theta == 5e4);
      CHECK(c.rope.dims == 16);
      CHECK(refusal(neox({{key, rope}, {"rope_theta", 2e4}}), TENON_UNSUPPORTED)
                .find("expected 50000.0 by '" + std::string(key)) != std::string::npos);
    }
  }

  TEST_CASE("models that read images: whether the head is tied") {
    struct Row {
      const char *type, *text;
      // For no key, false and true in text_config: without a key beside it, and with false and true.
      std::string absent, no, yes;
    };
    for (const Row& row : {Row{"qwen2_vl", "qwen2_vl_text", "001", "001", "111"},
                           Row{"qwen2_5_vl", "qwen2_5_vl_text", "001", "001", "111"},
                           Row{"llava", "llama", "001", "001", "111"},
                           Row{"llava_onevision", "qwen2", "001", "001", "111"},
                           Row{"qwen3_vl", "qwen3_vl_text", "000", "000", "111"},
                           Row{"llava_next", "llama", "000", "000", "111"},
                           Row{"smolvlm", "llama", "000", "000", "111"},
                           Row{"mistral3", "mistral", "001", "000", "111"}}) {
      CAPTURE(row.type);
      const auto tied = [&](const Json& beside) {
        std::string out;
        for (const Json& value : {Json(), Json(false), Json(true)}) {
          Json text = llama();
          text["model_type"] = row.text, text["tie_word_embeddings"] = value;
          text.erase("architectures");
          const Json all{
              {"model_type", row.type}, {"text_config", text}, {"tie_word_embeddings", beside}};
          out += parse(all).tied ? '1' : '0';
        }
        return out;
      };
      CHECK(tied(nullptr) == row.absent);
      CHECK(tied(false) == row.no);
      CHECK(tied(true) == row.yes);
    }
  }

  TEST_CASE("models that read images: a dtype of null says nothing, a wrong text_config does") {
    Json text = llama();
    text["torch_dtype"] = nullptr;
    Json j{{"model_type", "llava"}, {"dtype", "bfloat16"}, {"text_config", text}};
    CHECK(parse(j).dtype == bf16);
    j["text_config"].erase("torch_dtype"), j["text_config"]["dtype"] = nullptr;
    CHECK(parse(j).dtype == bf16);
    j["text_config"]["dtype"] = "float16";
    CHECK(parse(j).dtype == f16);
    j["text_config"] = 3;
    CHECK(refusal(j, TENON_CORRUPT) ==
          "config.json: 'text_config': expected an object with the language model of 'llava', "
          "got 3");
    j.erase("text_config");
    CHECK(refusal(j, TENON_CORRUPT) ==
          "config.json: 'text_config' is missing; expected an object with the language model of "
          "'llava', got nothing");
  }
}
