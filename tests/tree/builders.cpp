// SPDX-License-Identifier: Apache-2.0
// Writes sdk/include/tenon/builders.inl: one member function of Graph for each op of the list, and
// one for each kind of unary, binary, compare, logical and reduce. Test build.builders compares the
// file with what this prints.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <tenon/tenon.h>
#include <tenon/ops.hpp>

namespace {

using tenon::OpPart, tenon::OpSchema;
using Words = std::vector<std::string>;

constexpr size_t kColumns = 100;

// clang-format off
const char* const kHead =
    "// SPDX-License-Identifier: Apache-2.0\n"
    "// Members of Graph (tenon.hpp), written from ops.def by tests/tree/builders.cpp: one for each op\n"
    "// and kind. Operands and functions that an op must have are parameters. Optional operands and\n"
    "// attributes are members of `rest`; the comment above each function lists them. count_ys defaults\n"
    "// to the number of outputs.\n"
    "//\n"
    "//   g.softmax(x, {.axis = 1})     g.linear(x, w, {.act = \"relu\", .bias = b})     g.sum(x, {0, 1})\n"
    "//\n"
    "// max and min reduce; maximum and minimum compare two operands. A Term is a value or a number.\n"
    "// Messages and reports quote `provenance`.\n"
    "// clang-format off\n";
// clang-format on

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (out.append(parts), ...);
  return out;
}

std::string text(tenon_str s) { return {s.data, s.size}; }

// What the attribute `kind` of an op accepts.
Words kinds(std::string_view op) {
  for (uint32_t i = 0; i < tenon_op_count(); ++i) {
    tenon_op_entry e{};
    e.struct_size = sizeof e;
    if (tenon_op(i, &e)) continue;
    if (text(e.domain) != "tenon" || text(e.name) != op) continue;
    for (uint32_t k = 0; k < e.part_count; ++k) {
      const auto& part = *reinterpret_cast<const tenon_op_part*>(
          reinterpret_cast<const char*>(e.parts) + uint64_t{k} * e.part_stride);
      if (text(part.name) != "kind") continue;
      Words words(1);
      for (const char c : text(part.values))
        if (c == '|' || c == ' ')
          words.emplace_back();
        else
          words.back() += c;
      return words;
    }
  }
  return {};
}

// "  Node matmul(Value a, Value b, op::matmul rest = {}, std::string_view provenance = {}) {", in
// lines.
std::string head(const std::string& name, const Words& parameters) {
  const std::string begin = "  Node " + name + "(";
  std::string out, line = begin;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool last = i + 1 == parameters.size();
    const std::string word = parameters[i] + (last ? ") {" : ",");
    if (line.size() + word.size() + 1 > kColumns) {
      out += line + '\n';
      line = std::string(begin.size(), ' ');
    } else if (i) {
      line += ' ';
    }
    line += word;
  }
  return out + line + '\n';
}

// Words as a comment, in lines.
std::string comment(const Words& words) {
  std::string out, line = "  //";
  for (const std::string& w : words) {
    if (line.size() + w.size() + 1 > kColumns) out += line + '\n', line = "  //";
    line += ' ' + w;
  }
  return out + line + '\n';
}

std::string struct_name(std::string_view op) {
  return std::string(op) + (op == "if" || op == "while" ? "_" : "");
}

// Operands that may be numbers.
bool takes_terms(std::string_view op) { return op == "binary" || op == "compare" || op == "where"; }

bool is_function(const OpPart& p) {
  return p.kind == OpPart::Kind::attr && p.attr_type == TENON_ATTR_FUNCTION;
}

// An attribute that nearly every call gives: a parameter behind the operands.
bool is_parameter(std::string_view op, std::string_view attr) {
  return (op == "cast" && attr == "to") ||
         (attr == "shape" && (op == "reshape" || op == "expand")) ||
         (op == "transpose" && attr == "perm");
}

// How many outputs a node has when the caller does not say it.
const char* count_of(std::string_view op) {
  if (op == "batch_linear") return "rest.bs.size()";
  if (op == "while") return "rest.carry.size()";
  if (op == "if") return "outputs_of(then_branch)";
  if (op == "scan" || op == "vmap" || op == "elementwise_region") return "outputs_of(body)";
  if (op == "batch_elementwise_region") return "outputs_of(body, rest.sets)";
  return nullptr;
}

std::string builder(const OpSchema& op) {
  const bool terms = takes_terms(op.name);
  Words parameters, rest, moves;
  const auto parameter = [&](const std::string& type, const OpPart& p, const std::string& value) {
    parameters.push_back(cat(type, " ", p.name));
    moves.push_back(cat("rest.", p.name, " = ", value, ";"));
  };
  for (const OpPart& p : op.parts())
    if (p.required()) parameter("std::string_view", p, cat("std::string(", p.name, ")"));
  for (const OpPart& p : op.parts()) {
    const std::string name(p.name);
    if (p.kind == OpPart::Kind::operand && terms && name != "cond")
      parameters.push_back("Term " + name);
    else if (p.kind == OpPart::Kind::operand)
      parameter("Value", p, name);
    else if (p.kind == OpPart::Kind::operand_list)
      parameter("std::vector<Value>", p, cat("std::move(", name, ")"));
    else if (p.kind == OpPart::Kind::optional_output)
      rest.push_back(".want_" + name);
    else if (p.kind == OpPart::Kind::output_list)
      rest.push_back(".count_" + name);
    else if (p.kind != OpPart::Kind::output && !is_function(p) && !p.required() &&
             !is_parameter(op.name, name))
      rest.push_back("." + name);
  }
  for (const OpPart& p : op.parts())
    if (is_parameter(op.name, p.name) && p.attr_type == TENON_ATTR_DTYPE)
      parameter("tenon_dtype", p, std::string(p.name));
    else if (is_parameter(op.name, p.name))
      parameter("std::vector<int64_t>", p, cat("std::move(", p.name, ")"));
  for (const OpPart& p : op.parts())
    if (is_function(p)) parameter("const Function&", p, std::string(p.name));
  const std::string name = struct_name(op.name);
  if (!rest.empty()) parameters.push_back("op::" + name + " rest = {}");
  parameters.push_back("std::string_view provenance = {}");
  std::string out = rest.empty() ? "" : comment(rest);
  out += head(name, parameters);
  if (rest.empty()) out += "    op::" + name + " rest{};\n";
  if (terms) out += "    std::tie(rest.a, rest.b) = values(a, b);\n";
  for (const std::string& m : moves) out += "    " + m + '\n';
  if (const char* count = count_of(op.name))
    out += cat("    if (rest.count_ys == 0) rest.count_ys = ", count, ";\n");
  return out + "    return add(rest, provenance);\n  }\n";
}

// The functions of the kinds of an op.
std::string of_kinds(const std::string& op) {
  std::string out;
  for (const std::string& kind : kinds(op)) {
    std::string name = kind;
    if (op == "binary" && (kind == "max" || kind == "min")) name += "imum";  // max and min reduce
    if (op == "logical") name += '_';                                        // words that C++ keeps
    Words parameters;
    std::string arguments;
    if (op == "binary" || op == "compare")
      parameters = {"Term a", "Term b"}, arguments = "a, b";
    else if (op == "logical" && kind != "not")
      parameters = {"Value a", "Value b"}, arguments = "a";
    else
      parameters = {op == "logical" ? "Value a" : "Value x"},
      arguments = op == "logical" ? "a" : "x";
    if (op == "unary") {
      parameters.push_back("op::unary rest = {}");
      arguments += ", std::move(rest)";
    } else if (op == "reduce") {
      parameters.push_back("std::vector<int64_t> axes = {}");
      parameters.push_back("bool keepdims = false");
      arguments += ", {.axes = std::move(axes), .keepdims = keepdims}";
    }
    if (op == "logical" && kind != "not") arguments += ", {.b = b}";
    if (op == "logical" && kind == "not") arguments += ", {}";
    parameters.push_back("std::string_view provenance = {}");
    out += head(name, parameters);
    out += "    return " + op + "(\"" + kind + "\", " + arguments + ", provenance);\n  }\n";
  }
  return out;
}

}  // namespace

int main() {
  std::string out = kHead;
  for (const OpSchema& op : tenon::all_ops()) {
    if (op.name == "grad") continue;  // Graph::gradients
    out += '\n' + builder(op);
    for (const char* with_kinds : {"unary", "binary", "compare", "logical", "reduce"})
      if (op.name == with_kinds) out += of_kinds(with_kinds);
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
