# SPDX-License-Identifier: Apache-2.0
"""Tensors: how they are made, and the methods of Tensor that are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _tenon
from ._dtypes import DType, DTypeLike
from ._errors import DtypeMismatch, InvalidArgument
from ._methods import add_methods
from ._runtime import HOST, copier_to, default_runtime
from ._tenon import Tensor

if TYPE_CHECKING:
    import torch


def asarray(data: Any) -> Tensor:
    """A tensor that borrows memory, without a copy: of a NumPy array, a buffer, or a DLPack producer (PyTorch, CuPy).

    The tensor keeps what it borrows. Who changes the one changes the other.
    """
    return _tenon._borrow(data, default_runtime() if _on_device(data) else None)


def tensor(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor with memory of its own: a copy of an array, a tensor, a number, or nested lists.

    dtype: the dtype of the result; by default that of the data, and f32 for numbers and lists of floats of Python.
    """
    kind = None if dtype is None else DType.of(dtype)
    if not isinstance(data, np.ndarray) and not hasattr(data, "__dlpack__"):
        data = np.asarray(data)
        if kind is None and data.dtype == np.float64:
            kind = DType.f32
        elif kind is not None:
            _check_range(data, kind)
    if kind is not None:
        data = data if isinstance(data, np.ndarray) else _to(asarray(data), "cpu").numpy()
        data = data.astype(kind.numpy)
    return asarray(data)._copy()


def _check_range(data: np.ndarray[Any, Any], dtype: DType) -> None:
    """Refuses numbers of Python that an integer dtype does not hold: NumPy would wrap them."""
    if dtype.numpy.kind not in "iu" or data.dtype.kind not in "iufO" or data.size == 0:
        return
    limits = np.iinfo(dtype.numpy)
    for x in (data.min(), data.max()):
        if not limits.min <= x <= limits.max:
            raise DtypeMismatch(f"tensor: {x} is no {dtype}; expected {limits.min} to {limits.max}")


def empty(shape: Sequence[int], dtype: DTypeLike = DType.f32) -> Tensor:
    """A tensor in host memory whose elements have no particular value."""
    return _tenon._empty(DType.of(dtype).value, list(shape))


def blocks(data: Any, dtype: DTypeLike, shape: Sequence[int]) -> Tensor:
    """A tensor of blocks, such as q4_k, that borrows memory of bytes: of a bytes object, a mapped file, an array of u8."""
    array = np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray, memoryview)) else np.asarray(data)
    if array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise DtypeMismatch(f"blocks: expected contiguous bytes, got {array.dtype} of shape {array.shape}")
    return _tenon._blocks(asarray(array.reshape(-1)), DType.of(dtype).value, list(shape))


def _on_device(data: Any) -> bool:
    if isinstance(data, (Tensor, np.ndarray)) or not hasattr(data, "__dlpack_device__"):
        return False
    return int(data.__dlpack_device__()[0]) not in (1, 3)  # kDLCPU, kDLCUDAHost


def _numpy(self: Tensor) -> np.ndarray[Any, Any]:
    """The elements as a NumPy array, without a copy. The array keeps the memory. A tensor on a device is refused."""
    if self.device != "cpu":
        raise InvalidArgument(f'tensor: it is on {self.device}; expected host memory. hint: to("cpu")')
    dtype = self.dtype.numpy
    if self.dtype in (DType.bf16, DType.f8e4m3, DType.f8e5m2):
        return np.asarray(self._bits()).view(dtype)
    return np.asarray(memoryview(self))


def _torch(self: Tensor) -> torch.Tensor:
    """The elements as a tensor of PyTorch, without a copy. Read-only memory is refused: PyTorch would write to it."""
    if self.readonly:
        raise InvalidArgument(
            "tensor: it is read-only, which PyTorch does not heed; expected memory that may be written. "
            "hint: tenon.tensor(t).torch() copies"
        )
    import torch

    return torch.from_dlpack(self)


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """What numpy.asarray() calls."""
    array = _numpy(self)
    if dtype is not None and array.dtype != np.dtype(dtype):
        if copy is False:
            raise ValueError(f"tensor: a copy is needed for dtype {np.dtype(dtype)}, which copy=False forbids")
        return array.astype(dtype)
    return array.copy() if copy else array


def _to(self: Tensor, device: str) -> Tensor:
    """The tensor on a device: "cpu" is host memory, "cuda:0" a device of tenon. Itself if it is there already."""
    if not isinstance(device, str):
        raise InvalidArgument(f'tensor: to: expected "cpu" or a device such as "cuda:0", got {type(device).__name__}')
    if device == self.device or (device in HOST and self.device in HOST):
        return self
    return copier_to(self, device)


def _item(self: Tensor) -> Any:
    """The element of a tensor that has one, as a number of Python."""
    if self.size != 1:
        raise InvalidArgument(f"tensor: expected one element, got {self.size}")
    return _to(self, "cpu").numpy().reshape(()).item()


def _tolist(self: Tensor) -> Any:
    """The elements as nested lists."""
    return _to(self, "cpu").numpy().tolist()


def _getitem(self: Tensor, index: Any) -> Tensor:
    return asarray(np.asarray(_numpy(self)[index]))


def _repr(self: Tensor) -> str:
    dims = ",".join(str(d) for d in self.shape)
    head = f"tenon.Tensor({self.dtype}[{dims}], {self.device}"
    if self.device != "cpu" or self.dtype in (DType.i4, DType.u4) or self.dtype.block or not self.contiguous:
        return head + ")"
    try:
        values = np.array2string(self.numpy(), threshold=100, edgeitems=3, separator=", ", prefix="  ")
    except NotImplementedError:  # no ml_dtypes
        return head + ")"
    return f"{head},\n  {values})" if "\n" in values else f"{head}, {values})"


def _number(kind: Callable[[Any], Any]) -> Callable[[Tensor], Any]:
    def method(self: Tensor) -> Any:
        return kind(_item(self))

    return method


def _format(self: Tensor, spec: str) -> str:
    """As a number, if it has no dims: f"{t[0]:.2f}"."""
    if spec and not self.shape:
        return format(_item(self), spec)
    return object.__format__(self, spec)


def _reduce(self: Tensor) -> Any:
    """For copy and pickle: a copy in host memory."""
    return tensor, (_to(self, "cpu").numpy(),)


_METHODS: dict[str, Any] = {
    "numpy": _numpy,
    "torch": _torch,
    "__array__": _array,
    "to": _to,
    "item": _item,
    "tolist": _tolist,
    "__getitem__": _getitem,
    "__repr__": _repr,
    "__float__": _number(float),
    "__int__": _number(int),
    "__complex__": _number(complex),
    "__bool__": _number(bool),
    "__format__": _format,
    "__reduce__": _reduce,
}
add_methods(Tensor, _METHODS)
