// SPDX-License-Identifier: Apache-2.0
// A request in the scheduler: what it reads and makes, and what it has to send.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <utility>

#include "llm/serve/scheduler.hpp"

namespace tenon::llm::serve {

// A request, from submit() to its last piece.
struct Scheduler::Task {
  Task(Wanted w, std::unique_ptr<Sampling> s, std::unique_ptr<Decoding> d)
      : wanted(std::move(w)),
        sampling(std::move(s)),
        decoding(std::move(d)),
        stop(wanted.stop),
        tokens(wanted.prompt) {}

  Wanted wanted;

  // Of the scheduler's thread.
  std::unique_ptr<Sampling> sampling;
  std::unique_ptr<Decoding> decoding;
  StopStrings stop;
  std::vector<int32_t> tokens;  // the prompt and the answer so far
  int64_t cached = -1;          // tokens of the prompt that were in the cache; -1: had no slot yet
  int64_t read = 0;             // of the tokens, cached ones among them
  int64_t made = 0;
  size_t text = 0;                 // of the texts, the one that is being read
  int64_t texts_read = 0;          // tokens of those before it
  std::vector<DrawnToken> unsent;  // logprobs of tokens whose text is not complete yet

  // Of both sides.
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Piece> pieces;
  std::exception_ptr failure;

  bool embeds() const { return !wanted.texts.empty(); }
  int64_t unread() const {
    return static_cast<int64_t>(embeds() ? wanted.texts[text].size() : tokens.size()) - read;
  }
  bool goes_on() const { return made > 0 && unread() == 1; }  // by the token that it drew last
  void send(std::string text, Finish finish, std::vector<float> embedding = {}) {
    Piece p;
    p.text = std::move(text);
    p.embedding = std::move(embedding);
    p.tokens = std::exchange(unsent, {});
    p.finish = finish;
    p.prompt_tokens = embeds() ? texts_read : static_cast<int64_t>(wanted.prompt.size());
    p.cached_tokens = std::max<int64_t>(cached, 0);
    p.tokens_made = made;
    const std::lock_guard lock(mutex);
    pieces.push_back(std::move(p));
    arrived.notify_one();
  }
  void fail(std::exception_ptr e) {
    const std::lock_guard lock(mutex);
    failure = std::move(e);
    arrived.notify_one();
  }
};

}  // namespace tenon::llm::serve
