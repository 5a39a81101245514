// SPDX-License-Identifier: Apache-2.0
// Compiles grammars to nodes, and runs them as a deterministic automaton whose states are made when they are reached.
#include "llm/grammar/grammar.hpp"

#include <algorithm>
#include <numeric>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr size_t kMostNodes = 1'000'000;   // of a grammar
constexpr size_t kMostStates = 20'000;     // at once, of a matcher
constexpr size_t kMostFrames = 1'000'000;  // likewise
constexpr size_t kMostPositions = 2'000;   // of one state
constexpr size_t kMetSlots = 4'096;        // a power of two, more than all positions of a step
constexpr size_t kMostKept = 2'000'000;    // positions of all states
constexpr size_t kMostMasks = 256;         // kept, of a matcher
constexpr uint32_t kMostDepth = 200;       // rules inside rules; deeper texts are not allowed

uint64_t mixed(uint64_t key) {
  key *= 0x9E3779B97F4A7C15;
  return key ^ key >> 32;
}

}  // namespace

Grammar::Grammar(const std::vector<Part>& rules) {
  if (rules.empty()) throw Error(TENON_INVALID_ARGUMENT, "grammar: expected at least one rule");
  for (const Part& part : rules) {
    if (!part) throw Error(TENON_INVALID_ARGUMENT, "grammar: a rule is missing");
    starts_.push_back(compile(*part, add(Op::end)));
  }
  for (const Node& node : nodes_)
    if (node.op == Op::call && node.other >= starts_.size())
      throw Error(TENON_INVALID_ARGUMENT, "grammar: expected rules below " +
                                              std::to_string(starts_.size()) + ", got " +
                                              std::to_string(node.other));
  close_dead_ends();
}

// Nodes from which no text comes to an end match nothing: a text that went there could not go on.
void Grammar::close_dead_ends() {
  const auto size = static_cast<uint32_t>(nodes_.size());
  std::vector<bool> live(size, false);
  const auto is_live = [&](const Node& node) {
    switch (node.op) {
      case Op::byte:
        return node.low <= node.high && live[node.next];
      case Op::split:
        return live[node.next] || live[node.other];
      case Op::call:
        return live[node.next] && live[starts_[node.other]];
      case Op::end:
        return true;
    }
    return false;
  };
  // users[first[i]] to users[first[i + 1] - 1]: the nodes that node i may bring to life.
  const auto each_need = [&](const Node& node, auto&& f) {
    if (node.op == Op::end) return;
    f(node.next);
    if (node.op != Op::byte) f(node.op == Op::call ? starts_[node.other] : node.other);
  };
  std::vector<uint32_t> first(size + 1, 0);
  for (const Node& node : nodes_) each_need(node, [&](uint32_t i) { ++first[i + 1]; });
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<uint32_t> users(first.back()), filled(first);
  for (uint32_t i = 0; i < size; ++i)
    each_need(nodes_[i], [&](uint32_t need) { users[filled[need]++] = i; });
  std::vector<uint32_t> pending;
  const auto visit = [&](uint32_t i) {
    if (live[i] || !is_live(nodes_[i])) return;
    live[i] = true;
    pending.push_back(i);
  };
  for (uint32_t i = 0; i < size; ++i)
    if (nodes_[i].op == Op::end) visit(i);
  while (!pending.empty()) {
    const uint32_t i = pending.back();
    pending.pop_back();
    for (uint32_t at = first[i]; at < first[i + 1]; ++at) visit(users[at]);
  }
  if (!live[starts_[0]]) throw Error(TENON_INVALID_ARGUMENT, "grammar: no text follows it");
  for (uint32_t i = 0; i < size; ++i)
    if (!live[i]) nodes_[i] = {.op = Op::byte, .low = 1, .high = 0, .next = i};
}

uint32_t Grammar::add(Op op, uint32_t next, uint32_t other) {
  if (nodes_.size() >= kMostNodes)
    throw Error(TENON_INVALID_ARGUMENT,
                "grammar: too large; expected at most " + std::to_string(kMostNodes) + " nodes");
  Node node;
  node.op = op;
  node.next = next;
  node.other = other;
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

// Returns the first node of the expression in front of `next`.
uint32_t Grammar::compile(const Expression& e, uint32_t next) {
  switch (e.kind) {
    case Expression::byte_range: {
      const uint32_t node = add(Op::byte, next);
      nodes_[node].low = e.low;
      nodes_[node].high = e.high;
      return node;
    }
    case Expression::sequence:
      for (auto part = e.parts.rbegin(); part != e.parts.rend(); ++part)
        next = compile(**part, next);
      return next;
    case Expression::choice: {
      if (e.parts.empty()) {  // a range without bytes
        const uint32_t node = add(Op::byte, next);
        nodes_[node].low = 1;
        return node;
      }
      uint32_t node = compile(*e.parts.back(), next);
      for (size_t i = e.parts.size() - 1; i-- > 0;)
        node = add(Op::split, compile(*e.parts[i], next), node);
      return node;
    }
    case Expression::repeat:
      return compile_repeat(e, next);
    case Expression::rule:
      return add(Op::call, next, e.rule_index);
  }
  return next;
}

uint32_t Grammar::compile_repeat(const Expression& e, uint32_t next) {
  const Expression& part = *e.parts[0];
  uint32_t node = next;
  if (e.most < 0) {
    node = add(Op::split, 0, next);
    const uint32_t body = compile(part, node);
    nodes_[node].next = body;
  } else {
    for (int64_t i = e.least; i < e.most; ++i) {
      const uint32_t body = compile(part, node);
      node = add(Op::split, body, next);
    }
  }
  for (int64_t i = 0; i < e.least; ++i) {
    const size_t before = nodes_.size();
    node = compile(part, node);
    if (nodes_.size() == before) break;  // an empty part stays empty
  }
  return node;
}

TokenTree::TokenTree(const std::vector<std::string>& tokens) : size_(tokens.size()) {
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tokens[a] != tokens[b] ? tokens[a] < tokens[b] : a < b;
  });
  std::vector<uint32_t> path;  // nodes from the root to the latest token
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  const std::string* before = nullptr;
  for (const uint32_t t : order) {
    const std::string& token = tokens[t];
    if (token.empty()) continue;
    size_t shared = 0;
    while (before && shared < before->size() && shared < token.size() &&
           (*before)[shared] == token[shared])
      ++shared;
    close_to(shared);
    for (size_t i = shared; i < token.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.emplace_back();
      nodes_.back().byte = static_cast<uint8_t>(token[i]);
    }
    Node& last = nodes_[path.back()];
    if (last.first < 0) last.first = static_cast<int64_t>(tokens_.size());
    ++last.count;
    tokens_.push_back(t);
    before = &token;
  }
  close_to(0);
}

GrammarMatcher::Met::Met() : slots_(kMetSlots) {}

void GrammarMatcher::Met::clear() {
  size_ = 0;
  if (++step_ != 0) return;
  std::ranges::fill(slots_, Slot());
  step_ = 1;
}

bool GrammarMatcher::Met::insert(Position position) {
  const uint64_t key = position.key();
  for (size_t at = mixed(key);; ++at) {
    Slot& slot = slots_[at % kMetSlots];
    if (slot.step == step_ && slot.key == key) return false;
    if (slot.step == step_) continue;
    slot = {key, step_};
    ++size_;
    return true;
  }
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const TokenTree> tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)), frames_(1, Frame{0, 0, 0}) {
  pending_.push_back({grammar_->starts_[0], 0});
  start_ = at_ = close();
  if (start_ == kDead) start_ = at_ = intern({}, false);
}

uint32_t GrammarMatcher::push(uint32_t node, uint32_t below) {
  const auto fresh = static_cast<uint32_t>(frames_.size());
  const auto [at, is_new] = frame_index_.emplace(uint64_t{node} << 32 | below, fresh);
  if (!is_new) return at->second;
  if (frames_.size() >= kMostFrames)
    throw Error(TENON_OUT_OF_MEMORY,
                "grammar: a text needs more than " + std::to_string(kMostFrames) + " frames");
  frames_.push_back({node, below, frames_[below].depth + 1});
  return fresh;
}

// Follows splits, calls and returns of the pending positions until each waits for a byte.
int32_t GrammarMatcher::close() {
  closed_.clear();
  bool complete = false;
  const auto visit = [&](uint32_t node, uint32_t stack) {
    if (!met_.insert({node, stack})) return;
    if (met_.size() > kMostPositions)
      throw Error(TENON_UNSUPPORTED, "grammar: a text has more than " +
                                         std::to_string(kMostPositions) + " ways to go on");
    pending_.push_back({node, stack});
  };
  while (!pending_.empty()) {
    const auto [at, stack] = pending_.back();
    pending_.pop_back();
    const Grammar::Node& node = grammar_->nodes_[at];
    switch (node.op) {
      case Grammar::Op::byte:
        if (node.low <= node.high) closed_.push_back({at, stack});
        break;
      case Grammar::Op::split:
        visit(node.next, stack);
        visit(node.other, stack);
        break;
      case Grammar::Op::call: {
        // A call at the end of a rule needs no frame.
        const bool last = grammar_->nodes_[node.next].op == Grammar::Op::end;
        if (!last && frames_[stack].depth >= kMostDepth) break;
        visit(grammar_->starts_[node.other], last ? stack : push(node.next, stack));
        break;
      }
      case Grammar::Op::end:
        if (stack == 0)
          complete = true;
        else
          visit(frames_[stack].node, frames_[stack].below);
    }
  }
  if (closed_.empty() && !complete) return kDead;
  std::sort(closed_.begin(), closed_.end());
  return intern(closed_, complete);
}

// positions: sorted.
int32_t GrammarMatcher::intern(const Positions& positions, bool complete) {
  uint64_t hash = complete;
  for (const Position& p : positions) hash = mixed(hash ^ p.key());
  const auto [first, last] = state_index_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const State& known = *states_[static_cast<size_t>(at->second)];
    if (known.complete == complete && known.positions == positions) return at->second;
  }
  if (states_.size() >= kMostStates)
    throw Error(TENON_OUT_OF_MEMORY, "grammar: one token leads to more than " +
                                         std::to_string(kMostStates / 2) + " states");
  kept_ += positions.size();
  if (kept_ > kMostKept)
    throw Error(TENON_OUT_OF_MEMORY, "grammar: one token leads to states of more than " +
                                         std::to_string(kMostKept / 2) + " positions");
  auto state = std::make_unique<State>();
  state->positions = positions;
  state->complete = complete;
  state->next.fill(kUnknown);
  const auto index = static_cast<int32_t>(states_.size());
  states_.push_back(std::move(state));
  state_index_.emplace(hash, index);
  return index;
}

int32_t GrammarMatcher::step(int32_t from, uint8_t byte) {
  State& state = *states_[static_cast<size_t>(from)];
  if (state.next[byte] != kUnknown) return state.next[byte];
  ++steps_;
  pending_.clear();
  met_.clear();
  // The bytes around this one that lead to the same state, because no range begins or ends between.
  unsigned first = 0, last = 255;
  for (const auto& [at, stack] : state.positions) {
    const Grammar::Node& node = grammar_->nodes_[at];
    if (byte < node.low) {
      last = std::min(last, node.low - 1u);
    } else if (byte > node.high) {
      first = std::max(first, node.high + 1u);
    } else {
      first = std::max<unsigned>(first, node.low);
      last = std::min<unsigned>(last, node.high);
      if (met_.insert({node.next, stack})) pending_.push_back({node.next, stack});
    }
  }
  const int32_t next = close();
  std::fill(state.next.begin() + first, state.next.begin() + last + 1, next);
  return next;
}

// Forgets states and frames that the current and the first position do not need.
void GrammarMatcher::shrink() {
  if (states_.size() < kMostStates / 2 && frames_.size() < kMostFrames / 2 && kept_ < kMostKept / 2)
    return;
  kept_ = 0;
  const std::vector<Frame> frames = std::exchange(frames_, {Frame{0, 0, 0}});
  frame_index_.clear();
  const auto states = std::exchange(states_, {});
  state_index_.clear();
  masks_.clear();
  const auto kept = [&](int32_t index) {
    const State& old = *states[static_cast<size_t>(index)];
    Positions positions;
    for (const auto& [node, stack] : old.positions) {
      std::vector<uint32_t> path;
      for (uint32_t at = stack; at != 0; at = frames[at].below) path.push_back(frames[at].node);
      uint32_t top = 0;
      for (auto at = path.rbegin(); at != path.rend(); ++at) top = push(*at, top);
      positions.push_back({node, top});
    }
    std::sort(positions.begin(), positions.end());
    return intern(positions, old.complete);
  };
  start_ = kept(start_);
  at_ = kept(at_);
}

bool GrammarMatcher::accept(std::string_view bytes) {
  shrink();
  int32_t at = at_;
  for (const char c : bytes) {
    at = step(at, static_cast<uint8_t>(c));
    if (at == kDead) return false;
  }
  at_ = at;
  return true;
}

bool GrammarMatcher::complete() const { return states_[static_cast<size_t>(at_)]->complete; }

const std::vector<uint64_t>& GrammarMatcher::mask() {
  if (!tokens_) throw Error(TENON_INVALID_ARGUMENT, "grammar: a mask needs tokens");
  shrink();
  const auto known = masks_.find(at_);
  if (known != masks_.end()) return known->second;
  if (masks_.size() >= kMostMasks) masks_.clear();
  return masks_[at_] = make_mask();
}

std::vector<uint64_t> GrammarMatcher::make_mask() {
  const TokenTree& tokens = *tokens_;
  std::vector<uint64_t> out((tokens.size_ + 63) / 64, 0);
  std::vector<std::pair<uint32_t, int32_t>> path;  // the end of a node's range, and its state
  for (uint32_t i = 0; i < tokens.nodes_.size();) {
    while (!path.empty() && path.back().first <= i) path.pop_back();
    const TokenTree::Node& node = tokens.nodes_[i];
    const int32_t state = step(path.empty() ? at_ : path.back().second, node.byte);
    if (state == kDead) {
      i = node.end;
      continue;
    }
    for (uint32_t t = 0; t < node.count; ++t) {
      const uint32_t token = tokens.tokens_[static_cast<size_t>(node.first) + t];
      out[token / 64] |= uint64_t{1} << (token % 64);
    }
    path.emplace_back(node.end, state);
    ++i;
  }
  return out;
}

}  // namespace tenon::llm
