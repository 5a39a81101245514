// SPDX-License-Identifier: Apache-2.0
// Filters that compare items: sort, dictsort, unique, groupby, min and max.
#include <algorithm>

#include "llm/chat/filters.hpp"
#include "llm/chat/print.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

Value folded(Machine& m, const Value& v, bool case_sensitive) {
  return v.is(Kind::text) && !case_sensitive ? m.text(lower_text(text_of(v))) : v;
}

struct Keyed {
  std::vector<Value> key;
  Value item;
};

void sort_by_key(Machine& m, std::vector<Keyed>& items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.key.size(); ++i) {
      if (is_equal(m, a.key[i], b.key[i])) continue;
      m.require_defined(a.key[i]);
      m.require_defined(b.key[i]);
      return compare(m, a.key[i], b.key[i], "<") < 0;
    }
    return false;
  };
  if (reverse)
    std::stable_sort(items.begin(), items.end(),
                     [&](const Keyed& a, const Keyed& b) { return before(b, a); });
  else
    std::stable_sort(items.begin(), items.end(), before);
}

// "a,b" names two attributes.
std::vector<Value> attributes_of(Machine& m, const Value& attribute) {
  if (!attribute.is(Kind::text)) return {attribute};
  std::vector<Value> out;
  const std::string_view all = text_of(attribute);
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    out.push_back(m.text(std::string(all.substr(at, end - at))));
    at = end + 1;
  }
  return out;
}

Value sort(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "sort", args, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> attributes = attributes_of(m, a.get(2, Value::none()));
  std::vector<Keyed> items;
  for (const Value& item : m.items_of(v)) {
    Keyed keyed{{}, item};
    for (const Value& attribute : attributes)
      keyed.key.push_back(
          folded(m, attribute_path(m, item, attribute, Value::none()), a.flag(1, false)));
    m.charge(sizeof(Keyed) + attributes.size() * sizeof(Value));
    items.push_back(std::move(keyed));
  }
  sort_by_key(m, items, a.flag(0, false));
  std::vector<Value> out;
  for (const Keyed& keyed : items) out.push_back(keyed.item);
  return m.list(std::move(out));
}

Value dictsort(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string_view by = a.text(1, "key");
  if (by != "key" && by != "value") m.fail("dictsort: 'by': expected key or value");
  m.require_defined(v);
  if (!v.is(Kind::dict)) m.fail("dictsort: expected a dict, got " + std::string(type_name(v)));
  std::vector<Keyed> items;
  for (const auto& [key, value] : v.dict->entries) {
    m.charge(sizeof(Keyed));
    items.push_back({{folded(m, by == "key" ? key : value, a.flag(0, false))},
                     m.list({key, value}, Form::tuple)});
  }
  sort_by_key(m, items, a.flag(2, false));
  std::vector<Value> out;
  for (const Keyed& keyed : items) out.push_back(keyed.item);
  return m.list(std::move(out));
}

Value unique(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "unique", args, {"case_sensitive", "attribute"});
  const Value seen = m.dict();
  std::vector<Value> out;
  for (const Value& item : m.items_of(v)) {
    const Value key = folded(m, attribute_path(m, item, a.get(1, Value::none()), Value::none()),
                             a.flag(0, false));
    if (find(m, *seen.dict, key)) continue;
    insert(m, *seen.dict, key, Value::none());
    out.push_back(item);
  }
  return m.list(std::move(out), Form::generator);
}

Value groupby(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Value otherwise = a.get(1, Value::none());
  std::vector<Keyed> items;
  for (const Value& item : m.items_of(v)) {
    m.charge(sizeof(Keyed));
    items.push_back(
        {{folded(m, attribute_path(m, item, a[0], otherwise), a.flag(2, false))}, item});
  }
  sort_by_key(m, items, false);
  std::vector<Value> out;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<Value> group;
    size_t end = begin;
    for (; end < items.size() && is_equal(m, items[end].key[0], items[begin].key[0]); ++end)
      group.push_back(items[end].item);
    if (end == begin) group.push_back(items[end++].item);  // a key that differs from itself
    const Value key = attribute_path(m, items[begin].item, a[0], otherwise);
    out.push_back(m.list({key, m.list(std::move(group))}, Form::group));
    begin = end;
  }
  return m.list(std::move(out));
}

template <bool largest>
Value extreme(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  Value best, best_key;
  bool first = true;
  for (const Value& item : m.items_of(v)) {
    const Value key = folded(m, attribute_path(m, item, a.get(1, Value::none()), Value::none()),
                             a.flag(0, false));
    if (!first) {
      m.require_defined(key);
      m.require_defined(best_key);
      const int order = compare(m, key, best_key, largest ? ">" : "<");
      if (largest ? order <= 0 : order >= 0) continue;
    }
    first = false;
    best = item;
    best_key = key;
  }
  return best;
}

}  // namespace

const std::vector<FilterRow>& order_filters() {
  static const std::vector<FilterRow> rows = {
      {"dictsort", dictsort},  {"groupby", groupby}, {"max", extreme<true>},
      {"min", extreme<false>}, {"sort", sort},       {"unique", unique},
  };
  return rows;
}

}  // namespace tenon::llm::jinja
