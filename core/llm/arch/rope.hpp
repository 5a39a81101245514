// SPDX-License-Identifier: Apache-2.0
// Angles of the rotary embedding and their scalings for long contexts, as Hugging Face transformers
// defines them.
#pragma once

#include <cstdint>
#include <vector>

#include "llm/arch/config_reader.hpp"

namespace tenon::llm {

struct RopeConfig {
  enum class Type : uint8_t { plain, linear, dynamic, llama3, yarn, longrope, proportional };
  Type type = Type::plain;
  int64_t dims = 0;  // of a head that are rotated; even
  double theta = 10000;
  double factor = 1;
  int64_t turned_dims = 0;                           // of proportional: those of `dims` that turn
  int64_t original_context = 0;                      // of dynamic, llama3, yarn and longrope
  double low_freq_factor = 1, high_freq_factor = 4;  // of llama3
  double beta_fast = 32, beta_slow = 1;              // of yarn: rotations
  bool truncate = true;                              // of yarn: whole pairs limit the ramp
  double mscale_all_dim = 0;                         // of yarn: see softmax_scale()
  // Of Ministral 3: queries at position p are multiplied by
  // 1 + beta * log(1 + p / original_context), where the quotient is a whole number. 0: they stay.
  double query_beta = 0;
  double attention_factor = 1;                              // multiplies cos and sin
  double long_attention_factor = 0;                         // PhiMoE: with the long factors
  bool backwards = false;                                   // NanoChat: the other way round
  std::vector<double> short_factor = {}, long_factor = {};  // of longrope, one per pair

  // Radians per position of each pair. context: the most positions that the cache holds. longrope
  // takes the long factors if it exceeds original_context; dynamic refuses it then, because its
  // angles would depend on the length that a sequence reaches later.
  std::vector<double> frequencies(int64_t context) const;
  // What multiplies cos and sin.
  double amplitude(int64_t context) const {
    return long_attention_factor > 0 && context > original_context ? long_attention_factor
                                                                   : attention_factor;
  }
  // The scale of DeepSeek's attention is multiplied by this.
  double softmax_scale() const;
};

// How files of some families differ.
struct RopeForm {
  bool named_amplitudes = false;  // longrope has short_mscale and long_mscale, which are required
  bool deepseek_yarn = false;     // rope_scaling may have this type, which is yarn
};
// Reads rope_theta, rope_scaling and rope_parameters. dims: of a head, before
// partial_rotary_factor. context: max_position_embeddings. part: of a head that is rotated unless
// the file says otherwise; 0: models of this type rotate all of it, and a file that says otherwise
// is refused.
RopeConfig read_rope(ConfigReader& r, int64_t dims, int64_t context, double theta = 10000,
                     double part = 0, const RopeForm& form = {});
// Throws for the key partial_rotary_factor. transformers ignores it where the family has no such
// part, or fails.
[[noreturn]] void refuse_partial(const ConfigReader& r);
// Reads one object of rope parameters into `rope`; its keys are all known or refused.
void read_rope_object(ConfigReader& r, RopeConfig& rope, int64_t context,
                      const RopeForm& form = {});
// Checks what has been read.
void check_rope(const RopeConfig& rope, const std::string& where);

}  // namespace tenon::llm
