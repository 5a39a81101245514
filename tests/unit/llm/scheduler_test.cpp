// SPDX-License-Identifier: Apache-2.0
// Continuous batching with a model whose next token is known: a hash of all tokens before it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "llm/serve/scheduler.hpp"
#include "tenon/tenon.hpp"

TEST_SUITE("llm/scheduler") {
  using namespace tenon::llm::serve;
  using std::chrono::milliseconds;
  using Tokens = std::vector<int32_t>;

  constexpr int32_t kVocabulary = 26, kEnd = 25;

  int32_t next_token(const Tokens& tokens) {
    uint32_t h = 17;
    for (const int32_t t : tokens) h = h * 31 + static_cast<uint32_t>(t) + 1;
    return static_cast<int32_t>((h >> 8) % kVocabulary);
  }
  std::string letter(int32_t t) { return {static_cast<char>('a' + t)}; }

  struct Model final : Sequences {
    std::vector<Tokens> held;
    int64_t most;
    std::atomic<int64_t> widest{0}, read{0}, longest_step{0};
    std::atomic<bool> hold{false}, fails{false}, fails_late{false};
    std::atomic<int> entered{0};
    bool recurrent = false;
    const int64_t room;  // tokens, of all slots together

    Model(int64_t slots, int64_t context, int64_t tokens)
        : held(static_cast<size_t>(slots)), most(context), room(tokens) {}
    int64_t slots() const override { return static_cast<int64_t>(held.size()); }
    int64_t context() const override { return most; }
    std::vector<tenon::llm::NextLogits> step(std::span<const Part> parts) override {
      ++entered;
      while (hold) std::this_thread::sleep_for(milliseconds(1));
      if (fails.exchange(false)) throw tenon::Error(TENON_DEVICE_LOST, "step: broken");
      widest = std::max(widest.load(), static_cast<int64_t>(parts.size()));
      std::vector<tenon::llm::NextLogits> out;
      int64_t total = 0;
      std::vector<bool> seen(held.size());
      for (const Part& p : parts) {
        REQUIRE(p.tokens.size() > 0);
        REQUIRE_FALSE(seen[static_cast<size_t>(p.slot)]);
        seen[static_cast<size_t>(p.slot)] = true;
        Tokens& h = held[static_cast<size_t>(p.slot)];
        h.insert(h.end(), p.tokens.begin(), p.tokens.end());
        REQUIRE(static_cast<int64_t>(h.size()) <= most);
        if (p.tokens.size() > 1) total += static_cast<int64_t>(p.tokens.size());
        read += static_cast<int64_t>(p.tokens.size());
        auto logits = std::make_shared<std::vector<float>>(kVocabulary, 0.0f);
        (*logits)[static_cast<size_t>(next_token(h))] = 1;
        out.push_back({.all = [logits] { return std::span<const float>(*logits); }});
      }
      longest_step = std::max(longest_step.load(), total);
      REQUIRE(size() <= room);
      return out;
    }
    int64_t size() const {
      int64_t all = 0;
      for (const Tokens& h : held) all += static_cast<int64_t>(h.size());
      return all;
    }
    int64_t cache_tokens() const override { return room; }
    bool has_room(std::span<const Growth> growths) const override {
      int64_t all = size();
      for (const Growth& g : growths) {
        REQUIRE(g.tokens > 0);
        all += g.tokens;
      }
      return all <= room;
    }
    bool truncate(int64_t slot, int64_t length) override {
      Tokens& h = held[static_cast<size_t>(slot)];
      REQUIRE(length <= static_cast<int64_t>(h.size()));
      const bool can = !recurrent || length == static_cast<int64_t>(h.size());
      h.resize(can ? static_cast<size_t>(length) : 0);
      return can;
    }
    // A number for each token; at the end, all of them.
    std::vector<float> embed(const Part& part, bool last) override {
      ++entered;
      while (hold) std::this_thread::sleep_for(milliseconds(1));
      if (fails.exchange(false)) throw tenon::Error(TENON_DEVICE_LOST, "step: broken");
      Tokens& h = held[static_cast<size_t>(part.slot)];
      h.insert(h.end(), part.tokens.begin(), part.tokens.end());
      text_tokens += static_cast<int64_t>(part.tokens.size());
      REQUIRE(static_cast<int64_t>(h.size()) <= most);
      REQUIRE(size() <= room);
      if (fails_late.exchange(false)) throw tenon::Error(TENON_NUMERIC_ERROR, "embed: not finite");
      longest_text_part =
          std::max(longest_text_part.load(), static_cast<int64_t>(part.tokens.size()));
      return last ? std::vector<float>(h.begin(), h.end()) : std::vector<float>();
    }
    std::vector<std::vector<float>> embed_texts(int64_t slot,
                                                std::span<const Tokens> texts) override {
      REQUIRE(held[static_cast<size_t>(slot)].empty());
      most_texts = std::max(most_texts.load(), static_cast<int64_t>(texts.size()));
      return Sequences::embed_texts(slot, texts);
    }
    std::atomic<int64_t> longest_text_part{0}, text_tokens{0}, most_texts{0};
  };

  struct Greedy final : Sampling {
    DrawnToken draw(const tenon::llm::NextLogits& next) override {
      const std::span<const float> logits = next.all();
      const auto t =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      return {{t, letter(t), 0}, {}};
    }
  };
  struct Letters final : Decoding {
    std::string push(int32_t t) override { return letter(t); }
    std::string finish() override { return ""; }
  };

  struct Rig {
    Model model;
    Scheduler scheduler;
    explicit Rig(int64_t slots = 4, int64_t context = 200, SchedulerLimits limits = {},
                 int64_t room = 1 << 20)
        : model(slots, context, room),
          scheduler(
              {model, [](const Wanted&) { return std::make_unique<Greedy>(); },
               [] { return std::make_unique<Letters>(); }, [](int32_t t) { return t == kEnd; }},
              limits) {}
    std::unique_ptr<Answer> ask(const Tokens& prompt, int64_t tokens = 20,
                                std::vector<std::string> stop = {}) {
      Wanted w;
      w.prompt = prompt;
      w.tokens = tokens;
      w.stop = std::move(stop);
      return scheduler.submit(std::move(w));
    }
  };

  std::unique_ptr<Answer> embed(Rig & rig, std::vector<Tokens> texts) {
    Wanted w;
    w.texts = std::move(texts);
    return rig.scheduler.submit(std::move(w));
  }
  // Waits for the embeddings of all texts, in order.
  std::vector<Tokens> embedded(Answer & answer) {
    std::vector<Tokens> out;
    for (Finish finish = Finish::none; finish == Finish::none;)
      if (auto p = answer.next(milliseconds(10'000))) {
        out.emplace_back(p->embedding.begin(), p->embedding.end());
        finish = p->finish;
      }
    return out;
  }

  struct Result {
    std::string text;
    Piece last;
  };
  Result wait_for(Answer & answer) {
    Result r;
    while (r.last.finish == Finish::none)
      if (auto p = answer.next(milliseconds(10'000))) {
        r.text += p->text;
        r.last = *p;
      }
    return r;
  }
  // What the model says when it is alone.
  std::string alone(Tokens tokens, int64_t n, bool ends = true) {
    std::string text;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t t = next_token(tokens);
      if (ends && t == kEnd) break;
      text += letter(t);
      tokens.push_back(t);
    }
    return text;
  }
  Tokens prompt_of(uint32_t seed, size_t size) {
    std::mt19937 source(seed);
    Tokens t(size);
    for (int32_t& x : t) x = static_cast<int32_t>(source() % kVocabulary);
    return t;
  }

  TEST_CASE("one answer: text, reason and numbers") {
    Rig rig;
    const Result r = wait_for(*rig.ask({1, 2, 3}, 5));
    CHECK(r.text == alone({1, 2, 3}, 5));
    CHECK(r.last.prompt_tokens == 3);
    CHECK(r.last.cached_tokens == 0);
    CHECK(r.last.tokens_made <= 5);
  }

  TEST_CASE("many answers: each is what it would be alone") {
    SchedulerLimits limits;
    limits.chunk = 7;
    limits.waiting = 1000;
    Rig rig(3, 200, limits);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (uint32_t t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (uint32_t i = 0; i < 30; ++i) {
          const uint32_t seed = t * 100 + i;
          const Tokens prompt = prompt_of(seed % 11, 1 + seed % 40);
          const int64_t n = 1 + seed % 25;
          const auto answer = rig.ask(prompt, n);
          if (seed % 7 == 3) continue;  // it is cancelled
          wrong += wait_for(*answer).text != alone(prompt, n);
        }
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
    CHECK(rig.model.longest_step <= 7);
    CHECK(rig.model.widest <= 3);
  }

  TEST_CASE("prompts are read in chunks while other answers go on") {
    SchedulerLimits limits;
    limits.chunk = 10;
    Rig rig(2, 1000, limits);
    rig.model.hold = true;
    const auto slow = rig.ask(prompt_of(1, 500), 1);
    while (rig.model.entered < 1) std::this_thread::sleep_for(milliseconds(1));
    const auto quick = rig.ask({1}, 3);
    rig.model.hold = false;
    CHECK(wait_for(*quick).text == alone({1}, 3));
    CHECK(wait_for(*slow).text == alone(prompt_of(1, 500), 1));
    CHECK(rig.model.widest == 2);
    CHECK(rig.model.longest_step <= 11);
  }

  TEST_CASE("a prompt that begins like an earlier one reads only the rest") {
    Rig rig(2, 200);
    const Tokens first = prompt_of(5, 50);
    wait_for(*rig.ask(first, 3));
    Tokens longer = first;
    longer.push_back(4);
    const int64_t before = rig.model.read;
    const Result r = wait_for(*rig.ask(longer, 1));
    CHECK(r.text == alone(longer, 1));
    CHECK(r.last.cached_tokens >= 50);
    CHECK(rig.model.read - before == 1);
    // The same prompt once more: its last token is read again.
    const Result again = wait_for(*rig.ask(first, 3));
    CHECK(again.last.cached_tokens == 49);
    CHECK(again.text == alone(first, 3));
  }

  TEST_CASE("a recurrent model begins anew unless the prompt goes on from its state") {
    Rig rig(1, 200);
    rig.model.recurrent = true;
    const Tokens first = prompt_of(6, 20);
    wait_for(*rig.ask(first, 2));
    const Result again = wait_for(*rig.ask(first, 2));
    CHECK(again.last.cached_tokens == 0);
    CHECK(again.text == alone(first, 2));
    Tokens on = rig.model.held[0];
    on.push_back(3);
    const auto size = static_cast<int64_t>(on.size());
    CHECK(wait_for(*rig.ask(on, 1)).last.cached_tokens == size - 1);
  }

  TEST_CASE("stop texts end an answer and are not part of it") {
    Rig rig;
    Tokens prompt;
    std::string all;
    for (uint32_t seed = 0; all.size() < 12; ++seed) all = alone(prompt = prompt_of(seed, 4), 20);
    const std::string stop = all.substr(5, 3);
    const Result r = wait_for(*rig.ask(prompt, 20, {"never!", stop}));
    CHECK(r.text == all.substr(0, all.find(stop)));
    CHECK(r.last.finish == Finish::stop);
  }

  TEST_CASE("limits: empty and long prompts, and the room that is left") {
    Rig rig(1, 10);
    CHECK_THROWS_WITH_AS(rig.ask({}), doctest::Contains("no tokens"), tenon::Error);
    CHECK_THROWS_WITH_AS(rig.ask(Tokens(10, 1)), doctest::Contains("room for 10"), tenon::Error);
    const Tokens prompt = prompt_of(3, 7);
    const Result r = wait_for(*rig.ask(prompt, -1));
    CHECK(r.text == alone(prompt, 3));
  }

  TEST_CASE("a full queue refuses; who leaves makes room") {
    SchedulerLimits limits;
    limits.waiting = 1;
    Rig rig(1, 100, limits);
    rig.model.hold = true;
    auto running = rig.ask({1}, 50);
    while (rig.model.entered < 1) std::this_thread::sleep_for(milliseconds(1));
    auto waiting = rig.ask({2}, 2);
    CHECK_THROWS_AS(rig.ask({3}), Busy);
    CHECK(rig.scheduler.numbers().running == 1);
    CHECK(rig.scheduler.numbers().waiting == 1);
    running.reset();
    rig.model.hold = false;
    CHECK(wait_for(*waiting).text == alone({2}, 2));
    CHECK(wait_for(*rig.ask({3}, 2)).text == alone({3}, 2));
  }

  TEST_CASE("little memory: answers wait and take turns, and none fails") {
    // Each has room alone, four of them never.
    Rig rig(4, 200, {.waiting = 64, .chunk = 32}, 260);
    CHECK(rig.scheduler.numbers().cache_positions == 260);
    std::vector<std::unique_ptr<Answer>> answers;
    std::vector<Tokens> prompts;
    for (uint32_t i = 0; i < 12; ++i) {
      prompts.push_back(prompt_of(i, 30 + 10 * (i % 5)));
      Wanted w;
      w.prompt = prompts.back();
      w.tokens = 110;
      w.ignore_end = true;
      answers.push_back(rig.scheduler.submit(std::move(w)));
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      CAPTURE(i);
      const Result r = wait_for(*answers[i]);
      CHECK(r.text == alone(prompts[i], 110, false));
      CHECK(r.last.tokens_made == 110);
      CHECK(r.last.prompt_tokens == static_cast<int64_t>(prompts[i].size()));
    }
    CHECK(rig.model.widest > 1);
  }

  TEST_CASE("little memory: a sequence that nobody uses makes room") {
    Rig rig(2, 100, {}, 100);
    const Tokens first = prompt_of(1, 60), second = prompt_of(2, 90);
    CHECK(wait_for(*rig.ask(first, 5)).text == alone(first, 5));
    CHECK(wait_for(*rig.ask(second, 5)).text == alone(second, 5));
    CHECK(wait_for(*rig.ask(first, 5)).last.cached_tokens == 0);
  }

  TEST_CASE("a step that fails fails its answers, and the next ones work") {
    Rig rig(2, 100);
    rig.model.fails = true;
    const auto a = rig.ask({1}, 2);
    CHECK_THROWS_WITH_AS(wait_for(*a), doctest::Contains("broken"), tenon::Error);
    CHECK(wait_for(*rig.ask({1}, 2)).text == alone({1}, 2));
  }

  TEST_CASE("embeddings: of all texts in order, while answers go on") {
    Rig rig(3, 40, {.waiting = 64, .chunk = 8});
    std::mt19937 random(5);
    std::vector<std::vector<Tokens>> wanted(12);
    for (auto& texts : wanted)
      for (size_t i = 0; i < 1 + random() % 6; ++i) {
        Tokens& text = texts.emplace_back(1 + random() % 40);
        for (int32_t& t : text) t = static_cast<int32_t>(random() % kVocabulary);
      }
    std::vector<std::thread> clients;
    for (auto& texts : wanted)
      clients.emplace_back([&rig, &texts] { CHECK(embedded(*embed(rig, texts)) == texts); });
    for (int32_t i = 0; i < 8; ++i)
      clients.emplace_back([&rig, i] {
        CHECK(wait_for(*rig.ask({i, 2, 3}, 10)).text == alone({i, 2, 3}, 10));
      });
    for (std::thread& t : clients) t.join();
    CHECK(rig.model.longest_text_part == 8);
  }

  TEST_CASE("embeddings: tokens are counted; limits; who leaves makes room") {
    Rig rig(1, 10);
    auto a = embed(rig, {{1, 2}, {3}});
    std::vector<int64_t> counts;
    for (int i = 0; i < 2; ++i)
      counts.push_back(a->next(milliseconds(10'000)).value().prompt_tokens);
    CHECK(counts == std::vector<int64_t>{2, 3});
    CHECK(embedded(*embed(rig, {Tokens(10, 4)})).at(0).size() == 10);
    for (const Tokens& bad : {Tokens(), Tokens(11, 4)})
      CHECK_THROWS_WITH_AS(embed(rig, {{1}, bad}), doctest::Contains("input 1 has"), tenon::Error);
    CHECK_THROWS_AS(rig.ask(Tokens(10, 1)), TooLong);
    rig.model.hold = true;
    rig.model.entered = 0;
    auto leaves = embed(rig, std::vector<Tokens>(2000, Tokens(10, 1)));
    while (rig.model.entered < 1) std::this_thread::sleep_for(milliseconds(1));
    CHECK(rig.scheduler.numbers().running == 1);
    leaves.reset();
    rig.model.hold = false;
    CHECK(wait_for(*rig.ask({1, 2}, 3)).text == alone({1, 2}, 3));
    CHECK(rig.model.entered < 100);
    rig.model.fails = true;
    CHECK_THROWS_WITH_AS(embedded(*embed(rig, {{1, 2}})), doctest::Contains("broken"),
                         tenon::Error);
    CHECK(embedded(*embed(rig, {{1, 2}})) == std::vector<Tokens>{{1, 2}});
  }

  TEST_CASE("embeddings, little memory: texts wait for one another and for answers") {
    for (const int64_t room : {100, 110, 160}) {
      CAPTURE(room);
      Rig rig(3, 100, {.waiting = 64, .chunk = 10}, room);
      std::vector<std::vector<Tokens>> wanted;
      for (int32_t i = 0; i < 6; ++i)
        wanted.push_back({Tokens(static_cast<size_t>(95 - 13 * i), i), Tokens(100, i + 1)});
      std::vector<std::thread> clients;
      for (const auto& texts : wanted)
        clients.emplace_back([&rig, &texts] { CHECK(embedded(*embed(rig, texts)) == texts); });
      for (uint32_t i = 0; i < 4; ++i)
        clients.emplace_back([&rig, i] {
          const Tokens prompt = prompt_of(i, 40);
          CHECK(wait_for(*rig.ask(prompt, 20)).text == alone(prompt, 20));
        });
      for (std::thread& t : clients) t.join();
    }
  }

  TEST_CASE("embeddings: short texts are read together, up to a chunk of them") {
    Rig rig(2, 100, {.waiting = 64, .chunk = 30});
    std::vector<Tokens> texts;
    for (int32_t i = 0; i < 25; ++i) texts.emplace_back(3, i);
    texts.insert(texts.begin(), Tokens(40, 25));
    CHECK(embedded(*embed(rig, texts)) == texts);
    CHECK(rig.model.most_texts == 10);
    CHECK(rig.model.longest_text_part == 30);
    rig.model.fails = true;
    CHECK_THROWS_WITH_AS(embedded(*embed(rig, {{1}, {2}})), doctest::Contains("broken"),
                         tenon::Error);
    CHECK(embedded(*embed(rig, {{1}, {2}})) == std::vector<Tokens>{{1}, {2}});
  }

  TEST_CASE("embeddings, little memory: an answer that grows takes the room of texts") {
    // The older answer needs 20 + 120 tokens, each text 60.
    Rig rig(2, 200, {.waiting = 64, .chunk = 10}, 146);
    Tokens prompt;
    uint32_t n = 0;
    do {
      prompt = prompt_of(n++, 20);
    } while (alone(prompt, 120).size() < 120);
    const std::vector<Tokens> texts(100, Tokens(60, 3));
    rig.model.hold = true;
    const auto answer = rig.ask(prompt, 120);
    const auto vectors = embed(rig, texts);
    rig.model.hold = false;
    CHECK(wait_for(*answer).text == alone(prompt, 120));
    CHECK(embedded(*vectors) == texts);
    // The text that lost its slot was read again, and those before it were not.
    CHECK(rig.model.text_tokens > 100 * 60);
    CHECK(rig.model.text_tokens < 101 * 60);
  }

  TEST_CASE("embeddings, little memory: one that fails leaves its room to others") {
    Rig rig(2, 100, {}, 100);
    for (int i = 0; i < 4; ++i) {
      rig.model.fails_late = true;
      CHECK_THROWS_WITH_AS(embedded(*embed(rig, {Tokens(60, 1)})), doctest::Contains("not finite"),
                           tenon::Error);
      CHECK(embedded(*embed(rig, {Tokens(90, 2)})).at(0).size() == 90);
      const Tokens prompt = prompt_of(3, 70);
      CHECK(wait_for(*rig.ask(prompt, 5)).text == alone(prompt, 5));
    }
  }

  TEST_CASE("stop: all answers fail with the reason, new ones are refused") {
    Rig rig(1, 100);
    rig.model.hold = true;
    const auto a = rig.ask({1}, 50), b = rig.ask({2}, 50);
    rig.scheduler.stop("good night");
    rig.model.hold = false;
    CHECK_THROWS_WITH_AS(
        [&] {
          for (;;) wait_for(*a);
        }(),
        doctest::Contains("good night"), tenon::Error);
    CHECK_THROWS_WITH_AS(wait_for(*b), doctest::Contains("good night"), tenon::Error);
    CHECK_THROWS_WITH_AS(rig.ask({1}), doctest::Contains("good night"), tenon::Error);
  }
}
