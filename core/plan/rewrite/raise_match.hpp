// SPDX-License-Identifier: Apache-2.0
// What the forms of raise look at a graph with. A form starts at the last node of what it looks for
// and walks to its operands; every node that it walks through is part of the match.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ops/build.hpp"
#include "plan/rewrite/reader.hpp"

namespace tenon::core {

// What takes the place of a node's first output: built of operands of the old graph, by position.
struct Raised {
  std::vector<Value> operands;
  std::function<Value(Builder& b, const std::vector<Value>& operands)> build;
};

class Matcher {
 public:
  explicit Matcher(const Graph& graph);
  const Graph& graph() const { return g_; }
  const Type& type(Value v) const { return g_.type(v); }
  const Shape& shape(Value v) const { return g_.type(v).shape; }

  // Begins a match at a node; forget what was walked through before.
  void begin(NodeId root);
  // The ops below answer with what the node that makes v does, or nothing, and count it in.
  template <class Op>
  std::optional<Op> as(Value v) {
    const NodeId n = maker_of(g_, v);
    if (n == kNone || !is<Op>(n) || g_[n].clone != clone_) return {};
    seen_.push_back(n);
    return decode<Op>(g_[n]);
  }
  template <class Op>
  bool is(NodeId n) const {
    static const OpRecord& record = record_of(Op::kName);
    return g_[n].op == &record;
  }
  // x of a plain unary of this kind, or absent.
  Value unary(Value v, std::string_view kind);
  // Both operands of a binary of this kind.
  std::optional<std::pair<Value, Value>> binary(Value v, std::string_view kind);
  // x of a reduction over the axes [first, rank) whose result still has them, as 1; sets `first`.
  Value reduced(Value v, std::string_view kind, int& first);
  // The same over one axis, any.
  Value reduced_axis(Value v, std::string_view kind, int& axis);
  // x², however it is written.
  Value square(Value v);
  // Is v read once, and by nobody outside?
  bool is_read_once(Value v) const { return readers_.one(v); }
  // Does the graph ask for a gradient?
  bool has_gradients() const { return has_gradients_; }
  // The one number of a constant.
  std::optional<double> number(Value v) const;
  // Is it exactly this number?
  bool is_number(Value v, double wanted) const;

  // A product taken apart: its factors, numbers among them multiplied together; stops at values
  // that others read, and where there are more nodes than a form has.
  struct Product {
    double number = 1;
    // How far the number that was meant may be from `number`, relative to it: each constant was
    // rounded to its dtype once.
    double room = 0;
    std::vector<Value> factors;
    int nodes = 0;
    // Is `number` this one, as closely as its constants can tell?
    bool is_rounded(double wanted) const;
  };
  Product product(Value v);
  // v + number, or nothing.
  std::optional<std::pair<Value, double>> plus_number(Value v);

  size_t mark() const { return seen_.size(); }
  void back_to(size_t mark) { seen_.resize(mark); }
  // Does nobody outside of the match read what is inside of it?
  bool closed() const;
  std::vector<NodeId> nodes() const;  // of the match, ascending

 private:
  // The same, of this kind: told without decoding, for most nodes are of another.
  template <class Op>
  std::optional<Op> of_kind(Value v, std::string_view kind) {
    const NodeId n = maker_of(g_, v);
    if (n == kNone || !is<Op>(n)) return {};
    const AttrValue* given = g_[n].attr("kind");
    if (!given || std::get<std::string>(*given) != kind) return {};
    return as<Op>(v);
  }
  void take_apart(Value v, Product& p, bool outermost);

  const Graph& g_;
  const Readers readers_;
  bool has_gradients_ = false;
  NodeId root_ = kNone;
  uint32_t clone_ = 0;
  std::vector<NodeId> seen_;
};

// How a composite is found at the node that makes y.
using Form = std::optional<Raised> (*)(Matcher& m, Value y);

std::optional<Raised> raise_softmax(Matcher& m, Value y);
std::optional<Raised> raise_log_softmax(Matcher& m, Value y);
std::optional<Raised> raise_cross_entropy(Matcher& m, Value y);
std::optional<Raised> raise_gelu(Matcher& m, Value y);
std::optional<Raised> raise_sigmoid(Matcher& m, Value y);
std::optional<Raised> raise_silu(Matcher& m, Value y);
std::optional<Raised> raise_rms_norm(Matcher& m, Value y);
std::optional<Raised> raise_layer_norm(Matcher& m, Value y);
std::optional<Raised> raise_scaled_norm(Matcher& m, Value y);
std::optional<Raised> raise_attention(Matcher& m, Value y);
std::optional<Raised> raise_attention_layout(Matcher& m, Value y);

}  // namespace tenon::core
