// SPDX-License-Identifier: Apache-2.0
// Blocks of the cache of keys and values: who uses them, and which tokens full ones hold, so that
// several sequences share the blocks of a common prefix. Blocks that no sequence uses stay findable
// until their memory is needed. Not for several threads at once.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace tenon::llm {

class BlockPool {
 public:
  // `count` blocks of `size` tokens each.
  BlockPool(int64_t count, int64_t size);

  int64_t count() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t size() const { return size_; }
  // Blocks without users that nobody can find.
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  // Blocks that take() can give.
  int64_t available() const { return static_cast<int64_t>(free_.size() + idle_.size()); }

  // Returns a block with one user. Evicts the idle block that nobody has used for longest if no
  // block is free. Throws tenon::Error (OUT_OF_MEMORY) if all blocks have users.
  int64_t take();
  void share(int64_t block);    // adds a user
  void release(int64_t block);  // removes a user
  int64_t users(int64_t block) const { return at(block).users; }

  // Each full block that can be found has a serial number, which is never used again. It stands for
  // the tokens of the block and of all blocks before it.
  using Serial = uint64_t;
  static constexpr Serial kStart = 0;  // no tokens
  struct Found {
    int64_t block;
    Serial serial;
  };
  // The block with these tokens behind the prefix `before`.
  std::optional<Found> find(Serial before, std::span<const int64_t> tokens) const;
  // Makes a full block findable. Returns its serial number, or that of another block with the same
  // tokens behind the same prefix; `block` is not findable then.
  Serial enter(int64_t block, Serial before, std::span<const int64_t> tokens);
  // The block is about to change: it is not findable any more.
  void forget(int64_t block);

 private:
  struct Block {
    int64_t users = 0;
    Serial serial = kStart, before = kStart;  // serial: kStart if it is not findable
    uint64_t hash = 0;
    std::vector<int64_t> tokens{};
    std::list<int64_t>::iterator idle{};  // if it is findable and has no users
  };
  Block& at(int64_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(int64_t block) const { return blocks_[static_cast<size_t>(block)]; }
  static uint64_t hash_of(Serial before, std::span<const int64_t> tokens);

  int64_t size_;
  std::vector<Block> blocks_;
  std::vector<int64_t> free_;  // neither users nor tokens
  std::list<int64_t> idle_;    // the one to evict first in front
  std::unordered_multimap<uint64_t, int64_t> by_hash_;
  Serial last_ = kStart;
};

}  // namespace tenon::llm
