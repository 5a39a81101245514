# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch as functions of tenon."""

# mypy: disable-error-code="misc,no-any-return,no-untyped-call,untyped-decorator,unused-ignore"

from __future__ import annotations

import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._errors import DtypeMismatch, InvalidArgument, ShapeMismatch
from .._model import Model
from .._options import checked
from .._report import Report
from ._build import RULES
from ._program import Program, check_covered, differentiable, type_of

_MOST_PROGRAMS = 64


def from_torch(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    device: str = "auto",
    **options: Any,
) -> Module:
    """A module of PyTorch whose forward and backward passes are computed by tenon.

    The result is called as the module is, and returns tensors of PyTorch in the same structure. Its parameters and
    buffers are those of the module, in the same memory: who trains or loads the one changes the other.
    `loss.backward()` works as usual. A module that returns its loss is the fastest to train, because tenon then computes
    it with its gradients in one run.

    example_inputs: a tuple of arguments, from which torch.export learns the types.
    dynamic_shapes: which dims may change between calls, as torch.export takes them.
    device: "auto", "cpu" or "cuda:0". options: those of Executable.

    The module keeps the mode in which it is: call eval() before, if dropout must be off. Ops that tenon does not cover
    are refused with `Unsupported`, all at once, with the paths of their modules.
    """
    checked(options)  # before the module is exported
    args = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it has ops of its own
    try:
        exported = torch.export.export(module, args, dict(example_kwargs or {}), dynamic_shapes=dynamic_shapes)
        _mark_no_grad(exported.graph_module)
        exported = exported.run_decompositions(_decompositions())
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    name = type(module).__name__
    check_covered(name, exported.graph)
    return Module(module, exported, device, options)


def _mark_no_grad(module: torch.fx.GraphModule) -> None:
    """Detaches the results of blocks of torch.no_grad(), which PyTorch leaves out when it writes ops in others."""
    for graph in [m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in list(graph.nodes):
            if str(node.target) != "wrap_with_set_grad_enabled" or node.args[0]:
                continue
            for result in [u for u in node.users if u.target is operator.getitem]:
                users = list(result.users)
                with graph.inserting_after(result):
                    detached = graph.call_function(torch.ops.aten.detach.default, (result,))
                detached.meta.update(result.meta)
                for user in users:
                    user.replace_input_with(result, detached)
    module.recompile()


def _decompositions() -> Any:
    """What PyTorch may write in simpler ops: all that has no rule."""
    table = torch.export.default_decompositions()
    for op in list(table):
        if str(op).removeprefix("aten.") in RULES:
            table.pop(op)
    return table


class _Slot:
    """Where a placeholder's tensor comes from: a tensor of the module, or a leaf of the arguments."""

    def __init__(self, node: torch.fx.Node, spec: Any) -> None:
        self.node, self.name, self.kind, self.target = node, node.name, spec.kind.name, spec.target
        self.fixed = None if isinstance(spec.arg, torch.export.graph_signature.TensorArgument) else spec.arg
        self.is_argument = self.kind == "USER_INPUT"


class Module(torch.nn.Module):
    """What from_torch() returns: `module` in tenon. Programs for other dims are compiled when they are needed."""

    def __init__(self, module: torch.nn.Module, exported: Any, device: str, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._exported = exported.graph_module  # keeps constants
        self._graph = exported.graph
        self._device, self._options = device, dict(options)
        self._lock = threading.Lock()
        self._flags: dict[tuple[int, ...], list[bool]] = {}
        self._programs: dict[Any, Program] = {}
        self._in_spec, self._out_spec = exported.call_spec.in_spec, exported.call_spec.out_spec
        signature = exported.graph_signature
        places = [n for n in exported.graph.nodes if n.op == "placeholder"]
        self._slots = [_Slot(n, s) for n, s in zip(places, signature.input_specs)]
        self._outputs = [(s.kind.name, s.target) for s in signature.output_specs]
        self._ranges = dict(exported.range_constraints)
        self._leaves = [s for s in self._slots if s.is_argument]
        self._constants = {**exported.constants, **exported.state_dict}
        self._shared: dict[tuple[str, Any], Any] = {}
        self.training = module.training
        self._is_loss = self._returns_loss()
        mutated = {target for kind, target in self._outputs if kind.endswith("_MUTATION")}
        self._mutated = [s.target in mutated or s.name in mutated for s in self._slots]
        self._program(self._example_values(), (), False)

    # ---- Calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes what the module's forward() computes."""
        tensors = self._tensors(args, kwargs)
        needed = [
            i
            for i, t in enumerate(tensors)
            if isinstance(t, torch.Tensor) and t.requires_grad and (t.is_floating_point() or t.is_complex())
        ]
        if needed and torch.is_grad_enabled():
            results = _Function.apply(self, tuple(needed), *tensors)
        else:
            results = self._run(tensors, (), False)
        return self._finish(results, tensors)

    def _tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """What each placeholder gets."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            leaves = self._reordered(args, kwargs)
        out, at = [], 0
        for slot in self._slots:
            if not slot.is_argument:
                out.append(self._owned(slot))
                continue
            leaf = leaves[at]
            at += 1
            self._check(slot, leaf)
            out.append(leaf)
        return out

    def _reordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        expected = self._in_spec.children()[1]
        names = list(expected.context or [])
        if set(names) == set(kwargs):
            leaves, spec = pytree.tree_flatten((args, {n: kwargs[n] for n in names}))
            if spec == self._in_spec:
                return leaves
        raise InvalidArgument(
            f"{type(self.module).__name__}: the arguments have another structure than the examples; "
            f"expected {self._in_spec}, got {pytree.tree_flatten((args, kwargs))[1]}"
        )

    def _check(self, slot: _Slot, leaf: Any) -> None:
        example = slot.node.meta.get("val")
        what = f"{type(self.module).__name__}: argument '{slot.name}'"
        if not isinstance(example, torch.Tensor):
            if isinstance(example, (int, float, bool, str, type(None))) and leaf != example:
                raise InvalidArgument(f"{what}: expected {example!r}, which is part of the program, got {leaf!r}")
            return
        if not isinstance(leaf, torch.Tensor):
            raise InvalidArgument(f"{what}: expected a tensor of PyTorch, got {type(leaf).__name__}")
        if leaf.dtype != example.dtype:
            raise DtypeMismatch(f"{what}: expected {example.dtype}, got {leaf.dtype}")
        dims = tuple(example.shape)
        if len(dims) != leaf.ndim or any(isinstance(d, int) and d != e for d, e in zip(dims, leaf.shape)):
            raise ShapeMismatch(
                f"{what}: expected [{', '.join(map(str, dims))}], got {list(leaf.shape)}"
                ". hint: dynamic_shapes= of from_torch() names dims that may change"
            )

    def _owned(self, slot: _Slot) -> Any:
        key = slot.target
        owner, _, name = key.rpartition(".")
        try:
            return getattr(self.module.get_submodule(owner), name)
        except AttributeError:
            return self._constants[key]

    def _finish(self, results: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """Writes what the module mutates, and gives the rest its structure."""
        visible = []
        for (kind, target), result in zip(self._outputs, results):
            if kind in ("USER_OUTPUT", "LOSS_OUTPUT"):
                visible.append(result)
                continue
            with torch.no_grad():
                if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
                    slot = next(s for s in self._slots if s.target == target)
                    self._owned(slot).copy_(result)
                elif kind == "USER_INPUT_MUTATION":
                    tensors[[s.name for s in self._slots].index(target)].copy_(result)
        return pytree.tree_unflatten(visible, self._out_spec)

    # ---- Programs

    def _run(
        self, tensors: Sequence[Any], wrt: tuple[int, ...], alone: bool, given: dict[int, Any] | None = None
    ) -> Any:
        values = [type_of(t) if isinstance(t, torch.Tensor) else t for t in tensors]
        program = self._program(values, wrt, alone, tuple(given or ()))
        memory = [t.detach() if t.requires_grad else t for t in tensors if isinstance(t, torch.Tensor)]
        memory += list((given or {}).values())
        found = program([t.resolve_conj().resolve_neg().contiguous() for t in memory])
        if alone:
            return found
        results = [program.results[i] if at is None else found[at] for i, at in enumerate(program.places)]
        return (results, found[program.count :]) if wrt else results

    def _program(
        self, values: Sequence[Any], wrt: tuple[int, ...], alone: bool, given: tuple[int, ...] = ()
    ) -> Program:
        key = (tuple(values), wrt, alone, given)
        with self._lock:
            program = self._programs.pop(key, None)
            if program is None:
                self._check_dims(values)
                program = Program(
                    type(self.module).__name__,
                    self._graph,
                    values,
                    device=self._device,
                    wrt=wrt,
                    given=given,
                    outputs=not alone,
                    **self._options,
                )
            self._programs[key] = program  # the last one used is the last
            if len(self._programs) > _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
        return program

    def _differentiable(self, needed: tuple[int, ...]) -> list[bool]:
        if needed not in self._flags:
            self._flags[needed] = differentiable(self._graph, needed)
        return self._flags[needed]

    def _example_values(self) -> list[Any]:
        values: list[Any] = []
        for slot in self._slots:
            example = slot.node.meta.get("val")
            if isinstance(example, torch.Tensor):
                dims = tuple(d if isinstance(d, int) else int(d.node.hint) for d in example.shape)
                values.append((example.dtype, dims))
            else:
                values.append(example)
        return values

    def _check_dims(self, values: Sequence[Any]) -> None:
        """Are the dims of one symbol equal, and in its range?"""
        numbers: dict[Any, int] = {}
        for slot, value in zip(self._slots, values):
            example = slot.node.meta.get("val")
            if not isinstance(example, torch.Tensor) or not isinstance(value, tuple):
                continue
            for want, got in zip(example.shape, value[1]):
                if isinstance(want, int):
                    continue
                expression = want.node.expr
                if expression.is_Symbol:
                    known = numbers.setdefault(expression, got)
                    at = self._ranges.get(expression)
                    if at is not None and not (at.lower <= got <= at.upper):
                        raise ShapeMismatch(f"{slot.name}: dim {expression}={got}; expected {at.lower} to {at.upper}")
                else:
                    known = int(expression.subs(numbers)) if expression.free_symbols <= set(numbers) else got
                if known != got:
                    raise ShapeMismatch(f"{slot.name}: dim {expression}; expected {known}, got {got}")

    def _returns_loss(self) -> bool:
        """Is a loss all that the module returns: a float of rank 0?"""
        output = next(n for n in self._graph.nodes if n.op == "output")
        results = output.args[0]
        if len(results) != 1 or not isinstance(results[0], torch.fx.Node):
            return False
        value = results[0].meta.get("val")
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() == 0

    @property
    def model(self) -> Model:
        """The model of the program that ran last."""
        return next(reversed(self._programs.values())).model

    @property
    def report(self) -> Report:
        """What became of each node of the program that ran last."""
        return self.model.report


class _Function(torch.autograd.Function):
    """Lets PyTorch differentiate through a Module."""

    @staticmethod
    def forward(ctx: Any, module: Module, needed: tuple[int, ...], *tensors: Any) -> Any:
        ctx.module, ctx.needed = module, needed
        ctx.loss_gradients = None
        if module._is_loss:
            results, ctx.loss_gradients = module._run(tensors, needed, False)
        else:
            results = module._run(tensors, (), False)
            kept = (t.detach().clone() if m else t for t, m in zip(tensors, module._mutated))
            ctx.save_for_backward(*(t if isinstance(t, torch.Tensor) else None for t in kept))
            ctx.others = [None if isinstance(t, torch.Tensor) else t for t in tensors]
        flags = module._differentiable(needed)
        ctx.mark_non_differentiable(*(r for r, d in zip(results, flags) if isinstance(r, torch.Tensor) and not d))
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *dys: Any) -> Any:
        out: list[Any] = [None, None] + [None] * (max(ctx.needed) + 1)
        if ctx.loss_gradients is not None:
            gradients, ctx.loss_gradients = ctx.loss_gradients, None
            if gradients is None:
                raise InvalidArgument("backward: called twice; expected once per forward pass")
            if dys[0] is None:
                return (None,) * (2 + len(ctx.module._slots))
            if dys[0].item() != 1:
                gradients = [g * dys[0] for g in gradients]
        else:
            tensors = [o if t is None else t for t, o in zip(ctx.saved_tensors, ctx.others)]
            given = {i: dy.contiguous() for i, dy in enumerate(dys) if dy is not None}
            gradients = ctx.module._run(tensors, ctx.needed, True, given) if given else [None] * len(ctx.needed)
        for i, g in zip(ctx.needed, gradients):
            out[2 + i] = g
        return tuple(out) + (None,) * (2 + len(ctx.module._slots) - len(out))
