// SPDX-License-Identifier: Apache-2.0
// Command lines: options declared once, parsed, checked, and printed as help.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

// Wrong usage: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Option {
  std::string_view name;   // "--steps"
  std::string_view value;  // what stands behind it in the help; empty = a switch
  std::string_view help;
  bool repeats = false;  // may come several times
  bool greedy = false;   // takes all words up to the next option
};

class Args {
 public:
  // words: what follows the command. allowed_words: how many words that are no option may come.
  Args(const std::vector<std::string>& words, const std::vector<Option>& options,
       size_t allowed_words = 0);

  bool has(std::string_view name) const { return given_.contains(name); }
  std::string text(std::string_view name, std::string_view otherwise = "") const;
  std::vector<std::string> list(std::string_view name) const;
  // Numbers are parsed whole and checked against [least, most].
  int64_t integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const;
  double number(std::string_view name, double otherwise, double least, double most) const;
  // Where options would be ignored: "NAME: why" for the first of them that is given.
  void refuse(std::initializer_list<std::string_view> names, const std::string& why) const;
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> given_;
  std::vector<std::string> words_;
};

// "  --steps N        total number of steps" per option.
std::string options_help(const std::vector<Option>& options);

}  // namespace tenon::cli
