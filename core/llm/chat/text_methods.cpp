// SPDX-License-Identifier: Apache-2.0
// Methods of str.
#include <algorithm>

#include "llm/chat/format.hpp"
#include "llm/chat/machine.hpp"
#include "llm/chat/print.hpp"
#include "llm/chat/text_tools.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

std::string_view own(const Value& self) { return text_of(self); }
Value same(Machine& m, const Value& self, std::string text) {
  return m.text(std::move(text), self.text->markup);
}

template <std::string (*convert)(std::string_view)>
Value converted(Machine& m, const Value& self, const Args& args) {
  Bound(m, "str method", args, {});
  m.charge(own(self).size());
  return same(m, self, convert(own(self)));
}

template <Sides sides>
Value strip(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "strip", args, {"chars"});
  if (!a.has(0) || a[0].is(Kind::none)) return same(m, self, stripped(own(self), sides));
  return same(m, self, stripped(own(self), sides, a.text(0, "")));
}

// The part of a text between two optional indices, in bytes.
struct Part {
  Part(Machine& m, const Value& self, const Bound& a, size_t first) {
    const int64_t size = self.text->chars;
    const auto bound = [&](size_t i, int64_t otherwise) {
      const int64_t at = a.has(i) && !a[i].is(Kind::none) ? a.whole(i, 0) : otherwise;
      return std::max<int64_t>(at < 0 ? at + size : at, 0);
    };
    const int64_t from = bound(first, 0), to = std::min(bound(first + 1, size), size);
    m.work_on(own(self));
    valid = from <= to;
    if (!valid) return;
    begin = offset_of_char(own(self), static_cast<size_t>(from));
    text = own(self).substr(begin, offset_of_char(own(self), static_cast<size_t>(to)) - begin);
  }
  bool valid = true;
  size_t begin = 0;
  std::string_view text;
};

template <bool at_end>
Value has_affix(Machine& m, const Value& self, const Args& args) {
  const std::string_view name = at_end ? "endswith" : "startswith";
  const Bound a(m, name, args, {"affix", "start", "end"}, 1);
  const Part part(m, self, a, 1);
  const auto matches = [&](const Value& v) {
    m.require_defined(v);
    if (!v.is(Kind::text))
      m.fail(std::string(name) + ": expected a str, got " + std::string(type_name(v)));
    return part.valid &&
           (at_end ? part.text.ends_with(text_of(v)) : part.text.starts_with(text_of(v)));
  };
  if (!a[0].is(Kind::list) || !a[0].list->is_tuple()) return make_bool(matches(a[0]));
  for (const Value& v : a[0].list->items)
    if (matches(v)) return make_bool(true);
  return make_bool(false);
}

template <bool from_end, bool must>
Value find_part(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "find", args, {"part", "start", "end"}, 1);
  const Part part(m, self, a, 1);
  const std::string_view wanted = a.text(0, "");
  const size_t at = !part.valid ? part.text.npos
                    : from_end  ? part.text.rfind(wanted)
                                : part.text.find(wanted);
  if (at == part.text.npos) {
    if (must) m.fail("index: the text does not have the part");
    return make_int(-1);
  }
  return make_int(static_cast<int64_t>(count_chars(own(self).substr(0, part.begin + at))));
}

Value count(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "count", args, {"part", "start", "end"}, 1);
  const Part part(m, self, a, 1);
  const std::string_view wanted = a.text(0, "");
  if (!part.valid) return make_int(0);
  if (wanted.empty()) return make_int(static_cast<int64_t>(count_chars(part.text)) + 1);
  int64_t n = 0;
  for (size_t at = part.text.find(wanted); at != part.text.npos;
       at = part.text.find(wanted, at + wanted.size()))
    ++n;
  return make_int(n);
}

Value replace(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "replace", args, {"old", "new", "count"}, 2);
  std::string with(a.text(1, ""));
  if (self.text->markup && !a[1].text->markup) with = escape(with);
  return same(m, self, replaced(m, own(self), a.text(0, ""), with, a.whole(2, -1)));
}

template <bool from_end>
Value split(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "split", args, {"sep", "maxsplit"});
  const int64_t most = a.whole(1, -1);
  std::vector<std::string_view> parts;
  if (!a.has(0) || a[0].is(Kind::none)) {
    parts = split_at_space(own(self), most, from_end);
  } else {
    const std::string_view separator = a.text(0, "");
    if (separator.empty()) m.fail("split: the separator is empty");
    parts = split_at(own(self), separator, most, from_end);
  }
  std::vector<Value> out;
  m.charge(parts.size() * sizeof(Value) * 2);
  for (const std::string_view part : parts) out.push_back(same(m, self, std::string(part)));
  return m.list(std::move(out));
}

Value splitlines(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "splitlines", args, {"keepends"});
  std::vector<Value> out;
  for (const std::string_view line : lines_of(own(self), a.flag(0, false))) {
    m.charge(sizeof(Value));
    out.push_back(same(m, self, std::string(line)));
  }
  return m.list(std::move(out));
}

template <bool from_end>
Value partition(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "partition", args, {"sep"}, 1);
  const std::string_view text = own(self), separator = a.text(0, "");
  if (separator.empty()) m.fail("partition: the separator is empty");
  m.work_on(text);
  const size_t at = from_end ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string_view t) { return same(m, self, std::string(t)); };
  if (at == text.npos) {
    if (from_end) return m.list({part(""), part(""), self}, Form::tuple);
    return m.list({self, part(""), part("")}, Form::tuple);
  }
  return m.list(
      {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))},
      Form::tuple);
}

Value join(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "join", args, {"items"}, 1);
  std::string out;
  bool first = true;
  for (const Value& v : m.items_of(a[0])) {
    m.require_defined(v);
    if (!v.is(Kind::text))
      m.fail("join: expected items of the type str, got " + std::string(type_name(v)));
    if (!first) out += own(self);
    first = false;
    out += self.text->markup && !v.text->markup ? escape(text_of(v)) : v.text->bytes;
    m.charge(own(self).size() + text_of(v).size());
  }
  return same(m, self, std::move(out));
}

template <char align>
Value justify(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "justify", args, {"width", "fillchar"}, 1);
  const std::string_view fill = a.text(1, " ");
  if (count_chars(fill) != 1) m.fail("justify: 'fillchar': expected one character");
  return same(m, self, justified(m, own(self), a.whole(0, 0), fill, align));
}

Value zfill(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "zfill", args, {"width"}, 1);
  const bool sign = own(self).starts_with('+') || own(self).starts_with('-');
  const std::string head(own(self).substr(0, sign));
  return same(m, self, head + justified(m, own(self).substr(sign), a.whole(0, 0) - sign, "0", '>'));
}

template <bool at_end>
Value remove_affix(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "removeprefix", args, {"affix"}, 1);
  std::string_view text = own(self);
  const std::string_view affix = a.text(0, "");
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return same(m, self, std::string(text));
}

template <bool (*has)(char32_t), bool empty>
Value all_have(Machine& m, const Value& self, const Args& args) {
  Bound(m, "str method", args, {});
  m.work_on(own(self));
  if (own(self).empty()) return make_bool(empty);
  for (size_t at = 0; at < own(self).size();)
    if (!has(next_character(own(self), at))) return make_bool(false);
  return make_bool(true);
}

Value isascii(Machine& m, const Value& self, const Args& args) {
  Bound(m, "isascii", args, {});
  return make_bool(self.text->ascii());
}

template <bool upper>
Value is_in_case(Machine& m, const Value& self, const Args& args) {
  Bound(m, "str method", args, {});
  return make_bool(is_cased(own(self), upper));
}

Value istitle(Machine& m, const Value& self, const Args& args) {
  Bound(m, "istitle", args, {});
  bool inside = false, any = false;
  for (size_t at = 0; at < own(self).size();) {
    const char32_t c = next_character(own(self), at);
    const bool begins = python::is_upper(c) || python::is_title(c);
    const bool cased = begins || python::is_lower(c);
    if (cased && begins == inside) return make_bool(false);
    inside = cased;
    any |= cased;
  }
  return make_bool(any);
}

struct Row {
  std::string_view name;
  Builtin method;
};
constexpr Row kMethods[] = {
    {"capitalize", converted<capitalize_text>},
    {"casefold", converted<casefold_text>},
    {"center", justify<'^'>},
    {"count", count},
    {"endswith", has_affix<true>},
    {"find", find_part<false, false>},
    {"format", format_braces},
    {"index", find_part<false, true>},
    {"isalnum", all_have<python::is_alnum, false>},
    {"isalpha", all_have<is_letter, false>},
    {"isascii", isascii},
    {"isdecimal", all_have<python::is_decimal, false>},
    {"isdigit", all_have<python::is_digit, false>},
    {"islower", is_in_case<false>},
    {"isnumeric", all_have<python::is_numeric, false>},
    {"isprintable", all_have<python::is_printable, true>},
    {"isspace", all_have<python::is_space, false>},
    {"istitle", istitle},
    {"isupper", is_in_case<true>},
    {"join", join},
    {"ljust", justify<'<'>},
    {"lower", converted<lower_text>},
    {"lstrip", strip<Sides::left>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find_part<true, false>},
    {"rindex", find_part<true, true>},
    {"rjust", justify<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<Sides::right>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", strip<Sides::both>},
    {"swapcase", converted<swapcase_text>},
    {"title", converted<title_text>},
    {"upper", converted<upper_text>},
    {"zfill", zfill},
};

}  // namespace

Builtin find_text_method(std::string_view name) {
  const auto* at =
      std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                       [](const Row& row, std::string_view n) { return row.name < n; });
  return at != std::end(kMethods) && at->name == name ? at->method : nullptr;
}

}  // namespace tenon::llm::jinja
