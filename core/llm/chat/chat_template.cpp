// SPDX-License-Identifier: Apache-2.0
// Passes conversations to templates.
#include "llm/chat/chat_template.hpp"

#include "llm/chat/machine.hpp"
#include "llm/chat/parser.hpp"
#include "llm/chat/unicode.hpp"
#include "tenon/tenon.hpp"

namespace tenon::llm {

using namespace jinja;

struct ChatTemplate::Content {
  Program program;
  std::optional<std::string> bos_token, eos_token;
};

namespace {

Value from_text(Heap& heap, const std::string& text, std::string_view where) {
  if (!is_utf8(text))
    throw Error(TENON_INVALID_ARGUMENT,
                "chat template: " + std::string(where) + ": a text is not UTF-8");
  return heap.text(text);
}

Value from_json(Heap& heap, const ChatJson& j, std::string_view where) {
  Deeper deeper(heap, 2);
  switch (j.type()) {
    case ChatJson::value_t::boolean:
      return make_bool(j.get<bool>());
    case ChatJson::value_t::number_integer:
      return make_int(j.get<int64_t>());
    case ChatJson::value_t::number_unsigned:
      if (j.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        throw Error(TENON_INVALID_ARGUMENT, "chat template: " + std::string(where) +
                                                ": expected integers below 2^63, got " + j.dump());
      return make_int(j.get<int64_t>());
    case ChatJson::value_t::number_float:
      return make_real(j.get<double>());
    case ChatJson::value_t::string:
      return from_text(heap, j.get_ref<const std::string&>(), where);
    case ChatJson::value_t::array: {
      const Value made = heap.list({});
      for (const ChatJson& item : j) heap.append(*made.list, from_json(heap, item, where));
      return made;
    }
    case ChatJson::value_t::object: {
      const Value made = heap.dict();
      for (const auto& [key, value] : j.items())
        insert(heap, *made.dict, from_text(heap, key, where), from_json(heap, value, where));
      return made;
    }
    default:
      return Value::none();
  }
}

// Reasoning has three names. Templates find it under the first two.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

Value from_message(Heap& heap, const ChatJson& message, size_t index) {
  const std::string where = "messages[" + std::to_string(index) + "]";
  if (!message.is_object())
    throw Error(TENON_INVALID_ARGUMENT,
                "chat template: " + where + ": expected an object, got " + message.type_name());
  const ChatJson* reasoning = nullptr;
  for (const char* name : kReasoning)
    if (const auto at = message.find(name); !reasoning && at != message.end() && !at->is_null())
      reasoning = &*at;
  const Value made = heap.dict();
  if (reasoning)
    insert(heap, *made.dict, heap.text("thinking"), from_json(heap, *reasoning, where));
  for (const auto& [key, value] : message.items())
    if (!value.is_null())  // templates handle a missing key better than null
      insert(heap, *made.dict, from_text(heap, key, where), from_json(heap, value, where));
  if (reasoning)
    insert(heap, *made.dict, heap.text("reasoning_content"), from_json(heap, *reasoning, where));
  return made;
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::optional<std::string> bos_token,
                           std::optional<std::string> eos_token)
    : content_(std::make_unique<const Content>(
          Content{parse(source), std::move(bos_token), std::move(eos_token)})) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const ChatOptions& options) const {
  if (!options.messages.is_array())
    throw Error(TENON_INVALID_ARGUMENT,
                std::string("chat template: messages: expected a list, got ") +
                    options.messages.type_name());
  if (!options.extra.is_object())
    throw Error(
        TENON_INVALID_ARGUMENT,
        std::string("chat template: extra: expected an object, got ") + options.extra.type_name());
  Machine machine(options.limits, options.now ? *options.now : local_time());
  const Symbols& symbols = content_->program.symbols;
  Scope functions, variables;  // what is defined later replaces what was there
  const auto add = [&](Scope& scope, std::string_view name, auto&& make) {
    if (const uint32_t* symbol = symbols.find(std::string(name))) scope.set(*symbol, make());
  };
  for (const Global& global : globals())
    add(functions, global.name, [&] { return machine.method(global.name, global.builtin, {}); });
  const auto define = [&](std::string_view name, auto&& make) { add(variables, name, make); };
  const auto token = [&](std::string_view name, const std::optional<std::string>& text) {
    if (text) define(name, [&] { return from_text(machine, *text, name); });
  };
  token("bos_token", content_->bos_token);
  token("eos_token", content_->eos_token);
  define("documents", [] { return Value::none(); });
  for (const auto& [name, value] : options.extra.items())
    define(name, [&] { return from_json(machine, value, name); });
  define("messages", [&] {
    const Value made = machine.list({});
    for (size_t i = 0; i < options.messages.size(); ++i)
      machine.append(*made.list, from_message(machine, options.messages[i], i));
    return made;
  });
  define("tools", [&] { return from_json(machine, options.tools, "tools"); });
  define("add_generation_prompt", [&] { return make_bool(options.add_generation_prompt); });
  return machine.run(content_->program.body, functions.variables, variables.variables);
}

}  // namespace tenon::llm
