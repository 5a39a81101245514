// SPDX-License-Identifier: Apache-2.0
// Prints a graph as text that parses back to an equal graph.
#include <cstring>
#include <unordered_set>

#include "ir/lexer.hpp"
#include "ir/text.hpp"
#include "ir/text_detail.hpp"
#include "ops/record.hpp"

namespace tenon::core {
namespace {

constexpr size_t kListedElements = 16;

template <class Number>
std::string shortest(Number v) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

// The text never looks like an integer.
std::string float_text(double v) {
  std::string text = shortest(v);
  return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
}

std::string hex_text(const Bytes& data) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "0x";
  for (std::byte b : data) {
    out += digits[std::to_integer<int>(b) >> 4];
    out += digits[std::to_integer<int>(b) & 15];
  }
  return out;
}

// The text of one element, or empty if the text would not reproduce its bytes.
std::string element_text(DType t, const std::byte* at) {
  const size_t size = tenon_dtype_bits(t) / 8;
  auto same = [&](const std::string& text) {
    std::byte back[8];
    return text_detail::read_element(t, text, back) && std::memcmp(back, at, size) == 0;
  };
  if (!is_float(t)) {
    int64_t v = 0;
    std::memcpy(&v, at, size);
    const int unused = static_cast<int>(64 - size * 8);
    const bool is_signed = t >= kI8 && t <= kI64;
    std::string text =
        is_signed ? shortest(static_cast<int64_t>(static_cast<uint64_t>(v) << unused) >> unused)
                  : shortest(static_cast<uint64_t>(v));
    return same(text) ? text : std::string();
  }
  double v = 0;
  load_number(t, at, &v);
  if (t == kF32) {
    std::string text = shortest(static_cast<float>(v));
    if (same(text)) return text.find_first_of(".einf") == std::string::npos ? text + ".0" : text;
  }
  std::string text = float_text(v);
  return same(text) ? text : std::string();
}

std::string content_text(const Type& type, const Bytes& data) {
  const auto count = static_cast<size_t>(type.shape.elements());
  if (!text_detail::lists(type.dtype) || count > kListedElements) return hex_text(data);
  std::string list = "{";
  for (size_t i = 0; i < count; ++i) {
    const std::string element =
        element_text(type.dtype, data.data() + i * (tenon_dtype_bits(type.dtype) / 8));
    if (element.empty()) return hex_text(data);
    list += cat(i ? ", " : "", element);
  }
  return list + "}";
}

class Printer {
 public:
  Printer(const Graph& graph, bool with_types, std::string indent)
      : g_(graph),
        with_types_(with_types),
        indent_(std::move(indent)),
        idents_(graph.value_count()) {}

  std::string run() {
    out_ = "graph ";
    if (!g_.name.empty()) out_ += quoted(g_.name) + " ";
    out_ += "{\n";
    if (!g_.symbols().empty()) {
      begin("symbols ");
      for (size_t i = 0; i < g_.symbols().size(); ++i)
        out_ += cat(i ? ", " : "", name_text(g_.symbols()[i]));
      out_ += '\n';
    }
    for (uint32_t v = 0; v < g_.value_count(); ++v)
      if (g_[Value{v}].space != Space::node) print_value({v});
    for (NodeId n = 0; n < g_.node_count(); ++n) print_node(g_[n]);
    for (const Output& o : g_.outputs())
      begin(cat("output ", quoted(o.name), " = ", ident(o.value), "\n"));
    for (const Update& u : g_.updates())
      begin(cat("update ", ident(u.target), " = ", ident(u.value), "\n"));
    return out_ + indent_ + "}";
  }

 private:
  void begin(std::string_view text) { out_ += cat(indent_, "  ", text); }

  static std::string name_text(std::string_view name) {
    return is_word(name) ? std::string(name) : quoted(name);
  }

  std::string ident(Value v) const { return v ? idents_[v.id] : "_"; }

  // Assigns an identifier to a value. Appends the name if it differs.
  std::string define(Value v) {
    const std::string& name = g_[v].name;
    std::string& ident = idents_[v.id];
    if (is_word(name) && !text_detail::is_reserved(name) && taken_.insert(name).second)
      return ident = name;
    ident = cat("%", next_++);
    return name.empty() ? ident : cat(ident, " ", quoted(name));
  }

  std::string type_text(const Type& type) const {
    std::string text = cat(dtype_name(type.dtype), "[");
    for (int i = 0; i < type.shape.rank(); ++i) {
      if (i) text += ',';
      const Dim d = type.shape[i];
      text += is_symbol(d) ? name_text(g_.symbol_name(d)) : std::to_string(d);
    }
    return text + "]";
  }

  void print_value(Value v) {
    const ValueInfo& info = g_[v];
    constexpr std::string_view words[] = {"node", "input", "weight", "const", "state"};
    const std::string defined = define(v);
    begin(cat(words[static_cast<size_t>(info.space)], " ", defined, ": ", type_text(info.type)));
    if (info.trainable) out_ += " trainable";
    if (info.data) out_ += " = " + content_text(info.type, *info.data);
    out_ += '\n';
  }

  std::string op_text(const OpRecord& op) const {
    std::string text = op.domain == "tenon" ? std::string() : name_text(op.domain) + ":";
    text += name_text(op.schema->name);
    const OpRecord* newest = find_record(op.domain, op.schema->name);
    if (!newest || newest->schema->version != op.schema->version)
      text += cat("/", op.schema->version);
    return text;
  }

  std::string attr_text(const AttrValue& value) const {
    return std::visit(
        [&]<class T>(const T& v) -> std::string {
          if constexpr (std::is_same_v<T, double>) {
            return float_text(v);
          } else if constexpr (std::is_same_v<T, std::string>) {
            return quoted(v);
          } else if constexpr (std::is_same_v<T, DTypeAttr>) {
            return v.dtype == TENON_DTYPE_NONE ? "none" : std::string(dtype_name(v.dtype));
          } else if constexpr (std::is_same_v<T, FunctionAttr>) {
            return Printer(*v, with_types_, indent_ + "  ").run();
          } else if constexpr (std::is_arithmetic_v<T>) {
            return cat(v);
          } else {
            std::string list = "[";
            for (auto number : v) {
              if (list.size() > 1) list += ", ";
              if constexpr (std::is_same_v<T, std::vector<double>>)
                list += float_text(number);
              else
                list += cat(number);
            }
            return list + "]";
          }
        },
        value);
  }

  // The entries of a list stand in brackets, except where it takes all that follows.
  std::string operands_text(const NodeInfo& node) const {
    std::string text;
    size_t k = 0, list = 0;
    const auto add = [&](const std::string& operand) {
      text += cat(text.empty() ? "" : ", ", operand);
    };
    for (const OpPart& p : node.op->schema->parts()) {
      if (p.kind == OpPart::Kind::operand || p.kind == OpPart::Kind::optional_operand) {
        if (k < node.operands.size()) add(ident(node.operands[k]));
        ++k;
      } else if (p.is_operand_list()) {
        const size_t end = k + node.lists[list];
        const bool bare = list++ == 0 && end == node.operands.size();
        if (bare || end > k) {
          std::string entries;
          for (; k < end; ++k) entries += cat(entries.empty() ? "" : ", ", ident(node.operands[k]));
          add(bare ? entries : "[" + entries + "]");
        } else if (k < node.operands.size()) {
          add("[]");
        }
      }
    }
    return text;
  }

  void print_node(const NodeInfo& node) {
    std::string results;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      results += cat(k ? ", " : "", node.outputs[k] ? define(node.outputs[k]) : "_");
    begin(node.outputs.size() == 1 ? results : "(" + results + ")");
    out_ += cat(" = ", op_text(*node.op), "(", operands_text(node), ")");
    for (size_t k = 0; k < node.attrs.size(); ++k)
      out_ +=
          cat(k ? ", " : " {", name_text(node.attrs[k].name), "=", attr_text(node.attrs[k].value));
    if (!node.attrs.empty()) out_ += "}";
    if (!node.provenance.empty()) out_ += " @" + quoted(node.provenance);
    if (node.clone) out_ += cat(" clone ", node.clone);
    if (node.recompute) out_ += cat(" recompute ", node.recompute);
    if (with_types_) print_types(node);
    out_ += '\n';
  }

  void print_types(const NodeInfo& node) {
    std::string types;
    for (Value v : node.outputs)
      if (v && g_.type(v).dtype != TENON_DTYPE_NONE) types += " " + type_text(g_.type(v));
    if (!types.empty()) out_ += "  #" + types;
  }

  const Graph& g_;
  const bool with_types_;
  const std::string indent_;
  std::string out_;
  std::vector<std::string> idents_;  // by value
  std::unordered_set<std::string> taken_;
  uint32_t next_ = 0;
};

}  // namespace

std::string print(const Graph& graph, bool with_types) {
  return Printer(graph, with_types, "").run() + "\n";
}

}  // namespace tenon::core
