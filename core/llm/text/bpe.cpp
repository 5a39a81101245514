// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding with a list of merges, and that of SentencePiece by scores.
#include "llm/text/bpe.hpp"

#include <array>
#include <numeric>
#include <utility>

#include "llm/text/unicode.hpp"

namespace tenon::llm {

std::optional<unsigned char> byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                           : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                                                  : 16;
    if (digit == 16) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<unsigned char>(value);
}

ByteTokens::ByteTokens(const Vocab& vocab) : ids(256, kNoToken) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; ++b)
    ids[b] = vocab.find(std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + '>');
}

bool ByteTokens::append(std::string_view bytes, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  for (const char c : bytes) {
    const TokenId id = ids[static_cast<unsigned char>(c)];
    if (id == kNoToken) {
      out.resize(before);
      return false;
    }
    out.push_back(id);
  }
  return true;
}

ByteSet bytes_before_spaces(const Vocab& vocab) {
  ByteSet bytes;
  if (vocab.find(kMetaspace) == kNoToken) return bytes.set();
  for (size_t id = 0; id < vocab.size(); ++id) {
    const std::string_view text = vocab.text(static_cast<TokenId>(id));
    size_t last = 0;  // behind the last space
    for (size_t at = 0; (at = text.find(kMetaspace, at)) != text.npos;) {
      if (at > last) bytes.set(static_cast<unsigned char>(text[at - 1]));
      last = at += kMetaspace.size();
    }
  }
  return bytes;
}

size_t MergeList::slot(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  size_t at = static_cast<size_t>(hash ^ hash >> 32) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != ~uint64_t{0}) at = (at + 1) & mask;
  return at;
}

void MergeList::reserve(size_t merges) {
  size_t size = 16;
  while (size < 2 * merges) size *= 2;
  if (size <= slots_.size()) return;
  std::vector<Slot> old(size);
  old.swap(slots_);
  for (const Slot& s : old)
    if (s.pair != ~uint64_t{0}) slots_[slot(s.pair)] = s;
}

namespace {
uint64_t pair_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
}  // namespace

bool MergeList::add(TokenId left, TokenId right, Merge merge) {
  reserve(count_ + 1);
  Slot& s = slots_[slot(pair_of(left, right))];
  if (s.pair != ~uint64_t{0}) return false;
  s = {pair_of(left, right), merge};
  ++count_;
  return true;
}

const Merge* MergeList::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return nullptr;
  const Slot& s = slots_[slot(pair_of(left, right))];
  return s.pair == ~uint64_t{0} ? nullptr : &s.merge;
}

namespace {

class Bpe final : public Model {
 public:
  Bpe(const Vocab& vocab, MergeList merges, BpeOptions options)
      : vocab_(vocab), merges_(std::move(merges)), options_(std::move(options)), bytes_(vocab) {
    for (char32_t c = 0; c < small_.size(); ++c) small_[c] = vocab.find(character_text(c));
    cuts_ = !options_.ignore_merges && options_.prefix.empty() && options_.suffix.empty();
    joined_ = bytes_before_spaces(vocab);
  }

  std::unique_ptr<Memory> memory() const override { return std::make_unique<MergeMemory>(); }
  const ByteSet* joined_bytes() const override { return cuts_ ? &joined_ : nullptr; }

  void encode(std::string_view piece, std::vector<TokenId>& out, Memory& memory) const override {
    if (options_.ignore_merges ||
        (options_.whole_line_ends && piece.find_first_not_of('\n') == piece.npos)) {
      if (const TokenId id = vocab_.find(piece); id != kNoToken) {
        out.push_back(id);
        return;
      }
    }
    auto& m = static_cast<MergeMemory&>(memory);
    split(piece, m.symbols);
    merge_all(m, [&](const Symbol& a, const Symbol& b) {
      const Merge* merge = merges_.find(a.id, b.id);
      return merge ? *merge : Merge{kNoRank, kNoToken};
    });
    for (const Symbol& s : m.symbols) out.push_back(s.id);
  }

 private:
  TokenId of_character(std::string_view character, bool first, bool last) const {
    const bool decorated =
        (!first && !options_.prefix.empty()) || (last && !options_.suffix.empty());
    if (!decorated) {
      size_t at = 0;
      const char32_t c = next_character(character, at);
      return c < small_.size() ? small_[c] : vocab_.find(character);
    }
    std::string text = first ? "" : options_.prefix;
    text += character;
    if (last) text += options_.suffix;
    return vocab_.find(text);
  }

  void split(std::string_view piece, std::vector<Symbol>& symbols) const {
    symbols.clear();
    bool fusing = false;  // the last symbol is the unknown token
    for (size_t at = 0; at < piece.size();) {
      const size_t begin = at;
      at = std::min(piece.size(), at + character_size(static_cast<unsigned char>(piece[at])));
      const std::string_view character = piece.substr(begin, at - begin);
      const TokenId id = of_character(character, begin == 0, at == piece.size());
      if (id != kNoToken) {
        symbols.push_back({id, begin, at - begin});
        fusing = false;
        continue;
      }
      if (append_bytes(character, begin, symbols)) {
        fusing = false;
        continue;
      }
      if (options_.unknown == kNoToken) continue;
      if (fusing && options_.fuse_unknown) {
        symbols.back().size += character.size();
        continue;
      }
      symbols.push_back({options_.unknown, begin, at - begin});
      fusing = true;
    }
  }

  bool append_bytes(std::string_view character, size_t begin, std::vector<Symbol>& symbols) const {
    if (!options_.byte_fallback) return false;
    const auto id = [&](size_t i) { return bytes_.ids[static_cast<unsigned char>(character[i])]; };
    for (size_t i = 0; i < character.size(); ++i)
      if (id(i) == kNoToken && !options_.bytes_of_unknown) return false;
    for (size_t i = 0; i < character.size(); ++i)
      if (id(i) != kNoToken) symbols.push_back({id(i), begin + i, 1});
    return true;
  }

  const Vocab& vocab_;
  MergeList merges_;
  BpeOptions options_;
  ByteTokens bytes_;
  bool cuts_;
  ByteSet joined_;
  std::array<TokenId, 512>
      small_;  // of characters; the alphabet of byte-level models is among them
};

class ScoredBpe final : public Model {
 public:
  ScoredBpe(const Vocab& vocab, const std::vector<float>& scores, TokenId unknown)
      : vocab_(vocab),
        unknown_(unknown),
        bytes_(vocab),
        joined_(bytes_before_spaces(vocab)),
        rank_(vocab.size(), 0) {
    std::vector<TokenId> order(vocab.size());
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](TokenId id) { return scores[static_cast<size_t>(id)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return score(a) > score(b); });
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
      rank_[static_cast<size_t>(order[i])] = rank;
    }
  }

  std::unique_ptr<Memory> memory() const override { return std::make_unique<MergeMemory>(); }
  const ByteSet* joined_bytes() const override { return &joined_; }

  void encode(std::string_view piece, std::vector<TokenId>& out, Memory& memory) const override {
    auto& m = static_cast<MergeMemory&>(memory);
    m.symbols.clear();
    for (size_t at = 0; at < piece.size();) {
      const size_t size =
          std::min(piece.size() - at, character_size(static_cast<unsigned char>(piece[at])));
      m.symbols.push_back({kNoToken, at, size});
      at += size;
    }
    merge_all(m, [&](const Symbol& a, const Symbol& b) {
      const TokenId id = vocab_.find(piece.substr(a.begin, a.size + b.size));
      return id == kNoToken ? Merge{kNoRank, kNoToken} : Merge{rank_[static_cast<size_t>(id)], id};
    });
    for (const Symbol& s : m.symbols) {
      const std::string_view text = piece.substr(s.begin, s.size);
      const TokenId id = s.id != kNoToken ? s.id : vocab_.find(text);
      if (id != kNoToken)
        out.push_back(id);
      else if (!bytes_.append(text, out) && unknown_ != kNoToken)
        out.push_back(unknown_);
    }
  }

 private:
  const Vocab& vocab_;
  TokenId unknown_;
  ByteTokens bytes_;
  ByteSet joined_;
  std::vector<uint32_t> rank_;  // by id; equal scores have one rank
};

}  // namespace

std::unique_ptr<Model> make_bpe(const Vocab& vocab, MergeList merges, BpeOptions options) {
  return std::make_unique<Bpe>(vocab, std::move(merges), std::move(options));
}

std::unique_ptr<Model> make_scored_bpe(const Vocab& vocab, const std::vector<float>& scores,
                                       TokenId unknown) {
  return std::make_unique<ScoredBpe>(vocab, scores, unknown);
}

}  // namespace tenon::llm
