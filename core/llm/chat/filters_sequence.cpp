// SPDX-License-Identifier: Apache-2.0
// Filters of sequences that keep the order of items.
#include <algorithm>

#include "llm/chat/filters.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

Value generator(Machine& m, std::vector<Value> items) {
  return m.list(std::move(items), Form::generator);
}

// An item of a generator is taken from it; other values stay as they are.
Value first(Machine& m, const Value& v, const Args& args) {
  Bound(m, "first", args, {});
  if (v.is(Kind::list) && v.list->form == Form::generator) {
    List& list = *v.list;
    return list.taken < list.items.size() ? list.items[list.taken++] : Value();
  }
  if (v.is(Kind::text) && v.text->chars > 0) return m.item(v, make_int(0));
  const std::vector<Value> items = m.items_of(v);
  return items.empty() ? Value() : items.front();
}

Value last(Machine& m, const Value& v, const Args& args) {
  Bound(m, "last", args, {});
  if (v.is(Kind::list) && v.list->form == Form::generator)
    m.fail("last: expected a sequence, got a generator");
  const std::vector<Value> items = m.items_of(v);
  return items.empty() ? Value() : items.back();
}

Value reverse(Machine& m, const Value& v, const Args& args) {
  Bound(m, "reverse", args, {});
  std::vector<Value> items = m.items_of(v);
  if (v.is(Kind::text)) {
    std::string out;
    for (size_t at = text_of(v).size(); at > 0;) {
      const size_t begin = before_char(text_of(v), at);
      out += text_of(v).substr(begin, at - begin);
      at = begin;
    }
    return m.text(std::move(out));
  }
  std::reverse(items.begin(), items.end());
  const bool list = v.is(Kind::list) && v.list->form == Form::generator;
  return list ? m.list(std::move(items)) : generator(m, std::move(items));
}

Value batch(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "batch", args, {"linecount", "fill_with"}, 1);
  const int64_t size = a.whole(0, 0);
  const Value fill = a.get(1, Value::none());
  std::vector<Value> out, line;
  const auto flush = [&] {
    out.push_back(m.list(std::move(line)));
    line.clear();
  };
  for (const Value& item : m.items_of(v)) {
    if (static_cast<int64_t>(line.size()) == size) flush();
    line.push_back(item);
  }
  if (!line.empty()) {
    while (!fill.is(Kind::none) && static_cast<int64_t>(line.size()) < size) {
      m.charge(sizeof(Value));
      line.push_back(fill);
    }
    flush();
  }
  return generator(m, std::move(out));
}

Value columns(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "slice", args, {"slices", "fill_with"}, 1);
  const int64_t slices = a.whole(0, 0);
  const Value fill = a.get(1, Value::none());
  const std::vector<Value> items = m.items_of(v);
  if (slices == 0) m.fail("slice: expected at least one slice");
  std::vector<Value> out;
  const auto count = static_cast<int64_t>(items.size());
  for (int64_t i = 0, at = 0; i < slices; ++i) {
    const int64_t size = count / slices + (i < count % slices);
    std::vector<Value> part(items.begin() + at, items.begin() + at + size);
    at += size;
    if (!fill.is(Kind::none) && i >= count % slices) part.push_back(fill);
    m.charge(sizeof(Value));
    out.push_back(m.list(std::move(part)));
  }
  return generator(m, std::move(out));
}

Value map(Machine& m, const Value& v, const Args& args) {
  std::vector<Value> out;
  if (!is_true(v)) return generator(m, {});
  if (args.values.empty()) {
    const Bound a(m, "map", args, {"attribute", "default"}, 1);
    for (const Value& item : m.items_of(v))
      out.push_back(attribute_path(m, item, a[0], a.get(1, Value::none())));
    return generator(m, std::move(out));
  }
  if (!args.values[0].is(Kind::text)) m.fail("map: expected the name of a filter");
  const Args rest{{args.values.begin() + 1, args.values.end()}, args.named};
  for (const Value& item : m.items_of(v))
    out.push_back(m.apply_filter(text_of(args.values[0]), item, rest));
  return generator(m, std::move(out));
}

// select and reject: by a test of the items, or of their attributes.
template <bool wanted, bool by_attribute>
Value select(Machine& m, const Value& v, const Args& args) {
  constexpr size_t kTest = by_attribute ? 1 : 0;
  if (by_attribute && args.values.empty()) m.fail("selectattr: the attribute is missing");
  if (!is_true(v)) return generator(m, {});
  const bool has_test = args.values.size() > kTest;
  if (has_test && !args.values[kTest].is(Kind::text)) m.fail("select: expected the name of a test");
  Args rest;
  if (has_test) {
    rest.values.assign(args.values.begin() + kTest + 1, args.values.end());
    rest.named = args.named;
  }
  std::vector<Value> out;
  for (const Value& item : m.items_of(v)) {
    const Value tested =
        by_attribute ? attribute_path(m, item, args.values[0], Value::none()) : item;
    const bool holds =
        has_test ? m.apply_test(text_of(args.values[kTest]), tested, rest) : is_true(tested);
    if (holds == wanted) out.push_back(item);
  }
  return generator(m, std::move(out));
}

}  // namespace

const std::vector<FilterRow>& sequence_filters() {
  static const std::vector<FilterRow> rows = {
      {"batch", batch},
      {"first", first},
      {"last", last},
      {"map", map},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", columns},
  };
  return rows;
}

}  // namespace tenon::llm::jinja
