// SPDX-License-Identifier: Apache-2.0
// Chat templates: conversations, texts of values, JSON, filters, methods.
#include "chat_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE_BEGIN("llm/chat data");

TEST_CASE("a conversation gives the text of ChatML") {
  const ChatTemplate chat(
      "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}"
      "<|im_end|>\n{% endfor %}\n{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "<s>");
  ChatOptions options;
  options.messages = {{{"role", "system"}, {"content", "Be kind."}},
                      {{"role", "user"}, {"content", " Gr\u00fc\u00dfe! "}}};
  CHECK(chat.render(options) ==
        "<s><|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nGr\u00fc\u00dfe!<|im_end|>\n"
        "<|im_start|>assistant\n");
  options.add_generation_prompt = false;
  options.messages.erase(0);
  CHECK(chat.render(options) == "<s><|im_start|>user\nGr\u00fc\u00dfe!<|im_end|>\n");
}

TEST_CASE("messages: null is missing, reasoning has two names") {
  ChatOptions options;
  options.messages = {{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "hm"}}};
  CHECK(ChatTemplate("{{ messages[0] | tojson }}").render(options) ==
        R"({"thinking": "hm", "role": "assistant", "reasoning": "hm", "reasoning_content": "hm"})");
  CHECK(ChatTemplate("{{ tools is none }}{{ bos_token is defined }}").render(options) ==
        "TrueFalse");
  options.messages = {"text"};
  CHECK_THROWS_WITH_AS(ChatTemplate("{{ messages }}").render(options),
                       "chat template: messages[0]: expected an object, got string", Error);
  options.messages = {{{"role", "\xff"}}};
  CHECK_THROWS_WITH_AS(ChatTemplate("{{ messages }}").render(options),
                       "chat template: messages[0]: a text is not UTF-8", Error);
}

TEST_CASE("texts of values are Python's") {
  CHECK(render("{{ [1, 2.0, 'a', none, true, {'k': (1,)}] }}") ==
        "[1, 2.0, 'a', None, True, {'k': (1,)}]");
  CHECK(render("{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1/3 }} {{ 4 / 2 }}") ==
        "1e+16 1000000000000000.0 0.0001 1e-05 0.3333333333333333 2.0");
  CHECK(render("{{ [\"it's\", '\"', 'a\\n\\u00e9\\u200b'] }}") ==
        "[\"it's\", '\"', 'a\\n\u00e9\\u200b']");
  CHECK(render("{{ range(3) }}{{ {'a': 1}.items() }}{{ x }}") ==
        "range(0, 3)dict_items([('a', 1)])");
}

TEST_CASE("tojson writes as json.dumps with ensure_ascii=False") {
  const ChatJson value = {
      {"b", {1, 2.5, nullptr}}, {"a", "\u00e9\n\"</x>"}, {"e", ChatJson::array()}};
  CHECK(render("{{ v | tojson }}", {{"v", value}}) ==
        "{\"b\": [1, 2.5, null], \"a\": \"\u00e9\\n\\\"</x>\", \"e\": []}");
  CHECK(render("{{ v | tojson(indent=2, sort_keys=true) }}", {{"v", value}}) ==
        "{\n  \"a\": \"\u00e9\\n\\\"</x>\",\n  \"b\": [\n    1,\n    2.5,\n    null\n  ],\n  "
        "\"e\": []\n}");
  CHECK(render("{{ v | tojson(separators=(',', ':'), ensure_ascii=true) }}",
               {{"v", "\U0001f642"}}) == "\"\\ud83d\\ude42\"");
  CHECK(refusal("{{ x | tojson }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: tojson: cannot write undefined 'x'");
}

TEST_CASE("filters of sequences") {
  const ChatJson people = {
      {"p", {{{"n", "Bo"}, {"a", 3}}, {{"n", "al"}, {"a", 1}}, {{"n", "Cy"}}}}};
  CHECK(render("{{ p | map(attribute='n') | join('-') }}", people) == "Bo-al-Cy");
  CHECK(render("{{ p | selectattr('a', 'defined') | map(attribute='a') | sum }}", people) == "4");
  CHECK(render("{{ p | rejectattr('a') | list | length }}", people) == "1");
  CHECK(render("{{ p | sort(attribute='n') | map(attribute='n') | list }}", people) ==
        "['al', 'Bo', 'Cy']");
  CHECK(render("{{ [3, 1, 2, 1] | sort(reverse=true) }}{{ [1, 1, 2] | unique | list }}") ==
        "[3, 2, 1, 1][1, 2]");
  CHECK(render("{{ {'b': 1, 'a': 2} | dictsort }}{{ [1, 2, 3] | batch(2, 0) | list }}") ==
        "[('a', 2), ('b', 1)][[1, 2], [3, 0]]");
  CHECK(render("{{ 'abc' | first }}{{ [1, 2] | last }}{{ [] | first is undefined }}"
               "{{ ['a', 'b'] | map('upper') | list }}") == "a2True['A', 'B']");
  CHECK(render("{{ x | default('d') }}{{ '' | default('e', true) }}{{ none | default('f') }}") ==
        "deNone");
  CHECK(render("{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}") ==
        "['1', '2'][]");
}

TEST_CASE("texts: characters, cases, methods") {
  CHECK(render("{{ s | length }}{{ s[1] }}{{ s[-2:] }}{{ s | upper }}{{ s | reverse }}",
               {{"s", "\u00e4\u00df\U0001f642"}}) ==
        "3\u00df\u00df\U0001f642\u00c4SS\U0001f642\U0001f642\u00df\u00e4");
  CHECK(
      render(
          "{{ '\u039f\u03a3 \u03a3'.lower() }}{{ 'hello wORLD'.title() }}{{ 'x-y z' | title }}") ==
      "\u03bf\u03c2 \u03c3Hello WorldX-Y Z");
  CHECK(render("{{ 'a b  c '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}") ==
        "['a', 'b', 'c']['a', 'b,c']['a,b', 'c']");
  CHECK(render("{{ ' x '.strip() }}{{ 'xxay'.lstrip('x') }}{{ 'abc'.replace('b', '') }}"
               "{{ 'ab'.startswith(('x', 'a')) }}{{ 'abcb'.find('b', 2) }}") == "xayacTrue3");
  CHECK(render("{{ '%s is %05.1f%%' % ('x', 2.25) }}|{{ '{:>5}|{k!r}'.format(7, k='v') }}") ==
        "x is 002.2%|    7|'v'");
  CHECK(render("{{ 'a\\nb' | indent(2) }}{{ 'a b c' | replace(' ', '') }}") == "a\n  babc");
  CHECK(render("{{ '42' | int + 1 }}{{ 'x' | int(7) }}{{ '2.5' | float }}{{ 2.5 | round }}") ==
        "4372.52.0");
  CHECK(render("{{ '<b>' | escape }}{{ ('<' | safe) + '>' }}") == "&lt;b&gt;<&gt;");
}

TEST_CASE("the sandbox reaches data only") {
  CHECK(render("{{ ''.__class__ }}{{ [].append }}{{ {}.pop }}") == "");
  CHECK(refusal("{{ [].append(1) }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: 'append' is undefined");
  CHECK(refusal("{{ namespace(_x=1) }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: namespace: the attribute '_x' starts with an underscore");
}

TEST_CASE("strftime_now uses the time of the caller") {
  ChatOptions options;
  std::tm now{};
  now.tm_year = 126, now.tm_mon = 1, now.tm_mday = 3, now.tm_hour = 4;
  options.now = now;
  CHECK(ChatTemplate("{{ strftime_now('%d %b %Y, %H:%M') }}").render(options) ==
        "03 Feb 2026, 04:00");
}
TEST_SUITE_END();
