// SPDX-License-Identifier: Apache-2.0
// From the source of a template to its tree.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/chat/ast.hpp"
#include "llm/chat/lexer.hpp"

namespace tenon::llm::jinja {

// The numbers of variables. Names that the template does not mention have none.
class Symbols {
 public:
  Symbols() {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) add(name);
  }
  uint32_t add(const std::string& name) {
    return numbers_.emplace(name, static_cast<uint32_t>(numbers_.size())).first->second;
  }
  const uint32_t* find(const std::string& name) const {
    const auto at = numbers_.find(name);
    return at == numbers_.end() ? nullptr : &at->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

struct Program {
  std::unique_ptr<Heap> constants;
  Symbols symbols;
  Body body;
};

Program parse(std::string_view source);

class Parser {
 public:
  explicit Parser(std::string_view source);
  Program run();

 private:
  struct Level;  // counts the depth of recursion

  // parser_expression.cpp
  NodePtr expression(bool with_choice = true);
  NodePtr either();
  NodePtr both();
  NodePtr inverse();
  NodePtr compare();
  NodePtr sum();
  NodePtr concat();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool with_filter = true);
  NodePtr primary();
  NodePtr named_value();
  NodePtr list();
  NodePtr dict();
  NodePtr tuple(bool with_choice, std::string_view end_word, bool in_brackets);
  NodePtr postfix(NodePtr node);
  NodePtr filters(NodePtr node);
  NodePtr filter_after_pipe(NodePtr node);
  NodePtr test(NodePtr node);
  NodePtr subscript(NodePtr node);
  NodePtr subscript_key();
  NodePtr call(NodePtr node);
  std::string dotted_name();
  void arguments(Node& node);
  Argument argument(const Node& node);
  NodePtr constant(const Value& value, int line);
  NodePtr text_constant(std::string text, int line);

  // parser.cpp
  Body statements(std::initializer_list<std::string_view> ends, bool drop_end);
  NodePtr statement(std::string_view word);
  NodePtr loop();
  NodePtr branch();
  NodePtr set();
  NodePtr macro();
  NodePtr call_block();
  NodePtr filter_block();
  NodePtr with();
  NodePtr generation();
  NodePtr loop_control(Op op);
  NodePtr target(std::string_view end_word, bool with_member, bool with_tuple = true);
  NodePtr target_item(bool with_member);
  void signature(Node& node);
  Body function_body(Node* macro, std::string_view end);

  const Token& now() const { return tokens_[at_]; }
  const Token& next_token() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool on_symbol(std::string_view s) const { return now().is(TokenKind::symbol, s); }
  bool on_name(std::string_view s) const { return now().is(TokenKind::name, s); }
  bool accept_symbol(std::string_view s) {
    if (!on_symbol(s)) return false;
    advance();
    return true;
  }
  bool accept_name(std::string_view s) {
    if (!on_name(s)) return false;
    advance();
    return true;
  }
  void expect_symbol(std::string_view s);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  std::string shown() const;  // the current token, for messages
  [[noreturn]] void fail(const std::string& what, int line = 0) const;

  NodePtr make(Op op, int line) const;
  NodePtr make(Op op, int line, NodePtr a, NodePtr b = nullptr, NodePtr c = nullptr);
  NodePtr binary(std::string_view op, int line, NodePtr a, NodePtr b);
  // Checks the height of the tree. Each node with other nodes below it passes through here.
  NodePtr done(NodePtr node) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::vector<std::string_view> open_;  // the tags that wait for their ends
  std::vector<Node*> macros_;
  Program program_;
};

struct Parser::Level {
  explicit Level(Parser& p) : parser(p) {
    constexpr int kMostLevels = 120;
    if (++parser.depth_ > kMostLevels)
      parser.fail("nested too deeply; expected at most " + std::to_string(kMostLevels) + " levels");
  }
  ~Level() { --parser.depth_; }
  Parser& parser;
};

}  // namespace tenon::llm::jinja
