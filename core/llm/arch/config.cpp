// SPDX-License-Identifier: Apache-2.0
// Reads config.json: the keys that all models share, and the choice of the architecture.
#include "llm/arch/config.hpp"

#include <algorithm>
#include <cmath>

#include "llm/arch/harmless_keys.hpp"
#include "llm/arch/text_part.hpp"
#include "llm/json_text.hpp"

namespace tenon::llm {
namespace {

// Activations of transformers that tenon has an op for.
struct Activation {
  std::string_view name, kind;
};
constexpr Activation kActivations[] = {
    {"silu", "silu"},          {"swish", "silu"},          {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"}, {"gelu_fast", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
    {"relu", "relu"},          {"sigmoid", "sigmoid"},     {"tanh", "tanh"},
    {"relu2", "relu2"}};

// Logits do not depend on the keys of training and caches either.
void ignore_harmless(ConfigReader& r) {
  for (const std::string_view key : kHarmlessKeys) r.ignore({key});
  r.ignore({"cache_implementation", "initializer_range", "attention_dropout", "hidden_dropout",
            "hidden_dropout_prob", "attn_pdrop", "embd_pdrop", "resid_pdrop", "residual_dropout",
            "embedding_dropout", "router_aux_loss_coef", "router_jitter_noise",
            "output_router_logits"});
}

std::string known_types() {
  std::string all;
  for (const Architecture* a : architectures())
    all += (all.empty() ? "'" : ", '") + std::string(a->model_type) + "'";
  return all;
}

tenon_dtype read_dtype(ConfigReader& r) {
  tenon_dtype out = TENON_DTYPE_NONE;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const std::string name = r.text(key, "");
    if (name.empty()) continue;
    const tenon_dtype named = name == "float32"    ? f32
                              : name == "float16"  ? f16
                              : name == "bfloat16" ? bf16
                                                   : TENON_DTYPE_NONE;
    if (named == TENON_DTYPE_NONE) r.refuse(key, "'float32', 'float16' or 'bfloat16'");
    if (out != TENON_DTYPE_NONE && out != named) r.refuse(key, "the value of 'torch_dtype'");
    out = named;
  }
  return out == TENON_DTYPE_NONE ? f32 : out;
}

}  // namespace

std::string read_activation(ConfigReader& r, std::string_view key, const std::string& otherwise) {
  const std::string name = r.text(key, otherwise);
  std::string known;
  for (const Activation& a : kActivations) {
    if (a.name == name) return std::string(a.kind);
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  }
  r.refuse(key, "one of " + known);
}

// The number that a list has for each layer.
static int64_t same_of_layers(ConfigReader& r, const ModelConfig& c, std::string_view key) {
  const std::vector<int64_t> all = r.integers(key);
  if (static_cast<int64_t>(all.size()) != c.layers || all[0] < 1 || all[0] > int64_t{1} << 20 ||
      std::ranges::any_of(all, [&](int64_t n) { return n != all[0]; }))
    r.refuse(key, "a size, or a list of the same size for each of the " + std::to_string(c.layers) +
                      " layers");
  return all[0];
}

void read_decoder(ConfigReader& r, ModelConfig& c, const DecoderDefaults& defaults) {
  c.dim = r.size("hidden_size");
  c.layers = r.size(defaults.layers_key, {}, 4096);
  if (defaults.ffn_list && r.has("intermediate_size") && !r.is_number("intermediate_size"))
    c.ffn = same_of_layers(r, c, "intermediate_size");
  else if (defaults.has_ffn || r.has("intermediate_size"))
    c.ffn = r.size("intermediate_size");
  c.heads = r.size("num_attention_heads", {}, 1 << 16);
  const bool usual_kv_heads = defaults.kv_heads > 0 && !r.is_null("num_key_value_heads");
  c.kv_heads = r.size("num_key_value_heads", usual_kv_heads ? defaults.kv_heads : c.heads, 1 << 16);
  if (c.heads % c.kv_heads != 0)
    r.refuse("num_key_value_heads",
             "a divisor of the " + std::to_string(c.heads) + " of num_attention_heads");
  if (!r.has("head_dim") && defaults.head_dim == 0 && c.dim % c.heads != 0)
    r.refuse("num_attention_heads", "a divisor of hidden_size " + std::to_string(c.dim));
  c.head_dim =
      r.size("head_dim", defaults.head_dim > 0 ? defaults.head_dim : c.dim / c.heads, 1 << 16);
  c.context = r.size("max_position_embeddings", {}, int64_t{1} << 30);
  c.norm_eps = defaults.norm_eps;
  if (!defaults.eps_key.empty()) c.norm_eps = r.positive(defaults.eps_key, defaults.norm_eps);
  c.tied = r.flag("tie_word_embeddings", defaults.tied);
  if (!defaults.activation_key.empty())
    c.activation =
        read_activation(r, defaults.activation_key,
                        defaults.activation_key == "hidden_act" ? "silu" : "gelu_pytorch_tanh");
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
}

void read_sizes(ConfigReader& r, ModelConfig& c, const SizeKeys& keys) {
  c.dim = r.size(keys.dim);
  c.layers = r.size(keys.layers, {}, 4096);
  c.heads = c.kv_heads = r.size(keys.heads, {}, 1 << 16);
  if (c.dim % c.heads != 0)
    r.refuse(keys.heads, "a divisor of " + std::string(keys.dim) + " " + std::to_string(c.dim));
  c.head_dim = c.dim / c.heads;
  c.local.assign(static_cast<size_t>(c.layers), false);
  c.sparse.assign(static_cast<size_t>(c.layers), false);
}

void read_gpt(ConfigReader& r, ModelConfig& c, const GptDefaults& defaults) {
  read_sizes(r, c, {.dim = "n_embd", .layers = "n_layer", .heads = "n_head"});
  c.ffn = r.size("n_inner", 4 * c.dim, int64_t{1} << 22);
  c.context = r.size("n_positions", defaults.context, int64_t{1} << 30);
  c.norm = Norm::layer, c.norm_bias = true;
  c.norm_eps = r.positive("layer_norm_epsilon", 1e-5);
  c.activation = read_activation(r, "activation_function", defaults.activation);
  c.tied = r.flag("tie_word_embeddings", defaults.tied);
  r.ignore({"gradient_checkpointing", "summary_type", "summary_use_proj", "summary_activation",
            "summary_proj_to_labels", "summary_first_dropout"});
}

void read_layer_types(ConfigReader& r, ModelConfig& c, bool (*otherwise)(int64_t layer)) {
  const std::vector<std::string> types = r.texts("layer_types");
  if (types.empty() && otherwise) {
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = otherwise(i);
    return;
  }
  if (static_cast<int64_t>(types.size()) != c.layers)
    r.refuse("layer_types", "one entry for each of the " + std::to_string(c.layers) + " layers");
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention")
      r.refuse("layer_types", "entries 'full_attention' and 'sliding_attention'");
    c.local[i] = types[i] == "sliding_attention";
  }
}

void read_recurrent_layers(ConfigReader& r, ModelConfig& c, const std::string& kind,
                           const std::function<bool(int64_t layer)>& otherwise) {
  const std::vector<std::string> types = r.texts("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != c.layers)
    r.refuse("layer_types", "one entry for each of the " + std::to_string(c.layers) + " layers");
  for (const std::string& type : types)
    if (type != kind && type != "full_attention")
      r.refuse("layer_types", "entries '" + kind + "' and 'full_attention'");
  c.recurrent_layers.clear();
  for (int64_t i = 0; i < c.layers; ++i)
    c.recurrent_layers.push_back(types.empty() ? otherwise(i)
                                               : types[static_cast<size_t>(i)] == kind);
}

bool read_ropes_of_types(ConfigReader& r, ModelConfig& c, double theta, double local_theta,
                         int64_t full_dims, double part) {
  std::optional<ConfigReader> both = r.object("rope_parameters");
  if (!both || !(both->has("full_attention") || both->has("sliding_attention"))) return false;
  // transformers takes a rope_theta beside the objects for full_attention only.
  c.rope = {.dims = full_dims > 0 ? full_dims : c.head_dim,
            .theta = r.positive("rope_theta", theta)};
  c.local_rope = {.dims = c.head_dim, .theta = local_theta};
  for (const auto& [key, rope] :
       {std::pair("full_attention", &c.rope), std::pair("sliding_attention", &c.local_rope)})
    if (std::optional<ConfigReader> one = both->object(key)) {
      const int64_t dims = rope->dims;
      read_rope_object(*one, *rope, c.context);
      if (part == 0 && rope->dims != dims) refuse_partial(*one);
      if (part > 0 && !one->has("partial_rotary_factor") && rope->type == RopeConfig::Type::plain)
        rope->dims = static_cast<int64_t>(static_cast<double>(dims) * part);
      check_rope(*rope, one->where());
    }
  both->refuse_unread();
  return true;
}

void read_typed_ropes(ConfigReader& r, ModelConfig& c, const TypedRopes& usual) {
  if (r.has("rope_scaling")) r.refuse("rope_scaling", "rope_parameters in its place");
  if (r.has("rope_parameters")) {
    if (!read_ropes_of_types(r, c, usual.theta, usual.local_theta, 0, usual.named_part))
      r.refuse("rope_parameters", "objects 'full_attention' and 'sliding_attention'");
    std::optional<ConfigReader> both = r.object("rope_parameters");
    const bool plain =
        c.rope.type == RopeConfig::Type::plain && c.local_rope.type == RopeConfig::Type::plain;
    for (const auto& [key, local] :
         {std::pair("full_attention", false), std::pair("sliding_attention", true)}) {
      const std::optional<ConfigReader> one = both->object(key);
      if (!one && std::ranges::find(c.local, local) != c.local.end())
        r.refuse("rope_parameters",
                 std::string("an object '") + key + "', as layers have that type");
      // transformers gives it to the objects that have none, but only if one has a scaling.
      if (one && !plain && r.has("partial_rotary_factor") && !one->has("partial_rotary_factor"))
        r.refuse("partial_rotary_factor", "that key within each object of rope_parameters");
    }
    r.ignore({"rope_theta", "partial_rotary_factor"});
    return;
  }
  // transformers then has these numbers, whatever stands beside them.
  for (const auto& [key, value] :
       {std::pair("rope_theta", usual.theta), std::pair("partial_rotary_factor", usual.part)})
    if (r.number(key, value) != value) r.refuse(key, "rope_parameters in its place");
  const auto dims = [&](double part) {
    return static_cast<int64_t>(static_cast<double>(c.head_dim) * part);
  };
  c.rope = {.dims = dims(usual.part), .theta = usual.theta};
  c.local_rope = {.dims = dims(usual.local_part), .theta = usual.local_theta};
  check_rope(c.rope, r.where());
  check_rope(c.local_rope, r.where());
}

void read_optional_window(ConfigReader& r, ModelConfig& c) {
  constexpr int64_t most = int64_t{1} << 30;
  if (!r.flag("use_sliding_window", false)) {
    r.ignore({"sliding_window", "max_window_layers", "layer_types"});
    return;
  }
  c.window = r.size("sliding_window", 4096, most);
  const int64_t first = r.integer("max_window_layers", 28);
  if (r.has("layer_types")) {
    read_layer_types(r, c, nullptr);
  } else {
    for (int64_t i = 0; i < c.layers; ++i) c.local[static_cast<size_t>(i)] = i >= first;
  }
}

void read_window(ConfigReader& r, ModelConfig& c, int64_t otherwise) {
  const bool none = r.is_null("sliding_window") || (!r.has("sliding_window") && otherwise == 0);
  r.ignore({"sliding_window"});
  if (none) return;
  c.window = r.size("sliding_window", otherwise, int64_t{1} << 30);
  c.local.assign(static_cast<size_t>(c.layers), true);
}

void read_window_of_types(ConfigReader& r, ModelConfig& c, int64_t otherwise) {
  if (r.is_null("sliding_window") && std::ranges::find(c.local, true) != c.local.end())
    r.refuse("sliding_window", "a size, as some layers have a window");
  c.window = r.size("sliding_window", otherwise, int64_t{1} << 30);
}

namespace {

// LlamaModel for LlamaForCausalLM, Gemma3TextModel for Gemma3ForCausalLM: the class without a head.
bool is_base_class(const std::string& name, std::string_view with_head) {
  const size_t end = std::min(with_head.find("ForCausalLM"), with_head.find("LMHeadModel"));
  return name.starts_with(with_head.substr(0, end)) && name.ends_with("Model") && name != with_head;
}

// transformers scales queries by their position in two families, and ignores the key in others.
void check_query_scale(const ModelConfig& c, const std::string& file) {
  const std::string_view type = c.architecture->model_type;
  const bool scales = c.rope.query_beta != 0 || c.local_rope.query_beta != 0;
  if (scales && type != "ministral3" && type != "mistral4")
    throw Error(TENON_UNSUPPORTED, file +
                                       ": 'llama_4_scaling_beta' is not supported; "
                                       "expected it absent for this model_type");
}

}  // namespace

ModelConfig parse_config(const std::string& text, const std::string& file) {
  const Json whole = parse_object(text, file), json = text_part(whole, file);
  ConfigReader r(json, file);
  ModelConfig c;
  if (json != whole) c.wrapper = whole["model_type"];
  const std::string type = r.text("model_type");
  for (const Architecture* a : architectures())
    if (a->model_type == type) c.architecture = a;
  if (!c.architecture) r.refuse("model_type", "one of " + known_types());
  const std::vector<std::string> classes = r.texts("architectures");
  const std::string_view with_head = c.architecture->class_name;
  const bool base = std::ranges::any_of(
      classes, [&](const std::string& name) { return is_base_class(name, with_head); });
  const auto is_listed = [&](std::string_view name) {
    return !name.empty() && std::ranges::find(classes, name) != classes.end();
  };
  if (!classes.empty() && !base && !is_listed(with_head) &&
      !is_listed(c.architecture->old_class_name))
    r.refuse("architectures", "'" + std::string(with_head) + "'");
  c.quantization = read_quantization(r);
  ignore_harmless(r);
  c.vocab = r.size("vocab_size", {}, int64_t{1} << 24);
  c.dtype = read_dtype(r);
  c.end_tokens = r.integers("eos_token_id");
  c.architecture->read(r, c);
  check_query_scale(c, file);
  c.headless = base && !c.tied;
  r.refuse_unread();
  return c;
}

}  // namespace tenon::llm
