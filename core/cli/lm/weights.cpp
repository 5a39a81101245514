// SPDX-License-Identifier: Apache-2.0
// The limits of a configuration, and the weights of the model that it describes.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "cli/lm/model.hpp"

namespace tenon::lm {
namespace {

void require(bool holds, const std::string& text) {
  if (!holds) throw Error(TENON_INVALID_ARGUMENT, "config: " + text);
}

}  // namespace

void Config::check() const {
  constexpr int64_t most = int64_t{1} << 20;
  const auto positive = [](int64_t v, const char* name) {
    require(v > 0 && v <= most, std::string(name) + " is " + std::to_string(v) +
                                    ", expected 1 to " + std::to_string(most));
  };
  positive(vocab, "vocab_size");
  positive(dim, "hidden_size");
  positive(layers, "num_hidden_layers");
  positive(context, "max_position_embeddings");
  require(std::isfinite(init_range) && init_range >= 0, "initializer_range must be at least 0");
  require(std::isfinite(norm_eps) && norm_eps >= 0, "rms_norm_eps must be at least 0");
  if (recurrent()) {
    positive(expand, "expand");
    positive(inner(), "expand * hidden_size");
    require(conv_width >= 2 && conv_width <= 16,
            "conv_kernel is " + std::to_string(conv_width) + ", expected 2 to 16");
  }
  if (arch == Arch::mamba) return positive(state_size, "state_size");
  positive(heads, "num_attention_heads");
  positive(kv_heads, "num_key_value_heads");
  positive(ffn, "intermediate_size");
  require(head_size >= 0 && head_size <= most,
          "head_dim is " + std::to_string(head_size) + ", expected 1 to " + std::to_string(most));
  require(dim % heads == 0, "hidden_size " + std::to_string(dim) +
                                " is no multiple of num_attention_heads " + std::to_string(heads));
  if (arch == Arch::delta) return;
  require(head_dim() % 2 == 0 && head_dim() > 0,
          "head_dim, else hidden_size / num_attention_heads, is " + std::to_string(head_dim()) +
              ", expected an even number for rope");
  require(heads % kv_heads == 0, "num_attention_heads " + std::to_string(heads) +
                                     " is no multiple of num_key_value_heads " +
                                     std::to_string(kv_heads));
  const auto above_zero = [](double v, const char* name) {
    require(std::isfinite(v) && v > 0,
            std::string(name) + " is " + std::to_string(v) + ", expected a number above 0");
  };
  above_zero(rope.theta, "rope_theta");
  above_zero(rope.factor, "the factor of rope");
  above_zero(rope.low_freq_factor, "low_freq_factor");
  above_zero(rope.high_freq_factor, "high_freq_factor");
  positive(rope.original_context, "original_max_position_embeddings");
  require(rope.type != Rope::Type::llama3 || rope.high_freq_factor > rope.low_freq_factor,
          "high_freq_factor must be above low_freq_factor");
  require(attention_dropout >= 0 && attention_dropout < 1,
          "attention_dropout must be at least 0 and below 1");
}

namespace {

// Collects the weights of a model.
class Specs {
 public:
  explicit Specs(const Config& config) : c_(config) {}

  std::vector<WeightSpec> all() {
    add("model.embed_tokens.weight", {c_.vocab, c_.dim}, Init::normal, c_.init_range);
    for (int64_t i = 0; i < c_.layers; ++i) {
      const std::string n = "model.layers." + std::to_string(i) + ".";
      add(n + "input_layernorm.weight", {c_.dim}, Init::ones);
      if (c_.arch == Arch::llama) attention(n + "self_attn.");
      if (c_.arch == Arch::mamba) mamba(n + "mixer.");
      if (c_.arch == Arch::delta) delta(n + "linear_attn.");
      if (c_.arch == Arch::mamba) continue;
      add(n + "post_attention_layernorm.weight", {c_.dim}, Init::ones);
      project(n + "mlp.gate_proj", c_.ffn, c_.dim, c_.init_range, c_.mlp_bias);
      project(n + "mlp.up_proj", c_.ffn, c_.dim, c_.init_range, c_.mlp_bias);
      project(n + "mlp.down_proj", c_.dim, c_.ffn, residual_, c_.mlp_bias);
    }
    add("model.norm.weight", {c_.dim}, Init::ones);
    if (!c_.tied) add("lm_head.weight", {c_.vocab, c_.dim}, Init::normal, c_.init_range);
    return std::move(specs_);
  }

 private:
  using Init = WeightSpec::Init;

  void add(const std::string& name, std::vector<int64_t> dims, Init init, double scale = 0) {
    specs_.push_back({name, std::move(dims), init, scale, c_.dtype});
  }
  // Parameters of a recurrence are f32, as their ops require. They are flat, because the weight
  // decay of the optimizer acts on matrices only.
  void recurrence(const std::string& name, int64_t size, Init init, double scale = 0) {
    specs_.push_back({name, {size}, init, scale, f32});
  }
  void project(const std::string& name, int64_t out, int64_t in, double scale, bool bias = false) {
    add(name + ".weight", {out, in}, Init::normal, scale);
    if (bias) add(name + ".bias", {out}, Init::zeros);
  }
  void attention(const std::string& n) {
    const int64_t q = c_.heads * c_.head_dim(), kv = c_.kv_heads * c_.head_dim();
    project(n + "q_proj", q, c_.dim, c_.init_range, c_.attention_bias);
    project(n + "k_proj", kv, c_.dim, c_.init_range, c_.attention_bias);
    project(n + "v_proj", kv, c_.dim, c_.init_range, c_.attention_bias);
    project(n + "o_proj", c_.dim, q, residual_, c_.attention_bias);
  }
  void convolution(const std::string& n) {
    add(n + "conv1d.weight", {c_.conv_width, c_.conv_channels()}, Init::normal,
        spread(c_.conv_width));
    add(n + "conv1d.bias", {c_.conv_channels()}, Init::zeros);
  }
  void mamba(const std::string& n) {
    const int64_t d = c_.inner(), rank = c_.dt_rank();
    project(n + "in_proj", 2 * d, c_.dim, c_.init_range);
    convolution(n);
    project(n + "x_proj", rank + 2 * c_.state_size, d, c_.init_range);
    project(n + "dt_proj", d, rank, spread(rank));
    recurrence(n + "dt_bias", d, Init::time_step);
    recurrence(n + "A_log", d * c_.state_size, Init::counting, static_cast<double>(c_.state_size));
    recurrence(n + "D", d, Init::ones);
    project(n + "out_proj", c_.dim, d, residual_);
  }
  void delta(const std::string& n) {
    const int64_t h = c_.heads, k = c_.head_dim(), v = c_.expand * k;
    project(n + "in_proj_qkv", h * (2 * k + v), c_.dim, c_.init_range);
    project(n + "in_proj_z", h * v, c_.dim, c_.init_range);
    project(n + "in_proj_b", h, c_.dim, c_.init_range);
    project(n + "in_proj_a", h, c_.dim, c_.init_range);
    convolution(n);
    recurrence(n + "dt_bias", h, Init::time_step);
    recurrence(n + "A_log", h, Init::counting, 16);
    add(n + "norm.weight", {v}, Init::ones);
    project(n + "out_proj", c_.dim, h * v, residual_);
  }
  // The standard deviation of a uniform distribution within 1 / sqrt(inputs).
  static double spread(int64_t inputs) { return 1 / std::sqrt(3.0 * static_cast<double>(inputs)); }

  const Config& c_;
  // Weights that add to the residual stream start smaller, so that their sum does not grow with the
  // number of layers.
  const double residual_ = c_.init_range / std::sqrt(2.0 * static_cast<double>(c_.layers));
  std::vector<WeightSpec> specs_;
};

}  // namespace

std::vector<WeightSpec> weight_specs(const Config& c) { return Specs(c).all(); }

double parameter_count(const Config& c) {
  Config one = c;
  one.layers = 1;  // all layers are alike, and the user chooses their number
  double layer = 0, other = 0;
  for (const WeightSpec& w : weight_specs(one))
    (w.name.starts_with("model.layers.") ? layer : other) +=
        static_cast<double>(TensorType(f32, w.dims).elements());
  return other + static_cast<double>(c.layers) * layer;
}

std::vector<double> Rope::frequencies(int64_t head_dim) const {
  std::vector<double> out;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (type == Type::linear) f /= factor;
    if (type == Type::llama3) {
      // Rotations within the original context: fast ones are kept, slow ones are scaled, with a
      // ramp between them.
      const double turns = static_cast<double>(original_context) * f / (2 * std::numbers::pi);
      const double kept =
          std::clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
      f = kept * f + (1 - kept) * f / factor;
    }
    out.push_back(f);
  }
  return out;
}

}  // namespace tenon::lm
