// SPDX-License-Identifier: Apache-2.0
// The tokens and blocks of each slot.
#include "llm/sequence_cache.hpp"

#include <algorithm>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

int64_t common(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}
std::span<const int64_t> part(std::span<const int64_t> all, int64_t begin, int64_t count) {
  return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
}

}  // namespace

SequenceCache::SequenceCache(const CacheShape& shape)
    : shape_(shape), pool_(shape.blocks, shape.block), slots_(static_cast<size_t>(shape.slots)) {}

int64_t SequenceCache::needed(int64_t slot, int64_t more) const {
  if (shape_.block == 0) return 0;
  return shape_.blocks_of(length(slot) + more) - static_cast<int64_t>(blocks(slot).size());
}

void SequenceCache::reserve(int64_t slot, int64_t more) {
  const int64_t count = needed(slot, more);
  if (count > pool_.available())
    throw Error(TENON_OUT_OF_MEMORY, "cache: all " + std::to_string(pool_.count()) + " blocks of " +
                                         std::to_string(shape_.block) + " tokens are in use but " +
                                         std::to_string(pool_.available()) + "; slot " +
                                         std::to_string(slot) + " needs " + std::to_string(count) +
                                         " more; hint: a larger cache");
  for (int64_t i = 0; i < count; ++i) at(slot).blocks.push_back(pool_.take());
}

int64_t SequenceCache::row(int64_t slot, int64_t position) const {
  if (shape_.block == 0) return slot * shape_.context + position;
  return blocks(slot)[static_cast<size_t>(position / shape_.block)] * shape_.block +
         position % shape_.block;
}

void SequenceCache::append(int64_t slot, std::span<const int64_t> tokens, bool findable) {
  Slot& s = at(slot);
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  if (shape_.block == 0 || !findable) return;
  for (auto i = static_cast<int64_t>(s.serials.size()); (i + 1) * shape_.block <= length(slot); ++i)
    s.serials.push_back(pool_.enter(s.blocks[static_cast<size_t>(i)],
                                    i == 0 ? BlockPool::kStart : s.serials.back(),
                                    part(s.tokens, i * shape_.block, shape_.block)));
}

// Releases the blocks behind `length` tokens, the last one first: it is evicted before those that
// other prompts are more likely to begin with.
void SequenceCache::drop(Slot& s, int64_t length) {
  s.tokens.resize(static_cast<size_t>(length));
  if (shape_.block == 0) return;
  const auto kept = static_cast<size_t>(shape_.blocks_of(length));
  for (; s.blocks.size() > kept; s.blocks.pop_back()) pool_.release(s.blocks.back());
  s.serials.resize(std::min(s.serials.size(), static_cast<size_t>(length / shape_.block)));
}

std::optional<RowCopy> SequenceCache::truncate(int64_t slot, int64_t length) {
  Slot& s = at(slot);
  if (length == this->length(slot)) {
    drop(s, length);  // room that a step reserved, and did not use because it failed
    return {};
  }
  const int64_t inside = shape_.block == 0 ? 0 : length % shape_.block;
  std::optional<RowCopy> copy;
  if (inside > 0) {
    // The rest of the block will be written.
    int64_t& last = s.blocks[static_cast<size_t>(length / shape_.block)];
    if (pool_.users(last) > 1) {
      const int64_t own = pool_.take();
      copy = RowCopy{last * shape_.block, own * shape_.block, inside};
      pool_.release(last);
      last = own;
    } else {
      pool_.forget(last);
    }
  }
  drop(s, length);
  return copy;
}

std::optional<RowCopy> SequenceCache::reuse(int64_t slot, std::span<const int64_t> tokens) {
  Slot& s = at(slot);
  const int64_t most = static_cast<int64_t>(tokens.size()) - 1;
  int64_t own = std::min(common(s.tokens, tokens), most);
  if (shape_.recurrent) {
    drop(s, own == length(slot) ? own : 0);
    return {};
  }
  if (shape_.block == 0) return reuse_slot(slot, own, tokens);
  // To read the rest of a block again is cheaper than memory for a copy of it.
  const int64_t inside = own % shape_.block;
  if (inside > 0 && own < length(slot) &&
      pool_.users(s.blocks[static_cast<size_t>(own / shape_.block)]) > 1)
    own -= inside;
  std::vector<BlockPool::Found> found;
  for (int64_t at = 0; at + shape_.block <= most; at += shape_.block) {
    const auto next = pool_.find(found.empty() ? BlockPool::kStart : found.back().serial,
                                 part(tokens, at, shape_.block));
    if (!next) break;
    found.push_back(*next);
  }
  const int64_t shared = static_cast<int64_t>(found.size()) * shape_.block;
  if (shared <= own) return truncate(slot, own);
  for (const BlockPool::Found& f : found) pool_.share(f.block);
  drop(s, 0);
  s.tokens.assign(tokens.begin(), tokens.begin() + shared);
  for (const BlockPool::Found& f : found)
    s.blocks.push_back(f.block), s.serials.push_back(f.serial);
  return {};
}

std::optional<RowCopy> SequenceCache::reuse_slot(int64_t slot, int64_t own,
                                                 std::span<const int64_t> tokens) {
  const int64_t most = static_cast<int64_t>(tokens.size()) - 1;
  int64_t best = slot, length = own;
  for (int64_t i = 0; i < shape_.slots; ++i) {
    const int64_t there = std::min(common(at(i).tokens, tokens), most);
    if (there > length) best = i, length = there;
  }
  Slot& s = at(slot);
  drop(s, own);
  if (best == slot) return {};
  const auto more = part(tokens, own, length - own);
  s.tokens.insert(s.tokens.end(), more.begin(), more.end());
  return RowCopy{row(best, own), row(slot, own), length - own};
}

}  // namespace tenon::llm
