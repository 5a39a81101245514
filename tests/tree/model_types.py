#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README names each model_type that tenon reads, those of models that read images, too.

model_types.py SOURCE_DIR"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
arch = source / "core/llm/arch"
known = {name for file in arch.glob("*.cpp") for name in re.findall(r"const Architecture k\w+\s*=\s*\{\s*\"(\w+)\"", file.read_text())}
table = re.search(r"kWrappers\[\] = \{(.*?)\};", (arch / "text_part.cpp").read_text(), re.S)[1]
wrappers = set(re.findall(r"\{\"(\w+)\"", table))
if len(known) < 50 or len(wrappers) < 15:
    sys.exit(f"found only {len(known)} architectures and {len(wrappers)} wrappers; expected 50 and 15 at least")
named = set(re.findall(r"`(\w+)`", (source / "README.md").read_text()))
missing = sorted((known | wrappers) - named)
if missing:
    sys.exit(f"README.md: expected all values of model_type; missing: {', '.join(missing)}")
print(f"{len(known | wrappers)} names")
