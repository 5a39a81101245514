# SPDX-License-Identifier: Apache-2.0
"""The runtime that the package uses, and the devices it has."""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass
from functools import lru_cache

from . import _log, _tenon
from ._options import whole_number
from ._tenon import Executable, Graph, Runner, Runtime, Store, Tensor


@dataclass(frozen=True)
class Device:
    """A device of a loaded plugin. `reason` is not empty if it cannot be used, and says why."""

    id: str
    kind: str
    name: str
    plugin: str
    reason: str
    memory_size: int
    max_allocation: int
    device_class: str

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class Plugin:
    """A file that was considered as a plugin. `text` says why loading stopped at `stage`."""

    path: str
    stage: str
    text: str
    name: str
    version: str
    code: str
    device_count: int


_lock = threading.Lock()
_default: Runtime | None = None


def default_runtime() -> Runtime:
    """The runtime that functions use if they get none. The first call loads the plugins."""
    global _default
    with _lock:
        if _default is None:
            _tenon._log_from(_log.least_level())
            _default = Runtime()
        return _default


def set_threads(threads: int) -> None:
    """Sets the number of threads that compute; 0 = CPU affinity or cgroup quota, whichever is smaller.

    Models that are loaded afterwards use them. At most as many as processors that this process may use.
    """
    global _default
    threads = whole_number(threads, "threads", len(os.sched_getaffinity(0)))
    runtime = Runtime(threads=threads)
    with _lock:
        _default = runtime
    _copier.cache_clear()


def devices(runtime: Runtime | None = None) -> list[Device]:
    """The devices of all plugins, also those that cannot be used."""
    return [Device(**d) for d in (runtime or default_runtime())._devices()]


def plugins(runtime: Runtime | None = None) -> list[Plugin]:
    """The files that were considered as plugins, and why they were loaded or not."""
    return [Plugin(**p) for p in (runtime or default_runtime())._plugins()]


@lru_cache(maxsize=64)
def _copier(runtime: Runtime, device: str, dtype: str, shape: tuple[int, ...]) -> Runner:
    """A model that passes its input on."""
    graph = Graph("copy")
    graph.output("y", graph.input("x", dtype, shape))
    executable = Executable(runtime, graph, Store(runtime), device=device, allow_fallback=False)
    return Runner(executable, runtime, graph)


HOST = ("cpu", "cpu:0")  # the names of host memory


def copier_to(tensor: Tensor, device: str) -> Tensor:
    """Copies a tensor to a device, or from one to host memory."""
    runtime = default_runtime()
    on = tensor.device if device in HOST else device
    run = _copier(runtime, on, tensor.dtype.name, tensor.shape)
    return run._copy_to_host(tensor) if device in HOST else run(tensor)


@atexit.register
def _end() -> None:
    global _default
    _copier.cache_clear()
    _default = None
    _tenon._end_log()
