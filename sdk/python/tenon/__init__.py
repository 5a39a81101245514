# SPDX-License-Identifier: Apache-2.0
"""tenon runs tensor programs: inference and training, on the devices that its plugins offer.

    import numpy as np, tenon

    m = tenon.load("model.onnx")
    y = m(np.ones((1, 3), np.float32))   # a tenon.Tensor; y.numpy(), y.torch() share its memory
"""

from typing import TYPE_CHECKING, Any

from . import _array, _errors, _log, llm, ops, optim, tree
from . import _tenon as _tenon
from ._control import cond, scan, while_loop
from ._custom import CustomOp, custom_op
from ._dtypes import (
    DType,
    bf16,
    boolean,
    c64,
    c128,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u4,
    u8,
    u16,
    u32,
    u64,
)
from ._errors import (
    DtypeMismatch,
    Error,
    IndexOutOfRange,
    InvalidArgument,
    IoError,
    NotFound,
    NumericError,
    OutOfMemory,
    ShapeMismatch,
    Unsupported,
)
from ._function import Function, function
from ._methods import show_signatures, with_signature
from ._model import Model, Outputs, Run, Spec, load
from ._report import Report
from ._runtime import Device, Plugin, devices, plugins, set_threads
from ._tenon import Executable, Graph, Runtime, Store, Tensor, Value
from ._tensor import asarray, blocks, empty, tensor
from ._trace import Array, ArrayLike, Traced, TraceError
from ._transforms import checkpoint, grad, jvp, value_and_grad, vjp, vmap
from .ops import stop_gradient

_tenon._set_hooks(_errors.make, _log.log, (None, *DType), Outputs)

assert _array  # adds the operators

for _class in (Executable, Graph, Runtime, Store, Tensor, Value):
    _class.__module__ = "tenon"
    show_signatures(_class)
available_memory = with_signature(_tenon.available_memory)

if TYPE_CHECKING:
    from .torch import from_torch as from_torch

__version__ = _tenon.version()


def __getattr__(name: str) -> Any:
    """What needs PyTorch, which is imported no earlier. Not in __all__: star imports do without it."""
    if name == "from_torch":
        from .torch import from_torch

        return from_torch
    raise AttributeError(f"module 'tenon' has no attribute '{name}'")


__all__ = [
    "Array",
    "ArrayLike",
    "CustomOp",
    "DType",
    "Device",
    "DtypeMismatch",
    "Error",
    "Executable",
    "Function",
    "Graph",
    "IndexOutOfRange",
    "InvalidArgument",
    "IoError",
    "Model",
    "NotFound",
    "NumericError",
    "OutOfMemory",
    "Outputs",
    "Plugin",
    "Report",
    "Run",
    "Runtime",
    "ShapeMismatch",
    "Spec",
    "Store",
    "Tensor",
    "TraceError",
    "Traced",
    "Unsupported",
    "Value",
    "asarray",
    "available_memory",
    "bf16",
    "blocks",
    "boolean",
    "c64",
    "c128",
    "checkpoint",
    "cond",
    "custom_op",
    "devices",
    "empty",
    "f16",
    "f32",
    "f64",
    "f8e4m3",
    "f8e5m2",
    "function",
    "grad",
    "i16",
    "i32",
    "i4",
    "i64",
    "i8",
    "jvp",
    "llm",
    "load",
    "ops",
    "optim",
    "plugins",
    "scan",
    "set_threads",
    "stop_gradient",
    "tensor",
    "tree",
    "u16",
    "u32",
    "u4",
    "u64",
    "u8",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
