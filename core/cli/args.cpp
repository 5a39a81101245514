// SPDX-License-Identifier: Apache-2.0
#include "cli/args.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tenon::cli {
namespace {

template <class Number>
Number parse_number(std::string_view name, const std::string& text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto show = [](Number v) {
    char buffer[32];
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  };
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    throw UsageError(std::string(name) + ": expected a number, got '" + text + "'");
  if (!(value >= least && value <= most))
    throw UsageError(std::string(name) + ": expected " + show(least) + " to " + show(most) +
                     ", got " + text);
  return value;
}

}  // namespace

Args::Args(const std::vector<std::string>& words, const std::vector<Option>& options,
           size_t allowed_words) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (!word.starts_with("--") || word == "--") {
      if (words_.size() == allowed_words) throw UsageError("unexpected argument '" + word + "'");
      words_.push_back(word);
      continue;
    }
    std::optional<std::string> joined;  // --name=value
    if (const size_t at = word.find('='); at != std::string::npos)
      joined = word.substr(at + 1), word.resize(at);
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& o) { return o.name == word; });
    if (option == options.end()) throw UsageError("unknown option '" + word + "'");
    if (has(word) && !option->repeats && !option->greedy)
      throw UsageError("option " + word + " is given twice");
    auto& values = given_[word];
    if (option->value.empty()) {
      if (joined) throw UsageError("option " + word + " takes no value");
      continue;
    }
    if (joined) {
      values.push_back(*joined);
    } else {
      if (i + 1 == words.size())
        throw UsageError("option " + word + " needs a value: " + std::string(option->value));
      values.push_back(words[++i]);
    }
    while (option->greedy && i + 1 < words.size() && !words[i + 1].starts_with("--"))
      values.push_back(words[++i]);
  }
}

std::string Args::text(std::string_view name, std::string_view otherwise) const {
  const auto found = given_.find(name);
  return found == given_.end() || found->second.empty() ? std::string(otherwise)
                                                        : found->second.back();
}

std::vector<std::string> Args::list(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? std::vector<std::string>{} : found->second;
}

int64_t Args::integer(std::string_view name, int64_t otherwise, int64_t least, int64_t most) const {
  return has(name) ? parse_number(name, text(name), least, most) : otherwise;
}

double Args::number(std::string_view name, double otherwise, double least, double most) const {
  return has(name) ? parse_number(name, text(name), least, most) : otherwise;
}

void Args::refuse(std::initializer_list<std::string_view> names, const std::string& why) const {
  for (const std::string_view name : names)
    if (has(name)) throw UsageError(std::string(name) + ": " + why);
}

std::string options_help(const std::vector<Option>& options) {
  size_t width = 0;
  for (const Option& o : options) width = std::max(width, o.name.size() + 1 + o.value.size());
  std::string text;
  for (const Option& o : options) {
    std::string left(o.name);
    if (!o.value.empty()) left += " " + std::string(o.value);
    left.resize(width + 2, ' ');
    text += "  " + left + std::string(o.help) + "\n";
  }
  return text;
}

}  // namespace tenon::cli
