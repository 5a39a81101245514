# SPDX-License-Identifier: Apache-2.0
"""The dtypes of tenon, and their names in NumPy."""

from __future__ import annotations

import enum
from typing import Any, Union

import numpy as np

from ._errors import DtypeMismatch, Unsupported

# (dtype, bits, name in NumPy, or in ml_dtypes)
_NUMPY = {
    "f32": (32, "float32"),
    "f16": (16, "float16"),
    "bf16": (16, "bfloat16"),
    "f64": (64, "float64"),
    "i8": (8, "int8"),
    "i16": (16, "int16"),
    "i32": (32, "int32"),
    "i64": (64, "int64"),
    "u8": (8, "uint8"),
    "u16": (16, "uint16"),
    "u32": (32, "uint32"),
    "u64": (64, "uint64"),
    "i4": (4, ""),
    "u4": (4, ""),
    "bool": (8, "bool"),
    "c64": (64, "complex64"),
    "f8e4m3": (8, "float8_e4m3fn"),
    "f8e5m2": (8, "float8_e5m2"),
    "c128": (128, "complex128"),
}
# Dtypes of blocks: elements and bytes of a block.
_BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q8_1": (32, 36),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "q8_k": (256, 292),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq3_xxs": (256, 98),
    "iq1_s": (256, 50),
    "iq4_nl": (32, 18),
    "iq3_s": (256, 110),
    "iq2_s": (256, 82),
    "iq4_xs": (256, 136),
    "iq1_m": (256, 56),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "mxfp4": (32, 17),
    "nvfp4": (64, 36),
    "q1_0": (128, 18),
    "q2_0": (64, 18),
    "f8e4m3_128": (128, 132),
}
_OF_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


class DType(enum.Enum):
    """A dtype of tenon. `DType.of()` finds the one that a name or a dtype of NumPy or PyTorch means."""

    f32 = 1
    f16 = 2
    bf16 = 3
    f64 = 4
    i8 = 5
    i16 = 6
    i32 = 7
    i64 = 8
    u8 = 9
    u16 = 10
    u32 = 11
    u64 = 12
    i4 = 13
    u4 = 14
    bool = 15
    c64 = 16
    f8e4m3 = 17
    f8e5m2 = 18
    c128 = 19
    # Blocks of quantized weights. Up to 0x17F: as GGUF files store them, 0x100 and the number of the format there.
    q4_0 = 0x102
    q4_1 = 0x103
    q5_0 = 0x106
    q5_1 = 0x107
    q8_0 = 0x108
    q8_1 = 0x109
    q2_k = 0x10A
    q3_k = 0x10B
    q4_k = 0x10C
    q5_k = 0x10D
    q6_k = 0x10E
    q8_k = 0x10F
    iq2_xxs = 0x110
    iq2_xs = 0x111
    iq3_xxs = 0x112
    iq1_s = 0x113
    iq4_nl = 0x114
    iq3_s = 0x115
    iq2_s = 0x116
    iq4_xs = 0x117
    iq1_m = 0x11D
    tq1_0 = 0x122
    tq2_0 = 0x123
    mxfp4 = 0x127
    nvfp4 = 0x128
    q1_0 = 0x129
    q2_0 = 0x12A
    f8e4m3_128 = 0x180

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tenon.DType.{self.name}" if self.name in _BLOCKS else f"tenon.{self.name}"

    @property
    def bits(self) -> int:
        """Bits of an element; 0 for blocks."""
        return 0 if self.name in _BLOCKS else _NUMPY[self.name][0]

    @property
    def block(self) -> tuple[int, int] | None:
        """The elements and bytes of a block; None for a dtype without blocks."""
        return _BLOCKS.get(self.name)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The dtype of NumPy. bf16 and f8 need the package ml_dtypes; i4, u4 and blocks have none."""
        if self.name in _BLOCKS:
            raise Unsupported(
                f"dtype {self.name}: it consists of blocks, which NumPy cannot state; expected another dtype. "
                "hint: ops.dequantize_blocks in the graph"
            )
        name = _NUMPY[self.name][1]
        if not name:
            raise Unsupported(
                f"dtype {self.name}: it has two elements per byte, which NumPy cannot state; "
                "expected another dtype. hint: cast to i8 in the graph"
            )
        if name not in _OF_ML_DTYPES:
            return np.dtype(name)
        try:
            import ml_dtypes
        except ImportError:
            raise Unsupported(
                f"dtype {self.name}: NumPy has it only with the package ml_dtypes. hint: pip install ml_dtypes"
            ) from None
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype

    @staticmethod
    def of(dtype: DTypeLike) -> DType:
        """The dtype of a name ("f32", "float32"), or of a dtype of NumPy, ml_dtypes or PyTorch."""
        if isinstance(dtype, DType):
            return dtype
        name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
        if name in DType.__members__:
            return DType[name]
        if name not in _BY_NUMPY:
            try:
                name = np.dtype(dtype).name
            except TypeError:
                pass
        if name in _BY_NUMPY:
            return DType[_BY_NUMPY[name]]
        raise DtypeMismatch(f"dtype {dtype!r}: tenon has no such dtype; expected one of {', '.join([*_NUMPY, *_BLOCKS])}")


_BY_NUMPY = {numpy_name: name for name, (_, numpy_name) in _NUMPY.items() if numpy_name}

DTypeLike = Union[DType, str, "np.dtype[Any]", type, Any]

f32, f16, bf16, f64 = DType.f32, DType.f16, DType.bf16, DType.f64
i8, i16, i32, i64 = DType.i8, DType.i16, DType.i32, DType.i64
u8, u16, u32, u64 = DType.u8, DType.u16, DType.u32, DType.u64
i4, u4, boolean = DType.i4, DType.u4, DType.bool
c64, c128 = DType.c64, DType.c128
f8e4m3, f8e5m2 = DType.f8e4m3, DType.f8e5m2
