// SPDX-License-Identifier: Apache-2.0
// Parses one op, written as text, into a graph with one node.
#include "cli/op_text.hpp"

#include <charconv>
#include <string_view>
#include <vector>

#include "cli/args.hpp"

namespace tenon::cli {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return s.substr(0, 0);
  return s.substr(first, s.find_last_not_of(kBlank) - first + 1);
}

// Splits at commas outside of brackets.
std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  if (trimmed(list).empty()) return parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    if (list[i] == ',' && depth == 0) {
      parts.push_back(trimmed(list.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trimmed(list.substr(begin)));
  return parts;
}

// The text of a graph, assembled from pieces of typed text and added text. Maps positions in parser
// errors back to the typed text.
class Pieces {
 public:
  explicit Pieces(std::string_view typed) : typed_(typed) {}

  void typed(std::string_view part) { put(part, place(part), Kind::typed); }
  // Errors in added text are reported at the next piece of typed text.
  void added(std::string_view part, std::string_view before) {
    put(part, place(before), Kind::added);
  }
  // Here the parser meets the following typed text, or its end.
  void closing(std::string_view part, std::string_view after) {
    put(part, place(after) + after.size(), Kind::closing);
  }

  Graph parsed() const {
    try {
      return parse_graph(text_, kFile);
    } catch (const Error& e) {
      throw Error(e.code(), told(e.what()));
    }
  }
  [[noreturn]] void fail_at(size_t at, const std::string& what) const {
    throw Error(TENON_INVALID_ARGUMENT, where(at) + what);
  }
  size_t place(std::string_view part) const {
    return static_cast<size_t>(part.data() - typed_.data());
  }

 private:
  enum class Kind : uint8_t { typed, added, closing };
  struct Piece {
    size_t begin, place;
    Kind kind;
  };
  static constexpr const char* kFile = "--op";

  void put(std::string_view part, size_t place, Kind kind) {
    pieces_.push_back({text_.size(), place, kind});
    text_ += part;
  }
  static std::string where(size_t at) {
    return "--op: at character " + std::to_string(at + 1) + ": ";
  }

  // "--op:LINE:COLUMN: what"
  std::string told(std::string_view message) const {
    const std::string_view begin = "--op:";
    size_t line = 0, column = 0;
    const char* const end = message.data() + message.size();
    if (!message.starts_with(begin)) return "--op: " + std::string(message);
    auto read = std::from_chars(message.data() + begin.size(), end, line);
    if (read.ec == std::errc() && read.ptr != end)
      read = std::from_chars(read.ptr + 1, end, column);
    if (read.ec != std::errc() || end - read.ptr < 2) return std::string(message);
    std::string_view what(read.ptr + 2, static_cast<size_t>(end - read.ptr - 2));
    size_t at = 0;
    for (; line > 1; --line) at = text_.find('\n', at) + 1;
    at += column - 1;
    const Piece* piece = &pieces_.front();
    for (const Piece& p : pieces_)
      if (p.begin <= at) piece = &p;
    if (piece->kind != Kind::closing)
      return where(piece->place + (piece->kind == Kind::typed ? at - piece->begin : 0)) +
             std::string(what);
    size_t next = typed_.find_first_not_of(kBlank, piece->place);
    if (next == std::string_view::npos) next = typed_.size();
    const std::string got =
        next == typed_.size() ? "the end" : "'" + std::string(1, typed_[next]) + "'";
    return where(next) + std::string(what.substr(0, what.rfind(", got "))) + ", got " + got;
  }

  std::string_view typed_;
  std::string text_{};
  std::vector<Piece> pieces_{};
};

struct OpText {
  std::string_view results;  // empty if not typed
  std::string_view name, operands, rest;
};

OpText taken_apart(std::string_view all) {
  OpText out;
  std::string_view call = all;
  // The first "=" belongs to the results if the op's "(" comes after it.
  const size_t close = trimmed(all).starts_with('(') ? all.find(')') : 0;
  const size_t open = close == std::string_view::npos ? close : all.find('(', close);
  const size_t equals = all.find('=');
  if (open != std::string_view::npos && equals < open) {
    out.results = trimmed(all.substr(0, equals));
    call = all.substr(equals + 1);
  }
  const size_t begin = call.find('('), end = call.find(')');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin ||
      (equals < open && open != std::string_view::npos && out.results.empty()))
    throw UsageError("--op " + std::string(all) + ": expected OP(TYPE, TYPE ...) {attributes}");
  out.name = trimmed(call.substr(0, begin));
  out.operands = call.substr(begin + 1, end - begin - 1);
  out.rest = call.substr(end + 1);
  return out;
}

// The statement ends with the text: a surplus brace would end the graph.
void check_braces(const Pieces& pieces, std::string_view rest) {
  int depth = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '"')
      for (++i; i < rest.size() && rest[i] != '"' && rest[i] != '\n'; ++i) i += rest[i] == '\\';
    else if (rest[i] == '#')
      i = std::min(rest.find('\n', i), rest.size());
    else if (rest[i] == '{')
      ++depth;
    else if (rest[i] == '}' && --depth < 0)
      pieces.fail_at(pieces.place(rest) + i, "expected the end of the text, got '}'");
  }
}

}  // namespace

Graph parse_graph(const std::string& text, const std::string& file) {
  try {
    return Graph::parse(text, file);
  } catch (const Error& e) {
    const std::string message = e.what();
    constexpr std::string_view kBegin = "there is no op '";
    const size_t at = message.find(kBegin);
    if (at == std::string::npos) throw;
    const size_t name = at + kBegin.size(), end = message.find('\'', name);
    const std::vector<OpEntry> ops = list_ops();
    std::vector<std::string> full;
    for (const OpEntry& o : ops) full.push_back(o.full_name());
    const std::vector<std::string_view> names(full.begin(), full.end());
    throw Error(e.code(), message + did_you_mean(message.substr(name, end - name), names));
  }
}

Graph graph_of_op(const std::string& text) {
  const OpText op = taken_apart(text);
  Pieces whole(text);
  check_braces(whole, op.rest);
  const std::string_view head = op.results.empty() ? op.name : op.results;
  whole.added("graph \"op\" {\n", head);
  std::string operands;
  int count = 0;
  for (const std::string_view type : split(op.operands)) {
    const std::string name = type == "_" ? "_" : "in" + std::to_string(count++);
    operands += (operands.empty() ? "" : ", ") + name;
    if (type == "_") continue;
    const std::string input = "input " + name + ": ";
    Pieces alone(text);  // errors in a type are reported there, not at the start of the next line
    alone.added("graph {\n" + input, type);
    alone.typed(type);
    alone.closing("\n}\n", type);
    static_cast<void>(alone.parsed());
    whole.added(input, type);
    whole.typed(type);
    whole.closing("\n", type);
  }
  if (op.results.empty())
    whole.added("y", op.name);
  else
    whole.typed(op.results);
  whole.added(" = ", op.name);
  whole.typed(op.name);
  whole.added("(" + operands + ")", op.operands);
  whole.typed(op.rest);
  std::string outputs = "\n";
  std::string_view names = op.results.empty() ? "y" : op.results;
  if (names.starts_with('(') && names.ends_with(')')) names = names.substr(1, names.size() - 2);
  for (const std::string_view name : split(names))
    if (name != "_")
      outputs += "  output \"" + std::string(name) + "\" = " + std::string(name) + "\n";
  whole.closing(outputs + "}\n", op.rest);
  return whole.parsed();
}

}  // namespace tenon::cli
