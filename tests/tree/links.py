#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of the pages: each leads to a page or a heading that is there.

links.py SOURCE_DIR            the pages of the source tree, and what the files of sdk/ say of pages
links.py --installed PREFIX    the installed pages, headers, templates and examples

Checked: relative links of Markdown, with their headings, and names of pages in text, code and comments. Such a name
(`sdk/README.md`) is relative to the folder of the file, or to the root of the pages: the source tree, or share/doc/tenon.
"""
import os
import pathlib
import re
import sys

FOLDERS = ("core", "plugins", "sdk", "tests", "packaging")
INSTALLED = "share/doc/tenon"
SOURCES = {".c", ".cmake", ".cpp", ".def", ".h", ".hpp", ".inl", ".json", ".txt"}
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]*)\)|^\[[^\]]+\]:\s*(\S+)", re.M)
MENTION = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)*[\w.-]*\w\.md\b")


def prose(text):
    """The text without code, whose brackets are no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"^    .*", "", text, flags=re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """The names that links give to the headings of a page."""
    names = set()
    for heading in re.findall(r"^#+ (.*)", page.read_text(), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.add(slug if slug not in names else f"{slug}-1")
    return names


def faults_of_links(page):
    # A link may have code as its text: only code elsewhere is taken out.
    text = re.sub(r"\[`([^`\]]*)`\]\(", r"[\1](", page.read_text())
    for match in LINK.findall(prose(text)):
        target = match[0] or match[1]
        if re.match(r"[a-z]+:", target):
            continue  # leads to the network
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not target or os.path.isabs(name) or not path.exists():
            yield f"link ({target}): there is no such file"
        elif anchor and (path.suffix != ".md" or anchor not in anchors(path)):
            yield f"link ({target}): there is no such heading"


def faults_of_mentions(path, root):
    text = path.read_text()
    if path.suffix == ".md":
        text = LINK.sub("", text)  # links are checked as such
    for name in sorted(set(MENTION.findall(text))):
        places = path.parent / name, root / name, root / name.removeprefix(INSTALLED + "/")
        if not any(place.is_file() for place in places):
            yield f"names {name}: there is no such page"


def files_of(folders, kinds):
    return sorted(p for folder in folders for p in folder.rglob("*") if p.is_file() and p.suffix in kinds)


def main():
    installed = sys.argv[1] == "--installed"
    top = pathlib.Path(sys.argv[2 if installed else 1]).resolve()
    if installed:
        root = top / INSTALLED
        pages = files_of([root, top / "share/tenon"], {".md"})
        others = files_of([top / "include/tenon", top / "share/tenon"], SOURCES)
    else:
        root = top
        pages = sorted(top.glob("*.md")) + files_of([top / folder for folder in FOLDERS], {".md"})
        others = files_of([top / "sdk"], SOURCES)
    bad = []
    for path in pages + others:
        found = list(faults_of_links(path)) if path.suffix == ".md" else []
        bad += [f"{path.relative_to(top)}: {fault}" for fault in found + list(faults_of_mentions(path, root))]
    if len(pages) < 6 or len(others) < 40:
        bad.append(f"{top}: expected at least 6 pages and 40 other files, got {len(pages)} and {len(others)}")
    print("\n".join(bad) or f"{len(pages)} pages and {len(others)} other files name pages that are there")
    sys.exit(1 if bad else 0)


main()
