# SPDX-License-Identifier: Apache-2.0
"""Trees: nested dicts, lists, tuples, named tuples and dataclasses, with arrays and numbers as leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from . import _tenon
from ._errors import InvalidArgument

__all__ = ["broadcast", "children", "flatten", "map", "paths", "text", "unflatten"]

# What describes a node of a tree. Two trees have the same structure if their descriptions are equal.
# A leaf is None; a node is (type, keys, descriptions of the children).
Structure = Any


def _keys_of(node: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(node))
    except TypeError:  # keys that have no order
        return tuple(node)


def children(node: Any) -> tuple[tuple[Any, ...], Sequence[Any]] | None:
    """The keys and the children of a node; None for a leaf. The keys of a dict are sorted."""
    kind = type(node)
    if kind is dict:
        keys = _keys_of(node)
        return keys, [node[k] for k in keys]
    if kind is list or kind is tuple:
        return tuple(range(len(node))), node
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return node._fields, node
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        keys = tuple(f.name for f in dataclasses.fields(node) if f.init)
        return keys, [getattr(node, k) for k in keys]
    if node is None:
        return (), ()
    return None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree from left to right, and its structure. None is a tree without leaves."""
    leaves: list[Any] = []
    return leaves, _describe(tree, leaves)


def _describe(node: Any, leaves: list[Any]) -> Structure:
    found = children(node)
    if found is None:
        leaves.append(node)
        return None
    keys, below = found
    return type(node), keys, tuple(_describe(child, leaves) for child in below)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """The tree of this structure with these leaves."""
    return _tenon._unflatten(structure, list(leaves))


def paths(structure: Structure, prefix: str = "") -> list[str]:
    """The name of each leaf: "params.layers.0.w"."""
    if structure is None:
        return [prefix]
    _, keys, below = structure
    return [p for key, child in zip(keys, below) for p in paths(child, f"{prefix}.{key}" if prefix else str(key))]


def map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Applies a function to each leaf, and to the leaves at the same places of further trees."""
    leaves, structure = flatten(tree)
    columns = [leaves]
    for number, other in enumerate(rest, 2):
        found, other_structure = flatten(other)
        if other_structure != structure:
            raise InvalidArgument(
                f"tree.map: tree {number}: expected the structure {text(structure)}, got {text(other_structure)}"
            )
        columns.append(found)
    return unflatten(structure, [function(*row) for row in zip(*columns)])


def broadcast(prefix: Any, tree: Any, what: str) -> list[Any]:
    """One entry of a prefix of a tree for each of its leaves: an entry counts for all leaves below it."""
    below = children(tree)
    if below is None:
        return [prefix]
    above = children(prefix) if prefix is not None else None
    if above is None:
        return [prefix] * len(flatten(tree)[0])
    if len(above[1]) != len(below[1]):
        raise InvalidArgument(f"{what}: expected one entry for each of {len(below[1])} parts, got {len(above[1])}")
    return [e for p, t in zip(above[1], below[1]) for e in broadcast(p, t, what)]


def text(structure: Structure) -> str:
    """A structure for a message: "{b: *, w: (*, *)}"."""
    if structure is None:
        return "*"
    kind, keys, below = structure
    parts = [text(child) for child in below]
    if kind is list:
        return "[" + ", ".join(parts) + "]"
    if kind is tuple:
        return "(" + ", ".join(parts) + ")"
    if kind is type(None):
        return "None"
    named = ", ".join(f"{k}: {p}" for k, p in zip(keys, parts))
    return "{" + named + "}" if kind is dict else f"{kind.__name__}({named})"
