# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that reduce or order, for softmax and losses."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

from .._dtypes import DType
from .._tenon import Value
from ._build import FLOATS, Translator, rule

# ---- Reductions


def _result(b: Translator, x: Value, dtype: Any) -> Value:
    return b.cast(x, DType.of(dtype) if dtype is not None else b.dtype)


@rule("sum", "sum.dim_IntList")
def _sum(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return b.reduce("sum", _result(b, x, dtype), b.axes(x, dims), keepdim)


@rule("mean", "mean.dim")
def _mean(b: Translator, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return b.reduce("mean", _result(b, x, dtype), b.axes(x, dims), keepdim)


@rule("amax")
def _amax(b: Translator, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("max", x, b.axes(x, dims), keepdim)


@rule("amin")
def _amin(b: Translator, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("min", x, b.axes(x, dims), keepdim)


rule("max")(lambda b, x: _amax(b, x))
rule("min")(lambda b, x: _amin(b, x))


@rule("prod", "prod.dim_int")
def _prod(b: Translator, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return b.reduce("prod", _result(b, x, dtype), b.axes(x, dim), keepdim)


@rule("any", "any.dim", "any.dims")
def _any(b: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("any", b.cast(x, DType.bool), b.axes(x, dim), keepdim)


@rule("all", "all.dim", "all.dims")
def _all(b: Translator, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return b.reduce("all", b.cast(x, DType.bool), b.axes(x, dim), keepdim)


@rule("logsumexp")
def _logsumexp(b: Translator, x: Value, dims: Any, keepdim: bool = False) -> Value:
    return b.reduce("logsumexp", _result(b, x, None), b.axes(x, dims), keepdim)


def _variance(b: Translator, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    axes = b.axes(x, dims)
    mean = b.reduce("mean", x, axes, True)
    squares = b.reduce("sum_square", b.binary("sub", x, mean), axes, keepdim)
    count = math.prod(b.shape(x)[a] for a in axes)
    return b.binary("div", squares, float(max(count - (1 if correction is None else correction), 0))), mean


@rule("var.correction")
def _var(b: Translator, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return _variance(b, x, dims, correction, keepdim)[0]


@rule("std.correction")
def _std(b: Translator, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return b.unary("sqrt", _variance(b, x, dims, correction, keepdim)[0])


@rule("var_mean.correction")
def _var_mean(b: Translator, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _variance(b, x, dims, correction, keepdim)
    return variance, mean if keepdim else b.reshape(mean, b.shape(variance))


@rule("std_mean.correction")
def _std_mean(b: Translator, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _var_mean(b, x, dims, correction=correction, keepdim=keepdim)
    return b.unary("sqrt", variance), mean


@rule("norm.ScalarOpt_dim", "norm.Scalar", "linalg_vector_norm")
def norm(b: Translator, x: Value, p: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x, p = _result(b, x, dtype), 2 if p is None else p
    axes = b.axes(x, dims)
    if p in (1, 2):
        return b.reduce(f"l{int(p)}", x, axes, keepdim)
    size = b.unary("abs", x)
    if p in (math.inf, -math.inf):
        return b.reduce("max" if p > 0 else "min", size, axes, keepdim)
    if p == 0:
        ones = b.where(b.unary("is_nan", x), 1.0, b.unary("sign", size))  # with a gradient: 0
        return b.reduce("sum", ones, axes, keepdim)
    if p < 1:  # an element of 0 has no slope: there PyTorch takes it to be 0
        zero = b.compare("eq", size, 0.0)
        powers = b.binary("pow", b.where(zero, 1.0, size), float(p))
        powers = b.where(zero, 0.0 if p > 0 else math.inf, powers, x.dtype)
    else:
        powers = b.binary("pow", size, float(p))
    total = b.reduce("sum", powers, axes, keepdim)
    if p < 0:
        return b.binary("pow", total, 1 / p)
    zero = b.compare("eq", total, 0.0)  # where the slope is taken to be 0
    return b.where(zero, 0.0, b.binary("pow", b.where(zero, 1.0, total, x.dtype), 1 / p), x.dtype)


# ---- Order, running sums


def _arg(op: str) -> Any:
    def write(b: Translator, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        rank = len(b.shape(x))
        if dim is None or rank == 0:
            flat = b.add(op, [b.reshape(x, [-1])], axis=0)
            return b.reshape(flat, [1] * rank) if keepdim else flat
        return b.add(op, [x], axis=dim, keepdims=keepdim)

    return write


rule("argmax")(_arg("argmax"))
rule("argmin")(_arg("argmin"))


def _extreme(op: str) -> Any:
    def write(b: Translator, x: Value, dim: int, keepdim: bool = False) -> Any:
        if not b.shape(x):
            return x, b.constant(0, DType.i64)
        at = b.add(op, [x], axis=dim, keepdims=True)
        value = b.add("gather_elements", [x, at], axis=dim)
        dims = b.shape(at) if keepdim else [d for i, d in enumerate(b.shape(x)) if i != b.axis(x, dim)]
        return b.reshape(value, dims), b.reshape(at, dims)

    return write


rule("max.dim")(_extreme("argmax"))
rule("min.dim")(_extreme("argmin"))


@rule("topk")
def _topk(b: Translator, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return tuple(b.add("topk", [x], k=k, axis=dim, largest=largest, sorted=sorted))


def _sort(b: Translator, x: Value, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
    return tuple(b.add("sort", [x], axis=dim, descending=descending))


rule("sort")(lambda b, x, dim=-1, descending=False: _sort(b, x, dim, descending))
rule("sort.stable")(lambda b, x, *, stable=None, dim=-1, descending=False: _sort(b, x, dim, descending))
rule("argsort")(lambda b, x, dim=-1, descending=False: _sort(b, x, dim, descending)[1])


@rule("cumsum")
def _cumsum(b: Translator, x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = _result(b, x, dtype)
    return b.add("cumsum", [x], axis=dim) if b.shape(x) else x


@rule("cumprod")
def _cumprod(b: Translator, x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = _result(b, x, dtype)
    return b.add("cumprod", [x], axis=dim) if b.shape(x) else x


# ---- Softmax, losses


def _softmax(log: bool) -> Any:
    def write(b: Translator, x: Value, dim: int, other: Any = None) -> Value:
        x = b.cast(x, b.dtype)
        if not b.shape(x):
            return b.reshape(b.add("softmax", [b.reshape(x, [1])], log=log), [])
        return b.add("softmax", [x], axis=dim, log=log)

    return write


rule("softmax.int", "_softmax")(_softmax(False))
rule("log_softmax.int", "_log_softmax")(_softmax(True))


def _reduced(b: Translator, loss: Value, reduction: int) -> Value:
    return loss if reduction == 0 else b.reduce("mean" if reduction == 1 else "sum", loss)


@rule("mse_loss")
def _mse_loss(b: Translator, x: Value, y: Value, reduction: int = 1) -> Value:
    return _reduced(b, b.unary("square", b.binary("sub", x, y, b.dtype)), reduction)


@rule("l1_loss")
def _l1_loss(b: Translator, x: Value, y: Value, reduction: int = 1) -> Value:
    return _reduced(b, b.unary("abs", b.binary("sub", x, y, b.dtype)), reduction)


@rule("cross_entropy_loss")
def _cross_entropy(
    b: Translator,
    x: Value,
    labels: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    axis = 1 if len(b.shape(x)) > 1 else 0
    if labels.dtype in FLOATS:
        if label_smoothing:
            labels = b.binary("mul", labels, 1 - label_smoothing)
            labels = b.binary("add", labels, label_smoothing / b.shape(x)[axis])
        log = b.add("softmax", [x], axis=axis, log=True)
        if weight is not None:
            log = b.binary("mul", log, b.reshape(weight, [-1] + [1] * (len(b.shape(x)) - axis - 1)))
        loss = b.unary("neg", b.reduce("sum", b.binary("mul", log, labels), [axis]))
        if reduction == 1 and axis == 1:
            count = math.prod(b.shape(x)) // b.shape(x)[1]
            return b.binary("div", b.reduce("sum", loss), float(count))
        return _reduced(b, loss, reduction)
    if weight is not None and b.differentiates and not label_smoothing:
        # The op refuses gradients that reach its weights in any way, also those that end before.
        log = b.add("softmax", [x], axis=axis, log=True)
        return _nll_loss(b, log, labels, weight, reduction, ignore_index)
    names = ("none", "mean", "sum")
    loss = b.add(
        "cross_entropy",
        [x, labels, weight],
        [True, False],
        axis=axis,
        ignore_index=ignore_index,
        label_smoothing=float(label_smoothing),
        reduction=names[reduction],
    )[0]
    return b.cast(loss, b.dtype)


@rule("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    b: Translator, x: Value, labels: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Any:
    axis = 1 if len(b.shape(x)) > 1 else 0
    weight = None if weight is None else b.stop_gradient(weight)  # PyTorch differentiates no weights
    ignored = b.compare("eq", labels, ignore_index)
    safe = b.where(ignored, 0, labels)
    dims = b.shape(labels)
    picked = b.add("gather_elements", [x, b.reshape(safe, dims[:axis] + [1] + dims[axis:])], axis=axis)
    loss = b.unary("neg", b.reshape(picked, dims))
    weights = b.full(dims, 1.0, x.dtype) if weight is None else b.add("gather", [weight, safe], axis=0)
    weights = b.where(ignored, 0.0, weights)
    loss = b.where(ignored, 0.0, b.binary("mul", loss, weights))
    total = b.reduce("sum", weights)
    if reduction == 1:
        loss = b.binary("div", b.reduce("sum", loss), total)
    elif reduction == 2:
        loss = b.reduce("sum", loss)
    return (loss, total) if isinstance(b.out, (tuple, list)) else loss
