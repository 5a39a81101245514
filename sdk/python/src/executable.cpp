// SPDX-License-Identifier: Apache-2.0
// The classes Executable, Runner and Run.
#include <sys/eventfd.h>
#include <unistd.h>

#include "runner.hpp"

namespace tenon::python {
namespace {

using PyExecutable = Kept<Executable>;

// A run in flight. Its lane goes back to the runner when the results were taken. Any number of
// threads may wait for it.
class Run {
 public:
  Run(nb::object owner, std::shared_ptr<Lane> lane)
      : owner_(std::move(owner)), lane_(std::move(lane)) {}
  ~Run() {
    if (file_ >= 0) close(file_);
    if (lane_ && !is_forked()) tenon_context_cancel(lane_->context);  // nobody takes the results
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // While loops watch the descriptor, it is the run's, so that the next run of the lane does not
  // reset it.
  int file() {
    if (file_ < 0 && !lane_) file_ = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    const int file = lane_ ? lane_->ending.file() : file_;
    if (file < 0) fail(TENON_IO_ERROR, "run: the system gives no event descriptor");
    ++watchers_;
    return file;
  }
  void release_file() {
    if (--watchers_ == 0 && file_ >= 0) close(std::exchange(file_, -1));
  }
  bool done() { return !lane_ || lane_->ending.wait(std::chrono::milliseconds(0)); }
  void cancel() {
    check_not_forked();
    if (lane_) tenon_context_cancel(lane_->context);
  }
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(owner_.ptr());
    Py_VISIT(results_.ptr());
    return 0;
  }
  void clear() {
    owner_.reset();
    results_.reset();
  }
  nb::object wait() {
    if (!results_.is_valid() && !error_) {
      check_not_forked();
      wait_for_end();
      std::unique_lock lock(taking_, std::defer_lock);
      {
        const Released unlocked;
        lock.lock();
      }
      if (lane_) take_results();
    }
    if (error_) throw Error(*error_);
    if (!results_.is_valid()) fail(TENON_INVALID_ARGUMENT, "run: it has no results");
    return results_;
  }

 private:
  void wait_for_end() {
    // Once another thread has taken the lane, it may be in use again.
    for (const std::shared_ptr<Lane> lane = lane_; lane && lane_ == lane;) {
      {
        const Released unlocked;
        if (lane->ending.wait(std::chrono::milliseconds(50))) return;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }
  void take_results() {
    std::shared_ptr<Lane> lane = std::move(lane_);
    if (watchers_ > 0) file_ = lane->ending.take_file();
    try {
      tenon_status* status = nullptr;
      {
        const Released unlocked;
        status = tenon_context_wait(lane->context);
      }
      deliver_log();
      detail::check(status);
      auto* runner = nb::inst_ptr<Runner>(owner_);
      results_ = runner->results(*lane);
      runner->give_back(std::move(lane));
    } catch (const Error& e) {
      error_ = e;
    }
  }

  nb::object owner_;  // the runner
  std::shared_ptr<Lane> lane_;
  std::recursive_mutex
      taking_;  // taken without the GIL; recursive, because signal handlers wait too
  int file_ = -1, watchers_ = 0;
  nb::object results_{};
  std::optional<Error> error_{};  // raised each time
};

Runner& runner_of(nb::handle self) {
  if (!nb::inst_ready(self)) fail(TENON_INVALID_ARGUMENT, "model: __init__() was not called");
  return *nb::inst_ptr<Runner>(self);
}

PyObject* call_runner(PyObject* self, PyObject* args, PyObject* kwargs) noexcept {
  try {
    return runner_of(self).call(args, kwargs).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// Subclasses keep attributes, which may lead back to the object.
template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<T>(self)->traverse(visit, arg) : 0;
}
int clear_run(PyObject* self) noexcept {
  if (nb::inst_ready(self)) nb::inst_ptr<Run>(self)->clear();
  return 0;
}

PyType_Slot runner_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_runner)},
                              {Py_tp_traverse, reinterpret_cast<void*>(traverse<Runner>)},
                              {0, nullptr}};
PyType_Slot run_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<Run>)},
                           {Py_tp_clear, reinterpret_cast<void*>(clear_run)},
                           {0, nullptr}};

uint32_t exec_mode_of(std::string_view name) {
  constexpr std::pair<std::string_view, uint32_t> modes[] = {
      {"default", TENON_EXEC_DEFAULT},
      {"stream", TENON_EXEC_STREAM},
      {"graph", TENON_EXEC_GRAPH},
      {"eager", TENON_EXEC_EAGER},
      {"multi_stream", TENON_EXEC_MULTI_STREAM},
  };
  for (const auto& [mode, number] : modes)
    if (mode == name) return number;
  fail(TENON_INVALID_ARGUMENT, "exec_mode '" + std::string(name) +
                                   "'; expected default, stream, graph, eager or multi_stream");
}

void make_executable(PyExecutable* self, const Kept<Runtime>& runtime, const Graph& graph,
                     const Kept<Store>& store, std::string device, bool allow_fallback,
                     bool simplify, bool fuse, bool decompose_all, bool batch_invariant,
                     std::string_view exec_mode, uint32_t lanes, bool aot,
                     std::vector<std::pair<std::string, std::string>> pins,
                     std::vector<uint64_t> memory_limits,
                     std::vector<std::pair<std::string, std::string>> buckets) {
  ExecutableOptions o;
  o.device = std::move(device);
  o.allow_fallback = allow_fallback;
  o.simplify = simplify, o.fuse = fuse, o.decompose_all = decompose_all;
  o.batch_invariant = batch_invariant;
  o.exec_mode = exec_mode_of(exec_mode);
  o.lanes = lanes, o.aot = aot;
  o.pins = std::move(pins);
  o.memory_limits = std::move(memory_limits);
  o.buckets = std::move(buckets);
  const Runtime& r = *runtime;
  const Store& s = *store;
  const Unlocked unlocked;
  new (self) PyExecutable(r, graph, s, o);
}

}  // namespace

void add_executable(nb::module_& m) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  nb::class_<PyExecutable>(m, "Executable", nb::is_weak_referenceable(),
                           "A graph compiled for devices, over a store.")
      .def("__init__", make_executable, nb::arg("runtime"), nb::arg("graph"), nb::arg("store"),
           nb::kw_only(), nb::arg("device") = "auto", nb::arg("allow_fallback") = true,
           nb::arg("simplify") = true, nb::arg("fuse") = true, nb::arg("decompose_all") = false,
           nb::arg("batch_invariant") = false, nb::arg("exec_mode") = "default",
           nb::arg("lanes") = 0, nb::arg("aot") = false, nb::arg("pins") = Pairs(),
           nb::arg("memory_limits") = std::vector<uint64_t>(), nb::arg("buckets") = Pairs(),
           "Compiles a graph.\n"
           "\n"
           "device: \"auto\", \"cpu\", \"cuda:0\", or several: \"cuda:0,cuda:1\". exec_mode: "
           "default, stream, graph, eager or multi_stream.\n"
           "aot: generate all code now. pins: pairs of a pattern of node names and a device. "
           "memory_limits: bytes per device, or one\n"
           "for all. buckets: pairs of a symbol and its sizes (\"pow2\", \"64,128\"). "
           "batch_invariant: a hint: bits of rows are not to\n"
           "depend on other rows.")
      .def(
          "_report",
          [](const PyExecutable& e, const Symbols& symbols) {
            const Executable& executable = *e;
            const Unlocked unlocked;
            return executable.report(symbols);
          },
          nb::arg("symbols") = Symbols(), "What became of each node, as JSON.");
  nb::class_<Runner>(m, "Runner", nb::type_slots(runner_slots),
                     "Runs an executable: call it with the inputs, in their order or by name.")
      .def(
          "__init__",
          [](Runner* self, nb::handle_t<PyExecutable> executable,
             nb::handle_t<Kept<Runtime>> runtime, const Graph& graph, bool copies_inputs,
             const Symbols& numbers) {
            if (!nb::inst_ready(executable) || !nb::inst_ready(runtime))
              fail(TENON_INVALID_ARGUMENT,
                   "Runner: __init__() of its executable or runtime was not called");
            new (self)
                Runner(nb::borrow(executable), nb::borrow(runtime), graph, copies_inputs, numbers);
          },
          nb::arg("executable"), nb::arg("runtime"), nb::arg("graph"), nb::kw_only(),
          nb::arg("copies_inputs") = false, nb::arg("numbers") = Symbols())
      .def(
          "_start",
          [](nb::handle_t<Runner> self, nb::args args, nb::kwargs kwargs) {
            auto lane = runner_of(self).start(args, kwargs);
            return new Run(nb::borrow(self), std::move(lane));
          },
          "Starts a run.")
      .def(
          "_call_tree",
          [](nb::handle_t<Runner> self, nb::list leaves, nb::handle structure) {
            return runner_of(self).call_tree(leaves, structure);
          },
          nb::arg("leaves"), nb::arg("structure").none(),
          "Runs with a list of inputs. Returns the outputs as a tree of this structure.")
      .def(
          "_copy_to_host",
          [](nb::handle_t<Runner> self, nb::args args) {
            return runner_of(self).copy_to_host(args);
          },
          "Runs, and copies the only output to host memory.");
  nb::class_<Run>(m, "_Run", nb::type_slots(run_slots), "A run in flight.")
      .def("fileno", &Run::file,
           "A descriptor that becomes readable when the run ends, until release_fileno().")
      .def("release_fileno", &Run::release_file, "Gives back what fileno() returned.")
      .def("done", &Run::done, "Has the run ended?")
      .def("cancel", &Run::cancel, "Asks the run to end before its next step.")
      .def("wait", &Run::wait, "Waits, and returns the outputs.");
}

}  // namespace tenon::python
