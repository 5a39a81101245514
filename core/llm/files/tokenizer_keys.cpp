// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and tokenizer_config.json to keys of GGUF.
#include "llm/files/tokenizer_keys.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "llm/files/tokenizer_parts.hpp"
#include "llm/json_text.hpp"
#include "llm/model_folder.hpp"
#include "llm/text/json_stages.hpp"
#include "llm/text/pre_names.hpp"

namespace tenon::llm::files {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
// All objects of a stage, which may be a Sequence.
std::vector<const Json*> stages(const Json& tokenizer, const char* key, const char* list) {
  std::vector<const Json*> out;
  const auto stage = tokenizer.find(key);
  if (stage == tokenizer.end() || !stage->is_object()) return out;
  out.push_back(&*stage);
  if (const auto parts = stage->find(list); parts != stage->end() && parts->is_array())
    for (const Json& part : *parts)
      if (part.is_object()) out.push_back(&part);
  return out;
}

bool is_type(const Json& stage, std::string_view type) {
  const auto at = stage.find("type");
  return at != stage.end() && at->is_string() && *at == type;
}

class Converter {
 public:
  Converter(GgufWriter& out, std::string file, const Json& tokenizer, const Json& settings,
            const Json& config, std::string pre)
      : out_(out),
        file_(std::move(file)),
        tokenizer_(tokenizer),
        settings_(settings),
        config_(config),
        pre_(std::move(pre)) {}

  void convert() {
    const auto model = field<Json>(tokenizer_, "model", file_);
    const std::string type = model ? field<std::string>(*model, "type", file_).value_or("BPE") : "";
    if (type == "WordPiece") return word_piece(*model);
    if (type != "BPE")
      throw Error(TENON_UNSUPPORTED, file_ + ": a model of type '" + type +
                                         "' cannot be converted; expected BPE or WordPiece");
    read_tokens(*model);
    const auto before = stages(tokenizer_, "pre_tokenizer", "pretokenizers");
    const bool bytes =
        std::ranges::any_of(before, [](const Json* s) { return is_type(*s, "ByteLevel"); });
    out_.set("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    if (bytes)
      byte_level(*model, before);
    else
      sentence_piece(*model, before);
    set_ids();
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    throw Error(TENON_CORRUPT, file_ + ": " + what);
  }

  void put(int64_t id, const std::string& text, TokenType type) {
    if (id < 0 || id >= most_)
      bad("token '" + text.substr(0, 80) + "' has the id " + std::to_string(id) +
          "; expected 0 to " + std::to_string(most_ - 1));
    if (static_cast<size_t>(id) >= tokens_.size()) {
      tokens_.resize(static_cast<size_t>(id) + 1);
      types_.resize(tokens_.size(), 0);
    }
    std::string& there = tokens_[static_cast<size_t>(id)];
    if (types_[static_cast<size_t>(id)] != 0 && there != text)
      bad("tokens '" + there.substr(0, 80) + "' and '" + text.substr(0, 80) + "' have the id " +
          std::to_string(id) + "; expected an id for each");
    there = text;
    types_[static_cast<size_t>(id)] = type;
    ids_[text] = id;
  }

  void read_tokens(const Json& model) {
    const auto vocab = field<Json>(model, "vocab", file_);
    if (!vocab) bad("'model.vocab' is missing");
    const auto added_list = tokenizer_.find("added_tokens");
    const size_t more = added_list != tokenizer_.end() ? added_list->size() : 0;
    most_ = std::min(std::max(id_bound(vocab->size() + more),
                              field<int64_t>(config_, "vocab_size", file_).value_or(0)),
                     kMostTokens);
    for (const auto& [text, id] : vocab->items()) {
      if (!id.is_number_integer()) bad("'model.vocab': '" + text + "': expected a number");
      put(id.get<int64_t>(), text, kNormal);
    }
    if (const auto added = tokenizer_.find("added_tokens");
        added != tokenizer_.end() && added->is_array()) {
      for (const Json& a : *added) {
        if (!a.is_object()) bad("'added_tokens': expected objects");
        const auto id = field<int64_t>(a, "id", file_);
        const auto text = field<std::string>(a, "content", file_);
        if (!id || !text) bad("'added_tokens': expected 'id' and 'content'");
        put(*id, *text, field<bool>(a, "special", file_).value_or(false) ? kControl : kUserDefined);
      }
    }
    // The embedding may have more rows than there are tokens.
    const int64_t rows = field<int64_t>(config_, "vocab_size", file_).value_or(0);
    if (rows > static_cast<int64_t>(tokens_.size()) && rows < kMostTokens)
      tokens_.resize(static_cast<size_t>(rows)), types_.resize(tokens_.size(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] == 0) tokens_[i] = "[PAD" + std::to_string(i) + "]", types_[i] = kUnused;
  }

  // A merge is "left right", or a list of the two.
  std::vector<std::string> read_merges(const Json& model) const {
    std::vector<std::string> out;
    const auto merges = model.find("merges");
    if (merges == model.end() || !merges->is_array()) bad("'model.merges' is missing");
    for (const Json& m : *merges) {
      if (m.is_string()) {
        out.push_back(m.get<std::string>());
      } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
        out.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
      } else {
        bad("'model.merges': expected texts, or lists of two texts");
      }
    }
    return out;
  }

  void byte_level(const Json& model, const std::vector<const Json*>& before) {
    const std::vector<std::string> merges = read_merges(model);
    // Where nothing is merged, it makes no difference how a text is divided before.
    const bool any = merges.empty() && !field<bool>(model, "ignore_merges", file_).value_or(false);
    if (!pre_.empty()) named_pre_tokenizer(pre_, "--pre");  // refuses an unknown name
    out_.set("tokenizer.ggml.pre", pre_.empty() ? recognized(before, any) : pre_);
    out_.set("tokenizer.ggml.tokens", tokens_);
    out_.set("tokenizer.ggml.token_type", types_);
    out_.set("tokenizer.ggml.merges", merges);
  }

  // any: so that each that only divides texts is as good as any other.
  std::string recognized(const std::vector<const Json*>& before, bool any) const {
    std::string expression;
    std::vector<std::string> patterns;  // one after the other
    bool own_split = false;
    for (const Json* s : before) {
      if (is_type(*s, "Split")) {
        const auto pattern = field<Json>(*s, "pattern", file_);
        const auto regex = pattern ? field<std::string>(*pattern, "Regex", file_) : std::nullopt;
        expression += regex.value_or("?");
        patterns.push_back(regex.value_or("?"));
      } else if (is_type(*s, "ByteLevel")) {
        own_split = field<bool>(*s, "use_regex", file_).value_or(true);
      } else if (is_type(*s, "Digits") &&
                 field<bool>(*s, "individual_digits", file_).value_or(false)) {
        expression += "?";
        patterns.emplace_back(R"(\p{N})");
      } else if (!is_type(*s, "Sequence")) {
        expression += "?";
        patterns.emplace_back("?");
      }
    }
    if (expression.empty() && (own_split || any)) return "gpt-2";
    for (const PreTokenizer& p : kPreTokenizers)
      if (p.expression == expression && !own_split) return std::string(p.name);
    if (own_split) patterns.emplace_back(named_pre_tokenizer("gpt-2", file_).patterns[0]);
    if (const std::string_view name = pre_tokenizer_name(patterns); !name.empty())
      return std::string(name);
    throw Error(TENON_UNSUPPORTED,
                file_ + ": 'pre_tokenizer': its expression has no known name in GGUF: " +
                    expression.substr(0, 200) + "; hint: --pre NAME says which it is");
  }

  void sentence_piece(const Json& model, const std::vector<const Json*>& before) {
    if (!field<bool>(model, "byte_fallback", file_).value_or(false))
      throw Error(TENON_UNSUPPORTED,
                  file_ + ": expected a tokenizer of bytes, or one with byte_fallback");
    // A token's score is its place among the merges: the earlier, the higher.
    std::vector<float> scores(tokens_.size(), 0);
    const std::vector<std::string> merges = read_merges(model);
    float next = 0;
    for (const std::string& m : merges) {
      const size_t space = m.find(' ', 1);
      if (space == m.npos) bad("'model.merges': '" + m + "': expected two tokens");
      const auto at = ids_.find(m.substr(0, space) + m.substr(space + 1));
      if (at == ids_.end() || scores[static_cast<size_t>(at->second)] != 0) continue;
      scores[static_cast<size_t>(at->second)] = next -= 1;
    }
    const std::string unknown = field<std::string>(model, "unk_token", file_).value_or("");
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string& t = tokens_[i];
      if (t.size() == 6 && t.starts_with("<0x") && t.ends_with('>'))
        types_[i] = kByte;
      else if (!unknown.empty() && t == unknown)
        types_[i] = kUnknown;
      else if (types_[i] == kNormal && scores[i] == 0)
        scores[i] = next - 1;  // single characters, which no merge makes
    }
    out_.set("tokenizer.ggml.pre", "default");
    out_.set("tokenizer.ggml.tokens", tokens_);
    out_.set("tokenizer.ggml.scores", scores);
    out_.set("tokenizer.ggml.token_type", types_);
    out_.set("tokenizer.ggml.add_space_prefix", prefixed(before));
  }

  void word_piece(const Json& model) {
    const WordPieceForm form = word_piece_form(tokenizer_, file_);
    read_tokens(model);
    std::vector<std::string> pieces = tokens_;
    for (size_t i = 0; i < pieces.size(); ++i)
      if (types_[i] == kNormal || types_[i] == kUserDefined) pieces[i] = piece_in_gguf(pieces[i]);
    out_.set("tokenizer.ggml.model", "bert");
    out_.set("tokenizer.ggml.pre", "default");
    out_.set("tokenizer.ggml.tokens", pieces);
    out_.set("tokenizer.ggml.token_type", types_);
    out_.set("tokenizer.ggml.normalizer.lowercase", form.lowercase);
    out_.set("tokenizer.ggml.normalizer.strip_accents", form.strip_accents);
    const auto set_id = [&](const char* key, const std::string& token, const char* setting) {
      const auto at = ids_.find(token);
      const int64_t id = at == ids_.end() ? id_of(setting, nullptr) : at->second;
      if (id >= 0) out_.set(std::string("tokenizer.ggml.") + key, static_cast<uint32_t>(id));
    };
    set_id("bos_token_id", form.first, "cls_token");
    set_id("cls_token_id", form.first, "cls_token");
    set_id("seperator_token_id", form.last, "sep_token");  // spelled so in the format
    set_id("unknown_token_id", form.unknown, "unk_token");
    set_id("padding_token_id", "", "pad_token");
    set_id("mask_token_id", "", "mask_token");
    out_.set("tokenizer.ggml.add_bos_token", !form.first.empty());
    out_.set("tokenizer.ggml.add_sep_token", !form.last.empty());
    if (const int64_t id = id_of("eos_token", "eos_token_id");
        id >= 0 && id < static_cast<int64_t>(tokens_.size()))
      out_.set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(id));
    out_.set("tokenizer.ggml.add_eos_token", false);
  }

  // Does a space come before the text?
  bool prefixed(const std::vector<const Json*>& before) const {
    for (const Json* s : stages(tokenizer_, "normalizer", "normalizers"))
      if (is_type(*s, "Prepend")) return true;
    for (const Json* s : before)
      if (is_type(*s, "Metaspace"))
        return field<std::string>(*s, "prepend_scheme", file_)
                   .value_or(field<bool>(*s, "add_prefix_space", file_).value_or(true)
                                 ? "always"
                                 : "never") != "never";
    return false;
  }

  // The id of a token that tokenizer_config.json names, else of a number in config.json.
  int64_t id_of(const char* token, const char* number) const {
    const auto named = settings_.find(token);
    if (named != settings_.end()) {
      const Json* text = &*named;
      if (named->is_object() && named->contains("content")) text = &(*named)["content"];
      if (text->is_string())
        if (const auto at = ids_.find(text->get<std::string>()); at != ids_.end())
          return at->second;
    }
    const auto given = number ? config_.find(number) : config_.end();
    if (given == config_.end()) return -1;
    const Json& first = given->is_array() && !given->empty() ? (*given)[0] : *given;
    return first.is_number_integer() ? first.get<int64_t>() : -1;
  }

  void set_ids() {
    const struct {
      const char *key, *token, *number;
    } kIds[] = {{"bos_token_id", "bos_token", "bos_token_id"},
                {"eos_token_id", "eos_token", "eos_token_id"},
                {"unknown_token_id", "unk_token", nullptr},
                {"padding_token_id", "pad_token", "pad_token_id"}};
    for (const auto& k : kIds) {
      const int64_t id = id_of(k.token, k.number);
      if (id >= 0 && id < static_cast<int64_t>(tokens_.size()))
        out_.set(std::string("tokenizer.ggml.") + k.key, static_cast<uint32_t>(id));
    }
    bool bos = false, eos = false;
    for (const Json* s : stages(tokenizer_, "post_processor", "processors")) {
      const auto single = s->find("single");
      if (!is_type(*s, "TemplateProcessing") || single == s->end() || !single->is_array() ||
          single->empty())
        continue;
      bos = single->front().is_object() && single->front().contains("SpecialToken");
      eos = single->back().is_object() && single->back().contains("SpecialToken");
    }
    out_.set("tokenizer.ggml.add_bos_token",
             field<bool>(settings_, "add_bos_token", file_).value_or(bos));
    out_.set("tokenizer.ggml.add_eos_token",
             field<bool>(settings_, "add_eos_token", file_).value_or(eos));
  }

  GgufWriter& out_;
  const std::string file_;
  const Json &tokenizer_, &settings_, &config_;
  const std::string pre_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  int64_t most_ = kMostTokens;  // ids are below it
  std::unordered_map<std::string, int64_t> ids_;
};

// A text, or the default one of a list of named ones.
std::string chat_template(const Json& settings, const std::string& folder) {
  if (const auto text = read_if_there(folder + "/chat_template.jinja")) return *text;
  const auto at = settings.find("chat_template");
  if (at == settings.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  if (at->is_array())
    for (const Json& each : *at)
      if (each.is_object() && each.value("name", Json()) == "default" &&
          each.contains("template") && each["template"].is_string())
        return each["template"].get<std::string>();
  return {};
}

}  // namespace

std::string set_tokenizer_keys(GgufWriter& out, const std::string& folder, const Json& config,
                               const std::string& pre) {
  const std::string file = folder + "/tokenizer.json";
  const auto text = read_if_there(file);
  const Json settings = read_object(folder + "/tokenizer_config.json").value_or(Json::object());
  if (const std::string chat = chat_template(settings, folder); !chat.empty())
    out.set("tokenizer.chat_template", chat);
  if (!text) {
    // Models need these numbers without a tokenizer, too.
    for (const auto& [key, name] : {std::pair("bos_token_id", "bos_token_id"),
                                    {"eos_token_id", "eos_token_id"},
                                    {"padding_token_id", "pad_token_id"}}) {
      const auto at = config.find(name);
      if (at != config.end() && at->is_number_unsigned() && at->get<uint64_t>() < kMostTokens)
        out.set(std::string("tokenizer.ggml.") + key, at->get<uint32_t>());
    }
    return file + ": there is none: the file has no tokenizer";
  }
  const Json tokenizer = parse_object(*text, file);
  Converter(out, file, tokenizer, settings, config, pre).convert();
  out.set("tokenizer.huggingface.json", *text);
  return {};
}

TokenizerFiles tokenizer_files(const Gguf& model, const std::string& file) {
  TokenizerFiles out;
  Json settings = Json::object();
  settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (model.has("tokenizer.ggml.tokens")) {
    const std::vector<std::string> tokens = model.texts("tokenizer.ggml.tokens");
    for (const auto& [key, name] : {std::pair("bos_token_id", "bos_token"),
                                    {"eos_token_id", "eos_token"},
                                    {"unknown_token_id", "unk_token"},
                                    {"padding_token_id", "pad_token"},
                                    {"cls_token_id", "cls_token"},
                                    {"seperator_token_id", "sep_token"},
                                    {"mask_token_id", "mask_token"}}) {
      const std::string k = std::string("tokenizer.ggml.") + key;
      if (!model.has(k)) continue;
      const auto id = model.number<int64_t>(k);
      if (id >= 0 && id < static_cast<int64_t>(tokens.size()))
        settings[name] = tokens[static_cast<size_t>(id)];
    }
  }
  for (const char* name : {"add_bos_token", "add_eos_token"})
    if (const std::string k = std::string("tokenizer.ggml.") + name; model.has(k))
      settings[name] = model.number<bool>(k);
  if (model.has("tokenizer.chat_template"))
    settings["chat_template"] = model.text("tokenizer.chat_template");
  out.tokenizer_config = settings.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (model.has("tokenizer.huggingface.json"))
    out.tokenizer = model.text("tokenizer.huggingface.json");
  else if (model.has("tokenizer.ggml.model") && model.has("tokenizer.ggml.tokens")) {
    const std::string kind = model.text("tokenizer.ggml.model");
    if (kind != "gpt2" && kind != "llama" && kind != "bert") {
      out.note = file + ": tokenizer.ggml.model '" + kind + "' has no form in tokenizer.json";
      return out;
    }
    try {
      out.tokenizer = built_tokenizer(model, file);
    } catch (const Error& e) {
      if (e.code() != TENON_UNSUPPORTED) throw;
      out.note = e.what();
    }
  } else
    out.note = file + ": has no tokenizer";
  return out;
}

}  // namespace tenon::llm::files
