# SPDX-License-Identifier: Apache-2.0
"""Rules for medians, running extrema, searches, distances, and reductions by indices."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._dtypes import DType
from .._tenon import Value
from ._build import FLOATS, Translator, rule
from ._ops_index import first_of, index_value
from ._ops_math import common
from ._ops_reduce import norm
from ._ops_shape import unsqueeze

# ---- Ranks


def _ranked(b: Translator, x: Value, rank: int, dim: int, keepdim: bool, nan: bool) -> tuple[Value, Value]:
    """The element of a rank along an axis, and its index. nan: the first NaN of a row stands for all ranks."""
    if not b.shape(x):
        return x, b.constant(0, DType.i64)
    axis = b.axis(x, dim)
    _, order = b.add("sort", [x], axis=axis, descending=False)
    at = b.narrow(order, axis, rank, 1)
    if nan and x.dtype in FLOATS:
        is_nan = b.compare("ne", x, x)
        place = b.add("argmax", [b.cast(is_nan, DType.i32)], axis=axis, keepdims=True)
        at = b.where(b.reduce("any", is_nan, [axis], True), place, at)
    value = b.add("gather_elements", [x, at], axis=axis)
    dims = b.shape(at) if keepdim else [d for i, d in enumerate(b.shape(at)) if i != axis]
    return b.reshape(value, dims), b.reshape(at, dims)


@rule("kthvalue")
def _kthvalue(b: Translator, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _ranked(b, x, k - 1, dim, keepdim, False)


@rule("median.dim")
def _median(b: Translator, x: Value, dim: int, keepdim: bool = False) -> Any:
    size = b.shape(x)[b.axis(x, dim)] if b.shape(x) else 1
    return _ranked(b, x, (size - 1) // 2, dim, keepdim, True)


@rule("median")
def _median_of_all(b: Translator, x: Value) -> Value:
    flat = b.reshape(x, [-1])
    return _ranked(b, flat, (b.shape(flat)[0] - 1) // 2, 0, False, True)[0]


# ---- Running extrema and sums of exponentials: in step k each place combines with the place 2^k before it


def _earlier(b: Translator, x: Value, axis: int, step: int, first: Any) -> Value:
    """The elements `step` places before; `first` where there are none."""
    dims = b.shape(x)
    rest = b.narrow(x, axis, 0, dims[axis] - step)
    dims[axis] = step
    return b.add("concat", [[b.full(dims, first, x.dtype), rest]], axis=axis)


def _steps(size: int) -> list[int]:
    return [1 << k for k in range(max(size - 1, 0).bit_length())]


def _running(kind: str) -> Any:
    def write(b: Translator, x: Value, dim: int) -> Any:
        if not b.shape(x):
            return x, b.constant(0, DType.i64)
        axis = b.axis(x, dim)
        size = b.shape(x)[axis]
        column = [size if i == axis else 1 for i in range(len(b.shape(x)))]
        at = b.expand(b.reshape(b.iota(size), column), b.shape(x))
        value = x
        for step in _steps(size):  # of equal elements the last one counts, and NaN is the most of all
            earlier = _earlier(b, at, axis, step, 0)
            before = b.add("gather_elements", [x, earlier], axis=axis)
            more = b.compare(kind, before, value)
            if x.dtype in FLOATS:
                nan = b.add("logical", [b.compare("ne", before, before), b.compare("eq", value, value)], kind="and")
                stays = b.add("logical", [more, b.compare("eq", value, value)], kind="and")
                more = b.add("logical", [nan, stays], kind="or")
            at = b.where(more, earlier, at)
            value = b.add("gather_elements", [x, at], axis=axis)
        return value, at

    return write


rule("cummax")(_running("gt"))
rule("cummin")(_running("lt"))


@rule("logcumsumexp")
def _logcumsumexp(b: Translator, x: Value, dim: int) -> Value:
    if not b.shape(x):
        return x
    axis = b.axis(x, dim)
    for step in _steps(b.shape(x)[axis]):
        x = _log_of_sum(b, x, _earlier(b, x, axis, step, -math.inf))
    return x


def _log_of_sum(b: Translator, x: Value, y: Value) -> Value:
    most = b.binary("max", x, y)
    same = b.compare("eq", x, y)  # infinities among them, which have no difference
    apart = b.where(same, 0.0, b.unary("abs", b.binary("sub", x, y)), x.dtype)
    return b.binary("add", most, b.unary("log1p", b.unary("exp", b.unary("neg", apart))))


# ---- Searches


def _search(b: Translator, rows: Value, x: Value, right: bool) -> Value:
    """How many elements of a sorted row, the last axis of `rows`, stand before each of `x`: all before NaN."""
    table = unsqueeze(b, rows, -2) if len(b.shape(rows)) > 1 else rows
    key = unsqueeze(b, x, -1)
    before = b.compare("le" if right else "lt", table, key, common(x, rows))
    if x.dtype in FLOATS:
        before = b.add("logical", [before, b.unary("is_nan", key)], kind="or")
    return b.cast(b.reduce("sum", before, [-1]), b.dtype)


@rule("searchsorted.Tensor")
def _searchsorted(
    b: Translator,
    rows: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        rows = b.add("gather_elements", [rows, sorter], axis=-1)
    return _search(b, rows, x, right or side == "right")


@rule("bucketize.Tensor")
def _bucketize(b: Translator, x: Value, rows: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _search(b, rows, x, right)


# ---- Distances


@rule("dist")
def _dist(b: Translator, x: Value, y: Value, p: float = 2) -> Value:
    return norm(b, b.binary("sub", x, y), p)


@rule("hypot")
def _hypot(b: Translator, x: Value, y: Value) -> Value:
    dtype = DType.f64 if b.dtype == DType.f64 else DType.f32
    dims = np.broadcast_shapes(b.shape(x), b.shape(y))
    pairs = b.add("concat", [[unsqueeze(b, b.expand(b.cast(v, dtype), dims), -1) for v in (x, y)]], axis=-1)
    return b.cast(b.add("complex_abs", [b.add("view_as_complex", [pairs])]), b.dtype)


@rule("_cdist_forward")
def _cdist(b: Translator, x: Value, y: Value, p: float, mode: int | None) -> Value:
    return norm(b, b.binary("sub", unsqueeze(b, x, -2), unsqueeze(b, y, -3)), p, [-1])


# ---- Reductions by indices


def _identity(dtype: DType, kind: str) -> Any:
    if kind in ("sum", "mean", "prod"):
        return 1 if kind == "prod" else 0
    if dtype == DType.bool:
        return kind == "amin"
    if dtype in FLOATS:
        return -math.inf if kind == "amax" else math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if kind == "amax" else limits.max)


def _scatter_reduce(b: Translator, x: Value, axis: int, at: Value, source: Value, kind: str, include_self: bool) -> Value:
    if kind == "mean" and x.dtype not in FLOATS:
        b.refuse("means of integers; expected floats")
    count: Any = None  # how many sources each place has
    if kind == "mean" or not include_self:
        ones = b.full(b.shape(at), 1, DType.f32)
        count = b.add("scatter_elements_add", [ones, at, b.full(b.shape(x), 0, DType.f32)], axis=axis)
    base = x if include_self else b.where(b.compare("gt", count, 0.0), _identity(x.dtype, kind), x, x.dtype)
    if kind not in ("sum", "mean"):
        op = {"prod": "mul", "amax": "max", "amin": "min"}[kind]
        return b.add("scatter_elements_reduce", [base, at, source], kind=op, axis=axis)
    y = b.add("scatter_elements_add", [source, at, base], axis=axis)
    if kind == "sum":
        return y
    parts = b.binary("add", count, 1.0) if include_self else b.binary("max", count, 1.0)
    return b.binary("div", y, b.cast(parts, x.dtype))


@rule("scatter_reduce.two")
def _scatter_reduce_two(
    b: Translator, x: Value, dim: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    source = first_of(b, source, b.shape(indices))
    return _scatter_reduce(b, x, b.axis(x, dim), index_value(b, indices), source, reduce, include_self)


@rule("index_reduce")
def _index_reduce(
    b: Translator, x: Value, dim: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    axis = b.axis(x, dim)
    column = [-1 if i == axis else 1 for i in range(len(b.shape(x)))]
    at = b.expand(b.reshape(index_value(b, indices), column), b.shape(source))
    return _scatter_reduce(b, x, axis, at, source, reduce, include_self)
