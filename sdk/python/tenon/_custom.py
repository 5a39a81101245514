# SPDX-License-Identifier: Apache-2.0
"""Ops of one's own: functions of Python as their rules."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _tenon
from ._call import call, forget_models
from ._dtypes import DType
from ._errors import InvalidArgument, ShapeMismatch
from ._model import Spec
from ._options import whole_number
from ._trace import Many, Trace, Traced, here, tracing

# tenon_op_part::kind and ::type of the C API
_OPERAND, _OPTIONAL_OPERAND, _OPTIONAL_LIST, _ATTRIBUTE, _OUTPUT = 1, 2, 4, 5, 6
_I64, _F64, _BOOL, _STR, _INTS, _FLOATS, _DTYPE = 1, 2, 3, 4, 5, 6, 7
_TYPES: dict[Any, int] = {bool: _BOOL, int: _I64, float: _F64, str: _STR, DType: _DTYPE}
_MOST_TYPES = 256  # that an op keeps

_Part = tuple[str, int, int, Any, str]
_Type = tuple[DType, tuple[int, ...]]


def _attribute_type(who: str, parameter: inspect.Parameter, hint: Any) -> tuple[int, str]:
    """The type of an attribute, and the values that it accepts: by its annotation, or else its default."""
    if typing.get_origin(hint) is Literal:
        return _STR, " ".join(typing.get_args(hint))
    if hint in _TYPES:
        return _TYPES[hint], ""
    arguments = typing.get_args(hint)
    if arguments and arguments[0] in (int, float):
        return (_INTS if arguments[0] is int else _FLOATS), ""
    given = parameter.default
    for kind, number in _TYPES.items():
        if type(given) is kind:
            return number, ""
    if isinstance(given, (tuple, list)) and given:
        return (_INTS if all(isinstance(x, int) for x in given) else _FLOATS), ""
    raise InvalidArgument(
        f"{who}: attribute {parameter.name}: expected an annotation, or a default, that is a bool, int, float, str, DType, "
        f"or a sequence of int or float; got {hint!r}"
    )


def _parts(who: str, function: Callable[..., Any], signature: inspect.Signature, outputs: Sequence[str]) -> list[_Part]:
    """The schema that a signature states: operands, attributes; and the outputs."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # names that only type checkers know
        hints = {}
    parts: list[_Part] = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            raise InvalidArgument(f"{who}: **{p.name}: expected attributes by name, as keyword-only parameters")
        if p.kind is p.KEYWORD_ONLY:
            kind, values = _attribute_type(who, p, hints.get(p.name))
            default = None if p.default is p.empty else p.default
            parts.append((p.name, _ATTRIBUTE, kind, default, values))
        elif p.kind is p.VAR_POSITIONAL:
            parts.append((p.name, _OPTIONAL_LIST, 0, None, ""))
        elif p.default is p.empty:
            parts.append((p.name, _OPERAND, 0, None, ""))
        elif p.default is None:
            parts.append((p.name, _OPTIONAL_OPERAND, 0, None, ""))
        else:
            raise InvalidArgument(
                f"{who}: operand {p.name}: expected no default, or None for an optional one; got {p.default!r}. "
                "hint: attributes are keyword-only, behind a *"
            )
    return parts + [(name, _OUTPUT, 0, None, "") for name in outputs]


class CustomOp:
    """An op of one's own, see tenon.custom_op(). Calls apply it."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        shape: Callable[..., Any] | None,
        gradient: Callable[..., Any] | None,
        outputs: Sequence[str],
        version: int,
    ) -> None:
        functools.update_wrapper(self, function)
        who = f"custom_op {name}"
        self._domain, colon, self._op = name.partition(":")
        if not colon:
            raise InvalidArgument(f'{who}: expected a domain and a name, such as "my:softcap"')
        self._outputs = tuple(outputs)
        if isinstance(outputs, str) or not self._outputs:
            raise InvalidArgument(f"{who}: outputs: expected a sequence of names, got {outputs!r}")
        self._name, self._function, self._shape, self._gradient = name, function, shape, gradient
        self._signature = inspect.signature(function)
        self._known_types: dict[Any, list[_Type]] = {}
        parts = _parts(who, function, self._signature, self._outputs)
        self._operands = [(p[0], p[1] == _OPTIONAL_LIST) for p in parts if p[1] < _ATTRIBUTE]
        self._attributes = [p[0] for p in parts if p[1] == _ATTRIBUTE]
        _tenon._register_op(
            self._domain,
            self._op,
            whole_number(version, f"{who}: version", (1 << 32) - 1),
            parts,
            self._rule_shape,
            self._rule_decompose,
            None if gradient is None else self._rule_gradient,
        )
        forget_models()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as e:
            raise TypeError(f"{self._name}: {e}") from None
        bound.apply_defaults()
        given = bound.arguments
        operands = [Many(given[name]) if is_list else given[name] for name, is_list in self._operands]
        attributes = {name: given[name] for name in self._attributes}
        return call(self._op, operands, attributes, [True] * len(self._outputs), domain=self._domain)

    def __repr__(self) -> str:
        return f"<tenon.custom_op {self._name}>"

    # ---- Rules: what the library calls, in any thread. They may run inside another trace.

    def _results(self, what: str, result: Any, count: int) -> list[Any]:
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(results) != count:
            raise ShapeMismatch(f"{self._name}: its {what} returns {len(results)} results; expected {count}")
        return results

    def _rule_shape(self, node: Any) -> None:
        operands, attributes = node.operands, node.attributes
        types = tuple(None if v is None else (v.dtype, v.shape) for v in operands)
        key = types, tuple(attributes.items())
        found = self._known_types.get(key)
        if found is None:
            found = self._types_of(types, attributes)
            if len(self._known_types) >= _MOST_TYPES:
                self._known_types.clear()
            self._known_types[key] = found
        for k, (dtype, dims) in enumerate(found):
            node.give_type(k, dtype, list(dims))

    def _types_of(self, types: Sequence[_Type | None], attributes: Mapping[str, Any]) -> list[_Type]:
        if self._shape is None:
            return self._traced_types(types, attributes)
        names = [name for name, is_list in self._operands if not is_list]
        names += [f"{name}{i}" for name, is_list in self._operands if is_list for i in range(len(types) - len(names))]
        specs = [None if t is None else Spec(name, *t) for name, t in zip(names, types)]
        result = self._shape(*specs, **attributes)
        if len(self._outputs) == 1:
            result = [result]
        out: list[_Type] = []
        for given in self._results("shape rule", result, len(self._outputs)):
            dtype, dims = (given.dtype, given.shape or ()) if isinstance(given, Spec) else given
            out.append((DType.of(dtype), tuple(whole_number(d, f"{self._name}: dim") for d in dims)))
        return out

    def _traced_types(self, types: Sequence[_Type | None], attributes: Mapping[str, Any]) -> list[_Type]:
        """The types that the decomposition has."""
        with tracing(self._name) as trace:
            operands = [None if t is None else trace.input(f"x{i}", *t) for i, t in enumerate(types)]
            results = self._decomposed(trace, operands, attributes)
        if results is None:
            raise InvalidArgument(f"{self._name}: it has no decomposition; expected shape=, a rule for its types")
        return [(y.dtype, y.shape) for y in results]

    def _decomposed(
        self, trace: Trace, operands: Sequence[Any], attributes: Mapping[str, Any]
    ) -> list[Traced] | None:
        result = self._function(*operands, **attributes)
        if result is NotImplemented:
            return None
        return [trace.lift(y) for y in self._results("decomposition", result, len(self._outputs))]

    def _rule_decompose(self, node: Any) -> None:
        with tracing(self._name, graph=node) as trace:
            results = self._decomposed(trace, _values(trace, node.operands), node.attributes)
            for k, y in enumerate(results or ()):
                node.give(k, y._value)

    def _rule_gradient(self, node: Any) -> None:
        assert self._gradient is not None
        with tracing(f"gradient of {self._name}", graph=node) as trace:
            operands = _values(trace, node.operands)
            outputs = range(len(self._outputs))
            ys = _values(trace, [node.forward(k) for k in outputs])
            dys = _values(trace, [node.upstream(k) for k in outputs])
            for k, (dtype, dims) in enumerate(node.output_types):
                if dys[k] is None:
                    zero = trace.constant(False, dtype)  # the 0 of every dtype
                    dys[k] = trace.add("expand", [zero], {"shape": list(dims)}, [True])[0]
            y, dy = (ys[0], dys[0]) if len(outputs) == 1 else (tuple(ys), tuple(dys))
            result = self._gradient(dy, y, *operands, **node.attributes)
            for position, dx in enumerate(self._results("gradient", result, len(operands))):
                if dx is not None and operands[position] is not None and node.wants(position):
                    node.give(position, trace.lift(dx)._value)


def _values(trace: Trace, values: Sequence[Any]) -> list[Any]:
    place = here()
    return [None if v is None else Traced(trace, v, place) for v in values]


def custom_op(
    name: str,
    *,
    shape: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    outputs: Sequence[str] = ("y",),
    version: int = 1,
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Makes a function an op of one's own, for all graphs of the process. As a decorator:

        def softcap_gradient(dy, y, x, *, cap):
            return dy * (1.0 - (y / cap) ** 2.0)

        @tenon.custom_op("my:softcap", gradient=softcap_gradient)
        def softcap(x, *, cap: float = 30.0):
            return ops.tanh(x / cap) * cap

    The function is the decomposition: it writes the op in others, by tenon.ops and operators, where no plugin has a kernel
    for it. If it returns NotImplemented, there is none: the op needs `shape`, and runs on devices with a kernel. Its
    positional parameters are the operands; None as a default makes one optional, *xs is a list of them. Keyword-only
    parameters are the attributes: bool, int, float, str, DType, Literal of str, sequences of int or of float.

    shape: gets the operands as Spec, and the attributes; returns the type of the output, a Spec or a pair of dtype and
    dims, and a tuple of them for several outputs. It raises an error for operands that do not fit. Without it, the types are
    those of the decomposition.
    gradient: gets the gradient of the loss by the output, the output, the operands, and the attributes; tuples of the first
    two, if there are several outputs. It returns the gradient of the operand, or a tuple with an entry per operand; None is
    zero. Without it, the decomposition is differentiated.
    outputs: their names. version: a new one means all that older ones mean, and more.

    Rules are pure: equal nodes get equal answers. They may be called in any thread. What they raise reaches the caller. A
    second op of the same name replaces the rules of the first in graphs that are compiled later. Its operands, attributes
    and outputs must be the same, and it must have a gradient rule if the first one has. Rules stay until the process ends.
    """

    def wrap(function: Callable[..., Any]) -> CustomOp:
        return CustomOp(name, function, shape, gradient, outputs, version)

    return wrap
