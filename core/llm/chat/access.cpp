// SPDX-License-Identifier: Apache-2.0
// Attributes, items, slices, iteration and `in`. Only data and the methods listed here are in reach.
#include <algorithm>

#include "llm/chat/machine.hpp"
#include "llm/chat/unicode.hpp"

namespace tenon::llm::jinja {
namespace {

Value copy_list(Machine& m, const Value& self, const Args& args) {
  Bound(m, "copy", args, {});
  return m.list(self.list->items);
}

Value count_in_list(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "count", args, {"value"}, 1);
  int64_t count = 0;
  for (const Value& v : self.list->items) count += is_equal(m, v, a[0]);
  return make_int(count);
}

Value index_in_list(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "index", args, {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(self.list->items.size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t at = a.whole(i, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  for (int64_t i = bound(1, 0); i < bound(2, size); ++i)
    if (is_equal(m, self.list->items[static_cast<size_t>(i)], a[0])) return make_int(i);
  m.fail("index: the list does not have the value");
}

Value get_of_dict(Machine& m, const Value& self, const Args& args) {
  const Bound a(m, "get", args, {"key", "default"}, 1);
  const Value* found = find(m, *self.dict, a[0]);
  return found ? *found : a.get(1, Value::none());
}

std::vector<Value> pairs(Machine& m, const Dict& dict) {
  std::vector<Value> out;
  for (const auto& [key, value] : dict.entries) out.push_back(m.list({key, value}, Form::tuple));
  return out;
}

Value items_of_dict(Machine& m, const Value& self, const Args& args) {
  Bound(m, "items", args, {});
  return m.list(pairs(m, *self.dict), Form::items);
}
Value keys_of_dict(Machine& m, const Value& self, const Args& args) {
  Bound(m, "keys", args, {});
  return m.list(m.items_of(self), Form::keys);
}
Value values_of_dict(Machine& m, const Value& self, const Args& args) {
  Bound(m, "values", args, {});
  std::vector<Value> out;
  for (const auto& entry : self.dict->entries) out.push_back(entry.second);
  return m.list(std::move(out), Form::values);
}
Value copy_dict(Machine& m, const Value& self, const Args& args) {
  Bound(m, "copy", args, {});
  const Value made = m.dict();
  for (const auto& [key, value] : self.dict->entries) insert(m, *made.dict, key, value);
  return made;
}

// Methods that change their object are refused, as the sandbox of Jinja refuses them.
Builtin refused = nullptr;
struct Row {
  std::string_view name;
  Builtin method;
};
const Row kListMethods[] = {
    {"append", refused}, {"clear", refused},       {"copy", copy_list}, {"count", count_in_list},
    {"extend", refused}, {"index", index_in_list}, {"insert", refused}, {"pop", refused},
    {"remove", refused}, {"reverse", refused},     {"sort", refused},
};
const Row kDictMethods[] = {
    {"clear", refused},         {"copy", copy_dict},     {"get", get_of_dict},
    {"items", items_of_dict},   {"keys", keys_of_dict},  {"pop", refused},
    {"popitem", refused},       {"setdefault", refused}, {"update", refused},
    {"values", values_of_dict},
};

template <size_t N>
const Row* find_row(const Row (&rows)[N], std::string_view name) {
  const auto* at = std::find_if(std::begin(rows), std::end(rows),
                                [&](const Row& row) { return row.name == name; });
  return at == std::end(rows) ? nullptr : at;
}

// A member that the type has by itself: true, and `out` is it or undefined.
bool find_member(Machine& m, const Value& object, const Value& name, Value& out) {
  const std::string_view n = text_of(name);
  const auto of_row = [&](const Row* row) {
    if (!row) return false;
    if (row->method)
      out = m.method(row->name, row->method, object);
    else
      out.text = name.text;
    return true;
  };
  switch (object.kind) {
    case Kind::text: {
      const Builtin method = find_text_method(n);
      if (method) out = m.method(n, method, object);
      return method != nullptr;
    }
    case Kind::dict:
      return of_row(find_row(kDictMethods, n));
    case Kind::list: {
      const List& list = *object.list;
      if (list.form == Form::group && (n == "grouper" || n == "list")) {
        out = list.items[n == "list"];
        return true;
      }
      if (list.form == Form::range && (n == "start" || n == "stop" || n == "step")) {
        out = make_int(n == "start" ? list.start : n == "stop" ? list.stop : list.step);
        return true;
      }
      if (list.form == Form::list) return of_row(find_row(kListMethods, n));
      const bool searchable = list.is_tuple() || list.form == Form::range;
      return searchable && (n == "count" || n == "index") && of_row(find_row(kListMethods, n));
    }
    case Kind::space: {
      const Value* v = find(m, *object.dict, n);
      if (v) out = *v;
      return v != nullptr;
    }
    case Kind::loop:
      out = m.loop_member(*object.loop, n);
      if (out.is(Kind::undefined) && !out.text) out.text = name.text;
      return true;
    case Kind::function:
      if (n != "name" || !object.function->macro) return false;
      out = m.text(std::string(object.function->name));
      return true;
    default:
      return false;
  }
}

bool can_be_key(const Value& v) {
  if (v.is(Kind::dict)) return false;
  if (!v.is(Kind::list)) return true;
  return v.list->is_tuple() &&
         std::all_of(v.list->items.begin(), v.list->items.end(), [](const Value& i) {
           return !i.is(Kind::dict) && !i.is(Kind::list);  // deeper tuples are not looked up
         });
}

bool has_positions(const Value& v) {
  return v.is(Kind::text) ||
         (v.is(Kind::list) &&
          (v.list->form == Form::list || v.list->form == Form::range || v.list->is_tuple()));
}

Value char_at(Machine& m, const Value& v, size_t index) {
  const std::string_view text = text_of(v);
  const size_t begin = v.text->ascii() ? index : offset_of_char(text, index);
  if (!v.text->ascii()) m.work_on(text);
  size_t end = begin;
  next_character(text, end);
  return m.text(std::string(text.substr(begin, end - begin)), v.text->markup);
}

bool find_item(Machine& m, const Value& object, const Value& key, Value& out) {
  if (object.is(Kind::dict)) {
    const Value* v = can_be_key(key) ? find(m, *object.dict, key) : nullptr;
    if (v) out = *v;
    return v != nullptr;
  }
  if (!has_positions(object) || !key.is_whole()) return false;
  const int64_t size = m.length(object), given = key.whole();
  const int64_t index = given < 0 ? given + size : given;
  if (index < 0 || index >= size) return false;
  const auto at = static_cast<size_t>(index);
  out = object.is(Kind::text) ? char_at(m, object, at) : object.list->items[at];
  return true;
}

// Of a slice of a range. Bounds beyond 64 bits wrap, which only shows where the range is printed.
void set_bounds(List& part, const List& range, int64_t from, int64_t to, int64_t stride) {
  const auto u = [](int64_t i) { return static_cast<uint64_t>(i); };
  part.start = static_cast<int64_t>(u(range.start) + u(from) * u(range.step));
  part.stop = static_cast<int64_t>(u(range.start) + u(to) * u(range.step));
  part.step = static_cast<int64_t>(u(range.step) * u(stride));
}

}  // namespace

void Machine::fail_undefined(const Value& v) {
  fail(v.text ? "'" + v.text->bytes + "' is undefined" : std::string("a value is undefined"));
}

Value Machine::attribute(const Value& object, const Value& name) {
  require_defined(object);
  Value out;
  if (find_member(*this, object, name, out) || find_item(*this, object, name, out)) return out;
  out.text = name.text;
  return out;
}

Value Machine::member(const Value& object, const Value& name) {
  Value out;
  if (!find_member(*this, object, name, out)) out.text = name.text;
  return out;
}

Value Machine::item(const Value& object, const Value& key) {
  require_defined(object);
  Value out;
  if (find_item(*this, object, key, out)) return out;
  if (key.is(Kind::text)) {
    if (find_member(*this, object, key, out)) return out;
    out.text = key.text;
  }
  return out;
}

Value Machine::slice(const Value& object, const Value& start, const Value& stop,
                     const Value& step) {
  require_defined(object);
  const auto usable = [](const Value& v) { return v.is(Kind::none) || v.is_whole(); };
  if (!has_positions(object) || !usable(start) || !usable(stop) || !usable(step)) return Value();
  const int64_t stride = step.is(Kind::none) ? 1 : step.whole();
  if (stride == 0) fail("a slice has the step 0");
  const int64_t size = length(object), low = stride < 0 ? -1 : 0, high = size + low;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.is(Kind::none)) return otherwise;
    const int64_t at = v.whole();
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t from = bound(start, stride < 0 ? high : low);
  const int64_t to = bound(stop, stride < 0 ? low : high);
  const auto inside = [&](int64_t i) { return stride < 0 ? i > to : i < to; };
  // The next index may be outside of 64 bits.
  const auto advance = [&](int64_t& i) {
    if (__builtin_add_overflow(i, stride, &i)) i = to;
  };
  if (object.is(Kind::list)) {
    std::vector<Value> out;
    for (int64_t i = from; inside(i); advance(i)) {
      charge(sizeof(Value));
      out.push_back(object.list->items[static_cast<size_t>(i)]);
    }
    const Form form = object.list->form == Form::group ? Form::tuple : object.list->form;
    const Value made = list(std::move(out), form);
    if (form == Form::range) set_bounds(*made.list, *object.list, from, to, stride);
    return made;
  }
  const std::string_view whole = text_of(object);
  work_on(whole);
  std::string out;
  if (stride == 1) {
    if (from < to) {
      const bool ascii = object.text->ascii();
      const auto offset = [&](int64_t i) {
        return ascii ? static_cast<size_t>(i) : offset_of_char(whole, static_cast<size_t>(i));
      };
      const size_t begin = offset(from);
      out = whole.substr(begin, offset(to) - begin);
    }
    return text(std::move(out), object.text->markup);
  }
  charge(4 * static_cast<uint64_t>(size));
  std::u32string chars;
  for (size_t at = 0; at < whole.size();) chars += next_character(whole, at);
  for (int64_t i = from; inside(i); advance(i))
    append_character(out, chars[static_cast<size_t>(i)]);
  return text(std::move(out), object.text->markup);
}

std::vector<Value> Machine::items_of(const Value& v) {
  std::vector<Value> out;
  switch (v.kind) {
    case Kind::undefined:
      break;
    case Kind::text:
      for (size_t at = 0; at < v.text->bytes.size();) {
        const size_t begin = at;
        next_character(v.text->bytes, at);
        charge(sizeof(Value));
        out.push_back(text(v.text->bytes.substr(begin, at - begin), v.text->markup));
      }
      break;
    case Kind::list: {
      List& list = *v.list;
      charge((list.items.size() - list.taken) * sizeof(Value));
      out.assign(list.items.begin() + static_cast<ptrdiff_t>(list.taken), list.items.end());
      if (list.form == Form::generator) list.taken = list.items.size();
      break;
    }
    case Kind::dict:
      charge(v.dict->entries.size() * sizeof(Value));
      for (const auto& entry : v.dict->entries) out.push_back(entry.first);
      break;
    default:
      fail("cannot iterate over " + std::string(type_name(v)));
  }
  work(out.size());
  return out;
}

int64_t Machine::length(const Value& v) {
  switch (v.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return v.text->chars;
    case Kind::dict:
      return static_cast<int64_t>(v.dict->entries.size());
    case Kind::loop:
      return loop_member(*v.loop, "length").integer;
    case Kind::list:
      if (v.list->form != Form::generator) return static_cast<int64_t>(v.list->items.size());
      break;
    default:
      break;
  }
  fail("a value of the type " + std::string(type_name(v)) + " has no length");
}

bool Machine::contains(const Value& container, const Value& v) {
  switch (container.kind) {
    case Kind::text:
      if (!v.is(Kind::text)) {
        require_defined(v);
        fail("'in': a str has parts of the type str only, got " + std::string(type_name(v)));
      }
      work_on(text_of(container));
      return text_of(container).find(text_of(v)) != std::string_view::npos;
    case Kind::dict:
      return find(*this, *container.dict, v) != nullptr;
    default:
      for (const Value& each : items_of(container))
        if (is_equal(*this, each, v)) return true;
      return false;
  }
}

}  // namespace tenon::llm::jinja
