// SPDX-License-Identifier: Apache-2.0
// Numbers of a running server, in Prometheus' text format.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "llm/serve/served.hpp"

namespace tenon::llm::serve {

// How often values fell at or below each of some limits, with their sum. Thread-safe.
class Histogram {
 public:
  // Seconds.
  static constexpr std::array<double, 12> kLimits = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.1,   0.25,   0.5,   1,    5,     30};
  void add(double seconds);
  // Lines of the format, without the comments.
  std::string text(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::array<uint64_t, kLimits.size() + 1> counts_{};
  double sum_ = 0;
};

// All functions may be called by many threads at once.
class Metrics {
 public:
  void answered(const std::string& path, unsigned status);
  void tokens(int64_t prompt, int64_t cached, int64_t made);
  void embedded() { ++embedded_; }  // a text

  Histogram first_token;     // from the request to its first text
  Histogram between_tokens;  // from one piece of text to the next

  std::string text(const ServedNumbers& now) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, unsigned>, uint64_t> answers_;
  std::atomic<int64_t> prompt_{0}, cached_{0}, made_{0}, embedded_{0};
};

}  // namespace tenon::llm::serve
