// SPDX-License-Identifier: Apache-2.0
// The logits of all tokens behind a text: their order, and sums of their weights (vector_pass.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::llm {

struct Candidate {
  float logit;
  int32_t token;
};
// The order of tokens: the likely ones first, equal ones by token.
inline bool is_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The first tokens that a row sorts. A device that sends some tokens of a row sends so many.
inline constexpr size_t kFirstTokens = 256;

// What is asked for is computed when it is, and kept until the next read(). Tokens whose logit is
// -infinity are in no order and have no weight.
class LogitRow {
 public:
  // Uses the logits until the next call. Throws TENON_NUMERIC_ERROR for NaN, +infinity, and if all
  // are -infinity.
  void read(std::span<const float> logits);

  std::span<const float> logits() const { return logits_; }
  float most() const { return most_; }
  int64_t likeliest() const;
  // The first kFirstTokens tokens, or all if there are no more.
  std::span<const Candidate> first();
  bool first_are_all() { return static_cast<void>(first()), first_are_all_; }
  // The first `count` tokens, also those of -infinity.
  std::vector<Candidate> top(size_t count);
  // The sum of the weights of all tokens.
  double mass(float scale);
  // Of the tokens in order, with weights at scale 1, the one at which their sum reaches `mass`.
  Candidate reaching(double mass);
  // Of the tokens behind the first ones, in the order of their numbers, the one at which the sum of
  // their weights exceeds `mass`. The last of the first ones if by rounding there is none.
  int64_t behind_first(double mass, float scale);

 private:
  std::span<const float> logits_;
  float most_ = 0;
  std::vector<float> maxima_;  // of groups
  std::vector<Candidate> first_;
  bool has_first_ = false, first_are_all_ = false;
  std::vector<double> masses_;  // of blocks, if masses_scale_ is not 0
  float masses_scale_ = 0;
};

}  // namespace tenon::llm
