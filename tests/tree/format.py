#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""format.py SOURCE_DIR CLANG_FORMAT: every C and C++ source is formatted as .clang-format says. The headers of the
contract turn formatting off themselves; the files below are laid out by hand as a whole."""
import concurrent.futures
import pathlib
import subprocess
import sys

FOLDERS = ("core", "plugins", "sdk", "tests")
KINDS = {".c", ".cpp", ".h", ".hpp", ".inl"}
BY_HAND = {
    "sdk/examples/line.c",  # the examples are read as pages; line.cpp is the program of the README
    "sdk/examples/line.cpp",
    "sdk/examples/plugin.cpp",
    "sdk/examples/training.cpp",
    "sdk/include/tenon/op_structs.inl",  # macros that open and close a struct
    "tests/abi/layout.c",  # a table
}


def fault(tool, root, path):
    """The first line that the tool would change, or nothing."""
    run = subprocess.run([tool, "--dry-run", "--Werror", str(path)], capture_output=True, text=True)
    if run.returncode == 0:
        return ""
    return run.stderr.splitlines()[0].replace(f"{root}/", "")


def main():
    root, tool = pathlib.Path(sys.argv[1]), sys.argv[2]
    for name in sorted(BY_HAND):
        if not (root / name).exists():
            sys.exit(f"format.py: {name} is listed as laid out by hand and does not exist")
    files = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*"))
             if p.suffix in KINDS and p.is_file() and str(p.relative_to(root)) not in BY_HAND]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        bad = [f for f in pool.map(lambda p: fault(tool, root, p), files) if f]
    print("\n".join(bad) or f"{len(files)} sources are formatted")
    if bad:
        print("hint: clang-format-14 -i FILE")
    sys.exit(1 if bad or len(files) < 500 else 0)


main()
