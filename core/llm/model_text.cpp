// SPDX-License-Identifier: Apache-2.0
// Reads tokenizers and chat templates.
#include "llm/model_text.hpp"

#include <filesystem>

#include "llm/arch/config_reader.hpp"
#include "llm/engine.hpp"
#include "llm/gguf_model.hpp"
#include "llm/json_text.hpp"
#include "llm/model_folder.hpp"

namespace tenon::llm {
namespace {

// A special token: a string, or an object with `content`.
std::optional<std::string> special_token(const Json& config, const char* key) {
  const auto at = config.find(key);
  if (at == config.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  if (at->is_object())
    if (const auto content = at->find("content"); content != at->end() && content->is_string())
      return content->get<std::string>();
  return {};
}

// chat_template of tokenizer_config.json: a string, or a list of objects with name and template, of
// which "default" counts.
std::optional<std::string> template_of(const Json& config, const std::string& file) {
  const auto at = config.find("chat_template");
  if (at == config.end() || at->is_null()) return {};
  if (at->is_string()) return at->get<std::string>();
  if (at->is_array())
    for (const Json& entry : *at)
      if (entry.is_object() && entry.value("name", Json()) == "default")
        if (const auto t = entry.find("template"); t != entry.end() && t->is_string())
          return t->get<std::string>();
  throw Error(TENON_CORRUPT,
              file +
                  ": 'chat_template' has the wrong form; expected a string, or a list "
                  "with a template of the name 'default'");
}

}  // namespace

ModelText ModelText::read(const std::string& model) {
  return is_model_file(model) ? of_gguf(model) : of_folder(model);
}

ModelText ModelText::of_gguf(const std::string& file) {
  const GgufModel model(file);
  ModelText out(Tokenizer::from_metadata(*model.metadata(), file), file);
  const auto text = [&](std::optional<TokenId> id) -> std::optional<std::string> {
    if (!id) return {};
    return std::string(out.tokenizer_.text(*id));
  };
  if (const auto source = model.chat_template())
    out.take_template(*source, text(out.tokenizer_.bos()), text(out.tokenizer_.eos()));
  return out;
}

ModelText ModelText::of_folder(const std::string& folder) {
  const std::string tokenizer_file = folder + "/tokenizer.json",
                    config_file = folder + "/tokenizer_config.json";
  const auto json = read_if_there(tokenizer_file);
  if (!json) {
    std::error_code error;
    if (!std::filesystem::exists(folder + "/config.json", error))
      throw Error(TENON_NOT_FOUND,
                  folder + ": expected a model, a folder with config.json, or a GGUF file");
    throw Error(TENON_NOT_FOUND, tokenizer_file + ": no such file");
  }
  const std::string config_text = read_if_there(config_file).value_or("");
  ModelText out(Tokenizer::from_json(*json, config_text, tokenizer_file), folder);
  const Json config =
      config_text.empty() ? Json::object() : Json(parse_object(config_text, config_file));
  std::optional<std::string> source = read_if_there(folder + "/chat_template.jinja");
  if (!source) source = template_of(config, config_file);
  if (source)
    out.take_template(*source, special_token(config, "bos_token"),
                      special_token(config, "eos_token"));
  return out;
}

void ModelText::take_template(const std::string& source, std::optional<std::string> begin,
                              std::optional<std::string> end) {
  chat_.emplace(source, std::move(begin), std::move(end));
  knows_developer_ = source.find("developer") != std::string::npos;
}

std::vector<int64_t> ModelText::text_ids(const std::string& text) const {
  const std::vector<TokenId> ids = tokenizer_.encode(text);
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> ModelText::chat_ids(const std::vector<Message>& messages) const {
  ChatOptions options;
  for (const Message& m : messages)
    options.messages.push_back({{"role", m.role}, {"content", m.content}});
  return chat_ids(options);
}

std::string ModelText::chat_text(const ChatOptions& options) const {
  if (!chat_)
    throw Error(TENON_UNSUPPORTED, model_ +
                                       ": the model has no chat template; hint: a prompt "
                                       "without a conversation");
  return chat_->render(options);
}

std::vector<int64_t> ModelText::chat_ids(const ChatOptions& options) const {
  // The template writes all special tokens itself.
  const std::vector<TokenId> ids = tokenizer_.encode(chat_text(options), {.add_special = false});
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> ModelText::end_ids() const {
  return {tokenizer_.ends().begin(), tokenizer_.ends().end()};
}

}  // namespace tenon::llm
