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

// Makes room for tokens of a text. False if its request has no slot any more.
bool Scheduler::give_room(size_t index, int64_t tokens) {
  Slot& slot = slots_[index];
  while (!make_room({{static_cast<int64_t>(index), tokens}})) {
    if (!preempt()) {
      forget(slot);
      const std::lock_guard lock(mutex_);
      fail(slot, std::make_exception_ptr(Error(
                     TENON_OUT_OF_MEMORY,
                     "the cache has no room for " + std::to_string(tokens) + " tokens of a text")));
      return false;
    }
    if (!slot.task) return false;  // this one was the youngest
  }
  return true;
}

// Reads whole texts of a slot that fit into `most` tokens, or a part of one. Returns their tokens.
int64_t Scheduler::read_text(size_t index, int64_t most) {
  Slot& slot = slots_[index];
  Task& task = *slot.task;
  const auto id = static_cast<int64_t>(index);
  if (task.read == 0) {
    size_t count = 0;
    for (int64_t sum = 0; task.text + count < task.wanted.texts.size(); ++count) {
      sum += static_cast<int64_t>(task.wanted.texts[task.text + count].size());
      if (sum > most) break;
    }
    if (count > 1) return read_whole_texts(index, count);
  }
  const std::vector<int32_t>& text = task.wanted.texts[task.text];
  const auto size = static_cast<int64_t>(text.size());
  // At the next turn it is read as a whole.
  if (task.read == 0 && size > most && size <= limits_.chunk) return most;
  const int64_t n = std::min(most, size - task.read);
  const bool last = task.read + n == size;
  if (!give_room(index, n)) return most;
  std::vector<float> vector;
  try {
    const auto from = text.begin() + task.read;
    vector = parts_.sequences.embed({id, {from, from + n}}, last);
    slot.tokens.insert(slot.tokens.end(), from, from + n);
    if (last) parts_.sequences.truncate(id, 0), slot.tokens.clear();
  } catch (...) {
    forget(slot);
    const std::lock_guard lock(mutex_);
    fail(slot, std::current_exception());
    return n;
  }
  {
    const std::lock_guard lock(mutex_);
    task.read = last ? 0 : task.read + n;
  }
  if (last) send_embedding(slot, std::move(vector));
  return n;
}

int64_t Scheduler::read_whole_texts(size_t index, size_t count) {
  Slot& slot = slots_[index];
  Task& task = *slot.task;
  const auto texts = std::span(task.wanted.texts).subspan(task.text, count);
  int64_t all = 0, longest = 0;
  for (const std::vector<int32_t>& t : texts) {
    all += static_cast<int64_t>(t.size());
    longest = std::max(longest, static_cast<int64_t>(t.size()));
  }
  // With more room, more of them are read together.
  if (!give_room(index, longest)) return all;
  std::vector<std::vector<float>> vectors;
  try {
    vectors = parts_.sequences.embed_texts(static_cast<int64_t>(index), texts);
  } catch (...) {
    forget(slot);
    const std::lock_guard lock(mutex_);
    fail(slot, std::current_exception());
    return all;
  }
  for (std::vector<float>& v : vectors) send_embedding(slot, std::move(v));
  return all;
}

void Scheduler::send_embedding(Slot& slot, std::vector<float> vector) {
  Task& task = *slot.task;
  task.texts_read += static_cast<int64_t>(task.wanted.texts[task.text].size());
  const bool all = ++task.text == task.wanted.texts.size();
  task.send("", all ? Finish::stop : Finish::none, std::move(vector));
  if (!all) return;
  const std::lock_guard lock(mutex_);
  free_slot(slot);
}

}  // namespace tenon::llm::serve
