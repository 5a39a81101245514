// SPDX-License-Identifier: Apache-2.0
// Appends values and nodes to a graph, with checks.
#include "ir/graph.hpp"

#include <algorithm>

#include "ops/record.hpp"

namespace tenon::core {
namespace {

std::string_view attr_type_name(uint32_t type) {
  constexpr std::string_view names[] = {"?",    "i64",    "f64",   "bool",    "string",
                                        "ints", "floats", "dtype", "function"};
  return type < std::size(names) ? names[type] : names[0];
}

// The alternatives of AttrValue are in the order of TENON_ATTR_*.
uint32_t attr_type(const AttrValue& v) { return static_cast<uint32_t>(v.index()) + 1; }

bool is_default(const OpPart& part, const AttrValue& v) {
  switch (part.attr_type) {
    case TENON_ATTR_I64:
      return std::get<int64_t>(v) == part.default_int;
    case TENON_ATTR_F64: {
      const double d = std::get<double>(v);
      return d == part.default_float || (is_unset(d) && is_unset(part.default_float));
    }
    case TENON_ATTR_BOOL:
      return std::get<bool>(v) == (part.default_int != 0);
    case TENON_ATTR_STR:
      return std::get<std::string>(v) == part.default_str;
    case TENON_ATTR_INTS:
      return std::get<std::vector<int64_t>>(v).empty();
    case TENON_ATTR_FLOATS:
      return std::get<std::vector<double>>(v).empty();
    case TENON_ATTR_DTYPE:
      return std::get<DTypeAttr>(v).dtype == part.default_int;
    default:
      return false;
  }
}

AttrValue default_value(const OpPart& part) {
  switch (part.attr_type) {
    case TENON_ATTR_I64:
      return part.default_int;
    case TENON_ATTR_F64:
      return part.default_float;
    case TENON_ATTR_BOOL:
      return part.default_int != 0;
    case TENON_ATTR_STR:
      return std::string(part.default_str);
    case TENON_ATTR_INTS:
      return std::vector<int64_t>();
    case TENON_ATTR_FLOATS:
      return std::vector<double>();
    default:
      return DTypeAttr{static_cast<DType>(part.default_int)};
  }
}

Attrs checked_attrs(const OpRecord& op, Attrs attrs, const std::string& who) {
  Attrs out;
  size_t known = 0;
  for (const OpPart& part : op.schema->parts()) {
    if (part.kind != OpPart::Kind::attr) continue;
    auto found = std::find_if(attrs.begin(), attrs.end(),
                              [&](const Attr& a) { return a.name == part.name; });
    if (found == attrs.end()) {
      if (part.required())
        fail(Code::invalid_argument, who, ": attribute ", part.name, " is required");
      continue;
    }
    ++known;
    AttrValue value = std::move(found->value);
    if (part.attr_type == TENON_ATTR_F64 && attr_type(value) == TENON_ATTR_I64)
      value = static_cast<double>(std::get<int64_t>(value));
    if (attr_type(value) != part.attr_type)
      fail(Code::invalid_argument, who, ": attribute ", part.name, ": expected ",
           attr_type_name(part.attr_type), ", got ", attr_type_name(attr_type(value)));
    if (!is_default(part, value)) out.push_back({std::string(part.name), std::move(value)});
  }
  if (known != attrs.size())
    for (const Attr& a : attrs) {
      if (!op.schema->attr(a.name))
        fail(Code::invalid_argument, who, ": has no attribute '", a.name, "'");
      if (std::count_if(attrs.begin(), attrs.end(),
                        [&](const Attr& o) { return o.name == a.name; }) > 1)
        fail(Code::invalid_argument, who, ": attribute ", a.name, " is given twice");
    }
  return out;
}

// Returns the size of each operand list of the entry.
std::vector<uint32_t> checked_lists(const OpRecord& op, const Operands& operands,
                                    const std::string& who) {
  std::vector<uint32_t> lists;
  size_t before = 0;  // positions in front of the first list
  for (const OpPart& part : op.schema->parts()) {
    if (part.is_operand_list())
      lists.push_back(0);
    else if (lists.empty())
      before += part.kind == OpPart::Kind::operand || part.kind == OpPart::Kind::optional_operand;
  }
  const size_t count = operands.values.size();
  if (operands.lists.size() > lists.size())
    fail(Code::invalid_argument, who, ": got ", operands.lists.size(),
         " lists of operands, the op has ", lists.size());
  if (!operands.lists.empty())
    std::ranges::copy(operands.lists, lists.begin());
  else if (!lists.empty() && count > before)
    lists[0] = static_cast<uint32_t>(count - before);
  for (const uint32_t size : lists)
    if (size > count)
      fail(Code::invalid_argument, who, ": a list of ", size, " operands, got ", count, " in all");
  return lists;
}

void check_operands(const OpRecord& op, const std::vector<Value>& operands,
                    std::span<const uint32_t> lists, uint32_t value_count, const std::string& who) {
  size_t k = 0, list = 0;
  for (const OpPart& part : op.schema->parts()) {
    if (part.kind == OpPart::Kind::operand) {
      if (k >= operands.size() || !operands[k])
        fail(Code::invalid_argument, who, ": operand ", part.name, " is missing");
      ++k;
    } else if (part.kind == OpPart::Kind::optional_operand) {
      ++k;
    } else if (part.is_operand_list()) {
      const size_t end = k + lists[list++];
      if (k == end && part.kind == OpPart::Kind::operand_list)
        fail(Code::invalid_argument, who, ": operand ", part.name, " is an empty list");
      for (; k < end; ++k)
        if (k >= operands.size() || !operands[k])
          fail(Code::invalid_argument, who, ": operand ", part.name, " has an absent entry");
    }
  }
  if (operands.size() > k && std::any_of(operands.begin() + static_cast<ptrdiff_t>(k),
                                         operands.end(), [](Value v) { return bool(v); }))
    fail(Code::invalid_argument, who, ": got ", operands.size(), " operands, the op takes at most ",
         k);
  if (operands.size() > TENON_BLOB_MAX_OPERANDS)
    fail(Code::invalid_argument, who, ": got ", operands.size(), " operands, the limit is ",
         TENON_BLOB_MAX_OPERANDS);
  for (Value v : operands)
    if (v && v.id >= value_count)
      fail(Code::invalid_argument, who, ": an operand is no value of this graph");
}

// Completes `wanted`. Only optional outputs may be unwanted.
std::vector<bool> checked_outputs(const OpRecord& op, std::vector<bool> wanted,
                                  const std::string& who) {
  const size_t count = output_count(op);
  const bool list = has_output_list(op);
  if (wanted.size() > count && !list)
    fail(Code::invalid_argument, who, ": got ", wanted.size(), " outputs, the op has ", count);
  if (wanted.size() > TENON_BLOB_MAX_OPERANDS)
    fail(Code::invalid_argument, who, ": got ", wanted.size(), " outputs, the limit is ",
         TENON_BLOB_MAX_OPERANDS);
  if (wanted.size() < count) wanted.resize(count, false);
  size_t k = 0;
  for (const OpPart& p : op.schema->parts()) {
    if (p.kind == OpPart::Kind::output && !wanted[k])
      fail(Code::invalid_argument, who, ": output ", p.name, " is not optional");
    k += p.kind == OpPart::Kind::output || p.kind == OpPart::Kind::optional_output;
  }
  if (std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; }))
    fail(Code::invalid_argument, who, ": none of its outputs is wanted");
  return wanted;
}

// Checks the result of a shape rule: a type for each wanted output, without overflow of its size.
void check_types(const NodeInfo& node, const std::vector<Type>& types, const std::string& who) {
  for (size_t k = 0; k < types.size(); ++k) {
    const Type& t = types[k];
    const bool wanted = k < node.outputs.size() && node.outputs[k];
    if (wanted && is_blocks(t.dtype)) {
      const std::string place = cat(who, ": output ", node.op->schema->output_name(k));
      if (!(node.op->traits & kReadsBlocks))
        fail(Code::dtype_mismatch, place, ": is ", t.text(), "; this op makes no blocks");
      want_whole_blocks(t, place);
    } else if (wanted && tenon_dtype_bits(t.dtype) == 0) {
      fail(Code::invalid_argument, who, ": output ", node.op->schema->output_name(k),
           " has no type here");
    }
    for (Dim d : t.shape) check(d >= 0, who, ": its shape rule gave a negative dim");
    t.shape.elements();  // fails on overflow
  }
}

// Refuses blocks as an operand of an op that does not read them.
void want_blocks_read(const Graph& graph, const NodeInfo& node, const Infer& infer) {
  if (node.op->traits & kReadsBlocks) return;
  for (size_t k = 0; k < node.operands.size(); ++k)
    if (const Value v = node.operands[k]; v && is_blocks(graph.type(v).dtype))
      infer.fail(Code::dtype_mismatch, "operand ", node.op->schema->operand_name(k, node.lists),
                 ": got ", graph.type(v).text(),
                 "; this op reads no blocks: dequantize_blocks makes numbers of them");
}

template <class T>
void cut_absent(std::vector<T>& values) {
  while (!values.empty() && !values.back()) values.pop_back();
}

}  // namespace

size_t output_count(const OpRecord& op) {
  size_t count = 0;
  for (const OpPart& p : op.schema->parts())
    count += p.kind == OpPart::Kind::output || p.kind == OpPart::Kind::optional_output;
  return count;
}

size_t operand_count(const OpRecord& op, std::span<const uint32_t> lists) {
  size_t count = 0, list = 0;
  for (const OpPart& p : op.schema->parts()) {
    count += p.kind == OpPart::Kind::operand || p.kind == OpPart::Kind::optional_operand;
    if (p.is_operand_list()) count += list < lists.size() ? lists[list++] : 0;
  }
  return count;
}

Attrs complete_attrs(const NodeInfo& node) {
  Attrs all;
  for (const OpPart& p : node.op->schema->parts()) {
    if (p.kind != OpPart::Kind::attr) continue;
    if (const AttrValue* given = node.attr(p.name))
      all.push_back({std::string(p.name), *given});
    else if (p.attr_type != TENON_ATTR_FUNCTION)
      all.push_back({std::string(p.name), default_value(p)});
  }
  return all;
}

bool has_output_list(const OpRecord& op) {
  return std::any_of(op.schema->parts().begin(), op.schema->parts().end(),
                     [](const OpPart& p) { return p.kind == OpPart::Kind::output_list; });
}

std::vector<Type> infer_types(const Graph& graph, const NodeInfo& node, size_t count) {
  std::vector<Type> types(count);
  Infer infer(graph, node, types);
  want_blocks_read(graph, node, infer);
  node.op->shape(infer, graph, node);
  check_types(node, types, infer.who());
  return types;
}

bool operands_typed(const Graph& graph, const NodeInfo& node) {
  return std::all_of(node.operands.begin(), node.operands.end(), [&](Value v) {
    return !v || (graph.type(v).dtype != TENON_DTYPE_NONE && graph.type(v).shape.numeric());
  });
}

Dim Graph::symbol(std::string_view symbol_name) {
  if (symbol_name.empty()) fail(Code::invalid_argument, "a symbol needs a name");
  const auto found = symbol_ids_.find(symbol_name);
  if (found != symbol_ids_.end()) return ~found->second;
  const auto index = static_cast<Dim>(symbols_.size());
  symbols_.emplace_back(symbol_name);
  symbol_ids_.emplace(symbols_.back(), index);
  return ~index;
}

Value Graph::add_value(ValueInfo info) {
  if (values_.size() >= kNone) fail(Code::out_of_memory, "graph: too many values");
  values_.push_back(std::move(info));
  return {static_cast<uint32_t>(values_.size() - 1)};
}

Value Graph::add_named(Space space, std::string_view value_name, const Type& type,
                       std::vector<Value>& list) {
  constexpr std::string_view words[] = {"node", "input", "weight", "constant", "state"};
  const std::string_view word = words[static_cast<size_t>(space)];
  if (value_name.empty()) fail(Code::invalid_argument, word, ": the name is empty");
  if (!tenon_dtype_known(type.dtype))
    fail(Code::dtype_mismatch, word, " '", value_name, "': the dtype is unknown");
  if (is_blocks(type.dtype)) want_whole_blocks(type, cat(word, " '", value_name, "'"));
  if (find(space, value_name))
    fail(Code::invalid_argument, word, " '", value_name, "' exists already");
  for (Dim d : type.shape)
    if (is_symbol(d) && static_cast<size_t>(~d) >= symbols_.size())
      fail(Code::invalid_argument, word, " '", value_name,
           "': a dim is negative and no symbol of the graph");
  if (type.shape.numeric()) {
    type.shape.elements();  // fails on overflow
  } else if (space != Space::input) {
    fail(Code::invalid_argument, word, " '", value_name, "': only inputs may have symbolic dims");
  }
  const Value v = add_value({.type = type, .space = space, .name = std::string(value_name)});
  named_.emplace(std::pair(space, std::string(value_name)), v);
  list.push_back(v);
  return v;
}

Value Graph::input(std::string_view value_name, const Type& type) {
  return add_named(Space::input, value_name, type, inputs_);
}

Value Graph::weight(std::string_view value_name, const Type& type, bool trainable) {
  const Value v = add_named(Space::weight, value_name, type, weights_);
  values_[v.id].trainable = trainable;
  return v;
}

Value Graph::state(std::string_view value_name, const Type& type) {
  return add_named(Space::state, value_name, type, states_);
}

Value Graph::constant(const Type& type, std::shared_ptr<const Bytes> data) {
  want_whole_blocks(type, "constant");
  const uint64_t size = type_bytes(type);
  if (!data || data->size() != size)
    fail(Code::invalid_argument, "constant ", type.text(), ": expected ", size, " bytes, got ",
         data ? data->size() : 0);
  return add_value({.type = type, .space = Space::constant, .data = std::move(data)});
}

NodeId Graph::add_node(const OpRecord& op, Operands operands, Attrs attrs, std::vector<bool> wanted,
                       std::string_view provenance) {
  const std::string who = op.text(provenance);
  NodeInfo node;
  node.op = &op;
  node.lists = checked_lists(op, operands, who);
  node.operands = std::move(operands.values);
  check_operands(op, node.operands, node.lists, value_count(), who);
  node.attrs = checked_attrs(op, std::move(attrs), who);
  node.provenance = std::string(provenance);
  cut_absent(node.operands);
  wanted = checked_outputs(op, std::move(wanted), who);

  // Set again below; a shape rule needs to see which outputs are wanted.
  node.outputs.resize(wanted.size());
  for (size_t k = 0; k < wanted.size(); ++k)
    if (wanted[k]) node.outputs[k] = Value{value_count()};
  std::vector<Type> types(wanted.size());
  if (operands_typed(*this, node)) {
    types = infer_types(*this, node, wanted.size());
  } else if (op.meta() && op.schema->name == "grad") {
    // The outputs of a request have the types of its operands. Types of weights are known before
    // shapes are bound.
    for (size_t k = 0; k < types.size() && k + 1 < node.operands.size(); ++k) {
      const Type& t = type(node.operands[k + 1]);
      if (t.shape.numeric()) types[k] = t;
    }
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  for (uint32_t k = 0; k < wanted.size(); ++k)
    if (wanted[k]) node.outputs[k] = add_value({.type = types[k], .node = id, .output = k});
  cut_absent(node.outputs);
  nodes_.push_back(std::move(node));
  return id;
}

Value Graph::want_output(NodeId id, uint32_t k) {
  NodeInfo& node = nodes_[id];
  if (k < node.outputs.size() && node.outputs[k]) return node.outputs[k];
  const size_t count = output_count(*node.op);
  check(k < count, node.op->name(), ": has no output ", k);
  if (node.outputs.size() <= k) node.outputs.resize(k + 1);
  node.outputs[k] = Value{value_count()};  // so that the shape rule sees it as wanted
  const std::vector<Type> types = infer_types(*this, node, std::max(count, node.outputs.size()));
  const Value v = add_value({.type = types[k], .node = id, .output = k});
  nodes_[id].outputs[k] = v;
  return v;
}

void Graph::output(std::string_view output_name, Value value) {
  if (output_name.empty()) fail(Code::invalid_argument, "output: the name is empty");
  if (value.id >= value_count())
    fail(Code::invalid_argument, "output '", output_name, "': no value of this graph");
  if (is_blocks(type(value).dtype))
    fail(Code::dtype_mismatch, "output '", output_name, "': is ", type(value).text(),
         "; outputs have no blocks: dequantize_blocks makes numbers of them");
  if (!output_names_.emplace(std::string(output_name), static_cast<uint32_t>(outputs_.size()))
           .second)
    fail(Code::invalid_argument, "output '", output_name, "' exists already");
  outputs_.push_back({std::string(output_name), value});
}

void Graph::update(Value target, Value value) {
  if (target.id >= value_count() || value.id >= value_count())
    fail(Code::invalid_argument, "update: no value of this graph");
  const ValueInfo& t = values_[target.id];
  if (t.space != Space::weight && t.space != Space::state)
    fail(Code::invalid_argument, "update: the target is neither a weight nor state");
  if (is_blocks(t.type.dtype) && t.space == Space::weight)
    fail(Code::dtype_mismatch, "update '", t.name, "': is ", t.type.text(),
         "; weights of blocks are not updated");
  const Type& given = type(value);
  // Unknown types are checked when shapes are bound.
  if (given.dtype != TENON_DTYPE_NONE && given.shape.numeric() && given != t.type)
    fail(given.dtype != t.type.dtype ? Code::dtype_mismatch : Code::shape_mismatch, "update '",
         t.name, "': expected ", t.type.text(), ", got ", given.text());
  if (!update_of_.emplace(target, value).second)
    fail(Code::invalid_argument, "update '", t.name, "' exists already");
  updates_.push_back({target, value});
}

void Graph::set_name(Value value, std::string_view hint) {
  if (values_[value.id].space == Space::node || values_[value.id].space == Space::constant)
    values_[value.id].name = hint;
}

Value Graph::find(Space space, std::string_view value_name) const {
  const auto found = named_.find(std::pair(space, std::string(value_name)));
  return found == named_.end() ? Value{} : found->second;
}

Value Graph::update_of(Value target) const {
  const auto found = update_of_.find(target);
  return found == update_of_.end() ? Value{} : found->second;
}

}  // namespace tenon::core
