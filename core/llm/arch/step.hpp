// SPDX-License-Identifier: Apache-2.0
// A step of a language model as a graph: some tokens of each of some sequences, with the cache of
// what they have read before as state. The architectures build their layers with these parts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/config.hpp"
#include "llm/arch/lora.hpp"
#include "llm/arch/tensors.hpp"

namespace tenon::llm {

// slots: sequences that the caches have room for, with `capacity` tokens each.
// block: if not 0, the caches are pools of `blocks` blocks of so many tokens instead, and inputs
// say which blocks the sequences have. A sequence has at most `capacity` tokens in either case.
// batch, time: sequences of the step, and tokens of each. If batch is below slots, and the caches
// are no pools, an input says which slots they are; else they are the slots in order.
struct StepShape {
  int64_t slots = 1, capacity = 0;
  int64_t block = 0, blocks = 0;
  int64_t batch = 1, time = 1;
  bool all_logits = false;            // of every token, not of the last one of each sequence only
  bool hidden = false;                // hidden states of every token, and no logits
  bool candidates = false;            // the most likely tokens, too; not with all_logits
  tenon_dtype compute = f32;          // of activations and the states of recurrent models
  tenon_dtype cache = f32;            // of keys and values
  std::string block_product = "f32";  // `compute` of products with weights in blocks
  LowRankPlan* lora = nullptr;        // changes of products
  // Whole sequences without caches, as training reads them. `tokens` is the only input, apart from
  // `rng` i64 [2] if lora has a dropout. slots is the batch, and capacity at least the time.
  bool whole = false;
  bool trainable = false;   // the weights
  bool constants = false;   // tables are constants of the graph, not weights
  bool checkpoint = false;  // the backward pass computes layers again
  // Weights of one dtype that multiply the same values become one weight, unless lora changes them.
  bool stack_weights = false;
  // Where each sequence has one token: rope, cache and attention of a layer are one decode_attention.
  bool joint_decoding = false;

  // Of keys and of values, in each cache.
  int64_t rows() const { return block > 0 ? blocks * block : slots * capacity; }
  int64_t table() const { return (capacity + block - 1) / block; }  // blocks of a sequence, at most
};
struct CacheState {
  std::string name;
  TensorType type;  // [rows(), ..]
};

// Inputs, i64:
//   tokens [batch, time]  ids; behind the count of a sequence any valid id
//   past [batch]          tokens of the sequence in its cache
//   count [batch]         tokens of the sequence in this step, 0 to time
//                         (recurrent models: 0 or time)
//   slot [batch]          if batch < slots and block = 0; no two are equal
//   rows [batch, time]    if block > 0: where the keys of each token go; rows() behind the count
//   block_table [batch, table()]  if block > 0: the blocks of each sequence, any behind its tokens
//   scale f32 [batch]     with `candidates`: what multiplies the logits in the sum of weights
// Outputs:
//   logits f32 [batch, vocab], of the last token of each sequence; with all_logits
//                         [batch, time, vocab]
//   token i64 [batch]     the most likely next token; not with all_logits
//   candidates f32 [batch, 2 K + 1], K = step_candidates(vocab): the K largest logits, equal
//                         ones by token, then their tokens, then the sum of
//                         e^((logit - largest) * scale) of all tokens
//   hidden f32 [batch, time, dim], behind the last norm: with `hidden`, the only output
// The states are updated by what the counts cover. Sequences with count 0 keep theirs.
// caches: receives the states that have a row for each token.
Graph step_graph(const ModelConfig& config, const StepShape& shape, Weights& weights,
                 std::vector<CacheState>* caches = nullptr);
constexpr int64_t step_candidates(int64_t vocab) { return vocab < 256 ? vocab : 256; }
// Copies rows of all caches of keys and values. Inputs, i64 [count]: from; to, rows() to skip one.
Graph copy_graph(const std::vector<CacheState>& caches, int64_t count);

// An activation that swiglu has.
bool is_gate(const std::string& activation);

// Values of a graph in place of its inputs of these names.
struct StepValues {
  Value tokens{}, past{}, count{};
};

// Builds one graph. Values have the dtype `compute` unless stated otherwise.
class Step {
 public:
  Step(Graph& graph, const ModelConfig& config, const StepShape& shape, Weights& weights,
       const StepValues& given = {});

  Graph& g;
  const ModelConfig& c;
  const StepShape& s;
  Weights& weights;
  Value tokens;

  // ---- Weights

  // A tensor of the folder in its dtype.
  Value weight(const std::string& name, const std::vector<int64_t>& dims);
  // The same in the dtype of activations: norms, biases.
  Value parameter(const std::string& name, const std::vector<int64_t>& dims);
  // A weight made of tensors of the folder, see Weights::made().
  Value made(const std::string& name, const std::vector<std::string>& sources,
             const std::vector<int64_t>& source_dims, tenon_dtype dtype,
             const std::vector<int64_t>& dims, Weights::Make make, bool may_be_blocks = false);
  // An f32 weight that is made of one tensor of the folder, converted.
  Value wide(const std::string& name, const std::vector<int64_t>& dims);
  // A table of the host.
  Value table(const std::string& name, const std::vector<int64_t>& dims,
              const std::function<std::vector<float>()>& numbers);

  // ---- Nodes

  Value embed(const std::string& name);
  // The rows of the tokens in the weight [rows, dim] of `name`. Tokens from `rows` on have row 0.
  Value rows_of(const std::string& name, int64_t rows, int64_t dim);
  // x [.., in] times the transposed weight [out, in] of `name`, plus bias and residual.
  Value project(Value x, const std::string& name, int64_t in, int64_t out, bool bias = false,
                Value residual = {});
  // The same for several weights [outs[i], in] and x [batch, time, in], without residual: a result
  // for each.
  std::vector<Value> project_all(Value x, const std::vector<std::string>& names, int64_t in,
                                 const std::vector<int64_t>& outs, bool bias = false);
  // Do weights of these names stack, and their biases?
  bool stacks(const std::vector<std::string>& names, int64_t in, const std::vector<int64_t>& outs,
              bool bias = false) const;
  // Two neighbours among the results of project_all as one value, if one product made them.
  Value side_by_side(Value a, Value b);
  // All of them in one product: [.., sum of outs].
  Value project_stacked(Value x, const std::vector<std::string>& names, int64_t in,
                        const std::vector<int64_t>& outs, bool bias = false);
  // The same for a weight that is at hand. transposed: it is [out, in].
  Value multiply(Value x, Value w, const std::string& name, bool transposed = true, Value bias = {},
                 Value residual = {}, bool f32_result = false);
  Value rms_norm(Value x, const std::string& name, int64_t dims, double eps);
  // The norm that the configuration names.
  Value norm(Value x, const std::string& name, int64_t dims);
  Value bare_rms_norm(Value x, const std::string& name, double eps);  // without weights
  // gamma is at hand, in f32 or the dtype of activations.
  Value rms_norm_by(Value x, Value gamma, const std::string& name, double eps);
  Value activated(Value x, const std::string& activation, const std::string& name);
  // act(gate) * up; without up, gate is [.., 2N] with the gate first.
  Value gated(Value gate, Value up, const std::string& activation, const std::string& name);
  Value rotate(Value x, const RopeConfig& rope, const std::string& table, const std::string& name,
               bool interleaved = false);
  // Queries [batch, time, heads, dim] at position p times 1 + beta * log(1 + (p + first) / every),
  // where the quotient is a whole number.
  Value scaled_by_position(Value q, double beta, int64_t every, int64_t first = 0);
  Value reshape(Value x, std::vector<int64_t> shape);
  // `length` elements of the last axis from `start` on; leading: the dims before it.
  Value part(Value x, std::vector<int64_t> leading, int64_t start, int64_t length);
  Value scaled(Value x, double factor);
  Value clipped(Value x, double most);  // within ±most
  Value cast(Value x, tenon_dtype to);
  Value binary(const char* kind, Value a, Value b);
  Value constant(std::vector<int64_t> values);
  // The output of a layer that read x.
  Value layer_end(Value x, Value y);

  // ---- Low-rank changes

  struct Factors {
    Value a, b;  // no values: the product has no change
    double scale = 1;
  };
  Factors factors(const std::string& module, int64_t in, int64_t out, int64_t experts = 0);
  // y plus the change of the product of x [.., in] that made it.
  Value changed(Value y, Value x, const std::string& module, int64_t in, int64_t out);
  Value dropped(Value x);

  // The heads of x [.., heads * dim]: [batch, time, heads, dim].
  Value heads(Value x, int64_t heads, int64_t dim) {
    return reshape(x, {s.batch, s.time, heads, dim});
  }
  // `count` of the heads of x [batch, time, heads, dim], from `first` on.
  Value some_heads(Value x, int64_t first, int64_t count) {
    return g.add(op::narrow{
        .start = {0, 0, first, 0}, .len = {s.batch, s.time, count, g.type(x).dims[3]}, .x = x});
  }

  // ---- The cache

  // Appends rows [batch, time, heads, dim] to the cache of this name. Returns what attend() takes:
  // the caches of the sequences [batch, capacity, heads, dim], or a pool
  // [blocks, block, heads, dim], of dtype `cache`.
  Value append(const std::string& name, Value rows, int64_t heads, int64_t dim);
  struct Attention {
    double scale = 0, softcap = 0;  // scale 0: 1/sqrt(dims of q)
    int64_t window = 0;             // 0: all keys
    int64_t chunk = 0;              // only keys of the query's chunk of so many positions; 0: all
  };
  // What append() returned for this name, also where decode() has written the cache.
  Value appended(const std::string& name);
  // Causal attention of q [batch, time, heads, dim] over caches from append().
  Value attend(Value q, Value keys, Value values, const Attention& options,
               const std::string& name);
  // The same with a score of each head that takes a part of the weights and adds nothing: f32
  // [heads].
  Value attend_with_sinks(Value q, Value keys, Value values, Value sinks, const Attention& options,
                          const std::string& name);
  // Do keys that a query may see depend on more than `window`, or have they biases?
  bool has_mask(const Attention& options) const;
  // Do rope, cache and attention go into one node? Not with a mask.
  bool decodes_jointly() const {
    return s.joint_decoding && s.time == 1 && !s.whole && !slot_ && s.cache == s.compute;
  }
  // Where they do: attention of q over the caches cache.k and cache.v, to which k and v are appended,
  // all [batch, 1, heads, dim]. rope: turns q and k by the tables of that name; null: nothing turns.
  struct JointRope {
    const RopeConfig& config;
    std::string table;
    bool interleaved = false;
  };
  Value decode(Value q, Value k, Value v, const std::string& cache, const JointRope* rope,
               const Attention& options, const std::string& name);
  // A state of a recurrent model, [batch] + dims, and its update. Sequences with count 0 keep it.
  Value recurrent_state(const std::string& name, tenon_dtype dtype, std::vector<int64_t> dims);
  void update_state(const std::string& name, Value now);

  // i64 [batch, time]: where each token is in its sequence.
  Value positions();
  // Values that several parts of a family use, by names of its own.
  std::map<std::string, Value, std::less<>> kept{};
  const std::vector<CacheState>& caches() const { return caches_; }
  // Rows [rows, dim] of x [batch, time, dim] that the outputs need: the last ones of the sequences,
  // or all. Of a sum, takes the rows of both parts; the last norm then reads their sum unrounded, except in
  // whole sequences.
  Value wanted_rows(Value x);
  // Logits f32 [.., vocab] of such rows, or of x.
  Value logits(Value rows);

 private:
  Value product(Value x, Value w, const std::string& name, bool transposed, Value bias,
                Value residual, bool f32_result);
  struct RopeTables {
    Value cos, sin;
  };
  RopeTables rope_tables(const RopeConfig& rope, const std::string& name);
  Value cache_state(const std::string& name, int64_t heads, int64_t dim);
  op::attention attention_of(Value q, Value keys, Value values, const Attention& options);
  int64_t keys() const;
  Value mask(const Attention& options);  // none without has_mask()
  Value chunk_mask(int64_t chunk);       // all layers of a model have the same chunks
  Value alibi_mask();
  Value cache_rows();
  Value whole_state(const std::string& name) const;
  Value gather_slots(Value state, const std::string& name);
  Value of_sequences(Value state, const std::string& name);
  Value once(const std::string& name, const TensorType& type);

  Value past_, count_, slot_, positions_, rows_, table_, rng_, chunk_mask_, alibi_mask_;
  int64_t dropouts_ = 0;
  std::vector<CacheState> caches_;
  std::map<std::string, Value, std::less<>> weights_, states_, appended_;
  struct Part {
    Value of;
    int64_t start, length;  // on its last axis
  };
  std::map<tenon_value, Part> parts_;  // results of stacked products
  struct Sum {
    Value of, a, b;
  };
  Sum last_sum_, wanted_sum_;  // the last one of all; that of wanted_rows()
};

// ---- Parts of the decoders (decoder.cpp, experts.cpp)

// `name` is that of a layer ("model.layers.0") or of the part of a layer whose weights are used.
// Parts that take a residual add it.
using LayerPart = Value (*)(Step& step, Value normed, int64_t layer, const std::string& name,
                            Value residual);
// Latent attention (deepseek.cpp).
Value latent_attention(Step& step, Value normed, int64_t layer, const std::string& name,
                       Value residual);
// Residual plus `more` times residual_scale.
Value scaled_sum(Step& step, Value residual, Value more);
// Embedding and layers. A layer is a norm, attention, another norm and an MLP or experts.
Value decoder_layers(Step& step, LayerPart attention, LayerPart feed_forward);
// What a family calls its layers and their norms. Empty: there is no norm here.
struct LayerForm {
  std::string_view layers = "model.layers.";
  std::string_view first_norm = ".input_layernorm", second_norm = ".post_attention_layernorm";
};
// The same behind an embedding.
Value decoder_layers(Step& step, Value x, LayerPart attention, LayerPart feed_forward,
                     const LayerForm& form);
// What the norms of a layer are called that has one behind attention and one behind the MLP, too.
// Empty: the layer has none in front.
struct LayerNorms {
  std::string_view before_attention{}, behind_attention{}, before_mlp{}, behind_mlp{};
  // Makes the output of a layer of what both parts leave. Null: that is the output.
  Value (*finish)(Step& step, Value y, int64_t layer, const std::string& name) = nullptr;
};
// The same with such layers. The parts get no residual.
Value decoder_layers(Step& step, LayerPart attention, LayerPart feed_forward,
                     const LayerNorms& norms);
Value decoder_layers(Step& step, Value x, LayerPart attention, LayerPart feed_forward,
                     const LayerNorms& norms);
// x [batch, time, dim] plus the rows of the positions in the weight of `name`, whose first
// `unused` rows belong to no position.
Value with_positions(Step& step, Value x, const std::string& name, int64_t unused = 0);
// decoder_layers() with decoder_attention() and decoder_feed_forward().
Value decoder_hidden(Step& step);

struct Heads {
  Value q, k, v;  // [batch, time, heads, head_dim]
  Value qk{};     // q and k side by side, where one product made them and nothing changes them
  bool rotated = false;             // q and k are behind rope
  Value sinks{};                    // as in attend_with_sinks()
  Value gate{};                     // multiplies the result, [batch, time, heads * head_dim]
  std::string gate_by = "sigmoid";  // the function of the gate that does
  int64_t keys_of = -1;  // the layer whose keys and values count, in place of k and v; -1: its own
};
// How the attention of a family differs: the norms of heads of q and k, and names.
struct AttentionForm {
  std::string_view q_norm = ".q_norm", k_norm = ".k_norm";
  // Of all `count` heads of q or of k. Null: Step::norm(), with one weight for all heads.
  Value (*norm)(Step& step, Value heads, const std::string& name, int64_t count) = nullptr;
  std::string_view part = ".self_attn", output = "o_proj";
  bool norms_behind_rope = false;
};
Value decoder_attention(Step& step, Value normed, int64_t layer, const std::string& name,
                        Value residual, const AttentionForm& form);
Value decoder_attention(Step& step, Value normed, int64_t layer, const std::string& name,
                        Value residual);
// The same with a sink for each head, in name.self_attn.sinks.
Value attention_with_sinks(Step& step, Value normed, int64_t layer, const std::string& name,
                           Value residual);
// The first part of both: products with q_proj, k_proj and v_proj.
Heads decoder_heads(Step& step, Value normed, const std::string& name);
// Its last part: rope, the cache, attention, and the product with `output`.
Value decoder_attend(Step& step, const Heads& heads, int64_t layer, const std::string& name,
                     Value residual, std::string_view output = "o_proj");
// Heads of one product name.<product>: for each key head, the rows of its queries, of the key and
// of the value. In files of GGUF name.qkv, as split_heads() takes it.
Heads joined_heads(Step& step, Value normed, const std::string& name,
                   std::string_view product = "query_key_value");
// Attention with these heads, and the product name.dense.
Value joined_attention(Step& step, Value normed, int64_t layer, const std::string& name,
                       Value residual);
// Of [batch, time, all of q, all of k, all of v].
Heads split_heads(Step& step, Value qkv);
// Heads [batch, time, count, head_dim] as LayerNorms without weights, times gamma
// [count, head_dim].
Value norm_heads(Step& step, Value heads, Value gamma, const std::string& name);
// RMSNorm of all heads together, as AttentionForm::norm.
Value norm_all_heads(Step& step, Value heads, const std::string& name, int64_t count);

// Experts in sparse layers, with the shared one if there is one; an MLP in the others.
Value decoder_feed_forward(Step& step, Value normed, int64_t layer, const std::string& name,
                           Value residual);
// The same with other names of parts of a sparse layer, behind that of its MLP.
struct MixtureNames {
  std::string router = ".gate", shared = ".shared_experts";
  std::string correction = router + ".e_score_correction_bias";
};
Value named_feed_forward(Step& step, Value normed, int64_t layer, const std::string& name,
                         Value residual, const MixtureNames& names);
struct MlpNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};
Value decoder_mlp(Step& step, Value x, const std::string& name, int64_t ffn, Value residual,
                  const MlpNames& names = {});
// An MLP without a gate, of the two products name.<up> and name.<down>. ffn: its width; 0: that of the
// configuration.
Value plain_mlp(Step& step, Value x, const std::string& name, const std::string& up,
                const std::string& down, Value residual, int64_t ffn = 0);
// The same of the products mlp.dense_h_to_4h and mlp.dense_4h_to_h of a layer.
Value dense_mlp(Step& step, Value normed, int64_t layer, const std::string& name, Value residual);

Value decoder_norm(Step& step, Value x);  // the last one
Value decoder_head(Step& step, Value normed);
// The same for a model whose embedding has this name.
Value tied_head(Step& step, Value normed, const std::string& embedding);

// Where the weights of experts are: experts.<number>.<gate>.weight and so on. gate: empty if they have
// none.
struct ExpertNames {
  std::string router, experts, gate = "gate_proj", up = "up_proj", down = "down_proj";
  // The correction bias of the scores, for the choice: [experts], or [1, experts].
  std::string correction = router + ".e_score_correction_bias";
  bool correction_is_row = false;
};
// The causal depthwise convolution of x [batch, time, channels] along time. The weights are
// name.weight [channels, 1, width], in files of GGUF name.flat [channels, width]. The recurrent state
// `cache` has the last inputs of a sequence.
struct Convolution {
  int64_t channels = 0, width = 0;
  bool bias = false;
};
Value convolved(Step& step, Value x, const Convolution& how, const std::string& name,
                const std::string& cache);
// A mixture of experts on x [batch, time, dim].
Value experts(Step& step, Value x, const ExpertNames& names, Value residual);
// Its first part: the experts of each token and their weights, [batch * time * per_token].
struct Routes {
  Value ids, weights;
};
Routes choose_experts(Step& step, Value x, const ExpertNames& names);
// Its first product: f32 [batch * time, experts].
Value router_logits(Step& step, Value x, const ExpertNames& names);
// Its last part.
Value weighted_experts(Step& step, Value x, const ExpertNames& names, const Routes& routes,
                       Value residual);

}  // namespace tenon::llm
