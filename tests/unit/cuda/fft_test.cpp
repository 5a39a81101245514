// SPDX-License-Identifier: Apache-2.0
// Transforms of the cuda plugin without a GPU: the choice of radices and threads, and device/fft.cuh compiled for the
// host, beside sums in f64. Threads of the host meet at a barrier, so that thread sanitizers see missing ones.
#include "kernels/fft.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <random>
#include <thread>

using namespace tenon::cuda;

namespace {

using namespace tenon::cuda::args;
struct c64 {
  f32 re, im;
};
struct float2 {
  f32 x, y;
};
float2 __ldg(const float2* p) { return *p; }

std::barrier<>* all_threads = nullptr;
void __syncthreads() { all_threads->arrive_and_wait(); }
void __syncwarp() { __syncthreads(); }
void together(int threads, const std::function<void(int)>& body) {
  std::barrier<> barrier(threads);
  all_threads = &barrier;
  std::vector<std::thread> list;
  for (int k = 0; k < threads; ++k) list.emplace_back(body, k);
  for (std::thread& t : list) t.join();
}

#define __device__
#define __forceinline__ inline

#define NAME two_passes
#define POINTS 60
#define LIST 15, 4
#define LANES 4
#define COLUMNS 1
#define PARTS 2
#include "fft_transform.inl"

#define NAME half_memory
#define POINTS 1144
#define LIST 13, 11, 8
#define LANES 104
#define COLUMNS 1
#define PARTS 1
#include "fft_transform.inl"

#define NAME columns_of_four
#define POINTS 126
#define LIST 9, 7, 2
#define LANES 11
#define COLUMNS 4
#define PARTS 2
#include "fft_transform.inl"

#define NAME columns_in_half_memory
#define POINTS 480
#define LIST 16, 10, 3
#define LANES 30
#define COLUMNS 2
#define PARTS 1
#include "fft_transform.inl"

#define NAME one_pass
#define POINTS 14
#define LIST 14
#define LANES 1
#define COLUMNS 2
#define PARTS 2
#include "fft_transform.inl"

#define NAME small_radices
#define POINTS 360
#define LIST 12, 6, 5
#define LANES 32
#define COLUMNS 1
#define PARTS 2
#include "fft_transform.inl"

// The error of all results, relative to their length.
double error_of(int points, int columns,
                const std::function<std::vector<c64>(const std::vector<c64>&)>& run) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<c64> x(static_cast<size_t>(points * columns));
  for (c64& v : x) v = {normal(random), normal(random)};
  const std::vector<c64> y = run(x);
  double wrong = 0, length = 0;
  for (int c = 0; c < columns; ++c)
    for (int k = 0; k < points; ++k) {
      std::complex<double> sum = 0;
      for (int j = 0; j < points; ++j) {
        const c64 v = x[static_cast<size_t>(j * columns + c)];
        sum += std::complex<double>(v.re, v.im) *
               std::polar(1.0, -2 * std::numbers::pi * (j * k % points) / points);
      }
      const c64 found = y[static_cast<size_t>(k * columns + c)];
      wrong += std::norm(std::complex<double>(found.re, found.im) - sum);
      length += std::norm(sum);
    }
  return std::sqrt(wrong / length);
}
double bound_of(int points) { return 0.5 * 1.2e-7 * (1 + std::log2(points)); }

}  // namespace

TEST_CASE("the passes of a transform give its sums") {
  CHECK(error_of(60, 1, two_passes::run) < bound_of(60));
  CHECK(error_of(1144, 1, half_memory::run) < bound_of(1144));
  CHECK(error_of(126, 4, columns_of_four::run) < bound_of(126));
  CHECK(error_of(480, 2, columns_in_half_memory::run) < bound_of(480));
  CHECK(error_of(14, 2, one_pass::run) < bound_of(14));
  CHECK(error_of(360, 1, small_radices::run) < bound_of(360));
}

TEST_CASE("two bins of a real transform") {
  // The transform of 1, 2, 3, 4 by that of 1 + 2i, 3 + 4i.
  using namespace two_passes;
  const auto ends = split_bins({4, 6}, {4, 6}, {1, 0});
  CHECK(ends.low.re == 10);
  CHECK(ends.low.im == 0);
  CHECK(ends.high.re == -2);
  CHECK(ends.high.im == 0);
  const auto middle = split_bins({-2, -2}, {-2, -2}, {0, -1});
  CHECK(middle.low.re == -2);
  CHECK(middle.low.im == 2);
}

TEST_CASE("lengths with prime factors up to 13 have plans that fit a block") {
  int found = 0;
  for (int64_t n = 1; n <= kMostOnChip; ++n) {
    int64_t rest = n;
    for (const int prime : {2, 3, 5, 7, 11, 13})
      while (rest % prime == 0) rest /= prime;
    const auto plan = try_fft_plan(n);
    if (rest != 1 || n <= 10240) REQUIRE(plan.has_value() == (rest == 1));
    if (!plan) continue;
    ++found;
    int64_t product = 1;
    for (const int r : plan->radices) product *= r;
    CHECK(product == n);
    CHECK(plan->lanes <= 1024);
    // Registers of 64 or 128 words.
    CHECK(plan->held() <= (plan->lanes > 512 ? 16 : 30));
  }
  CHECK(found == 821);
  CHECK(!try_fft_plan(0));
  CHECK(!try_fft_plan(kMostOnChip * 2));
}

TEST_CASE("plans of usual lengths waste no threads") {
  const auto plan = try_fft_plan(4096);
  REQUIRE(plan);
  CHECK(plan->radices == std::vector<int>{16, 16, 16});
  CHECK(plan->lanes == 256);
  const auto thousand = try_fft_plan(1000);
  REQUIRE(thousand);
  CHECK(thousand->radices == std::vector<int>{10, 10, 10});
  CHECK(thousand->lanes == 100);
  // Fewer threads hold more numbers each.
  const auto few = try_fft_plan(512, 32);
  REQUIRE(few);
  CHECK(few->lanes == 32);
}

TEST_CASE("norms that are unknown are refused") {
  CHECK(fft_factor("backward", false, 4) == 1);
  CHECK(fft_factor("backward", true, 4) == 0.25);
  CHECK(fft_factor("forward", false, 4) == 0.25);
  CHECK(fft_factor("ortho", true, 4) == 0.5);
  CHECK_THROWS_AS(fft_factor("sideways", false, 4), tenon::sdk::Refusal);
}
