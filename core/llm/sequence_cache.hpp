// SPDX-License-Identifier: Apache-2.0
// Where the cache of keys and values holds the tokens of each slot: in blocks of a pool, which slots
// may share, or in `context` rows of its own. Only bookkeeping: the engine moves the numbers. Not for
// several threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "llm/block_pool.hpp"

namespace tenon::llm {

// Rows of the cache to copy.
struct RowCopy {
  int64_t from = 0, to = 0, count = 0;
};

struct CacheShape {
  int64_t slots = 1, context = 0;
  int64_t block = 0;       // tokens of a block; 0: slots have rows of their own
  int64_t blocks = 0;      // of the pool
  bool recurrent = false;  // a state that cannot go back, whether or not there are rows

  int64_t blocks_of(int64_t tokens) const { return (tokens + block - 1) / block; }
  int64_t rows() const { return block > 0 ? blocks * block : slots * context; }
};

class SequenceCache {
 public:
  explicit SequenceCache(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  int64_t length(int64_t slot) const { return static_cast<int64_t>(at(slot).tokens.size()); }
  const std::vector<int64_t>& tokens(int64_t slot) const { return at(slot).tokens; }

  // Blocks that so many more tokens of a slot need, and blocks that can be had; 0 without blocks.
  int64_t needed(int64_t slot, int64_t more) const;
  int64_t available() const { return shape_.block > 0 ? pool_.available() : 0; }
  // Those of them that hold no prefix which a sequence could begin with.
  int64_t free() const { return shape_.block > 0 ? pool_.free() : 0; }
  // Makes room for `more` tokens behind those of a slot. Throws tenon::Error (OUT_OF_MEMORY), and
  // changes nothing, if there are not enough blocks.
  void reserve(int64_t slot, int64_t more);
  // The row of a token, which has room.
  int64_t row(int64_t slot, int64_t position) const;
  const std::vector<int64_t>& blocks(int64_t slot) const { return at(slot).blocks; }

  // The rows of these tokens, which have room, are written. findable: other slots may begin with their
  // blocks, also after this one has dropped them. Else the next append() that is findable makes them so.
  void append(int64_t slot, std::span<const int64_t> tokens, bool findable = true);
  // Forgets the tokens behind the first `length` ones. Rows to copy: of a block that others use.
  // Throws as reserve().
  std::optional<RowCopy> truncate(int64_t slot, int64_t length);
  // Makes a slot hold the longest beginning of `tokens` that is in the cache, but not all of them.
  // Rows to copy: those of another slot without blocks.
  std::optional<RowCopy> reuse(int64_t slot, std::span<const int64_t> tokens);

 private:
  struct Slot {
    std::vector<int64_t> tokens, blocks;
    std::vector<BlockPool::Serial> serials;  // of its full blocks
  };
  Slot& at(int64_t slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& at(int64_t slot) const { return slots_[static_cast<size_t>(slot)]; }
  void drop(Slot& s, int64_t length);
  std::optional<RowCopy> reuse_slot(int64_t slot, int64_t own, std::span<const int64_t> tokens);

  CacheShape shape_;
  BlockPool pool_;
  std::vector<Slot> slots_;
};

}  // namespace tenon::llm
