// SPDX-License-Identifier: Apache-2.0
// Frequencies of the rotary embedding, against values computed by hand and by transformers 5.
#include "llm/arch/rope.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace tenon;
using namespace tenon::llm;

namespace {

RopeConfig read(const Json& parameters, int64_t dims = 8, int64_t context = 128) {
  const Json j = {{"rope_parameters", parameters}};
  ConfigReader r(j, "config.json");
  RopeConfig rope = read_rope(r, dims, context, 1e4, true);
  r.refuse_unread();
  return rope;
}

void check(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_SUITE("llm/rope") {
  TEST_CASE("default and linear: powers of theta, divided by the factor") {
    check(read({{"rope_theta", 10000.0}}).frequencies(128), {1, 0.1, 0.01, 0.001});
    check(read({{"rope_theta", 10000.0}, {"rope_type", "linear"}, {"factor", 4}}).frequencies(128),
          {0.25, 0.025, 0.0025, 0.00025});
  }

  TEST_CASE("partial_rotary_factor: fewer dims, and powers over these") {
    const RopeConfig rope = read({{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}});
    CHECK(rope.dims == 4);
    check(rope.frequencies(128), {1, 0.01});
    CHECK_THROWS_AS(read({{"partial_rotary_factor", 1.5}}), Error);
    CHECK_THROWS_AS(read({{"partial_rotary_factor", 0.1}}), Error);  // no pair is left
  }

  TEST_CASE("llama3: fast pairs stay, slow ones are divided, a ramp between them") {
    // Turns within 1000 positions: 159, 15.9, 1.59, 0.159. The ramp of the third is (1.59 - 1) / 3.
    const RopeConfig rope = read({{"rope_theta", 10000.0},
                                  {"rope_type", "llama3"},
                                  {"factor", 8},
                                  {"low_freq_factor", 1},
                                  {"high_freq_factor", 4},
                                  {"original_max_position_embeddings", 1000}});
    const double ramp = (10 / (2 * M_PI) - 1) / 3;
    check(rope.frequencies(4000), {1, 0.1, 0.01 * ramp + 0.01 / 8 * (1 - ramp), 0.001 / 8});
    CHECK_THROWS_AS(read({{"rope_type", "llama3"},
                          {"factor", 8},
                          {"low_freq_factor", 5},
                          {"high_freq_factor", 4},
                          {"original_max_position_embeddings", 1000}}),
                    Error);
  }

  TEST_CASE("yarn: the ramp is between whole pairs, cos and sin are scaled") {
    // Pairs at which 32 and 1 rotations fit in 512: floor(0.405 * 4 ..) is 0 and ceil is 2.
    const Json j = {{"rope_theta", 10000.0},
                    {"rope_type", "yarn"},
                    {"factor", 4},
                    {"original_max_position_embeddings", 512}};
    const RopeConfig rope = read(j);
    CHECK(rope.attention_factor == doctest::Approx(0.1 * std::log(4.0) + 1));
    check(rope.frequencies(2048), {1, 0.1 / 4 * 0.5 + 0.1 * 0.5, 0.01 / 4, 0.001 / 4});
    CHECK(rope.softmax_scale() == 1);
    Json deepseek = j;
    deepseek["mscale"] = 1.0, deepseek["mscale_all_dim"] = 1.0;
    CHECK(read(deepseek).attention_factor == doctest::Approx(1));
    CHECK(read(deepseek).softmax_scale() == doctest::Approx(std::pow(0.1 * std::log(4.0) + 1, 2)));
  }

  TEST_CASE("longrope: short factors up to the original context, then the long ones") {
    const Json j = {{"rope_theta", 10000.0},
                    {"rope_type", "longrope"},
                    {"short_factor", {1, 2, 4, 8}},
                    {"long_factor", {10, 10, 10, 10}},
                    {"original_max_position_embeddings", 64}};
    const RopeConfig rope = read(j);
    check(rope.frequencies(64), {1, 0.05, 0.0025, 0.000125});
    check(rope.frequencies(65), {0.1, 0.01, 0.001, 0.0001});
    CHECK(rope.attention_factor == doctest::Approx(std::sqrt(1 + std::log(2.0) / std::log(64.0))));
    Json fewer = j;
    fewer["long_factor"] = {1, 2};
    CHECK_THROWS_WITH_AS(read(fewer), doctest::Contains("expected 4 numbers"), Error);
  }

  TEST_CASE("the original context beside the object counts, also for yarn and llama3") {
    const auto beside = [](Json object) {
      const Json j = {{"original_max_position_embeddings", 32}, {"rope_parameters", object}};
      ConfigReader r(j, "config.json");
      const RopeConfig rope = read_rope(r, 8, 128);
      r.refuse_unread();
      return rope.original_context;
    };
    Json llama3 = {
        {"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
    Json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
    CHECK(beside(llama3) == 32);
    CHECK(beside(yarn) == 32);
    yarn["original_max_position_embeddings"] = 64;
    CHECK(beside(yarn) == 32);
    CHECK(read(yarn).original_context == 64);
  }

  TEST_CASE("dynamic: plain within the original context, refused beyond it") {
    const RopeConfig rope = read({{"rope_type", "dynamic"}, {"factor", 2}});
    check(rope.frequencies(128), {1, 0.1, 0.01, 0.001});
    CHECK_THROWS_WITH_AS(rope.frequencies(129), doctest::Contains("at most 128"), Error);
  }

  TEST_CASE("keys before transformers 5: rope_scaling with type") {
    const Json j = {{"rope_theta", 100.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}};
    ConfigReader r(j, "config.json");
    check(read_rope(r, 4, 64).frequencies(64), {0.5, 0.05});
    const Json both = {{"rope_parameters", {{"rope_theta", 1.5}}},
                       {"rope_scaling", {{"factor", 2}}}};
    ConfigReader two(both, "config.json");
    CHECK_THROWS_WITH_AS(read_rope(two, 4, 64), doctest::Contains("rope_scaling"), Error);
  }
}
