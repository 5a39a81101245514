# SPDX-License-Identifier: Apache-2.0
"""Rules for routed experts: products of groups of rows, and counts."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

from typing import Any

from .._dtypes import DType
from .._tenon import Value
from ._build import FLOATS, Translator, rule

# ---- Products


def _experts_of_rows(b: Translator, ends: Value, rows: int) -> Value:
    """The group of each row, -1 behind the last one. ends: of each group, the number of the first row behind it."""
    count = b.shape(ends)[0]
    begun = b.compare("ge", b.reshape(b.iota(rows), [rows, 1]), b.reshape(b.cast(ends, DType.i64), [1, count]))
    group = b.reduce("sum", begun, [1])
    return b.where(b.compare("lt", group, count), group, -1)


@rule("transformers.grouped_mm_fallback.default")
def _grouped_rows(b: Translator, x: Value, w: Value, ends: Value) -> Value:
    return b.add("grouped_matmul", [x, w, _experts_of_rows(b, ends, b.shape(x)[0])])


@rule("_grouped_mm")
def _grouped_mm(
    b: Translator,
    x: Value,
    w: Value,
    ends: Value | None = None,
    bias: Value | None = None,
    out_dtype: Any = None,
) -> Value:
    if len(b.shape(w)) != 3 or (ends is None) != (len(b.shape(x)) == 3):
        b.refuse("groups of columns; expected groups of rows")
    y = b.add("matmul", [x, w]) if ends is None else _grouped_rows(b, x, w, ends)
    return b.cast(y if bias is None else b.binary("add", y, bias), b.dtype)


# ---- Counts


@rule("histc")
def _histc(b: Translator, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    flat = b.reshape(x, [-1])
    if x.dtype not in FLOATS:
        flat = b.cast(flat, DType.f64)
    low, high = b.cast(min, flat.dtype), b.cast(max, flat.dtype)
    if min == max and b.shape(flat)[0] > 0:
        low, high = b.reduce("min", flat), b.reduce("max", flat)
    if min == max:
        same = b.compare("eq", low, high)
        low, high = (b.where(same, b.binary("add", v, by), v) for v, by in ((low, -1), (high, 1)))
    inside = b.add("logical", [b.compare("ge", flat, low), b.compare("le", flat, high)], kind="and")
    part = b.binary("div", b.binary("mul", b.binary("sub", flat, low), bins), b.binary("sub", high, low))
    at = b.binary("min", b.cast(b.where(inside, part, 0.0), DType.i64), bins - 1)
    return b.add("scatter_add", [b.cast(inside, b.dtype), at, None], axis=0, dim=bins)
