# SPDX-License-Identifier: Apache-2.0
"""Optimizers over trees of parameters.

    optimizer = tenon.optim.adamw(3e-4)
    state = optimizer.init(params)

    @tenon.function
    def step(params, state, x, y):
        loss, gradients = tenon.value_and_grad(loss_of)(params, x, y)
        params, state = optimizer.update(params, gradients, state)
        return params, state, loss

The state is a tree like the parameters. A learning rate is a number, an array, or a function of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import ops, tree
from ._call import type_of
from ._dtypes import DType
from ._errors import DtypeMismatch
from ._trace import FLOATS, Array, ArrayLike, Traced

__all__ = ["Optimizer", "adam", "adamw", "global_norm", "lion", "sgd"]

Rate = Union[float, Array, Callable[[Any], Any]]
State = dict[str, Any]


@dataclass(frozen=True)
class Optimizer:
    """How parameters change. `init` makes the state for a tree of parameters."""

    learning_rate: Rate
    moments: tuple[str, ...]
    step_of: Callable[..., tuple[Any, ...]]
    clip_norm: float
    decay_min_rank: int

    def init(self, params: Any) -> State:
        """The state before the first step: a count of steps, and zeros of the moments."""
        state: State = {"step": np.zeros((), np.int64)}
        for moment in self.moments:
            state[moment] = tree.map(_zeros, params)
        return state

    def update(self, params: Any, gradients: Any, state: State, learning_rate: Rate | None = None) -> tuple[Any, State]:
        """The parameters and the state after a step. learning_rate: for this step, in the place of the optimizer's."""
        step = ops.add(state["step"], 1)
        rate = self.learning_rate if learning_rate is None else learning_rate
        if callable(rate):
            rate = rate(step)
        rate = ops.multiply(rate, np.ones((), np.float32)) if isinstance(rate, (int, float)) else ops.cast(rate, "f32")
        scale = None
        if self.clip_norm:
            norm = global_norm(gradients)
            scale = ops.minimum(ops.divide(self.clip_norm, ops.maximum(norm, 1e-30)), 1.0)

        def one(w: Any, g: Any, *moments: Any) -> Any:
            decays = len(type_of(w)[1]) >= self.decay_min_rank
            return _Step(self.step_of(w, g, moments, rate, step, scale, decays))

        made = tree.map(one, params, gradients, *[state[m] for m in self.moments])
        after: State = {"step": step}
        for i, moment in enumerate(self.moments, 1):
            after[moment] = tree.map(lambda s, i=i: s.parts[i], made)
        return tree.map(lambda s: s.parts[0], made), after


class _Step:
    """The outputs of one weight, as one leaf."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = parts


def _zeros(x: Any) -> Any:
    dtype, shape = type_of(x)
    if dtype not in FLOATS:
        raise DtypeMismatch(f"optimizer: expected parameters that are floats, got {dtype}{list(shape)}")
    kept = DType.f32 if dtype in (DType.f16, DType.bf16) else dtype
    if isinstance(x, Traced):
        return ops.expand(np.zeros((), kept.numpy), shape)
    return np.zeros(shape, kept.numpy)


def global_norm(gradients: Any) -> Array:
    """The root of the sum of the squares of all elements, as f32."""
    squares = [ops.sum_square(ops.cast(g, "f32")) for g in tree.flatten(gradients)[0]]
    total: Array = ops.expand(np.zeros((), np.float32), ())
    for square in squares:
        total = ops.add(total, square)
    return ops.sqrt(total)


def sgd(
    learning_rate: Rate,
    *,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    decay_min_rank: int = 0,
) -> Optimizer:
    """Gradient descent: w - learning_rate * g, with momentum if it is not 0. See ops.sgd().

    learning_rate: a number, or a function of the number of the step, which counts from 1. clip_norm: gradients whose global
    norm is larger are scaled to it; 0: never. decay_min_rank: weights of a lower rank do not decay.
    """

    def step_of(
        w: Any, g: Any, moments: Sequence[Any], rate: Any, step: Any, scale: Any, decays: bool
    ) -> tuple[Any, ...]:
        decay = weight_decay if decays else 0.0
        if not momentum:
            return (ops.sgd(w, g, rate, None, None, scale, weight_decay=decay),)
        made: tuple[Any, ...] = ops.sgd(
            w,
            g,
            rate,
            step,
            moments[0],
            scale,
            momentum=momentum,
            dampening=dampening,
            nesterov=nesterov,
            weight_decay=decay,
            all_outputs=True,
        )
        return made

    return Optimizer(learning_rate, ("momentum",) if momentum else (), step_of, clip_norm, decay_min_rank)


def adamw(
    learning_rate: Rate = 1e-3,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    clip_norm: float = 0.0,
    decay_min_rank: int = 0,
) -> Optimizer:
    """Adam with decoupled weight decay, see ops.adamw(). The other arguments are those of sgd()."""

    def step_of(
        w: Any, g: Any, moments: Sequence[Any], rate: Any, step: Any, scale: Any, decays: bool
    ) -> tuple[Any, ...]:
        m, v = moments
        decay = weight_decay if decays else 0.0
        return ops.adamw(w, g, m, v, rate, step, scale, beta1=beta1, beta2=beta2, eps=eps, weight_decay=decay)

    return Optimizer(learning_rate, ("m", "v"), step_of, clip_norm, decay_min_rank)


def adam(
    learning_rate: Rate = 1e-3, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, clip_norm: float = 0.0
) -> Optimizer:
    """Adam: adamw() without weight decay."""
    return adamw(learning_rate, beta1=beta1, beta2=beta2, eps=eps, weight_decay=0.0, clip_norm=clip_norm)


def lion(
    learning_rate: Rate = 1e-4,
    *,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
    decay_min_rank: int = 0,
) -> Optimizer:
    """Lion: steps by the sign of an averaged gradient, see ops.lion(). The other arguments are those of sgd()."""

    def step_of(
        w: Any, g: Any, moments: Sequence[Any], rate: Any, step: Any, scale: Any, decays: bool
    ) -> tuple[Any, ...]:
        return ops.lion(
            w, g, moments[0], rate, scale, beta1=beta1, beta2=beta2, weight_decay=weight_decay if decays else 0.0
        )

    return Optimizer(learning_rate, ("m",), step_of, clip_norm, decay_min_rank)
