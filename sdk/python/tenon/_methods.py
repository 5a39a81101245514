# SPDX-License-Identifier: Apache-2.0
"""How classes of the extension, and traced values, get the methods that are written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any


def add_methods(cls: type, methods: Mapping[str, Any]) -> None:
    """Adds methods to a class. Functions that have no public name take that of the method, for help()."""
    for name, method in methods.items():
        if isinstance(method, FunctionType) and (method.__name__ == "method" or method.__name__.startswith("_")):
            method.__name__ = name
            method.__qualname__ = name
        setattr(cls, name, method)
