// SPDX-License-Identifier: Apache-2.0
// Language models as apps see them: llm.hpp over libtenon-llm, with the small model that api.py
// writes (TENON_TINY: a folder that has `tiny` and `tiny.gguf`).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "rig.hpp"

using namespace tenon;
using namespace tenon::llm;
using namespace tenon::test;

namespace {

int32_t most_likely(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

template <class F>
tenon_code code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return TENON_OK;
}

const GenerateOptions kEight{.max_tokens = 8, .ignore_end = true};

}  // namespace

TEST_SUITE("llm/api") {
  TEST_CASE("facts: those of config.json and the tokenizer") {
    const Facts f = rig().engine.facts();
    CHECK(f.architecture == "llama");
    CHECK(f.vocab == 262);
    CHECK(f.layers == 2);
    CHECK(f.dim == 32);
    CHECK(f.context == 512);
    CHECK(f.model_context == 512);
    CHECK(f.slots == 2);
    CHECK(f.end_tokens == Tokens{257});
    CHECK(f.bos_token == 256);
    CHECK(f.has_tokenizer);
    CHECK(f.has_chat_template);
    CHECK(!f.recurrent);
  }

  TEST_CASE("text: tokens and back, special ones by choice") {
    const Engine& e = rig().engine;
    const Tokens special = e.tokenize("a</s>");
    CHECK(special.size() == 2);
    CHECK(special[1] == 257);
    CHECK(e.tokenize("a</s>", {.parse_special = false}).size() == 5);
    CHECK(e.detokenize(special) == "a</s>");
    CHECK(e.detokenize(special, true) == "a");
    CHECK(code_of([&] { e.detokenize(Tokens{9999}); }) == TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("decoder: characters come when they are complete") {
    const Engine& e = rig().engine;
    Decoder d = e.decoder();
    const Tokens euro = e.tokenize("\xE2\x82\xAC!");
    REQUIRE(euro.size() == 4);
    CHECK(d.push(euro[0]).empty());
    CHECK(d.push(euro[1]).empty());
    CHECK(d.push(euro[2]) == "\xE2\x82\xAC");
    CHECK(d.push(euro[3]) == "!");
    CHECK(d.push(euro[0]).empty());
    CHECK(d.finish() == "\xEF\xBF\xBD");
    CHECK(d.push(euro[3]) == "!");
  }

  TEST_CASE("chat template: messages, the start of the answer, refusals") {
    const Engine& e = rig().engine;
    const std::string hi = R"([{"role": "user", "content": "Hi"}])";
    CHECK(e.apply_chat_template(hi) == "<s><|user|>Hi</s><|assistant|>");
    CHECK(e.apply_chat_template(hi, {}, {}, false) == "<s><|user|>Hi</s>");
    CHECK(e.apply_chat_template(hi, R"([{"x": 1}])").starts_with("<s><|system|>[{\"x\": 1}]"));
    const std::vector<Message> messages = {{"user", "a\"b\\c\n\x01"},
                                           {"assistant", "\xE2\x82\xAC"}};
    CHECK(e.apply_chat_template(messages) ==
          "<s><|user|>a\"b\\c\n\x01</s><|assistant|>\xE2\x82\xAC</s><|assistant|>");
    const std::vector<Message> no_utf8 = {{"user", "a\xFF"}};
    CHECK(e.apply_chat_template(no_utf8) == "<s><|user|>a\xEF\xBF\xBD</s><|assistant|>");
    CHECK(code_of([&] { e.apply_chat_template("[{"); }) == TENON_CORRUPT);
    CHECK(code_of([&] { e.apply_chat_template("{}"); }) == TENON_INVALID_ARGUMENT);
    CHECK(code_of([&] { e.apply_chat_template(hi, "1"); }) == TENON_INVALID_ARGUMENT);
    try {
      e.apply_chat_template(R"([{"role": "nobody", "content": ""}])");
      FAIL("accepted");
    } catch (const Error& x) {
      CHECK(std::string(x.what()).find("unknown role nobody") != std::string::npos);
    }
  }

  TEST_CASE("generate: the most likely tokens, as logits() gives them") {
    Engine& e = rig().engine;
    Tokens all = e.tokenize("<s>hello");
    const size_t start = all.size();
    const auto vocab = static_cast<size_t>(e.facts().vocab);
    for (int i = 0; i < 8; ++i) {
      const std::vector<float> logits = e.logits(all);
      REQUIRE(logits.size() == all.size() * vocab);
      all.push_back(most_likely(std::span(logits).last(vocab)));
    }
    const Answer a = e.complete(std::span(all).first(start), kEight);
    CHECK(a.tokens == Tokens(all.begin() + static_cast<ptrdiff_t>(start), all.end()));
    CHECK(a.finish == Finish::max_tokens);
    CHECK(a.text == e.detokenize(a.tokens, true));
    CHECK(e.length(0) == static_cast<int64_t>(start) + 7);
  }

  TEST_CASE("generate: a GGUF file of the same model continues alike") {
    Engine gguf(rig().runtime, path_of("tiny.gguf"), {.device = "cpu"});
    const Tokens prompt = rig().engine.tokenize("<s>hello");
    CHECK(gguf.tokenize("<s>hello") == prompt);
    CHECK(gguf.complete(prompt, kEight).tokens == rig().engine.complete(prompt, kEight).tokens);
  }

  TEST_CASE("generate: what a slot has read is not read again") {
    Engine& e = rig().engine;
    const Tokens prompt = e.tokenize("<s>once upon a time");
    const auto cached = [&](const Tokens& p) {
      Generation g = e.generate(p, kEight);
      const uint64_t n = g.next().cached_tokens;
      while (g.next().finish == Finish::running) {
      }
      return n;
    };
    CHECK(cached(prompt) == 0);
    CHECK(cached(prompt) == prompt.size() - 1);  // the last one gives the logits
    Tokens other = prompt;
    other[3] ^= 1;
    CHECK(cached(other) == 3);
    const Tokens fresh =
        Engine(rig().runtime, path_of("tiny"), {.device = "cpu"}).complete(other, kEight).tokens;
    CHECK(e.complete(other, kEight).tokens == fresh);
  }

  TEST_CASE("generate: seeds, log probabilities, penalties and biases") {
    Engine& e = rig().engine;
    const Tokens prompt = e.tokenize("<s>x");
    GenerateOptions o = kEight;
    o.temperature = 1.5, o.seed = 7;
    const Tokens drawn = e.complete(prompt, o).tokens;
    CHECK(e.complete(prompt, o).tokens == drawn);
    o.seed = 8;
    CHECK(e.complete(prompt, o).tokens != drawn);

    GenerateOptions greedy = kEight;
    greedy.logprobs = true;
    Generation g = e.generate(prompt, greedy);
    const Piece first = g.next();
    const std::vector<float> logits = e.logits(prompt);
    const std::span<const float> row = std::span(logits).last(262);
    double sum = 0;
    for (const float l : row) sum += std::exp(double{l});
    const double expected = row[static_cast<size_t>(first.token)] - std::log(sum);
    CHECK(first.logprob == doctest::Approx(expected).epsilon(1e-4));

    greedy.top_logprobs = 3;
    Generation likely = e.generate(prompt, greedy);
    const Piece top = likely.next();
    REQUIRE(top.top_tokens.size() == 3);
    REQUIRE(top.top_logprobs.size() == 3);
    CHECK(top.top_tokens[0] == first.token);
    CHECK(top.top_logprobs[0] == top.logprob);
    CHECK(top.logprob == first.logprob);
    std::vector<float> sorted(row.begin(), row.end());
    std::ranges::sort(sorted, std::greater<>());
    for (size_t i = 0; i < 3; ++i) {
      CHECK(row[static_cast<size_t>(top.top_tokens[i])] == sorted[i]);
      CHECK(top.top_logprobs[i] == doctest::Approx(sorted[i] - std::log(sum)).epsilon(1e-4));
    }
    while (likely.next().finish == Finish::running) {
    }
    CHECK(likely.next().top_tokens.empty());  // again the last piece, without a token
    greedy.top_logprobs = 263;
    CHECK(code_of([&] { e.generate(prompt, greedy); }) == TENON_INVALID_ARGUMENT);
    greedy.top_logprobs = 0;

    greedy.logit_bias = {{first.token, -INFINITY}};
    CHECK(e.complete(prompt, greedy).tokens[0] != first.token);
    greedy.logit_bias = {{65, 1e6f}};
    CHECK(e.complete(prompt, greedy).text == "AAAAAAAA");
    greedy.stop = {"zz", "AAA"};
    Generation stopped = e.generate(prompt, greedy);
    Piece p = stopped.next();
    std::string text(p.text);
    while (p.finish == Finish::running) p = stopped.next(), text += p.text;
    CHECK(text.empty());
    CHECK(p.finish == Finish::stop_string);
    CHECK(p.stop == 1);
    CHECK(p.tokens == 3);
    CHECK(stopped.next().token == -1);  // again the last one
    CHECK(stopped.next().finish == Finish::stop_string);
  }

  TEST_CASE("generation: one is cancelled, the other goes on") {
    Engine& e = rig().engine;
    GenerateOptions second = kEight;
    second.slot = 1;
    Generation a = e.generate(Tokens{65, 66}, kEight), b = e.generate(Tokens{67}, second);
    a.next(), b.next();
    std::thread([&] { a.cancel(); }).join();
    CHECK(a.next().finish == Finish::cancelled);
    while (b.next().finish == Finish::running) {
    }
    CHECK(b.next().finish == Finish::max_tokens);
    Generation c = e.generate(Tokens(400, 65), kEight);
    c.cancel();
    CHECK(c.next().finish == Finish::cancelled);
    CHECK(e.length(0) < 400);  // the prompt was not read
  }

  TEST_CASE("generate: answers follow an expression or a schema") {
    Engine& e = rig().engine;
    const Tokens prompt = e.tokenize("<s>x");
    GenerateOptions o{.temperature = 2, .seed = 3, .regex = "[a-c]{5}"};
    const Answer a = e.complete(prompt, o);
    CHECK(a.text.size() == 5);
    CHECK(a.text.find_first_not_of("abc") == std::string::npos);
    CHECK((a.finish == Finish::complete || a.finish == Finish::end_token));
    o.regex.clear();
    o.json_schema = R"({"enum": ["yes", "no"]})";
    const std::string word = e.complete(prompt, o).text;
    CHECK((word == "\"yes\"" || word == "\"no\""));
    o.ignore_end = true;
    CHECK(code_of([&] { e.complete(prompt, o); }) == TENON_INVALID_ARGUMENT);
    o.ignore_end = false;
    o.regex = "a";
    CHECK(code_of([&] { e.complete(prompt, o); }) == TENON_INVALID_ARGUMENT);
    o.json_schema = R"({"type": "nothing"})", o.regex.clear();
    CHECK(code_of([&] { e.complete(prompt, o); }) == TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("generate: callbacks stop it, and exceptions of progress come through") {
    Engine& e = rig().engine;
    const Tokens prompt = e.tokenize("<s>x");
    int pieces = 0;
    CHECK(e.generate(prompt, kEight, [&](const Piece&) { return ++pieces < 3; }) ==
          Finish::cancelled);
    CHECK(pieces == 3);
    GenerateOptions o = kEight;
    o.progress = [](uint64_t, uint64_t) { return false; };
    e.clear(0);
    const Answer a = e.complete(prompt, o);
    CHECK(a.finish == Finish::cancelled);
    CHECK(a.tokens.empty());
    o.progress = [](uint64_t, uint64_t) -> bool { throw std::runtime_error("mine"); };
    CHECK_THROWS_WITH(e.complete(prompt, o), "mine");
    std::vector<uint64_t> read;
    o.progress = [&](uint64_t at, uint64_t total) {
      CHECK(total == 300);
      return read.push_back(at), true;
    };
    e.clear(0);
    e.complete(Tokens(300, 65), o);
    REQUIRE(read.size() >= 2);
    CHECK(read[0] == 0);
    CHECK(read[1] == 128);
  }

  TEST_CASE("generate: the end token and the full context end it") {
    Engine& e = rig().engine;
    const Tokens prompt = e.tokenize("<s>x");
    GenerateOptions o{.logit_bias = {{257, 1e6f}}};
    const Answer a = e.complete(prompt, o);
    CHECK(a.tokens == Tokens{257});
    CHECK(a.text.empty());
    CHECK(a.finish == Finish::end_token);
    Engine small(rig().runtime, path_of("tiny"), {.device = "cpu", .context = 8});
    const Answer full = small.complete(Tokens{65, 66, 67, 68, 69}, {.ignore_end = true});
    CHECK(full.finish == Finish::context_full);
    CHECK(full.tokens.size() == 4);  // three are read, the last one is not
    CHECK(small.length() == 8);
    CHECK(code_of([&] { small.complete(Tokens(9, 65)); }) == TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("generation: two slots by turns are as one after the other") {
    Engine& e = rig().engine;
    const Tokens a = e.tokenize("<s>abc"), b = e.tokenize("<s>12345");
    const Tokens alone_a = e.complete(a, kEight).tokens, alone_b = e.complete(b, kEight).tokens;
    e.clear(0);
    GenerateOptions second = kEight;
    second.slot = 1;
    Generation ga = e.generate(a, kEight), gb = e.generate(b, second);
    Tokens both_a, both_b;
    for (int i = 0; i < 8; ++i)
      both_a.push_back(ga.next().token), both_b.push_back(gb.next().token);
    CHECK(both_a == alone_a);
    CHECK(both_b == alone_b);
    // And a generation whose slot was taken says so.
    Generation old = e.generate(a, kEight);
    old.next();
    Generation taker = e.generate(b, kEight);
    CHECK(code_of([&] { old.next(); }) == TENON_INVALID_ARGUMENT);
    CHECK(taker.next().token == alone_b[0]);
  }

  TEST_CASE("generation: it keeps the model") {
    std::optional<Engine> e(std::in_place, rig().runtime, path_of("tiny"),
                            EngineOptions{.device = "cpu"});
    const Tokens prompt = e->tokenize("<s>x");
    const Tokens expected = e->complete(prompt, kEight).tokens;
    Generation g = e->generate(prompt, kEight);
    e.reset();
    CHECK(g.next().token == expected[0]);
  }

  TEST_CASE("cancel: another thread ends a generation") {
    Engine& e = rig().engine;
    std::atomic<bool> began = false;
    std::thread other([&] {
      while (!began) std::this_thread::yield();
      e.cancel();
    });
    const Finish finish = e.generate(e.tokenize("<s>x"), {.ignore_end = true}, [&](const Piece&) {
      began = true;
      return std::this_thread::yield(), true;
    });
    other.join();
    CHECK((finish == Finish::cancelled || finish == Finish::context_full));
    e.cancel();  // later ones are not concerned
    CHECK(e.complete(e.tokenize("<s>x"), kEight).finish == Finish::max_tokens);
    Generation g = e.generate(e.tokenize("<s>x"), kEight);
    g.next();
    e.cancel();
    CHECK(g.next().finish == Finish::cancelled);
  }

  TEST_CASE("cancel: logits that end early leave slot 0 empty") {
    Engine& e = rig().engine;
    const Tokens many(300, 65), two = {65, 66}, wrong = {65, 9999};  // `many` takes several steps
    const std::vector<Engine::Part> part = {{0, two}}, bad = {{0, wrong}};
    const int32_t expected = e.step(part)[0].token;
    e.logits(many);  // compiles
    const auto start = std::chrono::steady_clock::now();
    e.logits(many);
    const auto took = std::chrono::steady_clock::now() - start;
    for (int i = 0; i < 20; ++i) {
      std::thread other([&] {
        std::this_thread::sleep_for(took * i / 20);
        e.cancel();
      });
      const tenon_code code = code_of([&] { e.logits(many); });
      other.join();
      CHECK((code == TENON_OK || code == TENON_CANCELLED));
      CHECK(e.length(0) == 0);
      CHECK(code_of([&] { e.step(bad); }) == TENON_INVALID_ARGUMENT);
      CHECK(e.step(part)[0].token == expected);
      CHECK(code_of([&] { e.step(bad); }) == TENON_INVALID_ARGUMENT);
      CHECK(e.length(0) == 2);
    }
  }

  TEST_CASE("step: several slots, with logits; lengths; truncate") {
    Engine& e = rig().engine;
    const Tokens a = {65, 66, 67}, b = {70};
    const std::vector<float> all = e.logits(a);
    const std::vector<Engine::Part> parts = {{1, a}, {0, b}};
    const std::vector<Engine::Next> next = e.step(parts, true);
    REQUIRE(next.size() == 2);
    CHECK(e.length(1) == 3);
    CHECK(e.length(0) == 1);
    for (size_t i = 0; i < 262; ++i)
      CHECK(next[0].logits[i] == doctest::Approx(all[2 * 262 + i]).epsilon(1e-3));
    CHECK(next[0].token == most_likely(next[0].logits));
    CHECK(e.truncate(1, 2) == 2);
    const std::vector<Engine::Part> again = {{1, {67}}, {0, {71}}};
    CHECK(e.step(again)[0].token == next[0].token);
    // A generation goes on from there.
    GenerateOptions o = kEight;
    o.slot = 1;
    Generation g = e.generate(Tokens{65, 66, 67, 68}, o);
    CHECK(g.next().cached_tokens == 3);
    const std::vector<Engine::Part> twice = {{1, a}, {1, b}}, none = {{1, {}}}, bad = {{7, a}};
    for (const auto& p : {twice, none, bad})
      CHECK(code_of([&] { e.step(p); }) == TENON_INVALID_ARGUMENT);
    CHECK(code_of([&] { e.truncate(0, 99); }) == TENON_INVALID_ARGUMENT);
  }

  TEST_CASE("open: what is wrong is named") {
    const Runtime& r = rig().runtime;
    const auto text_of = [&](const std::string& name, const EngineOptions& o) {
      try {
        Engine(r, path_of(name), o);
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    CHECK(text_of("missing", {}).find("missing: no such file or folder") != std::string::npos);
    CHECK(text_of("missing.gguf", {}).find("no such file or folder") != std::string::npos);
    CHECK(text_of("tiny/config.json", {}).find("begin with 'GGUF'") != std::string::npos);
    std::filesystem::copy_file(path_of("tiny.gguf"), path_of("no_suffix"),
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(text_of("no_suffix", {.device = "cpu"}).empty());
    CHECK(text_of("tiny", {.context = 9999}).find("expected a context of at most 512") !=
          std::string::npos);
    CHECK(text_of("tiny", {.context = -1}).find("context: expected 0 or more") !=
          std::string::npos);
    CHECK(text_of("tiny", {.slots = -1}).find("slots") != std::string::npos);
    CHECK(text_of("tiny", {.device = "cpu", .cache_tokens = 511})
              .find("expected a cache of at least 512 tokens, the context, got 511") !=
          std::string::npos);
    CHECK(text_of("tiny", {.compute = i32}).find("compute: expected f32") != std::string::npos);
    constexpr tenon_dtype kBlocks = TENON_DTYPE_Q8_0;
    CHECK(text_of("tiny", {.compute = kBlocks}).find("compute: expected f32") != std::string::npos);
    CHECK(text_of("tiny", {.device = "cpu", .cache = kBlocks}).find("head_dim") !=
          std::string::npos);
    CHECK(text_of("tiny", {.cache = i32}).find("cache: expected f32") != std::string::npos);
    CHECK(text_of("tiny", {.device = "nowhere"}).find("nowhere") != std::string::npos);
  }

  TEST_CASE("open: the memory of the cache may be less than slots * context") {
    Engine small(rig().runtime, path_of("tiny"),
                 {.device = "cpu", .slots = 4, .cache_tokens = 600});
    CHECK(small.facts().slots == 4);
    // Whole blocks.
    CHECK(small.facts().cache_tokens >= 600);
    CHECK(small.facts().cache_tokens < 600 + 96);
    CHECK(rig().engine.facts().cache_tokens >= 2 * 512);
    const Tokens a(500, 65), b(500, 66);
    const std::vector<Engine::Part> first{{0, a}}, second{{1, b}};
    small.step(first);
    CHECK(code_of([&] { small.step(second); }) == TENON_OUT_OF_MEMORY);
    CHECK(small.length(1) == 0);
    small.truncate(0, 0);
    small.step(second);
    CHECK(small.length(1) == 500);
  }

  TEST_CASE("open: a cache in half precision changes logits a little") {
    Engine half(rig().runtime, path_of("tiny"), {.device = "cpu", .cache = f16});
    const Tokens tokens = rig().engine.tokenize("<s>hello");
    const std::vector<float> a = rig().engine.logits(tokens), b = half.logits(tokens);
    float most = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i)
      most = std::max(most, std::abs(a[i])), apart = std::max(apart, std::abs(a[i] - b[i]));
    CHECK(apart > 0);
    CHECK(apart < 0.01f * most);
  }

  TEST_CASE("open: without a tokenizer, tokens go in and out") {
    Engine e(rig().runtime, path_of("no_tokenizer"), {.device = "cpu"});
    CHECK(!e.facts().has_tokenizer);
    CHECK(code_of([&] { e.tokenize("a"); }) == TENON_NOT_FOUND);
    CHECK(code_of([&] { e.complete(Tokens{65}, {.stop = {"a"}}); }) == TENON_NOT_FOUND);
    CHECK(code_of([&] { e.complete(Tokens{65}, {.regex = "a"}); }) == TENON_NOT_FOUND);
    const Answer a = e.complete(Tokens{65, 66}, kEight);
    CHECK(a.text.empty());
    CHECK(a.tokens == rig().engine.complete(Tokens{65, 66}, kEight).tokens);
  }

  TEST_CASE("open: a tokenizer that cannot be read is why a grammar fails") {
    const std::string folder = path_of("bad_tokenizer");
    std::filesystem::copy(path_of("no_tokenizer"), folder,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder + "/tokenizer.json") << "{";
    Engine e(rig().runtime, folder, {.device = "cpu"});
    try {
      e.complete(Tokens{65}, {.regex = "a"});
      FAIL("accepted");
    } catch (const Error& x) {
      CHECK(std::string(x.what()).find("bad_tokenizer/tokenizer.json") != std::string::npos);
    }
  }
}
