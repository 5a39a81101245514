// SPDX-License-Identifier: Apache-2.0
// tokenizer.json from keys of GGUF, for files that do not hold it as it was.
#include <algorithm>
#include <unordered_map>

#include "llm/files/tokenizer_keys.hpp"
#include "llm/files/tokenizer_parts.hpp"
#include "llm/text/pre_names.hpp"

namespace tenon::llm::files {
namespace {

constexpr size_t kLongest = 256;  // bytes of a token that merges may make: SentencePiece makes 16
const std::string kSpace = "\xE2\x96\x81";  // how SentencePiece shows a space

class Builder {
 public:
  Builder(const Gguf& model, std::string file) : model_(model), file_(std::move(file)) {}

  Json build() {
    tokens_ = model_.texts(key("tokens"));
    types_ = model_.has(key("token_type")) ? model_.numbers<int32_t>(key("token_type"))
                                           : std::vector<int32_t>(tokens_.size(), kNormal);
    if (types_.size() != tokens_.size()) wrong_size("token_type", types_.size());
    bytes_ = model_.text(key("model")) == "gpt2";
    words_ = model_.text(key("model")) == "bert";
    Json out{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    out["added_tokens"] = added();
    if (words_)
      word_piece(out);
    else if (bytes_)
      byte_level(out);
    else
      sentence_piece(out);
    if (!words_) out["post_processor"] = begin();
    return out;
  }

 private:
  static std::string key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }
  [[noreturn]] void wrong_size(const char* name, size_t size) const {
    throw Error(TENON_CORRUPT, file_ + ": " + key(name) + " has " + std::to_string(size) +
                                   " elements; expected " + std::to_string(tokens_.size()));
  }
  bool flag(const char* name, bool otherwise) const {
    return model_.has(key(name)) ? model_.number<bool>(key(name)) : otherwise;
  }
  bool is_added(size_t i) const {
    return types_[i] == kControl || types_[i] == kUserDefined || types_[i] == kUnknown;
  }

  Json added() const {
    Json list = Json::array();
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (is_added(i))
        list.push_back({{"id", i},
                        {"content", tokens_[i]},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", types_[i] != kUserDefined}});
    return list;
  }

  // Filler of the embedding is no token. Added tokens behind all others are not in the vocabulary,
  // as in the files of models that were published; the others must be, or they get other ids.
  Json vocabulary() const {
    size_t end = tokens_.size();
    while (bytes_ && end > 0 && (types_[end - 1] == kUnused || is_added(end - 1))) --end;
    Json vocab = Json::object();
    for (size_t i = 0; i < end; ++i)
      if (types_[i] != kUnused) vocab[tokens_[i]] = i;
    return vocab;
  }

  Json bpe(Json merges, bool ignore_merges) const {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", !bytes_},
            {"byte_fallback", !bytes_},
            {"ignore_merges", ignore_merges},
            {"vocab", vocabulary()},
            {"merges", std::move(merges)}};
  }

  void byte_level(Json& out) const {
    const std::string pre = model_.has(key("pre")) ? model_.text(key("pre")) : "";
    const PreTokenizer* known = nullptr;
    for (const PreTokenizer& p : kPreTokenizers)
      if (p.name == pre) known = &p;
    const NamedPreTokenizer* named = nullptr;
    if (!known && pre != "gpt-2") {
      named = &named_pre_tokenizer(pre, file_);
      if (named->raw || named->separator)
        throw Error(TENON_UNSUPPORTED,
                    file_ + ": tokenizer.ggml.pre '" + pre + "' has no form in tokenizer.json");
    }
    const Json level{{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", false},
                     {"use_regex", !known && !named}};
    Json steps = Json::array();
    const auto split = [&](std::string_view expression) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", expression}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    };
    if (known) split(known->expression);
    if (named)
      for (const std::string_view pattern : named->patterns) split(pattern);
    steps.push_back(level);
    out["normalizer"] = pre == "qwen2" ? Json::object({{"type", "NFC"}}) : Json(nullptr);
    out["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    out["decoder"] = level;
    out["model"] =
        bpe(model_.texts(key("merges")), named ? named->ignore_merges : pre == "llama-bpe");
  }

  // The higher a token's score, the earlier its merges.
  Json merges() const {
    const std::vector<float> scores = model_.numbers<float>(key("scores"));
    if (scores.size() != tokens_.size()) wrong_size("scores", scores.size());
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] == kNormal || types_[i] == kUserDefined) ids.emplace(tokens_[i], i);
    struct Merge {
      float score;
      size_t left, right;
    };
    for (const float s : scores)
      if (!std::isfinite(s))
        throw Error(TENON_CORRUPT, file_ + ": a score of a token is not finite");
    std::vector<Merge> all;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view t = tokens_[i];
      if (types_[i] != kNormal || t.size() > kLongest) continue;
      for (size_t at = 1; at < t.size(); ++at) {
        const auto left = ids.find(t.substr(0, at)), right = ids.find(t.substr(at));
        if (left != ids.end() && right != ids.end())
          all.push_back({scores[i], left->second, right->second});
      }
    }
    std::ranges::stable_sort(all, [](const Merge& a, const Merge& b) {
      return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
    });
    Json out = Json::array();
    for (const Merge& m : all) out.push_back({tokens_[m.left], tokens_[m.right]});
    return out;
  }

  void sentence_piece(Json& out) const {
    const bool prefix = flag("add_space_prefix", true);
    const auto replaced = [](const std::string& from, const std::string& to) {
      return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
    };
    Json before = Json::array();
    if (prefix) before.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    before.push_back(replaced(" ", kSpace));
    Json after = Json::array({replaced(kSpace, " "), Json::object({{"type", "ByteFallback"}}),
                              Json::object({{"type", "Fuse"}})});
    if (prefix) after.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    out["normalizer"] = {{"type", "Sequence"}, {"normalizers", before}};
    out["pre_tokenizer"] = nullptr;
    out["decoder"] = {{"type", "Sequence"}, {"decoders", after}};
    out["model"] = bpe(merges(), false);
    const auto unknown = std::ranges::find(types_, static_cast<int32_t>(kUnknown));
    if (unknown != types_.end())
      out["model"]["unk_token"] = tokens_[static_cast<size_t>(unknown - types_.begin())];
  }

  // The text of a token that the file names, or nothing.
  std::string named(const char* name, int64_t otherwise) const {
    const int64_t id = model_.has(key(name)) ? model_.number<int64_t>(key(name)) : otherwise;
    return id >= 0 && id < static_cast<int64_t>(tokens_.size()) ? tokens_[static_cast<size_t>(id)]
                                                                : "";
  }

  void word_piece(Json& out) const {
    WordPieceForm form;
    form.lowercase = flag("normalizer.lowercase", true);
    form.strip_accents = flag("normalizer.strip_accents", form.lowercase);
    form.unknown = named("unknown_token_id", 100);
    if (flag("add_bos_token", true))
      form.first = named(model_.has(key("cls_token_id")) ? "cls_token_id" : "bos_token_id", 101);
    if (flag("add_sep_token", true)) form.last = named("seperator_token_id", 102);
    Json vocab = Json::object();
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] != kUnused)
        vocab[types_[i] == kControl || types_[i] == kUnknown ? tokens_[i]
                                                             : piece_in_folder(tokens_[i])] = i;
    out.update(word_piece_json(form, std::move(vocab)));
    Json single = Json::array(), pair = Json::array(), specials = Json::object();
    const auto add = [&](const std::string& token, int type, Json& list) {
      if (!token.empty()) list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    };
    const auto text = [](const char* name, int type) {
      return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
    };
    for (Json* list : {&single, &pair}) {
      add(form.first, 0, *list);
      list->push_back(text("A", 0));
      add(form.last, 0, *list);
    }
    pair.push_back(text("B", 1));
    add(form.last, 1, pair);
    for (const std::string& token : {form.first, form.last})
      if (!token.empty())
        specials[token] = {
            {"id", token},
            {"ids", Json::array({std::ranges::find(tokens_, token) - tokens_.begin()})},
            {"tokens", Json::array({token})}};
    out["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", single},
                             {"pair", pair},
                             {"special_tokens", specials}};
  }

  // The token at the beginning of each text, if the file asks for one.
  Json begin() const {
    if (!flag("add_bos_token", !bytes_) || !model_.has(key("bos_token_id"))) return nullptr;
    const auto id = model_.number<int64_t>(key("bos_token_id"));
    if (id < 0 || id >= static_cast<int64_t>(tokens_.size())) return nullptr;
    const std::string& bos = tokens_[static_cast<size_t>(id)];
    const Json special = Json::object({{"SpecialToken", {{"id", bos}, {"type_id", 0}}}});
    const auto text = [](const char* name, int type) {
      return Json::object({{"Sequence", {{"id", name}, {"type_id", type}}}});
    };
    return {{"type", "TemplateProcessing"},
            {"single", Json::array({special, text("A", 0)})},
            {"pair", Json::array({special, text("A", 0), text("B", 1)})},
            {"special_tokens",
             {{bos, {{"id", bos}, {"ids", Json::array({id})}, {"tokens", Json::array({bos})}}}}}};
  }

  const Gguf& model_;
  const std::string file_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  bool bytes_ = false, words_ = false;
};

}  // namespace

std::string built_tokenizer(const Gguf& model, const std::string& file) {
  return Builder(model, file).build().dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenon::llm::files
