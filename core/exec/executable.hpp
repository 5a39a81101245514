// SPDX-License-Identifier: Apache-2.0
// A graph bound to devices and a store. Plans are made per binding of the graph's symbols and kept.
#pragma once

#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/buckets.hpp"
#include "exec/prepare.hpp"
#include "exec/runtime.hpp"
#include "exec/store.hpp"
#include "plan/plan.hpp"
#include "plan/rewrite/buckets.hpp"

namespace tenon::core {

struct ExecutableOptions {
  std::string device = "auto";  // or a list: "cuda:0,cuda:1"
  PlanOptions plan;             // named, pins and home are set by the executable
  bool allow_fallback = true;   // to the cpu, where the list does not name it
  std::vector<std::pair<std::string, std::string>> pins{};  // pattern, device of the list
  std::vector<std::pair<std::string, Buckets>> buckets{};   // of symbols, each named once
  bool keep_extents = true;    // false: outputs are as large as their bounds
  CompileProgress progress{};  // of plan.aot; may be empty
};

// A plan and the buffers of its constants, shared by all contexts.
struct BoundPlan {
  Plan plan;
  std::vector<std::vector<std::shared_ptr<Buffer>>>
      constants;                                  // [device][constant], null where not read
  std::vector<std::shared_ptr<ArenaPool>> pools;  // [device]; none of a function's plan
  std::vector<std::vector<std::shared_ptr<const BoundPlan>>>
      functions;  // [region], of a hosted one
  // Of a plan with padding: inputs that take the numbers of a run, outputs that give extents, and how
  // much of each output of the graph counts. Empty: nothing is padded.
  std::vector<PaddedGraph::Number> numbers;
  std::vector<uint32_t> extents;  // in plan.outputs, kNone: no output depends on it
  std::vector<Lengths> lengths;   // of the graph's outputs
};

using SymbolNumbers = std::map<std::string, int64_t>;
using OutputTypes = std::map<std::string, Type, std::less<>>;

class Executable {
 public:
  // Compiles at once when the graph has no symbols.
  Executable(std::shared_ptr<Runtime> runtime, Graph graph, std::shared_ptr<Store> store,
             ExecutableOptions options);

  const Graph& graph() const { return graph_; }
  // Does an output or an update need this input?
  bool needs(Value input) const { return needed_[input.id]; }
  Runtime& runtime() const { return *runtime_; }
  const std::shared_ptr<Store>& store() const { return store_; }
  const PlanOptions& plan_options() const { return options_.plan; }
  const std::vector<std::shared_ptr<Device>>& devices() const { return devices_; }
  // One plan per binding; the last kMostPlans are kept. A thread that needs a new plan makes it;
  // others wait only for a plan that they need themselves. [any thread]
  // exact: the sizes of the plan are these numbers, also of symbols with buckets.
  std::shared_ptr<const BoundPlan> plan_for(const SymbolNumbers& numbers, bool exact = false);
  // What a run with these numbers gives. Fails as that run would without buckets. [any thread]
  std::shared_ptr<const OutputTypes> output_types(const BoundPlan& bound,
                                                  const SymbolNumbers& numbers);
  // The numbers that these input types give the graph's symbols; fails where they contradict it or
  // each other.
  SymbolNumbers bind_inputs(const std::map<std::string, Type, std::less<>>& types) const;

 private:
  static constexpr size_t kMostPlans = 64;
  struct Sizes {
    SymbolNumbers sizes{};
    std::vector<std::string> padded{};  // symbols whose number may be lower
    friend bool operator==(const Sizes&, const Sizes&) = default;
  };
  Sizes sizes_for(const SymbolNumbers& numbers, bool exact) const;
  void check_buckets() const;
  void check_lengths(const BoundPlan& bound, const SymbolNumbers& numbers,
                     const OutputTypes& types) const;
  bool chooses() const;
  void take_pins();
  void take_limits();
  std::shared_ptr<const BoundPlan> make(const Sizes& sizes) const;
  PaddedGraph bound_graph(const Sizes& sizes) const;
  HomeOf homes() const;
  void keep_homes(const Plan& plan) const;
  CompileProgress progress() const;

  std::shared_ptr<Runtime> runtime_;
  Graph graph_;
  std::vector<bool> needed_;  // by value
  std::shared_ptr<Store> store_;
  ExecutableOptions options_;
  std::vector<std::shared_ptr<Device>> devices_;   // the named ones, then the fallback device
  std::vector<std::shared_ptr<ArenaPool>> pools_;  // of devices_, for as long as this lives
  mutable std::mutex progress_mutex_;              // held while options_.progress is called

  using PlanFuture = std::shared_future<std::shared_ptr<const BoundPlan>>;
  std::mutex mutex_;                               // guards both lists
  std::list<std::pair<Sizes, PlanFuture>> plans_;  // last used first
  std::list<std::pair<SymbolNumbers, std::shared_ptr<const OutputTypes>>>
      output_types_;  // likewise
};

}  // namespace tenon::core
