// SPDX-License-Identifier: Apache-2.0
// Selects from a row without sorting it.
#include "llm/sample/logit_row.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "llm/sample/vector_pass.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

[[noreturn]] void fail_unordered(std::span<const float> logits) {
  const auto at = std::ranges::find_if(logits, [](float l) { return !(l < INFINITY); });
  throw Error(TENON_NUMERIC_ERROR, "sampling: the logit of token " +
                                       std::to_string(at - logits.begin()) +
                                       (std::isnan(*at) ? " is NaN" : " is infinite"));
}

}  // namespace

void LogitRow::read(std::span<const float> logits) {
  logits_ = logits;
  has_first_ = false;
  masses_scale_ = 0;
  maxima_.resize(maxima_groups(logits.size()));
  if (!group_maxima(logits.data(), logits.size(), maxima_.data())) fail_unordered(logits);
  most_ = std::ranges::max(maxima_);
  if (most_ == kExcluded) throw Error(TENON_NUMERIC_ERROR, "sampling: every token is excluded");
}

int64_t LogitRow::likeliest() const {
  const auto group = std::ranges::find(maxima_, most_) - maxima_.begin();
  const auto block = static_cast<size_t>(group) / kLanes * kMaximaBlock;
  const auto at = std::find(logits_.begin() + static_cast<ptrdiff_t>(block), logits_.end(), most_);
  return at - logits_.begin();
}

std::span<const Candidate> LogitRow::first() {
  if (has_first_) return first_;
  // At least kFirstTokens groups have a logit from `least` on, so that the first tokens have, too.
  float least = kExcluded;
  if (maxima_.size() > kFirstTokens) {
    std::vector<float> sorted = maxima_;
    const auto at = sorted.begin() + kFirstTokens - 1;
    std::ranges::nth_element(sorted, at, std::greater());
    least = *at;
  }
  first_.clear();
  for (size_t group = 0; group < maxima_.size(); ++group) {
    if (maxima_[group] < least || maxima_[group] == kExcluded) continue;
    const size_t begin = group / kLanes * kMaximaBlock;
    const size_t end = std::min(begin + kMaximaBlock, logits_.size());
    for (size_t i = begin + group % kLanes; i < end; i += kLanes)
      if (logits_[i] >= least && logits_[i] != kExcluded)
        first_.push_back({logits_[i], static_cast<int32_t>(i)});
  }
  first_are_all_ = first_.size() <= kFirstTokens && least == kExcluded;
  if (first_.size() > kFirstTokens) {
    std::ranges::nth_element(first_, first_.begin() + kFirstTokens, is_before);
    first_.resize(kFirstTokens);
  }
  std::ranges::sort(first_, is_before);
  has_first_ = true;
  return first_;
}

std::vector<Candidate> LogitRow::top(size_t count) {
  if (count <= first().size())
    return {first_.begin(), first_.begin() + static_cast<ptrdiff_t>(count)};
  std::vector<Candidate> all(logits_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {logits_[i], static_cast<int32_t>(i)};
  std::ranges::partial_sort(all, all.begin() + static_cast<ptrdiff_t>(count), is_before);
  all.resize(count);
  return all;
}

double LogitRow::mass(float scale) {
  if (masses_scale_ != scale) {
    masses_.resize(mass_blocks(logits_.size()));
    block_masses(logits_.data(), logits_.size(), most_, scale, masses_.data());
    masses_scale_ = scale;
  }
  return std::accumulate(masses_.begin(), masses_.end(), 0.0);
}

Candidate LogitRow::reaching(double mass) {
  // A histogram of weights tells in which bin of logits it is. The last bin has all lower logits.
  constexpr size_t kBins = 1024;
  constexpr float kBinsOfOne = 32;
  std::array<double, kBins> bins{};
  const auto bin_of = [&](float logit) {
    return static_cast<size_t>(std::min((most_ - logit) * kBinsOfOne, kBins - 1.0f));
  };
  std::array<float, kMassBlock> block;
  for (size_t i = 0; i < logits_.size(); i += kMassBlock) {
    const auto logits = logits_.subspan(i, std::min(kMassBlock, logits_.size() - i));
    weights(logits.data(), logits.size(), most_, 1, block.data());
    for (size_t k = 0; k < logits.size(); ++k)
      if (logits[k] != kExcluded) bins[bin_of(logits[k])] += block[k];
  }
  double sum = 0;
  size_t bin = 0;
  for (; bin + 1 < kBins && sum + bins[bin] < mass; ++bin) sum += bins[bin];
  const auto tokens_of = [&](size_t wanted) {
    std::vector<Candidate> tokens;
    for (size_t i = 0; i < logits_.size(); ++i)
      if (logits_[i] != kExcluded && bin_of(logits_[i]) == wanted)
        tokens.push_back({logits_[i], static_cast<int32_t>(i)});
    return tokens;
  };
  std::vector<Candidate> tokens = tokens_of(bin);
  while (tokens.empty()) tokens = tokens_of(--bin);  // by rounding all weights are less than `mass`
  std::ranges::sort(tokens, is_before);
  for (const Candidate& c : tokens) {
    float w = 0;
    weights(&c.logit, 1, most_, 1, &w);
    if ((sum += w) >= mass) return c;
  }
  return tokens.back();
}

int64_t LogitRow::behind_first(double mass, float scale) {
  static_cast<void>(this->mass(scale));
  const Candidate last = first().back();
  std::vector<double> left = masses_;
  for (const Candidate& c : first_) {
    float w = 0;
    weights(&c.logit, 1, most_, scale, &w);
    left[static_cast<size_t>(c.token) / kMassBlock] -= w;
  }
  std::array<float, kMassBlock> block;
  for (size_t b = 0; b < left.size(); mass -= left[b++]) {
    if (mass >= left[b]) continue;
    const auto logits =
        logits_.subspan(b * kMassBlock, std::min(kMassBlock, logits_.size() - b * kMassBlock));
    weights(logits.data(), logits.size(), most_, scale, block.data());
    double within = 0;
    for (size_t k = 0; k < logits.size(); ++k) {
      const auto token = static_cast<int32_t>(b * kMassBlock + k);
      if (logits[k] == kExcluded || !is_before(last, {logits[k], token})) continue;
      if ((within += block[k]) > mass) return token;
    }
  }
  return last.token;
}

}  // namespace tenon::llm
