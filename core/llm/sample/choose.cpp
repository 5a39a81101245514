// SPDX-License-Identifier: Apache-2.0
// Top-k, top-p, min-p, temperature and the draw.
//
// Each of the first three keeps a beginning of the tokens in their order. The draw looks at the first
// kFirstTokens of them in this order, then at the others by their numbers. So these few tokens and the
// sum of all weights decide almost always.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "llm/sample/philox.hpp"
#include "llm/sample/sampler.hpp"
#include "llm/sample/vector_pass.hpp"

namespace tenon::llm {

float Sampler::inverse_temperature() const {
  // Below 1e-30, all but the most likely ones are impossible anyway.
  return static_cast<float>(1 / std::max(options_.temperature, 1e-30));
}

float Sampler::scale() const { return options_.top_p < 1 ? 1 : inverse_temperature(); }

// Computes weights_ of tokens that begin with the most likely one. Returns their sum.
double Sampler::weigh(std::span<const Candidate> tokens, float scale) {
  weights_.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) weights_[i] = tokens[i].logit;
  const float most = tokens.front().logit;
  weights(weights_.data(), weights_.size(), most, scale, weights_.data());
  return std::accumulate(weights_.begin(), weights_.end(), 0.0);
}

// The chosen token, or nothing if the head does not tell.
std::optional<int64_t> Sampler::choose(const Head& head) {
  std::span<const Candidate> kept = head.tokens;
  bool are_all = head.are_all, lost = false;  // lost: of the tokens behind, some may be removed
  const auto mass = [&](float scale) -> std::optional<Range> {
    const double sum = weigh(kept, scale);
    if (are_all) return Range{sum, sum};
    std::optional<Range> range = head.mass(scale);
    if (range && lost) range->least = std::min(sum, range->most);
    return range;
  };
  const auto keep = [&](size_t count) { kept = kept.first(count), are_all = true; };

  if (const auto k = static_cast<size_t>(options_.top_k); k > 0) {
    if (k <= kept.size()) keep(k);
    lost = !are_all;
  }
  if (options_.top_p < 1) {
    const std::optional<Range> all = mass(1);
    if (!all) return {};
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && sum < options_.top_p * all->least) sum += weights_[count++];
    const bool reached = sum >= options_.top_p * all->most;
    if (!reached && !are_all) return {};
    if (reached) keep(count);
  }
  if (options_.min_p > 0) {
    const double least = kept.front().logit + std::log(options_.min_p);
    const auto end =
        std::ranges::partition_point(kept, [&](const Candidate& c) { return c.logit >= least; });
    if (end != kept.end())
      keep(static_cast<size_t>(end - kept.begin()));
    else
      lost = !are_all;
  }
  const std::optional<Range> all = mass(inverse_temperature());
  return all ? draw(kept, are_all, *all) : std::nullopt;
}

// By the weights_ of the tokens. mass: of all tokens that may be drawn.
std::optional<int64_t> Sampler::draw(std::span<const Candidate> tokens, bool are_all,
                                     const Range& mass) const {
  const double random = uniform(options_.seed, draws_);
  double sum = 0;
  size_t last = 0;  // with a weight that counts
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double before = std::exchange(sum, sum + weights_[i]);
    if (sum > before) last = i;
    if (sum > random * mass.least)
      return sum > random * mass.most ? std::optional(tokens[i].token) : std::nullopt;
  }
  // By rounding, the random part may be the whole sum.
  return are_all ? std::optional(tokens[last].token) : std::nullopt;
}

// The same with all tokens, where those behind the head count.
int64_t Sampler::choose_behind_head(LogitRow& given) {
  LogitRow* row = &given;
  const auto exclude_behind = [&](const Candidate& last) {
    if (row != &changed_) adjusted_.assign(row->logits().begin(), row->logits().end());
    exclude_below(adjusted_.data(), adjusted_.size(), last.logit);
    for (size_t i = static_cast<size_t>(last.token) + 1; i < adjusted_.size(); ++i)
      if (adjusted_[i] == last.logit) adjusted_[i] = -INFINITY;
    row = &changed_;
    row->read(adjusted_);
  };
  if (options_.top_k > 0 && options_.top_k < vocab_size_)
    exclude_behind(row->top(static_cast<size_t>(options_.top_k)).back());
  if (options_.top_p < 1) exclude_behind(row->reaching(options_.top_p * row->mass(1)));
  if (options_.min_p > 0) {
    const double least = row->most() + std::log(options_.min_p);
    auto logit = static_cast<float>(least);
    if (logit < least) logit = std::nextafter(logit, INFINITY);
    exclude_behind({logit, INT32_MAX});
  }
  const float scale = inverse_temperature();
  const std::span<const Candidate> first = row->first();
  const double sum = weigh(first, scale);
  const bool are_all = row->first_are_all();
  const double mass = are_all ? sum : row->mass(scale);
  if (const auto drawn = draw(first, are_all, {mass, mass})) return *drawn;
  return row->behind_first(uniform(options_.seed, draws_) * mass - sum, scale);
}

}  // namespace tenon::llm
