# SPDX-License-Identifier: Apache-2.0
"""Control flow in traced functions: cond, while_loop, scan. Their functions may use values of the trace around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from ._dtypes import DType
from ._errors import DtypeMismatch, InvalidArgument, ShapeMismatch
from ._function import Function, add_outputs
from ._trace import Many, Trace, Traced, current, here, tracing


def _alone(name: str, body: Callable[..., Any], *args: Any) -> Any:
    """Outside of a trace: runs a traced function once."""

    def run(*given: Any) -> Any:
        return body(*given)

    run.__name__ = name
    return Function(run, static=(), device="auto", options={})(*args)


def _join_captured(first: Trace, second: Trace) -> list[Traced]:
    """Gives both functions the captured values of the second, which begin with those of the first."""
    for outside, _ in second.captured[len(first.captured) :]:
        first.capture(outside)
    return [outside for outside, _ in second.captured]


def _types(trace: Trace) -> list[tuple[DType, Any]]:
    return [(v.dtype, v.shape) for _, v in trace.graph.outputs()]


def _text(structure: Any, types: Sequence[Any]) -> str:
    return f"{tree.text(structure)} of {', '.join(f'{d}{list(s)}' for d, s in types)}"


def _check_condition(x: Traced, what: str) -> Traced:
    if x.dtype is not DType.bool or x.size != 1:
        raise DtypeMismatch(
            f"{what}: expected a bool of one element as condition, got {x!r}; at {here().with_source()}"
        )
    return x


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """true_fun(*operands) if pred is true, else false_fun(*operands). Only one of them runs.

    Both return trees of the same structure and types. pred: a bool of one element.
    """
    outer = current()
    if outer is None:
        return _alone("cond", lambda p, *xs: cond(p, true_fun, false_fun, *xs), np.asarray(pred), *operands)
    test = _check_condition(outer.lift(pred), "cond")
    leaves, structure = tree.flatten(operands)
    given = tree.unflatten(structure, [outer.lift(x) for x in leaves])
    bodies: list[Trace] = []
    results = []
    before: list[Traced] = []
    for name, branch in (("true_fun", true_fun), ("false_fun", false_fun)):
        with tracing(name, inside=True) as body:
            for outside in before:  # the same inputs in both
                body.capture(outside)
            results.append(add_outputs(body, branch(*given), f"cond: {name}"))
        bodies.append(body)
        before = [o for o, _ in body.captured]
    if results[0] != results[1] or _types(bodies[0]) != _types(bodies[1]):
        raise ShapeMismatch(
            f"cond: true_fun returns {_text(results[0][1], _types(bodies[0]))}; false_fun "
            f"{_text(results[1][1], _types(bodies[1]))}; expected the same; at {here().with_source()}"
        )
    count, shape = results[0]
    if count == 0:
        return tree.unflatten(shape, ())
    captured = _join_captured(*bodies)
    made = outer.add(
        "if", [test, Many(captured)], {"then_branch": bodies[0].graph, "else_branch": bodies[1].graph}, [True] * count
    )
    return tree.unflatten(shape, made)


def _check_carry(what: str, before: Sequence[Traced], structure: Any, after: Trace, count: int, shape: Any) -> None:
    types = [(x.dtype, x.shape) for x in before]
    if shape != structure or _types(after)[: len(before)] != types:
        raise ShapeMismatch(
            f"{what}: the carry is {_text(structure, types)}, the function returns {_text(shape, _types(after)[:count])}; "
            f"expected the same; at {here().with_source()}"
        )


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any, *, max_trips: int | None = None
) -> Any:
    """Repeats carry = body_fun(carry) while cond_fun(carry) is true. Returns the last carry.

    The carry is a tree that keeps its structure and types. max_trips: at most so many times; gradients need it.
    """
    outer = current()
    if outer is None:
        return _alone("while_loop", lambda x: while_loop(cond_fun, body_fun, x, max_trips=max_trips), init)
    leaves, structure = tree.flatten(init)
    if not leaves:
        raise InvalidArgument("while_loop: the carry has no arrays; expected one or more")
    carry = [outer.lift(x) for x in leaves]
    with tracing("cond_fun", inside=True) as test:
        xs = [test.input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(carry)]
        more = _check_condition(test.lift(cond_fun(tree.unflatten(structure, xs))), "while_loop: cond_fun")
        test.graph.output("more", more._value)
    with tracing("body_fun", inside=True) as body:
        xs = [body.input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(carry)]
        for outside, _ in test.captured:
            body.capture(outside)
        count, shape = add_outputs(body, body_fun(tree.unflatten(structure, xs)), "while_loop: body_fun")
    _check_carry("while_loop", carry, structure, body, count, shape)
    captured = _join_captured(test, body)
    made = outer.add(
        "while",
        [Many(carry), Many(captured)],
        {"cond": test.graph, "body": body.graph, "max_trip": -1 if max_trips is None else max_trips},
        [True] * count,
    )
    return tree.unflatten(structure, made)


def scan(
    body_fun: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Calls carry, y = body_fun(carry, x) for each slice x of xs along axis 0. Returns the last carry and all y, stacked.

    carry, x and y are trees; the carry keeps its structure and types. length: the number of trips, if xs is None.
    reverse: begins with the last slice.
    """
    outer = current()
    if outer is None:
        made_alone: tuple[Any, Any] = _alone(
            "scan", lambda c, x: scan(body_fun, c, x, length=length, reverse=reverse), init, xs
        )
        return made_alone
    leaves, structure = tree.flatten(init)
    carry = [outer.lift(x) for x in leaves]
    slices, of_xs = tree.flatten(xs)
    stacked = [outer.lift(x) for x in slices]
    for x in stacked:
        if not x.shape or x.shape[0] != stacked[0].shape[0] or length not in (None, x.shape[0]):
            expected = length if length is not None else (stacked[0].shape or ("one or more",))[0]
            raise ShapeMismatch(
                f"scan: xs: expected {expected} slices along axis 0, got {x!r}; at {here().with_source()}"
            )
    if not stacked and length is None:
        raise InvalidArgument(f"scan: neither xs nor length is given; at {here().with_source()}")
    with tracing("body_fun", inside=True) as body:
        c = [body.input(f"carry{i}", x.dtype, x.shape) for i, x in enumerate(carry)]
        s = [body.input(f"x{i}", x.dtype, x.shape[1:]) for i, x in enumerate(stacked)]
        result = body_fun(tree.unflatten(structure, c), tree.unflatten(of_xs, s))
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgument(f"scan: body_fun returns {type(result).__name__}; expected a pair: carry and y")
        count, shape = add_outputs(body, result, "scan: body_fun")
    _, _, (of_carry, of_ys) = shape
    _check_carry("scan", carry, structure, body, len(carry), of_carry)
    made = outer.add(
        "scan",
        [Many(carry), Many(stacked), Many(o for o, _ in body.captured)],
        {"body": body.graph, "length": -1 if length is None else length, "reverse": reverse},
        [True] * count,
    )
    return tree.unflatten(of_carry, made[: len(carry)]), tree.unflatten(of_ys, made[len(carry) :])
