# SPDX-License-Identifier: Apache-2.0
"""The command `tenon` of the package."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the command that the package contains."""
    path = os.path.join(os.path.dirname(__file__), "_tree", "bin", "tenon")
    os.execv(path, ["tenon", *sys.argv[1:]])
