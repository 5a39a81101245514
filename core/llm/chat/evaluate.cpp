// SPDX-License-Identifier: Apache-2.0
// The values of expressions.
#include "llm/chat/machine.hpp"
#include "llm/chat/operators.hpp"
#include "llm/chat/print.hpp"

namespace tenon::llm::jinja {

Value Machine::eval(const Node& node) {
  Deeper deeper(*this);
  work(1);
  line = node.line;
  const auto kid = [&](size_t i) { return eval(*node.kids[i]); };
  switch (node.op) {
    case Op::constant:
      return node.constant;
    case Op::name:
      return eval_name(node);
    case Op::tuple:
    case Op::list:
      return eval_list(node);
    case Op::dict:
      return eval_dict(node);
    case Op::attribute: {
      const Value object = kid(0);
      line = node.line;
      return attribute(object, node.constant);
    }
    case Op::item: {
      const Value object = kid(0), key = kid(1);
      line = node.line;
      return item(object, key);
    }
    case Op::slice:
      return eval_slice(node);
    case Op::call:
      return eval_call(node);
    case Op::filter:
      return eval_filter(node, nullptr);
    case Op::test: {
      const Value v = kid(0);
      Args args;
      eval_args(node, args);
      line = node.line;
      return make_bool(apply_test(node.text, v, args));
    }
    case Op::negate:
      return negate(*this, kid(0));
    case Op::plus:
      return plus(*this, kid(0));
    case Op::inverse:
      return make_bool(!is_true(kid(0)));
    case Op::both: {
      const Value left = kid(0);
      return is_true(left) ? kid(1) : left;
    }
    case Op::either: {
      const Value left = kid(0);
      return is_true(left) ? left : kid(1);
    }
    case Op::choice:
      if (is_true(kid(0))) return kid(1);
      return node.kids.size() > 2 ? kid(2) : Value();
    case Op::binary: {
      const Value left = kid(0), right = kid(1);
      line = node.line;
      return binary(*this, node.text, left, right);
    }
    case Op::concat:
      return eval_concat(node);
    case Op::compare:
      return eval_compare(node);
    default:
      fail("a statement where an expression is expected");
  }
}

Value Machine::eval_name(const Node& node) {
  for (const Scope* scope = scope_; scope; scope = scope->parent)
    if (const Value* v = scope->find_here(node.symbol)) return *v;
  Value v;
  v.text = node.constant.text;
  return v;
}

Value Machine::eval_list(const Node& node) {
  std::vector<Value> items;
  items.reserve(node.kids.size());
  for (const NodePtr& kid : node.kids) items.push_back(eval(*kid));
  return list(std::move(items), node.op == Op::tuple ? Form::tuple : Form::list);
}

Value Machine::eval_dict(const Node& node) {
  const Value made = dict();
  for (size_t i = 0; i < node.kids.size(); i += 2) {
    const Value key = eval(*node.kids[i]);
    insert(*this, *made.dict, key, eval(*node.kids[i + 1]));
  }
  return made;
}

Value Machine::eval_slice(const Node& node) {
  const Value object = eval(*node.kids[0]);
  const auto part = [&](size_t i) { return node.kids[i] ? eval(*node.kids[i]) : Value::none(); };
  const Value start = part(1), stop = part(2), step = part(3);
  line = node.line;
  return slice(object, start, stop, step);
}

void Machine::eval_args(const Node& node, Args& out) {
  for (const Argument& a : node.args) {
    const Value v = eval(*a.value);
    switch (a.form) {
      case Argument::positional:
        out.values.push_back(v);
        break;
      case Argument::keyword:
        out.named.emplace_back(a.name, v);
        break;
      case Argument::sequence:
        for (const Value& each : items_of(v)) out.values.push_back(each);
        break;
      case Argument::mapping:
        if (!v.is(Kind::dict)) fail("** needs a dict, got " + std::string(type_name(v)));
        for (const auto& [key, each] : v.dict->entries) {
          if (!key.is(Kind::text)) fail("** needs a dict whose keys are texts");
          out.named.emplace_back(text_of(key), each);
        }
        break;
    }
  }
  charge((out.values.size() + 3 * out.named.size()) * sizeof(Value));
}

Value Machine::eval_call(const Node& node) {
  const Value function = eval(*node.kids[0]);
  Args args;
  eval_args(node, args);
  line = node.line;
  return call(function, args);
}

Value Machine::eval_filter(const Node& node, const Value* body) {
  Deeper deeper(*this);
  const NodePtr& operand = node.kids[0];
  const Value v = !operand                            ? *body
                  : body && operand->op == Op::filter ? eval_filter(*operand, body)
                                                      : eval(*operand);
  Args args;
  eval_args(node, args);
  line = node.line;
  return apply_filter(node.text, v, args);
}

Value Machine::eval_concat(const Node& node) {
  std::string all;
  for (const NodePtr& kid : node.kids) {
    const Value v = eval(*kid);
    line = node.line;
    if (v.is(Kind::text))
      all += text_of(v);
    else
      all += to_text(*this, v);
  }
  return text(std::move(all));
}

Value Machine::eval_compare(const Node& node) {
  Value left = eval(*node.kids[0]);
  for (size_t i = 0; i < node.ops.size(); ++i) {
    const Value right = eval(*node.kids[i + 1]);
    line = node.line;
    if (!holds(*this, node.ops[i], left, right)) return make_bool(false);
    left = right;
  }
  return make_bool(true);
}

}  // namespace tenon::llm::jinja
