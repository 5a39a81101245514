// SPDX-License-Identifier: Apache-2.0
// Grammars over bytes, and which tokens of a vocabulary may come next.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/grammar/expression.hpp"

namespace tenon::llm {

// A compiled grammar. Immutable, so threads may share it.
class Grammar {
 public:
  // rules[0] is the whole text. Throws TENON_INVALID_ARGUMENT if the grammar needs too many nodes, or if
  // no text follows it.
  explicit Grammar(const std::vector<Part>& rules);

 private:
  friend class GrammarMatcher;
  enum class Op : uint8_t { byte, split, call, end };
  struct Node {
    Op op = Op::end;
    uint8_t low = 0, high = 0;     // byte: the range
    uint32_t next = 0, other = 0;  // split: both; call: behind the rule, and the rule
  };
  uint32_t add(Op op, uint32_t next = 0, uint32_t other = 0);
  uint32_t compile(const Expression& e, uint32_t next);
  uint32_t compile_repeat(const Expression& e, uint32_t next);
  void close_dead_ends();
  std::vector<Node> nodes_;
  std::vector<uint32_t> starts_;  // of rules
};

// The tokens of a vocabulary by their bytes, as a tree. Tokens without bytes are in no mask.
class TokenTree {
 public:
  explicit TokenTree(const std::vector<std::string>& tokens);
  size_t size() const { return size_; }

 private:
  friend class GrammarMatcher;
  struct Node {
    uint8_t byte = 0;
    uint32_t end = 0;    // behind the last node below this one
    int64_t first = -1;  // the tokens that end here, from this one
    uint32_t count = 0;
  };
  std::vector<Node> nodes_;  // in depth-first order
  std::vector<uint32_t> tokens_;
  size_t size_;
};

// One text that follows a grammar.
class GrammarMatcher {
 public:
  // Without tokens, there are no masks.
  explicit GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                          std::shared_ptr<const TokenTree> tokens = nullptr);

  // Moves behind the bytes and returns true, or stays and returns false if the grammar does not allow them.
  bool accept(std::string_view bytes);
  bool complete() const;  // the text may end here
  // Bit t % 64 of word t / 64 says whether token t may come next. Valid until the next call.
  const std::vector<uint64_t>& mask();
  void reset() { at_ = start_; }
  size_t states() const { return states_.size(); }
  size_t steps() const { return steps_; }  // from a state by some bytes; known ones do not count

 private:
  static constexpr int32_t kUnknown = -2, kDead = -1;
  struct Position {
    uint32_t node, stack;
    uint64_t key() const { return uint64_t{node} << 32 | stack; }
    bool operator==(const Position&) const = default;
    bool operator<(const Position& other) const { return key() < other.key(); }
  };
  struct Frame {  // where a rule returns to, and the frame below
    uint32_t node, below, depth;
  };
  struct State {
    std::vector<Position> positions;  // each waits for a byte
    bool complete = false;
    std::array<int32_t, 256> next;
  };
  using Positions = std::vector<Position>;  // sorted, in a state
  // The positions that one step has met. A step starts with an empty set, so that takes no time.
  class Met {
   public:
    Met();
    void clear();
    bool insert(Position position);  // false: it was there
    size_t size() const { return size_; }

   private:
    struct Slot {
      uint64_t key = 0;
      uint32_t step = 0;  // the slot is empty in all other steps
    };
    std::vector<Slot> slots_;
    uint32_t step_ = 1;
    size_t size_ = 0;
  };
  int32_t intern(const Positions& positions, bool complete);
  int32_t step(int32_t state, uint8_t byte);
  int32_t close();
  uint32_t push(uint32_t node, uint32_t below);
  void shrink();
  std::vector<uint64_t> make_mask();

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTree> tokens_;
  std::vector<Frame> frames_;  // frames_[0]: the bottom
  std::unordered_map<uint64_t, uint32_t> frame_index_;
  std::vector<std::unique_ptr<State>> states_;
  std::unordered_multimap<uint64_t, int32_t> state_index_;    // by a hash
  std::unordered_map<int32_t, std::vector<uint64_t>> masks_;  // of states: most texts stay in few
  size_t kept_ = 0;                                           // positions of the states
  size_t steps_ = 0;
  Met met_;
  Positions pending_, closed_;  // of the current step
  int32_t start_ = 0, at_ = 0;
};

}  // namespace tenon::llm
