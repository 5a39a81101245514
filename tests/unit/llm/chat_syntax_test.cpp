// SPDX-License-Identifier: Apache-2.0
// Chat templates: white space, statements, scopes, macros, and what the parser refuses.
#include "chat_rig.hpp"

using namespace tenon;
using namespace tenon::llm;

TEST_SUITE_BEGIN("llm/chat syntax");

TEST_CASE("white space: tags take their line, and signs strip or keep") {
  CHECK(render("a\n  {% if true %}\n  b\n  {% endif %}\nc") == "a\n  b\nc");
  CHECK(render("a\n  {{ 1 }}\nc") == "a\n  1\nc");
  CHECK(render("a \n {%- if true -%} \n b \n {%- endif -%} \n c") == "abc");
  CHECK(render("a\n  {%+ if true +%}\nb{% endif %}") == "a\n  \nb");
  CHECK(render("a {{- ' ' -}} b") == "a b");
  CHECK(render("a\n {# note #}\nb{#- x -#} c") == "a\nbc");
  CHECK(render("x {% if true %}\ny{% endif %}") == "x y");
  CHECK(render("one\r\ntwo\rthree\n") == "one\ntwo\nthree");
  CHECK(render("{% raw %} {{ x }} {% y %}{% endraw %}\n!") == " {{ x }} {% y %}!");
  CHECK(render("{%- raw -%} {{ x }} {%- endraw -%} !") == "{{ x }}!");
  CHECK(render("{ a } {") == "{ a } {");
}

TEST_CASE("for: loop variables, tests, else, unpacking") {
  CHECK(render("{% for x in [5, 6, 7] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
               "{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}") ==
        "103TrueFalse3 212FalseFalse3 321FalseTrue3 ");
  CHECK(render("{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}/{{ loop.length }} {% endfor %}") ==
        "2/2 4/2 ");
  CHECK(render("{% for x in [] %}a{% else %}none{% endfor %}") == "none");
  CHECK(render("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1b2");
  CHECK(render("{% for x in 'ab' %}{{ loop.cycle('u', 'v') }}{{ loop.nextitem }}"
               "{{ loop.previtem }},{% endfor %}") == "ub,va,");
  CHECK(render("{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}") == "True False True ");
  CHECK(render("{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}"
               "{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}") == "02");
  CHECK(render("{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }})"
               "{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}") == "1@1(2@2(3@3))");
  // The test of a loop runs when its item is taken, and sees what the body has changed.
  CHECK(render("{% set n = namespace(on=true) %}{% for x in [1, 2, 3] if n.on %}{{ x }}"
               "{% set n.on = x < 2 %}{% endfor %}") == "12");
}

TEST_CASE("set: scopes of loops end, namespaces stay") {
  CHECK(render("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 9 %}{{ x }} {% endfor %}"
               "{{ x }}") == "19 19 1");
  CHECK(render("{% if true %}{% set x = 2 %}{% endif %}{{ x }}") == "2");
  CHECK(render("{% set n = namespace(c=0) %}{% for i in range(4) %}{% set n.c = n.c + i %}"
               "{% endfor %}{{ n.c }}") == "6");
  CHECK(render("{% set a, b = [1, 2] %}{{ b }}{{ a }}") == "21");
  CHECK(render("{% set x | upper | trim %} ab {% endset %}[{{ x }}]") == "[AB]");
  CHECK(render("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}") == "3");
  CHECK(render("{% set s = s ~ '!' %}{{ s }}", {{"s", "hi"}}) == "hi!");
}

TEST_CASE("macros: defaults, names, varargs, caller") {
  CHECK(render("{% macro m(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
               "{{ m(1) }} {{ m(1, c=2) }} {{ m(b=3) }}") == "1x1 1x2 3");
  CHECK(render("{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}"
               "{{ m(1, 2, 3, k=4) }}") == "1(2, 3){'k': 4}");
  CHECK(render("{% macro box(w) %}<{{ caller(w) }}>{% endmacro %}"
               "{% call(v) box(2) %}v={{ v }}{% endcall %}") == "<v=2>");
  CHECK(render("{% macro f(n) %}{{ n if n < 2 else f(n - 1) ~ n }}{% endmacro %}{{ f(4) }}") ==
        "1234");
  CHECK(render("{% filter upper %}a{{ 'b' }}{% endfilter %}") == "AB");
  CHECK(render("a{% generation %}b{% endgeneration %}c") == "abc");
  CHECK(refusal("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 2: macro 'm': expected at most 1 arguments, got 2");
}

TEST_CASE("expressions: precedence, chains, choices") {
  CHECK(render("{{ 1 + 2 * 3 ** 2 }}|{{ -2 ** 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}") ==
        "19|4|3|-4|2");
  CHECK(render("{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 2 not in [1] }}") ==
        "TrueFalseTrueTrue");
  CHECK(render("{{ 'a' ~ 1 ~ none ~ 2.0 }}|{{ 'x' 'y' }}") == "a1None2.0|xy");
  CHECK(render("{{ 'a' if false else 'b' if false else 'c' }}{{ 'a' if false }}") == "c");
  CHECK(render("{{ 0 or 'x' }}{{ 1 and '' }}{{ not 1 == 2 }}") == "xTrue");
  CHECK(render("{{ -1 | abs }}{{ 'a,b'.split(',')[-1] }}{{ [1, 2, 3][1:] }}{{ 'abc'[::-1] }}") ==
        "1b[2, 3]cba");
  CHECK(render("{{ 3 is odd and 4 is not odd }}{{ 6 is divisibleby 3 }}{{ x is defined }}") ==
        "TrueTrueFalse");
}

TEST_CASE("refusals name the line and what was expected") {
  CHECK(refusal("a\n{% if x %}", TENON_CORRUPT) ==
        "chat template, line 2: the tag 'if' does not end; expected 'elif' or 'else' or 'endif', "
        "got the end of the template");
  CHECK(refusal("{{ 1 + }}", TENON_CORRUPT) ==
        "chat template, line 1: expected an expression, got '}}'");
  CHECK(refusal("\n\n{% include 'x' %}", TENON_CORRUPT) ==
        "chat template, line 3: unknown tag 'include'");
  CHECK(refusal("{{ 'a }}", TENON_CORRUPT) ==
        "chat template, line 1: a string does not end; expected '");
  CHECK(refusal("{{ (1] }}", TENON_CORRUPT) ==
        "chat template, line 1: unexpected ']'; expected ')'");
  CHECK(refusal("{% break %}", TENON_CORRUPT) ==
        "chat template, line 1: 'break' outside of a loop");
  CHECK(refusal("{# a", TENON_CORRUPT) ==
        "chat template, line 1: a comment does not end; expected '#}'");
  CHECK(refusal("\xff", TENON_CORRUPT) == "chat template: the source is not UTF-8");
  CHECK(refusal("\n{{ 1 | nope }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 2: unknown filter 'nope'");
  CHECK(refusal("{{ 1 is nope }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: unknown test 'nope'");
  CHECK(refusal("{{ x.y }}", TENON_INVALID_ARGUMENT) == "chat template, line 1: 'x' is undefined");
  CHECK(refusal("{{ 'a'.encode() }}", TENON_INVALID_ARGUMENT) ==
        "chat template, line 1: 'encode' is undefined");
  CHECK(refusal("{{ raise_exception('no ' ~ 'tools') }}", TENON_INVALID_ARGUMENT) ==
        "chat template: no tools");
}
TEST_SUITE_END();
