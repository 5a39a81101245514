// SPDX-License-Identifier: Apache-2.0
//
// The record of an op: shape rule, gradient, decomposition, rules for batches and for padded
// operands, costs and traits. Each family (elementwise.cpp, norm.cpp, ...) defines one <op>_def per
// op of ops.def. table.cpp refers to all of them, so a missing record does not link.
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

// Traits. kElementwise: an output element depends only on the operand elements at its position,
// after broadcasting.
inline constexpr uint32_t kElementwise = 1;
inline constexpr uint32_t kCommutative = 2;  // the first two operands may be exchanged
inline constexpr uint32_t kOrdered = 4;  // stays in order; is never merged, dropped or duplicated
inline constexpr uint32_t kView = 8;     // moves no data if the strides permit
inline constexpr uint32_t kNotDifferentiable = 32;  // has no gradient; not decomposed for one
// Gradients are those of the decomposition where there is one; nothing else decomposes the op.
inline constexpr uint32_t kGradOfDecomposition = 64;
// The rows of its first output have an extent: its second output says how many of them count. Its
// attribute `bound` gives the size of the axis.
inline constexpr uint32_t kExtent = 128;
// Its first output is an integer that carries a gradient to the operands: a float of the output's
// shape.
inline constexpr uint32_t kStraightThrough = 256;
inline constexpr uint32_t kReadsBlocks = 512;  // its operands may consist of blocks
inline constexpr uint32_t kReduction = 16;  // folds axes of its only operand; may end a fused body

// The view of a shape rule. All operand types are numeric. fail() names op and node.
class Infer {
 public:
  Infer(const Graph& graph, const NodeInfo& node, std::vector<Type>& outs)
      : graph_(graph), node_(node), outs_(outs) {}
  const Type& type(Value v) const { return graph_.type(v); }
  const Shape& shape(Value v) const { return graph_.type(v).shape; }
  DType dtype(Value v) const { return graph_.type(v).dtype; }
  // Every output of the entry must get a type, even if it is not wanted.
  void out(size_t k, const Type& type) {
    if (k >= outs_.size())
      fail(Code::invalid_argument, "gives output ", k, ", the node has ", outs_.size());
    outs_[k] = type;
  }
  size_t out_count() const { return outs_.size(); }  // counts the node's list outputs
  // The dense content of a constant; null for other values.
  const Bytes* content(Value v) const { return graph_[v].data.get(); }
  bool wanted(size_t k) const { return k < node_.outputs.size() && node_.outputs[k]; }

  std::string who() const;  // "rms_norm 'layers.0.norm'"
  template <class... Parts>
  [[noreturn]] void fail(Code code, const Parts&... parts) const {
    core::fail(code, who(), ": ", parts...);
  }
  // Frequent checks. `operand` is the name in the entry.
  void want_float(Value v, std::string_view operand) const;  // F
  void want_index(Value v, std::string_view operand) const;  // X
  void want_complex(Value v, std::string_view operand) const;
  void want_dtype(Value v, std::string_view operand, DType dtype) const;
  void want_same_dtype(Value a, std::string_view operand_a, Value b,
                       std::string_view operand_b) const;
  void want_shape(Value v, std::string_view operand, const Shape& shape) const;  // shape_mismatch
  void want_rank(Value v, std::string_view operand, int rank) const;
  int axis(int64_t axis, int rank) const { return normalize_axis(axis, rank, who()); }

 private:
  const Graph& graph_;
  const NodeInfo& node_;
  std::vector<Type>& outs_;
};

// The view of a gradient rule. It gives a gradient to each operand that wants one; the walk adds up
// the gradients of several readers. Gradients have the operand's shape and dtype: use b.sum_to for
// broadcast operands.
class Grad {
 public:
  virtual ~Grad() = default;
  Builder& b;
  // The upstream gradient of output k; absent if nothing depends on the output.
  virtual Value dy(size_t k = 0) = 0;
  // The forward output k, which becomes wanted.
  virtual Value y(size_t k = 0) = 0;
  // True if the gradient of this operand is wanted. False for absent operands.
  virtual bool wants(Value operand) const = 0;
  virtual void give(Value operand, Value gradient) = 0;
  // The gradient of a node of level control, through its functions.
  virtual void through_functions() = 0;
  // Refuses (unsupported): the op has no gradient for this operand.
  [[noreturn]] virtual void refuse(std::string_view operand, std::string_view why) = 0;

 protected:
  explicit Grad(Builder& builder) : b(builder) {}
};

// The view of a decomposition: it writes the node in other ops, and gives a value to every wanted
// output.
class Lower {
 public:
  Lower(Builder& builder, const NodeInfo& node, std::vector<Value>& results)
      : b(builder), node_(node), results_(results) {}
  Builder& b;
  Type type(Value v) const { return b.type(v); }
  bool wanted(size_t k) const { return k < node_.outputs.size() && node_.outputs[k]; }
  // A value for an output that the node does not list is dropped.
  void out(size_t k, Value value) {
    if (k < results_.size()) results_[k] = value;
  }

 private:
  const NodeInfo& node_;
  std::vector<Value>& results_;
};

// The view of a batch rule: the node, once for a batch of examples. The operands of its op struct
// are those of one example; this class has the values behind them. A batched value has the batch as
// axis 0, before the axes of an example. At least one operand is batched.
class Batch {
 public:
  // The batched or shared value of an operand, in b's graph.
  struct Operand {
    Value value{};
    bool batched = false;
    Type type{};  // of one example
  };
  // operands: by position in the node, absent ones without a value.
  // types: of the node's outputs for one example.
  Batch(Builder& builder, std::span<const Operand> operands, std::span<const Type> types,
        int64_t size, std::vector<Value>& results)
      : b(builder), operands_(operands), types_(types), size_(size), results_(results) {}
  Builder& b;

  int64_t size() const { return size_; }
  bool batched(Value operand) const { return operand && operands_[operand.id].batched; }
  const Type& type(Value operand) const { return operands_[operand.id].type; }
  int rank(Value operand) const { return type(operand).shape.rank(); }
  // As it is: batched or not.
  Value given(Value operand) const { return operand ? operands_[operand.id].value : Value{}; }
  // Batched: repeated for each example, unless it is batched already.
  Value all(Value operand);
  // With `axes` axes behind the batch, so that it broadcasts against others of the batch. An
  // operand that is not batched broadcasts as it is.
  Value aligned(Value operand, int axes);
  // Batched, and the batch is part of its first axis.
  Value folded(Value operand);
  // Converts an axis of an example to an axis of the batched value.
  static int64_t axis(int64_t axis) { return axis < 0 ? axis : axis + 1; }
  static Ints axes(Ints axes);

  // The shape of output k, with the batch.
  Shape result(size_t k) const;
  void out(size_t k, Value batched) {
    if (k < results_.size()) results_[k] = batched;
  }
  // Adds the op of the node, with attributes as in `n`, over value_of(operand) for each operand of
  // `n`; its results are those of the node.
  template <class Op, class ValueOf>
  bool add(Op n, ValueOf value_of);
  template <class Op>
  bool add_all(const Op& n) {
    return add(n, [&](Value v) { return all(v); });
  }
  // For ops whose operands broadcast: aligned with the operand of the most axes.
  template <class Op>
  bool add_aligned(const Op& n);
  // With the batch in the first axis of operands and results. value_of(operand) replaces the folded
  // value unless it returns an absent value.
  template <class Op, class ValueOf>
  bool add_folded(const Op& n, ValueOf value_of);

 private:
  // Replaces the operands of an op struct.
  template <class ValueOf>
  struct Replace {
    ValueOf& value_of;
    template <class T>
    void attr(const char*, T&, const T&) {}
    void operand(const char*, Value& v) { v = value_of(v); }
    void optional(const char*, Value& v) {
      if (v) v = value_of(v);
    }
    void list(const char*, std::vector<Value>& vs) {
      for (Value& v : vs) v = value_of(v);
    }
    void output(const char*, bool = true) {}
    void output_list(const char*, size_t) {}
  };

  std::span<const Operand> operands_;
  std::span<const Type> types_;
  int64_t size_;
  std::vector<Value>& results_;
};

template <class Op, class ValueOf>
bool Batch::add(Op n, ValueOf value_of) {
  visit(n, Replace<ValueOf>{value_of});
  const Results made = b.add(n);
  for (size_t k = 0; k < made.outputs.size(); ++k)
    if (made.outputs[k]) out(k, made.outputs[k]);
  return true;
}
template <class Op>
bool Batch::add_aligned(const Op& n) {
  int axes = 0;
  for (const Operand& o : operands_)
    if (o.value) axes = std::max(axes, o.type.shape.rank());
  return add(n, [&](Value v) { return aligned(v, axes); });
}
template <class Op, class ValueOf>
bool Batch::add_folded(const Op& n, ValueOf value_of) {
  add(n, [&](Value v) {
    const Value other = value_of(v);
    return other ? other : folded(v);
  });
  for (size_t k = 0; k < results_.size(); ++k)
    if (results_[k]) results_[k] = b.reshape(results_[k], result(k));
  return true;
}

// Batch rules of many ops: of those whose operands broadcast, of those whose operands do not, and
// of those that work along an axis.
template <class Op>
bool batch_aligned(Batch& v, const Op& n) {
  return v.add_aligned(n);
}
template <class Op>
bool batch_all(Batch& v, const Op& n) {
  return v.add_all(n);
}
template <class Op>
bool batch_along_axis(Batch& v, const Op& one) {
  Op n = one;
  n.axis = Batch::axis(n.axis);
  return v.add_all(n);
}

class Padded;  // ops/padded.hpp

// The words that a string attribute accepts, or the dtypes that a dtype attribute accepts, separated
// by spaces. Strings are checked before the shape rule runs. A shape rule may accept fewer.
struct Words {
  std::string_view attr{}, accepted{};
};
inline constexpr std::string_view kAnyText = "*";  // accepted: no list of words
constexpr size_t kMaxWords = 5;                    // such attributes of an op

// A function of a record that may be missing. A flag tells, because with sanitizers gcc 12 does not
// compare the address of a template's function in a constant expression.
template <class Function>
struct RecordEntry {
  Function* call = nullptr;
  bool given = false;
  constexpr RecordEntry() = default;
  constexpr RecordEntry(Function* function) : call(function), given(true) {}
};
// The same for a cost. `standard`: the record gives no function, but no_products or each_once.
template <class Op, class Standard>
struct CostEntry : RecordEntry<double(const Cost&, const Op&)> {
  bool standard = false;
  constexpr CostEntry() = default;
  constexpr CostEntry(double (*function)(const Cost&, const Op&))
      : RecordEntry<double(const Cost&, const Op&)>(function) {}
  constexpr CostEntry(Standard) : standard(true) { this->given = true; }
};

// The record of an op, as its author writes it. If the gradient or the decomposition is missing,
// requests for it are refused by name. The costs are required.
template <class Op>
struct Record {
  void (*shape)(Infer&, const Op&) = nullptr;
  // Required: one entry for each string and each dtype attribute.
  Words words[kMaxWords] = {};
  RecordEntry<void(Grad&, const Op&)> grad{};
  // Returns false, and writes nothing, if the node is primitive (a primitive kind of a mixed op).
  RecordEntry<bool(Lower&, const Op&)> lower{};
  // (optional) Returns false, and writes nothing, if it does not suit the node. Then the node is
  // decomposed, or runs once for each example.
  RecordEntry<bool(Batch&, const Op&)> batch{};
  // (optional) What the op needs so that the padding of its operands changes no result; see
  // ops/padded.hpp. Returns false if it does not suit the node. Then the node is decomposed, or
  // refused by name. An elementwise op without a rule takes padded operands as they are.
  RecordEntry<bool(Padded&, const Op&)> padded{};
  // Required: floating-point operations of the products, and the bytes read and written at least.
  CostEntry<Op, NoProducts> flops{};
  CostEntry<Op, EachOnce> bytes{};
  uint32_t traits = 0;
  // (optional) The lowest version of the op that means the same for this node, so that plugins of
  // that version run it. Without it: the version of the entry.
  RecordEntry<uint32_t(const Op&)> lowest_version{};
};

// The record, as passes see it.
struct OpRecord {
  std::string_view domain;
  std::string_view label{};  // "my:softcap" for a registered op, else empty
  const OpSchema* schema = nullptr;
  void (*shape)(Infer&, const Graph&, const NodeInfo&) = nullptr;
  void (*grad)(Grad&, const Graph&, const NodeInfo&) = nullptr;
  bool (*lower)(Lower&, const Graph&, const NodeInfo&) = nullptr;
  // The operands of the node are positions in Batch.
  bool (*batch)(Batch&, const NodeInfo&) = nullptr;
  bool (*padded)(Padded&, const NodeInfo&) = nullptr;        // likewise in Padded
  double (*flops)(const Graph&, const NodeInfo&) = nullptr;  // null: no_products
  double (*bytes)(const Graph&, const NodeInfo&) = nullptr;  // null: each_once
  uint32_t traits = 0;
  std::span<const Words> words{};
  uint32_t (*version_of)(const NodeInfo&) = nullptr;  // null: the version of the entry

  uint32_t lowest_version(const NodeInfo& node) const {
    return version_of ? version_of(node) : schema->version;
  }
  // For messages and reports. The name of a registered op includes its domain, so it equals no name
  // of tenon's ops.
  std::string_view name() const { return label.empty() ? schema->name : label; }
  // The op at its node, for messages: "softmax 'layers.0'".
  std::string text(std::string_view provenance) const {
    return provenance.empty() ? std::string(name()) : cat(name(), " '", provenance, "'");
  }
  bool is_registered() const { return !label.empty(); }
  bool primitive() const { return schema->level == OpLevel::primitive; }
  bool meta() const { return schema->level == OpLevel::meta; }
};

// True for tenon's ops that draw random numbers. A registered op may have any family.
inline bool is_random(const OpRecord& op) {
  return op.domain == "tenon" && op.schema->family == "random";
}

// True if the record names the words of each string and dtype attribute, and of no other.
constexpr bool has_words(const OpSchema& schema, std::span<const Words> words) {
  size_t wanted = 0, given = 0;
  for (const OpPart& part : schema.parts()) {
    if (part.kind != OpPart::Kind::attr ||
        (part.attr_type != TENON_ATTR_STR && part.attr_type != TENON_ATTR_DTYPE))
      continue;
    ++wanted;
    for (const Words& w : words) given += w.attr == part.name && !w.accepted.empty();
  }
  size_t listed = 0;
  for (const Words& w : words) listed += !w.attr.empty();
  return wanted == given && wanted == listed;
}

// Is the word among these, which spaces separate?
bool is_one_of(std::string_view accepted, std::string_view word);
// Refuses a string attribute that is not one of its words.
void check_words(const Infer& i, std::span<const Words> words, const NodeInfo& node);

// constexpr, so that records exist before static constructors run.
template <class Op, const Record<Op>& r>
constexpr OpRecord record() {
  static_assert(
      r.flops.given && r.bytes.given,
      "a record says what its op costs: .flops and .bytes, such as no_products and each_once");
  static_assert(has_words(*find_op(Op::kName), r.words),
                "a record lists the words of each string and dtype attribute: .words");
  OpRecord out{
      .domain = "tenon", .schema = find_op(Op::kName), .traits = r.traits, .words = r.words};
  out.shape = [](Infer& i, const Graph&, const NodeInfo& n) {
    check_words(i, r.words, n);
    r.shape(i, decode<Op>(n));
  };
  if (r.grad.given)
    out.grad = [](Grad& g, const Graph&, const NodeInfo& n) { r.grad.call(g, decode<Op>(n)); };
  if (r.lower.given)
    out.lower = [](Lower& l, const Graph&, const NodeInfo& n) {
      return r.lower.call(l, decode<Op>(n));
    };
  if (r.batch.given)
    out.batch = [](Batch& v, const NodeInfo& n) { return r.batch.call(v, decode<Op>(n)); };
  if (r.padded.given)
    out.padded = [](Padded& p, const NodeInfo& n) { return r.padded.call(p, decode<Op>(n)); };
  if (r.lowest_version.given)
    out.version_of = [](const NodeInfo& n) { return r.lowest_version.call(decode<Op>(n)); };
  if (!r.flops.standard)
    out.flops = [](const Graph& g, const NodeInfo& n) {
      return r.flops.call(Cost(g, n), decode<Op>(n));
    };
  if (!r.bytes.standard)
    out.bytes = [](const Graph& g, const NodeInfo& n) {
      return r.bytes.call(Cost(g, n), decode<Op>(n));
    };
  return out;
}

// All records of tenon's ops, in the order of ops.def. Registered ones: registry.hpp.
const std::vector<const OpRecord*>& all_records();
// Returns nullptr for an unknown op. version 0 = the newest. A version stands for all versions below
// it.
const OpRecord* find_record(std::string_view domain, std::string_view name, uint32_t version = 0);

}  // namespace tenon::core
