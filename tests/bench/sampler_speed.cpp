// SPDX-License-Identifier: Apache-2.0
// The time of a draw from all logits, and from the candidates that a device sends:
//   sampler_speed [VOCAB]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "llm/sample/sampler.hpp"

using namespace tenon::llm;

namespace {

constexpr size_t kRows = 8;

struct Rows {
  const char* name;
  std::vector<std::vector<float>> logits;
};
// flat: as with random weights. peaked: a few likely tokens, as with trained ones.
std::vector<Rows> make_rows(size_t vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Rows> all = {{"peaked", {}}, {"flat", {}}};
  for (size_t k = 0; k < kRows; ++k) {
    std::vector<float> row(vocab);
    for (float& l : row) l = normal(random);
    all[1].logits.push_back(row);
    for (float& l : row) l *= 2;
    for (int i = 0; i < 200; ++i)
      row[random() % vocab] = 18 - 2 * std::log(1.0f + static_cast<float>(i)) + normal(random);
    all[0].logits.push_back(row);
  }
  return all;
}

template <class F>
double microseconds(F&& draw) {
  double best = 1e9;
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < 2 * kRows; ++i) draw(i % kRows);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / (2 * kRows));
  }
  return best;
}

// What a device sends of a row.
struct Sent {
  std::vector<float> logits;
  std::vector<int64_t> tokens;
  double mass = 0;
};
Sent send(const std::vector<float>& row, float scale) {
  LogitRow all;
  all.read(row);
  Sent sent;
  for (const Candidate& c : all.first())
    sent.logits.push_back(c.logit), sent.tokens.push_back(c.token);
  sent.mass = all.mass(scale);
  return sent;
}

}  // namespace

int main(int argc, char** argv) {
  const size_t vocab = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 151936;
  if (vocab < kFirstTokens || vocab > 1 << 24) {
    std::fputs("usage: sampler_speed [VOCAB]\n", stderr);
    return 2;
  }
  struct Case {
    const char* name;
    SampleOptions options;
    bool masked = false;
  };
  const Case cases[] = {
      {"temperature 1", {}},
      {"top_p 0.95", {.top_p = 0.95}},
      {"temperature 0.8, top_k 40, top_p 0.95, min_p 0.05",
       {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05}},
      {"min_p 0.05", {.min_p = 0.05}},
      {"three penalties, 500 tokens",
       {.repetition_penalty = 1.1, .presence_penalty = 0.1, .frequency_penalty = 0.1}},
      {"top_logprobs 5", {.top_logprobs = 5}},
      {"a mask with 2 % of the tokens", {}, true},
      {"temperature 0", {.temperature = 0}},
  };
  std::mt19937 random(2);
  TokenMask mask((vocab + 63) / 64, 0);
  for (size_t i = 0; i < vocab / 50; ++i) {
    const size_t token = random() % vocab;
    mask[token / 64] |= uint64_t{1} << token % 64;
  }
  for (const Rows& rows : make_rows(vocab))
    for (const Case& c : cases) {
      Sampler sampler(c.options, static_cast<int64_t>(vocab));
      for (int i = 0; i < 500; ++i) sampler.accept(static_cast<int64_t>(random() % vocab));
      const TokenMask* allowed = c.masked ? &mask : nullptr;
      const double all = microseconds([&](size_t i) { sampler.sample(rows.logits[i], allowed); });
      std::vector<Sent> sent;
      for (const auto& row : rows.logits) sent.push_back(send(row, sampler.scale()));
      const auto draw = [&](size_t i) {
        return sampler.sample(Candidates{sent[i].logits, sent[i].tokens,
                                         static_cast<float>(sent[i].mass), sampler.scale()},
                              allowed);
      };
      constexpr int kDraws = 400;
      int enough = 0;
      for (size_t i = 0; i < kDraws; ++i) {
        if (draw(i % kRows))
          ++enough;
        else
          sampler.sample(rows.logits[i % kRows], allowed);
      }
      const double some = microseconds(draw);
      std::printf("%-7s %-50s all %7.1f us   candidates %5.1f us, enough for %3d %%\n", rows.name,
                  c.name, all, some, 100 * enough / kDraws);
    }
}
