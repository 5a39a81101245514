// SPDX-License-Identifier: Apache-2.0
// One thread runs the steps; requests and answers cross to it under a mutex.
#include "llm/serve/scheduler.hpp"

#include <algorithm>
#include <atomic>
#include <exception>

#include "tenon/tenon.hpp"

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

class Scheduler::Ticket final : public Answer {
 public:
  Ticket(std::shared_ptr<Task> task, Scheduler& scheduler)
      : task_(std::move(task)), scheduler_(scheduler) {}
  ~Ticket() override {
    if (ended_) return;
    task_->cancelled = true;
    // The thread may sleep: it wakes up to give the slot or the place in the queue to others.
    const std::lock_guard lock(scheduler_.mutex_);
    scheduler_.changed_.notify_one();
  }
  std::optional<Piece> next(std::chrono::milliseconds wait) override {
    std::unique_lock lock(task_->mutex);
    task_->arrived.wait_for(lock, wait, [&] { return !task_->pieces.empty() || task_->failure; });
    if (!task_->pieces.empty()) {
      Piece p = std::move(task_->pieces.front());
      task_->pieces.pop_front();
      ended_ = p.finish != Finish::none;
      return p;
    }
    if (task_->failure) {
      ended_ = true;
      std::rethrow_exception(task_->failure);
    }
    return {};
  }

 private:
  std::shared_ptr<Task> task_;
  Scheduler& scheduler_;
  bool ended_ = false;
};

Scheduler::Scheduler(SchedulerParts parts, SchedulerLimits limits)
    : parts_(std::move(parts)),
      limits_(limits),
      slots_(static_cast<size_t>(parts_.sequences.slots())),
      thread_([this] { loop(); }) {}

Scheduler::~Scheduler() {
  stop("the model is being closed");
  thread_.join();
}

namespace {

void check_texts(const Wanted& wanted, int64_t context) {
  for (size_t i = 0; i < wanted.texts.size(); ++i) {
    const size_t size = wanted.texts[i].size();
    const std::string has =
        "input " + std::to_string(i) + " has " + std::to_string(size) + " tokens; expected 1 to ";
    if (size < 1) throw Error(TENON_INVALID_ARGUMENT, has + std::to_string(context));
    if (size > static_cast<size_t>(context))
      throw TooLong(has + std::to_string(context) + ", the context");
  }
}

void check_prompt(Wanted& wanted, int64_t context) {
  const auto size = static_cast<int64_t>(wanted.prompt.size());
  if (size == 0) throw Error(TENON_INVALID_ARGUMENT, "the prompt has no tokens");
  if (size >= context)
    throw TooLong("the prompt has " + std::to_string(size) +
                  " tokens, but the context has room for " + std::to_string(context) +
                  " with the answer");
  if (wanted.tokens < 0 || wanted.tokens > context - size) wanted.tokens = context - size;
}

}  // namespace

std::unique_ptr<Answer> Scheduler::submit(Wanted wanted) {
  const bool embeds = !wanted.texts.empty();
  if (embeds)
    check_texts(wanted, parts_.sequences.context());
  else
    check_prompt(wanted, parts_.sequences.context());
  auto sampling = embeds ? nullptr : parts_.sampling(wanted);
  auto task = std::make_shared<Task>(std::move(wanted), std::move(sampling), parts_.decoding());
  const std::lock_guard lock(mutex_);
  if (!stopped_.empty()) throw Error(TENON_CANCELLED, stopped_);
  const auto free =
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.task == nullptr; });
  if (static_cast<int64_t>(waiting_.size()) >= limits_.waiting + free)
    throw Busy("all " + std::to_string(slots_.size()) + " slots are taken and " +
               std::to_string(waiting_.size()) + " requests wait");
  waiting_.push_back(task);
  changed_.notify_one();
  return std::make_unique<Ticket>(std::move(task), *this);
}

ServedNumbers Scheduler::numbers() const {
  const std::lock_guard lock(mutex_);
  ServedNumbers n;
  n.waiting = static_cast<int64_t>(waiting_.size());
  n.cache_positions = parts_.sequences.cache_tokens();
  for (const Slot& s : slots_) {
    if (!s.task) continue;
    ++n.running;
    n.cache_used += s.task->read;
  }
  n.cache_used = std::min(n.cache_used, n.cache_positions);  // slots may share some
  return n;
}

void Scheduler::stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (stopped_.empty()) stopped_ = why;
  changed_.notify_one();
}

void Scheduler::loop() {
  const auto busy = [this] {
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const Slot& s) { return s.task != nullptr; });
  };
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !stopped_.empty() || !waiting_.empty() || busy(); });
      if (!stopped_.empty()) {
        const auto why = std::make_exception_ptr(Error(TENON_CANCELLED, stopped_));
        for (Slot& s : slots_)
          if (s.task) std::exchange(s.task, nullptr)->fail(why);
        for (const auto& t : waiting_) t->fail(why);
        waiting_.clear();
        return;
      }
      drop_cancelled();
      admit();
    }
    if (!busy()) continue;
    try {
      run_step();
      read_texts();
    } catch (...) {  // no memory: what the sequences hold is not known any more
      const std::lock_guard lock(mutex_);
      for (Slot& s : slots_) {
        forget(s);
        if (s.task) std::exchange(s.task, nullptr)->fail(std::current_exception());
      }
    }
  }
}

void Scheduler::drop_cancelled() {
  for (Slot& s : slots_)
    if (s.task && s.task->cancelled) free_slot(s);
  std::erase_if(waiting_, [](const auto& t) { return t->cancelled.load(); });
}

// The free slot whose sequence shares most with the prompt; of equal ones the one that nobody has
// used for longest. slots_.size() if none is free.
size_t Scheduler::best_slot(const std::vector<int32_t>& prompt) const {
  size_t best = slots_.size();
  int64_t most = -1;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].task) continue;
    const auto& have = slots_[i].tokens;
    const auto split = std::mismatch(have.begin(), have.end(), prompt.begin(), prompt.end()).first;
    int64_t shared = split - have.begin();
    // All chats begin with the template's words. Taking a slot for these alone would throw away what
    // another conversation comes back to.
    if (2 * shared < static_cast<int64_t>(std::min(have.size(), prompt.size()))) shared = 0;
    if (shared > most || (shared == most && slots_[i].used < slots_[best].used)) {
      most = shared;
      best = i;
    }
  }
  return best;
}

// Empties a slot whose sequence is not known any more.
void Scheduler::forget(Slot& slot) {
  slot.tokens.clear();
  try {
    parts_.sequences.truncate(&slot - slots_.data(), 0);
  } catch (...) {  // what made it unknown is told
  }
}

// Gives up the sequences of free slots, the oldest one first, until there is room. False if there is
// not enough without those in use.
bool Scheduler::make_room(const std::vector<Sequences::Growth>& growths) {
  while (!parts_.sequences.has_room(growths)) {
    Slot* oldest = nullptr;
    for (Slot& s : slots_)
      if (!s.task && !s.tokens.empty() && (!oldest || s.used < oldest->used)) oldest = &s;
    if (!oldest) return false;
    parts_.sequences.truncate(oldest - slots_.data(), 0);
    oldest->tokens.clear();
  }
  return true;
}

// Takes the slot of the answer that has it for the shortest time: it waits, and then reads again what
// is not in the cache any more. False if only one answer has a slot.
bool Scheduler::preempt() {
  Slot* youngest = nullptr;
  int64_t running = 0;
  for (Slot& s : slots_) {
    if (!s.task) continue;
    ++running;
    if (!youngest || s.used > youngest->used) youngest = &s;
  }
  if (running < 2) return false;
  parts_.sequences.truncate(youngest - slots_.data(), 0);
  youngest->tokens.clear();
  const std::lock_guard lock(mutex_);
  youngest->task->read = 0;
  waiting_.push_front(std::exchange(youngest->task, nullptr));
  return true;
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    const std::shared_ptr<Task> task = waiting_.front();
    const auto& tokens = task->tokens;
    const size_t i = best_slot(tokens);
    if (i == slots_.size()) return;
    Slot& slot = slots_[i];
    const auto split =
        std::mismatch(slot.tokens.begin(), slot.tokens.end(), tokens.begin(), tokens.end());
    // The last token is always read: its logits are what the answer begins with.
    const int64_t own = std::min<int64_t>(split.first - slot.tokens.begin(),
                                          static_cast<int64_t>(tokens.size()) - 1);
    int64_t keep = 0;
    try {
      if (task->embeds())
        parts_.sequences.truncate(static_cast<int64_t>(i), 0);
      else
        keep = parts_.sequences.reuse(static_cast<int64_t>(i), tokens, own);
    } catch (...) {
      slot.tokens.clear();
      waiting_.pop_front();
      task->fail(std::current_exception());
      continue;
    }
    slot.tokens.assign(tokens.begin(), tokens.begin() + keep);
    slot.task = task;  // so that make_room() leaves it
    slot.used = ++admissions_;
    task->read = keep;
    // Room for its first tokens, and for some of the answers that have a slot: else they would soon
    // take it back.
    constexpr int64_t kAhead = 64;
    std::vector<Sequences::Growth> growths;
    for (size_t k = 0; k < slots_.size(); ++k)
      if (slots_[k].task)
        growths.push_back(
            {static_cast<int64_t>(k), slots_[k].task->unread() + (k == i ? 1 : kAhead)});
    if (growths.size() > 1 && !make_room(growths)) {
      slot.task = nullptr;
      task->read = 0;
      return;
    }
    waiting_.pop_front();
    if (task->cached < 0) task->cached = keep;
  }
}

// Which slots the next step reads, and how many tokens of each.
std::vector<Scheduler::Reading> Scheduler::plan_step() {
  std::vector<Reading> plan;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].task && slots_[i].task->goes_on()) plan.push_back({i, 1});
  // Prompts take turns: a long one must not keep a short one from its answer.
  int64_t left = limits_.chunk;
  const size_t first = turn_;
  for (size_t k = 0; k < slots_.size() && left > 0; ++k) {
    const size_t i = (first + k) % slots_.size();
    const auto& task = slots_[i].task;
    if (!task || task->goes_on() || task->embeds()) continue;
    const int64_t n = std::min(left, task->unread());
    plan.push_back({i, n});
    left -= n;
    turn_ = (i + 1) % slots_.size();
  }
  return plan;
}

void Scheduler::run_step() {
  std::vector<Reading> plan;
  for (bool fits = false; !fits;) {
    const size_t turn = turn_;
    plan = plan_step();
    std::vector<Sequences::Growth> growths;
    for (const Reading& r : plan) growths.push_back({static_cast<int64_t>(r.slot), r.tokens});
    fits = make_room(growths) || !preempt();
    if (!fits) turn_ = turn;
  }
  if (plan.empty()) return;
  std::vector<Sequences::Part> parts;
  for (const Reading& r : plan) {
    const Task& task = *slots_[r.slot].task;
    const auto begin = task.tokens.begin() + task.read;
    parts.push_back({static_cast<int64_t>(r.slot), {begin, begin + r.tokens}});
  }
  std::vector<std::vector<float>> logits;
  try {
    logits = parts_.sequences.step(parts);
  } catch (...) {
    // What the sequences hold now is unknown.
    const std::lock_guard lock(mutex_);
    for (const Reading& r : plan) {
      forget(slots_[r.slot]);
      std::exchange(slots_[r.slot].task, nullptr)->fail(std::current_exception());
    }
    return;
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    Slot& slot = slots_[plan[p].slot];
    slot.tokens.insert(slot.tokens.end(), parts[p].tokens.begin(), parts[p].tokens.end());
    Task& task = *slot.task;
    {
      const std::lock_guard lock(mutex_);  // numbers() reads it
      task.read += plan[p].tokens;
    }
    if (task.unread() == 0) advance(slot, logits[p]);
  }
}

// Texts take turns as prompts do.
void Scheduler::read_texts() {
  int64_t left = limits_.chunk;
  for (size_t k = 0; k < slots_.size() && left > 0; ++k) {
    const size_t i = (text_turn_ + k) % slots_.size();
    while (left > 0 && slots_[i].task && slots_[i].task->embeds()) left -= read_text(i, left);
  }
  text_turn_ = (text_turn_ + 1) % slots_.size();
}

// Reads a part of a slot's text, and sends the embedding if it is the last one. Returns its tokens.
int64_t Scheduler::read_text(size_t index, int64_t most) {
  Slot& slot = slots_[index];
  Task& task = *slot.task;
  const auto id = static_cast<int64_t>(index);
  const std::vector<int32_t>& text = task.wanted.texts[task.text];
  const auto size = static_cast<int64_t>(text.size());
  const int64_t n = std::min(most, size - task.read);
  const bool last = task.read + n == size;
  while (!make_room({{id, n}})) {
    if (!preempt()) {
      forget(slot);
      const std::lock_guard lock(mutex_);
      std::exchange(slot.task, nullptr)
          ->fail(std::make_exception_ptr(
              Error(TENON_OUT_OF_MEMORY,
                    "the cache has no room for a text of " + std::to_string(size) + " tokens")));
      return most;
    }
    if (!slot.task) return most;  // this one was the youngest
  }
  std::vector<float> vector;
  try {
    const auto from = text.begin() + task.read;
    vector = parts_.sequences.embed({id, {from, from + n}}, last);
    slot.tokens.insert(slot.tokens.end(), from, from + n);
    if (last) parts_.sequences.truncate(id, 0), slot.tokens.clear();
  } catch (...) {
    forget(slot);
    const std::lock_guard lock(mutex_);
    std::exchange(slot.task, nullptr)->fail(std::current_exception());
    return n;
  }
  {
    const std::lock_guard lock(mutex_);
    task.read = last ? 0 : task.read + n;
  }
  if (!last) return n;
  task.texts_read += size;
  const bool all = ++task.text == task.wanted.texts.size();
  task.send("", all ? Finish::stop : Finish::none, std::move(vector));
  if (all) {
    const std::lock_guard lock(mutex_);
    free_slot(slot);
  }
  return n;
}

// Draws the next token of a slot and sends its text.
void Scheduler::advance(Slot& slot, std::vector<float>& logits) {
  Task& task = *slot.task;
  Finish finish = Finish::none;
  std::string text;
  try {
    DrawnToken drawn = task.sampling->draw(logits);
    const int32_t token = drawn.drawn.token;
    task.tokens.push_back(token);
    {
      const std::lock_guard lock(mutex_);
      ++task.made;
    }
    const bool end = !task.wanted.ignore_end && parts_.ends(token);
    if (!end) {
      if (task.wanted.logprobs >= 0) task.unsent.push_back(std::move(drawn));
      text = task.stop.push(task.decoding->push(token));
    }
    if (end || task.stop.stopped() || task.sampling->complete())
      finish = Finish::stop;
    else if (task.made >= task.wanted.tokens)
      finish = Finish::length;
    if (finish != Finish::none && !task.stop.stopped()) {
      text += task.stop.push(task.decoding->finish());
      if (!task.stop.stopped()) text += task.stop.finish();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    std::exchange(slot.task, nullptr)->fail(std::current_exception());
    return;
  }
  if (!text.empty() || finish != Finish::none) task.send(std::move(text), finish);
  if (finish == Finish::none) return;
  const std::lock_guard lock(mutex_);
  free_slot(slot);
}

}  // namespace tenon::llm::serve
