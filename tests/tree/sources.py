#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sources.py SOURCE_DIR: every source opens with its licence and a comment that says what lives there."""
import pathlib
import re
import sys

FOLDERS = ("core", "plugins", "sdk", "tests", "packaging")
KINDS = {".c", ".cpp", ".cu", ".cuh", ".def", ".h", ".hpp", ".inl", ".py", ".sh", ".cmake"}


def opening(path):
    """The words of the first comment, the licence line left out."""
    words, licence = [], False
    for line in path.read_text().splitlines():
        if line.startswith("#!"):
            continue
        if "SPDX-License-Identifier: Apache-2.0" in line:
            licence = True
            continue
        if line.startswith("//variant:"):
            continue
        text = re.match(r'^\s*(?://|/\*|\*/?|#(?!\w)|""")\s?(.*)$', line)
        if not text:
            break
        words += re.findall(r"\w{2,}", text[1])
        if line.endswith('"""') or line.rstrip().endswith("*/"):
            break
    return licence, words


def main():
    root = pathlib.Path(sys.argv[1])
    files = [root / "CMakeLists.txt"]
    for folder in FOLDERS:
        files += [p for p in (root / folder).rglob("*")
                  if p.is_file() and (p.suffix in KINDS or p.name == "CMakeLists.txt")]
    bad = []
    for path in sorted(files):
        licence, words = opening(path)
        if not licence:
            bad.append(f"{path.relative_to(root)}: no licence line")
        if len(words) < 3:
            bad.append(f"{path.relative_to(root)}: expected a first comment that says what lives there, "
                       f"got '{' '.join(words)}'")
    print("\n".join(bad) or f"{len(files)} sources open with a line that says what lives there")
    sys.exit(1 if bad or len(files) < 500 else 0)


main()
