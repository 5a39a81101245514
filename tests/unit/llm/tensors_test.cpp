// SPDX-License-Identifier: Apache-2.0
// Weights of folders: files and their index, names, checks, and weights that are made of several
// tensors.
#include "llm/arch/tensors.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace tenon;
using namespace tenon::llm;

namespace {

struct Folder {
  std::filesystem::path path;
  Runtime runtime{{.threads = 1, .use_environment = false, .use_builtin_dir = false}};
  Folder() {
    char name[] = "/tmp/tenon-llm-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }

  // A file with tensors [2] of these numbers.
  void write(const std::string& file, const std::vector<std::pair<std::string, float>>& tensors) {
    Store store(runtime);
    for (const auto& [name, number] : tensors)
      store.set(TENON_SPACE_WEIGHT, name, {2}, std::vector<float>{number, number + 0.5f});
    store.save(TENON_SPACE_WEIGHT, (path / file).string());
  }
  void index(const std::string& text) {
    std::ofstream(path / "model.safetensors.index.json") << text;
  }
  TensorSource scan() const { return folder_tensors(path.string()); }
};

Tensor joined(const std::vector<Tensor>& parts) {
  std::vector<float> all;
  for (const Tensor& t : parts)
    for (const float v : t.values<float>()) all.push_back(v);
  return Tensor({static_cast<int64_t>(parts.size()), 2}, all);
}

}  // namespace

TEST_SUITE("llm/tensors") {
  TEST_CASE("one file: names and types") {
    Folder folder;
    folder.write("model.safetensors", {{"a", 1}, {"b", 2}});
    const TensorSource t = folder.scan();
    CHECK(t.types.size() == 2);
    CHECK(t.types.at("a") == TensorType(f32, {2}));
  }

  TEST_CASE("an index: all its files, and only files of the folder") {
    Folder folder;
    CHECK_THROWS_WITH_AS(folder.scan(), doctest::Contains("has neither"), Error);
    folder.write("one.safetensors", {{"a", 1}});
    folder.write("two.safetensors", {{"b", 2}});
    folder.index(R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
    CHECK(folder.scan().types.size() == 2);
    folder.index(R"({"weight_map": {"a": "../one.safetensors"}})");
    CHECK_THROWS_WITH_AS(folder.scan(), doctest::Contains("../one.safetensors"), Error);
    folder.index(R"({"weight_map": {"a": 1}})");
    CHECK_THROWS_WITH_AS(folder.scan(), doctest::Contains("expected a file name"), Error);
    folder.index("[]");
    CHECK_THROWS_WITH_AS(folder.scan(), doctest::Contains("expected a JSON object"), Error);
    folder.write("two.safetensors", {{"a", 2}});
    folder.index(R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
    CHECK_THROWS_WITH_AS(folder.scan(), doctest::Contains("also in another file"), Error);
  }

  TEST_CASE("a weight: missing, of other dims, unused") {
    Folder folder;
    folder.write("model.safetensors", {{"model.a", 1}, {"b", 2}, {"c", 3}});
    Weights w(folder.scan());
    CHECK(w.plain("model.a", {2}) == TensorType(f32, {2}));
    CHECK(w.plain("model.b", {2}) == TensorType(f32, {2}));  // the file has it without the prefix
    CHECK_THROWS_WITH_AS(w.plain("model.x", {2}), doctest::Contains("'model.x' is missing"), Error);
    CHECK_THROWS_WITH_AS(w.plain("model.a", {2, 1}),
                         doctest::Contains("expected [2, 1] by its configuration, got [2]"), Error);
    CHECK_THROWS_WITH_AS(w.check_unused([](const std::string&) { return false; }),
                         doctest::Contains("'c' is not used"), Error);
    w.check_unused([](const std::string& name) { return name == "c"; });
  }

  TEST_CASE("stacked: rows below each other, of one dtype only") {
    Folder folder;
    Store store(folder.runtime);
    store.set(TENON_SPACE_WEIGHT, "m", TensorType(f32, {2, 2}),
              std::vector<float>{1, 2, 3, 4}.data(), 16);
    store.set(TENON_SPACE_WEIGHT, "n", TensorType(f32, {1, 2}), std::vector<float>{5, 6}.data(), 8);
    const std::vector<uint16_t> halves = {0x3C00, 0x4000};
    store.set(TENON_SPACE_WEIGHT, "h", TensorType(f16, {1, 2}), halves.data(), 4);
    store.save(TENON_SPACE_WEIGHT, (folder.path / "model.safetensors").string());
    Weights w(folder.scan());
    CHECK(w.stacked("m+n", {"m", "n"}, {2, 1}, 2) == TensorType(f32, {3, 2}));
    // Neither a larger nor a smaller one behind the first.
    CHECK_THROWS_WITH_AS(w.stacked("x", {"n", "h"}, {1, 1}, 2),
                         doctest::Contains("weight 'h': expected f32 as 'n' has, got f16"), Error);
    CHECK_THROWS_WITH_AS(w.stacked("x", {"h", "n"}, {1, 1}, 2),
                         doctest::Contains("weight 'n': expected f16 as 'h' has, got f32"), Error);
    Store filled(folder.runtime);
    w.load(filled);
    CHECK(filled.get(TENON_SPACE_WEIGHT, "m+n").values<float>() ==
          std::vector<float>{1, 2, 3, 4, 5, 6});
  }

  TEST_CASE("loading: plain, renamed, made of several, tables; nothing else stays") {
    Folder folder;
    folder.write("model.safetensors", {{"model.a", 1}, {"b", 2}, {"e.0", 4}, {"e.1", 5}, {"x", 9}});
    Weights w(folder.scan());
    w.plain("model.a", {2});
    w.plain("model.b", {2});
    CHECK(w.made("e", {"e.0", "e.1"}, {2}, TENON_DTYPE_NONE, {2, 2}, joined) ==
          TensorType(f32, {2, 2}));
    // A source may serve several weights and stay itself.
    w.made("a.twice", {"model.a"}, {2}, f32, {2}, [](const std::vector<Tensor>& from) {
      Tensor out = from[0];
      for (float& v : out.values<float>()) v *= 2;
      return out;
    });
    w.table("t", {3}, [] { return std::vector<float>{7, 8, 9}; });
    Store store(folder.runtime);
    w.load(store);
    const auto get = [&](const char* name) { return store.get<float>(TENON_SPACE_WEIGHT, name); };
    CHECK(get("model.a") == std::vector<float>{1, 1.5});
    CHECK(get("model.b") == std::vector<float>{2, 2.5});
    CHECK(get("e") == std::vector<float>{4, 4.5, 5, 5.5});
    CHECK(get("a.twice") == std::vector<float>{2, 3});
    CHECK(get("t") == std::vector<float>{7, 8, 9});
    CHECK(store.names(TENON_SPACE_WEIGHT).size() == 5);
  }
}
