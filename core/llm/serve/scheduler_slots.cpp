// SPDX-License-Identifier: Apache-2.0
// Which request has which slot, and who gives way when memory is short.
#include "llm/serve/scheduler_task.hpp"

namespace tenon::llm::serve {

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

// Ends the request that has a slot, if there is one, with an error. With the lock.
void Scheduler::fail(Slot& slot, const std::exception_ptr& why) {
  if (slot.task) std::exchange(slot.task, nullptr)->fail(why);
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

// Takes the slot of the answer or text that has it for the shortest time: it waits, then reads again what
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

}  // namespace tenon::llm::serve
