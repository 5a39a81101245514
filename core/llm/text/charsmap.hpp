// SPDX-License-Identifier: Apache-2.0
// The table of replacements that SentencePiece compiles into its models: a double array that maps prefixes of a text
// to strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::llm {

class Charsmap {
 public:
  // blob: the size of the array in bytes (little endian, 32 bits), the array, the strings with a zero byte each.
  Charsmap(std::string_view blob, const std::string& where);

  // SentencePiece's way: replaces the longest prefix at each place.
  std::string longest(std::string_view text) const;
  // That of tokenizer.json: replaces grapheme clusters, and characters, whose shortest prefix is in the table.
  std::string by_clusters(std::string_view text) const;

 private:
  // Calls found(size, replacement) for prefixes of the text, from the shortest on, until it returns false.
  template <class F>
  void prefixes(std::string_view text, F&& found) const;
  bool replaced(std::string_view chunk, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string strings_;
};

}  // namespace tenon::llm
