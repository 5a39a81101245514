// SPDX-License-Identifier: Apache-2.0
// What a language model computes, read from the config.json of a Hugging Face folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/quantization.hpp"
#include "llm/arch/rope.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

struct Architecture;

// The norms of the residual stream.
enum class Norm : uint8_t {
  rms,             // RMSNorm
  rms_plus_one,    // RMSNorm whose weights are added to 1
  layer,           // LayerNorm, with a bias if norm_bias
  layer_plus_one,  // LayerNorm whose weights are added to 1, with a bias
  bare_rms,        // RMSNorm without weights
  bare_layer       // LayerNorm without weights
};

// A mixture of experts. experts = 0: the model has none.
struct MoeConfig {
  int64_t experts = 0, per_token = 0;
  int64_t ffn = 0;           // width of an expert
  int64_t shared_ffn = 0;    // width of the expert that all tokens use; 0: none
  bool shared_gate = false;  // what it adds is weighted by a product with the token
  int64_t groups = 1, groups_per_token = 1;
  bool normalize = true;  // weights of a token sum to 1
  double scaling = 1;
  std::string score = "softmax", group_score = "max";  // as in group_limited_gate
  bool correction_bias = false;                        // added to the scores for the choice
  bool weigh_inputs = false;  // weights multiply what experts read, not what they give
  bool biases = false;        // of the router and the experts
  double jitter = 0;          // PhiMoE: how far scores are near each other
  double score_cap = 0;  // Laguna: products of the router are within ±this; 0: they may be anything
  bool average = false;  // Cohere 2: half of what the experts and the shared one give
  // If not 0: the gate is at most this, the other factor within ±this, and an expert computes
  // gate * sigmoid(gate_alpha * gate) * (1 + the other factor).
  double gate_limit = 0, gate_alpha = 1;
};

// Biases of attention (ALiBi): of each head, slope * (position of the key - that of the query).
struct Alibi {
  std::vector<double> slopes = {};  // of each head; empty: no biases
  double scale = 1;                 // multiplies the biases
  bool in_bf16 = false;             // slopes and their products with positions are rounded
};
// The usual slopes: those of a power of two of heads fall by one factor, to 2^-most.
Alibi alibi(int64_t heads, double most = 8);

// Latent attention (DeepSeek): keys and values are cached as one latent vector per token.
struct LatentConfig {
  int64_t q_rank = 0;  // 0: queries have no latent vector
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  bool interleaved = true;  // pairs of rope are neighbours
};

// Gemma 3n and 4: inputs of each layer, and what single layers differ by.
struct PerLayerConfig {
  int64_t input_dim = 0, input_vocab = 0;  // of the inputs; 0: none
  int64_t shared_keys = 0;                 // layers at the end that read keys and values of others
  int64_t head_dim = 0, kv_heads = 0;      // of layers without a window
  bool keys_as_values = false;             // these have no v_proj
  bool wide_mlp = false;                   // layers with shared keys have twice the width
  bool experts = false;                    // beside the MLP of each layer

  // The first layer with shared keys.
  int64_t first_shared(int64_t layers) const { return layers - shared_keys; }
};

// Gemma 3n: residual streams beside the one that layers read (AltUp), a low-rank path beside
// attention (LAuReL), and MLPs with few active gates.
struct AltUpConfig {
  int64_t streams = 0, active = 0, laurel_rank = 0;
  bool scaled = true;
  std::vector<double> sparsity = {};  // of each layer: the share of gates that are 0
};

// The norm behind the recurrence of Mamba-2, and the gate beside it.
enum class MixerNorm : uint8_t { behind_gate, before_gate, none };

// The mixers of Mamba, and of Mamba-2 if there are heads.
struct MambaConfig {
  int64_t inner = 0, state_size = 0, conv_width = 0;
  int64_t dt_rank = 0;  // Mamba
  bool conv_bias = true, bias = false;
  bool inner_norms = false;  // Mamba: norms of dt, b and c
  bool bare_norms = false;   // these have no weights
  double norm_eps = 0;       // of norms inside of the mixer
  int64_t heads = 0, groups = 1;
  bool out_bias = false;  // Mamba-2: bias is that of in_proj
  MixerNorm norm = MixerNorm::behind_gate;
  double least_step = 0, most_step = std::numeric_limits<double>::infinity();
  double in_scale = 1;                   // of what the mixer reads
  std::vector<double> part_scales = {};  // of z, x, b, c and dt; empty: 1
};

// Factors of Falcon-H1.
struct FalconScales {
  double mixer = 1, attention_in = 1, attention_out = 1, key = 1, gate = 1, down = 1;
  // The weights have the factors, as in files of GGUF, which do not tell them.
  bool in_weights = false;
};

// Linear attention by the gated delta rule (Qwen3-Next, Qwen3.5). key_heads = 0: the model has none.
struct DeltaConfig {
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;  // of a head
  int64_t conv_width = 0;
  // The weights of q, k, v and the gate are one matrix, head by head, and those of the two factors, too.
  bool joint = false;
  // Value head i belongs to key head i mod key_heads, not to i / (value_heads / key_heads).
  bool tiled = false;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
};

// LFM2: layers with a short convolution. width = 0: the model has none.
struct ShortConvConfig {
  int64_t width = 0;
  bool bias = false;  // also of the products around it
};

// How the hidden states of a text become one vector.
enum class Pooling : uint8_t {
  mean,  // of all tokens
  cls,   // that of the first token
  last   // that of the last token
};

struct ModelConfig {
  const Architecture* architecture = nullptr;
  int64_t vocab = 0, dim = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  int64_t context = 0;  // positions that the model was made for
  Norm norm = Norm::rms;
  bool norm_bias = false;
  double norm_eps = 1e-6;
  std::string activation = "silu";  // a kind of unary, or "relu2": the square of relu
  bool tied = false;                // the head is the embedding
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool head_bias = false;  // PhiMoE
  bool qk_norm = false;
  int64_t value_dim = 0;    // MiMo: of a head of values, if it is not head_dim
  double value_scale = 1;   // MiMo: of values
  bool head_gates = false;  // Laguna: a gate of attention for each head, not for each number
  std::vector<int64_t> layer_heads = {};  // Laguna: heads of each layer; empty: all have `heads`
  bool parallel = false;                  // the MLP of a layer reads what its attention reads
  bool two_norms = false;                 // parallel parts have a norm of x each
  bool norms_behind = false;              // OPT, HyperCLOVA X: norms behind parts
  bool last_norm = true;                  // OPT: there is a norm behind the last layer
  int64_t embed_dim = 0;                  // OPT: of embeddings, if it is not dim
  int64_t zero_position = -1;       // XGLM: nothing is added at this position; negative: at none
  bool rope_interleaved = false;    // pairs of rope are neighbours in heads of q and k
  bool outputs_first = false;       // GPT-2's matrices are [outputs, inputs], not the other way
  RopeConfig rope{}, local_rope{};  // local_rope: of layers with a window, if it has dims
  std::vector<double> layer_thetas = {};  // of rope in each layer; empty: all have rope.theta
  int64_t window = 0;                     // keys that a query of a local layer sees; 0: all
  int64_t chunk = 0;                      // positions that see each other in a local layer; 0: all
  Alibi alibi{};
  double clip_qkv = 0;             // q, k and v are within ±this; 0: they may be anything
  std::vector<bool> local = {};    // per layer: has the window
  std::vector<bool> sparse = {};   // per layer: has experts
  std::vector<bool> no_rope = {};  // per layer: q and k are not rotated; empty: all are
  std::string pattern = {};        // Nemotron-H: a letter for each layer
  // Per layer: has a state of constant size in place of keys and values; empty: none has.
  std::vector<bool> recurrent_layers = {};
  double attention_scale = 0;  // 0: 1/sqrt(head_dim)
  double attention_softcap = 0, logit_softcap = 0;
  // Of layers without rope: as in Step::scaled_by_position().
  double query_beta = 0;
  int64_t query_every = 0;
  double embed_scale = 1, residual_scale = 1, logit_scale = 1;
  bool scale_by_layer = false;  // GPT-2: attention_scale is divided by the layer's number
  int64_t extra_layers = 0;     // weights of layers behind the last one, not used
  MoeConfig moe{};
  LatentConfig latent{};
  PerLayerConfig per_layer{};
  AltUpConfig altup{};
  MambaConfig mamba{};
  DeltaConfig delta{};
  ShortConvConfig short_conv{};
  FalconScales falcon{};
  Quantization quantization{};
  tenon_dtype dtype = f32;               // that the file names: f32, f16 or bf16
  std::vector<int64_t> end_tokens = {};  // eos_token_id
  Pooling pooling = Pooling::mean;       // unless the model's files name another one
  std::string other_pooling = {};        // the name of one that tenon does not have
  bool headless = false;                 // the files have no head: only hidden states can be had
  std::string wrapper{};                 // model_type of a model that reads images or sounds, too

  // Recurrent models keep a state of constant size, all layers or some, and read no padding.
  bool recurrent() const {
    return mamba.inner > 0 || std::ranges::find(recurrent_layers, true) != recurrent_layers.end();
  }
  // Has layers with keys and values.
  bool attends() const {
    return heads > 0 && (recurrent_layers.empty() ||
                         std::ranges::find(recurrent_layers, false) != recurrent_layers.end());
  }
};

// An architecture: how its keys are read and how its graph is built.
class Step;
struct Architecture {
  std::string_view model_type;  // of config.json
  std::string_view class_name;  // in "architectures"
  void (*read)(ConfigReader& r, ModelConfig& c);
  // From token ids to the residual stream [batch, time, dim] behind the last layer.
  Value (*hidden)(Step& step);
  // The last norm of rows [.., dim] of it.
  Value (*norm)(Step& step, Value x);
  // From normed rows to logits [.., vocab].
  Value (*head)(Step& step, Value normed);
  std::string_view old_class_name{};  // that older files have
};
const std::vector<const Architecture*>& architectures();

// text: the content of config.json; file: its name for messages. Throws Error: CORRUPT for a wrong
// form, UNSUPPORTED with the key for what the model asks for and tenon does not know.
ModelConfig parse_config(const std::string& text, const std::string& file);

// ---- For the readers of the architectures

// The keys that most decoders share: sizes, activation, eps and tie_word_embeddings.
struct DecoderDefaults {
  double norm_eps = 1e-6;
  bool tied = false;
  std::string_view activation_key = "hidden_act";  // empty: the family reads its activation
  std::string_view eps_key = "rms_norm_eps";       // empty: the file has none
  std::string_view layers_key = "num_hidden_layers";
  int64_t head_dim = 0;   // 0: hidden_size / num_attention_heads
  int64_t kv_heads = 0;   // if the file does not have the key; 0: num_attention_heads, as for null
  bool has_ffn = true;    // else intermediate_size may be absent: 0
  bool ffn_list = false;  // intermediate_size may be a list of the same number for each layer
};
void read_decoder(ConfigReader& r, ModelConfig& c, const DecoderDefaults& defaults = {});
// Keys of the sizes of models with as many key heads as query heads.
struct SizeKeys {
  std::string_view dim, layers, heads;
};
void read_sizes(ConfigReader& r, ModelConfig& c, const SizeKeys& keys);
// As read_decoder() by GPT-2's names: n_embd, n_layer, n_head, n_inner, n_positions, layer_norm_epsilon,
// activation_function and tie_word_embeddings.
struct GptDefaults {
  int64_t context = 1024;
  std::string activation = "gelu_new";
  bool tied = true;
};
void read_gpt(ConfigReader& r, ModelConfig& c, const GptDefaults& defaults = {});
// A kind of unary for an activation of transformers.
std::string read_activation(ConfigReader& r, std::string_view key, const std::string& otherwise);
// The form of rope_parameters that has an object for each type of layer: c.rope, and c.local_rope
// of layers with a window. False if the file has another form. theta, local_theta: of a type whose
// object names none; a rope_theta beside rope_parameters counts more than theta.
// full_dims: of a head of layers without a window; 0: head_dim. part: of a head that is rotated unless an
// object of rope_type 'default' says otherwise; 0: models of this type rotate all of it, and a file that says
// otherwise is refused.
bool read_ropes_of_types(ConfigReader& r, ModelConfig& c, double theta, double local_theta,
                         int64_t full_dims = 0, double part = 0);
// The same, behind read_layer_types(), of families whose files may leave rope_parameters out, and have no
// other form of it: it then has an object for each type that layers have. part,
// local_part: without rope_parameters; named_part: as `part` above.
struct TypedRopes {
  double theta = 1e4, local_theta = 1e4;
  double part = 1, local_part = 1, named_part = 0;
};
void read_typed_ropes(ConfigReader& r, ModelConfig& c, const TypedRopes& usual);
// Which layers have the window, by layer_types; without that key, by `otherwise`.
void read_layer_types(ConfigReader& r, ModelConfig& c, bool (*otherwise)(int64_t layer));
// Which layers are recurrent, by layer_types, where these have the name `kind` and others
// full_attention; without that key, by `otherwise`.
void read_recurrent_layers(ConfigReader& r, ModelConfig& c, const std::string& kind,
                           const std::function<bool(int64_t layer)>& otherwise);
// Qwen's keys of experts.
struct QwenExperts {
  int64_t experts = 0, per_token = 0, ffn = 0;
  bool normalize = false;
};
void read_qwen_experts(ConfigReader& r, ModelConfig& c, const QwenExperts& defaults);
// DeepSeek-V3's keys of experts, as GLM-4.5 and others have them. What has no value is required.
struct GroupedExperts {
  std::optional<int64_t> experts{}, per_token{}, shared{};
  int64_t ffn = 1408;
  int64_t dense_layers = 0;  // in front
  bool normalize = false;
  double scaling = 1;
  // Names of keys that differ, and whether mlp_layer_types says which layers have experts.
  std::string_view experts_key = "n_routed_experts", shared_key = "n_shared_experts";
  bool by_types = false;
  // first_k_dense_replace counts; else it must have the usual value.
  bool counts_dense_layers = true;
};
void read_grouped_experts(ConfigReader& r, ModelConfig& c, const GroupedExperts& defaults);
// Those of both forms of Sarvam, by the names of transformers or of the model's authors.
void read_sarvam_experts(ConfigReader& r, ModelConfig& c, int64_t per_token, int64_t ffn);
// Which layers have experts, by mlp_layer_types; without that key, all but `dense` ones in front.
void read_dense_and_sparse(ConfigReader& r, ModelConfig& c, int64_t dense);
// Gemma's keys: those of Gemma 3's ropes, and a cap, which an absent key sets and null removes.
void read_gemma_ropes(ConfigReader& r, ModelConfig& c);
double read_cap(ConfigReader& r, std::string_view key, double otherwise);
// Qwen's keys of the window: use_sliding_window, sliding_window and max_window_layers.
void read_optional_window(ConfigReader& r, ModelConfig& c);
// A window that all layers have; absent: `otherwise`, 0 for none. Null: none.
void read_window(ConfigReader& r, ModelConfig& c, int64_t otherwise);
// The same where read_layer_types() has said which layers have the window: null is refused if any has.
void read_window_of_types(ConfigReader& r, ModelConfig& c, int64_t otherwise);

}  // namespace tenon::llm
