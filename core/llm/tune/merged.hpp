// SPDX-License-Identifier: Apache-2.0
// Adapters that become a part of weights, when a model is converted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "llm/files/convert.hpp"
#include "llm/tune/adapter.hpp"

namespace tenon::llm {

class MergedAdapters : public files::WeightChanges {
 public:
  explicit MergedAdapters(const std::vector<AdapterChoice>& choices);

  void check_model(const ModelConfig& model) const override;
  bool plan(const std::string& tensor, const std::vector<int64_t>& dims,
            bool inputs_are_rows) override;
  void check_used() const override;
  void add(const std::string& tensor, const std::vector<int64_t>& dims,
           std::vector<float>& numbers) const override;

 private:
  std::vector<Adapter> adapters_;
  std::vector<double> scales_;
  std::map<std::string, bool, std::less<>> planned_;  // whether inputs are rows
};

}  // namespace tenon::llm
