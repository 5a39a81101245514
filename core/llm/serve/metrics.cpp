// SPDX-License-Identifier: Apache-2.0
// Counters, gauges and histograms as text.
#include "llm/serve/metrics.hpp"

#include <charconv>

namespace tenon::llm::serve {
namespace {

// Independent of the locale.
std::string shown(double d) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, d).ptr};
}

std::string described(const char* name, const char* type, const char* help) {
  return std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string line(const char* name, const char* type, const char* help, int64_t value) {
  return described(name, type, help) + name + " " + std::to_string(value) + "\n";
}

}  // namespace

void Histogram::add(double seconds) {
  size_t i = 0;
  while (i < kLimits.size() && seconds > kLimits[i]) ++i;
  const std::lock_guard lock(mutex_);
  ++counts_[i];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string limit = i < kLimits.size() ? shown(kLimits[i]) : "+Inf";
    out += name + "_bucket{le=\"" + limit + "\"} " + std::to_string(below) + "\n";
  }
  return out + name + "_sum " + shown(sum_) + "\n" + name + "_count " + std::to_string(below) +
         "\n";
}

void Metrics::answered(const std::string& path, unsigned status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{path, status}];
}

void Metrics::tokens(int64_t prompt, int64_t cached, int64_t made) {
  prompt_ += prompt;
  cached_ += cached;
  made_ += made;
}

std::string Metrics::text(const ServedNumbers& now) const {
  std::string out =
      described("tenon_http_requests_total", "counter", "Requests that were answered.");
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, n] : answers_)
      out += "tenon_http_requests_total{path=\"" + key.first + "\",status=\"" +
             std::to_string(key.second) + "\"} " + std::to_string(n) + "\n";
  }
  out += line("tenon_prompt_tokens_total", "counter", "Tokens of prompts.", prompt_);
  out += line("tenon_cached_tokens_total", "counter",
              "Tokens of prompts that were read from the cache.", cached_);
  out += line("tenon_generated_tokens_total", "counter", "Tokens that were generated.", made_);
  out += line("tenon_embeddings_total", "counter", "Texts that became embeddings.", embedded_);
  out += line("tenon_requests_running", "gauge", "Requests that are worked on now.", now.running);
  out += line("tenon_requests_waiting", "gauge", "Requests that wait for their turn.", now.waiting);
  out +=
      line("tenon_cache_positions", "gauge", "Positions that the cache has.", now.cache_positions);
  out += line("tenon_cache_positions_used", "gauge", "Positions of the cache that are in use.",
              now.cache_used);
  out += described("tenon_first_token_seconds", "histogram",
                   "Time from a request to its first text.") +
         first_token.text("tenon_first_token_seconds");
  out += described("tenon_between_tokens_seconds", "histogram",
                   "Time from one piece of text to the next.") +
         between_tokens.text("tenon_between_tokens_seconds");
  return out;
}

}  // namespace tenon::llm::serve
