// SPDX-License-Identifier: Apache-2.0
// llm_bits MODEL [--device D] [--products f32|int8|compute] [--compute DTYPE] [--cache DTYPE]
//
// Reads one prompt in many ways and compares the logits behind its tokens bit by bit with those of one
// call, on a GPU with those of one token after the other: in one call, in pieces, beside the sequences of other slots, behind a prefix that another sequence has
// left, behind one that two live sequences share, and with weights stacked or apart. Prints the ways
// that differ. Exit status 1 if there are any. The options are those of EngineOptions [cpu, f32].
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/engine.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr int64_t kSlots = 16, kTogether = 256, kFew = 64;

// Numbers of tokens.
struct Lengths {
  int64_t context, prompt;
  int64_t prefixes[2], dropped;  // prefix(): kept tokens, and those dropped behind them
  int64_t read, turns, cut;      // shared()
  int64_t little, little_end;    // little_memory()
};
constexpr Lengths kOnCpu = {720, 700, {95, 333}, 200, 500, 110, 250, 400, 650};
// Each kind of step is a graph to compile, which takes long on a GPU. These lengths make steps of 1, 8,
// 32, 128, 512 and 1024 tokens only, and the prompt is one step.
constexpr Lengths kElsewhere = {1020, 1000, {97, 500}, 100, 512, 101, 200, 512, 900};

std::vector<int64_t> tokens_of(unsigned seed, int64_t count, int64_t vocab) {
  std::mt19937 random(seed);
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  for (int64_t& t : tokens) t = static_cast<int64_t>(random() % static_cast<uint64_t>(vocab));
  return tokens;
}

class Check {
 public:
  Check(const Runtime& runtime, const char* model, const EngineOptions& given)
      : on_cpu_(given.device == "cpu"),
        at_(on_cpu_ ? kOnCpu : kElsewhere),
        given_(given),
        alone_(runtime, model, options(1)),
        many_(runtime, model, options(kSlots)),
        // The other way than the default of the device, which the other engines have.
        stacked_(runtime, model, options(1, 0, on_cpu_)),
        vocab_(alone_.config().vocab),
        prompt_(tokens_of(1, at_.prompt, vocab_)),
        wanted_(reference()) {
    // With slots of their own memory there is no room to share.
    if (many_.block() > 0) little_.emplace(runtime, model, options(3, at_.context));
    check_wanted();
  }

  bool run() {
    try {
      if (!on_cpu_) in_one_call();
      for (const int64_t size : {1, 7, 33, 512}) pieces(alone_, 0, size, "alone");
      pieces(alone_, 0, at_.prompt, "alone");
      pieces(many_, 5, 100, "a slot of 16");
      // A step of few slots may have other kernels than one of many.
      if (!on_cpu_ && many_.block() > 0)
        for (const int64_t slots : {2, 4, 8}) company(slots, kFew);
      company(kSlots, kTogether);
      prefix(alone_, 0, "alone");
      prefix(many_, 3, "a slot of 16");
      const std::string stacked = on_cpu_ ? "stacked weights" : "weights apart";
      pieces(stacked_, 0, at_.prompt, stacked);
      for (const int64_t size : {1, 33}) pieces(stacked_, 0, size, stacked);
      shared();
      if (little_) little_memory(*little_);
    } catch (...) {
      report();
      throw;
    }
    return report();
  }

 private:
  struct Way {
    std::string name;
    int64_t compared = 0, differing = 0, first = 0;
    double most = 0;  // relative to the largest absolute logit of the same token
  };

  EngineOptions options(int64_t slots, int64_t cache_tokens = 0,
                        std::optional<bool> stack = {}) const {
    EngineOptions o = given_;
    o.context = at_.context;
    o.slots = slots;
    o.cache_tokens = cache_tokens;
    o.stack_weights = stack;
    return o;
  }
  std::vector<int64_t> cut(const std::vector<int64_t>& from, int64_t begin, int64_t end) const {
    return {from.begin() + begin, from.begin() + end};
  }

  // On the cpu all logits of one call. Elsewhere a head may give many rows other bits than few, so tokens
  // are read one by one.
  std::vector<float> reference() {
    if (on_cpu_) return alone_.all_logits(prompt_);
    std::vector<float> all;
    for (const int64_t token : prompt_) {
      const Engine::Piece piece{.slot = 0, .tokens = {token}};
      const std::vector<float> logits = alone_.step({&piece, 1}, true)[0].logits;
      all.insert(all.end(), logits.begin(), logits.end());
    }
    alone_.clear(0);
    return all;
  }
  // Logits that are not finite, or all equal, would hide differences.
  void check_wanted() const {
    const auto [least, most] = std::ranges::minmax(wanted_);
    if (!std::ranges::all_of(wanted_, [](float x) { return std::isfinite(x); }) || least == most)
      throw Error(TENON_INVALID_ARGUMENT, "expected a model with finite logits that differ");
  }

  // Prints the ways that differ and their number.
  bool report() const {
    int64_t bad = 0;
    for (const Way& w : ways_) {
      if (w.differing == 0) continue;
      ++bad;
      std::printf(
          "%s: %lld of %lld logits vectors differ, by up to %.3g of the largest logit; "
          "the first one behind %lld tokens\n",
          w.name.c_str(), static_cast<long long>(w.differing), static_cast<long long>(w.compared),
          w.most, static_cast<long long>(w.first));
    }
    for (const std::string& f : failures_) std::puts(f.c_str());
    std::printf("%lld of %zu ways differ, cache %s", static_cast<long long>(bad), ways_.size(),
                many_.block() > 0 ? "in blocks" : "of each slot");
    std::puts(failures_.empty() ? "" : ", other failures");
    return bad == 0 && failures_.empty();
  }

  void same(const std::string& name, int64_t read, std::span<const float> logits) {
    auto way = std::ranges::find(ways_, name, &Way::name);
    if (way == ways_.end()) way = ways_.insert(way, {.name = name});
    ++way->compared;
    const float* const wanted = wanted_.data() + (read - 1) * vocab_;
    const bool complete = static_cast<int64_t>(logits.size()) == vocab_;
    if (complete && std::memcmp(logits.data(), wanted, logits.size_bytes()) == 0) return;
    if (++way->differing == 1 || read < way->first) way->first = read;
    double most = 0, largest = 0;
    for (size_t i = 0; complete && i < logits.size(); ++i) {
      most = std::max(most, static_cast<double>(std::abs(logits[i] - wanted[i])));
      largest = std::max(largest, static_cast<double>(std::abs(wanted[i])));
      if (!std::isfinite(logits[i])) most = std::numeric_limits<double>::infinity();
    }
    way->most =
        std::max(way->most, complete ? most / largest : std::numeric_limits<double>::infinity());
  }

  void in_one_call() {
    const std::vector<float> logits = alone_.all_logits(prompt_);
    for (int64_t i = 0; i < at_.prompt; ++i)
      same("all logits in one call", i + 1,
           std::span(logits).subspan(static_cast<size_t>(i * vocab_), static_cast<size_t>(vocab_)));
  }

  void pieces(Engine& engine, int64_t slot, int64_t size, const std::string& where) {
    engine.clear(slot);
    for (int64_t at = 0; at < at_.prompt; at += size) {
      const int64_t end = std::min(at_.prompt, at + size);
      const Engine::Piece piece{.slot = slot, .tokens = cut(prompt_, at, end)};
      same(where + ", pieces of " + std::to_string(size), end,
           engine.step({&piece, 1}, true)[0].logits);
    }
  }

  // The first tokens one by one, while the other ones of these slots read tokens and pieces.
  void company(int64_t slots, int64_t tokens) {
    for (int64_t slot = 0; slot < kSlots; ++slot) many_.clear(slot);
    const std::vector<int64_t> other = tokens_of(2, at_.prompt, vocab_);
    const std::string way = "token by token among " + std::to_string(slots) + " slots";
    const int64_t mine = slots / 2 - 1;
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<Engine::Piece> all = {
          {.slot = mine, .tokens = {prompt_[static_cast<size_t>(i)]}}};
      for (int64_t slot = 0; slot < slots; ++slot) {
        if (slot == mine || (i + slot) % 5 == 0) continue;
        if (many_.length(slot) > 60 + 20 * slot) many_.clear(slot);
        const int64_t more = (i + slot) % 61 == 0 ? 9 : 1,
                      at = (i * 3 + slot) % (at_.prompt - more);
        all.push_back({.slot = slot, .tokens = cut(other, at, at + more)});
      }
      same(way, i + 1, many_.step(all, true)[0].logits);
    }
  }

  // The first tokens stay in the cache when another continuation is dropped.
  void prefix(Engine& engine, int64_t slot, const std::string& where) {
    for (const int64_t kept : at_.prefixes) {
      engine.clear(slot);
      const Engine::Piece first{.slot = slot, .tokens = cut(prompt_, 0, kept)},
          other{.slot = slot, .tokens = tokens_of(3, at_.dropped, vocab_)},
          rest{.slot = slot, .tokens = cut(prompt_, kept, at_.prompt)};
      const std::string way = where + ", behind a prefix of " + std::to_string(kept);
      same(way, kept, engine.step({&first, 1}, true)[0].logits);
      engine.step({&other, 1}, false);
      engine.truncate(slot, kept);
      same(way, at_.prompt, engine.step({&rest, 1}, true)[0].logits);
    }
  }

  // Two live sequences begin alike: the second one takes the beginning from the first one, and both
  // go on, by turns and together. Then a third one takes it after the first one is gone.
  void shared() {
    for (int64_t slot = 0; slot < kSlots; ++slot) many_.clear(slot);
    const int64_t read = at_.read;
    const Engine::Piece first{.slot = 2, .tokens = cut(prompt_, 0, read)};
    same("the first of two sequences", read, many_.step({&first, 1}, true)[0].logits);
    // Of another beginning of the same length: it must not be taken for the same.
    const Engine::Piece other{.slot = 4, .tokens = tokens_of(5, read, vocab_)};
    many_.step({&other, 1}, false);
    const int64_t kept = many_.reuse(9, cut(prompt_, 0, read + 1));
    if (kept < read - 96 || kept > read) {
      failures_.push_back("a shared prefix of " + std::to_string(kept) + " tokens");
    }
    const Engine::Piece rest{.slot = 9, .tokens = cut(prompt_, kept, read + 1)};
    same("behind a shared prefix", read + 1, many_.step({&rest, 1}, true)[0].logits);
    for (int64_t i = read; i + 1 < read + at_.turns; ++i) {
      const auto next = many_.step(
          std::vector<Engine::Piece>{{.slot = 2, .tokens = {prompt_[static_cast<size_t>(i)]}},
                                     {.slot = 9, .tokens = {prompt_[static_cast<size_t>(i + 1)]}}},
          true);
      same("the first of two sequences", i + 1, next[0].logits);
      same("the second of two sequences", i + 2, next[1].logits);
    }
    // Another continuation of the second one, from within a block that both have.
    many_.truncate(9, at_.cut);
    const Engine::Piece else_{.slot = 9, .tokens = tokens_of(6, 100, vocab_)};
    many_.step({&else_, 1}, false);
    const int64_t length = many_.length(2);
    const Engine::Piece on{.slot = 2, .tokens = cut(prompt_, length, at_.prompt)};
    same("the first of two sequences, beside another end", at_.prompt,
         many_.step({&on, 1}, true)[0].logits);
    many_.clear(2);
    const int64_t left = many_.reuse(11, prompt_);
    const Engine::Piece third{.slot = 11, .tokens = cut(prompt_, left, at_.prompt)};
    same("behind what a sequence left", at_.prompt, many_.step({&third, 1}, true)[0].logits);
    many_.truncate(11, at_.cut);
    const Engine::Piece again{.slot = 11, .tokens = cut(prompt_, at_.cut, at_.prompt)};
    same("behind a part of a block", at_.prompt, many_.step({&again, 1}, true)[0].logits);
  }

  // Three slots with memory for one context: what finds no room is refused and changes nothing, and
  // has room once another slot is cleared.
  void little_memory(Engine& little) {
    const Engine::Piece first{.slot = 0, .tokens = cut(prompt_, 0, at_.little)},
        second{.slot = 1, .tokens = tokens_of(7, at_.little, vocab_)};
    little.step({&first, 1}, false);
    try {
      little.step({&second, 1}, false);
      failures_.push_back("a step without room: expected an error");
    } catch (const Error& e) {
      if (e.code() != TENON_OUT_OF_MEMORY || little.length(1) != 0)
        failures_.push_back(std::string("a step without room: ") + e.what());
    }
    // A shared beginning takes no room.
    const int64_t end = at_.little_end;
    const int64_t kept = little.reuse(2, cut(prompt_, 0, end));
    const Engine::Piece rest{.slot = 2, .tokens = cut(prompt_, kept, end)};
    same("little memory, behind a shared prefix", end, little.step({&rest, 1}, true)[0].logits);
    little.clear(2), little.clear(0);
    little.step({&second, 1}, false);
    little.clear(1);
    const Engine::Piece all{.slot = 1, .tokens = prompt_};
    same("little memory, after others", at_.prompt, little.step({&all, 1}, true)[0].logits);
  }

  bool on_cpu_;
  Lengths at_;
  EngineOptions given_;
  Engine alone_, many_, stacked_;
  std::optional<Engine> little_;  // only with a cache in blocks
  int64_t vocab_;
  std::vector<int64_t> prompt_;
  std::vector<float> wanted_;  // behind each token
  std::vector<Way> ways_;      // in the order of the checks
  std::vector<std::string> failures_;
};

EngineOptions options_of(std::span<char*> arguments) {
  EngineOptions o{.device = "cpu"};
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view name = arguments[i];
    if (i + 1 == arguments.size())
      throw Error(TENON_INVALID_ARGUMENT, "expected a value of " + std::string(name));
    const std::string value = arguments[i + 1];
    if (name == "--device")
      o.device = value;
    else if (name == "--compute")
      o.compute = sdk::dtype_named(value);
    else if (name == "--cache")
      o.cache = sdk::dtype_named(value);
    else if (name == "--products" && value == "f32")
      o.products = Products::f32;
    else if (name == "--products" && value == "int8")
      o.products = Products::int8;
    else if (name == "--products" && value == "compute")
      o.products = Products::compute;
    else
      throw Error(TENON_INVALID_ARGUMENT, "unknown option: " + std::string(name) + " " + value);
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw Error(TENON_INVALID_ARGUMENT, "expected MODEL [OPTION VALUE]...");
    const Runtime runtime;
    Check check(runtime, argv[1], options_of({argv + 2, static_cast<size_t>(argc - 2)}));
    return check.run() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "llm_bits: %s\n", e.what());
    return 2;
  }
}
