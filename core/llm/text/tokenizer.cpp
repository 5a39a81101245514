// SPDX-License-Identifier: Apache-2.0
// Runs the parts of a tokenizer.
#include "llm/text/tokenizer.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "llm/text/parts.hpp"
#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;  // of a text; places in pieces have 32 bits

// Before each visible space that follows another character, except behind these bytes.
void cut_at_spaces(Pieces& p, const ByteSet& joined) {
  std::vector<Range> out;
  for (const Range& r : p.ranges) {
    const std::string_view piece = p.piece(r);
    size_t begin = 0, last = 0;  // last: behind the last space
    for (size_t at = 0; (at = piece.find(kMetaspace, at)) != piece.npos;) {
      if (at > last && !joined[static_cast<unsigned char>(piece[at - 1])]) {
        out.push_back(
            {r.begin + static_cast<uint32_t>(begin), r.begin + static_cast<uint32_t>(at)});
        begin = at;
      }
      last = at += kMetaspace.size();
    }
    out.push_back({r.begin + static_cast<uint32_t>(begin), r.end});
  }
  p.ranges = std::move(out);
}

// Encodes the pieces of one text. Words repeat, so their tokens are kept.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::vector<TokenId>& out)
      : parts_(parts), memory_(parts.model->memory()), out_(out) {}

  // Text between tokens that were found in the user's text.
  void add(std::string_view text, bool special, bool at_start) {
    std::string normalized;
    if (!parts_.normalizers.empty()) {
      // Behind a character that normalization removes, the text does not start.
      const size_t first = text.empty() ? 0 : character_size(static_cast<unsigned char>(text[0]));
      at_start = at_start && !parts_.normalize(text.substr(0, first)).empty();
      normalized = parts_.normalize(text);
      text = normalized;
    }
    std::vector<Segment> segments;
    parts_.normalized_tokens.find(text, special, segments);
    for (const Segment& s : segments) {
      if (s.id != kNoToken)
        out_.push_back(s.id);
      else
        add_text(text.substr(s.begin, s.end - s.begin), at_start && s.begin == 0);
    }
  }

 private:
  void add_text(std::string_view text, bool at_start) {
    const ByteSet* joined = parts_.model->joined_bytes();
    if (parts_.pre_tokenizers.empty() && !joined) {
      parts_.model->encode(text, out_, *memory_);
      return;
    }
    Pieces pieces{std::string(text), {{0, static_cast<uint32_t>(text.size())}}, at_start};
    for (const PreTokenizer& p : parts_.pre_tokenizers) {
      p(pieces);
      check_growth(text.size(), pieces.text.size());
    }
    if (joined && !joined->all()) cut_at_spaces(pieces, *joined);
    if (pieces.ranges.size() < kFewPieces) {
      for (const Range& r : pieces.ranges) parts_.model->encode(pieces.piece(r), out_, *memory_);
      return;
    }
    std::unordered_map<std::string_view, std::pair<size_t, size_t>> known;
    for (const Range& r : pieces.ranges) {
      const std::string_view piece = pieces.piece(r);
      const auto [at, fresh] = known.try_emplace(piece);
      if (fresh) {
        const size_t begin = out_.size();
        parts_.model->encode(piece, out_, *memory_);
        at->second = {begin, out_.size()};
        continue;
      }
      for (size_t i = at->second.first; i < at->second.second; ++i)
        out_.push_back(TokenId{out_[i]});
    }
  }

  static constexpr size_t kFewPieces = 64;
  const TokenizerParts& parts_;
  std::unique_ptr<Model::Memory> memory_;
  std::vector<TokenId>& out_;
};

std::optional<TokenId> maybe(TokenId id) {
  return id == kNoToken ? std::nullopt : std::optional<TokenId>(id);
}

// What models call the end of a turn or of a text.
constexpr std::string_view kEnds[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<end_of_turn>",
                                      "<turn|>",
                                      "<|endoftext|>",
                                      "<|end_of_text|>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "<end_of_utterance>",
                                      "<\xEF\xBD\x9C"
                                      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

}  // namespace

std::string TokenizerParts::normalize(std::string_view text) const {
  std::string out(text);
  for (const Normalizer& n : normalizers) {
    out = n(out);
    check_growth(text.size(), out.size());
  }
  return out;
}

void TokenizerParts::set_added(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> kinds[2];
  std::vector<std::string> texts[2];
  vocab.reserve(model_vocab.count() + tokens.size());
  for (const AddedToken& t : tokens) {
    vocab.add(t.text, t.id);
    const size_t kind = t.normalized ? 1 : 0;
    kinds[kind].push_back(t);
    texts[kind].push_back(t.normalized ? normalize(t.text) : t.text);
  }
  for (size_t i = 0; i < model_vocab.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (model_vocab.has(id)) vocab.add(model_vocab.text(id), id);
  }
  special.assign(vocab.size(), 0);
  for (const AddedToken& t : tokens)
    if (t.special) special[static_cast<size_t>(t.id)] = 1;
  raw_tokens = AddedTokens(std::move(kinds[0]), texts[0]);
  normalized_tokens = AddedTokens(std::move(kinds[1]), texts[1]);
}

void TokenizerParts::set_ends(const std::vector<TokenId>& more) {
  const auto add = [&](TokenId id) {
    if (vocab.has(id) && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  add(eos);
  add(eot);
  for (const TokenId id : more) add(id);
  for (const std::string_view name : kEnds) {
    const TokenId id = vocab.find(name);
    if (id == kNoToken || !special[static_cast<size_t>(id)]) continue;
    add(id);
    if (eot == kNoToken && id != eos) eot = id;
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMostBytes)
    throw Error(TENON_INVALID_ARGUMENT, "tokenizer: the text has " + std::to_string(text.size()) +
                                            " bytes; expected at most " +
                                            std::to_string(kMostBytes));
  std::vector<TokenId> out;
  if (options.add_special) out = parts_->before;
  std::string storage;
  text = sanitize(text, storage);
  std::vector<Segment> segments;
  parts_->raw_tokens.find(text, options.parse_special, segments);
  Encoding encoding(*parts_, out);
  for (const Segment& s : segments) {
    if (s.id != kNoToken)
      out.push_back(s.id);
    else
      encoding.add(text.substr(s.begin, s.end - s.begin), options.parse_special, s.begin == 0);
  }
  if (options.add_special) out.insert(out.end(), parts_->after.begin(), parts_->after.end());
  return out;
}

void Tokenizer::check(TokenId id) const {
  if (parts_->vocab.has(id)) return;
  throw Error(TENON_INVALID_ARGUMENT, "tokenizer: there is no token with the id " +
                                          std::to_string(id) + "; expected an id below " +
                                          std::to_string(size()));
}

std::string Tokenizer::bytes(TokenId id) const {
  check(id);
  if (is_special(id)) return "";
  // Decoders change the start of a text, so the token stands behind another one.
  TokenId first = find("a").value_or(0);
  while (static_cast<size_t>(first) + 1 < size() && (!has(first) || is_special(first))) ++first;
  const TokenId ids[] = {first, id};
  const std::string before = decode_bytes(std::span(ids, 1), true), both = decode_bytes(ids, true);
  return both.starts_with(before) ? both.substr(before.size()) : "";
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> ids, bool raw) const {
  Decoding d{{}, raw};
  for (const TokenId id : ids) d.tokens.emplace_back(parts_->vocab.text(id));
  if (d.tokens.empty()) return "";
  for (const Decoder& decoder : parts_->decoders) decoder(d);
  std::string out;
  for (size_t i = 0; i < d.tokens.size(); ++i) {
    if (i > 0 && parts_->space_between) out += ' ';
    out += d.tokens[i];
  }
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<TokenId> kept;
  kept.reserve(ids.size());
  for (const TokenId id : ids) {
    check(id);
    if (!skip_special || !is_special(id)) kept.push_back(id);
  }
  return sanitized(decode_bytes(kept, false));
}

size_t Tokenizer::size() const { return parts_->vocab.size(); }
bool Tokenizer::has(TokenId id) const { return parts_->vocab.has(id); }
std::string_view Tokenizer::text(TokenId id) const {
  check(id);
  return parts_->vocab.text(id);
}
std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  return maybe(parts_->vocab.find(text));
}
bool Tokenizer::is_special(TokenId id) const {
  return has(id) && parts_->special[static_cast<size_t>(id)];
}
std::optional<TokenId> Tokenizer::bos() const { return maybe(parts_->bos); }
std::optional<TokenId> Tokenizer::eos() const { return maybe(parts_->eos); }
std::optional<TokenId> Tokenizer::eot() const { return maybe(parts_->eot); }
std::optional<TokenId> Tokenizer::pad() const { return maybe(parts_->pad); }
std::optional<TokenId> Tokenizer::unk() const { return maybe(parts_->unk); }
std::span<const TokenId> Tokenizer::ends() const { return parts_->ends; }
bool Tokenizer::adds_bos() const {
  return parts_->bos != kNoToken && !parts_->before.empty() && parts_->before[0] == parts_->bos;
}

std::string Detokenizer::push(TokenId id) {
  tokenizer_->check(id);
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  // Decoders treat the first token of a text apart, so the token is decoded behind its predecessor.
  const std::string before = tokenizer_->decode_bytes(window_, true);
  window_.push_back(id);
  const std::string with = tokenizer_->decode_bytes(window_, true);
  if (window_.size() > 1) window_.erase(window_.begin());
  const size_t same =
      std::mismatch(before.begin(), before.end(), with.begin(), with.end()).first - before.begin();
  pending_ += std::string_view(with).substr(same);
  return take(false);
}

std::string Detokenizer::flush() {
  window_.clear();
  return take(true);
}

std::string Detokenizer::take(bool all) {
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const Prefix p = first_character(std::string_view(pending_).substr(at));
    if (p.cut && !all) break;
    if (p.valid)
      out.append(pending_, at, p.valid);
    else
      out += kReplacement;
    at += p.valid ? p.valid : p.bad;
  }
  pending_.erase(0, at);
  return out;
}

}  // namespace tenon::llm
