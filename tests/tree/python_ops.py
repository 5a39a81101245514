#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdk/python/tenon/ops.py, the ops as functions of Python, is written from ops.def, core/ops and sdk/OPS.md.

python_ops.py SOURCE_DIR           fails where the file differs
python_ops.py SOURCE_DIR --write   writes it"""
import keyword
import pathlib
import re
import sys
import textwrap

from ops_page import FAMILY, SECTION, read_ops, split, written

WIDTH = 120
HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
# Written by tests/tree/python_ops.py; the build target `builders` writes it again.
# mypy: disable-error-code="overload-overlap, no-any-return"
"""The ops of tenon as functions. sdk/OPS.md defines each one.

In a function that is traced, they add nodes to its graph. Elsewhere they run at once. Operands are tensors, NumPy arrays,
traced values, objects with __dlpack__, and numbers of Python. There is no promotion between dtypes, but a number takes the
dtype of the arrays beside it.

all_outputs: return the optional outputs as well, as a tuple.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Literal, overload

from ._call import call
from ._dtypes import DType, DTypeLike
from ._trace import Array, ArrayLike, Many
'''
# Expanded by the library, or written by it for gradients and fusion: they are no part of programs.
LEFT_OUT = {"grad", "vmap", "onnx", "if", "while", "scan", "batch_linear", "elementwise_region", "batch_elementwise_region"}
# Ops whose kinds are functions of their own: the prefix or the names.
KINDS = {
    "binary": {"max": "maximum", "min": "minimum"},
    "compare": {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"},
    "logical": {k: f"logical_{k}" for k in ("and", "or", "xor", "not")},
    "unary": {},
    "reduce": {},
}
NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative"}
SAME = {"binary": (0, 1), "compare": (0, 1), "where": (1, 2)}
TYPES = {"STR": "str", "I64": "int", "F64": "float", "BOOL": "bool", "DTYPE": "DTypeLike | None", "INTS": "Sequence[int]",
         "FLOATS": "Sequence[float]"}
BUILTINS = {"bool": "builtins.bool", "abs": "builtins.abs"}


def default_of(kind, default):
    """(type, default) of an attribute in Python."""
    if kind in ("INTS", "FLOATS"):
        return TYPES[kind], "()"
    if kind == "BOOL":
        return "builtins.bool", default.capitalize()
    if kind == "DTYPE":
        name = default.removeprefix("TENON_DTYPE_").lower()
        return TYPES[kind], "None" if name == "none" else f'"{name}"'
    if default in ("TENON_UNSET", "INT64_MIN"):
        return f"{TYPES[kind]} | None", "None"
    if default == '""':
        return "str", None
    return TYPES[kind], default


def rows_of(text):
    """The rows of the first table whose first column is `kind`: {kind: [(heading, cell)]}."""
    table = re.search(r"^\| `kind` \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    if not table:
        return {}
    cells = lambda line: [c.strip().replace("\\|", "|") for c in line.strip().strip("|").split(" | ")]
    head = cells(table[0].split("\n")[0])
    rows = {}
    for line in table[1].strip().split("\n"):
        row = cells(line)
        for kind in re.findall(r"`(\w+)`", row[0]):
            rows[kind] = list(zip(head[1:], row[1:]))
    return rows


def plain(text):
    """Text of the page as text of a docstring."""
    text = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text).replace("\\", "\\\\")
    blocks = []
    for block in re.split(r"\n(?:[ \t]*\n)+", text.strip()):
        if block.startswith("**Gradient"):
            continue
        block = block.replace("**", "").replace("`", "")
        if block.startswith(("|", "    ")):
            blocks.append(block)
            continue
        lines = []
        for line in block.split("\n"):
            lines += textwrap.wrap(line, WIDTH - 7, subsequent_indent="  " if line.startswith("- ") else "") or [""]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def docstring(text):
    """The lines of a docstring; its first line is one sentence."""
    first, _, rest = text.partition("\n")
    lines = [f'"""{first}', *rest.split("\n")] if rest else [f'"""{first}"""']
    if rest:
        lines.append('"""')
    return "\n".join(f"    {line}".rstrip() for line in lines)


def signature_lines(name, parameters, result):
    line = f"def {name}({', '.join(parameters)}) -> {result}:"
    if len(line) <= WIDTH:
        return line
    return f"def {name}(\n" + "".join(f"    {p},\n" for p in parameters) + f") -> {result}:"


def call_lines(arguments):
    line = f"    return call({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    lines = []
    for argument in arguments:
        lines += textwrap.wrap(argument + ",", WIDTH - 8, subsequent_indent=" ", break_long_words=False)
    return "    return call(\n" + "\n".join(f"        {line}" for line in lines) + "\n    )"


def function(op, name, doc, fixed=None, drop=()):
    """The text of one function. fixed: its kind."""
    operands = [(k, n) for k, n, _ in op.parts if k.startswith("IN") and k != "INTS"]
    attributes = [(k, n, d) for k, n, d in op.parts if k in TYPES and n not in drop]
    outputs = [(k, n) for k, n, _ in op.parts if k.startswith("OUT")]
    if op.name == "logical":
        operands = operands[: 1 if fixed == "not" else 2]
    parameters, values, required = [], [], True
    for position, (kind, n) in enumerate(operands):
        n = f"{n}_" if keyword.iskeyword(n) else n
        values.append(n)
        if kind == "IN" and required or op.name == "logical":
            parameters.append(f"{n}: ArrayLike")
        elif kind == "IN_LIST":
            parameters.append(f"{n}: Sequence[ArrayLike]")
            values[-1] = f"Many({n})"
        elif kind == "IN_OPT":
            # An operand behind it that is required keeps its place: all before it are given by the caller.
            later = any(k == "IN" for k, _ in operands[position + 1:])
            parameters.append(f"{n}: ArrayLike | None" + ("" if later else " = None"))
        else:
            parameters.append(f"{n}: ArrayLike")
    parts = {}
    star = False
    if fixed:
        parts["kind"] = f'"{fixed}"'
    for kind, n, d in attributes:
        if n == "kind" and fixed:
            continue
        hint, default = default_of(kind, d)
        py = f"{n}_" if keyword.iskeyword(n) else n
        parts[n] = f"None if {py} is None else DType.of({py})" if kind == "DTYPE" else f"tuple({py})" if kind in ("INTS", "FLOATS") else py
        leading = n in ("shape", "axes", "axis", "perm", "to") and not star
        if n == "axes" and fixed:
            hint, parts[n] = "int | Sequence[int]", "(axes,) if isinstance(axes, int) else tuple(axes)"
        if not leading and not star:
            parameters.append("*")
            star = True
        parameters.append(f"{py}: {hint}" + (f" = {default}" if default is not None else ""))
    optional = [n for k, n in outputs if k == "OUT_OPT"]
    only_optional = len(optional) == len(outputs)
    count = len(outputs) - len(optional)
    kind_of = lambda n: "Array" if n == 1 else f"tuple[{', '.join(['Array'] * n)}]"
    arguments = [f'"{op.name}"', f"[{', '.join(values)}]", "{" + ", ".join(f'"{k}": {v}' for k, v in parts.items()) + "}"]
    same = [str(SAME[op.name])] if op.name in SAME else []
    if not optional:
        want = "(True,)" if len(outputs) == 1 else "(" + ", ".join(["True"] * len(outputs)) + ")"
        body = call_lines([*arguments, want, *same])
        return "\n".join([signature_lines(name, parameters, kind_of(count)), docstring(doc), body])
    assert not only_optional, op.name
    star = [] if star else ["*"]
    sets = [[*parameters, *star, f"all_outputs: {hint}"] for hint in
            ("Literal[False] = False", "Literal[True]", "builtins.bool = False")]
    want = "(" + ", ".join("True" if k == "OUT" else "all_outputs" for k, _ in outputs) + ")"
    body = call_lines([*arguments, want, *same])
    return "\n".join([
        "@overload", signature_lines(name, sets[0], kind_of(count)) + " ...",
        "@overload", signature_lines(name, sets[1], kind_of(len(outputs))) + " ...",
        signature_lines(name, sets[2], "Any"), docstring(doc), body])


def with_values(op, doc, attributes):
    """Adds the allowed words of attributes, and the gradient."""
    facts = [f"Values of {a}: {' '.join(w)}." for a, w in op.words.items() if a in attributes and w != ["*"] and len(w) < 30]
    facts.append(f"Gradient: {op.gradient()}.")
    return doc + "\n\n" + "\n".join(line for fact in facts for line in textwrap.wrap(fact, WIDTH - 4))


def functions_of(op, text):
    """(name, text) of the functions of an op."""
    doc = plain(written(text))
    if op.name not in KINDS:
        used = [n for k, n, _ in op.parts if k in TYPES]
        yield op.name, function(op, op.name, with_values(op, doc, used))
        return
    rows = rows_of(text)
    for kind in op.words["kind"]:
        name = KINDS[op.name].get(kind, NAMES.get(kind, kind) if op.name in ("binary", "unary") else kind)
        row = [(h, c) for h, c in rows.get(kind, []) if h not in ("primitive", "integers", "from y")]
        drop = {"noop_with_empty_axes"}
        if op.name == "unary":
            defaults = dict(row).get("parameters", "")
            drop |= {p for p in ("alpha", "beta") if p not in defaults}
            drop |= {"ste"} if kind not in ("floor", "ceil", "trunc", "round") else set()
        facts = "\n".join(f"{h}: {c}" for h, c in row if c != "-").replace("`", "").replace("\\", "\\\\")
        lead = {"binary": "Elementwise; a and b have one dtype and broadcast.", "unary": "Elementwise.",
                "compare": "Elementwise comparison, as a bool; a and b have one dtype and broadcast.",
                "logical": "Elementwise, of bools.", "reduce": "Reduces x over axes; () means all of them."}[op.name]
        notes = f"{kind}: {lead}" + (f"\n\n{facts}" if facts else "")
        yield name, function(op, name, notes, kind, drop)


def module(root):
    ops, _ = read_ops(root)
    sections = {}
    for _, family in split((root / "sdk/OPS.md").read_text(), FAMILY)[1]:
        sections.update(split(family, SECTION)[1])
    made = {}
    for op in ops:
        if op.name in LEFT_OUT or "backward" in op.name or op.level == "meta":
            continue
        for name, text in functions_of(op, sections[op.name]):
            if name in made:
                sys.exit(f"python_ops.py: two functions are named {name}")
            made[name] = text
    names = sorted(made)
    exported = "__all__ = [\n" + "".join(f'    "{n}",\n' for n in names) + "]\n"
    return HEAD + "\n" + exported + "\n\n" + "\n\n\n".join(made[n] for n in made) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    path, text = root / "sdk/python/tenon/ops.py", module(root)
    if "--write" in sys.argv[2:]:
        path.write_text(text)
    if not path.exists() or path.read_text() != text:
        sys.exit("sdk/python/tenon/ops.py: expected the functions of ops.def and sdk/OPS.md. "
                 "hint: the build target builders, or tests/tree/python_ops.py . --write")
    print(f"{text.count(chr(10))} lines of functions are those of ops.def and sdk/OPS.md")


main()
