// SPDX-License-Identifier: Apache-2.0
// Values of chat templates, with Python's meaning, and the heap that owns them during one rendering.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tenon::llm::jinja {

struct Text;
struct List;
struct Dict;
struct Function;
struct Loop;

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,  // every sequence that is no text; List::form says which
  dict,
  space,  // a namespace
  function,
  loop,  // the variable `loop`
};

// Values borrow what they point to from a Heap. A rendering has one heap, and the constants of a
// template are in another one that lives as long as the template.
struct Value {
  Kind kind = Kind::undefined;
  union {
    const Text* text = nullptr;  // of an undefined value: why it is undefined, or null
    bool boolean;
    int64_t integer;
    double real;
    List* list;
    Dict* dict;
    Function* function;
    Loop* loop;
  };

  static Value none() { return of(Kind::none); }
  static Value of(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
  bool is(Kind k) const { return kind == k; }
  bool is_number() const {
    return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real;
  }
  bool is_whole() const { return kind == Kind::boolean || kind == Kind::integer; }
  int64_t whole() const { return kind == Kind::boolean ? int64_t{boolean} : integer; }
  double number() const { return kind == Kind::real ? real : static_cast<double>(whole()); }
};

inline Value make_bool(bool b) {
  Value v = Value::of(Kind::boolean);
  v.integer = 0;
  v.boolean = b;
  return v;
}
inline Value make_int(int64_t i) {
  Value v = Value::of(Kind::integer);
  v.integer = i;
  return v;
}
inline Value make_real(double d) {
  Value v = Value::of(Kind::real);
  v.real = d;
  return v;
}

struct Object {
  virtual ~Object() = default;
};

struct Text : Object {
  std::string bytes;    // UTF-8
  int64_t chars = 0;    // Python's len()
  bool markup = false;  // a result of `safe` or `escape`: what is added to it is escaped
  bool ascii() const { return static_cast<size_t>(chars) == bytes.size(); }
};

enum class Form : uint8_t { list, tuple, range, keys, values, items, generator, group };

struct List : Object {
  Form form = Form::list;
  std::vector<Value> items;
  size_t taken = 0;                       // of a generator: items that were taken
  int64_t start = 0, stop = 0, step = 1;  // of a range
  bool is_tuple() const { return form == Form::tuple || form == Form::group; }
};

// In the order of insertion. An index is built when a dict grows.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<uint64_t, uint32_t> index;
};

// What one rendering may use. Each excess is an error.
struct Limits {
  uint64_t steps = 20'000'000;  // nodes evaluated, items visited, and 64 bytes of text each
  uint64_t memory = uint64_t{256} << 20;  // bytes of all values made, also of those no longer used
  uint64_t output = uint64_t{64} << 20;   // bytes
  uint32_t depth = 800;                   // nested evaluations; one call of a macro takes about ten
};

// Owns objects until it ends, so cycles of values are harmless. Counts bytes and steps.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <class T>
  T* make() {
    charge(sizeof(T) + 32);
    auto owned = std::make_unique<T>();
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }
  void charge(uint64_t bytes) {
    memory_ += bytes;
    if (memory_ > limits_.memory) memory_exceeded();
  }
  // The work of reading or writing so many bytes or items.
  void work(uint64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps) steps_exceeded();
  }
  void work_on(std::string_view text) { work(1 + text.size() / 64); }

  Value text(std::string bytes, bool markup = false);
  Value list(std::vector<Value> items, Form form = Form::list);
  Value dict();
  void append(List& list, Value item);

  // The line of the statement or expression in evaluation, for messages.
  int line = 0;
  uint32_t depth = 0;
  const Limits& limits() const { return limits_; }
  [[noreturn]] void fail(const std::string& text) const;
  [[noreturn]] void refuse_limit(const std::string& text) const;

 private:
  [[noreturn]] void memory_exceeded() const;
  [[noreturn]] void steps_exceeded() const;

  Limits limits_;
  std::deque<std::unique_ptr<Object>> objects_;
  uint64_t memory_ = 0, steps_ = 0;
};

// One level of recursion. Throws if there are too many.
class Deeper {
 public:
  explicit Deeper(Heap& heap, uint32_t levels = 1) : heap_(heap), levels_(levels) {
    heap.depth += levels;
    if (heap.depth > heap.limits().depth) {
      heap.depth -= levels;
      heap.refuse_limit("more than " + std::to_string(heap.limits().depth) + " nested evaluations");
    }
  }
  ~Deeper() { heap_.depth -= levels_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Heap& heap_;
  uint32_t levels_;
};

inline std::string_view text_of(const Value& v) { return v.text->bytes; }

// Python's name of the type, for messages.
std::string_view type_name(const Value& v);
bool is_true(const Value& v);
bool is_equal(Heap& heap, const Value& a, const Value& b);
// Negative, 0 or positive. Throws for values without an order; `symbol` is the operator.
int compare(Heap& heap, const Value& a, const Value& b, std::string_view symbol);

const Value* find(Heap& heap, const Dict& dict, const Value& key);
const Value* find(Heap& heap, const Dict& dict, std::string_view key);
void insert(Heap& heap, Dict& dict, const Value& key, const Value& value);

}  // namespace tenon::llm::jinja
