#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""search_paths.py [--installed] FOLDER: checks the run-time search path of every ELF file below FOLDER.

The loader takes an empty entry of DT_RPATH or DT_RUNPATH, and one that is not absolute, as a folder relative to the
working directory: a library there would be loaded and run. Files that are --installed may name only folders
relative to themselves ($ORIGIN) or of the system, because an installed tree can be moved."""
import os
import struct
import sys

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 5, 15, 29


def elf_bytes(path):
    """The bytes of a 64-bit executable or shared library, else None."""
    with open(path, "rb") as f:
        head = f.read(20)
        if head[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", head, 16)[0] not in (2, 3):
            return None
        return head + f.read()


def search_paths(data):
    """The texts of DT_RPATH and DT_RUNPATH of a 64-bit little-endian ELF file."""
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    loads, dynamic = [], None
    for i in range(count):
        kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + i * size)
        if kind == PT_LOAD:
            loads.append((address, at, length))
        elif kind == PT_DYNAMIC:
            dynamic = (at, length)
    if dynamic is None:
        return []
    entries = [struct.unpack_from("<QQ", data, dynamic[0] + i) for i in range(0, dynamic[1], 16)]
    entries = entries[:next((i for i, e in enumerate(entries) if e[0] == DT_NULL), len(entries))]
    table = dict(entries).get(DT_STRTAB, 0)
    strings = next((at + table - address for address, at, length in loads if address <= table < address + length), None)
    texts = []
    for tag, value in entries:
        if tag in (DT_RPATH, DT_RUNPATH):
            begin = strings + value
            texts.append(data[begin:data.index(b"\0", begin)].decode())
    return texts


def faults_of(text, installed):
    for entry in text.split(":"):
        from_file = entry == "$ORIGIN" or entry.startswith(("$ORIGIN/", "${ORIGIN}"))
        if not entry:
            yield "an entry is empty"
        elif not from_file and not entry.startswith("/"):
            yield f"entry '{entry}' is relative to the working directory"
        elif not from_file and installed and not entry.startswith(("/usr/", "/lib", "/opt/")):
            yield f"entry '{entry}' is a folder of the build machine"


def main():
    installed = "--installed" in sys.argv[1:]
    folder = sys.argv[-1]
    files = with_path = 0
    bad = []
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            try:
                data = elf_bytes(path)
                texts = search_paths(data) if data else []
            except FileNotFoundError:
                continue  # another test's, and gone
            except (struct.error, ValueError, TypeError) as e:
                bad.append(f"{path}: cannot be read as ELF: {e}")
                continue
            files += data is not None
            with_path += bool(texts)
            bad += [f"{path}: '{text}': {fault}" for text in texts for fault in faults_of(text, installed)]
    print(f"{files} ELF files below {folder}, {with_path} with a search path")
    for line in bad:
        print(line, file=sys.stderr)
    if not files or not with_path:
        print("search_paths.py: no file with a search path was found: nothing was checked", file=sys.stderr)
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
