// SPDX-License-Identifier: Apache-2.0
// Tokenizers from the metadata of GGUF files.
#include <algorithm>
#include <cmath>
#include <utility>

#include "llm/text/parts.hpp"
#include "llm/text/pre_names.hpp"
#include "llm/text/tokenizer.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr size_t kMostTokens = size_t{1} << 24;

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

class Reader {
 public:
  Reader(const Metadata& metadata, const std::string& file) : data_(metadata), file_(file) {}

  std::unique_ptr<TokenizerParts> read() {
    const std::string model = need(data_.text(key("model")), "model");
    read_tokens(model);
    read_ids(model);
    if (model == "gpt2" || model == "gemma4")
      byte_level(model);
    else if (model == "llama" || model == "gemma")
      sentence_piece();
    else if (model == "t5")
      unigram();
    else if (model == "bert")
      word_piece();
    else
      throw Error(TENON_UNSUPPORTED, file_ + ": tokenizer.ggml.model is '" + model +
                                         "', which tenon does not know; expected one of: bert "
                                         "gemma gemma4 gpt2 llama t5");
    return std::move(parts_);
  }

 private:
  static std::string key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

  template <class T>
  T need(std::optional<T> value, std::string_view name) const {
    if (!value) throw Error(TENON_CORRUPT, file_ + ": the key " + key(name) + " is missing");
    return std::move(*value);
  }
  bool flag(std::string_view name, bool otherwise) const {
    return data_.boolean(key(name)).value_or(otherwise);
  }
  [[noreturn]] void wrong_size(std::string_view name, size_t size) const {
    throw Error(TENON_CORRUPT, file_ + ": " + key(name) + " has " + std::to_string(size) +
                                   " elements; expected one for each of the " +
                                   std::to_string(tokens_.size()) + " tokens");
  }

  void read_tokens(const std::string& model) {
    tokens_ = need(data_.texts(key("tokens")), "tokens");
    if (tokens_.empty() || tokens_.size() > kMostTokens)
      throw Error(TENON_CORRUPT, file_ + ": tokenizer.ggml.tokens has " +
                                     std::to_string(tokens_.size()) + " elements; expected 1 to " +
                                     std::to_string(kMostTokens));
    types_ =
        data_.integers(key("token_type")).value_or(std::vector<int64_t>(tokens_.size(), kNormal));
    if (types_.size() != tokens_.size()) wrong_size("token_type", types_.size());
    const bool scored = model == "llama" || model == "gemma" || model == "t5";
    if (scored) {
      scores_ = need(data_.floats(key("scores")), "scores");
      if (scores_.size() != tokens_.size()) wrong_size("scores", scores_.size());
      for (size_t i = 0; i < scores_.size(); ++i)
        if (!std::isfinite(scores_[i]))
          throw Error(TENON_CORRUPT,
                      file_ + ": the score of token " + std::to_string(i) + " is not finite");
    }
    parts_->model_vocab.reserve(tokens_.size());
    std::vector<AddedToken> added;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const bool special = types_[i] == kControl || types_[i] == kUnknown;
      // The table of BERT marks beginnings of words; the model here marks the other parts.
      std::string& text = tokens_[i];
      if (model == "bert" && !special) {
        if (text.starts_with(kMetaspace))
          text.erase(0, kMetaspace.size());
        else if (!(text.starts_with('[') && text.ends_with(']') && text.size() > 2))
          text.insert(0, "##");
      }
      parts_->model_vocab.add(text, id);
      if ((special || types_[i] == kUserDefined) && !text.empty())
        added.push_back({.id = id, .text = text, .special = special});
    }
    parts_->set_added(added);
  }

  TokenId id(std::string_view name, int64_t otherwise = kNoToken) const {
    const int64_t value = data_.integer(key(name)).value_or(otherwise);
    // Writers mark absent tokens by ids outside of the table.
    return value >= 0 && value < static_cast<int64_t>(tokens_.size()) ? static_cast<TokenId>(value)
                                                                      : kNoToken;
  }

  void read_ids(const std::string& model) {
    const bool llama = model == "llama" || model == "gemma", t5 = model == "t5",
               bert = model == "bert", gpt2 = model == "gpt2";
    TokenizerParts& p = *parts_;
    p.bos = id("bos_token_id", llama ? 1 : gpt2 ? 11 : bert ? 101 : kNoToken);
    p.eos = id("eos_token_id", llama ? 2 : gpt2 ? 11 : t5 ? 1 : kNoToken);
    p.unk = id("unknown_token_id", llama ? 0 : t5 ? 2 : bert ? 100 : kNoToken);
    p.pad = id("padding_token_id", t5 || bert ? 0 : kNoToken);
    p.eot = id("eot_token_id");
    // The key is spelled so in the format.
    separator_ = id("seperator_token_id", bert ? 102 : kNoToken);
    if (const TokenId cls = id("cls_token_id"); bert && cls != kNoToken) p.bos = cls;
    p.set_ends({id("eom_token_id")});
  }

  void surround(bool bos, bool eos, bool separator) {
    TokenizerParts& p = *parts_;
    if (flag("add_bos_token", bos) && p.bos != kNoToken) p.before.push_back(p.bos);
    if (flag("add_eos_token", eos) && p.eos != kNoToken) p.after.push_back(p.eos);
    if (flag("add_sep_token", separator) && separator_ != kNoToken) p.after.push_back(separator_);
  }

  void byte_level(const std::string& model) {
    const std::string name =
        model == "gemma4" ? "gemma4" : data_.text(key("pre")).value_or("default");
    const NamedPreTokenizer& pre = named_pre_tokenizer(name.empty() ? "default" : name, file_);
    TokenizerParts& p = *parts_;
    for (const std::string_view pattern : pre.patterns)
      p.pre_tokenizers.push_back(
          split_by(Regex(pattern, file_ + ": tokenizer.ggml.pre"), Behavior::isolated, false));
    BpeOptions options{.ignore_merges = pre.ignore_merges};
    if (pre.raw) {
      p.normalizers.push_back(
          replace_normalizer(Regex::literal(" ", file_), std::string(kMetaspace)));
      options.byte_fallback = options.bytes_of_unknown = options.whole_line_ends = true;
      visible_spaces(false);
    } else {
      p.pre_tokenizers.push_back(llm::byte_level(false, false));
      p.decoders.push_back(byte_level_decoder());
    }
    p.model = make_bpe(p.model_vocab, read_merges(), std::move(options));
    surround(pre.bos, false, pre.separator);
  }

  MergeList read_merges() const {
    const std::vector<std::string> lines = need(data_.texts(key("merges")), "merges");
    MergeList merges;
    merges.reserve(lines.size());
    const Vocab& vocab = parts_->model_vocab;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view line = lines[i];
      const size_t space = line.find(' ', 1);  // a token may begin with a space
      if (space == line.npos)
        throw Error(TENON_CORRUPT, file_ + ": merge " + std::to_string(i) + " is '" + lines[i] +
                                       "'; expected two tokens with a space between them");
      const std::string left(line.substr(0, space)), right(line.substr(space + 1));
      const TokenId a = vocab.find(left), b = vocab.find(right), whole = vocab.find(left + right);
      // Such a merge never happens: its parts or its result are no tokens.
      if (a == kNoToken || b == kNoToken || whole == kNoToken) continue;
      merges.add(a, b, {static_cast<uint32_t>(i), whole});
    }
    return merges;
  }

  // The text of tokens with visible spaces and <0xNN>.
  void visible_spaces(bool strip) {
    Decoders& d = parts_->decoders;
    d.push_back(replace_decoder(Regex::literal(kMetaspace, file_), " "));
    d.push_back(byte_fallback_decoder());
    d.push_back(fuse_decoder());
    if (strip) d.push_back(strip_decoder(" ", 1, 0));
  }

  void sentence_piece() {
    const bool prefix = flag("add_space_prefix", true);
    TokenizerParts& p = *parts_;
    if (prefix) p.normalizers.push_back(prepend_normalizer(std::string(kMetaspace)));
    p.normalizers.push_back(
        replace_normalizer(Regex::literal(" ", file_), std::string(kMetaspace)));
    p.model = make_scored_bpe(p.model_vocab, scores_, p.unk);
    visible_spaces(prefix);
    surround(true, false, false);
  }

  void unigram() {
    TokenizerParts& p = *parts_;
    if (const auto map = data_.integers(key("precompiled_charsmap")); map && !map->empty()) {
      std::string blob;
      for (const int64_t byte : *map) blob += static_cast<char>(byte);
      p.normalizers.push_back(charsmap_normalizer(
          Charsmap(blob, file_ + ": tokenizer.ggml.precompiled_charsmap"), true));
    }
    const SpaceOptions spaces{.prefix = flag("add_space_prefix", true),
                              .suffix = flag("treat_whitespace_as_suffix", false),
                              .remove_extra = flag("remove_extra_whitespaces", false)};
    p.normalizers.push_back(space_normalizer(spaces));
    UnigramOptions options{.unknown = p.unk};
    for (const int64_t type : types_)
      options.allowed.push_back(type == kNormal || type == kUserDefined || type == kUnused);
    std::vector<double> scores(scores_.begin(), scores_.end());
    for (size_t i = 0; i < scores.size(); ++i)
      if (types_[i] == kUserDefined) scores[i] = 0;
    p.model = make_unigram(p.model_vocab, scores, std::move(options));
    visible_spaces(spaces.prefix);
    surround(false, true, false);
  }

  void word_piece() {
    TokenizerParts& p = *parts_;
    const bool lowercase = flag("normalizer.lowercase", true);
    p.normalizers.push_back(bert_normalizer(
        {.strip_accents = flag("normalizer.strip_accents", lowercase), .lowercase = lowercase}));
    p.pre_tokenizers.push_back(bert_pieces());
    p.model = make_word_piece(p.model_vocab, {.unknown = p.unk, .most_characters = SIZE_MAX});
    p.decoders.push_back(word_piece_decoder("##", true));
    surround(true, false, true);
  }

  const Metadata& data_;
  const std::string& file_;
  std::unique_ptr<TokenizerParts> parts_ = std::make_unique<TokenizerParts>();
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;
  std::vector<float> scores_;
  TokenId separator_ = kNoToken;
};

}  // namespace

Tokenizer Tokenizer::from_metadata(const Metadata& metadata, const std::string& file) {
  return Tokenizer(Reader(metadata, file).read());
}

}  // namespace tenon::llm
