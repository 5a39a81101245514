// SPDX-License-Identifier: Apache-2.0
// The architectures, one file per family.
#pragma once

#include "llm/arch/step.hpp"

namespace tenon::llm {

extern const Architecture kLlama, kMistral, kMinistral3, kSeedOss;   // llama.cpp
extern const Architecture kMinistral, kInternLm3, kHelium, kCwm;     // llama.cpp
extern const Architecture kIQuestCoder;                              // llama.cpp
extern const Architecture kQwen2, kQwen2Moe, kQwen3, kQwen3Moe;      // qwen.cpp
extern const Architecture kMellum;                                   // qwen.cpp
extern const Architecture kQwen3Next, kQwen35, kQwen35Moe;           // qwen_next.cpp
extern const Architecture kLfm2, kLfm2Moe;                           // lfm2.cpp
extern const Architecture kGemma, kGemma2, kGemma3, kVaultGemma;     // gemma.cpp
extern const Architecture kGemma3n;                                  // gemma3n.cpp
extern const Architecture kGemma4;                                   // gemma4.cpp
extern const Architecture kPhi3;                                     // phi3.cpp
extern const Architecture kPhi;                                      // phi.cpp
extern const Architecture kGpt2;                                     // gpt2.cpp
extern const Architecture kGptNeox;                                  // neox.cpp
extern const Architecture kGptOss;                                   // gpt_oss.cpp
extern const Architecture kMixtral, kMiniMaxM2;                      // mixtral.cpp
extern const Architecture kPhiMoe;                                   // phimoe.cpp
extern const Architecture kNanoChat;                                 // nanochat.cpp
extern const Architecture kDeepseekV2, kDeepseekV3;                  // deepseek.cpp
extern const Architecture kGlm4MoeLite, kMistral4;                   // deepseek.cpp
extern const Architecture kMiniCpm3, kYoutu, kSarvamMla;             // deepseek.cpp
extern const Architecture kGranite, kGraniteMoe, kGraniteHybrid;     // granite.cpp
extern const Architecture kGraniteMoeShared, kHyperClovaX;           // granite.cpp
extern const Architecture kGraniteSwa, kGraniteMoeSwa;               // granite.cpp
extern const Architecture kSmolLm3;                                  // smollm.cpp
extern const Architecture kOlmo, kOlmo2, kOlmo3, kOlmoe, kFlexOlmo;  // olmo.cpp
extern const Architecture kMamba, kMamba2, kFalconMamba;             // mamba.cpp
extern const Architecture kCohere, kCohere2, kCohere2Moe;            // cohere.cpp
extern const Architecture kStableLm;                                 // stablelm.cpp
extern const Architecture kStarcoder2, kNemotron, kArcee, kJais2;    // starcoder.cpp
extern const Architecture kGlm, kGlm4, kGlm4Moe, kDots1;             // glm.cpp
extern const Architecture kSolarOpen, kSarvamMoe;                    // glm.cpp
extern const Architecture kExaone, kExaone4, kExaoneMoe;             // exaone.cpp
extern const Architecture kHunyuan, kHunyuanMoe, kHyV3;              // hunyuan.cpp
extern const Architecture kFalconH1;                                 // falcon_h1.cpp
extern const Architecture kNemotronH;                                // nemotron_h.cpp
extern const Architecture kJamba, kBamba;                            // jamba.cpp
extern const Architecture kErnie, kErnieMoe;                         // ernie.cpp
extern const Architecture kFalcon;                                   // falcon.cpp
extern const Architecture kMpt;                                      // mpt.cpp
extern const Architecture kBloom;                                    // bloom.cpp
extern const Architecture kGptJ, kCodeGen;                           // gptj.cpp
extern const Architecture kGptNeo, kGptBigCode;                      // gpt_neo.cpp
extern const Architecture kOpt, kBioGpt, kXglm;                      // opt.cpp
extern const Architecture kLlama4;                                   // llama4.cpp
extern const Architecture kApertus;                                  // apertus.cpp
extern const Architecture kPersimmon;                                // persimmon.cpp
extern const Architecture kAfmoe;                                    // afmoe.cpp
extern const Architecture kMimoV2;                                   // mimo.cpp
extern const Architecture kLaguna;                                   // laguna.cpp

}  // namespace tenon::llm
