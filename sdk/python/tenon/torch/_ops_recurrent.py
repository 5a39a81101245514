# SPDX-License-Identifier: Apache-2.0
"""Rules for embedding bags and recurrent layers."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .._dtypes import DType
from .._tenon import Value
from ._build import Translator, rule
from ._ops_nn import linear

# ---- Embedding bags


@rule("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag.padding_idx")
def _embedding_bag(
    b: Translator,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:
    rows = b.add("gather", [weight, indices], axis=0)
    count, width = b.shape(rows)
    starts = b.cast(offsets, DType.i64)
    bags = b.shape(offsets)[0] - (1 if include_last_offset else 0)
    starts = b.narrow(starts, 0, 0, bags)
    at = b.iota(count)  # the bag of an index: how many bags begin at it or before, less one
    begun = b.compare("ge", b.reshape(at, [count, 1]), b.reshape(starts, [1, bags]))
    bag = b.binary("sub", b.reduce("sum", begun, [1]), 1)
    valid = None
    if padding_idx is not None and padding_idx >= 0:
        valid = b.compare("ne", indices, padding_idx)
    if include_last_offset:  # which may end before the indices do
        end = b.narrow(b.cast(offsets, DType.i64), 0, bags, 1)
        inside = b.compare("lt", at, end)
        valid = inside if valid is None else b.add("logical", [valid, inside], kind="and")
    ones = b.full([count], 1.0, weight.dtype) if valid is None else b.cast(valid, weight.dtype)
    sizes = b.add("scatter_add", [ones, bag, None], axis=0, dim=bags)
    if mode == 2:
        place = b.expand(b.reshape(bag, [count, 1]), [count, width])
        low = b.full([bags, width], -math.inf, weight.dtype)
        kept = rows if valid is None else b.where(b.reshape(valid, [count, 1]), rows, -math.inf)
        y = b.add("scatter_elements_reduce", [low, place, kept], kind="max", axis=0)
        y = b.where(b.compare("gt", b.reshape(sizes, [bags, 1]), 0.0), y, 0.0)
    else:
        if per_sample_weights is not None:
            rows = b.binary("mul", rows, b.reshape(per_sample_weights, [count, 1]))
        if valid is not None:
            rows = b.where(b.reshape(valid, [count, 1]), rows, 0.0)
        y = b.add("scatter_add", [rows, bag, None], axis=0, dim=bags)
        if mode == 1:
            y = b.binary("div", y, b.reshape(b.binary("max", sizes, 1.0), [bags, 1]))
    return y, bag, b.cast(sizes, DType.i64), starts


# ---- Recurrent layers


def _layer_input(b: Translator, x: Value, weights: Sequence[Any], bias_of_r: bool) -> Value:
    """x times the input weights, both directions side by side."""
    parts = []
    for w_x, _, b_x, b_r in weights:
        bias = b_x if b_r is None or not bias_of_r else b.binary("add", b_x, b_r)
        parts.append(linear(b, x, w_x, bias))
    return parts[0] if len(parts) == 1 else b.add("concat", [parts], axis=-1)


def _per_layer(
    params: Sequence[Value], has_biases: bool, layers: int, directions: int, per: int
) -> list[list[list[Any]]]:
    size = per if has_biases else per - 2
    flat = [list(params[i : i + size]) + ([] if has_biases else [None, None]) for i in range(0, len(params), size)]
    return [flat[i * directions : (i + 1) * directions] for i in range(layers)]


def _stack(b: Translator, values: Sequence[Value]) -> Value:
    rows = [b.reshape(v, [1, *b.shape(v)]) for v in values]
    return rows[0] if len(rows) == 1 else b.add("concat", [rows], axis=0)


def _recurrent(
    b: Translator, op: str, x: Value, first: Sequence[Value], params: Sequence[Value], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if dropout and train:
        return b.refuse("dropout between layers in training mode. hint: module.eval()")
    directions = 2 if bidirectional else 1
    single = len(b.shape(x)) == 2
    hidden = b.shape(first[0])[-1]
    if len(params) != layers * directions * (4 if has_biases else 2):
        return b.refuse("a projection (proj_size); expected none")
    if single:
        x = b.reshape(x, [b.shape(x)[0], 1, b.shape(x)[1]])
        first = [b.reshape(s, [b.shape(s)[0], 1, hidden]) for s in first]
    elif batch_first:
        x = b.transpose(x, [1, 0, 2])
    last: list[list[Value]] = [[] for _ in first]
    for i, weights in enumerate(_per_layer(params, has_biases, layers, directions, 4)):
        start = [b.narrow(s, 0, i * directions, directions) for s in first]
        r = _stack(b, [w[1] for w in weights])
        direction = "bidirectional" if bidirectional else "forward"
        if op == "lstm":
            gates = _layer_input(b, x, weights, True)
            x, *ends = b.add("lstm", [gates, r, *start, None], [True, True, True], direction=direction)
        else:
            gates, n_bias = _layer_input(b, x, weights, False), None
            if has_biases:  # those of r and z join the input's, that of n stays inside
                inside = [b.narrow(w[3], 0, 2 * hidden, hidden) for w in weights]
                outside = [b.add("pad", [b.narrow(w[3], 0, 0, 2 * hidden)], after=[hidden]) for w in weights]
                joined = outside[0] if directions == 1 else b.add("concat", [outside], axis=0)
                gates, n_bias = b.binary("add", gates, joined), _stack(b, inside)
            x, *ends = b.add("gru", [gates, r, n_bias, *start, None], [True, True], direction=direction)
        for kept, end in zip(last, ends):
            kept.append(end)
    if batch_first and not single:
        x = b.transpose(x, [1, 0, 2])
    states = [k[0] if len(k) == 1 else b.add("concat", [k], axis=0) for k in last]
    if single:
        x = b.reshape(x, [b.shape(x)[0], b.shape(x)[2]])
        states = [b.reshape(s, [b.shape(s)[0], hidden]) for s in states]
    return (x, *states)


@rule("lstm.input")
def _lstm(b: Translator, x: Value, first: Sequence[Value], params: Sequence[Value], *rest: Any) -> Any:
    return _recurrent(b, "lstm", x, first, params, *rest)


@rule("gru.input")
def _gru(b: Translator, x: Value, first: Value, params: Sequence[Value], *rest: Any) -> Any:
    return _recurrent(b, "gru", x, [first], params, *rest)
