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
from . import _ops_math, _ops_nn, _ops_reduce  # noqa: F401 - their rules are for real numbers
from ._build import COMPLEX, RULES, Rule, Translator, rule

# ---- Parts


def _is_complex(x: Any) -> bool:
    return isinstance(x, Value) and x.dtype in COMPLEX


def _for_complex(*names: str) -> Any:
    """Registers how ops are written if an operand is complex. Other operands keep their rules."""

    def register(function: Rule) -> Rule:
        for name in names:
            name = name if "." in name else name + ".default"
            real = RULES[name]

            def write(b: Translator, *args: Any, real: Rule = real, **kwargs: Any) -> Any:
                return (function if any(map(_is_complex, args)) else real)(b, *args, **kwargs)

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


def _scaled(b: Translator, x: Value, factor: Value) -> Value:
    """Complex numbers times real ones."""
    return b.add("view_as_complex", [b.binary("mul", _real(b, x), b.reshape(factor, [*b.shape(factor), 1]))])


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
    return b.where(b.unary("is_nan", x), x, b.where(b.compare("lt", x, 0.0), math.pi, 0.0, b.dtype))


# ---- Arithmetic


@_for_complex("abs")
def _abs(b: Translator, x: Value) -> Value:
    return b.add("complex_abs", [x])


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


@_for_complex("reciprocal")
def _reciprocal(b: Translator, x: Value) -> Value:
    # Divides twice: a square may overflow.
    inverse = b.unary("reciprocal", b.add("complex_abs", [x]))
    return _scaled(b, _scaled(b, b.add("conj", [x]), inverse), inverse)


@_for_complex("div.Tensor", "true_divide.Tensor")
def _div(b: Translator, x: Any, y: Any) -> Value:
    if _is_complex(y):
        return b.binary("mul", x, _reciprocal(b, y), b.dtype)
    if isinstance(y, Value):
        return _scaled(b, b.cast(x, b.dtype), b.unary("reciprocal", b.cast(y, _part_dtype(b.dtype))))
    return b.binary("mul", x, 1 / y, b.dtype)


def _part_dtype(dtype: DType) -> DType:
    return DType.f32 if dtype == DType.c64 else DType.f64


@_for_complex("square")
def _square(b: Translator, x: Value) -> Value:
    return b.binary("mul", x, x)


@_for_complex("pow.Tensor_Scalar")
def _pow(b: Translator, x: Value, y: Any) -> Value:
    if y != int(y) or not 1 <= y <= 8:
        b.refuse(f"power {y} of complex numbers; expected an integer from 1 to 8")
    z = x
    for _ in range(int(y) - 1):
        z = b.binary("mul", z, x)
    return z


@_for_complex("exp")
def _exp(b: Translator, x: Value) -> Value:
    return _polar(b, b.unary("exp", _part(b, x, 0)), _part(b, x, 1))


@_for_complex("log")
def _log(b: Translator, x: Value) -> Value:
    return _joined(b, b.unary("log", b.add("complex_abs", [x])), _angle(b, x))


@_for_complex("sum", "sum.dim_IntList")
def _sum(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = b.cast(x, b.dtype)
    axes = b.axes(x, dims)
    return b.add("view_as_complex", [b.reduce("sum", _real(b, x), axes, keepdim)]) if axes else x


@_for_complex("mean", "mean.dim")
def _mean(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = b.cast(x, b.dtype)
    axes = b.axes(x, dims)
    return b.add("view_as_complex", [b.reduce("mean", _real(b, x), axes, keepdim)]) if axes else x


@_for_complex("mm", "bmm", "matmul")
def _matmul(b: Translator, x: Value, y: Value) -> Value:
    if min(len(b.shape(v)) for v in (x, y)) < 2:
        b.refuse("products of complex vectors; expected matrices")
    parts = [[_part(b, v, i) for i in (0, 1)] for v in (x, y)]
    products = [[b.add("matmul", [p, q]) for q in parts[1]] for p in parts[0]]
    real = b.binary("sub", products[0][0], products[1][1])
    return _joined(b, real, b.binary("add", products[0][1], products[1][0]))


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
        "stft", [_batched(b, x, 2), window], n_fft=n_fft, hop=hop, win_length=size, center=False,
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
        "istft", [frames, window], n_fft=n_fft, hop=hop, win_length=size, center=center, normalized=normalized,
        length=length,
    )  # fmt: skip
    return y if len(b.shape(x)) == 3 else b.reshape(y, b.shape(y)[1:])
