// SPDX-License-Identifier: Apache-2.0
// Calls of functions, macros, filters and tests; the variable `loop`.
#include <algorithm>

#include "llm/chat/machine.hpp"
#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {
namespace {

Value cycle(Machine& m, const Value& self, const Args& args) {
  if (args.values.empty()) m.fail("loop.cycle: expected at least one value");
  return args.values[self.loop->index % args.values.size()];
}

Value changed(Machine& m, const Value& self, const Args& args) {
  Loop& loop = *self.loop;
  bool same = loop.has_changed && loop.last_changed.size() == args.values.size();
  for (size_t i = 0; same && i < args.values.size(); ++i)
    same = is_equal(m, loop.last_changed[i], args.values[i]);
  if (same) return make_bool(false);
  loop.last_changed = args.values;
  loop.has_changed = true;
  return make_bool(true);
}

}  // namespace

Bound::Bound(Machine& m, std::string_view function, const Args& args,
             std::initializer_list<std::string_view> names, size_t required)
    : machine_(m), function_(function), names_(names), given_(names.size(), nullptr) {
  if (args.values.size() > names.size())
    m.fail(std::string(function) + ": expected at most " + std::to_string(names.size()) +
           " arguments, got " + std::to_string(args.values.size()));
  for (size_t i = 0; i < args.values.size(); ++i) given_[i] = &args.values[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) m.fail(std::string(function) + ": unknown argument '" + name + "'");
    const auto i = static_cast<size_t>(at - names.begin());
    if (given_[i]) m.fail(std::string(function) + ": '" + name + "' is given twice");
    given_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!given_[i])
      m.fail(std::string(function) + ": the argument '" + std::string(names.begin()[i]) +
             "' is missing");
}

void Bound::fail(size_t i, std::string_view expected) const {
  machine_.fail(std::string(function_) + ": '" + std::string(names_.begin()[i]) + "': expected " +
                std::string(expected) + ", got " + std::string(type_name(*given_[i])));
}

int64_t Bound::whole(size_t i, int64_t otherwise) const {
  if (!given_[i]) return otherwise;
  if (!given_[i]->is_whole()) fail(i, "an int");
  return given_[i]->whole();
}

std::string_view Bound::text(size_t i, std::string_view otherwise) const {
  if (!given_[i]) return otherwise;
  if (!given_[i]->is(Kind::text)) fail(i, "a str");
  return text_of(*given_[i]);
}

Value Machine::method(std::string_view name, Builtin builtin, const Value& self) {
  Function* f = make<Function>();
  f->name = name;
  f->builtin = builtin;
  f->self = self;
  Value v = Value::of(Kind::function);
  v.function = f;
  return v;
}

Value Machine::call(const Value& function, const Args& args) {
  require_defined(function);
  if (function.is(Kind::function)) {
    const Function& f = *function.function;
    return f.builtin ? f.builtin(*this, f.self, args) : call_macro(f, args);
  }
  if (function.is(Kind::loop) && function.loop->node->flag) {
    const Bound bound(*this, "loop", args, {"iterable"}, 1);
    const Loop& loop = *function.loop;
    Deeper deeper(*this);
    Capture capture(*this);
    run_loop(*loop.node, bound[0], loop.depth + 1, loop.scope);
    return text(std::move(capture.text));
  }
  fail("cannot call a value of the type " + std::string(type_name(function)));
}

Value Machine::call_macro(const Function& f, const Args& args) {
  Deeper deeper(*this);
  Scope* scope = new_scope(f.scope);
  Inside inside(*this, scope);
  bind(f, args, *scope);
  Capture capture(*this);
  run_body(f.macro->body);
  return text(std::move(capture.text));
}

void Machine::bind(const Function& f, const Args& args, Scope& scope) {
  const Node& macro = *f.macro;
  const auto& parameters = macro.parameters;
  const std::string where = "macro '" + macro.text + "': ";
  std::vector<const Value*> given(parameters.size(), nullptr);
  for (size_t i = 0; i < args.values.size() && i < given.size(); ++i) given[i] = &args.values[i];
  const Value rest = dict();
  const Value* caller = nullptr;
  for (const auto& [name, value] : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i < parameters.size() && !given[i])
      given[i] = &value;
    else if (i == parameters.size() && name == "caller" && macro.uses_caller)
      caller = &value;
    else if (macro.uses_kwargs)
      insert(*this, *rest.dict, text(name), value);
    else
      fail(where + "unknown or repeated argument '" + name + "'");
  }
  if (args.values.size() > parameters.size() && !macro.uses_varargs)
    fail(where + "expected at most " + std::to_string(parameters.size()) + " arguments, got " +
         std::to_string(args.values.size()));
  if (macro.uses_caller) scope.set(kCallerSymbol, caller ? *caller : Value());
  if (macro.uses_kwargs) scope.set(kKwargsSymbol, rest);
  if (macro.uses_varargs) {
    std::vector<Value> more;
    for (size_t i = parameters.size(); i < args.values.size(); ++i) more.push_back(args.values[i]);
    scope.set(kVarargsSymbol, list(std::move(more), Form::tuple));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    Value v;
    if (given[i])
      v = *given[i];
    else if (parameters[i].otherwise)
      v = eval(*parameters[i].otherwise);
    scope.set(parameters[i].symbol, v);
  }
}

Value Machine::apply_filter(std::string_view name, const Value& v, const Args& args) {
  const Builtin filter = find_filter(name);
  if (!filter) fail("unknown filter '" + std::string(name) + "'");
  Deeper deeper(*this);
  work(1);
  return filter(*this, v, args);
}

bool Machine::apply_test(std::string_view name, const Value& v, const Args& args) {
  const Builtin test = find_test(name);
  if (!test) fail("unknown test '" + std::string(name) + "'");
  Deeper deeper(*this);
  work(1);
  return is_true(test(*this, v, args));
}

Value Machine::loop_member(Loop& loop, std::string_view name) {
  const auto number = [](size_t i) { return make_int(static_cast<int64_t>(i)); };
  const auto count = [&] {
    load(loop, loop.source.size());
    return loop.items.size();
  };
  Value self = Value::of(Kind::loop);
  self.loop = &loop;
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "first") return make_bool(loop.index == 0);
  if (name == "last") return make_bool(!load(loop, loop.index + 1));
  if (name == "length") return number(count());
  if (name == "revindex") return number(count() - loop.index);
  if (name == "revindex0") return number(count() - loop.index - 1);
  if (name == "depth") return number(loop.depth + 1);
  if (name == "depth0") return number(loop.depth);
  if (name == "cycle") return method("cycle", cycle, self);
  if (name == "changed") return method("changed", changed, self);
  if (name == "previtem") return loop.index > 0 ? loop.items[loop.index - 1] : Value();
  if (name == "nextitem") return load(loop, loop.index + 1) ? loop.items[loop.index + 1] : Value();
  return Value();
}

}  // namespace tenon::llm::jinja
