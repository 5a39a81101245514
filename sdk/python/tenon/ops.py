# SPDX-License-Identifier: Apache-2.0
# Written by tests/tree/python_ops.py; the build target `builders` writes it again.
# mypy: disable-error-code="overload-overlap, no-any-return"
"""The ops of tenon as functions. sdk/OPS.md defines each one.

In a function that is traced, they add nodes to its graph. Elsewhere they run at once. Operands are tensors, NumPy arrays,
traced values, objects with __dlpack__, and numbers of Python. There is no promotion between dtypes, but a number takes the
dtype of the arrays beside it.

all_outputs: return the optional outputs as well, as a tuple.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Literal, overload

from ._call import call
from ._dtypes import DType, DTypeLike
from ._trace import Array, ArrayLike, Many

__all__ = [
    "abs",
    "acos",
    "acosh",
    "adamw",
    "add",
    "all",
    "amax_observer",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "attention",
    "avgpool2d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bit_and",
    "bit_or",
    "bit_xor",
    "cast",
    "ceil",
    "cholesky",
    "col2im",
    "complex_abs",
    "complex_norm_sq",
    "concat",
    "conj",
    "conv",
    "conv_transpose",
    "copy",
    "cos",
    "cosh",
    "cross_entropy",
    "ctc_loss",
    "cumprod",
    "cumsum",
    "decode_attention",
    "dense_solve",
    "dequant_matmul",
    "dequant_rows",
    "dequantize",
    "dequantize_blocks",
    "det",
    "divide",
    "dropout",
    "dynamic_slice",
    "dynamic_update_slice",
    "elu",
    "equal",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "fake_quantize",
    "fft",
    "fft_conv1d",
    "fftfreq",
    "fftshift",
    "floor",
    "fmod",
    "gated_delta_rule",
    "gather",
    "gather_elements",
    "gelu",
    "gelu_tanh",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_limited_gate",
    "group_norm",
    "grouped_dequant_matmul",
    "grouped_matmul",
    "gru",
    "hard_sigmoid",
    "hard_swish",
    "huber_loss",
    "im2col",
    "inverse",
    "iota",
    "irfft",
    "is_inf",
    "is_nan",
    "istft",
    "kl_div",
    "knn",
    "l1",
    "l1_loss",
    "l2",
    "layer_norm",
    "layer_norm2d",
    "leaky_relu",
    "less",
    "less_equal",
    "linear",
    "lion",
    "log",
    "log1p",
    "log2",
    "log_mel",
    "log_mel_spectrogram",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lora_matmul",
    "lsq_quantize",
    "lstm",
    "lu",
    "lu_solve",
    "matmul",
    "max",
    "maximum",
    "maxpool2d",
    "mean",
    "mel_filterbank",
    "min",
    "minimum",
    "mish",
    "mod",
    "mse_loss",
    "multiply",
    "narrow",
    "negative",
    "nll_loss",
    "non_zero",
    "not_equal",
    "pad",
    "pool",
    "pow",
    "prod",
    "qconv",
    "qmatmul",
    "quantize",
    "random_bits",
    "random_normal",
    "random_uniform",
    "reciprocal",
    "relu",
    "reshape",
    "residual_layer_norm",
    "residual_rms_norm",
    "resize",
    "rfft",
    "rms_norm",
    "roi_align",
    "rope",
    "rope_axial2d",
    "round",
    "rsqrt",
    "sample",
    "scatter",
    "scatter_add",
    "scatter_elements_add",
    "scatter_elements_reduce",
    "scatter_reduce",
    "selective_scan",
    "selu",
    "sgd",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "sort",
    "spectrum_peaks",
    "splat_bin",
    "splat_project",
    "splat_rasterize",
    "splat_render",
    "splat_sh",
    "splat_sort",
    "sqrt",
    "square",
    "stft",
    "stop_gradient",
    "subtract",
    "sum",
    "sum_square",
    "swiglu",
    "tan",
    "tanh",
    "topk",
    "transpose",
    "triangular_solve",
    "trunc",
    "view_as_complex",
    "view_as_real",
    "welch_peaks",
    "welch_psd",
    "where",
]


def add(a: ArrayLike, b: ArrayLike) -> Array:
    """add: Elementwise; a and b have one dtype and broadcast.

    floats: a + b
    gradient of a, gradient of b: dy, dy
    """
    return call("binary", [a, b], {"kind": "add"}, (True,), (0, 1))


def subtract(a: ArrayLike, b: ArrayLike) -> Array:
    """sub: Elementwise; a and b have one dtype and broadcast.

    floats: a - b
    gradient of a, gradient of b: dy, -dy
    """
    return call("binary", [a, b], {"kind": "sub"}, (True,), (0, 1))


def multiply(a: ArrayLike, b: ArrayLike) -> Array:
    """mul: Elementwise; a and b have one dtype and broadcast.

    floats: a·b
    gradient of a, gradient of b: dy·b, dy·a
    """
    return call("binary", [a, b], {"kind": "mul"}, (True,), (0, 1))


def divide(a: ArrayLike, b: ArrayLike) -> Array:
    """div: Elementwise; a and b have one dtype and broadcast.

    floats: a/b
    gradient of a, gradient of b: dy/b, -dy·a/b²
    """
    return call("binary", [a, b], {"kind": "div"}, (True,), (0, 1))


def maximum(a: ArrayLike, b: ArrayLike) -> Array:
    """max: Elementwise; a and b have one dtype and broadcast.

    floats: the larger, NaN if one is NaN
    gradient of a, gradient of b: the operand that won gets dy, the other 0; on a tie dy/2 each; with NaN dy each
    """
    return call("binary", [a, b], {"kind": "max"}, (True,), (0, 1))


def minimum(a: ArrayLike, b: ArrayLike) -> Array:
    """min: Elementwise; a and b have one dtype and broadcast.

    floats: the smaller, NaN if one is NaN
    gradient of a, gradient of b: as max
    """
    return call("binary", [a, b], {"kind": "min"}, (True,), (0, 1))


def pow(a: ArrayLike, b: ArrayLike) -> Array:
    """pow: Elementwise; a and b have one dtype and broadcast.

    floats: C pow: pow(x, 0) = 1 and pow(1, y) = 1 even for NaN; a negative base with a non-integer exponent is NaN
    gradient of a, gradient of b: 0 where b = 0, else dy·b·a^(b-1); 0 where a = 0 and b ≥ 0, else dy·a^b·ln a
    """
    return call("binary", [a, b], {"kind": "pow"}, (True,), (0, 1))


def mod(a: ArrayLike, b: ArrayLike) -> Array:
    """mod: Elementwise; a and b have one dtype and broadcast.

    floats: floor modulo: the sign of b
    gradient of a, gradient of b: dy, -dy·floor(a/b)
    """
    return call("binary", [a, b], {"kind": "mod"}, (True,), (0, 1))


def fmod(a: ArrayLike, b: ArrayLike) -> Array:
    """fmod: Elementwise; a and b have one dtype and broadcast.

    floats: C fmod: the sign of a
    gradient of a, gradient of b: dy, -dy·trunc(a/b)
    """
    return call("binary", [a, b], {"kind": "fmod"}, (True,), (0, 1))


def atan2(a: ArrayLike, b: ArrayLike) -> Array:
    """atan2: Elementwise; a and b have one dtype and broadcast.

    floats: C atan2(a, b)
    gradient of a, gradient of b: dy·b/(a²+b²), -dy·a/(a²+b²)
    """
    return call("binary", [a, b], {"kind": "atan2"}, (True,), (0, 1))


def bit_and(a: ArrayLike, b: ArrayLike) -> Array:
    """bit_and: Elementwise; a and b have one dtype and broadcast.

    floats: refused
    gradient of a, gradient of b: none
    """
    return call("binary", [a, b], {"kind": "bit_and"}, (True,), (0, 1))


def bit_or(a: ArrayLike, b: ArrayLike) -> Array:
    """bit_or: Elementwise; a and b have one dtype and broadcast.

    floats: refused
    gradient of a, gradient of b: none
    """
    return call("binary", [a, b], {"kind": "bit_or"}, (True,), (0, 1))


def bit_xor(a: ArrayLike, b: ArrayLike) -> Array:
    """bit_xor: Elementwise; a and b have one dtype and broadcast.

    floats: refused
    gradient of a, gradient of b: none
    """
    return call("binary", [a, b], {"kind": "bit_xor"}, (True,), (0, 1))


def shift_left(a: ArrayLike, b: ArrayLike) -> Array:
    """shift_left: Elementwise; a and b have one dtype and broadcast.

    floats: refused
    gradient of a, gradient of b: none
    """
    return call("binary", [a, b], {"kind": "shift_left"}, (True,), (0, 1))


def shift_right(a: ArrayLike, b: ArrayLike) -> Array:
    """shift_right: Elementwise; a and b have one dtype and broadcast.

    floats: refused
    gradient of a, gradient of b: none
    """
    return call("binary", [a, b], {"kind": "shift_right"}, (True,), (0, 1))


def equal(a: ArrayLike, b: ArrayLike) -> Array:
    """eq: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "eq"}, (True,), (0, 1))


def not_equal(a: ArrayLike, b: ArrayLike) -> Array:
    """ne: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "ne"}, (True,), (0, 1))


def less(a: ArrayLike, b: ArrayLike) -> Array:
    """lt: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "lt"}, (True,), (0, 1))


def less_equal(a: ArrayLike, b: ArrayLike) -> Array:
    """le: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "le"}, (True,), (0, 1))


def greater(a: ArrayLike, b: ArrayLike) -> Array:
    """gt: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "gt"}, (True,), (0, 1))


def greater_equal(a: ArrayLike, b: ArrayLike) -> Array:
    """ge: Elementwise comparison, as a bool; a and b have one dtype and broadcast."""
    return call("compare", [a, b], {"kind": "ge"}, (True,), (0, 1))


def logical_and(a: ArrayLike, b: ArrayLike) -> Array:
    """and: Elementwise, of bools."""
    return call("logical", [a, b], {"kind": "and"}, (True,))


def logical_or(a: ArrayLike, b: ArrayLike) -> Array:
    """or: Elementwise, of bools."""
    return call("logical", [a, b], {"kind": "or"}, (True,))


def logical_xor(a: ArrayLike, b: ArrayLike) -> Array:
    """xor: Elementwise, of bools."""
    return call("logical", [a, b], {"kind": "xor"}, (True,))


def logical_not(a: ArrayLike) -> Array:
    """not: Elementwise, of bools."""
    return call("logical", [a], {"kind": "not"}, (True,))


def negative(x: ArrayLike) -> Array:
    """neg: Elementwise.

    y: -x; wraps for the lowest integer
    slope dy/dx: -1
    """
    return call("unary", [x], {"kind": "neg"}, (True,))


def abs(x: ArrayLike) -> Array:
    """abs: Elementwise.

    y: the absolute value; wraps for the lowest integer
    slope dy/dx: sign x
    """
    return call("unary", [x], {"kind": "abs"}, (True,))


def sign(x: ArrayLike) -> Array:
    """sign: Elementwise.

    y: -1, 0, 1; NaN stays NaN
    slope dy/dx: 0
    """
    return call("unary", [x], {"kind": "sign"}, (True,))


def exp(x: ArrayLike) -> Array:
    """exp: Elementwise.

    y: e^x
    slope dy/dx: y
    """
    return call("unary", [x], {"kind": "exp"}, (True,))


def expm1(x: ArrayLike) -> Array:
    """expm1: Elementwise.

    y: e^x - 1, accurate near 0
    slope dy/dx: e^x
    """
    return call("unary", [x], {"kind": "expm1"}, (True,))


def log(x: ArrayLike) -> Array:
    """log: Elementwise.

    y: ln x; log 0 = -inf, log of x < 0 = NaN
    slope dy/dx: 1/x
    """
    return call("unary", [x], {"kind": "log"}, (True,))


def log1p(x: ArrayLike) -> Array:
    """log1p: Elementwise.

    y: ln(1 + x), accurate near 0
    slope dy/dx: 1/(1+x)
    """
    return call("unary", [x], {"kind": "log1p"}, (True,))


def sqrt(x: ArrayLike) -> Array:
    """sqrt: Elementwise.

    y: √x; NaN for x < 0
    slope dy/dx: 1/(2y); inf at 0
    """
    return call("unary", [x], {"kind": "sqrt"}, (True,))


def rsqrt(x: ArrayLike) -> Array:
    """rsqrt: Elementwise.

    y: 1/√x; inf at 0, NaN for x < 0
    slope dy/dx: -y³/2; -inf at 0
    """
    return call("unary", [x], {"kind": "rsqrt"}, (True,))


def floor(x: ArrayLike, *, ste: builtins.bool = False) -> Array:
    """floor: Elementwise.

    y: the largest integer ≤ x
    slope dy/dx: 0, or 1 with ste
    """
    return call("unary", [x], {"kind": "floor", "ste": ste}, (True,))


def ceil(x: ArrayLike, *, ste: builtins.bool = False) -> Array:
    """ceil: Elementwise.

    y: the smallest integer ≥ x
    slope dy/dx: 0, or 1 with ste
    """
    return call("unary", [x], {"kind": "ceil", "ste": ste}, (True,))


def trunc(x: ArrayLike, *, ste: builtins.bool = False) -> Array:
    """trunc: Elementwise.

    y: x without its fraction
    slope dy/dx: 0, or 1 with ste
    """
    return call("unary", [x], {"kind": "trunc", "ste": ste}, (True,))


def round(x: ArrayLike, *, ste: builtins.bool = False) -> Array:
    """round: Elementwise.

    y: the nearest integer, halves to even: round(2.5) = 2
    slope dy/dx: 0, or 1 with ste
    """
    return call("unary", [x], {"kind": "round", "ste": ste}, (True,))


def sin(x: ArrayLike) -> Array:
    """sin: Elementwise.

    y: sin x, accurate for all x
    slope dy/dx: cos x
    """
    return call("unary", [x], {"kind": "sin"}, (True,))


def cos(x: ArrayLike) -> Array:
    """cos: Elementwise.

    y: cos x, accurate for all x
    slope dy/dx: -sin x
    """
    return call("unary", [x], {"kind": "cos"}, (True,))


def tan(x: ArrayLike) -> Array:
    """tan: Elementwise.

    y: tan x
    slope dy/dx: 1 + y²
    """
    return call("unary", [x], {"kind": "tan"}, (True,))


def atan(x: ArrayLike) -> Array:
    """atan: Elementwise.

    y: arctan x
    slope dy/dx: 1/(1+x²)
    """
    return call("unary", [x], {"kind": "atan"}, (True,))


def asin(x: ArrayLike) -> Array:
    """asin: Elementwise.

    y: arcsin x; NaN outside [-1, 1]
    slope dy/dx: 1/√(1-x²)
    """
    return call("unary", [x], {"kind": "asin"}, (True,))


def acos(x: ArrayLike) -> Array:
    """acos: Elementwise.

    y: arccos x; NaN outside [-1, 1]
    slope dy/dx: -1/√(1-x²)
    """
    return call("unary", [x], {"kind": "acos"}, (True,))


def sinh(x: ArrayLike) -> Array:
    """sinh: Elementwise.

    y: (e^x - e^-x)/2
    slope dy/dx: cosh x
    """
    return call("unary", [x], {"kind": "sinh"}, (True,))


def cosh(x: ArrayLike) -> Array:
    """cosh: Elementwise.

    y: (e^x + e^-x)/2
    slope dy/dx: sinh x
    """
    return call("unary", [x], {"kind": "cosh"}, (True,))


def tanh(x: ArrayLike) -> Array:
    """tanh: Elementwise.

    y: sinh x / cosh x
    slope dy/dx: 1 - y²
    """
    return call("unary", [x], {"kind": "tanh"}, (True,))


def erf(x: ArrayLike) -> Array:
    """erf: Elementwise.

    y: 2/√π · ∫₀ˣ e^(-t²) dt
    slope dy/dx: 2/√π · e^(-x²)
    """
    return call("unary", [x], {"kind": "erf"}, (True,))


def erfc(x: ArrayLike) -> Array:
    """erfc: Elementwise.

    y: 1 - erf x, accurate for large x
    slope dy/dx: -2/√π · e^(-x²)
    """
    return call("unary", [x], {"kind": "erfc"}, (True,))


def is_nan(x: ArrayLike) -> Array:
    """is_nan: Elementwise.

    y: true for NaN
    slope dy/dx: none
    """
    return call("unary", [x], {"kind": "is_nan"}, (True,))


def is_inf(x: ArrayLike) -> Array:
    """is_inf: Elementwise.

    y: true for inf and -inf
    slope dy/dx: none
    """
    return call("unary", [x], {"kind": "is_inf"}, (True,))


def reciprocal(x: ArrayLike) -> Array:
    """reciprocal: Elementwise.

    y: 1/x
    slope dy/dx: -y²; -inf at 0
    """
    return call("unary", [x], {"kind": "reciprocal"}, (True,))


def square(x: ArrayLike) -> Array:
    """square: Elementwise.

    y: x²; integers wrap
    slope dy/dx: 2x
    """
    return call("unary", [x], {"kind": "square"}, (True,))


def relu(x: ArrayLike) -> Array:
    """relu: Elementwise.

    y: max(x, 0); NaN stays NaN
    slope dy/dx: 1 for x > 0, else 0
    """
    return call("unary", [x], {"kind": "relu"}, (True,))


def leaky_relu(x: ArrayLike, *, alpha: float | None = None) -> Array:
    """leaky_relu: Elementwise.

    parameters: alpha=0.01
    y: x < 0: alpha·x, else x
    slope dy/dx: alpha, 1
    """
    return call("unary", [x], {"kind": "leaky_relu", "alpha": alpha}, (True,))


def elu(x: ArrayLike, *, alpha: float | None = None) -> Array:
    """elu: Elementwise.

    parameters: alpha=1.0
    y: x < 0: alpha·(e^x - 1), else x
    slope dy/dx: alpha·e^x, 1
    """
    return call("unary", [x], {"kind": "elu", "alpha": alpha}, (True,))


def selu(x: ArrayLike, *, alpha: float | None = None, beta: float | None = None) -> Array:
    """selu: Elementwise.

    parameters: alpha=1.6732632423543772 beta=1.0507009873554805
    y: x < 0: beta·alpha·(e^x - 1), else beta·x
    slope dy/dx: beta·alpha·e^x, beta
    """
    return call("unary", [x], {"kind": "selu", "alpha": alpha, "beta": beta}, (True,))


def sigmoid(x: ArrayLike) -> Array:
    """sigmoid: Elementwise.

    y: σ(x), without overflow
    slope dy/dx: σ(x)·σ(-x)
    """
    return call("unary", [x], {"kind": "sigmoid"}, (True,))


def hard_sigmoid(x: ArrayLike, *, alpha: float | None = None, beta: float | None = None) -> Array:
    """hard_sigmoid: Elementwise.

    parameters: alpha=0.2 beta=0.5
    y: clamp(alpha·x + beta, 0, 1)
    slope dy/dx: alpha strictly inside (0, 1), else 0
    """
    return call("unary", [x], {"kind": "hard_sigmoid", "alpha": alpha, "beta": beta}, (True,))


def softplus(x: ArrayLike) -> Array:
    """softplus: Elementwise.

    y: max(x, 0) + ln(1 + e^-abs(x))
    slope dy/dx: σ(x)
    """
    return call("unary", [x], {"kind": "softplus"}, (True,))


def softsign(x: ArrayLike) -> Array:
    """softsign: Elementwise.

    y: x/(1 + abs x)
    slope dy/dx: 1/(1 + abs x)²
    """
    return call("unary", [x], {"kind": "softsign"}, (True,))


def silu(x: ArrayLike, *, alpha: float | None = None) -> Array:
    """silu: Elementwise.

    parameters: alpha=1.0
    y: x·σ(alpha·x)
    slope dy/dx: s·(1 + alpha·x·σ(-alpha·x)) with s = σ(alpha·x)
    """
    return call("unary", [x], {"kind": "silu", "alpha": alpha}, (True,))


def hard_swish(x: ArrayLike) -> Array:
    """hard_swish: Elementwise.

    y: x·clamp(x/6 + 0.5, 0, 1)
    slope dy/dx: 0 for x ≤ -3, 1 for x ≥ 3, else x/3 + 0.5
    """
    return call("unary", [x], {"kind": "hard_swish"}, (True,))


def mish(x: ArrayLike) -> Array:
    """mish: Elementwise.

    y: x·tanh(softplus x)
    slope dy/dx: t + x·σ(x)·(1 - t²) with t = tanh(softplus x)
    """
    return call("unary", [x], {"kind": "mish"}, (True,))


def gelu(x: ArrayLike) -> Array:
    """gelu: Elementwise.

    y: x·Φ(x), accurate in the negative tail
    slope dy/dx: Φ(x) + x·φ(x)
    """
    return call("unary", [x], {"kind": "gelu"}, (True,))


def gelu_tanh(x: ArrayLike) -> Array:
    """gelu_tanh: Elementwise.

    y: x·σ(2u), u = √(2/π)·(x + 0.044715x³), which is x/2·(1 + tanh u)
    slope dy/dx: σ(2u) + x·σ(2u)·σ(-2u)·2√(2/π)·(1 + 0.134145x²)
    """
    return call("unary", [x], {"kind": "gelu_tanh"}, (True,))


def exp2(x: ArrayLike) -> Array:
    """exp2: Elementwise.

    y: 2^x, exact for whole x
    slope dy/dx: y·ln 2
    """
    return call("unary", [x], {"kind": "exp2"}, (True,))


def log2(x: ArrayLike) -> Array:
    """log2: Elementwise.

    y: the logarithm to base 2, exact for powers of two; edges as log
    slope dy/dx: 1/(x·ln 2)
    """
    return call("unary", [x], {"kind": "log2"}, (True,))


def asinh(x: ArrayLike) -> Array:
    """asinh: Elementwise.

    y: the inverse of sinh, accurate near 0
    slope dy/dx: 1/√(1+x²)
    """
    return call("unary", [x], {"kind": "asinh"}, (True,))


def acosh(x: ArrayLike) -> Array:
    """acosh: Elementwise.

    y: the inverse of cosh, ≥ 0; NaN for x < 1
    slope dy/dx: 1/√(x²-1); inf at 1
    """
    return call("unary", [x], {"kind": "acosh"}, (True,))


def atanh(x: ArrayLike) -> Array:
    """atanh: Elementwise.

    y: the inverse of tanh; ±inf at ±1, NaN beyond
    slope dy/dx: 1/(1-x²)
    """
    return call("unary", [x], {"kind": "atanh"}, (True,))


def cast(x: ArrayLike, to: DTypeLike | None = None, *, saturate: builtins.bool = True) -> Array:
    """Converts x to dtype to. y has the shape of x.

    | from, to | result |
    |---|---|
    | float to float | nearest, ties to even; overflow to ±inf; NaN stays NaN |
    | float to integer, i4, u4 | truncates toward zero, saturates at the ends of the range; NaN gives 0 |
    | integer to integer, i4, u4 | wraps (keeps the low bits) |
    | integer to float | nearest, one rounding |
    | any to bool | x ≠ 0; NaN is true, -0 is false |
    | bool to any | 0 or 1 |
    | any to f8e4m3, f8e5m2 | nearest, ties to even; NaN stays NaN; see saturate |
    | float to q8_0 | blocks of 32 elements along the last axis, whose dim is a multiple of 32; see below |

    - to: required. To c64 and c128 from a number, bool or a complex number: the imaginary part of a real number is
      0. A complex number is cast to c64 and c128 only; other casts are refused as unsupported. view_as_real gives
      its parts.
    - saturate: only for 8-bit floats. With true, numbers that are too large, and infinities, become the largest
      finite number with their sign (448, 57344). With false they become ±inf in f8e5m2, and NaN in f8e4m3, which has
      no infinity.

    A block of q8_0 is made of its numbers x, rounded to f32, as follows. All operations are of f32:

        d = max |x| / 127,  level = round(x · (1/d)), ties away from 0,  scale = d as f16, at most 65504

    The levels are 0 if 1/d is not finite. If a number is NaN or infinite, the scale is NaN, and so are all elements
    of the block. llm convert writes the same blocks. No other dtype of blocks is cast to, and blocks are not cast:
    dequantize_blocks makes numbers of them. A device may refuse blocks.

    A cast to the dtype of x returns x; inside a fused body it rounds (see elementwise_region).

    Gradient: own rule.
    """
    return call("cast", [x], {"to": None if to is None else DType.of(to), "saturate": saturate}, (True,))


def copy(x: ArrayLike) -> Array:
    """y is x, bit for bit, as a dense tensor. NaN payloads are kept. Any dtype. Strided operands reach only this op and
    kernels that accept strides.

    Gradient: own rule.
    """
    return call("copy", [x], {}, (True,))


def stop_gradient(x: ArrayLike) -> Array:
    """y is x, bit for bit. Any dtype. Plans leave it out when the gradients are written.

    Gradient: own rule.
    """
    return call("stop_gradient", [x], {}, (True,))


def where(cond: ArrayLike, a: ArrayLike, b: ArrayLike) -> Array:
    """y = cond ? a : b. cond is bool; a and b have one dtype, any; all three broadcast to y. It is a selection: a NaN
    in the branch that is not taken has no effect.

    Gradient: own rule.
    """
    return call("where", [cond, a, b], {}, (True,), (1, 2))


def swiglu(
    gate: ArrayLike,
    up: ArrayLike | None = None,
    *,
    act: str = "silu",
    gate_first: builtins.bool = True,
) -> Array:
    """y = act(gate)·up, with one rounding.

    - Two operands: gate and up have one float dtype and one shape; y has the same. gate_first must be true.
    - Packed: up is absent and gate is [..., 2N]; y is [..., N]. Its first half is the gate if gate_first is true,
      else its second half. An odd last dim is refused.
    - act: silu, gelu, gelu_tanh, relu or sigmoid, as in unary with default parameters.

    Values of act: silu gelu gelu_tanh relu sigmoid.
    Gradient: own rule.
    """
    return call("swiglu", [gate, up], {"act": act, "gate_first": gate_first}, (True,))


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    trans_a: builtins.bool = False,
    trans_b: builtins.bool = False,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    f32_precision: str = "ieee",
) -> Array:
    """y = alpha · op(a)·op(b), where op transposes the last two axes on request. Shapes as in NumPy:

    | a | b | y |
    |---|---|---|
    | [..., M, K] | [..., K, N] | [..., M, N]; the leading dims broadcast |
    | [K] | [..., K, N] | [..., N] |
    | [..., M, K] | [K] | [..., M] |
    | [K] | [K] | scalar |

    - trans_a, trans_b: the operand is stored as [..., K, M] or [..., N, K]. Refused for rank 1.
    - alpha: multiplies the sum. Finite.
    - out_dtype: the dtype of y; see below.
    - f32_precision: ieee computes f32 products in f32. tf32 permits operands rounded to 10 mantissa bits. Products
      of other dtypes ignore it.

    | dtypes of a, b | out_dtype | sums |
    |---|---|---|
    | both f32, both f64 | none, or that dtype | in that dtype |
    | both f16, both bf16 | none, that dtype, or f32 | in f32, rounded once |
    | f16 or bf16 beside f32 | none or f32 | as f32; the half is widened, which is exact |
    | both i8, both u8 | i32, required; alpha must be 1 | exact, then cut to 32 bits |
    | both i32, both i64, both u32, both u64 | none, or that dtype; alpha must be 1 | wrap |

    Edge cases. K = 0 gives zeros.

    Primitive, except a half beside f32: a device that refuses it gets a cast and a plain product.

    Values of out_dtype: none f32 f16 bf16 f64 i32 i64 u32 u64.
    Values of f32_precision: ieee tf32.
    Gradient: own rule.
    """
    return call(
        "matmul",
        [a, b],
        {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "out_dtype": None if out_dtype is None else
         DType.of(out_dtype), "f32_precision": f32_precision},
        (True,),
    )


@overload
def linear(
    a: ArrayLike,
    b: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    trans_a: builtins.bool = False,
    trans_b: builtins.bool = False,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    f32_precision: str = "ieee",
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def linear(
    a: ArrayLike,
    b: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    trans_a: builtins.bool = False,
    trans_b: builtins.bool = False,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    f32_precision: str = "ieee",
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def linear(
    a: ArrayLike,
    b: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    trans_a: builtins.bool = False,
    trans_b: builtins.bool = False,
    alpha: float = 1.0,
    out_dtype: DTypeLike | None = None,
    f32_precision: str = "ieee",
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: builtins.bool = False,
) -> Any:
    """z = alpha·op(a)·op(b) + bias, y = act(z) + residual. One rounding of each output; bias, act and residual are
    applied in the accumulation dtype.

    - a, b, trans_a, trans_b, alpha, out_dtype, f32_precision (ieee, tf32): as in matmul, floats only.
    - bias: [N], in the dtype of y or f32. If b has rank 1, [1].
    - residual: the type of y.
    - act: none, or a kind of unary except is_nan and is_inf. act_alpha, act_beta: its parameters.
    - pre_act: z in the dtype of y.

    Values of out_dtype: none f32 f16 bf16 f64 i32 i64 u32 u64.
    Values of f32_precision: ieee tf32.
    Gradient: own rule.
    """
    return call(
        "linear",
        [a, b, bias, residual],
        {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "out_dtype": None if out_dtype is None else
         DType.of(out_dtype), "f32_precision": f32_precision, "act": act, "act_alpha": act_alpha, "act_beta": act_beta},
        (True, all_outputs),
    )


def lora_matmul(x: ArrayLike, w: ArrayLike, a: ArrayLike, b: ArrayLike, *, scale: float = 1.0) -> Array:
    """y = x·w + scale·(x·a)·b. The sum is rounded once; x·a stays in the accumulation dtype.

    - x [..., K], w [K, N], a [K, r], b [r, N], y [..., N]. One float dtype.
    - scale: finite.

    Edge cases. r = 0 gives x·w.

    Gradient: own rule.
    """
    return call("lora_matmul", [x, w, a, b], {"scale": scale}, (True,))


def grouped_matmul(
    x: ArrayLike,
    w: ArrayLike,
    ids: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    p: ArrayLike | None = None,
    *,
    trans_w: builtins.bool = False,
) -> Array:
    """Each row is multiplied by the matrix of its expert: y[i] = p[i] · x[i]·w[e(i)].

    - x [M, K], w [E, K, N] (with trans_w [E, N, K]), y [M, N]. One float dtype.
    - Exactly one of ids and offsets names the experts, both of index dtypes. ids [M] holds e(i); -1 drops the row.
      offsets [E+1] says that expert e has the rows from offsets[e] to offsets[e+1].
    - p [M]: scales rows, in the dtype of x or f32. Absent: 1.

    Edge cases.

    - A dropped row is 0, even if p or x holds NaN.
    - An id outside [-1, E) fails with index_out_of_range. So do offsets that do not begin at 0, descend, or do not
      end at M.
    - E = 0 is refused if M > 0.

    Gradient: own rule.
    """
    return call("grouped_matmul", [x, w, ids, offsets, p], {"trans_w": trans_w}, (True,))


def sum(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """sum: Reduces x over axes; () means all of them.

    result: Σ x
    of no elements: 0
    gradient of x: dy
    """
    return call(
        "reduce",
        [x],
        {"kind": "sum", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def mean(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """mean: Reduces x over axes; () means all of them.

    result: Σ x / n
    of no elements: NaN; 0 for integers
    gradient of x: dy/n
    """
    return call(
        "reduce",
        [x],
        {"kind": "mean", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def max(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """max: Reduces x over axes; () means all of them.

    result: the largest; NaN if there is one
    of no elements: -inf; the lowest integer; false
    gradient of x: dy/c to each of the c elements that equal the result; if the result is NaN, to the NaNs
    """
    return call(
        "reduce",
        [x],
        {"kind": "max", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def min(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """min: Reduces x over axes; () means all of them.

    result: the smallest; NaN if there is one
    of no elements: inf; the largest integer; true
    gradient of x: as max
    """
    return call(
        "reduce",
        [x],
        {"kind": "min", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def prod(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """prod: Reduces x over axes; () means all of them.

    result: Π x
    of no elements: 1
    gradient of x: dy times the product of all other elements, without division
    """
    return call(
        "reduce",
        [x],
        {"kind": "prod", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def sum_square(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """sum_square: Reduces x over axes; () means all of them.

    result: Σ x²
    of no elements: 0
    gradient of x: 2x·dy
    """
    return call(
        "reduce",
        [x],
        {"kind": "sum_square", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def l1(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """l1: Reduces x over axes; () means all of them.

    result: Σ abs x
    of no elements: 0
    gradient of x: sign(x)·dy
    """
    return call(
        "reduce",
        [x],
        {"kind": "l1", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def l2(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """l2: Reduces x over axes; () means all of them.

    result: √(Σ x²)
    of no elements: 0
    gradient of x: x·dy/y; 0 where y = 0
    """
    return call(
        "reduce",
        [x],
        {"kind": "l2", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def logsumexp(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """logsumexp: Reduces x over axes; () means all of them.

    result: ln Σ e^x, computed as m + ln Σ e^(x-m) with the maximum m; m if it is infinite
    of no elements: -inf
    gradient of x: dy·e^x / Σ e^x
    """
    return call(
        "reduce",
        [x],
        {"kind": "logsumexp", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def any(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """any: Reduces x over axes; () means all of them.

    result: true if an element is true
    of no elements: false
    gradient of x: none
    """
    return call(
        "reduce",
        [x],
        {"kind": "any", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def all(x: ArrayLike, axes: int | Sequence[int] = (), *, keepdims: builtins.bool = False) -> Array:
    """all: Reduces x over axes; () means all of them.

    result: true if all elements are true
    of no elements: true
    gradient of x: none
    """
    return call(
        "reduce",
        [x],
        {"kind": "all", "axes": (axes,) if isinstance(axes, int) else tuple(axes), "keepdims": keepdims},
        (True,),
    )


def softmax(x: ArrayLike, axis: int = -1, *, log: builtins.bool = False) -> Array:
    """Along axis: y = e^(x-m) / Σ e^(x-m), where m is the maximum. With log true: y = x - m - ln Σ e^(x-m). x is a
    float; y has its type.

    Edge cases. A row with NaN or +inf, or of -inf alone, is NaN. Beside finite elements, -inf gives 0 (log: -inf).
    An axis of length 0 gives an empty result.

    Gradient: own rule.
    """
    return call("softmax", [x], {"axis": axis, "log": log}, (True,))


@overload
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike | None = None,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike | None = None,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike | None = None,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    all_outputs: builtins.bool = False,
) -> Any:
    """Softmax and negative log likelihood. For each item, with class scores x, label c, lse = ln Σ e^x, smoothing ε and
    C classes:

        l = (1-ε) · w[c] · (lse - x[c]) + ε/C · Σ_k w[k] · (lse - x[k])

    - logits: float, with the classes along axis. labels: index dtype, the shape of logits without axis.
    - weight [C]: weights w of the classes, in the dtype of logits or its accumulation dtype. Absent: 1.
    - ignore_index: items with this label give 0. It must fit the dtype of labels.
    - label_smoothing: ε, in [0, 1).
    - reduction: none gives l for each item. sum adds them up. mean divides the sum by Σ w[c] over the items that are
      not ignored.
    - loss: in the accumulation dtype; the shape of labels, or a scalar. lse: the accumulation dtype, the shape of
      labels.

    Edge cases.

    - A label outside [0, C) that is not ignore_index fails with index_out_of_range. Negative labels do not count
      from the end.
    - If all items are ignored, or there is none, mean is NaN, sum is 0.
    - A logit of -inf at the label, or anywhere with ε > 0, gives inf. A row of -inf alone gives NaN.
    - C = 0 is refused if there are items.
    - The maximum is subtracted first, so large logits lose no digits.

    Values of reduction: none sum mean.
    Gradient: own rule.
    """
    return call(
        "cross_entropy",
        [logits, labels, weight],
        {"axis": axis, "ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction},
        (True, all_outputs),
    )


def argmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    keepdims: builtins.bool = False,
    select_last: builtins.bool = False,
) -> Array:
    """The position of the largest element along axis, as i64. y has the shape of x without the axis, or with a dim of 1
    if keepdims is true.

    - select_last: among equal elements the last one, instead of the first.
    - x: number or bool; false is smaller than true.
    - The first NaN wins, also with select_last.
    - An axis of length 0 is refused (shape_mismatch).

    Gradient: by decomposition.
    """
    return call("argmax", [x], {"axis": axis, "keepdims": keepdims, "select_last": select_last}, (True,))


def argmin(
    x: ArrayLike,
    axis: int = -1,
    *,
    keepdims: builtins.bool = False,
    select_last: builtins.bool = False,
) -> Array:
    """As argmax with the smallest element: x, y, axis, keepdims, select_last. The first NaN wins here, too.

    Gradient: by decomposition.
    """
    return call("argmin", [x], {"axis": axis, "keepdims": keepdims, "select_last": select_last}, (True,))


def topk(
    x: ArrayLike,
    *,
    k: int = 0,
    axis: int = -1,
    largest: builtins.bool = True,
    sorted: builtins.bool = True,
) -> tuple[Array, Array]:
    """The k first elements of x along axis: the largest ones, or the smallest ones if largest is false.

    - k: in [0, d] for an axis of length d. The axis of the outputs has length k.
    - x: number or bool; false is smaller than true. values: the dtype of x. indices: their positions, i64, all
      distinct.
    - Equal values: lower positions first. The largest first: NaN precedes inf. The smallest first: NaN comes last.
    - sorted: with true, the outputs are in this order. With false, a kernel may return the k elements in any order;
      the decomposition returns them sorted.

    Gradient: own rule.
    """
    return call("topk", [x], {"k": k, "axis": axis, "largest": largest, "sorted": sorted}, (True, True))


def sort(
    x: ArrayLike,
    axis: int = -1,
    *,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> tuple[Array, Array]:
    """Sorts x, of numbers or bools, along axis; false comes before true. values has the type of x; indices holds the
    original positions, i64.

    - descending: with true, the largest first; NaN then comes first. Equal values keep their order in both
      directions.
    - stable: the sort is always stable. False changes nothing.

    Primitive, except of bool: a device that refuses that gets a cast to u8 and back.

    Gradient: own rule.
    """
    return call("sort", [x], {"axis": axis, "descending": descending, "stable": stable}, (True, True))


def cumsum(x: ArrayLike, axis: int = -1, *, exclusive: builtins.bool = False, reverse: builtins.bool = False) -> Array:
    """Running sums along axis: y[i] = Σ x[j] for j ≤ i. x is a number or bool; y has its type, but counts bools in i64.

    - exclusive: j < i, so that the first result is 0.
    - reverse: sums from the end: j ≥ i, or j > i.

    Numbers. The running sum of halves stays in f32; each result is rounded once. Sums of f32 are made in blocks, or
    in a wider sum. Integers wrap.

    Primitive, except of bool: a device that refuses that gets a cast to i64.

    Gradient: own rule.
    """
    return call("cumsum", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse}, (True,))


def cumprod(x: ArrayLike, axis: int = -1, *, exclusive: builtins.bool = False, reverse: builtins.bool = False) -> Array:
    """Running products along axis: y[i] = Π x[j] for j ≤ i. x is a number or bool; y has its type, but counts bools in
    i64.

    - exclusive: j < i, so that the first result is 1.
    - reverse: products from the end: j ≥ i, or j > i.

    Numbers. The running product of halves stays in f32 or wider. Integers wrap.

    Gradient: by decomposition.
    """
    return call("cumprod", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse}, (True,))


def random_bits(rng: ArrayLike, shape: Sequence[int] = ()) -> Array:
    """Random words, u32, of shape. The generator is Philox4x32-10: multipliers 0xD2511F53 and 0xCD9E8D57, Weyl
    constants 0x9E3779B9 and 0xBB67AE85.

    - Key: the seed, low word first. Counter of block j: (j, j >> 32, offset, offset >> 32), each cut to 32 bits.
    - Block j gives the elements 4j to 4j+3 of the flattened y.
    - rng: seed and offset.

    Gradient: none.
    """
    return call("random_bits", [rng], {"shape": tuple(shape)}, (True,))


def random_uniform(rng: ArrayLike, shape: Sequence[int] = (), *, dtype: DTypeLike | None = "f32") -> Array:
    """Numbers in [0, 1), of shape and dtype (f32 or f64), from the words w of random_bits for rng:

    | dtype | element i of y |
    |---|---|
    | f32 | (w[i] >> 8) · 2^-24 |
    | f64 | ((w[2i] >> 5) · 2^26 + (w[2i+1] >> 6)) · 2^-53 |

    Values of dtype: f32 f64.
    Gradient: by decomposition.
    """
    return call(
        "random_uniform",
        [rng],
        {"shape": tuple(shape), "dtype": None if dtype is None else DType.of(dtype)},
        (True,),
    )


def random_normal(rng: ArrayLike, shape: Sequence[int] = (), *, dtype: DTypeLike | None = "f32") -> Array:
    """y holds normal numbers (mean 0, deviation 1), of shape and dtype (f32 or f64), by Box-Muller. With the numbers u
    of random_uniform for rng, and r = √(-2·ln(1 - u[2j])):

    - y[2j] = r · cos(2π·u[2j+1])
    - y[2j+1] = r · sin(2π·u[2j+1])

    An odd number of elements drops the last sine.

    Values of dtype: f32 f64.
    Gradient: by decomposition.
    """
    return call(
        "random_normal",
        [rng],
        {"shape": tuple(shape), "dtype": None if dtype is None else DType.of(dtype)},
        (True,),
    )


def dropout(x: ArrayLike, rng: ArrayLike, *, p: float = 0.5) -> Array:
    """y = u ≥ p ? x/(1-p) : 0, where u is random_uniform in f32 of the shape of x, for rng. The mask does not depend on
    the dtype of x.

    - x: float; y has its type. p: in [0, 1).
    - A dropped element is 0, even if it is NaN.

    Gradient: own rule.
    """
    return call("dropout", [x, rng], {"p": p}, (True,))


@overload
def sample(
    logits: ArrayLike,
    rng: ArrayLike,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def sample(
    logits: ArrayLike,
    rng: ArrayLike,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def sample(
    logits: ArrayLike,
    rng: ArrayLike,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    all_outputs: builtins.bool = False,
) -> Any:
    """Draws one column per row of logits [B, V], a float. ids [B] is i64; logprob [B] is f32. All steps compute in f32,
    per row:

    1. If temperature is 0: the position of the largest logit (the first of equals), logprob 0. Done.
    2. Divide by temperature; numbers below 1e-30 count as 1e-30.
    3. top_k > 0: keep the min(top_k, V) largest, in the order of topk. 0: all.
    4. top_p < 1: in that order keep the shortest prefix whose sum of probabilities (softmax over the kept) is at
    least top_p, and at least one column.
    5. min_p > 0: drop columns with a probability below min_p times the largest one.
    6. Draw u in [0, 1). The kept columns have the weights w = e^(x - max), whose sum is Z. The result is the first
    kept column, in index order, whose running sum of weights exceeds u·Z. Running sums are f64. A column of weight 0
    is never drawn.

    logprob = ln(w/Z) of the drawn column: after temperature and filters.

    - rng: row i uses the words w0, w1 of block i of random_bits: u = ((w0 >> 5)·2^26 + (w1 >> 6))·2^-53.
    - Allowed: temperature ≥ 0 and finite, top_k ≥ 0, top_p not NaN, min_p in [0, 1].

    Edge cases. -inf excludes a column. A row with NaN or inf, or without a finite logit, fails with numeric_error;
    where the op is decomposed, with index_out_of_range. V = 0 is refused if B > 0.

    Gradient: none.
    """
    return call(
        "sample",
        [logits, rng],
        {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p},
        (True, all_outputs),
    )


@overload
def layer_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def layer_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def layer_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """Normalizes the axes from axis to the last. With μ and v the mean and variance of a row of x, r = 1/√(v + eps), x̂
    = (x - μ)·r:

        y = x̂·gamma + beta

    - gamma, beta: the normalized dims. Absent: 1 and 0.
    - y: the type of x. mean (μ) and inv_std (r): the shape of x with 1 at the normalized axes.

    Gradient: own rule.
    """
    return call("layer_norm", [x, gamma, beta], {"axis": axis, "eps": eps}, (True, all_outputs, all_outputs))


@overload
def residual_layer_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def residual_layer_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array, Array]: ...
def residual_layer_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """s = x + residual + bias, y = layer_norm(s). The norm uses s before rounding.

    - x, residual: one type. bias: the normalized dims; absent: 0.
    - sum: s, rounded to the dtype of x.
    - gamma, beta, axis, eps, y, mean, inv_std: as in layer_norm.

    Gradient: own rule.
    """
    return call(
        "residual_layer_norm",
        [x, residual, bias, gamma, beta],
        {"axis": axis, "eps": eps},
        (True, all_outputs, all_outputs, all_outputs),
    )


@overload
def rms_norm(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def rms_norm(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def rms_norm(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """Over the axes of x from axis to the last: r = 1/√(mean(x²) + eps), y = x·r·gamma + beta.

    - gamma: the normalized dims, required. beta: the same shape; absent: 0.
    - y: the type of x. inv_rms (r): the shape of x with 1 at the normalized axes.

    Edge cases. If x² overflows the accumulation dtype, r is 0, and so is x·r for finite x.

    Gradient: own rule.
    """
    return call("rms_norm", [x, gamma, beta], {"axis": axis, "eps": eps}, (True, all_outputs))


@overload
def residual_rms_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def residual_rms_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def residual_rms_norm(
    x: ArrayLike,
    residual: ArrayLike,
    bias: ArrayLike | None,
    gamma: ArrayLike,
    beta: ArrayLike | None = None,
    axis: int = -1,
    *,
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """s = x + residual + bias, y = rms_norm(s). The norm uses s before rounding.

    - x, residual, bias, sum: as in residual_layer_norm.
    - gamma, beta, axis, eps, y, inv_rms: as in rms_norm.

    Gradient: own rule.
    """
    return call(
        "residual_rms_norm",
        [x, residual, bias, gamma, beta],
        {"axis": axis, "eps": eps},
        (True, all_outputs, all_outputs),
    )


@overload
def group_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    groups: int = 1,
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def group_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    groups: int = 1,
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def group_norm(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    groups: int = 1,
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """x is [N, C, ...], of rank 2 or more. The channels form groups groups of C/groups neighbours. μ and v are the mean
    and variance over the channels and pixels of a group, for each n; r = 1/√(v + eps):

        y = (x - μ)·r·gamma[c] + beta[c]

    - groups: at least 1, a divisor of C. 1 normalizes over everything, C is the instance norm.
    - gamma, beta: [C]. Absent: 1 and 0. eps as in the other norms.
    - y: the type of x. mean (μ) and inv_std (r): [N, groups].

    Gradient: own rule.
    """
    return call("group_norm", [x, gamma, beta], {"groups": groups, "eps": eps}, (True, all_outputs, all_outputs))


@overload
def layer_norm2d(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def layer_norm2d(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def layer_norm2d(
    x: ArrayLike,
    gamma: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    *,
    eps: float = 1e-6,
    all_outputs: builtins.bool = False,
) -> Any:
    """x is [N, C, H, W]. Normalizes over the channels at each pixel, with the formula of layer_norm.

    - gamma, beta: [C]. Absent: 1 and 0. eps as in the other norms.
    - y: the type of x. mean and inv_std: [N, 1, H, W].

    Gradient: own rule.
    """
    return call("layer_norm2d", [x, gamma, beta], {"eps": eps}, (True, all_outputs, all_outputs))


def rope(
    x: ArrayLike,
    cos: ArrayLike,
    sin: ArrayLike,
    position_ids: ArrayLike | None = None,
    *,
    layout: str = "bshd",
    n_rot: int = 0,
    interleaved: builtins.bool = False,
    inverse: builtins.bool = False,
    offset: int = 0,
    num_heads: int = 0,
) -> Array:
    """Rotates pairs of each head by an angle per position. For pair i < n_rot/2, with c and s the entries of cos and
    sin at its position:

        y1 = x1·c - x2·s
        y2 = x2·c + x1·s

    - x: float. layout: bshd is [B, S, H, D], bhsd is [B, H, S, D], bsh is [B, S, H·D]. y has the type of x.
    - num_heads: H, required for bsh. Otherwise 0 or H.
    - n_rot: how many dims of a head are rotated: even, at most D; 0 means D. The others are copied.
    - interleaved: with false, a pair is (i, i + n_rot/2). With true it is (2i, 2i+1).
    - inverse: negates s.
    - cos, sin: one shape, in the accumulation dtype of x. Either [P, n_rot/2], with a row for each position, or [B,
      S, n_rot/2], with a row for each token.
    - The position of token s is offset + s, or position_ids[b, s] (index dtype, [B, S]). Tables per token allow
      neither.

    Edge cases. offset + S > P is refused (shape_mismatch). A position id outside [0, P) fails with
    index_out_of_range; negative ids do not count from the end.

    Values of layout: bshd bhsd bsh.
    Gradient: own rule.
    """
    return call(
        "rope",
        [x, cos, sin, position_ids],
        {"layout": layout, "n_rot": n_rot, "interleaved": interleaved, "inverse": inverse, "offset": offset,
         "num_heads": num_heads},
        (True,),
    )


def rope_axial2d(
    x: ArrayLike,
    *,
    width: int = 0,
    height: int = 0,
    theta: float = 10000.0,
    exclude_tail: int = 0,
    inverse: builtins.bool = False,
) -> Array:
    """Rotary positions of a grid, as SAM 2 has them. x [B, S, H, D] is a float; y has its type. The first S -
    exclude_tail tokens are the cells of grids of width columns and height rows, row by row; several grids (frames)
    follow one another. In each half of a head, neighbors are pairs, and pair i < D/4 turns by p·theta^(-4i/D). In
    the first half p is the column of the cell, in the second half its row.

    - width, height: from 1 to 2^20. theta: above 0.
    - exclude_tail: the last tokens, which are copied.
    - inverse: turns back; the backward op.

    Edge cases. D must be a multiple of 4, and S - exclude_tail a multiple of width·height (shape_mismatch).

    Gradient: own rule.
    """
    return call(
        "rope_axial2d",
        [x],
        {"width": width, "height": height, "theta": theta, "exclude_tail": exclude_tail, "inverse": inverse},
        (True,),
    )


@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    kv_len: ArrayLike | None = None,
    past_len: ArrayLike | None = None,
    block_table: ArrayLike | None = None,
    *,
    layout: str = "bhsd",
    scale: float | None = None,
    softcap: float = 0.0,
    causal: builtins.bool = False,
    left_window: int = -1,
    right_window: int = -1,
    offset: int = 0,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    kv_len: ArrayLike | None = None,
    past_len: ArrayLike | None = None,
    block_table: ArrayLike | None = None,
    *,
    layout: str = "bhsd",
    scale: float | None = None,
    softcap: float = 0.0,
    causal: builtins.bool = False,
    left_window: int = -1,
    right_window: int = -1,
    offset: int = 0,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    kv_len: ArrayLike | None = None,
    past_len: ArrayLike | None = None,
    block_table: ArrayLike | None = None,
    *,
    layout: str = "bhsd",
    scale: float | None = None,
    softcap: float = 0.0,
    causal: builtins.bool = False,
    left_window: int = -1,
    right_window: int = -1,
    offset: int = 0,
    all_outputs: builtins.bool = False,
) -> Any:
    """o = softmax(s)·v over the keys that a query may attend to. For query i and key j of a head:

        z = scale · q[i]·k[j]
        s = softcap > 0 ? softcap · tanh(z / softcap) : z
        s = s + mask[i, j]             (a float mask)

    - q [B, Hq, Sq, D], k [B, Hk, Sk, D], v [B, Hk, Sk, Dv], o [B, Hq, Sq, Dv]. One float dtype. D ≥ 1.
    - k and v may both be of a dtype of blocks such as q8_0 instead, beside q and o of any float dtype. D and Dv are
      then multiples of a block. Their elements are those of dequantize_blocks in the accumulation dtype.
    - layout: bhsd as above. bshd: axes 1 and 2 of all four are exchanged.
    - Hq is a multiple of Hk. Query head h uses key head floor(h·Hk/Hq).
    - scale: unset means 1/√D. softcap: 0 means none.
    - mask: broadcasts to [B, Hq, Sq, Sk] in both layouts. bool: true permits. Float, of the dtype of q: added to the
      score.
    - kv_len [B], index dtype: the number of valid keys. Keys and values behind it may hold anything, and are not
      read into a result.
    - past_len [B], index dtype: replaces offset for each batch entry; offset must then be 0.
    - block_table [B, blocks], index dtype: k and v are pools of blocks, which several batch entries may share. bhsd:
      k [pool, Hk, size, D], v [pool, Hk, size, Dv]; bshd: axes 1 and 2 are exchanged. Key j of batch entry b is row
      j mod size of block block_table[b, floor(j / size)], and Sk = blocks·size. kv_len is required.
    - lse [B, Hq, Sq], in the accumulation dtype: ln Σ e^s over the permitted keys, in this layout always.

    Key j is permitted for query i if all of these hold:

    | condition | when |
    |---|---|
    | the bool mask is true | there is one |
    | j ≤ i + offset | causal is true |
    | j ≥ i + offset - left_window | left_window ≥ 0 (-1: off) |
    | j ≤ i + offset + right_window | right_window ≥ 0 (-1: off) |
    | j < kv_len | there is one |

    offset is the number of keys before the first query: 0 aligns the first query with the first key, Sk - Sq the
    last with the last. It is within ±2^60.

    Edge cases.

    - A query without a permitted key, or whose scores are all -inf, has o = 0 and lse = -inf. This holds for Sk = 0,
      and also if keys and values that are not permitted contain NaN.
    - NaN in a permitted score makes the row NaN.
    - NaN or infinity in v at a key that is not permitted, but before kv_len, may make the rows with other keys NaN:
      it has the weight 0.
    - A block number for keys before kv_len that is negative, or not in the pool, is an error (index_out_of_range).
      The other numbers may be anything, such as -1.

    Numbers. Scores, weights and sums are in the accumulation dtype. A kernel may round the weights to the dtype of v
    for its product. With more than one query, it may round the elements of blocks to the dtype of q.

    Decomposition. With block_table: the blocks of each batch entry are gathered, and attention without a table
    follows. With k and v of a dtype of blocks, first: dequantize_blocks to the accumulation dtype, and attention in
    this dtype.

    Values of layout: bhsd bshd.
    Gradient: own rule.
    """
    return call(
        "attention",
        [q, k, v, mask, kv_len, past_len, block_table],
        {"layout": layout, "scale": scale, "softcap": softcap, "causal": causal, "left_window": left_window,
         "right_window": right_window, "offset": offset},
        (True, all_outputs),
    )


def decode_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    k_cache: ArrayLike,
    v_cache: ArrayLike,
    rows: ArrayLike,
    kv_len: ArrayLike,
    past_len: ArrayLike,
    cos: ArrayLike | None = None,
    sin: ArrayLike | None = None,
    position_ids: ArrayLike | None = None,
    block_table: ArrayLike | None = None,
    *,
    block_size: int = 0,
    n_rot: int = 0,
    interleaved: builtins.bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    left_window: int = -1,
) -> tuple[Array, Array, Array]:
    """The attention of a step in which each of B sequences has one new token: q and k turn, the caches get a row, and
    the query attends to the keys of its sequence.

    - q [B, Hq, D], k [B, Hk, D], v [B, Hk, Dv]: the new tokens. o [B, Hq, Dv]. k_cache [R, Hk, D], v_cache [R, Hk,
      Dv]. One float dtype. Hq is a multiple of Hk.
    - cos, sin [P, n_rot/2] in the accumulation dtype and position_ids [B], index dtype: all three or none. With
      them, q and k go through rope with n_rot (0: all of D) and interleaved.
    - rows [B], index dtype: the row of the caches that gets the key and the value; negative ones count from the end.
      A row outside [-R, R) gets nothing. k_next and v_next are the caches with these rows.
    - Without block_table: sequence b has the rows from b·R/B on, R/B of them; key j is row j of these. With
      block_table [B, blocks], index dtype: the caches are pools of R/block_size blocks, and key j is row j mod
      block_size of block block_table[b, floor(j / block_size)].
    - kv_len [B] and past_len [B], index dtype: as for attention. The query is at position past_len[b], and attends
      to the keys before kv_len[b] up to itself, from past_len[b] - left_window on if that is not -1.
    - scale, softcap: as for attention.

    Contract. If row b is in [-R, R), it is the row of key past_len[b] of sequence b, and kv_len[b] is past_len[b] +
    1. No two sequences have the same row. Otherwise o and the rows that are read or written are not specified; no
    other memory is touched.

    Edge cases. Those of attention and rope: numbers of blocks before kv_len that are not in the pool, and ids
    outside the tables, are errors (index_out_of_range).

    Decomposition. rope of q and k, scatter with oob = skip into both caches, attention in the layout bshd.

    Gradient: by decomposition.
    """
    return call(
        "decode_attention",
        [q, k, v, k_cache, v_cache, rows, kv_len, past_len, cos, sin, position_ids, block_table],
        {"block_size": block_size, "n_rot": n_rot, "interleaved": interleaved, "scale": scale, "softcap": softcap,
         "left_window": left_window},
        (True, True, True),
    )


def gather(data: ArrayLike, indices: ArrayLike, axis: int = 0, *, oob: str = "error") -> Array:
    """Selects slices along axis: y[o.., i.., t..] = data[o.., indices[i..], t..]. All axes of indices count: y has the
    shape of data with the axis replaced by the shape of indices.

    - data: any dtype, rank 1 or more; or blocks, if axis is not the last one. indices: index dtype, any rank. The
      rank of y is at most 8.
    - oob: error, clamp or skip (0), as in the rules.
    - An axis of length 0 with indices is refused, except with skip.

    Values of oob: error clamp skip.
    Gradient: own rule.
    """
    return call("gather", [data, indices], {"axis": axis, "oob": oob}, (True,))


def scatter(base: ArrayLike, indices: ArrayLike, updates: ArrayLike, axis: int = 0, *, oob: str = "error") -> Array:
    """y is base with slices replaced: y[.., indices[u], ..] = updates[.., u, ..] along axis.

    - base, updates: one dtype, any; or blocks of one dtype, if axis is not the last one. updates has the shape that
      gather(base, indices) gives. indices: index dtype.
    - Duplicate indices: the last one in row-major order wins.
    - oob: error, clamp or skip.

    Values of oob: error clamp skip.
    Gradient: own rule.
    """
    return call("scatter", [base, indices, updates], {"axis": axis, "oob": oob}, (True,))


def scatter_add(
    updates: ArrayLike,
    indices: ArrayLike,
    base: ArrayLike | None = None,
    axis: int = 0,
    *,
    dim: int = 0,
    oob: str = "error",
) -> Array:
    """As scatter, but adds: y[.., indices[u], ..] += updates[.., u, ..] along axis. Duplicates add up in y.

    - base: the start. Absent: zeros, whose axis has length dim. With base, dim is 0 or its length.
    - updates: number, the dtype of base. indices: index dtype.
    - oob: error or skip.
    - Halves are added in f32 and rounded once. Integers wrap.

    Values of oob: error skip.
    Gradient: own rule.
    """
    return call("scatter_add", [updates, indices, base], {"axis": axis, "dim": dim, "oob": oob}, (True,))


def dynamic_slice(x: ArrayLike, start: ArrayLike, *, size: Sequence[int] = (), oob: str = "error") -> Array:
    """y is the block of shape size that begins at start: y[i] = x[start + i].

    - x: any dtype. start: index dtype, [rank]. size: one length per axis, at most that of x.
    - oob: error fails with index_out_of_range if the block does not lie in x. clamp moves the start into [0, d -
      size].
    - Negative starts are out of range; they do not count from the end.

    Values of oob: error clamp.
    Gradient: own rule.
    """
    return call("dynamic_slice", [x, start], {"size": tuple(size), "oob": oob}, (True,))


def dynamic_update_slice(base: ArrayLike, update: ArrayLike, start: ArrayLike, *, oob: str = "error") -> Array:
    """y is base with the block at start replaced by update. Both have one dtype, any, and one rank; update is not
    longer on any axis. start and oob (error, clamp) as in dynamic_slice.

    Values of oob: error clamp.
    Gradient: own rule.
    """
    return call("dynamic_update_slice", [base, update, start], {"oob": oob}, (True,))


def non_zero(x: ArrayLike, *, bound: int = -1) -> tuple[Array, Array]:
    """The row-major places of the elements of x that are not 0, in this order: row k of indices has the index of the
    k-th one along each axis of x. NaN is not 0.

    - x: number or bool. indices: i64, bound rows, one column per axis of x. count: i64, rank 0.
    - bound: the most rows; -1 means one for each element of x. Elements beyond it are left out.
    - The axis of rows has an extent: count, which the run finds. The rows behind it repeat the last one, or hold 0
      if there is none. In a graph, whatever reads indices leaves them out: sums, products, softmax and so on see
      count rows. An output that depends on the extent has count rows. An op that cannot leave rows out is refused by
      name, and so is non_zero inside a function or over a batch. In the decomposition of an op of one's own, indices
      has all bound rows.

    Gradient: none.
    """
    return call("non_zero", [x], {"bound": bound}, (True, True))


def gather_elements(data: ArrayLike, indices: ArrayLike, axis: int = 0, *, oob: str = "error") -> Array:
    """One index per element: y[i] = data[i], with the coordinate of axis replaced by indices[i].

    - data: any dtype, rank 1 or more. indices: index dtype, the rank of data; off the axis not longer than data. y
      has the shape of indices.
    - oob: error, clamp or skip (0). An empty axis with indices is refused, except with skip.

    Values of oob: error clamp skip.
    Gradient: own rule.
    """
    return call("gather_elements", [data, indices], {"axis": axis, "oob": oob}, (True,))


def scatter_elements_add(
    updates: ArrayLike,
    indices: ArrayLike,
    base: ArrayLike | None = None,
    axis: int = 0,
    shape: Sequence[int] = (),
    *,
    oob: str = "error",
) -> Array:
    """Adds updates[i] to the element of y at i, with the coordinate of axis replaced by indices[i]. Duplicates add up,
    as in scatter_add.

    - updates: number; indices: index dtype, the same shape, with the limits of gather_elements.
    - base: the start, of the dtype of updates. Absent: zeros of shape. With base, shape is empty or its shape.
    - oob: error, clamp or skip.

    Values of oob: error clamp skip.
    Gradient: own rule.
    """
    return call(
        "scatter_elements_add",
        [updates, indices, base],
        {"axis": axis, "shape": tuple(shape), "oob": oob},
        (True,),
    )


def scatter_reduce(
    base: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    kind: str,
    axis: int = 0,
    oob: str = "error",
) -> Array:
    """As scatter, but combines each update with what its place in y holds: y[.., indices[u], ..] = kind(y[..,
    indices[u], ..], updates[.., u, ..]) along axis.

    | kind | result of a place | gradient |
    |---|---|---|
    | mul | the product of base and its updates | dy times the product of all other factors |
    | max | the largest; NaN if there is one | dy/c to each of the c numbers that equal the result, in base or updates; if the result is NaN, to the NaNs |
    | min | the smallest; NaN if there is one | as max |

    - base, updates: one dtype, number; also bool for max (or) and min (and). updates has the shape that gather(base,
      indices) gives. indices: index dtype.
    - oob: error or skip.
    - Products of halves are made in f32 and rounded once. Integers wrap. The order in which floats are multiplied is
      unspecified.
    - To leave base out of the result, first write 1, the lowest or the highest number to the places, with scatter.

    Values of kind: mul max min.
    Values of oob: error skip.
    Gradient: own rule.
    """
    return call("scatter_reduce", [base, indices, updates], {"kind": kind, "axis": axis, "oob": oob}, (True,))


def scatter_elements_reduce(
    base: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    *,
    kind: str,
    axis: int = 0,
    oob: str = "error",
) -> Array:
    """As scatter_reduce, with one index per element: updates[i] is combined with the element of y at i, with the
    coordinate of axis replaced by indices[i].

    - kind: mul, max or min, with the dtypes and gradients of scatter_reduce.
    - base, updates: one dtype. indices: index dtype, the shape of updates, with the limits of gather_elements for
      base.
    - oob: error, clamp or skip.

    Values of kind: mul max min.
    Values of oob: error clamp skip.
    Gradient: own rule.
    """
    return call("scatter_elements_reduce", [base, indices, updates], {"kind": kind, "axis": axis, "oob": oob}, (True,))


def narrow(x: ArrayLike, *, start: Sequence[int] = (), len: Sequence[int] = (), step: Sequence[int] = ()) -> Array:
    """y is a strided slice of x: y[j] = x[start + j·step], on each axis.

    - start: in [0, d]; empty means 0 everywhere. It does not count from the end.
    - len: how many elements; empty means all up to the end of the axis (its beginning, for negative steps).
    - step: not 0; empty means 1. A negative step walks backward from start.
    - A list that is not empty has one entry per axis. Every element that is read must exist; nothing is clamped.

    Gradient: own rule.
    """
    return call("narrow", [x], {"start": tuple(start), "len": tuple(len), "step": tuple(step)}, (True,))


def concat(xs: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Joins 1 to 1024 tensors xs along axis. They have one dtype, one rank, and equal dims off the axis. Entries of
    length 0 are allowed. y is the joined tensor.

    Gradient: own rule.
    """
    return call("concat", [Many(xs)], {"axis": axis}, (True,))


def transpose(x: ArrayLike, perm: Sequence[int] = ()) -> Array:
    """y has axis perm[i] of x as axis i. An empty perm reverses the axes. It must be a permutation of 0 to r - 1.

    Gradient: own rule.
    """
    return call("transpose", [x], {"perm": tuple(perm)}, (True,))


def expand(x: ArrayLike, shape: Sequence[int] = ()) -> Array:
    """Repeats x by the rules of broadcasting. shape is aligned at the last axes. Its entries are lengths, or -1 to keep
    the dim of x. A 1 keeps a longer dim of x, too, and shape may have fewer axes than x. y has the broadcast shape.

    Gradient: own rule.
    """
    return call("expand", [x], {"shape": tuple(shape)}, (True,))


def reshape(x: ArrayLike, shape: Sequence[int] = (), *, allow_zero: builtins.bool = False) -> Array:
    """y has the elements of x in the same order, with another shape.

    - At most one entry is -1: it becomes what is left. It is refused beside a dim of 0.
    - 0 copies the dim of x at the same place. With allow_zero, it is a length.
    - x may be blocks: the last dim of shape is then a multiple of a block, too.

    Gradient: own rule.
    """
    return call("reshape", [x], {"shape": tuple(shape), "allow_zero": allow_zero}, (True,))


def pad(
    x: ArrayLike,
    *,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    mode: str = "constant",
    value: float = 0.0,
) -> Array:
    """Adds before and after elements on each axis. Lists: one entry per axis, ≥ 0; empty means 0.

    | mode | added elements | limit of before and after |
    |---|---|---|
    | constant | value, rounded to the dtype | |
    | edge | the nearest element | the axis is not empty |
    | reflect | mirrored, without repeating the edge: 3 2 [1 2 3] 2 1 | d - 1 |
    | symmetric | mirrored, with the edge: 2 1 [1 2 3] 3 2 | d |

    y has the dtype of x; the reference takes numbers and bool.

    Values of mode: constant edge reflect symmetric.
    Gradient: own rule.
    """
    return call("pad", [x], {"before": tuple(before), "after": tuple(after), "mode": mode, "value": value}, (True,))


def iota(
    shape: Sequence[int] = (),
    axis: int = 0,
    *,
    dtype: DTypeLike | None = "i64",
    start: float = 0.0,
    step: float = 1.0,
) -> Array:
    """y = start + step·(index along axis), without operands.

    - shape, axis: the result, and the axis to count along. The rank is 1 or more.
    - dtype: float or integer. start, step: whole numbers for integers.
    - Floats are computed in f64 and rounded once. Integers wrap.

    Values of dtype: f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64.
    Gradient: none.
    """
    return call(
        "iota",
        [],
        {"shape": tuple(shape), "axis": axis, "dtype": None if dtype is None else DType.of(dtype), "start": start,
         "step": step},
        (True,),
    )


def view_as_real(x: ArrayLike) -> Array:
    """y [.., 2] has the parts of the complex x [..]: the real part, then the imaginary part. It is f32 for c64 and f64
    for c128. x has rank 7 at most.

    Gradient: own rule.
    """
    return call("view_as_real", [x], {}, (True,))


def view_as_complex(x: ArrayLike) -> Array:
    """y [..] has the pairs of x [.., 2] as complex numbers: c64 for f32, c128 for f64.

    Gradient: own rule.
    """
    return call("view_as_complex", [x], {}, (True,))


@overload
def maxpool2d(
    x: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def maxpool2d(
    x: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def maxpool2d(
    x: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    all_outputs: builtins.bool = False,
) -> Any:
    """The largest element of each window. x is a number; y is [N, C, Ho, Wo] in its dtype. indices: i64, the shape of
    y, the position of the result in the H·W plane.

    - Equal elements: the first one. NaN: the result is NaN, and the position is that of the last NaN.
    - A window without taps: -inf, or the lowest integer; position -1.
    - kernel, stride, pads, dilation, ceil_mode: see above.

    Gradient: own rule.
    """
    return call(
        "maxpool2d",
        [x],
        {"kernel": tuple(kernel), "stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation),
         "ceil_mode": ceil_mode},
        (True, all_outputs),
    )


def avgpool2d(
    x: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = False,
    divisor_override: int = 0,
) -> Array:
    """The sum of each window, divided by the number of its taps. x is a float; integers are unsupported. y is [N, C,
    Ho, Wo].

    - count_include_pad: the divisor also counts taps in the padding of pads, but not beyond it (ceil_mode).
    - divisor_override: the divisor, if > 0. 0: the count.
    - A window without taps is 0.
    - kernel, stride, pads, dilation, ceil_mode: see above.

    Gradient: own rule.
    """
    return call(
        "avgpool2d",
        [x],
        {"kernel": tuple(kernel), "stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation),
         "ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override": divisor_override},
        (True,),
    )


@overload
def pool(
    x: ArrayLike,
    *,
    kind: str,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = False,
    divisor_override: int = 0,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def pool(
    x: ArrayLike,
    *,
    kind: str,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = False,
    divisor_override: int = 0,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def pool(
    x: ArrayLike,
    *,
    kind: str,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = False,
    divisor_override: int = 0,
    all_outputs: builtins.bool = False,
) -> Any:
    """The largest, the mean, the smallest, the sum or the product of each window along 1 to 3 axes. x is a number; y is
    [N, C, windows..] in its dtype.

    - kind: max, avg, min, sum or prod. Averages of integers are unsupported; sums and products of integers wrap.
    - kernel: one length ≥ 1 per spatial axis, required. stride, dilation: one per axis, ≥ 1; empty means kernel, and
      1. pads: the padding before each axis, then the padding behind each. ceil_mode: as above.
    - indices: of max and min. i64, the position of the result in the row-major order of the spatial axes, with the
      rules of maxpool2d for equal elements, NaN and windows without taps.
    - count_include_pad, divisor_override: of avg, as in avgpool2d.
    - A window without taps: -inf or the lowest integer for max, +inf or the highest for min, 0 for avg and sum, 1
      for prod.

    Values of kind: max avg min sum prod.
    Gradient: by decomposition.
    """
    return call(
        "pool",
        [x],
        {"kind": kind, "kernel": tuple(kernel), "stride": tuple(stride), "pads": tuple(pads), "dilation":
         tuple(dilation), "ceil_mode": ceil_mode, "count_include_pad": count_include_pad, "divisor_override":
         divisor_override},
        (True, all_outputs),
    )


@overload
def conv(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def conv(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def conv(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
    act: str = "none",
    act_alpha: float | None = None,
    act_beta: float | None = None,
    all_outputs: builtins.bool = False,
) -> Any:
    """The convolution of x with the filters w, both floats of one dtype. y is [N, Co, windows..] in this dtype:

    y[n, co, o] = act(bias[co] + residual[n, co, o] + Σ w[co, c, k] · x[n, g·C/groups + c, o·stride - before +
    k·dilation])

    with the sum over the C/groups channels c of the group g of co, and over the taps k.

    - groups divides C and Co. With groups = C, each channel has its own filters (depthwise).
    - bias: [Co], of the dtype of x or f32. residual: the type of y. Both are added before act.
    - act: "none" or a kind of unary, with act_alpha and act_beta.
    - pre_act: what act is applied to.
    - stride, pads, dilation: see above.

    Gradient: own rule.
    """
    return call(
        "conv",
        [x, w, bias, residual],
        {"stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation), "groups": groups, "act": act,
         "act_alpha": act_alpha, "act_beta": act_beta},
        (True, all_outputs),
    )


def conv_transpose(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
    output_padding: Sequence[int] = (),
) -> Array:
    """The transpose of a convolution: each element of x [N, C, spatial..] adds its multiple of a filter to y [N, Co,
    ..]. w is [C, Co/groups, kernel..].

    y[n, co, o] = bias[co] + Σ w[c, co', k] · x[n, c, i] over all c of the group, and all i and k with i·stride -
    before + k·dilation = o

    - Along each spatial axis, y has stride·(d - 1) + dilation·(kernel - 1) + 1 - before - after + output_padding
      elements, at least 1.
    - output_padding: one entry per axis, less than the larger of stride and dilation; empty means 0.
    - bias: [Co], of the dtype of x or f32. groups divides C.
    - stride, pads, dilation: see above; pads shorten the result.

    Gradient: own rule.
    """
    return call(
        "conv_transpose",
        [x, w, bias],
        {"stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation), "groups": groups, "output_padding":
         tuple(output_padding)},
        (True,),
    )


def im2col(
    x: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    layout: str = "rows",
) -> Array:
    """The windows of x, a number, as the columns of a matrix. The taps of a column are ordered by channel, then by
    their place in kernel; windows are in row-major order.

    - layout: with rows, y is [N·windows, C·taps]; with unfold, it is [N, C·taps, windows].
    - kernel: one entry ≥ 1 per spatial axis. stride, pads, dilation: see above.

    Values of layout: rows unfold.
    Gradient: own rule.
    """
    return call(
        "im2col",
        [x],
        {"kernel": tuple(kernel), "stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation), "layout":
         layout},
        (True,),
    )


def col2im(
    columns: ArrayLike,
    *,
    kernel: Sequence[int] = (),
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    layout: str = "rows",
    size: Sequence[int] = (),
) -> Array:
    """The transpose of im2col: adds each element of columns to its pixel of x [N, C, size..]. Taps outside are left
    out.

    - size: the spatial dims of x. columns must have its windows, and a multiple of its taps; the rest is N and C.
    - layout: that of columns, rows or unfold. kernel, stride, pads, dilation: those of im2col.

    Values of layout: rows unfold.
    Gradient: own rule.
    """
    return call(
        "col2im",
        [columns],
        {"kernel": tuple(kernel), "stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation), "layout":
         layout, "size": tuple(size)},
        (True,),
    )


def quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    axis: int = 1,
    *,
    block: int = 0,
    to: DTypeLike | None = None,
) -> Array:
    """q = clamp(round(x/scale) + zero_point, lo, hi), where lo and hi are the ends of the range of to. The clamp is
    applied to floats, so infinities and large numbers saturate. NaN gives zero_point.

    - x: float. scale, axis, block: see above. q: the shape of x.
    - to: i8, u8, i16, u16, i4 or u4. none: the dtype of zero_point, else u8.
    - zero_point: of dtype to.

    Values of to: none i8 u8 i16 u16 i4 u4.
    Gradient: own rule.
    """
    return call(
        "quantize",
        [x, scale, zero_point],
        {"axis": axis, "block": block, "to": None if to is None else DType.of(to)},
        (True,),
    )


def dequantize(
    q: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    axis: int = 1,
    *,
    block: int = 0,
    to: DTypeLike | None = None,
) -> Array:
    """y = (q - zero_point)·scale

    - q: i8, u8, i16, u16, i4, u4 or i32. zero_point: of the same dtype. i32 differences wrap, and are rounded to the
      dtype of the product.
    - to: a float dtype, f32, f16, bf16 or f64; none: the dtype of scale. The product is computed in f64 if to or
      scale is f64, else in f32, and then converted to to.
    - scale, axis, block: see above. y: the shape of q.

    Values of to: none f32 f16 bf16 f64.
    Gradient: own rule.
    """
    return call(
        "dequantize",
        [q, scale, zero_point],
        {"axis": axis, "block": block, "to": None if to is None else DType.of(to)},
        (True,),
    )


def qmatmul(
    a: ArrayLike,
    b: ArrayLike,
    a_zero: ArrayLike | None = None,
    b_zero: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    multiplier: ArrayLike | None = None,
    y_zero: ArrayLike | None = None,
    to: DTypeLike | None = None,
    *,
    act: str = "none",
) -> Array:
    """The product of matrices of 8-bit integers a [.., M, K] and b [.., K, N]; axes before the last two broadcast. a
    and b are i8 or u8, each with its own dtype.

    s[m, n] = bias[n] + Σ_k (a[m, k] - a_zero)·(b[k, n] - b_zero[n])

    - a_zero: one number of the dtype of a. b_zero: one number or [N], of the dtype of b. bias: i32 [N]. Absent ones
      are 0.
    - s is an i32 and wraps. If K is above 33025 and to is i8 or u8, it is an i64. Without bias it is exact in both
      cases.
    - to: i8 or u8, with a multiplier; or i32, without one. none: the dtype of y_zero, else i32.
    - Result i32: y = s, or max(s, 0) with act relu. It wraps where K is above 33025.
    - multiplier: f32, one number or [N]: the scale of a times that of b through that of y. Compute it in f64 and
      round it once. y = clamp(round(f32(s)·multiplier) + y_zero, lo, hi): s is rounded to f32, the product to f32,
      then to an integer, halves to the even one; the clamp is applied to floats. A product that is NaN gives an
      unspecified number in range.
    - y_zero: one number of dtype to; only with a multiplier. With act relu, lo is y_zero. act is none or relu.

    Values of to: none i8 u8 i32.
    Values of act: none relu.
    Gradient: none.
    """
    return call(
        "qmatmul",
        [a, b, a_zero, b_zero, bias, multiplier, y_zero],
        {"to": None if to is None else DType.of(to), "act": act},
        (True,),
    )


def qconv(
    x: ArrayLike,
    w: ArrayLike,
    x_zero: ArrayLike | None = None,
    w_zero: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    multiplier: ArrayLike | None = None,
    y_zero: ArrayLike | None = None,
    *,
    stride: Sequence[int] = (),
    pads: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
    to: DTypeLike | None = None,
    act: str = "none",
) -> Array:
    """The convolution of 8-bit integers x [N, C, spatial..] with filters w [Co, C/groups, kernel..]. x and w are i8 or
    u8, each with its own dtype. The sums s are those of conv over x - x_zero and w - w_zero, plus bias; what follows
    them is as in qmatmul, with K = C/groups times the taps of the kernel.

    - stride, pads, dilation, groups: as for conv. Padding has the value x_zero, so it adds nothing to the sums.
    - x_zero: one number of the dtype of x. w_zero: one number or [Co], of the dtype of w. bias: i32 [Co].
      multiplier: f32, one number or [Co]. y_zero: one number of dtype to.
    - to (none, i8, u8, i32) and act (none, relu): as for qmatmul. y is [N, Co, windows..].

    Values of to: none i8 u8 i32.
    Values of act: none relu.
    Gradient: none.
    """
    return call(
        "qconv",
        [x, w, x_zero, w_zero, bias, multiplier, y_zero],
        {"stride": tuple(stride), "pads": tuple(pads), "dilation": tuple(dilation), "groups": groups, "to": None if to
         is None else DType.of(to), "act": act},
        (True,),
    )


def fake_quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike | None = None,
    axis: int = 1,
    *,
    qmin: int = -128,
    qmax: int = 127,
    ste: str = "clipped",
) -> Array:
    """y = (clamp(round(x/scale) + zero_point, qmin, qmax) - zero_point)·scale: a quantized tensor and back, in floats.
    NaN stays NaN.

    - x: float. y: the type of x. scale, axis: see above. zero_point: i32.
    - qmin, qmax: from -65536 to 65536, qmin < qmax.
    - ste: clipped, identity, tanh or hard_tanh; the estimator of the gradient.

    Values of ste: clipped identity tanh hard_tanh.
    Gradient: own rule.
    """
    return call(
        "fake_quantize",
        [x, scale, zero_point],
        {"axis": axis, "qmin": qmin, "qmax": qmax, "ste": ste},
        (True,),
    )


def lsq_quantize(
    x: ArrayLike,
    scale: ArrayLike,
    axis: int = 1,
    *,
    qmin: int = -128,
    qmax: int = 127,
    grad_factor: float = 1.0,
) -> Array:
    """y = clamp(round(x/s), qmin, qmax)·s with s = max(scale, 1e-12): fake_quantize with a scale that is learned (LSQ).

    - x: float. y: the type of x. scale, axis: see above. qmin, qmax: from -65536 to 65536, qmin < qmax.
    - grad_factor: multiplies the gradient of scale. The paper uses 1/√(n·qmax) for n elements that share a scale.

    Gradient: own rule.
    """
    return call(
        "lsq_quantize",
        [x, scale],
        {"axis": axis, "qmin": qmin, "qmax": qmax, "grad_factor": grad_factor},
        (True,),
    )


def amax_observer(
    x: ArrayLike,
    state: ArrayLike,
    axis: int = 1,
    *,
    mode: str = "batch",
    decay: float = 0.99,
    qmax: float = 127.0,
) -> tuple[Array, Array]:
    """Observes the largest magnitude of a tensor, to choose a scale. With a = max(abs(x)), over all elements or those
    of each index of axis:

    | mode | state_out |
    |---|---|
    | batch | a |
    | ema | a if state ≤ 0, else decay·state + (1 - decay)·a |

    scale = max(state_out/qmax, 1e-12)

    - x: float. state: of the accumulation dtype of x; one number, or shape [C] with an entry for each index of axis.
      state_out and scale have its type. To keep the state, update it with state_out.
    - decay: from 0 to 1. qmax: finite and above 0.
    - NaN stays NaN. Of no elements, a is 0.

    Values of mode: batch ema.
    Gradient: none.
    """
    return call("amax_observer", [x, state], {"axis": axis, "mode": mode, "decay": decay, "qmax": qmax}, (True, True))


def resize(
    x: ArrayLike,
    *,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_a: float = -0.75,
    exclude_outside: builtins.bool = False,
    antialias: builtins.bool = False,
    extrapolation_value: float = 0.0,
    sizes: Sequence[int] = (),
    scales: Sequence[float] = (),
    roi: Sequence[float] = (),
) -> Array:
    """Changes the spatial dims of x, 1 to 3 of them. As ONNX's Resize, with one entry per spatial axis in each list. y
    has the dtype of x: with mode nearest a number or bool, else a float.

    - sizes: the new dims; the scale of an axis is out/in. scales: the scales; the new dims are floor(in·scale),
      where a product below 2^23 is first rounded to f32. Exactly one of both is given. Dims are 1 to 2^30.
    - coordinates: the position s of output o among the pixels. w is the length of the result before it is rounded
      down, in·scale.

    | coordinates | s |
    |---|---|
    | half_pixel | (o + 0.5)/scale - 0.5 |
    | half_pixel_symmetric | the same, plus in/2·(1 - out/w) |
    | pytorch_half_pixel | as half_pixel; 0 if out = 1 |
    | align_corners | o·(in - 1)/(w - 1); 0 if out = 1 |
    | asymmetric | o/scale |
    | tf_crop_and_resize | start·(in - 1) + o·(end - start)·(in - 1)/(w - 1); the middle of both if out = 1 |

    - mode: nearest takes one pixel. linear weighs the two pixels around s by 1 - t, where t is their distance from
      s. cubic weighs four pixels: for t ≤ 1 by (a + 2)t³ - (a + 3)t² + 1, for t < 2 by at³ - 5at² + 8at - 4a, with a
      = cubic_a. Several axes multiply their weights.
    - nearest_mode: how s becomes a pixel: round_prefer_floor and round_prefer_ceil round to the nearest one and
      differ in ties; floor; ceil. If in·scale is an integer, positions are exact ratios (except tf_crop_and_resize),
      so no rounding moves a tie. PyTorch's nearest is asymmetric with floor, its nearest-exact is half_pixel with
      round_prefer_ceil.
    - Pixels outside repeat the edge. With exclude_outside, they get weight 0, and the others are divided by their
      sum.
    - antialias: on axes that shrink, distances are multiplied by the scale, so that 1/scale times as many pixels
      count; weights are divided by their sum. Not with nearest. PyTorch's antialiased modes also set
      exclude_outside, and cubic_a = -0.5.
    - roi: of tf_crop_and_resize alone: the starts of all axes, then the ends. If s is outside of [0, in - 1] on some
      axis, the result is extrapolation_value.
    - A pixel of weight 0 is not read: its NaN or infinity reaches no result.

    Values of mode: nearest linear cubic.
    Values of coordinates: half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric
    tf_crop_and_resize.
    Values of nearest_mode: round_prefer_floor round_prefer_ceil floor ceil.
    Gradient: own rule.
    """
    return call(
        "resize",
        [x],
        {"mode": mode, "coordinates": coordinates, "nearest_mode": nearest_mode, "cubic_a": cubic_a, "exclude_outside":
         exclude_outside, "antialias": antialias, "extrapolation_value": extrapolation_value, "sizes": tuple(sizes),
         "scales": tuple(scales), "roi": tuple(roi)},
        (True,),
    )


def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    *,
    mode: str = "linear",
    padding: str = "zeros",
    align_corners: builtins.bool = False,
) -> Array:
    """Reads x at the positions of grid. x is [N, C, H, W] with grid [N, Ho, Wo, 2], or [N, C, D, H, W] with grid [N,
    Do, Ho, Wo, 3]; y is [N, C, Ho, Wo] or [N, C, Do, Ho, Wo]. x is a float; grid has its dtype, or f32.

    - The last axis of grid has a coordinate g for each axis of x, the last axis first. g from -1 to 1 is the whole
      image: position s = ((g + 1)·d - 1)/2 for d pixels. With align_corners, -1 and 1 are the centers of the first
      and last pixel: s = (g + 1)·(d - 1)/2.
    - mode: nearest (ties to even), linear and cubic (a = -0.75), with the weights of resize.
    - padding: what is outside. zeros; border: the nearest pixel; reflection: the image mirrored at its edges, or,
      with align_corners, at the centers of its outer pixels.
    - padding moves the position itself, except with cubic, whose pixels it moves. ONNX's GridSample, unlike PyTorch,
      first moves positions outside to the edge for cubic with border.
    - A pixel of weight 0 is not read, except for dgrid. A position that is NaN is outside. With border and
      reflection it is the first pixel, as is one that is infinite with reflection.

    Values of mode: nearest linear cubic.
    Values of padding: zeros border reflection.
    Gradient: own rule.
    """
    return call("grid_sample", [x, grid], {"mode": mode, "padding": padding, "align_corners": align_corners}, (True,))


def roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    mode: str = "avg",
    coordinates: str = "half_pixel",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """The mean, or the largest, of samples in each bin of each region. x is [N, C, H, W], a float. rois is [R, 4] in
    its dtype: x1, y1, x2, y2. batch_indices is [R] of an index dtype: the image of each region; one that is out of
    range is an error. y is [R, C, output_height, output_width].

    - Corners are multiplied by spatial_scale. coordinates: half_pixel then subtracts 0.5. output_half_pixel does
      not, and makes regions at least 1 wide and high.
    - A region has output_height·output_width bins of equal size. A bin has sampling_ratio² samples, spaced evenly;
      with 0, ceil(length of the bin) per axis.
    - A sample is 0 if its position is below -1 or above H (W). Else it is moved into [0, H - 1], and is linear
      between four pixels.
    - mode avg: the mean of the samples; pixels of weight 0 are not read. max: the largest product of a pixel and its
      weight, over the four pixels of all samples, as in ONNX. Samples outside count as 0.
    - A region without samples gives 0: one that ends before it starts, or is not finite, with sampling_ratio 0.

    Values of mode: avg max.
    Values of coordinates: half_pixel output_half_pixel.
    Gradient: own rule.
    """
    return call(
        "roi_align",
        [x, rois, batch_indices],
        {"mode": mode, "coordinates": coordinates, "output_height": output_height, "output_width": output_width,
         "sampling_ratio": sampling_ratio, "spatial_scale": spatial_scale},
        (True,),
    )


@overload
def sgd(
    w: ArrayLike,
    g: ArrayLike,
    lr: ArrayLike,
    step: ArrayLike | None = None,
    momentum_buf: ArrayLike | None = None,
    grad_scale: ArrayLike | None = None,
    apply: ArrayLike | None = None,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: builtins.bool = False,
    weight_decay: float = 0.0,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def sgd(
    w: ArrayLike,
    g: ArrayLike,
    lr: ArrayLike,
    step: ArrayLike | None = None,
    momentum_buf: ArrayLike | None = None,
    grad_scale: ArrayLike | None = None,
    apply: ArrayLike | None = None,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: builtins.bool = False,
    weight_decay: float = 0.0,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def sgd(
    w: ArrayLike,
    g: ArrayLike,
    lr: ArrayLike,
    step: ArrayLike | None = None,
    momentum_buf: ArrayLike | None = None,
    grad_scale: ArrayLike | None = None,
    apply: ArrayLike | None = None,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: builtins.bool = False,
    weight_decay: float = 0.0,
    all_outputs: builtins.bool = False,
) -> Any:
    """- w, g, lr, step, grad_scale, apply, weight_decay: see above.
    - momentum: ≥ 0. If it is not 0, momentum_buf is required, and momentum_buf_out is buf. If it is 0, both must be
      absent.
    - dampening: finite. It needs step. Without step, the first step is like the others.
    - nesterov: needs momentum, and no dampening.
    - w_out: the new weight.

    Gradient: by decomposition.
    """
    return call(
        "sgd",
        [w, g, lr, step, momentum_buf, grad_scale, apply],
        {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": weight_decay},
        (True, all_outputs),
    )


def adamw(
    w: ArrayLike,
    g: ArrayLike,
    m: ArrayLike,
    v: ArrayLike,
    lr: ArrayLike,
    step: ArrayLike,
    grad_scale: ArrayLike | None = None,
    apply: ArrayLike | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> tuple[Array, Array, Array]:
    """- w, g, m, v, lr, step, grad_scale, apply, weight_decay: see above. Outputs: w_out, m_out, v_out.
    - beta1, beta2: in [0, 1). eps: finite, ≥ 0.

    Gradient: by decomposition.
    """
    return call(
        "adamw",
        [w, g, m, v, lr, step, grad_scale, apply],
        {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay},
        (True, True, True),
    )


def lion(
    w: ArrayLike,
    g: ArrayLike,
    m: ArrayLike,
    lr: ArrayLike,
    grad_scale: ArrayLike | None = None,
    apply: ArrayLike | None = None,
    *,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> tuple[Array, Array]:
    """- w, g, m, lr, grad_scale, apply, weight_decay: see above. Outputs: w_out, m_out.
    - beta1, beta2: in [0, 1).

    Gradient: by decomposition.
    """
    return call(
        "lion",
        [w, g, m, lr, grad_scale, apply],
        {"beta1": beta1, "beta2": beta2, "weight_decay": weight_decay},
        (True, True),
    )


@overload
def lstm(
    x: ArrayLike,
    r: ArrayLike,
    h0: ArrayLike | None = None,
    c0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "ifgo",
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def lstm(
    x: ArrayLike,
    r: ArrayLike,
    h0: ArrayLike | None = None,
    c0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "ifgo",
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def lstm(
    x: ArrayLike,
    r: ArrayLike,
    h0: ArrayLike | None = None,
    c0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "ifgo",
    all_outputs: builtins.bool = False,
) -> Any:
    """A long short-term memory (LSTM):

        i = σ(x_i + R_i·h)
        f = σ(x_f + R_f·h)
        g = tanh(x_g + R_g·h)
        o = σ(x_o + R_o·h)
        c' = f·c + i·g
        h' = o·tanh(c')

    - x, r, h0, lengths, y, h: see above. direction: forward, reverse or bidirectional, likewise.
    - gates: a permutation of ifgo, the order of PyTorch and Keras. ONNX has iofg.
    - c0, c [D, B, H]: the first and the last cell, as h0 and h.

    Edge cases. T = 0: h is h0 and c is c0.

    Values of direction: forward reverse bidirectional.
    Gradient: by decomposition.
    """
    return call(
        "lstm",
        [x, r, h0, c0, lengths],
        {"direction": direction, "gates": gates},
        (True, all_outputs, all_outputs),
    )


@overload
def gru(
    x: ArrayLike,
    r: ArrayLike,
    n_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "rzn",
    reset_after: builtins.bool = True,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def gru(
    x: ArrayLike,
    r: ArrayLike,
    n_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "rzn",
    reset_after: builtins.bool = True,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def gru(
    x: ArrayLike,
    r: ArrayLike,
    n_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    lengths: ArrayLike | None = None,
    *,
    direction: str = "forward",
    gates: str = "rzn",
    reset_after: builtins.bool = True,
    all_outputs: builtins.bool = False,
) -> Any:
    """A gated recurrent unit (GRU):

        r = σ(x_r + R_r·h)
        z = σ(x_z + R_z·h)
        n = tanh(x_n + r·(R_n·h + n_bias))    (reset_after)
        n = tanh(x_n + R_n·(r·h))             (otherwise)
        h' = n + z·(h - n)

    - x, h0, lengths, y, h: see above. direction: forward, reverse or bidirectional, likewise. The operand r has the
      rows R_k.
    - gates: a permutation of rzn, the order of PyTorch. ONNX and Keras have zrn.
    - reset_after: as PyTorch, and ONNX with linear_before_reset.
    - n_bias [D, H]: only with reset_after; absent: 0.

    Edge cases. T = 0: h is h0.

    Values of direction: forward reverse bidirectional.
    Gradient: by decomposition.
    """
    return call(
        "gru",
        [x, r, n_bias, h0, lengths],
        {"direction": direction, "gates": gates, "reset_after": reset_after},
        (True, all_outputs),
    )


def mse_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Array:
    """The squared distance, d².

    - x, target, loss: see above.
    - reduction: none, sum or mean, likewise.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call("mse_loss", [x, target], {"reduction": reduction}, (True,))


def l1_loss(x: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Array:
    """The distance, |d|.

    - x, target, loss: see above.
    - reduction: none, sum or mean, likewise.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call("l1_loss", [x, target], {"reduction": reduction}, (True,))


def smooth_l1_loss(x: ArrayLike, target: ArrayLike, *, beta: float = 1.0, reduction: str = "mean") -> Array:
    """d²/(2·beta) if |d| < beta, else |d| - beta/2. x, target, loss: see above.

    - beta: at least 0. With 0, the op is l1_loss.
    - reduction: none, sum or mean, likewise.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call("smooth_l1_loss", [x, target], {"beta": beta, "reduction": reduction}, (True,))


def huber_loss(x: ArrayLike, target: ArrayLike, *, delta: float = 1.0, reduction: str = "mean") -> Array:
    """d²/2 if |d| < delta, else delta·(|d| - delta/2). x, target, loss: see above.

    - delta: above 0.
    - reduction: none, sum or mean, likewise.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call("huber_loss", [x, target], {"delta": delta, "reduction": reduction}, (True,))


def binary_cross_entropy(
    x: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
) -> Array:
    """-w·(t·ln x + (1-t)·ln(1-x)), where x is a probability. target, loss: see above.

    - reduction: none, sum or mean, likewise.
    - x: in [0, 1]. Other numbers give NaN.
    - weight: w, in the dtype of x; it broadcasts to the shape of x. Absent: 1. A mean divides by the number of
      items, not by the weights.
    - Each logarithm is at least -100, so a probability that is wrongly 0 or 1 costs 100·w.

    Values of reduction: none sum mean.
    Gradient: own rule.
    """
    return call("binary_cross_entropy", [x, target, weight], {"reduction": reduction}, (True,))


def binary_cross_entropy_with_logits(
    x: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
) -> Array:
    """-w·(p·t·ln σ(x) + (1-t)·ln(1-σ(x))), where σ is the logistic function and x is a logit. Large logits do not
    overflow. x, target, loss: see above.

    - reduction: none, sum or mean, likewise.
    - weight: w. pos_weight: p, the weight of the positive part. Both have the dtype of x and broadcast to its shape.
      Absent: 1. A mean divides by the number of items, not by the weights.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call("binary_cross_entropy_with_logits", [x, target, weight, pos_weight], {"reduction": reduction}, (True,))


def kl_div(x: ArrayLike, target: ArrayLike, *, log_target: builtins.bool = False, reduction: str = "mean") -> Array:
    """The terms of the Kullback-Leibler divergence: t·(ln t - x), where x has logarithms of probabilities. loss: see
    above.

    - target: probabilities; with log_target, their logarithms: e^t·(t - x). A probability of 0 gives 0, a negative
      one NaN.
    - reduction: none, sum, mean, or batchmean, which divides the sum by the first dim of x. mean divides by the
      number of elements, as PyTorch does.

    Values of reduction: none sum mean batchmean.
    Gradient: by decomposition.
    """
    return call("kl_div", [x, target], {"log_target": log_target, "reduction": reduction}, (True,))


def nll_loss(
    x: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike | None = None,
    axis: int = -1,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """Negative log likelihood: -w[c]·x[c] for each item with label c, where x has the logarithms of the classes'
    probabilities along axis. cross_entropy takes logits.

    - x: float. labels: index dtype, the shape of x without axis.
    - weight [C]: weights w of the classes, in the dtype of x or its accumulation dtype. Absent: 1.
    - ignore_index: items with this label give 0. It must fit the dtype of labels.
    - reduction: none or sum, likewise. mean divides the sum by Σ w[c] over the items that are not ignored.
    - loss: in the accumulation dtype; the shape of labels, or a scalar.

    Edge cases. A label outside [0, C) that is not ignore_index fails with index_out_of_range; negative labels do not
    count from the end. If all items are ignored, or there is none, mean is NaN. C = 0 is refused if there are items.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call(
        "nll_loss",
        [x, labels, weight],
        {"axis": axis, "ignore_index": ignore_index, "reduction": reduction},
        (True,),
    )


def ctc_loss(
    x: ArrayLike,
    labels: ArrayLike,
    x_lengths: ArrayLike,
    label_lengths: ArrayLike,
    *,
    blank: int = 0,
    zero_infinity: builtins.bool = False,
    reduction: str = "mean",
) -> Array:
    """Connectionist temporal classification (CTC): -ln of the probability that T steps spell the labels of a sequence.
    A path takes one class per step; it spells what is left when equal neighbors become one and blanks are removed.
    The op sums over all such paths.

    - x [T, N, C]: logarithms of the classes' probabilities, per step and sequence; float.
    - labels [N, S]: index dtype. Entries behind the end of a sequence may be any number.
    - x_lengths, label_lengths [N]: index dtype; the number of steps, at most T, and of labels, at most S.
    - blank: the class that stands for no label, in [0, C).
    - loss: [N] with reduction none, else a scalar. sum adds up. mean divides each loss by the number of its labels,
      at least 1, then takes the mean.
    - zero_infinity: a sequence that no path spells costs 0 instead of inf.

    Edge cases. A label outside [0, C) and a length out of range fail with index_out_of_range. Without steps, an
    empty sequence costs 0, any other inf.

    Values of reduction: none sum mean.
    Gradient: by decomposition.
    """
    return call(
        "ctc_loss",
        [x, labels, x_lengths, label_lengths],
        {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction},
        (True,),
    )


def lu(a: ArrayLike, *, on_singular: str = "keep") -> tuple[Array, Array]:
    """LU with partial pivoting: row perm[i] of a is row i of the product L·U. The pivot is the largest magnitude of its
    column, the first one of equals.

    - a [.., n, n].
    - lu [.., n, n]: U in the upper triangle, L below it. The diagonal of L is 1.
    - perm [.., n], i32. With NaN in lu of on_singular nan, it is 0, 1, 2, ...
    - on_singular: see above; a matrix has no result if a pivot is 0 or not finite. keep gives the factors that there
      are: those of a singular matrix have a zero in the diagonal of U. error and nan, likewise.

    Values of on_singular: keep error nan.
    Gradient: own rule.
    """
    return call("lu", [a], {"on_singular": on_singular}, (True, True))


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    upper: builtins.bool = False,
    trans_a: builtins.bool = False,
    unit_diagonal: builtins.bool = False,
) -> Array:
    """x of A·x = b, or Aᵀ·x = b with trans_a, where A is a triangle of a. The other triangle is not read.

    - a [.., n, n], b [.., n, m], x [.., n, m]: batch axes broadcast.
    - upper: A is the upper triangle, else the lower one. trans_a: transposes the triangle afterwards.
    - unit_diagonal: the diagonal is 1 and is not read.

    Edge cases. A zero in the diagonal divides by zero: the result is inf or NaN.

    Gradient: own rule.
    """
    return call(
        "triangular_solve",
        [a, b],
        {"upper": upper, "trans_a": trans_a, "unit_diagonal": unit_diagonal},
        (True,),
    )


def cholesky(a: ArrayLike, *, on_singular: str = "error") -> Array:
    """The lower triangular factor of symmetric positive definite matrices: a = l·lᵀ.

    - a [.., n, n]: only the lower triangle is read. l [.., n, n] is 0 above the diagonal.
    - on_singular: error or nan, see above; a matrix that is not positive definite has no result.

    Values of on_singular: error nan.
    Gradient: own rule.
    """
    return call("cholesky", [a], {"on_singular": on_singular}, (True,))


@overload
def dense_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    on_singular: str = "error",
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def dense_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    on_singular: str = "error",
    all_outputs: Literal[True],
) -> tuple[Array, Array, Array]: ...
def dense_solve(a: ArrayLike, b: ArrayLike, *, on_singular: str = "error", all_outputs: builtins.bool = False) -> Any:
    """x of a·x = b, by lu.

    - a [.., n, n]. b [.., n] has vectors if its rank is one less than that of a, else matrices [.., n, m]. Batch
      axes broadcast. x has the batch axes of both, then those of b.
    - lu, perm: the factors of a, as lu gives them.
    - on_singular: error or nan, see above; a matrix has no result if a pivot is 0 or not finite. Ill-conditioned
      matrices have one.

    Edge cases. n = 0 gives an empty result.

    Values of on_singular: error nan.
    Gradient: own rule.
    """
    return call("dense_solve", [a, b], {"on_singular": on_singular}, (True, all_outputs, all_outputs))


def lu_solve(lu: ArrayLike, perm: ArrayLike, b: ArrayLike, *, trans_a: builtins.bool = False) -> Array:
    """x of a·x = b, or aᵀ·x = b with trans_a, by the outputs lu and perm of lu or dense_solve.

    - lu [.., n, n], perm [.., n] i32. Numbers in perm that are no permutation give an undefined result or
      index_out_of_range.
    - b, x: as those of dense_solve.
    - trans_a: see above.

    Gradient: by decomposition.
    """
    return call("lu_solve", [lu, perm, b], {"trans_a": trans_a}, (True,))


def inverse(a: ArrayLike, *, on_singular: str = "error") -> Array:
    """The inverse y of each matrix of a [.., n, n]: dense_solve of the identity.

    - on_singular: error or nan, as in dense_solve.

    Values of on_singular: error nan.
    Gradient: by decomposition.
    """
    return call("inverse", [a], {"on_singular": on_singular}, (True,))


def det(a: ArrayLike) -> Array:
    """The determinant y [..] of each matrix of a [.., n, n]: the product of the pivots, with the sign of the order of
    rows. It is 0 for a singular matrix, and 1 if n = 0.

    Gradient: own rule.
    """
    return call("det", [a], {}, (True,))


def group_limited_gate(
    logits: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    n_group: int = 8,
    topk_group: int = 4,
    top_k: int = 8,
    routed_scaling: float = 2.5,
    score: str = "sigmoid",
    normalize: builtins.bool = True,
    group_score: str = "top2_sum",
) -> tuple[Array, Array]:
    """Routing of DeepSeek-V3 for T tokens and E experts. With s = score(logits) and c = s + bias, each token

    1. takes the topk_group groups of the highest group score,
    2. takes the top_k experts of the highest c in these groups,
    3. weighs each by its s, without the bias.

    - logits [T, E]: float. bias [E]: the accumulation dtype. It changes the choice only.
    - n_group: groups of E/n_group adjacent experts. topk_group: from 1 to n_group. top_k: from 1 to the number of
      experts in the chosen groups.
    - score: sigmoid, softmax over all experts, or identity.
    - group_score: top2_sum, the sum of the two largest c of the group; or max, the largest.
    - index [T, top_k], i32: the experts, with the highest c first. Equal c: the lower group, then the lower expert.
    - weight [T, top_k]: in the accumulation dtype, times routed_scaling. With normalize, and top_k above 1, the
      weights are first divided by their sum + 1e-20.

    Edge cases. NaN ranks highest, so it shows in the weights. Groups of one expert are refused with top2_sum.

    Values of score: sigmoid softmax identity.
    Values of group_score: top2_sum max.
    Gradient: own rule.
    """
    return call(
        "group_limited_gate",
        [logits, bias],
        {"n_group": n_group, "topk_group": topk_group, "top_k": top_k, "routed_scaling": routed_scaling, "score": score,
         "normalize": normalize, "group_score": group_score},
        (True, True),
    )


def conj(x: ArrayLike) -> Array:
    """y is the complex conjugate of x: the imaginary part has the other sign.

    Gradient: own rule.
    """
    return call("conj", [x], {}, (True,))


def complex_abs(x: ArrayLike) -> Array:
    """y = |x|, f32 for a c64 x and f64 for c128. No square overflows or underflows. An infinite part gives inf, even
    beside NaN.

    Gradient: own rule.
    """
    return call("complex_abs", [x], {}, (True,))


def complex_norm_sq(x: ArrayLike) -> Array:
    """y = Re(x)² + Im(x)², f32 for a c64 x and f64 for c128. It may overflow to inf.

    Gradient: own rule.
    """
    return call("complex_norm_sq", [x], {}, (True,))


def fft(
    x: ArrayLike,
    axes: Sequence[int] = (),
    *,
    n: Sequence[int] = (),
    norm: str = "backward",
    inverse: builtins.bool = False,
) -> Array:
    """Transforms the complex x along each of axes; y has its dtype.

    - axes: distinct; empty means the last one.
    - n: one length per axis. A longer axis is cut, a shorter one filled with zeros at its end. Empty keeps the
      lengths.
    - norm: backward, ortho or forward, see above. inverse: the inverse transform.

    Values of norm: backward ortho forward.
    Gradient: own rule.
    """
    return call("fft", [x], {"axes": tuple(axes), "n": tuple(n), "norm": norm, "inverse": inverse}, (True,))


def rfft(x: ArrayLike, axis: int = -1, *, n: int = 0, norm: str = "backward") -> Array:
    """Bins 0 to n/2 of the transform of x, f32 or f64, along axis. y is complex, with n/2 + 1 bins (rounded down); the
    others are their conjugates.

    - n: the length; the axis is cut or filled with zeros. 0 keeps its length.
    - norm: backward, ortho or forward, see above.

    Values of norm: backward ortho forward.
    Gradient: own rule.
    """
    return call("rfft", [x], {"axis": axis, "n": n, "norm": norm}, (True,))


def irfft(x: ArrayLike, axis: int = -1, *, n: int = 0, norm: str = "backward") -> Array:
    """The inverse of rfft: y has the n real numbers whose transform has the bins x (complex) along axis.

    - n: the length of the result; 0 means 2·(bins - 1). An odd length must be given. Bins over n/2 are ignored; bins
      that are missing are 0.
    - The imaginary parts of bin 0, and of bin n/2 of an even n, are ignored.
    - norm: backward, ortho or forward, see above.

    Values of norm: backward ortho forward.
    Gradient: own rule.
    """
    return call("irfft", [x], {"axis": axis, "n": n, "norm": norm}, (True,))


def stft(
    x: ArrayLike,
    window: ArrayLike | None = None,
    *,
    n_fft: int = 0,
    hop: int = 0,
    win_length: int = 0,
    center: builtins.bool = True,
    pad_mode: str = "reflect",
    normalized: builtins.bool = False,
    onesided: builtins.bool = True,
) -> Array:
    """Transforms of frames of the signals x [B, T], f32 or f64. y is complex, [B, bins, frames]: frame t has the n_fft
    samples from t·hop on, times the window.

    - n_fft: required. hop: samples between frames; 0 means n_fft/4, at least 1.
    - win_length: 0 means n_fft. window [win_length], in the dtype of x; absent: ones. A shorter window is centred in
      the frame; its other weights are 0.
    - center: n_fft/2 samples are added at both ends, so that frame t is centred at t·hop. pad_mode: reflect mirrors
      the signal, which must be longer than this; constant adds zeros.
    - onesided: bins 0 to n_fft/2; else all n_fft.
    - normalized: divides by √n_fft.
    - There are 1 + (T + 2·(n_fft/2) - n_fft)/hop frames (rounded down), without center 1 + (T - n_fft)/hop.

    Values of pad_mode: reflect constant.
    Gradient: by decomposition.
    """
    return call(
        "stft",
        [x, window],
        {"n_fft": n_fft, "hop": hop, "win_length": win_length, "center": center, "pad_mode": pad_mode, "normalized":
         normalized, "onesided": onesided},
        (True,),
    )


def istft(
    x: ArrayLike,
    window: ArrayLike | None = None,
    *,
    n_fft: int = 0,
    hop: int = 0,
    win_length: int = 0,
    center: builtins.bool = True,
    normalized: builtins.bool = False,
    onesided: builtins.bool = True,
    length: int = 0,
) -> Array:
    """The inverse of stft. Each frame of x [B, bins, frames] is transformed back, times the window, and added where it
    is in the signal; y [B, samples] is the sum, divided by that of the squared windows.

    - n_fft, hop, win_length, window, center, normalized, onesided: as for stft. With center, n_fft/2 samples at both
      ends are dropped.
    - length: the samples of y, cut or filled with zeros; 0 means those that the frames cover.
    - A sample where the sum of squared windows is below 1e-11 is an error.

    Gradient: by decomposition.
    """
    return call(
        "istft",
        [x, window],
        {"n_fft": n_fft, "hop": hop, "win_length": win_length, "center": center, "normalized": normalized, "onesided":
         onesided, "length": length},
        (True,),
    )


def fft_conv1d(x: ArrayLike, w: ArrayLike, *, mode: str = "full") -> Array:
    """The convolution of x [.., A] with w [.., B] along their last axes, by transforms: y_i = Σ_j x_(i-j)·w_j. Both are
    f32, f64, c64 or c128, of one dtype; the axes before the last broadcast. It is faster than conv1d where w is
    long, and its errors are those of transforms: relative to the largest elements, not to each one.

    - mode: the part that is kept. full: all A + B - 1 elements. same: A elements, from (B - 1)/2 (rounded down) on.
      valid: the max(A, B) - min(A, B) + 1 elements in which the shorter operand lies wholly in the longer one.

    Edge cases. An empty last axis is an error. A NaN or an infinity in a row reaches all elements of that row. So
    does a sum over a row that overflows, even where the convolution itself would not.

    Values of mode: full same valid.
    Gradient: own rule.
    """
    return call("fft_conv1d", [x, w], {"mode": mode}, (True,))


def fftfreq(*, n: int = 0, d: float = 1.0, onesided: builtins.bool = False, dtype: DTypeLike | None = "f32") -> Array:
    """The frequencies of the bins of a transform, in cycles per unit of d: y [n] = [0, 1, .., ceil(n/2) - 1,
    -floor(n/2), .., -1]/(n·d). If n is even, the middle frequency is negative.

    - n: required; the length of the transform. d: the time between two samples, not 0.
    - onesided: the bins of rfft: y [n/2 + 1] = [0, 1, .., floor(n/2)]/(n·d).
    - dtype: of y.

    Values of dtype: f32 f16 bf16 f64.
    Gradient: by decomposition.
    """
    return call(
        "fftfreq",
        [],
        {"n": n, "d": d, "onesided": onesided, "dtype": None if dtype is None else DType.of(dtype)},
        (True,),
    )


def fftshift(x: ArrayLike, axes: Sequence[int] = (), *, inverse: builtins.bool = False) -> Array:
    """Moves bin 0 to the middle of each axis: along an axis of length n, y_i = x_((i - floor(n/2)) mod n). x has any
    dtype of whole bytes.

    - axes: each once; empty means all.
    - inverse: undoes the shift. For an odd length the two shifts differ by one element.

    Gradient: own rule.
    """
    return call("fftshift", [x], {"axes": tuple(axes), "inverse": inverse}, (True,))


def splat_project(
    means: ArrayLike,
    quats: ArrayLike,
    scales: ArrayLike,
    viewmats: ArrayLike,
    intrinsics: ArrayLike,
    *,
    width: int = 0,
    height: int = 0,
    eps2d: float = 0.3,
    near: float = 0.01,
    far: float = 1e10,
    radius_clip: float = 0.0,
    response: str = "ewa",
) -> tuple[Array, Array, Array, Array]:
    """Projects each Gaussian to an ellipse in the image of each camera.

    - means [P, 3]: centres in the world. viewmats [I, 4, 4]: from world to camera; the upper left 3x3 is a rotation
      V, the last column t.
    - quats [P, 4]: rotations as w, x, y, z, of any length but 0. scales [P, 3]: standard deviations along the
      rotated axes.
    - intrinsics [I, 3, 3]: the entries (0,0) fx, (1,1) fy, (0,2) cx and (1,2) cy, in pixels.
    - width, height: required; of the images in pixels, from 1 to 2^20.
    - eps2d: added to both variances in the image, so that nothing is thinner than about half a pixel.
    - response: ewa, conics of the projected ellipse; ray3d, conics of responses along rays, for splat_rasterize with
      the same response.
    - radii [I, P], i32: the radius in pixels, 0 = culled. means2d [I, P, 2]: centres, x and y. depths [I, P]: z in
      the camera's axes. conics [I, P, 3]: the inverse covariance (a, b, c) of [[a, b], [b, c]]; with ray3d [I, P,
      6]: (a, b, c, p, q, k), see below. All are 0 where culled.

    With q = quats/|quats|, M = R(q)·diag(scales) and (x, y, z) = V·mean + t:

        u = clamp(x/z, -(cx + 0.15·width)/fx, (width - cx + 0.15·width)/fx)          v alike
        J = [[fx/z, 0, -fx·u/z], [0, fy/z, -fy·v/z]]
        S = (J·V·M)(J·V·M)ᵀ + eps2d·I                conic = S⁻¹
        means2d = (fx·x/z + cx, fy·y/z + cy)
        λ = h + sqrt(max(0.01, h² - det S)), h = trace S / 2        radius = ceil(3·sqrt(λ))

    With ray3d the conic describes the largest response along a pixel's ray. Radii are those of ewa. With G = V·M,
    its rows g0, g1, g2, and m = (x/z)·(g1×g2) + (y/z)·(g2×g0) + g0×g1:

        a, b, c: the inverse of (J·V·M)(J·V·M)ᵀ with u = x/z and v = y/z, without eps2d
        p = -<m, g1×g2>/(fx·|m|²)          q = -<m, g2×g0>/(fy·|m|²)          k = det(G)²/(z²·|m|²)

    1/k is the squared distance of the camera from the mean, in standard deviations.

    Edge cases. Culled are Gaussians with z <= near or z >= far; with det S <= 0, a radius <= radius_clip, or a box
    of the radius that does not touch the image; with |quats| = 0, or a number that is not finite in the Gaussian or
    its camera. With ray3d also those whose conic is not finite, such as a Gaussian that is a line.

    Values of response: ewa ray3d.
    Gradient: by decomposition.
    """
    return call(
        "splat_project",
        [means, quats, scales, viewmats, intrinsics],
        {"width": width, "height": height, "eps2d": eps2d, "near": near, "far": far, "radius_clip": radius_clip,
         "response": response},
        (True, True, True, True),
    )


def splat_sh(means: ArrayLike, viewmats: ArrayLike, coeffs: ArrayLike, *, degree: int = 3) -> Array:
    """Colors from spherical harmonics, seen from each camera.

    - means [P, 3]: centres of the Gaussians. viewmats [I, 4, 4]: from world to camera; the upper left 3x3 is a
      rotation V, the last column t.
    - coeffs [P, K, 3] with K >= (degree + 1)²: the first are used. degree: 0 to 3.
    - y [I, P, 3]: max(0, 0.5 + Σ_k Y_k(d)·coeffs[:, k]), d the unit vector from the camera's centre -Vᵀt to the
      mean.

    The harmonics have the signs of 3D Gaussian splatting: Y_0 = 0.2821, Y_1..3 = 0.4886·(-y, z, -x), and so on.

    Edge cases. A mean in the camera's centre has d = 0. A Gaussian whose coefficients, or above degree 0 whose mean,
    are not all finite counts as one of zeros, without a gradient. So does a camera whose matrix is not all finite.

    Gradient: by decomposition.
    """
    return call("splat_sh", [means, viewmats, coeffs], {"degree": degree}, (True,))


def splat_bin(
    radii: ArrayLike,
    means2d: ArrayLike,
    depths: ArrayLike,
    *,
    width: int = 0,
    height: int = 0,
    tile: int = 16,
    max_intersections: int = 0,
) -> tuple[Array, Array, Array]:
    """Lists the tiles that each Gaussian touches, in the order of the pairs of a camera and a Gaussian, and within a
    pair by rows of tiles. Each element of the list is an entry.

    - radii [I, P] i32, means2d [I, P, 2] and depths [I, P]: as splat_project gives them.
    - width, height: required; of the images, from 1 to 2^20. tile: the side of a tile in pixels, from 1 to 64.
    - max_intersections: required; M, the capacity of the list.
    - keys [M], i64: tile·2^32 + the bits of the depth as f32, where tile = (i·th + y)·tw + x, th = ceil(height/tile)
      and tw = ceil(width/tile). ids [M], i32: i·P + p. Unused entries come last, with the key 2^63 - 1 and the id
      -1.
    - count [], i64: the number of entries that are used.

    A visible Gaussian touches the tiles x in [floor((mx - r)/tile), ceil((mx + r)/tile)) of the image, y alike.

    Edge cases. Visible are Gaussians with a radius above 0, a finite centre, and a depth whose f32 is positive and
    finite; others have no entries. More than M entries are an error: out_of_memory, which names their number;
    index_out_of_range where the op is decomposed. At most 2^31 - 1 tiles and as many pairs.

    Gradient: none.
    """
    return call(
        "splat_bin",
        [radii, means2d, depths],
        {"width": width, "height": height, "tile": tile, "max_intersections": max_intersections},
        (True, True, True),
    )


def splat_sort(
    keys: ArrayLike,
    ids: ArrayLike,
    *,
    images: int = 1,
    width: int = 0,
    height: int = 0,
    tile: int = 16,
) -> tuple[Array, Array]:
    """Sorts entries by their keys: by tile, and in a tile by depth. Equal keys keep their order.

    - keys [M] i64, ids [M] i32: as splat_bin gives them. images: I. width, height, tile: as in splat_bin.
    - sorted_ids [M], i32. Entries whose key belongs to no tile get the id -1.
    - tile_offsets [I, th, tw], i32: the position of the first entry of each tile. A tile ends where the next one
      begins, the last one at M.

    Gradient: none.
    """
    return call(
        "splat_sort",
        [keys, ids],
        {"images": images, "width": width, "height": height, "tile": tile},
        (True, True),
    )


def splat_rasterize(
    means2d: ArrayLike,
    conics: ArrayLike,
    colors: ArrayLike,
    opacities: ArrayLike,
    tile_offsets: ArrayLike,
    ids: ArrayLike,
    background: ArrayLike | None = None,
    *,
    width: int = 0,
    height: int = 0,
    tile: int = 16,
    response: str = "ewa",
) -> tuple[Array, Array, Array]:
    """Blends the Gaussians of each pixel's tile from front to back.

    - means2d [I, P, 2], conics [I, P, 3], with ray3d [I, P, 6]: as splat_project gives them for this response.
      colors [I, P, C] with 1 to 32 channels. opacities [P].
    - tile_offsets, ids [M]: tile_offsets and sorted_ids of splat_sort. background [I, C]: black if absent.
    - width, height, tile: as in splat_bin.
    - response: ewa, the response of the projected Gaussian; ray3d, the largest response of the Gaussian in space
      along the pixel's ray.
    - image [I, height, width, C]. alpha [I, height, width]: 1 - the light that passes all entries. last_ids [I,
      height, width], i32: the position in ids of the last entry that is blended, -1 for none.

    With d = mean - (x + 0.5, y + 0.5), each pixel begins with the light T = 1 and the color 0. For each entry of its
    tile:

        power = (a·dx² + c·dy²)/2 + b·dx·dy            alpha = min(0.999, opacity·e^-power)
        skip the entry if power < 0, or if opacity·e^-power is below 1/255 or not finite
        stop before the entry if T·(1 - alpha) <= 1e-4
        color += alpha·T·colors                        T = T·(1 - alpha)

    With ray3d the power is instead that of the point of the ray that is nearest to the mean in standard deviations:

        form = a·dx² + c·dy² + 2·b·dx·dy               along = 1 + p·dx + q·dy
        power = form/(2·(along² + k·form))             skip the entry too if along <= 0: the point is behind the camera

    The tiles are those of the projected ellipse, which splat_bin finds from radii. A response beyond them, as a
    close Gaussian seen from aside may have, is cut off at the border of its tiles.

    Last, color += T·background. For a > 0 the form is computed as (a·dx + b·dy)²/a + det·dy²/a, which does not
    cancel for thin ellipses.

    Edge cases. An id of -1 is skipped. Other ids out of [0, I·P), and offsets that decrease or are out of [0, M],
    are errors: index_out_of_range. Entries before the first offset belong to no tile. Opacities are not clamped. A
    pixel without entries shows the background.

    Values of response: ewa ray3d.
    Gradient: own rule.
    """
    return call(
        "splat_rasterize",
        [means2d, conics, colors, opacities, tile_offsets, ids, background],
        {"width": width, "height": height, "tile": tile, "response": response},
        (True, True, True),
    )


def splat_render(
    means: ArrayLike,
    quats: ArrayLike,
    scales: ArrayLike,
    opacities: ArrayLike,
    coeffs: ArrayLike,
    viewmats: ArrayLike,
    intrinsics: ArrayLike,
    background: ArrayLike | None = None,
    *,
    width: int = 0,
    height: int = 0,
    eps2d: float = 0.3,
    near: float = 0.01,
    far: float = 1e10,
    radius_clip: float = 0.0,
    degree: int = 3,
    tile: int = 16,
    max_intersections: int = 0,
    response: str = "ewa",
) -> tuple[Array, Array]:
    """Renders Gaussians: splat_project, splat_sh, splat_bin, splat_sort and splat_rasterize in one op.

    - means [P, 3], quats [P, 4], scales [P, 3], viewmats [I, 4, 4], intrinsics [I, 3, 3], width, height, eps2d,
      near, far, radius_clip: as in splat_project.
    - coeffs [P, K, 3] and degree: as in splat_sh. opacities [P]. background [I, 3]: black if absent.
    - tile, max_intersections: as in splat_bin. response: ewa or ray3d, as in splat_rasterize.
    - image [I, height, width, 3] and alpha [I, height, width]: as in splat_rasterize.

    Values of response: ewa ray3d.
    Gradient: by decomposition.
    """
    return call(
        "splat_render",
        [means, quats, scales, opacities, coeffs, viewmats, intrinsics, background],
        {"width": width, "height": height, "eps2d": eps2d, "near": near, "far": far, "radius_clip": radius_clip,
         "degree": degree, "tile": tile, "max_intersections": max_intersections, "response": response},
        (True, True),
    )


def mel_filterbank(
    *,
    sr: float = 16000.0,
    n_fft: int = 400,
    n_mels: int = 80,
    fmin: float = 0.0,
    fmax: float | None = None,
    scale: str = "slaney",
    norm: str = "slaney",
    dtype: DTypeLike | None = "f32",
) -> Array:
    """The weights w [n_mels, n_fft/2 + 1] of triangular filters over the bins of a transform of n_fft samples:

        w[m,k] = max(0, min((f_k - e_m)/(e_(m+1) - e_m), (e_(m+2) - f_k)/(e_(m+2) - e_(m+1)))),    f_k = k·sr/n_fft

    The n_mels + 2 edges e are equally spaced on the mel scale from fmin to fmax. Weights are computed in f64 and
    rounded to dtype: f32, f16, bf16 or f64.

    - sr: the sample rate in Hz, positive. n_fft, n_mels: positive, with at most 2^27 weights.
    - fmin, fmax: 0 ≤ fmin < fmax ≤ sr/2; unset, fmax is sr/2.
    - scale: slaney is 3f/200 mel below 1000 Hz and 15 + 27·ln(f/1000)/ln 6.4 from there on; htk is 2595·log10(1 +
      f/700).
    - norm: slaney multiplies filter m by 2/(e_(m+2) - e_m), so that each has the area 1; none leaves peaks of 1.
    - A filter that is narrower than a bin may have no weights.

    Values of scale: slaney htk.
    Values of norm: slaney none.
    Values of dtype: f32 f16 bf16 f64.
    Gradient: by decomposition.
    """
    return call(
        "mel_filterbank",
        [],
        {"sr": sr, "n_fft": n_fft, "n_mels": n_mels, "fmin": fmin, "fmax": fmax, "scale": scale, "norm": norm, "dtype":
         None if dtype is None else DType.of(dtype)},
        (True,),
    )


def log_mel(
    x: ArrayLike,
    w: ArrayLike,
    *,
    floor: float = 1e-10,
    log: str = "log10",
    dynamic_range: float = 8.0,
    affine: builtins.bool = True,
    max_scope: str = "example",
) -> Array:
    """The powers x [B, F, frames] times the filters w [n_mels, F], as logarithms y [B, n_mels, frames]. x is f32 or
    f64, or the complex result of stft, whose powers are re² + im². w has the dtype of x, or of its parts.

    With m, the mel power spectrum w·x:

        l = log(max(m, floor))
        l = max(l, M - dynamic_range)    M: the largest l of the scope
        y = (l + 4)/4                    with affine

    - floor: positive. Where m is floor or less, l is exactly its logarithm, so silence gives exactly -1.5 by
      default.
    - log: log10 or log, the natural logarithm.
    - dynamic_range: 0 or more; 0 leaves the second line out. affine: without it y is l.
    - max_scope: example takes the maximum over all mels and frames of an example, tensor over all examples, frame
      over the mels of a frame.
    - A NaN makes the whole scope NaN.

    Values of log: log10 log.
    Values of max_scope: example tensor frame.
    Gradient: own rule.
    """
    return call(
        "log_mel",
        [x, w],
        {"floor": floor, "log": log, "dynamic_range": dynamic_range, "affine": affine, "max_scope": max_scope},
        (True,),
    )


def log_mel_spectrogram(
    x: ArrayLike,
    window: ArrayLike | None = None,
    *,
    sr: float = 16000.0,
    n_fft: int = 400,
    hop: int = 160,
    n_mels: int = 80,
    fmin: float = 0.0,
    fmax: float | None = None,
    scale: str = "slaney",
    norm: str = "slaney",
    center: builtins.bool = True,
    pad_mode: str = "reflect",
    drop_last: builtins.bool = True,
    floor: float = 1e-10,
    log: str = "log10",
    dynamic_range: float = 8.0,
    affine: builtins.bool = True,
    max_scope: str = "example",
) -> Array:
    """log_mel of the spectra of the signals x [B, T], f32 or f64: y [B, n_mels, frames] in the dtype of x. The kernel
    of the cpu writes no spectra, and skips the weights of 0: there 0·inf is 0.

    - n_fft, hop, center, pad_mode (reflect or constant), window [n_fft]: as for stft. Without a window, Hann's: 0.5
      - 0.5·cos(2πj/n_fft).
    - drop_last: without the last frame. With center and an even n_fft, T/hop frames remain (rounded down).
    - sr, n_mels, fmin, fmax, scale (slaney or htk), norm (slaney or none): the filters, see mel_filterbank.
    - floor, log (log10 or log), dynamic_range, affine, max_scope (example, tensor or frame): as for log_mel.

    Values of scale: slaney htk.
    Values of norm: slaney none.
    Values of pad_mode: reflect constant.
    Values of log: log10 log.
    Values of max_scope: example tensor frame.
    Gradient: by decomposition.
    """
    return call(
        "log_mel_spectrogram",
        [x, window],
        {"sr": sr, "n_fft": n_fft, "hop": hop, "n_mels": n_mels, "fmin": fmin, "fmax": fmax, "scale": scale, "norm":
         norm, "center": center, "pad_mode": pad_mode, "drop_last": drop_last, "floor": floor, "log": log,
         "dynamic_range": dynamic_range, "affine": affine, "max_scope": max_scope},
        (True,),
    )


def welch_psd(
    x: ArrayLike,
    window: ArrayLike | None = None,
    *,
    fs: float = 1.0,
    nperseg: int = 256,
    noverlap: int = -1,
    nfft: int = 0,
    detrend: str = "constant",
    onesided: builtins.bool = True,
    scaling: str = "density",
    average: str = "mean",
) -> Array:
    """The mean power p [B, bins] of segments of the signals x [B, T], f32 or f64, in the dtype of x. Each segment of
    nperseg samples loses its trend, is multiplied by the window, filled with zeros to nfft samples and transformed:

        p[f] = c[f] · scale · average over the segments of |X[f]|²

    c is 2 for bins that stand for two, and 1 for bin 0, for bin nfft/2 of an even nfft, and without onesided.

    - nperseg: at most T. noverlap: samples that neighbouring segments share, below nperseg; -1 means nperseg/2
      (rounded down). There are (T - noverlap)/(nperseg - noverlap) segments (rounded down); samples behind them are
      not used.
    - nfft: 0 means nperseg; a larger one interpolates bins.
    - window [nperseg], in the dtype of x; absent: Hann's, 0.5 - 0.5·cos(2πj/nperseg). A window whose squares
      (density) or weights (spectrum) add up to 0 fails with numeric_error, or with index_out_of_range where the op
      is decomposed.
    - detrend: constant subtracts the mean of the segment, linear the line of least squares, none nothing.
    - onesided: bins 0 to nfft/2; else all nfft.
    - fs: samples per second, positive. scaling: density has the scale 1/(fs·Σ window²), spectrum 1/(Σ window)².
    - average: mean, or median, divided by the bias of the median of such powers: 1 + Σ (1/(2i+1) - 1/(2i)) for i
      from 1 to (segments - 1)/2.
    - Each signal is computed by itself: a NaN stays in its row.

    Values of detrend: constant none linear.
    Values of scaling: density spectrum.
    Values of average: mean median.
    Gradient: by decomposition.
    """
    return call(
        "welch_psd",
        [x, window],
        {"fs": fs, "nperseg": nperseg, "noverlap": noverlap, "nfft": nfft, "detrend": detrend, "onesided": onesided,
         "scaling": scaling, "average": average},
        (True,),
    )


def spectrum_peaks(
    x: ArrayLike,
    *,
    k: int = 1,
    select: str = "local_maxima",
    height: float | None = None,
    min_distance: int = 1,
    prominence: float = 0.0,
) -> tuple[Array, Array, Array]:
    """The k best peaks of each row of x [B, F], f32 or f64: index [B, k] in i32, power [B, k] in the dtype of x, and
    count [B] in i32, how many of the k slots are used. Larger powers come first, of equal ones the lower index.
    Unused slots have index -1 and power 0. Complex x [B, S, F] stands for the mean over S of re² + im².

    - k: 1 or more.
    - select: local_maxima are runs of equal numbers between smaller ones; the index is the middle of the run,
      rounded down. The first and the last bin are in no peak. top_bins are the largest bins at any place; k is at
      most F, and there are no filters.
    - height: the least power of a peak; unset: any.
    - min_distance: peaks nearer than this to a larger one that stays are dropped. Of equal peaks the last one counts
      as the larger one.
    - prominence: the least height over the higher one of the two valleys beside a peak. A valley is the lowest
      number on the way to a larger one, or to the end of the row.
    - Filters apply in this order, then the best k are taken.
    - NaN is larger or smaller than no number, so it is in no peak, nor beside one. top_bins takes it last.

    Values of select: local_maxima top_bins.
    Gradient: own rule.
    """
    return call(
        "spectrum_peaks",
        [x],
        {"k": k, "select": select, "height": height, "min_distance": min_distance, "prominence": prominence},
        (True, True, True),
    )


def welch_peaks(
    x: ArrayLike,
    window: ArrayLike | None = None,
    *,
    fs: float = 1.0,
    nperseg: int = 256,
    noverlap: int = -1,
    nfft: int = 0,
    detrend: str = "constant",
    onesided: builtins.bool = True,
    scaling: str = "density",
    average: str = "mean",
    k: int = 1,
    select: str = "local_maxima",
    height: float | None = None,
    min_distance: int = 1,
    prominence: float = 0.0,
) -> tuple[Array, Array, Array]:
    """spectrum_peaks of the result of welch_psd, in one kernel on the cpu. x [B, T], window [nperseg]; index, power and
    count are those of spectrum_peaks.

    - fs, nperseg, noverlap, nfft, detrend (constant, none or linear), onesided, scaling (density or spectrum),
      average (mean or median): see welch_psd.
    - k, select (local_maxima or top_bins), height, min_distance, prominence: see spectrum_peaks.

    Values of detrend: constant none linear.
    Values of scaling: density spectrum.
    Values of average: mean median.
    Values of select: local_maxima top_bins.
    Gradient: by decomposition.
    """
    return call(
        "welch_peaks",
        [x, window],
        {"fs": fs, "nperseg": nperseg, "noverlap": noverlap, "nfft": nfft, "detrend": detrend, "onesided": onesided,
         "scaling": scaling, "average": average, "k": k, "select": select, "height": height, "min_distance":
         min_distance, "prominence": prominence},
        (True, True, True),
    )


@overload
def selective_scan(
    u: ArrayLike,
    dt: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    d: ArrayLike | None = None,
    z: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    *,
    dt_softplus: builtins.bool = False,
    layout: str = "bdl",
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def selective_scan(
    u: ArrayLike,
    dt: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    d: ArrayLike | None = None,
    z: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    *,
    dt_softplus: builtins.bool = False,
    layout: str = "bdl",
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def selective_scan(
    u: ArrayLike,
    dt: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    d: ArrayLike | None = None,
    z: ArrayLike | None = None,
    dt_bias: ArrayLike | None = None,
    h0: ArrayLike | None = None,
    *,
    dt_softplus: builtins.bool = False,
    layout: str = "bdl",
    all_outputs: builtins.bool = False,
) -> Any:
    """The recurrence of Mamba, for each sequence, channel d and state n:

        δ_t = dt_t + dt_bias               (softplus of it with dt_softplus)
        h_t = exp(δ_t·a)·h_{t-1} + δ_t·b_t·u_t
        y_t = (Σ_n c_t·h_t + d·u_t)·silu(z_t)

    B sequences, D channels, L steps, N states of each channel. Channel d reads group d / (D/G) of b and c.

    - u, dt, z: float, [B, D, L], or [B, L, D] with layout bld. z absent: no factor.
    - b, c: dtype of u, [B, G, N, L], or [B, L, G, N] with bld. Without the axis G there is one group. G divides D.
    - a [D, N], d [D], dt_bias [D], h0 [B, D, N]: the accumulation dtype. Absent ones count as 0.
    - layout: bdl or bld. dt_softplus: as above.
    - y: type of u. h_last [B, D, N]: the last state. States are in the accumulation dtype at every step.

    A step of generation has L = 1; h0 is the h_last of the step before.

    Mamba-2 (SSD) has one a and one dt for each head of D/H channels: expand both to the channels of their head, and
    a to all N states.

    Edge cases. L = 0: y is empty and h_last is h0. a above 0 is allowed, and a state may become infinite. N is at
    least 1. Complex a is refused.

    Values of layout: bdl bld.
    Gradient: own rule.
    """
    return call(
        "selective_scan",
        [u, dt, a, b, c, d, z, dt_bias, h0],
        {"dt_softplus": dt_softplus, "layout": layout},
        (True, all_outputs),
    )


@overload
def gated_delta_rule(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    *,
    scale: float | None = None,
    qk_l2norm: builtins.bool = False,
    chunk: int = 64,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def gated_delta_rule(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    *,
    scale: float | None = None,
    qk_l2norm: builtins.bool = False,
    chunk: int = 64,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def gated_delta_rule(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    *,
    scale: float | None = None,
    qk_l2norm: builtins.bool = False,
    chunk: int = 64,
    all_outputs: builtins.bool = False,
) -> Any:
    """The recurrence of Gated DeltaNet, Qwen3-Next and Kimi Delta Attention. For each sequence and value head, with a
    state S [K, V]:

        S' = exp(g_t)·S_{t-1}
        r  = v_t - S'ᵀ·k_t
        S_t = S' + k_t·(beta_t·r)ᵀ
        o_t = scale·S_tᵀ·q_t

    B sequences of T tokens, H key heads, HV value heads. HV is a multiple of H; value head i reads key head i /
    (HV/H).

    - q, k [B, T, H, K], v [B, T, HV, V]: float. beta [B, T, HV]: dtype of q.
    - g: the logarithm of the decay, in the accumulation dtype. [B, T, HV], or [B, T, HV, K] for a decay of each row
      of S.
    - state: the first states, [B, HV, K, V] in the accumulation dtype; absent: zeros. state_out: the last ones.
    - cu_seqlens [S + 1], index dtype: S sequences are concatenated along T (packed), with B = 1, and sequence i has
      the tokens from cu_seqlens[i] to cu_seqlens[i + 1]. Then there are S states.
    - scale: K^-½ by default. qk_l2norm: divides each row x of q and k by √(Σx² + 1e-6) first.
    - chunk: the number of tokens that a device may join into products of matrices. It changes no result beyond
      rounding.
    - o: type of v.

    A step of generation has T = 1; state is the state_out of the step before.

    Edge cases. T = 0: o is empty and state_out is state. Sequences may be empty. cu_seqlens that do not begin with
    0, decrease, or do not end with T fail with index_out_of_range. g above 0 is allowed.

    Gradient: own rule.
    """
    return call(
        "gated_delta_rule",
        [q, k, v, g, beta, state, cu_seqlens],
        {"scale": scale, "qk_l2norm": qk_l2norm, "chunk": chunk},
        (True, all_outputs),
    )


def knn(
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    dist: ArrayLike | None = None,
    *,
    k: int = 1,
    metric: str = "euclidean",
    exclude_self: builtins.bool = True,
) -> tuple[Array, Array]:
    """The k nearest candidates of each point, the nearest first. All pairs are compared, so the result is exact.

    - x [.., N, D]: float; the points. y [.., M, D]: the candidates, in the dtype of x and with its batch axes.
      Absent: x.
    - dist [.., N, M]: float; given distances, instead of x and y.
    - k: from 1 to the number of candidates.
    - metric, of points x and y: euclidean is √Σ(x - y)², sqeuclidean is Σ(x - y)², cosine is 1 - cos, as ½·Σ(x/‖x‖ -
      y/‖y‖)², and inner is -Σ x·y, so the largest product comes first.
    - exclude_self: without y, point i is no candidate of point i; equal points of other indices are. dist must then
      be square. With y it has no effect.
    - index [.., N, k], i32: the candidates. Equal distances: the lower index first.
    - distance [.., N, k]: in the accumulation dtype.

    Differences are squared and summed, so distances are accurate for close points far from the origin. With dist,
    metric has no effect.

    Edge cases. NaN comes last, behind inf; the index is valid. With cosine, a zero vector has distance 1 from every
    candidate; without y, its distance from itself is 0. euclidean compares the squares, so distances that are equal
    only after the root keep the order of their squares. Points without coordinates (D = 0) are refused. The
    decomposition holds all N·M distances; kernels do not.

    Values of metric: euclidean sqeuclidean cosine inner.
    Gradient: own rule.
    """
    return call("knn", [x, y, dist], {"k": k, "metric": metric, "exclude_self": exclude_self}, (True, True))


def dequantize_blocks(w: ArrayLike, to: DTypeLike | None = "f32") -> Array:
    """y = the elements of w.

    - w: any shape whose last dim is a multiple of a block. y: the same shape.
    - to: f32, f16, bf16 or f64. Halves are rounded from f32; what is too large becomes infinite.

    On a device without a kernel for it, nodes of the family run on another device, or on the cpu, as a fallback.

    Values of to: f32 f16 bf16 f64.
    Gradient: own rule.
    """
    return call("dequantize_blocks", [w], {"to": None if to is None else DType.of(to)}, (True,))


@overload
def dequant_matmul(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    compute: str = "f32",
    gate: str = "none",
    eps: float = 1e-5,
    all_outputs: Literal[False] = False,
) -> Array: ...
@overload
def dequant_matmul(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    compute: str = "f32",
    gate: str = "none",
    eps: float = 1e-5,
    all_outputs: Literal[True],
) -> tuple[Array, Array]: ...
def dequant_matmul(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    gamma: ArrayLike | None = None,
    residual: ArrayLike | None = None,
    *,
    compute: str = "f32",
    gate: str = "none",
    eps: float = 1e-5,
    all_outputs: builtins.bool = False,
) -> Any:
    """y = x·wᵀ + bias

    - x [.., K]: float. w [N, K]: blocks. bias [N]: the dtype of x or f32; absent: 0. y [.., N]: the dtype of x.
    - compute: the least precise form in which a device may multiply. f32: elements of w and of x in the accumulation
      dtype. tf32, f16, bf16: both may be rounded to that; sums are in f32. int8: each 32 or 256 elements of x along
      K may be rounded to 8-bit integers with one scale, so that sums within a block are sums of integers; of the
      magnitude that the terms have, about 1 % can get lost. The numbers of f8e4m3_128 are no integers, so the cpu
      multiplies them with floats instead. A device may always be more precise; f64 operands are never rounded.

    A product may take along the norm before it and the gate behind it:

    - gamma [K], in the dtype of x or f32: instead of x, the product takes rms_norm(x, gamma) with eps. With
      residual, of the type of x, it takes residual_rms_norm(x, residual, gamma), and sum is x + residual. residual
      needs gamma, and sum needs residual.
    - gate: if it is not none, N is even, and y [.., N/2] is swiglu of x·wᵀ + bias with this act: act(first half) ·
      second half. silu, gelu, gelu_tanh, relu, sigmoid: as for unary.

    Values between these steps are rounded to the dtype of x, as if each step were a node of its own. The planner
    makes such nodes where a device claims them.

    On the cpu the bits of a row of y do not depend on the other rows of x, unless it is f64; the page of the cuda
    plugin says where that holds on cuda. An infinite element of x may make NaN of a row.

    Decomposition. With gamma or gate: the nodes named above. Else: dequantize_blocks in the accumulation dtype, and
    a product.

    Values of compute: f32 tf32 f16 bf16 int8.
    Values of gate: none silu gelu gelu_tanh relu sigmoid.
    Gradient: own rule.
    """
    return call(
        "dequant_matmul",
        [x, w, bias, gamma, residual],
        {"compute": compute, "gate": gate, "eps": eps},
        (True, all_outputs),
    )


def grouped_dequant_matmul(
    x: ArrayLike,
    w: ArrayLike,
    ids: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    p: ArrayLike | None = None,
    *,
    compute: str = "f32",
) -> Array:
    """Each row is multiplied by the matrix of its expert: y[i] = p[i] · x[i]·w[e(i)]ᵀ.

    - x [M, K]: float. w [E, N, K]: blocks. y [M, N]: the dtype of x.
    - ids [M], offsets [E+1] and p [M], in the dtype of x or f32: as for grouped_matmul, with the same edge cases.
    - compute: as for dequant_matmul. f32 tf32 f16 bf16 int8.

    The blocks of an expert without rows have no influence.

    Values of compute: f32 tf32 f16 bf16 int8.
    Gradient: own rule.
    """
    return call("grouped_dequant_matmul", [x, w, ids, offsets, p], {"compute": compute}, (True,))


def dequant_rows(w: ArrayLike, ids: ArrayLike, to: DTypeLike | None = "f32") -> Array:
    """y[i] = the elements of row ids[i] of w.

    - w [N, K]: blocks. ids: index dtype, any shape; negative ones count from the end. An id outside -N, N) fails
      with index_out_of_range. y: the shape of ids, then K.
    - to: f32, f16, bf16 or f64, as for [dequantize_blocks.

    Values of to: f32 f16 bf16 f64.
    Gradient: own rule.
    """
    return call("dequant_rows", [w, ids], {"to": None if to is None else DType.of(to)}, (True,))
