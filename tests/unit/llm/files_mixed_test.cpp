// SPDX-License-Identifier: Apache-2.0
// Falcon, MPT, BLOOM, Llama 4, Apertus and mixtures of experts as GGUF and back: keys, and rows of
// q, k and v.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "files_rig.hpp"
#include "llm/files/change.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::llm::files;

TEST_SUITE("llm/files mixed") {
  TEST_CASE("rows of q, k and v by head of keys") {
    // 4 heads of q, 2 of keys: q0 q1 k0 v0 q2 q3 k1 v1, one row each.
    std::vector<float> rows(8);
    std::iota(rows.begin(), rows.end(), 0.f);
    const HeadRows heads{.heads = 4, .key_heads = 2};
    const std::vector<int64_t> dims = {8, 1};
    const std::vector<float> apart = changed(Change::by_part, rows, dims, heads);
    CHECK(apart == std::vector<float>{0, 1, 4, 5, 2, 6, 3, 7});
    CHECK(changed_back(Change::by_part, apart, dims, heads, "t") == rows);
    // One head of keys: as it is.
    CHECK(changed(Change::by_part, rows, dims, {.heads = 6, .key_heads = 1}) == rows);
    CHECK_THROWS_WITH_AS(changed_dims(Change::by_part, {9, 1}, heads, "t"),
                         "tensor 't': expected rows of 4 heads of q and 2 of k and of v", Error);
  }

  TEST_CASE("config: falcon, mpt and bloom there and back") {
    // Without the keys that all other families have.
    const auto own = [](const Json& sizes, const Json& more) {
      Json out;
      const Json usual = config(Json::object());
      for (const auto& [key, value] : usual.items())
        out[key] = key == "vocab_size" ? value : Json();
      out.update(sizes), out.update(more);
      return out;
    };
    const Json none = Json::object();
    const Json sizes{{"hidden_size", 64}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
    Json c = there_and_back("falcon", own(sizes, {{"max_position_embeddings", 512}}));
    CHECK(c["num_kv_heads"] == 1);
    CHECK(c["new_decoder_architecture"] == false);
    CHECK(c["max_position_embeddings"] == 512);
    CHECK(c["ffn_hidden_size"] == 256);
    CHECK(refusal("falcon", own(sizes, {{"alibi", true}, {"multi_query", false}})) ==
          "config.json: 'alibi': 'true' has no form in GGUF for this model_type; expected false");
    CHECK(refusal("falcon", own(sizes, {{"parallel_attn", false}})).find("'parallel_attn'") !=
          std::string::npos);
    CHECK(refusal("falcon", own(sizes, {{"bias", true}})).find("'bias'") != std::string::npos);

    const Json mpt{{"d_model", 64}, {"n_layers", 2}, {"n_heads", 4}, {"max_seq_len", 512}};
    const Json attention{{"alibi_bias_max", 4}, {"clip_qkv", 6.0}};
    c = there_and_back("mpt", own(mpt, {{"attn_config", attention}}));
    CHECK(c["attn_config"]["alibi_bias_max"] == 4);
    CHECK(c["attn_config"]["clip_qkv"] == 6.0);
    CHECK(c["max_seq_len"] == 512);
    CHECK(there_and_back("mpt", own(mpt, none))["attn_config"]["alibi_bias_max"] == 8);
    const Json scaled{{"softmax_scale", 0.5}};
    CHECK(refusal("mpt", own(mpt, {{"attn_config", scaled}})).find("'softmax_scale'") !=
          std::string::npos);

    const Json bloom{{"hidden_size", 64}, {"n_layer", 2}, {"n_head", 4}, {"seq_length", 256}};
    c = there_and_back("bloom", own(bloom, none));
    for (const auto& [key, value] : bloom.items()) CHECK(c[key] == value);
    CHECK(refusal("gptj", none).find("model_type 'gptj' cannot be converted") != std::string::npos);
  }

  TEST_CASE("config: experts of ERNIE 4.5, Hunyuan, dots.llm1 and Llama 4 there and back") {
    const Json ernie{{"moe_num_experts", 8},        {"moe_k", 2},
                     {"moe_intermediate_size", 24}, {"moe_num_shared_experts", 2},
                     {"moe_layer_start_index", 1},  {"moe_layer_interval", 1}};
    Json c = there_and_back("ernie4_5_moe", ernie);
    for (const auto& [key, value] : ernie.items()) CHECK(c[key] == value);
    CHECK(c["rope_theta"] == 5e5);
    Json ends = ernie;
    ends["moe_layer_end_index"] = 5;
    CHECK(refusal("ernie4_5_moe", ends).find("'moe_layer_end_index'") != std::string::npos);

    const std::vector<int64_t> twos(12, 2);
    const Json rope{{"type", "dynamic"}, {"alpha", 16.0}, {"factor", 1.0}};
    c = there_and_back("hunyuan_v1_moe",
                       {{"num_experts", 4}, {"moe_topk", twos}, {"rope_scaling", rope}});
    CHECK(c["num_experts"] == 4);
    CHECK(c["moe_topk"] == 2);
    CHECK(c["moe_intermediate_size"] == 96);
    CHECK(c["rope_theta"].get<double>() == doctest::Approx(1e4 * std::pow(16.0, 16.0 / 14)));

    const Json dots{{"n_routed_experts", 8},     {"num_experts_per_tok", 2},
                    {"n_shared_experts", 1},     {"moe_intermediate_size", 32},
                    {"norm_topk_prob", true},    {"routed_scaling_factor", 2.5},
                    {"first_k_dense_replace", 1}};
    c = there_and_back("dots1", dots);
    for (const auto& [key, value] : dots.items()) CHECK(c[key] == value);
    CHECK(c["sliding_window"].is_null());
    Json window = dots;
    window.update({{"max_window_layers", 2}, {"sliding_window", 64}});
    CHECK(refusal("dots1", window).find("'sliding_window'") != std::string::npos);

    const Json llama4{{"num_local_experts", 8},
                      {"num_experts_per_tok", 1},
                      {"intermediate_size_mlp", 192},
                      {"interleave_moe_layer_step", 2}};
    c = there_and_back("llama4_text", llama4);
    for (const auto& [key, value] : llama4.items()) CHECK(c[key] == value);
    CHECK(c["intermediate_size"] == 96);
    CHECK(c["use_qk_norm"] == true);
    for (const Json& change : {Json{{"attention_chunk_size", 64}}, Json{{"use_qk_norm", false}},
                               Json{{"attn_scale", 0.2}}, Json{{"no_rope_layer_interval", 3}},
                               Json{{"moe_layers", {1}}}}) {
      Json changed = llama4;
      changed.update(change);
      CHECK(refusal("llama4_text", changed).find("has no form in GGUF") != std::string::npos);
    }
  }

  TEST_CASE("config: AFMoE there and back, and what has no form") {
    const Json afmoe{{"num_experts", 8},        {"num_experts_per_tok", 2},
                     {"num_shared_experts", 1}, {"moe_intermediate_size", 32},
                     {"num_dense_layers", 2},   {"route_scale", 2.5},
                     {"mup_enabled", true},     {"sliding_window", 64}};
    const Json c = there_and_back("afmoe", afmoe);
    for (const auto& [key, value] : afmoe.items()) CHECK(c[key] == value);
    Json absent = afmoe;
    absent.erase("sliding_window");
    CHECK(there_and_back("afmoe", absent)["sliding_window"] == 1024);
    for (const Json& change :
         {Json{{"mup_enabled", false}}, Json{{"global_attn_every_n_layers", 3}}}) {
      Json changed = afmoe;
      changed.update(change);
      CHECK(refusal("afmoe", changed).find("has no form in GGUF") != std::string::npos);
    }
  }

  TEST_CASE("config: rope of Llama 4 and Apertus") {
    const Json rope{{"rope_type", "llama3"},
                    {"factor", 16.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 1.0},
                    {"original_max_position_embeddings", 8192}};
    CHECK(there_and_back("llama4_text", {{"rope_scaling", rope}})["rope_scaling"] == rope);
    const Json c = there_and_back("apertus", Json::object());
    CHECK(c["rope_theta"] == 12e6);
    CHECK(c["rope_scaling"]["factor"] == 8.0);
    CHECK(c["hidden_act"] == "xielu");
    CHECK(refusal("apertus", {{"hidden_act", "relu2"}}).find("'hidden_act'") != std::string::npos);
  }

  TEST_CASE("lists of numbers: one for each layer, or one for all") {
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    GgufWriter out(path);
    out.set("general.architecture", "apertus");
    out.set("xielu.alpha_p", std::vector<float>{1, 2, 3});
    out.set("xielu.beta", 0.5f);
    out.commit();
    const Gguf model(path);
    const auto numbers = [&](const char* key, int64_t layers) {
      return numbers_of({.folder = "", .key = key}, model, layers, "m.gguf");
    };
    CHECK(numbers("xielu.alpha_p", 3) == std::vector<float>{1, 2, 3});
    CHECK(numbers("xielu.beta", 3) == std::vector<float>{0.5, 0.5, 0.5});
    CHECK_THROWS_WITH_AS(numbers("xielu.alpha_p", 4),
                         "m.gguf: key 'xielu.alpha_p' has 3 numbers; expected one for each of the "
                         "4 layers",
                         Error);
    CHECK_THROWS_WITH_AS(numbers("xielu.eps", 3), "m.gguf: key 'xielu.eps' is missing", Error);
  }
}
