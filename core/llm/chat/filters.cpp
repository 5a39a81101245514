// SPDX-License-Identifier: Apache-2.0
// The table of filters, and filters of any value.
#include "llm/chat/filters.hpp"

#include <algorithm>
#include <unordered_map>

#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {
namespace {

Value otherwise(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "default", args, {"default_value", "boolean"});
  const bool missing = v.is(Kind::undefined) || (a.flag(1, false) && !is_true(v));
  if (!missing) return v;
  return a.has(0) ? a[0] : m.text({});
}

Value member(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "attr", args, {"name"}, 1);
  m.require_defined(v);
  return m.member(v, m.text(to_text(m, a[0])));
}

Value length(Machine& m, const Value& v, const Args& args) {
  Bound(m, "length", args, {});
  return make_int(m.length(v));
}

Value json(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  constexpr int64_t kMostIndent = 256;
  JsonStyle style;
  style.ascii = a.flag(0, false);
  style.sort_keys = a.flag(3, false);
  if (a.has(1) && !a[1].is(Kind::none)) {
    style.lines = true;
    style.item_separator = ",";
    if (a[1].is(Kind::text)) {
      style.indent = text_of(a[1]);
    } else {
      const int64_t spaces = a.whole(1, 0);
      style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(spaces, 0, kMostIndent + 1)),
                          ' ');
    }
    if (style.indent.size() > kMostIndent)
      m.fail("tojson: expected an indent of at most " + std::to_string(kMostIndent) +
             " characters");
  }
  if (a.has(2) && !a[2].is(Kind::none)) {
    const std::vector<Value> pair = m.items_of(a[2]);
    if (pair.size() != 2 || !pair[0].is(Kind::text) || !pair[1].is(Kind::text) ||
        text_of(pair[0]).size() > kMostIndent || text_of(pair[1]).size() > kMostIndent)
      m.fail("tojson: 'separators': expected two short texts");
    style.item_separator = text_of(pair[0]);
    style.key_separator = text_of(pair[1]);
  }
  return m.text(to_json(m, v, style));
}

Value items(Machine& m, const Value& v, const Args& args) {
  Bound(m, "items", args, {});
  std::vector<Value> out;
  if (!v.is(Kind::undefined)) {
    if (!v.is(Kind::dict)) m.fail("items: expected a dict, got " + std::string(type_name(v)));
    for (const auto& [key, value] : v.dict->entries)
      out.push_back(m.list({key, value}, Form::tuple));
  }
  return m.list(std::move(out), Form::generator);
}

Value as_list(Machine& m, const Value& v, const Args& args) {
  Bound(m, "list", args, {});
  return m.list(m.items_of(v));
}

}  // namespace

Builtin find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> table = [] {
    std::unordered_map<std::string_view, Builtin> t = {
        {"attr", member},       {"count", length},  {"d", otherwise},  {"items", items},
        {"default", otherwise}, {"length", length}, {"list", as_list}, {"tojson", json},
    };
    for (const auto* rows :
         {&text_filters(), &number_filters(), &sequence_filters(), &order_filters()})
      for (const FilterRow& row : *rows) t.emplace(row.name, row.filter);
    return t;
  }();
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

Value attribute_path(Machine& m, Value item, const Value& attribute, const Value& otherwise) {
  const auto step = [&](const Value& key) {
    item = m.item(item, key);
    if (item.is(Kind::undefined) && !otherwise.is(Kind::none)) item = otherwise;
  };
  if (attribute.is(Kind::none)) return item;
  if (!attribute.is(Kind::text)) {
    step(attribute);
    return item;
  }
  const std::string_view path = text_of(attribute);
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const bool number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    step(number ? make_int(std::stoll(std::string(part))) : m.text(std::string(part)));
    at = end + 1;
  }
  return item;
}

}  // namespace tenon::llm::jinja
