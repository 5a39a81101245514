// SPDX-License-Identifier: Apache-2.0
// Renders templates for tests.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "llm/chat/chat_template.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

inline std::string render(std::string_view source, ChatJson extra = ChatJson::object()) {
  ChatOptions options;
  options.extra = std::move(extra);
  return ChatTemplate(source).render(options);
}

// What the error says, and its code.
inline std::string refusal(std::string_view source, tenon_code code,
                           ChatJson extra = ChatJson::object(), jinja::Limits limits = {}) {
  ChatOptions options;
  options.extra = std::move(extra);
  options.limits = limits;
  try {
    return "no error, but: " + ChatTemplate(source).render(options);
  } catch (const Error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
}

}  // namespace tenon::llm
