// SPDX-License-Identifier: Apache-2.0
// Chat templates: from the messages of a conversation to the text that a model reads, as
// apply_chat_template of Hugging Face transformers makes it. README.md lists what templates may use.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "llm/chat/value.hpp"

namespace tenon::llm {

using ChatJson = nlohmann::ordered_json;  // from text by parse_json()

struct ChatOptions {
  ChatJson messages = ChatJson::array();  // objects with `role`, `content`, `tool_calls`, ...
  ChatJson tools = nullptr;               // a list of JSON schemas, or null
  bool add_generation_prompt = true;
  ChatJson extra = ChatJson::object();  // further variables, such as enable_thinking
  std::optional<std::tm> now = {};      // for strftime_now; else the local time
  jinja::Limits limits = {};
};

// Immutable, so threads may share it.
class ChatTemplate {
 public:
  // Tokens that are left out are undefined in the template. Throws TENON_CORRUPT for wrong syntax.
  explicit ChatTemplate(std::string_view source, std::optional<std::string> bos_token = {},
                        std::optional<std::string> eos_token = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Throws TENON_INVALID_ARGUMENT for what the template refuses or cannot do, and
  // TENON_OUT_OF_MEMORY beyond a limit.
  std::string render(const ChatOptions& options) const;

 private:
  struct Content;
  std::unique_ptr<const Content> content_;
};

}  // namespace tenon::llm
