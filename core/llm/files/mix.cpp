// SPDX-License-Identifier: Apache-2.0
// The mixes: which tensors get more bits than the rest.
#include "llm/files/mix.hpp"

namespace tenon::llm::files {
namespace {

// The layers whose attn_v and ffn_down have more bits in Q4_K_M: the first and the last eighth, and
// every third between them.
bool has_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

std::string_view q4_k_m(const MixModel& m, std::string_view name, int64_t layer, bool output) {
  const auto is = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (output) return "Q6_K";
  const bool eight = m.experts == 8;  // attention is a small part of such a model
  if (is("attn_v.")) return eight ? "Q8_0" : has_more_bits(layer, m.layers) ? "Q6_K" : "Q4_K";
  if (is("attn_k.")) return eight ? "Q8_0" : "Q4_K";
  if (is("attn_output.")) return eight ? "Q5_K" : "Q4_K";
  if (is("attn_qkv.")) return "Q5_K";
  if (is("ffn_down")) return has_more_bits(layer, m.layers) ? "Q6_K" : "Q4_K";
  return "Q4_K";
}

// For rows that are no multiple of the block of 256.
std::string_view smaller_block(std::string_view format) {
  if (format == "Q4_K") return "Q5_0";
  if (format == "Q5_K") return "Q5_1";
  return "Q8_0";
}

}  // namespace

uint32_t file_type(std::string_view mix) {
  constexpr uint32_t kNumbers[] = {0, 1, 32, 7, 2, 3, 8, 9, 18, 15, 38};
  for (size_t i = 0; i < std::size(kMixes); ++i)
    if (kMixes[i] == mix) return kNumbers[i];
  throw Error(TENON_INVALID_ARGUMENT, "type '" + std::string(mix) + "' is not known");
}

GgufFormat format_in(std::string_view mix, const MixModel& model, std::string_view name,
                     int64_t layer, int64_t columns) {
  const bool embedding = name == "token_embd.weight",
             output = name == "output.weight" || (embedding && model.tied);
  const auto is = [&](std::string_view part) { return name.find(part) != name.npos; };
  const bool in_blocks = mix != "F32" && mix != "F16" && mix != "BF16";
  std::string_view format = mix;
  if (in_blocks && (is("attn_k_b.") || is("attn_v_b.")))  // few, and all heads depend on them
    format = "Q8_0";
  else if (in_blocks && (is("ssm_x.") || is("ssm_dt.") || is("ssm_alpha.") || is("ssm_beta.") ||
                         is("ssm_ba.")))  // small
    format = "F16";
  else if (mix == "Q4_K_M")
    format = q4_k_m(model, name, layer, output);
  else if (mix == "MXFP4" &&
           (embedding || output || (model.experts > 0 && name.find("_exps.") == name.npos)))
    format = "Q8_0";
  else if (output && (mix.starts_with("Q4_") || mix.starts_with("Q5_")))
    format = "Q6_K";
  GgufFormat chosen = gguf_format(format);
  if (chosen.elements == 256 && columns % 256 != 0) chosen = gguf_format(smaller_block(format));
  if (columns % chosen.elements != 0) chosen = gguf_format("F16");
  return chosen;
}

}  // namespace tenon::llm::files
