// SPDX-License-Identifier: Apache-2.0
// Adds products of A and B to weights.
#include "llm/tune/merged.hpp"

#include <cmath>

namespace tenon::llm {
namespace {

constexpr std::string_view kEnd = ".weight";

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.size() - kEnd.size());
}

}  // namespace

MergedAdapters::MergedAdapters(const std::vector<AdapterChoice>& choices) {
  for (const AdapterChoice& c : choices) {
    if (!std::isfinite(c.scale))
      throw Error(TENON_INVALID_ARGUMENT, c.folder + ": expected a finite scale");
    adapters_.emplace_back(c.folder);
    scales_.push_back(c.scale);
  }
}

void MergedAdapters::check_model(const ModelConfig& model) const {
  for (const Adapter& a : adapters_) a.check_model(model);
}

bool MergedAdapters::plan(const std::string& tensor, const std::vector<int64_t>& dims,
                          bool inputs_are_rows) {
  if (!tensor.ends_with(kEnd) || dims.size() != 2) return false;
  const int64_t in = dims[inputs_are_rows ? 0 : 1], out = dims[inputs_are_rows ? 1 : 0];
  bool changes = false;
  for (Adapter& a : adapters_)
    if (a.rank(module_of(tensor), in, out, 0) > 0) changes = true;
  if (changes) planned_.emplace(tensor, inputs_are_rows);
  return changes;
}

void MergedAdapters::check_used() const {
  for (const Adapter& a : adapters_) a.check_used();
}

void MergedAdapters::add(const std::string& tensor, const std::vector<int64_t>& dims,
                         std::vector<float>& numbers) const {
  const auto planned = planned_.find(tensor);
  if (planned == planned_.end()) return;
  const bool inputs_are_rows = planned->second;
  const auto in = static_cast<size_t>(dims[inputs_are_rows ? 0 : 1]),
             out = static_cast<size_t>(dims[inputs_are_rows ? 1 : 0]);
  for (size_t i = 0; i < adapters_.size(); ++i) {
    const std::string module = module_of(tensor);
    const std::vector<float> a = adapters_[i].numbers(module, false, -1);
    const std::vector<float> b = adapters_[i].numbers(module, true, -1);
    if (a.empty()) continue;
    const size_t rank = a.size() / in;
    const double scale = scales_[i] * adapters_[i].scale_of(module);
    std::vector<double> row(in);
    for (size_t o = 0; o < out; ++o) {
      std::fill(row.begin(), row.end(), 0.0);
      for (size_t r = 0; r < rank; ++r) {
        const double factor = scale * b[o * rank + r];
        for (size_t k = 0; k < in; ++k) row[k] += factor * a[r * in + k];
      }
      for (size_t k = 0; k < in; ++k) {
        float& number = numbers[inputs_are_rows ? k * out + o : o * in + k];
        number = static_cast<float>(number + row[k]);
      }
    }
  }
}

}  // namespace tenon::llm
