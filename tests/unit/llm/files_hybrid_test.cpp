// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next, Qwen3.5 and LFM2 as GGUF files: keys, and the order of heads.
#include <doctest/doctest.h>

#include <numeric>

#include "files_rig.hpp"
#include "llm/arch/config.hpp"
#include "llm/files/change.hpp"
#include "llm/files/hybrid_keys.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::llm::files;

namespace {

std::vector<float> counted(int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0.f);
  return out;
}

// Two key heads with two value heads each.
constexpr LinearHeads kHeads = {.key_heads = 2, .value_heads = 4, .key_dim = 1, .value_dim = 2};

Json kinds_of(const std::string& letters, const char* recurrent) {
  Json out = Json::array();
  for (const char c : letters) out.push_back(c == 'r' ? recurrent : "full_attention");
  return out;
}

}  // namespace

TEST_SUITE("llm/files hybrid") {
  TEST_CASE("order: value heads 0 1 | 2 3 of two key heads become 0 2 1 3") {
    const std::vector<float> rows = counted(8);  // of 4 heads with 2 rows each
    CHECK(reordered(Order::rows, rows, {8, 1}, kHeads, false, "t") ==
          std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7});
    CHECK(reordered(Order::rows, {0, 1, 2, 3}, {4}, kHeads, false, "t") ==
          std::vector<float>{0, 2, 1, 3});
    // Four rows of keys in front: q and k of two heads.
    CHECK(reordered(Order::rows_behind_keys, counted(12), {12}, kHeads, false, "t") ==
          std::vector<float>{0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11});
    CHECK(reordered(Order::columns, counted(16), {2, 8}, kHeads, false, "t") ==
          std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
    CHECK(reordered(Order::same, rows, {8}, kHeads, false, "t") == rows);
    // Three value heads for each of two key heads: the way back is not the same.
    const LinearHeads six = {.key_heads = 2, .value_heads = 6, .key_dim = 1, .value_dim = 1};
    const std::vector<float> there = reordered(Order::rows, counted(6), {6}, six, false, "t");
    CHECK(there == std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK(reordered(Order::rows, there, {6}, six, true, "t") == counted(6));
    CHECK_THROWS_WITH_AS(reordered(Order::rows, counted(6), {6, 1}, kHeads, false, "t"),
                         doctest::Contains("rows for each of 4 value heads"), Error);
    CHECK_THROWS_WITH_AS(reordered(Order::rows_behind_keys, counted(4), {4}, kHeads, false, "t"),
                         doctest::Contains("4 rows of q and k"), Error);
    CHECK_THROWS_WITH_AS(reordered(Order::columns, counted(6), {1, 6}, kHeads, false, "t"),
                         doctest::Contains("columns for each of 4 value heads"), Error);
  }

  TEST_CASE("in_proj_qkvz: its rows of q, k and v, and those of the gate") {
    // For each key head: q, k, 4 rows of v, 4 of the gate.
    const HeadRows rows{.linear = kHeads};
    const std::vector<int64_t> dims = {20, 1};
    CHECK(changed_dims(Change::of_qkv, dims, rows, "t") == std::vector<int64_t>{12, 1});
    CHECK(changed_dims(Change::of_gate, dims, rows, "t") == std::vector<int64_t>{8, 1});
    const std::vector<float> qkv = changed(Change::of_qkv, counted(20), dims, rows),
                             gate = changed(Change::of_gate, counted(20), dims, rows);
    CHECK(qkv == std::vector<float>{0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15});
    CHECK(gate == std::vector<float>{6, 7, 8, 9, 16, 17, 18, 19});
    CHECK(joined_dims_of_linear({12, 1}, {8, 1}, kHeads, "t") == dims);
    CHECK(joined_linear(qkv, gate, kHeads) == counted(20));
    CHECK_THROWS_WITH_AS(changed_dims(Change::of_qkv, {21, 1}, rows, "t"),
                         doctest::Contains("a matrix of 20 rows"), Error);
    CHECK_THROWS_WITH_AS(joined_dims_of_linear({12, 1}, {8, 2}, kHeads, "t"),
                         doctest::Contains("8 rows of as many columns in attn_gate"), Error);
  }

  TEST_CASE("the gate of a shared expert: one axis, or the one row that some writers keep") {
    CHECK(dims_back(Change::row, {5}, "t") == std::vector<int64_t>{1, 5});
    CHECK(dims_back(Change::row, {1, 5}, "t") == std::vector<int64_t>{1, 5});
    CHECK_THROWS_WITH_AS(dims_back(Change::row, {2, 5}, "t"),
                         doctest::Contains("one axis, or one row"), Error);
  }

  TEST_CASE("config: linear attention there and back") {
    const Json heads{{"linear_num_key_heads", 2},   {"linear_num_value_heads", 6},
                     {"linear_key_head_dim", 8},    {"linear_value_head_dim", 16},
                     {"linear_conv_kernel_dim", 3}, {"head_dim", 32}};
    const Json experts{{"num_experts", 8},
                       {"num_experts_per_tok", 2},
                       {"moe_intermediate_size", 48},
                       {"shared_expert_intermediate_size", 40}};
    for (const char* type : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
      CAPTURE(type);
      Json changes = heads;
      const bool sparse = std::string(type) != "qwen3_5_text";
      if (sparse) changes.update(experts);
      // Every fourth layer, and a list that has no such number.
      for (const std::string letters : {"rrrarrrarrra", "arrrraarrrar"}) {
        changes["layer_types"] = kinds_of(letters, "linear_attention");
        const Json c = there_and_back(type, changes);
        for (const auto& [key, value] : changes.items()) CHECK(c[key] == value);
        CHECK(c["partial_rotary_factor"] == 0.25);
        const ModelConfig engine = parse_config(c.dump(), "config.json");
        CHECK(engine.delta.value_heads == 6);
        CHECK(engine.delta.values() == 96);
        CHECK(engine.recurrent_layers[0] == (letters[0] == 'r'));
      }
      changes.erase("layer_types");
      CHECK(there_and_back(type, changes)["layer_types"] ==
            kinds_of("rrrarrrarrra", "linear_attention"));
      changes["layer_types"] = {"linear_attention"};
      CHECK(refusal(type, changes).find("'layer_types': expected one entry for each of the 12") !=
            std::string::npos);
    }
    Json none = heads;
    none.update(experts);
    none["intermediate_size"] = nullptr;
    CHECK_FALSE(there_and_back("qwen3_5_moe_text", none).contains("intermediate_size"));
    CHECK(refusal("qwen3_5_text",
                  [&] {
                    Json more = heads;
                    more["attention_bias"] = true;
                    return more;
                  }())
              .find("'attention_bias'") != std::string::npos);
    Json other = heads;
    other.update(experts);
    other["norm_topk_prob"] = false;
    CHECK(refusal("qwen3_next", other).find("'norm_topk_prob'") != std::string::npos);
    other = heads;
    other["linear_num_value_heads"] = 5;
    CHECK(refusal("qwen3_5_text", other).find("'linear_num_value_heads' is 5 beside 2 key heads") !=
          std::string::npos);
  }

  TEST_CASE("config: short convolutions there and back") {
    Json changes{{"norm_eps", 1e-4},
                 {"layer_types", kinds_of("rrarrarrarra", "conv")},
                 {"conv_L_cache", 4},
                 {"block_ff_dim", 1536},
                 {"rms_norm_eps", nullptr}};
    Json c = there_and_back("lfm2", changes);
    CHECK(c["layer_types"] == changes["layer_types"]);
    CHECK(c["conv_L_cache"] == 4);
    CHECK(c["norm_eps"] == 1e-4);
    CHECK(c["num_key_value_heads"] == 2);
    CHECK(c["intermediate_size"] == 1024);
    CHECK(c["block_auto_adjust_ff_dim"] == false);
    CHECK(c["rope_theta"] == 1e6);
    CHECK(parse_config(c.dump(), "config.json").ffn == 1024);
    Json whole = config(changes);
    whole["model_type"] = "lfm2";
    whole.erase("rms_norm_eps");
    CHECK(parse_config(whole.dump(), "config.json").ffn == lfm2_ffn(whole, "config.json"));
    changes["conv_bias"] = true;
    CHECK(refusal("lfm2", changes).find("'conv_bias': 'true' has no form in GGUF") !=
          std::string::npos);
    c = there_and_back("lfm2_moe", {{"norm_eps", 1e-5},
                                    {"layer_types", kinds_of("rrarrarrarra", "conv")},
                                    {"num_experts", 8},
                                    {"num_experts_per_tok", 2},
                                    {"num_dense_layers", 3},
                                    {"moe_intermediate_size", 48},
                                    {"routed_scaling_factor", 1.5}});
    CHECK(c["num_dense_layers"] == 3);
    CHECK(c["num_experts"] == 8);
    CHECK(c["moe_intermediate_size"] == 48);
    CHECK(c["routed_scaling_factor"] == 1.5);
    CHECK(parse_config(c.dump(), "config.json").sparse[3]);
  }
}
