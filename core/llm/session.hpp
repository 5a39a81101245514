// SPDX-License-Identifier: Apache-2.0
// A model as apps use it: the engine, its text, what its slots have read, and answers in the making.
// The C functions of api are over this.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/embedding.hpp"
#include "llm/engine.hpp"
#include "llm/guided_sampler.hpp"
#include "llm/model_text.hpp"
#include "llm/sample/stop.hpp"

namespace tenon::llm {

// Used by one thread at a time, apart from text(), vocab(), config() and cancel().
class Session {
 public:
  Session(Runtime runtime, const std::string& model, const EngineOptions& options);

  const ModelConfig& config() const { return engine_.config(); }
  int64_t context() const { return engine_.context(); }
  int64_t cache_tokens() const { return engine_.cache_tokens(); }
  int64_t slots() const { return engine_.slots(); }
  int64_t longest_step() const { return engine_.longest_step(); }
  const AnswerVocab& vocab() const { return *vocab_; }
  bool has_text() const { return text_.has_value(); }
  // Throws why, if the model has no tokenizer that can be read.
  const ModelText& text() const;

  std::vector<Engine::Next> step(std::span<const Engine::Piece> pieces, bool want_logits);
  std::vector<float> all_logits(const std::vector<int64_t>& tokens);
  // Vectors [texts, dim]. Uses and clears the slot of the options.
  std::vector<float> embed(std::span<const std::vector<int64_t>> texts, EmbedOptions options);
  int64_t length(int64_t slot) const { return engine_.length(slot); }
  // Returns the length that is left: 0 if the model cannot forget a part.
  int64_t truncate(int64_t slot, int64_t length);
  // As Engine::reuse().
  int64_t reuse(int64_t slot, const std::vector<int64_t>& tokens);
  // Ends calls in progress and generations, at their next step. From any thread.
  void cancel() { ++cancels_; }

 private:
  friend class Generation;
  struct Slot {
    std::vector<int64_t> tokens;  // what the engine has read
    uint64_t version = 0;         // counts changes, so that a generation notices those of others
  };
  Slot& slot(int64_t index) { return slots_[static_cast<size_t>(index)]; }
  using Progress = std::function<bool(int64_t read, int64_t total)>;
  // Keeps account of what `read` reads.
  void run(std::span<const Engine::Piece> pieces, const Progress& progress,
           const std::function<void(const Progress& progress)>& read);
  void after_failure(std::span<const Engine::Piece> pieces);
  void forget(int64_t index) { slot(index).tokens.clear(), ++slot(index).version; }

  Runtime runtime_;
  Engine engine_;
  std::optional<ModelText> text_;
  std::optional<Error> no_text_;
  std::unique_ptr<AnswerVocab> vocab_;
  std::vector<Slot> slots_;
  std::atomic<uint64_t> cancels_{0};
};

struct GenerationOptions {
  int64_t slot = 0;
  int64_t tokens = 0;       // at most so many; 0: as many as the context has room for
  bool ignore_end = false;  // not with json_schema or regex
  SampleOptions sampling{.temperature = 0};  // penalties see the prompt, too
  std::vector<std::string> stop{};
  std::string json_schema{}, regex{};  // of the answer; not both
  std::function<bool(int64_t read, int64_t total)> progress{};
};

// The next piece of an answer.
struct GenerationPiece {
  enum Finish : uint8_t { none, end_token, stop_string, complete, length, context_full, cancelled };
  std::string text;
  int64_t token = -1;
  Finish finish = none;
  float logprob = 0;  // if sampling.top_logprobs asks for it
  std::vector<TokenLogprob> top;
  int64_t stop = -1;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
};

class Generation {
 public:
  // Checks all, reads nothing. What the cache has of the prompt's beginning is not read again.
  Generation(std::shared_ptr<Session> session, std::vector<int64_t> prompt,
             GenerationOptions options);
  // After the last piece, returns it again without text and token.
  const GenerationPiece& next();
  // Ends it at its next step. From any thread.
  void cancel() { cancelled_ = true; }

 private:
  void check_unchanged() const;
  // What is behind tokens: the most likely one if that is the answer's, else the logits.
  struct Behind {
    int64_t token = 0;
    NextLogits logits{};
  };
  Behind read_prompt();
  Behind read(std::span<const int64_t> tokens, bool wanted);
  bool is_cancelled() const { return cancelled_ || session_->cancels_ != cancels_; }
  void add(int64_t token);
  void end(GenerationPiece::Finish finish);

  std::shared_ptr<Session> session_;
  std::vector<int64_t> prompt_;
  GenerationOptions options_;
  GuidedSampler sampler_;
  std::optional<Detokenizer> words_;
  StopStrings stops_;
  bool most_likely_;  // the token of the device is the one
  uint64_t version_ = 0, cancels_ = 0;
  std::atomic<bool> cancelled_{false};
  bool began_ = false, ended_ = false, failed_ = false;
  GenerationPiece piece_;
};

}  // namespace tenon::llm
