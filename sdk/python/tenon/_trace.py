# SPDX-License-Identifier: Apache-2.0
"""Tracing: Python code that runs once and leaves a graph. What stands for an array meanwhile is a Traced."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Union

import numpy as np

from ._dtypes import DType
from ._errors import DtypeMismatch, Error, InvalidArgument
from ._operators import Operators
from ._tenon import Graph, Tensor, Value

_PACKAGE = os.path.dirname(__file__) + os.sep
_local = threading.local()


class TraceError(InvalidArgument, TypeError):
    """Python code asks a traced value for what only a run can tell, or uses it outside of its trace."""


class Place:
    """A line of the user's code."""

    __slots__ = ("file", "line")

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def with_source(self) -> str:
        """The place, and the line itself if the file can be read."""
        source = linecache.getline(self.file, self.line).strip()
        return f"{self}: {source}" if source else str(self)


def here() -> Place:
    """The innermost line that is not of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


class Traced(Operators):
    """A value of a graph that is being traced: it has a dtype and a shape, its elements are known only in runs."""

    __slots__ = {
        "_trace": "The trace that it belongs to.",
        "_value": "Its value in the graph.",
        "_place": "The line that made it.",
        "_weak": "Is it a number of Python, which takes the dtype of what it meets?",
        "dtype": "Its dtype.",
        "shape": "Its dims.",
    }

    dtype: DType
    shape: tuple[int, ...]

    def __init__(self, trace: Trace, value: Value, place: Place, weak: bool = False) -> None:
        self._trace, self._value, self._place = trace, value, place
        self._weak = weak
        self.dtype = value.dtype
        self.shape = value.shape  # type: ignore[assignment]  # traces have no symbols

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __repr__(self) -> str:
        return f"Traced({self.dtype}[{','.join(map(str, self.shape))}])"

    def _refuse(self, what: str, hint: str) -> TraceError:
        return TraceError(
            f"{self._trace.name}: {what} of a traced value, {self!r} from {self._place.with_source()}; "
            f"its elements are known only when the graph runs; at {here().with_source()}. hint: {hint}"
        )

    def __bool__(self) -> bool:
        raise self._refuse("the truth", "tenon.where(), tenon.cond() or tenon.while_loop(), or a static argument")

    def __float__(self) -> float:
        raise self._refuse("float()", "compute with it as it is, or return it")

    def __int__(self) -> int:
        raise self._refuse("int()", "compute with it as it is, cast(), or a static argument")

    def __index__(self) -> int:
        raise self._refuse("an index for Python", "tenon.ops.gather() or dynamic_slice(), or a static argument")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise self._refuse("a NumPy array", "functions of tenon.ops instead of those of numpy")

    def numpy(self) -> np.ndarray[Any, Any]:
        """Refused: the elements are known only in runs."""
        raise self._refuse("numpy()", "return it, and read the result")

    def item(self) -> Any:
        """Refused: the element is known only in runs."""
        raise self._refuse("item()", "return it, and read the result")

    def tolist(self) -> Any:
        """Refused: the elements are known only in runs."""
        raise self._refuse("tolist()", "return it, and read the result")


Array = Union[Tensor, Traced]
Number = Union[bool, int, float]
ArrayLike = Union[Tensor, Traced, "np.ndarray[Any, Any]", Number, Sequence[Any]]


class Many(list[Any]):
    """A list of operands, where an op takes several. Other lists are arrays."""


def as_array(data: Any) -> Any:
    """An array as it is; nested lists as an array, floats as f32."""
    if hasattr(data, "dtype"):
        return data
    array = np.asarray(data)
    return array.astype(np.float32) if array.dtype == np.float64 else array


_NUMBERS = (int, float, np.bool_)


def is_number(x: object) -> bool:
    """Is it a number of Python, which has no dtype of its own?"""
    return isinstance(x, _NUMBERS)


class Trace:
    """A graph in the making. One inside another is a function: a body of vmap, scan, cond or while_loop."""

    def __init__(self, name: str, parent: Trace | None = None, graph: Any = None) -> None:
        self.name, self.parent = name, parent
        self.graph = Graph(name) if graph is None else graph
        self.captured: list[tuple[Traced, Traced]] = []  # (outside, inside)
        self._inside: dict[int, Traced] = {}  # by the number of the value outside
        self._constants: dict[Any, tuple[Any, Value]] = {}

    def input(self, name: str, dtype: DType, shape: Sequence[int], weak: bool = False) -> Traced:
        """Adds an input."""
        return Traced(self, self.graph.input(name, dtype, shape), here(), weak)

    def capture(self, outside: Traced) -> Traced:
        """The input that passes a value of the trace around this one."""
        found = self._inside.get(outside._value.id)
        if found is None:
            name = f"captured{len(self.captured)}"
            found = Traced(self, self.graph.input(name, outside.dtype, outside.shape), outside._place, outside._weak)
            self._inside[outside._value.id] = found
            self.captured.append((outside, found))
        return found

    def constant(self, data: Any, dtype: DType | None = None) -> Traced:
        """A constant: an array, a number, nested lists."""
        if is_number(data):
            dtype = dtype or dtype_of_number(data)
            key: Any = (dtype, repr(data))
            if key not in self._constants:
                self._constants[key] = (data, self.graph.constant(_number_array(data, dtype)))
        else:
            key = id(data)
            if key not in self._constants:
                array = data.to("cpu") if isinstance(data, Tensor) else as_array(data)
                self._constants[key] = (data, self.graph.constant(array))
        return Traced(self, self._constants[key][1], here())

    def lift(self, x: Any) -> Traced:
        """What stands for x in this trace: a value of this trace or one around it, or a constant."""
        if not isinstance(x, Traced):
            return self.constant(x)
        if x._trace is self:
            return x
        around = self.parent
        while around is not None:
            if around is x._trace:
                assert self.parent is not None
                return self.capture(self.parent.lift(x))
            around = around.parent
        raise leaked(x)

    def add(
        self,
        op: str,
        operands: Sequence[Any],
        attributes: Mapping[str, Any],
        want: Sequence[bool],
        domain: str = "tenon",
        weak: bool = False,
    ) -> list[Any]:
        """Adds a node. Returns what it defines; None for outputs that are not wanted."""
        place = here()
        values = [_values(self, x) for x in operands]
        try:
            made = self.graph.add(op, values, attributes, want, domain, 0, str(place))
        except Error as e:
            raise at(e, place) from None
        return [None if v is None else Traced(self, v, place, weak) for v in made]


def _values(trace: Trace, x: Any) -> Any:
    if x is None:
        return None
    if isinstance(x, Many):
        return [_values(trace, e) for e in x]
    return trace.lift(x)._value


def at(error: Error, place: Place) -> Error:
    """The same error with the user's line in its text."""
    error.args = (f"{error}; at {place.with_source()}",)
    return error


def leaked(x: Traced) -> TraceError:
    """The error of a value that is used outside of its trace."""
    return TraceError(
        f"{x._trace.name}: {x!r} from {x._place.with_source()} is used outside of its trace, at "
        f"{here().with_source()}; expected a value of the trace that runs now. hint: return values from traced "
        "functions; do not keep them in variables of the world around"
    )


def current() -> Trace | None:
    """The innermost trace of this thread."""
    return getattr(_local, "trace", None)


@contextmanager
def tracing(name: str, *, inside: bool = False, graph: Any = None) -> Iterator[Trace]:
    """Makes a new trace the current one. inside: as a function of the current one. graph: instead of a new one, the graph
    that a rule of an op extends."""
    before = current()
    trace = Trace(name, before if inside else None, graph)
    _local.trace = trace
    try:
        yield trace
    finally:
        _local.trace = before


def dtype_of_number(x: Any) -> DType:
    """The dtype of a number that meets no array."""
    if isinstance(x, (bool, np.bool_)):
        return DType.bool
    return DType.i64 if isinstance(x, int) else DType.f32


FLOATS = frozenset((DType.f32, DType.f16, DType.bf16, DType.f64))


def _number_array(x: Any, dtype: DType) -> Any:
    kind = dtype_of_number(x)
    if dtype not in FLOATS and (kind is DType.f32 or (dtype is DType.bool and kind is not DType.bool)):
        raise DtypeMismatch(
            f"{x!r} beside an operand of dtype {dtype}: expected "
            f"{'a bool' if dtype is DType.bool else 'a whole number'}; at {here().with_source()}. hint: cast() the operand"
        )
    try:
        return np.asarray(x, dtype.numpy)
    except OverflowError:
        raise DtypeMismatch(f"{x!r}: it is no {dtype}; at {here().with_source()}") from None


def unify(trace: Trace, operands: Sequence[Any]) -> list[Traced]:
    """Operands of one dtype: numbers of Python take the dtype of the arrays."""
    arrays = [x if is_number(x) else trace.lift(x) for x in operands]
    firm = next((x.dtype for x in arrays if isinstance(x, Traced) and not x._weak), None)
    if firm is None:
        kinds = [x.dtype if isinstance(x, Traced) else dtype_of_number(x) for x in arrays]
        firm = next((k for k in (DType.f32, DType.i64) if k in kinds), kinds[0])
    out = []
    for x in arrays:
        if not isinstance(x, Traced):
            x = trace.constant(x, firm)
        elif x._weak and x.dtype is not firm:
            if firm not in FLOATS and x.dtype in FLOATS:
                raise DtypeMismatch(
                    f"a float beside an operand of dtype {firm}: expected a whole number; at {here().with_source()}. "
                    "hint: cast() the operand"
                )
            (x,) = trace.add("cast", [x], {"to": firm}, [True])
        out.append(x)
    return out


def all_weak(operands: Sequence[Any]) -> bool:
    """Are all of them numbers of Python?"""
    return all(is_number(x) or (isinstance(x, Traced) and x._weak) for x in operands)
