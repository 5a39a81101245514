// SPDX-License-Identifier: Apache-2.0
// Reads and writes config.json, key by key.
#include "cli/lm/config.hpp"

#include <array>
#include <cmath>
#include <string_view>

#include "cli/input.hpp"
#include "cli/lm/json_file.hpp"
#include "cli/lm/recurrent_config.hpp"
#include "cli/lm/save.hpp"
#include "llm/arch/harmless_keys.hpp"

namespace tenon::lm {
namespace {

// Keys that parse_config reads, or that mean nothing as tokens are bytes.
constexpr std::string_view kKnown[] = {"architectures",       "model_type",
                                       "eos_token_id",        "vocab_size",
                                       "hidden_size",         "intermediate_size",
                                       "num_hidden_layers",   "num_attention_heads",
                                       "num_key_value_heads", "head_dim",
                                       "hidden_act",          "max_position_embeddings",
                                       "initializer_range",   "rms_norm_eps",
                                       "tie_word_embeddings", "attention_bias",
                                       "attention_dropout",   "mlp_bias",
                                       "rope_theta",          "rope_scaling",
                                       "rope_parameters",     "partial_rotary_factor",
                                       "torch_dtype",         "dtype"};

// Activations of transformers that tenon has an op for.
struct Activation {
  std::string_view name, kind;
};
constexpr Activation kActivations[] = {
    {"silu", "silu"},          {"swish", "silu"},          {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"}, {"gelu_fast", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
    {"relu", "relu"},          {"sigmoid", "sigmoid"},     {"tanh", "tanh"},
    {"mish", "mish"}};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

// Null, false or empty: no information.
bool is_nothing(const Json& j) {
  return j.is_null() || (j.is_boolean() && !j.get<bool>()) || (j.is_structured() && j.empty());
}

class Reader {
 public:
  Reader(const Json& j, const std::string& file) : j_(j), file_(file) {}

  Config read() {
    const auto type = field<std::string>(j_, file_, "model_type");
    if (type != "llama")
      refuse("model_type", "'" + type + "'", "'llama', 'tenon-mamba' or 'tenon-delta'");
    check_architecture();
    for (const auto& [key, value] : j_.items())
      if (!contains(kKnown, key) && !contains(llm::kHarmlessKeys, key) && !is_nothing(value))
        throw Error(TENON_UNSUPPORTED, file_ + ": '" + key.substr(0, 80) + "' is " + shown(value) +
                                           ", a key that is not known; expected it absent or null, "
                                           "as it may change what the model computes");
    Config c;
    c.vocab = integer("vocab_size");
    if (c.vocab != 256) refuse("vocab_size", std::to_string(c.vocab), "256: tokens are bytes");
    c.dim = integer("hidden_size");
    c.ffn = integer("intermediate_size");
    c.layers = integer("num_hidden_layers");
    c.heads = integer("num_attention_heads");
    c.kv_heads = integer("num_key_value_heads", c.heads);
    c.head_size = integer("head_dim", 0);
    c.context = integer("max_position_embeddings");
    // The defaults are those of transformers.
    c.norm_eps = number("rms_norm_eps", 1e-6);
    c.init_range = number("initializer_range", 0.02);
    c.tied = flag("tie_word_embeddings");
    c.attention_bias = flag("attention_bias");
    c.mlp_bias = flag("mlp_bias");
    c.attention_dropout = number("attention_dropout", 0);
    c.activation = activation();
    c.dtype = dtype();
    c.rope = rope();
    try {
      c.check();
    } catch (const Error& e) {
      throw Error(e.code(), file_ + ": " + e.what());
    }
    return c;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& got,
                           const std::string& expected) const {
    throw Error(TENON_UNSUPPORTED, file_ + ": " + key + " is " + got + ", expected " + expected);
  }
  int64_t integer(const char* name) const { return field<int64_t>(j_, file_, name); }
  int64_t integer(const char* name, int64_t otherwise) const {
    return field<int64_t>(j_, file_, name, &otherwise);
  }
  double number(const char* name, double otherwise) const {
    return field<double>(j_, file_, name, &otherwise);
  }
  bool flag(const char* name) const {
    const bool no = false;
    return field<bool>(j_, file_, name, &no);
  }

  void check_architecture() const {
    const Strings none;
    const Strings names = field<Strings>(j_, file_, "architectures", &none);
    if (!names.empty() && !contains(names, "LlamaForCausalLM"))
      refuse("architectures", "'" + names[0].substr(0, 80) + "'", "'LlamaForCausalLM'");
  }

  std::string activation() const {
    const std::string silu = "silu";
    const auto name = field<std::string>(j_, file_, "hidden_act", &silu);
    std::string known;
    for (const Activation& a : kActivations) {
      if (a.name == name) return std::string(a.kind);
      known += (known.empty() ? "" : ", ") + std::string(a.name);
    }
    refuse("hidden_act", "'" + name.substr(0, 80) + "'", "one of " + known);
  }

  tenon_dtype dtype() const {
    tenon_dtype out = TENON_DTYPE_NONE;
    for (const char* key : {"torch_dtype", "dtype"}) {
      const std::string none;
      const auto name = field<std::string>(j_, file_, key, &none);
      if (name.empty()) continue;
      const tenon_dtype named = name == torch_name(f32)    ? f32
                                : name == torch_name(bf16) ? bf16
                                                           : TENON_DTYPE_NONE;
      if (named == TENON_DTYPE_NONE)
        refuse(key, "'" + name.substr(0, 80) + "'", "'float32' or 'bfloat16'");
      if (out != TENON_DTYPE_NONE && out != named)
        refuse("dtype", "'" + name + "'", std::string("torch_dtype's '") + torch_name(out) + "'");
      out = named;
    }
    return out == TENON_DTYPE_NONE ? f32 : out;
  }

  // rope_parameters since transformers 5; before, rope_theta and rope_scaling.
  Rope rope() const {
    Rope r;
    bool theta_known = false;
    const auto theta = [&](const Json& from, const std::string& where) {
      const auto at = from.find("rope_theta");
      if (at == from.end() || at->is_null()) return;
      const auto value = field<double>(from, where, "rope_theta");
      if (theta_known && value != r.theta)
        refuse("rope_theta", shown(*at), "the same value wherever it is given");
      r.theta = value;
      theta_known = true;
    };
    theta(j_, file_);
    check_partial(j_, file_);
    const Json* scaling = nullptr;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const auto at = j_.find(key);
      if (at == j_.end() || at->is_null()) continue;
      const std::string where = file_ + ": " + key;
      if (!at->is_object())
        throw Error(TENON_CORRUPT, where + " has the wrong form: " + shown(*at));
      theta(*at, where);
      check_partial(*at, where);
      if (scaling && *scaling != *at)
        refuse(key, "another object than rope_scaling", "one of the two only");
      scaling = &*at;
      read_scaling(*at, where, r);
    }
    return r;
  }

  static void check_partial(const Json& from, const std::string& where) {
    const double all = 1;
    if (const auto part = field<double>(from, where, "partial_rotary_factor", &all); part != 1)
      throw Error(TENON_UNSUPPORTED, where + ": partial_rotary_factor is " + std::to_string(part) +
                                         ", expected 1, as in every model of type 'llama'");
  }

  static void read_scaling(const Json& from, const std::string& where, Rope& r) {
    const std::string plain = "default";
    const std::string old_name = field<std::string>(from, where, "type", &plain);
    const std::string name = field<std::string>(from, where, "rope_type", &old_name);
    std::vector<std::string_view> known = {"rope_type", "type", "rope_theta",
                                           "partial_rotary_factor"};
    if (name == "linear") {
      r.type = Rope::Type::linear;
      r.factor = field<double>(from, where, "factor");
      known.emplace_back("factor");
    } else if (name == "llama3") {
      r.type = Rope::Type::llama3;
      r.factor = field<double>(from, where, "factor");
      r.low_freq_factor = field<double>(from, where, "low_freq_factor");
      r.high_freq_factor = field<double>(from, where, "high_freq_factor");
      r.original_context = field<int64_t>(from, where, "original_max_position_embeddings");
      for (const char* key :
           {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
        known.emplace_back(key);
    } else if (name != plain) {
      throw Error(TENON_UNSUPPORTED, where + ": rope_type is '" + name.substr(0, 80) +
                                         "', expected 'default', 'linear' or 'llama3'");
    }
    for (const auto& [key, value] : from.items())
      if (!contains(known, key) && !is_nothing(value))
        throw Error(TENON_UNSUPPORTED, where + ": '" + key.substr(0, 80) + "' is " + shown(value) +
                                           ", which rope_type '" + name + "' does not use");
  }

  const Json& j_;
  const std::string& file_;
};

Json rope_scaling_json(const Rope& r) {
  if (r.type == Rope::Type::linear) return {{"rope_type", "linear"}, {"factor", r.factor}};
  if (r.type == Rope::Type::llama3)
    return {{"rope_type", "llama3"},
            {"factor", r.factor},
            {"low_freq_factor", r.low_freq_factor},
            {"high_freq_factor", r.high_freq_factor},
            {"original_max_position_embeddings", r.original_context}};
  return nullptr;
}

}  // namespace

const char* torch_name(tenon_dtype dtype) { return dtype == bf16 ? "bfloat16" : "float32"; }

Json parse_object(const std::string& text, const std::string& file) {
  Json j = Json::parse(text, nullptr, false);
  if (!j.is_object()) throw Error(TENON_CORRUPT, file + ": is no JSON object");
  return j;
}

Config parse_config(const std::string& text, const std::string& file) {
  const Json j = parse_object(text, file);
  return is_recurrent(j) ? read_recurrent(j, file) : Reader(j, file).read();
}

std::string config_text(const Config& c) {
  if (c.recurrent()) return recurrent_json(c).dump(2) + "\n";
  const auto* activation = std::ranges::find(kActivations, c.activation, &Activation::kind);
  const Json j = {{"architectures", {"LlamaForCausalLM"}},
                  {"model_type", "llama"},
                  {"vocab_size", c.vocab},
                  {"hidden_size", c.dim},
                  {"intermediate_size", c.ffn},
                  {"num_hidden_layers", c.layers},
                  {"num_attention_heads", c.heads},
                  {"num_key_value_heads", c.kv_heads},
                  {"head_dim", c.head_dim()},
                  {"hidden_act", activation->name},
                  {"max_position_embeddings", c.context},
                  {"initializer_range", c.init_range},
                  {"rms_norm_eps", c.norm_eps},
                  {"rope_theta", c.rope.theta},
                  {"rope_scaling", rope_scaling_json(c.rope)},
                  {"tie_word_embeddings", c.tied},
                  {"attention_bias", c.attention_bias},
                  {"mlp_bias", c.mlp_bias},
                  {"attention_dropout", c.attention_dropout},
                  {"bos_token_id", nullptr},
                  {"eos_token_id", nullptr},
                  {"torch_dtype", torch_name(c.dtype)}};
  return j.dump(2) + "\n";
}

Config load_config(const std::string& folder) {
  return read_saved(folder, "config.json", [](const std::string& path) {
    return parse_config(cli::read_file(path), path);
  });
}

}  // namespace tenon::lm
