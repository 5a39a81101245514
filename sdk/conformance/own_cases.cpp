// SPDX-License-Identifier: Apache-2.0
// Reads cases of registered ops from JSON.
#include "own_cases.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <limits>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

namespace tenon::conform {
namespace {

using Json = nlohmann::json;

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + what);
}

// An object of the file. Every key is one that somebody asked for.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) bad(where_, "expected an object, got " + json.dump());
  }
  const std::string& where() const { return where_; }
  const Json* find(const std::string& key) {
    asked_.insert(key);
    const auto at = json_.find(key);
    return at == json_.end() ? nullptr : &*at;
  }
  const Json& need(const std::string& key) {
    const Json* value = find(key);
    if (!value) bad(where_, "'" + key + "' is missing");
    return *value;
  }
  template <class T>
  T get(const std::string& key, T otherwise) {
    const Json* value = find(key);
    return value ? as<T>(*value, key) : otherwise;
  }
  template <class T>
  T get(const std::string& key) {
    return as<T>(need(key), key);
  }
  void end() const {
    for (const auto& [key, value] : json_.items())
      if (!asked_.contains(key)) bad(where_, "'" + key + "' is unknown");
  }
  template <class T>
  T as(const Json& value, const std::string& key) const {
    const bool fits = std::is_same_v<T, bool>          ? value.is_boolean()
                      : std::is_same_v<T, std::string> ? value.is_string()
                      : std::is_same_v<T, int64_t>     ? value.is_number_integer()
                                                       : true;
    try {
      if (fits) return value.get<T>();
    } catch (const Json::exception&) {
    }
    bad(where_, "'" + key + "': expected " + expected<T>() + ", got " + value.dump());
  }

 private:
  template <class T>
  static const char* expected() {
    if constexpr (std::is_same_v<T, bool>)
      return "true or false";
    else if constexpr (std::is_same_v<T, std::string>)
      return "a text";
    else if constexpr (std::is_same_v<T, int64_t>)
      return "an integer";
    else if constexpr (std::is_same_v<T, double>)
      return "a number";
    else
      return "a list";
  }
  const Json& json_;
  std::string where_;
  std::set<std::string> asked_{};
};

// A number, or "nan", "inf", "-inf".
double number(const Json& json, const std::string& where) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  bad(where, "expected a number, \"nan\", \"inf\" or \"-inf\", got " + json.dump());
}
std::vector<double> numbers(const Json& json, const std::string& where) {
  if (!json.is_array()) bad(where, "expected a list of numbers, got " + json.dump());
  std::vector<double> out;
  for (const Json& x : json) out.push_back(number(x, where));
  return out;
}

tenon_dtype dtype_of(const std::string& name, const std::string& where) {
  for (tenon_dtype t = 1; t < TENON_DTYPE_COUNT; ++t)
    if (dtype_text(t) == name) return t;
  bad(where, "there is no dtype '" + name + "'");
}

struct InputSpec {
  std::string name;
  tenon_dtype dtype = TENON_DTYPE_NONE;  // NONE: the case's
  Dims dims;
  Fill fill = Fill::normal();
};

struct OutputSpec {
  std::string name;
  size_t position = 0;
  std::optional<Tolerance> tolerance;
  bool differentiable = true;
  std::optional<std::vector<double>> expected;
};

// The node of a case: what the builder adds, over values by the inputs' names.
struct NodeSpec {
  OpEntry op;
  std::vector<InputSpec> inputs;
  std::vector<std::string> operands;  // names of inputs; empty = absent
  std::vector<uint32_t> lists;
  std::vector<tenon_arg> attributes;  // point into the members below
  std::deque<std::string> texts;
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<double>> floats;
  std::vector<uint8_t> want;
  std::vector<OutputSpec> outputs;
};

bool is_output(const tenon_op_part& p) {
  return p.kind >= TENON_PART_OUTPUT && p.kind <= TENON_PART_OUTPUT_LIST;
}
std::string name_of(const tenon_op_part& p) { return {p.name.data, p.name.size}; }

class CaseReader {
 public:
  CaseReader(Object& o, std::vector<OpEntry> ops) : o_(o), ops_(std::move(ops)) {}

  CaseRow read() {
    CaseRow row;
    row.id = o_.get<std::string>("id");
    row.sentence = o_.get<std::string>("sentence", row.id);
    read_op();
    read_inputs();
    read_operands();
    read_attributes();
    read_outputs();
    if (const Json* names = o_.find("dtypes")) {
      row.dtypes.clear();
      for (const auto& name : o_.as<std::vector<std::string>>(*names, "dtypes"))
        row.dtypes.push_back(dtype_of(name, o_.where()));
      if (row.dtypes.empty()) bad(o_.where(), "'dtypes' is empty");
    }
    if (const Json* t = o_.find("tolerance")) row.tolerance = tolerance(*t);
    row.decomposed = o_.get<double>("decomposed", 1);
    row.strided = o_.get<bool>("strided", true);
    row.gradient = o_.get<bool>("gradient", false);
    row.second_order = o_.get<bool>("second_order", false);
    row.scales = o_.get<std::vector<double>>("scales", row.scales);
    if (const Json* e = o_.find("error")) read_error(*e, row);
    if (!node_->op.has_decomposition) {
      row.known_only = true;
      for (const OutputSpec& out : node_->outputs)
        if (!out.expected && row.error == TENON_OK)
          bad(o_.where(), "op " + node_->op.full_name() +
                              " has no decomposition for a reference: output " + out.name +
                              " needs 'expect'");
      if (row.gradient || row.second_order)
        bad(o_.where(), "gradients are proven on the reference device, and op " +
                            node_->op.full_name() + " has no decomposition");
    }
    row.build = [node = node_](CaseBuilder& b) { build(b, *node); };
    return row;
  }
  const std::string& family() const { return node_->op.family; }

 private:
  void read_op() {
    const auto name = o_.get<std::string>("op");
    const auto version = o_.get<int64_t>("version", 0);
    const OpEntry* newest = nullptr;
    for (const OpEntry& op : ops_)
      if (op.full_name() == name && (version == 0 || op.version == version))
        if (!newest || op.version > newest->version) newest = &op;
    if (!newest) bad(o_.where(), "there is no op '" + name + "'; is its plugin loaded?");
    node_->op = *newest;
  }

  void read_inputs() {
    for (const Json& json : o_.need("inputs")) {
      Object in(json, o_.where() + ": an input");
      InputSpec& spec = node_->inputs.emplace_back();
      spec.name = in.get<std::string>("name");
      spec.dims = in.get<Dims>("dims");
      for (const int64_t d : spec.dims)
        if (d < 0) bad(in.where(), "expected dims >= 0, got " + std::to_string(d));
      if (const Json* t = in.find("dtype"))
        spec.dtype = dtype_of(in.as<std::string>(*t, "dtype"), in.where());
      if (const Json* f = in.find("fill")) spec.fill = fill(*f, in.where());
      in.end();
    }
  }

  static Fill fill(const Json& json, const std::string& where) {
    Object f(json, where + ": fill");
    std::optional<Fill> out;
    const auto range = [&](const std::string& key) -> std::optional<std::vector<double>> {
      const Json* v = f.find(key);
      if (!v) return {};
      const auto two = numbers(*v, f.where());
      if (two.size() != 2) bad(f.where(), "'" + key + "': expected [low, high]");
      if (out) bad(f.where(), "two kinds of content");
      return two;
    };
    if (const auto r = range("uniform")) out = Fill::uniform((*r)[0], (*r)[1]);
    if (const auto r = range("distinct")) out = Fill::distinct((*r)[0], (*r)[1]);
    if (const auto r = range("integers"))
      out = Fill::integers(static_cast<int64_t>((*r)[0]), static_cast<int64_t>((*r)[1]));
    if (const Json* v = f.find("normal")) out = Fill::normal(number(*v, f.where()));
    if (const Json* v = f.find("values")) {
      auto list = numbers(*v, f.where());
      if (list.empty()) bad(f.where(), "'values' is empty");
      out = Fill::list(std::move(list));
    }
    if (!out) out = Fill::normal();
    if (const Json* v = f.find("specials")) out = out->with(numbers(*v, f.where()));
    if (f.get<bool>("fixed", false)) out = out->fixed();
    f.end();
    return *out;
  }

  void read_operands() {
    const auto known = [&](const std::string& name) {
      if (std::ranges::none_of(node_->inputs, [&](const InputSpec& i) { return i.name == name; }))
        bad(o_.where(), "'operands': there is no input '" + name + "'");
      return name;
    };
    const Json* list = o_.find("operands");
    if (!list) {
      for (const InputSpec& in : node_->inputs) node_->operands.push_back(in.name);
      return;
    }
    for (const Json& at : *list) {
      if (at.is_null()) {
        node_->operands.emplace_back();
      } else if (at.is_array()) {
        for (const auto& name : o_.as<std::vector<std::string>>(at, "operands"))
          node_->operands.push_back(known(name));
        node_->lists.push_back(static_cast<uint32_t>(at.size()));
      } else {
        node_->operands.push_back(known(o_.as<std::string>(at, "operands")));
      }
    }
  }

  void read_attributes() {
    const Json* json = o_.find("attributes");
    if (!json) return;
    Object given(*json, o_.where() + ": attributes");
    for (const tenon_op_part& p : node_->op.parts) {
      if (p.kind != TENON_PART_ATTRIBUTE) continue;
      const std::string name = name_of(p);
      const Json* v = given.find(name);
      if (!v) continue;
      tenon_arg& arg = node_->attributes.emplace_back();
      arg = {};
      arg.name = p.name;
      arg.type = p.type;
      switch (p.type) {
        case TENON_ARG_I64:
          arg.i64 = given.as<int64_t>(*v, name);
          break;
        case TENON_ARG_F64:
          arg.f64 = number(*v, given.where() + ": " + name);
          break;
        case TENON_ARG_BOOL:
          arg.i64 = given.as<bool>(*v, name);
          break;
        case TENON_ARG_STR:
          arg.str = detail::str(node_->texts.emplace_back(given.as<std::string>(*v, name)));
          break;
        case TENON_ARG_DTYPE:
          arg.i64 = dtype_of(given.as<std::string>(*v, name), given.where());
          break;
        case TENON_ARG_INTS: {
          const auto& list = node_->ints.emplace_back(given.as<std::vector<int64_t>>(*v, name));
          arg.ints = list.data();
          arg.count = static_cast<uint32_t>(list.size());
          break;
        }
        case TENON_ARG_FLOATS: {
          const auto& list = node_->floats.emplace_back(numbers(*v, given.where() + ": " + name));
          arg.floats = list.data();
          arg.count = static_cast<uint32_t>(list.size());
          break;
        }
        default:
          bad(given.where(), name + ": its type has no form in this file");
      }
    }
    given.end();
  }

  void read_outputs() {
    std::vector<const tenon_op_part*> parts;
    for (const tenon_op_part& p : node_->op.parts)
      if (is_output(p)) parts.push_back(&p);
    for (const tenon_op_part* p : parts)
      if (p->kind == TENON_PART_OUTPUT_LIST)
        bad(o_.where(), "op " + node_->op.full_name() +
                            ": cases of ops with a list of outputs have no form in this file");
    node_->want.resize(parts.size());
    for (size_t k = 0; k < parts.size(); ++k) node_->want[k] = parts[k]->kind == TENON_PART_OUTPUT;
    if (const Json* list = o_.find("outputs")) {
      for (const Json& json : *list) {
        Object out(json, o_.where() + ": an output");
        OutputSpec& spec = node_->outputs.emplace_back();
        spec.name = out.get<std::string>("name");
        const auto at = std::ranges::find_if(
            parts, [&](const tenon_op_part* p) { return name_of(*p) == spec.name; });
        if (at == parts.end()) bad(out.where(), "the op has no output '" + spec.name + "'");
        spec.position = static_cast<size_t>(at - parts.begin());
        node_->want[spec.position] = 1;
        if (const Json* t = out.find("tolerance")) spec.tolerance = tolerance(*t);
        spec.differentiable = out.get<bool>("differentiable", true);
        if (const Json* e = out.find("expect")) spec.expected = numbers(*e, out.where());
        out.end();
      }
      if (node_->outputs.empty()) bad(o_.where(), "'outputs' is empty");
      return;
    }
    for (size_t k = 0; k < parts.size(); ++k)
      if (node_->want[k]) node_->outputs.push_back({name_of(*parts[k]), k, {}, true, {}});
  }

  Tolerance tolerance(const Json& json) const {
    if (json == "exact") return kExact;
    Object t(json, o_.where() + ": tolerance");
    const Tolerance out{.ulps = t.get<double>("ulps", 0), .factor = t.get<double>("factor", 0)};
    t.end();
    return out;
  }

  void read_error(const Json& json, CaseRow& row) const {
    Object e(json, o_.where() + ": error");
    const auto name = e.get<std::string>("code");
    for (tenon_code c = 1; c <= TENON_INTERNAL; ++c)
      if (code_name(c) == name) row.error = c;
    if (row.error == TENON_OK) bad(e.where(), "there is no code '" + name + "'");
    row.error_text = e.get<std::string>("text", "");
    e.end();
  }

  static Level level(const OpEntry& op) {
    if (op.domain != "tenon") return Level::full;
    return op.level == "primitive" ? Level::primitive
           : op.level == "core"    ? Level::core
                                   : Level::full;
  }

  static void build(CaseBuilder& b, const NodeSpec& spec) {
    std::map<std::string, Value> inputs;
    for (const InputSpec& in : spec.inputs)
      inputs[in.name] =
          b.input(in.name, in.dtype == TENON_DTYPE_NONE ? b.own() : in.dtype, in.dims, in.fill);
    std::vector<tenon_value> operands;
    for (const std::string& name : spec.operands)
      operands.push_back(name.empty() ? TENON_NONE : inputs.at(name).id);
    std::vector<tenon_arg> attributes = spec.attributes;
    for (tenon_arg& a : attributes)
      if (a.type == TENON_ARG_DTYPE && a.i64 != TENON_DTYPE_NONE)
        a.i64 = b.as(static_cast<tenon_dtype>(a.i64));
    tenon_node_desc node{};
    node.struct_size = sizeof node;
    node.domain = detail::str(spec.op.domain);
    node.op = detail::str(spec.op.name);
    node.version = spec.op.version;
    node.operands = operands.data();
    node.operand_count = static_cast<uint32_t>(operands.size());
    node.lists = spec.lists.empty() ? nullptr : spec.lists.data();
    node.list_count = static_cast<uint32_t>(spec.lists.size());
    node.attributes = attributes.data();
    node.attribute_stride = sizeof(tenon_arg);
    node.attribute_count = static_cast<uint32_t>(attributes.size());
    node.want = spec.want.data();
    node.output_count = static_cast<uint32_t>(spec.want.size());
    node.provenance = detail::str("node");
    std::vector<tenon_value> out(spec.want.size(), TENON_NONE);
    detail::check(tenon_graph_add_node(b.graph().handle(), &node, out.data()));
    if (spec.op.has_decomposition) b.set_composite();
    b.uses({spec.op.full_name(), "", level(spec.op)});
    for (const OutputSpec& o : spec.outputs) {
      const Value v{out[o.position]};
      if (o.differentiable)
        b.output(o.name, v, o.tolerance);
      else
        b.side_output(o.name, v, o.tolerance);
      if (o.expected) b.expect(o.name, *o.expected);
    }
  }

  Object& o_;
  std::vector<OpEntry> ops_;
  std::shared_ptr<NodeSpec> node_ = std::make_shared<NodeSpec>();
};

}  // namespace

void add_cases(Suite& suite, const std::string& file) {
  std::ifstream stream(file);
  if (!stream) bad(file, "cannot be read");
  Json json;
  try {
    json = Json::parse(stream);
  } catch (const Json::exception& e) {
    bad(file, e.what());
  }
  static std::set<std::string> families;  // the suite refers to their names
  const std::vector<OpEntry> ops = list_ops();
  Object all(json, file);
  const Json& cases = all.need("cases");
  if (!cases.is_array()) bad(file, "'cases': expected a list, got " + cases.dump());
  for (size_t k = 0; k < cases.size(); ++k) {
    const auto id = cases[k].is_object() ? cases[k].find("id") : cases[k].end();
    Object one(cases[k], file + ": case " +
                             (id != cases[k].end() && id->is_string() ? id->get<std::string>()
                                                                      : std::to_string(k)));
    CaseReader reader(one, ops);
    CaseRow row = reader.read();
    one.end();
    suite.begin(*families.insert(reader.family()).first);
    suite.add(std::move(row));
  }
  all.end();
}

}  // namespace tenon::conform
