// SPDX-License-Identifier: Apache-2.0
// The configuration of Mamba-2 and of hybrid models as keys of GGUF and back, and their tensors.
#include <doctest/doctest.h>

#include "files_rig.hpp"
#include "llm/files/change.hpp"
#include "llm/files/mixer_keys.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::llm::files;

namespace {

// What config.json, of which nothing but the sizes of attention is given, becomes as a file.
struct Written {
  Folder folder;
  std::string path = folder.path + "/m.gguf";
  Json from;

  Written(const char* model_type, const Json& changes) : from(config(changes)) {
    from["model_type"] = model_type;
    const std::string file = "config.json";
    const ModelConfig engine = parse_config(from.dump(), file);
    const Family& family = family_of(engine, file);
    GgufWriter out(path);
    out.set("general.architecture", family.gguf);
    set_config_keys(out, family, from, file, &engine);
    out.commit();
  }
  Json back() const {
    const Gguf model(path);
    return config_from_keys(model, family_of_gguf(model, path), "float32", path);
  }
};

std::string refused(const char* model_type, const Json& changes) {
  try {
    const Written written(model_type, changes);
  } catch (const Error& e) {
    return e.what();
  }
  return "converted";
}
bool names(const std::string& message, const char* key) {
  return message.starts_with("config.json: '" + std::string(key) + "': '");
}

const Json kMixer{{"num_hidden_layers", 4}, {"mamba_n_heads", 8},
                  {"mamba_d_head", 16},     {"mamba_d_state", 16},
                  {"mamba_n_groups", 2},    {"shared_intermediate_size", 80}};

Json mixer(const Json& more) {
  Json out = kMixer;
  out.update(more);
  return out;
}

}  // namespace

TEST_SUITE("llm/files mixer") {
  TEST_CASE("mamba2: keys there and back") {
    Json sizes{{"num_heads", 8},
               {"head_dim", 16},
               {"n_groups", 2},
               {"expand", 2},
               {"conv_kernel", 4},
               {"state_size", 24},
               {"layer_norm_epsilon", 1e-4}};
    Json plain = sizes;
    for (const char* key : {"intermediate_size", "num_attention_heads", "num_key_value_heads",
                            "rms_norm_eps", "max_position_embeddings"})
      plain[key] = nullptr;
    const Json back = Written("mamba2", plain).back();
    for (const auto& [key, value] : sizes.items()) {
      CAPTURE(key);
      CHECK(back[key] == value);
    }
    const auto bad = [&](const char* key, const Json& value) {
      Json changed = plain;
      changed[key] = value;
      return names(refused("mamba2", changed), key);
    };
    CHECK(bad("use_bias", true));
    CHECK(bad("use_conv_bias", false));
    CHECK(bad("time_step_limit", {0.25, 0.5}));
    plain.update({{"num_heads", 16}});
    CHECK(bad("expand", 4));
  }

  TEST_CASE("granitemoehybrid: layers, experts, positions") {
    const Json types{"mamba", "attention", "mamba", "mamba"};
    Json dense = mixer({{"layer_types", types}, {"num_local_experts", 0}});
    Written written("granitemoehybrid", dense);
    const Gguf model(written.path);
    CHECK(model.numbers<int64_t>("granitehybrid.attention.head_count_kv") ==
          std::vector<int64_t>{0, 2, 0, 0});
    CHECK(model.number<bool>("granitehybrid.rope.scaling.finetuned") == false);
    Json back = written.back();
    CHECK(back["layer_types"] == types);
    CHECK(back["position_embedding_type"] == "nope");
    CHECK(back["num_local_experts"] == 0);
    CHECK(back["shared_intermediate_size"] == 80);
    CHECK(back["mamba_n_heads"] == 8);
    dense["position_embedding_type"] = "rope";
    dense["rope_theta"] = 5e5;
    back = Written("granitemoehybrid", dense).back();
    CHECK(back["position_embedding_type"] == "rope");
    CHECK(back["rope_theta"] == 5e5);
    const Json sparse = mixer({{"layer_types", types},
                               {"num_local_experts", 8},
                               {"num_experts_per_tok", 3},
                               {"attention_multiplier", 0.25}});
    back = Written("granitemoehybrid", sparse).back();
    for (const char* key : {"num_local_experts", "num_experts_per_tok", "attention_multiplier",
                            "intermediate_size", "shared_intermediate_size"}) {
      CAPTURE(key);
      CHECK(back[key] == Written("granitemoehybrid", sparse).from[key]);
    }
    CHECK(names(
        refused("granitemoehybrid", mixer({{"layer_types", types}, {"mamba_proj_bias", true}})),
        "mamba_proj_bias"));
    CHECK(refused("granitemoehybrid",
                  mixer({{"layer_types", Json(std::vector<std::string>(4, "attention"))}}))
              .starts_with("config.json: 'layer_types': a model of attention alone"));
  }

  TEST_CASE("falcon_h1: factors go into the weights") {
    const Json factors = mixer({{"mamba_d_ssm", 128},
                                {"key_multiplier", 0.5},
                                {"attention_in_multiplier", 3.0},
                                {"ssm_in_multiplier", 2.0},
                                {"ssm_multipliers", {1.0, 2.0, 3.0, 4.0, 5.0}},
                                {"embedding_multiplier", 7.0}});
    Json json = factors;
    json.erase("shared_intermediate_size");
    const Json back = Written("falcon_h1", json).back();
    CHECK(back["mamba_d_ssm"] == 128);
    CHECK_FALSE(back.contains("key_multiplier"));
    const ModelConfig c = parse_config(Written("falcon_h1", json).from.dump(), "config.json");
    std::vector<float> some{1, -2};
    scale_falcon(c, "model.layers.0.self_attn.k_proj.weight", some);
    CHECK(some == std::vector<float>{1.5, -3});
    scale_falcon(c, "model.embed_tokens.weight", some);
    CHECK(some == std::vector<float>{10.5, -21});
    // Rows of z, x, b, c and dt: 128, 128, 32, 32 and 8 of 64 columns.
    std::vector<float> rows(size_t{328} * 64, 1);
    scale_falcon(c, "model.layers.0.mamba.in_proj.weight", rows);
    for (const auto& [row, value] :
         {std::pair(0, 2), {127, 2}, {128, 4}, {256, 6}, {287, 6}, {288, 8}, {320, 10}, {327, 10}})
      CHECK(rows[static_cast<size_t>(row) * 64] == value);
    json.update({{"tie_word_embeddings", true}});
    CHECK(names(refused("falcon_h1", json), "tie_word_embeddings"));
    json.update({{"tie_word_embeddings", false}, {"mamba_rms_norm", true}});
    CHECK(names(refused("falcon_h1", json), "mamba_norm_before_gate"));
  }

  TEST_CASE("nemotron_h, jamba: kinds of layers there and back") {
    const Json types{"linear_attention", "mlp", "full_attention", "linear_attention"};
    Json j{{"layers_block_type", types}, {"num_hidden_layers", nullptr},
           {"rms_norm_eps", nullptr},    {"mamba_num_heads", 6},
           {"mamba_head_dim", 16},       {"n_groups", 2},
           {"ssm_state_size", 16},       {"head_dim", 16}};
    Json back = Written("nemotron_h", j).back();
    CHECK(back["layers_block_type"] == types);
    CHECK(back["intermediate_size"] == 96);
    CHECK(back["mamba_head_dim"] == 16);
    const Json sparse{"linear_attention", "moe", "full_attention", "moe"};
    j.update({{"layers_block_type", sparse},
              {"n_routed_experts", 4},
              {"num_experts_per_tok", 3},
              {"moe_intermediate_size", 48},
              {"moe_shared_expert_intermediate_size", 56},
              {"routed_scaling_factor", 2.5}});
    back = Written("nemotron_h", j).back();
    CHECK(back["layers_block_type"] == sparse);
    for (const char* key : {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "moe_shared_expert_intermediate_size", "routed_scaling_factor"}) {
      CAPTURE(key);
      CHECK(back[key] == j[key]);
    }
    j["layers_block_type"][3] = "mlp";
    CHECK(names(refused("nemotron_h", j), "layers_block_type"));
    j["layers_block_type"][3] = "moe";
    j["time_step_min"] = 0.01;
    CHECK(names(refused("nemotron_h", j), "time_step_min"));
    Json jamba{{"num_hidden_layers", 5},
               {"attn_layer_period", 3},
               {"attn_layer_offset", 1},
               {"num_experts", 4},
               {"mamba_d_state", 8}};
    back = Written("jamba", jamba).back();
    CHECK(back["attn_layer_period"] == 3);
    CHECK(back["attn_layer_offset"] == 1);
    CHECK(back["num_experts"] == 4);
    CHECK(back["mamba_dt_rank"] == 4);
  }

  TEST_CASE("contents: columns, groups and halves") {
    const HeadRows rows{.groups = 2};
    CHECK(changed_dims(Change::column, {3}, rows, "d") == std::vector<int64_t>{3, 1});
    CHECK(dims_back(Change::column, {3, 1}, "d") == std::vector<int64_t>{3});
    CHECK(changed_dims(Change::groups, {6}, rows, "n") == std::vector<int64_t>{2, 3});
    CHECK(dims_back(Change::groups, {2, 3}, "n") == std::vector<int64_t>{6});
    CHECK_THROWS_AS(changed_dims(Change::groups, {5}, rows, "n"), Error);
    CHECK_THROWS_AS(dims_back(Change::column, {3, 2}, "d"), Error);
    const std::vector<float> numbers{1, 2, 3, 4};
    CHECK(changed_dims(Change::first_half, {2, 2}, rows, "m") == std::vector<int64_t>{1, 2});
    CHECK(changed(Change::first_half, numbers, {2, 2}, rows) == std::vector<float>{1, 2});
    CHECK(changed(Change::second_half, numbers, {2, 2}, rows) == std::vector<float>{3, 4});
    CHECK(stacked_dims({1, 2}, {1, 2}, "m") == std::vector<int64_t>{2, 2});
    CHECK_THROWS_AS(stacked_dims({1, 2}, {2, 2}, "m"), Error);
    CHECK_THROWS_AS(changed_dims(Change::first_half, {3, 2}, rows, "m"), Error);
    const std::vector<float> logs{0, 1};
    const std::vector<float> rates = changed(Change::exponent_column, logs, {2}, rows);
    CHECK(rates[0] == -1);
    CHECK(changed_back(Change::exponent_column, rates, {2, 1}, rows, "a")[1] == doctest::Approx(1));
  }
}
