# SPDX-License-Identifier: Apache-2.0
"""The exceptions of tenon: one class, and a subclass per code that has a counterpart in Python."""

from __future__ import annotations


class Error(Exception):
    """What tenon refuses or fails to do.

    `code` is the name of the status: "shape_mismatch". A run that fails also tells where, as far as it is known: `node`,
    `op` and `device` are texts, empty if unknown; `step` is an entry of "steps" in the report, `index` the flat index of
    the first bad element, `run_id` the number of the run in messages and traces. `retryable`: the same call may succeed
    later, because memory was short.
    """

    code: str = "invalid_argument"

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        node: str = "",
        op: str = "",
        device: str = "",
        run_id: int = 0,
        index: int | None = None,
        step: int | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code
        self.node = node
        self.op = op
        self.device = device
        self.run_id = run_id
        self.index = index
        self.step = step
        self.retryable = retryable


class InvalidArgument(Error, ValueError):
    """An attribute, a name or a call is wrong."""

    code = "invalid_argument"


class ShapeMismatch(Error, ValueError):
    """Ranks or dims do not match."""

    code = "shape_mismatch"


class DtypeMismatch(Error, TypeError):
    """Dtypes do not match."""

    code = "dtype_mismatch"


class Unsupported(Error, NotImplementedError):
    """The request is valid, but not implemented."""

    code = "unsupported"


class IndexOutOfRange(Error, IndexError):
    """An index in the data exceeds its axis."""

    code = "index_out_of_range"


class NumericError(Error, ArithmeticError):
    """The data has no result."""

    code = "numeric_error"


class OutOfMemory(Error, MemoryError):
    """A device, or the host, has too little memory."""

    code = "out_of_memory"


class NotFound(Error, LookupError):
    """There is no such name, file or device."""

    code = "not_found"


class IoError(Error, OSError):
    """The system failed to read or write."""

    code = "io_error"


_CLASSES = {
    c.code: c
    for c in (
        InvalidArgument,
        ShapeMismatch,
        DtypeMismatch,
        Unsupported,
        IndexOutOfRange,
        NumericError,
        OutOfMemory,
        NotFound,
        IoError,
    )
}


def make(
    number: int,
    code: str,
    text: str,
    node: str,
    op: str,
    device: str,
    run_id: int,
    index: int | None,
    step: int | None,
    retryable: bool,
) -> Error:
    """The exception of a status. The extension calls it."""
    return _CLASSES.get(code, Error)(
        text, code=code, node=node, op=op, device=device, run_id=run_id, index=index, step=step, retryable=retryable
    )
