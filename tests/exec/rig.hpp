// SPDX-License-Identifier: Apache-2.0
// What the tests of runs share: a runtime with the test plugins, a small language model, its data,
// and loops that train and generate.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "../log.hpp"
#include "cli/lm/model.hpp"
#include "tenon/tenon.hpp"

namespace tenon::test {

// TENON_TEST_PLUGIN: the template's file, on a machine that has not the build's test plugins.
inline const Runtime& runtime() {
  static const Runtime the([] {
    RuntimeOptions o{.threads = 2, .use_environment = false};
    if (const char* file = std::getenv("TENON_TEST_PLUGIN"))
      o.plugin_files = {file};
    else
      o.plugin_dirs = {TENON_TEST_PLUGINS};
    return o;
  }());
  return the;
}

inline const lm::Config& small_model() {
  static const lm::Config the{
      .vocab = 256, .dim = 64, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 96, .context = 32};
  return the;
}
inline constexpr int64_t kBatch = 2;

// Uniform in [-1, 1), a pure function of key and i.
inline double noise(uint64_t key, uint64_t i) {
  uint64_t x = (key + 1) * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 31)) * 0x94D049BB133111EBull;
  x ^= x >> 29;
  return static_cast<double>(x >> 11) / static_cast<double>(1ull << 52) - 1;
}

inline std::vector<float> noise_of(uint64_t key, size_t count) {
  std::vector<float> out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<float>(noise(key, i)));
  return out;
}

// Of tests of control flow and derivatives. TENON_CONTROL_DEVICE: another device, on a machine
// without the build's test plugins.
inline std::vector<std::string> control_devices() {
  if (const char* device = std::getenv("TENON_CONTROL_DEVICE")) return {device};
  return {"cpu:0", "template:0", "adversary:0"};
}

// All outputs of one run of a graph without weights.
using Inputs = std::vector<std::pair<std::string, Tensor>>;
inline std::map<std::string, Tensor> run_once(const std::string& device, const Graph& g,
                                              const Inputs& inputs) {
  Store store(runtime());
  store.add_missing(g);
  const Executable executable(runtime(), g, store, {.device = device});
  Context context(executable);
  for (const auto& [name, x] : inputs) context.set(name, x);
  context.run();
  std::map<std::string, Tensor> out;
  for (const auto& [name, value] : g.outputs()) out.emplace(name, context.get(name));
  return out;
}

inline void set_weights(Store& store, const lm::Config& config, double factor = 1) {
  uint64_t key = 0;
  for (const lm::WeightSpec& w : lm::weight_specs(config)) {
    std::vector<float> values(static_cast<size_t>(TensorType(f32, w.dims).elements()), 1.0f);
    ++key;
    if (w.init == lm::WeightSpec::Init::normal) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(factor * 1.7 * w.scale * noise(key, i));
    }
    store.set(TENON_SPACE_WEIGHT, w.name, w.dims, values);
  }
}

// A batch of a text with a pattern to learn; any step has its own.
inline std::vector<int32_t> tokens_of(const lm::Config& c, int64_t step) {
  std::vector<int32_t> tokens;
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t t = 0; t <= c.context; ++t) {
      const int64_t at = 37 * step + 11 * b + t;
      tokens.push_back(static_cast<int32_t>((at % 7) * (at % 5) + 3 * (at % 3) + 40));
    }
  return tokens;
}

// One model under training.
class Trainer {
 public:
  Trainer(const std::string& device, Store& store, const lm::Config& config = small_model())
      : Trainer(ExecutableOptions{.device = device}, store, config,
                lm::train_graph(config, {.batch = kBatch})) {}
  Trainer(const ExecutableOptions& options, Store& store, const lm::Config& config, Graph graph)
      : config_(config), graph_(std::move(graph)) {
    store.add_missing(graph_);
    executable_.emplace_back(runtime(), graph_, store, options);
    context_ = std::make_unique<Context>(executable_[0]);
  }
  void begin(int64_t step) {
    context_->set("tokens", {kBatch, config_.context + 1}, tokens_of(config_, step));
    context_->set("lr", 3e-3f);
  }
  float step(int64_t step) {
    begin(step);
    context_->run();
    return context_->get_scalar<float>("loss");
  }
  std::vector<float> steps(int64_t count) {
    std::vector<float> losses;
    for (int64_t s = 0; s < count; ++s) losses.push_back(step(s));
    return losses;
  }
  const Executable& executable() const { return executable_[0]; }
  Context& context() { return *context_; }

 private:
  lm::Config config_;
  Graph graph_;
  std::vector<Executable> executable_;
  std::unique_ptr<Context> context_;
};

inline std::vector<float> train(const std::string& device, int64_t steps,
                                const lm::Config& config = small_model()) {
  Store store(runtime());
  set_weights(store, config);
  return Trainer(device, store, config).steps(steps);
}

inline const std::vector<int64_t> kPrompt = {84, 104, 101, 32, 108};

// Prefill, then decode on the same cache.
inline std::vector<int64_t> generate(const std::string& device, Store& store, int64_t count,
                                     int64_t seed, const lm::SampleOptions& options,
                                     const lm::Config& config = small_model()) {
  const int64_t bucket = 8;
  store.set<int64_t>(TENON_SPACE_STATE, "rng", {2}, {seed, 0});
  const Graph prefill = lm::prefill_graph(config, bucket, options),
              decode = lm::decode_graph(config, options);
  store.add_missing(prefill);
  store.add_missing(decode);
  const Executable first(runtime(), prefill, store, {.device = device});
  const Executable next(runtime(), decode, store, {.device = device});
  Context start(first), go_on(next);
  std::vector<int64_t> padded = kPrompt;
  padded.resize(static_cast<size_t>(bucket), 0);
  start.set("prompt", {1, bucket}, padded);
  start.set("count", std::vector<int64_t>{static_cast<int64_t>(kPrompt.size())});
  start.run();
  std::vector<int64_t> tokens = {start.get_scalar<int64_t>("token")};
  while (static_cast<int64_t>(tokens.size()) < count) {
    go_on.run();
    tokens.push_back(go_on.get_scalar<int64_t>("token"));
  }
  return tokens;
}

inline std::vector<int64_t> generate(const std::string& device, int64_t count, int64_t seed,
                                     const lm::SampleOptions& options) {
  Store store(runtime());
  set_weights(store, small_model(), 6);
  return generate(device, store, count, seed, options);
}

inline double furthest(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart =
        std::abs(a[i] - b[i]) / std::max(1e-30, std::abs(static_cast<double>(b[i])));
    most = std::isnan(apart) ? INFINITY : std::max(most, apart);
  }
  return most;
}

// The text of the error that `call` must fail with.
inline std::string error_of(const std::function<void()>& call, tenon_code* code = nullptr) {
  try {
    call();
  } catch (const Error& e) {
    if (code) *code = e.code();
    return e.what();
  }
  return "no error";
}

inline bool says(const std::string& text, std::initializer_list<std::string_view> words) {
  for (const std::string_view w : words) {
    if (text.find(w) != std::string::npos) continue;
    MESSAGE("'", text, "' does not say '", w, "'");
    return false;
  }
  return true;
}

}  // namespace tenon::test
