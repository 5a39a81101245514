# SPDX-License-Identifier: Apache-2.0
"""The options of models: their checks, and the forms that the extension takes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import InvalidArgument

_FLAGS = ("allow_fallback", "simplify", "fuse", "decompose_all", "batch_invariant", "aot")
_NAMES = (*_FLAGS, "exec_mode", "lanes", "pins", "memory_limits", "buckets")
_LARGEST = (1 << 63) - 1


def whole_number(value: Any, what: str, largest: int = _LARGEST) -> int:
    """A number of Python or NumPy that is whole and not negative."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what}: expected a whole number, got {value!r}") from None
    if not 0 <= number <= largest:
        limit = "or more" if number < 0 else f"to {largest}"
        raise InvalidArgument(f"{what}={number}; expected 0 {limit}")
    return number


def text(value: Any, what: str) -> str:
    """A str."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: expected a str, got {value!r}")
    return value


def _pairs(value: Any, what: str) -> list[tuple[str, Any]]:
    """A mapping with names as keys, or pairs."""
    try:
        pairs = [(k, v) for k, v in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{what}: expected a mapping or pairs, got {value!r}") from None
    return [(text(k, what), v) for k, v in pairs]


def _sizes(value: Any, what: str) -> str:
    """The sizes of buckets: "pow2", "64,128", or numbers."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Iterable):
        raise InvalidArgument(f'{what}: expected "pow2" or sizes, got {value!r}')
    return ",".join(str(whole_number(v, what)) for v in value)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a model in the form that Executable takes. Raises InvalidArgument, which names the option."""
    out: dict[str, Any] = {}
    for name, value in options.items():
        if name in _FLAGS:
            if not isinstance(value, (bool, int)):
                raise InvalidArgument(f"{name}: expected True or False, got {value!r}")
            out[name] = bool(value)
        elif name == "exec_mode":
            out[name] = text(value, name)
        elif name == "lanes":
            out[name] = whole_number(value, name, (1 << 32) - 1)
        elif name == "pins":
            out[name] = [(pattern, text(device, name)) for pattern, device in _pairs(value, name)]
        elif name == "memory_limits":
            limits = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
            out[name] = [whole_number(v, name) for v in limits]
        elif name == "buckets":
            out[name] = [(symbol, _sizes(sizes, f"{name}: {symbol}")) for symbol, sizes in _pairs(value, name)]
        else:
            raise InvalidArgument(f"model: no option '{name}'; expected one of {', '.join(_NAMES)}")
    return out
