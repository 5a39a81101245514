// SPDX-License-Identifier: Apache-2.0
// Parses JSON with a bound on its depth.
#include "llm/chat/json_text.hpp"

#include "tenon/tenon.hpp"

namespace tenon::llm {

nlohmann::ordered_json parse_json(std::string_view text, const std::string& where) {
  using Json = nlohmann::ordered_json;
  constexpr int kMostDepth = 200;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth)
      throw Error(TENON_CORRUPT, where + ": expected at most " + std::to_string(kMostDepth) +
                                     " nested lists and objects");
    return true;
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::exception& e) {
    throw Error(TENON_CORRUPT, where + ": no valid JSON: " + e.what());
  }
}

}  // namespace tenon::llm
