// SPDX-License-Identifier: Apache-2.0
// Chooses tokens from logits.
//
// The steps and their order are those of llama.cpp: logit bias, penalties, allowed tokens, top-k, top-p, min-p,
// temperature, draw. So top-p and min-p see probabilities at temperature 1. Penalties are those of llama.cpp (repetition)
// and of the OpenAI protocol (presence, frequency), which also defines bias and log probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon::llm {

struct SampleOptions {
  double temperature = 1;  // 0: the token with the largest logit; of equal ones the first
  int64_t top_k = 0;       // keep so many tokens; 0: all
  double top_p = 1;        // keep the most likely tokens that together have this probability
  double min_p = 0;        // keep tokens with this share of the probability of the most likely one
  double repetition_penalty =
      1;  // divides positive logits of tokens that occurred, multiplies others
  double presence_penalty = 0;   // subtracted from logits of tokens that occurred
  double frequency_penalty = 0;  // the same, once for each time
  int64_t penalty_window = -1;   // penalties see so many of the latest tokens; -1: all
  std::vector<std::pair<int64_t, float>> logit_bias =
      {};             // token and what is added; -infinity excludes
  uint64_t seed = 0;  // the same seed, options and logits give the same tokens
  int64_t top_logprobs =
      -1;  // so many log probabilities of the most likely tokens; -1: none at all
};

// True if the token is the one with the largest logit as the model gives it, and nothing else of
// the logits is wanted. Then the logits may stay on the device.
bool takes_most_likely(const SampleOptions& options);

struct TokenLogprob {
  int64_t token = 0;
  float logprob = 0;
};

struct Sampled {
  int64_t token = 0;
  // Natural logarithms, by the logits as they were given. `top` is sorted.
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

// The allowed tokens: bit t % 64 of word t / 64.
using TokenMask = std::vector<uint64_t>;

class Sampler {
 public:
  // Throws TENON_INVALID_ARGUMENT for options out of range.
  Sampler(SampleOptions options, int64_t vocab_size);

  // A token that is part of the text now, from the prompt or sampled. Penalties see it.
  void accept(int64_t token);

  // The logits of all tokens; -infinity excludes. Throws TENON_NUMERIC_ERROR for NaN, +infinity, and if no token is left.
  // Draw i of a sampler uses the i-th random number of its seed.
  Sampled sample(std::span<const float> logits, const TokenMask* allowed = nullptr);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  void collect(std::span<const float> logits, const TokenMask* allowed);
  bool has_penalties() const;
  void penalize();
  void sort_first(size_t count);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  int64_t draw();
  float largest() const;  // logit of the candidates
  void add_logprobs(std::span<const float> logits, Sampled& out) const;
  static bool is_before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }

  SampleOptions options_;
  int64_t vocab_size_;
  uint64_t draws_ = 0;
  std::vector<int32_t> history_;  // of the window, if there is one
  size_t oldest_ = 0;
  std::unordered_map<int32_t, int64_t> counts_;
  std::vector<std::pair<int32_t, float>> bias_;
  std::vector<Candidate> candidates_;
  std::vector<double> sums_;
  size_t sorted_ = 0;  // of the candidates, from the first
};

}  // namespace tenon::llm
