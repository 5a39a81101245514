// SPDX-License-Identifier: Apache-2.0
// A small graph on a device of the cuda plugin, from opening the device to closing it, and the
// values that it must compute.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::test {

using Floats = std::vector<float>;

// y = matmul(x, w) + table[ids], s = y * s: cuBLASLt, kernels of a text and generated ones, an
// error word, and state that is updated.
inline constexpr int64_t kRows = 3, kColumns = 5, kTable = 7;
inline const char* const kGraph = R"(graph {
  input x: f32[3,5]
  input ids: i64[3]
  weight w: f32[5,5]
  weight table: f32[7,5]
  state s: f32[3,5]
  e = gather(table, ids)
  p = matmul(x, w)
  y = binary(p, e) {kind="add"}
  n = binary(y, s) {kind="mul"}
  update s = n
  output "y" = y
})";

inline float number(int64_t seed, int64_t i) {
  return static_cast<float>((seed * 31 + i * 17) % 23 - 11) / 8;
}
inline Floats numbers(int64_t seed, int64_t count) {
  Floats all;
  for (int64_t i = 0; i < count; ++i) all.push_back(number(seed, i));
  return all;
}

// What the graph computes, in small multiples of 1/64: the same whatever the order of sums.
struct Expected {
  Floats s = numbers(4, kRows* kColumns);
  Floats step(int64_t run) {
    const Floats x = numbers(10 + run, kRows * kColumns), w = numbers(2, kColumns * kColumns),
                 table = numbers(3, kTable * kColumns);
    Floats y;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        float sum = 0;
        for (int64_t k = 0; k < kColumns; ++k)
          sum +=
              x[static_cast<size_t>(r * kColumns + k)] * w[static_cast<size_t>(k * kColumns + c)];
        y.push_back(sum + table[static_cast<size_t>((r + run) % kTable * kColumns + c)]);
      }
    for (size_t i = 0; i < y.size(); ++i) s[i] *= y[i];
    return y;
  }
};

inline RuntimeOptions runtime_options() { return {.threads = 2, .use_environment = false}; }
// Its devices are closed with the last thing that uses them.
inline const Runtime& shared_runtime() {
  static const Runtime the(runtime_options());
  return the;
}

// The graph on a device. Every function throws what goes wrong.
class Machine {
 public:
  // fallback is allowed on "auto" alone.
  explicit Machine(ExecutableOptions options = {.device = "cuda:0"},
                   const Runtime& runtime = shared_runtime())
      : runtime_(runtime), store_(runtime_), options_(std::move(options)) {
    options_.allow_fallback = options_.device == "auto";
  }

  const Runtime& runtime() const { return runtime_; }
  Store& store() { return store_; }
  Context& context() { return *context_; }
  void fill() {
    store_.set<float>(TENON_SPACE_WEIGHT, "w", {kColumns, kColumns},
                      numbers(2, kColumns * kColumns));
    store_.set<float>(TENON_SPACE_WEIGHT, "table", {kTable, kColumns},
                      numbers(3, kTable * kColumns));
    store_.set<float>(TENON_SPACE_STATE, "s", {kRows, kColumns}, numbers(4, kRows * kColumns));
  }
  void compile() {
    executable_ =
        std::make_unique<Executable>(runtime_, Graph::parse(kGraph, "stub"), store_, options_);
    context_ = std::make_unique<Context>(*executable_);
  }
  Floats step(int64_t run, bool async = false) {
    context_->set("x", {kRows, kColumns}, numbers(10 + run, kRows * kColumns));
    std::vector<int64_t> ids;
    for (int64_t r = 0; r < kRows; ++r) ids.push_back((r + run) % kTable);
    context_->set("ids", ids);
    if (async) {
      context_->run_async();
      context_->wait();
    } else {
      context_->run();
    }
    return context_->get<float>("y");
  }
  Floats state() { return store_.get<float>(TENON_SPACE_STATE, "s"); }

 private:
  const Runtime& runtime_;
  Store store_;
  ExecutableOptions options_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Context> context_;
};

// Opens, compiles, runs three times (the second is recorded, the third replayed) and gives all
// back. Throws what is refused; else says whether all values were right.
inline bool whole_life(bool async = false, const ExecutableOptions& options = {.device = "cuda:0"},
                       const Runtime& runtime = shared_runtime()) {
  Expected expected;
  Machine machine(options, runtime);
  machine.fill();
  machine.compile();
  bool right = true;
  for (int64_t run = 0; run < 3; ++run) right &= machine.step(run, async) == expected.step(run);
  return (machine.state() == expected.s) && right;
}

}  // namespace tenon::test
