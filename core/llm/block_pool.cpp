// SPDX-License-Identifier: Apache-2.0
// Reference counts of blocks, an index by the hash of their tokens, and a list of idle ones.
#include "llm/block_pool.hpp"

#include <algorithm>
#include <string>

#include "tenon/tenon.hpp"

namespace tenon::llm {

BlockPool::BlockPool(int64_t count, int64_t size)
    : size_(size), blocks_(static_cast<size_t>(count)) {
  for (int64_t i = count; i-- > 0;) free_.push_back(i);
}

int64_t BlockPool::take() {
  int64_t block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    block = idle_.front();
    forget(block);
    free_.pop_back();  // forget() has put it there
  } else {
    throw Error(TENON_OUT_OF_MEMORY, "cache: all " + std::to_string(count()) + " blocks of " +
                                         std::to_string(size_) + " tokens are in use");
  }
  at(block).users = 1;
  return block;
}

void BlockPool::share(int64_t block) {
  Block& b = at(block);
  if (b.users++ == 0) idle_.erase(b.idle);
}

void BlockPool::release(int64_t block) {
  Block& b = at(block);
  if (--b.users > 0) return;
  if (b.serial == kStart)
    free_.push_back(block);
  else
    b.idle = idle_.insert(idle_.end(), block);
}

uint64_t BlockPool::hash_of(Serial before, std::span<const int64_t> tokens) {
  uint64_t hash = before * 0x9E3779B97F4A7C15u + tokens.size();
  for (const int64_t token : tokens) {
    hash ^= static_cast<uint64_t>(token);
    hash *= 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 32;
  }
  return hash;
}

std::optional<BlockPool::Found> BlockPool::find(Serial before,
                                                std::span<const int64_t> tokens) const {
  // Different tokens may have the same hash.
  const auto [begin, end] = by_hash_.equal_range(hash_of(before, tokens));
  for (auto i = begin; i != end; ++i) {
    const Block& b = at(i->second);
    if (b.before == before && std::ranges::equal(b.tokens, tokens))
      return Found{i->second, b.serial};
  }
  return {};
}

BlockPool::Serial BlockPool::enter(int64_t block, Serial before, std::span<const int64_t> tokens) {
  if (const auto found = find(before, tokens)) return found->serial;
  Block& b = at(block);
  b.tokens.assign(tokens.begin(), tokens.end());
  b.before = before;
  b.hash = hash_of(before, tokens);
  by_hash_.emplace(b.hash, block);
  return b.serial = ++last_;
}

void BlockPool::forget(int64_t block) {
  Block& b = at(block);
  if (b.serial == kStart) return;
  const auto [begin, end] = by_hash_.equal_range(b.hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& e) { return e.second == block; }));
  b.serial = kStart;
  b.tokens.clear();
  if (b.users > 0) return;
  idle_.erase(b.idle);
  free_.push_back(block);
}

}  // namespace tenon::llm
