// SPDX-License-Identifier: Apache-2.0
// Draws from some of the logits, where these prove what all of them would give.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "llm/sample/sampler.hpp"
#include "llm/sample/vector_pass.hpp"

namespace tenon::llm {

namespace {

double sum_of_weights(std::span<const float> logits, float most, float scale) {
  std::vector<double> masses(mass_blocks(logits.size()));
  block_masses(logits.data(), logits.size(), most, scale, masses.data());
  return std::accumulate(masses.begin(), masses.end(), 0.0);
}

}  // namespace

// Bias, penalties and masks of the candidates. Returns false if a token that is none of them may have
// risen above one of them.
bool Sampler::adjust(const Candidates& given, const TokenMask* allowed) {
  size_t biased = 0, counted = 0;
  head_.clear();
  for (size_t i = 0; i < given.logits.size() && given.logits[i] != -INFINITY; ++i) {
    const auto token = static_cast<int32_t>(given.tokens[i]);
    biased += !bias_.empty() && bias_.contains(token) ? 1 : 0;
    counted += has_penalties() && counts_.contains(token) ? 1 : 0;
    const auto t = static_cast<size_t>(token);
    if (allowed && !((*allowed)[t / 64] >> (t % 64) & 1)) continue;
    const float logit = adjusted(token, given.logits[i]);
    if (logit != -INFINITY) head_.push_back({logit, token});
  }
  changed_logits_ = allowed || biased > 0 || counted > 0;
  if (changed_logits_) std::ranges::sort(head_, is_before);
  const bool others_biased = biased < bias_.size();
  const bool others_counted = has_penalties() && counted < counts_.size();
  others_changed_ = allowed || others_biased || others_counted;
  const bool rises = std::ranges::any_of(bias_, [](const auto& b) { return b.second > 0; });
  const bool favours = options_.repetition_penalty < 1 || options_.presence_penalty < 0 ||
                       options_.frequency_penalty < 0;
  return !(others_biased && rises) && !(others_counted && favours);
}

std::optional<Sampled> Sampler::sample(const Candidates& given, const TokenMask* allowed) {
  if (needs_all()) return {};
  const float most = given.logits.front();
  if (!std::isfinite(most)) return {};
  // Those behind the last candidate are behind it after the changes, too.
  const Candidate last{given.logits.back(), static_cast<int32_t>(given.tokens.back())};
  const bool are_all = std::cmp_equal(given.logits.size(), vocab_size_) || last.logit == -INFINITY;
  if (!adjust(given, allowed) && !are_all) return {};
  std::span<const Candidate> tokens = head_;
  if (!are_all)
    tokens = {tokens.begin(), std::ranges::partition_point(
                                  tokens, [&](const Candidate& c) { return !is_before(last, c); })};
  if (tokens.empty()) return {};

  const auto mass = [&](float scale) -> std::optional<Range> {
    if (scale != given.scale) return {};
    const double candidates = sum_of_weights(given.logits, most, scale);
    double known = candidates, factor = 1;  // factor: to weights by the largest logit of the head
    if (const float largest = tokens.front().logit; largest != most || changed_logits_) {
      logits_.clear();
      for (const Candidate& c : head_) logits_.push_back(c.logit);
      known = sum_of_weights(logits_, largest, scale);
      factor = std::exp((double{most} - largest) * scale);
    }
    const double others = given.mass - candidates, error = kMassError * given.mass;
    const double least = others_changed_ ? 0 : std::max(others - error, 0.0);
    constexpr double kRounding = 1e-12;  // of sums in another order
    return Range{(known + factor * least) * (1 - kRounding),
                 (known + factor * std::max(others + error, 0.0)) * (1 + kRounding)};
  };
  std::optional<int64_t> token = tokens.front().token;
  if (options_.temperature > 0) token = choose({tokens, are_all, mass});
  if (!token) return {};
  ++draws_;
  Sampled out;
  out.token = *token;
  return out;
}

Sampled Sampler::sample(const NextLogits& next, const TokenMask* allowed) {
  if (next.candidates)
    if (std::optional<Sampled> drawn = sample(*next.candidates, allowed)) return *std::move(drawn);
  return sample(next.all(), allowed);
}

}  // namespace tenon::llm
