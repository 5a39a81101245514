// SPDX-License-Identifier: Apache-2.0
// Quantized weights of Hugging Face folders: quantization_config of config.json, and the tensors
// that weights are decoded from.
#pragma once

#include <cstdint>
#include <string>

#include "llm/arch/config_reader.hpp"
#include "llm/arch/tensors.hpp"

namespace tenon::llm {

struct Quantization {
  enum class Layout : uint8_t {
    none,
    scaled,  // 8-bit numbers times scales: fp8, fbgemm_fp8, compressed-tensors
    gptq,    // qweight packed along inputs
    awq,     // qweight packed along outputs, in the order of the version gemm
    packed,  // weight_packed of compressed-tensors, packed along inputs; no zero points
    mxfp4    // matrices of experts in blocks of 32, see joint_experts.hpp
  };
  Layout layout = Layout::none;
  std::string method{};  // quant_method, for messages

  // Of scaled weights: f8e4m3, or i8.
  bool integers = false;
  // Dims of the parts of a weight that share a scale. 0: a scale of the weight or one of each row.
  int64_t block_rows = 0, block_columns = 0;
  bool may_be_rows = true;  // also if there are dims: the scale's own dims decide

  // Of gptq, awq and packed.
  int64_t bits = 4, group = 128;  // inputs that share a scale; -1: all
  bool zero_minus_one = false;    // zero points are stored minus 1

  bool operator==(const Quantization&) const = default;
};

// Reads quantization_config. A key that may change the weights and is not known is refused.
Quantization read_quantization(ConfigReader& r);

struct DecodeOptions {
  tenon_dtype dtype = f32;       // of weights that do not stay in blocks: f32, f16 or bf16
  bool inputs_are_rows = false;  // the model has its matrices as [inputs, outputs]
};
// The tensors of a folder whose weights are quantized: they have the names and dims of the same
// folder before. Weights stay in blocks where these have the same numbers: fp8 in f8e4m3_128,
// packed ones in q4_0, q5_0 or q8_0; all others are decoded in f32 and rounded to options.dtype.
// Throws for missing scales, wrong dims or dtypes, and UNSUPPORTED for a tensor of all experts of a
// layer.
TensorSource quantized_tensors(const std::string& folder, const Quantization& quantization,
                               const DecodeOptions& options);

}  // namespace tenon::llm
