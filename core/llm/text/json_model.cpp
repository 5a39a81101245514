// SPDX-License-Identifier: Apache-2.0
// The models of tokenizer.json.
#include <algorithm>
#include <cmath>
#include <utility>

#include "llm/text/json_stages.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

void add(const JsonNode& node, const std::string& text, TokenId id, Vocab& vocab) {
  if (!vocab.add(text, id))
    throw Error(TENON_CORRUPT, node.path() + ": the tokens '" + std::string(vocab.text(id)) +
                                   "' and '" + text + "' have the same id " + std::to_string(id));
}

// {text: id}
void read_vocab(const JsonNode& node, Vocab& vocab) {
  node.expect_object();
  const size_t count = node.value().size();
  vocab.reserve(count);
  for (const auto& [text, id] : node.value().items()) {
    // Paths are strings, and there may be 300,000 of them.
    if (id.is_number_integer() && id >= 0 && id <= static_cast<int64_t>(count))
      add(node, text, id.get<TokenId>(), vocab);
    else
      add(node, text, read_id({id, node.path() + "['" + text + "']"}, count), vocab);
  }
}

TokenId token_of(const JsonNode& node, const std::string& text, const Vocab& vocab) {
  const TokenId id = vocab.find(text);
  if (id == kNoToken) node.refuse("a token of the vocabulary (not '" + text + "')");
  return id;
}

TokenId unknown_of(const JsonNode& model, const Vocab& vocab) {
  const JsonNode token = model.at("unk_token");
  return token.is_null() ? kNoToken : vocab.find(token.text());
}

std::pair<std::string, std::string> read_merge(const JsonNode& node) {
  if (node.value().is_string()) {
    const std::string text = node.text();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      node.refuse("two tokens with a space between them");
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (node.list_size() != 2) node.refuse("a list of two tokens");
  return {node.element(0).text(), node.element(1).text()};
}

void read_bpe(const JsonNode& node, TokenizerParts& parts) {
  Vocab& vocab = parts.model_vocab;
  read_vocab(node.at("vocab"), vocab);
  const JsonNode dropout = node.at("dropout");
  if (!dropout.is_null() && dropout.number() != 0) dropout.unknown("null or 0: dropout is random");
  BpeOptions options{.unknown = unknown_of(node, vocab),
                     .fuse_unknown = node.at("fuse_unk").boolean(false),
                     .byte_fallback = node.at("byte_fallback").boolean(false),
                     .ignore_merges = node.at("ignore_merges").boolean(false),
                     .prefix = node.at("continuing_subword_prefix").text(""),
                     .suffix = node.at("end_of_word_suffix").text("")};
  const JsonNode list = node.at("merges");
  const size_t count = list.list_size();
  MergeList merges;
  merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const JsonNode merge = list.element(i);
    const auto [left, right] = read_merge(merge);
    std::string whole = left;
    // Inside of a word, the right part has the prefix once more.
    whole += right.starts_with(options.prefix) ? right.substr(options.prefix.size()) : right;
    merges.add(token_of(merge, left, vocab), token_of(merge, right, vocab),
               {static_cast<uint32_t>(i), token_of(merge, whole, vocab)});
  }
  parts.model = make_bpe(vocab, std::move(merges), std::move(options));
}

void read_unigram(const JsonNode& node, TokenizerParts& parts) {
  const JsonNode list = node.at("vocab");
  const size_t count = list.list_size();
  std::vector<double> scores;
  parts.model_vocab.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const JsonNode pair = list.element(i);
    if (pair.list_size() != 2) pair.refuse("a list of a token and its score");
    add(list, pair.element(0).text(), static_cast<TokenId>(i), parts.model_vocab);
    scores.push_back(pair.element(1).number());
    if (!std::isfinite(scores.back())) pair.refuse("a finite score");
  }
  UnigramOptions options{.byte_fallback = node.at("byte_fallback").boolean(false)};
  if (const JsonNode unknown = node.at("unk_id"); !unknown.is_null()) {
    const int64_t id = unknown.integer();
    if (id < 0 || id >= static_cast<int64_t>(count)) unknown.refuse("an id of the vocabulary");
    options.unknown = static_cast<TokenId>(id);
  }
  parts.unk = options.unknown;
  parts.model = make_unigram(parts.model_vocab, scores, std::move(options));
}

void read_word_piece(const JsonNode& node, TokenizerParts& parts) {
  read_vocab(node.at("vocab"), parts.model_vocab);
  const int64_t most = node.at("max_input_chars_per_word").integer(100);
  parts.model = make_word_piece(
      parts.model_vocab, {.unknown = parts.model_vocab.find(node.at("unk_token").text("[UNK]")),
                          .prefix = node.at("continuing_subword_prefix").text("##"),
                          .most_characters = most < 0 ? 0 : static_cast<size_t>(most)});
}

// Files of older versions leave the type out.
std::string type_of(const JsonNode& node) {
  if (const JsonNode type = node.at("type"); !type.is_null()) return type.text();
  if (!node.at("merges").is_null()) return "BPE";
  if (node.at("vocab").value().is_array()) return "Unigram";
  return node.at("continuing_subword_prefix").is_null() ? "WordLevel" : "WordPiece";
}

}  // namespace

TokenId read_id(const JsonNode& node, size_t tokens) {
  const int64_t id = node.integer(), most = id_bound(tokens);
  if (id < 0 || id >= most) node.refuse("an id from 0 to " + std::to_string(most - 1));
  return static_cast<TokenId>(id);
}

void read_model(const JsonNode& node, TokenizerParts& parts) {
  node.expect_object();
  const std::string type = type_of(node);
  if (type == "BPE")
    read_bpe(node, parts);
  else if (type == "Unigram")
    read_unigram(node, parts);
  else if (type == "WordPiece")
    read_word_piece(node, parts);
  else if (type == "WordLevel") {
    read_vocab(node.at("vocab"), parts.model_vocab);
    parts.model = make_word_level(parts.model_vocab, unknown_of(node, parts.model_vocab));
  } else
    node.at("type").unknown("BPE, Unigram, WordPiece or WordLevel");
  if (parts.unk == kNoToken && type != "Unigram") parts.unk = unknown_of(node, parts.model_vocab);
}

}  // namespace tenon::llm
