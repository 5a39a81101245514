# SPDX-License-Identifier: Apache-2.0
"""tenon.function: a Python function that is traced once per set of types, and then runs as a graph."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from . import _tenon, tree
from ._call import dtype_of, known_dtypes
from ._dtypes import DType
from ._errors import Error, InvalidArgument
from ._model import Model
from ._options import checked, text
from ._report import Report
from ._tenon import Tensor
from ._trace import Trace, Traced, at, current, here, leaked, tracing

P = ParamSpec("P")
R = TypeVar("R")

_STATIC_TYPES = (bool, str, bytes, type, enum.Enum)
_FLOAT, _INT, _STATIC, _KEYWORDS = (object() for _ in range(4))  # in keys, where nothing else equals them
_MOST_KEPT = 64  # graphs of a function
_uses = itertools.count()


class _Compiled:
    """A traced graph, and how its outputs become the result."""

    def __init__(self, model: Model, count: int, structure: Any, static: Sequence[Any]) -> None:
        self.model, self.count, self.structure = model, count, structure
        self.static = static  # kept alive: the key contains them
        self.last_use = 0

    def run(self, leaves: list[Any]) -> Any:
        """Runs the graph."""
        if self.count == 0:
            return tree.unflatten(self.structure, ())
        return self.model._call_tree(leaves, self.structure)


def _describe_other(node: Any, leaves: list[Any], key: list[Any]) -> None:
    """What _tenon._describe() does not know."""
    if isinstance(node, Traced):
        raise leaked(node)
    if isinstance(node, _STATIC_TYPES):
        key += (_STATIC, type(node), node)
    elif isinstance(node, (int, float)):  # also numbers of NumPy that are numbers of Python
        key.append(_INT if isinstance(node, int) else _FLOAT)
        leaves.append(node)
    elif hasattr(node, "dtype") and hasattr(node, "shape"):
        key.append(dtype_of(node))
        key.append(tuple(node.shape))
        leaves.append(node if hasattr(node, "__dlpack__") else np.asarray(node))
    elif (found := tree.children(node)) is not None:
        keys, below = found
        key.append(type(node))
        key.append(keys)
        for child in below:
            _tenon._describe(child, leaves, key)
    else:
        try:
            hash(node)
        except TypeError:
            raise InvalidArgument(
                f"{type(node).__name__} as an argument of a traced function: expected arrays, numbers, dicts, lists, "
                "tuples, dataclasses, or objects with a hash, which are static; "
                f"at {here().with_source()}"
            ) from None
        key += (_STATIC, type(node), node)


_tenon._set_tree_hooks(np.ndarray, known_dtypes, dtype_of, _FLOAT, _INT, _describe_other)


def _exact(static: Any) -> Any:
    """A static argument in a key: 0.0 and -0.0 differ, and a NaN is itself."""
    if isinstance(static, float):
        return static.hex()
    if type(static) is tuple:
        return tuple((type(x), _exact(x)) for x in static)
    return static


def is_static(leaf: Any) -> bool:
    """Is a leaf an object that graphs do not know, such as a str or a flag?"""
    if isinstance(leaf, _STATIC_TYPES):
        return True
    return not isinstance(leaf, (int, float, Traced)) and not (hasattr(leaf, "dtype") and hasattr(leaf, "shape"))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, with a number behind those that are there already."""
    seen: set[str] = set()
    out = []
    for name in names:
        candidate, number = name or "y", 1
        while candidate in seen:
            number += 1
            candidate = f"{name}.{number}"
        seen.add(candidate)
        out.append(candidate)
    return out


def add_outputs(trace: Trace, result: Any, what: str) -> tuple[int, Any]:
    """Makes the leaves of a result the outputs of the graph. Returns their number and the structure of the result."""
    leaves, structure = tree.flatten(result)
    names = unique_names(tree.paths(structure))
    for name, leaf in zip(names, leaves):
        if is_static(leaf) and not isinstance(leaf, (bool, np.ndarray, list)):
            raise InvalidArgument(
                f"{what}: it returns {type(leaf).__name__} as {name}; expected arrays and numbers, in dicts, lists, tuples, "
                "dataclasses"
            )
        trace.graph.output(name, trace.lift(leaf)._value)
    return len(leaves), structure


class Function(Generic[P, R]):
    """A function that runs as a graph, see tenon.function()."""

    def __init__(
        self, function: Callable[P, R], *, static: Sequence[str], device: str, options: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        checked(options)
        self._device, self._options = text(device, "device"), options
        self._compiled: dict[Any, _Compiled] = {}
        self._traces = 0
        self._lock = threading.RLock()
        self._static = frozenset(static)
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        if self._static:
            known = set(self._signature.parameters) if self._signature else set()
            if unknown := sorted(self._static - known):
                raise InvalidArgument(
                    f"function {self._name}: static: it has no parameter '{unknown[0]}'; it has {', '.join(known) or 'none'}"
                )

    @property
    def trace_count(self) -> int:
        """How often the function was traced: once for each set of types and static arguments."""
        return self._traces

    def clear(self) -> None:
        """Forgets all graphs; the next call traces again."""
        with self._lock:
            self._compiled.clear()
            self._traces = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None:  # a part of the function that is being traced
            return self._function(*args, **kwargs)
        leaves: list[Any] = []
        compiled = self._find(args, kwargs, leaves)
        try:
            result: R = compiled.run(leaves)
        except Error as e:
            raise at(e, here()) from None
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<tenon.function {self._name}>"

    def model(self, *args: P.args, **kwargs: P.kwargs) -> Model:
        """The model that a call with arguments of these types runs. Its graph and report tell what it does."""
        return self._find(args, kwargs, []).model

    def report(self, *args: P.args, **kwargs: P.kwargs) -> Report:
        """What becomes of each node for arguments of these types, and why."""
        return self.model(*args, **kwargs).report

    def _find(self, args: Any, kwargs: Any, leaves: list[Any]) -> _Compiled:
        key: list[Any] = []
        fixed: dict[str, Any] = {}
        if self._static:
            args, kwargs, fixed = self._split(args, kwargs)
            key += ((name, type(value), _exact(value)) for name, value in fixed.items())
        for arg in args:
            _tenon._describe(arg, leaves, key)
        if kwargs:
            key.append(_KEYWORDS)
            _tenon._describe(kwargs, leaves, key)
        found = tuple(key)
        try:
            compiled = self._compiled.get(found)
        except TypeError as e:
            raise InvalidArgument(f"function {self._name}: a static argument has no hash: {e}") from None
        if compiled is None:
            with self._lock:
                compiled = self._compiled.get(found)
                if compiled is None:
                    compiled = self._trace(args, kwargs, fixed, key)
                    self._traces += 1
                    if len(self._compiled) >= _MOST_KEPT:  # the one that was not called for longest
                        del self._compiled[min(self._compiled, key=lambda k: self._compiled[k].last_use)]
                    self._compiled[found] = compiled
        compiled.last_use = next(_uses)
        return compiled

    def _split(self, args: Any, kwargs: Any) -> tuple[Any, Any, dict[str, Any]]:
        """All arguments by name, without the static ones, and these."""
        assert self._signature is not None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{self._name}: {e}") from None
        bound.apply_defaults()
        fixed = {n: v for n, v in bound.arguments.items() if n in self._static}
        free = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL or kind is inspect.Parameter.POSITIONAL_ONLY:
                raise InvalidArgument(f"function {self._name}: static arguments beside '{name}', which has no keyword")
            if kind is inspect.Parameter.VAR_KEYWORD:
                free.update(value)
            elif name not in self._static:
                free[name] = value
        return (), free, fixed

    def _trace(self, args: Any, kwargs: Any, fixed: dict[str, Any], key: Sequence[Any]) -> _Compiled:
        leaves, structure = tree.flatten((tuple(args), dict(kwargs)))
        names = unique_names(self._names(structure, len(args)))
        with tracing(self._name) as trace:
            inside: list[Any] = []
            for name, leaf in zip(names, leaves):
                if is_static(leaf):
                    inside.append(leaf)
                elif type(leaf) is float or isinstance(leaf, float):
                    inside.append(trace.input(name, DType.f32, (), weak=True))
                elif isinstance(leaf, int):
                    inside.append(trace.input(name, DType.i64, (), weak=True))
                else:
                    inside.append(trace.input(name, dtype_of(leaf), tuple(leaf.shape)))
            traced_args, traced_kwargs = tree.unflatten(structure, inside)
            result = self._function(*traced_args, **traced_kwargs, **fixed)
            count, shape = add_outputs(trace, result, f"function {self._name}")
        device = self._device
        if device == "auto":
            device = next((x.device for x in leaves if isinstance(x, Tensor) and x.device != "cpu"), "auto")
        return _Compiled(Model(trace.graph, device=device, **self._options), count, shape, key)

    def _names(self, structure: Any, count: int) -> list[str]:
        """The name of each leaf of (args, kwargs): that of its parameter, and its place below it."""
        parameters = list(self._signature.parameters) if self._signature else []
        _, _, (of_args, of_kwargs) = structure
        out = []
        for i, child in enumerate(of_args[2]):
            out += tree.paths(child, parameters[i] if i < len(parameters) else f"arg{i}")
        return out + tree.paths(of_kwargs)


@overload
def function(
    fun: Callable[P, R], *, static: Sequence[str] = (), device: str = "auto", **options: Any
) -> Function[P, R]: ...


@overload
def function(
    *, static: Sequence[str] = (), device: str = "auto", **options: Any
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(fun: Any = None, *, static: Sequence[str] = (), device: str = "auto", **options: Any) -> Any:
    """Makes a Python function run as a graph. As a decorator:

        @tenon.function
        def step(params, x):
            return tenon.ops.tanh(x @ params["w"] + params["b"])

    The first call with arguments of some types traces the function: it runs with traced values in the place of arrays and
    numbers, and what it computes becomes a graph, which is compiled. Later calls with the same types run the graph only.
    Arguments and results are trees: dicts, lists, tuples, named tuples and dataclasses of arrays and numbers.

    A call traces again if a dtype, a shape, the structure of a tree or a static argument is new. Static are strings, bools,
    functions and other objects that are no arrays, and the parameters that `static` names: static=("layers",). They are
    compared by == and need a hash.

    The 64 graphs that were called last are kept; others are traced again when they are needed.

    Arrays of the world around, which the function finds without getting them as arguments, are copied into the graph when
    it is traced: those of closures, of globals, and of an object whose method it is. The graph does not see that they change
    afterwards, also where `self.w` becomes another array: pass them as arguments, make the object a dataclass, which is a
    tree, or call clear(). Inside another traced function, the function is a part of that.

    device: "auto", "cpu", "cuda:0"; auto prefers the device of the arguments. options: those of Executable.
    """
    static = (static,) if isinstance(static, str) else static

    def wrap(f: Callable[P, R]) -> Function[P, R]:
        return Function(f, static=static, device=device, options=options)

    return wrap if fun is None else wrap(fun)
