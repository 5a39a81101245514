// SPDX-License-Identifier: Apache-2.0
//
// The record of an op: shape rule, gradient, decomposition, costs and traits, side by side. Each
// family (elementwise.cpp, norm.cpp, ...) defines one <op>_def per op of ops.def. table.cpp joins
// them, so a forgotten record does not link.
//
//   void rms_norm_shape(Infer& i, const op::rms_norm& n) { i.out(0, i.type(n.x)); ... }
//
//   constexpr Record<op::rms_norm> kRmsNorm{
//       .shape = rms_norm_shape, .grad = rms_norm_grad, .lower = rms_norm_lower,
//       .flops = no_products, .bytes = each_once};
//   const OpRecord rms_norm_def = record<op::rms_norm, kRmsNorm>();
#pragma once

#include "ir/graph.hpp"
#include "ops/build.hpp"
#include "ops/cost.hpp"

namespace tenon::core {

// Traits.
inline constexpr uint32_t kElementwise =
    1;  // each output element depends on the operands' element there (broadcast)
inline constexpr uint32_t kCommutative = 2;  // first two operands may change places
inline constexpr uint32_t kOrdered = 4;      // keeps its order, is never merged, dropped or doubled
inline constexpr uint32_t kView = 8;         // moves no data where strides permit
inline constexpr uint32_t kReduction = 16;   // folds axes of its only operand; may end a fused body

// What a shape rule sees. Every operand's type is numeric here. fail() names op and node.
class Infer {
 public:
  Infer(const Graph& graph, const NodeInfo& node, std::vector<Type>& outs)
      : graph_(graph), node_(node), outs_(outs) {}
  const Type& type(Value v) const { return graph_.type(v); }
  const Shape& shape(Value v) const { return graph_.type(v).shape; }
  DType dtype(Value v) const { return graph_.type(v).dtype; }
  // Every output of the entry must be given a type, wanted or not.
  void out(size_t k, const Type& type) {
    if (k >= outs_.size())
      fail(Code::invalid_argument, "gives output ", k, ", the node has ", outs_.size());
    outs_[k] = type;
  }
  size_t out_count() const { return outs_.size(); }  // list outputs: as many as the node has
  bool wanted(size_t k) const { return k < node_.outputs.size() && node_.outputs[k]; }

  std::string who() const;  // "rms_norm 'layers.0.norm'"
  template <class... Parts>
  [[noreturn]] void fail(Code code, const Parts&... parts) const {
    core::fail(code, who(), ": ", parts...);
  }
  // The checks that most rules need; `operand` is its name in the entry.
  void want_float(Value v, std::string_view operand) const;  // F
  void want_index(Value v, std::string_view operand) const;  // X
  void want_dtype(Value v, std::string_view operand, DType dtype) const;
  void want_same_dtype(Value a, std::string_view operand_a, Value b,
                       std::string_view operand_b) const;
  void want_shape(Value v, std::string_view operand, const Shape& shape) const;  // shape_mismatch
  void want_rank(Value v, std::string_view operand, int rank) const;
  int axis(int64_t axis, int rank) const { return normalize_axis(axis, rank, who()); }
  // A string attribute that must be one of a list, such as a kind.
  void want_one_of(std::string_view attr, std::string_view given,
                   std::initializer_list<std::string_view> list) const {
    std::string all;
    for (const std::string_view s : list) {
      if (s == given) return;
      all += cat(all.empty() ? "" : " ", s);
    }
    fail(Code::invalid_argument, "attribute ", attr, ": expected one of ", all, ", given '", given,
         "'");
  }

 private:
  const Graph& graph_;
  const NodeInfo& node_;
  std::vector<Type>& outs_;
};

// What a gradient rule sees. It gives a gradient to each operand that wants one; gradients of
// several readers are summed by the walk. Shapes and dtypes given must be the operand's: use
// b.sum_to for broadcast operands.
class Grad {
 public:
  virtual ~Grad() = default;
  Builder& b;
  // Upstream gradient of output k; absent when nothing depends on it.
  virtual Value dy(size_t k = 0) = 0;
  // Forward output k, made wanted if it was not.
  virtual Value y(size_t k = 0) = 0;
  // Does anything want this operand's gradient? Absent operands: false.
  virtual bool wants(Value operand) const = 0;
  virtual void give(Value operand, Value gradient) = 0;
  // The op has no gradient for this operand: unsupported, by name.
  [[noreturn]] virtual void refuse(std::string_view operand, std::string_view why) = 0;

 protected:
  explicit Grad(Builder& builder) : b(builder) {}
};

// What a decomposition sees: writes the node in other ops; every wanted output gets its value.
class Lower {
 public:
  Lower(Builder& builder, const NodeInfo& node, std::vector<Value>& results)
      : b(builder), node_(node), results_(results) {}
  Builder& b;
  const Type& type(Value v) const { return b.type(v); }
  bool wanted(size_t k) const { return k < node_.outputs.size() && node_.outputs[k]; }
  void out(size_t k, Value value) { results_[k] = value; }

 private:
  const NodeInfo& node_;
  std::vector<Value>& results_;
};

// An op's record, typed as its author writes it. An empty gradient or decomposition is honest: the
// op is refused by name when asked for it. The costs are required, so that none is forgotten.
template <class Op>
struct Record {
  void (*shape)(Infer&, const Op&) = nullptr;
  void (*grad)(Grad&, const Op&) = nullptr;
  // False: this node is primitive (a primitive kind of a mixed op), nothing was written.
  bool (*lower)(Lower&, const Op&) = nullptr;
  // Required: floating-point operations of its products, and the least bytes read and written.
  double (*flops)(const Cost&, const Op&) = nullptr;
  double (*bytes)(const Cost&, const Op&) = nullptr;
  uint32_t traits = 0;
};

// As the passes see it.
struct OpRecord {
  std::string_view domain;
  const OpSchema* schema = nullptr;
  void (*shape)(Infer&, const Graph&, const NodeInfo&) = nullptr;
  void (*grad)(Grad&, const Graph&, const NodeInfo&) = nullptr;
  bool (*lower)(Lower&, const Graph&, const NodeInfo&) = nullptr;
  double (*flops)(const Graph&, const NodeInfo&) = nullptr;  // empty: no_products
  double (*bytes)(const Graph&, const NodeInfo&) = nullptr;  // empty: each_once
  uint32_t traits = 0;

  std::string_view name() const { return schema->name; }
  bool primitive() const { return schema->level == OpLevel::primitive; }
};

// Through a call, for gcc 12 warns of comparing a constant function pointer.
template <class Function>
constexpr bool has(Function* slot) {
  return slot != nullptr;
}

template <class Function>
constexpr bool same(Function* slot, Function* function) {
  return slot == function;
}

// constexpr, so that records exist before any constructor of a static runs.
template <class Op, const Record<Op>& r>
constexpr OpRecord record() {
  static_assert(
      has(r.flops) && has(r.bytes),
      "a record says what its op costs: .flops and .bytes, such as no_products and each_once");
  OpRecord out{.domain = "tenon", .schema = find_op(Op::kName), .traits = r.traits};
  out.shape = [](Infer& i, const Graph&, const NodeInfo& n) { r.shape(i, decode<Op>(n)); };
  if (has(r.grad))
    out.grad = [](Grad& g, const Graph&, const NodeInfo& n) { r.grad(g, decode<Op>(n)); };
  if (has(r.lower))
    out.lower = [](Lower& l, const Graph&, const NodeInfo& n) { return r.lower(l, decode<Op>(n)); };
  if (!same(r.flops, no_products<Op>))
    out.flops = [](const Graph& g, const NodeInfo& n) {
      return r.flops(Cost(g, n), decode<Op>(n));
    };
  if (!same(r.bytes, each_once<Op>))
    out.bytes = [](const Graph& g, const NodeInfo& n) {
      return r.bytes(Cost(g, n), decode<Op>(n));
    };
  return out;
}

// Every record, in the order of ops.def.
const std::vector<const OpRecord*>& all_records();
// nullptr when unknown. version 0 = the newest.
const OpRecord* find_record(std::string_view domain, std::string_view name, uint32_t version = 0);

}  // namespace tenon::core
