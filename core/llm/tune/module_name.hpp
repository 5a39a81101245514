// SPDX-License-Identifier: Apache-2.0
// The names that adapters have for products of GGUF files.
#pragma once

#include <string>
#include <string_view>

namespace tenon::llm {

// The product for q, k and v together of files of GGUF. Its rows have another order there.
inline bool is_qkv(std::string_view module) { return module.ends_with(".qkv"); }

// The name of a product of a graph in the folder of a model of text.
inline std::string module_in_folder(const std::string& module) {
  if (!is_qkv(module)) return module;
  return module.substr(0, module.rfind('.')) + ".query_key_value";
}

}  // namespace tenon::llm
