// SPDX-License-Identifier: Apache-2.0
// Renders chat templates for chat.py. Each line of the input is a JSON object with `template`, and may have `bos_token`,
// `eos_token`, `messages`, `tools`, `add_generation_prompt`, `extra` and `now` (seconds, UTC). Each line of the output has
// `text` or `error`.
#include <iostream>

#include "llm/chat/chat_template.hpp"
#include "tenon/tenon.hpp"

using tenon::llm::ChatJson;

namespace {

ChatJson answer(const ChatJson& request) {
  tenon::llm::ChatOptions options;
  options.messages = request.value("messages", ChatJson::array());
  options.tools = request.value("tools", ChatJson());
  options.add_generation_prompt = request.value("add_generation_prompt", true);
  options.extra = request.value("extra", ChatJson::object());
  const std::time_t seconds = request.value("now", std::time_t{0});
  std::tm now{};
  gmtime_r(&seconds, &now);
  options.now = now;
  const auto token = [&](const char* name) {
    const auto at = request.find(name);
    return at == request.end() ? std::optional<std::string>() : at->get<std::string>();
  };
  try {
    const tenon::llm::ChatTemplate chat(request.at("template").get_ref<const std::string&>(),
                                        token("bos_token"), token("eos_token"));
    return {{"text", chat.render(options)}};
  } catch (const tenon::Error& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(ChatJson::parse(line)).dump() << std::endl;
}
