// SPDX-License-Identifier: Apache-2.0
// Statements.
#include "llm/chat/machine.hpp"

#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {

void Scope::set(uint32_t symbol, const Value& value) {
  for (auto& [known, v] : variables)
    if (known == symbol) {
      v = value;
      return;
    }
  variables.emplace_back(symbol, value);
}

const Value* Scope::find_here(uint32_t symbol) const {
  for (const auto& [known, v] : variables)
    if (known == symbol) return &v;
  return nullptr;
}

std::string Machine::run(const Body& body, Variables functions, Variables variables) {
  Scope* outer = new_scope(nullptr);
  outer->variables = std::move(functions);
  Scope* root = new_scope(outer);
  root->variables = std::move(variables);
  Inside inside(*this, root);
  Capture capture(*this);
  run_body(body);
  return std::move(capture.text);
}

Scope* Machine::new_scope(Scope* parent) {
  Scope* scope = make<Scope>();
  scope->parent = parent;
  return scope;
}

void Machine::emit(std::string_view text) {
  output_ += text.size();
  if (output_ > limits().output)
    refuse_limit("more than " + std::to_string(limits().output) + " bytes of output");
  work_on(text);
  *out_ += text;
}

void Machine::print(const Value& v) {
  if (v.is(Kind::text))
    emit(text_of(v));
  else
    emit(to_text(*this, v));
}

Flow Machine::run_body(const Body& body) {
  for (const NodePtr& node : body)
    if (const Flow flow = run_node(*node); flow != Flow::next) return flow;
  return Flow::next;
}

Flow Machine::run_node(const Node& node) {
  Deeper deeper(*this);
  work(1);
  line = node.line;
  switch (node.op) {
    case Op::data:
      emit(node.text);
      break;
    case Op::print:
      for (const NodePtr& kid : node.kids) print(eval(*kid));
      break;
    case Op::branch:
      return run_branch(node);
    case Op::set:
      assign(*node.kids[0], eval(*node.kids[1]));
      break;
    case Op::set_block:
      return run_set_block(node);
    case Op::loop:
      run_loop(node, eval(*node.kids[1]), 0, scope_);
      break;
    case Op::macro:
      scope_->set(node.symbol, make_macro(node));
      break;
    case Op::call_block:
      run_call_block(node);
      break;
    case Op::filter_block:
      return run_filter_block(node);
    case Op::with:
      return run_with(node);
    case Op::scoped: {
      Inside inside(*this, new_scope(scope_));
      return run_body(node.body);
    }
    case Op::stop:
      return Flow::stop;
    case Op::skip:
      return Flow::skip;
    default:
      fail("an expression where a statement is expected");
  }
  return Flow::next;
}

Flow Machine::run_branch(const Node& node) {
  for (size_t i = 0; i < node.kids.size(); ++i)
    if (is_true(eval(*node.kids[i]))) return run_body(node.bodies[i]);
  return run_body(node.otherwise);
}

bool Machine::load(Loop& loop, size_t index) {
  while (loop.items.size() <= index && loop.read < loop.source.size()) {
    const Value next = loop.source[loop.read++];
    work(1);
    if (const NodePtr& test = loop.node->kids[2]) {
      Inside inside(*this, new_scope(loop.scope));
      assign(*loop.node->kids[0], next);
      if (!is_true(eval(*test))) continue;
    }
    loop.items.push_back(next);
  }
  return index < loop.items.size();
}

void Machine::run_loop(const Node& node, const Value& over, size_t level, Scope* around) {
  Loop* loop = make<Loop>();
  loop->node = &node;
  loop->scope = around;
  loop->source = items_of(over);
  charge(2 * loop->source.size() * sizeof(Value));
  loop->depth = level;
  Value variable = Value::of(Kind::loop);
  variable.loop = loop;
  Scope* scope = nullptr;
  uint64_t closures = closures_;
  for (; load(*loop, loop->index); ++loop->index) {
    if (scope && closures == closures_) {
      scope->variables.clear();
    } else {  // a function may have kept the scope
      scope = new_scope(around);
      closures = closures_;
    }
    Inside inside(*this, scope);
    scope->set(kLoopSymbol, variable);
    assign(*node.kids[0], loop->items[loop->index]);
    if (run_body(node.body) == Flow::stop) return;
  }
  if (loop->index == 0) {
    Inside inside(*this, new_scope(around));
    run_body(node.otherwise);
  }
}

void Machine::assign(const Node& target, const Value& v) {
  if (target.op == Op::tuple) {
    const std::vector<Value> items = items_of(v);
    if (items.size() != target.kids.size())
      fail("cannot unpack: expected " + std::to_string(target.kids.size()) + " values, got " +
           std::to_string(items.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], items[i]);
    return;
  }
  if (!target.flag) {
    charge(sizeof(Value));
    scope_->set(target.symbol, v);
    return;
  }
  const Value space = eval_name(target);
  if (!space.is(Kind::space))
    fail("cannot assign the attribute '" + target.text + "'; expected a namespace, got " +
         std::string(type_name(space)));
  if (target.text.starts_with('_'))
    fail("cannot assign the attribute '" + target.text + "', which starts with an underscore");
  insert(*this, *space.dict, text(target.text), v);
}

Flow Machine::capture_body(const Body& body, Scope* scope, Value& made) {
  Inside inside(*this, scope);
  Capture capture(*this);
  const Flow flow = run_body(body);
  made = text(std::move(capture.text));
  return flow;
}

Flow Machine::run_set_block(const Node& node) {
  Scope* inner = new_scope(scope_);
  Value made;
  // A body that leaves a loop leaves its text unused.
  if (const Flow flow = capture_body(node.body, inner, made); flow != Flow::next) return flow;
  if (const NodePtr& filter = node.kids[1]) {
    Inside inside(*this, inner);
    made = eval_filter(*filter, &made);
  }
  assign(*node.kids[0], made);
  return Flow::next;
}

Flow Machine::run_filter_block(const Node& node) {
  Scope* inner = new_scope(scope_);
  Value body;
  if (const Flow flow = capture_body(node.body, inner, body); flow != Flow::next) return flow;
  Inside inside(*this, inner);
  print(eval_filter(*node.kids[0], &body));
  return Flow::next;
}

Flow Machine::run_with(const Node& node) {
  std::vector<Value> values;
  for (size_t i = 1; i < node.kids.size(); i += 2) values.push_back(eval(*node.kids[i]));
  Inside inside(*this, new_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(*node.kids[2 * i], values[i]);
  return run_body(node.body);
}

Value Machine::make_macro(const Node& node) {
  Function* f = make<Function>();
  f->name = node.text;
  f->macro = &node;
  f->scope = scope_;
  ++closures_;
  Value v = Value::of(Kind::function);
  v.function = f;
  return v;
}

void Machine::run_call_block(const Node& node) {
  const Node& called = *node.kids[0];
  const Value function = eval(*called.kids[0]);
  Args args;
  eval_args(called, args);
  args.named.emplace_back("caller", make_macro(node));
  print(call(function, args));
}

}  // namespace tenon::llm::jinja
