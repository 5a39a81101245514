// SPDX-License-Identifier: Apache-2.0
// Draws from the logits of all tokens.
#include "llm/sample/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {

Sampler::Sampler(SampleOptions options, int64_t vocab_size)
    : options_(std::move(options)), vocab_size_(vocab_size) {
  check(options_, vocab_size);
  for (const auto& [token, bias] : options_.logit_bias) bias_[static_cast<int32_t>(token)] += bias;
}

void Sampler::accept(int64_t token) {
  if (token < 0 || token >= vocab_size_)
    throw Error(TENON_INDEX_OUT_OF_RANGE, "sampling: accept: expected a token below " +
                                              std::to_string(vocab_size_) + ", got " +
                                              std::to_string(token));
  const auto id = static_cast<int32_t>(token);
  if (options_.penalty_window == 0) return;
  ++counts_[id];
  if (options_.penalty_window < 0) return;
  if (history_.size() < static_cast<size_t>(options_.penalty_window)) {
    history_.push_back(id);
    return;
  }
  const int32_t gone = std::exchange(history_[oldest_], id);
  oldest_ = (oldest_ + 1) % history_.size();
  if (--counts_[gone] == 0) counts_.erase(gone);
}

Sampled Sampler::sample(std::span<const float> logits, const TokenMask* allowed) {
  if (logits.size() != static_cast<size_t>(vocab_size_))
    throw Error(TENON_SHAPE_MISMATCH, "sampling: logits: expected " + std::to_string(vocab_size_) +
                                          " numbers, got " + std::to_string(logits.size()));
  if (allowed && allowed->size() * 64 < logits.size())
    throw Error(TENON_SHAPE_MISMATCH, "sampling: allowed tokens: expected " +
                                          std::to_string((logits.size() + 63) / 64) +
                                          " words, got " + std::to_string(allowed->size()));
  given_.read(logits);
  const bool changes = allowed || !bias_.empty() || (has_penalties() && !counts_.empty());
  if (changes) adjust(logits, allowed);
  LogitRow& row = changes ? changed_ : given_;
  Sampled out;
  if (options_.temperature == 0) {
    out.token = row.likeliest();
  } else {
    const auto mass = [&](float scale) {
      const double m = row.mass(scale);
      return Range{m, m};
    };
    const auto chosen = choose({row.first(), row.first_are_all(), mass});
    out.token = chosen ? *chosen : choose_behind_head(row);
  }
  ++draws_;
  if (options_.top_logprobs >= 0) add_logprobs(out);
  return out;
}

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0;
}

// The logit after bias and penalties, which exclude no token by rounding and prefer none without a
// bound.
float Sampler::adjusted(int32_t token, float logit) const {
  constexpr float kBound = 3e38f;
  if (const auto bias = bias_.find(token); bias != bias_.end())
    logit = std::min(logit + bias->second, kBound);
  if (!has_penalties() || logit == -INFINITY) return logit;
  const auto count = counts_.find(token);
  if (count == counts_.end()) return logit;
  double l = logit;
  l = l > 0 ? l / options_.repetition_penalty : l * options_.repetition_penalty;
  l -= options_.presence_penalty + options_.frequency_penalty * static_cast<double>(count->second);
  return static_cast<float>(std::clamp<double>(l, -kBound, kBound));
}

// Reads the logits after bias, penalties and masks into changed_.
void Sampler::adjust(std::span<const float> logits, const TokenMask* allowed) {
  adjusted_.assign(logits.begin(), logits.end());
  const auto change = [&](int32_t token) {
    const auto t = static_cast<size_t>(token);
    adjusted_[t] = adjusted(token, logits[t]);
  };
  for (const auto& [token, bias] : bias_) change(token);
  if (has_penalties())
    for (const auto& [token, count] : counts_) change(token);
  for (size_t begin = 0; allowed && begin < adjusted_.size(); begin += 64) {
    const auto end = std::min(begin + 64, adjusted_.size());
    const uint64_t word = (*allowed)[begin / 64];
    if (word == ~uint64_t{0}) continue;
    for (size_t i = begin; i < end; ++i)  // without a branch, which nobody could predict
      adjusted_[i] = std::array{-INFINITY, adjusted_[i]}[word >> (i - begin) & 1];
  }
  changed_.read(adjusted_);
}

void Sampler::add_logprobs(Sampled& out) {
  const double offset = given_.most() + std::log(given_.mass(1));
  const auto logprob = [&](int64_t token) {
    return static_cast<float>(given_.logits()[static_cast<size_t>(token)] - offset);
  };
  out.logprob = logprob(out.token);
  for (const Candidate& c : given_.top(static_cast<size_t>(options_.top_logprobs)))
    out.top.push_back({c.token, logprob(c.token)});
}

}  // namespace tenon::llm
