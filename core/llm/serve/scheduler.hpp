// SPDX-License-Identifier: Apache-2.0
// Continuous batching: requests share the steps of one model, and join and leave between steps.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "llm/sample/sampler.hpp"
#include "llm/sample/stop.hpp"
#include "llm/serve/served.hpp"

namespace tenon::llm::serve {

// A model with slots, one sequence each. slots(), context() and cache_tokens() are called by any
// thread, the others by one.
class Sequences {
 public:
  struct Part {
    int64_t slot = 0;
    std::vector<int32_t> tokens;  // at least one
    float scale = 1;              // Sampling::scale()
    bool all = false;             // Sampling::needs_all()
  };
  virtual ~Sequences() = default;
  virtual int64_t slots() const = 0;
  virtual int64_t context() const = 0;  // most tokens of a sequence
  // Appends each part to its slot. Returns the logits behind each part, which are valid until the next
  // call of a function that is not const.
  virtual std::vector<NextLogits> step(std::span<const Part> parts) = 0;
  // Forgets what stands behind the first `length` tokens. False if the model cannot (a recurrent
  // state has no past); the slot is empty then.
  virtual bool truncate(int64_t slot, int64_t length) = 0;
  // Appends tokens of a text to its slot, which is empty at the first call for a text. Returns the
  // text's embedding if these are the last ones, else nothing.
  virtual std::vector<float> embed(const Part& part, bool last) = 0;

  // Embeddings of whole texts, of one or more tokens each, by an empty slot, which is empty then.
  virtual std::vector<std::vector<float>> embed_texts(int64_t slot,
                                                      std::span<const std::vector<int32_t>> texts) {
    std::vector<std::vector<float>> out;
    for (const std::vector<int32_t>& text : texts) {
      out.push_back(embed({slot, text}, true));
      truncate(slot, 0);
    }
    return out;
  }

  // Slots may share memory, and all of them together may need more than there is.

  // Tokens that the memory has room for.
  virtual int64_t cache_tokens() const { return slots() * context(); }
  // Makes a slot hold a beginning of `tokens` that is in memory, but not all of them; its own ones
  // are the first `own`. Returns its length, which may be less than that.
  virtual int64_t reuse(int64_t slot, std::span<const int32_t> tokens, int64_t own) {
    static_cast<void>(tokens);
    return truncate(slot, own) ? own : 0;
  }
  struct Growth {
    int64_t slot = 0, tokens = 0;
  };
  // True if there is room for more tokens of these slots, of all of them together. There always is for
  // one slot up to context(), if the others are empty.
  virtual bool has_room(std::span<const Growth> growths) const {
    static_cast<void>(growths);
    return true;
  }
};

// Draws the tokens of one answer.
class Sampling {
 public:
  virtual ~Sampling() = default;
  // Also remembers the token, for penalties and grammars. Throws tenon::Error if no token is possible.
  virtual DrawnToken draw(const NextLogits& next) = 0;
  // The scale that the candidates for draw() should have.
  virtual float scale() const { return 1; }
  // True if the candidates never suffice for it.
  virtual bool needs_all() const { return false; }
  // True if a grammar allows nothing more.
  virtual bool complete() const { return false; }
};

// Turns the tokens of one answer into complete characters.
class Decoding {
 public:
  virtual ~Decoding() = default;
  virtual std::string push(int32_t token) = 0;
  virtual std::string finish() = 0;  // what is left: bytes that are no character become U+FFFD
};

struct SchedulerParts {
  Sequences& sequences;
  // Throws tenon::Error for what it cannot do (a schema). Both are called by any thread.
  std::function<std::unique_ptr<Sampling>(const Wanted&)> sampling;
  std::function<std::unique_ptr<Decoding>()> decoding;
  std::function<bool(int32_t token)> ends;  // the token ends an answer
};

struct SchedulerLimits {
  int64_t waiting = 64;  // requests without a slot; more are refused with Busy
  int64_t chunk = 256;   // tokens of prompts that a step reads, so that answers go on meanwhile
  unsigned threads = 0;  // that draw the tokens of a step; 0: as many as the processor runs
};

class Scheduler {
 public:
  Scheduler(SchedulerParts parts, SchedulerLimits limits);
  // Ends all answers with an error.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // These may be called by many threads. The answers must be destroyed before the scheduler, or
  // not be used after it.
  std::unique_ptr<Answer> submit(Wanted wanted);
  ServedNumbers numbers() const;
  // Ends all answers with an error of this text, and refuses new ones.
  void stop(const std::string& why);

 private:
  struct Task;
  class Ticket;
  struct Slot {
    std::shared_ptr<Task> task;   // null: free
    std::vector<int32_t> tokens;  // what the sequence holds; kept for the next prompt
    uint64_t used = 0;            // when it was last given away
  };
  struct Reading {
    size_t slot;
    int64_t tokens;
  };

  void loop();
  void admit();
  void forget(Slot& slot);
  bool make_room(const std::vector<Sequences::Growth>& growths);
  bool preempt();
  void drop_cancelled();
  std::vector<Reading> plan_step();
  void run_step();
  void read_texts();
  int64_t read_text(size_t index, int64_t most);
  bool give_room(size_t index, int64_t tokens);
  int64_t read_whole_texts(size_t index, size_t count);
  void send_embedding(Slot& slot, std::vector<float> vector);
  size_t best_slot(const std::vector<int32_t>& prompt) const;
  struct Drawn {
    DrawnToken token;
    std::exception_ptr failure;
  };
  std::vector<Drawn> draw(std::span<const size_t> slots, std::span<const NextLogits* const> next);
  void advance(Slot& slot, Drawn drawn);
  void free_slot(Slot& slot) { slot.task.reset(); }
  void fail(Slot& slot, const std::exception_ptr& why);

  SchedulerParts parts_;
  SchedulerLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;
  std::vector<Slot> slots_;  // tokens: of the thread only
  std::string stopped_;      // why; empty: goes on
  uint64_t admissions_ = 0;
  size_t turn_ = 0;       // the slot whose prompt is read first in the next step
  size_t text_turn_ = 0;  // the same for texts whose embeddings are wanted
  std::thread thread_;
};

}  // namespace tenon::llm::serve
