// SPDX-License-Identifier: Apache-2.0
// Embeddings as apps see them: pooling, lengths, texts longer than a step, errors. Their numbers are
// those of embeddings.py.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::test;

namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
bool has(const std::string& text, const char* words) { return text.find(words) != text.npos; }

using Vector = std::vector<float>;
Vector embed(Engine& e, const Tokens& text, const EmbedOptions& options = {}) {
  return e.embed(std::span(&text, 1), options);
}
double length_of(const Vector& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * x;
  return std::sqrt(sum);
}
double distance(const Vector& a, const Vector& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  return most;
}

Tokens long_text(size_t count) {
  Tokens t(count);
  for (size_t i = 0; i < count; ++i) t[i] = static_cast<int32_t>((i * 37 + i / 7) % 250);
  return t;
}

}  // namespace

TEST_SUITE("llm/api embeddings") {
  TEST_CASE("embed: several texts are as each alone, in order") {
    Engine& e = rig().engine;
    const std::vector<Tokens> texts = {{65, 66, 67}, {70}, long_text(300), {71, 72}};
    const Vector all = e.embed(texts);
    REQUIRE(all.size() == 4 * 32);
    for (size_t i = 0; i < 4; ++i) {
      const auto row = all.begin() + static_cast<ptrdiff_t>(32 * i);
      const Vector mine(row, row + 32);
      CHECK(mine == embed(e, texts[i]));
      CHECK(length_of(mine) == doctest::Approx(1));
    }
    CHECK(e.embed(std::span<const Tokens>()).empty());
    CHECK(e.embed("ABC") == embed(e, e.tokenize("ABC")));
    const std::vector<std::string> two = {"ABC", "D"};
    CHECK(e.embed(two).size() == 64);
  }

  TEST_CASE("embed: texts that are read together have the bits of each alone") {
    std::vector<Tokens> texts;
    for (size_t i = 0; i < 60; ++i) texts.push_back(long_text(1 + i * 7 % 23));
    for (const size_t size : {40, 128, 129, 37, 90, 1, 33, 64}) texts.push_back(long_text(size));
    for (const char* model : {"tiny", "tiny.gguf"})
      for (const int64_t cache : {0, 512}) {  // of the second one, all at a time have no room
        Engine e(rig().runtime, path_of(model),
                 {.device = "cpu", .slots = 2, .cache_tokens = cache});
        const Tokens other{1, 2, 3};
        const std::vector<Engine::Part> part{{1, other}};
        e.step(part);
        for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
          const EmbedOptions how{.pooling = pooling};
          const Vector all = e.embed(texts, how);
          REQUIRE(all.size() == texts.size() * 32);
          for (size_t i = 0; i < texts.size(); ++i) {
            CAPTURE(i);
            const auto row = all.begin() + static_cast<ptrdiff_t>(32 * i);
            CHECK(Vector(row, row + 32) == embed(e, texts[i], how));
          }
        }
        CHECK(e.length(0) == 0);
        CHECK(e.length(1) == 3);
      }
  }

  TEST_CASE("embed: short texts of one length are one run") {
    const auto runs = [](Engine& e, const std::vector<Tokens>& texts) {
      std::vector<uint64_t> read;  // before each run
      e.embed(texts, {.progress = [&](uint64_t at, uint64_t) { return read.push_back(at), true; }});
      return read;
    };
    Engine e(rig().runtime, path_of("tiny"), {.device = "cpu", .slots = 8});
    const std::vector<Tokens> eight(8, Tokens{65, 66, 67});
    CHECK(runs(e, eight) == std::vector<uint64_t>{0});
    // Texts of 3 and 4 tokens are one length, those of 5 another one.
    std::vector<Tokens> two = eight;
    for (size_t i = 0; i < 8; ++i) two[i].push_back(68), two.push_back({65, 66, 67, 68, 69});
    two[2].pop_back();
    CHECK(runs(e, two) == std::vector<uint64_t>{0, 40});
    CHECK(runs(e, std::vector<Tokens>(4, long_text(64))) == std::vector<uint64_t>{0, 64, 128, 192});
    CHECK(runs(e, std::vector<Tokens>(36, Tokens{65})) == std::vector<uint64_t>{0, 32});
  }

  TEST_CASE("embed: a prefix of a chat stays in the cache while there are other blocks") {
    // Six blocks of 96 tokens.
    Engine e(rig().runtime, path_of("tiny"), {.device = "cpu", .slots = 2, .cache_tokens = 512});
    const Tokens chat = long_text(300);
    const auto cached = [&] {
      Generation g = e.generate(chat, {.max_tokens = 1, .ignore_end = true});
      const auto tokens = g.next().cached_tokens;
      e.clear(0);
      return tokens;
    };
    const auto texts = [](size_t count, size_t size) {
      std::vector<Tokens> all(count, long_text(size));
      for (size_t i = 0; i < count; ++i) all[i][0] = static_cast<int32_t>(100 + i);
      return all;
    };
    CHECK(cached() == 0);
    CHECK(cached() == 288);
    e.embed(texts(12, 5));
    CHECK(cached() == 288);
    e.embed(texts(3, 200));
    CHECK(cached() == 288);
    e.embed(texts(1, 400));  // five blocks
    CHECK(cached() == 96);
  }

  TEST_CASE("embed: pooling") {
    Engine& e = rig().engine;
    CHECK(e.facts().pooling == Pooling::mean);
    const Tokens text = long_text(11);
    const auto by = [&](Pooling pooling, const Tokens& t, bool normalize = false) {
      return embed(e, t, {.pooling = pooling, .normalize = normalize});
    };
    CHECK(by(Pooling::model, text) == by(Pooling::mean, text));
    // A token sees earlier ones only: the first token's state is that of the first token alone.
    CHECK(distance(by(Pooling::cls, text), by(Pooling::last, {text[0]})) < 1e-5);
    Vector sum(32, 0);
    for (size_t n = 1; n <= text.size(); ++n) {
      const Vector last =
          by(Pooling::last, {text.begin(), text.begin() + static_cast<ptrdiff_t>(n)});
      for (size_t i = 0; i < 32; ++i) sum[i] += last[i] / 11;
    }
    const Vector mean = by(Pooling::mean, text);
    CHECK(distance(mean, sum) < 1e-5);
    CHECK(length_of(mean) > 1.1);
    Vector unit = mean;
    for (float& x : unit) x /= static_cast<float>(length_of(mean));
    CHECK(distance(by(Pooling::mean, text, true), unit) < 1e-6);
  }

  TEST_CASE("embed: texts longer than a step, and padding") {
    Engine& e = rig().engine;
    // 512 tokens are a step of their own; 511 and 400 are padded; 513 would not fit.
    for (const size_t count : {512, 511, 400, 7, 3}) {
      const Tokens text = long_text(count);
      Vector sum(32, 0);
      // Token by token, by means of shorter texts: mean(n) * n - mean(n - 1) * (n - 1) is the last.
      const Vector whole = embed(e, text, {.pooling = Pooling::mean, .normalize = false});
      const Vector shorter =
          embed(e, {text.begin(), text.end() - 1}, {.pooling = Pooling::mean, .normalize = false});
      const Vector last = embed(e, text, {.pooling = Pooling::last, .normalize = false});
      const auto n = static_cast<float>(count);
      for (size_t i = 0; i < 32; ++i) sum[i] = whole[i] * n - shorter[i] * (n - 1);
      CHECK(distance(sum, last) < 2e-6 * n + 1e-5);
    }
    CHECK(has(message_of([&] { embed(e, long_text(513)); }), "at most 512"));
  }

  TEST_CASE("embed: the slot is cleared, the others are not") {
    Engine& e = rig().engine;
    const GenerateOptions eight{.max_tokens = 8, .ignore_end = true};
    GenerateOptions second = eight;
    second.slot = 1;
    const Tokens expected = e.complete(Tokens{65, 66}, eight).tokens;
    Generation g = e.generate(Tokens{65, 66}, second), old = e.generate(Tokens{65, 66}, eight);
    g.next(), old.next();
    embed(e, {70, 71, 72});
    CHECK(e.length(0) == 0);
    CHECK(e.length(1) > 0);
    CHECK(has(message_of([&] { old.next(); }), "slot 0 was changed"));
    Tokens made = {expected[0]};
    for (Piece p = g.next();; p = g.next()) {
      made.push_back(p.token);
      if (p.finish != Finish::running) break;
    }
    CHECK(made == expected);
    CHECK(e.complete(Tokens{65, 66}, eight).tokens == expected);
  }

  TEST_CASE("embed: progress stops it, and its exceptions come through") {
    Engine& e = rig().engine;
    const std::vector<Tokens> texts = {long_text(300), {65, 66}};
    std::vector<uint64_t> read;
    EmbedOptions o;
    o.progress = [&](uint64_t at, uint64_t total) {
      CHECK(total == 302);
      return read.push_back(at), true;
    };
    e.embed(texts, o);
    REQUIRE(read.size() >= 2);
    CHECK(read.front() == 0);
    CHECK(read.back() >= 300);
    o.progress = [&](uint64_t at, uint64_t) { return at < 300; };
    CHECK(has(message_of([&] { e.embed(texts, o); }), "cancelled"));
    CHECK(e.length(0) == 0);
    o.progress = [](uint64_t, uint64_t) -> bool { throw std::runtime_error("mine"); };
    CHECK_THROWS_WITH(e.embed(texts, o), "mine");
  }

  TEST_CASE("embed: the pooling that the files of a model name") {
    const std::string folder = path_of("pooled");
    std::filesystem::copy(path_of("tiny"), folder, std::filesystem::copy_options::recursive);
    std::filesystem::create_directory(folder + "/1_Pooling");
    const auto write = [&](const char* text) {
      std::ofstream(folder + "/1_Pooling/config.json") << text;
    };
    const Tokens text = {65, 66, 67};
    for (const auto& [json, pooling] :
         {std::pair(R"({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false})",
                    Pooling::last),
          std::pair(R"({"pooling_mode_cls_token": true})", Pooling::cls),
          std::pair(R"({"pooling_mode": "mean"})", Pooling::mean),
          std::pair(R"({"word_embedding_dimension": 32})", Pooling::mean)}) {
      write(json);
      Engine e(rig().runtime, folder, {.device = "cpu"});
      CHECK(e.facts().pooling == pooling);
      CHECK(embed(e, text) == embed(rig().engine, text, {.pooling = pooling}));
    }
    write(R"({"pooling_mode_max_tokens": true})");
    Engine e(rig().runtime, folder, {.device = "cpu"});
    CHECK(!e.facts().pooling);
    CHECK(has(message_of([&] { embed(e, text); }), "pooling is 'max_tokens'; expected mean"));
    CHECK(embed(e, text, {.pooling = Pooling::cls}).size() == 32);
    write("{");
    CHECK(has(message_of([&] { Engine(rig().runtime, folder, {.device = "cpu"}); }),
              "1_Pooling/config.json"));
  }
}
