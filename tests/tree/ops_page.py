#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sdk/OPS.md and the ops are one: what the page says of an op's form comes from ops.def and the records.

ops_page.py SOURCE_DIR           fails where the page differs from ops.def, unary.hpp and core/ops
ops_page.py SOURCE_DIR --write   rewrites the generated lines of the page, then checks the rest

Generated: the first lines of each section (signature, level, family, values of attributes), and the first columns of the
table of unary kinds. Written by hand, and checked: the section names each operand, attribute, output and value as code,
and says whether the op has a gradient."""
import pathlib
import re
import sys

ENTRY = re.compile(r"^TENON_OP\((\w+), (\d+), (\w+), (\w+)\)(.*?)^TENON_END\(\1\)", re.S | re.M)
PART = re.compile(r"TENON_(IN|IN_OPT|IN_LIST|IN_LIST_OPT|OUT|OUT_OPT|OUT_LIST|STR|I64|F64|BOOL|DTYPE|INTS|FLOATS|FN)"
                  r"\((\w+)(?:, ([^)]*))?\)")
MARKS = {"IN": "", "IN_OPT": "?", "IN_LIST": "...", "IN_LIST_OPT": "...?", "OUT": "", "OUT_OPT": "?", "OUT_LIST": "..."}
KIND = re.compile(r'^\s*\{"(\w+)", UnaryKind::\w+, (true|false), (true|false), (true|false)((?:, [\d.]+)*)\},', re.M)
SECTION = re.compile(r"^### (.*)\n", re.M)
ANY_TEXT = ["*"]  # the words of a string attribute that takes any text
FAMILY = re.compile(r"^## (.*)\n", re.M)


class Op:
    """An entry of ops.def with what its record adds."""

    def __init__(self, match):
        self.struct, self.version, self.family, self.level, body = match.groups()
        self.name = self.struct.removesuffix("_")
        code = re.sub(r"//.*", "", body)
        self.parts = [(kind, name, default) for kind, name, default in PART.findall(code)]
        if re.sub(r"\s", "", PART.sub("", code)):
            sys.exit(f"ops_page.py: ops.def: {self.name}: expected parts only, got {PART.sub('', code).strip()}")
        comment = re.search(r"^\s*//.*\bkind: ((?:\w+ )*\w+)", body, re.M)
        self.kinds_of_comment = comment[1] if comment else None
        self.words, self.grad, self.lower, self.traits = {}, False, False, ""

    def default(self, kind, default):
        if kind in ("INTS", "FLOATS"):
            return "[]"
        if kind == "FN" or default == '""':
            return "?"
        short = {"TENON_UNSET": "unset", "INT64_MIN": "none"}.get(default, default)
        return short.removeprefix("TENON_DTYPE_").lower() if kind == "DTYPE" else short

    def signature(self):
        ins = ", ".join(n + MARKS[k] for k, n, _ in self.parts if k.startswith("IN") and k in MARKS)
        outs = ", ".join(n + MARKS[k] for k, n, _ in self.parts if k.startswith("OUT"))
        attrs = ", ".join(f"{n}={self.default(k, d)}" for k, n, d in self.parts if k not in MARKS)
        return f"{self.name}({ins})" + (f" {{{attrs}}}" if attrs else "") + f" -> ({outs})"

    def gradient(self):
        if self.grad and "kGradOfDecomposition" not in self.traits:
            return "own rule"
        return "by decomposition" if self.lower and "kNotDifferentiable" not in self.traits else "none"

    def block(self, unary):
        """The generated lines below the heading."""
        facts = (f"Level {self.level}, family {self.family}, version {self.version}. "
                 f"Decomposition: {'yes' if self.lower else 'no'}. Gradient: {self.gradient()}.")
        for attr, words in self.words.items():
            if words == ANY_TEXT:
                continue
            listed = " ".join(f"`{w}`" for w in words)
            if set(unary) <= set(words):
                others = "".join(f"`{w}` and " for w in words if w not in unary)
                listed = "see the table" if self.name == "unary" else f"{others}the kinds of [unary](#unary)"
            facts += f" Values of `{attr}`: {listed}."
        return f"\n    {self.signature()}\n\n{facts}\n\n"


def read_records(root, ops, unary):
    """Adds the words of attributes, and whether there is a gradient and a decomposition."""
    by_struct = {op.struct: op for op in ops}
    for path in sorted((root / "core/ops").glob("*.cpp")):
        text = path.read_text()
        strings = {"kUnaryWords": " ".join(unary), "kActWords": " ".join(["none", *unary])}
        for name, parts in re.findall(r'\b(k\w+) =\s*((?:"[^"]*"\s*)+)', text):
            strings[name] = "".join(re.findall(r'"([^"]*)"', parts))
        for struct, variable in re.findall(r"\w+_def =\s*record<op::(\w+),\s*(\w+)", text):
            body = re.search(rf"constexpr Record<[^>]*> {variable}\{{(.*?)\}};", text, re.S)
            if not body or struct not in by_struct:
                sys.exit(f"ops_page.py: {path.name}: expected the record {variable} of an op in ops.def, {struct}")
            op, body = by_struct.pop(struct), body[1]
            op.grad, op.lower = ".grad =" in body, ".lower =" in body
            op.traits = "".join(re.findall(r"\.traits = ([\w |]+)", body))
            for attr, literal, constant in re.findall(r'\{"(\w+)", (?:"([^"]*)"|(\w+))\}', body):
                op.words[attr] = (literal or strings[constant]).split()
    if by_struct:
        sys.exit(f"ops_page.py: core/ops: expected a record of each op, none of {sorted(by_struct)}")


def read_ops(root):
    """The ops of ops.def in order, and the kinds of unary: {name: first columns of its row}."""
    ops = [Op(m) for m in ENTRY.finditer((root / "sdk/include/tenon/ops.def").read_text())]
    kinds = {}
    for name, primitive, integer, from_output, defaults in KIND.findall((root / "sdk/include/tenon/unary.hpp").read_text()):
        given = [f"`{a}`={d}" for a, d in zip(("alpha", "beta"), re.findall(r"[\d.]+", defaults))]
        flags = " | ".join("yes" if flag == "true" else "-" for flag in (primitive, integer, from_output))
        kinds[name] = f"| `{name}` | {' '.join(given) or '-'} | {flags} |"
    read_records(root, ops, list(kinds))
    return ops, kinds


def split(text, pattern):
    """[(heading, text below it)] and what is above the first heading."""
    parts = pattern.split(text)
    return parts[0], list(zip(parts[1::2], parts[2::2]))


def written(below):
    """The part of a section that is written by hand: all but the generated lines at its top."""
    lines = below.split("\n")
    k = 0
    while k < len(lines) and (not lines[k].strip() or lines[k].startswith(("    ", "Level "))):
        k += 1
    return "\n".join(lines[k:])


def rewrite(text, ops, kinds):
    by_name = {op.name: op for op in ops}
    top, sections = split(text, SECTION)
    for name, below in sections:
        op = by_name.get(name)
        top += f"### {name}\n" + (op.block(kinds) + written(below) if op else below)
    for name, row in kinds.items():
        top = re.sub(rf"^\| `{name}` \|(?:[^|]*\|){{4}}", lambda _: row, top, count=1, flags=re.M)
    return top


def faults_of(op, below, kinds):
    if not below.startswith(op.block(kinds)):
        yield f"expected to begin with:{op.block(kinds).rstrip()}"
    text = written(below)
    code = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    for kind, name, _ in op.parts:
        what = "attribute" if kind not in MARKS else "operand" if kind.startswith("IN") else "output"
        if name not in code:
            yield f"{what} `{name}` is not explained"
    for attr, words in op.words.items():
        if words == ANY_TEXT or attr in ("to", "dtype", "out_dtype") or set(kinds) <= set(words):
            continue  # dtypes are in the generated line, the kinds of unary in its table
        for word in words:
            if word not in code:
                yield f"value `{word}` of attribute `{attr}` is not explained"
    if op.name == "unary":
        for name, row in kinds.items():
            if text.count(row) != 1:
                yield f"expected one row that begins with {row}"
    if op.kinds_of_comment and op.kinds_of_comment.split() != op.words["kind"]:
        yield f"ops.def says kind: {op.kinds_of_comment}; expected {' '.join(op.words['kind'])}"
    if "**Gradient.**" not in text:
        yield "expected a paragraph **Gradient.**"


def faults(text, ops, kinds):
    found, place = [], {}
    for family, below in split(text, FAMILY)[1]:
        for name, section in split(below, SECTION)[1]:
            if name in place:
                yield f"{name}: two sections"
            place[name] = family
            found.append((name, section))
    by_name = {op.name: op for op in ops}
    for name in by_name.keys() - place.keys():
        yield f"{name}: no section; hint: add `### {name}` below `## {by_name[name].family}`, then run --write"
    for name in place.keys() - by_name.keys():
        yield f"{name}: a section, but no op of ops.def"
    order = [op.name for op in ops if op.name in place]
    if [name for name, _ in found if name in by_name] != order:
        yield "expected the order of ops.def: " + " ".join(order)
    for name, section in found:
        if name not in by_name:
            continue
        op = by_name[name]
        if place[name] != op.family:
            yield f"{name}: below `## {place[name]}`; expected `## {op.family}`"
        for fault in faults_of(op, section, kinds):
            yield f"{name}: {fault}"


def main():
    root, page = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]) / "sdk/OPS.md"
    ops, kinds = read_ops(root)
    if len(ops) < 70 or len(kinds) < 41:
        sys.exit(f"ops_page.py: found {len(ops)} ops and {len(kinds)} kinds of unary, which is too few")
    text = page.read_text()
    if "--write" in sys.argv[2:]:
        text = rewrite(text, ops, kinds)
        page.write_text(text)
    bad = [f"sdk/OPS.md: {fault}" for fault in faults(text, ops, kinds)]
    print("\n".join(bad) or f"{len(ops)} ops are explained as ops.def and the records have them")
    if any("expected to begin" in b or "expected one row" in b for b in bad):
        print("hint: tests/tree/ops_page.py . --write")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
