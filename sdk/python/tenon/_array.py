# SPDX-License-Identifier: Apache-2.0
"""Operators and methods of traced values and tensors: `a + b`, `a @ b`, `a[1:]`, `a.sum(0)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from . import ops
from ._call import dtype_of, type_of
from ._dtypes import DType, DTypeLike
from ._errors import DtypeMismatch, IndexOutOfRange, ShapeMismatch, Unsupported
from ._methods import add_methods
from ._tenon import Tensor
from ._trace import FLOATS, Array, Traced, here, is_number


def _is_array(x: Any) -> bool:
    return isinstance(x, (Traced, Tensor, np.ndarray, list)) or is_number(x) or hasattr(x, "__dlpack__")


def _binary(function: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not _is_array(other):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method


def _divide(a: Any, b: Any) -> Any:
    """a / b of floats."""
    for x in (a, b):
        if not is_number(x) and type_of(x)[0] not in FLOATS:
            raise DtypeMismatch(
                f"/: expected floats, got {type_of(x)[0]}; at {here().with_source()}. hint: // or ops.cast()"
            )
    return ops.divide(a, b)


def _floor_divide(a: Any, b: Any) -> Any:
    kind = type_of(b if is_number(a) else a)[0]
    if kind in FLOATS:
        return ops.floor(ops.divide(a, b))
    return ops.divide(ops.subtract(a, ops.mod(a, b)), b)


def _bits(of_bools: Callable[[Any, Any], Any], of_integers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def choose(a: Any, b: Any) -> Any:
        kind = type_of(b if is_number(a) else a)[0]
        return of_bools(a, b) if kind is DType.bool else of_integers(a, b)

    return choose


def _invert(self: Any) -> Any:
    if dtype_of(self) is DType.bool:
        return ops.logical_not(self)
    unsigned = dtype_of(self).name.startswith("u")
    return ops.bit_xor(self, (1 << dtype_of(self).bits) - 1 if unsigned else -1)


def _axes(axis: int | Sequence[int] | None) -> Sequence[int]:
    return () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(
        self: Any,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Any:
        if out is not None:
            raise Unsupported(
                f"{function.__name__}: out: expected None, got {type(out).__name__}; it is not written to"
            )
        x = self if dtype is None else ops.cast(self, dtype)
        return function(x, _axes(axis), keepdims=keepdims)

    method.__doc__ = (
        f"ops.{function.__name__}() over an axis, several, or all; dtype: that to compute in. NumPy's function of this name "
        "calls it."
    )
    return method


def _reshape(self: Any, *shape: Any) -> Any:
    """The same elements in another shape; one entry may be -1."""
    dims = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return ops.reshape(self, dims, allow_zero=-1 not in dims)


def _transpose(self: Any, *axes: Any) -> Any:
    """Permutes the axes; without arguments, reverses them."""
    perm = tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return ops.transpose(self, perm or tuple(reversed(range(len(self.shape)))))


def _astype(self: Any, dtype: DTypeLike) -> Any:
    """The elements in another dtype: ops.cast()."""
    return ops.cast(self, dtype)


def _length(self: Any) -> int:
    if not self.shape:
        raise TypeError("len() of an array without dims")
    return int(self.shape[0])


def _iterate(self: Any) -> Iterator[Any]:
    if not self.shape:
        raise TypeError("iteration over an array without dims")
    return (self[i] for i in range(self.shape[0]))


def _contains(self: Tensor, item: Any) -> bool:
    return _is_array(item) and bool(ops.any(ops.equal(self, item)))


def _positive(self: Any) -> Any:
    return self


def index(x: Array, key: Any) -> Array:
    """x[key]: whole numbers, slices, None, ..., and one array of indices or traced number."""
    keys = list(key) if isinstance(key, tuple) else [key]
    shape = x.shape
    taken = sum(k is not None and not isinstance(k, EllipsisType) for k in keys)
    if taken > len(shape):
        raise ShapeMismatch(f"index: {taken} indices for an array of rank {len(shape)}; at {here().with_source()}")
    missing = [slice(None)] * (len(shape) - taken)
    at = next((i for i, k in enumerate(keys) if isinstance(k, EllipsisType)), None)
    keys = keys + missing if at is None else keys[:at] + missing + keys[at + 1 :]
    if any(isinstance(k, EllipsisType) for k in keys):
        raise ShapeMismatch(f"index: '...' stands twice; expected it once; at {here().with_source()}")
    start: list[int] = []
    length: list[int] = []
    step: list[int] = []
    dims: list[int] = []  # after the slices
    gathers: list[tuple[int, Any]] = []
    axis = 0
    for k in keys:
        if k is None:
            dims.append(1)
            continue
        d = shape[axis]
        if isinstance(k, slice):
            a, b, s = k.indices(d)
            n = len(range(a, b, s))
            taken_here = (max(a, 0), n, s) if n else (0, 0, 1)
            dims.append(n)
        elif isinstance(k, (int, np.integer)) and not isinstance(k, bool):
            if not -d <= k < d:
                raise IndexOutOfRange(
                    f"index: {k} on axis {axis}; expected {-d} to {d - 1}, shape {list(shape)}; "
                    f"at {here().with_source()}"
                )
            taken_here = (int(k) % d, 1, 1)
        elif isinstance(k, (Traced, Tensor, np.ndarray, list)):
            kind, of = type_of(k)
            if kind is DType.bool:
                raise DtypeMismatch(
                    f"index: by bools, whose count a graph does not know; at {here().with_source()}. hint: ops.where()"
                )
            taken_here = (0, d, 1)
            gathers.append((len(dims), k if kind in (DType.i32, DType.i64) else ops.cast(k, "i64")))
            dims.append(d)
        else:
            raise TypeError(f"index: {k!r}; expected whole numbers, slices, None, ... or an array of indices")
        for numbers, number in zip((start, length, step), taken_here):
            numbers.append(number)
        axis += 1
    if len(gathers) > 1:
        raise ShapeMismatch(
            f"index: {len(gathers)} arrays of indices; expected one; at {here().with_source()}. hint: ops.gather()"
        )
    y: Array = x
    if length != list(shape) or any(s != 1 for s in step):
        y = ops.narrow(y, start=start, len=length, step=step)
    if tuple(dims) != tuple(length):
        y = ops.reshape(y, dims, allow_zero=True)
    for place, indices in gathers:
        y = ops.gather(y, indices, place)
    return y


# What the operators of NumPy's arrays call, by name.
_UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "add": ops.add,
    "subtract": ops.subtract,
    "multiply": ops.multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "remainder": ops.mod,
    "power": ops.pow,
    "matmul": ops.matmul,
    "bitwise_and": _bits(ops.logical_and, ops.bit_and),
    "bitwise_or": _bits(ops.logical_or, ops.bit_or),
    "bitwise_xor": _bits(ops.logical_xor, ops.bit_xor),
    "less": ops.less,
    "less_equal": ops.less_equal,
    "greater": ops.greater,
    "greater_equal": ops.greater_equal,
    "equal": ops.equal,
    "not_equal": ops.not_equal,
}


def _ufunc(self: Traced, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
    """`array + traced` is an op; other functions of NumPy need elements."""
    function = _UFUNCS.get(ufunc.__name__)
    if function is None or method != "__call__" or options:
        name = f"numpy.{ufunc.__name__}()"
        own = f"tenon.ops.{ufunc.__name__}()" if hasattr(ops, ufunc.__name__) else "functions of tenon.ops"
        raise self._refuse(name, f"{own} instead of {name}")
    return function(*operands)


_METHODS: dict[str, Any] = {
    "__add__": _binary(ops.add),
    "__radd__": _binary(ops.add, True),
    "__sub__": _binary(ops.subtract),
    "__rsub__": _binary(ops.subtract, True),
    "__mul__": _binary(ops.multiply),
    "__rmul__": _binary(ops.multiply, True),
    "__truediv__": _binary(_divide),
    "__rtruediv__": _binary(_divide, True),
    "__floordiv__": _binary(_floor_divide),
    "__rfloordiv__": _binary(_floor_divide, True),
    "__mod__": _binary(ops.mod),
    "__rmod__": _binary(ops.mod, True),
    "__pow__": _binary(ops.pow),
    "__rpow__": _binary(ops.pow, True),
    "__matmul__": _binary(ops.matmul),
    "__rmatmul__": _binary(ops.matmul, True),
    "__and__": _binary(_bits(ops.logical_and, ops.bit_and)),
    "__rand__": _binary(_bits(ops.logical_and, ops.bit_and), True),
    "__or__": _binary(_bits(ops.logical_or, ops.bit_or)),
    "__ror__": _binary(_bits(ops.logical_or, ops.bit_or), True),
    "__xor__": _binary(_bits(ops.logical_xor, ops.bit_xor)),
    "__rxor__": _binary(_bits(ops.logical_xor, ops.bit_xor), True),
    "__lshift__": _binary(ops.shift_left),
    "__rshift__": _binary(ops.shift_right),
    "__lt__": _binary(ops.less),
    "__le__": _binary(ops.less_equal),
    "__gt__": _binary(ops.greater),
    "__ge__": _binary(ops.greater_equal),
    "__eq__": _binary(ops.equal),
    "__ne__": _binary(ops.not_equal),
    "__len__": _length,
    "__iter__": _iterate,
    "__neg__": ops.negative,
    "__pos__": _positive,
    "__abs__": ops.abs,
    "__invert__": _invert,
    "sum": _reduction(ops.sum),
    "mean": _reduction(ops.mean),
    "max": _reduction(ops.max),
    "min": _reduction(ops.min),
    "prod": _reduction(ops.prod),
    "any": _reduction(ops.any),
    "all": _reduction(ops.all),
    "reshape": _reshape,
    "transpose": _transpose,
    "astype": _astype,
    "T": property(_transpose, doc="The array with its axes in reverse order."),
}
_OF_TRACED: dict[str, Any] = {
    "__hash__": object.__hash__,  # by identity
    "__getitem__": index,
    "__array_ufunc__": _ufunc,
}
_OF_TENSOR: dict[str, Any] = {
    "__hash__": None,  # == is elementwise
    "__contains__": _contains,
}
for _class in (Traced, Tensor):
    add_methods(_class, _METHODS)
add_methods(Traced, _OF_TRACED)
add_methods(Tensor, _OF_TENSOR)
