# SPDX-License-Identifier: Apache-2.0
"""Rules for pools and for values between pixels."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._tenon import Value
from ._build import Translator, rule
from ._ops_nn import each

# ---- Pools


def _pool(
    b: Translator, kind: str, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, n: int, **more: Any
) -> Any:
    pads = each(padding, n)
    sizes = each(kernel, n)
    single = len(b.shape(x)) == n + 1
    x = b.reshape(x, [1, *b.shape(x)]) if single else x
    attributes = {
        "kernel": sizes,
        "stride": each(stride, n) if stride else sizes,
        "pads": pads + pads,
        "dilation": each(dilation, n),
        **more,
    }
    want_indices = kind == "max" and isinstance(b.out, (tuple, list))
    if n == 2 and kind == "max":
        y, at = b.add("maxpool2d", [x], [True, want_indices], **attributes)
    elif n == 2:
        y, at = b.add("avgpool2d", [x], None, **attributes), None
    else:
        y, at = b.add("pool", [x], [True, want_indices], kind=kind, **attributes)

    def back(t: Any) -> Any:
        return b.reshape(t, b.shape(t)[1:]) if single and t is not None else t

    return (back(y), back(at)) if want_indices else back(y)


def _max_pool(n: int) -> Any:
    def write(
        b: Translator,
        x: Value,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return _pool(b, "max", x, kernel, stride, padding, dilation, n, ceil_mode=ceil_mode)

    return write


def _avg_pool(n: int) -> Any:
    def write(
        b: Translator,
        x: Value,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: Any = None,
    ) -> Any:
        more = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor or 0}
        return _pool(b, "avg", x, kernel, stride, padding, 1, n, **more)

    return write


for _n in (1, 2, 3):
    rule(f"max_pool{_n}d", f"max_pool{_n}d_with_indices")(_max_pool(_n))
    rule(f"avg_pool{_n}d")(_avg_pool(_n))


def _bins(size: int, out: int) -> list[tuple[int, int]]:
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _adaptive_avg(n: int) -> Any:
    def write(b: Translator, x: Value, sizes: Any) -> Value:
        dims = b.shape(x)
        outs = [d if s is None else s for s, d in zip(each(sizes, n), dims[-n:])]
        if all(o == 1 for o in outs):
            return b.reduce("mean", x, list(range(len(dims) - n, len(dims))), True)
        if all(d % o == 0 for d, o in zip(dims[-n:], outs)):
            kernel = [d // o for d, o in zip(dims[-n:], outs)]
            return _pool(b, "avg", x, kernel, kernel, 0, 1, n)
        for axis, out in zip(
            range(len(dims) - n, len(dims)), outs
        ):  # bins of several sizes: a product with their weights
            weights = np.zeros((dims[axis], out), np.float32)
            for i, (start, end) in enumerate(_bins(dims[axis], out)):
                weights[start:end, i] = 1 / (end - start)
            last = len(dims) - 1
            perm = [i for i in range(len(dims)) if i != axis] + [axis]
            y = b.add("matmul", [b.transpose(x, perm), b.cast(b.constant(weights), x.dtype)])
            x = b.transpose(y, [perm.index(i) for i in range(last + 1)])
        return x

    return write


def _max_of_bins(b: Translator, x: Value, outs: list[int]) -> tuple[Value, Value]:
    """Maxima, and where they are in a plane, of bins of several sizes: short bins repeat their last element."""
    dims = b.shape(x)
    lead, sizes = dims[: -len(outs)], dims[-len(outs) :]
    places = np.zeros([1] * (2 * len(outs)), np.int64)
    for k, (size, out) in enumerate(zip(sizes, outs)):
        bins = _bins(size, out)
        widest = max(end - start for start, end in bins)
        at = np.array([[min(start + i, end - 1) for i in range(widest)] for start, end in bins])
        shape = [1] * places.ndim
        shape[k], shape[len(outs) + k] = at.shape
        places = places * size + at.reshape(shape)
    places = places.reshape(math.prod(outs), -1)
    flat = b.add("gather", [b.reshape(x, [*lead, math.prod(sizes)]), b.constant(places)], axis=len(lead))
    best = b.add("argmax", [flat], axis=-1, keepdims=True)
    value = b.reshape(b.add("gather_elements", [flat, best], axis=-1), [*lead, *outs])
    table = b.expand(b.constant(places), b.shape(flat))
    return value, b.reshape(b.add("gather_elements", [table, best], axis=-1), [*lead, *outs])


def _adaptive_max(n: int) -> Any:
    def write(b: Translator, x: Value, sizes: Any) -> Any:
        dims = b.shape(x)
        outs = each(sizes, n)
        if any(d % o for d, o in zip(dims[-n:], outs)):
            return _max_of_bins(b, x, outs)
        kernel = [d // o for d, o in zip(dims[-n:], outs)]
        return _pool(b, "max", x, kernel, kernel, 0, 1, n)

    return write


for _n in (1, 2, 3):
    rule(f"adaptive_avg_pool{_n}d", f"_adaptive_avg_pool{_n}d")(_adaptive_avg(_n))
    rule(f"adaptive_max_pool{_n}d")(_adaptive_max(_n))


# ---- Resampling


def _resize(b: Translator, x: Value, sizes: Any, scales: Any, **attributes: Any) -> Value:
    dims = b.shape(x)[2:]
    if sizes is None or not list(sizes):
        sizes = [math.floor(d * s) for d, s in zip(dims, scales)]
    elif scales is not None and any(s is not None for s in scales):
        scales = None if any(s is None for s in scales) else scales
    sizes = [int(s) for s in sizes]
    exact = scales is None or all(abs(o - d * s) < 1e-9 for o, d, s in zip(sizes, dims, scales))
    if not exact and attributes["coordinates"] != "align_corners":  # the scale is what positions are made of
        return b.add("resize", [x], scales=[float(s) for s in scales], **attributes)
    return b.add("resize", [x], sizes=sizes, **attributes)


def _linear_coordinates(align_corners: bool) -> dict[str, Any]:
    return {"coordinates": "align_corners" if align_corners else "half_pixel"}


_NEAREST = {"mode": "nearest", "coordinates": "asymmetric", "nearest_mode": "floor"}
_EXACT = {"mode": "nearest", "coordinates": "half_pixel", "nearest_mode": "round_prefer_ceil"}

for _n, _axes in ((1, "l"), (2, "hw"), (3, "dhw")):
    for _name, _attributes in ((f"upsample_nearest{_n}d", _NEAREST), (f"_upsample_nearest_exact{_n}d", _EXACT)):
        rule(f"{_name}.vec")(lambda b, x, sizes, scales, a=_attributes: _resize(b, x, sizes, scales, **a))
        rule(_name)(
            lambda b, x, sizes, *scales, a=_attributes: _resize(
                b, x, sizes, scales if scales and None not in scales else None, **a
            )
        )


def _upsample(mode: str, **more: Any) -> tuple[Any, Any]:
    def vec(b: Translator, x: Value, sizes: Any, align: bool, scales: Any) -> Value:
        return _resize(b, x, sizes, scales, mode=mode, **more, **_linear_coordinates(align))

    def plain(b: Translator, x: Value, sizes: Any, align: bool, *scales: Any) -> Value:
        return vec(b, x, sizes, align, scales if scales and None not in scales else None)

    return vec, plain


for _name, _mode, _more in (
    ("upsample_linear1d", "linear", {}),
    ("upsample_bilinear2d", "linear", {}),
    ("upsample_trilinear3d", "linear", {}),
    ("upsample_bicubic2d", "cubic", {}),
    ("_upsample_bilinear2d_aa", "linear", {"antialias": True, "exclude_outside": True}),
    ("_upsample_bicubic2d_aa", "cubic", {"antialias": True, "exclude_outside": True, "cubic_a": -0.5}),
):
    _vec, _plain = _upsample(_mode, **_more)
    rule(f"{_name}.vec")(_vec)
    rule(_name)(_plain)


@rule("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sample(b: Translator, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    return b.add(
        "grid_sample",
        [x, grid],
        mode=("linear", "nearest", "cubic")[mode],
        padding=("zeros", "border", "reflection")[padding],
        align_corners=align,
    )


@rule("pixel_shuffle")
def _pixel_shuffle(b: Translator, x: Value, r: int) -> Value:
    *lead, c, h, w = b.shape(x)
    n, k = math.prod(lead), c // (r * r)
    y = b.transpose(b.reshape(x, [n, k, r, r, h, w]), [0, 1, 4, 2, 5, 3])
    return b.reshape(y, [*lead, k, h * r, w * r])
