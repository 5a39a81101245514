# SPDX-License-Identifier: Apache-2.0
"""readme.py SOURCE_DIR: the first C++ program of the main README (a block that begins with an include) is sdk/examples/line.cpp,
letter by letter."""
import difflib
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
shown = re.search(r"^```cpp\n(#include.*?)^```", (root / "README.md").read_text(), re.S | re.M)[1].splitlines()
built = [line for line in (root / "sdk/examples/line.cpp").read_text().splitlines() if not line.startswith("//")]
sys.exit("\n".join(difflib.unified_diff(shown, built, "README.md", "sdk/examples/line.cpp", lineterm="")) or 0)
