// SPDX-License-Identifier: Apache-2.0
// Describes nodes to add: converts operands and attributes of Python.
#include <map>

#include "graph.hpp"

namespace tenon::python {
namespace {

// The types of the attributes of an op, by name. The catalog only grows.
const std::map<std::string, uint32_t>& attributes_of(const std::string& op) {
  static auto& known = *new std::map<std::string, std::map<std::string, uint32_t>>;
  static uint32_t read = 0;
  if (const uint32_t count = tenon_op_count(); read < count) {
    for (const OpEntry& e : list_ops()) {
      auto& types = known[e.full_name()];
      for (const tenon_op_part& p : e.parts)
        if (p.kind == TENON_PART_ATTRIBUTE) types[detail::string(p.name)] = p.type;
    }
    read = count;
  }
  const auto at = known.find(op);
  if (at == known.end()) fail(TENON_NOT_FOUND, "op '" + op + "': no op of this name is registered");
  return at->second;
}

// A node in the making. Arguments point into the lists, which do not move.
struct NodeParts {
  std::vector<tenon_value> operands{};
  std::vector<uint32_t> lists{};
  std::vector<tenon_arg> args{};
  std::vector<std::unique_ptr<std::string>> texts{};
  std::vector<std::unique_ptr<std::vector<int64_t>>> ints{};
  std::vector<std::unique_ptr<std::vector<double>>> floats{};

  tenon_str text(std::string s) {
    texts.push_back(std::make_unique<std::string>(std::move(s)));
    return detail::str(*texts.back());
  }
  void add_operands(const std::string& op, nb::handle given, const IdOf& id_of) {
    const auto add = [&](nb::handle v) {
      const tenon_value id = v.is_none() ? TENON_NONE : id_of(v);
      if (id == TENON_NONE && !v.is_none())
        fail(TENON_INVALID_ARGUMENT, op + ": operand " + std::to_string(operands.size()) +
                                         ": got an object of type " + class_name(v) +
                                         "; expected a value of the graph. hint: constant()");
      operands.push_back(id);
    };
    for (nb::handle v : given) {
      if (!nb::isinstance<nb::list>(v) && !nb::isinstance<nb::tuple>(v)) {
        add(v);
        continue;
      }
      lists.push_back(static_cast<uint32_t>(nb::len(v)));
      for (nb::handle entry : v) add(entry);
    }
  }
  void add_attribute(const std::string& op, const std::string& name, nb::handle value) {
    const auto& types = attributes_of(op);
    const auto at = types.find(name);
    if (at == types.end()) fail(TENON_NOT_FOUND, op + ": it has no attribute '" + name + "'");
    tenon_arg a{};
    a.name = text(name);
    a.type = at->second;
    try {
      set(a, value);
    } catch (const nb::cast_error&) {
      fail(TENON_INVALID_ARGUMENT, op + ": attribute '" + name + "': got " +
                                       nb::cast<std::string>(nb::repr(value)) +
                                       "; expected a value of its type");
    }
    args.push_back(a);
  }

 private:
  void set(tenon_arg& a, nb::handle value) {
    switch (a.type) {
      case TENON_ARG_I64:
        a.i64 = nb::cast<int64_t>(value);
        break;
      case TENON_ARG_F64:
        a.f64 = nb::cast<double>(value);
        break;
      case TENON_ARG_BOOL:
        a.i64 = nb::cast<bool>(value);
        break;
      case TENON_ARG_STR:
        a.str = text(nb::cast<std::string>(value));
        break;
      case TENON_ARG_DTYPE:
        a.i64 = dtype_from(value);
        break;
      case TENON_ARG_INTS:
        ints.push_back(
            std::make_unique<std::vector<int64_t>>(nb::cast<std::vector<int64_t>>(value)));
        a.ints = ints.back()->data();
        a.count = static_cast<uint32_t>(ints.back()->size());
        break;
      case TENON_ARG_FLOATS:
        floats.push_back(
            std::make_unique<std::vector<double>>(nb::cast<std::vector<double>>(value)));
        a.floats = floats.back()->data();
        a.count = static_cast<uint32_t>(floats.back()->size());
        break;
      case TENON_ARG_FUNCTION:
        a.function = nb::cast<Graph&>(value).handle();
        break;
      default:
        fail(TENON_UNSUPPORTED, "attribute of a type that this version does not know");
    }
  }
};

size_t output_count_of(const std::string& op) {
  for (const OpEntry& e : list_ops()) {
    if (e.full_name() != op) continue;
    size_t count = 0;
    for (const tenon_op_part& p : e.parts)
      count += p.kind == TENON_PART_OUTPUT || p.kind == TENON_PART_OPTIONAL_OUTPUT;
    return count;
  }
  return 0;
}

}  // namespace

std::vector<tenon_value> add_node(const NewNode& node, const IdOf& id_of, const AddNode& add) {
  const std::string full =
      node.domain.empty() || node.domain == "tenon" ? node.op : node.domain + ":" + node.op;
  NodeParts parts;
  parts.add_operands(full, node.operands, id_of);
  for (const auto& [name, value] : node.attributes) {
    if (!nb::isinstance<nb::str>(name))
      fail(TENON_INVALID_ARGUMENT, full + ": attribute " + nb::cast<std::string>(nb::repr(name)) +
                                       ": its name is of type " + class_name(name) +
                                       "; expected a str");
    parts.add_attribute(full, nb::cast<std::string>(name), value);
  }
  std::vector<uint8_t> wanted;
  if (node.want) wanted.assign(node.want->begin(), node.want->end());
  std::vector<tenon_value> out(node.want ? wanted.size() : output_count_of(full), TENON_NONE);
  tenon_node_desc d{};
  d.struct_size = sizeof d;
  d.domain = detail::str(node.domain);
  d.op = detail::str(node.op);
  d.operands = parts.operands.data();
  d.operand_count = static_cast<uint32_t>(parts.operands.size());
  d.lists = parts.lists.empty() ? nullptr : parts.lists.data();
  d.list_count = static_cast<uint32_t>(parts.lists.size());
  d.attributes = parts.args.data();
  d.attribute_stride = sizeof(tenon_arg);
  d.attribute_count = static_cast<uint32_t>(parts.args.size());
  d.want = node.want ? wanted.data() : nullptr;
  d.output_count = static_cast<uint32_t>(out.size());
  d.version = node.version;
  d.provenance = detail::str(node.provenance);
  add(d, out.data());
  return out;
}

nb::list add_graph_node(Self self, const std::string& op, nb::handle operands, nb::dict attributes,
                        std::optional<std::vector<bool>> want, const std::string& domain,
                        uint32_t version, const std::string& provenance) {
  Graph& graph = graph_of(self);
  const auto id_of = [&](nb::handle v) {
    return nb::isinstance<PyValue>(v) ? id_in(graph, nb::cast<PyValue>(v)).id : TENON_NONE;
  };
  const auto add = [&](const tenon_node_desc& d, tenon_value* out) {
    detail::check(tenon_graph_add_node(graph.handle(), &d, out));
  };
  nb::list values;
  for (const tenon_value v : add_node(
           {op, operands, attributes, std::move(want), domain, version, provenance}, id_of, add))
    values.append(v == TENON_NONE ? nb::none()
                                  : nb::cast(value_of(self, Value(v, graph.handle()))));
  return values;
}

}  // namespace tenon::python
