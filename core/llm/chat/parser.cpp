// SPDX-License-Identifier: Apache-2.0
// Statements of templates.
#include "llm/chat/parser.hpp"

#include <algorithm>

#include "tenon/tenon.hpp"

namespace tenon::llm::jinja {
namespace {

constexpr int kMostHeight = 250;
constexpr size_t kMostSource = 4u << 20;

void raise_height(int& height, const NodePtr& node) {
  if (node) height = std::max(height, node->height + 1);
}
void raise_height(int& height, const Body& body) {
  for (const NodePtr& node : body) raise_height(height, node);
}

}  // namespace

Parser::Parser(std::string_view source) {
  if (source.size() > kMostSource)
    throw Error(TENON_UNSUPPORTED, "chat template: the source has " +
                                       std::to_string(source.size()) + " bytes; expected at most " +
                                       std::to_string(kMostSource));
  tokens_ = tokenize(source);
  Limits limits;
  limits.memory = limits.steps = UINT64_MAX;  // the size of the source bounds the constants
  program_.constants = std::make_unique<Heap>(limits);
}

Program Parser::run() {
  program_.body = statements({}, false);
  if (now().kind != TokenKind::end) fail("unexpected " + shown());
  return std::move(program_);
}

Program parse(std::string_view source) { return Parser(source).run(); }

void Parser::fail(const std::string& what, int line) const {
  throw Error(TENON_CORRUPT,
              "chat template, line " + std::to_string(line ? line : now().line) + ": " + what);
}

std::string Parser::shown() const {
  switch (now().kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::print_begin:
      return "'{{'";
    case TokenKind::print_end:
      return "'}}'";
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::text:
      return "a string";
    default:
      return "'" + now().text.substr(0, 60) + "'";
  }
}

void Parser::expect_symbol(std::string_view s) {
  if (!accept_symbol(s)) fail("expected '" + std::string(s) + "', got " + shown());
}
void Parser::expect(TokenKind kind, std::string_view what) {
  if (now().kind != kind) fail("expected " + std::string(what) + ", got " + shown());
  advance();
}
std::string Parser::expect_name() {
  if (now().kind != TokenKind::name) fail("expected a name, got " + shown());
  std::string name = now().text;
  advance();
  return name;
}

NodePtr Parser::make(Op op, int line) const {
  auto node = std::make_unique<Node>();
  node->op = op;
  node->line = line;
  return node;
}
NodePtr Parser::make(Op op, int line, NodePtr a, NodePtr b, NodePtr c) {
  NodePtr node = make(op, line);
  node->kids.push_back(std::move(a));
  if (b) node->kids.push_back(std::move(b));
  if (c) node->kids.push_back(std::move(c));
  return done(std::move(node));
}
NodePtr Parser::binary(std::string_view op, int line, NodePtr a, NodePtr b) {
  NodePtr node = make(Op::binary, line, std::move(a), std::move(b));
  node->text = op;
  return node;
}

NodePtr Parser::done(NodePtr node) const {
  int& height = node->height;
  for (const NodePtr& kid : node->kids) raise_height(height, kid);
  for (const Argument& a : node->args) raise_height(height, a.value);
  for (const Parameter& p : node->parameters) raise_height(height, p.otherwise);
  for (const Body& body : node->bodies) raise_height(height, body);
  raise_height(height, node->body);
  raise_height(height, node->otherwise);
  if (height > kMostHeight)
    fail("nested too deeply; expected at most " + std::to_string(kMostHeight) + " levels",
         node->line);
  return node;
}

// Statements until a tag of `ends`. The parser is then at the word, or behind it.
Body Parser::statements(std::initializer_list<std::string_view> ends, bool drop_end) {
  Level level(*this);
  Body body;
  while (now().kind != TokenKind::end) {
    const int line = now().line;
    if (now().kind == TokenKind::data) {
      NodePtr node = make(Op::data, line);
      node->text = now().text;
      advance();
      body.push_back(std::move(node));
    } else if (now().kind == TokenKind::print_begin) {
      advance();
      body.push_back(make(Op::print, line, tuple(true, {}, false)));
      expect(TokenKind::print_end, "'}}'");
    } else {
      expect(TokenKind::block_begin, "a tag");
      if (now().kind != TokenKind::name) fail("expected the name of a tag, got " + shown());
      const std::string word = now().text;
      if (std::find(ends.begin(), ends.end(), word) != ends.end()) {
        if (drop_end) advance();
        return body;
      }
      if (NodePtr node = statement(word)) body.push_back(std::move(node));
      expect(TokenKind::block_end, "'%}'");
    }
  }
  if (ends.size() > 0) {
    std::string wanted;
    for (const std::string_view end : ends)
      wanted += (wanted.empty() ? "'" : "' or '") + std::string(end);
    fail("the tag '" + std::string(open_.empty() ? "" : open_.back()) +
         "' does not end; expected " + wanted + "', got the end of the template");
  }
  return body;
}

NodePtr Parser::statement(std::string_view word) {
  struct Row {
    std::string_view word;
    NodePtr (Parser::*parse)();
  };
  static constexpr Row kRows[] = {
      {"for", &Parser::loop},        {"if", &Parser::branch},
      {"set", &Parser::set},         {"macro", &Parser::macro},
      {"call", &Parser::call_block}, {"filter", &Parser::filter_block},
      {"with", &Parser::with},       {"generation", &Parser::generation},
  };
  for (const Row& row : kRows) {
    if (row.word != word) continue;
    open_.push_back(row.word);
    NodePtr node = (this->*row.parse)();
    open_.pop_back();
    return node;
  }
  if (word == "break") return loop_control(Op::stop);
  if (word == "continue") return loop_control(Op::skip);
  if (word == "print") {
    NodePtr node = make(Op::print, now().line);
    advance();
    while (now().kind != TokenKind::block_end) {
      if (!node->kids.empty()) expect_symbol(",");
      node->kids.push_back(expression());
    }
    return done(std::move(node));
  }
  fail("unknown tag '" + std::string(word) + "'" +
       (open_.empty() ? std::string() : "; the tag '" + std::string(open_.back()) + "' is open"));
}

NodePtr Parser::loop() {
  NodePtr node = make(Op::loop, now().line);
  advance();
  NodePtr to = target("in", false);
  if (!accept_name("in")) fail("expected 'in', got " + shown());
  NodePtr over = tuple(false, "recursive", false);
  NodePtr test;
  if (accept_name("if")) test = expression();
  node->flag = accept_name("recursive");
  node->kids.push_back(std::move(to));
  node->kids.push_back(std::move(over));
  node->kids.push_back(std::move(test));
  accept_symbol(":");
  expect(TokenKind::block_end, "'%}'");
  ++loops_;
  node->body = statements({"endfor", "else"}, false);
  --loops_;
  if (accept_name("else")) {
    accept_symbol(":");
    expect(TokenKind::block_end, "'%}'");
    node->otherwise = statements({"endfor"}, true);
  } else {
    advance();
  }
  return done(std::move(node));
}

NodePtr Parser::branch() {
  NodePtr node = make(Op::branch, now().line);
  for (;;) {
    advance();  // if or elif
    node->kids.push_back(tuple(false, {}, false));
    accept_symbol(":");
    expect(TokenKind::block_end, "'%}'");
    node->bodies.push_back(statements({"elif", "else", "endif"}, false));
    if (!on_name("elif")) break;
  }
  if (accept_name("else")) {
    accept_symbol(":");
    expect(TokenKind::block_end, "'%}'");
    node->otherwise = statements({"endif"}, true);
  } else {
    if (!on_name("endif")) fail("expected 'endif', got " + shown());
    advance();
  }
  return done(std::move(node));
}

NodePtr Parser::set() {
  const int line = now().line;
  advance();
  NodePtr to = target({}, true);
  if (accept_symbol("=")) return make(Op::set, line, std::move(to), tuple(true, {}, false));
  NodePtr node = make(Op::set_block, line);
  node->kids.push_back(std::move(to));
  NodePtr filter;
  while (on_symbol("|")) {
    advance();
    filter = filter_after_pipe(std::move(filter));
  }
  node->kids.push_back(std::move(filter));
  accept_symbol(":");
  expect(TokenKind::block_end, "'%}'");
  node->body = statements({"endset"}, true);
  return done(std::move(node));
}

NodePtr Parser::macro() {
  NodePtr node = make(Op::macro, now().line);
  advance();
  node->text = expect_name();
  node->symbol = program_.symbols.add(node->text);
  signature(*node);
  node->body = function_body(node.get(), "endmacro");
  return done(std::move(node));
}

NodePtr Parser::call_block() {
  NodePtr node = make(Op::call_block, now().line);
  advance();
  if (on_symbol("(")) signature(*node);
  NodePtr called = expression();
  if (called->op != Op::call) fail("expected a call", node->line);
  node->kids.push_back(std::move(called));
  node->body = function_body(node.get(), "endcall");
  return done(std::move(node));
}

NodePtr Parser::filter_block() {
  NodePtr node = make(Op::filter_block, now().line);
  advance();
  NodePtr filter = filter_after_pipe(nullptr);
  while (accept_symbol("|")) filter = filter_after_pipe(std::move(filter));
  node->kids.push_back(std::move(filter));
  accept_symbol(":");
  expect(TokenKind::block_end, "'%}'");
  node->body = statements({"endfilter"}, true);
  return done(std::move(node));
}

NodePtr Parser::with() {
  NodePtr node = make(Op::with, now().line);
  advance();
  while (now().kind != TokenKind::block_end) {
    if (!node->kids.empty()) expect_symbol(",");
    node->kids.push_back(target({}, false));
    expect_symbol("=");
    node->kids.push_back(expression());
  }
  expect(TokenKind::block_end, "'%}'");
  node->body = statements({"endwith"}, true);
  return done(std::move(node));
}

NodePtr Parser::generation() {
  NodePtr node = make(Op::scoped, now().line);
  advance();
  node->body = function_body(nullptr, "endgeneration");
  return done(std::move(node));
}

NodePtr Parser::loop_control(Op op) {
  if (loops_ == 0) fail("'" + now().text + "' outside of a loop");
  NodePtr node = make(op, now().line);
  advance();
  return node;
}

// A body that loops outside of it cannot leave.
Body Parser::function_body(Node* macro, std::string_view end) {
  accept_symbol(":");
  expect(TokenKind::block_end, "'%}'");
  const int loops = std::exchange(loops_, 0);
  if (macro) macros_.push_back(macro);
  Body body = statements({end}, true);
  if (macro) macros_.pop_back();
  loops_ = loops;
  return body;
}

void Parser::signature(Node& node) {
  expect_symbol("(");
  bool needs_default = false;
  while (!on_symbol(")")) {
    if (!node.parameters.empty()) expect_symbol(",");
    Parameter p;
    NodePtr name = target_item(false);
    if (name->op != Op::name) fail("expected the name of a parameter");
    p.name = name->text;
    p.symbol = name->symbol;
    if (accept_symbol("=")) {
      p.otherwise = expression();
      needs_default = true;
    } else if (needs_default) {
      fail("the parameter '" + p.name + "' follows one with a default and has none");
    }
    node.parameters.push_back(std::move(p));
  }
  expect_symbol(")");
}

NodePtr Parser::target_item(bool with_member) {
  Level level(*this);
  const int line = now().line;
  if (accept_symbol("(")) {
    NodePtr inner = target(")", with_member);
    expect_symbol(")");
    return inner;
  }
  NodePtr node = make(Op::name, line);
  node->text = expect_name();
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), node->text) != std::end(kConstants))
    fail("cannot assign to '" + node->text + "'", line);
  node->symbol = program_.symbols.add(node->text);
  node->constant = program_.constants->text(node->text);
  if (with_member && accept_symbol(".")) {
    node->flag = true;
    node->text = expect_name();
  }
  return node;
}

NodePtr Parser::target(std::string_view end_word, bool with_member, bool with_tuple) {
  const int line = now().line;
  NodePtr first = target_item(with_member);
  if (!with_tuple || !on_symbol(",")) return first;
  NodePtr node = make(Op::tuple, line);
  node->kids.push_back(std::move(first));
  while (accept_symbol(",")) {
    if (on_name(end_word) || on_symbol(end_word) || on_symbol("=") ||
        now().kind == TokenKind::block_end)
      break;
    node->kids.push_back(target_item(with_member));
  }
  return done(std::move(node));
}

}  // namespace tenon::llm::jinja
