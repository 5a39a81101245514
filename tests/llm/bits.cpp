// SPDX-License-Identifier: Apache-2.0
// llm_bits MODEL f32|int8 [CACHE]: reads one prompt in many ways on the cpu and compares the logits behind
// its tokens bit by bit: in one call, in pieces, among the sequences of 15 other slots, behind a
// prefix that another sequence has left, behind one that two live sequences share, and with weights that
// are stacked. CACHE: the dtype of the cache. Prints the ways that differ; exit status 1 if there are any.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "llm/engine.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr int64_t kContext = 720, kPrompt = 700, kSlots = 16, kTogether = 256;

std::vector<int64_t> tokens_of(unsigned seed, int64_t count, int64_t vocab) {
  std::mt19937 random(seed);
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  for (int64_t& t : tokens) t = static_cast<int64_t>(random() % static_cast<uint64_t>(vocab));
  return tokens;
}

class Check {
 public:
  Check(const Runtime& runtime, const char* model, Products products, tenon_dtype cache)
      : products_(products),
        cache_(cache),
        alone_(runtime, model, options(1)),
        many_(runtime, model, options(kSlots)),
        stacked_(runtime, model, options(1, 0, true)),
        little_(runtime, model, options(3, kContext)),
        vocab_(alone_.config().vocab),
        prompt_(tokens_of(1, kPrompt, vocab_)),
        wanted_(alone_.all_logits(prompt_)) {}

  bool run() {
    for (const int64_t size : {1, 7, 33, 512}) pieces(alone_, 0, size, "alone");
    pieces(alone_, 0, kPrompt, "alone");
    pieces(many_, 5, 100, "a slot of 16");
    company();
    prefix(alone_, 0, "alone");
    prefix(many_, 3, "a slot of 16");
    pieces(stacked_, 0, kPrompt, "stacked weights");
    for (const int64_t size : {1, 33}) pieces(stacked_, 0, size, "stacked weights");
    shared();
    little_memory();
    return good_;
  }

 private:
  EngineOptions options(int64_t slots, int64_t cache_tokens = 0, bool stack = false) const {
    return {.device = "cpu",
            .context = kContext,
            .slots = slots,
            .cache_tokens = cache_tokens,
            .cache = cache_,
            .products = products_,
            .stack_weights = stack};
  }
  std::vector<int64_t> cut(const std::vector<int64_t>& from, int64_t begin, int64_t end) const {
    return {from.begin() + begin, from.begin() + end};
  }

  void same(const std::string& way, int64_t read, const std::vector<float>& logits) {
    const float* const wanted = wanted_.data() + (read - 1) * vocab_;
    if (static_cast<int64_t>(logits.size()) == vocab_ &&
        std::memcmp(logits.data(), wanted, logits.size() * sizeof(float)) == 0)
      return;
    good_ = false;
    if (++reported_[way] > 1) return;
    double most = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      most = std::max(most, static_cast<double>(std::abs(logits[i] - wanted[i])));
    std::printf("%s: other logits behind %lld tokens, by up to %.3g\n", way.c_str(),
                static_cast<long long>(read), most);
  }

  void pieces(Engine& engine, int64_t slot, int64_t size, const std::string& where) {
    engine.clear(slot);
    for (int64_t at = 0; at < kPrompt; at += size) {
      const int64_t end = std::min(kPrompt, at + size);
      const Engine::Piece piece{.slot = slot, .tokens = cut(prompt_, at, end)};
      same(where + ", pieces of " + std::to_string(size), end,
           engine.step({&piece, 1}, true)[0].logits);
    }
  }

  // The first tokens one by one, while the other slots read tokens and pieces of their own.
  void company() {
    for (int64_t slot = 0; slot < kSlots; ++slot) many_.clear(slot);
    const std::vector<int64_t> other = tokens_of(2, kPrompt, vocab_);
    for (int64_t i = 0; i < kTogether; ++i) {
      std::vector<Engine::Piece> all = {{.slot = 7, .tokens = {prompt_[static_cast<size_t>(i)]}}};
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        if (slot == 7 || (i + slot) % 5 == 0) continue;
        if (many_.length(slot) > 60 + 20 * slot) many_.clear(slot);
        const int64_t more = (i + slot) % 61 == 0 ? 9 : 1, at = (i * 3 + slot) % (kPrompt - more);
        all.push_back({.slot = slot, .tokens = cut(other, at, at + more)});
      }
      same("token by token among 16 slots", i + 1, many_.step(all, true)[0].logits);
    }
  }

  // The first tokens stay in the cache when another continuation is dropped.
  void prefix(Engine& engine, int64_t slot, const std::string& where) {
    for (const int64_t kept : {95, 333}) {
      engine.clear(slot);
      const Engine::Piece first{.slot = slot, .tokens = cut(prompt_, 0, kept)},
          other{.slot = slot, .tokens = tokens_of(3, 200, vocab_)},
          rest{.slot = slot, .tokens = cut(prompt_, kept, kPrompt)};
      const std::string way = where + ", behind a prefix of " + std::to_string(kept);
      same(way, kept, engine.step({&first, 1}, true)[0].logits);
      engine.step({&other, 1}, false);
      engine.truncate(slot, kept);
      same(way, kPrompt, engine.step({&rest, 1}, true)[0].logits);
    }
  }

  // Two live sequences begin alike: the second one takes the beginning from the first one, and both
  // go on, by turns and together. Then a third one takes it after the first one is gone.
  void shared() {
    for (int64_t slot = 0; slot < kSlots; ++slot) many_.clear(slot);
    constexpr int64_t kRead = 500;
    const Engine::Piece first{.slot = 2, .tokens = cut(prompt_, 0, kRead)};
    same("the first of two sequences", kRead, many_.step({&first, 1}, true)[0].logits);
    // Of another beginning of the same length: it must not be taken for the same.
    const Engine::Piece other{.slot = 4, .tokens = tokens_of(5, kRead, vocab_)};
    many_.step({&other, 1}, false);
    const int64_t kept = many_.reuse(9, cut(prompt_, 0, kRead + 1));
    if (kept < kRead - 96 || kept > kRead) {
      std::printf("a shared prefix of %lld tokens\n", static_cast<long long>(kept));
      good_ = false;
    }
    const Engine::Piece rest{.slot = 9, .tokens = cut(prompt_, kept, kRead + 1)};
    same("behind a shared prefix", kRead + 1, many_.step({&rest, 1}, true)[0].logits);
    for (int64_t i = kRead; i + 1 < kRead + 110; ++i) {
      const auto next = many_.step(
          std::vector<Engine::Piece>{{.slot = 2, .tokens = {prompt_[static_cast<size_t>(i)]}},
                                     {.slot = 9, .tokens = {prompt_[static_cast<size_t>(i + 1)]}}},
          true);
      same("the first of two sequences", i + 1, next[0].logits);
      same("the second of two sequences", i + 2, next[1].logits);
    }
    // Another continuation of the second one, from within a block that both have.
    many_.truncate(9, 250);
    const Engine::Piece else_{.slot = 9, .tokens = tokens_of(6, 100, vocab_)};
    many_.step({&else_, 1}, false);
    const int64_t length = many_.length(2);
    const Engine::Piece on{.slot = 2, .tokens = cut(prompt_, length, kPrompt)};
    same("the first of two sequences, beside another end", kPrompt,
         many_.step({&on, 1}, true)[0].logits);
    many_.clear(2);
    const int64_t left = many_.reuse(11, prompt_);
    const Engine::Piece third{.slot = 11, .tokens = cut(prompt_, left, kPrompt)};
    same("behind what a sequence left", kPrompt, many_.step({&third, 1}, true)[0].logits);
    many_.truncate(11, 250);
    const Engine::Piece again{.slot = 11, .tokens = cut(prompt_, 250, kPrompt)};
    same("behind a part of a block", kPrompt, many_.step({&again, 1}, true)[0].logits);
  }

  // Three slots with memory for one context: what finds no room is refused and changes nothing, and
  // has room once another slot is cleared.
  void little_memory() {
    const Engine::Piece first{.slot = 0, .tokens = cut(prompt_, 0, 400)},
        second{.slot = 1, .tokens = tokens_of(7, 400, vocab_)};
    little_.step({&first, 1}, false);
    try {
      little_.step({&second, 1}, false);
      std::puts("a step without room: expected an error");
      good_ = false;
    } catch (const Error& e) {
      if (e.code() != TENON_OUT_OF_MEMORY || little_.length(1) != 0) {
        std::printf("a step without room: %s\n", e.what());
        good_ = false;
      }
    }
    // A shared beginning takes no room.
    constexpr int64_t kEnd = 650;
    const int64_t kept = little_.reuse(2, cut(prompt_, 0, kEnd));
    const Engine::Piece rest{.slot = 2, .tokens = cut(prompt_, kept, kEnd)};
    same("little memory, behind a shared prefix", kEnd, little_.step({&rest, 1}, true)[0].logits);
    little_.clear(2), little_.clear(0);
    little_.step({&second, 1}, false);
    little_.clear(1);
    const Engine::Piece all{.slot = 1, .tokens = prompt_};
    same("little memory, after others", kPrompt, little_.step({&all, 1}, true)[0].logits);
  }

  Products products_;
  tenon_dtype cache_;
  Engine alone_, many_, stacked_, little_;
  int64_t vocab_;
  std::vector<int64_t> prompt_;
  std::vector<float> wanted_;  // behind each token
  std::map<std::string, int> reported_;
  bool good_ = true;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3 && argc != 4)
      throw Error(TENON_INVALID_ARGUMENT, "expected MODEL f32|int8 [CACHE]");
    const Runtime runtime;
    Check check(runtime, argv[1],
                std::strcmp(argv[2], "int8") == 0 ? Products::int8 : Products::f32,
                argc == 4 ? sdk::dtype_named(argv[3]) : tenon_dtype{TENON_DTYPE_NONE});
    return check.run() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "llm_bits: %s\n", e.what());
    return 2;
  }
}
