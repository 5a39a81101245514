// SPDX-License-Identifier: Apache-2.0
// Texts whose embeddings are wanted, between the steps of answers.
#include "llm/serve/scheduler_task.hpp"

namespace tenon::llm::serve {

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

}  // namespace tenon::llm::serve
