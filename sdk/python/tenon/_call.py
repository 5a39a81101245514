# SPDX-License-Identifier: Apache-2.0
"""One op: a node of the current trace, or a run of its own if nothing is being traced."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._dtypes import DType
from ._errors import Error
from ._model import Model
from ._tenon import Tensor
from ._trace import (
    Many,
    Trace,
    Traced,
    all_weak,
    as_array,
    at,
    current,
    dtype_of_number,
    here,
    is_number,
    leaked,
    tracing,
    unify,
)

_MOST_KEPT = 512
_models: dict[Any, Model] = {}
_lock = threading.Lock()
known_dtypes: dict[Any, DType] = {}


def dtype_of(x: Any) -> DType:
    """The dtype of an array, whoever made it."""
    dtype = x.dtype
    if type(dtype) is DType:
        return dtype
    found = known_dtypes.get(dtype)
    if found is None:
        found = known_dtypes[dtype] = DType.of(dtype)
    return found


def type_of(x: Any) -> tuple[DType, tuple[int, ...]]:
    """Dtype and shape of an array or a number."""
    if is_number(x):
        return dtype_of_number(x), ()
    x = as_array(x)
    return dtype_of(x), tuple(x.shape)


def call(
    op: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    want: Sequence[bool],
    same: Sequence[int] = (),
    domain: str = "tenon",
) -> Any:
    """Applies an op. Returns what `want` names: one array, or a tuple of them.

    same: the operands that have one dtype; numbers of Python among them take the dtype of the others.
    Attributes that are None are left out.
    """
    attributes = {k: v for k, v in attributes.items() if v is not None}
    trace = current()
    if trace is None:
        return _run_alone(op, operands, attributes, want, same, domain)
    return _only(_add(trace, op, operands, attributes, want, same, domain))


def _add(
    trace: Trace,
    op: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    want: Sequence[bool],
    same: Sequence[int],
    domain: str,
) -> list[Any]:
    weak = False
    if same:
        group = [operands[i] for i in same]
        weak = all_weak(group)
        operands = list(operands)
        for i, x in zip(same, unify(trace, group)):
            operands[i] = x
    elif len(operands) == 1:
        weak = all_weak(operands)
    return trace.add(op, operands, attributes, want, domain, weak)


def _only(made: Sequence[Any]) -> Any:
    wanted = [x for x in made if x is not None]
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


def _as_array(x: Any, dtype: DType | None = None) -> Any:
    if isinstance(x, Traced):
        raise leaked(x)
    if is_number(x):
        with tracing("call") as trace:  # checks that the number has this dtype
            trace.constant(x, dtype)
        return np.asarray(x, (dtype or dtype_of_number(x)).numpy)
    return as_array(x)


def _run_alone(
    op: str,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    want: Sequence[bool],
    same: Sequence[int],
    domain: str,
) -> Any:
    firm = next((dtype_of(operands[i]) for i in same if hasattr(operands[i], "dtype")), None)
    if same and firm is None:
        kinds = [dtype_of_number(operands[i]) for i in same if is_number(operands[i])]
        firm = next((k for k in (DType.f32, DType.i64) if k in kinds), DType.bool if kinds else None)
    given: list[Any] = []  # per operand: an array, None, or a list of them
    for i, x in enumerate(operands):
        if isinstance(x, Many):
            given.append([_as_array(e) for e in x])
        else:
            given.append(None if x is None else _as_array(x, firm if i in same else None))
    leaves = [e for x in given if x is not None for e in (x if isinstance(x, list) else [x])]
    device = next((x.device for x in leaves if isinstance(x, Tensor) and x.device != "cpu"), "cpu")
    form = tuple(None if x is None else len(x) if isinstance(x, list) else -1 for x in given)
    types = tuple(type_of(x) for x in leaves)
    fixed = tuple((k, tuple(v) if isinstance(v, (list, tuple)) else v) for k, v in attributes.items())
    key = (domain, op, form, types, fixed, tuple(want), device)
    model = _models.get(key)
    if model is None:
        model = _build(op, form, types, attributes, want, domain, device)
        with _lock:
            if len(_models) >= _MOST_KEPT:
                _models.clear()
            _models[key] = model
    try:
        results = model(*leaves)
    except Error as e:
        raise at(e, here()) from None
    return results if isinstance(results, Tensor) else tuple(results)


def forget_models() -> None:
    """Forgets the models of single ops, after an op has got new rules."""
    with _lock:
        _models.clear()


def _build(
    op: str,
    form: Sequence[Any],
    types: Sequence[Any],
    attributes: Mapping[str, Any],
    want: Sequence[bool],
    domain: str,
    device: str,
) -> Model:
    with tracing(op) as trace:
        inputs = iter([trace.input(f"x{i}", *type) for i, type in enumerate(types)])
        values = [None if n is None else next(inputs) if n < 0 else Many(next(inputs) for _ in range(n)) for n in form]
        for i, y in enumerate(trace.add(op, values, attributes, want, domain)):
            if y is not None:
                trace.graph.output(f"y{i}", y._value)
    return Model(trace.graph, device=device)
