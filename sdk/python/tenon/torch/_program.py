# SPDX-License-Identifier: Apache-2.0
"""Programs: graphs of torch.fx compiled for given dims, and their gradients."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from .._dtypes import DType
from .._model import Model
from .._runtime import default_runtime
from .._tenon import Store, Tensor, Value
from . import (
    _ops_attention,
    _ops_complex,
    _ops_experts,
    _ops_index,
    _ops_linalg,
    _ops_math,
    _ops_nn,
    _ops_order,
    _ops_pool,
    _ops_recurrent,
    _ops_reduce,
    _ops_shape,
)
from ._build import COMPLEX, Translator, is_covered, name_of, path_of, refuse

_RULES = (
    _ops_attention,
    _ops_complex,
    _ops_experts,
    _ops_index,
    _ops_linalg,
    _ops_math,
    _ops_nn,
    _ops_order,
    _ops_pool,
    _ops_recurrent,
    _ops_reduce,
    _ops_shape,
)  # imported for their rules

Type = tuple[torch.dtype, tuple[int, ...]]


def type_of(tensor: torch.Tensor) -> Type:
    """Dtype and shape."""
    return tensor.dtype, tuple(tensor.shape)


def check_covered(what: str, graph: torch.fx.Graph) -> None:
    """Refuses a graph with functions that have no rule, all of them at once."""
    nodes = (n for n in graph.nodes if n.op not in ("placeholder", "output", "get_attr"))
    refuse(what, [(name_of(n.target), path_of(n), "no rule") for n in nodes if not is_covered(n)])


def differentiable(graph: torch.fx.Graph, places: Sequence[int]) -> list[bool]:
    """Which results of a graph depend on those placeholders by floats?"""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    depend = {inputs[i] for i in places}
    for node in graph.nodes:
        if node.op == "output":
            return [isinstance(r, torch.fx.Node) and r in depend for r in node.args[0]]
        value = node.meta.get("val")
        is_float = not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()
        stops = name_of(node.target) == "detach.default"
        if is_float and not stops and any(n in depend for n in node.all_input_nodes):
            depend.add(node)
    return []


class Program:
    """A graph for given types of its placeholders. Calls take the tensors among them in their order.

    values: for each placeholder a type, or a number or None. wrt: the places in `values` whose gradients are wanted; then
    the program also takes the gradients of the outputs in `given`, and returns gradients behind the outputs, or alone if
    `outputs` is false.
    """

    def __init__(
        self,
        name: str,
        graph: torch.fx.Graph,
        values: Sequence[Any],
        *,
        device: str = "auto",
        wrt: Sequence[int] = (),
        given: Sequence[int] = (),
        outputs: bool = True,
        **options: Any,
    ) -> None:
        b = Translator(name, differentiates=bool(wrt))
        env: dict[torch.fx.Node, Any] = {}
        inputs: list[Any] = []
        places = [n for n in graph.nodes if n.op == "placeholder"]
        for node, value in zip(places, values):
            if isinstance(value, tuple):
                env[node] = b.graph.input(node.name, DType.of(value[0]), list(value[1]))
            else:
                env[node] = value
            inputs.append(env[node])
        flat = b.translate(graph.nodes, env)
        refuse(name, b.problems, b.cause)
        self.results = list(flat) if isinstance(flat, (tuple, list)) else [flat]
        self.places: list[int | None] = []  # of each result among the outputs; None: it is no tensor
        self.count = 0
        if outputs:
            for value in self.results:
                if isinstance(value, Value):
                    b.graph.output(f"y{self.count}", value)
                    self.places.append(self.count)
                    self.count += 1
                else:
                    self.places.append(None)
        if wrt:
            loss: Any = None
            for i in given:
                y = self.results[i]
                dy = b.graph.input(f"d.y{i}", y.dtype, b.shape(y))
                if y.dtype in COMPLEX:  # their parts are independent
                    y, dy = (b.add("view_as_real", [v]) for v in (y, dy))
                part = b.reduce("sum", b.binary("mul", y, dy))
                part = b.cast(part, DType.f32 if part.dtype in (DType.f16, DType.bf16) else part.dtype)
                loss = part if loss is None else b.binary("add", loss, part, DType.f32)
            if loss is None:  # the outputs are one loss
                loss = b.reshape(self.results[0], [])
            for k, g in enumerate(b.graph.gradients(loss, [inputs[i] for i in wrt])):
                b.graph.output(f"g{k}", g)
        self.model = Model(b.graph, Store(default_runtime()), device=device, **options)

    def __call__(self, tensors: Sequence[Any]) -> list[torch.Tensor]:
        """The outputs as tensors of PyTorch, then the gradients."""
        found = self.model(*tensors)
        if isinstance(found, Tensor):
            return [from_dlpack(found)]
        return [from_dlpack(t) for t in found]
