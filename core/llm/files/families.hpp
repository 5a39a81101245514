// SPDX-License-Identifier: Apache-2.0
// What the families of language models call their tensors in Hugging Face folders and in GGUF files,
// and how the contents differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/config.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::files {

// Layers that have a tensor. Dense ones have no experts; recurrent ones have a state in place of
// attention.
enum class Layers : uint8_t { all, dense, sparse, attention, recurrent };
// How the content in GGUF differs from that in the folder.
enum class Change : uint8_t {
  none,
  turned,           // [inputs, outputs] in the folder, [outputs, inputs] in GGUF
  exponent,         // the folder has the logarithm of the negated numbers
  flat,             // the folder has an axis of 1 in the middle
  row,              // [1, columns] in the folder, [columns] in GGUF
  column,           // [rows] in the folder, [rows, 1] in GGUF
  exponent_column,  // the folder has the logarithm of the negated numbers, [rows]; [rows, 1] in GGUF
  groups,           // [columns] in the folder, [groups, columns of each] in GGUF
  first_half,       // the upper half of the rows of the folder's matrix
  second_half,      // the lower half
  // For each head of keys, the rows of its heads of q, of k and of v in the folder; all of q, all of
  // k, all of v in GGUF.
  by_part,
  keys,         // of each head, the rows of keys of kv_b_proj, turned: [heads, rank, rows]
  values,       // of each head, the rows of values of kv_b_proj: [heads, rows, rank]
  both_halves,  // kv_b_proj as it is, in old files; not written
  of_qkv,       // the rows of q, k and v of in_proj_qkvz: all of q, all of k, all of v
  of_gate,      // its other rows
  old           // as it is, in old files; not written
};
// The value heads of linear attention: in a folder those of a key head are neighbours; in GGUF the
// first ones of all key heads come first, then the second ones, and so on.
enum class Order : uint8_t {
  same,
  rows,              // of all value heads
  rows_behind_keys,  // behind those of q and k
  columns
};

// '*' stands for the number of a layer. Names are without ".weight" and ".bias", unless `whole`.
struct NamePair {
  std::string_view folder, gguf;
  Layers layers = Layers::all;
  bool optional = false;  // some models lack it
  Change change = Change::none;
  bool whole = false;
  Order order = Order::same;
};
// What may follow both names.
std::span<const std::string_view> ends_of(const NamePair& pair);

// Matrices of experts, one by one in a folder and as one tensor [experts, rows, columns] in GGUF. '#'
// stands for the number of an expert.
using ExpertPair = NamePair;

// A number of each layer: a tensor [1] of the folder, or [] if `scalar`; a list of f32 in GGUF.
struct NumberList {
  std::string_view folder, key;
  bool scalar = false;
};

struct Family {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // of config.json
  std::string_view gguf;          // general.architecture
  std::span<const NamePair> names;
  std::span<const ExpertPair> experts{};
  std::span<const NumberList> lists{};
  bool permuted = false;       // rows of attn_q and attn_k: pairs of rope side by side in GGUF
  bool norm_plus_one = false;  // norms of GGUF are those of the folder, plus 1
  bool tied = false;           // without lm_head unless config.json says so
  // The field of the eps of norms. Norms of another name than this one are LayerNorms.
  std::string_view eps = "rms_norm_eps";
  std::string_view activation = "silu";  // the only one that GGUF has for the family
  double rope_part = 0;    // of a head that is rotated unless config.json says so; 0: always all
  bool two_norms = false;  // of Falcon: ModelConfig::two_norms
  bool hybrid = false;     // the engine's configuration says what each layer has

  // Folders have the matrices of all experts in one tensor: see joint_experts.hpp.
  bool joint_experts() const {
    return gguf == "gpt-oss" || gguf == "granitemoe" || gguf == "llama4" ||
           (gguf == "granitehybrid" && !experts.empty());
  }
  bool is_gemma() const { return gguf.starts_with("gemma"); }
  // Some layers may have no experts.
  bool has_dense_layers() const {
    return as_deepseek() || gguf == "lfm2moe" || gguf == "ernie4_5-moe" || gguf == "llama4" ||
           gguf == "afmoe";
  }
  // Experts are chosen as DeepSeek does, and only layers in front have none.
  bool as_deepseek() const { return gguf == "deepseek2" || gguf == "glm4moe" || gguf == "dots1"; }
  // Files have the factors of the model in their weights.
  bool scales_weights() const { return gguf == "falcon-h1"; }
  // One product for q, k and v, with rows in another order in GGUF.
  bool has_parts() const {
    for (const NamePair& pair : names)
      if (pair.change == Change::by_part) return true;
    return false;
  }
  bool layer_norm() const { return eps != "rms_norm_eps" && !has_short_convolutions(); }
  // Some layers have linear attention, or a short convolution, in place of attention.
  bool has_linear_attention() const {
    return gguf == "qwen3next" || gguf == "qwen35" || gguf == "qwen35moe";
  }
  bool has_short_convolutions() const { return gguf == "lfm2" || gguf == "lfm2moe"; }
  // Of a tensor in GGUF. The norm inside of linear attention is as the folder has it.
  bool adds_one(std::string_view tensor) const {
    return norm_plus_one && tensor.ends_with("norm.weight") && !tensor.ends_with("ssm_norm.weight");
  }
};

// Throws TENON_UNSUPPORTED with the list of families.
const Family& family_of_folder(const std::string& model_type, const std::string& file,
                               bool two_norms = false);
// Family::permuted; false for a model_type without a form in GGUF.
bool is_permuted(std::string_view model_type);
// The same as family_of_folder() for models of one model_type that have different families: those with experts, and those of
// attention alone.
const Family& family_of(const ModelConfig& config, const std::string& file);
// Of a file: by general.architecture, and experts and a window tell Mixtral and Mistral from Llama.
// Throws TENON_CORRUPT without that key, and TENON_UNSUPPORTED with the list of architectures.
const Family& family_of_gguf(const Gguf& model, const std::string& file);

// The numbers of a list, one for each layer; GGUF has one alone where all are equal. Throws
// TENON_CORRUPT for another number of them.
std::vector<float> numbers_of(const NumberList& list, const Gguf& model, int64_t layers,
                              const std::string& file);

// The name with numbers in place of '*' and '#'.
std::string numbered(std::string_view name, int64_t layer, int64_t expert = 0);

}  // namespace tenon::llm::files
