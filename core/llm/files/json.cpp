// SPDX-License-Identifier: Apache-2.0
// Reads JSON files of model folders.
#include "llm/files/json.hpp"

#include "llm/json_text.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm::files {

std::optional<Json> read_object(const std::string& path) {
  const auto text = read_if_there(path);
  if (!text) return {};
  return parse_object(*text, path);
}

}  // namespace tenon::llm::files
