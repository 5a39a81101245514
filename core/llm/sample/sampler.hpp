// SPDX-License-Identifier: Apache-2.0
// Chooses tokens from logits.
//
// The steps and their order are those of llama.cpp: logit bias, penalties, allowed tokens, top-k, top-p, min-p,
// temperature, draw. So top-p and min-p see probabilities at temperature 1. Penalties are those of llama.cpp (repetition)
// and of the OpenAI protocol (presence, frequency), which also defines bias and log probabilities.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llm/sample/logit_row.hpp"

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
// Throws TENON_INVALID_ARGUMENT for options out of range.
void check(const SampleOptions& options, int64_t vocab_size);

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

// Some of the logits behind a text, as a device selects them.
struct Candidates {
  // The most likely tokens, at least one: by their logits, equal ones by their numbers.
  std::span<const float> logits;
  std::span<const int64_t> tokens;
  // Of all tokens, the sum of e^((logit - logits[0]) * scale), with a relative error below kMassError.
  float mass = 0, scale = 1;
};
inline constexpr double kMassError = 1e-5;

// The logits behind a text, of which a draw may need only some.
struct NextLogits {
  std::optional<Candidates> candidates{};
  std::function<std::span<const float>()> all;  // of all tokens
};

class Sampler {
 public:
  // Throws TENON_INVALID_ARGUMENT for options out of range.
  Sampler(SampleOptions options, int64_t vocab_size);

  // A token that is part of the text now, from the prompt or sampled. Penalties see it.
  void accept(int64_t token);

  // The logits of all tokens; -infinity excludes. Throws TENON_NUMERIC_ERROR for NaN, +infinity, and if no token is left.
  // Draw i of a sampler uses the i-th random number of its seed.
  Sampled sample(std::span<const float> logits, const TokenMask* allowed = nullptr);

  // The same from some of the logits: the token that the logits of all tokens would give, or nothing
  // if these do not tell. Then sample(logits) makes the draw.
  std::optional<Sampled> sample(const Candidates& candidates, const TokenMask* allowed = nullptr);
  // From the candidates if there are any and they tell, else from all logits.
  Sampled sample(const NextLogits& next, const TokenMask* allowed = nullptr);
  // The scale that its candidates should have.
  float scale() const;
  // Candidates never tell: log probabilities need the exact sum.
  bool needs_all() const { return options_.top_logprobs >= 0; }

 private:
  // The most likely tokens of a row, and what is known of the others, which come behind them.
  struct Range {
    double least, most;
  };
  struct Head {
    std::span<const Candidate> tokens;
    bool are_all;  // the others are excluded
    // Bounds of the sum of the weights of all tokens, if they are known.
    std::function<std::optional<Range>(float scale)> mass;
  };
  bool has_penalties() const;
  float adjusted(int32_t token, float logit) const;
  void adjust(std::span<const float> logits, const TokenMask* allowed);
  bool adjust(const Candidates& given, const TokenMask* allowed);
  std::optional<int64_t> choose(const Head& head);
  int64_t choose_behind_head(LogitRow& row);
  std::optional<int64_t> draw(std::span<const Candidate> tokens, bool are_all,
                              const Range& mass) const;
  double weigh(std::span<const Candidate> tokens, float scale);
  float inverse_temperature() const;
  void add_logprobs(Sampled& out);

  SampleOptions options_;
  int64_t vocab_size_;
  uint64_t draws_ = 0;
  std::vector<int32_t> history_;  // of the window, if there is one
  size_t oldest_ = 0;
  std::unordered_map<int32_t, int64_t> counts_;
  std::unordered_map<int32_t, float> bias_;
  LogitRow given_, changed_;     // as the model gives them; after bias, penalties and masks
  std::vector<float> adjusted_;  // the logits of changed_
  std::vector<float> weights_;
  std::vector<Candidate> head_;                           // the candidates after the same
  std::vector<float> logits_;                             // of the head
  bool changed_logits_ = false, others_changed_ = false;  // of the candidates; of other tokens
};

}  // namespace tenon::llm
