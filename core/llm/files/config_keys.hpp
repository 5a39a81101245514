// SPDX-License-Identifier: Apache-2.0
// The configuration of a model as keys of GGUF and as config.json.
#pragma once

#include <string>
#include <vector>

#include "llm/files/families.hpp"
#include "llm/files/json.hpp"

namespace tenon::llm::files {

// A tensor that GGUF has in place of fields of config.json.
struct RopeTensor {
  std::string name;
  std::vector<float> numbers;
};

// The frequencies of rope as a configuration describes them.
struct RopeConfig {
  double theta = 10000, local_theta = 10000;
  std::string type = "default";
  Json scaling = Json::object();  // factor, low_freq_factor, ...
};
RopeConfig read_rope(const Json& config, const std::string& file);

// Sets the keys of the architecture. Throws TENON_UNSUPPORTED for a field that GGUF has no key for.
// engine: the configuration as the engine reads it, which hybrid families need.
void set_config_keys(GgufWriter& out, const Family& family, const Json& config,
                     const std::string& file, const ModelConfig* engine = nullptr);
// The tensors of scaled frequencies; empty for most models.
std::vector<RopeTensor> rope_tensors(const Json& config, const std::string& file);

// config.json of a GGUF file. dtype: "float32", "float16" or "bfloat16".
Json config_from_keys(const Gguf& model, const Family& family, const std::string& dtype,
                      const std::string& file);

// Every how many layers attention is not limited to a window, by layer_types, else by
// sliding_window_pattern or `otherwise`.
int64_t window_pattern(const Json& config, int64_t otherwise, const std::string& file);

// Elements of a head: head_dim, or what the model_type has without it.
int64_t head_size(const Json& config, const std::string& file);
// query_pre_attn_scalar of Gemma where a file has no attention.scale: the elements of a head, but in the
// largest models hidden_size / num_attention_heads. llama.cpp tells these by their number of layers.
int64_t usual_query_scalar(const Json& config, const Family& family, const std::string& file);
// A whole number that config.json must have; above 0 and at most 2^31 - 1.
int64_t need_size(const Json& config, std::string_view key, const std::string& file);

}  // namespace tenon::llm::files
