// SPDX-License-Identifier: Apache-2.0
// Which format each tensor of a GGUF file gets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/tenon.hpp"

namespace tenon::llm::files {

// The values of --type, in the order of the help.
inline constexpr std::string_view kMixes[] = {"F32",  "F16",  "BF16", "Q8_0",   "Q4_0", "Q4_1",
                                              "Q5_0", "Q5_1", "Q6_K", "Q4_K_M", "MXFP4"};

struct MixModel {
  int64_t layers = 0, experts = 0;
  bool tied = false;  // token_embd is the output matrix, too
};

// The number of a mix in general.file_type.
uint32_t file_type(std::string_view mix);
// The format of a tensor of rank 2 or more whose rows have `columns` elements. Norms, biases and
// routers are F32 in every mix.
GgufFormat format_in(std::string_view mix, const MixModel& model, std::string_view name,
                     int64_t layer, int64_t columns);

}  // namespace tenon::llm::files
