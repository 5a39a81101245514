// SPDX-License-Identifier: Apache-2.0
// Answers of language models in C++, token by token, and tokens as text. Part of llm.hpp.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon.hpp"
#include "tenon_llm.h"

namespace tenon::llm {

using Tokens = std::vector<int32_t>;

// tenon_llm_generate_options.
struct GenerateOptions {
  int64_t slot = 0;
  int64_t max_tokens = 0;  // 0: as many as the context has room for
  double temperature = 0;  // 0: always the most likely token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  int64_t penalty_window = 0;  // penalties see so many of the latest tokens; 0: all
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias{};
  std::vector<std::string> stop{};
  std::string json_schema{}, regex{};  // of the answer; not both
  bool ignore_end = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;  // so many of the most likely tokens in each piece
  // Called while the prompt is read. Returns false to stop. What it throws leaves generate() or
  // next().
  std::function<bool(uint64_t read, uint64_t total)> progress{};
};

enum class Finish : uint32_t {
  running = TENON_LLM_RUNNING,
  end_token = TENON_LLM_END_TOKEN,
  stop_string = TENON_LLM_STOP_STRING,
  complete = TENON_LLM_COMPLETE,
  max_tokens = TENON_LLM_MAX_TOKENS,
  context_full = TENON_LLM_CONTEXT_FULL,
  cancelled = TENON_LLM_CANCELLED
};

// tenon_llm_piece. The text and the top tokens live until the next call with the generation.
struct Piece {
  std::string_view text{};
  int32_t token = -1;  // -1: none
  Finish finish = Finish::running;
  float logprob = 0;
  uint32_t stop = TENON_NONE;  // which of the stop strings was met
  uint64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  // The most likely tokens and their log probabilities, in descending order.
  std::span<const int32_t> top_tokens{};
  std::span<const float> top_logprobs{};
};

// A whole answer.
struct Answer {
  std::string text{};
  Tokens tokens{};
  Finish finish = Finish::running;
};

// The continuation of a prompt, token by token: see tenon_llm_generation_next(). Keeps the model.
class Generation {
 public:
  Piece next() {
    tenon_llm_piece p{};
    p.struct_size = sizeof p;
    tenon_status* status = tenon_llm_generation_next(handle_.get(), &p);
    if (progress_ && progress_->thrown) {
      tenon_status_release(status);
      std::rethrow_exception(std::exchange(progress_->thrown, nullptr));
    }
    detail::check(status);
    return {{p.text.data, p.text.size},
            p.token,
            static_cast<Finish>(p.finish),
            p.logprob,
            p.stop,
            p.prompt_tokens,
            p.cached_tokens,
            p.tokens,
            {p.top_tokens, p.top_count},
            {p.top_logprobs, p.top_count}};
  }
  // Ends it at its next token; from any thread: see tenon_llm_generation_cancel().
  void cancel() { tenon_llm_generation_cancel(handle_.get()); }
  tenon_llm_generation* handle() const { return handle_.get(); }

 private:
  friend class Engine;
  struct Progress {
    std::function<bool(uint64_t, uint64_t)> call;
    std::exception_ptr thrown;  // no exception crosses the library
  };
  static uint32_t on_progress(void* user, uint64_t read, uint64_t total) noexcept {
    auto& p = *static_cast<Progress*>(user);
    try {
      return p.call(read, total) ? 0 : 1;
    } catch (...) {
      p.thrown = std::current_exception();
      return 1;
    }
  }
  Generation(tenon_llm* llm, std::span<const int32_t> prompt, const GenerateOptions& options) {
    std::vector<tenon_str> stops;
    for (const std::string& s : options.stop) stops.push_back(detail::str(s));
    Tokens bias_tokens;
    std::vector<float> biases;
    for (const auto& [token, bias] : options.logit_bias)
      bias_tokens.push_back(token), biases.push_back(bias);
    tenon_llm_generate_options o{};
    o.struct_size = sizeof o;
    o.slot = options.slot;
    o.max_tokens = options.max_tokens;
    o.flags = (options.ignore_end ? TENON_LLM_IGNORE_END : 0) |
              (options.logprobs ? TENON_LLM_LOGPROBS : 0);
    o.stops = stops.data();
    o.stop_count = static_cast<uint32_t>(stops.size());
    o.json_schema = detail::str(options.json_schema);
    o.regex = detail::str(options.regex);
    o.logit_bias_tokens = bias_tokens.data();
    o.logit_biases = biases.data();
    o.logit_bias_count = biases.size();
    o.penalty_window = options.penalty_window;
    o.repetition_penalty = options.repetition_penalty;
    o.presence_penalty = options.presence_penalty;
    o.frequency_penalty = options.frequency_penalty;
    o.top_k = options.top_k;
    o.top_p = options.top_p;
    o.min_p = options.min_p;
    o.temperature = options.temperature;
    o.seed = options.seed;
    o.top_logprobs = options.top_logprobs;
    if (options.progress) {
      progress_ = std::make_unique<Progress>(Progress{options.progress, nullptr});
      o.progress = on_progress;
      o.progress_user = progress_.get();
    }
    tenon_llm_generation* handle = nullptr;
    detail::check(tenon_llm_generate(llm, prompt.data(), prompt.size(), &o, &handle));
    handle_.reset(handle);
  }

  std::unique_ptr<Progress> progress_;
  detail::Handle<tenon_llm_generation, tenon_llm_generation_destroy> handle_;
};

// Tokens to text, one by one, in complete characters. Keeps the model.
class Decoder {
 public:
  // The text lives until the next call.
  std::string_view push(int32_t token) {
    tenon_str text{};
    detail::check(tenon_llm_decoder_push(handle_.get(), token, &text));
    return {text.data, text.size};
  }
  // What is left at the end. The decoder is as new then.
  std::string_view finish() {
    tenon_str text{};
    detail::check(tenon_llm_decoder_finish(handle_.get(), &text));
    return {text.data, text.size};
  }

 private:
  friend class Engine;
  Decoder(const tenon_llm* llm, bool skip_special) {
    tenon_llm_decoder* handle = nullptr;
    detail::check(
        tenon_llm_decoder_create(llm, skip_special ? TENON_LLM_SKIP_SPECIAL : 0, &handle));
    handle_.reset(handle);
  }
  detail::Handle<tenon_llm_decoder, tenon_llm_decoder_destroy> handle_;
};

}  // namespace tenon::llm
