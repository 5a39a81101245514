// SPDX-License-Identifier: Apache-2.0
// The search walks a prefix tree from each byte; most bytes start no token.
#include "llm/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "llm/text/unicode.hpp"

namespace tenon::llm {
namespace {

char32_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return next_character(text, at);
}

bool inside_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word(last_character(text.substr(0, begin)))) return true;
  return end < text.size() && is_word(next_character(text, end));
}

size_t skip_spaces_back(std::string_view text, size_t from, size_t least) {
  while (from > least) {
    size_t at = from - 1;
    while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
    size_t behind = at;
    if (at < least || !is_space(next_character(text, behind))) break;
    from = at;
  }
  return from;
}

size_t skip_spaces(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); from = at)
    if (!is_space(next_character(text, at))) break;
  return from;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& texts)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> all, plain;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    all.emplace_back(texts[i], static_cast<int32_t>(i));
    if (!tokens_[i].special) plain.push_back(all.back());
  }
  all_ = Trie(std::move(all));
  plain_ = Trie(std::move(plain));
}

void AddedTokens::find(std::string_view text, bool special, std::vector<Segment>& out) const {
  out.clear();
  const Trie& trie = special ? all_ : plain_;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    int32_t index = -1;
    trie.prefixes(text.substr(at), [&](size_t n, int32_t i) {
      size = n;
      index = i;
    });
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = at + size;
    at = end;
    if (token.single_word && inside_word(text, begin, end)) continue;
    if (token.lstrip) begin = skip_spaces_back(text, begin, done);
    if (token.rstrip) end = skip_spaces(text, end);
    begin = std::max(begin, done);
    if (done < begin) out.push_back({done, begin, kNoToken});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), kNoToken});
}

}  // namespace tenon::llm
