// SPDX-License-Identifier: Apache-2.0
// Runs an executable with objects of Python: the fast path of calls.
#pragma once

#include <condition_variable>
#include <mutex>

#include "tensor.hpp"

namespace tenon::python {

// New addresses cost about 1 us for each step of a program, the copy of 32 KiB 3 us: inputs and
// outputs in host memory up to this size are copied, so that addresses stay the same.
constexpr uint64_t kCopied = 32 << 10;

// Tells a thread, and an event loop, that a run has ended.
class Ending {
 public:
  Ending() = default;
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  void begin();
  void end() noexcept;                        // called by the run, in any thread
  bool wait(std::chrono::milliseconds most);  // has it ended?
  int file();                                 // becomes readable when the run ends
  int take_file();                            // now the caller's; negative if nobody asked for one

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  int file_ = -1;
};

// A context, and what its current bindings borrow. One run at a time.
struct Lane {
  explicit Lane(tenon_executable* executable, size_t inputs);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  tenon_context* context = nullptr;
  Ending ending{};
  std::vector<Loan> loans;           // [input]: of the memory that the context is bound to
  std::vector<View> views;           // [input]
  std::vector<bool> given;           // [input]: set or bound by the last run
  std::vector<size_t> lent{};        // inputs in host memory that the caller lent
  std::vector<std::string> bound{};  // outputs in memory of the caller
  std::vector<std::weak_ptr<void>> on_device{};  // outputs of the last run that are on a device
  bool quick = false;  // the next run takes little time, like the last one
};

class Runner {
 public:
  struct Input {
    std::string name;
    nb::object key;  // the name
    TensorType type;
  };
  Runner(nb::object executable, nb::object runtime, const Graph& graph, bool copies_inputs,
         const Symbols& numbers);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  nb::object call(nb::handle args, nb::handle kwargs);
  // Inputs as a list; outputs as a tree of this structure.
  nb::object call_tree(nb::handle leaves, nb::handle structure);
  // Runs, and copies the only output to host memory.
  PyTensor copy_to_host(nb::handle args);
  std::shared_ptr<Lane> start(nb::handle args, nb::handle kwargs);
  nb::object results(Lane& lane, nb::handle out = {});
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(executable_.ptr());
    Py_VISIT(runtime_.ptr());
    return 0;
  }
  std::shared_ptr<Lane> take_lane();
  void give_back(std::shared_ptr<Lane> lane) noexcept;

 private:
  void bind_all(std::shared_ptr<Lane>& lane, nb::handle args, nb::handle kwargs, nb::object& out);
  void bind(Lane& lane, size_t input, nb::handle object);
  void bind_number(Lane& lane, size_t input, nb::handle number);
  void end_loans(Lane& lane);
  void bind_outputs(Lane& lane, nb::handle out);
  void check_numbers(size_t input, const View& view) const;
  size_t input_named(nb::handle key) const;
  void* stream_on(Lane& lane, const std::string& device, const std::string& what);
  nb::object stream_for(Lane& lane, nb::handle object, const std::string& what);
  void run(Lane& lane);
  bool time_depends_on_data(const Lane& lane);
  PyTensor result(Lane& lane, size_t output);
  nb::list all_results(Lane& lane);
  PyTensor copied_result(Lane& lane, size_t output);

  nb::object executable_, runtime_;
  tenon_executable* handle_;
  tenon_runtime* runtime_handle_;
  std::vector<Input> inputs_;
  std::vector<std::string> outputs_;
  struct Symbol {
    std::string name;
    size_t input, axis;  // where it has its number
  };
  std::vector<Symbol> symbols_;
  Symbols numbers_;
  std::optional<bool> time_depends_on_data_{};
  bool has_symbols_ = false, takes_out_ = true, copies_inputs_ = false;
  std::vector<std::vector<int64_t>> bound_dims_;  // [input]: with the numbers that were bound
  std::string numbers_text_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> idle_;
};

}  // namespace tenon::python
