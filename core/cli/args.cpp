// SPDX-License-Identifier: Apache-2.0
// Parses and checks a command line, and prints the help of its options.
#include "cli/args.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

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
  if (error == std::errc::invalid_argument || end != text.data() + text.size() || text.empty())
    throw UsageError(std::string(name) + ": expected a number, got '" + text + "'");
  if (error != std::errc() || !(value >= least && value <= most))
    throw UsageError(std::string(name) + ": expected " + show(least) + " to " + show(most) +
                     ", got " + text);
  return value;
}

const Option* find(const std::vector<Option>& options, std::string_view word) {
  if (word == "-h") word = "--help";
  const std::string_view name = word.substr(0, word.find('='));
  const auto found = std::ranges::find_if(options, [&](const Option& o) { return o.name == name; });
  return found == options.end() ? nullptr : &*found;
}

// "-" stands for standard input; numbers may be negative.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' && (word[1] < '0' || word[1] > '9');
}

std::string listed(const std::vector<std::string_view>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i)
    text += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + std::string(choices[i]);
  return text;
}

// The number of letters to change, insert, delete or swap with their neighbour.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

Args::Args(const std::vector<std::string>& words, const std::vector<Option>& options,
           size_t allowed_words) {
  bool options_end = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!options_end && word == "--") {
      options_end = true;
      continue;
    }
    if (options_end || !looks_like_option(word)) {
      if (words_.size() == allowed_words) throw UsageError("unexpected argument '" + word + "'");
      words_.push_back(word);
      continue;
    }
    const Option* option = find(options, word);
    if (!option) {
      std::vector<std::string_view> names;
      for (const Option& o : options) names.push_back(o.name);
      const std::string name = word.substr(0, word.find('='));
      throw UsageError("unknown option '" + name + "'" + did_you_mean(name, names));
    }
    std::optional<std::string> joined;  // --name=value
    if (const size_t at = word.find('='); at != std::string::npos) joined = word.substr(at + 1);
    take(*option, words, i, joined ? &*joined : nullptr, options);
  }
}

void Args::take(const Option& option, const std::vector<std::string>& words, size_t& at,
                const std::string* joined, const std::vector<Option>& options) {
  const std::string name(option.name);
  if (given_.contains(name) && !option.repeats && !option.greedy)
    throw UsageError("option " + name + ": expected once, got twice");
  auto& values = given_[name];
  if (option.value.empty()) {
    if (joined && *joined != "on" && *joined != "off")
      throw UsageError("option " + name + ": expected on or off, got '" + *joined + "'");
    if (joined && *joined == "off") off_.insert(name);
    return;
  }
  const auto is_option = [&](const std::string& word) {
    return looks_like_option(word) && (option.greedy || find(options, word));
  };
  const auto needs = [&] {
    return "option " + name + " needs a value, " + std::string(option.value);
  };
  if (joined) {
    values.push_back(*joined);
  } else {
    if (at + 1 == words.size()) throw UsageError(needs());
    if (is_option(words[at + 1]))
      throw UsageError(needs() + "; got the option " + words[at + 1] + " (" + name + "=" +
                       words[at + 1] + " if that is meant)");
    values.push_back(words[++at]);
  }
  while (option.greedy && at + 1 < words.size() && !is_option(words[at + 1]))
    values.push_back(words[++at]);
  if (option.choices.empty()) return;
  for (const std::string& value : values)
    if (std::ranges::find(option.choices, value) == option.choices.end())
      throw UsageError(name + " " + value + ": expected " + listed(option.choices) +
                       did_you_mean(value, option.choices));
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

Args Args::with(const Args& others) const {
  Args all = *this;
  for (const auto& [name, values] : others.given_)
    if (all.given_.emplace(name, values).second && others.off_.contains(name))
      all.off_.insert(name);
  return all;
}

Args Args::without(std::initializer_list<std::string_view> names) const {
  Args left = *this;
  for (const std::string_view name : names)
    if (const auto found = left.given_.find(name); found != left.given_.end())
      left.given_.erase(found);
  return left;
}

std::vector<std::string> Args::given(const std::vector<std::string_view>& names) const {
  std::vector<std::string> out;
  for (const std::string_view name : names) {
    if (!has(name)) continue;
    const auto& values = given_.find(name)->second;
    if (values.empty()) out.emplace_back(name);
    for (const std::string& value : values) {
      out.emplace_back(name);
      out.push_back(value);
    }
  }
  return out;
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongest = 64;  // bounds the table of distances
  std::string_view best;
  if (word.size() > kLongest) return best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view c : candidates) {
    if (c.size() > kLongest) continue;
    if (const size_t d = distance(word, c); d < least) least = d, best = c;
  }
  // A prefix of a single name.
  if (best.empty() && word.size() >= 3 && word != "--") {
    for (const std::string_view c : candidates) {
      if (!c.starts_with(word)) continue;
      if (!best.empty()) return {};
      best = c;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const std::string_view meant = nearest(word, candidates);
  return meant.empty() ? "" : "; did you mean '" + std::string(meant) + "'?";
}

}  // namespace tenon::cli
