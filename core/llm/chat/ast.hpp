// SPDX-License-Identifier: Apache-2.0
// The tree of a template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/chat/value.hpp"

namespace tenon::llm::jinja {

// Variables have numbers. The language itself sets these.
enum : uint32_t { kLoopSymbol, kCallerSymbol, kVarargsSymbol, kKwargsSymbol };

enum class Op : uint8_t {
  // Expressions. `kids` are their operands.
  constant,
  name,
  tuple,
  list,
  dict,       // keys and values in turns
  attribute,  // kids[0].text
  item,       // kids[0][kids[1]]
  slice,      // kids[0][kids[1]:kids[2]:kids[3]]; null where left out
  slice_key,  // a slice alone, until the item that it is part of is known
  call,       // kids[0](args)
  filter,     // kids[0] | text(args); kids[0] is null for the body of a block
  test,       // kids[0] is text(args)
  negate,
  plus,
  inverse,  // not
  both,     // and
  either,   // or
  choice,   // kids[1] if kids[0] else kids[2], which may be null
  binary,   // text is the operator
  concat,
  compare,  // kids[0] ops[0] kids[1] ops[1] ...

  // Statements.
  data,          // text
  print,         // kids
  loop,          // for kids[0] in kids[1] if kids[2]: body, else otherwise
  branch,        // kids[i] guards bodies[i]; `otherwise`
  set,           // kids[0] = kids[1]
  set_block,     // kids[0] = body through the filter kids[1], which may be null
  macro,         // text, parameters, body
  call_block,    // kids[0] is the call; parameters and body of its caller
  filter_block,  // kids[0] over body
  with,          // kids[2i] = kids[2i + 1]: body
  scoped,        // body in a scope of its own (generation)
  stop,          // break
  skip,          // continue
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

struct Argument {
  enum Form : uint8_t { positional, keyword, sequence, mapping } form = positional;
  std::string name;  // of a keyword
  NodePtr value;
};

struct Parameter {
  uint32_t symbol = 0;
  std::string name;
  NodePtr otherwise;  // the default, or null
};

struct Node {
  Op op = Op::constant;
  bool flag = false;  // loop: recursive; name: also a member of a namespace is assigned (`text`)
  int line = 1;
  int height = 1;       // of the tree below
  uint32_t symbol = 0;  // of names and macros
  Value constant;       // of names and attributes: `text`
  std::string text;
  std::vector<NodePtr> kids;
  std::vector<std::string> ops;
  std::vector<Argument> args;
  std::vector<Parameter> parameters;
  std::vector<Body> bodies;  // of branches
  Body body, otherwise;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // of macros
};

}  // namespace tenon::llm::jinja
