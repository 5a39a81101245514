// SPDX-License-Identifier: Apache-2.0
// What options of sampling may be.
#include <cmath>
#include <string>

#include "llm/sample/sampler.hpp"
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

}  // namespace

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

}  // namespace tenon::llm
