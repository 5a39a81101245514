// SPDX-License-Identifier: Apache-2.0
// Adapters that become a part of weights, when a model is converted.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "llm/tune/adapter.hpp"

namespace tenon::llm {

class MergedAdapters {
 public:
  explicit MergedAdapters(const std::vector<AdapterChoice>& choices);

  // Asked for each tensor of the folder's names, before contents are read: whether it changes.
  // Throws SHAPE_MISMATCH if the adapter does not fit.
  bool plan(const std::string& tensor, const std::vector<int64_t>& dims);
  // After the last tensor: throws if an adapter changes what the model does not have.
  void check_used() const;
  // Adds the changes to the numbers of a planned tensor [out, in], in the order of folders.
  void add(const std::string& tensor, const std::vector<int64_t>& dims,
           std::vector<float>& numbers) const;

 private:
  std::vector<Adapter> adapters_;
  std::vector<double> scales_;
  std::set<std::string, std::less<>> planned_;
};

}  // namespace tenon::llm
