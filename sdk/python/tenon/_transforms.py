# SPDX-License-Identifier: Apache-2.0
"""Functions of functions: gradients, directional derivatives, batches. They compose in any order.

Outside of traced functions, the function that grad(), value_and_grad() or vmap() returns is traced itself, once per set of
types, as by tenon.function(). jvp() traces in each call then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import ops, tree
from ._errors import DtypeMismatch, Error, InvalidArgument, ShapeMismatch
from ._function import Function, add_outputs, is_static
from ._tenon import Value
from ._trace import FLOATS, Many, Trace, Traced, TraceError, at, current, here, is_number, tracing

F = TypeVar("F", bound=Callable[..., Any])


def _name_of(fun: Any) -> str:
    return str(getattr(fun, "__name__", type(fun).__name__))


def _transformed(what: str, fun: Any, inside: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does its work in a trace: in the current one, or in one of its own that is kept."""
    name = f"{what}({_name_of(fun)})"

    @functools.wraps(fun)
    def body(*args: Any, **kwargs: Any) -> Any:
        return inside(*args, **kwargs)

    body.__name__ = body.__qualname__ = name
    alone: Function[..., Any] = Function(body, static=(), device="auto", options={})

    @functools.wraps(fun)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        return inside(*args, **kwargs) if current() is not None else alone(*args, **kwargs)

    transformed.__name__ = transformed.__qualname__ = name
    return transformed


def _trace_here(what: str) -> Trace:
    trace = current()
    if trace is None:
        raise TraceError(f"{what}: expected to be in a traced function; hint: @tenon.function")
    return trace


def _fresh(trace: Trace, x: Any, what: str) -> Traced:
    """A value of its own, for derivatives: what else depends on x stays out."""
    x = trace.lift(x)
    if x.dtype not in FLOATS:
        raise DtypeMismatch(f"{what}: expected floats, got {x!r}; at {here().with_source()}")
    (y,) = trace.add("reshape", [x], {"shape": list(x.shape), "allow_zero": True}, [True])  # plans leave it out
    return y  # type: ignore[no-any-return]


def _traced(trace: Trace, values: Sequence[Value]) -> list[Traced]:
    place = here()
    return [Traced(trace, v, place) for v in values]


def _chosen(args: Sequence[Any], argnums: int | Sequence[int], what: str) -> list[int]:
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise InvalidArgument(f"{what}: argnums: {n}; expected numbers below {len(args)}, the count of arguments")
    return [n % len(args) for n in numbers]


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the value of `fun` and its gradient.

    `fun` returns a float of one element, the loss; with has_aux, a pair of loss and anything else, which is returned beside
    the loss: ((loss, aux), gradient). The gradient has the structure of the arguments that argnums names; several give a
    tuple. All their leaves are floats.
    """
    what = f"grad of {_name_of(fun)}"

    def inside(*args: Any, **kwargs: Any) -> Any:
        trace = _trace_here(what)
        chosen = _chosen(args, argnums, what)
        given = list(args)
        wrt: list[Traced] = []
        structures = []
        for n in chosen:
            leaves, structure = tree.flatten(given[n])
            fresh = [_fresh(trace, x, f"{what}: argument {n}") for x in leaves]
            wrt += fresh
            structures.append((structure, len(fresh)))
            given[n] = tree.unflatten(structure, fresh)
        result = fun(*given, **kwargs)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise InvalidArgument(f"{what}: has_aux: expected a pair of loss and aux, got {type(result).__name__}")
        loss, aux = result if has_aux else (result, None)
        if is_static(loss) and not is_number(loss):
            raise InvalidArgument(f"{what}: expected one float as its result, got {type(loss).__name__}")
        loss = trace.lift(loss)
        if loss.size != 1 or loss.dtype not in FLOATS:
            raise ShapeMismatch(
                f"{what}: expected a loss that is one float, got {loss!r} from {loss._place.with_source()}. "
                "hint: .sum() or .mean()"
            )
        try:
            made = trace.graph.gradients(loss._value, [x._value for x in wrt]) if wrt else []
        except Error as e:
            raise at(e, here()) from None
        gradients = _traced(trace, made)
        parts = []
        for structure, count in structures:
            parts.append(tree.unflatten(structure, gradients[:count]))
            gradients = gradients[count:]
        gradient = parts[0] if isinstance(argnums, int) else tuple(parts)
        return ((loss, aux) if has_aux else loss), gradient

    return _transformed("value_and_grad", fun, inside)


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of `fun`, or with has_aux a pair: gradient and aux. See value_and_grad()."""
    both = value_and_grad(fun, argnums, has_aux)

    def inside(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return _transformed("grad", fun, inside)


def _float_results(trace: Trace, result: Any, what: str) -> tuple[list[Traced], Any]:
    leaves, structure = tree.flatten(result)
    values = [trace.lift(x) for x in leaves]
    for v in values:
        if v.dtype not in FLOATS:
            raise DtypeMismatch(f"{what}: expected floats as results, got {v!r} from {v._place.with_source()}")
    return values, structure


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of `fun` at primals, and its derivative along tangents (forward mode).

    primals and tangents: one entry per argument of `fun`; a tangent has the structure and the types of its primal.
    """
    what = f"jvp of {_name_of(fun)}"
    if len(primals) != len(tangents):
        raise InvalidArgument(f"{what}: {len(primals)} primals and {len(tangents)} tangents; expected as many")

    def inside(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        trace = _trace_here(what)
        leaves, structure = tree.flatten(tuple(primals))
        along, other = tree.flatten(tuple(tangents))
        if other != structure:
            raise InvalidArgument(
                f"{what}: tangents: expected the structure {tree.text(structure)}, got {tree.text(other)}"
            )
        xs = [_fresh(trace, x, f"{what}: primals") for x in leaves]
        ts = [trace.constant(t, x.dtype) if is_number(t) else trace.lift(t) for t, x in zip(along, xs)]
        for x, t in zip(xs, ts):
            if (x.dtype, x.shape) != (t.dtype, t.shape):
                raise ShapeMismatch(f"{what}: tangents: expected {x!r}, the type of the primal, got {t!r}")
        ys, shape = _float_results(trace, fun(*tree.unflatten(structure, xs)), what)
        made = trace.graph.jvp([y._value for y in ys], [x._value for x in xs], [t._value for t in ts])
        return tree.unflatten(shape, ys), tree.unflatten(shape, _traced(trace, made))

    if current() is None:
        return Function(inside, static=(), device="auto", options={})(tuple(primals), tuple(tangents))  # type: ignore[no-any-return]
    return inside(primals, tangents)  # type: ignore[no-any-return]


def vjp(fun: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value of `fun` at primals, and the function that takes cotangents back: it returns a tuple, one gradient per primal.

    Only in a function that is being traced.
    """
    what = f"vjp of {_name_of(fun)}"
    trace = _trace_here(what)
    leaves, structure = tree.flatten(primals)
    xs = [_fresh(trace, x, f"{what}: primals") for x in leaves]
    ys, shape = _float_results(trace, fun(*tree.unflatten(structure, xs)), what)

    def back(cotangents: Any) -> Any:
        along, other = tree.flatten(cotangents)
        if other != shape:
            raise InvalidArgument(
                f"{what}: cotangents: expected the structure {tree.text(shape)}, got {tree.text(other)}"
            )
        parts: list[Any] = [ops.sum(ops.multiply(y, t)) for y, t in zip(ys, along)]
        total = functools.reduce(ops.add, [ops.cast(p, parts[0].dtype) for p in parts])
        made = trace.graph.gradients(trace.lift(total)._value, [x._value for x in xs])
        return tree.unflatten(structure, _traced(trace, made))

    return tree.unflatten(shape, ys), back


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function of a batch of examples, from one of a single example.

    in_axes: the axis of the batch in each argument: a number for all, or a tuple with an entry per argument: a number, None
    for an argument that is the same for all examples, or a tree of them. Keywords have the batch along axis 0.
    out_axes: where the batch is in the results: a number, or a tree of them.
    """
    what = f"vmap of {_name_of(fun)}"

    def inside(*args: Any, **kwargs: Any) -> Any:
        outer = _trace_here(what)
        if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
            raise InvalidArgument(
                f"{what}: in_axes: {len(in_axes)} entries; expected one for each of {len(args)} arguments"
            )
        leaves, structure = tree.flatten((args, kwargs))
        axes = [*tree.broadcast(in_axes, args, f"{what}: in_axes"), *[0] * len(tree.flatten(kwargs)[0])]
        size: int | None = None
        xs, batched = [], []
        for leaf, axis in zip(leaves, axes):
            if axis is None or is_static(leaf):
                continue
            x = outer.lift(leaf)
            if not -x.ndim <= axis < x.ndim:
                raise ShapeMismatch(
                    f"{what}: in_axes: {axis}; got {x!r}, which has no such axis; at {here().with_source()}"
                )
            if size is not None and x.shape[axis] != size:
                raise ShapeMismatch(
                    f"{what}: batches of {size} and {x.shape[axis]} examples; expected one size, got {x!r}; "
                    f"at {here().with_source()}"
                )
            size = x.shape[axis]
            xs.append(x)
            batched.append(axis % x.ndim)
        if size is None:
            raise InvalidArgument(f"{what}: no argument has a batch; expected one in_axes that is not None")
        with tracing(f"vmap({_name_of(fun)})", inside=True) as body:
            rest = iter(zip(xs, batched))
            given = []
            for number, (leaf, axis) in enumerate(zip(leaves, axes)):
                if axis is None or is_static(leaf):
                    given.append(leaf)
                    continue
                x, place = next(rest)
                given.append(body.input(f"x{number}", x.dtype, x.shape[:place] + x.shape[place + 1 :]))
            inner_args, inner_kwargs = tree.unflatten(structure, given)
            result = fun(*inner_args, **inner_kwargs)
            count, shape = add_outputs(body, result, what)
        if count == 0:
            return tree.unflatten(shape, ())
        types = [v.shape for _, v in body.graph.outputs()]
        out = [a % (len(t or ()) + 1) for a, t in zip(tree.broadcast(out_axes, result, f"{what}: out_axes"), types)]
        made = outer.add(
            "vmap",
            [Many(xs), Many(o for o, _ in body.captured)],
            {"body": body.graph, "in_axes": batched, "out_axes": out},
            [True] * count,
        )
        return tree.unflatten(shape, made)

    return _transformed("vmap", fun, inside)


def checkpoint(fun: F) -> F:
    """The same function, whose values are computed again for gradients instead of being kept: less memory, more time."""

    @functools.wraps(fun)
    def marked(*args: Any, **kwargs: Any) -> Any:
        trace = current()
        if trace is None:
            return fun(*args, **kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        given = [x if is_static(x) or is_number(x) else trace.lift(x) for x in leaves]
        start = [x._value for x in given if isinstance(x, Traced)]
        inner_args, inner_kwargs = tree.unflatten(structure, given)
        result = fun(*inner_args, **inner_kwargs)
        end = [x._value for x in tree.flatten(result)[0] if isinstance(x, Traced) and x._trace is trace]
        if start and end:
            trace.graph.checkpoint(start, end)
        return result

    return marked  # type: ignore[return-value]
