// SPDX-License-Identifier: Apache-2.0
// Command lines. Options are declared once, in a table, for parsing, checks, help and completions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

// Wrong usage; exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What shell completion offers for a value.
enum class Completes : uint8_t { nothing, file, folder };

struct Option {
  std::string_view name;                    // "--steps"
  std::string_view value{};                 // its name in the help, "N"; empty for a switch
  std::string_view help{};                  // one line
  std::string_view otherwise{};             // the default, for the help
  std::vector<std::string_view> choices{};  // allowed values, unless empty
  Completes completes = Completes::nothing;
  bool repeats = false;  // may be given several times
  bool greedy = false;   // takes all words up to the next option
};

class Args {
 public:
  // words: the words after the command. allowed_words: limit of words that are not options. A
  // switch may be written NAME=on or NAME=off.
  Args(const std::vector<std::string>& words, const std::vector<Option>& options,
       size_t allowed_words = 0);

  // True if the option is given and not switched off.
  bool has(std::string_view name) const { return given_.contains(name) && !off_.contains(name); }
  std::string text(std::string_view name, std::string_view otherwise = "") const;
  std::vector<std::string> list(std::string_view name) const;
  // Parses a complete number and checks it against [least, most].
  int64_t integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  double number(std::string_view name, double otherwise, double least, double most) const;
  // For options without effect here: throws "NAME: why" for the first of them that is given.
  void refuse(std::initializer_list<std::string_view> names, const std::string& why) const;
  const std::vector<std::string>& words() const { return words_; }

  // The same arguments, plus those of `others` that are not given here.
  Args with(const Args& others) const;
  // The same arguments, but for these.
  Args without(std::initializer_list<std::string_view> names) const;
  // The given ones among `names`, as words of a command line.
  std::vector<std::string> given(const std::vector<std::string_view>& names) const;

 private:
  Args() = default;
  void take(const Option& option, const std::vector<std::string>& words, size_t& at,
            const std::string* joined, const std::vector<Option>& options);

  std::map<std::string, std::vector<std::string>, std::less<>> given_;
  std::set<std::string, std::less<>> off_;  // switches
  std::vector<std::string> words_;
};

// The candidate that the word was probably meant to be; empty if none is close.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);
// "; did you mean 'X'?", or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace tenon::cli
