# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that create tensors, or index them by tensors."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._dtypes import DType
from .._tenon import Value
from ._build import Translator, rule
from ._ops_shape import bounds, unsqueeze

# ---- Creation


@rule("full")
def _full(b: Translator, shape: Sequence[int], value: Any, **_: Any) -> Value:
    return b.full(shape, value, b.dtype)


@rule("full_like")
def _full_like(b: Translator, x: Value, value: Any, **_: Any) -> Value:
    return b.full(b.shape(x), value, b.dtype)


rule("zeros", "empty.memory_format", "empty_strided")(lambda b, shape, *a, **k: b.full(shape, 0, b.dtype))
rule("ones")(lambda b, shape, **_: b.full(shape, 1, b.dtype))
rule("zeros_like", "empty_like")(lambda b, x, **_: b.full(b.shape(x), 0, b.dtype))
rule("ones_like")(lambda b, x, **_: b.full(b.shape(x), 1, b.dtype))
rule("new_zeros", "new_empty")(lambda b, x, shape, **_: b.full(shape, 0, b.dtype))
rule("new_ones")(lambda b, x, shape, **_: b.full(shape, 1, b.dtype))
rule("new_full")(lambda b, x, shape, value, **_: b.full(shape, value, b.dtype))
rule("fill.Scalar", "fill.Tensor")(lambda b, x, value: b.expand(b.cast(value, b.dtype), b.shape(x)))


@rule("scalar_tensor")
def _scalar_tensor(b: Translator, value: Any, **_: Any) -> Value:
    return b.cast(value, b.dtype)


def _range(b: Translator, start: Any, end: Any, step: Any) -> Value:
    size = max(math.ceil((end - start) / step), 0)
    return b.add("iota", [], shape=[size], dtype=b.dtype, start=float(start), step=float(step))


rule("arange")(lambda b, end, **_: _range(b, 0, end, 1))
rule("arange.start")(lambda b, start, end, **_: _range(b, start, end, 1))
rule("arange.start_step")(lambda b, start, end, step=1, **_: _range(b, start, end, step))


@rule("linspace")
def _linspace(b: Translator, start: float, end: float, steps: int, **_: Any) -> Value:
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    return b.add("iota", [], shape=[steps], dtype=b.dtype, start=float(start), step=step)


@rule("eye", "eye.m")
def _eye(b: Translator, rows: int, columns: Any = None, **_: Any) -> Value:
    columns = rows if columns is None else columns
    return b.cast(b.compare("eq", b.reshape(b.iota(rows), [rows, 1]), b.iota(columns)), b.dtype)


# ---- Indices


def index_value(b: Translator, x: Value) -> Value:
    return x if x.dtype in (DType.i32, DType.i64) else b.cast(x, DType.i64)


@rule("embedding")
def _embedding(
    b: Translator,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    y = b.add("gather", [weight, indices], axis=0)
    if not b.differentiates or (padding_idx < 0 and not scale_grad_by_freq):
        return y
    constant = b.stop_gradient(y)
    column = [*b.shape(indices), 1]
    if scale_grad_by_freq:  # each use counts as one part of all uses of its row
        flat = b.reshape(indices, [-1])
        ones = b.full(b.shape(flat), 1.0, y.dtype)
        uses = b.add("scatter_add", [ones, flat, None], axis=0, dim=b.shape(weight)[0])
        part = b.binary("div", 1.0, b.add("gather", [uses, indices], axis=0))
        slope = b.binary("sub", y, constant)  # 0, but with a gradient; NaN of infinities
        slope = b.where(b.compare("eq", slope, 0.0), slope, 0.0)
        y = b.binary("add", constant, b.binary("mul", slope, b.reshape(part, column)))
    if padding_idx >= 0:  # this row gets no gradient
        y = b.where(b.reshape(b.compare("eq", indices, padding_idx), column), constant, y)
    return y


@rule("index_select")
def _index_select(b: Translator, x: Value, dim: int, indices: Value) -> Value:
    return b.gather(x, index_value(b, indices), dim)


@rule("gather")
def _gather(b: Translator, x: Value, dim: int, indices: Value, *, sparse_grad: bool = False) -> Value:
    return b.gather_elements(x, index_value(b, indices), dim)


def _joined(b: Translator, x: Value, indices: Sequence[Any]) -> tuple[Value, Value, list[int], int, list[int]]:
    """What indexing by tensors means: `x` with the indexed axes first and joined to one, one index into that axis, the
    shape of the indices, the place of their axes in the result, and the order of the axes of `x`."""
    dims = b.shape(x)
    used = [i for i, v in enumerate(indices) if v is not None]
    rest = [i for i in range(len(dims)) if i not in used]
    for i in used:
        if indices[i].dtype in (DType.bool, DType.u8):
            b.refuse("indices of bools, whose number is known only when it runs; expected integers")
    shape = list(np.broadcast_shapes(*(tuple(b.shape(indices[i])) for i in used)))
    flat: Any = None
    for i in used:
        at = b.cast(indices[i], DType.i64)
        if len(used) > 1:
            at = b.where(b.compare("lt", at, 0), b.binary("add", at, dims[i]), at)
        flat = at if flat is None else b.binary("add", b.binary("mul", flat, dims[i]), at)
    flat = b.expand(flat, shape)
    perm = used + rest
    joined = b.reshape(b.transpose(x, perm), [math.prod(dims[i] for i in used), *(dims[i] for i in rest)])
    adjacent = used == list(range(used[0], used[0] + len(used)))
    return joined, flat, shape, used[0] if adjacent else 0, perm


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index_tensor(b: Translator, x: Value, indices: Sequence[Any]) -> Value:
    used = [i for i, v in enumerate(indices) if v is not None]
    if len(used) == 1 and indices[used[0]].dtype in (DType.i32, DType.i64):
        return b.gather(x, indices[used[0]], used[0])
    joined, flat, shape, place, _ = _joined(b, x, indices)
    y = b.gather(joined, flat, 0)
    count, rank = len(shape), len(b.shape(y))
    order = list(range(count, count + place)) + list(range(count)) + list(range(count + place, rank))
    return b.transpose(y, order)


@rule("index_put", "_unsafe_index_put")
def _index_put(b: Translator, x: Value, indices: Sequence[Any], values: Value, accumulate: bool = False) -> Value:
    used = [i for i, v in enumerate(indices) if v is not None]
    values = b.cast(values, x.dtype)
    if len(used) == 1 and indices[used[0]].dtype == DType.bool and math.prod(b.shape(values)) == 1:
        mask, at = indices[used[0]], used[0]
        rank = len(b.shape(x)) - at - len(b.shape(mask))
        new = b.reshape(values, [])
        new = b.binary("add", x, new) if accumulate else new
        return b.where(b.reshape(mask, b.shape(mask) + [1] * rank), new, x)
    joined, flat, shape, place, perm = _joined(b, x, indices)
    rest = b.shape(joined)[1:]
    full = rest[:place] + shape + rest[place:]
    values, count = b.expand(values, full), len(shape)
    order = list(range(place, place + count)) + list(range(place)) + list(range(place + count, len(full)))
    values = b.transpose(values, order)
    op = ("scatter_add", [values, flat, joined]) if accumulate else ("scatter", [joined, flat, values])
    y = b.add(op[0], op[1], axis=0)
    y = b.reshape(y, [b.shape(x)[i] for i in perm])
    return b.transpose(y, [perm.index(i) for i in range(len(perm))])


def _elements(b: Translator, x: Value, dim: int, indices: Value) -> tuple[Value, Value]:
    """`x` flat, and the place of each element that indices name along an axis."""
    dims, dim = b.shape(x), b.axis(x, dim)
    at = b.cast(indices, DType.i64)
    at = b.where(b.compare("lt", at, 0), b.binary("add", at, dims[dim]), at)
    total: Any = None
    for i, d in enumerate(b.shape(indices)):
        part = at
        if i != dim:
            part = b.reshape(b.iota(d), [d if j == i else 1 for j in range(len(dims))])
        stride = math.prod(dims[i + 1 :])
        part = b.binary("mul", part, stride) if stride != 1 else part
        total = part if total is None else b.binary("add", total, part)
    return b.reshape(x, [-1]), b.reshape(b.expand(total, b.shape(indices)), [-1])


def first_of(b: Translator, x: Value, shape: Sequence[int]) -> Value:
    for axis, d in enumerate(shape):
        x = b.narrow(x, axis, 0, d)
    return x


@rule("scatter.src", "scatter.value")
def _scatter(b: Translator, x: Value, dim: int, indices: Value, source: Any) -> Value:
    source = b.expand(b.cast(source, x.dtype), b.shape(indices)) if not isinstance(source, Value) else source
    flat, at = _elements(b, x, dim, indices)
    new = b.reshape(first_of(b, source, b.shape(indices)), [-1])
    return b.reshape(b.add("scatter", [flat, at, new], axis=0), b.shape(x))


@rule("scatter_add")
def _scatter_add(b: Translator, x: Value, dim: int, indices: Value, source: Value) -> Value:
    source = first_of(b, source, b.shape(indices))
    return b.add("scatter_elements_add", [source, index_value(b, indices), x], axis=dim)


@rule("index_add")
def _index_add(b: Translator, x: Value, dim: int, indices: Value, source: Value, *, alpha: Any = 1) -> Value:
    source = source if alpha == 1 else b.binary("mul", source, alpha)
    return b.add("scatter_add", [source, index_value(b, indices), x], axis=dim)


@rule("index_copy")
def _index_copy(b: Translator, x: Value, dim: int, indices: Value, source: Value) -> Value:
    return b.add("scatter", [x, index_value(b, indices), source], axis=dim)


@rule("index_fill.int_Scalar")
def _index_fill(b: Translator, x: Value, dim: int, indices: Value, value: Any) -> Value:
    dims = b.shape(x)
    dims[dim] = b.shape(indices)[0]
    return b.add("scatter", [x, index_value(b, indices), b.full(dims, value, x.dtype)], axis=dim)


@rule("slice_scatter")
def _slice_scatter(
    b: Translator, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    dim = b.axis(x, dim)
    start, end = bounds(b.shape(x)[dim], start, end)
    if step != 1:
        at = b.constant(np.arange(start, end, step, dtype=np.int64))
        return b.add("scatter", [x, at, b.cast(source, x.dtype)], axis=dim)
    parts = [b.narrow(x, dim, 0, start), b.cast(source, x.dtype), b.narrow(x, dim, end, b.shape(x)[dim] - end)]
    parts = [p for p in parts if b.shape(p)[dim]]
    return b.add("concat", [parts], axis=dim) if len(parts) > 1 else parts[0]


@rule("select_scatter")
def _select_scatter(b: Translator, x: Value, source: Value, dim: int, index: int) -> Value:
    index = index % b.shape(x)[dim]
    return _slice_scatter(b, x, unsqueeze(b, source, b.axis(x, dim)), dim, index, index + 1)
