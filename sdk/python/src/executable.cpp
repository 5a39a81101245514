// SPDX-License-Identifier: Apache-2.0
// The classes Executable, Runner and Run.
#include "runner.hpp"

namespace tenon::python {
namespace {

using PyExecutable = Kept<Executable>;

// A run in flight. Its lane goes back to the runner when the results were taken.
class Run {
 public:
  Run(nb::object owner, std::unique_ptr<Lane> lane)
      : owner_(std::move(owner)), lane_(std::move(lane)) {}
  ~Run() {  // nobody will take the results
    if (lane_ && !is_forked()) tenon_context_cancel(lane_->context);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  int file() { return lane_ ? lane_->ending.file() : -1; }
  bool done() { return !lane_ || lane_->ending.wait(std::chrono::milliseconds(0)); }
  void cancel() {
    check_not_forked();
    if (lane_) tenon_context_cancel(lane_->context);
  }
  nb::object wait() {
    if (results_.is_valid()) return results_;
    check_not_forked();
    if (!lane_) fail(TENON_INVALID_ARGUMENT, "run: it has failed; its error was raised before");
    while (!wait_for(std::chrono::milliseconds(50)))
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    std::unique_ptr<Lane> lane = std::move(lane_);
    tenon_status* status = nullptr;
    {
      const nb::gil_scoped_release unlocked;
      status = tenon_context_wait(lane->context);
    }
    deliver_log();
    detail::check(status);
    auto* runner = nb::inst_ptr<Runner>(owner_);
    results_ = runner->results(*lane);
    runner->give_back(std::move(lane));
    return results_;
  }

 private:
  bool wait_for(std::chrono::milliseconds most) {
    const nb::gil_scoped_release unlocked;
    return lane_->ending.wait(most);
  }

  nb::object owner_;  // the runner
  std::unique_ptr<Lane> lane_;
  nb::object results_{};
};

PyObject* call_runner(PyObject* self, PyObject* args, PyObject* kwargs) noexcept {
  try {
    if (!nb::inst_ready(self)) fail(TENON_INVALID_ARGUMENT, "model: __init__() was not called");
    return nb::inst_ptr<Runner>(self)->call(args, kwargs).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyType_Slot runner_slots[] = {{Py_tp_call, reinterpret_cast<void*>(call_runner)}, {0, nullptr}};

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
                     bool simplify, bool fuse, bool decompose_all, std::string_view exec_mode,
                     uint32_t lanes, bool aot,
                     std::vector<std::pair<std::string, std::string>> pins,
                     std::vector<uint64_t> memory_limits,
                     std::vector<std::pair<std::string, std::string>> buckets) {
  ExecutableOptions o;
  o.device = std::move(device);
  o.allow_fallback = allow_fallback;
  o.simplify = simplify, o.fuse = fuse, o.decompose_all = decompose_all;
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
  nb::class_<PyExecutable>(m, "Executable", "A graph compiled for devices, over a store.")
      .def("__init__", make_executable, nb::arg("runtime"), nb::arg("graph"), nb::arg("store"),
           nb::kw_only(), nb::arg("device") = "auto", nb::arg("allow_fallback") = true,
           nb::arg("simplify") = true, nb::arg("fuse") = true, nb::arg("decompose_all") = false,
           nb::arg("exec_mode") = "default", nb::arg("lanes") = 0, nb::arg("aot") = false,
           nb::arg("pins") = Pairs(), nb::arg("memory_limits") = std::vector<uint64_t>(),
           nb::arg("buckets") = Pairs(),
           "Compiles a graph.\n"
           "\n"
           "device: \"auto\", \"cpu\", \"cuda:0\", or several: \"cuda:0,cuda:1\". exec_mode: "
           "default, stream, graph, eager or multi_stream.\n"
           "aot: generate all code now. pins: pairs of a pattern of node names and a device. "
           "memory_limits: bytes per device, or one\n"
           "for all. buckets: pairs of a symbol and its sizes (\"pow2\", \"64,128\").")
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
            new (self)
                Runner(nb::borrow(executable), nb::borrow(runtime), graph, copies_inputs, numbers);
          },
          nb::arg("executable"), nb::arg("runtime"), nb::arg("graph"), nb::kw_only(),
          nb::arg("copies_inputs") = false, nb::arg("numbers") = Symbols())
      .def(
          "_start",
          [](nb::handle_t<Runner> self, nb::args args, nb::kwargs kwargs) {
            auto lane = nb::inst_ptr<Runner>(self)->start(args, kwargs);
            return new Run(nb::borrow(self), std::move(lane));
          },
          "Starts a run.")
      .def(
          "_call_tree",
          [](nb::handle_t<Runner> self, nb::list leaves, nb::handle structure) {
            return nb::inst_ptr<Runner>(self)->call_tree(leaves, structure);
          },
          nb::arg("leaves"), nb::arg("structure").none(),
          "Runs with a list of inputs. Returns the outputs as a tree of this structure.")
      .def(
          "_copy_to_host",
          [](nb::handle_t<Runner> self, nb::args args) {
            return nb::inst_ptr<Runner>(self)->copy_to_host(args);
          },
          "Runs, and copies the only output to host memory.");
  nb::class_<Run>(m, "_Run", "A run in flight.")
      .def("fileno", &Run::file, "A descriptor that becomes readable when the run ends.")
      .def("done", &Run::done, "Has the run ended?")
      .def("cancel", &Run::cancel, "Asks the run to end before its next step.")
      .def("wait", &Run::wait, "Waits, and returns the outputs.");
}

}  // namespace tenon::python
