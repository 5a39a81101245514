// SPDX-License-Identifier: Apache-2.0
// Runs the tree of a template: statements, expressions, calls, and access to data.
#pragma once

#include <ctime>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/chat/ast.hpp"
#include "llm/chat/value.hpp"

namespace tenon::llm::jinja {

class Machine;

struct Args {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

// Functions, methods and filters of the language. `self` is the object of a method and the operand
// of a filter.
using Builtin = Value (*)(Machine&, const Value& self, const Args&);

struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> variables;
  void set(uint32_t symbol, const Value& value);
  const Value* find_here(uint32_t symbol) const;
};

struct Function : Object {
  std::string_view name;
  Builtin builtin = nullptr;
  Value self;
  const Node* macro = nullptr;  // of macros and of the `caller` of a call block
  Scope* scope = nullptr;
};

struct Loop : Object {
  const Node* node = nullptr;
  Scope* scope = nullptr;  // around the loop
  std::vector<Value> source;
  size_t read = 0;           // items of the source that were read
  std::vector<Value> items;  // those that passed the filter of the loop
  size_t index = 0, depth = 0;
  std::vector<Value> last_changed;
  bool has_changed = false;
};

enum class Flow : uint8_t { next, stop, skip };

class Machine : public Heap {
 public:
  Machine(const Limits& limits, const std::tm& now) : Heap(limits), now_(now) {}

  using Variables = std::vector<std::pair<uint32_t, Value>>;
  // Runs a template. Variables hide functions.
  std::string run(const Body& body, Variables functions, Variables variables);

  // access.cpp
  Value attribute(const Value& object, const Value& name);
  Value member(const Value& object, const Value& name);  // an attribute that is no item
  Value item(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  std::vector<Value> items_of(const Value& v);  // takes all items of a generator
  int64_t length(const Value& v);
  bool contains(const Value& container, const Value& v);
  [[noreturn]] void fail_undefined(const Value& v);
  void require_defined(const Value& v) {
    if (v.is(Kind::undefined)) fail_undefined(v);
  }

  // call.cpp
  Value call(const Value& function, const Args& args);
  Value method(std::string_view name, Builtin builtin, const Value& self);
  Value apply_filter(std::string_view name, const Value& v, const Args& args);
  bool apply_test(std::string_view name, const Value& v, const Args& args);
  bool load(Loop& loop, size_t index);  // false if the loop has no item of this index
  Value loop_member(Loop& loop, std::string_view name);

  const std::tm& now() const { return now_; }

 private:
  struct Capture;  // collects output
  struct Inside;   // makes a scope the current one

  // machine.cpp
  Flow run_body(const Body& body);
  Flow run_node(const Node& node);
  Flow run_branch(const Node& node);
  void run_loop(const Node& node, const Value& over, size_t level, Scope* around);
  Flow run_set_block(const Node& node);
  Flow run_with(const Node& node);
  void run_call_block(const Node& node);
  Flow run_filter_block(const Node& node);
  void assign(const Node& target, const Value& v);
  Flow capture_body(const Body& body, Scope* scope, Value& made);
  Value make_macro(const Node& node);
  void emit(std::string_view text);
  void print(const Value& v);
  Scope* new_scope(Scope* parent);

  // evaluate.cpp
  Value eval(const Node& node);
  Value eval_name(const Node& node);
  Value eval_list(const Node& node);
  Value eval_dict(const Node& node);
  Value eval_slice(const Node& node);
  Value eval_call(const Node& node);
  Value eval_compare(const Node& node);
  Value eval_concat(const Node& node);
  Value eval_filter(const Node& node, const Value* body);
  void eval_args(const Node& node, Args& out);

  // call.cpp
  Value call_macro(const Function& f, const Args& args);
  void bind(const Function& f, const Args& args, Scope& scope);

  std::tm now_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  uint64_t output_ = 0;
  uint64_t closures_ = 0;  // functions made that keep their scope
};

struct Machine::Capture {
  explicit Capture(Machine& m) : machine(m), before(m.out_) { m.out_ = &text; }
  ~Capture() { machine.out_ = before; }
  Machine& machine;
  std::string* before;
  std::string text;
};

struct Machine::Inside {
  Inside(Machine& m, Scope* scope) : machine(m), before(m.scope_) { m.scope_ = scope; }
  ~Inside() { machine.scope_ = before; }
  Machine& machine;
  Scope* before;
};

// Arguments by the names of parameters. Throws if there are too many or unknown ones.
class Bound {
 public:
  Bound(Machine& m, std::string_view function, const Args& args,
        std::initializer_list<std::string_view> names, size_t required = 0);
  bool has(size_t i) const { return given_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *given_[i]; }
  Value get(size_t i, const Value& otherwise) const { return has(i) ? *given_[i] : otherwise; }
  bool flag(size_t i, bool otherwise) const { return has(i) ? is_true(*given_[i]) : otherwise; }
  int64_t whole(size_t i, int64_t otherwise) const;
  std::string_view text(size_t i, std::string_view otherwise) const;

 private:
  [[noreturn]] void fail(size_t i, std::string_view expected) const;
  Machine& machine_;
  std::string_view function_;
  std::initializer_list<std::string_view> names_;
  std::vector<const Value*> given_;
};

// Tables of the language. Null if there is no such name.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_text_method(std::string_view name);
struct Global {
  std::string_view name;
  Builtin builtin;
};
const std::vector<Global>& globals();

}  // namespace tenon::llm::jinja
