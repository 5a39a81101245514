// SPDX-License-Identifier: Apache-2.0
// Tensors that hold the matrices of all experts of a layer, taken apart into gate, up and down.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "llm/arch/encoded_weight.hpp"

namespace tenon::llm {

enum class JointLayout : uint8_t {
  none,
  // gate_up_proj [experts, inputs, 2 outputs], where columns of gate and up take turns, and
  // down_proj [experts, inputs, outputs]; gate_up_proj_bias and down_proj_bias. In blocks of MXFP4:
  // gate_up_proj_blocks [experts, 2 outputs, groups, 16] and gate_up_proj_scales, likewise
  // down_proj.
  turns,
  // The same with all columns of gate in front of those of up, without biases and blocks; or the
  // rows of half_rows by these names.
  half_columns,
  // gate_up_proj [experts, 2 outputs, inputs], rows of gate first, and down_proj [experts, outputs,
  // inputs].
  half_rows_by_name,
  // input_linear.weight [experts, 2 outputs, inputs], rows of gate first, and output_linear.weight
  // [experts, outputs, inputs].
  half_rows
};
// Of a model_type of config.json.
JointLayout joint_layout(std::string_view model_type);
// Is this the name of a tensor of all experts of a layer, or of its biases, blocks or scales?
bool is_joint(std::string_view tensor);

// One of gate, up and down, of all experts of a layer.
struct JointPart {
  std::string experts{};  // model.layers.0.mlp.experts
  std::string which{};    // gate_proj, up_proj or down_proj
  bool bias = false;
  int64_t count = 0, rows = 0, columns = 0;  // of each expert; a bias has one row
  tenon_dtype dtype = f32;                   // f32, f16, bf16 or MXFP4
  // The matrices of experts `first` to `first + number`, one below the other. The files must stay
  // mapped.
  std::function<std::unique_ptr<EncodedWeight>(int64_t first, int64_t number)> matrices{};

  std::string name() const { return experts + "." + which + (bias ? ".bias" : ".weight"); }
  std::string name_of(int64_t expert) const {
    return experts + "." + std::to_string(expert) + "." + which + ".weight";
  }
};
// dim: hidden_size. used: receives the names. Throws for tensors of such names with other dims or
// dtypes, CORRUPT if two tensors have the matrices of the same part.
std::vector<JointPart> joint_parts(JointLayout layout, int64_t dim,
                                   const std::vector<Safetensors::Entry>& tensors,
                                   std::set<std::string, std::less<>>& used);

// The tensors of a folder, with name() of each part: [experts, rows, columns], a bias [experts,
// columns]. Those of MXFP4 stay in blocks, unless a graph asks for plain ones: then they have
// options.dtype.
TensorSource joint_tensors(const std::string& folder, JointLayout layout, int64_t dim,
                           const DecodeOptions& options);

}  // namespace tenon::llm
