// SPDX-License-Identifier: Apache-2.0
// Filters that make texts. Other values become texts first.
#include "llm/chat/filters.hpp"
#include "llm/chat/format.hpp"
#include "llm/chat/print.hpp"
#include "llm/chat/text_tools.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

// The text of a value, which stays marked as safe.
Value soft(Machine& m, const Value& v) { return v.is(Kind::text) ? v : m.text(to_text(m, v)); }

template <std::string (*convert)(std::string_view)>
Value converted(Machine& m, const Value& v, const Args& args) {
  Bound(m, "filter", args, {});
  const Value text = soft(m, v);
  return m.text(convert(text_of(text)), text.text->markup);
}

// Letters after white space, dashes and opening brackets are capitals.
std::string title(std::string_view text) {
  std::string out;
  bool starts = true;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const char32_t c = next_character(text, end);
    const bool splits =
        python::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (splits || starts) {
      out += upper_text(text.substr(at, end - at));
      starts = splits;
      at = end;
      continue;
    }
    while (end < text.size()) {
      size_t next = end;
      const char32_t n = next_character(text, next);
      if (python::is_space(n) || n == '-' || n == '(' || n == '{' || n == '[' || n == '<') break;
      end = next;
    }
    out += lower_text(text.substr(at, end - at));
    at = end;
  }
  return out;
}

Value trim(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "trim", args, {"chars"});
  const Value text = soft(m, v);
  const bool space = !a.has(0) || a[0].is(Kind::none);
  return m.text(space ? stripped(text_of(text), Sides::both)
                      : stripped(text_of(text), Sides::both, a.text(0, "")),
                text.text->markup);
}

Value string(Machine& m, const Value& v, const Args& args) {
  Bound(m, "string", args, {});
  return soft(m, v);
}
Value safe(Machine& m, const Value& v, const Args& args) {
  Bound(m, "safe", args, {});
  return m.text(to_text(m, v), true);
}
Value escaped(Machine& m, const Value& v, const Args& args) {
  Bound(m, "escape", args, {});
  if (v.is(Kind::text) && v.text->markup) return v;
  return m.text(escape(to_text(m, v)), true);
}
Value force_escape(Machine& m, const Value& v, const Args& args) {
  Bound(m, "forceescape", args, {});
  return m.text(escape(to_text(m, v)), true);
}

Value replace(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "replace", args, {"old", "new", "count"}, 2);
  const int64_t most = a.has(2) && !a[2].is(Kind::none) ? a.whole(2, -1) : -1;
  return m.text(replaced(m, to_text(m, v), to_text(m, a[0]), to_text(m, a[1]), most));
}

Value join(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "join", args, {"d", "attribute"});
  const std::string between = a.has(0) ? to_text(m, a[0]) : std::string();
  const Value attribute = a.get(1, Value::none());
  std::string out;
  bool first = true;
  for (const Value& item : m.items_of(v)) {
    if (!first) out += between;
    first = false;
    const std::string text = to_text(m, attribute_path(m, item, attribute, Value::none()));
    m.charge(between.size() + text.size());
    out += text;
  }
  return m.text(std::move(out));
}

Value indent(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "indent", args, {"width", "first", "blank"});
  m.require_defined(v);
  if (!v.is(Kind::text)) m.fail("indent: expected a str, got " + std::string(type_name(v)));
  const bool blank = a.flag(2, false);
  const std::string by = a.has(0) && a[0].is(Kind::text)
                             ? a[0].text->bytes
                             : justified(m, "", a.whole(0, 4), " ", '<');
  const std::string whole = v.text->bytes + "\n";
  std::string out = a.flag(1, false) ? by : std::string();
  bool first = true;
  for (const std::string_view line : lines_of(whole, false)) {
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) out += by;
    first = false;
    out += line;
    m.charge(by.size() + line.size());
  }
  return m.text(std::move(out), v.text->markup);
}

Value truncate(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "truncate", args, {"length", "killwords", "end", "leeway"});
  const int64_t length = a.whole(0, 255);
  const int64_t leeway = a.has(3) && !a[3].is(Kind::none) ? a.whole(3, 5) : 5;
  const std::string_view end = a.text(2, "...");
  const auto tail = static_cast<int64_t>(count_chars(end));
  if (length < tail || leeway < 0) m.fail("truncate: the length is shorter than the end");
  const int64_t size = m.length(v);
  if (size <= length || size - length <= leeway) return v;
  if (!v.is(Kind::text)) m.fail("truncate: expected a str, got " + std::string(type_name(v)));
  const std::string_view text = text_of(v);
  std::string_view head = text.substr(0, offset_of_char(text, static_cast<size_t>(length - tail)));
  if (!a.flag(1, false)) head = head.substr(0, head.rfind(' '));  // all of it without a space
  return m.text(std::string(head) + std::string(end), v.text->markup);
}

Value center(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "center", args, {"width"});
  const Value text = soft(m, v);
  return m.text(justified(m, text_of(text), a.whole(0, 80), " ", '^'), text.text->markup);
}

Value word_count(Machine& m, const Value& v, const Args& args) {
  Bound(m, "wordcount", args, {});
  const std::string text = to_text(m, v);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    const bool part = c == '_' || python::is_alnum(c);
    words += part && !inside;
    inside = part;
  }
  return make_int(words);
}

Value format(Machine& m, const Value& v, const Args& args) {
  if (!args.values.empty() && !args.named.empty())
    m.fail("format: expected values or names, got both");
  if (args.named.empty()) return format_percent(m, soft(m, v), m.list(args.values, Form::tuple));
  const Value named = m.dict();
  for (const auto& [name, value] : args.named) insert(m, *named.dict, m.text(name), value);
  return format_percent(m, soft(m, v), named);
}

std::string url_quoted(std::string_view text, bool slash) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (slash && c == '/');
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
  return out;
}

std::string query_quoted(Machine& m, const Value& v) {
  std::string out = url_quoted(to_text(m, v), false);
  for (size_t at = out.find("%20"); at != out.npos; at = out.find("%20", at))
    out.replace(at, 3, "+");
  return out;
}

Value urlencode(Machine& m, const Value& v, const Args& args) {
  Bound(m, "urlencode", args, {});
  const bool list = v.is(Kind::list) && (v.list->form == Form::list || v.list->is_tuple());
  if (!v.is(Kind::dict) && !list) return m.text(url_quoted(to_text(m, v), true));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += query_quoted(m, key) + '=' + query_quoted(m, value);
  };
  if (v.is(Kind::dict)) {
    for (const auto& [key, value] : v.dict->entries) add(key, value);
  } else {
    for (const Value& item : v.list->items) {
      const std::vector<Value> pair = m.items_of(item);
      if (pair.size() != 2) m.fail("urlencode: expected pairs");
      add(pair[0], pair[1]);
    }
  }
  return m.text(std::move(out));
}

}  // namespace

const std::vector<FilterRow>& text_filters() {
  static const std::vector<FilterRow> rows = {
      {"capitalize", converted<capitalize_text>},
      {"center", center},
      {"e", escaped},
      {"escape", escaped},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"join", join},
      {"lower", converted<lower_text>},
      {"replace", replace},
      {"safe", safe},
      {"string", string},
      {"title", converted<title>},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", converted<upper_text>},
      {"urlencode", urlencode},
      {"wordcount", word_count},
  };
  return rows;
}

}  // namespace tenon::llm::jinja
