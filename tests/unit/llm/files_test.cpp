// SPDX-License-Identifier: Apache-2.0
// Parts of the conversion between folders and GGUF: formats of a mix, rows of rope, names, and the
// configuration there and back. Whole conversions: cli.gguf and peers.gguf.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "llm/files/config_keys.hpp"
#include "llm/files/matrix.hpp"
#include "llm/files/mix.hpp"
#include "llm/model_folder.hpp"

using namespace tenon;
using namespace tenon::llm::files;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/tenon-files-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

Json config(const Json& changes) {
  Json out{{"hidden_size", 64},        {"intermediate_size", 96},        {"num_hidden_layers", 12},
           {"num_attention_heads", 4}, {"num_key_value_heads", 2},       {"vocab_size", 32},
           {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 4096}};
  out.update(changes);
  return out;
}

// config.json of the file that the configuration becomes.
Json there_and_back(const std::string& model_type, const Json& changes) {
  const Folder folder;
  const std::string path = folder.path + "/m.gguf", file = "config.json";
  const Family& family = family_of_folder(model_type, file);
  const Json from = config(changes);
  GgufWriter out(path);
  set_config_keys(out, family, from, file);
  for (const RopeTensor& t : rope_tensors(from, file))
    out.add(t.name, gguf_format("F32"), {static_cast<int64_t>(t.numbers.size())});
  for (const RopeTensor& t : rope_tensors(from, file))
    out.content(std::as_bytes(std::span(t.numbers)));
  out.commit();
  return config_from_keys(Gguf(path), family, "float32", path);
}

std::string refusal(const std::string& model_type, const Json& changes) {
  try {
    there_and_back(model_type, changes);
  } catch (const Error& e) {
    return e.what();
  }
  return "converted";
}

}  // namespace

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
