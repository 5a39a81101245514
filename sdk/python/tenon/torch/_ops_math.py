# SPDX-License-Identifier: Apache-2.0
"""Rules for ops of ATen that compute elementwise."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from typing import Any

import torch

from .._dtypes import DType
from .._tenon import Value
from ._build import FLOATS, Translator, rule

# ---- One operand

_UNARY = {
    "abs": "abs", "neg": "neg", "sign": "sign", "sgn": "sign", "exp": "exp", "expm1": "expm1", "log": "log",
    "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "fix": "trunc", "round": "round", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
    "erf": "erf", "erfc": "erfc", "reciprocal": "reciprocal", "square": "square", "relu": "relu", "sigmoid": "sigmoid",
    "silu": "silu", "mish": "mish", "exp2": "exp2", "log2": "log2", "hardswish": "hard_swish",
    "special_expit": "sigmoid", "special_erf": "erf",
}  # fmt: skip
_KEEP = ("floor", "ceil", "trunc", "round")


def _unary(kind: str) -> Any:
    def write(b: Translator, x: Value) -> Value:
        if kind in _KEEP and x.dtype not in FLOATS:
            return x
        return b.unary(kind, b.cast(x, b.dtype))

    return write


for _name, _kind in _UNARY.items():
    rule(_name)(_unary(_kind))


@rule("gelu")
def _gelu(b: Translator, x: Value, approximate: str = "none") -> Value:
    return b.unary("gelu_tanh" if approximate == "tanh" else "gelu", x)


@rule("rrelu_with_noise_functional", "rrelu_with_noise")
def _rrelu(
    b: Translator,
    x: Value,
    noise: Value,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    if training:
        b.refuse("random slopes of training; expected a module after eval()")
    y = b.unary("leaky_relu", x, alpha=(lower + upper) / 2)
    return (y, noise) if isinstance(b.out, (tuple, list)) else y


@rule("leaky_relu")
def _leaky_relu(b: Translator, x: Value, slope: float = 0.01) -> Value:
    return b.unary("leaky_relu", x, alpha=float(slope))


@rule("elu")
def _elu(b: Translator, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if input_scale == 1 and scale == 1:
        return b.unary("elu", x, alpha=float(alpha))
    negative = b.binary(
        "mul", b.unary("expm1", b.binary("mul", b.binary("min", x, 0.0), float(input_scale))), float(alpha)
    )
    return b.binary("mul", b.where(b.compare("gt", x, 0.0), x, negative), float(scale))


@rule("celu")
def _celu(b: Translator, x: Value, alpha: float = 1) -> Value:
    return _elu(b, x, alpha, 1, 1 / alpha)


@rule("selu")
def _selu(b: Translator, x: Value) -> Value:
    return b.unary("selu", x)


@rule("hardsigmoid")
def _hardsigmoid(b: Translator, x: Value) -> Value:
    return b.unary("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@rule("softplus")
def _softplus(b: Translator, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = x if beta == 1 else b.binary("mul", x, float(beta))
    y = b.unary("softplus", scaled)
    y = y if beta == 1 else b.binary("div", y, float(beta))
    return b.where(b.compare("gt", scaled, float(threshold)), x, y)


@rule("log_sigmoid")
def _log_sigmoid(b: Translator, x: Value) -> Value:
    return b.unary("neg", b.unary("softplus", b.unary("neg", x)))


@rule("log_sigmoid_forward")
def _log_sigmoid_forward(b: Translator, x: Value) -> Any:
    return _log_sigmoid(b, x), x


@rule("log10")
def _log10(b: Translator, x: Value) -> Value:
    return b.binary("div", b.unary("log", b.cast(x, b.dtype)), math.log(10))


@rule("isnan")
def _isnan(b: Translator, x: Value) -> Value:
    return b.unary("is_nan", x) if x.dtype in FLOATS else b.full(b.shape(x), False, DType.bool)


@rule("isinf")
def _isinf(b: Translator, x: Value) -> Value:
    return b.unary("is_inf", x) if x.dtype in FLOATS else b.full(b.shape(x), False, DType.bool)


@rule("logical_not")
def _logical_not(b: Translator, x: Value) -> Value:
    return b.add("logical", [b.cast(x, DType.bool)], kind="not")


@rule("bitwise_not")
def _bitwise_not(b: Translator, x: Value) -> Value:
    return _logical_not(b, x) if x.dtype == DType.bool else b.binary("bit_xor", x, -1)


@rule("round.decimals")
def _round(b: Translator, x: Value, *, decimals: int = 0) -> Value:
    scale = 10.0 ** abs(decimals)
    to, back = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return b.binary(back, b.unary("round", b.binary(to, x, scale)), scale)


# ---- Two operands


def _scaled(b: Translator, x: Any, alpha: Any) -> Any:
    if alpha == 1:
        return x
    return b.binary("mul", x, alpha, b.dtype) if isinstance(x, Value) else x * alpha


@rule("add.Tensor", "add.Scalar")
def _add(b: Translator, x: Any, y: Any, alpha: Any = 1) -> Value:
    if b.dtype == DType.bool:
        return b.binary("max", x, y, DType.bool)
    return b.binary("add", x, _scaled(b, y, alpha), b.dtype)


@rule("sub.Tensor", "sub.Scalar")
def _sub(b: Translator, x: Any, y: Any, alpha: Any = 1) -> Value:
    return b.binary("sub", x, _scaled(b, y, alpha), b.dtype)


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(b: Translator, x: Any, y: Any, alpha: Any = 1) -> Value:
    return b.binary("sub", y, _scaled(b, x, alpha), b.dtype)


@rule("mul.Tensor", "mul.Scalar")
def _mul(b: Translator, x: Any, y: Any) -> Value:
    return b.binary("min" if b.dtype == DType.bool else "mul", x, y, b.dtype)


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(b: Translator, x: Any, y: Any) -> Value:
    return b.binary("div", x, y, b.dtype)


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(b: Translator, x: Any, y: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return _floor_divide(b, x, y)
    quotient = b.binary("div", x, y, b.dtype)
    return b.unary("trunc", quotient) if rounding_mode and b.dtype in FLOATS else quotient


@rule("floor_divide", "floor_divide.Scalar")
def _floor_divide(b: Translator, x: Any, y: Any) -> Value:
    x, y = b.cast(x, b.dtype), b.cast(y, b.dtype)
    quotient = b.binary("div", b.binary("sub", x, b.binary("mod", x, y)), y)
    if b.dtype not in FLOATS:
        return quotient
    return b.where(b.compare("eq", y, 0.0), b.binary("div", x, y), b.unary("round", quotient))


@rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Translator, x: Any, y: Any) -> Value:
    if isinstance(x, Value) and not isinstance(y, Value) and b.dtype in FLOATS:
        base = b.cast(x, b.dtype)
        if y == 1:
            return base
        if y == 2:
            return b.unary("square", base)
        if y == 3:
            return b.binary("mul", b.unary("square", base), base)
        if y == 0.5:
            return b.unary("sqrt", base)
        if y == -0.5:
            return b.unary("rsqrt", base)
        if y == -1:
            return b.unary("reciprocal", base)
    return b.binary("pow", x, y, b.dtype)


_BINARY = {
    "maximum": "max", "minimum": "min", "fmod.Tensor": "fmod", "fmod.Scalar": "fmod", "remainder.Tensor": "mod",
    "remainder.Scalar": "mod", "remainder.Scalar_Tensor": "mod", "atan2": "atan2",
    "__lshift__.Scalar": "shift_left", "__lshift__.Tensor": "shift_left", "bitwise_left_shift.Tensor": "shift_left",
    "bitwise_left_shift.Tensor_Scalar": "shift_left", "__rshift__.Scalar": "shift_right",
    "__rshift__.Tensor": "shift_right", "bitwise_right_shift.Tensor": "shift_right",
    "bitwise_right_shift.Tensor_Scalar": "shift_right",
}  # fmt: skip


def _binary(kind: str) -> Any:
    return lambda b, x, y: b.binary(kind, x, y, b.dtype)


for _name, _kind in _BINARY.items():
    rule(_name)(_binary(_kind))


def _bits(kind: str) -> Any:
    def write(b: Translator, x: Any, y: Any) -> Value:
        if b.dtype != DType.bool:
            return b.binary("bit_" + kind, x, y, b.dtype)
        return b.add("logical", [b.cast(x, DType.bool), b.cast(y, DType.bool)], kind=kind)

    return write


def _logical(kind: str) -> Any:
    return lambda b, x, y: b.add("logical", [b.cast(x, DType.bool), b.cast(y, DType.bool)], kind=kind)


for _kind in ("and", "or", "xor"):
    rule(*(f"bitwise_{_kind}.{o}" for o in ("Tensor", "Scalar", "Scalar_Tensor")))(_bits(_kind))
    rule(*(f"__{_kind}__.{o}" for o in ("Tensor", "Scalar")))(_bits(_kind))
    rule(f"logical_{_kind}")(_logical(_kind))


def common(x: Any, y: Any) -> DType:
    """The dtype in which PyTorch compares."""

    def example(v: Any) -> Any:
        return torch.empty([1] * min(len(v.shape or ()), 1), dtype=_torch_dtype(v.dtype)) if isinstance(v, Value) else v

    return DType.of(torch.result_type(example(x), example(y)))


_NAMES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip


def _torch_dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, _NAMES.get(dtype.name, dtype.name))
    return found


def _comparison(kind: str) -> Any:
    return lambda b, x, y: b.compare(kind, x, y, common(x, y))


for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    rule(f"{_kind}.Tensor", f"{_kind}.Scalar")(_comparison(_kind))


@rule("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(b: Translator, condition: Value, x: Any, y: Any) -> Value:
    return b.where(b.cast(condition, DType.bool), x, y, b.dtype)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Translator, x: Value, mask: Value, value: Any) -> Value:
    return b.where(mask, value, x, b.dtype)


@rule("clamp", "clamp.Tensor")
def _clamp(b: Translator, x: Value, low: Any = None, high: Any = None) -> Value:
    y = b.cast(x, b.dtype)
    if low is not None:
        y = b.binary("max", y, low)
    return y if high is None else b.binary("min", y, high)


@rule("clamp_min", "clamp_min.Tensor")
def _clamp_min(b: Translator, x: Value, low: Any) -> Value:
    return _clamp(b, x, low)


@rule("clamp_max", "clamp_max.Tensor")
def _clamp_max(b: Translator, x: Value, high: Any) -> Value:
    return _clamp(b, x, None, high)


rule("hardtanh")(lambda b, x, low=-1.0, high=1.0: _clamp(b, x, low, high))
rule("relu6")(lambda b, x: _clamp(b, x, 0.0, 6.0))


@rule("threshold")
def _threshold(b: Translator, x: Value, threshold: float, value: float) -> Value:
    return b.where(b.compare("gt", x, threshold), x, value)


@rule("addcmul")
def _addcmul(b: Translator, x: Value, y: Value, z: Value, *, value: Any = 1) -> Value:
    return b.binary("add", x, _scaled(b, b.binary("mul", y, z, b.dtype), value), b.dtype)


@rule("addcdiv")
def _addcdiv(b: Translator, x: Value, y: Value, z: Value, *, value: Any = 1) -> Value:
    return b.binary("add", x, _scaled(b, b.binary("div", y, z, b.dtype), value), b.dtype)


@rule("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Translator, x: Value, y: Value, weight: Any) -> Value:
    return b.binary("add", x, b.binary("mul", b.binary("sub", y, x), weight), b.dtype)


@rule("prelu", "_prelu_kernel")
def _prelu(b: Translator, x: Value, weight: Value) -> Value:
    dims = b.shape(x)
    if b.shape(weight) != dims:
        size = b.shape(weight)[0] if len(b.shape(weight)) == 1 else 0
        if size:
            weight = b.reshape(weight, [size if i == 1 else 1 for i in range(len(dims))] if size > 1 else [1])
    return b.where(b.compare("gt", x, 0.0), x, b.binary("mul", x, weight))
