// SPDX-License-Identifier: Apache-2.0
// The logits of a step that draws need: the candidates at once, all of a sequence when they are wanted.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llm/sample/sampler.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

class StepLogits {
 public:
  // vocab: logits of a sequence.
  StepLogits(const Runtime& runtime, const Store& store, int64_t vocab)
      : runtime_(runtime), store_(store), vocab_(vocab) {}

  // Of the run that this context made, for sequences with these scales. The context, and this object,
  // stay as they are until the last use of a row. candidates: the run has them. wanted: rows of which
  // all() will be called; one copy brings them all.
  void take(Context& run, std::vector<float> scales, bool candidates,
            std::vector<size_t> wanted = {});
  // Of a sequence of that run. With candidates, all() gives logits that are valid until the next call of
  // all() of any row. Without, many threads may call it, and they are valid until the next take().
  NextLogits row(size_t index);

 private:
  std::span<const float> all(size_t row);
  void fetch_whole();
  void copy_rows(const std::vector<size_t>& rows, std::vector<float>& to);

  const Runtime& runtime_;
  const Store& store_;
  int64_t vocab_;
  Context* run_ = nullptr;
  bool candidates_ = false;
  tenon_tensor place_{};          // of the logits of all sequences
  std::span<const float> whole_;  // the same in host memory, where it is known
  std::vector<float> scales_, logits_, sent_;
  std::vector<size_t> wanted_;
  std::vector<float> wanted_logits_;  // empty until a row of them is used
  std::vector<int64_t> tokens_;
  // Copies rows of logits that are in memory of the device.
  struct Copier {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Context> context;
  };
  std::map<std::pair<int64_t, int64_t>, Copier> copiers_;  // by batch and number of rows
};

}  // namespace tenon::llm
