// SPDX-License-Identifier: Apache-2.0
// Names of an ONNX graph and what they are worth while it is translated.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "import/onnx/known.hpp"
#include "import/onnx/model.hpp"
#include "ops/build.hpp"

namespace tenon::core::onnx {

// What a name stands for. At least one of value, known, make and list, unless it is refused.
struct Item {
  Value value{};                           // in the graph that is being written
  KnownPtr known{};                        // its content, if that is known
  std::shared_ptr<const Tensor> tensor{};  // an initializer that is a weight, or of a rare dtype
  std::shared_ptr<const std::vector<Item>> list{};  // a sequence
  bool refused = false;                             // computed by a node that was refused
};

// One refused node.
struct Refusal {
  std::string text;  // of the node, with the reason
  Code code = Code::unsupported;
};
// Thrown inside a rule; becomes an entry of the list of refusals.
struct Refused {
  Code code;
  std::string reason;
};

class Translation;

// The names of one graph, or of one call of a function. All scopes of a function graph write into
// the same graph.
class Scope {
 public:
  // parent: of a subgraph whose nodes are translated in place; its names are visible.
  Scope(Translation& all, Builder& builder, Scope* parent = nullptr)
      : all(all), b(builder), parent_(parent) {}
  Scope(const Scope&) = delete;

  Translation& all;
  Builder& b;
  std::map<std::string, int64_t, std::less<>> opsets{};
  // Attributes of the calling node, inside the body of a function.
  const std::map<std::string, const Attribute*, std::less<>>* arguments = nullptr;
  std::string where{};  // goes before names of nodes

  void set(const std::string& name, Item item) { names_[name] = std::move(item); }
  const Item* find(std::string_view name) const {
    const auto at = names_.find(name);
    if (at != names_.end()) return &at->second;
    return parent_ ? parent_->find(name) : nullptr;
  }
  // The value of an item in the graph; makes a constant or a weight if necessary.
  Value value(Item& item);
  Value value(std::string_view name) {
    const auto at = names_.find(name);
    return at != names_.end() ? value(at->second) : parent_->value(name);
  }

  // Translates nodes in order. Refused nodes go to the list of the translation.
  void run(const std::vector<Node>& nodes);
  void add_initializers(const Graph& graph);

 private:
  void run_node(const Node& node);
  Scope* parent_ = nullptr;
  std::map<std::string, Item, std::less<>> names_;
};

// What all scopes of a translation share.
class Translation {
 public:
  explicit Translation(const Model& model) : model(model) {}
  const Model& model;
  std::vector<Refusal> refusals{};
  // Must this initializer stay a weight, whose content no rule may read?
  std::function<bool(const Tensor&)> keeps = [](const Tensor&) { return false; };
  // Gives the value of an initializer that is a weight.
  std::function<Value(Builder&, const std::shared_ptr<const Tensor>&)> weight{};
  int depth = 0;      // of functions and subgraphs
  int64_t nodes = 0;  // translated so far
  int64_t known = 0;  // elements of known results so far
  const Function* function(const Node& node) const;
  // Fails with all refusals, if there are any.
  void finish() const;
};

// Limits of what a model may expand to.
inline constexpr int kMostDepth = 16;
inline constexpr int64_t kMostNodes = 1 << 18;
inline constexpr int64_t kMostKnownInAll = 1 << 24;  // elements
inline constexpr int64_t kMostParts = 1000;          // that one node is written with

// A node, as its rule sees it.
class Call {
 public:
  Call(Scope& scope, const Node& node, int64_t opset)
      : scope(scope), node(node), opset(opset), b(scope.b) {}
  Scope& scope;
  const Node& node;
  const int64_t opset;  // of the node's domain
  Builder& b;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Refused{Code::unsupported, cat(parts...)};
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    throw Refused{Code::invalid_argument, cat(parts...)};
  }

  // ---- inputs
  size_t inputs() const { return node.inputs.size(); }
  bool has(size_t k) const { return k < node.inputs.size() && !node.inputs[k].empty(); }
  const Item& item(size_t k) const;
  Value value(size_t k) const;
  Value value_or_none(size_t k) const { return has(k) ? value(k) : Value{}; }
  const Known* known(size_t k) const { return has(k) ? item(k).known.get() : nullptr; }
  Type type(size_t k) const;
  Shape shape(size_t k) const { return type(k).shape; }
  DType dtype(size_t k) const { return type(k).dtype; }
  int rank(size_t k) const { return shape(k).rank(); }
  // The content of an input that must be known.
  const Known& need(size_t k, std::string_view what) const;
  Ints ints(size_t k, std::string_view what) const;
  int64_t integer(size_t k, std::string_view what) const;  // of one element
  double number(size_t k, std::string_view what) const;    // likewise
  // Refuses numbers outside of [-limit, limit], so that sums with dims do not overflow.
  Ints sane(Ints list, std::string_view what, int64_t limit = int64_t{1} << 31) const;

  // ---- attributes
  const Attribute* attr(std::string_view name) const;
  bool has_attr(std::string_view name) const { return attr(name) != nullptr; }
  int64_t i(std::string_view name, int64_t otherwise) const;
  double f(std::string_view name, double otherwise) const;
  std::string s(std::string_view name, std::string_view otherwise) const;
  bool flag(std::string_view name, bool otherwise) const { return i(name, otherwise) != 0; }
  Ints is(std::string_view name) const;  // empty if absent
  std::vector<double> fs(std::string_view name) const;
  std::vector<std::string> strings(std::string_view name) const;
  const Graph& graph(std::string_view name) const;
  DType dtype_attr(std::string_view name, int32_t otherwise) const;  // of TensorProto.DataType
  int axis(int64_t axis, int rank) const;
  Ints axes(Ints axes, int rank) const;  // counted from the front

  // ---- outputs
  size_t outputs() const { return node.outputs.size(); }
  bool wants(size_t k) const { return k < node.outputs.size() && !node.outputs[k].empty(); }
  void out(size_t k, Value v) const;
  void out(Value v) const { out(0, v); }
  void out(size_t k, Known known) const;
  void out(Known known) const { out(0, std::move(known)); }
  void out_item(size_t k, Item item) const;

  // ---- helpers of rules
  Value constant(const Known& known) const;
  // Are all inputs known, and not too large to compute with?
  bool folds() const;
};

// "Conv 'layer1' (ai.onnx, opset 17)"
std::string text_of(const Node& node, int64_t opset);
std::string name_of(const Node& node);

// Writes the body of a subgraph or of a function into a new graph; see control.cpp and function.cpp.
void call_function(Call& call, const Function& function);

}  // namespace tenon::core::onnx
