#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""arrows.py SOURCE_DIR: who includes whom. The rooms of core include what ARCHITECTURE.md says and nothing else; plugins
see the SDK and themselves; public headers see public headers; the command sees tenon.hpp; the Python extension sees public
headers. Equal stems of families are checked by tenon_kernel_sources() in CMake."""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(tenon/[^>]+)>)', re.M)
SOURCES = {".c", ".cpp", ".h", ".hpp", ".inl", ".def"}


def sources(folder):
    return [p for p in sorted(folder.rglob("*")) if p.suffix in SOURCES]


def included(path):
    return [a or b for a, b in INCLUDE.findall(path.read_text())]


def arrows_of_page(page):
    """{room: rooms that it includes} of the table in ARCHITECTURE.md."""
    table = {}
    for name, others in re.findall(r"^\| `(\w+)` \|([^|]*)\|[^|]*\|$", page.read_text(), re.M):
        table[name] = set(re.findall(r"`(\w+)`", others))
    return table


def rooms(root):
    core, page = root / "core", arrows_of_page(root / "ARCHITECTURE.md")
    there = {p.name for p in core.iterdir() if p.is_dir()}
    if there != set(page):
        yield f"ARCHITECTURE.md: expected the rooms {sorted(there)}, got {sorted(page)}"
        return
    for room in sorted(there):
        seen = {}
        for path in sources(core / room):
            for name in included(path):
                other = name.split("/")[0]
                if "/" in name and other in there and other != room:
                    seen.setdefault(other, f"{path.relative_to(root)} includes {name}")
        for other in sorted(set(seen) - page[room]):
            yield f"{seen[other]}: ARCHITECTURE.md does not allow {room} to include {other}"
        for other in sorted(page[room] - set(seen)):
            yield f"ARCHITECTURE.md: {room} does not include {other}"


def borders(root):
    """Includes between core, plugins and SDK that would break the separation."""
    core = {p.name for p in (root / "core").iterdir() if p.is_dir()}
    for plugin in (p for p in (root / "plugins").iterdir() if p.is_dir()):
        for path in sources(plugin):
            for name in included(path):
                first = name.split("/")[0]
                own = any((d / name).exists() for d in (path.parent, plugin))
                if not own and "/" in name and (first in core or (root / "plugins" / first).exists()):
                    yield f"{path.relative_to(root)}: a plugin may not include {name}"
    for path in sources(root / "sdk" / "include"):
        for name in included(path):
            if not any((d / name).exists() for d in (path.parent, root / "sdk/include", root / "sdk/include/tenon")):
                if name not in ("tenon/version.h", "version.h", "families.inl"):  # made by CMake
                    yield f"{path.relative_to(root)}: a public header may not include {name}"
    extension = root / "sdk" / "python" / "src"
    for path in sources(extension):
        for name in included(path):
            if not (extension / name).exists() and not (root / "sdk" / "include" / name).exists():
                yield f"{path.relative_to(root)}: the Python extension may not include {name}"
    for path in sources(root / "core" / "cli"):
        for name in included(path):
            if name.startswith("tenon/") and name != "tenon/tenon.hpp":
                yield f"{path.relative_to(root)}: the command may include tenon/tenon.hpp only, not {name}"


def main():
    root = pathlib.Path(sys.argv[1])
    bad = [*rooms(root), *borders(root)]
    print("\n".join(bad) or "every include follows an arrow")
    sys.exit(1 if bad else 0)


main()
