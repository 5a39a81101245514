// SPDX-License-Identifier: Apache-2.0
// Numbers of config.json and of keys of GGUF that make no sense: an Error or a model, whatever the
// family, in little memory.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "asked_tensors.hpp"
#include "llm/arch/step.hpp"
#include "llm/files/config_keys.hpp"
#include "llm/model_folder.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

// std::bad_alloc is no tenon::Error: it fails the test.
struct LittleMemory {
  rlimit before{};
  LittleMemory() {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    getrlimit(RLIMIT_AS, &before);
    rlimit now = before;
    now.rlim_cur = pages * 4096 + (uint64_t{1} << 30);
    REQUIRE(setrlimit(RLIMIT_AS, &now) == 0);
  }
  ~LittleMemory() { setrlimit(RLIMIT_AS, &before); }
};

void build(const Json& config, const TensorSource& tensors) {
  const ModelConfig c = parse_config(config.dump(), "config.json");
  for (const int64_t capacity : {int64_t{4}, std::min<int64_t>(c.context, 4096)}) {
    Weights weights(tensors);
    step_graph(c, {.slots = 2, .capacity = capacity, .batch = 1, .time = 3}, weights);
  }
}

// Ok if an Error or nothing comes.
std::string outcome(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.code() == TENON_INTERNAL ? std::string("internal: ") + e.what() : "";
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// Calls use() for each number in the object, as a place that may be changed.
void each_number(Json& json, const std::string& path,
                 const std::function<void(const std::string&, Json&)>& use) {
  if (json.is_number()) return use(path, json);
  if (!json.is_structured()) return;
  for (auto& [key, value] : json.items()) each_number(value, path + "/" + key, use);
}

const Json kNumbers[] = {0, -1, int64_t{1} << 31, INT64_MAX, INT64_MIN, UINT64_MAX, 1, 3, 1e300};

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/tenon-numbers-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

void write_gguf(const std::string& path, const Json& config) {
  const files::Family& first =
      files::family_of_folder(config.at("model_type").get<std::string>(), "config.json");
  const ModelConfig engine =
      first.hybrid ? parse_config(config.dump(), "config.json") : ModelConfig();
  const files::Family& family = first.hybrid ? files::family_of(engine, "config.json") : first;
  GgufWriter out(path);
  out.set("general.architecture", family.gguf);
  files::set_config_keys(out, family, config, "config.json", &engine);
  const auto ropes = files::rope_tensors(config, "config.json");
  for (const auto& t : ropes)
    out.add(t.name, gguf_format("F32"), {static_cast<int64_t>(t.numbers.size())});
  out.add("token_embd.weight", gguf_format("F32"), {8, 4});
  for (const auto& t : ropes) out.content(std::as_bytes(std::span(t.numbers)));
  const std::vector<float> rows(32, 0.5f);
  out.content(std::as_bytes(std::span(rows)));
  out.commit();
}

void read_gguf(const std::string& path, const TensorSource& tensors) {
  const Gguf model(path);
  const files::Family& family = files::family_of_gguf(model, path);
  build(files::config_from_keys(model, family, "float32", path), tensors);
}

}  // namespace

TEST_SUITE("llm/config numbers") {
  TEST_CASE("config.json: each number of each family, changed") {
    const LittleMemory limit;
    const Folder folder;
    int changes = 0;
    for (auto& [name, config] : family_configs(TENON_LLM_CONFIGS)) {
      const TensorSource tensors =
          asked_tensors(name, [&](const TensorSource& given) { build(config, given); });
      each_number(config, name, [&](const std::string& path, Json& number) {
        const Json before = number;
        for (const Json& value : kNumbers) {
          number = value;
          CAPTURE(path);
          CAPTURE(value.dump());
          CHECK(outcome([&] { build(config, tensors); }) == "");
          CHECK(outcome([&] { write_gguf(folder.path + "/m.gguf", config); }) == "");
          ++changes;
        }
        number = before;
      });
    }
    CHECK(changes > 2000);
  }

  TEST_CASE("GGUF: each number of each family, changed") {
    const LittleMemory limit;
    const Folder folder;
    const std::string file = folder.path + "/m.gguf";
    int changes = 0;
    for (const auto& [name, config] : family_configs(TENON_LLM_CONFIGS)) {
      const TensorSource tensors =
          asked_tensors(name, [&](const TensorSource& given) { build(config, given); });
      const auto written = outcome([&] { write_gguf(file, config); });
      CHECK(written == "");
      if (!std::filesystem::exists(file)) continue;  // a field without a form in GGUF
      std::string bytes;
      {
        std::ifstream in(file, std::ios::binary);
        bytes.assign(std::istreambuf_iterator<char>(in), {});
      }
      const Gguf model(file);
      for (const GgufKey& key : model.keys()) {
        const bool real = key.type == TENON_GGUF_F32;
        if (key.type != TENON_GGUF_U32 && !real) continue;
        const size_t at = bytes.find(key.name) + key.name.size() + 4;  // behind its type
        std::vector<uint32_t> values{0, 1, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
        if (real) values = {0, 0xBF800000, 0x7F800000, 0x7FC00000, 0x7F7FFFFF, 1};
        for (const uint32_t value : values) {
          std::string changed = bytes;
          std::memcpy(changed.data() + at, &value, sizeof value);
          std::ofstream(folder.path + "/changed.gguf", std::ios::binary) << changed;
          CAPTURE(name);
          CAPTURE(key.name);
          CAPTURE(value);
          CHECK(outcome([&] { read_gguf(folder.path + "/changed.gguf", tensors); }) == "");
          ++changes;
        }
      }
      std::filesystem::remove(file);
    }
    CHECK(changes > 600);
  }

  TEST_CASE("GGUF: heads without numbers are refused by the key") {
    const Folder folder;
    const std::string file = folder.path + "/m.gguf";
    const Json config{{"model_type", "granite"},
                      {"hidden_size", 4},
                      {"intermediate_size", 8},
                      {"num_hidden_layers", 1},
                      {"num_attention_heads", 2},
                      {"num_key_value_heads", 1},
                      {"vocab_size", 8},
                      {"head_dim", 2},
                      {"attention_multiplier", 0.5},
                      {"max_position_embeddings", 16}};
    write_gguf(file, config);
    std::string bytes;
    {
      std::ifstream in(file, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), {});
    }
    for (const char* name : {"granite.attention.key_length", "granite.attention.scale"})
      std::memset(bytes.data() + bytes.find(name) + std::strlen(name) + 4, 0, 4);
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      const Gguf model(file);
      files::config_from_keys(model, files::family_of_gguf(model, file), "float32", file);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("key 'granite.attention.key_length': expected heads of at "
                                       "least 1 number, got 0") != std::string::npos);
    }
  }
}
