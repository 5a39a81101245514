// SPDX-License-Identifier: Apache-2.0
// Opens a model with its text, keeps account of the slots, and makes answers token by token.
#include "llm/session.hpp"

#include <algorithm>
#include <chrono>

#include "llm/grammar/json_schema.hpp"
#include "llm/grammar/regex.hpp"
#include "llm/json_text.hpp"

namespace tenon::llm {
namespace {

std::vector<int32_t> ends_of(const Engine& engine, const ModelText* text) {
  std::vector<int32_t> ends;
  const auto add = [&](const std::vector<int64_t>& more) {
    for (const int64_t t : more)
      if (std::ranges::find(ends, t) == ends.end()) ends.push_back(static_cast<int32_t>(t));
  };
  add(engine.config().end_tokens);
  if (text) add(text->end_ids());
  return ends;
}

bool is_guided(const GenerationOptions& o) { return !o.json_schema.empty() || !o.regex.empty(); }

std::shared_ptr<const Grammar> grammar_of(const Session& session, const GenerationOptions& o) {
  if (!is_guided(o)) return nullptr;
  if (!o.json_schema.empty() && !o.regex.empty())
    throw Error(TENON_INVALID_ARGUMENT, "generate: expected json_schema or regex, got both");
  if (o.ignore_end)
    throw Error(TENON_INVALID_ARGUMENT, std::string("generate: expected ignore_end or ") +
                                            (o.regex.empty() ? "json_schema" : "regex") +
                                            ", got both");
  static_cast<void>(session.text());  // a grammar is about text
  if (!o.regex.empty()) return std::make_shared<const Grammar>(std::vector<Part>{regex(o.regex)});
  return std::make_shared<const Grammar>(json_schema(parse_json(o.json_schema, "json_schema")));
}

}  // namespace

// ---- Session

Session::Session(Runtime runtime, const std::string& model, const EngineOptions& options)
    : runtime_(std::move(runtime)),
      engine_(runtime_, model, options),
      slots_(static_cast<size_t>(engine_.slots())) {
  try {
    text_.emplace(ModelText::read(model));
  } catch (const Error& e) {
    no_text_ = e;
  }
  vocab_ = std::make_unique<AnswerVocab>(text_ ? &text_->tokenizer() : nullptr,
                                         ends_of(engine_, text_ ? &*text_ : nullptr),
                                         engine_.config().vocab);
}

const ModelText& Session::text() const {
  if (!text_) throw Error(*no_text_);
  return *text_;
}

void Session::run(std::span<const Engine::Piece> pieces, const Progress& progress,
                  const std::function<void(const Progress& progress)>& read) {
  bool began = false;  // the engine asks before it reads, and after all its checks
  const auto begins = [&](int64_t done, int64_t total) {
    if (progress && !progress(done, total)) return false;
    began = true;
    return true;
  };
  try {
    read(begins);
    for (const Engine::Piece& p : pieces) {
      Slot& s = slot(p.slot);
      s.tokens.insert(s.tokens.end(), p.tokens.begin(), p.tokens.end());
      ++s.version;
    }
  } catch (...) {
    if (began) after_failure(pieces);
    throw;
  }
}

// Some of the tokens may have been read.
void Session::after_failure(std::span<const Engine::Piece> pieces) {
  for (const Engine::Piece& p : pieces) {
    Slot& s = slot(p.slot);
    const size_t before = s.tokens.size();
    // A recurrent state may be halfway between two tokens.
    if (config().recurrent()) engine_.clear(p.slot);
    const auto read = static_cast<size_t>(engine_.length(p.slot));
    if (read > before)
      s.tokens.insert(s.tokens.end(), p.tokens.begin(),
                      p.tokens.begin() + static_cast<ptrdiff_t>(read - before));
    s.tokens.resize(read);
    if (read != before) ++s.version;
  }
}

std::vector<Engine::Next> Session::step(std::span<const Engine::Piece> pieces, bool want_logits) {
  const uint64_t cancels = cancels_;
  std::vector<Engine::Next> next;
  run(
      pieces, [&](int64_t, int64_t) { return cancels_ == cancels; },
      [&](const Progress& progress) { next = engine_.step(pieces, want_logits, progress); });
  return next;
}

std::vector<float> Session::all_logits(const std::vector<int64_t>& tokens) {
  const uint64_t cancels = cancels_;
  forget(0);
  return engine_.all_logits(tokens, [&](int64_t, int64_t) { return cancels_ == cancels; });
}

std::vector<float> Session::embed(std::span<const std::vector<int64_t>> texts,
                                  EmbedOptions options) {
  engine_.length(options.slot);  // checks the slot
  forget(options.slot);
  options.progress = [cancels = cancels_.load(), other = std::move(options.progress), this](
                         int64_t read, int64_t total) {
    return cancels_ == cancels && (!other || other(read, total));
  };
  return engine_.embed(texts, options);
}

int64_t Session::truncate(int64_t index, int64_t length) {
  const int64_t before = engine_.length(index);
  engine_.truncate(index, length);
  const int64_t left = engine_.length(index);
  slot(index).tokens.resize(static_cast<size_t>(left));
  if (left != before) ++slot(index).version;
  return left;
}

int64_t Session::reuse(int64_t index, const std::vector<int64_t>& tokens) {
  Slot& s = slot(index);
  try {
    engine_.reuse(index, tokens);
  } catch (...) {
    s.tokens.resize(std::min(s.tokens.size(), static_cast<size_t>(engine_.length(index))));
    ++s.version;
    throw;
  }
  const int64_t kept = engine_.length(index);
  s.tokens.assign(tokens.begin(), tokens.begin() + kept);
  ++s.version;
  return kept;
}

// ---- Generation

Generation::Generation(std::shared_ptr<Session> session, std::vector<int64_t> prompt,
                       GenerationOptions options)
    : session_(std::move(session)),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      sampler_(options_.sampling, session_->vocab(), grammar_of(*session_, options_)),
      stops_(options_.stop),
      most_likely_(takes_most_likely(options_.sampling) && !is_guided(options_)),
      cancels_(session_->cancels_) {
  Session& s = *session_;
  if (s.has_text()) words_.emplace(s.text().tokenizer());
  if (!options_.stop.empty()) static_cast<void>(s.text());
  s.length(options_.slot);  // checks the slot
  const auto size = static_cast<int64_t>(prompt_.size());
  if (size < 1 || size > s.context())
    throw Error(TENON_INVALID_ARGUMENT, "generate: expected a prompt of 1 to " +
                                            std::to_string(s.context()) +
                                            " tokens, the context, got " + std::to_string(size));
  if (options_.tokens < 0)
    throw Error(TENON_INVALID_ARGUMENT, "generate: expected max_tokens of at least 0, got " +
                                            std::to_string(options_.tokens));
  for (const int64_t token : prompt_)
    if (token < 0 || token >= s.config().vocab)
      throw Error(TENON_INVALID_ARGUMENT, "generate: expected token ids from 0 to " +
                                              std::to_string(s.config().vocab - 1) + ", got " +
                                              std::to_string(token));
  for (const int64_t token : prompt_) sampler_.accept_prompt(token);
  piece_.prompt_tokens = size;
  version_ = ++s.slot(options_.slot).version;
}

void Generation::check_unchanged() const {
  if (failed_)
    throw Error(TENON_INVALID_ARGUMENT, "generation: it has failed before; expected a new one");
  if (session_->slot(options_.slot).version != version_)
    throw Error(TENON_INVALID_ARGUMENT, "generation: slot " + std::to_string(options_.slot) +
                                            " was changed by another call; expected a slot for "
                                            "each generation. hint: open with more slots");
}

Generation::Behind Generation::read(std::span<const int64_t> tokens, bool wanted) {
  const Engine::Piece piece{options_.slot, {tokens.begin(), tokens.end()}, sampler_.scale()};
  Engine& engine = session_->engine_;
  Behind next;
  session_->run({&piece, 1}, {}, [&](const Session::Progress& progress) {
    if (wanted && !most_likely_)
      next.logits = std::move(engine.next_logits({&piece, 1}, progress)[0]);
    else
      next.token = engine.step({&piece, 1}, false, progress)[0].token;
  });
  version_ = session_->slot(options_.slot).version;
  return next;
}

// Reads what the slot has not read yet, in pieces that take less than half a second, so that whoever
// wants to stop it need not wait for long. Ends the generation if it is stopped.
Generation::Behind Generation::read_prompt() {
  constexpr int64_t kSmall = 128, kGrowth = 4;
  Session& s = *session_;
  const auto total = static_cast<int64_t>(prompt_.size());
  // The last token is read in any case: its logits are wanted.
  int64_t at = s.reuse(options_.slot, prompt_);
  version_ = s.slot(options_.slot).version;
  piece_.cached_tokens = at;
  Behind next;
  for (int64_t size = kSmall; at < total;) {
    if (is_cancelled() || (options_.progress && !options_.progress(at, total))) {
      end(GenerationPiece::cancelled);
      return next;
    }
    const int64_t count = std::min(size, total - at);
    const auto start = std::chrono::steady_clock::now();
    next = read(std::span(prompt_).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                at + count == total);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double fast_enough = 0.5 * static_cast<double>(count) / took.count();  // tokens
    for (size = kSmall;
         size * kGrowth <= s.longest_step() && static_cast<double>(size * kGrowth) < fast_enough;)
      size *= kGrowth;
    at += count;
  }
  return next;
}

const GenerationPiece& Generation::next() {
  piece_.text.clear();
  piece_.token = -1, piece_.logprob = 0, piece_.top.clear();
  if (ended_) return piece_;
  check_unchanged();
  try {
    if (is_cancelled()) {
      end(GenerationPiece::cancelled);
      return piece_;
    }
    Behind next;
    if (!began_) {
      next = read_prompt();
      if (ended_) return piece_;
      began_ = true;
    } else {
      next = read({&prompt_.back(), 1}, true);
    }
    if (most_likely_) {
      add(next.token);
    } else {
      Sampled drawn = sampler_.draw(next.logits);
      piece_.logprob = options_.sampling.top_logprobs >= 0 ? drawn.logprob : 0;
      piece_.top = std::move(drawn.top);
      add(drawn.token);
    }
    return piece_;
  } catch (...) {
    failed_ = true;
    throw;
  }
}

// A new token of the answer, which becomes the last one of the prompt.
void Generation::add(int64_t token) {
  Session& s = *session_;
  prompt_.push_back(token);
  piece_.token = token;
  ++piece_.tokens;
  if (s.vocab().ends(token) && !options_.ignore_end) return end(GenerationPiece::end_token);
  if (s.vocab().has_text(token))
    piece_.text = stops_.push(words_->push(static_cast<TokenId>(token)));
  if (stops_.stopped()) {
    piece_.stop = stops_.found();
    return end(GenerationPiece::stop_string);
  }
  if (sampler_.complete()) return end(GenerationPiece::complete);
  if (piece_.tokens == options_.tokens) return end(GenerationPiece::length);
  if (s.length(options_.slot) >= s.context()) return end(GenerationPiece::context_full);
}

void Generation::end(GenerationPiece::Finish finish) {
  ended_ = true;
  piece_.finish = finish;
  if (!words_ || stops_.stopped()) return;
  piece_.text += stops_.push(words_->flush());
  if (stops_.stopped()) {
    piece_.finish = GenerationPiece::stop_string;
    piece_.stop = stops_.found();
  } else {
    piece_.text += stops_.finish();
  }
}

}  // namespace tenon::llm
