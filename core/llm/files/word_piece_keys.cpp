// SPDX-License-Identifier: Apache-2.0
// Tokenizers of BERT: parts of whole words. GGUF marks the beginnings of words by a visible space, where
// tokenizer.json marks all other parts by "##".
#include <algorithm>

#include "llm/files/tokenizer_parts.hpp"

namespace tenon::llm::files {
namespace {

const std::string kSpace = "\xE2\x96\x81", kInside = "##";

[[noreturn]] void unsupported(const std::string& file, const std::string& what) {
  throw Error(TENON_UNSUPPORTED, file + ": " + what + "; GGUF has the form of BERT only");
}

// The type of a stage, or nothing.
std::string type_of(const Json& tokenizer, const char* stage, const std::string& file) {
  const auto at = field<Json>(tokenizer, stage, file);
  return at ? field<std::string>(*at, "type", file).value_or("") : "";
}

// The token of a processor of BERT, "sep" or "cls": ["[SEP]", 102].
std::string first_text(const Json& pair) {
  return pair.is_array() && !pair.empty() && pair[0].is_string() ? pair[0].get<std::string>() : "";
}

std::string special_of(const Json& part) {
  if (!part.is_object() || !part.contains("SpecialToken")) return "";
  const Json& token = part["SpecialToken"];
  return token.is_object() && token.contains("id") && token["id"].is_string()
             ? token["id"].get<std::string>()
             : "";
}

}  // namespace

WordPieceForm word_piece_form(const Json& tokenizer, const std::string& file) {
  const Json model = field<Json>(tokenizer, "model", file).value_or(Json::object());
  const std::string prefix =
      field<std::string>(model, "continuing_subword_prefix", file).value_or(kInside);
  if (prefix != kInside)
    unsupported(file, "'continuing_subword_prefix' is '" + prefix + "', expected '##'");
  if (type_of(tokenizer, "normalizer", file) != "BertNormalizer")
    unsupported(file, "'normalizer': expected a BertNormalizer");
  if (type_of(tokenizer, "pre_tokenizer", file) != "BertPreTokenizer")
    unsupported(file, "'pre_tokenizer': expected a BertPreTokenizer");
  const Json& normalizer = tokenizer["normalizer"];
  for (const char* key : {"clean_text", "handle_chinese_chars"})
    if (!field<bool>(normalizer, key, file).value_or(true))
      unsupported(file, std::string("'normalizer': '") + key + "' is false, expected true");
  WordPieceForm out;
  out.lowercase = field<bool>(normalizer, "lowercase", file).value_or(true);
  out.strip_accents = field<bool>(normalizer, "strip_accents", file).value_or(out.lowercase);
  out.unknown = field<std::string>(model, "unk_token", file).value_or("[UNK]");
  if (const auto after = field<Json>(tokenizer, "post_processor", file)) {
    if (after->contains("sep")) out.last = first_text((*after)["sep"]);
    if (after->contains("cls")) out.first = first_text((*after)["cls"]);
    if (const auto single = after->find("single");
        single != after->end() && single->is_array() && !single->empty()) {
      out.first = special_of(single->front());
      out.last = special_of(single->back());
    }
  }
  return out;
}

std::string piece_in_gguf(const std::string& token) {
  return token.starts_with(kInside) ? token.substr(kInside.size()) : kSpace + token;
}

std::string piece_in_folder(const std::string& token) {
  if (token.starts_with(kSpace)) return token.substr(kSpace.size());
  // Some writers leave tokens such as [PAD7] as they are.
  const bool bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
  return bracketed ? token : kInside + token;
}

Json word_piece_json(const WordPieceForm& form, Json vocabulary) {
  return {{"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", form.strip_accents},
            {"lowercase", form.lowercase}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", kInside}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", form.unknown},
            {"continuing_subword_prefix", kInside},
            {"max_input_chars_per_word", 100},
            {"vocab", std::move(vocabulary)}}}};
}

}  // namespace tenon::llm::files
