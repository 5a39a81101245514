// SPDX-License-Identifier: Apache-2.0
// tokenizer.json as a whole: added tokens, what surrounds a text, and the roles that tokenizer_config.json gives.
#include <cstdint>
#include <utility>

#include "llm/json_text.hpp"
#include "llm/text/json_stages.hpp"
#include "llm/text/tokenizer.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

std::vector<AddedToken> read_added(const JsonNode& list, const Vocab& vocab) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  const size_t count = list.list_size();
  for (size_t i = 0; i < count; ++i) {
    const JsonNode node = list.element(i);
    AddedToken t;
    t.text = node.at("content").text();
    const JsonNode id = node.at("id");
    t.id = read_id({id.value(), id.path() + " of '" + t.text.substr(0, 80) + "'"},
                   vocab.size() + count);
    // A token that the model knows keeps its id there.
    if (const TokenId known = vocab.find(t.text); known != kNoToken) t.id = known;
    if (vocab.has(t.id) && vocab.text(t.id) != t.text)
      node.refuse("an id that is not that of '" + std::string(vocab.text(t.id)) + "'");
    t.special = node.at("special").boolean(false);
    t.single_word = node.at("single_word").boolean(false);
    t.lstrip = node.at("lstrip").boolean(false);
    t.rstrip = node.at("rstrip").boolean(false);
    t.normalized = node.at("normalized").boolean(!t.special);
    if (!t.text.empty()) tokens.push_back(std::move(t));
  }
  return tokens;
}

TokenId known_id(const JsonNode& node, const Vocab& vocab) {
  const TokenId id = read_id(node, vocab.size());
  if (!vocab.has(id)) node.refuse("the id of a token");
  return id;
}

void append_special(const JsonNode& node, const JsonNode& table, const Vocab& vocab,
                    std::vector<TokenId>& out) {
  const std::string name = node.at("id").text();
  const JsonNode ids = table.at(name.c_str()).at("ids");
  if (ids.is_null()) node.refuse("a token that 'special_tokens' lists");
  for (size_t i = 0; i < ids.list_size(); ++i) out.push_back(known_id(ids.element(i), vocab));
}

// ["[SEP]", 102]
TokenId read_pair(const JsonNode& node, const Vocab& vocab) {
  if (node.list_size() != 2) node.refuse("a list of a token and its id");
  return known_id(node.element(1), vocab);
}

void read_template(const JsonNode& node, TokenizerParts& parts) {
  const JsonNode single = node.at("single"), table = node.at("special_tokens");
  std::vector<TokenId> before, after;
  size_t texts = 0;
  for (size_t i = 0; i < single.list_size(); ++i) {
    const JsonNode item = single.element(i);
    item.expect_object();
    if (const JsonNode token = item.at("SpecialToken"); !token.is_null())
      append_special(token, table, parts.vocab, texts ? after : before);
    else if (const JsonNode text = item.at("Sequence"); !text.is_null())
      ++texts;
    else
      item.unknown("SpecialToken or Sequence");
  }
  if (texts != 1) single.unknown("exactly one Sequence");
  parts.before.insert(parts.before.begin(), before.begin(), before.end());
  parts.after.insert(parts.after.end(), after.begin(), after.end());
}

void read_processor(const JsonNode& node, int depth, TokenizerParts& parts) {
  if (node.is_null()) return;
  const std::string type = node.at("type").text();
  if (type == "Sequence")
    read_sequence(node.at("processors"), depth,
                  [&](const JsonNode& e) { read_processor(e, depth + 1, parts); });
  else if (type == "TemplateProcessing")
    read_template(node, parts);
  else if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.before.insert(parts.before.begin(), read_pair(node.at("cls"), parts.vocab));
    parts.after.push_back(read_pair(node.at("sep"), parts.vocab));
  } else if (type != "ByteLevel")  // which changes offsets only
    node.at("type").unknown(
        "Sequence, TemplateProcessing, BertProcessing, RobertaProcessing or ByteLevel");
}

// The token of a role: its text, or an object with it.
TokenId role(const JsonNode& config, const char* name, const Vocab& vocab) {
  JsonNode token = config.at(name);
  if (token.value().is_object()) token = token.at("content");
  return token.is_null() ? kNoToken : vocab.find(token.text());
}

void read_roles(const JsonNode& config, TokenizerParts& parts) {
  parts.bos = role(config, "bos_token", parts.vocab);
  parts.eos = role(config, "eos_token", parts.vocab);
  parts.pad = role(config, "pad_token", parts.vocab);
  if (const TokenId unk = role(config, "unk_token", parts.vocab); unk != kNoToken) parts.unk = unk;
}

}  // namespace

void read_post_processor(const JsonNode& node, TokenizerParts& parts) {
  read_processor(node, 0, parts);
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view config,
                               const std::string& file) {
  const Json json = parse_object(text, file);
  const JsonNode root(json, file);
  auto parts = std::make_unique<TokenizerParts>();
  read_model(root.at("model"), *parts);
  read_normalizer(root.at("normalizer"), parts->normalizers);
  read_pre_tokenizer(root.at("pre_tokenizer"), parts->pre_tokenizers);
  read_decoder(root.at("decoder"), parts->decoders);
  parts->space_between = parts->decoders.empty();
  parts->set_added(read_added(root.at("added_tokens"), parts->model_vocab));
  read_post_processor(root.at("post_processor"), *parts);
  if (!config.empty()) {
    const std::string name = file + ": tokenizer_config.json";
    const Json roles = parse_object(config, name);
    read_roles({roles, name}, *parts);
  }
  parts->set_ends({});
  return Tokenizer(std::move(parts));
}

}  // namespace tenon::llm
