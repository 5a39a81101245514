// SPDX-License-Identifier: Apache-2.0
// Text of a language model: its tokenizer and its chat template.
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
  // model: a folder with tokenizer.json and, if they exist, tokenizer_config.json and
  // chat_template.jinja; or a GGUF file. Throws NOT_FOUND without a tokenizer.
  static ModelText read(const std::string& model);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat() const { return chat_.has_value(); }
  // The chat template names the role `developer`.
  bool knows_developer() const { return knows_developer_; }
  // Token ids of a text that the model continues.
  std::vector<int64_t> text_ids(const std::string& text) const;
  // Token ids of a conversation that the assistant continues. Throws without a chat template.
  std::vector<int64_t> chat_ids(const std::vector<Message>& messages) const;
  // The same for messages with tools and whatever else the template knows.
  std::vector<int64_t> chat_ids(const ChatOptions& options) const;
  // The text of it, with all special tokens.
  std::string chat_text(const ChatOptions& options) const;
  // Tokens that end an answer.
  std::vector<int64_t> end_ids() const;

 private:
  ModelText(Tokenizer tokenizer, std::string model)
      : tokenizer_(std::move(tokenizer)), model_(std::move(model)) {}
  static ModelText of_folder(const std::string& folder);
  static ModelText of_gguf(const std::string& file);
  void take_template(const std::string& source, std::optional<std::string> begin,
                     std::optional<std::string> end);

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;
  bool knows_developer_ = false;
  std::string model_;
};

}  // namespace tenon::llm
