// SPDX-License-Identifier: Apache-2.0
// llm_draws MODEL [DEVICE]: draws of sequences with many options, from the candidates that steps select on
// the device and from all logits: the tokens are the same. Exit status 1 if they are not.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llm/engine.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr int64_t kSlots = 6, kSteps = 60;

const std::vector<SampleOptions>& cases() {
  static const std::vector<SampleOptions> all = {
      {},
      {.temperature = 0.2},
      {.temperature = 0},
      {.top_p = 0.9},
      {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05},
      {.temperature = 3, .top_k = 300},
      {.min_p = 0.02},
      {.temperature = 0.1, .repetition_penalty = 1.3, .presence_penalty = 0.2},
      {.top_k = 5, .presence_penalty = -0.5},
      {.temperature = 0.3, .logit_bias = {{3, 2.5f}, {7, -INFINITY}}},
      {.top_logprobs = 3},
      {.top_k = 10, .top_logprobs = 0},
      {.temperature = 0, .top_logprobs = 1},
  };
  return all;
}

struct Text {
  Sampler sampler;
  TokenMask mask;  // empty: none
  std::vector<int64_t> tokens;
  std::vector<float> logprobs;
};

struct Drawn {
  std::vector<std::vector<int64_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  bool operator==(const Drawn&) const = default;
};

// One text for each slot. Some slots rest in some steps. Prompts, whose last token is read alone, come
// among the tokens of others.
Drawn draw(Engine& engine, size_t first, int64_t& sent, int64_t& enough) {
  const int64_t vocab = engine.config().vocab;
  std::vector<Text> texts;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    engine.clear(slot);
    SampleOptions options = cases()[(first + static_cast<size_t>(slot)) % cases().size()];
    options.seed = first;
    Text text{Sampler(options, vocab), {}, {1, 2 + slot, 3, 4, 5}, {}};
    if ((first + static_cast<size_t>(slot)) % 5 == 4)
      text.mask.assign(static_cast<size_t>(vocab + 63) / 64, 0x5bd1e9955bd1e995);
    for (const int64_t t : text.tokens) text.sampler.accept(t);
    texts.push_back(std::move(text));
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<Engine::Piece> pieces;
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      if (step < 3 * slot || (step + slot) % 11 == 0 || (step > 50 && slot != 2)) continue;
      const Text& text = texts[static_cast<size_t>(slot)];
      pieces.push_back({.slot = slot,
                        .tokens = {text.tokens.begin() + engine.length(slot), text.tokens.end()},
                        .scale = text.sampler.scale(),
                        .all = text.sampler.needs_all()});
    }
    if (pieces.empty()) continue;
    const std::vector<NextLogits> next = engine.next_logits(pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      Text& text = texts[static_cast<size_t>(pieces[i].slot)];
      const TokenMask* mask = text.mask.empty() ? nullptr : &text.mask;
      if (next[i].candidates) {
        Sampler again = text.sampler;
        ++sent, enough += again.sample(*next[i].candidates, mask) ? 1 : 0;
      }
      const Sampled drawn = text.sampler.sample(next[i], mask);
      text.tokens.push_back(drawn.token);
      text.logprobs.push_back(drawn.logprob);
      text.sampler.accept(drawn.token);
    }
  }
  Drawn out;
  for (Text& text : texts) {
    out.tokens.push_back(std::move(text.tokens));
    out.logprobs.push_back(std::move(text.logprobs));
  }
  engine.generate({5, 6, 7}, {.tokens = 40, .sampling = cases()[first], .stop_at_end = false},
                  [&](int64_t token) { return out.tokens[0].push_back(token), true; });
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: llm_draws MODEL [DEVICE]\n", stderr), 2;
  try {
    const Runtime runtime;
    const auto options = [&](bool candidates) {
      return EngineOptions{.device = argc > 2 ? argv[2] : "cpu",
                           .context = 128,
                           .slots = kSlots,
                           .candidates = candidates};
    };
    Engine all(runtime, argv[1], options(false)), some(runtime, argv[1], options(true));
    int64_t sent = 0, enough = 0, none = 0;
    for (size_t first = 0; first < cases().size(); ++first) {
      const auto wanted = draw(all, first, none, none), got = draw(some, first, sent, enough);
      if (wanted == got) continue;
      std::printf("options %zu: other %s\n", first,
                  wanted.tokens == got.tokens ? "log probabilities" : "tokens");
      return 1;
    }
    std::printf("%lld of %lld draws by candidates alone\n", static_cast<long long>(enough),
                static_cast<long long>(sent));
    // Without them, or if they always or never tell, the texts above show little.
    return none == 0 && enough > sent / 4 && enough < sent ? 0 : 1;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "llm_draws: %s\n", e.what()), 1;
  }
}
