# SPDX-License-Identifier: Apache-2.0
"""How classes of the extension, and traced values, get the methods that are written in Python, and their signatures."""

from __future__ import annotations

import inspect
import os
import re
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


_GENERATED = os.path.join(os.path.dirname(__file__), "<signature>")  # in the package, see here()


def with_signature(native: Any, name: str = "") -> Any:
    """A function of Python that calls one of the extension, for help(), inspect and other tools: they find signatures of
    Python functions alone. name: how it is called, with its class."""
    text, doc, defaults = native.__nb_signature__[0]
    scope: dict[str, Any] = {"_native": native, "_defaults": defaults}
    text = text.replace("tenon._tenon.", "tenon.")
    head = "from __future__ import annotations\n" + re.sub(r"\\(\d+)", r"_defaults[\1]", text)
    exec(compile(head + ": ...", _GENERATED, "exec"), scope)
    given = []
    own = re.match(r"def (\w+)", text)
    assert own is not None
    for p in inspect.signature(scope[own[1]]).parameters.values():
        given.append(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name)
    exec(compile(f"{head}: return _native({', '.join(given)})", _GENERATED, "exec"), scope)
    function = scope[own[1]]
    function.__doc__, function.__module__ = doc, "tenon"
    function.__qualname__ = name or function.__name__
    return function


def show_signatures(cls: type) -> None:
    """Gives the public methods of a class of the extension their signatures, and its constructor."""
    for name, method in list(vars(cls).items()):
        is_static = isinstance(method, staticmethod)
        native = method.__func__ if is_static else method
        if (name.startswith("_") and name != "__init__") or not hasattr(native, "__nb_signature__"):
            continue
        function = with_signature(native, f"{cls.__name__}.{name}")
        setattr(cls, name, staticmethod(function) if is_static else function)
