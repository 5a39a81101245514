// SPDX-License-Identifier: Apache-2.0
// Unigram: Viterbi's algorithm over the tokens that each place begins with.
#include <algorithm>
#include <limits>
#include <utility>

#include "llm/text/model.hpp"
#include "llm/text/trie.hpp"
#include "llm/text/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score, as in SentencePiece

struct PathMemory : Model::Memory {
  struct Step {  // the best path to a place
    double score;
    size_t begin;  // of its last token
    TokenId id;    // kNoToken: nothing leads here
  };
  std::vector<Step> steps;
  std::vector<std::pair<size_t, size_t>> parts;
};

class Unigram final : public Model {
 public:
  Unigram(const Vocab& vocab, const std::vector<double>& scores, UnigramOptions options)
      : scores_(scores), options_(std::move(options)), bytes_(vocab) {
    std::vector<std::pair<std::string_view, int32_t>> texts;
    double lowest = std::numeric_limits<double>::infinity();
    for (size_t id = 0; id < vocab.size(); ++id) {
      if (!vocab.has(static_cast<TokenId>(id))) continue;
      if (!options_.allowed.empty() && !options_.allowed[id]) continue;
      texts.emplace_back(vocab.text(static_cast<TokenId>(id)), static_cast<int32_t>(id));
      lowest = std::min(lowest, scores_[id]);
    }
    unknown_score_ = (texts.empty() ? 0 : lowest) - kUnknownPenalty;
    trie_ = Trie(std::move(texts));
  }

  std::unique_ptr<Memory> memory() const override { return std::make_unique<PathMemory>(); }

  void encode(std::string_view piece, std::vector<TokenId>& out, Memory& memory) const override {
    auto& m = static_cast<PathMemory&>(memory);
    search(piece, m.steps);
    // Neighbouring unknown characters are one part.
    m.parts.clear();
    bool fusing = false;
    for (size_t end = piece.size(); end > 0;) {
      const PathMemory::Step& s = m.steps[end];
      const bool unknown = s.id == kUnknown;
      if (unknown && fusing)
        m.parts.back().first = s.begin;
      else
        m.parts.emplace_back(s.begin, end);
      fusing = unknown;
      end = s.begin;
    }
    for (auto part = m.parts.rbegin(); part != m.parts.rend(); ++part) {
      const TokenId id = m.steps[part->second].id;
      if (id != kUnknown)
        out.push_back(id);
      else
        append_unknown(piece.substr(part->first, part->second - part->first), out);
    }
  }

 private:
  static constexpr TokenId kUnknown = -2;

  void search(std::string_view piece, std::vector<PathMemory::Step>& steps) const {
    steps.assign(piece.size() + 1, {0, 0, kNoToken});
    for (size_t at = 0; at < piece.size();) {
      const double here = steps[at].score;
      const size_t character =
          std::min(piece.size() - at, character_size(static_cast<unsigned char>(piece[at])));
      const auto offer = [&](size_t size, TokenId id, double score) {
        PathMemory::Step& s = steps[at + size];
        if (s.id == kNoToken || here + score > s.score) s = {here + score, at, id};
      };
      bool single = false;  // the character is a token
      trie_.prefixes(piece.substr(at), [&](size_t size, int32_t id) {
        offer(size, id, scores_[static_cast<size_t>(id)]);
        single = single || size == character;
      });
      if (!single) offer(character, kUnknown, unknown_score_);
      at += character;
    }
  }

  void append_unknown(std::string_view text, std::vector<TokenId>& out) const {
    if (options_.byte_fallback && bytes_.append(text, out)) return;
    if (options_.unknown == kNoToken)
      throw Error(TENON_UNSUPPORTED, "tokenizer: the vocabulary lacks '" + std::string(text) +
                                         "' and names no token for unknown text");
    out.push_back(options_.unknown);
  }

  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTokens bytes_;
  Trie trie_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<Model> make_unigram(const Vocab& vocab, const std::vector<double>& scores,
                                    UnigramOptions options) {
  return std::make_unique<Unigram>(vocab, scores, std::move(options));
}

}  // namespace tenon::llm
