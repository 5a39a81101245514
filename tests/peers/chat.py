#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat.py PROBE templates FOLDER | programs [--count 2000] [--seed 1] | characters

Renders chat templates with tenon and with Hugging Face transformers (Jinja2), which must agree byte for byte, or both refuse.
`templates` takes those of the source package of llama-cpp-python, which it fetches into FOLDER, with conversations of every
kind. `programs` makes random templates. `characters` calls the methods of str that depend on characters. Exits with 77 without
transformers, or if the package cannot be fetched."""
import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import unicodedata

try:
    from transformers.utils import chat_template_utils
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import chat_programs
from probes import Probe

PACKAGE = "llama-cpp-python==0.3.36"
NOW = 1_760_000_000


def transformers(request):
    """The text, or None with the reason if the template refuses."""
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
    try:
        compiled = chat_template_utils._compile_jinja_template(request["template"])
        compiled.globals["strftime_now"] = now.strftime
        messages = chat_template_utils._normalize_chat_messages(request["messages"])
        tokens = {k: request[k] for k in ("bos_token", "eos_token") if k in request}
        rendered, _ = chat_template_utils.render_jinja_template(
            [messages], tools=request["tools"], chat_template=request["template"],
            add_generation_prompt=request["add_generation_prompt"], **tokens, **request["extra"])
        rendered[0].encode()
        return rendered[0], ""
    except Exception as refusal:  # whatever Python finds wrong in a template
        return None, f"{type(refusal).__name__}: {refusal}"


def tool(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


TOOLS = [
    tool("get_weather", location={"type": "string", "description": "A city, e.g. \"Z\u00fcrich\""},
         unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
    tool("search", query={"type": "string"}, limit={"type": "integer", "default": 3, "minimum": 1},
         filters={"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}},
                                                   "exact": {"type": "boolean"}}}),
    tool("now"),
]


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def calling(*calls, content="", as_text=False, ids=True, **more):
    made = []
    for at, (name, arguments) in enumerate(calls):
        call = {"type": "function", "function": {
            "name": name, "arguments": json.dumps(arguments) if as_text else arguments}}
        if ids:
            call["id"] = f"call{at:05d}"
        made.append(call)
    return said("assistant", content, tool_calls=made, **more)


WEATHER = ("get_weather", {"location": "Z\u00fcrich", "unit": "celsius"})
SEARCH = ("search", {"query": "it's <b>\"bold\"</b>", "limit": 2, "filters": {"tags": ["a", "b"], "exact": True, "none": None}})


def conversations():
    """(name, messages, tools, add_generation_prompt, extra variables)"""
    system, user = said("system", "You are terse."), said("user", "Hello, who are you?")
    turns = [user, said("assistant", "An assistant."), said("user", "Good.\n\nWhat now?  ")]
    yield "user", [user], None, True, {}
    yield "user, no prompt", [user], None, False, {}
    yield "system", [system, user], None, True, {}
    yield "developer", [said("developer", "Be kind."), user], None, True, {}
    yield "turns", turns, None, True, {}
    yield "system and turns", [system, *turns], None, True, {}
    yield "ends with the assistant", turns[:2], None, False, {}
    yield "long", [system, *turns[:2], *turns[:2], *turns], None, True, {}
    yield "empty", [], None, True, {}
    yield "empty texts", [said("system", ""), said("user", "")], None, True, {}
    yield "unicode", [said("system", "\u4f60\u597d \U0001f642"), said("user", "na\u00efve \u2028 e\u0301 \u05e9\u05dc\u05d5\u05dd")], None, True, {}
    yield "marks", [user, said("assistant", "<think>\nhm\n</think>\n\n  done <|im_end|>"), said("user", "{{ x }} {% y %}")], None, True, {}
    yield "two users", [user, user], None, True, {}
    yield "assistant first", [said("assistant", "Hi"), user], None, True, {}
    for name, tools in (("tools", TOOLS), ("one tool", TOOLS[:1]), ("no tools", [])):
        yield name, [user], tools, True, {}
        yield name + ", system", [system, user], tools, True, {}
    for as_text in (False, True):
        kind = "text" if as_text else "objects"
        called = [user, calling(WEATHER, as_text=as_text), said("tool", "17 \u00b0C", tool_call_id="call00000", name="get_weather")]
        yield f"call, {kind}", called, TOOLS, True, {}
        yield f"call, {kind}, system", [system, *called], TOOLS, True, {}
        yield f"call, {kind}, answered", [*called, said("assistant", "It is 17 \u00b0C.")], TOOLS, False, {}
        yield f"call, {kind}, goes on", [*called, said("assistant", "17"), said("user", "And now?")], TOOLS, True, {}
        yield f"calls, {kind}", [
            user, calling(WEATHER, SEARCH, content="I look.", as_text=as_text),
            said("tool", "{\"celsius\": 17.0}", tool_call_id="call00000", name="get_weather"),
            said("tool", "nothing", tool_call_id="call00001", name="search")], TOOLS, True, {}
        yield f"call without content, {kind}", [user, calling(SEARCH, content=None, as_text=as_text)], TOOLS, True, {}
        yield f"call without ids, {kind}", [user, calling(("now", {}), ids=False, as_text=as_text), said("tool", "noon")], TOOLS, True, {}
    thought = said("assistant", "Four.", reasoning_content="2 + 2\nis 4.")
    yield "reasoning", [user, thought, said("user", "Sure?")], None, True, {}
    yield "reasoning last", [user, thought], None, False, {}
    yield "reasoning and call", [user, calling(WEATHER, reasoning_content="I need the weather."),
                                 said("tool", "17", tool_call_id="call00000", name="get_weather")], TOOLS, True, {}
    yield "thinking", [user, said("assistant", "Four.", thinking="2 + 2"), user], None, True, {}
    for flag in (False, True):
        yield f"enable_thinking {flag}", [system, user], None, True, {"enable_thinking": flag, "thinking": flag}
        yield f"enable_thinking {flag}, turns", [system, *turns[:1], thought, user], TOOLS, True, {"enable_thinking": flag}
    parts = [{"type": "text", "text": "Look "}, {"type": "text", "text": "here."}]
    yield "parts", [said("user", parts)], None, True, {}
    yield "parts, system", [said("system", parts[:1]), said("user", parts), said("assistant", parts[1:]), user], None, True, {}
    yield "image", [said("user", [{"type": "image"}, *parts])], None, True, {}
    yield "tool parts", [user, calling(WEATHER), said("tool", parts, tool_call_id="call00000")], TOOLS, True, {}
    yield "reasoning effort", [user], None, True, {"reasoning_effort": "high", "model_identity": "You are tenon."}
    yield "functions", [system, user], TOOLS, True, {"functions": json.dumps(TOOLS), "datetime": "2026-01-02"}
    yield "documents", [user], None, True, {"date_string": "01 Jan 2026", "builtin_tools": ["python"], "custom_tools": TOOLS[:1]}


def fetch(folder):
    """The templates of the package."""
    folder.mkdir(parents=True, exist_ok=True)
    archives = list(folder.glob("llama_cpp_python-*.tar.gz"))
    if not archives:
        got = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-binary",
                              ":all:", "--no-deps", "--dest", str(folder), PACKAGE], capture_output=True, text=True)
        archives = list(folder.glob("llama_cpp_python-*.tar.gz"))
        if not archives:
            print(f"skipped: pip cannot fetch {PACKAGE}: {got.stderr.strip()[-300:]}")
            sys.exit(77)
    found = {}
    with tarfile.open(archives[0]) as archive:
        for member in archive:
            if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                found[member.name.rsplit("/", 1)[1]] = archive.extractfile(member).read().decode()
    return found


def differ(tenon, request):
    """What differs, or None; and the reason why transformers refuses, or nothing."""
    ours, (wanted, reason) = tenon.ask(request), transformers(request)
    if ours.get("text") == wanted:
        return None, reason
    if wanted is not None and " object at 0x" in wanted:
        return None, "an address"
    shown, at = ours.get("text"), 0
    if shown is not None and wanted is not None:  # the place where they part
        at = next((i for i, (a, b) in enumerate(zip(shown, wanted)) if a != b), min(len(shown), len(wanted)))
    part = slice(max(0, at - 60), at + 60)
    return (f"  transformers: {reason or ascii(wanted[part])}\n"
            f"  tenon:        {ours['error'] if shown is None else ascii(shown[part])}"), reason


def compare_templates(tenon, folder):
    templates, exact, texts, refused, bad = fetch(folder), 0, 0, 0, []
    for name, source in sorted(templates.items()):
        failed, rendered = [], 0
        for what, messages, tools, prompt, extra in conversations():
            request = {"template": source, "bos_token": "<s>", "eos_token": "</s>", "messages": messages, "tools": tools,
                       "add_generation_prompt": prompt, "extra": extra, "now": NOW}
            difference, reason = differ(tenon, request)
            if difference:
                failed.append(f"{name}, {what}:\n{difference}")
            elif reason:
                refused += 1
            else:
                rendered += 1
        texts += rendered
        exact += not failed and rendered > 0
        if not rendered:
            print(f"{name}: every conversation is refused, the last one for: {reason}")
        bad += failed
    print("\n".join(bad[:20]))
    print(f"{exact} of {len(templates)} templates exact: {texts} equal texts, {refused} conversations refused by both, "
          f"{len(bad)} differences")
    if len(templates) < 60:
        sys.exit(f"expected at least 60 templates, got {len(templates)}")
    return not bad


def compare_programs(tenon, count, seed):
    bad, refused = [], 0
    for case in range(count):
        rng = random.Random(f"{seed}/{case}")
        request = {"template": chat_programs.program(rng), "messages": chat_programs.messages(rng), "tools": None,
                   "add_generation_prompt": rng.random() < 0.5, "extra": chat_programs.variables(rng), "now": NOW}
        difference, reason = differ(tenon, request)
        if difference:
            bad.append(f"seed {seed}/{case}: {ascii(request['template'])} with {ascii(request['extra'])}\n{difference}")
        elif reason:
            refused += 1
    print("\n".join(bad[:10]))
    print(f"{count} programs: {count - refused - len(bad)} equal texts, {refused} refused by both, {len(bad)} differences")
    if refused > count // 2:
        sys.exit("most programs are refused; expected most to give texts")
    return not bad


def compare_characters(tenon):
    """The methods of str, with each character alone and within words. Python's Unicode may be another version than tenon's, so
    the characters are those of Unicode 3.2."""
    tests = [f"x.{name}()" for name in dir(str) if name.startswith("is") and name != "isidentifier"]
    changes = [f"({left}x{right}).{name}()" for name in ("lower", "upper", "title", "capitalize", "swapcase", "casefold")
               for left, right in (("", ""), ("'a'+", "+'\u03a3'"), ("'\u03a3'+", "+'b'"))]
    source = "{% for x in chars %}{{ [" + ",".join(tests + changes) + "] }}\n{% endfor %}"
    chars = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Co", "Cs")]
    bad = []
    for at in range(0, len(chars), 1000):
        part = chars[at:at + 1000]
        difference, reason = differ(tenon, {"template": source, "messages": [], "tools": None, "add_generation_prompt": True,
                                            "extra": {"chars": part}, "now": NOW})
        if difference or reason:
            bad.append(f"U+{ord(part[0]):04X} to U+{ord(part[-1]):04X}:\n{difference or reason}")
    print("\n".join(bad[:10]))
    print(f"{len(chars)} characters, {len(bad)} ranges with differences")
    return not bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("what", choices=["templates", "programs", "characters"])
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tenon = Probe(args.probe)
    if args.what == "templates":
        if not args.folder:
            parser.error("templates needs a folder")
        same = compare_templates(tenon, args.folder)
    elif args.what == "characters":
        same = compare_characters(tenon)
    else:
        same = compare_programs(tenon, args.count, args.seed)
    sys.exit(not same)


main()
