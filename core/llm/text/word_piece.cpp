// SPDX-License-Identifier: Apache-2.0
// WordPiece and WordLevel: models over whole words.
#include <algorithm>
#include <utility>

#include "llm/text/model.hpp"
#include "llm/text/trie.hpp"
#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

struct Nothing : Model::Memory {};

class WordPiece final : public Model {
 public:
  WordPiece(const Vocab& vocab, WordPieceOptions options) : options_(std::move(options)) {
    std::vector<std::pair<std::string_view, int32_t>> starts, rests;
    for (size_t i = 0; i < vocab.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (!vocab.has(id) || vocab.find(vocab.text(id)) != id) continue;
      const std::string_view text = vocab.text(id);
      starts.emplace_back(text, id);
      if (text.starts_with(options_.prefix))
        rests.emplace_back(text.substr(options_.prefix.size()), id);
    }
    starts_ = Trie(std::move(starts));
    rests_ = Trie(std::move(rests));
  }

  std::unique_ptr<Memory> memory() const override { return std::make_unique<Nothing>(); }

  void encode(std::string_view piece, std::vector<TokenId>& out, Memory&) const override {
    const size_t before = out.size();
    if (characters(piece) <= options_.most_characters) {
      size_t at = 0;
      while (at < piece.size()) {
        size_t longest = 0;
        TokenId best = kNoToken;
        (at == 0 ? starts_ : rests_).prefixes(piece.substr(at), [&](size_t size, int32_t id) {
          // A token ends where a character ends.
          if (at + size < piece.size() && (piece[at + size] & 0xC0) == 0x80) return;
          longest = size;
          best = id;
        });
        if (best == kNoToken) break;
        out.push_back(best);
        at += longest;
      }
      if (at == piece.size()) return;
    }
    out.resize(before);
    if (options_.unknown != kNoToken) out.push_back(options_.unknown);
  }

 private:
  static size_t characters(std::string_view text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }

  WordPieceOptions options_;
  Trie starts_, rests_;
};

class WordLevel final : public Model {
 public:
  WordLevel(const Vocab& vocab, TokenId unknown) : vocab_(vocab), unknown_(unknown) {}
  std::unique_ptr<Memory> memory() const override { return std::make_unique<Nothing>(); }
  void encode(std::string_view piece, std::vector<TokenId>& out, Memory&) const override {
    const TokenId id = vocab_.find(piece);
    if (id != kNoToken || unknown_ != kNoToken) out.push_back(id != kNoToken ? id : unknown_);
  }

 private:
  const Vocab& vocab_;
  TokenId unknown_;
};

}  // namespace

std::unique_ptr<Model> make_word_piece(const Vocab& vocab, WordPieceOptions options) {
  return std::make_unique<WordPiece>(vocab, std::move(options));
}

std::unique_ptr<Model> make_word_level(const Vocab& vocab, TokenId unknown) {
  return std::make_unique<WordLevel>(vocab, unknown);
}

}  // namespace tenon::llm
