// SPDX-License-Identifier: Apache-2.0
// Byte-level language models as tenon graphs: training, evaluation, prefill and decode. Weights of
// the Llama-style decoder have the names and layout of Hugging Face's LlamaForCausalLM.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::lm {

// Angles of the rotary embedding; theta and the scalings of long contexts as Hugging Face
// transformers defines them.
struct Rope {
  enum class Type : uint8_t { plain, linear, llama3 } type = Type::plain;
  double theta = 10000;
  double factor = 1;                                 // of linear and llama3
  double low_freq_factor = 1, high_freq_factor = 4;  // of llama3
  int64_t original_context = 8192;                   // of llama3

  // Radians per position, of each pair of a head's numbers.
  std::vector<double> frequencies(int64_t head_dim) const;
};

// llama: attention over a cache of keys and values. mamba: selective scans. delta: linear attention
// with the gated delta rule. The last two are recurrent: generation has a state of constant size.
enum class Arch : uint8_t { llama, mamba, delta };
// Their names, in the order of the values.
inline constexpr const char* kArchs[] = {"llama", "mamba", "delta"};

struct Config {
  Arch arch = Arch::llama;
  int64_t vocab = 256;
  int64_t dim = 256;
  int64_t layers = 6;
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t head_size = 0;  // 0: dim / heads
  int64_t ffn = 688;
  int64_t context = 256;  // positions of the rope tables, capacity of the cache
  Rope rope{};
  double norm_eps = 1e-5;
  double init_range = 0.02;         // standard deviation of initial weights
  double attention_dropout = 0;     // must be 0 to train
  std::string activation = "silu";  // a kind of unary
  bool attention_bias = false;      // in q, k, v and o
  bool mlp_bias = false;            // in gate, up and down
  bool tied = false;                // the head is the embedding
  tenon_dtype dtype = f32;          // of weights, activations and caches: f32 or bf16

  // Of the recurrent models.
  int64_t expand = 2;       // mamba: channels of a scan / dim; delta: size of values / of keys
  int64_t conv_width = 4;   // of the convolution along time
  int64_t state_size = 16;  // mamba: numbers that a channel keeps

  const char* arch_name() const { return kArchs[static_cast<size_t>(arch)]; }
  bool recurrent() const { return arch != Arch::llama; }
  int64_t head_dim() const { return head_size > 0 ? head_size : dim / heads; }
  int64_t inner() const { return expand * dim; }       // mamba: channels of a scan
  int64_t dt_rank() const { return (dim + 15) / 16; }  // mamba: width in front of dt_proj
  // Numbers that a layer of a recurrent model keeps from step to step: inputs of its convolution,
  // and the state of its recurrence.
  int64_t conv_channels() const {
    return arch == Arch::mamba ? inner() : heads * head_dim() * (2 + expand);
  }
  int64_t recurrent_state() const {
    return arch == Arch::mamba ? inner() * state_size : heads * head_dim() * head_dim() * expand;
  }
  // Throws Error(invalid_argument) naming the field.
  void check() const;
};

struct WeightSpec {
  std::string name;
  std::vector<int64_t> dims;
  // counting: log(1), log(2), .. log(scale), again and again. time_step: b with softplus(b) between
  // 0.001 and 0.1, each power of ten as likely.
  enum class Init { zeros, ones, normal, counting, time_step } init;
  double scale;  // standard deviation for normal
  tenon_dtype dtype;
};
// Every weight of the model, in the order of the layers.
std::vector<WeightSpec> weight_specs(const Config& config);
// How many numbers they have.
double parameter_count(const Config& config);

struct TrainOptions {
  int64_t batch = 8;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  bool checkpoint =
      false;  // layers run again in the backward pass instead of keeping what they made
};

// Inputs: tokens i32 [batch, context + 1], lr f32 []. Outputs: loss f32 [], norm f32 []. Updates
// weights and moments.
Graph train_graph(const Config& config, const TrainOptions& options);

// The same step in two graphs: the first, run for each part of the batch, adds gradients up. Input:
// tokens, output: loss, of its part.
Graph accumulate_graph(const Config& config, const TrainOptions& options);
// The second makes the step. Input: lr, output: norm.
Graph apply_graph(const Config& config, const TrainOptions& options);

// Inputs: tokens i32 [batch, context + 1]. Output: loss f32 [] (mean over all tokens).
Graph eval_graph(const Config& config, int64_t batch);

struct SampleOptions {
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
};

// Generation has state: token i64 [1, 1], length i64 [1], rng i64 [2] (seed, offset), and for each
// layer of llama cache.<layer>.k and .v [1, context, kv_heads, head_dim], of the recurrent models
// cache.<layer>.conv and .scan. Each graph gives the next token as output token i64 [1] and advances
// the state. Input of prefill: prompt i64 [1, bucket].
// llama: a prefill starts a sequence. Its prompt is padded at the end; a second input, count i64 [1],
// says how many of its tokens count. Recurrent: a prefill continues the sequence of the state by
// `bucket` tokens.
Graph prefill_graph(const Config& config, int64_t bucket, const SampleOptions& options);
// No input at all.
Graph decode_graph(const Config& config, const SampleOptions& options);

// Logits of a whole sequence, for comparison with other implementations. Input: tokens i64 [1,
// length]; output: logits f32 [1, length, vocab].
Graph logits_graph(const Config& config, int64_t length);

}  // namespace tenon::lm
