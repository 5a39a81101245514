// SPDX-License-Identifier: Apache-2.0
// An adapter that is learned: which products of a model it changes, its first values, its files.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "llm/arch/config.hpp"
#include "llm/arch/lora.hpp"
#include "llm/tune/adapter_config.hpp"

namespace tenon::llm {

class TunedAdapter : public LowRankPlan {
 public:
  // config.targets empty: all products of attention and MLP, experts included. Graphs of trainings
  // have the dropout, those of evaluations none.
  TunedAdapter(AdapterConfig config, const ModelConfig& model);

  LowRank of(const std::string& module, int64_t in, int64_t out, int64_t experts) override;
  // After the first graph: throws NOT_FOUND if a target names no product, with the names there are.
  // The configuration then has the targets by their names.
  void finish();
  const AdapterConfig& config() const { return config_; }
  // As the adapter's file has it. In a model that reads images, too, the targets are whole names: last parts
  // of names would mean modules of its other parts as well.
  AdapterConfig stored_config() const;
  void set_base_model(const std::string& name) { config_.base_model = name; }
  int64_t numbers() const;  // that are learned

  // Adds all weights to a graph that does not use them otherwise.
  void add_weights(Graph& graph) const;
  // A is uniform within 1 / sqrt(in), as PEFT chooses it; B is zero.
  void set_first_values(Store& store, uint64_t seed) const;
  // Writes adapter_model.safetensors of PEFT, with metadata.
  void save(const Runtime& runtime, const Store& store, const std::string& file,
            const std::vector<std::pair<std::string, std::string>>& metadata) const;
  // Sets the weights from such a file. Throws if it has others.
  void load(Store& store, const std::string& file) const;

 private:
  struct Product {
    int64_t in, out, experts;
  };
  // The name of a module in the adapter's file; expert: as in of_expert().
  std::string stored_name(const std::string& module, int64_t expert) const;
  // Calls use(module, name in the store, whether it is B, dims of one expert, experts) for the A and
  // the B of each product; experts 0: the product has one of each.
  template <class Use>
  void each_tensor(Use use) const;

  AdapterConfig config_;
  const ModelConfig& model_;
  const bool all_;  // no targets were named
  std::map<std::string, Product, std::less<>> products_;
  std::set<std::string, std::less<>> seen_;  // last parts of the names of all products
};

}  // namespace tenon::llm
