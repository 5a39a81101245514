// SPDX-License-Identifier: Apache-2.0
// config.json of Gemma 3n and Gemma 4: layers that differ, and their inputs.
#include <doctest/doctest.h>

#include <cmath>

#include "config_rig.hpp"
#include "llm/arch/config.hpp"
#include "llm/arch/gemma_parts.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

const std::string kLocal = "sliding_attention", kFull = "full_attention";

Json gemma(const char* type, const Json& more) {
  const Json base{
      {"model_type", type},       {"vocab_size", 96},       {"hidden_size", 64},
      {"intermediate_size", 112}, {"num_hidden_layers", 6}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}, {"head_dim", 16},         {"max_position_embeddings", 128}};
  return with(base, more);
}

std::string refused(const Json& j) { return refusal(j, TENON_UNSUPPORTED); }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

}  // namespace

TEST_SUITE("llm/config gemma4") {
  TEST_CASE("gemma4: heads and ropes of layers without a window") {
    ModelConfig c = parse(gemma("gemma4_text", Json::object()));
    CHECK(c.local == std::vector<bool>{true, true, true, true, true, false});
    CHECK(c.per_layer.head_dim == 512);
    CHECK(c.per_layer.kv_heads == 2);
    CHECK(c.rope.type == RopeConfig::Type::proportional);
    CHECK(c.rope.dims == 512);
    CHECK(c.rope.turned_dims == 128);
    CHECK(c.local_rope.dims == 16);
    CHECK(c.local_rope.theta == 1e4);
    CHECK(c.attention_scale == 1);
    CHECK(c.tied);
    CHECK(c.per_layer.input_dim == 256);
    const std::vector<double> f = c.rope.frequencies(128);
    CHECK(f.size() == 256);
    CHECK(f[1] == doctest::Approx(std::pow(1e6, -2.0 / 512)));
    CHECK(f[63] > 0);
    CHECK(f[64] == 0);

    const Json full{
        {"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}, {"rope_theta", 1e5}};
    c = parse(gemma("gemma4_text", {{"layer_types", {kLocal, kFull, kLocal, kFull, kLocal, kLocal}},
                                    {"global_head_dim", 32},
                                    {"num_global_key_value_heads", 1},
                                    {"attention_k_eq_v", true},
                                    {"rope_parameters", {{kFull, full}}}}));
    CHECK_FALSE(c.local[5]);  // the last layer never has a window
    CHECK(c.per_layer.keys_as_values);
    CHECK(c.per_layer.kv_heads == 1);
    CHECK(c.rope.dims == 32);
    CHECK(c.rope.turned_dims == 16);
    // Without attention_k_eq_v, the number has no effect.
    c = parse(gemma("gemma4_text", {{"num_global_key_value_heads", 1}}));
    CHECK(c.per_layer.kv_heads == 2);
    CHECK(has(refused(gemma("gemma4_text",
                            {{"num_global_key_value_heads", 3}, {"attention_k_eq_v", true}})),
              "'num_global_key_value_heads'"));
  }

  TEST_CASE("gemma4: an object for each layer without a window") {
    const auto own = [](const Json& layers) {
      return gemma("gemma4_text", {{"layer_types", {kLocal, kFull, kLocal, kLocal, kLocal, kFull}},
                                   {"per_layer_config", layers}});
    };
    const ModelConfig c = parse(own({{"1", {{"head_dim", 32}}}, {"5", {{"head_dim", 32}}}}));
    CHECK(c.per_layer.head_dim == 32);
    CHECK(c.per_layer.kv_heads == 2);
    CHECK(has(refused(own({{"1", {{"head_dim", 32}}}})), "'per_layer_config'"));
    CHECK(has(refused(own({{"1", {{"head_dim", 32}}}, {"5", {{"head_dim", 64}}}})), "'5'"));
    CHECK(has(refused(own({{"1", {{"head_dim", 32}}}, {"2", {{"head_dim", 32}}}})), "'2'"));
    CHECK(has(refused(own({{"1", {{"head_dim", 32}}}, {"5", {{"hidden_size", 32}}}})),
              "'hidden_size'"));
  }

  TEST_CASE("gemma4: layers that read the keys of others") {
    const auto shared = [](int64_t count, const Json& types) {
      return gemma("gemma4_text", {{"layer_types", types}, {"num_kv_shared_layers", count}});
    };
    const Json types{kLocal, kFull, kLocal, kFull, kLocal, kFull};
    const ModelConfig c = parse(shared(2, types));
    CHECK(layer_of_keys(c, 3) == -1);
    CHECK(layer_of_keys(c, 4) == 2);
    CHECK(layer_of_keys(c, 5) == 3);
    CHECK(has(refused(shared(6, types)), "'num_kv_shared_layers'"));
    CHECK(has(refused(shared(2, {kLocal, kLocal, kLocal, kLocal, kLocal, kFull})),
              "'num_kv_shared_layers'"));
  }

  TEST_CASE("gemma4: experts, and what is refused") {
    const Json experts{{"enable_moe_block", true},
                       {"num_experts", 8},
                       {"top_k_experts", 2},
                       {"moe_intermediate_size", 24}};
    ModelConfig c = parse(gemma("gemma4_text", experts));
    CHECK(c.per_layer.experts);
    CHECK(c.moe.experts == 8);
    CHECK(c.moe.per_token == 2);
    CHECK(c.moe.ffn == 24);
    c = parse(gemma("gemma4_text", with(experts, {{"enable_moe_block", false}})));
    CHECK(c.moe.experts == 0);
    CHECK_NOTHROW(parse(gemma("gemma4_text", {{"use_bidirectional_attention", "vision"}})));
    CHECK(has(refused(gemma("gemma4_text", {{"use_bidirectional_attention", "all"}})),
              "'use_bidirectional_attention'"));
    CHECK(has(refused(gemma("gemma4_text", {{"other", 1}})), "'other'"));
    const Json whole{{"model_type", "gemma4"},
                     {"text_config", gemma("gemma4_text", Json::object())},
                     {"vision_config", {{"hidden_size", 32}}}};
    CHECK(parse(whole).architecture->model_type == "gemma4_text");
  }

  TEST_CASE("gemma3n: streams, sparse gates, and sizes of layers") {
    const Json some{{"num_kv_shared_layers", 1}};
    const auto gemma3n = [&](const Json& more) { return gemma("gemma3n_text", with(some, more)); };
    ModelConfig c = parse(gemma3n(Json::object()));
    CHECK(c.local == std::vector<bool>{true, true, true, true, false, true});
    CHECK(c.altup.streams == 4);
    CHECK(c.altup.active == 0);
    CHECK(c.altup.scaled);
    CHECK(c.altup.laurel_rank == 64);
    CHECK(c.altup.sparsity == std::vector<double>(6, 0));
    CHECK(c.logit_softcap == 30);
    CHECK(c.rope.theta == 1e6);
    CHECK(c.local_rope.theta == 1e4);
    CHECK(layer_of_keys(c, 5) == 3);
    c = parse(gemma("gemma3n_text", {{"num_hidden_layers", 20}}));
    CHECK(c.per_layer.shared_keys == 15);
    CHECK(c.altup.sparsity[9] == 0.95);
    CHECK(c.altup.sparsity[10] == 0);
    const std::vector<int64_t> same(6, 80);
    CHECK(parse(gemma3n({{"intermediate_size", same}})).ffn == 80);
    std::vector<int64_t> other = same;
    other[2] = 81;
    CHECK(has(refused(gemma3n({{"intermediate_size", other}})), "'intermediate_size'"));
    CHECK(has(refused(gemma3n({{"intermediate_size", {80, 80}}})), "'intermediate_size'"));
    CHECK(has(refused(gemma3n({{"altup_active_idx", 4}})), "'altup_active_idx'"));
    CHECK(has(refused(gemma3n({{"altup_num_inputs", 1}})), "'altup_num_inputs'"));
    CHECK(has(refused(gemma3n({{"activation_sparsity_pattern", std::vector<double>(5, 0.5)}})),
              "'activation_sparsity_pattern'"));
    CHECK(has(refused(gemma3n({{"activation_sparsity_pattern", std::vector<double>(6, 1)}})),
              "'activation_sparsity_pattern'"));
    // No other family takes a list.
    CHECK(has(refusal(with(llama(), {{"intermediate_size", same}}), TENON_CORRUPT),
              "'intermediate_size' has the wrong form"));
  }
}
