# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile: torch.compile(m, backend="tenon")."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._errors import Unsupported
from .._options import checked
from ._build import RULES, name_of
from ._program import Program, check_covered, type_of


def compile_backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Compiles a graph of torch.compile for inference.

    torch.compile(m, backend="tenon", options={"device": "cpu"}) passes its options on to Executable. Graphs that need
    gradients are refused: use torch.no_grad(), or tenon.from_torch() to train. Ops that tenon does not cover are refused,
    all at once.
    """
    from torch._dynamo.backends.common import aot_autograd

    settings = dict(options.pop("options", None) or {}) | options
    checked({name: value for name, value in settings.items() if name != "device"})

    def inference(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(graph, settings)

    def training(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        raise Unsupported(
            'torch.compile(backend="tenon"): the graph needs gradients; expected inference. '
            "hint: torch.no_grad(), or tenon.from_torch()"
        )

    core = torch._decomp.core_aten_decompositions()
    table = {op: write for op, write in core.items() if str(op).removeprefix("aten.") not in RULES}
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=training, bw_compiler=training, inference_compiler=inference, decompositions=table
    )(module, example_inputs)
    return compiled


def _fail_for_singular(graph: torch.fx.Graph) -> None:
    """Lets the ops *_ex fail themselves, where PyTorch checks what they report in an op behind them."""
    checks = [n for n in graph.nodes if name_of(n.target) == "with_effects"]
    for node in checks:
        token, op, *args = node.args
        info: Any = args[0] if args else None
        if name_of(op) != "_linalg_check_errors.default" or getattr(info, "target", None) is not operator.getitem:
            continue
        factored = info.args[0]
        factored.kwargs = {**factored.kwargs, "check_errors": True}
        for user in list(node.users):  # the token alone: a check has no result
            user.replace_all_uses_with(token)
            graph.erase_node(user)
        graph.erase_node(node)


def _boxed(graph: torch.fx.GraphModule, settings: dict[str, Any]) -> Callable[..., Any]:
    """The graph as a function of the list of its arguments."""
    _fail_for_singular(graph.graph)
    check_covered("torch.compile", graph.graph)
    programs: dict[Any, Program] = {}

    def run(args: list[Any]) -> list[Any]:
        tensors = [a.detach().contiguous() if isinstance(a, torch.Tensor) else a for a in args]
        args.clear()
        values = tuple(type_of(t) if isinstance(t, torch.Tensor) else t for t in tensors)
        program = programs.get(values)
        if program is None:
            program = programs[values] = Program("compiled", graph.graph, values, **settings)
        found = program([t for t in tensors if isinstance(t, torch.Tensor)])
        return [program.results[i] if at is None else found[at] for i, at in enumerate(program.places)]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
