# SPDX-License-Identifier: Apache-2.0
"""Translates graphs of torch.fx, in ops of ATen, to graphs of tenon. The rules for ops are in _ops_*.py."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from .._dtypes import DType
from .._errors import Error, Unsupported
from .._tenon import Graph, Value

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
FLOATS = (DType.f32, DType.f16, DType.bf16, DType.f64)
COMPLEX = (DType.c64, DType.c128)
_PYTHON: dict[Any, Callable[..., Any]] = {
    f: f
    for f in (
        operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
        operator.neg, operator.pow, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
        min, max, torch.sym_max, torch.sym_min, torch.sym_int, torch.sym_float, torch.sym_not, torch.sym_ite,
    )
}  # fmt: skip


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers how ops of ATen are written: "relu" stands for aten::relu with the overload "default"."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name if "." in name else name + ".default"] = function
        return function

    return register


def name_of(target: Any) -> str:
    """The name of an op of ATen as in RULES; other functions have their names in full."""
    name = str(target)
    return name.removeprefix("aten.") if isinstance(target, torch._ops.OpOverload) else name


def path_of(node: torch.fx.Node) -> str:
    """The path of the module that a node comes from: "layers.0.attention"."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [str(path) for path, _ in stack.values() if path]
    return paths[-1].removeprefix("L['self'].") if paths else ""


def is_covered(node: torch.fx.Node) -> bool:
    """Is there a rule for the function that a node calls?"""
    return node.target in _PYTHON or name_of(node.target) in RULES


def refuse(what: str, problems: Iterable[tuple[str, str, str]], cause: Exception | None = None) -> None:
    """Raises for triples of op, path and reason, if there are any: one line each."""
    counts: dict[tuple[str, str, str], int] = {}
    for p in problems:
        counts[p] = counts.get(p, 0) + 1
    if not counts:
        return
    lines = [
        f"\n  {op}{f' in {path}' if path else ''}: {reason}{f' ({n} times)' if n > 1 else ''}"
        for (op, path, reason), n in counts.items()
    ]
    raise Unsupported(f"{what}: tenon does not cover all of its ops:{''.join(lines)}") from cause


class Translator:
    """Translates the nodes of one graph, for numbers as dims. Rules get it as their first argument.

    Values of tenon stand for tensors, numbers of Python for numbers. `out` describes the result of the node at hand: a
    tensor without content, or a tuple of them.
    """

    def __init__(self, name: str, differentiates: bool = False) -> None:
        self.graph = Graph(name)
        self.differentiates = differentiates
        self.out: Any = None
        self.path = ""
        self.problems: list[tuple[str, str, str]] = []
        self.cause: Exception | None = None  # of the first problem
        self._constants: dict[tuple[Any, str], Value] = {}

    # ---- Nodes

    def add(self, op: str, operands: Sequence[Any], want: Sequence[bool] | None = None, /, **attributes: Any) -> Any:
        """Adds a node. Returns its output, or the list of its outputs."""
        given = {name: value for name, value in attributes.items() if value is not None}
        outputs = self.graph.add(op, list(operands), given, want=want, provenance=self.path)
        return outputs[0] if len(outputs) == 1 else outputs

    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        """A constant: an array, or a number of a dtype."""
        if dtype is None:
            return self.graph.constant(np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value))
        signs = np.signbit([np.real(value), np.imag(value)])
        key = (value if value == value else "nan", dtype.name + type(value).__name__ + str(signs))
        if key not in self._constants:
            if dtype in (DType.bf16, DType.f8e4m3, DType.f8e5m2):
                wide = self.graph.constant(np.array(value, np.float32))
                self._constants[key] = self.graph.add("cast", [wide], {"to": dtype})[0]
            else:
                with np.errstate(over="ignore"):
                    self._constants[key] = self.graph.constant(np.array(value).astype(dtype.numpy))
        return self._constants[key]

    def cast(self, x: Any, dtype: DType) -> Value:
        """A value or a number, as a value of a dtype."""
        if not isinstance(x, Value):
            return self.constant(x, dtype)
        return x if x.dtype == dtype else self.add("cast", [x], to=dtype)

    def binary(self, kind: str, a: Any, b: Any, dtype: DType | None = None) -> Value:
        """An op `binary`. Numbers, and values of other dtypes, become values of `dtype`, by default that of `a` or `b`."""
        dtype = dtype or (a.dtype if isinstance(a, Value) else b.dtype)
        return self.add("binary", [self.cast(a, dtype), self.cast(b, dtype)], kind=kind)

    def unary(self, kind: str, x: Value, **attributes: Any) -> Value:
        """An op `unary`."""
        return self.add("unary", [x], kind=kind, **attributes)

    def compare(self, kind: str, a: Any, b: Any, dtype: DType | None = None) -> Value:
        """An op `compare`."""
        dtype = dtype or (a.dtype if isinstance(a, Value) else b.dtype)
        return self.add("compare", [self.cast(a, dtype), self.cast(b, dtype)], kind=kind)

    def where(self, condition: Value, a: Any, b: Any, dtype: DType | None = None) -> Value:
        """An op `where`."""
        dtype = dtype or (a.dtype if isinstance(a, Value) else b.dtype)
        return self.add("where", [condition, self.cast(a, dtype), self.cast(b, dtype)])

    def reduce(self, kind: str, x: Value, axes: Sequence[int] = (), keepdims: bool = False) -> Value:
        """An op `reduce`; no axes means all."""
        if not self.shape(x):
            return self.add("reduce", [x], kind=kind, noop_with_empty_axes=True)
        return self.add("reduce", [x], kind=kind, axes=list(axes), keepdims=keepdims)

    def stop_gradient(self, x: Value) -> Value:
        """An op `stop_gradient`, where it matters."""
        return self.add("stop_gradient", [x]) if self.differentiates and x.dtype in FLOATS + COMPLEX else x

    # ---- Shapes

    def shape(self, x: Value) -> list[int]:
        """The dims of a value, which are numbers here."""
        shape = x.shape
        assert shape is not None
        return [int(d) for d in shape]

    def axis(self, x: Value, axis: int) -> int:
        """An axis that does not count from the end."""
        return axis % max(len(self.shape(x)), 1)

    def axes(self, x: Value, axes: int | Sequence[int] | None) -> list[int]:
        """Axes that do not count from the end; none at all means all."""
        if axes is None or (isinstance(axes, (list, tuple)) and not axes):
            return list(range(len(self.shape(x))))
        return [self.axis(x, a) for a in ([axes] if isinstance(axes, int) else axes)]

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` with other dims; at most one is -1."""
        dims = [int(d) for d in shape]
        if -1 in dims:
            size = int(np.prod(self.shape(x), dtype=np.int64))
            rest = int(np.prod([d for d in dims if d != -1], dtype=np.int64))
            dims[dims.index(-1)] = size // max(rest, 1)
        return x if dims == self.shape(x) else self.add("reshape", [x], shape=dims, allow_zero=True)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """`x` with its axes in another order."""
        return x if list(perm) == list(range(len(perm))) else self.add("transpose", [x], perm=list(perm))

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` repeated to a shape."""
        return x if list(shape) == self.shape(x) else self.add("expand", [x], shape=list(shape))

    def narrow(self, x: Value, axis: int, start: int, length: int, step: int = 1) -> Value:
        """A slice along one axis."""
        dims = self.shape(x)
        if step == 1 and start == 0 and length == dims[axis]:
            return x
        starts, steps = [0] * len(dims), [1] * len(dims)
        starts[axis], dims[axis], steps[axis] = start, length, step
        return self.add("narrow", [x], start=starts, len=dims, step=steps)

    def full(self, shape: Sequence[int], value: Any, dtype: DType) -> Value:
        """A tensor of equal elements."""
        return self.expand(self.constant(value, dtype), [int(d) for d in shape])

    def iota(self, size: int, dtype: DType = DType.i64) -> Value:
        """0, 1, ... size - 1."""
        return self.add("iota", [], shape=[size], dtype=dtype)

    def gather(self, x: Value, at: Value, axis: int) -> Value:
        """An op `gather`, also of complex numbers."""
        axis = self.axis(x, axis)
        if x.dtype not in COMPLEX:
            return self.add("gather", [x, at], axis=axis)
        return self.add("view_as_complex", [self.add("gather", [self.add("view_as_real", [x]), at], axis=axis)])

    def gather_elements(self, x: Value, at: Value, axis: int) -> Value:
        """An op `gather_elements`, also of complex numbers."""
        axis = self.axis(x, axis)
        if x.dtype not in COMPLEX:
            return self.add("gather_elements", [x, at], axis=axis)
        dims = self.shape(at)
        pairs = self.expand(self.reshape(at, [*dims, 1]), [*dims, 2])
        parts = self.add("gather_elements", [self.add("view_as_real", [x]), pairs], axis=axis)
        return self.add("view_as_complex", [parts])

    # ---- Results

    @property
    def dtype(self) -> DType:
        """The dtype of the (first) result of the node at hand."""
        out = self.out[0] if isinstance(self.out, (tuple, list)) else self.out
        return DType.of(out.dtype)

    def refuse(self, reason: str) -> Any:
        """Refuses the node at hand."""
        raise Unsupported(reason)

    # ---- Graphs

    def translate(self, nodes: Iterable[torch.fx.Node], env: dict[torch.fx.Node, Any]) -> Any:
        """Adds the nodes; `env` holds the placeholders. Returns what the graph returns. All that is not covered is in
        `problems` afterwards."""
        for node in nodes:
            if node in env:
                continue
            if node.op == "get_attr":
                env[node] = self._attribute(node)
                continue
            if node.op == "output":
                return torch.fx.map_arg(node.args[0], env.__getitem__)
            self.out, self.path = node.meta.get("val"), path_of(node) or node.name
            try:
                env[node] = self._call(node, env)
            except Exception as e:
                reason = str(e) if isinstance(e, Error) else f"{type(e).__name__}: {e}"
                self.problems.append((name_of(node.target), path_of(node), reason))
                self.cause = self.cause or e
                env[node] = self._stand_in(node, self.out)
        return None

    def _attribute(self, node: torch.fx.Node) -> Any:
        """A constant of the module that the graph belongs to."""
        value: Any = node.graph.owning_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return self.constant(value.detach().contiguous().numpy()) if isinstance(value, torch.Tensor) else value

    def _call(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
        args = torch.fx.map_arg(node.args, env.__getitem__)
        kwargs = dict(torch.fx.map_arg(node.kwargs, env.__getitem__))
        if node.target in _PYTHON:
            return _PYTHON[node.target](*args, **kwargs)
        if node.op != "call_function" or name_of(node.target) not in RULES:
            raise Unsupported("no rule")
        for name in ("layout", "device", "pin_memory", "memory_format", "non_blocking"):
            kwargs.pop(name, None)
        return RULES[name_of(node.target)](self, *args, **kwargs)

    def _stand_in(self, node: torch.fx.Node, out: Any, index: str = "") -> Any:
        """Something of the right type, so that the rest can be checked."""
        if isinstance(out, (tuple, list)):
            return tuple(self._stand_in(node, o, f"{index}.{i}") for i, o in enumerate(out))
        if not isinstance(out, torch.Tensor):
            return out
        dims = [d if isinstance(d, int) else d.node.hint for d in out.shape]
        return self.graph.input(f"missing.{node.name}{index}", DType.of(out.dtype), dims)
