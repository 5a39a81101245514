// SPDX-License-Identifier: Apache-2.0
// Compiles grammars to nodes, and runs them as a deterministic automaton whose states are made when they are reached.
#include "llm/grammar/grammar.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr size_t kMostNodes = 1'000'000;   // of a grammar
constexpr size_t kMostStates = 20'000;     // at once, of a matcher
constexpr size_t kMostFrames = 1'000'000;  // likewise
constexpr size_t kMostPositions = 2'000;   // of one state
constexpr size_t kMostKept = 2'000'000;    // positions of all states
constexpr size_t kMostMasks = 256;         // kept, of a matcher
constexpr uint32_t kMostDepth = 200;       // rules inside rules; deeper texts are not allowed

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

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const TokenTree> tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)), frames_(1, Frame{0, 0, 0}) {
  Positions closed;
  bool complete = false;
  close({{grammar_->starts_[0], 0}}, closed, complete);
  start_ = at_ = intern(std::move(closed), complete);
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

// Follows splits, calls and returns until each position waits for a byte.
void GrammarMatcher::close(Positions pending, Positions& out, bool& complete) {
  std::set<Position> seen(pending.begin(), pending.end());
  const auto visit = [&](uint32_t node, uint32_t stack) {
    if (!seen.insert({node, stack}).second) return;
    if (seen.size() > kMostPositions)
      throw Error(TENON_UNSUPPORTED, "grammar: a text has more than " +
                                         std::to_string(kMostPositions) + " ways to go on");
    pending.push_back({node, stack});
  };
  while (!pending.empty()) {
    const auto [at, stack] = pending.back();
    pending.pop_back();
    const Grammar::Node& node = grammar_->nodes_[at];
    switch (node.op) {
      case Grammar::Op::byte:
        if (node.low <= node.high) out.push_back({at, stack});
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
  std::sort(out.begin(), out.end());
}

int32_t GrammarMatcher::intern(Positions positions, bool complete) {
  const auto found = state_index_.find({positions, complete});
  if (found != state_index_.end()) return found->second;
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
  state_index_.emplace(std::pair{std::move(positions), complete}, index);
  return index;
}

int32_t GrammarMatcher::step(int32_t from, uint8_t byte) {
  State& state = *states_[static_cast<size_t>(from)];
  int32_t& next = state.next[byte];
  if (next != kUnknown) return next;
  Positions moved, closed;
  for (const auto& [at, stack] : state.positions) {
    const Grammar::Node& node = grammar_->nodes_[at];
    if (node.low <= byte && byte <= node.high) moved.push_back({node.next, stack});
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  bool complete = false;
  close(std::move(moved), closed, complete);
  next = closed.empty() && !complete ? kDead : intern(std::move(closed), complete);
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
    return intern(std::move(positions), old.complete);
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
