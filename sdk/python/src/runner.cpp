// SPDX-License-Identifier: Apache-2.0
// Runs without the GIL, passes outputs on. Arguments: arguments.cpp.
#include "runner.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tree.hpp"

namespace tenon::python {
namespace {

using Clock = std::chrono::steady_clock;

// Shorter runs are not interrupted. Longer ones look for signals this often.
constexpr auto kQuick = std::chrono::milliseconds(10), kLook = std::chrono::milliseconds(50);
constexpr size_t kMostIdle = 16, kMostForOutputs = 3;

// Signals are handled by the main thread alone.
bool is_main_thread() {
  thread_local const bool is = gettid() == getpid();
  return is;
}

}  // namespace

// ---- Ending

Ending::~Ending() {
  if (file_ >= 0) close(file_);
}
void Ending::begin() {
  const std::lock_guard lock(mutex_);
  ended_ = false;
  uint64_t count = 0;
  if (file_ >= 0) (void)!read(file_, &count, sizeof count);
}
void Ending::end() noexcept {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
  const uint64_t one = 1;
  if (file_ >= 0) (void)!write(file_, &one, sizeof one);
}
bool Ending::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return ended_; });
}
int Ending::file() {
  const std::lock_guard lock(mutex_);
  if (file_ < 0) file_ = eventfd(ended_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (file_ < 0) fail(TENON_IO_ERROR, "run: the system gives no event descriptor");
  return file_;
}
int Ending::take_file() {
  const std::lock_guard lock(mutex_);
  return std::exchange(file_, -1);
}

// ---- Lane

Lane::Lane(tenon_executable* executable, size_t inputs)
    : loans(inputs), views(inputs), given(inputs) {
  detail::check(tenon_context_create(executable, &context));
  const auto ended = [](void* user, tenon_code) { static_cast<Ending*>(user)->end(); };
  tenon_status_release(tenon_context_on_end(context, ended, &ending));
}
Lane::~Lane() {
  if (is_forked()) return;
  const Released unlocked;  // it may wait for a run
  tenon_context_destroy(context);
}

// ---- Runner

Runner::Runner(nb::object executable, nb::object runtime, const Graph& graph, bool copies_inputs,
               const Symbols& numbers)
    : executable_(std::move(executable)),
      runtime_(std::move(runtime)),
      handle_((*nb::inst_ptr<Kept<Executable>>(executable_))->handle()),
      runtime_handle_((*nb::inst_ptr<Kept<Runtime>>(runtime_))->handle()),
      numbers_(numbers),
      copies_inputs_(copies_inputs) {
  for (const Graph::Named& n : graph.named(TENON_SPACE_INPUT)) {
    const TensorType type = graph.type(n.value);
    inputs_.push_back({n.name, nb::cast(n.name), type});
    std::vector<int64_t>& dims = bound_dims_.emplace_back(type.dims);
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      int64_t& d = dims[axis];
      if (d >= 0) continue;
      has_symbols_ = true;
      const std::string symbol = graph.symbol_name(d);
      symbols_.push_back({symbol, inputs_.size() - 1, axis});
      for (const auto& [name, number] : numbers)
        if (name == symbol) d = number;
    }
    takes_out_ = takes_out_ && n.name != "out";
  }
  for (const auto& [name, number] : numbers)
    numbers_text_ += (numbers_text_.empty() ? "" : ", ") + name + "=" + std::to_string(number);
  for (const auto& [name, value] : graph.outputs()) outputs_.push_back(name);
}

Runner::~Runner() = default;

// While somebody holds an output on a device, the next run writes to another buffer, and the device
// captures its work again for it. So such lanes are used by turns.
std::shared_ptr<Lane> Runner::take_lane() {
  check_not_forked();
  {
    const std::lock_guard lock(mutex_);
    const auto is_free = [](const auto& lane) {
      return std::ranges::all_of(lane->on_device, [](const auto& o) { return o.expired(); });
    };
    auto at = std::ranges::find_if(idle_, is_free);
    if (at == idle_.end() && idle_.size() >= kMostForOutputs) at = idle_.begin();
    if (at != idle_.end()) {
      auto lane = std::move(*at);
      idle_.erase(at);
      return lane;
    }
  }
  return std::make_shared<Lane>(handle_, inputs_.size());
}

void Runner::give_back(std::shared_ptr<Lane> lane) noexcept {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(lane));
}

void Runner::run(Lane& lane) {
  tenon_status* status = nullptr;
  const auto begin = Clock::now();
  if (lane.quick || !is_main_thread()) {
    const Released unlocked;
    status = tenon_context_run(lane.context);
  } else {
    lane.ending.begin();
    {
      const Released unlocked;
      status = tenon_context_run_async(lane.context);
    }
    while (!status) {
      bool ended = false;
      {
        const Released unlocked;
        ended = lane.ending.wait(kLook);
        if (ended) status = tenon_context_wait(lane.context);
      }
      if (ended) break;
      deliver_log();
      if (PyErr_CheckSignals() == 0) continue;
      nb::python_error interrupt;
      tenon_context_cancel(lane.context);
      const Released unlocked;
      tenon_status_release(tenon_context_wait(lane.context));
      throw interrupt;
    }
  }
  const bool quick = Clock::now() - begin < kQuick;
  deliver_log();
  detail::check(status);
  lane.quick = quick && !time_depends_on_data(lane);
}

// With loops and branches, a quick run tells nothing of the next one. The plan has those that are
// left, the same for all numbers.
bool Runner::time_depends_on_data(const Lane& lane) {
  if (time_depends_on_data_) return *time_depends_on_data_;
  Symbols numbers = numbers_;
  for (const Symbol& s : symbols_)
    if (std::ranges::find(numbers, s.name, &Symbols::value_type::first) == numbers.end())
      numbers.emplace_back(s.name, lane.views[s.input].dims[s.axis]);
  bool depends = true;
  try {
    const Executable& executable = **nb::inst_ptr<Kept<Executable>>(executable_);
    std::string report;
    {
      const Released unlocked;  // it may wait for a plan, whose rules are functions of Python
      report = executable.report(numbers);
    }
    const auto has = [&](const char* op) { return report.find(op) != std::string::npos; };
    depends = has(R"("op":"while")") || has(R"("op":"if")");
  } catch (const Error&) {
    // unknown
  }
  time_depends_on_data_ = depends;
  return depends;
}

PyTensor Runner::result(Lane& lane, size_t output) {
  const tenon_str name = detail::str(outputs_[output]);
  tenon_tensor at{};
  at.struct_size = sizeof at;
  tenon_status* unknown = tenon_context_output(lane.context, name, &at);
  tenon_status_release(unknown);
  const bool host = !unknown && at.device.size == 0;
  if (host && at.size <= kCopied) {
    PyTensor out = new_tensor(at.dtype, {at.dims, at.dims + at.rank});
    if (at.size) std::memcpy(out.view.data, at.data, at.size);
    return out;
  }
  DLManagedTensorVersioned* given = nullptr;
  tenon_status* status = tenon_context_output_dlpack(lane.context, name, &given);
  if (!status) {
    PyTensor out = take_dlpack(given, runtime_handle_);
    if (!on_host(out.view.device)) lane.on_device.push_back(out.keeper);
    return out;
  }
  const tenon_code code = tenon_status_code(status);
  if (code != TENON_UNSUPPORTED && code != TENON_INVALID_ARGUMENT) detail::check(status);
  tenon_status_release(status);
  return copied_result(lane, output);  // there is no memory to pass on
}

PyTensor Runner::copied_result(Lane& lane, size_t output) {
  const tenon_str name = detail::str(outputs_[output]);
  tenon_tensor_type type{};
  type.struct_size = sizeof type;
  detail::check(tenon_context_output_type(lane.context, name, &type));
  PyTensor out = new_tensor(type.dtype, {type.dims, type.dims + type.rank});
  const Released unlocked;
  detail::check(tenon_context_get(lane.context, name, out.view.data, out.view.bytes()));
  return out;
}

// Ends the loans of host memory. Bindings to memory of a device stay until the next call: without
// them, the device would capture its work again.
void Runner::end_loans(Lane& lane) {
  for (const size_t input : lane.lent) {
    detail::check(tenon_context_unbind(lane.context, detail::str(inputs_[input].name)));
    lane.loans[input].end();
    lane.given[input] = false;
  }
  lane.lent.clear();
}

nb::object Runner::results(Lane& lane, nb::handle out) {
  lane.on_device.clear();
  if (out.is_valid()) {
    for (const std::string& name : lane.bound)
      detail::check(tenon_context_unbind(lane.context, detail::str(name)));
    lane.bound.clear();
    lane.loans.resize(inputs_.size());
    end_loans(lane);
    return nb::borrow(out);
  }
  if (outputs_.size() == 1) {
    nb::object only = nb::cast(result(lane, 0));
    end_loans(lane);
    return only;
  }
  nb::list names;
  for (const std::string& name : outputs_) names.append(name);
  return hooks().outputs(names, all_results(lane));
}

nb::list Runner::all_results(Lane& lane) {
  nb::list tensors;
  for (size_t k = 0; k < outputs_.size(); ++k) tensors.append(result(lane, k));
  end_loans(lane);
  return tensors;
}

// A call that fails drops its lane: the context may be bound to memory that the call borrowed.
nb::object Runner::call(nb::handle args, nb::handle kwargs) {
  std::shared_ptr<Lane> lane = take_lane();
  nb::object out;
  bind_all(lane, args, kwargs, out);
  if (out.is_valid() && !out.is_none())
    bind_outputs(*lane, out);
  else
    out = {};
  run(*lane);
  nb::object all = results(*lane, out);
  give_back(std::move(lane));
  return all;
}

nb::object Runner::call_tree(nb::handle leaves, nb::handle structure) {
  const nb::object args = nb::steal(PyList_AsTuple(leaves.ptr()));
  if (!args.is_valid()) throw nb::python_error();
  std::shared_ptr<Lane> lane = take_lane();
  nb::object out;
  bind_all(lane, args, {}, out);
  run(*lane);
  lane->on_device.clear();
  const nb::list tensors = all_results(*lane);
  give_back(std::move(lane));
  return tree_of(structure, tensors);
}

PyTensor Runner::copy_to_host(nb::handle args) {
  std::shared_ptr<Lane> lane = take_lane();
  nb::object out;
  bind_all(lane, args, {}, out);
  run(*lane);
  PyTensor copy = copied_result(*lane, 0);
  end_loans(*lane);
  give_back(std::move(lane));
  return copy;
}

std::shared_ptr<Lane> Runner::start(nb::handle args, nb::handle kwargs) {
  std::shared_ptr<Lane> lane = take_lane();
  nb::object out;
  bind_all(lane, args, kwargs, out);
  if (out.is_valid() && !out.is_none()) fail(TENON_UNSUPPORTED, "run_async: it takes no out");
  lane->ending.begin();
  tenon_status* status = nullptr;
  {
    const Released unlocked;
    status = tenon_context_run_async(lane->context);
  }
  deliver_log();
  detail::check(status);
  return lane;
}

}  // namespace tenon::python
