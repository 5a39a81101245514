// SPDX-License-Identifier: Apache-2.0
// Parts of the conversion between folders and GGUF: formats of a mix, rows of rope, names, and the
// configuration there and back. Whole conversions: cli.gguf and peers.gguf.
#include <doctest/doctest.h>

#include <fstream>

#include "files_rig.hpp"
#include "llm/files/change.hpp"
#include "llm/files/matrix.hpp"
#include "llm/files/mix.hpp"
#include "llm/model_folder.hpp"

using namespace tenon;
using namespace tenon::llm::files;

TEST_SUITE("llm/files") {
  TEST_CASE("mix: Q4_K_M gives more bits where they count") {
    const MixModel m{.layers = 16};
    const auto format = [&](const char* name, int64_t layer, int64_t columns = 256) {
      return format_in("Q4_K_M", m, name, layer, columns).name;
    };
    CHECK(format("output.weight", 0) == "Q6_K");
    CHECK(format("token_embd.weight", 0) == "Q4_K");
    CHECK(format_in("Q4_K_M", {.layers = 16, .tied = true}, "token_embd.weight", 0, 256).name ==
          "Q6_K");
    std::vector<int64_t> more;
    for (int64_t i = 0; i < 16; ++i) {
      CHECK(format("blk.0.ffn_down.weight", i) == format("blk.0.attn_v.weight", i));
      if (format("blk.0.ffn_down.weight", i) == "Q6_K") more.push_back(i);
      CHECK(format("blk.0.ffn_up.weight", i) == "Q4_K");
    }
    CHECK(more == std::vector<int64_t>{0, 1, 4, 7, 10, 13, 14, 15});
    CHECK(format("blk.0.ffn_down.weight", 0, 96) == "Q8_0");
    CHECK(format("blk.0.ffn_up.weight", 0, 96) == "Q5_0");
    CHECK(format("blk.0.ffn_up.weight", 0, 40) == "F16");
    const MixModel eight{.layers = 16, .experts = 8};
    CHECK(format_in("Q4_K_M", eight, "blk.0.attn_v.weight", 5, 256).name == "Q8_0");
    CHECK(format_in("Q4_K_M", eight, "blk.0.ffn_down_exps.weight", 4, 256).name == "Q6_K");
    CHECK(format_in("MXFP4", eight, "blk.0.ffn_down_exps.weight", 4, 256).name == "MXFP4");
    CHECK(format_in("MXFP4", eight, "blk.0.attn_q.weight", 4, 256).name == "Q8_0");
    CHECK(format_in("Q4_0", m, "output.weight", 0, 256).name == "Q6_K");
    CHECK(format_in("Q8_0", m, "output.weight", 0, 256).name == "Q8_0");
    CHECK(file_type("Q4_K_M") == 15);
    CHECK_THROWS_AS(file_type("Q9"), Error);
  }

  TEST_CASE("rope: the two rows that turn together become neighbours, and go back") {
    // Two heads of four rows of two columns.
    std::vector<float> w(16), first = w;
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i);
    first = w;
    permute_rope(w, 8, 2, false);
    CHECK(w == std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
    permute_rope(w, 8, 2, true);
    CHECK(w == first);
    CHECK_THROWS_WITH_AS(permute_rope(w, 8, 3, true), "8 rows; expected a multiple of 2 * 3 heads",
                         Error);
  }

  TEST_CASE("config: fields that have keys come back") {
    Json c = there_and_back("llama", {{"rope_theta", 500000.0}, {"head_dim", 32}});
    CHECK(c["architectures"][0] == "LlamaForCausalLM");
    CHECK(c["hidden_size"] == 64);
    CHECK(c["rope_theta"] == 500000.0);
    CHECK(c["head_dim"] == 32);
    CHECK(c["rms_norm_eps"] == 1e-5);
    CHECK(c["num_key_value_heads"] == 2);
    CHECK(c["hidden_act"] == "silu");

    const Json llama3{{"rope_type", "llama3"},
                      {"factor", 32.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 8192}};
    CHECK(there_and_back("llama", {{"rope_scaling", llama3}})["rope_scaling"] == llama3);

    c = there_and_back(
        "gemma3_text",
        {{"head_dim", 16},
         {"query_pre_attn_scalar", 168},
         {"sliding_window", 512},
         {"rope_parameters",
          {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
           {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}});
    CHECK(c["query_pre_attn_scalar"] == 168);
    CHECK(c["rope_theta"] == 1e6);
    CHECK(c["rope_local_base_freq"] == 1e4);
    CHECK(c["rope_scaling"]["factor"] == 8.0);
    CHECK(c["layer_types"][5] == "full_attention");
    CHECK(c["layer_types"][6] == "sliding_attention");
    c = there_and_back("gemma2",
                       {{"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}});
    CHECK(c["query_pre_attn_scalar"] == 256);
    CHECK(refusal("gemma2", {{"attn_logit_softcapping", nullptr}}) ==
          "config.json: 'attn_logit_softcapping': null has no form in GGUF for this model_type");
    CHECK(c["attn_logit_softcapping"] == 50.0);
    CHECK(c["final_logit_softcapping"] == 30.0);
    c = there_and_back("qwen3_moe", {{"num_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"moe_intermediate_size", 48},
                                     {"norm_topk_prob", false}});
    CHECK(c["num_experts"] == 8);
    CHECK(c["norm_topk_prob"] == false);
    CHECK(c["moe_intermediate_size"] == 48);
  }

  TEST_CASE("config: GPT-2, Mamba and DeepSeek") {
    Json c = there_and_back("gpt2", {{"n_embd", 48},
                                     {"n_layer", 5},
                                     {"n_head", 6},
                                     {"n_positions", 77},
                                     {"layer_norm_epsilon", 2e-5}});
    CHECK(c["architectures"][0] == "GPT2LMHeadModel");
    CHECK(c["n_embd"] == 48);
    CHECK(c["n_layer"] == 5);
    CHECK(c["n_head"] == 6);
    CHECK(c["n_inner"] == 192);
    CHECK(c["n_positions"] == 77);
    CHECK(c["layer_norm_epsilon"] == 2e-5);
    CHECK(c["vocab_size"] == 32);
    CHECK_FALSE(c.contains("hidden_size"));

    c = there_and_back("mamba",
                       {{"state_size", 24}, {"intermediate_size", 128}, {"conv_kernel", 3}});
    CHECK(c["hidden_size"] == 64);
    CHECK(c["intermediate_size"] == 128);
    CHECK(c["time_step_rank"] == 4);
    CHECK(c["state_size"] == 24);
    CHECK(c["conv_kernel"] == 3);
    CHECK(there_and_back(
              "mamba", {{"time_step_rank", 7}, {"intermediate_size", 128}})["time_step_rank"] == 7);

    const Json latent{{"q_lora_rank", nullptr},     {"kv_lora_rank", 24},
                      {"qk_rope_head_dim", 8},      {"qk_nope_head_dim", 20},
                      {"v_head_dim", 12},           {"n_routed_experts", 6},
                      {"num_experts_per_tok", 2},   {"moe_intermediate_size", 40},
                      {"first_k_dense_replace", 2}, {"routed_scaling_factor", 2.5},
                      {"n_shared_experts", 1},      {"num_key_value_heads", 4}};
    c = there_and_back("deepseek_v2", latent);
    for (const auto& [key, value] : latent.items()) CHECK(c[key] == value);
    CHECK(c["topk_method"] == "greedy");
    CHECK(c["norm_topk_prob"] == false);
    Json v3 = latent;
    v3.update({{"q_lora_rank", 36},
               {"n_group", 3},
               {"topk_group", 2},
               {"rope_scaling",
                {{"rope_type", "yarn"},
                 {"factor", 40.0},
                 {"original_max_position_embeddings", 256},
                 {"beta_fast", 16.0},
                 {"mscale", 0.707},
                 {"mscale_all_dim", 0.707}}}});
    // general.architecture is the same: the gate tells the two families.
    c = there_and_back("deepseek_v3", v3);
    for (const auto& [key, value] : v3.items()) CHECK(c[key] == value);
    CHECK(c["norm_topk_prob"] == true);
    CHECK(c["scoring_func"] == "sigmoid");
    for (const char* key : {"n_group", "topk_group", "routed_scaling_factor", "n_shared_experts"})
      v3.erase(key);
    v3["n_routed_experts"] = 16;
    c = there_and_back("deepseek_v3", v3);
    CHECK(c["n_group"] == 8);
    CHECK(c["topk_group"] == 4);
    CHECK(c["routed_scaling_factor"] == 2.5);
    CHECK(c["n_shared_experts"] == 1);

    CHECK(
        refusal("gpt2",
                {{"n_embd", 48}, {"n_layer", 5}, {"n_head", 6}, {"activation_function", "relu"}}) ==
        "config.json: 'activation_function': 'relu' has no form in GGUF for this model_type; "
        "expected gelu_new");
    CHECK(refusal("gpt2", {{"n_embd", 8},
                           {"n_layer", 1},
                           {"n_head", 2},
                           {"scale_attn_by_inverse_layer_idx", true}})
              .starts_with("config.json: 'scale_attn_by_inverse_layer_idx': 'true' has no form"));
    CHECK(refusal("mamba", {{"use_bias", true}, {"intermediate_size", 128}})
              .starts_with("config.json: 'use_bias': 'true' has no form in GGUF"));
    CHECK(refusal("mamba", {{"expand", 3}, {"intermediate_size", nullptr}})
              .starts_with("config.json: 'intermediate_size': '192' has no form in GGUF"));
    v3["rope_scaling"]["mscale"] = 1.0;
    CHECK(refusal("deepseek_v3", v3) ==
          "config.json: 'mscale': expected the value of mscale_all_dim, above 0");
    Json biased = latent;
    biased["attention_bias"] = true;
    CHECK(refusal("deepseek_v2", biased).starts_with("config.json: 'attention_bias': 'true'"));
  }

  TEST_CASE("contents that differ: turned, the halves of kv_b_proj, logarithms, an axis of 1") {
    const HeadRows rows{.heads = 2, .keys = 1, .values = 2, .key_heads = 2};
    // Two heads of three rows of two columns.
    std::vector<float> w(12);
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i);
    const std::vector<int64_t> dims{6, 2};
    const auto keys = changed_dims(Change::keys, dims, rows, "w"),
               values = changed_dims(Change::values, dims, rows, "w");
    CHECK(keys == std::vector<int64_t>{2, 2, 1});
    CHECK(values == std::vector<int64_t>{2, 2, 2});
    const std::vector<float> k = changed(Change::keys, w, dims, rows),
                             v = changed(Change::values, w, dims, rows);
    CHECK(k == std::vector<float>{0, 1, 6, 7});
    CHECK(v == std::vector<float>{2, 3, 4, 5, 8, 9, 10, 11});
    CHECK(joined_dims(keys, values, "w") == dims);
    CHECK(joined_halves(k, keys, v, values) == w);
    CHECK_THROWS_WITH_AS(changed_dims(Change::keys, {5, 2}, rows, "w"),
                         "tensor 'w': expected 6 rows", Error);
    CHECK_THROWS_AS(joined_dims(keys, {2, 2}, "w"), Error);
    CHECK_THROWS_AS(joined_dims(keys, {2, 2, 3}, "w"), Error);
    // Two rows of keys per head are columns in GGUF.
    CHECK(changed(Change::keys, w, dims, {.heads = 2, .keys = 2, .values = 1}) ==
          std::vector<float>{0, 2, 1, 3, 6, 8, 7, 9});

    CHECK(changed_dims(Change::turned, {2, 3}, {}, "w") == std::vector<int64_t>{3, 2});
    CHECK(changed(Change::turned, {1, 2, 3, 4, 5, 6}, {2, 3}, {}) ==
          std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(changed_back(Change::turned, {1, 4, 2, 5, 3, 6}, {3, 2}, {}, "w") ==
          std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(changed(Change::turned, {1, 2}, {2}, {}) == std::vector<float>{1, 2});  // a bias
    CHECK(changed(Change::exponent, {0}, {1}, {}) == std::vector<float>{-1});
    CHECK(changed_back(Change::exponent, {-1}, {1}, {}, "w") == std::vector<float>{0});
    CHECK_THROWS_WITH_AS(changed_back(Change::exponent, {1}, {1}, {}, "w"),
                         "tensor 'w': expected numbers below 0", Error);
    CHECK(changed_dims(Change::flat, {8, 1, 4}, {}, "w") == std::vector<int64_t>{8, 4});
    CHECK(dims_back(Change::flat, {8, 4}, "w") == std::vector<int64_t>{8, 1, 4});
    CHECK_THROWS_AS(changed_dims(Change::flat, {8, 2, 4}, {}, "w"), Error);
    CHECK_THROWS_AS(dims_back(Change::flat, {8, 4, 1}, "w"), Error);
    CHECK(changed_dims(Change::row, {1, 4}, {}, "w") == std::vector<int64_t>{4});
    CHECK(dims_back(Change::row, {4}, "w") == std::vector<int64_t>{1, 4});
    CHECK_THROWS_AS(changed_dims(Change::row, {2, 4}, {}, "w"), Error);
    CHECK(dims_back(Change::row, {1, 4}, "w") == std::vector<int64_t>{1, 4});  // some keep the row
    CHECK_THROWS_AS(dims_back(Change::row, {2, 4}, "w"), Error);
    // Rows q0 k0 v0 q1 k1 v1 of two heads become q0 q1 k0 k1 v0 v1; a bias, too.
    const std::vector<float> by_part = changed(Change::by_part, w, dims, rows);
    CHECK(by_part == std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
    CHECK(changed_back(Change::by_part, by_part, dims, rows, "w") == w);
    CHECK(changed(Change::by_part, {0, 1, 2, 3, 4, 5}, {6}, rows) ==
          std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK_THROWS_WITH_AS(changed_dims(Change::by_part, {4, 2}, rows, "w"),
                         "tensor 'w': expected rows of 2 heads of q and 2 of k and of v", Error);
    CHECK_THROWS_AS(changed_back(Change::by_part, w, {4, 3}, rows, "w"), Error);
  }

  TEST_CASE("config: what llama.cpp's converter leaves out or writes as 0") {
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    const auto read = [&](const std::string& architecture, uint32_t layers, bool with_zeros) {
      GgufWriter out(path);
      const auto set = [&](const std::string& name, uint32_t number) {
        out.set(architecture + "." + name, number);
      };
      out.set("general.architecture", architecture);
      set("context_length", 4096);
      set("embedding_length", 96);
      set("block_count", layers);
      set("feed_forward_length", 64);
      set("attention.head_count", 2);
      set("attention.key_length", 16);
      set("vocab_size", 32);
      out.set(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
      if (with_zeros) set("attention.sliding_window", 0), set("expert_count", 0);
      out.commit();
      const Gguf model(path);
      return config_from_keys(model, family_of_gguf(model, path), "float32", path);
    };
    CHECK(!read("phi3", 2, true).contains("sliding_window"));
    CHECK(read("llama", 2, true)["model_type"] == "llama");
    // Elements of a head, but hidden_size / num_attention_heads in the largest models.
    CHECK(read("gemma2", 26, false)["query_pre_attn_scalar"] == 16);
    CHECK(read("gemma2", 46, false)["query_pre_attn_scalar"] == 48);
    CHECK(read("gemma3", 46, false)["query_pre_attn_scalar"] == 16);
    CHECK(read("gemma3", 62, false)["query_pre_attn_scalar"] == 48);
    // It comes back where it is not the usual one.
    CHECK(there_and_back("gemma2", {{"num_hidden_layers", 46},
                                    {"head_dim", 8},
                                    {"query_pre_attn_scalar", 8}})["query_pre_attn_scalar"] == 8);
  }

  TEST_CASE("config: what has no form in GGUF is refused with its key") {
    CHECK(refusal("llama", {{"partial_rotary_factor", 0.5}}) ==
          "config.json: 'partial_rotary_factor': expected 1 for this model_type");
    CHECK(refusal("llama", {{"hidden_act", "gelu"}}) ==
          "config.json: 'hidden_act': 'gelu' has no form in GGUF for this model_type");
    CHECK(refusal("llama", {{"num_hidden_layers", -3}}) ==
          "config.json: 'num_hidden_layers' is -3; expected 1 to 2147483647");
    CHECK(refusal("llama", {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}) ==
          "config.json: 'low_freq_factor': expected a number above 0 for rope type llama3");
    CHECK(refusal("gemma3_text",
                  {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}) ==
          "config.json: 'layer_types': expected full_attention in every n-th layer");
    CHECK(refusal("gpt9", {})
              .starts_with(
                  "config.json: model_type 'gpt9' cannot be converted; expected llama, mistral, "));
  }

  TEST_CASE("files with tensors: those of the index, unless there is model.safetensors") {
    const Folder folder;
    const std::string whole = folder.path + "/model.safetensors";
    const auto files = [&] { return tenon::llm::safetensors_files(folder.path); };
    CHECK_THROWS_WITH_AS(files(), doctest::Contains("the folder has neither"), Error);
    std::ofstream(whole + ".index.json")
        << R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}})";
    CHECK(files() ==
          std::vector<std::string>{folder.path + "/1.safetensors", folder.path + "/2.safetensors"});
    std::ofstream(whole) << "";
    CHECK(files() == std::vector<std::string>{whole});
  }
}
