// SPDX-License-Identifier: Apache-2.0
// C functions for the choices that devices make by timing.
#include <nlohmann/json.hpp>

#include "api/door.hpp"
#include "tenon/tenon_tune.h"

using namespace tenon::core;

namespace {

constexpr const char* kForm = "choices: expected an object with a list of strings per plugin";

Host::Choices parsed(std::string_view text) {
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) fail(Code::invalid_argument, kForm);
  Host::Choices out;
  for (const auto& [plugin, list] : j.items()) {
    if (!list.is_array()) fail(Code::invalid_argument, kForm);
    for (const auto& choice : list) {
      if (!choice.is_string()) fail(Code::invalid_argument, kForm);
      out[plugin].push_back(choice.get<std::string>());
    }
  }
  return out;
}

}  // namespace

tenon_status* tenon_runtime_choices(tenon_runtime* runtime, tenon_text** out_json) {
  return door("tenon_runtime_choices", [&] {
    need(out_json, "out_json");
    const nlohmann::json j = need(runtime, "runtime").runtime->host.choices();
    *out_json = new tenon_text{j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  });
}

tenon_status* tenon_runtime_take_choices(tenon_runtime* runtime, tenon_str json) {
  return door("tenon_runtime_take_choices",
              [&] { need(runtime, "runtime").runtime->host.take_choices(parsed(view(json))); });
}
