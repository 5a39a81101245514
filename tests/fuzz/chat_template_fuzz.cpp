// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template over a conversation with tools: a text, or an Error, within small limits.
#include "check.hpp"
#include "llm/chat/chat_template.hpp"
#include "tenon/tenon.hpp"

using namespace tenon;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const llm::ChatOptions options = [] {
    llm::ChatOptions o;
    o.messages = {{{"role", "system"}, {"content", "Be kind."}},
                  {{"role", "user"}, {"content", "\u00dc <b>1,2</b>\n"}},
                  {{"role", "assistant"},
                   {"reasoning", "hm"},
                   {"tool_calls",
                    {{{"id", "c0"}, {"function", {{"name", "f"}, {"arguments", {{"x", 1.5}}}}}}}}}};
    o.tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", nullptr}}}}};
    o.now = std::tm{};
    o.limits = {.steps = 100'000, .memory = 8 << 20, .output = 1 << 20};
    return o;
  }();
  try {
    const std::string text =
        llm::ChatTemplate({reinterpret_cast<const char*>(data), size}, "<s>", "</s>")
            .render(options);
    fuzz::must(text.size() <= options.limits.output, "more output than the limit");
    fuzz::read(text.data(), text.size());
  } catch (const Error& e) {
    fuzz::must(e.code() != TENON_INTERNAL, e.what());
  }
  return 0;
}
