// SPDX-License-Identifier: Apache-2.0
// Parses the text form of a graph. Errors name file, line and column.
#include <unordered_map>

#include "ir/lexer.hpp"
#include "ir/text.hpp"
#include "ir/text_detail.hpp"
#include "ops/record.hpp"

namespace tenon::core {
namespace {

using Kind = Token::Kind;
constexpr int kMaxDepth = 8;  // levels of nested function bodies

class Parser {
 public:
  Parser(Lexer& lexer, const FindRecord& find, int depth)
      : lex_(lexer), find_(find), depth_(depth) {}

  // graph ["name"] { statements }
  Graph run() {
    if (depth_ > kMaxDepth)
      lex_.expected(cat("at most ", kMaxDepth, " function bodies inside each other"));
    expect("graph");
    if (lex_.peek().kind == Kind::string) g_.name = lex_.take().value;
    expect("{");
    while (!lex_.peek().is("}")) statement();
    lex_.take();
    return std::move(g_);
  }

 private:
  // ---- words

  void expect(std::string_view mark) {
    if (!lex_.peek().is(mark)) lex_.expected(cat("'", mark, "'"));
    lex_.take();
  }
  bool accept(std::string_view mark) {
    if (!lex_.peek().is(mark)) return false;
    lex_.take();
    return true;
  }
  // A name: a word, or anything as a string.
  std::string name(std::string_view what) {
    if (lex_.peek().kind == Kind::string) return lex_.take().value;
    if (lex_.peek().kind != Kind::word) lex_.expected(what);
    return std::string(lex_.take().text);
  }
  template <class Number>
  Number number(std::string_view what) {
    const std::string_view text = lex_.peek().text;
    Number value{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (lex_.peek().kind == Kind::string || error != std::errc() ||
        stop != text.data() + text.size())
      lex_.expected(what);
    lex_.take();
    return value;
  }
  // Errors of the graph are reported at the token where the statement starts.
  template <class Call>
  auto checked(const Token& at, Call call) {
    try {
      return call();
    } catch (const Error& e) {
      fail(e.code(), lex_.where(at), ": ", e.what());
    }
  }

  // ---- values

  struct Definition {
    Token at;
    std::string ident, name;
  };
  Definition definition() {
    Definition d{.at = lex_.peek(), .ident = {}, .name = {}};
    if (d.at.kind != Kind::word && d.at.kind != Kind::percent) lex_.expected("a value's name");
    d.ident = lex_.take().text;
    if (text_detail::is_reserved(d.ident))
      fail(Code::invalid_argument, lex_.where(d.at), ": expected a value's name, got the keyword '",
           d.ident, "'");
    if (!values_.emplace(d.ident, Value{}).second)  // absent until the statement is complete
      fail(Code::invalid_argument, lex_.where(d.at), ": value '", d.ident, "' exists already");
    if (d.at.kind == Kind::word)
      d.name = d.ident;
    else if (lex_.peek().kind == Kind::string)
      d.name = lex_.take().value;
    return d;
  }
  Value use() {
    const Token at = lex_.peek();
    if (at.kind != Kind::word && at.kind != Kind::percent) lex_.expected("a value");
    lex_.take();
    const auto found = values_.find(std::string(at.text));
    if (found == values_.end() || !found->second)
      fail(Code::invalid_argument, lex_.where(at), ": expected a value defined above, got ",
           at.shown());
    return found->second;
  }

  // ---- types

  DType dtype() {
    const auto t =
        lex_.peek().kind == Kind::word ? dtype_from_name(lex_.peek().text) : std::nullopt;
    if (!t || !tenon_dtype_known(*t)) lex_.expected("a dtype such as f32");
    lex_.take();
    return *t;
  }
  Type type() {
    const Token at = lex_.peek();
    Type t{.dtype = dtype(), .shape = {}};
    expect("[");
    for (bool first = true; !accept("]"); first = false) {
      if (!first) expect(",");
      if (t.shape.rank() == TENON_MAX_RANK) lex_.expected(cat("at most ", TENON_MAX_RANK, " dims"));
      const Kind kind = lex_.peek().kind;
      const bool named = kind == Kind::word || kind == Kind::string;
      const Token dim = lex_.peek();
      const Dim d = named ? checked(dim, [&] { return g_.symbol(name("a symbol")); })
                          : number<int64_t>("a dim");
      if (!named && d < 0)
        fail(Code::invalid_argument, lex_.where(dim), ": expected a dim >= 0, got ", dim.text);
      t.shape.push(d);
    }
    if (t.shape.numeric()) checked(at, [&] { return t.shape.elements(); });
    if (is_blocks(t.dtype))
      checked(at, [&] {
        want_whole_blocks(t, "type");
        return 0;
      });
    return t;
  }

  // ---- statements

  void statement() {
    const Token& t = lex_.peek();
    if (t.is("symbols")) return symbols();
    if (t.is("input") || t.is("weight") || t.is("state")) return named();
    if (t.is("const")) return constant();
    if (t.is("output")) return output();
    if (t.is("update")) return update();
    if (t.is("(") || t.is("_") || t.kind == Kind::percent ||
        (t.kind == Kind::word && !text_detail::is_reserved(t.text)))
      return node();
    lex_.expected("a statement or '}'");
  }

  void symbols() {
    do {
      lex_.take();  // "symbols" or ","
      const Token at = lex_.peek();
      checked(at, [&] { return g_.symbol(name("a symbol")); });
    } while (lex_.peek().is(","));
  }

  void named() {
    const Token word = lex_.take();
    const Definition d = definition();
    expect(":");
    const Type t = type();
    const bool trainable = word.is("weight") && accept("trainable");
    values_[d.ident] = checked(d.at, [&] {
      if (word.is("input")) return g_.input(d.name, t);
      return word.is("state") ? g_.state(d.name, t) : g_.weight(d.name, t, trainable);
    });
  }

  void constant() {
    lex_.take();
    const Definition d = definition();
    expect(":");
    const Token at = lex_.peek();
    const Type t = type();
    if (!t.shape.numeric())
      fail(Code::invalid_argument, lex_.where(at), ": a constant with a symbolic dim");
    expect("=");
    auto data = std::make_shared<Bytes>(lex_.peek().is("{") ? list(t) : hex(t));
    const Value v = checked(d.at, [&] { return g_.constant(t, std::move(data)); });
    if (!d.name.empty()) g_.set_name(v, d.name);
    values_[d.ident] = v;
  }

  Bytes list(const Type& t) {
    if (!text_detail::lists(t.dtype)) lex_.expected(cat("0x and the bytes of ", t.text()));
    lex_.take();
    const size_t each = tenon_dtype_bits(t.dtype) / 8;
    const auto count = static_cast<uint64_t>(t.shape.elements());
    Bytes data;
    for (uint64_t i = 0; i < count; ++i) {
      if (i) expect(",");
      data.resize(data.size() + each);
      const Token& word = lex_.peek();
      if (word.kind == Kind::string ||
          !text_detail::read_element(t.dtype, word.text, data.data() + data.size() - each))
        lex_.expected(cat("element ", i, " of ", t.text()));
      lex_.take();
    }
    expect("}");
    return data;
  }

  Bytes hex(const Type& t) {
    const std::string_view text = lex_.peek().text;
    const uint64_t size = type_bytes(t);
    if (lex_.peek().kind != Kind::number || !text.starts_with("0x") ||
        (text.size() - 2) / 2 != size || text.size() % 2)
      lex_.expected(cat("a list, or 0x and ", size, " bytes"));
    Bytes data(size);
    for (size_t i = 0; i < size; ++i) {
      uint8_t byte = 0;
      const char* digits = text.data() + 2 + i * 2;
      if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
        lex_.expected("hexadecimal digits");
      data[i] = std::byte{byte};
    }
    lex_.take();
    return data;
  }

  void output() {
    const Token at = lex_.take();
    if (lex_.peek().kind != Kind::string) lex_.expected("the output's name as a string");
    const std::string output_name = lex_.take().value;
    expect("=");
    const Value v = use();
    checked(at, [&] { g_.output(output_name, v); });
  }

  void update() {
    const Token at = lex_.take();
    const Value target = use();
    expect("=");
    const Value v = use();
    checked(at, [&] { g_.update(target, v); });
  }

  // ---- nodes

  const OpRecord& op(std::string& written) {
    const Token at = lex_.peek();
    std::string domain = "tenon";
    written = name("an op");
    if (accept(":")) {
      domain = std::exchange(written, name("an op"));
    }
    const uint32_t version = accept("/") ? number<uint32_t>("a version") : 0;
    const OpRecord* record = find_(domain, written, version);
    if (!record)
      fail(Code::invalid_argument, lex_.where(at), ": there is no op '",
           domain == "tenon" ? "" : domain + ":", written, "'",
           version ? cat(" of version ", version) : std::string(),
           domain == "tenon" ? "" : "; no loaded plugin has it, nor did the app register it");
    return *record;
  }

  void node() {
    const Token at = lex_.peek();
    std::vector<Definition> results;
    std::vector<bool> wanted;
    auto result = [&] {
      wanted.push_back(!accept("_"));
      if (wanted.back()) results.push_back(definition());
    };
    if (accept("(")) {
      do result();
      while (accept(","));
      expect(")");
    } else {
      result();
    }
    expect("=");
    std::string written;
    const OpRecord& record = op(written);
    Operands operands = node_operands(*record.schema);
    Attrs attrs = lex_.peek().is("{") ? attributes(record, written) : Attrs{};
    std::string provenance;
    if (accept("@")) {
      if (lex_.peek().kind != Kind::string) lex_.expected("a string after @");
      provenance = lex_.take().value;
    }
    const uint32_t clone = accept("clone") ? number<uint32_t>("the clone's number") : 0;
    const uint32_t segment =
        accept("recompute") ? number<uint32_t>("the recomputed part's number") : 0;
    const NodeId id = checked(at, [&] {
      return g_.add_node(record, std::move(operands), std::move(attrs), wanted, provenance);
    });
    g_.set_clone(id, clone);
    g_.set_recompute(id, segment);
    size_t next = 0;
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (!wanted[k]) continue;
      const Definition& d = results[next++];
      const Value v = g_[id].outputs[k];
      if (!d.name.empty()) g_.set_name(v, d.name);
      values_[d.ident] = v;
    }
  }

  // The position at which list k of the op begins, with these lists before it; none if the op has
  // fewer lists.
  static std::optional<size_t> list_position(const OpSchema& schema,
                                             const std::vector<uint32_t>& before) {
    size_t at = 0, list = 0;
    for (const OpPart& p : schema.parts()) {
      if (p.is_operand_list()) {
        if (list == before.size()) return at;
        at += before[list++];
      } else {
        at += p.kind == OpPart::Kind::operand || p.kind == OpPart::Kind::optional_operand;
      }
    }
    return {};
  }

  Operands node_operands(const OpSchema& schema) {
    Operands operands;
    expect("(");
    for (bool first = true; !accept(")"); first = false) {
      if (!first) expect(",");
      if (!accept("[")) {
        operands.values.push_back(accept("_") ? Value{} : use());
        continue;
      }
      const size_t before = operands.values.size();
      if (list_position(schema, operands.lists) != before) lex_.expected("an operand, and no list");
      for (bool entry = false; !accept("]"); entry = true) {
        if (entry) expect(",");
        operands.values.push_back(use());
      }
      operands.lists.push_back(static_cast<uint32_t>(operands.values.size() - before));
    }
    return operands;
  }

  Attrs attributes(const OpRecord& record, std::string_view op_name) {
    lex_.take();
    Attrs attrs;
    do {
      const Token at = lex_.peek();
      std::string attr_name = name("an attribute's name");
      const OpPart* part = record.schema->attr(attr_name);
      if (!part)
        fail(Code::invalid_argument, lex_.where(at), ": ", op_name, ": has no attribute '",
             attr_name, "'");
      for (const Attr& a : attrs)
        if (a.name == attr_name)
          fail(Code::invalid_argument, lex_.where(at), ": ", op_name, ": attribute ", attr_name,
               " is given twice");
      expect("=");
      attrs.push_back({std::move(attr_name), attribute(part->attr_type)});
    } while (accept(","));
    expect("}");
    return attrs;
  }

  template <class Number>
  std::vector<Number> numbers(std::string_view what) {
    expect("[");
    std::vector<Number> list;
    for (bool first = true; !accept("]"); first = false) {
      if (!first) expect(",");
      list.push_back(number<Number>(what));
    }
    return list;
  }

  AttrValue attribute(uint32_t type) {
    switch (type) {
      case TENON_ATTR_I64:
        return number<int64_t>("an integer");
      case TENON_ATTR_F64:
        return number<double>("a number");
      case TENON_ATTR_BOOL:
        if (accept("true")) return true;
        if (accept("false")) return false;
        lex_.expected("true or false");
      case TENON_ATTR_STR:
        if (lex_.peek().kind != Kind::string) lex_.expected("a string");
        return lex_.take().value;
      case TENON_ATTR_INTS:
        return numbers<int64_t>("an integer");
      case TENON_ATTR_FLOATS:
        return numbers<double>("a number");
      case TENON_ATTR_DTYPE:
        return accept("none") ? DTypeAttr{TENON_DTYPE_NONE} : DTypeAttr{dtype()};
      case TENON_ATTR_FUNCTION:
        return std::make_shared<const Graph>(Parser(lex_, find_, depth_ + 1).run());
      default:
        lex_.expected("an attribute of a known type");
    }
  }

  Lexer& lex_;
  const FindRecord& find_;
  const int depth_;
  Graph g_;
  std::unordered_map<std::string, Value> values_;  // by identifier
};

}  // namespace

Graph parse(std::string_view text, std::string_view file_name, const FindRecord& find) {
  Lexer lexer(text, file_name);
  Graph graph = Parser(lexer, find, 0).run();
  if (lexer.peek().kind != Kind::end) lexer.expected("the end of the text");
  return graph;
}

Graph parse(std::string_view text, std::string_view file_name) {
  return parse(text, file_name, find_record);
}

}  // namespace tenon::core
