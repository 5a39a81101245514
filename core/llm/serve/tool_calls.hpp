// SPDX-License-Identifier: Apache-2.0
// Finds calls of tools in the text that a model writes.
#pragma once

#include <string>
#include <vector>

#include "llm/serve/request.hpp"

namespace tenon::llm::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object, as text
};

// Models write a call as JSON with "name" and "arguments" (or "parameters"), in one of these forms:
// between <tool_call> and </tool_call>, in a list after [TOOL_CALLS], or as the whole answer, an
// object or a list. What looks like a call but names no tool, or is no JSON, stays text.
class ToolParser {
 public:
  // tools: of the request; null: all text passes through.
  explicit ToolParser(const Json& tools);

  // Takes the next part of the answer. Returns the text that is certainly no part of a call.
  std::string push(const std::string& part);
  // The answer has ended: returns the rest of the text.
  std::string finish();
  // After finish().
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  size_t start_of_call() const;
  bool take(const std::string& json);
  bool take_tagged();

  std::vector<std::string> names_;
  std::string held_;      // text that may be a call
  bool in_call_ = false;  // held_ begins with the start of a call
  bool blank_ = true;     // only white space has passed so far
  std::vector<ToolCall> calls_;
};

}  // namespace tenon::llm::serve
