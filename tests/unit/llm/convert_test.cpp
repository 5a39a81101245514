// SPDX-License-Identifier: Apache-2.0
// Conversions of small folders that the test writes. Others: cli.gguf, llm.quantized, peers.gguf.
#include "llm/files/convert.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "llm/files/json.hpp"
#include "llm/files/own_keys.hpp"
#include "llm/files/tokenizer_keys.hpp"
#include "llm/model_files.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::llm::files;

namespace {

struct Folder {
  std::string path;
  Runtime runtime{{.threads = 1, .use_environment = false, .use_builtin_dir = false}};
  Store store{runtime};
  Folder() {
    char name[] = "/tmp/tenon-convert-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void add(const std::string& name, const std::vector<int64_t>& dims) {
    std::vector<float> numbers(static_cast<size_t>(TensorType(f32, dims).elements()));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) / 8;
    store.set(TENON_SPACE_WEIGHT, name, dims, numbers);
  }
  void save(const Json& config) {
    std::filesystem::create_directory(path + "/model");
    store.save(TENON_SPACE_WEIGHT, path + "/model/model.safetensors");
    std::ofstream(path + "/model/config.json") << config.dump();
  }
};

const std::string kLayer = "backbone.layers.0.";

Json mamba_config() {
  return {{"model_type", "mamba"}, {"hidden_size", 4},       {"num_hidden_layers", 1},
          {"state_size", 1},       {"intermediate_size", 8}, {"time_step_rank", 2},
          {"vocab_size", 8}};
}

// A Mamba of one layer.
void save_mamba(Folder& f) {
  f.add("backbone.embeddings.weight", {8, 4});
  f.add("backbone.norm_f.weight", {4});
  f.add(kLayer + "norm.weight", {4});
  for (const auto& [name, dims] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"in_proj.weight", {16, 4}},
                                                                 {"conv1d.weight", {8, 1, 4}},
                                                                 {"conv1d.bias", {8}},
                                                                 {"x_proj.weight", {4, 8}},
                                                                 {"dt_proj.weight", {8, 2}},
                                                                 {"dt_proj.bias", {8}},
                                                                 {"A_log", {8}},
                                                                 {"D", {8}},
                                                                 {"out_proj.weight", {4, 8}}})
    f.add(kLayer + "mixer." + name, dims);
  f.save(mamba_config());
}

const Json kLlama = {{"model_type", "llama"},
                     {"hidden_size", 8},
                     {"intermediate_size", 12},
                     {"num_hidden_layers", 1},
                     {"num_attention_heads", 2},
                     {"num_key_value_heads", 2},
                     {"vocab_size", 8},
                     {"max_position_embeddings", 16},
                     {"tie_word_embeddings", true}};

// A Llama of one layer. prefix: of the names of its tensors.
void add_llama(Folder& f, const std::string& prefix) {
  f.add(prefix + "embed_tokens.weight", {8, 8});
  f.add(prefix + "norm.weight", {8});
  const std::string layer = prefix + "layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    f.add(layer + norm + ".weight", {8});
  for (const char* which : {"q_proj", "k_proj", "v_proj", "o_proj"})
    f.add(layer + "self_attn." + which + ".weight", {8, 8});
  f.add(layer + "mlp.gate_proj.weight", {12, 8});
  f.add(layer + "mlp.up_proj.weight", {12, 8});
  f.add(layer + "mlp.down_proj.weight", {8, 12});
}

}  // namespace

TEST_SUITE("llm/convert") {
  TEST_CASE("mamba: A of one axis is an exponent, too") {
    Folder f;
    save_mamba(f);
    folder_to_gguf(f.path + "/model", f.path + "/m.gguf", {});
    const Gguf file(f.path + "/m.gguf");
    const GgufTensor a = file.tensor("blk.0.ssm_a");
    const std::vector<float> got = gguf_decode<float>(gguf_format(a.type), a.data);
    for (size_t i = 0; i < 8; ++i)
      CHECK(got[i] == doctest::Approx(-std::exp(static_cast<double>(i % 7) / 8)));
    gguf_to_folder(f.path + "/m.gguf", f.path + "/back", {.type = "F32"});
    Store back(f.runtime);
    back.load(TENON_SPACE_WEIGHT, f.path + "/back/model.safetensors");
    const auto first = f.store.get<float>(TENON_SPACE_WEIGHT, kLayer + "mixer.A_log"),
               last = back.get<float>(TENON_SPACE_WEIGHT, kLayer + "mixer.A_log");
    for (size_t i = 0; i < 8; ++i) CHECK(last[i] == doctest::Approx(first[i]).epsilon(1e-6));
  }

  TEST_CASE("folders: files of an earlier model go, others stay") {
    Folder f;
    save_mamba(f);
    folder_to_gguf(f.path + "/model", f.path + "/m.gguf", {});
    const std::string to = f.path + "/back";
    const auto files = [&] {
      std::set<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator(to))
        if (const std::string name = entry.path().filename();
            name.find(".safetensors") != name.npos)
          names.insert(name);
      return names;
    };
    std::filesystem::create_directory(to);
    const std::set<std::string> kept = {"adapter_model.safetensors", "model-of-mine.safetensors"};
    for (const std::string& name : kept) std::ofstream(to + "/" + name) << "other";
    for (const char* name : {"model.safetensors", "model-00007-of-00009.safetensors"})
      std::ofstream(to + "/" + name) << "earlier";
    const auto with = [&](std::set<std::string> names) {
      names.insert(kept.begin(), kept.end());
      return names;
    };
    gguf_to_folder(f.path + "/m.gguf", to, {.type = "F32", .file_bytes = 600});
    std::set<std::string> wanted = {"model.safetensors.index.json"};
    const size_t shards = files().size() - kept.size() - 1;
    REQUIRE(shards > 1);
    for (size_t i = 1; i <= shards; ++i)
      wanted.insert("model-0000" + std::to_string(i) + "-of-0000" + std::to_string(shards) +
                    ".safetensors");
    CHECK(files() == with(wanted));
    gguf_to_folder(f.path + "/m.gguf", to, {.type = "F32"});
    CHECK(files() == with({"model.safetensors"}));
  }

  TEST_CASE("folders to folders: what the engine refuses is refused, and nothing is written") {
    Folder f;
    const std::string mixer = kLayer + "mixer.", to = f.path + "/plain";
    save_mamba(f);
    f.add(mixer + "A_log", {8, 1});
    const auto converted = [&](const auto& convert, const std::string& made) {
      f.store.save(TENON_SPACE_WEIGHT, f.path + "/model/model.safetensors");
      try {
        convert(f.path + "/model", made, ConvertOptions{});
      } catch (const Error& e) {
        CHECK(!std::filesystem::exists(made));
        return std::string(e.what());
      }
      std::filesystem::remove_all(made);
      return std::string("accepted");
    };
    const auto refusal = [&] { return converted(folder_to_folder, to); };
    CHECK(refusal() == "accepted");
    // The last number of each row is behind what weight_shape says.
    Json config = mamba_config();
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups",
         {{"group_0",
           {{"weights", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}}}}}}};
    std::ofstream(f.path + "/model/config.json") << config.dump();
    f.store.remove(TENON_SPACE_WEIGHT, mixer + "in_proj.weight");
    const std::vector<uint32_t> words(16, 0x80818283);
    f.store.set(TENON_SPACE_WEIGHT, mixer + "in_proj.weight_packed", {i32, {16, 1}}, words.data(),
                words.size() * 4);
    f.add(mixer + "in_proj.weight_scale", {16, 1});
    const auto shaped = [&](int64_t columns) {
      const int64_t dims[] = {16, columns};
      f.store.set(TENON_SPACE_WEIGHT, mixer + "in_proj.weight_shape", {i64, {2}}, dims,
                  sizeof dims);
      const std::string what = refusal();
      CHECK(converted(folder_to_gguf, to + ".gguf") == what);
      return what;
    };
    CHECK(shaped(4) == "accepted");
    CHECK(shaped(3) == f.path + "/model: weight '" + mixer +
                           "in_proj.weight': expected [16, 4] by its configuration, got [16, 3]");
    CHECK(shaped(4) == "accepted");
    // A bias of zeros that the configuration does not have is left out, another one is not.
    f.store.set<float>(TENON_SPACE_WEIGHT, mixer + "in_proj.bias", {16}, std::vector<float>(16, 0));
    CHECK(refusal() == "accepted");
    f.add(mixer + "in_proj.bias", {16});
    CHECK(refusal() == f.path + "/model: weight '" + mixer +
                           "in_proj.bias' is not used by the model that the configuration "
                           "describes");
  }

  TEST_CASE("tensors of images and masks are left out of models that have such parts only") {
    const std::string image = "vision_model.patch.weight",
                      mask = "model.layers.0.attention.masked_bias";
    const auto outcome = [](Folder& f, const Json& config) {
      f.save(config);
      for (const auto convert : {folder_to_gguf, folder_to_folder}) try {
          convert(f.path + "/model", f.path + "/made.gguf", ConvertOptions{});
          std::filesystem::remove_all(f.path + "/made.gguf");
        } catch (const Error& e) {
          return std::string(e.what()).substr(f.path.size());
        }
      return std::string("accepted");
    };
    const auto parsed = [](const Json& config) { return parse_config(config.dump(), "c"); };
    const Json wrapper{{"model_type", "llava"}, {"text_config", kLlama}};
    CHECK_FALSE(is_harmless_tensor(image, parsed(kLlama)));
    CHECK_FALSE(is_harmless_tensor(mask, parsed(kLlama)));
    CHECK(is_harmless_tensor(image, parsed(wrapper)));
    CHECK_FALSE(is_harmless_tensor(mask, parsed(wrapper)));
    const Json gpt2{{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 8},
                    {"n_embd", 8},          {"n_layer", 1},    {"n_head", 2}};
    CHECK(is_harmless_tensor("h.0.attn.bias", parsed(gpt2)));
    {
      Folder f;
      add_llama(f, "model.");
      CHECK(outcome(f, kLlama) == "accepted");
      f.add(image, {4});
      CHECK(outcome(f, kLlama) ==
            "/model: tensor '" + image + "' has no name in GGUF for model_type 'llama'");
    }
    Folder f;
    add_llama(f, "language_model.model.");
    f.add(image, {4});
    CHECK(outcome(f, wrapper) == "accepted");
    f.add("model.norm.weight", {8});
    CHECK(outcome(f, wrapper) ==
          "/model: tensors 'language_model.model.norm.weight' and 'model.norm.weight' are both "
          "'model.norm.weight'; expected one of them");
  }

  TEST_CASE("layers behind the last one are left out, by the name that the engine reads") {
    const Json glm{{"num_nextn_predict_layers", 2}};
    const auto count = [](const Json& config, const char* type) {
      return extra_layers(config, family_of_folder(type, "c"), "c");
    };
    CHECK(count(glm, "glm4_moe") == 2);
    CHECK(count({{"num_mtp_layers", 1}, {"num_nextn_predict_layers", 2}}, "glm4_moe") == 1);
    CHECK(count(Json::object(), "glm4_moe") == 1);
    CHECK(count(glm, "deepseek_v3") == 2);
    CHECK(count(Json::object(), "deepseek_v3") == 0);
    CHECK(count(glm, "llama") == 0);
  }

  TEST_CASE("tokens: a name of a pre-tokenizer that no reader knows is refused") {
    Folder f;
    const Json config{{"model_type", "llama"}, {"vocab_size", 2}};
    std::filesystem::create_directory(f.path + "/model");
    std::ofstream(f.path + "/model/tokenizer.json") << Json{
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}}}};
    const auto convert = [&](const char* name) {
      GgufWriter out(f.path + "/m.gguf");
      set_tokenizer_keys(out, f.path + "/model", config, name);
    };
    CHECK_THROWS_WITH_AS(convert("lama-bpe"),
                         doctest::Contains("--pre: tokenizer.ggml.pre is 'lama-bpe'"), Error);
    CHECK_NOTHROW(convert("llama-bpe"));
  }

  TEST_CASE("tokens: an id far beyond the others is refused with its token") {
    Folder f;
    const Json config{{"model_type", "llama"}, {"vocab_size", 8}};
    std::filesystem::create_directory(f.path + "/model");
    const std::string file = f.path + "/model/tokenizer.json";
    const auto refusal = [&](int64_t id, bool added) {
      Json tokenizer{
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}}}};
      if (added)
        tokenizer["added_tokens"] = {{{"id", id}, {"content", "far"}}};
      else
        tokenizer["model"]["vocab"]["far"] = id;
      std::ofstream(file) << tokenizer.dump();
      GgufWriter out(f.path + "/m.gguf");
      try {
        set_tokenizer_keys(out, f.path + "/model", config, "gpt-2");
      } catch (const Error& e) {
        CHECK(e.code() == TENON_CORRUPT);
        return std::string(e.what());
      }
      return std::string("converted");
    };
    for (const bool added : {false, true}) {
      const std::string text = refusal(int64_t{1} << 31, added);
      CHECK(text.find("token 'far' has the id 2147483648; expected 0 to ") != text.npos);
      CHECK(refusal(10'000'000, added).find("token 'far' has the id 10000000") != text.npos);
      CHECK(refusal(2, added) == "converted");
      CHECK(refusal(1000, added) == "converted");
      CHECK(refusal(1, added).find("tokens 'b' and 'far' have the id 1; expected") != text.npos);
    }
  }
}
