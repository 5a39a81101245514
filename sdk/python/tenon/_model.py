# SPDX-License-Identifier: Apache-2.0
"""Models: graphs with their weights, compiled for a device, as functions of arrays."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, cast

from . import _tenon
from ._dtypes import DType
from ._errors import Error, InvalidArgument, NotFound
from ._options import checked, text, whole_number
from ._report import Report
from ._runtime import default_runtime
from ._tenon import Executable, Graph, Runner, Runtime, Store, Tensor
from .llm import Engine

PathLike = Union[str, "os.PathLike[str]"]
Dims = tuple[Union[int, str], ...]

_GRAPH, _WEIGHTS, _STATE = "graph.tng", "weights.safetensors", "state.safetensors"


@dataclass(frozen=True)
class Spec:
    """The type of an input or output. Symbolic dims are names; the shape of an output may depend on symbols: None."""

    name: str
    dtype: DType
    shape: Dims | None

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ",".join(str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{dims}]"


class Outputs(tuple[Tensor, ...]):
    """The outputs of a model that has several: a tuple, whose entries also have names."""

    names: tuple[str, ...]

    def __new__(cls, names: Sequence[str], tensors: Sequence[Tensor]) -> Outputs:
        self = super().__new__(cls, tensors)
        self.names = tuple(names)
        return self

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return super().__getitem__(self.names.index(key))
            except ValueError:
                raise NotFound(f"outputs: no '{key}'; expected one of {', '.join(self.names)}") from None
        return super().__getitem__(key)

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Pairs of name and tensor."""
        return zip(self.names, self)

    def __repr__(self) -> str:
        return "Outputs(" + ", ".join(f"{n}={t!r}" for n, t in self.items()) + ")"


class Run:
    """A run in flight. `await` it, or `wait()` for it; both return the outputs."""

    def __init__(self, run: _tenon._Run) -> None:
        self._run = run
        self._waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def done(self) -> bool:
        """Has the run ended?"""
        return self._run.done()

    def cancel(self) -> None:
        """Asks the run to end before its next step. Waiting for it then raises an Error with code "cancelled"."""
        self._run.cancel()

    def wait(self) -> Any:
        """Waits, and returns the outputs, or raises the failure of the run."""
        return self._run.wait()

    async def _wait(self) -> Any:
        if self._run.done():
            return self.wait()
        loop = asyncio.get_running_loop()
        file = self._run.fileno()
        waiting = self._waiting.setdefault(loop, [])  # a loop has one reader of a descriptor
        if not waiting:
            loop.add_reader(file, _wake, waiting)
        ended: asyncio.Future[None] = loop.create_future()
        waiting.append(ended)
        try:
            await ended
        except asyncio.CancelledError:
            if waiting == [ended]:  # the last that waits
                self.cancel()
            raise
        finally:
            waiting.remove(ended)
            if not waiting:
                loop.remove_reader(file)
                del self._waiting[loop]
            self._run.release_fileno()
        return self.wait()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for ended in waiting:
        if not ended.done():
            ended.set_result(None)


class Model(Runner):
    """A graph with its weights, compiled for a device. A function of arrays:

        m = tenon.load("model.onnx")
        y = m(x)              # or by name: m(x=x)

    Arguments are tensors, NumPy arrays, buffers, objects with __dlpack__ (PyTorch, CuPy), and numbers for inputs without
    dims. They are read where they are; other dtypes, shapes and strides are refused. A model with one output returns a
    Tensor, others return Outputs. `out` names memory for the outputs: m(x, out=y). Several threads may call a model at the
    same time. A model keeps
    arguments on a device until its next call, and others no longer than the call.

    bind: numbers of symbolic dims. buckets: sizes of symbolic dims: {"N": "pow2"}, {"N": [64, 128]}. options: those of
    Executable; pins may be a mapping: {"conv*": "cpu"}. The graph must not change afterwards.
    """

    def __init__(
        self,
        graph: Graph,
        store: Store | None = None,
        *,
        device: str = "auto",
        bind: Mapping[str, int] | None = None,
        runtime: Runtime | None = None,
        buckets: Mapping[str, str | Sequence[int]] | None = None,
        _executable: Executable | None = None,
        **options: Any,
    ) -> None:
        self._runtime = runtime or default_runtime()
        store = store or Store(self._runtime)
        self._graph, self._store, self._device = graph, store, device
        text(device, "device")
        self._inputs, self._outputs, self._names = graph.named("input"), graph.outputs(), _names(graph)
        self._numbers = {name: whole_number(number, f"bind: {name}") for name, number in (bind or {}).items()}
        self._check_names()
        self._buckets, self._options = dict(buckets or {}), options
        self._executable = _executable or Executable(
            self._runtime, graph, store, device=device, **checked({**options, "buckets": self._buckets})
        )
        super().__init__(
            self._executable,
            self._runtime,
            graph,
            copies_inputs=bool(self._buckets),
            numbers=list(self._numbers.items()),
        )

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        return self._graph

    @property
    def store(self) -> Store:
        """The weights and the state of the model. Other models may share them."""
        return self._store

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return self._device

    @property
    def symbols(self) -> list[str]:
        """The names of symbolic dims that are not bound, in the order of the inputs."""
        dims = [d for i in self.inputs.values() for d in i.shape or () if isinstance(d, str)]
        return list(dict.fromkeys(dims))

    @property
    def inputs(self) -> dict[str, Spec]:
        """The inputs by name, in the order of positional arguments."""
        return self._specs((name, value) for name, value, _ in self._inputs)

    @property
    def outputs(self) -> dict[str, Spec]:
        """The outputs by name."""
        return self._specs(iter(self._outputs))

    @property
    def report(self) -> Report:
        """What became of each node, with reasons. A model with symbols must be bound, see bind()."""
        if left := self.symbols:
            wanted = ", ".join(f"{s}=8" for s in left)
            raise InvalidArgument(f"report: the model has symbols; hint: m.bind({wanted}).report")
        return Report(self._executable._report(list(self._numbers.items())))

    def to(self, device: str) -> Model:
        """The same model on another device. Both share weights and state."""
        self._check_unchanged("to")
        return Model(
            self._graph,
            self._store,
            device=device,
            bind=self._numbers,
            runtime=self._runtime,
            buckets=self._buckets,
            **self._options,
        )

    def bind(self, **numbers: int) -> Model:
        """The same model for fixed numbers of symbolic dims: m.bind(N=8). Other sizes are refused.

        All numbers given, the model is planned now, not in its first run.
        """
        self._check_unchanged("bind")
        model = Model(
            self._graph,
            self._store,
            device=self._device,
            bind={**self._numbers, **numbers},
            runtime=self._runtime,
            buckets=self._buckets,
            _executable=self._executable,
            **self._options,
        )
        if not model.symbols:
            model._executable._report(list(model._numbers.items()))
        return model

    def run_async(self, *args: Any, **kwargs: Any) -> Run:
        """Starts a run and returns. `await` the result for the outputs. The arguments must not change until then.

        The run is under way already; where asyncio wants a future for it: asyncio.ensure_future(run).
        """
        return Run(self._start(*args, **kwargs))

    def save(self, folder: PathLike) -> None:
        """Writes the model to a folder, which load() reads: the graph as text, weights and state as safetensors.

        A model that the folder had is replaced, when all of the new one is written. The numbers of bind() and the options
        are not saved: give them to load().
        """
        self._check_unchanged("save")
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=path) as name:
            new = Path(name)
            for space, file in (("weight", _WEIGHTS), ("state", _STATE)):
                if self._store.names(space):
                    self._store._save(str(new / file), space)
            (new / _GRAPH).write_text(str(self._graph), encoding="utf-8")
            for file in (_WEIGHTS, _STATE, _GRAPH):
                if (new / file).exists():
                    (new / file).replace(path / file)
                else:  # of an older model
                    (path / file).unlink(missing_ok=True)

    def save_onnx(self, path: PathLike) -> None:
        """Writes the model as a file of ONNX, with the numbers of bind()."""
        self._check_unchanged("save_onnx")
        self._graph._export(os.fspath(path), self._store, symbols=list(self._numbers.items()))

    def __repr__(self) -> str:
        inputs = ", ".join(str(i) for i in self.inputs.values())
        outputs = ", ".join(str(o) for o in self.outputs.values())
        return f"<tenon.Model on {self._device}: ({inputs}) -> ({outputs})>"

    def _specs(self, values: Iterator[tuple[str, _tenon.Value]]) -> dict[str, Spec]:
        def numbers(shape: Dims | None) -> Dims | None:
            return shape and tuple(self._numbers.get(d, d) if isinstance(d, str) else d for d in shape)

        return {name: Spec(name, v.dtype, numbers(v.shape)) for name, v in values}

    def _check_names(self) -> None:
        known = {d for _, v, _ in self._inputs for d in v.shape or () if isinstance(d, str)}
        for name in self._numbers:
            if name not in known:
                have = ", ".join(sorted(known)) or "none"
                raise NotFound(f"bind: the model has no symbol '{name}'; it has {have}")

    def _check_unchanged(self, what: str) -> None:
        for of, before, now in zip(("input", "weight", "state", "output"), self._names, _names(self._graph)):
            if before != now:
                raise InvalidArgument(
                    f"{what}: the graph has changed since the model was made: its names of {of}s were "
                    f"{', '.join(before) or 'none'}; now {', '.join(now) or 'none'}. hint: tenon.Model(m.graph, m.store)"
                )


def _names(graph: Graph) -> tuple[list[str], ...]:
    """The names of inputs, weights, states and outputs."""
    spaces = [[name for name, *_ in graph.named(space)] for space in ("input", "weight", "state")]
    return *spaces, [name for name, _ in graph.outputs()]


def load(
    path: PathLike,
    *,
    device: str = "auto",
    bind: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    trainable: str | Sequence[str] = (),
    runtime: Runtime | None = None,
    **options: Any,
) -> Model:
    """Reads a model and compiles it for a device.

    path: a file of ONNX, a graph as text (*.tng), or a folder: one that Model.save() wrote, or one with a single *.onnx.
    device: "auto", "cpu", "cuda:0", or several: "cuda:0,cuda:1".
    bind: numbers of symbolic dims.
    fixed: inputs of an ONNX model that become constants, with their content.
    trainable: patterns of names of weights of an ONNX model ("fc.*") that are trainable; one, or several.
    options: those of Model: exec_mode, lanes, aot, pins, memory_limits, buckets, allow_fallback, batch_invariant.

    Language models give a tenon.llm.Engine: a file *.gguf, or a folder of Hugging Face with config.json. options: those of
    Engine: context, slots, compute, cache, products, cache_tokens, batch_invariant. For type checkers the result is a Model; tenon.llm.Engine(path) has its own
    type.
    """
    if _is_language_model(Path(path)):
        if bind or fixed or trainable:
            raise InvalidArgument(f"load: {path}: a language model has no bind, fixed or trainable")
        engine: Any = Engine(path, device=device, runtime=runtime, **options)
        return cast(Model, engine)
    checked(options)  # before a large file is read
    runtime = runtime or default_runtime()
    store = Store(runtime)
    patterns = [trainable] if isinstance(trainable, str) else list(trainable)
    graph = _read(Path(path), store, patterns, dict(fixed or {}))
    return Model(graph, store, device=device, bind=bind, runtime=runtime, **options)


def _is_language_model(path: Path) -> bool:
    if path.suffix == ".gguf":
        return path.exists()
    is_other = (path / _GRAPH).exists() or any(path.glob("*.onnx"))
    return path.is_dir() and (path / "config.json").exists() and not is_other


def _read(path: Path, store: Store, trainable: list[str], fixed: dict[str, Any]) -> Graph:
    if not path.exists():
        raise NotFound(f"load: {path}: no such file or folder")
    if path.is_dir():
        if (path / _GRAPH).exists():
            graph = _parse(path / _GRAPH, trainable, fixed)
            for space, file in (("weight", _WEIGHTS), ("state", _STATE)):
                if (path / file).exists():
                    store._load(str(path / file), space)
            return graph
        models = sorted(path.glob("*.onnx"))
        if len(models) != 1:
            raise NotFound(
                f"load: {path}: expected {_GRAPH} or one file *.onnx, got {len(models)} of them; or config.json, for a "
                "language model"
            )
        path = models[0]
    if path.suffix == ".onnx":
        return Graph._import(str(path), store, trainable, fixed)
    graph = _parse(path, trainable, fixed)
    store.add_missing(graph)
    return graph


def _parse(path: Path, trainable: list[str], fixed: dict[str, Any]) -> Graph:
    for name, given in (("trainable", trainable), ("fixed", fixed)):
        if given:
            raise InvalidArgument(f"load: {name}: it is for models of ONNX; got {path}")
    try:
        return Graph.parse(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as e:
        raise Error(
            f"load: {path}: expected a graph as text, in UTF-8; got other bytes at {e.start}", code="corrupt"
        ) from None
