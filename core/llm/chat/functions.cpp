// SPDX-License-Identifier: Apache-2.0
// Functions that every template has.
#include "llm/chat/machine.hpp"
#include "llm/chat/print.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::jinja {
namespace {

constexpr int64_t kMostRange = 100'000;  // that of Jinja's sandbox

Value range(Machine& m, const Value&, const Args& args) {
  if (!args.named.empty() || args.values.empty() || args.values.size() > 3)
    m.fail("range: expected one to three ints");
  for (const Value& v : args.values) {
    m.require_defined(v);
    if (!v.is_whole()) m.fail("range: expected an int, got " + std::string(type_name(v)));
  }
  const bool one = args.values.size() == 1;
  const int64_t start = one ? 0 : args.values[0].whole(), stop = args.values[one ? 0 : 1].whole();
  const int64_t step = args.values.size() > 2 ? args.values[2].whole() : 1;
  if (step == 0) m.fail("range: the step is 0");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<int64_t>(items.size()) == kMostRange)
      m.refuse_limit("a range of more than " + std::to_string(kMostRange) + " items");
    items.push_back(make_int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  const Value made = m.list(std::move(items), Form::range);
  made.list->start = start;
  made.list->stop = stop;
  made.list->step = step;
  return made;
}

// A dict of another one or of pairs, and of named values.
Value dict_of(Machine& m, std::string_view where, const Args& args) {
  if (args.values.size() > 1) m.fail(std::string(where) + ": expected at most one value");
  const Value made = m.dict();
  if (!args.values.empty()) {
    const Value& from = args.values[0];
    if (from.is(Kind::dict)) {
      for (const auto& [key, value] : from.dict->entries) insert(m, *made.dict, key, value);
    } else {
      for (const Value& item : m.items_of(from)) {
        const std::vector<Value> pair = m.items_of(item);
        if (pair.size() != 2) m.fail(std::string(where) + ": expected pairs");
        insert(m, *made.dict, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) insert(m, *made.dict, m.text(name), value);
  return made;
}

Value make_dict(Machine& m, const Value&, const Args& args) { return dict_of(m, "dict", args); }

Value make_space(Machine& m, const Value&, const Args& args) {
  Value made = dict_of(m, "namespace", args);
  for (const auto& entry : made.dict->entries)
    if (entry.first.is(Kind::text) && text_of(entry.first).starts_with('_'))
      m.fail("namespace: the attribute '" + entry.first.text->bytes +
             "' starts with an underscore");
  made.kind = Kind::space;
  return made;
}

Value raise_exception(Machine& m, const Value&, const Args& args) {
  const Bound a(m, "raise_exception", args, {"message"}, 1);
  throw Error(TENON_INVALID_ARGUMENT, "chat template: " + to_text(m, a[0]));
}

Value strftime_now(Machine& m, const Value&, const Args& args) {
  const Bound a(m, "strftime_now", args, {"format"}, 1);
  constexpr size_t kMostBytes = 4096;
  std::string format;
  const std::string_view given = a.text(0, "");
  if (given.size() > 256) m.fail("strftime_now: expected at most 256 bytes of format");
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      format += given[i] == '%' ? "%%" : std::string(1, given[i]);
      continue;
    }
    const char what = given[++i];
    if (what == 'f')
      format += "000000";  // the time has whole seconds
    else if (what != 'z' && what != 'Z')
      format += {'%', what};  // and no zone
  }
  // A mark in front: an empty result is no failure then.
  format.insert(0, 1, '.');
  std::string out(kMostBytes, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &m.now()));
  if (out.empty()) m.fail("strftime_now: the result exceeds 4096 bytes");
  return m.text(out.substr(1));
}

}  // namespace

const std::vector<Global>& globals() {
  static const std::vector<Global> rows = {
      {"dict", make_dict}, {"namespace", make_space},      {"raise_exception", raise_exception},
      {"range", range},    {"strftime_now", strftime_now},
  };
  return rows;
}

}  // namespace tenon::llm::jinja
