// SPDX-License-Identifier: Apache-2.0
// Text of a language model's folder: its tokenizer and its chat template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "llm/chat/chat_template.hpp"
#include "llm/text/tokenizer.hpp"

namespace tenon::llm {

struct Message {
  std::string role, content;  // role: system, user, assistant
};

class ModelText {
 public:
  // Reads tokenizer.json and, if they exist, tokenizer_config.json and chat_template.jinja. Throws
  // NOT_FOUND without tokenizer.json.
  static ModelText read(const std::string& folder);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat() const { return chat_.has_value(); }
  // Token ids of a text that the model continues.
  std::vector<int64_t> text_ids(const std::string& text) const;
  // Token ids of a conversation that the assistant continues. Throws without a chat template.
  std::vector<int64_t> chat_ids(const std::vector<Message>& messages) const;
  // The same for messages with tools and whatever else the template knows.
  std::vector<int64_t> chat_ids(const ChatOptions& options) const;
  // Tokens that end an answer.
  std::vector<int64_t> end_ids() const;

 private:
  explicit ModelText(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::string folder_;
};

}  // namespace tenon::llm
