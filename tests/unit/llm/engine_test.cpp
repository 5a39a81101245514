// SPDX-License-Identifier: Apache-2.0
// Sampling from logits. What engines compute is compared with transformers in tests/peers.
#include "llm/engine.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE("llm/engine") {
  TEST_CASE("sample_token: the parts of [0, 1) are the probabilities") {
    // Probabilities 1/8, 5/8, 2/8.
    const std::vector<float> logits = {0, std::log(5.f), std::log(2.f)};
    CHECK(sample_token(logits, 1, 0) == 0);
    CHECK(sample_token(logits, 1, 0.124) == 0);
    CHECK(sample_token(logits, 1, 0.126) == 1);
    CHECK(sample_token(logits, 1, 0.749) == 1);
    CHECK(sample_token(logits, 1, 0.751) == 2);
    CHECK(sample_token(logits, 1, 0.999999) == 2);
  }

  TEST_CASE("sample_token: temperature sharpens and flattens") {
    const std::vector<float> logits = {0, std::log(5.f), std::log(2.f)};
    // At 1/2 the weights are squared: 1, 25, 4 of 30.
    CHECK(sample_token(logits, 0.5, 0.99 / 30) == 0);
    CHECK(sample_token(logits, 0.5, 1.01 / 30) == 1);
    CHECK(sample_token(logits, 0.5, 26.01 / 30) == 2);
    CHECK(sample_token(logits, 1e-3, 0.5) == 1);
  }

  TEST_CASE("sample_token: logits of minus infinity are never drawn, NaN is an error") {
    const float low = -INFINITY;
    CHECK(sample_token(std::vector<float>{low, 1, low}, 1, 0) == 1);
    CHECK(sample_token(std::vector<float>{low, 1, low}, 1, 0.9999999999) == 1);
    CHECK_THROWS_AS(sample_token(std::vector<float>{0, NAN, 1}, 1, 0.5), Error);
  }
}
