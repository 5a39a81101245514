// SPDX-License-Identifier: Apache-2.0
// The graph: values and nodes, in an order in which they may run. Append-only: a pass writes a new
// graph and a map from old to new values (rewrite.hpp), so handles stay valid.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/type.hpp"
#include "tenon/ops.hpp"

namespace tenon::core {

struct OpRecord;
class Graph;

inline constexpr uint32_t kNone = TENON_NONE;
using NodeId = uint32_t;

// The number of a value in a graph; absent by default.
struct Value {
  uint32_t id = kNone;
  explicit operator bool() const { return id != kNone; }
  friend auto operator<=>(const Value&, const Value&) = default;
};

using FunctionAttr = std::shared_ptr<const Graph>;

// Op structs over Value: op::rms_norm{.eps = 1e-6, .x = x, .gamma = g}.
namespace op {
using Function = FunctionAttr;
#include "tenon/op_structs.inl"
}  // namespace op

struct DTypeAttr {
  DType dtype;
  friend bool operator==(const DTypeAttr&, const DTypeAttr&) = default;
};
using AttrValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, DTypeAttr, FunctionAttr>;

struct Attr {
  std::string name;
  AttrValue value;
};
// In the order of the op's entry. Attributes equal to their default are left out.
using Attrs = std::vector<Attr>;

enum class Space : uint8_t {
  node = TENON_SPACE_NODE,
  input = TENON_SPACE_INPUT,
  weight = TENON_SPACE_WEIGHT,
  constant = TENON_SPACE_CONSTANT,
  state = TENON_SPACE_STATE,
};

using Bytes = std::vector<std::byte>;

struct ValueInfo {
  Type type{};  // dtype NONE until it can be inferred (an input has symbols)
  Space space = Space::node;
  bool trainable = false;               // weights
  NodeId node = kNone;                  // the node that computes it, for Space::node
  uint32_t output = 0;                  // position among the node's outputs
  std::string name{};                   // input, weight, state: their name; else a hint or empty
  std::shared_ptr<const Bytes> data{};  // constants: dense content
};

// Properties of a node that do not affect its results. A pass that replaces a node passes them on.
struct Marks {
  uint32_t clone = 0;      // != 0: recomputed copy; merged only with nodes of the same number
  uint32_t recompute = 0;  // != 0: gradients recompute it, together with the nodes of this number
  // Index of its device among those of the plan; before legalize, of the device that it is wanted
  // on.
  uint32_t device = 0;
  bool pinned = false;  // the app chose that device
  // Set once devices are chosen:
  uint32_t source = kNone;  // the node of the previous graph that it replaces; kNone: several
  uint32_t group = kNone;   // claimed together with the nodes of this number; kNone: alone
  bool hosted = false;      // runs functions, and the host runs these
};

struct NodeInfo : Marks {
  const OpRecord* op = nullptr;
  // In the order of the op's entry: an operand takes one position, a list as many as it has
  // entries. Absent ones stand in between; trailing absent ones are cut off.
  std::vector<Value> operands{};
  std::vector<uint32_t> lists{};  // the size of each operand list of the entry
  std::vector<Value> outputs{};   // likewise: absent = not wanted
  Attrs attrs{};
  std::string provenance{};  // name in the source file, or of the call that made it
  std::string note{};        // remarks of passes, for reports

  const AttrValue* attr(std::string_view name) const {
    for (const Attr& a : attrs)
      if (a.name == name) return &a.value;
    return nullptr;
  }
};

// The operands of a node that is added. Without sizes of lists, the op's first list takes all
// operands from its position on.
struct Operands {
  std::vector<Value> values{};
  std::vector<uint32_t> lists{};
  Operands() = default;
  Operands(std::initializer_list<Value> v) : values(v) {}       // NOLINT: implicit on purpose
  Operands(std::vector<Value> v, std::vector<uint32_t> l = {})  // NOLINT: likewise
      : values(std::move(v)), lists(std::move(l)) {}
};

struct Output {
  std::string name;
  Value value;
};
struct Update {
  Value target;  // a weight or state
  Value value;   // its content after the run
};

class Graph {
 public:
  std::string name;

  // Returns the symbol of that name, for dims of inputs. Creates it if necessary.
  Dim symbol(std::string_view name);
  std::string_view symbol_name(Dim symbol) const { return symbols_[static_cast<size_t>(~symbol)]; }
  const std::vector<std::string>& symbols() const { return symbols_; }

  // Names are unique within their space and not empty. Weights and states have numeric shapes.
  Value input(std::string_view name, const Type& type);
  Value weight(std::string_view name, const Type& type, bool trainable = true);
  Value state(std::string_view name, const Type& type);
  Value constant(const Type& type, std::shared_ptr<const Bytes> data);

  // Checks the number of operands and the attributes against the op's entry, drops attributes equal
  // to their default, and infers output types if operand types are known. If wanted[k] is false or
  // missing, output k is absent.
  NodeId add_node(const OpRecord& op, Operands operands, Attrs attrs, std::vector<bool> wanted,
                  std::string_view provenance = {});
  // Makes optional output k of a node wanted.
  Value want_output(NodeId node, uint32_t k);
  // Adds a node from an op struct. Defined in ops/build.hpp.
  template <class Op>
  NodeId add(const Op& op, std::string_view provenance = {});

  void output(std::string_view name,
              Value value);  // names are unique; a value may be an output under several names
  void update(Value target, Value value);             // types must agree; one update per target
  void set_name(Value value, std::string_view name);  // a hint for reports
  void set_clone(NodeId node, uint32_t clone) { nodes_[node].clone = clone; }
  void set_recompute(NodeId node, uint32_t segment) { nodes_[node].recompute = segment; }
  void set_marks(NodeId node, const Marks& marks) { static_cast<Marks&>(nodes_[node]) = marks; }
  void set_note(NodeId node, std::string note) { nodes_[node].note = std::move(note); }

  const ValueInfo& operator[](Value v) const { return values_[v.id]; }
  const NodeInfo& operator[](NodeId n) const { return nodes_[n]; }
  const Type& type(Value v) const { return values_[v.id].type; }
  uint32_t value_count() const { return static_cast<uint32_t>(values_.size()); }
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size()); }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Update>& updates() const { return updates_; }
  const std::vector<Value>& inputs() const { return inputs_; }  // in order of creation
  const std::vector<Value>& weights() const { return weights_; }
  const std::vector<Value>& states() const { return states_; }
  Value find(Space space, std::string_view name) const;  // absent if there is none
  Value update_of(Value target) const;                   // the new value, or absent

 private:
  friend struct GraphSurgery;  // tests only: creates graphs that the checks above refuse
  Value add_value(ValueInfo info);
  Value add_named(Space space, std::string_view name, const Type& type, std::vector<Value>& list);

  std::vector<ValueInfo> values_;
  std::vector<NodeInfo> nodes_;
  std::vector<std::string> symbols_;
  std::map<std::string, Dim, std::less<>> symbol_ids_;
  std::vector<Value> inputs_, weights_, states_;
  std::vector<Output> outputs_;
  std::vector<Update> updates_;
  std::map<std::pair<Space, std::string>, Value, std::less<>> named_;
  std::map<std::string, uint32_t, std::less<>> output_names_;
  std::map<Value, Value> update_of_;
};

// The number of outputs in an op's entry, without list outputs.
size_t output_count(const OpRecord& op);
bool has_output_list(const OpRecord& op);
// The number of operand positions of a node whose lists have these sizes.
size_t operand_count(const OpRecord& op, std::span<const uint32_t> lists);
// All attributes in the order of the op's entry, also those that equal their default. A function
// that is missing is left out.
Attrs complete_attrs(const NodeInfo& node);
// Runs the shape rule: returns the checked types of the first `count` outputs. All operand types
// must be known.
std::vector<Type> infer_types(const Graph& graph, const NodeInfo& node, size_t count);
bool operands_typed(const Graph& graph, const NodeInfo& node);

}  // namespace tenon::core
