// SPDX-License-Identifier: Apache-2.0
// The list of the architectures.
#include "llm/arch/families.hpp"

namespace tenon::llm {

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> all = {
      &kLlama,      &kMistral,  &kQwen2,         &kQwen3,      &kQwen3Moe,   &kGemma2,
      &kGemma3,     &kPhi3,     &kGpt2,          &kMixtral,    &kDeepseekV2, &kDeepseekV3,
      &kMamba,      &kGemma,    &kGranite,       &kSmolLm3,    &kOlmo2,      &kQwen2Moe,
      &kMinistral3, &kCohere,   &kCohere2,       &kStableLm,   &kPhi,        &kGptNeox,
      &kStarcoder2, &kNemotron, &kArcee,         &kGptOss,     &kGlm,        &kGlm4,
      &kGlm4Moe,    &kOlmo3,    &kOlmoe,         &kGraniteMoe, &kSeedOss,    &kErnie,
      &kExaone4,    &kHunyuan,  &kQwen3Next,     &kQwen35,     &kQwen35Moe,  &kLfm2,
      &kLfm2Moe,    &kMamba2,   &kGraniteHybrid, &kFalconH1,   &kNemotronH,  &kJamba,
      &kBamba,      &kErnieMoe, &kHunyuanMoe,    &kFalcon,     &kMpt,        &kBloom,
      &kGptJ,       &kLlama4,   &kDots1,         &kApertus,    &kCodeGen,    &kGptNeo,
      &kGptBigCode, &kOpt};
  return all;
}

}  // namespace tenon::llm
