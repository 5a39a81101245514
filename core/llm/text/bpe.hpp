// SPDX-License-Identifier: Apache-2.0
// The loop of byte pair encoding: merges neighbours, lowest rank first, of equal ranks the leftmost first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llm/text/model.hpp"

namespace tenon::llm {

struct Symbol {
  TokenId id;
  size_t begin, size;  // bytes of the piece
  int64_t previous = -1, next = -1;
};

struct MergeMemory : Model::Memory {
  struct Candidate {
    uint32_t rank;
    TokenId id;
    size_t left, size;                          // place of the left symbol; bytes of both
    bool operator<(const Candidate& o) const {  // of a heap: the best one is the greatest
      return rank != o.rank ? rank > o.rank : left > o.left;
    }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Merge> pairs;
};

inline constexpr uint32_t kNoRank = ~uint32_t{0};

// Merges m.symbols in place. pair(left, right) returns a Merge; its rank is kNoRank if they do not merge.
template <class Pair>
void merge_short(MergeMemory& m, Pair&& pair) {
  std::vector<Symbol>& s = m.symbols;
  m.pairs.clear();
  for (size_t i = 0; i + 1 < s.size(); ++i) m.pairs.push_back(pair(s[i], s[i + 1]));
  while (!m.pairs.empty()) {
    const auto best =
        std::min_element(m.pairs.begin(), m.pairs.end(),
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) return;
    const auto i = static_cast<size_t>(best - m.pairs.begin());
    s[i].id = best->id;
    s[i].size += s[i + 1].size;
    s.erase(s.begin() + static_cast<int64_t>(i) + 1);
    m.pairs.erase(best);
    if (i < m.pairs.size()) m.pairs[i] = pair(s[i], s[i + 1]);
    if (i > 0) m.pairs[i - 1] = pair(s[i - 1], s[i]);
  }
}

// n log n in the number of symbols.
template <class Pair>
void merge_long(MergeMemory& m, Pair&& pair) {
  std::vector<Symbol>& s = m.symbols;
  m.heap.clear();
  const auto propose = [&](size_t left) {
    const Symbol& a = s[left];
    if (a.next < 0) return;
    const Symbol& b = s[static_cast<size_t>(a.next)];
    const Merge merge = pair(a, b);
    if (merge.rank == kNoRank) return;
    m.heap.push_back({merge.rank, merge.id, left, a.size + b.size});
    std::push_heap(m.heap.begin(), m.heap.end());
  };
  for (size_t i = 0; i < s.size(); ++i) {
    s[i].previous = static_cast<int64_t>(i) - 1;
    s[i].next = i + 1 < s.size() ? static_cast<int64_t>(i) + 1 : -1;
  }
  for (size_t i = 0; i < s.size(); ++i) propose(i);
  while (!m.heap.empty()) {
    std::pop_heap(m.heap.begin(), m.heap.end());
    const MergeMemory::Candidate c = m.heap.back();
    m.heap.pop_back();
    Symbol& a = s[c.left];
    // A symbol that has merged since then has another size, or none.
    if (a.size == 0 || a.next < 0) continue;
    Symbol& b = s[static_cast<size_t>(a.next)];
    if (a.size + b.size != c.size) continue;
    const Merge merge = pair(a, b);
    if (merge.rank != c.rank || merge.id != c.id) continue;
    a.id = c.id;
    a.size += b.size;
    b.size = 0;
    a.next = b.next;
    if (b.next >= 0) s[static_cast<size_t>(b.next)].previous = static_cast<int64_t>(c.left);
    if (a.previous >= 0) propose(static_cast<size_t>(a.previous));
    propose(c.left);
  }
  std::erase_if(s, [](const Symbol& x) { return x.size == 0; });
}

template <class Pair>
void merge_all(MergeMemory& m, Pair&& pair) {
  constexpr size_t kShort = 24;
  if (m.symbols.size() <= kShort)
    merge_short(m, pair);
  else
    merge_long(m, pair);
}

}  // namespace tenon::llm
