// SPDX-License-Identifier: Apache-2.0
// Fetches candidates and rows.
#include "llm/step_logits.hpp"

#include <algorithm>
#include <bit>
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

void StepLogits::take(Context& run, std::vector<float> scales, bool candidates,
                      std::vector<size_t> wanted) {
  run_ = &run;
  scales_ = std::move(scales);
  candidates_ = candidates;
  wanted_ = std::move(wanted);
  wanted_logits_.clear();
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
  if (whole_.empty() && (!place_.data || std::max<size_t>(1, wanted_.size()) == scales_.size()))
    fetch_whole();
  const auto vocab = static_cast<size_t>(vocab_);
  if (!whole_.empty()) return whole_.subspan(row * vocab, vocab);
  const auto at = std::ranges::find(wanted_, row);
  if (at == wanted_.end()) {
    copy_rows({row}, logits_);
    return logits_;
  }
  if (wanted_logits_.empty()) copy_rows(wanted_, wanted_logits_);
  return std::span(wanted_logits_)
      .subspan(static_cast<size_t>(at - wanted_.begin()) * vocab, vocab);
}

void StepLogits::fetch_whole() {
  logits_.resize(scales_.size() * static_cast<size_t>(vocab_));
  run_->get("logits", logits_.data(), logits_.size() * sizeof(float));
  whole_ = logits_;
}

// The device gathers the rows, and one read brings them here. The last row is repeated up to a power of
// two, so that there are few executables, whatever numbers of rows the steps want.
void StepLogits::copy_rows(const std::vector<size_t>& rows, std::vector<float>& to) {
  const auto batch = static_cast<int64_t>(scales_.size());
  const std::string device(place_.device.data, place_.device.size);
  const TensorType type(f32, {batch, vocab_});
  std::vector<int64_t> places(rows.begin(), rows.end());
  places.resize(std::min(std::bit_ceil(rows.size()), scales_.size()), places.back());
  const auto count = static_cast<int64_t>(places.size());
  Copier& copier = copiers_[{batch, count}];
  if (!copier.context) {
    Graph g("llm.rows." + std::to_string(batch) + "." + std::to_string(count));
    const Value all = g.input("logits", type), at = g.input("rows", {i64, {count}});
    g.output("logits_of_rows", g.add(op::gather{.data = all, .indices = at}));
    copier.executable =
        std::make_unique<Executable>(runtime_, g, store_, ExecutableOptions{.device = device});
    copier.context = std::make_unique<Context>(*copier.executable);
  }
  Context& copy = *copier.context;
  copy.bind("logits", type, place_.data, place_.size, device);
  copy.set("rows", places);
  copy.run();
  to.resize(places.size() * static_cast<size_t>(vocab_));
  copy.get("logits_of_rows", to.data(), to.size() * sizeof(float));
  copy.unbind("logits");  // the next step may put its logits elsewhere
}

}  // namespace tenon::llm
