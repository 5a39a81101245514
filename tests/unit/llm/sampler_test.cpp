// SPDX-License-Identifier: Apache-2.0
// Sampling: each step by hand, draws by their frequencies, stop strings.
#include "llm/sample/sampler.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "llm/sample/philox.hpp"
#include "llm/sample/stop.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;
using namespace tenon::llm;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

// How often each token is drawn, of 20,000 draws.
std::map<int64_t, double> shares(SampleOptions options, const std::vector<float>& logits,
                                 const std::vector<int64_t>& history = {}) {
  constexpr int kDraws = 20000;
  options.seed = 7;
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  for (const int64_t t : history) sampler.accept(t);
  std::map<int64_t, double> out;
  for (int i = 0; i < kDraws; ++i) out[sampler.sample(logits).token] += 1.0 / kDraws;
  return out;
}

void check_shares(const std::map<int64_t, double>& got, const std::map<int64_t, double>& wanted) {
  CHECK(got.size() == wanted.size());
  for (const auto& [token, share] : wanted) {
    CAPTURE(token);
    REQUIRE(got.contains(token));
    CHECK(std::abs(got.at(token) - share) < 0.015);  // four standard deviations
  }
}

int64_t greedy(SampleOptions options, const std::vector<float>& logits,
               const std::vector<int64_t>& history = {}) {
  options.temperature = 0;
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  for (const int64_t t : history) sampler.accept(t);
  return sampler.sample(logits).token;
}

}  // namespace

TEST_SUITE_BEGIN("llm/sampler");

TEST_CASE("philox: the published words") {
  CHECK(philox({0, 0, 0, 0}, 0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("greedy: the first of the largest logits; bias and masks decide before") {
  CHECK(greedy({}, {1, 3, 3, 2}) == 1);
  CHECK(greedy({.logit_bias = {{1, -1.0f}}}, {1, 3, 3, 2}) == 2);
  CHECK(greedy({.logit_bias = {{1, kNever}, {2, kNever}}}, {1, 3, 3, 2}) == 3);
  Sampler sampler({.temperature = 0}, 70);
  std::vector<float> logits(70, 0);
  logits[3] = 9;
  const TokenMask mask = {uint64_t{1} << 40 | 1, 2};
  CHECK(sampler.sample(logits, &mask).token == 0);
  logits[65] = 5;
  CHECK(sampler.sample(logits, &mask).token == 65);
}

TEST_CASE("temperature: powers of the probabilities") {
  const auto logits = logs({0.5, 0.3, 0.2});
  check_shares(shares({}, logits), {{0, 0.5}, {1, 0.3}, {2, 0.2}});
  check_shares(shares({.temperature = 0.5}, logits),
               {{0, 0.25 / 0.38}, {1, 0.09 / 0.38}, {2, 0.04 / 0.38}});
  check_shares(shares({.temperature = 1e-9}, logits), {{0, 1}});
  check_shares(shares({}, {kNever, 1, kNever}), {{1, 1}});
}

TEST_CASE("top-k, top-p and min-p: which tokens stay") {
  const auto logits = logs({0.1, 0.4, 0.2, 0.3});
  check_shares(shares({.top_k = 2}, logits), {{1, 4 / 7.0}, {3, 3 / 7.0}});
  check_shares(shares({.top_p = 0.65}, logits), {{1, 4 / 7.0}, {3, 3 / 7.0}});
  check_shares(shares({.top_p = 0.75}, logits), {{1, 4 / 9.0}, {2, 2 / 9.0}, {3, 3 / 9.0}});
  check_shares(shares({.top_p = 1e-9}, logits), {{1, 1}});
  check_shares(shares({.min_p = 0.6}, logits), {{1, 4 / 7.0}, {3, 3 / 7.0}});
  check_shares(shares({.min_p = 1}, logits), {{1, 1}});
  // Top-p sees what top-k left, and probabilities at temperature 1.
  check_shares(shares({.temperature = 100, .top_k = 2, .top_p = 0.5}, logits), {{1, 1}});
  check_shares(shares({.top_k = 2}, {5, 5, 5}), {{0, 0.5}, {1, 0.5}});
}

TEST_CASE("top-p over many tokens keeps the exact number") {
  std::vector<float> logits(5000, 0);
  for (const double p : {0.02, 0.1, 0.5, 0.9}) {
    Sampler sampler({.top_p = p, .seed = 3}, 5000);
    int64_t largest = 0;
    for (int i = 0; i < 400; ++i) largest = std::max(largest, sampler.sample(logits).token);
    CHECK(largest < std::lround(5000 * p));
    CHECK(largest > std::lround(5000 * p * 0.95));
  }
}

TEST_CASE("top-p over logits far apart keeps the exact number") {
  // Token i has e times the probability of token i + 100, so the first n have 1 - exp(-n/100).
  constexpr int64_t kCount = 5000;
  std::vector<float> logits;
  for (int64_t i = 0; i < kCount; ++i) logits.push_back(static_cast<float>(-i) / 100);
  for (const double left : {0.5, 1e-3, 1e-12, 1e-14}) {
    Sampler sampler({.temperature = 1e6, .top_p = 1 - left, .seed = 3}, kCount);
    int64_t largest = 0;
    for (int i = 0; i < 600; ++i) largest = std::max(largest, sampler.sample(logits).token);
    const auto kept = std::lround(-100 * std::log(left));
    CHECK(largest < kept + 4);
    CHECK(largest > std::lround(static_cast<double>(kept) * 0.97));
  }
}

TEST_CASE("penalties: repetition by sign, presence once, frequency for each time") {
  CHECK(greedy({.repetition_penalty = 2}, {3, 2, -1}, {0}) == 1);
  CHECK(greedy({.repetition_penalty = 2}, {-3, -4, -5.9f}, {0, 0}) == 1);
  CHECK(greedy({.presence_penalty = 1.1}, {3, 2, 0}, {0, 0}) == 1);
  CHECK(greedy({.presence_penalty = 0.9}, {3, 2, 0}, {0, 0}) == 0);
  CHECK(greedy({.frequency_penalty = 0.6}, {3, 2, 0}, {0}) == 0);
  CHECK(greedy({.frequency_penalty = 0.6}, {3, 2, 0}, {0, 0}) == 1);
  CHECK(greedy({.presence_penalty = -2}, {3, 2, 0}, {1}) == 1);
  // Token 0 left the window.
  CHECK(greedy({.presence_penalty = 5, .penalty_window = 2}, {3, 2, 1}, {0, 1, 2}) == 0);
  CHECK(greedy({.presence_penalty = 5, .penalty_window = 0}, {3, 2, 1}, {0}) == 0);
}

TEST_CASE("seed: the same tokens again, other tokens with another seed") {
  const std::vector<float> logits(1000, 0);
  const auto text = [&](uint64_t seed) {
    Sampler sampler({.seed = seed}, 1000);
    std::vector<int64_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.sample(logits).token);
    return out;
  };
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
  const auto one = text(1);
  CHECK(std::set<int64_t>(one.begin(), one.end()).size() > 15);
}

TEST_CASE("log probabilities are those of the model") {
  Sampler sampler({.temperature = 0, .logit_bias = {{2, 50.0f}}, .top_logprobs = 2}, 3);
  const Sampled out = sampler.sample(logs({0.5, 0.3, 0.2}));
  CHECK(out.token == 2);
  CHECK(out.logprob == doctest::Approx(std::log(0.2)));
  REQUIRE(out.top.size() == 2);
  CHECK(out.top[0].token == 0);
  CHECK(out.top[1].token == 1);
  CHECK(out.top[1].logprob == doctest::Approx(std::log(0.3)));
  CHECK(Sampler({}, 3).sample(logs({0.5, 0.3, 0.2})).top.empty());
}

TEST_CASE("refusals") {
  CHECK_THROWS_WITH_AS(Sampler({.temperature = -1}, 3),
                       "sampling: temperature: expected a finite number from 0, got -1.000000",
                       Error);
  CHECK_THROWS_AS(Sampler({.top_p = 0}, 3), Error);
  CHECK_THROWS_AS(Sampler({.min_p = 1.5}, 3), Error);
  CHECK_THROWS_AS(Sampler({.repetition_penalty = 0}, 3), Error);
  CHECK_THROWS_AS(Sampler({.presence_penalty = NAN}, 3), Error);
  CHECK_THROWS_AS(Sampler({.logit_bias = {{3, 1.0f}}}, 3), Error);
  CHECK_THROWS_AS(Sampler({.top_logprobs = 4}, 3), Error);
  Sampler sampler({}, 3);
  CHECK_THROWS_AS(sampler.accept(3), Error);
  CHECK_THROWS_AS(sampler.sample(std::vector<float>(2)), Error);
  CHECK_THROWS_WITH_AS(sampler.sample(std::vector<float>{0, NAN, 0}),
                       "sampling: the logit of token 1 is NaN", Error);
  CHECK_THROWS_WITH_AS(sampler.sample(std::vector<float>(3, kNever)),
                       "sampling: every token is excluded", Error);
  Sampler greedy({.temperature = 0}, 3);
  CHECK_THROWS_WITH_AS(greedy.sample(std::vector<float>{0, NAN, 0}),
                       "sampling: the logit of token 1 is NaN", Error);
  CHECK_THROWS_WITH_AS(greedy.sample(std::vector<float>{0, 1, INFINITY}),
                       "sampling: the logit of token 2 is infinite", Error);
  CHECK_THROWS_WITH_AS(greedy.sample(std::vector<float>(3, kNever)),
                       "sampling: every token is excluded", Error);
}

TEST_CASE("stop strings: the same cut for all parts") {
  const std::vector<std::string> stops = {"</s>", "\n\n", "</stop>", "b\n"};
  const auto shown = [&](const std::string& text, size_t size) {
    StopStrings stop(stops);
    std::string out;
    for (size_t at = 0; at < text.size() && !stop.stopped(); at += size)
      out += stop.push(text.substr(at, size));
    if (!stop.stopped()) out += stop.finish();
    return out + "|" + std::to_string(stop.found());
  };
  for (const size_t size : {1u, 2u, 3u, 100u}) {
    CAPTURE(size);
    CHECK(shown("Hello</s> more", size) == "Hello|0");
    CHECK(shown("a <</s</stop>x", size) == "a <</s|2");
    CHECK(shown("ab\n\nc", size) == "a|3");
    CHECK(shown("a\n\n", size) == "a|1");
    CHECK(shown("ends with </s", size) == "ends with </s|-1");
    CHECK(shown("", size) == "|-1");
  }
  StopStrings stop({"END"});
  CHECK(stop.push("the E") == "the ");
  CHECK(stop.push("N") == "");
  CHECK(stop.push("ORM EN") == "ENORM ");
  CHECK(stop.finish() == "EN");
  CHECK(StopStrings({"abc", "bc"}).push("xabc") == "x");
  CHECK_THROWS_AS(StopStrings({""}), Error);
  CHECK_THROWS_AS(StopStrings(std::vector<std::string>(65, "a")), Error);
}
TEST_SUITE_END();
