// SPDX-License-Identifier: Apache-2.0
// The configuration of single families as keys of GGUF and back.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "files_rig.hpp"
#include "llm/arch/config.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::llm::files;

TEST_SUITE("llm/files families") {
  TEST_CASE("config: without head_dim, a head has as many elements as the engine reads") {
    const Json rope{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
    std::map<std::string, int64_t> sizes;
    for (const char* type :
         {"llama",   "mistral",    "seed_oss",         "ministral3",  "qwen2",   "qwen3",
          "gemma",   "gemma2",     "gemma3_text",      "glm",         "glm4",    "ernie4_5",
          "gpt_oss", "qwen3_next", "qwen3_5_text",     "llama4_text", "granite", "smollm3",
          "olmo2",   "exaone4",    "hunyuan_v1_dense", "phi3"}) {
      CAPTURE(type);
      Json more = rope;
      const std::string name = type;
      if (name == "gpt_oss" || name == "llama4_text")
        more.update({{"num_local_experts", 4}, {"num_experts_per_tok", 1}});
      if (name == "qwen3_next")
        more.update(
            {{"num_experts", 4}, {"num_experts_per_tok", 1}, {"moe_intermediate_size", 32}});
      Json c = config(more);
      c["model_type"] = type;
      const int64_t engine = parse_config(c.dump(), "config.json").head_dim;
      CHECK(head_size(c, "config.json") == engine);
      sizes[type] = there_and_back(type, more)["head_dim"].get<int64_t>();
      CHECK(sizes[type] == engine);
    }
    CHECK(sizes["llama"] == 16);
    CHECK(sizes["qwen3"] == 128);
    CHECK(sizes["gpt_oss"] == 64);
    CHECK(sizes["gemma2"] == 256);
  }

  TEST_CASE("config: models near Llama") {
    const Json factors{{"embedding_multiplier", 12.0},
                       {"residual_multiplier", 0.22},
                       {"attention_multiplier", 0.1},
                       {"logits_scaling", 8.0}};
    Json c = there_and_back("granite", factors);
    for (const auto& [key, value] : factors.items()) CHECK(c[key] == value);
    const Json rope{
        {"rope_type", "yarn"},        {"factor", 16.0}, {"original_max_position_embeddings", 256},
        {"beta_fast", 24.0},          {"mscale", 1.0},  {"mscale_all_dim", 0.5},
        {"llama_4_scaling_beta", 0.1}};
    CHECK(there_and_back("ministral3", {{"rope_scaling", rope}})["rope_scaling"] == rope);
    CHECK(there_and_back("smollm3", Json::object())["rope_theta"] == 2e6);
    CHECK(there_and_back("gemma3_text", Json::object())["rope_theta"] == 1e6);
    CHECK(there_and_back("llama", Json::object())["rope_theta"] == 1e4);
    const Json plain{{"rope_type", "default"}};
    CHECK(there_and_back("ministral3", {{"rope_scaling", plain}})["rope_scaling"] == plain);
    Json short_rope = {{"rope_type", "yarn"}, {"factor", 16.0}};
    c = there_and_back("llama",
                       {{"rope_scaling", short_rope}, {"original_max_position_embeddings", 256}});
    CHECK(c["rope_scaling"]["original_max_position_embeddings"] == 256);
    short_rope.erase("factor");
    c = there_and_back("llama", {{"rope_scaling", short_rope},
                                 {"max_position_embeddings", 2048},
                                 {"original_max_position_embeddings", 256}});
    CHECK(c["rope_scaling"]["factor"] == 8.0);
    c = there_and_back("qwen2_moe", {{"num_experts", 8},
                                     {"num_experts_per_tok", 2},
                                     {"moe_intermediate_size", 48},
                                     {"shared_expert_intermediate_size", 56}});
    CHECK(c["shared_expert_intermediate_size"] == 56);
    CHECK(c["num_experts"] == 8);
    CHECK(c["norm_topk_prob"] == false);
    c = there_and_back("gemma", {{"head_dim", 16}});
    CHECK(c["hidden_act"] == "gelu_pytorch_tanh");
    CHECK_FALSE(c.contains("query_pre_attn_scalar"));
    CHECK(there_and_back("smollm3", {{"no_rope_layer_interval", 4}})["hidden_act"] == "silu");
    CHECK(there_and_back("olmo2", {{"rope_theta", 5e5}})["architectures"][0] == "Olmo2ForCausalLM");

    CHECK(refusal("smollm3", {{"no_rope_layers", {1, 0, 1, 1}}})
              .starts_with("config.json: 'no_rope_layers': 'other layers' has no form in GGUF"));
    CHECK(refusal("smollm3", {{"no_rope_layer_interval", 3}}).find("'no_rope_layers'") !=
          std::string::npos);
    CHECK(refusal("qwen2_moe", {{"num_experts", 8},
                                {"num_experts_per_tok", 2},
                                {"moe_intermediate_size", 48},
                                {"norm_topk_prob", true}})
              .starts_with("config.json: 'norm_topk_prob': 'true' has no form in GGUF"));
    CHECK(refusal("gemma", {{"hidden_act", "gelu"}})
              .starts_with("config.json: 'hidden_act': 'gelu' has no form in GGUF"));
    Json bad = rope;
    bad["mscale"] = 0.5;
    CHECK(refusal("ministral3", {{"rope_scaling", bad}}) ==
          "config.json: 'mscale': expected 1 beside mscale_all_dim");
  }

  TEST_CASE("config: the eps of norms where config.json has none is that of the engine") {
    const Json experts{{"num_experts_per_tok", 2}, {"moe_intermediate_size", 48}};
    const Json latent{{"q_lora_rank", nullptr}, {"kv_lora_rank", 32}, {"qk_nope_head_dim", 16},
                      {"qk_rope_head_dim", 16}, {"v_head_dim", 16},   {"n_routed_experts", 8},
                      {"n_group", 1},           {"topk_group", 1}};
    const std::map<std::string, Json> more = {
        {"mixtral", {{"num_local_experts", 8}, {"num_experts_per_tok", 2}}},
        {"gpt_oss",
         {{"num_local_experts", 8},
          {"num_experts_per_tok", 2},
          {"rope_scaling", {{"rope_type", "default"}}}}},
        {"granitemoe", {{"num_local_experts", 8}, {"num_experts_per_tok", 2}}},
        {"ministral3", {{"rope_scaling", {{"rope_type", "default"}}}}},
        {"qwen3_moe", {{"num_experts", 8}}},
        {"qwen2_moe", {{"num_experts", 8}}},
        {"olmoe", {{"num_experts", 8}}},
        {"glm4_moe", {{"n_routed_experts", 8}}},
        {"qwen3_next", {{"num_experts", 8}}},
        {"qwen3_5_moe_text", {{"num_experts", 8}}},
        {"lfm2_moe",
         {{"num_experts", 8}, {"layer_types", std::vector<std::string>(12, "full_attention")}}},
        {"dots1", {{"n_routed_experts", 8}, {"n_shared_experts", 1}}},
        {"afmoe", {{"num_experts", 8}, {"mup_enabled", true}}},
        {"deepseek_v2", latent},
        {"deepseek_v3", latent}};
    constexpr std::string_view kOwnKeys[] = {
        "gpt2",      "mamba",      "falcon", "mpt", "bloom", "mamba2", "granitemoehybrid",
        "falcon_h1", "nemotron_h", "jamba"};
    constexpr std::string_view kNoForm[] = {"bamba",
                                            "gptj",
                                            "codegen",
                                            "gpt_neo",
                                            "gpt_bigcode",
                                            "opt",
                                            "gemma3n_text",
                                            "gemma4_text",
                                            "vaultgemma",
                                            "minimax_m2",
                                            "phimoe",
                                            "glm4_moe_lite",
                                            "mistral4",
                                            "minicpm3",
                                            "youtu",
                                            "falcon_mamba",
                                            "granitemoeshared",
                                            "hyperclovax",
                                            "olmo",
                                            "flex_olmo",
                                            "internlm3",
                                            "helium",
                                            "nanochat",
                                            "jais2",
                                            "solar_open",
                                            "exaone_moe",
                                            "ministral",
                                            "biogpt",
                                            "xglm",
                                            "persimmon",
                                            "mimo_v2_flash",
                                            "laguna",
                                            "cwm",
                                            "hy_v3",
                                            "cohere2_moe",
                                            "exaone",
                                            "iquestcoder",
                                            "mellum",
                                            "granite_swa",
                                            "granitemoe_swa",
                                            "sarvam_moe",
                                            "sarvam_mla"};
    int compared = 0;
    for (const Architecture* a : architectures()) {
      const std::string type(a->model_type);
      // Keys of their own; those of hybrid families are written from what the engine reads.
      if (std::ranges::find(kOwnKeys, type) != std::end(kOwnKeys)) continue;
      if (std::ranges::find(kNoForm, type) != std::end(kNoForm)) {
        CHECK_THROWS_AS(family_of_folder(type, "config.json"), Error);
        continue;
      }
      CAPTURE(type);
      Json changes = Json::object();
      if (const auto at = more.find(type); at != more.end()) changes = at->second;
      if (changes.contains("n_routed_experts") || changes.contains("num_experts"))
        changes.update(experts);
      Json whole = config(changes);
      whole["model_type"] = type;
      whole.erase("rms_norm_eps");
      if (type.starts_with("deepseek")) whole.erase("num_key_value_heads");
      if (type == "olmoe") whole.erase("moe_intermediate_size");
      const double engine = parse_config(whole.dump(), "config.json").norm_eps;
      const Folder folder;
      const std::string path = folder.path + "/m.gguf", file = "config.json";
      const Family& family = family_of_folder(type, file);
      GgufWriter out(path);
      set_config_keys(out, family, whole, file);
      out.commit();
      const char* const key = family.layer_norm() ? ".attention.layer_norm_epsilon"
                                                  : ".attention.layer_norm_rms_epsilon";
      CHECK(Gguf(path).number<float>(std::string(family.gguf) + key) == static_cast<float>(engine));
      ++compared;
    }
    CHECK(compared > 30);
  }

  TEST_CASE("adapters: no rows are reordered where GGUF has no form") {
    CHECK(is_permuted("llama"));
    CHECK_FALSE(is_permuted("glm"));
    CHECK_FALSE(is_permuted("gptj"));
    CHECK_FALSE(is_permuted("helium"));
  }

  TEST_CASE("GGUF: EXAONE 3 is Llama whose rows of q and k keep their order") {
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    GgufWriter out(path);
    out.set("general.architecture", std::string("exaone"));
    out.commit();
    const Family& family = family_of_gguf(Gguf(path), path);
    CHECK(family.model_type == "llama");
    CHECK_FALSE(family.permuted);
    CHECK(family_of_folder("llama", "config.json").gguf == "llama");
  }

  TEST_CASE("config: factors of yarn that follow from others, parts of rope there and back") {
    Json yarn{{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 256}};
    const Json plain = yarn;
    yarn["attention_factor"] = 0.1 * std::log(8.0) + 1;
    CHECK(there_and_back("qwen3", {{"rope_scaling", yarn}})["rope_scaling"] == plain);
    yarn["mscale"] = 1.0;  // alone, it has no effect
    CHECK(there_and_back("qwen3", {{"rope_scaling", yarn}})["rope_scaling"] == plain);
    CHECK(there_and_back("ministral3", {{"rope_scaling", yarn}})["rope_scaling"]["factor"] == 8.0);
    yarn["attention_factor"] = 1.3;
    CHECK(refusal("qwen3", {{"rope_scaling", yarn}}) ==
          "config.json: 'attention_factor': 1.300000 has no form in GGUF; expected 1.207944, which "
          "follows from the other fields");
    yarn.erase("attention_factor"), yarn["mscale_all_dim"] = 1.0;
    CHECK(refusal("qwen3", {{"rope_scaling", yarn}}) ==
          "config.json: 'mscale_all_dim': has no form in GGUF for this model_type");

    for (const int64_t head : {2, 44, 64, 80, 96, 128, 192})
      for (int64_t dims = 2; dims <= head; dims += 2) {
        const double part = (static_cast<double>(dims) + 0.5) / static_cast<double>(head);
        const Json back = there_and_back(
            "glm", {{"head_dim", head}, {"partial_rotary_factor", std::min(part, 1.0)}});
        const auto again = back["partial_rotary_factor"].get<double>();
        if (static_cast<int64_t>(again * static_cast<double>(head)) != dims)
          FAIL(dims << " of " << head << " become " << again);
      }
    // A file that does not say how much of a head is rotated: all of it, as in llama.cpp.
    const Folder folder;
    const std::string path = folder.path + "/m.gguf";
    GgufWriter out(path);
    out.set("general.architecture", std::string("stablelm"));
    for (const char* size : {"context_length", "embedding_length", "block_count",
                             "feed_forward_length", "attention.head_count", "vocab_size"})
      out.set("stablelm." + std::string(size), uint32_t{8});
    out.set("stablelm.attention.layer_norm_epsilon", 1e-5f);
    out.commit();
    const Json c =
        config_from_keys(Gguf(path), family_of_folder("stablelm", path), "float32", path);
    CHECK(c["partial_rotary_factor"] == 1.0);
  }

  TEST_CASE("config: LayerNorms, parts of rope, windows in some layers, limits") {
    Json c = there_and_back("cohere2", {{"layer_norm_eps", 1e-3}, {"logit_scale", 0.25}});
    CHECK(c["layer_norm_eps"] == 1e-3);
    CHECK_FALSE(c.contains("rms_norm_eps"));
    CHECK(c["logit_scale"] == 0.25);
    CHECK(c["sliding_window"] == 4096);
    CHECK(c["layer_types"][3] == "full_attention");
    CHECK(c["layer_types"][4] == "sliding_attention");
    c = there_and_back("phi", {{"partial_rotary_factor", 0.25}, {"hidden_act", "gelu_new"}});
    CHECK(c["partial_rotary_factor"] == 0.25);
    CHECK(c["hidden_act"] == "gelu_new");
    CHECK(there_and_back("stablelm", {{"use_parallel_residual", true}})["partial_rotary_factor"] ==
          0.25);
    c = there_and_back(
        "gpt_neox",
        {{"rotary_pct", 0.5}, {"rotary_emb_base", 2e4}, {"use_parallel_residual", false}});
    CHECK(c["rotary_pct"] == 0.5);
    CHECK(c["rotary_emb_base"] == 2e4);
    CHECK(c["use_parallel_residual"] == false);
    const Json yarn{{"rope_type", "yarn"},
                    {"factor", 32.0},
                    {"original_max_position_embeddings", 256},
                    {"truncate", false}};
    const Json experts{{"num_local_experts", 8}, {"num_experts_per_tok", 2}};
    Json oss = experts;
    oss["rope_scaling"] = yarn;
    c = there_and_back("gpt_oss", oss);
    CHECK(c["rope_scaling"] == yarn);
    CHECK(c["num_local_experts"] == 8);
    CHECK(c["sliding_window"] == 128);
    CHECK(c["layer_types"][0] == "sliding_attention");
    CHECK(c["layer_types"][1] == "full_attention");
    const Json rope{{"rope_type", "default"}, {"rope_theta", 1e5}};
    c = there_and_back(
        "olmo3", {{"sliding_window", 64},
                  {"rope_parameters", {{"full_attention", rope}, {"sliding_attention", rope}}}});
    CHECK(c["rope_parameters"]["sliding_attention"]["rope_theta"] == 1e5);
    CHECK(refusal("olmo3", {{"sliding_window", 64}, {"rope_theta", 1e5}}).find("'rope_theta'") !=
          std::string::npos);
    CHECK(c["architectures"][0] == "Olmo3ForCausalLM");
    CHECK(c["layer_types"][3] == "full_attention");
    CHECK(there_and_back("exaone4", {{"sliding_window", nullptr}})["sliding_window"].is_null());
    c = there_and_back("glm4_moe", {{"n_routed_experts", 8},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 48},
                                    {"routed_scaling_factor", 1.5}});
    CHECK(c["first_k_dense_replace"] == 1);
    CHECK(c["routed_scaling_factor"] == 1.5);
    CHECK(c["partial_rotary_factor"] == 0.5);
    const Json alpha{{"rope_type", "dynamic"}, {"alpha", 16.0}, {"factor", 1.0}};
    c = there_and_back("hunyuan_v1_dense",
                       {{"rope_scaling", alpha}});  // heads of 16: alpha^(16/14)
    CHECK(c["rope_theta"].get<double>() == doctest::Approx(1e4 * std::pow(16.0, 16.0 / 14)));

    oss["swiglu_limit"] = 5.0;
    CHECK(refusal("gpt_oss", oss).find("'swiglu_limit'") != std::string::npos);
    oss = experts;
    oss["rope_scaling"] = yarn;
    oss["rope_scaling"]["truncate"] = true;
    CHECK(refusal("gpt_oss", oss) ==
          "config.json: 'truncate': expected false for gpt_oss, and true for other model_types");
    CHECK(refusal("phi", {{"hidden_act", "relu"}})
              .starts_with("config.json: 'hidden_act': 'relu' has no form in GGUF"));
    CHECK(refusal("olmo3",
                  {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}})
              .find("'layer_types'") != std::string::npos);
  }
}
