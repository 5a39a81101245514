// SPDX-License-Identifier: Apache-2.0
// Text is held back from the first sign of a call on, and read when the answer has ended.
#include "llm/serve/tool_calls.hpp"

#include <algorithm>

#include "llm/json_text.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kList = "[TOOL_CALLS]";
constexpr std::string_view kSpace = " \t\r\n";

std::string trimmed(std::string_view s) {
  const size_t from = s.find_first_not_of(kSpace);
  if (from == std::string_view::npos) return "";
  return std::string(s.substr(from, s.find_last_not_of(kSpace) - from + 1));
}

// The length of the longest end of `text` that `mark` begins with.
size_t partial(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == mark.substr(0, n)) return n;
  return 0;
}

// Null if the text is no JSON.
Json parsed(const std::string& text) {
  try {
    return parse_json(text, "call");
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

ToolParser::ToolParser(const Json& tools) {
  if (tools.is_array())
    for (const Json& t : tools) names_.push_back(t["function"]["name"].get<std::string>());
}

size_t ToolParser::start_of_call() const {
  size_t at = std::min(held_.find(kOpen), held_.find(kList));
  if (blank_) {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first != std::string::npos && (held_[first] == '{' || held_[first] == '['))
      at = std::min(at, first);
  }
  return at;
}

std::string ToolParser::push(const std::string& part) {
  if (names_.empty()) return part;
  held_ += part;
  if (in_call_) return "";
  size_t safe = start_of_call();
  if (safe != std::string::npos)
    in_call_ = true;
  else
    safe = held_.size() - std::max(partial(held_, kOpen), partial(held_, kList));
  // White space before a call is no content.
  if (blank_ && held_.find_first_not_of(kSpace) >= safe) {
    if (in_call_) held_.erase(0, safe);
    return "";
  }
  blank_ = false;
  const std::string text = held_.substr(0, safe);
  held_.erase(0, safe);
  return text;
}

// One call or a list of them.
bool ToolParser::take(const std::string& text) {
  const Json json = parsed(text);
  const Json list = json.is_array() ? json : Json::array({json});
  std::vector<ToolCall> found;
  for (const Json& one : list) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string()) return false;
    const std::string name = one["name"].get<std::string>();
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) return false;
    Json arguments = Json::object();
    for (const char* key : {"arguments", "parameters"})
      if (one.contains(key)) arguments = one[key];
    // Some templates make models write the arguments as a text of JSON.
    if (arguments.is_string()) arguments = parsed(arguments.get<std::string>());
    if (!arguments.is_object()) return false;
    found.push_back({name, arguments.dump(-1, ' ', false, Json::error_handler_t::replace)});
  }
  calls_.insert(calls_.end(), found.begin(), found.end());
  return !found.empty();
}

bool ToolParser::take_tagged() {
  std::string rest = held_;
  std::string text;
  while (true) {
    const size_t open = rest.find(kOpen);
    if (open == std::string::npos) break;
    const size_t from = open + kOpen.size();
    const size_t close = std::min(rest.find(kClose, from), rest.size());
    if (!take(trimmed(rest.substr(from, close - from)))) return false;
    text += rest.substr(0, open);
    rest.erase(0, std::min(close + kClose.size(), rest.size()));
  }
  held_ = trimmed(text + rest);
  return true;
}

std::string ToolParser::finish() {
  if (in_call_) {
    const auto before = calls_;
    if (held_.starts_with(kOpen)) {
      if (!take_tagged()) calls_ = before;
    } else {
      const std::string json =
          trimmed(held_.starts_with(kList) ? held_.substr(kList.size()) : held_);
      if (take(json)) held_.clear();
    }
  }
  return std::exchange(held_, {});
}

}  // namespace tenon::llm::serve
