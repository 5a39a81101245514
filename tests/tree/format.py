#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""format.py SOURCE_DIR CLANG_FORMAT: every C and C++ source is formatted as .clang-format says. The headers of the
contract turn formatting off themselves; the files below are laid out by hand as a whole."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

FOLDERS = ("core", "plugins", "sdk", "tests")
KINDS = {".c", ".cpp", ".h", ".hpp", ".inl"}
BY_HAND = {
    "sdk/examples/line.c",  # the examples are read as pages; line.cpp is the program of the README
    "sdk/examples/line.cpp",
    "sdk/examples/onnx_model.cpp",
    "sdk/examples/plugin.cpp",
    "sdk/examples/training.cpp",
    "sdk/include/tenon/op_structs.inl",  # macros that open and close a struct
}


def faults(tool, root, paths):
    """For each file the first line that the tool would change."""
    run = subprocess.run([tool, "--dry-run", "--Werror", *map(str, paths)], capture_output=True, text=True)
    if run.returncode == 0:
        return []
    found = {}
    for line in run.stderr.splitlines():
        name, mark, _ = line.partition(":")
        if mark and name.startswith(f"{root}/"):
            found.setdefault(name, line.replace(f"{root}/", ""))
    return list(found.values()) or [run.stderr]


def main():
    root, tool = pathlib.Path(sys.argv[1]), sys.argv[2]
    for name in sorted(BY_HAND):
        if not (root / name).exists():
            sys.exit(f"format.py: {name} is listed as laid out by hand and does not exist")
    files = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*"))
             if p.suffix in KINDS and p.is_file() and str(p.relative_to(root)) not in BY_HAND]
    parts = [files[k:k + 50] for k in range(0, len(files), 50)]  # starting the tool costs more than a file
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [f for found in pool.map(lambda part: faults(tool, root, part), parts) for f in found]
    print("\n".join(bad) or f"{len(files)} sources are formatted")
    if bad:
        print("hint: clang-format-14 -i FILE")
    sys.exit(1 if bad or len(files) < 500 else 0)


main()
