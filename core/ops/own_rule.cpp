// SPDX-License-Identifier: Apache-2.0
// Calls the rules of registered ops, and checks all that they give.
#include "ops/own_rule.hpp"

#include <cxxabi.h>

#include <cmath>
#include <optional>

#include "base/c_struct.hpp"
#include "ops/node_desc.hpp"

namespace tenon::core {
namespace {

const RegisteredOp& registered(const NodeInfo& node) {
  return static_cast<const RegisteredOp&>(*node.op);
}

// One call of a rule. Functions that the rule calls never throw into it: the first failure is kept,
// and thrown when the rule has returned.
class RuleCall {
 public:
  enum class Kind : uint8_t { shape, decompose, gradient, cost };

  RuleCall(Kind kind, const Graph& graph, const NodeInfo& node)
      : kind_(kind),
        graph_(graph),
        node_(node),
        who_(node.op->text(node.provenance)),
        complete_(complete_attrs(node)) {
    fill_attributes();
    for (Value v : node.operands) {
      operands_.push_back(v.id);
      operand_types_.push_back(v ? to_c(graph.type(v)) : to_c({}));
    }
    // Absent operands at the end of a node are cut off.
    operands_.resize(std::max(operands_.size(), operand_count(*node.op, node.lists)), TENON_NONE);
    operand_types_.resize(operands_.size(), to_c({}));
    for (Value v : node.outputs) want_.push_back(bool(v));
    want_.resize(std::max(want_.size(), output_count(*node.op)));
    if (kind != Kind::shape) types_ = infer_types(graph, node, want_.size());
    for (const Type& t : types_) output_types_.push_back(to_c(t));
    call_.struct_size = sizeof call_;
    call_.host = this;
    call_.attributes = attributes_.data();
    call_.attribute_stride = sizeof(tenon_arg);
    call_.operands = operands_.data();
    call_.operand_types = operand_types_.data();
    call_.type_stride = sizeof(tenon_tensor_type);
    call_.lists = node.lists.data();
    call_.want = want_.data();
    call_.output_types = output_types_.empty() ? nullptr : output_types_.data();
    call_.attribute_count = static_cast<uint32_t>(attributes_.size());
    call_.operand_count = static_cast<uint32_t>(operands_.size());
    call_.list_count = static_cast<uint32_t>(node.lists.size());
    call_.output_count = static_cast<uint32_t>(want_.size());
    call_.node = c_str(who_);
    set_functions();
  }
  RuleCall(const RuleCall&) = delete;
  RuleCall& operator=(const RuleCall&) = delete;

  // What the rules of each kind write to.
  Infer* infer = nullptr;
  Builder* builder = nullptr;
  Grad* grad = nullptr;
  std::vector<Value>* results = nullptr;
  bool gave = false;  // called give()

  const std::vector<Type>& types() const { return types_; }  // of the outputs; none in a shape rule

  // Calls `rule(user, call)`. Throws the call's failure, if there is one.
  template <class Rule>
  void run(const Rule& rule) {
    try {
      rule(registered(node_).rules.user, &call_);
    } catch (const abi::__forced_unwind&) {
      throw;  // the end of a cancelled thread, which must continue
    } catch (const std::exception& e) {
      keep(Code::internal, "its ", name(), " threw an exception: ", e.what());
    } catch (...) {
      keep(Code::internal, "its ", name(), " threw an exception");
    }
    if (failure_) throw Error(*failure_);
    if (out_of_memory_) throw std::bad_alloc();
  }

  template <class... Parts>
  [[noreturn]] void fail_rule(const Parts&... parts) const {
    fail(Code::invalid_argument, who_, ": its ", name(), " ", parts...);
  }

 private:
  std::string_view name() const {
    constexpr std::string_view names[] = {"shape rule", "decomposition", "gradient", "cost rule"};
    return names[static_cast<size_t>(kind_)];
  }

  // Keeps the first failure. If there is no memory for its text, that is the failure.
  template <class... Parts>
  void keep(Code code, const Parts&... parts) noexcept {
    if (failed()) return;
    try {
      failure_.emplace(code, cat(who_, ": ", parts...));
    } catch (...) {
      out_of_memory_ = true;
    }
  }
  bool failed() const noexcept { return failure_ || out_of_memory_; }

  void fill_attributes() {
    for (const Attr& attr : complete_) {
      tenon_arg& a = attributes_.emplace_back();
      a = {};
      a.name = c_str(attr.name);
      a.type = static_cast<uint32_t>(attr.value.index()) + 1;  // alternatives: see AttrValue
      fill(a, attr.value);
    }
  }
  static void fill(tenon_arg& a, const AttrValue& value) {
    std::visit(
        [&]<class T>(const T& v) {
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, bool>)
            a.i64 = v;
          else if constexpr (std::is_same_v<T, double>)
            a.f64 = v;
          else if constexpr (std::is_same_v<T, std::string>)
            a.str = c_str(v);
          else if constexpr (std::is_same_v<T, DTypeAttr>)
            a.i64 = v.dtype;
          else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            a.ints = v.data(), a.count = static_cast<uint32_t>(v.size());
          else if constexpr (std::is_same_v<T, std::vector<double>>)
            a.floats = v.data(), a.count = static_cast<uint32_t>(v.size());
        },
        value);
  }

  // ---- the functions of tenon_op_call

  static RuleCall& of(const tenon_op_call* call) { return *static_cast<RuleCall*>(call->host); }

  // Does what the rule asks for, unless the call has failed or the rule is of another kind.
  template <class Body>
  static void serve(const tenon_op_call* call, const char* function, bool allowed,
                    Body body) noexcept {
    RuleCall& c = of(call);
    if (c.failed()) return;
    try {
      if (!allowed) fail(Code::invalid_argument, "must not call ", function);
      body(c);
    } catch (const Error& e) {
      c.keep(e.code(), "its ", c.name(), ": ", e.what());
    } catch (const std::bad_alloc&) {
      c.keep(Code::out_of_memory, "its ", c.name(), ": no memory");
    } catch (...) {
      c.keep(Code::internal, "its ", c.name(), ": ", function, " failed");
    }
  }
  static bool builds(const tenon_op_call* call) {
    return of(call).kind_ == Kind::decompose || of(call).kind_ == Kind::gradient;
  }
  Graph& graph() const { return builder->graph; }
  Value value(tenon_value v, std::string_view what) const {
    if (v >= graph_.value_count()) fail(Code::invalid_argument, what, ": no value of the graph");
    return {v};
  }

  void set_functions() {
    call_.fail = [](const tenon_op_call* call, tenon_code code, tenon_str text) {
      RuleCall& c = of(call);
      const bool known = code > TENON_OK && code <= TENON_INTERNAL;
      c.keep(known ? static_cast<Code>(code) : Code::internal,
             std::string_view(text.data ? text.data : "", text.data ? text.size : 0));
    };
    call_.failed = [](const tenon_op_call* call) { return uint32_t{of(call).failed()}; };
    call_.value_type = [](const tenon_op_call* call, tenon_value v, tenon_tensor_type* out) {
      serve(call, "value_type", true, [&](RuleCall& c) {
        give(need(out, "out_type"), to_c(c.graph_.type(c.value(v, "value_type"))), "out_type");
      });
    };
    call_.give_type = [](const tenon_op_call* call, uint32_t k, const tenon_tensor_type* type) {
      serve(call, "give_type", of(call).kind_ == Kind::shape, [&](RuleCall& c) {
        const OpSchema& schema = *c.node_.op->schema;
        if (k >= c.infer->out_count())
          fail(Code::invalid_argument, "gives a type for output ", k, ", the node has ",
               c.infer->out_count());
        c.infer->out(k, numeric_type(type, cat("output ", schema.output_name(k))));
      });
    };
    call_.add_node = [](const tenon_op_call* call, const tenon_node_desc* node, tenon_value* out) {
      serve(call, "add_node", builds(call), [&](RuleCall& c) {
        tenon_node_desc desc = taken(&need(node, "node"), "node");
        desc.struct_size = sizeof desc;
        desc.provenance = c_str(c.builder->provenance);
        const NodeId made =
            core::add_node(c.graph(), &desc, out, "a rule cannot ask for gradients");
        c.graph().set_marks(made, c.builder->marks);
      });
    };
    call_.constant = [](const tenon_op_call* call, const tenon_tensor_type* type, const void* data,
                        uint64_t size) {
      tenon_value made = TENON_NONE;
      serve(call, "constant", builds(call), [&](RuleCall& c) {
        const Type t = numeric_type(type, "constant");
        if (size != type_bytes(t))
          fail(Code::invalid_argument, "constant ", t.text(), ": expected ", type_bytes(t),
               " bytes, got ", size);
        auto bytes = std::make_shared<Bytes>(size);
        if (size)
          std::memcpy(bytes->data(), &need(static_cast<const std::byte*>(data), "data"), size);
        made = c.graph().constant(t, std::move(bytes)).id;
      });
      return made;
    };
    call_.give = [](const tenon_op_call* call, uint32_t position, tenon_value v) {
      serve(call, "give", builds(call), [&](RuleCall& c) { c.take(position, v); });
    };
    call_.upstream = [](const tenon_op_call* call, uint32_t k) {
      tenon_value v = TENON_NONE;
      serve(call, "upstream", of(call).kind_ == Kind::gradient,
            [&](RuleCall& c) { v = c.grad->dy(c.output(k)).id; });
      return v;
    };
    call_.forward = [](const tenon_op_call* call, uint32_t k) {
      tenon_value v = TENON_NONE;
      serve(call, "forward", of(call).kind_ == Kind::gradient,
            [&](RuleCall& c) { v = c.grad->y(c.output(k)).id; });
      return v;
    };
    call_.wants = [](const tenon_op_call* call, uint32_t k) {
      uint32_t wants = 0;
      serve(call, "wants", of(call).kind_ == Kind::gradient, [&](RuleCall& c) {
        const Value operand = c.operand(k);
        wants = operand && c.grad->wants(operand);
      });
      return wants;
    };
  }

  uint32_t output(uint32_t k) const {
    if (k >= want_.size())
      fail(Code::invalid_argument, "there is no output ", k, ", the node has ", want_.size());
    return k;
  }
  Value operand(uint32_t k) const {
    if (k >= operands_.size())
      fail(Code::invalid_argument, "there is no operand ", k, ", the node has ", operands_.size());
    return {operands_[k]};
  }

  void take(uint32_t position, tenon_value v) {
    gave = true;
    const OpSchema& schema = *node_.op->schema;
    if (kind_ == Kind::decompose) {
      (*results)[output(position)] = value(v, cat("output ", schema.output_name(position)));
      return;
    }
    const Value at = operand(position);
    if (!at || !grad->wants(at)) return;
    const std::string what = cat("operand ", schema.operand_name(position, node_.lists));
    const Value gradient = value(v, what);
    if (graph_.type(gradient) != graph_.type(at))
      fail(Code::invalid_argument, what, ": expected a gradient of type ", graph_.type(at).text(),
           ", got ", graph_.type(gradient).text());
    grad->give(at, gradient);
  }

  const Kind kind_;
  const Graph& graph_;
  const NodeInfo& node_;
  const std::string who_;
  const Attrs complete_;
  std::vector<Type> types_;
  std::vector<tenon_arg> attributes_;
  std::vector<tenon_value> operands_;
  std::vector<tenon_tensor_type> operand_types_, output_types_;
  std::vector<uint8_t> want_;
  tenon_op_call call_{};
  std::optional<Error> failure_;
  bool out_of_memory_ = false;
};

// The default is accepted even if it is not among the values.
void check_dtypes(const Infer& infer, const NodeInfo& node) {
  for (const Words& w : node.op->words) {
    const AttrValue* value = node.attr(w.attr);
    const auto* given = value ? std::get_if<DTypeAttr>(value) : nullptr;
    if (given && !is_one_of(w.accepted, dtype_name(given->dtype)))
      infer.fail(Code::dtype_mismatch, "attribute ", w.attr, ": expected one of ", w.accepted,
                 ", given ", dtype_name(given->dtype));
  }
}

void run_shape(Infer& infer, const Graph& graph, const NodeInfo& node) {
  check_words(infer, node.op->words, node);
  check_dtypes(infer, node);
  RuleCall call(RuleCall::Kind::shape, graph, node);
  call.infer = &infer;
  call.run(registered(node).rules.shape);
}

bool run_decompose(Lower& lower, const Graph& graph, const NodeInfo& node) {
  RuleCall call(RuleCall::Kind::decompose, graph, node);
  std::vector<Value> results(std::max(node.outputs.size(), output_count(*node.op)));
  call.builder = &lower.b;
  call.results = &results;
  call.run(registered(node).rules.decompose);
  if (!call.gave) return false;
  const std::vector<Type>& types = call.types();
  for (size_t k = 0; k < results.size(); ++k) {
    const std::string_view name = node.op->schema->output_name(k);
    if (lower.wanted(k) && !results[k]) call.fail_rule("gives no value for output ", name);
    if (!results[k]) continue;
    if (graph.type(results[k]) != types[k])
      call.fail_rule("gives output ", name, " as ", graph.type(results[k]).text(), ", expected ",
                     types[k].text());
    lower.out(k, results[k]);
  }
  return true;
}

void run_gradient(Grad& grad, const Graph& graph, const NodeInfo& node) {
  RuleCall call(RuleCall::Kind::gradient, graph, node);
  call.builder = &grad.b;
  call.grad = &grad;
  call.run(registered(node).rules.gradient);
}

double run_cost(double (*rule)(void*, const tenon_op_call*), const Graph& graph,
                const NodeInfo& node) {
  RuleCall call(RuleCall::Kind::cost, graph, node);
  double cost = 0;
  call.run([&](void* user, const tenon_op_call* c) { cost = rule(user, c); });
  if (!std::isfinite(cost) || cost < 0)
    call.fail_rule("gives ", cost, ", expected a finite number >= 0");
  return cost;
}

}  // namespace

void use_rules(RegisteredOp& op) {
  op.shape = run_shape;
  if (op.rules.decompose) op.lower = run_decompose;
  if (op.rules.gradient) op.grad = run_gradient;
  if (op.rules.flops)
    op.flops = [](const Graph& g, const NodeInfo& n) {
      return run_cost(registered(n).rules.flops, g, n);
    };
  if (op.rules.bytes)
    op.bytes = [](const Graph& g, const NodeInfo& n) {
      return run_cost(registered(n).rules.bytes, g, n);
    };
}

}  // namespace tenon::core
