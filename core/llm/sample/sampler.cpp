// SPDX-License-Identifier: Apache-2.0
// The steps of sampling.
#include "llm/sample/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "llm/sample/philox.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

bool takes_most_likely(const SampleOptions& o) {
  return o.temperature == 0 && o.repetition_penalty == 1 && o.presence_penalty == 0 &&
         o.frequency_penalty == 0 && o.logit_bias.empty() && o.top_logprobs < 0;
}

namespace {

[[noreturn]] void fail(const std::string& option, const std::string& expected, double got) {
  throw Error(TENON_INVALID_ARGUMENT,
              "sampling: " + option + ": expected " + expected + ", got " + std::to_string(got));
}

void check(const SampleOptions& o, int64_t vocab_size) {
  const auto check_finite = [](const char* name, double v) {
    if (!std::isfinite(v)) fail(name, "a finite number", v);
  };
  if (vocab_size < 1 || vocab_size > INT32_MAX)
    fail("vocab_size", "1 to 2^31-1", static_cast<double>(vocab_size));
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    fail("temperature", "a finite number from 0", o.temperature);
  if (o.top_k < 0) fail("top_k", "at least 0", static_cast<double>(o.top_k));
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p", "more than 0, at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p", "0 to 1", o.min_p);
  if (!(o.repetition_penalty > 0) || !std::isfinite(o.repetition_penalty))
    fail("repetition_penalty", "a finite number above 0", o.repetition_penalty);
  check_finite("presence_penalty", o.presence_penalty);
  check_finite("frequency_penalty", o.frequency_penalty);
  if (o.penalty_window < -1)
    fail("penalty_window", "at least -1", static_cast<double>(o.penalty_window));
  if (o.top_logprobs < -1 || o.top_logprobs > vocab_size)
    fail("top_logprobs", "-1 to " + std::to_string(vocab_size),
         static_cast<double>(o.top_logprobs));
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || token >= vocab_size)
      fail("logit_bias", "tokens below " + std::to_string(vocab_size), static_cast<double>(token));
    if (std::isnan(bias) || bias == INFINITY)
      fail("logit_bias of token " + std::to_string(token), "a finite number or -infinity", bias);
  }
}

[[noreturn]] void fail_logit(std::span<const float> logits, size_t i) {
  throw Error(TENON_NUMERIC_ERROR, "sampling: the logit of token " + std::to_string(i) +
                                       (std::isnan(logits[i]) ? " is NaN" : " is infinite"));
}

// Throws for NaN and +infinity.
inline void check_logit(std::span<const float> logits, size_t i) {
  if (!(logits[i] < INFINITY)) fail_logit(logits, i);
}

[[noreturn]] void fail_excluded() {
  throw Error(TENON_NUMERIC_ERROR, "sampling: every token is excluded");
}

int64_t likeliest(std::span<const float> logits) {
  float most = -INFINITY;
  size_t best = logits.size();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= most) continue;
    check_logit(logits, i);
    most = logits[i], best = i;
  }
  if (best == logits.size()) fail_excluded();
  return static_cast<int64_t>(best);
}

}  // namespace

Sampler::Sampler(SampleOptions options, int64_t vocab_size)
    : options_(std::move(options)), vocab_size_(vocab_size) {
  check(options_, vocab_size);
  for (const auto& [token, bias] : options_.logit_bias)
    bias_.emplace_back(static_cast<int32_t>(token), bias);
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
  Sampled out;
  const bool greedy = options_.temperature == 0;
  if (greedy && !allowed && bias_.empty() && !has_penalties()) {
    out.token = likeliest(logits);
  } else if (collect(logits, allowed); greedy) {
    out.token = std::min_element(candidates_.begin(), candidates_.end(), is_before)->token;
  } else {
    keep_top_k();
    keep_top_p();
    keep_min_p();
    out.token = draw();
  }
  ++draws_;
  if (options_.top_logprobs >= 0) add_logprobs(logits, out);
  return out;
}

// Bias, allowed tokens and penalties. Leaves the tokens that may be chosen, in order.
void Sampler::collect(std::span<const float> logits, const TokenMask* allowed) {
  candidates_.resize(logits.size());
  sorted_ = 0;
  if (bias_.empty() && !has_penalties()) {  // then one pass does it
    size_t kept = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      check_logit(logits, i);
      candidates_[kept] = {logits[i], static_cast<int32_t>(i)};
      const bool is_allowed = !allowed || (*allowed)[i / 64] >> (i % 64) & 1;
      kept += is_allowed && logits[i] != -INFINITY ? 1 : 0;
    }
    candidates_.resize(kept);
    if (candidates_.empty()) fail_excluded();
    return;
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    check_logit(logits, i);
    candidates_[i] = {logits[i], static_cast<int32_t>(i)};
  }
  for (const auto& [token, bias] : bias_) candidates_[static_cast<size_t>(token)].logit += bias;
  penalize();
  std::erase_if(candidates_, [&](const Candidate& c) {
    const auto t = static_cast<size_t>(c.token);
    return c.logit == -INFINITY || (allowed && !((*allowed)[t / 64] >> (t % 64) & 1));
  });
  if (candidates_.empty()) fail_excluded();
}

float Sampler::largest() const {
  // Four at a time, as each comparison waits for the one before it.
  float most[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  size_t i = 0;
  for (; i + 4 <= candidates_.size(); i += 4)
    for (size_t k = 0; k < 4; ++k) most[k] = std::max(most[k], candidates_[i + k].logit);
  for (; i < candidates_.size(); ++i) most[0] = std::max(most[0], candidates_[i].logit);
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0;
}

void Sampler::penalize() {
  if (!has_penalties()) return;
  const double repetition = options_.repetition_penalty;
  for (const auto& [token, count] : counts_) {
    float& logit = candidates_[static_cast<size_t>(token)].logit;
    if (logit == -INFINITY) continue;
    double l = logit;
    l = l > 0 ? l / repetition : l * repetition;
    l -= options_.presence_penalty + options_.frequency_penalty * static_cast<double>(count);
    // Penalties exclude no token and prefer none without a bound.
    logit = static_cast<float>(std::clamp(l, -3e38, 3e38));
  }
}

void Sampler::sort_first(size_t count) {
  count = std::min(count, candidates_.size());
  if (count <= sorted_) return;
  const auto begin = candidates_.begin();
  if (count == candidates_.size())
    std::sort(begin + static_cast<ptrdiff_t>(sorted_), candidates_.end(), is_before);
  else
    std::partial_sort(begin + static_cast<ptrdiff_t>(sorted_),
                      begin + static_cast<ptrdiff_t>(count), candidates_.end(), is_before);
  sorted_ = count;
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  sort_first(k);
  candidates_.resize(k);
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  const double largest = this->largest();
  // Sorting all of a large vocabulary would take most of the time, so a histogram tells first how far
  // down the sum of probabilities is reached. The last bin has all lower logits.
  constexpr size_t kBins = 1024;
  constexpr double kWidth = 1.0 / 32;
  double bins[kBins] = {}, total = 0;
  for (const Candidate& c : candidates_) {
    const double below = largest - c.logit, p = std::exp(-below);
    bins[static_cast<size_t>(std::min<double>(below / kWidth, kBins - 1))] += p;
    total += p;
  }
  size_t last = 0;
  for (double sum = bins[0]; last + 1 < kBins && sum < options_.top_p * total;) sum += bins[++last];
  // One bin more, for sums that round in another order.
  if (last + 2 < kBins) {
    const double least = largest - kWidth * static_cast<double>(last + 2);
    std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
  }
  sorted_ = 0;
  sort_first(candidates_.size());
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += std::exp(candidates_[i].logit - largest);
    if (sum >= options_.top_p * total) {
      candidates_.resize(i + 1);
      break;
    }
  }
  sorted_ = candidates_.size();
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const float largest = this->largest();
  const double least = largest + std::log(options_.min_p);
  std::erase_if(candidates_,
                [&](const Candidate& c) { return c.logit < least && c.logit != largest; });
  sorted_ = 0;
}

int64_t Sampler::draw() {
  const float most = largest();
  // Below 1e-30, all but the most likely ones are impossible anyway.
  const auto inverse = static_cast<float>(1 / std::max(options_.temperature, 1e-30));
  // The sum up to each candidate. Weights in f32 take half the time of those in f64, and their errors
  // are far below what a draw can tell.
  sums_.resize(candidates_.size());
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const float power = (candidates_[i].logit - most) * inverse;
    sum += std::exp(std::max(power, -200.0f));  // exp(-200) is 0 in f32
    sums_[i] = sum;
  }
  const double at = uniform(options_.seed, draws_) * sum;
  const auto found = std::ranges::upper_bound(sums_, at);
  // By rounding, `at` may be the whole sum; then the last one with a weight is taken.
  const auto taken = found != sums_.end() ? found : std::ranges::lower_bound(sums_, sum);
  return candidates_[static_cast<size_t>(taken - sums_.begin())].token;
}

void Sampler::add_logprobs(std::span<const float> logits, Sampled& out) const {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float l : logits) total += std::exp(l - largest);
  const double offset = largest + std::log(total);
  const auto logprob = [&](int64_t token) {
    return static_cast<float>(logits[static_cast<size_t>(token)] - offset);
  };
  out.logprob = logprob(out.token);
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {logits[i], static_cast<int32_t>(i)};
  const auto count = static_cast<ptrdiff_t>(options_.top_logprobs);
  std::partial_sort(all.begin(), all.begin() + count, all.end(), is_before);
  for (ptrdiff_t i = 0; i < count; ++i) {
    const int64_t token = all[static_cast<size_t>(i)].token;
    out.top.push_back({token, logprob(token)});
  }
}

}  // namespace tenon::llm
