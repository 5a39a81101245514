// SPDX-License-Identifier: Apache-2.0
// config.json of language models: what is read, what is refused by name.
#include "llm/arch/config.hpp"

#include <doctest/doctest.h>

#include "config_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE("llm/config") {
  TEST_CASE("llama: sizes, and the defaults of transformers") {
    const ModelConfig c = parse(llama());
    CHECK(c.vocab == 128256);
    CHECK(c.dim == 2048);
    CHECK(c.ffn == 8192);
    CHECK(c.layers == 16);
    CHECK(c.heads == 32);
    CHECK(c.kv_heads == 8);
    CHECK(c.head_dim == 64);
    CHECK(c.context == 131072);
    CHECK(c.norm_eps == 1e-6);
    CHECK(c.activation == "silu");
    CHECK_FALSE(c.tied);
    CHECK_FALSE(c.qkv_bias);
    CHECK(c.rope.type == RopeConfig::Type::plain);
    CHECK(c.rope.theta == 10000);
    CHECK(c.rope.dims == 64);
    CHECK(c.dtype == f32);
    CHECK(c.window == 0);
    CHECK_FALSE(c.recurrent());
  }

  TEST_CASE("llama: values that are given") {
    const ModelConfig c = parse(with(llama(), {{"torch_dtype", "bfloat16"},
                                               {"rms_norm_eps", 1e-5},
                                               {"tie_word_embeddings", true},
                                               {"attention_bias", true},
                                               {"head_dim", 128},
                                               {"hidden_act", "gelu_pytorch_tanh"},
                                               {"eos_token_id", {128001, 128008}},
                                               {"rope_theta", 5e5}}));
    CHECK(c.dtype == bf16);
    CHECK(c.norm_eps == 1e-5);
    CHECK(c.tied);
    CHECK(c.qkv_bias);
    CHECK(c.o_bias);
    CHECK(c.head_dim == 128);
    CHECK(c.activation == "gelu_tanh");
    CHECK(c.end_tokens == std::vector<int64_t>{128001, 128008});
    CHECK(c.rope.theta == 5e5);
  }

  TEST_CASE("unknown keys: refused by name unless they say nothing") {
    CHECK(refusal(with(llama(), {{"layer_scale", 2}}), TENON_UNSUPPORTED).find("'layer_scale'") !=
          std::string::npos);
    CHECK(refusal(with(llama(), {{"layer_scale", nullptr}}), TENON_OK) == "accepted");
    CHECK(refusal(with(llama(), {{"layer_scale", false}}), TENON_OK) == "accepted");
    CHECK(refusal(
              with(llama(), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"x", 1}}}}),
              TENON_UNSUPPORTED)
              .find("rope_scaling: 'x'") != std::string::npos);
    // A key of another architecture does not count here.
    CHECK(refusal(with(llama(), {{"attn_logit_softcapping", 50.0}}), TENON_UNSUPPORTED)
              .find("'attn_logit_softcapping'") != std::string::npos);
  }

  TEST_CASE("models near Llama: factors, layers without rope, a gate of the shared expert") {
    const auto of = [](const char* type, const char* name, const Json& more) {
      return parse(with(with(llama(), {{"model_type", type}, {"architectures", {name}}}), more));
    };
    ModelConfig c = of("granite", "GraniteForCausalLM",
                       {{"embedding_multiplier", 12.0},
                        {"residual_multiplier", 0.22},
                        {"attention_multiplier", 0.015625},
                        {"logits_scaling", 8.0}});
    CHECK(c.embed_scale == 12);
    CHECK(c.residual_scale == 0.22);
    CHECK(c.attention_scale == 0.015625);
    CHECK(c.logit_scale == 0.125);

    c = of("smollm3", "SmolLM3ForCausalLM", {{"num_hidden_layers", 8}});
    CHECK(c.no_rope == std::vector<bool>{false, false, false, true, false, false, false, true});
    CHECK(c.rope.theta == 2e6);
    CHECK(c.tied);
    CHECK(c.window == 0);
    c = of("smollm3", "SmolLM3ForCausalLM",
           {{"num_hidden_layers", 3},
            {"no_rope_layers", {0, 1, 1}},
            {"use_sliding_window", true},
            {"sliding_window", 64}});
    CHECK(c.no_rope == std::vector<bool>{true, false, false});
    CHECK(c.local == c.no_rope);
    CHECK(c.window == 64);
    CHECK(refusal(with(llama(), {{"model_type", "smollm3"},
                                 {"architectures", nullptr},
                                 {"no_rope_layers", {1}}}),
                  TENON_UNSUPPORTED)
              .find("'no_rope_layers'") != std::string::npos);

    c = of("qwen2_moe", "Qwen2MoeForCausalLM", {{"shared_expert_intermediate_size", 96}});
    CHECK(c.qkv_bias);
    CHECK(c.moe.experts == 60);
    CHECK(c.moe.shared_ffn == 96);
    CHECK(c.moe.shared_gate);
    CHECK_FALSE(c.moe.normalize);

    const Json rope{{"rope_type", "yarn"},
                    {"rope_theta", 1e6},
                    {"factor", 16.0},
                    {"original_max_position_embeddings", 16384},
                    {"max_position_embeddings", 131072},
                    {"mscale", 1.0},
                    {"mscale_all_dim", 1.0},
                    {"llama_4_scaling_beta", 0.1}};
    c = of("ministral3", "Ministral3ForCausalLM", {{"rope_parameters", rope}});
    CHECK(c.head_dim == 128);
    CHECK(c.rope.query_beta == 0.1);
    CHECK(c.rope.original_context == 16384);
    // transformers would take yarn then.
    CHECK(refusal(with(llama(), {{"model_type", "ministral3"}, {"architectures", nullptr}}),
                  TENON_UNSUPPORTED)
              .find("'rope_parameters' is not supported; expected an object") != std::string::npos);
    Json bad = rope;
    bad["llama_4_scaling_beta"] = -1;
    CHECK(refusal(with(llama(), {{"model_type", "ministral3"},
                                 {"architectures", nullptr},
                                 {"rope_parameters", bad}}),
                  TENON_UNSUPPORTED)
              .find("'llama_4_scaling_beta'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"rope_parameters", rope}}), TENON_UNSUPPORTED)
              .find("'llama_4_scaling_beta'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"model_type", "cohere2"},
                                 {"architectures", nullptr},
                                 {"rms_norm_eps", nullptr},
                                 {"layer_types", Json::array()}}),
                  TENON_UNSUPPORTED)
              .find("'layer_types'") != std::string::npos);

    c = of("gemma", "GemmaForCausalLM", {{"hidden_activation", nullptr}});
    CHECK(c.activation == "gelu_tanh");
    CHECK(c.head_dim == 256);
    CHECK(of("olmo2", "Olmo2ForCausalLM", {{"head_dim", 64}}).norm_eps == 1e-5);
  }

  TEST_CASE("what the model asks for and tenon does not have: refused by name") {
    CHECK(refusal(with(llama(), {{"model_type", "bert"}, {"architectures", nullptr}}),
                  TENON_UNSUPPORTED)
              .find("'llama', 'mistral'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"architectures", {"MistralModel"}}}), TENON_UNSUPPORTED)
              .find("'LlamaForCausalLM'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"architectures", {"LlamaForSequenceClassification"}}}),
                  TENON_UNSUPPORTED)
              .find("'LlamaForCausalLM'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"quantization_config", {{"quant_method", "hqq"}}}}),
                  TENON_UNSUPPORTED)
              .find("hqq") != std::string::npos);
    CHECK(refusal(with(llama(), {{"torch_dtype", "float8_e4m3fn"}}), TENON_UNSUPPORTED)
              .find("'float32', 'float16' or 'bfloat16'") != std::string::npos);
    CHECK(
        refusal(with(llama(), {{"hidden_act", "laplace"}}), TENON_UNSUPPORTED).find("hidden_act") !=
        std::string::npos);
    CHECK(refusal(with(llama(), {{"rope_scaling", {{"rope_type", "mrope"}}}}), TENON_UNSUPPORTED)
              .find("'yarn'") != std::string::npos);
    // Only Phi-3 rotates a part of a head.
    const Json half = {{"partial_rotary_factor", 0.5}};
    CHECK(refusal(with(llama(), half), TENON_UNSUPPORTED) ==
          "config.json: 'partial_rotary_factor' is not supported; expected 1 for this model_type, "
          "got 0.5");
    CHECK(refusal(with(llama(), {{"rope_parameters", half}}), TENON_UNSUPPORTED)
              .starts_with("config.json: rope_parameters: 'partial_rotary_factor'"));
    CHECK(refusal(with(llama(), {{"partial_rotary_factor", 1.0}}), TENON_UNSUPPORTED) ==
          "accepted");
    Json gemma = with(llama(), {{"model_type", "gemma3_text"}, {"architectures", nullptr}});
    CHECK(refusal(with(gemma, {{"rope_parameters", {{"full_attention", half}}}}), TENON_UNSUPPORTED)
              .find("'partial_rotary_factor'") != std::string::npos);
    CHECK(refusal(with(gemma, {{"attn_logit_softcapping", 50.0}}), TENON_UNSUPPORTED)
              .find("'attn_logit_softcapping'") != std::string::npos);
    CHECK(refusal(gemma, TENON_UNSUPPORTED) == "accepted");
  }

  TEST_CASE("wrong forms and sizes: refused by name") {
    Json j = llama();
    j.erase("hidden_size");
    CHECK(refusal(j, TENON_CORRUPT) == "config.json: 'hidden_size' is missing");
    CHECK(refusal(with(llama(), {{"hidden_size", 2048.5}}), TENON_CORRUPT)
              .find("expected an integer, got 2048.5") != std::string::npos);
    CHECK(refusal(with(llama(), {{"num_hidden_layers", 0}}), TENON_INVALID_ARGUMENT)
              .find("'num_hidden_layers'") != std::string::npos);
    CHECK(refusal(with(llama(), {{"num_hidden_layers", 1u << 31}}), TENON_INVALID_ARGUMENT)
              .find("expected 1 to 4096") != std::string::npos);
    CHECK(refusal(with(llama(), {{"num_key_value_heads", 5}}), TENON_UNSUPPORTED)
              .find("a divisor of the 32") != std::string::npos);
    CHECK(refusal(with(llama(), {{"rms_norm_eps", 0}}), TENON_INVALID_ARGUMENT).find("above 0") !=
          std::string::npos);
    CHECK_THROWS_AS(parse_config("{", "config.json"), Error);
    CHECK_THROWS_AS(parse_config("[]", "config.json"), Error);
  }

  TEST_CASE("mistral: the window is 4096 unless the file says null") {
    Json j = with(llama(), {{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}});
    CHECK(parse(j).window == 4096);
    CHECK(parse(j).local == std::vector<bool>(16, true));
    j["sliding_window"] = 7;
    CHECK(parse(j).window == 7);
    j["sliding_window"] = nullptr;
    CHECK(parse(j).window == 0);
    CHECK(parse(j).local == std::vector<bool>(16, false));
  }

  TEST_CASE("ministral: layers with the window by layer_types") {
    Json j = with(llama(), {{"model_type", "ministral"},
                            {"architectures", {"MinistralForCausalLM"}},
                            {"num_hidden_layers", 2}});
    CHECK(parse(j).window == 4096);
    CHECK(parse(j).local == std::vector<bool>{true, true});
    j["sliding_window"] = 7;
    j["layer_types"] = {"full_attention", "sliding_attention"};
    CHECK(parse(j).window == 7);
    CHECK(parse(j).local == std::vector<bool>{false, true});
    j["sliding_window"] = nullptr;
    CHECK(refusal(j, TENON_UNSUPPORTED).find("'sliding_window'") != std::string::npos);
  }

  TEST_CASE("qwen2: a window only if use_sliding_window, in the last layers") {
    Json j = with(llama(), {{"model_type", "qwen2"},
                            {"architectures", {"Qwen2ForCausalLM"}},
                            {"num_hidden_layers", 3},
                            {"sliding_window", 9},
                            {"max_window_layers", 2}});
    CHECK(parse(j).qkv_bias);
    CHECK_FALSE(parse(j).o_bias);
    CHECK(parse(j).window == 0);
    j["use_sliding_window"] = true;
    CHECK(parse(j).window == 9);
    CHECK(parse(j).local == std::vector<bool>{false, false, true});
  }

  TEST_CASE(
      "gemma3: every sixth layer sees everything, two rope bases, keys before transformers 5") {
    Json j = with(llama(), {{"model_type", "gemma3_text"},
                            {"architectures", {"Gemma3ForCausalLM"}},
                            {"num_hidden_layers", 7},
                            {"rope_theta", 1e6},
                            {"rope_local_base_freq", 12345},
                            {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                            {"query_pre_attn_scalar", 64},
                            {"sliding_window", 512}});
    const ModelConfig c = parse(j);
    CHECK(c.local == std::vector<bool>{true, true, true, true, true, false, true});
    CHECK(c.rope.theta == 1e6);
    CHECK(c.rope.factor == 8);
    CHECK(c.local_rope.theta == 12345);
    CHECK(c.local_rope.type == RopeConfig::Type::plain);
    CHECK(c.head_dim == 256);
    CHECK(c.attention_scale == 0.125);
    CHECK(c.embed_scale == doctest::Approx(45.254834));
    CHECK(c.attention_softcap == 0);
    CHECK(c.tied);
  }

  TEST_CASE("gemma2: caps are 50 and 30 unless the file says null") {
    Json j = with(llama(), {{"model_type", "gemma2"}, {"architectures", {"Gemma2ForCausalLM"}}});
    CHECK(parse(j).attention_softcap == 50);
    CHECK(parse(j).logit_softcap == 30);
    CHECK(parse(j).local[0]);
    CHECK_FALSE(parse(j).local[1]);
    j["final_logit_softcapping"] = nullptr;
    CHECK(parse(j).logit_softcap == 0);
  }

  TEST_CASE("deepseek_v3: groups of experts, latent sizes, dense layers first") {
    Json j = with(llama(), {{"model_type", "deepseek_v3"},
                            {"architectures", {"DeepseekV3ForCausalLM"}},
                            {"num_key_value_heads", 32},
                            {"n_routed_experts", 16},
                            {"n_shared_experts", 2},
                            {"num_experts_per_tok", 4},
                            {"moe_intermediate_size", 100},
                            {"n_group", 4},
                            {"topk_group", 2},
                            {"qk_nope_head_dim", 48},
                            {"qk_rope_head_dim", 16},
                            {"kv_lora_rank", 256},
                            {"q_lora_rank", nullptr}});
    const ModelConfig c = parse(j);
    CHECK(c.latent.q_rank == 0);
    CHECK(c.latent.kv_rank == 256);
    CHECK(c.rope.dims == 16);
    CHECK(c.attention_scale == 0.125);
    CHECK(c.moe.shared_ffn == 200);
    CHECK(c.moe.groups == 4);
    CHECK(c.moe.score == "sigmoid");
    CHECK_FALSE(c.sparse[2]);
    CHECK(c.sparse[3]);
    // The values of transformers where the file has none; null means no shared expert.
    const auto without = [&](const char* key) {
      Json less = j;
      less.erase(key);
      return parse(less).moe;
    };
    CHECK(without("routed_scaling_factor").scaling == 2.5);
    CHECK(without("n_group").groups == 8);
    CHECK(without("topk_group").groups_per_token == 4);
    CHECK(without("n_shared_experts").shared_ffn == 100);
    CHECK(parse(with(j, {{"n_shared_experts", nullptr}})).moe.shared_ffn == 0);
    Json v2 = with(j, {{"model_type", "deepseek_v2"}, {"architectures", nullptr}});
    v2.erase("n_shared_experts");
    CHECK(parse(v2).moe.shared_ffn == 200);
    CHECK(parse(v2).moe.scaling == 1);
    CHECK(refusal(with(j, {{"num_experts_per_tok", 9}}), TENON_UNSUPPORTED)
              .find("num_experts_per_tok") != std::string::npos);
    CHECK(refusal(with(j, {{"n_group", 16}, {"topk_group", 8}}), TENON_UNSUPPORTED)
              .find("at least two experts") != std::string::npos);
  }

  TEST_CASE("mamba: sizes that follow from others") {
    const Json j = {{"model_type", "mamba"},
                    {"vocab_size", 100},
                    {"hidden_size", 40},
                    {"num_hidden_layers", 2},
                    {"time_step_rank", "auto"}};
    const ModelConfig c = parse(j);
    CHECK(c.recurrent());
    CHECK(c.mamba.inner == 80);
    CHECK(c.mamba.dt_rank == 3);
    CHECK(c.mamba.state_size == 16);
    CHECK(c.tied);
    CHECK(
        refusal(with(j, {{"time_step_rank", "large"}}), TENON_UNSUPPORTED).find("time_step_rank") !=
        std::string::npos);
  }
}
