// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA) in the layout of PEFT: a folder with adapter_config.json and
// adapter_model.safetensors.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "llm/arch/config.hpp"
#include "llm/arch/lora.hpp"
#include "llm/tune/adapter_config.hpp"

namespace tenon::llm {

// An adapter that a model runs with. scale: 1 applies it as it was trained, 0 not at all.
struct AdapterChoice {
  std::string folder;
  double scale = 1;
};

// One adapter. Its file is mapped; errors name it.
class Adapter {
 public:
  explicit Adapter(const std::string& folder);

  const AdapterConfig& config() const { return config_; }
  // The rank of the change of a module, 0 if there is none; with experts, that of any of them.
  // Throws SHAPE_MISMATCH if A and B do not fit the sizes. experts: as in LowRankPlan::of().
  int64_t rank(const std::string& module, int64_t in, int64_t out, int64_t experts);
  // One of A [rank, in] and B [out, rank] as the file has it, of one expert if `expert` is not
  // negative; empty if the file has none.
  std::vector<float> numbers(const std::string& module, bool b, int64_t expert) const;
  double scale_of(const std::string& module) const;
  // Throws UNSUPPORTED if the file has a tensor that no product has asked for.
  void check_used() const;
  // Throws UNSUPPORTED if the adapter was learned beside other weights: W + BA is not what a model with
  // factors has in a file whose weights have the factors.
  void check_model(const ModelConfig& model) const;

 private:
  // A or B of a module, and the module's name in the file, which patterns of the configuration match: in
  // models that read images it has more parts, as in "model.language_model.layers.0.mlp.up_proj".
  struct Factor {
    Safetensors::Entry tensor;
    std::string module;
  };
  const Factor* find(const std::string& module, bool b) const;

  std::string folder_, file_;
  AdapterConfig config_;
  Safetensors tensors_;
  std::map<std::string, Factor, std::less<>> factors_;  // by their names in a model of text
  std::set<std::string, std::less<>> used_;
};

// The adapters that a model runs with, as one change of each product: the rows of their A and the
// columns of their B side by side, with the scales in B.
class Adapters : public LowRankPlan {
 public:
  // Reads configurations and headers. Throws INVALID_ARGUMENT for a scale that is not finite.
  Adapters(const std::vector<AdapterChoice>& choices, const ModelConfig& config);

  LowRank of(const std::string& module, int64_t in, int64_t out, int64_t experts) override;
  // After the first graph: throws if an adapter changes what the model does not have.
  void check_used() const;
  // Sets the weights of the graphs.
  void load(Store& store) const;

 private:
  struct Product {
    int64_t in, out, experts, rank;
    std::vector<int64_t> ranks;  // of each adapter
  };
  const ModelConfig& config_;
  std::vector<Adapter> adapters_;
  std::vector<double> scales_;
  std::map<std::string, Product, std::less<>> products_;
};

// GGUF files have the rows of q and k, and the value heads of linear attention, in another order than
// folders, and PEFT has that of folders. factor: A [rank, in], or with `b` B [out, rank]. `back`: from
// the order of the file to that of folders.
void reorder_factor(std::vector<float>& factor, const ModelConfig& config,
                    const std::string& module, bool b, const std::vector<int64_t>& dims, bool back);

// Where '#' stands in a module, the number of an expert; the module itself if expert is negative.
std::string of_expert(std::string module, int64_t expert);

}  // namespace tenon::llm
