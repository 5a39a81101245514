# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that move elements."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tenon import Value
from ._build import Translator, rule

# ---- The same elements


@rule("clone", "alias", "lift_fresh_copy", "lift_fresh", "contiguous", "positive")
def _same(b: Translator, x: Value) -> Value:
    return x


@rule("detach", "detach_")
def _detach(b: Translator, x: Value) -> Value:
    return b.stop_gradient(x)


@rule("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as")
def _to(b: Translator, x: Value, *args: Any, **kwargs: Any) -> Value:
    return b.expand(b.cast(x, b.dtype), _out_shape(b))


@rule("copy")
def _copy(b: Translator, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """What x.copy_(source) leaves in x, which is written by rules for slices."""
    return _to(b, source)


def _out_shape(b: Translator) -> list[int]:
    dims = b.out.shape
    if all(isinstance(d, int) for d in dims):
        return list(dims)
    return b.refuse("its shape depends on symbols; expected numbers")


@rule("_assert_async", "_assert_async.msg", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range")
def _ignore(b: Translator, *args: Any, **kwargs: Any) -> None:
    return None


rule("_assert_tensor_metadata")(_ignore)


@rule("sym_size.int")
def _sym_size(b: Translator, x: Value, dim: int) -> int:
    return b.shape(x)[dim]


@rule("sym_numel")
def _sym_numel(b: Translator, x: Value) -> int:
    return math.prod(b.shape(x))


@rule("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy")
def _view(b: Translator, x: Value, shape: Sequence[int]) -> Value:
    return b.reshape(x, shape)


@rule("_reshape_alias")
def _reshape_alias(b: Translator, x: Value, shape: Sequence[int], strides: Any) -> Value:
    return b.reshape(x, shape)


@rule("flatten.using_ints")
def _flatten(b: Translator, x: Value, start: int = 0, end: int = -1) -> Value:
    dims = b.shape(x) or [1]
    start, end = start % len(dims), end % len(dims)
    return b.reshape(x, dims[:start] + [math.prod(dims[start : end + 1])] + dims[end + 1 :])


@rule("unflatten.int")
def _unflatten(b: Translator, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    dims, dim = b.shape(x), b.axis(x, dim)
    sizes = [s if s != -1 else dims[dim] // math.prod(t for t in sizes if t != -1) for s in sizes]
    return b.reshape(x, dims[:dim] + list(sizes) + dims[dim + 1 :])


@rule("permute", "permute_copy")
def _permute(b: Translator, x: Value, perm: Sequence[int]) -> Value:
    return b.transpose(x, [p % len(perm) for p in perm])


@rule("transpose.int")
def _transpose(b: Translator, x: Value, i: int, j: int) -> Value:
    perm = list(range(len(b.shape(x))))
    if not perm:
        return x
    perm[i], perm[j] = perm[j], perm[i]
    return b.transpose(x, perm)


@rule("t", "numpy_T")
def _t(b: Translator, x: Value) -> Value:
    return b.transpose(x, list(range(len(b.shape(x))))[::-1])


@rule("unsqueeze")
def unsqueeze(b: Translator, x: Value, dim: int) -> Value:
    dims = b.shape(x)
    dims.insert(dim % (len(dims) + 1), 1)
    return b.reshape(x, dims)


@rule("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(b: Translator, x: Value, dim: Any = None) -> Value:
    axes = b.axes(x, dim) if dim != [] else []
    return b.reshape(x, [d for i, d in enumerate(b.shape(x)) if d != 1 or i not in axes])


@rule("expand", "expand_copy")
def _expand(b: Translator, x: Value, shape: Sequence[int], *, implicit: bool = False) -> Value:
    dims = [1] * (len(shape) - len(b.shape(x))) + b.shape(x)
    return b.expand(x, [d if s == -1 else int(s) for s, d in zip(shape, dims)])


@rule("expand_as", "broadcast_to")
def _expand_as(b: Translator, x: Value, other: Any) -> Value:
    return b.expand(x, b.shape(other) if isinstance(other, Value) else list(other))


@rule("repeat")
def _repeat(b: Translator, x: Value, times: Sequence[int]) -> Value:
    dims = [1] * (len(times) - len(b.shape(x))) + b.shape(x)
    apart, wide = [], []
    for d, n in zip(dims, times):
        apart += [1, d] if n != 1 else [d]
        wide += [int(n), d] if n != 1 else [d]
    return b.reshape(b.expand(b.reshape(x, apart), wide), [d * int(n) for d, n in zip(dims, times)])


@rule("repeat_interleave.self_int")
def _repeat_interleave(b: Translator, x: Value, times: int, dim: Any = None, *, output_size: Any = None) -> Value:
    if dim is None:
        x, dim = b.reshape(x, [-1]), 0
    dims, dim = b.shape(x), b.axis(x, dim)
    y = b.expand(b.reshape(x, [*dims[: dim + 1], 1, *dims[dim + 1 :]]), [*dims[: dim + 1], times, *dims[dim + 1 :]])
    return b.reshape(y, [*dims[:dim], dims[dim] * times, *dims[dim + 1 :]])


# ---- Parts


def bounds(size: int, start: Any, end: Any) -> tuple[int, int]:
    start = 0 if start is None else start
    end = size if end is None else end
    start = min(max(start + size if start < 0 else start, 0), size)
    end = min(max(end + size if end < 0 else end, start), size)
    return int(start), int(end)


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(b: Translator, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim = b.axis(x, dim)
    start, end = bounds(b.shape(x)[dim], start, end)
    return b.narrow(x, dim, start, (end - start + step - 1) // step, step)


@rule("narrow")
def _narrow(b: Translator, x: Value, dim: int, start: int, length: int) -> Value:
    return _slice(b, x, dim, start, (start % max(b.shape(x)[dim], 1) if start < 0 else start) + length)


@rule("select.int", "select_copy.int")
def _select(b: Translator, x: Value, dim: int, index: int) -> Value:
    dims, dim = b.shape(x), b.axis(x, dim)
    y = b.narrow(x, dim, index % dims[dim], 1)
    return b.reshape(y, dims[:dim] + dims[dim + 1 :])


@rule("split_with_sizes", "split.sizes", "split_with_sizes_copy")
def _split_sizes(b: Translator, x: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    parts, at, dim = [], 0, b.axis(x, dim)
    for size in sizes:
        parts.append(b.narrow(x, dim, at, int(size)))
        at += int(size)
    return parts


@rule("split.Tensor")
def _split(b: Translator, x: Value, size: int, dim: int = 0) -> list[Value]:
    length = b.shape(x)[dim]
    sizes = [min(size, length - at) for at in range(0, length, max(size, 1))] or [0]
    return _split_sizes(b, x, sizes, dim)


@rule("chunk")
def _chunk(b: Translator, x: Value, chunks: int, dim: int = 0) -> list[Value]:
    return _split(b, x, max(-(-b.shape(x)[dim] // chunks), 1), dim)


@rule("unbind.int")
def _unbind(b: Translator, x: Value, dim: int = 0) -> list[Value]:
    return [_select(b, x, dim, i) for i in range(b.shape(x)[dim])]


@rule("cat", "concat")
def _cat(b: Translator, xs: Sequence[Value], dim: int = 0) -> Value:
    parts = [b.cast(x, b.dtype) for x in xs if b.shape(x) != [0]] or [b.cast(xs[0], b.dtype)]
    return b.add("concat", [parts], axis=dim) if len(parts) > 1 else parts[0]


@rule("stack")
def _stack(b: Translator, xs: Sequence[Value], dim: int = 0) -> Value:
    dim = dim % (len(b.shape(xs[0])) + 1)
    return b.add("concat", [[unsqueeze(b, b.cast(x, b.dtype), dim) for x in xs]], axis=dim)


@rule("flip")
def _flip(b: Translator, x: Value, dims: Sequence[int]) -> Value:
    sizes, axes = b.shape(x), b.axes(x, dims) if dims else []
    back = [i in axes for i in range(len(sizes))]
    if 0 in sizes or not any(back):
        return x
    starts = [d - 1 if r else 0 for d, r in zip(sizes, back)]
    return b.add("narrow", [x], start=starts, len=sizes, step=[-1 if r else 1 for r in back])


@rule("roll")
def _roll(b: Translator, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts, dims = [shifts] if isinstance(shifts, int) else shifts, [dims] if isinstance(dims, int) else dims
    if not dims:
        return b.reshape(_roll(b, b.reshape(x, [-1]), shifts, [0]), b.shape(x))
    for shift, dim in zip(shifts, dims):
        dim, size = b.axis(x, dim), b.shape(x)[dim]
        at = (-shift) % size if size else 0
        if at:
            x = b.add("concat", [[b.narrow(x, dim, at, size - at), b.narrow(x, dim, 0, at)]], axis=dim)
    return x


def _pad(mode: str) -> Any:
    def write(b: Translator, x: Value, pads: Sequence[int], value: Any = 0) -> Value:
        dims = b.shape(x)
        before, after = [0] * len(dims), [0] * len(dims)
        for i in range(len(pads) // 2):
            before[-1 - i], after[-1 - i] = int(pads[2 * i]), int(pads[2 * i + 1])
        cut = [(max(-p, 0), max(-q, 0)) for p, q in zip(before, after)]
        for axis, (p, q) in enumerate(cut):
            x = b.narrow(x, axis, p, b.shape(x)[axis] - p - q)
        before, after = [max(p, 0) for p in before], [max(p, 0) for p in after]
        if not any(before) and not any(after):
            return x
        number = None if mode != "constant" else float(value or 0)
        return b.add("pad", [x], before=before, after=after, mode=mode, value=number)

    return write


rule("constant_pad_nd")(_pad("constant"))
rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")(_pad("reflect"))
rule("replication_pad1d", "replication_pad2d", "replication_pad3d")(_pad("edge"))


@rule("pad")
def _any_pad(b: Translator, x: Value, pads: Sequence[int], mode: str = "constant", value: Any = None) -> Value:
    if mode == "circular":
        for i in range(len(pads) // 2):
            axis = len(b.shape(x)) - 1 - i
            size = b.shape(x)[axis]
            parts = [b.narrow(x, axis, size - pads[2 * i], pads[2 * i]), x, b.narrow(x, axis, 0, pads[2 * i + 1])]
            x = b.add("concat", [[p for p in parts if b.shape(p)[axis]]], axis=axis)
        return x
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in modes:
        return b.refuse(f"mode '{mode}'; expected one of {', '.join(modes)}")
    return _pad(modes[mode])(b, x, pads, value)


def _band(b: Translator, x: Value, diagonal: int, kind: str) -> Value:
    rows, columns = b.shape(x)[-2:]
    at = b.binary("sub", b.iota(columns), b.reshape(b.iota(rows), [rows, 1]))
    return b.where(b.compare(kind, at, diagonal), x, 0)


rule("tril")(lambda b, x, diagonal=0: _band(b, x, diagonal, "le"))
rule("triu")(lambda b, x, diagonal=0: _band(b, x, diagonal, "ge"))


@rule("diagonal")
def _diagonal(b: Translator, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    dim1, dim2 = b.axis(x, dim1), b.axis(x, dim2)
    rest = [i for i in range(len(b.shape(x))) if i not in (dim1, dim2)]
    y = b.transpose(x, [*rest, dim1, dim2])
    rows, columns = b.shape(y)[-2:]
    first, size = max(-offset, 0), max(min(rows - max(-offset, 0), columns - max(offset, 0)), 0)
    flat = b.reshape(y, [*b.shape(y)[:-2], rows * columns])
    start = first * columns + max(offset, 0)
    return b.narrow(flat, len(rest), start if size else 0, size, columns + 1)


@rule("unfold")
def _unfold(b: Translator, x: Value, dim: int, size: int, step: int) -> Value:
    dim, dims = b.axis(x, dim), b.shape(x)
    count = (dims[dim] - size) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    y = b.gather(x, b.constant(at), dim)
    rank = len(dims) + 1
    return b.transpose(y, [i for i in range(rank) if i != dim + 1] + [dim + 1])
