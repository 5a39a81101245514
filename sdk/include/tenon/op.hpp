// SPDX-License-Identifier: Apache-2.0
//
// Ops of one's own in C++, for apps and plugins: rules over op structs (op_structs.inl), and the
// description that op.h wants. Header-only, without a function of libtenon.
//
//   namespace my {                        // my_ops.def: TENON_OP(softcap, 1, my, core)
//   using tenon::Value, tenon::Function;  //               TENON_F64(cap, 30.0)
//   #define TENON_OPS "my_ops.def"        //               TENON_IN(x) TENON_OUT(y)
//   #define TENON_OPS_DOMAIN "my"         //             TENON_END(softcap)
//   #include <tenon/op_structs.inl>
//   }
//
//   void softcap_shape(tenon::rules::Shape& s, const my::softcap& n) {
//     s.want_float(n.x, "x");
//     s.out(0, s.type(n.x));
//   }
//   void softcap_decompose(tenon::rules::Decompose& d, const my::softcap& n) {
//     d.out(0, d.times(d.unary("tanh", d.over(n.x, n.cap)), n.cap));
//   }
//   constexpr tenon::OpRules<my::softcap> kSoftcap{.shape = softcap_shape,
//                                                  .decompose = softcap_decompose};
//
//   tenon::register_op(tenon::op_desc<my::softcap, kSoftcap>());           // an app: tenon.hpp
//   constexpr tenon::OpDesc kOps[] = {tenon::op_desc<my::softcap, kSoftcap>};  // PluginSpec::ops
//
// Rules throw tenon::Error; the text says what was expected and what came, without the node's name.
// All functions of a call throw once it has failed. Rules are pure and may be called by many
// threads. What shape, decompose, gradient, flops and bytes mean: op.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <new>
#include <numeric>
#include <span>

#include "dtype.hpp"
#include "node.hpp"

namespace tenon {
namespace rules {

using Ints = std::vector<int64_t>;

// Thrown when a call has failed already. Not for rules to catch.
struct CallFailed {};

// What all rules see.
class Call {
 public:
  explicit Call(const tenon_op_call& call) : call_(call) {}
  // The type of an operand, or of a value that the rule made.
  TensorType type(Value v) const {
    tenon_tensor_type t{};
    t.struct_size = sizeof t;
    call_.value_type(&call_, v.id, &t);
    checked();
    return TensorType(t);
  }
  tenon_dtype dtype(Value v) const { return type(v).dtype; }
  Ints shape(Value v) const { return type(v).dims; }
  size_t output_count() const { return call_.output_count; }
  bool wanted(size_t output) const {
    return output < call_.output_count && call_.want[output] != 0;
  }
  [[noreturn]] void fail(tenon_code code, const std::string& text) const {
    throw Error(code, text);
  }

 protected:
  void checked() const {
    if (call_.failed(&call_)) throw CallFailed{};
  }
  const tenon_tensor_type& output_type(size_t k) const {
    if (k >= call_.output_count)
      fail(TENON_INVALID_ARGUMENT, "there is no output " + std::to_string(k));
    return *reinterpret_cast<const tenon_tensor_type*>(
        reinterpret_cast<const char*>(call_.output_types) + k * call_.type_stride);
  }
  const tenon_op_call& call_;
};

// "f32[2,3]"
inline std::string text_of(const TensorType& t) {
  std::string text(sdk::dtype_name(t.dtype));
  text += '[';
  for (size_t i = 0; i < t.dims.size(); ++i) {
    if (i) text += ',';
    text += std::to_string(t.dims[i]);
  }
  return text + "]";
}

inline tenon_tensor_type to_c(const TensorType& type) {
  if (type.dims.size() > TENON_MAX_RANK)
    throw Error(TENON_UNSUPPORTED, "expected at most " + std::to_string(TENON_MAX_RANK) +
                                       " axes, got " + text_of(type));
  tenon_tensor_type t{};
  t.struct_size = sizeof t;
  t.dtype = type.dtype;
  t.rank = static_cast<uint16_t>(type.dims.size());
  std::ranges::copy(type.dims, t.dims);
  return t;
}

// A shape rule. The checks name the operand; `operand` is its name in the list of ops. An absent
// operand passes all checks.
class Shape : public Call {
 public:
  using Call::Call;
  // Every output gets a type, even if it is not wanted.
  void out(size_t k, const TensorType& type) const {
    const tenon_tensor_type t = to_c(type);
    call_.give_type(&call_, static_cast<uint32_t>(k), &t);
    checked();
  }
  void want_float(Value v, std::string_view operand) const {
    if (v && !sdk::is_float(dtype(v))) mismatch(TENON_DTYPE_MISMATCH, v, operand, "a float");
  }
  void want_dtype(Value v, std::string_view operand, tenon_dtype expected) const {
    if (v && dtype(v) != expected)
      mismatch(TENON_DTYPE_MISMATCH, v, operand, std::string(sdk::dtype_name(expected)));
  }
  void want_rank(Value v, std::string_view operand, size_t rank) const {
    if (v && shape(v).size() != rank)
      mismatch(TENON_SHAPE_MISMATCH, v, operand, "rank " + std::to_string(rank));
  }
  void want_shape(Value v, std::string_view operand, const Ints& expected) const {
    if (v && shape(v) != expected)
      mismatch(TENON_SHAPE_MISMATCH, v, operand, text_of({dtype(v), expected}));
  }

 private:
  [[noreturn]] void mismatch(tenon_code code, Value v, std::string_view operand,
                             const std::string& expected) const {
    fail(code, "operand " + std::string(operand) + ": expected " + expected + ", got " +
                   text_of(type(v)));
  }
};

// Writes nodes: with op structs, and with short names for frequent ops. The value of a node is its
// first output.
class Builder : public Call {
 public:
  using Call::Call;

  template <class Op>
  Node add(const Op& op) const {
    const detail::NodeEncoder e(op);
    const tenon_node_desc desc = e.desc(op, {});
    std::vector<tenon_value> out(e.want.size(), TENON_NONE);
    call_.add_node(&call_, &desc, out.data());
    checked();
    Node node{std::vector<Value>(out.size())};
    for (size_t k = 0; k < out.size(); ++k) node.outputs[k].id = out[k];
    return node;
  }
  Value constant(const TensorType& type, const void* data, uint64_t size) const {
    const tenon_tensor_type t = to_c(type);
    const Value v{call_.constant(&call_, &t, data, size)};
    checked();
    return v;
  }
  // Rank 0; broadcasts. Rounded to the dtype.
  Value scalar(tenon_dtype t, double value) const {
    const Value wide = constant({f64, {}}, &value, sizeof value);
    return t == f64 ? wide : cast(wide, t);
  }

  Value binary(std::string_view kind, Value a, Value b) const {
    return add(op::binary{.kind = std::string(kind), .a = a, .b = b});
  }
  Value plus(Value a, Value b) const { return binary("add", a, b); }
  Value plus(Value a, double b) const { return binary("add", a, scalar(dtype(a), b)); }
  Value minus(Value a, Value b) const { return binary("sub", a, b); }
  Value minus(Value a, double b) const { return binary("sub", a, scalar(dtype(a), b)); }
  Value minus(double a, Value b) const { return binary("sub", scalar(dtype(b), a), b); }
  Value times(Value a, Value b) const { return binary("mul", a, b); }
  Value times(Value a, double b) const { return binary("mul", a, scalar(dtype(a), b)); }
  Value over(Value a, Value b) const { return binary("div", a, b); }
  Value over(Value a, double b) const { return binary("div", a, scalar(dtype(a), b)); }
  Value unary(std::string_view kind, Value x) const {
    return add(op::unary{.kind = std::string(kind), .x = x});
  }
  Value compare(std::string_view kind, Value a, Value b) const {
    return add(op::compare{.kind = std::string(kind), .a = a, .b = b});
  }
  Value where(Value condition, Value a, Value b) const {
    return add(op::where{.cond = condition, .a = a, .b = b});
  }
  Value cast(Value x, tenon_dtype to) const {
    return dtype(x) == to ? x : Value(add(op::cast{.to = to, .x = x}));
  }
  Value matmul(Value a, Value b, bool trans_a = false, bool trans_b = false) const {
    return add(op::matmul{.trans_a = trans_a, .trans_b = trans_b, .a = a, .b = b});
  }

  // Each returns x if nothing changes.
  Value reshape(Value x, const Ints& to) const {
    if (shape(x) == to) return x;
    return add(op::reshape{.shape = to, .allow_zero = true, .x = x});
  }
  Value expand(Value x, const Ints& to) const {
    return shape(x) == to ? x : Value(add(op::expand{.shape = to, .x = x}));
  }
  Value transpose(Value x, const Ints& perm) const {
    Ints identity(perm.size());
    std::iota(identity.begin(), identity.end(), 0);
    return perm == identity ? x : Value(add(op::transpose{.perm = perm, .x = x}));
  }
  // kind: "sum", "mean", "max" ...; over no axes it is x.
  Value reduce(std::string_view kind, Value x, const Ints& axes, bool keepdims = true) const {
    return add(op::reduce{.kind = std::string(kind),
                          .axes = axes,
                          .keepdims = keepdims,
                          .noop_with_empty_axes = axes.empty(),
                          .x = x});
  }
  Value sum(Value x, const Ints& axes, bool keepdims = true) const {
    return reduce("sum", x, axes, keepdims);
  }
  // Reduces the gradient of a broadcast operand to the operand's shape.
  Value sum_to(Value x, const Ints& to) const {
    const Ints from = shape(x);
    if (from == to) return x;
    if (from.size() < to.size())
      fail(TENON_SHAPE_MISMATCH, "sum_to: expected at least " + std::to_string(to.size()) +
                                     " axes, got " + text_of(type(x)));
    const size_t extra = from.size() - to.size();
    Ints axes;
    for (size_t i = 0; i < from.size(); ++i)
      if (i < extra || (to[i - extra] == 1 && from[i] != 1))
        axes.push_back(static_cast<int64_t>(i));
    return reshape(axes.empty() ? x : sum(x, axes), to);
  }
};

// A decomposition: a value for every wanted output, or none for a node that has no decomposition.
class Decompose : public Builder {
 public:
  using Builder::Builder;
  void out(size_t k, Value v) const {
    call_.give(&call_, static_cast<uint32_t>(k), v.id);
    checked();
  }
};

// A gradient. For a broadcast operand use sum_to.
class Gradient : public Builder {
 public:
  using Builder::Builder;
  // The upstream gradient of output k; absent if the loss does not depend on it.
  Value dy(size_t k = 0) const {
    const Value v{call_.upstream(&call_, static_cast<uint32_t>(k))};
    checked();
    return v;
  }
  // Output k of the node itself.
  Value y(size_t k = 0) const {
    const Value v{call_.forward(&call_, static_cast<uint32_t>(k))};
    checked();
    return v;
  }
  bool wants(Value operand) const {
    if (!operand) return false;
    const bool yes = call_.wants(&call_, position(operand)) != 0;
    checked();
    return yes;
  }
  // An absent gradient is zero.
  void give(Value operand, Value gradient) const {
    if (!operand || !gradient) return;
    call_.give(&call_, position(operand), gradient.id);
    checked();
  }

 private:
  uint32_t position(Value operand) const {
    const tenon_value* const end = call_.operands + call_.operand_count;
    const tenon_value* const at = std::find(call_.operands, end, operand.id);
    if (at == end)
      fail(TENON_INVALID_ARGUMENT, "its gradient rule names a value that is no operand");
    return static_cast<uint32_t>(at - call_.operands);
  }
};

// A cost. Absent values count nothing.
class Cost : public Call {
 public:
  using Call::Call;
  double elements(Value v) const { return v ? static_cast<double>(type(v).elements()) : 0; }
  double bytes(Value v) const { return v ? static_cast<double>(type(v).bytes()) : 0; }
  TensorType out(size_t k = 0) const { return TensorType(output_type(k)); }
};

}  // namespace rules

// A function that may be missing. A flag tells, because compilers do not all compare the address of
// a function with null in a constant expression.
template <class Function>
struct Rule {
  Function* call = nullptr;
  bool given = false;
  constexpr Rule() = default;
  constexpr Rule(Function* function)
      : call(function), given(true) {}  // NOLINT: implicit on purpose
};

// The rules of an op, as a constexpr variable.
template <class Op>
struct OpRules {
  Rule<void(rules::Shape&, const Op&)> shape{};          // required
  Rule<void(rules::Decompose&, const Op&)> decompose{};  // (optional)
  Rule<void(rules::Gradient&, const Op&)> gradient{};    // (optional)
  Rule<double(const rules::Cost&, const Op&)> flops{};   // (optional)
  Rule<double(const rules::Cost&, const Op&)> bytes{};   // (optional)
  uint32_t flags = 0;                                    // TENON_OP_*
  // (optional) What string and dtype attributes accept: {{"kind", "soft hard"}}.
  struct Values {
    std::string_view attribute{}, accepted{};
  };
  Values values[8] = {};
};

// Makes the description of an op: op_desc<my::softcap, kSoftcap>.
using OpDesc = tenon_op_desc (*)();

namespace detail {

// Fills an op struct from a call.
class CallDecoder {
 public:
  explicit CallDecoder(const tenon_op_call& call) : call_(call) {}
  void attr(const char* name, std::string& field, const std::string&) {
    field = string(find(name).str);
  }
  void attr(const char* name, int64_t& field, int64_t) { field = find(name).i64; }
  void attr(const char* name, double& field, double) { field = find(name).f64; }
  void attr(const char* name, bool& field, bool) { field = find(name).i64 != 0; }
  void attr(const char* name, tenon_dtype& field, tenon_dtype) {
    field = static_cast<tenon_dtype>(find(name).i64);
  }
  void attr(const char* name, std::vector<int64_t>& field, const std::vector<int64_t>&) {
    const tenon_arg& a = find(name);
    field.assign(a.ints, a.ints + a.count);
  }
  void attr(const char* name, std::vector<double>& field, const std::vector<double>&) {
    const tenon_arg& a = find(name);
    field.assign(a.floats, a.floats + a.count);
  }
  void attr(const char* name, Function& field, const Function&) {
    field.graph = find(name).function;
  }
  void operand(const char*, Value& v) { v = next(); }
  void optional(const char*, Value& v) { v = next(); }
  void list(const char*, std::vector<Value>& vs) {
    const uint32_t size = list_ < call_.list_count ? call_.lists[list_] : 0;
    ++list_;
    for (uint32_t k = 0; k < size; ++k) vs.push_back(next());
  }
  void output(const char*) { ++output_; }
  void output(const char*, bool& want) {
    want = output_ < call_.output_count && call_.want[output_] != 0;
    ++output_;
  }
  void output_list(const char*, size_t& count) { count = call_.output_count - output_; }

 private:
  const tenon_arg& find(std::string_view name) const {
    const auto* at = reinterpret_cast<const char*>(call_.attributes);
    for (uint32_t i = 0; i < call_.attribute_count; ++i, at += call_.attribute_stride) {
      const auto& arg = *reinterpret_cast<const tenon_arg*>(at);
      if (std::string_view(arg.name.data, arg.name.size) == name) return arg;
    }
    throw Error(TENON_INTERNAL, "attribute " + std::string(name) + " is missing");
  }
  Value next() {
    const uint32_t k = operand_++;
    return Value(k < call_.operand_count ? call_.operands[k] : TENON_NONE);
  }
  const tenon_op_call& call_;
  uint32_t operand_ = 0, output_ = 0, list_ = 0;
};

// Runs a rule, and turns exceptions into the call's failure.
template <class Op, class View, class Result>
Result run_rule(const tenon_op_call* call, Result (*rule)(View&, const Op&)) noexcept {
  try {
    Op op;
    visit(op, CallDecoder(*call));
    std::remove_const_t<View> view(*call);
    return rule(view, op);
  } catch (const rules::CallFailed&) {
  } catch (const Error& e) {
    call->fail(call, e.code(), str(e.what()));
  } catch (const std::bad_alloc&) {
    call->fail(call, TENON_OUT_OF_MEMORY, str("no memory"));
  } catch (const std::exception& e) {
    call->fail(call, TENON_INTERNAL, str(e.what()));
  } catch (...) {
    call->fail(call, TENON_INTERNAL, str("a rule threw an object that is no std::exception"));
  }
  return Result();
}

template <size_t kCount, class Op>
std::array<tenon_op_part, kCount> c_parts(const OpSchema& schema, const OpRules<Op>& rules) {
  std::array<tenon_op_part, kCount> parts{};
  for (size_t i = 0; i < kCount; ++i) {
    const OpPart& p = schema.first[i];
    const auto at = std::ranges::find(rules.values, p.name, &OpRules<Op>::Values::attribute);
    const bool listed = p.kind == OpPart::Kind::attr && at != std::end(rules.values);
    parts[i] = c_part(p, listed ? at->accepted : "");
  }
  return parts;
}

}  // namespace detail

template <class Op, const OpRules<Op>& rules>
tenon_op_desc op_desc() {
  using Call = const tenon_op_call*;
  static_assert(Op::kDomain != "tenon", "an op of one's own has a domain of its own");
  static_assert(rules.shape.given, "an op has a shape rule");
  static const auto parts = detail::c_parts<schema_of<Op>().part_count>(schema_of<Op>(), rules);
  tenon_op_desc d{};
  d.struct_size = sizeof d;
  d.domain = detail::str(Op::kDomain);
  d.name = detail::str(Op::kName);
  d.family = detail::str(schema_of<Op>().family);
  d.parts = parts.data();
  d.part_stride = sizeof(tenon_op_part);
  d.part_count = static_cast<uint32_t>(parts.size());
  d.version = Op::kVersion;
  d.flags = rules.flags;
  if constexpr (rules.shape.given)
    d.shape = [](void*, Call c) { detail::run_rule(c, rules.shape.call); };
  if constexpr (rules.decompose.given)
    d.decompose = [](void*, Call c) { detail::run_rule(c, rules.decompose.call); };
  if constexpr (rules.gradient.given)
    d.gradient = [](void*, Call c) { detail::run_rule(c, rules.gradient.call); };
  if constexpr (rules.flops.given)
    d.flops = [](void*, Call c) { return detail::run_rule(c, rules.flops.call); };
  if constexpr (rules.bytes.given)
    d.bytes = [](void*, Call c) { return detail::run_rule(c, rules.bytes.call); };
  return d;
}

}  // namespace tenon
