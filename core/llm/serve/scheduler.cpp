// SPDX-License-Identifier: Apache-2.0
// One thread runs the steps; requests and answers cross to it under a mutex.
#include <algorithm>

#include "llm/serve/scheduler_task.hpp"
#include "llm/threads.hpp"

namespace tenon::llm::serve {

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
        for (Slot& s : slots_) fail(s, why);
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
        fail(s, std::current_exception());
      }
    }
  }
}

void Scheduler::drop_cancelled() {
  for (Slot& s : slots_)
    if (s.task && s.task->cancelled) free_slot(s);
  std::erase_if(waiting_, [](const auto& t) { return t->cancelled.load(); });
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
    parts.push_back({static_cast<int64_t>(r.slot),
                     {begin, begin + r.tokens},
                     task.sampling->scale(),
                     task.sampling->needs_all()});
  }
  std::vector<NextLogits> next;
  try {
    next = parts_.sequences.step(parts);
  } catch (...) {
    // What the sequences hold now is unknown.
    const std::lock_guard lock(mutex_);
    for (const Reading& r : plan) {
      forget(slots_[r.slot]);
      fail(slots_[r.slot], std::current_exception());
    }
    return;
  }
  std::vector<size_t> ready;  // slots whose next token is drawn now
  std::vector<const NextLogits*> behind;
  for (size_t p = 0; p < parts.size(); ++p) {
    Slot& slot = slots_[plan[p].slot];
    slot.tokens.insert(slot.tokens.end(), parts[p].tokens.begin(), parts[p].tokens.end());
    Task& task = *slot.task;
    {
      const std::lock_guard lock(mutex_);  // numbers() reads it
      task.read += plan[p].tokens;
    }
    if (task.unread() == 0) ready.push_back(plan[p].slot), behind.push_back(&next[p]);
  }
  std::vector<Drawn> drawn = draw(ready, behind);
  for (size_t i = 0; i < ready.size(); ++i) advance(slots_[ready[i]], std::move(drawn[i]));
}

std::vector<Scheduler::Drawn> Scheduler::draw(std::span<const size_t> slots,
                                              std::span<const NextLogits* const> next) {
  std::vector<Drawn> drawn(slots.size());
  // A draw from candidates takes less time than a thread to start, and one from all logits more.
  const bool alone =
      std::ranges::any_of(next, [](const NextLogits* n) { return n->candidates.has_value(); });
  const size_t threads =
      limits_.threads > 0 ? limits_.threads : std::thread::hardware_concurrency();
  in_threads(slots.size(),
             static_cast<unsigned>(alone ? 1 : std::min(threads, (slots.size() + 1) / 2)),
             [&](size_t i) {
               try {
                 drawn[i].token = slots_[slots[i]].task->sampling->draw(*next[i]);
               } catch (...) {
                 drawn[i].failure = std::current_exception();
               }
             });
  return drawn;
}

// Takes the next token of a slot and sends its text.
void Scheduler::advance(Slot& slot, Drawn next) {
  Task& task = *slot.task;
  Finish finish = Finish::none;
  std::string text;
  try {
    if (next.failure) std::rethrow_exception(next.failure);
    const int32_t token = next.token.drawn.token;
    task.tokens.push_back(token);
    {
      const std::lock_guard lock(mutex_);
      ++task.made;
    }
    const bool end = !task.wanted.ignore_end && parts_.ends(token);
    if (!end) {
      if (task.wanted.logprobs >= 0) task.unsent.push_back(std::move(next.token));
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
    fail(slot, std::current_exception());
    return;
  }
  if (!text.empty() || finish != Finish::none) task.send(std::move(text), finish);
  if (finish == Finish::none) return;
  const std::lock_guard lock(mutex_);
  free_slot(slot);
}

}  // namespace tenon::llm::serve
