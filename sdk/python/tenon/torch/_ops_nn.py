# SPDX-License-Identifier: Apache-2.0
"""Rules for the layers of networks: products, convolutions, norms, dropout."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .._dtypes import DType
from .._tenon import Value
from ._build import FLOATS, Translator, rule

# ---- Products


@rule("linear")
def linear(b: Translator, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if len(b.shape(weight)) == 1:
        y = b.add("matmul", [x, weight])
        return y if bias is None else b.binary("add", y, bias)
    if bias is not None and x.dtype in FLOATS:
        return b.add("linear", [x, weight, bias, None], [True, False], trans_b=True)[0]
    return b.add("matmul", [x, weight], trans_b=len(b.shape(weight)) == 2)


rule("mm", "bmm", "matmul", "mv", "dot")(lambda b, x, y: b.add("matmul", [x, y]))


def plus(b: Translator, product: Value, x: Value, beta: Any, alpha: Any) -> Value:
    product = product if alpha == 1 else b.binary("mul", product, alpha)
    if beta == 0:
        return product
    return b.binary("add", product, x if beta == 1 else b.binary("mul", x, beta))


@rule("addmm")
def _addmm(b: Translator, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    if beta == 1 and alpha == 1 and b.shape(bias) == [b.shape(y)[1]] and x.dtype in FLOATS:
        return b.add("linear", [x, y, bias, None], [True, False])[0]
    return plus(b, b.add("matmul", [x, y]), bias, beta, alpha)


@rule("baddbmm", "addmv", "addbmm_")
def _baddbmm(b: Translator, bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return plus(b, b.add("matmul", [x, y]), bias, beta, alpha)


@rule("_trilinear")
def _trilinear(
    b: Translator,
    x: Value,
    y: Value,
    z: Value,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    sums: Sequence[int],
    unroll: int = 1,
) -> Value:
    wide = []
    for t, axes in ((x, expand_x), (y, expand_y), (z, expand_z)):
        dims = b.shape(t)
        for axis in sorted(axes):
            dims.insert(axis, 1)
        wide.append(b.reshape(t, dims))
    product = b.binary("mul", b.binary("mul", wide[0], wide[1]), wide[2])
    return b.reduce("sum", product, list(sums)) if sums else product


# ---- Convolutions


def each(value: Any, count: int) -> list[int]:
    values = [value] if isinstance(value, int) else [int(v) for v in value]
    return values * count if len(values) == 1 else values


def _padded_convolution(
    b: Translator,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Any,
    pads: list[int],
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    """pads: those before all axes, then those behind them."""
    n = len(b.shape(w)) - 2
    single = len(b.shape(x)) == n + 1  # no axis of examples
    x = b.reshape(x, [1, *b.shape(x)]) if single else x
    common = {"stride": each(stride, n), "pads": pads, "dilation": each(dilation, n), "groups": groups}
    y: Value
    if transposed:
        y = b.add("conv_transpose", [x, w, bias], None, output_padding=each(output_padding, n), **common)
    else:
        y = b.add("conv", [x, w, bias, None], [True, False], **common)[0]
    return b.reshape(y, b.shape(y)[1:]) if single else y


@rule("convolution")
def _convolution(
    b: Translator,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    pads = list(each(padding, len(b.shape(w)) - 2))
    return _padded_convolution(b, x, w, bias, stride, pads + pads, dilation, transposed, output_padding, groups)


@rule("conv1d", "conv2d", "conv3d")
def _conv(
    b: Translator,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    return _convolution(b, x, w, bias, stride, padding, dilation, False, 0, groups)


@rule("conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv_padding(
    b: Translator,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: str = "valid",
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    kernel = b.shape(w)[2:]
    n = len(kernel)
    total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, each(dilation, n))]
    before = [t // 2 for t in total]
    after = [t - t // 2 for t in total]
    return _padded_convolution(b, x, w, bias, stride, before + after, dilation, False, 0, groups)


@rule("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(
    b: Translator,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    return _convolution(b, x, w, bias, stride, padding, dilation, True, output_padding, groups)


@rule("im2col")
def _im2col(b: Translator, x: Value, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    pads = each(padding, 2)
    return b.add(
        "im2col",
        [x],
        kernel=each(kernel, 2),
        dilation=each(dilation, 2),
        pads=pads + pads,
        stride=each(stride, 2),
        layout="unfold",
    )


# ---- Norms


def _channels(b: Translator, v: Value, x: Value) -> Value:
    return b.reshape(v, [-1] + [1] * (len(b.shape(x)) - 2))


def _batch_norm_by(b: Translator, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, eps: float) -> Value:
    """With given statistics. The slopes and offsets are those of a channel, which fuse well."""
    scale = b.unary("rsqrt", b.binary("add", variance, eps))
    if weight is not None:
        scale = b.binary("mul", scale, weight, scale.dtype)
    offset = b.binary("mul", b.unary("neg", mean), scale)
    if bias is not None:
        offset = b.binary("add", offset, bias, offset.dtype)
    wide = b.cast(x, scale.dtype)
    y = b.binary("add", b.binary("mul", wide, _channels(b, scale, x)), _channels(b, offset, x))
    return b.cast(y, x.dtype)


def _batch_statistics(b: Translator, x: Value) -> tuple[Value, Value]:
    axes = [i for i in range(len(b.shape(x))) if i != 1]
    mean = b.reduce("mean", x, axes)
    centred = b.binary("sub", x, _channels(b, mean, x))
    return mean, b.reduce("mean", b.unary("square", centred), axes)


@rule("batch_norm", "cudnn_batch_norm", "native_batch_norm")
def _batch_norm(
    b: Translator,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Any:
    if training:
        return b.refuse("training mode. hint: module.eval()")
    y = _batch_norm_by(b, x, weight, bias, mean, variance, eps)
    return (y, mean, variance) if isinstance(b.out, (tuple, list)) else y


@rule("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def _batch_norm_inference(
    b: Translator, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: float, eps: float
) -> Any:
    y = _batch_norm_by(b, x, weight, bias, mean, variance, eps)
    nothing = b.full([0], 0, mean.dtype)
    return y, nothing, nothing, nothing


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    b: Translator, x: Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    mean, variance = _batch_statistics(b, x)
    y = _batch_norm_by(b, x, weight, bias, mean, variance, eps)
    return y, mean, b.unary("rsqrt", b.binary("add", variance, eps))


@rule("_native_batch_norm_legit_functional")
def _batch_norm_functional(
    b: Translator,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training:
        y = _batch_norm_by(b, x, weight, bias, mean, variance, eps)
        nothing = b.full([0], 0, mean.dtype)
        return y, nothing, nothing, mean, variance
    m, v = _batch_statistics(b, x)
    y = _batch_norm_by(b, x, weight, bias, m, v, eps)
    dims = b.shape(x)
    count = math.prod(dims) // max(dims[1], 1)
    unbiased = b.binary("mul", v, count / max(count - 1, 1))

    def moved(old: Value, new: Value) -> Value:
        return b.binary("add", b.binary("mul", old, 1 - momentum), b.binary("mul", new, momentum))

    return y, m, b.unary("rsqrt", b.binary("add", v, eps)), moved(mean, m), moved(variance, unbiased)


@rule("instance_norm")
def _instance_norm(
    b: Translator,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    if not use_input_stats:
        return _batch_norm_by(b, x, weight, bias, mean, variance, eps)
    return b.add("group_norm", [x, weight, bias], [True, False, False], groups=b.shape(x)[1], eps=eps)[0]


@rule("layer_norm", "native_layer_norm")
def _layer_norm(
    b: Translator, x: Value, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    all_outputs = isinstance(b.out, (tuple, list))
    outputs = b.add("layer_norm", [x, weight, bias], [True, all_outputs, all_outputs], axis=-len(shape), eps=eps)
    return tuple(outputs) if all_outputs else outputs[0]


@rule("rms_norm", "_fused_rms_norm")
def _rms_norm(b: Translator, x: Value, shape: Sequence[int], weight: Any = None, eps: Any = None) -> Any:
    if eps is None:
        eps = {"f16": 2.0**-10, "bf16": 2.0**-7, "f64": 2.0**-52}.get(x.dtype.name, 2.0**-23)
    gamma = b.full(shape, 1.0, x.dtype) if weight is None else weight
    all_outputs = isinstance(b.out, (tuple, list))
    outputs = b.add("rms_norm", [x, gamma, None], [True, all_outputs], axis=-len(shape), eps=float(eps))
    return tuple(outputs) if all_outputs else outputs[0]


@rule("group_norm")
def _group_norm(
    b: Translator, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Value:
    return b.add("group_norm", [x, weight, bias], [True, False, False], groups=groups, eps=eps)[0]


@rule("native_group_norm")
def _native_group_norm(
    b: Translator, x: Value, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, eps: float
) -> Any:
    return tuple(b.add("group_norm", [x, weight, bias], [True, True, True], groups=groups, eps=eps))


# ---- Dropout


@rule("dropout", "feature_dropout", "alpha_dropout")
def _dropout(b: Translator, x: Value, p: float, train: bool) -> Value:
    return x if not train or p == 0 else b.refuse("training mode. hint: module.eval()")


@rule("native_dropout")
def _native_dropout(b: Translator, x: Value, p: float, train: Any) -> Any:
    return _dropout(b, x, p, train is not False), b.full(b.shape(x), True, DType.bool)
