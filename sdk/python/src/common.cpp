// SPDX-License-Identifier: Apache-2.0
// Failures, the fork guard, the log.
#include "common.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

namespace tenon::python {

Hooks& hooks() {
  static Hooks all;
  return all;
}

// ---- Failures

void fail(tenon_code code, const std::string& text) { throw Error(code, text); }

namespace {

// ---- Exceptions of rules, which pass through the host as texts

struct Passing {
  std::string text;
  nb::object error;
};
// Needs the GIL, as objects do. Never destroyed.
std::vector<Passing>& passing() {
  static auto& list = *new std::vector<Passing>;
  return list;
}
constexpr size_t kMostPassing = 8;  // the host may ask for something else, and drop a failure

// The exception that this failure was; null if it was none.
nb::object passed(const std::string& failure) {
  auto& list = passing();
  for (auto at = list.rbegin(); at != list.rend(); ++at) {
    if (failure.find(at->text) == std::string::npos) continue;
    nb::object error = std::move(at->error);
    list.erase(std::next(at).base());
    return error;
  }
  return {};
}

void raise(nb::handle error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

void set_error(const Error& e) {
  if (const nb::object error = passed(e.what())) return raise(error);
  const FailurePlace& at = e.place();
  try {
    const nb::object step = at.step == TENON_NONE ? nb::none() : nb::cast(at.step);
    const nb::object index = at.index < 0 ? nb::none() : nb::cast(at.index);
    const nb::object error = hooks().error(e.code(), code_name(e.code()), e.what(), at.node, at.op,
                                           at.device, at.run_id, index, step, at.retryable);
    raise(error);
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

}  // namespace

void fail_rule(const tenon_op_call* call, nb::python_error& error) {
  if (call->failed(call)) return;  // an op refused its operands, which the rule was told
  std::string text = class_name(error.value());
  try {
    const auto message = nb::cast<std::string>(nb::str(error.value()));
    if (!message.empty()) text += ": " + message;
  } catch (const std::exception&) {
    // the name alone
  }
  text.resize(std::strlen(text.c_str()));  // the host ends a text at its first zero byte
  auto& list = passing();
  nb::object dropped;  // dies last: what it runs then may come here again
  if (list.size() == kMostPassing) {
    dropped = std::move(list.front().error);
    list.erase(list.begin());
  }
  list.push_back({text, nb::borrow(error.value())});
  call->fail(call, TENON_INVALID_ARGUMENT, detail::str(text));
}

void set_python_error() {
  try {
    throw;
  } catch (const Error& e) {
    set_error(e);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const nb::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "tenon: an object in an argument has a wrong type");
  } catch (const std::bad_alloc&) {
    set_error(Error(TENON_OUT_OF_MEMORY, "tenon: the host has too little memory"));
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

// ---- Forks

namespace {
std::atomic<bool> has_runtime{false}, forked{false};
std::atomic<int> waiting{0};  // threads that take the GIL, or hold an Acquired
}  // namespace

bool is_forked() { return forked.load(std::memory_order_relaxed); }

void note_runtime() {
  if (has_runtime.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] {
    forked.store(true);
    waiting.store(0);  // those threads are not in the child
  });
}

void check_not_forked() {
  if (is_forked())
    fail(TENON_UNSUPPORTED,
         "tenon: this process was forked from one that had used tenon; expected a new process. "
         "hint: multiprocessing.set_start_method(\"spawn\"), or use tenon first in the child");
}

// ---- The GIL

namespace {

std::atomic<bool> ending{false};
std::thread::id ender{};

bool ends_elsewhere() { return ending.load() && ender != std::this_thread::get_id(); }

// Other threads do not take the GIL from now on. Those that wait for it already get it first.
void end_threads() {
  ender = std::this_thread::get_id();
  ending.store(true);
  constexpr int kMost = 10'000;
  for (int i = 0; i < kMost && waiting.load() > 0; ++i) {
    PyThreadState* state = PyEval_SaveThread();
    usleep(100);
    PyEval_RestoreThread(state);
  }
}

}  // namespace

Released::~Released() {
  waiting.fetch_add(1);
  if (ends_elsewhere()) {
    waiting.fetch_sub(1);
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  waiting.fetch_sub(1);
}

Acquired::Acquired() {
  waiting.fetch_add(1);
  if (Py_IsInitialized() && !ends_elsewhere()) state_ = PyGILState_Ensure();
}
Acquired::~Acquired() {
  if (state_) PyGILState_Release(*state_);
  waiting.fetch_sub(1);
}

// ---- Log

namespace {

struct Line {
  uint32_t level;
  std::string text;
};
// Never destroyed: threads of the library may log until the process ends.
struct Queue {
  std::mutex mutex;
  std::vector<Line> lines;
  std::atomic<bool> waiting{false};
  std::atomic<uint32_t> least{1};
};
Queue& queue() {
  static auto& q = *new Queue;
  return q;
}

void sink(void*, uint32_t level, tenon_str text) {
  Queue& q = queue();
  if (level < q.least.load(std::memory_order_relaxed)) return;
  bool first = false;
  {
    const std::lock_guard lock(q.mutex);
    first = q.lines.empty();
    q.lines.push_back({level, detail::string(text)});
    q.waiting.store(true, std::memory_order_release);
  }
  // So that lines of other threads come as well, while no call into the extension ends.
  const auto deliver = [](void*) {
    deliver_log();
    return 0;
  };
  if (first) Py_AddPendingCall(deliver, nullptr);
}

}  // namespace

void deliver_log() {
  Queue& q = queue();
  if (!q.waiting.load(std::memory_order_acquire) || !hooks().log) return;
  std::vector<Line> lines;
  {
    const std::lock_guard lock(q.mutex);
    lines.swap(q.lines);
    q.waiting.store(false, std::memory_order_release);
  }
  nb::error_scope kept;  // this also runs while an exception is passed on
  for (const Line& line : lines) {
    try {
      hooks().log(line.level, line.text);
    } catch (nb::python_error& e) {
      e.discard_as_unraisable("tenon's log");
    }
  }
}

void add_log(nb::module_& m) {
  m.def(
      "_set_hooks",
      [](nb::object error, nb::object log, nb::object dtypes, nb::object outputs) {
        hooks() = {error.release(), log.release(), dtypes.release(), outputs.release()};
        tenon_log_to(sink, nullptr);
      },
      nb::arg("error"), nb::arg("log"), nb::arg("dtypes"), nb::arg("outputs"),
      "Sets the functions of the package that the extension calls.");
  m.def(
      "_log_from", [](uint32_t level) { queue().least.store(level); }, nb::arg("level"),
      "Drops lines of the log below a level: 0 debug, 1 info, 2 warning, 3 error.");
  m.def(
      "_end_log",
      [] {
        deliver_log();
        tenon_log_to(nullptr, nullptr);
        end_threads();
      },
      "Delivers the log, leaves the library to itself, and lets no other thread come back from "
      "it.");
}

// ---- Names

nb::object dtype_object(tenon_dtype dtype) {
  const nb::tuple plain(nb::borrow(hooks().dtypes));
  if (dtype < TENON_DTYPE_COUNT) return nb::borrow(plain[dtype]);
  return nb::handle(Py_TYPE(nb::object(plain[TENON_DTYPE_F32]).ptr()))(dtype);  // of blocks
}

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(object.ptr())).attr("__name__")));
}

std::string type_text(tenon_dtype dtype, const int64_t* dims, size_t rank) {
  std::string text(sdk::dtype_name(dtype));
  text += "[";
  for (size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ",";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace tenon::python
