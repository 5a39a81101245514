// SPDX-License-Identifier: Apache-2.0
// Truth, equality, order and hashes of values; dicts; the limits of a heap.
#include "llm/chat/value.hpp"

#include <cmath>
#include <functional>

#include "llm/chat/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::jinja {
namespace {

constexpr size_t kIndexFrom = 12;  // smaller dicts are searched in order
constexpr size_t kEntryBytes = 96;

uint64_t mix(uint64_t a, uint64_t b) {
  return (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9u;
}

uint64_t hash(Heap& heap, const Value& v) {
  Deeper deeper(heap);
  heap.work(1);
  switch (v.kind) {
    case Kind::text:
      return std::hash<std::string_view>()(text_of(v));
    case Kind::boolean:
    case Kind::integer:
      return mix(1, static_cast<uint64_t>(v.whole()));
    case Kind::real:  // equal numbers have equal hashes
      if (v.real >= -9.2e18 && v.real <= 9.2e18 && v.real == std::floor(v.real))
        return mix(1, static_cast<uint64_t>(static_cast<int64_t>(v.real)));
      return std::hash<double>()(v.real);
    case Kind::list: {
      if (v.list->form == Form::list)
        heap.fail("a list is used as a key of a dict; expected a text, number or tuple");
      if (!v.list->is_tuple()) break;
      uint64_t all = v.list->items.size();
      for (const Value& item : v.list->items) all = mix(all, hash(heap, item));
      return all;
    }
    case Kind::dict:
      heap.fail("a dict is used as a key of a dict; expected a text, number or tuple");
    default:
      break;
  }
  return mix(static_cast<uint64_t>(v.kind), reinterpret_cast<uintptr_t>(v.text));
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is(Kind::real) && b.is(Kind::real)) return a.real == b.real;
  const double real = a.is(Kind::real) ? a.real : b.real;
  const int64_t whole = a.is(Kind::real) ? b.whole() : a.whole();
  return real >= -9223372036854775808.0 && real < 9223372036854775808.0 &&
         real == std::floor(real) && static_cast<int64_t>(real) == whole;
}

bool equal_items(Heap& heap, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!is_equal(heap, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Heap& heap, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find(heap, b, key);
    if (!other || !is_equal(heap, value, *other)) return false;
  }
  return true;
}

}  // namespace

void Heap::fail(const std::string& text) const {
  throw Error(TENON_INVALID_ARGUMENT, "chat template, line " + std::to_string(line) + ": " + text);
}
void Heap::refuse_limit(const std::string& text) const {
  throw Error(TENON_OUT_OF_MEMORY,
              "chat template, line " + std::to_string(line) + ": limit exceeded: " + text);
}
void Heap::memory_exceeded() const {
  refuse_limit("more than " + std::to_string(limits_.memory) + " bytes of values");
}
void Heap::steps_exceeded() const {
  refuse_limit("more than " + std::to_string(limits_.steps) + " steps");
}

Value Heap::text(std::string bytes, bool markup) {
  charge(bytes.size());
  work_on(bytes);
  Text* made = make<Text>();
  made->chars = static_cast<int64_t>(count_chars(bytes));
  made->bytes = std::move(bytes);
  made->markup = markup;
  Value v = Value::of(Kind::text);
  v.text = made;
  return v;
}

Value Heap::list(std::vector<Value> items, Form form) {
  charge(items.size() * sizeof(Value));
  work(items.size());
  List* made = make<List>();
  made->form = form;
  made->items = std::move(items);
  Value v = Value::of(Kind::list);
  v.list = made;
  return v;
}

Value Heap::dict() {
  Value v = Value::of(Kind::dict);
  v.dict = make<Dict>();
  return v;
}

void Heap::append(List& list, Value item) {
  charge(sizeof(Value));
  work(1);
  list.items.push_back(item);
}

std::string_view type_name(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return "undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::dict:
      return "dict";
    case Kind::space:
      return "namespace";
    case Kind::function:
      return "function";
    case Kind::loop:
      return "loop";
    case Kind::list:
      break;
  }
  switch (v.list->form) {
    case Form::list:
      return "list";
    case Form::tuple:
    case Form::group:
      return "tuple";
    case Form::range:
      return "range";
    case Form::keys:
      return "dict_keys";
    case Form::values:
      return "dict_values";
    case Form::items:
      return "dict_items";
    case Form::generator:
      break;
  }
  return "generator";
}

bool is_true(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return v.boolean;
    case Kind::integer:
      return v.integer != 0;
    case Kind::real:
      return v.real != 0;
    case Kind::text:
      return !v.text->bytes.empty();
    case Kind::list:
      return v.list->form == Form::generator || !v.list->items.empty();
    case Kind::dict:
      return !v.dict->entries.empty();
    default:
      return true;
  }
}

bool is_equal(Heap& heap, const Value& a, const Value& b) {
  Deeper deeper(heap);
  heap.work(1);
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      heap.work_on(text_of(a));
      return text_of(a) == text_of(b);
    case Kind::list: {
      if (a.list == b.list) return true;
      const bool same_form =
          a.list->form == b.list->form || (a.list->is_tuple() && b.list->is_tuple());
      if (!same_form || a.list->form == Form::generator || a.list->form == Form::values)
        return false;
      return equal_items(heap, a.list->items, b.list->items);
    }
    case Kind::dict:
      return a.dict == b.dict || equal_dicts(heap, *a.dict, *b.dict);
    default:
      return a.text == b.text;
  }
}

int compare(Heap& heap, const Value& a, const Value& b, std::string_view symbol) {
  Deeper deeper(heap);
  heap.work(1);
  if (a.is_whole() && b.is_whole()) return (a.whole() > b.whole()) - (a.whole() < b.whole());
  if (a.is_number() && b.is_number()) return (a.number() > b.number()) - (a.number() < b.number());
  if (a.is(Kind::text) && b.is(Kind::text)) {
    heap.work_on(text_of(a));
    return text_of(a).compare(text_of(b));  // the order of UTF-8 is that of characters
  }
  const auto ordered = [](const Value& v) {
    return v.is(Kind::list) && (v.list->form == Form::list || v.list->is_tuple());
  };
  if (ordered(a) && ordered(b) && a.list->is_tuple() == b.list->is_tuple()) {
    const auto &x = a.list->items, &y = b.list->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!is_equal(heap, x[i], y[i])) return compare(heap, x[i], y[i], symbol);
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  heap.fail("'" + std::string(symbol) + "' does not compare " + std::string(type_name(a)) +
            " with " + std::string(type_name(b)));
}

const Value* find(Heap& heap, const Dict& dict, const Value& key) {
  if (dict.entries.size() < kIndexFrom) {
    hash(heap, key);  // refuses keys that no dict can have
    for (const auto& [k, v] : dict.entries)
      if (is_equal(heap, k, key)) return &v;
    return nullptr;
  }
  const auto [begin, end] = dict.index.equal_range(hash(heap, key));
  for (auto at = begin; at != end; ++at)
    if (is_equal(heap, dict.entries[at->second].first, key))
      return &dict.entries[at->second].second;
  return nullptr;
}

const Value* find(Heap& heap, const Dict& dict, std::string_view key) {
  heap.work(1);
  if (dict.entries.size() < kIndexFrom) {
    for (const auto& [k, v] : dict.entries)
      if (k.is(Kind::text) && text_of(k) == key) return &v;
    return nullptr;
  }
  const auto [begin, end] = dict.index.equal_range(std::hash<std::string_view>()(key));
  for (auto at = begin; at != end; ++at) {
    const auto& [k, v] = dict.entries[at->second];
    if (k.is(Kind::text) && text_of(k) == key) return &v;
  }
  return nullptr;
}

void insert(Heap& heap, Dict& dict, const Value& key, const Value& value) {
  if (const Value* old = find(heap, dict, key)) {
    *const_cast<Value*>(old) = value;
    return;
  }
  heap.charge(kEntryBytes);
  dict.entries.emplace_back(key, value);
  const size_t size = dict.entries.size();
  if (size < kIndexFrom) return;
  const size_t from = size == kIndexFrom ? 0 : size - 1;
  for (size_t i = from; i < size; ++i)
    dict.index.emplace(hash(heap, dict.entries[i].first), static_cast<uint32_t>(i));
}

}  // namespace tenon::llm::jinja
