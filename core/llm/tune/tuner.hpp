// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a language model with an adapter (LoRA): the weights of the model stay as they are, in
// blocks or not, and the adapter learns. Used by one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "llm/tune/adapter_config.hpp"
#include "llm/tune/examples.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

struct TuneOptions {
  std::string device = "auto";
  AdapterConfig adapter{};  // targets empty: all products of attention and MLP
  int64_t batch = 1;        // sequences of a run
  int64_t accumulate = 1;   // runs of a step
  int64_t length = 0;       // most tokens that a sequence learns from; 0: 512, or the context
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double clip_norm = 1;     // 0: none
  uint64_t seed = 0;        // of first values, the order of examples, and dropout
  bool checkpoint = false;  // the backward pass computes layers, and logits, again
  // Dtype of activations. NONE: f32 on the cpu and for models in f16, elsewhere that of the weights.
  // The adapter is f32.
  tenon_dtype compute = TENON_DTYPE_NONE;
  ExecutableOptions executable{};  // its device is not used
};

class Tuner {
 public:
  // model: as for Engine. Checks everything before it reads the contents of weights. Throws
  // UNSUPPORTED, with the name of the architecture, if the model cannot be trained.
  Tuner(const Runtime& runtime, const std::string& model, const TuneOptions& options);
  ~Tuner();

  struct Facts {
    std::string architecture;
    int64_t model_numbers = 0, adapter_numbers = 0;
    uint64_t weight_bytes = 0;
    tenon_dtype compute = TENON_DTYPE_NONE;
    int64_t length = 0;  // as in TuneOptions
  };
  Facts facts() const;
  // With the names of targets.
  const AdapterConfig& adapter() const;
  AdapterConfig stored_adapter() const;  // TunedAdapter::stored_config()

  // Throws INVALID_ARGUMENT for tokens that the model does not have.
  void check(const Examples& all) const;

  // First values for adapter and optimizer.
  void begin();
  // What a step learned, per token. norm: of the gradients, before clipping.
  struct Result {
    double loss = 0, norm = 0;
    int64_t tokens = 0;  // that were learned
  };
  // Step number `step`, counted from 0, from its examples of `all`. Nothing if stop() became true
  // between two runs; then nothing has changed.
  std::optional<Result> step(const Examples& all, int64_t step, double learning_rate,
                             const std::function<bool()>& stop);
  // The loss per token of all examples, without dropout; nothing if stop() became true.
  std::optional<double> evaluate(const Examples& all, const std::function<bool()>& stop);

  // adapter_model.safetensors of PEFT, and the state of the optimizer.
  void save(const std::string& adapter_file, const std::string& state_file, int64_t step) const;
  void load(const std::string& adapter_file, const std::string& state_file);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tenon::llm
