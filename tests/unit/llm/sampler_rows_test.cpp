// SPDX-License-Identifier: Apache-2.0
// Sampling of random rows with random options: next to a plain definition that sorts all tokens, and
// from some of the logits next to all of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "llm/sample/philox.hpp"
#include "llm/sample/sampler.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

class Cases {
 public:
  explicit Cases(uint32_t seed) : random_(seed) {}

  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[random_() % list.size()];
  }
  bool chance(double p) { return std::uniform_real_distribution(0.0, 1.0)(random_) < p; }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  int64_t vocab() { return one_of<int64_t>({1, 2, 3, 50, 256, 257, 300, 1000, 1025, 5000, 20000}); }
  std::vector<float> row(int64_t vocab) {
    const float spread = one_of({0.1f, 1.0f, 3.0f, 8.0f, 0.0f}), step = one_of({0.0f, 0.5f, 4.0f}),
                shift = one_of({0.0f, -50.0f, 1000.0f});
    const double excluded = one_of({0.0, 0.0, 0.1, 0.99});
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(vocab));
    for (float& l : out) {
      l = normal(random_) * spread;
      if (step > 0) l = std::round(l / step) * step;  // many are equal
      l = chance(excluded) ? kNever : l + shift;
    }
    return out;
  }
  SampleOptions options(int64_t vocab) {
    SampleOptions o{.temperature = one_of({1.0, 1.0, 0.7, 2.0, 0.0, 1e-9, 1e6}),
                    .top_k = one_of<int64_t>({0, 0, 1, 40, 256, 257, 900}),
                    .top_p = one_of({1.0, 1.0, 0.95, 0.5, 1e-9, 0.99999}),
                    .min_p = one_of({0.0, 0.0, 0.05, 1e-4, 1.0})};
    o.seed = random_();
    if (chance(0.3)) {
      o.repetition_penalty = one_of({1.0, 1.3, 0.8});
      o.presence_penalty = one_of({0.0, 0.5, -0.5});
      o.frequency_penalty = one_of({0.0, 0.25, -0.1});
    }
    for (int64_t n = chance(0.3) ? below(5) : 0; n > 0; --n)
      o.logit_bias.emplace_back(below(vocab), one_of({-1.0f, -100.0f, kNever, 0.7f, 100.0f}));
    return o;
  }
  TokenMask mask(int64_t vocab) {
    const double allowed = one_of({0.001, 0.1, 0.9, 1.0});
    TokenMask out(static_cast<size_t>(vocab + 63) / 64, 0);
    for (int64_t t = 0; t < vocab; ++t)
      if (chance(allowed)) out[static_cast<size_t>(t) / 64] |= uint64_t{1} << t % 64;
    return out;
  }

 private:
  std::mt19937 random_;
};

std::vector<Candidate> in_order(const std::vector<float>& logits) {
  std::vector<Candidate> out;
  for (size_t i = 0; i < logits.size(); ++i) out.push_back({logits[i], static_cast<int32_t>(i)});
  std::ranges::sort(out, is_before);
  return out;
}

// What README.md says, with all tokens sorted and in f64. -1: no token is left. -2: too close to say.
int64_t by_definition(const SampleOptions& o, std::vector<float> logits,
                      const std::vector<int64_t>& history, const TokenMask* mask, uint64_t draw) {
  for (const auto& [token, bias] : o.logit_bias) logits[static_cast<size_t>(token)] += bias;
  std::map<int64_t, int64_t> counts;
  for (const int64_t t : history) ++counts[t];
  for (const auto& [token, count] : counts) {
    float& logit = logits[static_cast<size_t>(token)];
    double l = logit;
    l = l > 0 ? l / o.repetition_penalty : l * o.repetition_penalty;
    l -= o.presence_penalty + o.frequency_penalty * static_cast<double>(count);
    if (logit != kNever) logit = static_cast<float>(l);
  }
  std::vector<Candidate> kept = in_order(logits);
  std::erase_if(kept, [&](const Candidate& c) {
    const auto t = static_cast<size_t>(c.token);
    return c.logit == kNever || (mask && !((*mask)[t / 64] >> t % 64 & 1));
  });
  if (kept.empty()) return -1;
  if (o.temperature == 0) return kept[0].token;
  if (o.top_k > 0 && std::cmp_less(o.top_k, kept.size())) kept.resize(static_cast<size_t>(o.top_k));
  const double most = kept[0].logit;
  const auto total = [&](double temperature) {
    double sum = 0;
    for (const Candidate& c : kept) sum += std::exp((c.logit - most) / temperature);
    return sum;
  };
  constexpr double kClose = 1e-5;
  if (o.top_p < 1) {
    const double wanted = o.top_p * total(1);
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && sum < wanted) {
      sum += std::exp(kept[count++].logit - most);
      if (std::abs(sum / wanted - 1) < kClose) return -2;
    }
    kept.resize(count);
  }
  if (o.min_p > 0)
    std::erase_if(kept, [&](const Candidate& c) { return c.logit < most + std::log(o.min_p); });
  if (kept.size() > kFirstTokens)
    std::ranges::sort(kept.begin() + kFirstTokens, kept.end(), {}, &Candidate::token);
  const double all = total(o.temperature), at = uniform(o.seed, draw) * all;
  double sum = 0;
  for (const Candidate& c : kept) {
    sum += std::exp((c.logit - most) / o.temperature);
    if (std::abs(sum - at) < kClose * all) return -2;
    if (sum > at) return c.token;
  }
  return -2;
}

template <class F>
int64_t token_of(F&& sample) {
  try {
    return sample().token;
  } catch (const Error& e) {
    CHECK(e.code() == TENON_NUMERIC_ERROR);
    return -1;
  }
}

}  // namespace

TEST_SUITE_BEGIN("llm/sampler rows");

TEST_CASE("random rows: the tokens of the definition") {
  Cases cases(1);
  int close = 0;
  for (int i = 0; i < 1500; ++i) {
    CAPTURE(i);
    const int64_t vocab = cases.vocab();
    const SampleOptions options = cases.options(vocab);
    Sampler sampler(options, vocab);
    std::vector<int64_t> history;
    for (uint64_t draw = 0; draw < 3; ++draw) {
      const std::vector<float> row = cases.row(vocab);
      const TokenMask mask = cases.mask(vocab);
      const TokenMask* allowed = cases.chance(0.2) ? &mask : nullptr;
      const int64_t wanted = by_definition(options, row, history, allowed, draw);
      const int64_t got = token_of([&] { return sampler.sample(row, allowed); });
      if (wanted == -2)
        ++close;
      else
        CHECK(got == wanted);
      if (got < 0) break;
      history.push_back(got);
      sampler.accept(got);
    }
  }
  CHECK(close < 300);
}

TEST_CASE("random rows: candidates give the tokens of all logits, or nothing") {
  Cases cases(2);
  int answers = 0, plain = 0, plain_answers = 0;
  constexpr int kRows = 6000;
  for (int i = 0; i < kRows; ++i) {
    CAPTURE(i);
    const int64_t vocab = cases.vocab();
    const SampleOptions options = cases.options(vocab);
    Sampler by_all(options, vocab), by_some(options, vocab);
    for (int n = 0; n < 3; ++n) {
      const int64_t token = cases.below(vocab);
      by_all.accept(token), by_some.accept(token);
    }
    const std::vector<float> row = cases.row(vocab);
    const TokenMask mask = cases.mask(vocab);
    const TokenMask* allowed = cases.chance(0.2) ? &mask : nullptr;
    std::vector<Candidate> first = in_order(row);
    first.resize(static_cast<size_t>(std::min(vocab, cases.one_of<int64_t>({1, 16, 64, 256}))));
    std::vector<float> logits;
    std::vector<int64_t> tokens;
    for (const Candidate& c : first) logits.push_back(c.logit), tokens.push_back(c.token);
    Candidates some{.logits = logits, .tokens = tokens, .mass = 0, .scale = by_some.scale()};
    double mass = 0;
    for (const float l : row) mass += std::exp((double{l} - logits[0]) * some.scale);
    // As far from it as a device may be.
    some.mass = static_cast<float>(mass * (1 + cases.one_of({-0.9, 0.0, 0.9}) * kMassError));
    const bool is_plain = options.logit_bias.empty() && !allowed &&
                          options.repetition_penalty == 1 && options.presence_penalty == 0 &&
                          options.frequency_penalty == 0 && options.min_p == 0;
    for (int draw = 0; draw < 4; ++draw) {
      const int64_t wanted = token_of([&] { return by_all.sample(row, allowed); });
      const std::optional<Sampled> got = by_some.sample(some, allowed);
      const bool enough = first.size() == static_cast<size_t>(vocab) || options.top_k == 1 ||
                          (options.top_k == 40 && first.size() >= 64);
      if (is_plain && enough && wanted >= 0) ++plain, plain_answers += got ? 1 : 0;
      if (got) {
        ++answers;
        CHECK(got->token == wanted);
      } else {
        CHECK(token_of([&] { return by_some.sample(row, allowed); }) == wanted);
      }
      if (wanted < 0) break;
    }
  }
  CHECK(answers > 2 * kRows);
  CHECK(plain > kRows / 10);
  CHECK(plain_answers == plain);
}

TEST_CASE("candidates: NaN, infinity and no token at all are left to all logits") {
  for (const float bad : {NAN, INFINITY, kNever}) {
    Sampler sampler({}, 3);
    const std::vector<float> logits = {bad, kNever, kNever};
    const std::vector<int64_t> tokens = {1, 0, 2};
    CHECK(!sampler.sample(Candidates{.logits = logits, .tokens = tokens, .mass = 1}));
  }
  // Log probabilities need the exact sum.
  const std::vector<float> logits = {2, 1};
  const std::vector<int64_t> tokens = {1, 0};
  const Candidates candidates{.logits = logits, .tokens = tokens, .mass = 1.3679f};
  CHECK(Sampler({.temperature = 0}, 2).sample(candidates)->token == 1);
  CHECK(!Sampler({.temperature = 0, .top_logprobs = 0}, 2).sample(candidates));
  // Another scale tells nothing where the others count.
  CHECK(Sampler({.top_k = 1}, 9).sample(candidates)->token == 1);
  CHECK(!Sampler({.temperature = 2}, 9).sample(candidates));
}

TEST_SUITE_END();
