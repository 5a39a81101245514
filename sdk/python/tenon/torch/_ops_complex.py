# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that compute with complex numbers, and for Fourier transforms."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .._dtypes import DType
from .._tenon import Value
from ._build import COMPLEX, RULES, Rule, Translator, rule
from ._ops_math import common  # the rules of these modules are for real numbers
from ._ops_nn import plus
from ._ops_reduce import norm

# ---- Parts


def _is_complex(x: Any) -> bool:
    return isinstance(x, Value) and x.dtype in COMPLEX


def _for_complex(*names: str) -> Any:
    """Registers how ops are written if an operand or the result is complex. Other operands keep their rules."""

    def register(function: Rule) -> Rule:
        for name in names:
            name = name if "." in name else name + ".default"
            real = RULES[name]

            def write(b: Translator, *args: Any, real: Rule = real, **kwargs: Any) -> Any:
                is_complex = b.dtype in COMPLEX or any(map(_is_complex, args))
                return (function if is_complex else real)(b, *args, **kwargs)

            RULES[name] = write
        return function

    return register


def _real(b: Translator, x: Value) -> Value:
    return b.add("view_as_real", [x])


def _part(b: Translator, x: Value, which: int) -> Value:
    pairs = _real(b, x)
    return b.reshape(b.narrow(pairs, len(b.shape(x)), which, 1), b.shape(x))


def _joined(b: Translator, real: Value, imaginary: Value) -> Value:
    """Complex numbers of their parts, which broadcast."""
    dims = np.broadcast_shapes(b.shape(real), b.shape(imaginary))
    parts = [b.reshape(b.expand(p, dims), [*dims, 1]) for p in (real, imaginary)]
    return b.add("view_as_complex", [b.add("concat", parts, axis=-1)])


def _scaled(b: Translator, x: Value, factor: Value, kind: str = "mul") -> Value:
    """Complex numbers times real ones, or divided by them."""
    return b.add("view_as_complex", [b.binary(kind, _real(b, x), b.reshape(factor, [*b.shape(factor), 1]))])


rule("view_as_real")(_real)
rule("view_as_complex")(lambda b, x: b.add("view_as_complex", [x]))
rule("complex")(_joined)


@rule("polar")
def _polar(b: Translator, length: Value, angle: Value) -> Value:
    return _joined(b, *(b.binary("mul", length, b.unary(kind, angle)) for kind in ("cos", "sin")))


@rule("_conj", "_conj_physical", "conj_physical")
def _conj(b: Translator, x: Value) -> Value:
    return b.add("conj", [x]) if _is_complex(x) else x


rule("resolve_conj", "resolve_neg")(lambda b, x: x)
rule("_neg_view")(lambda b, x: b.unary("neg", x))


@rule("angle")
def _angle(b: Translator, x: Value) -> Value:
    if _is_complex(x):
        real, imaginary = _part(b, x, 0), _part(b, x, 1)
        zeros = [b.compare("eq", part, 0.0) for part in (real, imaginary)]
        zero = b.add("logical", zeros, kind="and")  # where the slope is taken to be 0
        slope = b.binary("atan2", imaginary, b.where(zero, 1.0, real))
        return b.where(zero, b.stop_gradient(b.binary("atan2", imaginary, real)), slope)
    x = b.cast(x, b.dtype)
    return b.where(b.unary("is_nan", x), b.stop_gradient(x), b.where(b.compare("lt", x, 0.0), math.pi, 0.0, b.dtype))


# ---- Arithmetic


@_for_complex("abs")
def _abs(b: Translator, x: Value) -> Value:
    return b.add("complex_abs", [x])


def _together(kind: str) -> Rule:
    def write(b: Translator, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
        return b.reduce(kind, _is_not_zero(b, x), b.axes(x, dims), keepdim)

    return write


def _is_not_zero(b: Translator, x: Value) -> Value:
    return b.reduce("any", b.compare("ne", _real(b, b.stop_gradient(x)), 0.0), [-1])


for _kind in ("any", "all"):
    _for_complex(_kind, f"{_kind}.dim", f"{_kind}.dims")(_together(_kind))
_for_complex("logical_not")(lambda b, x: b.add("logical", [_is_not_zero(b, x)], kind="not"))


@_for_complex("isnan")
def _isnan(b: Translator, x: Value) -> Value:
    return b.reduce("any", b.unary("is_nan", _real(b, x)), [-1])


@_for_complex("isinf")
def _isinf(b: Translator, x: Value) -> Value:
    return b.reduce("any", b.unary("is_inf", _real(b, x)), [-1])


@_for_complex("sgn")
def _sgn(b: Translator, x: Value) -> Value:
    length = b.add("complex_abs", [x])
    zero = b.compare("eq", length, 0.0)
    return _scaled(b, x, b.where(zero, 0.0, b.unary("reciprocal", b.where(zero, 1.0, length)), length.dtype))


def _quotient(b: Translator, x: Value, y: Value) -> Value:
    """Divides by the larger part of `y` first: squares of parts may overflow."""
    (p, q), (c, d) = ([_part(b, v, i) for i in (0, 1)] for v in (x, y))
    real_is_larger = b.compare("ge", b.unary("abs", c), b.unary("abs", d))
    large, small = b.where(real_is_larger, c, d), b.where(real_is_larger, d, c)
    ratio = b.binary("div", small, b.where(b.compare("eq", large, 0.0), 1.0, large))
    scale = b.unary("reciprocal", b.binary("add", large, b.binary("mul", small, ratio)))
    p, q = b.where(real_is_larger, p, q), b.where(real_is_larger, q, p)
    real = b.binary("mul", b.binary("add", p, b.binary("mul", q, ratio)), scale)
    imaginary = b.binary("mul", b.binary("sub", q, b.binary("mul", p, ratio)), scale)
    return _joined(b, real, b.where(real_is_larger, imaginary, b.unary("neg", imaginary)))


@_for_complex("reciprocal")
def _reciprocal(b: Translator, x: Value) -> Value:
    return _quotient(b, b.constant(1, x.dtype), x)


@_for_complex("div.Tensor", "true_divide.Tensor")
def _div(b: Translator, x: Any, y: Any) -> Value:
    x = b.cast(x, b.dtype)
    y = y.real if isinstance(y, complex) and y.imag == 0 else y
    if isinstance(y, complex) or _is_complex(y):
        return _quotient(b, x, b.cast(y, b.dtype))
    return _scaled(b, x, b.cast(y, _part_dtype(b.dtype)), "div")


def _equal(kind: str, together: str) -> Rule:
    def write(b: Translator, x: Any, y: Any) -> Value:
        dtype = common(x, y)
        p, q = (_real(b, b.cast(v, dtype)) for v in (x, y))
        return b.reduce(together, b.compare(kind, p, q), [-1])

    return write


_for_complex("eq.Tensor", "eq.Scalar")(_equal("eq", "all"))
_for_complex("ne.Tensor", "ne.Scalar")(_equal("ne", "any"))


def _part_dtype(dtype: DType) -> DType:
    return DType.f32 if dtype == DType.c64 else DType.f64


@_for_complex("square")
def _square(b: Translator, x: Value) -> Value:
    return b.binary("mul", x, x)


@_for_complex("pow.Tensor_Scalar")
def _pow(b: Translator, x: Value, y: Any) -> Value:
    if not isinstance(y, (int, float)) or y not in range(-1, 9):
        b.refuse(f"power {y} of complex numbers; expected an integer from -1 to 8")
    if y == 0:
        return b.full(b.shape(x), 1, b.dtype)
    if y == -1:
        return _reciprocal(b, x)
    z = x
    for _ in range(int(y) - 1):
        z = b.binary("mul", z, x)
    return z


@_for_complex("exp")
def _exp(b: Translator, x: Value) -> Value:
    length, angle = b.unary("exp", _part(b, x, 0)), _part(b, x, 1)
    real, imaginary = (b.binary("mul", length, b.unary(kind, angle)) for kind in ("cos", "sin"))
    real_infinity = b.add("logical", [b.unary("is_inf", length), b.compare("eq", angle, 0.0)], kind="and")
    return _joined(b, real, b.where(real_infinity, 0.0, imaginary))


@_for_complex("log")
def _log(b: Translator, x: Value) -> Value:
    length = b.add("complex_abs", [x])
    quarter = b.add("complex_abs", [_scaled(b, x, b.constant(0.25, length.dtype))])
    far = b.binary("add", b.unary("log", quarter), math.log(4))  # where the length overflows
    return _joined(b, b.where(b.unary("is_inf", length), far, b.unary("log", length)), _angle(b, x))


@_for_complex("sum", "sum.dim_IntList")
def _sum(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = b.cast(x, b.dtype)
    axes = b.axes(x, dims) if b.shape(x) else []
    return b.add("view_as_complex", [b.reduce("sum", _real(b, x), axes, keepdim)]) if axes else x


@_for_complex("mean", "mean.dim")
def _mean(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = b.cast(x, b.dtype)
    axes = b.axes(x, dims) if b.shape(x) else []
    return b.add("view_as_complex", [b.reduce("mean", _real(b, x), axes, keepdim)]) if axes else x


@_for_complex("norm.ScalarOpt_dim", "norm.Scalar", "linalg_vector_norm")
def _norm_of_lengths(
    b: Translator, x: Value, p: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    return norm(b, b.add("complex_abs", [x]), p, dims, keepdim)


@_for_complex("mm", "bmm", "matmul", "mv", "dot")
def _matmul(b: Translator, x: Value, y: Value) -> Value:
    parts = [[_part(b, v, i) for i in (0, 1)] for v in (x, y)]
    products = [[b.add("matmul", [p, q]) for q in parts[1]] for p in parts[0]]
    real = b.binary("sub", products[0][0], products[1][1])
    return _joined(b, real, b.binary("add", products[0][1], products[1][0]))


@rule("vdot")
def _vdot(b: Translator, x: Value, y: Value) -> Value:
    return _matmul(b, b.add("conj", [x]), y) if _is_complex(x) else b.add("matmul", [x, y])


@_for_complex("linear")
def _linear(b: Translator, x: Value, weight: Value, bias: Value | None = None) -> Value:
    y = _matmul(b, x, b.transpose(weight, list(range(len(b.shape(weight))))[::-1]))
    return y if bias is None else b.binary("add", y, bias)


@_for_complex("addmm", "baddbmm", "addmv")
def _addmm(b: Translator, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return plus(b, _matmul(b, x, y), bias, beta, alpha)


# ---- Fourier transforms


def _norm(normalization: int, forward: bool) -> str:
    """How tenon names a scale of PyTorch: 0 none, 1 by the root of the length, 2 by the length."""
    names = ("backward", "ortho", "forward")
    return names[normalization if forward else 2 - normalization]


def _transform(b: Translator, x: Value, axes: Sequence[int], norm: str, inverse: bool) -> Value:
    return b.add("fft", [x], axes=list(axes), norm=norm, inverse=inverse) if axes else x


@rule("_fft_c2c")
def _fft_c2c(b: Translator, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Value:
    return _transform(b, x, dims, _norm(normalization, forward), not forward)


@rule("_fft_r2c")
def _fft_r2c(b: Translator, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Value:
    norm = _norm(normalization, True)
    if not onesided:
        return _transform(b, b.cast(x, b.dtype), dims, norm, False)
    return _transform(b, b.add("rfft", [x], axis=dims[-1], norm=norm), dims[:-1], norm, False)


@rule("_fft_c2r")
def _fft_c2r(b: Translator, x: Value, dims: Sequence[int], normalization: int, size: int) -> Value:
    norm = _norm(normalization, False)
    return b.add("irfft", [_transform(b, x, dims[:-1], norm, True)], axis=dims[-1], n=int(size), norm=norm)


def _frequencies(write: Any) -> Rule:
    def constant(b: Translator, n: int, d: float = 1.0, **kwargs: Any) -> Value:
        return b.cast(b.constant(write(n, d, dtype=torch.float64).numpy()), b.dtype)

    return constant


rule("fft_fftfreq")(_frequencies(torch.fft.fftfreq))
rule("fft_rfftfreq")(_frequencies(torch.fft.rfftfreq))


def _batched(b: Translator, x: Value, rank: int) -> Value:
    return x if len(b.shape(x)) == rank else b.reshape(x, [1, *b.shape(x)])


def _same_parts(b: Translator, x: Value, window: Value | None) -> list[Value | None]:
    """A signal or its frames, and the window, in the dtype of the result or of its parts."""
    dtype = _part_dtype(b.dtype) if b.dtype in COMPLEX else b.dtype
    wide = dtype if x.dtype not in COMPLEX else DType.c128 if dtype == DType.f64 else DType.c64
    return [b.cast(x, wide), None if window is None else b.cast(window, dtype)]


@rule("stft")
def _stft(
    b: Translator,
    x: Value,
    n_fft: int,
    hop: int | None = None,
    size: int | None = None,
    window: Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:
    if align_to_window:
        b.refuse("align_to_window=True; expected None")
    if _is_complex(x):
        b.refuse("complex signals; expected real ones")
    y = b.add(
        "stft", _same_parts(b, _batched(b, x, 2), window), n_fft=n_fft, hop=hop, win_length=size, center=False,
        normalized=normalized, onesided=onesided is not False,
    )  # fmt: skip
    y = y if len(b.shape(x)) == 2 else b.reshape(y, b.shape(y)[1:])
    return y if return_complex else _real(b, y)


@rule("istft")
def _istft(
    b: Translator,
    x: Value,
    n_fft: int,
    hop: int | None = None,
    size: int | None = None,
    window: Value | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Value:
    if return_complex:
        b.refuse("complex signals; expected real ones")
    frames = _batched(b, x, 3)
    if onesided is False or (onesided is None and b.shape(frames)[1] == n_fft):
        frames = b.narrow(frames, 1, 0, n_fft // 2 + 1)  # the rest is not read: the signal is real
    y = b.add(
        "istft", _same_parts(b, frames, window), n_fft=n_fft, hop=hop, win_length=size, center=center,
        normalized=normalized, length=length,
    )  # fmt: skip
    return y if len(b.shape(x)) == 3 else b.reshape(y, b.shape(y)[1:])
