// SPDX-License-Identifier: Apache-2.0
// Ops whose rules are functions of Python: their registration, and what a rule sees of its call.
#include <map>

#include "graph.hpp"
#include "tensor.hpp"

namespace tenon::python {
namespace {

// The rules of an op, as functions of a RuleCall. Never freed: the host has no way to forget an op.
struct Rules {
  nb::object shape{}, decompose{}, gradient{};
};

// A call of a rule. It ends with the rule, whoever keeps the object.
struct RuleCall {
  const tenon_op_call* call = nullptr;

  const tenon_op_call& get() const {
    if (!call)
      fail(TENON_INVALID_ARGUMENT,
           "op: its rule has returned; expected values of a rule to be used in that rule alone");
    return *call;
  }
  // After each function of the call.
  void check() const {
    if (get().failed(call))
      fail(TENON_INVALID_ARGUMENT,
           "op: the rule has failed: an op that it adds refused its operands");
  }
};

// A value of the graph that a rule extends. It keeps the call.
struct RuleValue {
  nb::object of{};
  tenon_value id = TENON_NONE;
  TensorType type{};
};

using RuleSelf = nb::handle_t<RuleCall>;
RuleCall& rule_of(nb::handle self) { return *nb::inst_ptr<RuleCall>(self); }

nb::object value_in(RuleSelf self, tenon_value id) {
  if (id == TENON_NONE) return nb::none();
  const RuleCall& rule = rule_of(self);
  tenon_tensor_type t{};
  t.struct_size = sizeof t;
  rule.get().value_type(rule.call, id, &t);
  rule.check();
  return nb::cast(RuleValue{nb::borrow(self), id, TensorType(t)});
}

tenon_value id_of(RuleSelf self, nb::handle object) {
  if (!nb::isinstance<RuleValue>(object)) return TENON_NONE;
  const auto& v = *nb::inst_ptr<RuleValue>(object);
  if (!v.of.is(self))
    fail(TENON_INVALID_ARGUMENT,
         "op: expected a value of this call of the rule, got one of another");
  return v.id;
}

// ---- What the node is

nb::object attribute_of(const tenon_arg& a) {
  switch (a.type) {
    case TENON_ARG_I64:
      return nb::int_(a.i64);
    case TENON_ARG_F64:
      return nb::float_(a.f64);
    case TENON_ARG_BOOL:
      return nb::bool_(a.i64 != 0);
    case TENON_ARG_STR:
      return nb::cast(detail::string(a.str));
    case TENON_ARG_DTYPE:
      return dtype_object(static_cast<tenon_dtype>(a.i64));
    case TENON_ARG_INTS:
      return nb::tuple(nb::cast(std::vector<int64_t>(a.ints, a.ints + a.count)));
    case TENON_ARG_FLOATS:
      return nb::tuple(nb::cast(std::vector<double>(a.floats, a.floats + a.count)));
    default:
      fail(TENON_UNSUPPORTED, "op: attribute of a type that this version does not know");
  }
}

nb::dict attributes_of(RuleSelf self) {
  const tenon_op_call& call = rule_of(self).get();
  nb::dict out;
  const auto* at = reinterpret_cast<const char*>(call.attributes);
  for (uint32_t i = 0; i < call.attribute_count; ++i, at += call.attribute_stride) {
    const auto& a = *reinterpret_cast<const tenon_arg*>(at);
    out[detail::string(a.name).c_str()] = attribute_of(a);
  }
  return out;
}

nb::list operands_of(RuleSelf self) {
  const tenon_op_call& call = rule_of(self).get();
  nb::list out;
  for (uint32_t i = 0; i < call.operand_count; ++i) out.append(value_in(self, call.operands[i]));
  return out;
}

nb::list output_types_of(RuleSelf self) {
  const tenon_op_call& call = rule_of(self).get();
  nb::list out;
  const auto* at = reinterpret_cast<const char*>(call.output_types);
  for (uint32_t k = 0; at && k < call.output_count; ++k, at += call.type_stride) {
    const TensorType type(*reinterpret_cast<const tenon_tensor_type*>(at));
    out.append(nb::make_tuple(dtype_object(type.dtype), nb::tuple(nb::cast(type.dims))));
  }
  return out;
}

// ---- What the rule gives

nb::list add(RuleSelf self, const std::string& op, nb::handle operands, nb::dict attributes,
             std::optional<std::vector<bool>> want, const std::string& domain, uint32_t version,
             const std::string& provenance) {
  const RuleCall& rule = rule_of(self);
  rule.check();
  const NewNode node{op, operands, attributes, std::move(want), domain, version, provenance};
  nb::list values;
  for (const tenon_value v : add_node(
           node, [&](nb::handle object) { return id_of(self, object); },
           [&](const tenon_node_desc&d, tenon_value*out) {
             rule.call->add_node(rule.call, &d, out);
             rule.check();
           }))
    values.append(value_in(self, v));
  return values;
}

nb::object constant(RuleSelf self, nb::handle object) {
  const RuleCall& rule = rule_of(self);
  rule.check();
  View view;
  const Loan loan = Loan::of(object, view, "constant");
  if (!on_host(view.device))
    fail(TENON_UNSUPPORTED, "constant: it is in memory of a device; expected host memory");
  std::vector<std::byte> dense(view.bytes());
  copy_dense(view, dense.data());
  tenon_tensor_type t{};
  t.struct_size = sizeof t;
  t.dtype = view.dtype;
  t.rank = static_cast<uint16_t>(view.rank);
  std::copy_n(view.dims.begin(), view.rank, t.dims);
  const tenon_value v = rule.call->constant(rule.call, &t, dense.data(), dense.size());
  rule.check();
  return value_in(self, v);
}

void give_type(RuleSelf self, uint32_t output, nb::handle dtype, const std::vector<int64_t>& dims) {
  if (dims.size() > TENON_MAX_RANK)
    fail(TENON_UNSUPPORTED, "op: output " + std::to_string(output) + ": rank " +
                                std::to_string(dims.size()) + "; expected at most " +
                                std::to_string(TENON_MAX_RANK));
  const RuleCall& rule = rule_of(self);
  tenon_tensor_type t{};
  t.struct_size = sizeof t;
  t.dtype = dtype_from(dtype);
  t.rank = static_cast<uint16_t>(dims.size());
  std::ranges::copy(dims, t.dims);
  rule.get().give_type(rule.call, output, &t);
}

void add_call(nb::module_& m) {
  nb::class_<RuleValue>(m, "_RuleValue", "A value of the graph that a rule extends.")
      .def_prop_ro(
          "id", [](const RuleValue& v) { return v.id; }, "Its number in the graph.")
      .def_prop_ro(
          "dtype", [](const RuleValue& v) { return dtype_object(v.type.dtype); }, "Its dtype.")
      .def_prop_ro(
          "shape", [](const RuleValue& v) { return nb::tuple(nb::cast(v.type.dims)); },
          "Its dims.");
  nb::class_<RuleCall>(m, "_RuleCall", "A call of a rule: the node, and what the rule gives.")
      .def_prop_ro("attributes", attributes_of, "The attributes by name, with defaults.")
      .def_prop_ro("operands", operands_of, "Per operand a value, None for an absent one.")
      .def_prop_ro("output_types", output_types_of, "Pairs of dtype and dims.")
      .def("add", add, nb::arg("op"), nb::arg("operands"), nb::arg("attributes") = nb::dict(),
           nb::arg("want") = nb::none(), nb::arg("domain") = "tenon", nb::arg("version") = 0,
           nb::arg("provenance") = "", "Adds a node, as Graph.add() does.")
      .def("constant", constant, nb::arg("value"), "Adds a constant.")
      .def("give_type", give_type, nb::arg("output"), nb::arg("dtype"), nb::arg("shape"),
           "The type of an output.")
      .def(
          "give",
          [](RuleSelf self, uint32_t position, nb::handle value) {
            const RuleCall& rule = rule_of(self);
            rule.get().give(rule.call, position, id_of(self, value));
          },
          nb::arg("position"), nb::arg("value"),
          "The value of an output, or the gradient of an operand.")
      .def(
          "wants",
          [](RuleSelf self, uint32_t position) {
            const RuleCall& rule = rule_of(self);
            return rule.get().wants(rule.call, position) != 0;
          },
          nb::arg("position"), "Is the gradient of an operand wanted?")
      .def(
          "upstream",
          [](RuleSelf self, uint32_t output) {
            const RuleCall& rule = rule_of(self);
            return value_in(self, rule.get().upstream(rule.call, output));
          },
          nb::arg("output"), "The gradient of the loss by an output; None: it is zero.")
      .def(
          "forward",
          [](RuleSelf self, uint32_t output) {
            const RuleCall& rule = rule_of(self);
            return value_in(self, rule.get().forward(rule.call, output));
          },
          nb::arg("output"), "An output of the node.");
}

// ---- Registration

// Calls a rule of Python, in whatever thread the host needs it.
void run(const nb::object Rules::*rule, void* user, const tenon_op_call* call) noexcept {
  const Acquired locked;
  if (!locked) return call->fail(call, TENON_CANCELLED, detail::str("Python is ending"));
  try {
    const nb::object function = static_cast<const Rules*>(user)->*rule;
    const nb::object object = nb::cast(RuleCall{call});
    const auto end = [&] { nb::inst_ptr<RuleCall>(object)->call = nullptr; };
    try {
      function(object);
    } catch (...) {
      end();
      throw;
    }
    end();
  } catch (nb::python_error& e) {
    fail_rule(call, e);
  } catch (const std::exception& e) {
    call->fail(call, TENON_INTERNAL, detail::str(e.what()));
  }
}
template <nb::object Rules::*rule>
void call_rule(void* user, const tenon_op_call* call) {
  run(rule, user, call);
}

// An operand, attribute or output: (name, kind, type, default, values).
using Part = std::tuple<std::string, uint32_t, uint32_t, nb::object, std::string>;

void set_default(tenon_op_part& part, nb::handle given, std::string& text) {
  if (given.is_none()) return;
  switch (part.type) {
    case TENON_ARG_F64:
      part.default_float = nb::cast<double>(given);
      break;
    case TENON_ARG_STR:
      text = nb::cast<std::string>(given);
      part.default_str = detail::str(text);
      break;
    case TENON_ARG_DTYPE:
      part.default_int = dtype_from(given);
      break;
    case TENON_ARG_I64:
      part.default_int = nb::cast<int64_t>(given);
      break;
    case TENON_ARG_BOOL:
      part.default_int = nb::cast<bool>(given);
      break;
    default:
      break;  // lists are empty by default
  }
}

// Another call for the same op gives it new rules.
void register_op(const std::string& domain, const std::string& name, uint32_t version,
                 const std::vector<Part>& parts, nb::object shape, nb::object decompose,
                 nb::object gradient) {
  static auto& all = *new std::map<std::tuple<std::string, std::string, uint32_t>, Rules*>;
  const auto known = all.find({domain, name, version});
  auto fresh = std::make_unique<Rules>();
  Rules* const rules = known == all.end() ? fresh.get() : known->second;
  std::vector<tenon_op_part> c_parts;
  std::vector<std::string> texts(parts.size());
  for (const auto& [part_name, kind, type, given, values] : parts) {
    tenon_op_part& part = c_parts.emplace_back();
    part = {};
    part.name = detail::str(part_name);
    part.kind = kind;
    part.type = type;
    part.values = detail::str(values);
    set_default(part, given, texts[c_parts.size() - 1]);
  }
  tenon_op_desc d{};
  d.struct_size = sizeof d;
  d.domain = detail::str(domain);
  d.name = detail::str(name);
  d.parts = c_parts.data();
  d.part_stride = sizeof(tenon_op_part);
  d.part_count = static_cast<uint32_t>(c_parts.size());
  d.version = version;
  d.user = rules;
  d.shape = call_rule<&Rules::shape>;
  d.decompose = call_rule<&Rules::decompose>;
  if (!gradient.is_none()) d.gradient = call_rule<&Rules::gradient>;
  detail::check(tenon_op_register(&d));
  if (known == all.end()) all.emplace(std::tuple(domain, name, version), fresh.release());
  *rules = {std::move(shape), std::move(decompose), std::move(gradient)};
}

}  // namespace

void add_rules(nb::module_& m) {
  add_call(m);
  m.def("_register_op", register_op, nb::arg("domain"), nb::arg("name"), nb::arg("version"),
        nb::arg("parts"), nb::arg("shape"), nb::arg("decompose"), nb::arg("gradient").none(),
        "Registers an op, for all graphs of the process. Its rules are functions of a _RuleCall.");
}

}  // namespace tenon::python
