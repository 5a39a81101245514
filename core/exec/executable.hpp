// SPDX-License-Identifier: Apache-2.0
// A graph bound to devices and a store. Plans are made per binding of the graph's symbols and kept.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/prepare.hpp"
#include "exec/runtime.hpp"
#include "exec/store.hpp"
#include "plan/plan.hpp"

namespace tenon::core {

struct ExecutableOptions {
  std::string device = "auto";
  PlanOptions plan;
  CompileProgress progress{};  // of plan.aot; may be empty
};

// A plan and the buffers of its constants, shared by all contexts.
struct BoundPlan {
  Plan plan;
  std::vector<std::vector<std::shared_ptr<Buffer>>>
      constants;  // [device][constant], null where not read
};

using SymbolNumbers = std::map<std::string, int64_t>;

class Executable {
 public:
  // Compiles at once when the graph has no symbols.
  Executable(std::shared_ptr<Runtime> runtime, Graph graph, std::shared_ptr<Store> store,
             ExecutableOptions options);

  const Graph& graph() const { return graph_; }
  Runtime& runtime() const { return *runtime_; }
  const std::shared_ptr<Store>& store() const { return store_; }
  const PlanOptions& plan_options() const { return options_.plan; }
  // One plan per binding; the last kMostPlans are kept. [any thread]
  std::shared_ptr<const BoundPlan> plan_for(const SymbolNumbers& numbers);
  // The numbers that these input types give the graph's symbols; fails where they contradict it or
  // each other.
  SymbolNumbers bind_inputs(const std::map<std::string, Type, std::less<>>& types) const;

 private:
  static constexpr size_t kMostPlans = 64;
  std::shared_ptr<const BoundPlan> make(const SymbolNumbers& numbers) const;

  std::shared_ptr<Runtime> runtime_;
  Graph graph_;
  std::shared_ptr<Store> store_;
  ExecutableOptions options_;
  std::vector<std::shared_ptr<Device>> devices_;  // the wanted one, then who takes what it refuses

  std::mutex mutex_;
  std::list<std::pair<SymbolNumbers, std::shared_ptr<const BoundPlan>>> plans_;  // last used first
};

}  // namespace tenon::core
