#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""grammar.py PROBE [--count 600] [--seed 1]

Random regular expressions, beside Python's `re`, and random JSON schemas, beside the package jsonschema. Texts that tenon's
masks make must be valid; texts that are valid or nearly so must match exactly if `re` says so, and compact JSON of valid
values must match. Exits with 77 without jsonschema."""
import argparse
import json
import random
import re
import sys

try:
    import jsonschema
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from probes import Probe

CHARS = ["a", "b", "c", "0", "7", "-", "\"", "\\", "\n", " ", "\u00e9", "\u4e2d", "\U0001f642", "_", "Z"]


def one_char(rng):
    return re.escape(rng.choice(CHARS)).replace("\\\n", "\\n").replace("\\ ", " ")


def expression(rng, depth, repeats=True):
    """Nothing repeats inside of a repetition: `re` would take exponential time."""
    kind = rng.randrange(10 if repeats else 8) if depth > 0 else rng.randrange(4)
    if kind < 2:
        return one_char(rng)
    if kind == 2:
        inside = "".join(rng.choice(["a-c", "0-9", "\\d", "\\u00e0-\\u5000", "\\n", "_", "\\-", "b", "\\\"", "A-Z"]) for _ in range(rng.randrange(1, 4)))
        return f"[{rng.choice(['', '', '^'])}{inside}]"
    if kind == 3:
        return rng.choice(["\\d", "[\\s]", ".", "\\S", "\\D", "[a-z]"])
    if kind < 7:
        return "".join(expression(rng, depth - 1, repeats) for _ in range(rng.randrange(1, 4)))
    if kind == 7:
        return "(?:" + "|".join(expression(rng, depth - 1, repeats) for _ in range(rng.randrange(1, 4))) + ")"
    return f"({expression(rng, depth - 1, False)}){rng.choice(['*', '+', '?', '{2}', '{1,3}', '{2,}', '*?'])}"


def texts(rng):
    return ["".join(rng.choice(CHARS) for _ in range(rng.randrange(6))) for _ in range(40)]


def regex_case(rng, tenon):
    pattern = expression(rng, 3)
    # Line ends and white space as ECMA 262 has them, digits of ASCII.
    python = re.compile(pattern.replace(".", "[^\\n\\r\\u2028\\u2029]") if "." in pattern and "\\." not in pattern else pattern, re.ASCII)
    tried = texts(rng)
    answer = tenon.ask({"regex": pattern, "texts": tried, "count": 20, "seed": rng.randrange(2**32)})
    if "error" in answer:
        return f"{ascii(pattern)}: {answer['error']}", 0
    for text, ours in zip(tried, answer["matches"]):
        if ours != bool(python.fullmatch(text)):
            return f"{ascii(pattern)} and {ascii(text)}: tenon {ours}, re {not ours}", 0
    for text in answer["made"]:
        if not python.fullmatch(text) and not re.search("[\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff\u0085\u00a0\u2028\u2029\x1c-\x1f]", text):
            return f"{ascii(pattern)}: made {ascii(text)}, which re refuses", 0
    return None, len(answer["made"])


def schema(rng, depth):
    kind = rng.randrange(12) if depth > 0 else rng.randrange(6)
    if kind == 0:
        return {"type": rng.choice(["integer", "number", "boolean", "null", "string", ["string", "null"], ["integer", "array"]])}
    if kind == 1:
        least = rng.randrange(3)
        return {"type": "string", "minLength": least, "maxLength": least + rng.randrange(4)}
    if kind == 2:
        return {"enum": [rng.choice(["a", "\u00e9\"", 1, None, 2.5, [1, "x"], {"k": True}]) for _ in range(rng.randrange(1, 4))]}
    if kind == 3:
        return {"type": "string", "pattern": rng.choice(["^[a-z]{2,5}$", "^\\d+-\\w*", "b$", "[\"\\\\]", "^(x|yy)+$", "\u4e2d"])}
    if kind == 4:
        return {"const": rng.choice(["c", 0, {"a": []}, False])}
    if kind == 5:
        if rng.random() < 0.4:
            low = round(rng.choice([0, rng.uniform(-20, 20), rng.uniform(-1, 1)]), rng.randrange(5)) + 0.0
            return {"type": "number", "minimum": low, rng.choice(["maximum", "exclusiveMaximum"]): low + 10.0 ** rng.randrange(-3, 3)}
        return rng.choice([True, {}, {"type": "integer", "minimum": rng.randrange(-300, 300)}, {"type": "integer", "minimum": -17, "exclusiveMaximum": rng.randrange(1, 999)}, {"type": "string", "description": "any", "format": "date"}])
    if kind < 8:
        least = rng.randrange(3)
        return {"type": "array", "items": schema(rng, depth - 1), "minItems": least, "maxItems": least + rng.randrange(3)}
    if kind == 8:
        return {"anyOf": [schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))]}
    if kind == 9:
        return {"type": "object", "additionalProperties": schema(rng, depth - 1)}
    names = rng.sample(["a", "b", "c d", "\u00e9", "e\"f"], rng.randrange(1, 5))
    made = {"type": "object", "properties": {n: schema(rng, depth - 1) for n in names}, "required": [n for n in names if rng.random() < 0.5]}
    if rng.random() < 0.5:
        made["additionalProperties"] = False
    return made


def value(rng, of):
    """A valid value, with properties in their order; None (no value) if that is hard."""
    if of is True or of == {}:
        return [rng.choice([1, "x", None, {"y": [True]}])]
    if "const" in of:
        return [of["const"]]
    if "enum" in of:
        return [rng.choice(of["enum"])]
    if "anyOf" in of:
        return value(rng, rng.choice(of["anyOf"]))
    kind = of["type"] if isinstance(of["type"], str) else rng.choice(of["type"])
    if kind == "string":
        if "pattern" in of:
            return None
        size = rng.randrange(of.get("minLength", 0), of.get("maxLength", 6) + 1)
        return ["".join(rng.choice(CHARS) for _ in range(size))]
    if kind == "array":
        items = [value(rng, of.get("items", True)) for _ in range(rng.randrange(of.get("minItems", 0), of.get("maxItems", 2) + 1))]
        return None if None in items else [[i[0] for i in items]]
    if kind == "object":
        if "properties" not in of:
            made = value(rng, of["additionalProperties"])
            return None if made is None else [{rng.choice(CHARS): made[0]}]
        kept = [n for n in of["properties"] if n in of["required"] or rng.random() < 0.5]
        made = [value(rng, of["properties"][n]) for n in kept]
        return None if None in made else [{n: m[0] for n, m in zip(kept, made)}]
    if "minimum" in of:
        return [of["minimum"]]
    return [{"integer": -17, "number": 2.5e-07, "boolean": True, "null": None}[kind]]


def schema_case(rng, tenon):
    of = schema(rng, 3)
    values = [v for v in (value(rng, of) for _ in range(6)) if v is not None]
    tried = [json.dumps(v[0], ensure_ascii=rng.random() < 0.3 and "\U0001f642" not in json.dumps(v[0], ensure_ascii=False),
                        separators=(",", ":")) for v in values]
    answer = tenon.ask({"schema": of, "texts": tried, "count": 12, "seed": rng.randrange(2**32)})
    if "error" in answer:
        return f"{json.dumps(of)}: {answer['error']}", 0
    for text, ours in zip(tried, answer["matches"]):
        if not ours and not fixed_text_differs(of, text):
            return f"{json.dumps(of)}: refuses {ascii(text)}", 0
    for text in answer["made"]:
        try:
            jsonschema.validate(json.loads(text), of)
        except (ValueError, jsonschema.ValidationError) as wrong:
            return f"{json.dumps(of)}: made {ascii(text)}: {str(wrong)[:200]}", 0
    return None, len(answer["made"])


def fixed_text_differs(of, text):
    """Values of enum and const, and names, have one spelling: that without escapes of characters beyond ASCII."""
    return "\\u00e9" in text and ("enum" in json.dumps(of) or "properties" in json.dumps(of))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tenon, bad, made = Probe(args.probe), [], 0
    for case in range(args.count):
        for kind in (regex_case, schema_case):
            rng = random.Random(f"{args.seed}/{kind.__name__}/{case}")
            wrong, count = kind(rng, tenon)
            made += count
            if wrong:
                bad.append(f"{kind.__name__} {args.seed}/{case}: {wrong}")
    print("\n".join(bad[:15]))
    print(f"{2 * args.count} grammars, {made} made texts, {len(bad)} differences")
    if made < 5 * args.count:
        sys.exit(f"expected at least {5 * args.count} made texts, got {made}")
    sys.exit(bool(bad))


main()
