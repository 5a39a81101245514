// SPDX-License-Identifier: Apache-2.0
// Expressions of templates, from the weakest operator to the strongest.
#include <algorithm>

#include "llm/chat/parser.hpp"

namespace tenon::llm::jinja {

NodePtr Parser::constant(const Value& value, int line) {
  NodePtr node = make(Op::constant, line);
  node->constant = value;
  return node;
}
NodePtr Parser::text_constant(std::string text, int line) {
  return constant(program_.constants->text(std::move(text)), line);
}

NodePtr Parser::expression(bool with_choice) {
  Level level(*this);
  int line = now().line;
  NodePtr node = either();
  while (with_choice && accept_name("if")) {
    NodePtr condition = either();
    NodePtr otherwise = accept_name("else") ? expression() : nullptr;
    node = make(Op::choice, line, std::move(condition), std::move(node), std::move(otherwise));
    line = now().line;
  }
  return node;
}

NodePtr Parser::either() {
  const int line = now().line;
  NodePtr node = both();
  while (accept_name("or")) node = make(Op::either, line, std::move(node), both());
  return node;
}

NodePtr Parser::both() {
  const int line = now().line;
  NodePtr node = inverse();
  while (accept_name("and")) node = make(Op::both, line, std::move(node), inverse());
  return node;
}

NodePtr Parser::inverse() {
  if (!on_name("not")) return compare();
  Level level(*this);
  const int line = now().line;
  advance();
  return make(Op::inverse, line, inverse());
}

NodePtr Parser::compare() {
  static constexpr std::string_view kOrder[] = {"==", "!=", "<", "<=", ">", ">="};
  NodePtr first = sum();
  NodePtr node;
  for (;;) {
    std::string op;
    const int line = now().line;
    if (now().kind == TokenKind::symbol &&
        std::find(std::begin(kOrder), std::end(kOrder), now().text) != std::end(kOrder)) {
      op = now().text;
    } else if (on_name("in")) {
      op = "in";
    } else if (on_name("not") && next_token().is(TokenKind::name, "in")) {
      advance();
      op = "not in";
    } else {
      break;
    }
    advance();
    if (!node) {
      node = make(Op::compare, line);
      node->kids.push_back(std::move(first));
    }
    node->ops.push_back(std::move(op));
    node->kids.push_back(sum());
  }
  return node ? done(std::move(node)) : std::move(first);
}

NodePtr Parser::sum() {
  int line = now().line;
  NodePtr node = concat();
  while (on_symbol("+") || on_symbol("-")) {
    const std::string op = now().text;
    advance();
    node = binary(op, line, std::move(node), concat());
    line = now().line;
  }
  return node;
}

NodePtr Parser::concat() {
  const int line = now().line;
  NodePtr first = product();
  if (!on_symbol("~")) return first;
  NodePtr node = make(Op::concat, line);
  node->kids.push_back(std::move(first));
  while (accept_symbol("~")) node->kids.push_back(product());
  return done(std::move(node));
}

NodePtr Parser::product() {
  int line = now().line;
  NodePtr node = power();
  while (on_symbol("*") || on_symbol("/") || on_symbol("//") || on_symbol("%")) {
    const std::string op = now().text;
    advance();
    node = binary(op, line, std::move(node), power());
    line = now().line;
  }
  return node;
}

NodePtr Parser::power() {
  int line = now().line;
  NodePtr node = unary();
  while (accept_symbol("**")) {
    node = binary("**", line, std::move(node), unary());
    line = now().line;
  }
  return node;
}

NodePtr Parser::unary(bool with_filter) {
  const int line = now().line;
  NodePtr node;
  if (on_symbol("-") || on_symbol("+")) {
    Level level(*this);
    const Op op = on_symbol("-") ? Op::negate : Op::plus;
    advance();
    node = make(op, line, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters(std::move(node)) : std::move(node);
}

NodePtr Parser::primary() {
  Level level(*this);
  const int line = now().line;
  switch (now().kind) {
    case TokenKind::name:
      return named_value();
    case TokenKind::text: {
      std::string text;
      for (; now().kind == TokenKind::text; advance()) text += now().text;
      return text_constant(std::move(text), line);
    }
    case TokenKind::integer: {
      const int64_t value = now().integer;
      advance();
      return constant(make_int(value), line);
    }
    case TokenKind::real: {
      const double value = now().real;
      advance();
      return constant(make_real(value), line);
    }
    default:
      break;
  }
  if (on_symbol("[")) return list();
  if (on_symbol("{")) return dict();
  if (!accept_symbol("(")) fail("expected an expression, got " + shown());
  NodePtr node = tuple(true, {}, true);
  expect_symbol(")");
  return node;
}

NodePtr Parser::named_value() {
  const int line = now().line;
  const std::string name = expect_name();
  if (name == "true" || name == "True") return constant(make_bool(true), line);
  if (name == "false" || name == "False") return constant(make_bool(false), line);
  if (name == "none" || name == "None") return constant(Value::none(), line);
  for (Node* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  NodePtr node = make(Op::name, line);
  node->symbol = program_.symbols.add(name);
  node->text = name;
  node->constant = program_.constants->text(name);  // for messages
  return node;
}

NodePtr Parser::list() {
  NodePtr node = make(Op::list, now().line);
  advance();
  while (!on_symbol("]")) {
    if (!node->kids.empty()) expect_symbol(",");
    if (on_symbol("]")) break;
    node->kids.push_back(expression());
  }
  expect_symbol("]");
  return done(std::move(node));
}

NodePtr Parser::dict() {
  NodePtr node = make(Op::dict, now().line);
  advance();
  while (!on_symbol("}")) {
    if (!node->kids.empty()) expect_symbol(",");
    if (on_symbol("}")) break;
    node->kids.push_back(expression());
    expect_symbol(":");
    node->kids.push_back(expression());
  }
  expect_symbol("}");
  return done(std::move(node));
}

// Expressions with commas between them, or one alone. Nothing is a tuple only in brackets.
NodePtr Parser::tuple(bool with_choice, std::string_view end_word, bool in_brackets) {
  const int line = now().line;
  const auto at_end = [&] {
    return now().kind == TokenKind::print_end || now().kind == TokenKind::block_end ||
           on_symbol(")") || (!end_word.empty() && on_name(end_word));
  };
  std::vector<NodePtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_symbol(",");
    if (at_end()) break;
    items.push_back(expression(with_choice));
    if (!on_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_brackets) fail("expected an expression, got " + shown());
  NodePtr node = make(Op::tuple, line);
  node->kids = std::move(items);
  return done(std::move(node));
}

NodePtr Parser::postfix(NodePtr node) {
  for (;;) {
    if (on_symbol(".") || on_symbol("["))
      node = subscript(std::move(node));
    else if (on_symbol("("))
      node = call(std::move(node));
    else
      return node;
  }
}

NodePtr Parser::filters(NodePtr node) {
  for (;;) {
    if (accept_symbol("|"))
      node = filter_after_pipe(std::move(node));
    else if (on_name("is"))
      node = test(std::move(node));
    else if (on_symbol("("))
      node = call(std::move(node));
    else
      return node;
  }
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (accept_symbol(".")) name += "." + expect_name();
  return name;
}

NodePtr Parser::filter_after_pipe(NodePtr operand) {
  NodePtr node = make(Op::filter, now().line);
  node->text = dotted_name();
  node->kids.push_back(std::move(operand));
  if (on_symbol("(")) arguments(*node);
  return done(std::move(node));
}

NodePtr Parser::test(NodePtr operand) {
  const int line = now().line;
  advance();
  const bool inverted = accept_name("not");
  NodePtr node = make(Op::test, line);
  node->text = dotted_name();
  node->kids.push_back(std::move(operand));
  const TokenKind kind = now().kind;
  if (on_symbol("(")) {
    arguments(*node);
  } else if ((kind == TokenKind::name || kind == TokenKind::text || kind == TokenKind::integer ||
              kind == TokenKind::real || on_symbol("[") || on_symbol("{")) &&
             !on_name("else") && !on_name("or") && !on_name("and")) {
    if (on_name("is")) fail("tests cannot follow each other; expected parentheses");
    Argument a;
    a.value = postfix(primary());
    node->args.push_back(std::move(a));
  }
  node = done(std::move(node));
  return inverted ? make(Op::inverse, line, std::move(node)) : std::move(node);
}

NodePtr Parser::subscript(NodePtr operand) {
  const int line = now().line;
  if (accept_symbol(".")) {
    if (now().kind == TokenKind::integer) {
      NodePtr key = constant(make_int(now().integer), line);
      advance();
      return make(Op::item, line, std::move(operand), std::move(key));
    }
    NodePtr node = make(Op::attribute, line, std::move(operand));
    node->text = expect_name();
    // Constants have their text as a value, so that items can be looked up with it.
    node->constant = program_.constants->text(node->text);
    return node;
  }
  expect_symbol("[");
  std::vector<NodePtr> keys;
  while (!on_symbol("]")) {
    if (!keys.empty()) expect_symbol(",");
    keys.push_back(subscript_key());
  }
  advance();
  if (keys.size() == 1 && keys[0]->op == Op::slice_key) {
    NodePtr node = make(Op::slice, line);
    node->kids.push_back(std::move(operand));
    for (NodePtr& part : keys[0]->kids) node->kids.push_back(std::move(part));
    return done(std::move(node));
  }
  if (keys.size() == 1) return make(Op::item, line, std::move(operand), std::move(keys[0]));
  for (const NodePtr& key : keys)
    if (key->op == Op::slice_key) fail("a slice beside other keys is not supported");
  NodePtr key = make(Op::tuple, line);
  key->kids = std::move(keys);
  return make(Op::item, line, std::move(operand), done(std::move(key)));
}

NodePtr Parser::subscript_key() {
  const int line = now().line;
  NodePtr first;
  if (!on_symbol(":")) {
    first = expression();
    if (!on_symbol(":")) return first;
  }
  advance();
  NodePtr second, third;
  if (!on_symbol(":") && !on_symbol("]") && !on_symbol(",")) second = expression();
  if (accept_symbol(":") && !on_symbol("]") && !on_symbol(",")) third = expression();
  NodePtr node = make(Op::slice_key, line);
  node->kids.push_back(std::move(first));
  node->kids.push_back(std::move(second));
  node->kids.push_back(std::move(third));
  return done(std::move(node));
}

NodePtr Parser::call(NodePtr called) {
  NodePtr node = make(Op::call, now().line);
  node->kids.push_back(std::move(called));
  arguments(*node);
  return done(std::move(node));
}

void Parser::arguments(Node& node) {
  expect_symbol("(");
  while (!on_symbol(")")) {
    if (!node.args.empty()) {
      expect_symbol(",");
      if (on_symbol(")")) break;
    }
    node.args.push_back(argument(node));
  }
  expect_symbol(")");
}

Argument Parser::argument(const Node& node) {
  const auto follows = [&](Argument::Form form) {
    return std::any_of(node.args.begin(), node.args.end(),
                       [&](const Argument& a) { return a.form == form; });
  };
  Argument a;
  if (accept_symbol("*")) {
    a.form = Argument::sequence;
  } else if (accept_symbol("**")) {
    a.form = Argument::mapping;
  } else if (now().kind == TokenKind::name && next_token().is(TokenKind::symbol, "=")) {
    a.form = Argument::keyword;
    a.name = expect_name();
    advance();
  }
  const bool late = follows(Argument::mapping) ||
                    (a.form != Argument::keyword && a.form != Argument::mapping &&
                     (follows(Argument::sequence) ||
                      (a.form == Argument::positional && follows(Argument::keyword))));
  if (late) fail("an argument is out of order; expected values, then names, then *, then **");
  a.value = expression();
  return a;
}

}  // namespace tenon::llm::jinja
