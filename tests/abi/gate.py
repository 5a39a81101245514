#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guards the C interfaces: the sizes, offsets, constants, slots, signatures and ops of the public headers, as the
compiler sees them. Refuses every change but appending. README.md lists what may be appended.

gate.py record INCLUDE_DIR                print the record of the headers in INCLUDE_DIR/tenon as JSON
gate.py check RECORD.json INCLUDE_DIR     compare headers with a record
gate.py past PAST_DIR INCLUDE_DIR         compare headers with each kept version, PAST_DIR/<major>.<minor>/include
gate.py keep INCLUDE_DIR PAST_DIR         keep the headers of this version
gate.py selftest INCLUDE_DIR [WORK_DIR]   make prepared changes in copies of the headers: bad ones must be refused by
                                          name, good ones accepted

Exit status: 0 accepted, 1 refused, 2 wrong use, 77 there is no kept version. Needs a C compiler: CC [cc]."""
import difflib
import json
import pathlib
import re
import shutil
import sys

import gate_record

# Structs that may grow although no rule of states_size() shows it: where their size or stride is stated.
SIZED = {
    "tenon_blob_function": ("tenon_blob_header", "function_stride"),  # offsets, not pointers, lead to these
    "tenon_blob_value": ("tenon_blob_header", "value_stride"),
    "tenon_blob_node": ("tenon_blob_header", "node_stride"),
    "tenon_blob_attr": ("tenon_blob_header", "attr_stride"),
    "tenon_alias": ("tenon_program_info", "alias_stride"),  # the arrays are in the steps
    "tenon_slot": ("tenon_binding", "slot_stride"),
    "tenon_manifest_note": ("tenon_manifest_note", "manifest_size"),  # grows with the manifest, which ends it
}
# Structs that never cross the border: inline functions make them and read them, in one compilation.
LOCAL = {"tenon_blob", "tenon_node_view"}
# Versions: the first number that differs must rise. TENON_ABI_MAJOR is not among them: a new one is another ABI.
VERSIONS = [("TENON_VERSION_MAJOR", "TENON_VERSION_MINOR", "TENON_VERSION_PATCH"),
            ("TENON_API_MAJOR", "TENON_API_MINOR"), ("TENON_ABI_MINOR",)]
# Constants that rise with what is appended: counts, and the newest format that a reader knows.
RISING = {"TENON_DTYPE_COUNT", "TENON_DTYPE_BLOCKS_END", "TENON_BLOB_VERSION"}
# All bits that a header knows: bits may be added.
MASKS = re.compile(r"TENON_\w+_FLAGS")


def say(entry, where, problem, expected, got):
    return f"{entry['header']}: {where}: {problem}; expected {expected}, got {got}"


# ---- Structs ---------------------------------------------------------------------------------------------------------


def states_size(structs, name):
    """May a struct grow? Whoever reads it must find its size or its stride in the record of the past version."""
    if name in LOCAL or {"struct_size", "header_size"} & {f[0] for f in structs[name]["fields"]}:
        return True
    owner, field = SIZED.get(name, (name, ""))
    if owner in structs and field in (f[0] for f in structs[owner]["fields"]):
        return True
    for other in structs.values():  # `const tenon_step* steps` and `step_stride`
        strides = [f[0][:-len("_stride")] for f in other["fields"] if f[0].endswith("_stride")]
        arrays = [f[0] for f in other["fields"] if f[2] in (f"{name}*", f"const {name}*")]
        if any(a.startswith(s) for a in arrays for s in strides):
            return True
    return False


def at(field):
    return f"{field[2]} {field[0]} at byte {field[1]}"


def field_changes(name, past, now):
    """Changes of the list of fields, each named once, and the fields that were appended."""
    old, new = {f[0]: f for f in past["fields"]}, {f[0]: f for f in now["fields"]}
    found, appended = [], []

    def where(field):
        return f"{name}.{field}"

    for tag, i, j, k, m in difflib.SequenceMatcher(None, list(old), list(new), False).get_opcodes():
        gone, fresh = list(old.values())[i:j], list(new.values())[k:m]
        if tag == "equal":
            for p, n in zip(gone, fresh):
                if p[2] != n[2]:
                    found.append(say(past, where(p[0]), "the field has another type", p[2], n[2]))
            continue
        for p in gone:
            if p[0] in new:
                found.append(say(past, where(p[0]), "the field moved", f"byte {p[1]}", f"byte {new[p[0]][1]}"))
        gone = [p for p in gone if p[0] not in new]
        fresh = [n for n in fresh if n[0] not in old]
        for p, n in zip(gone, fresh):
            word = "the reserved field is used" if p[0].startswith("reserved") else "the field was renamed"
            found.append(say(past, where(p[0]), word, at(p), at(n)))
        for p in gone[len(fresh):]:
            found.append(say(past, where(p[0]), "the field was removed", at(p), "no such field"))
        for n in fresh[len(gone):]:
            if i == len(old):
                appended.append(n)
            else:
                found.append(say(past, where(n[0]), "the field is not behind the others", at(past["fields"][i]), at(n)))
    return found, appended


def held(structs, name):
    """The types that a struct holds by value."""
    values = [f[2] for f in structs[name]["fields"] if "*" not in f[2]]
    return {re.match(r"(?:const |volatile |_Atomic )*(?:struct |union )?(\w+)", v)[1] for v in values}


def alignment(record):
    return f"{record['align']} bytes" if record["align"] else "the natural one"


def struct_changes(name, past, now, faulty):
    """All changes of a struct. faulty(type): is this type, held by value, reported by itself?"""
    old, new = past["structs"][name], now["structs"][name]
    found, appended = field_changes(name, old, new)
    if old["kind"] != new["kind"]:
        found.append(say(old, name, "another kind of type", old["kind"], new["kind"]))
    if appended:
        first = appended[0]
        if not states_size(past["structs"], name):
            found.append(say(old, f"{name}.{first[0]}", "the struct states neither size nor stride, so it may not grow",
                             f"no field behind {old['fields'][-1][0]}", at(first)))
        elif first[1] < old["size"]:
            found.append(say(old, f"{name}.{first[0]}", "the past version's size covers the new field",
                             f"byte {old['size']} or later", f"byte {first[1]}"))
    if found or any(map(faulty, held(past["structs"], name))):
        return found  # what follows are consequences
    kept = {f[0]: f[1] for f in new["fields"]}
    for field, offset, _ in old["fields"]:
        if kept[field] != offset:
            return [say(old, f"{name}.{field}", "the field moved", f"byte {offset}", f"byte {kept[field]}")]
    last = old["fields"][-1][2] if old["fields"] else ""
    sizes = [r["structs"][last]["size"] if last in r["structs"] else 0 for r in (past, now)]
    may_grow = appended or sizes[0] < sizes[1] and states_size(past["structs"], name)
    if new["size"] < old["size"] or new["size"] > old["size"] and not may_grow:
        return [say(old, name, "the size changed", f"{old['size']} bytes", f"{new['size']} bytes")]
    if new["align"] != old["align"]:
        return [say(old, name, "the alignment changed", alignment(old), alignment(new))]
    return []


def type_changes(past, now):
    """Changes of structs and typedefs. A struct that changes only because it holds a changed type is not named."""
    found = {}
    for name, old in past["types"].items():
        new = now["types"].get(name)
        if new is None:
            found[name] = [say(old, name, "the type was removed", old["type"], "none")]
        elif new["type"] != old["type"]:
            found[name] = [say(old, name, "another type", old["type"], new["type"])]

    def look(name):
        if name not in found and name in past["structs"]:
            found[name] = []  # no struct holds itself
            if name not in now["structs"]:
                old = past["structs"][name]
                found[name] = [say(old, name, "the struct was removed", f"{old['size']} bytes", "none")]
            else:
                found[name] = struct_changes(name, past, now, faulty)
        return found.get(name, [])

    def faulty(name):
        return bool(look(name)) or name in past["structs"] and any(map(faulty, held(past["structs"], name)))

    for name in past["structs"]:
        look(name)
    return [line for lines in found.values() for line in lines]


# ---- Functions and constants -----------------------------------------------------------------------------------------


def function_changes(past, now):
    for name, old in past["functions"].items():
        new = now["functions"].get(name)
        if new is None:
            yield say(old, name, "the function was removed", old["type"], "none")
        elif new["type"] != old["type"]:
            yield say(old, name, "another signature", old["type"], new["type"])
        elif new["linkage"] != old["linkage"] and (old["linkage"], new["linkage"]) != ("extern", "exported"):
            yield say(old, name, "another linkage", old["linkage"], new["linkage"])


def numbers(constants, names):
    return [int(constants[n]["value"]) if n in constants else 0 for n in names]


def has_bits(value, bits):
    return value.isdigit() and bits.isdigit() and int(value) & int(bits) == int(bits)


def constant_changes(past, now):
    old_all, new_all = past["constants"], now["constants"]
    rising = RISING | {name for names in VERSIONS for name in names}
    for names in VERSIONS:
        old, new = numbers(old_all, names), numbers(new_all, names)
        if new < old and names[0] in old_all:
            yield say(old_all[names[0]], ", ".join(names), "the version fell",
                      f"at least {'.'.join(map(str, old))}", ".".join(map(str, new)))
    for name, old in old_all.items():
        new = new_all.get(name)
        if new is None:
            yield say(old, name, "the constant was removed", old["value"], "none")
        elif new["type"] != old["type"]:
            yield say(old, name, "another type of constant", old["type"], new["type"])
        elif name in rising:
            if name in RISING and int(new["value"]) < int(old["value"]):
                yield say(old, name, "the constant fell", f"at least {old['value']}", new["value"])
        elif new["value"] != old["value"] and not (MASKS.fullmatch(name) and has_bits(new["value"], old["value"])):
            yield say(old, name, "another value", old["value"], new["value"])


# ---- Ops -------------------------------------------------------------------------------------------------------------

OPS = {"header": "ops.def"}


def required(kind, name, what):
    """Would a node that an older program made lack this part?"""
    if kind == "attribute":
        return what == "function" or name == "kind" and what == 'str ""'
    return what.startswith("required") or kind == "output" and what == "list"


def part_changes(op, kind, old, new):
    """Changes of the operands, attributes or outputs of an op: {name: what}."""
    def where(name):
        return f"op {op}, {kind} {name}"

    common = [n for n in old if n in new]
    for name in old:
        if name not in new:
            yield say(OPS, where(name), f"the {kind} was removed", old[name], "none")
        elif old[name] != new[name]:
            what = "default or type" if kind == "attribute" else "kind"
            yield say(OPS, where(name), f"another {what}", old[name], new[name])
    order = [n for n in new if n in old]
    if order != common:
        yield say(OPS, f"op {op}", f"the {kind}s have another order", ", ".join(common), ", ".join(order))
    for name in (n for n in new if n not in old):
        if required(kind, name, new[name]):
            yield say(OPS, where(name), f"a new {kind} is required", "one that may be absent", new[name])
        elif order and list(new).index(name) < list(new).index(order[-1]):
            yield say(OPS, where(name), f"the new {kind} is not behind the others", f"it behind {order[-1]}",
                      f"it in front of {order[-1]}")


def op_changes(past, now):
    for op, old in past["ops"].items():
        new = now["ops"].get(op)
        if new is None:
            yield say(OPS, f"op {op}", "the op was removed", f"a {old['level']} op", "none")
            continue
        if new["version"] < old["version"]:
            yield say(OPS, f"op {op}", "the version fell", old["version"], new["version"])
        if new["level"] != old["level"] and new["level"] == "primitive":  # older plugins count on the decomposition
            yield say(OPS, f"op {op}", "the op lost its decomposition", f"level {old['level']}", "level primitive")
        for kind in ("attribute", "operand", "output"):
            sides = [{name: what for k, name, what in side["parts"] if k == kind} for side in (old, new)]
            yield from part_changes(op, kind, *sides)


# ---- Commands --------------------------------------------------------------------------------------------------------


def compare(past, now):
    """Every change that is not an addition at an end, in words."""
    gone = [h for h in past["headers"] if h not in now["headers"]]
    found = [f"{h}: the header was removed; expected {h}, got none" for h in gone]
    parts = (type_changes, function_changes, constant_changes, op_changes)
    lines = [line for part in parts for line in part(past, now)]
    return found + [line for line in lines if not (line.split(":")[0] in gone and line.endswith("got none"))]


def version_of(record):
    return ".".join(map(str, numbers(record["constants"], ("TENON_ABI_MAJOR", "TENON_ABI_MINOR"))))


def check_past(past_folder, include):
    """{version: changes against it} of all kept versions."""
    past_folder, now = pathlib.Path(past_folder), gate_record.record(include)
    found = {}
    for folder in sorted(p for p in past_folder.glob("*") if p.is_dir()):
        kept = gate_record.record(folder / "include")
        if version_of(kept) != folder.name:
            raise gate_record.Failure(f"{folder}/include/tenon/version.h: another version; expected {folder.name}, "
                                      f"got {version_of(kept)}")
        found[folder.name] = compare(kept, now)
    return found


def keep(include, past_folder):
    include = pathlib.Path(include)
    version = version_of(gate_record.record(include))
    target = pathlib.Path(past_folder) / version / "include/tenon"
    if target.exists():
        raise gate_record.Failure(f"{target}: version {version} is kept already; expected a new version, because kept "
                                  "headers never change")
    target.mkdir(parents=True)
    for path in sorted([*(include / "tenon").glob("*.h"), include / "tenon/ops.def"]):
        shutil.copyfile(path, target / path.name)
    return target


def run(command, words):
    if command == "record" and len(words) == 1:
        print(json.dumps(gate_record.record(words[0]), indent=1))
        return 0
    if command == "check" and len(words) == 2:
        found = compare(json.loads(pathlib.Path(words[0]).read_text()), gate_record.record(words[1]))
        print("\n".join(found) or "nothing but additions")
        return 1 if found else 0
    if command == "past" and len(words) == 2:
        found = check_past(*words)
        for version, lines in found.items():
            print("\n".join(f"against version {version}: {line}" for line in lines or ["nothing but additions"]))
        if not found:
            print(f"{words[0]}: no version is kept; gate.py keep keeps one")
        return 1 if any(found.values()) else 0 if found else 77
    if command == "keep" and len(words) == 2:
        print(keep(*words))
        return 0
    if command == "selftest" and len(words) in (1, 2):
        import gate_selftest
        return gate_selftest.selftest(*words)
    print(__doc__)
    return 2


def main():
    try:
        return run(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
    except gate_record.Failure as failure:
        print(f"gate.py: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
