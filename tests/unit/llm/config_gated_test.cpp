// SPDX-License-Identifier: Apache-2.0
// config.json of families where layers differ by windows, heads, ropes or experts (AFMoE, MiMo-V2, Laguna,
// CWM, Hy3, Command A with experts, Mellum 2, Granite with windows), and of some that are Llama by other names.
#include <doctest/doctest.h>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

// Six layers of a model of this type.
Json of(const char* type, const Json& more) {
  const Json sizes{{"model_type", type},       {"architectures", nullptr},
                   {"hidden_size", 64},        {"num_hidden_layers", 6},
                   {"num_attention_heads", 8}, {"num_key_value_heads", 2},
                   {"intermediate_size", 112}, {"head_dim", 16}};
  return with(with(llama(), sizes), more);
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

using Flags = std::vector<bool>;

}  // namespace

TEST_SUITE("llm/config gated") {
  TEST_CASE("afmoe: windows and rope in the same layers, dense layers in front") {
    ModelConfig c = parse(of("afmoe", {{"num_experts", 8}}));
    CHECK(c.local == Flags{true, true, true, false, true, true});
    CHECK(c.no_rope == Flags{false, false, false, true, false, false});
    CHECK(c.sparse == Flags{false, true, true, true, true, true});
    CHECK(c.window == 1024);
    CHECK(c.moe.per_token == 6);
    CHECK(c.moe.shared_ffn == 2 * 1408);
    CHECK(c.moe.normalize);
    CHECK(c.embed_scale == 1);
    c = parse(of("afmoe", {{"global_attn_every_n_layers", 3},
                           {"mup_enabled", true},
                           {"num_dense_layers", 0},
                           {"route_scale", 2.5},
                           {"score_func", "sigmoid"},
                           {"load_balance_coeff", 0.001}}));
    CHECK(c.no_rope == Flags{false, false, true, false, false, true});
    CHECK(c.embed_scale == 8);
    CHECK(c.sparse[0]);
    CHECK(c.moe.scaling == 2.5);
    CHECK(has(refused(of("afmoe", {{"route_norm", false}})), "'route_norm'"));
    CHECK(has(refused(of("afmoe", {{"score_func", "softmax"}})), "'score_func'"));
    CHECK(has(refused(of("afmoe", {{"num_limited_groups", 2}})), "'num_limited_groups'"));
    CHECK(has(refused(of("afmoe", {{"sliding_window", nullptr}})), "'sliding_window'"));
  }

  TEST_CASE("mimo_v2_flash: heads of values, ropes, and copies of keys") {
    ModelConfig c = parse(of("mimo_v2_flash", {{"head_dim", 192}}));
    CHECK(c.value_dim == 128);
    CHECK(c.value_scale == 0.707);
    CHECK(c.rope.dims == 64);
    CHECK(c.rope.theta == 5e6);
    CHECK(c.local_rope.theta == 1e4);
    CHECK(c.window == 129);
    CHECK(c.local == Flags{false, true, true, true, true, false});
    CHECK(c.sparse == Flags{false, true, true, true, true, true});
    const auto mimo = [](const Json& more) {
      return of("mimo_v2_flash", with({{"head_dim", 24}}, more));
    };
    c = parse(mimo({{"attention_value_scale", nullptr},
                    {"sliding_window_size", 8},
                    {"sliding_window", 5},
                    {"num_local_experts", 12},
                    {"routed_scaling_factor", nullptr},
                    {"swa_num_key_value_heads", 4},
                    {"hybrid_layer_pattern", {0, 1, 1, 1, 1, 0}},
                    {"n_shared_experts", nullptr}}));
    CHECK(c.value_scale == 1);
    CHECK(c.window == 9);
    CHECK(c.moe.experts == 12);
    const Json plain{{"rope_type", "default"}, {"rope_theta", 3e4}};
    const Json half = with(plain, {{"partial_rotary_factor", 0.5}});
    const Json ropes{{"full_attention", half}, {"sliding_attention", plain}};
    c = parse(mimo({{"rope_parameters", ropes}}));
    CHECK(c.rope.dims == 12);
    CHECK(c.local_rope.dims == 8);
    const Json wrong{{"rope_parameters", plain},
                     {"rope_theta", 1e4},
                     {"swa_rope_theta", 1e5},
                     {"partial_rotary_factor", 0.5},
                     {"num_key_value_heads", 8},
                     {"n_shared_experts", 1},
                     {"first_k_dense_replace", 2},
                     {"swa_num_key_value_heads", 2},
                     {"swa_v_head_dim", 64},
                     {"layernorm_epsilon", 1e-6},
                     {"moe_layer_freq", {0, 1, 1, 1, 1, 0}},
                     {"add_full_attention_sink_bias", true}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(mimo({{key, value}})), ("'" + key + "'").c_str()));
    }
  }

  TEST_CASE("laguna: heads of each layer, kinds of gates, ropes") {
    ModelConfig c = parse(of("laguna", Json::object()));
    CHECK(c.layer_heads == std::vector<int64_t>(6, 8));
    CHECK(c.head_gates);
    CHECK(c.rope.dims == 8);
    CHECK(c.local_rope.dims == 16);
    CHECK(c.sparse == Flags{false, true, true, true, true, true});
    CHECK(c.moe.score_cap == 0);
    c = parse(of("laguna", {{"num_attention_heads_per_layer", {8, 4, 4, 2, 6, 10}},
                            {"gating", "per-element"},
                            {"mlp_only_layers", {0}},
                            {"moe_router_logit_softcapping", 2.0}}));
    CHECK(c.layer_heads[5] == 10);
    CHECK_FALSE(c.head_gates);
    CHECK(c.moe.score_cap == 2);
    // transformers gives the part of a head that stands outside to types without one, but only beside a scaling.
    const Json plain{{"rope_type", "default"}, {"rope_theta", 1e4}},
        linear{{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e4}};
    const auto laguna = [](const Json& rope) {
      return of("laguna",
                {{"rope_parameters", {{"full_attention", rope}}}, {"partial_rotary_factor", 0.5}});
    };
    CHECK(parse(laguna(plain)).rope.dims == 16);
    CHECK(has(refused(laguna(linear)), "'partial_rotary_factor'"));
    CHECK(parse(laguna(with(linear, {{"partial_rotary_factor", 0.5}}))).rope.dims == 8);
    CHECK(has(refused(of("laguna", {{"rope_parameters", {{"sliding_attention", plain}}}})),
              "'full_attention'"));
    const Json wrong{{"num_attention_heads_per_layer", {8, 8}},
                     {"gating", false},
                     {"mlp_only_layers", {1}},
                     {"rope_theta", 1e4},
                     {"moe_router_logit_softcapping", -1.0},
                     {"moe_apply_router_weight_on_input", true},
                     {"norm_topk_prob", false}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(of("laguna", {{key, value}})), ("'" + key + "'").c_str()));
    }
    CHECK(has(refused(of("laguna", {{"num_attention_heads_per_layer", {8, 8, 8, 8, 8, 3}}})),
              "'num_attention_heads_per_layer'"));
    const Json types(std::vector<std::string>(6, "sliding_attention"));
    CHECK(has(refused(of("laguna", {{"layer_types", types}, {"sliding_window", nullptr}})),
              "'sliding_window'"));
  }

  TEST_CASE("cwm: windows but in every fourth layer, rope that files leave out") {
    ModelConfig c = parse(of("cwm", Json::object()));
    CHECK(has(refused(of("cwm", {{"rope_scaling", Json::object()}})), "'rope_scaling'"));
    CHECK(has(refused(of("cwm", {{"sliding_window", nullptr}})), "'sliding_window'"));
    CHECK(has(refused(of("cohere2_moe", {{"sliding_window", nullptr}})), "'sliding_window'"));
    CHECK(c.local == Flags{false, true, true, true, false, true});
    CHECK(c.rope.type == RopeConfig::Type::llama3);
    CHECK(c.rope.factor == 16);
    CHECK(c.end_tokens == std::vector<int64_t>{128001, 128008, 128009});
    const Json linear{{"type", "linear"}, {"factor", 2.0}};
    c = parse(of("cwm", {{"rope_theta", 5e5}, {"rope_scaling", linear}, {"eos_token_id", 7}}));
    CHECK(c.rope.theta == 5e5);
    CHECK(c.rope.type == RopeConfig::Type::linear);
    CHECK(c.end_tokens == std::vector<int64_t>{7});
    CHECK(has(refused(of("cwm", {{"rope_theta", 5e5}})), "'rope_theta'"));
    CHECK(has(refused(of("cwm", {{"attention_bias", true}})), "'attention_bias'"));
  }

  TEST_CASE("hy_v3: experts, and names that the authors' files have") {
    ModelConfig c = parse(of("hy_v3", {{"num_local_experts", 12}}));
    CHECK(c.moe.experts == 12);
    CHECK(c.moe.scaling == 2.826);
    CHECK(c.moe.shared_ffn == 1536);
    CHECK(c.moe.normalize);
    CHECK(c.rope.theta == 11158840);
    CHECK_FALSE(c.sparse[0]);
    CHECK(c.extra_layers == 1);
    c = parse(of("hy_v3", {{"route_norm", true},
                           {"moe_router_use_sigmoid", true},
                           {"expert_hidden_dim", 1536},
                           {"first_k_dense_replace", 1},
                           {"enable_lm_head_fp32", true},
                           {"num_nextn_predict_layers", 0}}));
    CHECK(c.moe.experts == 192);
    CHECK(c.extra_layers == 0);
    const Json wrong{
        {"num_shared_experts", 0},   {"n_group", 2},     {"routed_scaling_factor", 2.0},
        {"norm_topk_prob", false},   {"qk_norm", false}, {"expert_hidden_dim", 8},
        {"first_k_dense_replace", 2}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(of("hy_v3", {{key, value}})), ("'" + key + "'").c_str()));
    }
  }

  TEST_CASE("cohere2_moe: norms, scores, and rope of the layers in front") {
    ModelConfig c = parse(of("cohere2_moe", {{"first_k_dense_replace", 2}}));
    CHECK(c.norm == Norm::layer);
    CHECK(c.local == Flags{false, false, true, true, true, false});
    CHECK(c.no_rope == Flags{false, false, false, false, false, true});
    CHECK(c.sparse == Flags{false, false, true, true, true, true});
    CHECK(c.moe.score == "softmax");
    CHECK(c.moe.shared_ffn == 0);
    CHECK_FALSE(c.moe.average);
    c = parse(of("cohere2_moe", {{"rms_norm_eps", 1e-6},
                                 {"first_k_dense_replace", 2},
                                 {"prefix_dense_sliding_window_pattern", 2},
                                 {"prefix_dense_intermediate_size", 200},
                                 {"expert_selection_fn", "sigmoid"},
                                 {"norm_topk_prob", false},
                                 {"num_shared_experts", 2}}));
    CHECK(c.norm == Norm::rms);
    CHECK(c.norm_eps == 1e-6);
    CHECK(c.no_rope == Flags{false, true, false, false, false, true});
    CHECK(c.ffn == 200);
    CHECK(c.moe.ffn == 112);
    CHECK(c.moe.shared_ffn == 224);
    CHECK(c.moe.average);
    CHECK_FALSE(c.moe.normalize);
    const Json linear{{"type", "linear"}, {"factor", 2.0}};
    const Json wrong{{"rope_scaling", linear},
                     {"expert_selection_fn", "tanh"},
                     {"shared_expert_combination_strategy", "max"},
                     {"use_qk_norm", true}};
    for (const auto& [key, value] : wrong.items()) {
      CAPTURE(key);
      CHECK(has(refused(of("cohere2_moe", {{key, value}})), ("'" + key + "'").c_str()));
    }
  }

  TEST_CASE("mellum: a rope for each type of layer, and layers without experts") {
    const std::vector<std::string> mlps = {"dense",  "sparse", "sparse",
                                           "sparse", "sparse", "dense"};
    ModelConfig c = parse(of("mellum", {{"mlp_layer_types", mlps}, {"num_local_experts", 8}}));
    CHECK(c.sparse == Flags{false, true, true, true, true, false});
    CHECK(c.moe.experts == 8);
    CHECK(c.moe.normalize);
    CHECK(c.rope.theta == 5e5);
    CHECK(c.local_rope.theta == 1e4);
    CHECK_FALSE(c.local[0]);
    CHECK(parse(of("mellum", Json::object())).sparse[0]);
    const Json part{{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
    c = parse(of("mellum", {{"rope_parameters", {{"full_attention", part}}}}));
    CHECK(c.rope.dims == c.head_dim / 2);
    CHECK(has(refused(of("mellum", {{"rope_theta", 1e4}})), "'rope_theta'"));
    CHECK(has(refused(of("mellum", {{"mlp_only_layers", {1}}})), "'mlp_only_layers'"));
    CHECK(has(refused(of("mellum", {{"decoder_sparse_step", 2}})), "'decoder_sparse_step'"));
  }

  TEST_CASE("granite_swa and granitemoe_swa: windows, and a theta for each layer") {
    ModelConfig c = parse(of("granite_swa", Json::object()));
    CHECK(c.local == Flags{false, true, true, true, false, true});
    CHECK(c.window == 128);
    CHECK(c.norm_eps == 1e-5);
    CHECK(c.tied);
    CHECK(c.attention_scale == 1);
    CHECK(c.no_rope.empty());
    CHECK(c.layer_thetas.empty());
    Json no_key_heads = of("granite_swa", Json::object());
    no_key_heads.erase("num_key_value_heads");
    CHECK(parse(no_key_heads).kv_heads == 4);
    CHECK(parse(of("granite_swa", {{"num_key_value_heads", nullptr}})).kv_heads == 8);

    const std::vector<double> thetas = {1e4, 0, 500, 1e4, 2e5, 0};
    c = parse(of("granite_swa", {{"layer_rope_theta", thetas}, {"rope_theta", 7e3}}));
    CHECK(c.layer_thetas == thetas);
    CHECK(c.no_rope == Flags{false, true, false, false, false, true});

    c = parse(of("granitemoe_swa", {{"layer_rope_theta", {0, 0, 0, 0, 0, 0}}}));
    CHECK(c.moe.experts == 8);
    CHECK(c.moe.shared_ffn == 0);
    CHECK(c.norm_eps == 1e-6);
    CHECK_FALSE(c.tied);
    CHECK(c.no_rope == Flags(6, true));

    const Json parts{{"full_attention", {{"rope_theta", 1e4}}}};
    const Json wrong{{"layer_rope_theta", {1e4, 1e4}},
                     {"layer_types", {"full_attention"}},
                     {"sliding_window", nullptr},
                     {"full_attention_interval", 4},
                     {"use_sliding_window", true}};
    for (const char* type : {"granite_swa", "granitemoe_swa"})
      for (const auto& [key, value] : wrong.items()) {
        CAPTURE(key);
        CHECK(has(refused(of(type, {{key, value}})), ("'" + key + "'").c_str()));
      }
    CHECK(has(refused(of("granite_swa", {{"rope_parameters", parts}})), "'full_attention'"));
    const std::vector<std::string> chunks(6, "chunked_attention");
    CHECK(has(refused(of("granite_swa", {{"layer_types", chunks}})), "'layer_types'"));
    std::vector<double> negative = thetas;
    negative[3] = -1;
    CHECK(has(refused(of("granite_swa", {{"layer_rope_theta", negative}})), "'layer_rope_theta'"));
    CHECK(has(refused(of("granite_swa", {{"layer_rope_theta", Json::array()}})),
              "'layer_rope_theta'"));
    for (const Json& form : {Json(1e4), Json("1e4"), Json{1e4, nullptr}, Json{true, false}})
      CHECK(has(refusal(of("granite_swa", {{"layer_rope_theta", form}}), TENON_CORRUPT),
                "'layer_rope_theta'"));
    CHECK(has(refusal(of("granite_swa", {{"sliding_window", 0}}), TENON_INVALID_ARGUMENT),
              "'sliding_window'"));
    const Json yarn{{"rope_type", "yarn"}, {"factor", 2.0}};
    CHECK(has(refusal(of("granite_swa",
                         {{"rope_parameters", yarn}, {"layer_rope_theta", {1, 1, 1, 1, 1, 1}}}),
                      TENON_INVALID_ARGUMENT),
              "layer_rope_theta"));
    CHECK(has(
        refusal(of("granitemoe_swa", {{"shared_intermediate_size", -1}}), TENON_INVALID_ARGUMENT),
        "'shared_intermediate_size'"));
  }

  TEST_CASE("exaone and iquestcoder: names of keys and classes") {
    Json own = of("exaone", {{"num_layers", 3},
                             {"layer_norm_epsilon", 1e-6},
                             {"activation_function", "gelu"},
                             {"architectures", {"ExaoneForCausalLM"}}});
    own.erase("num_hidden_layers");
    ModelConfig c = parse(own);
    CHECK(c.layers == 3);
    CHECK(c.norm_eps == 1e-6);
    CHECK(c.activation == "gelu");
    CHECK(c.rope.theta == 5e5);
    c = parse(of("exaone", {{"architectures", {"LlamaForCausalLM"}}}));
    CHECK(c.layers == 6);
    CHECK(c.norm_eps == 1e-5);
    CHECK(c.activation == "silu");
    CHECK(has(refused(of("exaone", {{"num_layers", 3}})), "'num_hidden_layers'"));

    c = parse(of("iquestcoder", {{"head_dim", nullptr}, {"architectures", {"LlamaForCausalLM"}}}));
    CHECK(c.head_dim == 8);
    CHECK(c.norm_eps == 1e-5);
    CHECK(has(refused(of("iquestcoder", {{"clip_qkv", 8.0}})), "'clip_qkv'"));
    CHECK(has(refused(of("iquestcoder", {{"use_sliding_window", true}})), "'use_sliding_window'"));
  }
}
