// SPDX-License-Identifier: Apache-2.0
// The tests behind `is`.
#include <unordered_map>

#include "llm/chat/machine.hpp"
#include "llm/chat/operators.hpp"
#include "llm/chat/print.hpp"
#include "llm/chat/text_tools.hpp"

namespace tenon::llm::jinja {
namespace {

template <bool (*holds)(const Value&)>
Value simple(Machine& m, const Value& v, const Args& args) {
  Bound(m, "test", args, {});
  return make_bool(holds(v));
}

template <Kind kind>
bool is_kind(const Value& v) {
  return v.is(kind);
}
bool is_defined(const Value& v) { return !v.is(Kind::undefined); }
bool is_exactly_true(const Value& v) { return v.is(Kind::boolean) && v.boolean; }
bool is_exactly_false(const Value& v) { return v.is(Kind::boolean) && !v.boolean; }
bool is_a_number(const Value& v) { return v.is_number(); }
// Jinja's undefined values can be called, with an error.
bool is_callable(const Value& v) {
  return v.is(Kind::function) || v.is(Kind::loop) || v.is(Kind::undefined);
}
bool is_escaped(const Value& v) { return v.is(Kind::text) && v.text->markup; }
bool is_iterable(const Value& v) {
  return v.is(Kind::text) || v.is(Kind::list) || v.is(Kind::dict) || v.is(Kind::undefined) ||
         v.is(Kind::loop);
}
bool is_sequence(const Value& v) {
  if (v.is(Kind::list))
    return v.list->form == Form::list || v.list->form == Form::range || v.list->is_tuple();
  return v.is(Kind::text) || v.is(Kind::dict) || v.is(Kind::undefined);
}

template <bool upper>
Value in_case(Machine& m, const Value& v, const Args& args) {
  Bound(m, "test", args, {});
  return make_bool(is_cased(to_text(m, v), upper));
}

template <int64_t rest>
Value has_rest(Machine& m, const Value& v, const Args& args) {
  Bound(m, rest ? "odd" : "even", args, {});
  return make_bool(is_equal(m, binary(m, "%", v, make_int(2)), make_int(rest)));
}

Value divisible(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "divisibleby", args, {"num"}, 1);
  return make_bool(is_equal(m, binary(m, "%", v, a[0]), make_int(0)));
}

// `op` is one of the operators of holds().
template <char first, char second>
Value compared(Machine& m, const Value& v, const Args& args) {
  const char text[] = {first, second};
  const Bound a(m, "test", args, {"other"}, 1);
  return make_bool(holds(m, std::string_view(text, second ? 2 : 1), v, a[0]));
}

Value contained(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "in", args, {"seq"}, 1);
  return make_bool(m.contains(a[0], v));
}

Value same_as(Machine& m, const Value& v, const Args& args) {
  const Bound a(m, "sameas", args, {"other"}, 1);
  if (v.kind != a[0].kind) return make_bool(false);
  const bool has_identity = v.is(Kind::list) || v.is(Kind::dict) || v.is(Kind::space) ||
                            v.is(Kind::function) || v.is(Kind::loop);
  return make_bool(has_identity ? v.text == a[0].text : is_equal(m, v, a[0]));
}

Value names_filter(Machine& m, const Value& v, const Args& args) {
  Bound(m, "filter", args, {});
  return make_bool(v.is(Kind::text) && find_filter(text_of(v)));
}
Value names_test(Machine& m, const Value& v, const Args& args) {
  Bound(m, "test", args, {});
  return make_bool(v.is(Kind::text) && find_test(text_of(v)));
}

}  // namespace

Builtin find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> table = {
      {"!=", compared<'!', '='>},
      {"<", compared<'<', 0>},
      {"<=", compared<'<', '='>},
      {"==", compared<'=', '='>},
      {">", compared<'>', 0>},
      {">=", compared<'>', '='>},
      {"boolean", simple<is_kind<Kind::boolean>>},
      {"callable", simple<is_callable>},
      {"defined", simple<is_defined>},
      {"divisibleby", divisible},
      {"eq", compared<'=', '='>},
      {"equalto", compared<'=', '='>},
      {"escaped", simple<is_escaped>},
      {"even", has_rest<0>},
      {"false", simple<is_exactly_false>},
      {"filter", names_filter},
      {"float", simple<is_kind<Kind::real>>},
      {"ge", compared<'>', '='>},
      {"greaterthan", compared<'>', 0>},
      {"gt", compared<'>', 0>},
      {"in", contained},
      {"integer", simple<is_kind<Kind::integer>>},
      {"iterable", simple<is_iterable>},
      {"le", compared<'<', '='>},
      {"lessthan", compared<'<', 0>},
      {"lower", in_case<false>},
      {"lt", compared<'<', 0>},
      {"mapping", simple<is_kind<Kind::dict>>},
      {"ne", compared<'!', '='>},
      {"none", simple<is_kind<Kind::none>>},
      {"number", simple<is_a_number>},
      {"odd", has_rest<1>},
      {"sameas", same_as},
      {"sequence", simple<is_sequence>},
      {"string", simple<is_kind<Kind::text>>},
      {"test", names_test},
      {"true", simple<is_exactly_true>},
      {"undefined", simple<is_kind<Kind::undefined>>},
      {"upper", in_case<true>},
  };
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

}  // namespace tenon::llm::jinja
