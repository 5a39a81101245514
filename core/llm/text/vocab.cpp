// SPDX-License-Identifier: Apache-2.0
// A hash table with open addressing over one string of all texts.
#include "llm/text/vocab.hpp"

#include <algorithm>
#include <functional>

namespace tenon::llm {

void Vocab::reserve(size_t tokens) {
  entries_.reserve(tokens);
  by_id_.reserve(tokens);
  size_t slots = 16;
  while (slots < 2 * tokens) slots *= 2;
  rehash(slots);
}

size_t Vocab::slot(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t at = std::hash<std::string_view>{}(text)&mask;
  while (slots_[at] && this->text(entries_[slots_[at] - 1]) != text) at = (at + 1) & mask;
  return at;
}

void Vocab::rehash(size_t slots) {
  if (slots <= slots_.size()) return;
  slots_.assign(slots, 0);
  for (size_t i = 0; i < entries_.size(); ++i)
    slots_[slot(text(entries_[i]))] = static_cast<uint32_t>(i + 1);
}

bool Vocab::add(std::string_view text, TokenId id) {
  if (has(id)) return false;
  if (2 * (entries_.size() + 1) > slots_.size()) rehash(std::max<size_t>(16, 2 * slots_.size()));
  const size_t at = static_cast<size_t>(id);
  if (by_id_.size() <= at) by_id_.resize(at + 1, 0);
  entries_.push_back({texts_.size(), static_cast<uint32_t>(text.size()), id});
  texts_ += text;
  longest_ = std::max(longest_, text.size());
  const uint32_t number = static_cast<uint32_t>(entries_.size());
  by_id_[at] = number;
  slots_[slot(text)] = number;
  return true;
}

TokenId Vocab::find(std::string_view text) const {
  if (slots_.empty() || text.size() > longest_) return kNoToken;
  const uint32_t number = slots_[slot(text)];
  return number ? entries_[number - 1].id : kNoToken;
}

std::string_view Vocab::text(TokenId id) const {
  return has(id) ? text(entries_[by_id_[static_cast<size_t>(id)] - 1]) : std::string_view();
}

}  // namespace tenon::llm
