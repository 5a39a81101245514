// SPDX-License-Identifier: Apache-2.0
// The texts of tokens by id, and ids by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::llm {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

class Vocab {
 public:
  // Returns false if the id is taken. If two ids have one text, find() returns the later one.
  bool add(std::string_view text, TokenId id);
  void reserve(size_t tokens);

  TokenId find(std::string_view text) const;
  bool has(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < by_id_.size() && by_id_[static_cast<size_t>(id)];
  }
  // The text of an id that the vocabulary has; else an empty text.
  std::string_view text(TokenId id) const;
  // The highest id plus one.
  size_t size() const { return by_id_.size(); }
  size_t count() const { return entries_.size(); }
  size_t longest() const { return longest_; }

 private:
  struct Entry {
    size_t begin;
    uint32_t size;
    TokenId id;
  };
  std::string_view text(const Entry& e) const {
    return std::string_view(texts_).substr(e.begin, e.size);
  }
  size_t slot(std::string_view text) const;
  void rehash(size_t slots);

  std::string texts_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> by_id_;  // place in entries_ plus one, or 0
  std::vector<uint32_t> slots_;  // likewise, by hash
  size_t longest_ = 0;
};

}  // namespace tenon::llm
