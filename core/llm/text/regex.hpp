// SPDX-License-Identifier: Apache-2.0
// Regular expressions in the syntax that tokenizer.json uses (Oniguruma with Ruby's rules), run by PCRE2 with
// Unicode properties and with a limit of steps.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tenon::llm {

// The same expression in the syntax of PCRE2. Throws for syntax that has another meaning there. `where` starts
// messages.
std::string pcre_pattern(std::string_view pattern, const std::string& where);

class Regex {
 public:
  Regex(std::string_view pattern, const std::string& where);
  // Matches exactly this text.
  static Regex literal(std::string_view text, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // Finds the first match that begins at `from` or later. Throws if it takes too many steps.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  // Calls found(begin, end) for each match, from left to right. A match may be empty, except directly behind
  // another one.
  template <class F>
  void each(std::string_view text, F&& found) const {
    size_t from = 0, last = text.npos, begin = 0, end = 0;
    while (from <= text.size() && find(text, from, begin, end)) {
      if (begin != end || begin != last) found(begin, end);
      last = end;
      from = end;
      if (begin == end) from += end < text.size() ? next(text, end) : 1;
    }
  }

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static size_t next(std::string_view text, size_t at);
  std::unique_ptr<Code> code_;
};

}  // namespace tenon::llm
