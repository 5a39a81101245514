# SPDX-License-Identifier: Apache-2.0
"""What the compiler sees of the public C headers, as data: record(INCLUDE_DIR) of the gate (gate.py).

The preprocessor gives the macros and the names of the functions. One program, compiled with debug information, gives
the rest: it prints the constants and the ops, and its debug information has the types. CC names the compiler [cc]."""
import collections
import os
import pathlib
import re
import struct
import subprocess
import tempfile

# Types that other projects define and that only pointers lead to.
FOREIGN = {"DLManagedTensorVersioned"}  # of DLPack
# Types of the system's headers. Their names state what they are.
SYSTEM = re.compile(r"u?int(8|16|32|64)_t|size_t|u?intptr_t|ptrdiff_t")


class Failure(Exception):
    """The headers cannot be recorded."""


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{' '.join(words)}: status {done.returncode}; expected headers that compile\n{done.stderr}")
    return done.stdout


def compiler(include, *options):
    # The headers' own assertions would name a change before the gate can.
    return [os.environ.get("CC", "cc"), "-std=c11", "-w", "-D_Static_assert(...)=", "-I", str(include), *options]


# ---- Names and macros, from the preprocessor -------------------------------------------------------------------------


class Text:
    """The headers after preprocessing, in segments of one header each, and their macros."""

    def __init__(self, include, folder):
        self.headers = sorted(p.name for p in (include / "tenon").glob("*.h"))
        if not self.headers:
            raise Failure(f"{include}/tenon: no headers; expected *.h")
        (folder / "all.c").write_text("".join(f"#include <tenon/{h}>\n" for h in self.headers))
        self.segments, self.macros = [], {}
        header = None
        for line in run(compiler(include, "-E", "-dD", "all.c"), folder).splitlines():
            mark = re.match(r'# \d+ "([^"]*)"', line)
            if mark:
                path = pathlib.Path(mark[1])
                header = path.name if path.parent == include / "tenon" else None
            elif header is None:
                continue
            elif line.startswith("#define "):
                name, parameters, body = re.fullmatch(r"#define (\w+)(\([^)]*\))? ?(.*)", line).groups()
                self.macros[name] = (header, parameters, body.strip())
            elif line.startswith("#undef "):
                self.macros.pop(line.split()[1], None)
            elif not line.startswith("#"):
                if not self.segments or self.segments[-1][0] != header:
                    self.segments.append((header, []))
                self.segments[-1][1].append(line)
        self.segments = [(h, "\n".join(lines)) for h, lines in self.segments]
        self.defined, self.named = {}, {}
        for header, text in self.segments:
            for pair in re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{|\}\s*(\w+)\s*;", text):
                self.defined.setdefault("".join(pair), header)
            for name in re.findall(r"\btenon_\w+", text, re.I):
                self.named.setdefault(name, header)

    def header(self, name):
        """The header that defines a type, else the first one that names it."""
        if name not in self.named:
            raise Failure(f"{name}: no header declares it; expected a public header")
        return self.defined.get(name, self.named[name])

    def functions(self):
        """{name: (header, linkage)} of the functions and variables."""
        found = {}
        for header, text in self.segments:
            text = text.replace('visibility("default")', "VISIBLE")
            text = re.sub(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'", '""', text)
            for declaration in re.split(r"[;@]", collapse(text, "{}", "@")):
                flat = collapse(declaration, "()", "%").strip()
                name = re.search(r"\b(tenon_\w+)\s*%", flat)
                name = name or re.search(r"\bextern\b[^%]*\b(tenon_\w+)\s*(?:\[|$)", flat)
                if name is None or private(name[1]) or re.search(r"\btypedef\b", declaration):
                    continue
                kind = "exported" if "VISIBLE" in declaration else "extern"
                if "static" in declaration.split():
                    kind = "inline"
                if found.get(name[1], (header, ""))[1] != "exported":  # declared again
                    found[name[1]] = (header, kind)
        return found


def collapse(text, pair, mark):
    """Replaces each outermost pair of braces, with its content."""
    pattern, count = re.compile(rf"\{pair[0]}[^{pair}]*\{pair[1]}"), 1
    while count:
        text, count = pattern.subn(mark, text)
    return text


def private(name):
    return name.endswith("_")


# ---- Types, from the debug information -------------------------------------------------------------------------------

# DWARF 4: the tags and attributes that matter here, and the size of each form (a name: see Debug.value).
TAGS = {0x01: "array", 0x04: "enum", 0x05: "parameter", 0x0D: "member", 0x0F: "pointer", 0x13: "struct",
        0x15: "function", 0x16: "typedef", 0x17: "union", 0x18: "more", 0x21: "range", 0x24: "base", 0x26: "const",
        0x28: "enumerator", 0x34: "variable", 0x35: "volatile", 0x37: "restrict", 0x47: "atomic"}
ATTRIBUTES = {0x03: "name", 0x0B: "size", 0x0D: "bits", 0x1C: "value", 0x2F: "bound", 0x37: "count", 0x38: "offset",
              0x49: "type", 0x0C: "bit", 0x6B: "bit", 0x3C: "declaration", 0x88: "align"}
FORMS = {0x01: 8, 0x03: "block2", 0x04: "block4", 0x05: 2, 0x06: 4, 0x07: 8, 0x08: "string", 0x09: "block",
         0x0A: "block1", 0x0B: 1, 0x0C: 1, 0x0D: "sleb", 0x0E: "strp", 0x0F: "uleb", 0x10: 4, 0x11: "ref1",
         0x12: "ref2", 0x13: "ref4", 0x14: "ref8", 0x15: "ref", 0x17: 4, 0x18: "block", 0x19: "present", 0x20: 8}


class Debug:
    """The types of a program: its debug information, as entries by offset."""

    def __init__(self, path):
        self.bytes = path.read_bytes()
        sections = self.sections()
        for name in (".debug_info", ".debug_abbrev", ".debug_str"):
            if name not in sections:
                raise Failure(f"{path.name}: no section {name}; expected debug information")
        self.strings = sections[".debug_str"][0]
        self.entries, self.top = {}, []
        self.at, end = sections[".debug_info"]
        begin = self.at
        while self.at < end:
            self.unit(begin, sections[".debug_abbrev"][0])

    def sections(self):
        table, = struct.unpack_from("<Q", self.bytes, 40)
        each, count, names = struct.unpack_from("<3H", self.bytes, 58)
        headers = [struct.unpack_from("<2I4Q", self.bytes, table + i * each) for i in range(count)]
        return {self.text_at(headers[names][4] + h[0]): (h[4], h[4] + h[5]) for h in headers if not h[2] & 0x800}

    def text_at(self, at):
        return self.bytes[at:self.bytes.index(b"\0", at)].decode()

    def take(self, size):
        value = int.from_bytes(self.bytes[self.at:self.at + size], "little")
        self.at += size
        return value

    def uleb(self, signed=False):
        value, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            byte = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
        return value - (1 << shift) if signed and byte & 0x40 else value

    def abbreviations(self, at):
        saved, self.at, table = self.at, at, {}
        while code := self.uleb():
            tag, children, parts = self.uleb(), self.take(1), []
            while pair := (self.uleb(), self.uleb()):
                if pair == (0, 0):
                    break
                parts.append(pair)
            table[code] = (TAGS.get(tag, "other"), children, parts)
        self.at = saved
        return table

    def value(self, form, unit):
        kind = FORMS.get(form)
        if kind is None:
            raise Failure(f"debug information: unknown form {form:#x}; expected DWARF 4")
        if isinstance(kind, int):
            return self.take(kind)
        if kind == "string":
            text = self.text_at(self.at)
            self.at += len(text.encode()) + 1
            return text
        if kind == "strp":
            return self.text_at(self.strings + self.take(4))
        if kind.startswith("ref"):
            return unit + (self.take(int(kind[3:])) if kind[3:] else self.uleb())
        if kind.startswith("block"):
            size = self.take(int(kind[5:])) if kind[5:] else self.uleb()
            self.at += size
            return None
        return True if kind == "present" else self.uleb(signed=kind == "sleb")

    def unit(self, begin, abbreviations):
        start = self.at
        size, version, table, width = struct.unpack_from("<IHIB", self.bytes, start)
        if version != 4 or width != 8:
            raise Failure(f"debug information: version {version}, addresses of {width} bytes; expected 4 and 8")
        self.at += 11
        table, parents, end = self.abbreviations(abbreviations + table), [], start + 4 + size
        while self.at < end:
            here = self.at - begin
            code = self.uleb()
            if code == 0:
                parents = parents[:-1]
                continue
            tag, children, parts = table[code]
            entry = {"tag": tag, "children": []}
            for attribute, form in parts:
                value = self.value(form, start - begin)
                if attribute in ATTRIBUTES:
                    entry[ATTRIBUTES[attribute]] = value
            self.entries[here] = entry
            if parents:
                parents[-1]["children"].append(entry)
            if len(parents) == 1:
                self.top.append(entry)
            if children:
                parents = [*parents, entry]

    def all(self, *tags):
        return [e for e in self.top if e["tag"] in tags]

    def fields(self, outer, start=0):
        """[name, offset, type] of each field. The fields of an unnamed struct or union are fields of the outer one."""
        out = []
        for m in (c for c in outer["children"] if c["tag"] == "member"):
            offset = start + (m.get("offset") or 0)
            if "name" in m:
                bits = f" : {m['bits']} at bit {m.get('bit', 0)}" if "bits" in m else ""
                out.append([m["name"], offset, self.text(m) + bits])
            else:
                out += self.fields(self.entries[m["type"]], offset)
        return out

    def text(self, entry):
        """The type of an entry, in C's words."""
        if "type" not in entry:
            return "void"
        t = self.entries[entry["type"]]
        tag, name = t["tag"], t.get("name")
        if tag == "pointer":
            inner = self.text(t)
            return inner.replace("(", "(*)(", 1) if self.is_function(t) else inner + "*"
        if tag in ("const", "volatile", "restrict", "atomic"):
            word = "_Atomic" if tag == "atomic" else tag
            target = self.entries.get(t.get("type"), {})
            return f"{self.text(t)} {word}" if target.get("tag") == "pointer" else f"{word} {self.text(t)}"
        if tag == "array":
            ranges = [c for c in t["children"] if c["tag"] == "range"]
            counts = [c["bound"] + 1 if "bound" in c else c.get("count", "") for c in ranges]
            return self.text(t) + "".join(f"[{n}]" for n in counts)
        if tag == "function":
            given = [self.text(c) if c["tag"] == "parameter" else "..." for c in t["children"]]
            return f"{self.text(t)} ({', '.join(given) or 'void'})"
        if tag in ("struct", "union", "enum") and name is None:
            inner = [f"{text} {field} at {at}" for field, at, text in self.fields(t)]
            return f"{tag} {{{'; '.join(inner)}}}"
        if tag in ("struct", "union", "enum", "typedef", "base") and name:
            if tag != "base" and not name.startswith("tenon_") and name not in FOREIGN and not SYSTEM.fullmatch(name):
                raise Failure(f"type {name}: a public header uses it; expected a type of C or a name tenon_*")
            return name if tag in ("typedef", "base") else f"{tag} {name}"
        raise Failure(f"debug information: unknown kind of type {tag}; expected a type of C11")

    def is_function(self, pointer):
        return self.entries.get(pointer.get("type"), {}).get("tag") == "function"


def record_types(debug, text, functions):
    structs, types, signatures, enumerators = {}, {}, {}, {}
    for t in debug.all("struct", "union", "enum", "typedef"):
        name, target = t.get("name"), t
        if t["tag"] == "typedef":
            target = debug.entries.get(t.get("type"), {"tag": "void"})
        if t["tag"] == "enum":
            for e in t["children"]:
                if e.get("name", "").lower().startswith("tenon_"):
                    where = text.header(e["name"])
                    enumerators[e["name"]] = {"header": where, "value": str(e["value"]), "type": "enum"}
        if not (name or "").startswith("tenon_"):
            continue
        layout = target["tag"] in ("struct", "union") and "declaration" not in target
        if layout and (t is target or "name" not in target):
            structs[name] = {"header": text.header(name), "kind": target["tag"], "size": target["size"],
                             "align": target.get("align", 0), "fields": debug.fields(target)}
        elif t["tag"] == "typedef":
            types[name] = {"header": text.header(name), "type": debug.text(t)}
    for v in debug.all("variable"):
        name = v.get("name", "")[5:]
        if v.get("name", "").startswith("gate_") and name in functions:
            header, linkage = functions[name]
            signatures[name] = {"header": header, "linkage": linkage, "type": debug.text(v).replace("(*)", "", 1)}
    if set(signatures) != set(functions):
        raise Failure(f"debug information: lacks functions; expected all of {sorted(set(functions) - set(signatures))}")
    return structs, types, signatures, enumerators


# ---- Constants and ops, from a program -------------------------------------------------------------------------------

PROGRAM = r"""
#include <stdio.h>
#define GATE_TYPE(x)                                                                                      \
  _Generic((x), char*: "string", const char*: "string", float: "float", double: "double", char: "char",   \
      signed char: "int8_t", unsigned char: "uint8_t", short: "int16_t", unsigned short: "uint16_t",      \
      int: "int", unsigned: "unsigned", long: "int64_t", unsigned long: "uint64_t", long long: "int64_t", \
      unsigned long long: "uint64_t")
#define GATE_ROW(name, x)                                                                   \
  {name, GATE_TYPE(x), _Generic((x), char*: 0, const char*: 0, float: 0, double: 0, default: (x)), \
   _Generic((x), float: (x), double: (x), default: 0), _Generic((x), char*: (x), const char*: (x), default: 0)},
#define TENON_OP(name, version, family, level) "op\t" #name "\t" #level "\t" #version "\n"
#define TENON_IN(n) "part\toperand\t" #n "\trequired\n"
#define TENON_IN_OPT(n) "part\toperand\t" #n "\toptional\n"
#define TENON_IN_LIST(n) "part\toperand\t" #n "\trequired list\n"
#define TENON_IN_LIST_OPT(n) "part\toperand\t" #n "\toptional list\n"
#define TENON_STR(n, d) "part\tattribute\t" #n "\tstr\t" #d "\n"
#define TENON_I64(n, d) "part\tattribute\t" #n "\ti64\t" #d "\n"
#define TENON_F64(n, d) "part\tattribute\t" #n "\tf64\t" #d "\n"
#define TENON_BOOL(n, d) "part\tattribute\t" #n "\tbool\t" #d "\n"
#define TENON_DTYPE(n, d) "part\tattribute\t" #n "\tdtype\t" #d "\n"
#define TENON_INTS(n) "part\tattribute\t" #n "\tints\tempty\n"
#define TENON_FLOATS(n) "part\tattribute\t" #n "\tfloats\tempty\n"
#define TENON_FN(n) "part\tattribute\t" #n "\tfunction\n"
#define TENON_OUT(n) "part\toutput\t" #n "\trequired\n"
#define TENON_OUT_OPT(n) "part\toutput\t" #n "\toptional\n"
#define TENON_OUT_LIST(n) "part\toutput\t" #n "\tlist\n"
#define TENON_END(n)
static const char gate_ops[] =
#include <tenon/ops.def>
    ;
static const struct { const char *name, *type; long long number; double real; const char* text; } gate_rows[] = {
%s};
int main(void) {
  for (size_t i = 0; i < sizeof(gate_rows) / sizeof(gate_rows[0]); ++i) {
    printf("constant\t%%s\t", gate_rows[i].name);
    if (gate_rows[i].text) printf("\"%%s\"", gate_rows[i].text);
    else if (gate_rows[i].type[0] == 'f' || gate_rows[i].type[0] == 'd') printf("%%.17g", gate_rows[i].real);
    else printf("%%lld", gate_rows[i].number);
    printf("\t%%s\n", gate_rows[i].type);
  }
  fputs(gate_ops, stdout);
}
"""
# What a macro stands for if it is no value.
NO_VALUE = re.compile(r"__attribute__|_Static_assert|static_assert")


def default(words):
    """The type of an attribute and its default; equal numbers give equal words."""
    if words[0] in ("i64", "f64"):
        try:
            words = [words[0], repr(float(words[1]) if words[0] == "f64" else int(words[1], 0))]
        except ValueError:
            pass  # a name, such as TENON_UNSET
    return " ".join(words)


def record(include):
    """The record: {headers, structs, types, functions, constants, ops}."""
    include = pathlib.Path(include).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = Text(include, folder)
        functions = text.functions()
        constants, values = {}, []
        for macro, (header, parameters, body) in text.macros.items():
            if private(macro) or body == "" and macro.endswith("_H"):
                continue
            constants[macro] = {"header": header, "value": body, "type": "text"}
            if parameters is not None:
                names = [p for p in parameters.strip("()").split(",") if p.strip()]
                more = " or more" if "..." in parameters else ""
                constants[macro].update(value=f"{len(names)}{more} parameters", type="macro")
            elif body and macro.isupper() and not NO_VALUE.search(body):
                values.append(macro)
        source = "".join(f"#include <tenon/{h}>\n" for h in text.headers)
        source += "".join(f"__typeof__(&{f}) gate_{f};\n" for f in functions)
        source += PROGRAM % "".join(f'  GATE_ROW("{m}", {m})\n' for m in values)
        (folder / "gate.c").write_text(source)
        run(compiler(include, "-g", "-gdwarf-4", "-gz=none", "-O0", "-fno-eliminate-unused-debug-types",
                     "-Werror=int-conversion", "gate.c", "-o", "gate"), folder)
        ops = collections.defaultdict(list)
        levels, versions = {}, {}
        for line in run([str(folder / "gate")], folder).splitlines():
            kind, *words = line.split("\t")
            if kind == "constant":
                cast = re.match(r"\(\((tenon_\w+)\)", text.macros[words[0]][2])
                constants[words[0]].update(value=words[1], type=cast[1] if cast else words[2])
            elif kind == "op":
                op = words[0]
                levels[op], versions[op], ops[op] = words[1], int(words[2]), []
            else:
                ops[op].append([words[0], words[1], default(words[2:])])
        structs, types, signatures, enumerators = record_types(Debug(folder / "gate"), text, functions)
    if not (structs and signatures and constants and ops):
        raise Failure(f"{include}: no structs, functions, constants or ops; expected all of them")
    return {"headers": text.headers, "structs": structs, "types": types, "functions": signatures,
            "constants": {**constants, **enumerators},
            "ops": {op: {"level": levels[op], "version": versions[op], "parts": parts} for op, parts in ops.items()}}
