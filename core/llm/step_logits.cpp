// SPDX-License-Identifier: Apache-2.0
// Fetches candidates and rows.
#include "llm/step_logits.hpp"

#include <algorithm>
#include <string>

#include "llm/arch/step.hpp"

namespace tenon::llm {
namespace {

// Without data if the device gives no address.
tenon_tensor place_of(Context& run) {
  try {
    return run.output("logits");
  } catch (const Error& e) {
    if (e.code() != TENON_UNSUPPORTED) throw;
    return {};
  }
}

}  // namespace

void StepLogits::take(Context& run, std::vector<float> scales, bool candidates) {
  run_ = &run;
  scales_ = std::move(scales);
  candidates_ = candidates;
  whole_ = {};
  place_ = place_of(run);
  if (place_.data && place_.device.size == 0)
    whole_ = {static_cast<const float*>(place_.data), place_.size / sizeof(float)};
  else if (!candidates)
    fetch_whole();
  if (!candidates) return;
  const auto count = static_cast<size_t>(step_candidates(vocab_));
  sent_.resize(scales_.size() * (2 * count + 1));
  run.get("candidates", sent_.data(), sent_.size() * sizeof(float));
  tokens_.resize(scales_.size() * count);
  for (size_t row = 0; row < scales_.size(); ++row)
    std::copy_n(sent_.begin() + static_cast<ptrdiff_t>(row * (2 * count + 1) + count), count,
                tokens_.begin() + static_cast<ptrdiff_t>(row * count));
}

NextLogits StepLogits::row(size_t index) {
  const auto all = [this, index] { return this->all(index); };
  if (!candidates_) return {.all = all};
  const auto count = static_cast<size_t>(step_candidates(vocab_));
  const std::span<const float> sent =
      std::span(sent_).subspan(index * (2 * count + 1), 2 * count + 1);
  return {.candidates = Candidates{.logits = sent.first(count),
                                   .tokens = std::span(tokens_).subspan(index * count, count),
                                   .mass = sent.back(),
                                   .scale = scales_[index]},
          .all = all};
}

std::span<const float> StepLogits::all(size_t row) {
  if (whole_.empty() && (scales_.size() == 1 || !place_.data)) fetch_whole();
  const auto vocab = static_cast<size_t>(vocab_);
  if (!whole_.empty()) return whole_.subspan(row * vocab, vocab);
  copy_row(row);
  return logits_;
}

void StepLogits::fetch_whole() {
  logits_.resize(scales_.size() * static_cast<size_t>(vocab_));
  run_->get("logits", logits_.data(), logits_.size() * sizeof(float));
  whole_ = logits_;
}

// The device copies the row out of its memory, and only that comes here.
void StepLogits::copy_row(size_t row) {
  const auto batch = static_cast<int64_t>(scales_.size());
  const std::string device(place_.device.data, place_.device.size);
  const TensorType type(f32, {batch, vocab_});
  Copier& copier = copiers_[batch];
  if (!copier.context) {
    Graph g("llm.row." + std::to_string(batch));
    const Value all = g.input("logits", type), at = g.input("row", {i64, {1}});
    g.output("logits_of_row", g.add(op::gather{.data = all, .indices = at}));
    copier.executable =
        std::make_unique<Executable>(runtime_, g, store_, ExecutableOptions{.device = device});
    copier.context = std::make_unique<Context>(*copier.executable);
  }
  Context& copy = *copier.context;
  copy.bind("logits", type, place_.data, place_.size, device);
  copy.set("row", std::vector<int64_t>{static_cast<int64_t>(row)});
  copy.run();
  logits_.resize(static_cast<size_t>(vocab_));
  copy.get("logits_of_row", logits_.data(), logits_.size() * sizeof(float));
  copy.unbind("logits");  // the next step may put its logits elsewhere
}

}  // namespace tenon::llm
