// SPDX-License-Identifier: Apache-2.0
// What all parts of the extension share: includes, failures, the fork guard, the log.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tenon/dtype.hpp>
#include <tenon/tenon.hpp>
#include <utility>

namespace nb = nanobind;

namespace tenon::python {

// Functions of the package that the extension calls. Set once, when the package is imported, and
// never freed: objects may outlive the module.
struct Hooks {
  nb::handle error;    // (code, name, text, node, op, device, run_id, index, step, retryable)
  nb::handle log;      // (level, text)
  nb::handle dtypes;   // tuple: the DType of each number
  nb::handle outputs;  // (names, tensors): several results
};
Hooks& hooks();

// ---- Failures

[[noreturn]] void fail(tenon_code code, const std::string& text);
// Sets the Python exception of the C++ exception in flight. Call it in a catch block. Those that no
// part of the extension expects become TypeError (an object that does not convert) and OutOfMemory.
void set_python_error();
// Ends a rule with the Python exception in flight: the host makes a failure of it, which
// set_python_error() turns into that exception again.
void fail_rule(const tenon_op_call* call, nb::python_error& error);

// ---- Forks: the threads and devices of a runtime do not exist in a forked child.

// Throws in a child that was forked after a runtime was created.
void check_not_forked();
bool is_forked();
// From now on a forked child is refused.
void note_runtime();

// An object of tenon that is not destroyed in a forked child, where that could wait for threads
// that do not exist.
template <class T>
class Kept {
 public:
  template <class... Args>
  explicit Kept(Args&&... args) : object_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  Kept(Kept&&) noexcept = default;
  Kept& operator=(Kept&&) = delete;
  ~Kept() {
    if (is_forked()) object_.release();
  }
  T& operator*() const {
    check_not_forked();
    return *object_;
  }
  T* operator->() const { return &**this; }

 private:
  std::unique_ptr<T> object_;
};

// ---- The GIL

// Releases the GIL until its end. A thread that would take it back while the interpreter ends sleeps
// for ever instead: Python would unwind its stack, which destructors do not allow.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released();
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};
// Holds the GIL until its end, in any thread. False, and without the GIL, if the interpreter is ending
// in another thread; that thread waits a second for those that hold one.
class Acquired {
 public:
  Acquired();
  ~Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;
  explicit operator bool() const { return state_.has_value(); }

 private:
  std::optional<PyGILState_STATE> state_;
};

// ---- Log: lines wait in a queue, because a thread that logs may hold locks of the library.

// Passes waiting lines to Python's logging. Holds the GIL.
void deliver_log();
// Releases the GIL, and delivers the log afterwards.
class Unlocked {
 public:
  Unlocked() { released_.emplace(); }
  ~Unlocked() {
    released_.reset();
    deliver_log();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::optional<Released> released_;
};

// ---- Names

nb::object dtype_object(tenon_dtype dtype);
std::string class_name(nb::handle object);
// "f32[2,N]"; symbols by name.
std::string type_text(tenon_dtype dtype, const int64_t* dims, size_t rank);

using Symbols = std::vector<std::pair<std::string, int64_t>>;

// ---- Parts of the module

void add_log(nb::module_& m);
void add_tensor(nb::module_& m);
void add_runtime(nb::module_& m);
void add_graph(nb::module_& m);
void add_store(nb::module_& m);
void add_rules(nb::module_& m);
void add_executable(nb::module_& m);
void add_tree(nb::module_& m);
void add_llm(nb::module_& m);

}  // namespace tenon::python
