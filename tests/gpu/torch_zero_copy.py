#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch tensors in and out of tenon without a copy: torch_zero_copy.py LIBTENON [DEVICE [ROUNDS]]

DEVICE is cpu:0 (default) or cuda:N. Addresses and values are compared with PyTorch's, and the time of a run with that of
PyTorch's own operation. On a GPU, tenon works on PyTorch's stream between PyTorch's own kernels for ROUNDS rounds (1000),
while another thread captures and replays CUDA graphs of PyTorch, and traces show that nothing is moved. Exits with 77
where there is no PyTorch or no such device."""
import ctypes
import gc
import json
import sys
import threading
import time
import weakref

try:
    import torch
except ImportError:
    print("skipped: there is no PyTorch")
    sys.exit(77)

GRAPH = """graph {
  input x: f32[N,256]
  const two: f32[] = {2}
  const one: f32[] = {1}
  t = binary(x, two) {kind="mul"}
  y = binary(t, one) {kind="add"}
  output "y" = y
}"""


class Str(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint64)]

    def __str__(self):
        return ctypes.string_at(self.data, self.size).decode() if self.size else ""


def text(s):
    return Str(s.encode(), len(s.encode()))


class ExecutableOptions(ctypes.Structure):  # the fields of its first version that are set here
    _fields_ = [("struct_size", ctypes.c_uint64), ("device", Str), ("fallback", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("exec_mode", ctypes.c_uint32), ("lanes", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p), ("size", ctypes.c_uint64),
                ("rank", ctypes.c_uint32), ("dtype", ctypes.c_uint16), ("reserved0", ctypes.c_uint16), ("device", Str),
                ("flags", ctypes.c_uint32), ("reserved1", ctypes.c_uint32)]


class Tenon:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        for name in ("tenon_status_text", "tenon_text_str"):
            getattr(self.lib, name).restype = Str

    def __getattr__(self, name):
        function = getattr(self.lib, "tenon_" + name)
        function.restype = ctypes.c_void_p

        def call(*arguments):
            status = function(*arguments)
            if status:
                raise RuntimeError(str(self.lib.tenon_status_text(ctypes.c_void_p(status))))
        return call

    def made(self, name, *arguments):
        out = ctypes.c_void_p()
        getattr(self, name)(*arguments, ctypes.byref(out))
        return out


# A capsule of DLPack: its pointer goes to whoever takes it over, then the capsule is renamed.
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule_rename = ctypes.pythonapi.PyCapsule_SetName
capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype = ctypes.py_object
capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
FRESH, USED = b"dltensor_versioned", b"used_dltensor_versioned"


class Given:
    """An output of tenon as torch.from_dlpack() wants it."""

    def __init__(self, managed, device):
        self.managed, self.device = managed, device

    def __dlpack__(self, **_):
        return capsule_new(self.managed, FRESH, None)

    def __dlpack_device__(self):
        kind, index = self.device.split(":")
        return {"cpu": 1, "cuda": 2}[kind], int(index)


class Run:
    def __init__(self, tenon, runtime, device, mode=0):
        self.tenon, self.device = tenon, device
        graph = tenon.made("graph_parse", text(GRAPH), text("torch"))
        self.store = tenon.made("store_create", runtime)
        options = ExecutableOptions(ctypes.sizeof(ExecutableOptions), text(device), 1, 0, mode, 0)
        self.executable = tenon.made("executable_create", runtime, graph, self.store, ctypes.byref(options))
        self.context = tenon.made("context_create", self.executable)

    def close(self):
        for kind, handle in (("context", self.context), ("executable", self.executable), ("store", self.store)):
            getattr(self.tenon.lib, f"tenon_{kind}_destroy")(handle)

    def bind(self, name, tensor, stream=None):
        keywords = {} if stream is None else {"stream": stream}
        capsule = tensor.__dlpack__(max_version=(1, 0), **keywords)
        self.tenon.context_bind_dlpack(self.context, text(name), ctypes.c_void_p(capsule_pointer(capsule, FRESH)))
        capsule_rename(capsule, USED)

    def run(self):
        self.tenon.context_run(self.context)

    def run_async(self):
        self.tenon.context_run_async(self.context)

    def wait(self):
        self.tenon.context_wait(self.context)

    def output(self):
        out = Tensor(ctypes.sizeof(Tensor))
        self.tenon.context_output(self.context, text("y"), ctypes.byref(out))
        return out

    def give(self):
        managed = self.tenon.made("context_output_dlpack", self.context, text("y"))
        return torch.from_dlpack(Given(managed.value, self.device))


def slices(tenon, runtime, body):
    tenon.trace_start(runtime, None)
    body()
    trace = tenon.made("trace_stop", runtime)
    events = json.loads(str(tenon.lib.tenon_text_str(trace)))["traceEvents"]
    tenon.lib.tenon_text_destroy(trace)
    return [e["cat"] for e in events if e["ph"] == "X"]


def moved(kinds):
    return sum(kinds.count(k) for k in ("write", "copy", "read"))


def median(seconds):
    return sorted(seconds)[len(seconds) // 2]


def in_place(tenon, runtime, device, where):
    run = Run(tenon, runtime, device)
    for rows in (3, 1024, 7):
        x, y = torch.randn(rows, 256, device=where), torch.full((rows, 256), -1.0, device=where)
        if where != "cpu":
            torch.cuda.synchronize()
        run.bind("x", x)
        run.bind("y", y)
        run.run()
        assert torch.equal(y, x * 2 + 1)
        assert run.output().data == y.data_ptr(), "the output is PyTorch's memory"
        assert moved(slices(tenon, runtime, run.run)) == 0, "nothing is moved"
    # PyTorch's memory is free again as soon as tenon does not use it, and not before.
    expected, kept = x * 2 + 1, weakref.ref(x)
    del x
    gc.collect()
    assert kept() is not None, "tenon keeps what it borrows"
    run.run()
    assert torch.equal(y, expected)
    tenon.context_unbind(run.context, text("x"))
    gc.collect()
    assert kept() is None, "and gives it back"
    # Outputs given to PyTorch.
    tenon.context_unbind(run.context, text("y"))
    given = []
    for k in range(6):
        x = torch.full((7, 256), float(k), device=where)
        if where != "cpu":
            torch.cuda.synchronize()
        run.bind("x", x)
        run.run()
        given.append(run.give())
        assert given[-1].data_ptr() == run.output().data, "the tensor is tenon's memory"
    for k, tensor in enumerate(given):
        assert torch.equal(tensor, torch.full_like(tensor, 2.0 * k + 1)), "what was given away never changes"
    run.close()
    assert torch.equal(given[5], torch.full_like(given[5], 11.0)), "it outlives the context"
    print(f"{device}: addresses are equal, nothing is moved, memory lives as long as it must")


def timed(tenon, runtime, device, where):
    """What binding, running and reading the address cost beside PyTorch's own two operations."""
    run = Run(tenon, runtime, device)
    x, y = torch.randn(4, 256, device=where), torch.empty(4, 256, device=where)
    run.bind("x", x)
    run.bind("y", y)
    sync = torch.cuda.synchronize if where != "cpu" else lambda: None

    def ours():
        run.run()

    def rebound():
        run.bind("x", x)
        run.bind("y", y)
        run.run()

    def theirs():
        torch.add(torch.mul(x, 2), 1, out=y)
        sync()
    times = {}
    for name, body in (("tenon", ours), ("tenon, bound again each time", rebound), ("PyTorch", theirs)):
        for _ in range(200):
            body()
        samples = []
        for _ in range(2000):
            begin = time.perf_counter()
            body()
            samples.append(time.perf_counter() - begin)
        times[name] = median(samples) * 1e6
    print(f"{device}: one small run, microseconds, Python's calls included: " +
          ", ".join(f"{name} {t:.1f}" for name, t in times.items()))
    run.close()


def on_stream(tenon, runtime, device, where, rounds, mode):
    run = Run(tenon, runtime, device, mode)
    stream = torch.cuda.Stream()
    lock, stop, failures, graphs = threading.Lock(), threading.Event(), [], [0]

    def capture():
        try:
            mine, a = torch.cuda.Stream(), torch.zeros(4096, device=where)
            while not stop.is_set():
                with lock:  # what this thread captures forbids the main thread's checks, not tenon's calls
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=mine, capture_error_mode="global"):
                        for _ in range(10):
                            a.add_(1)
                        time.sleep(0.002)
                with torch.cuda.stream(mine):
                    graph.replay()
                mine.synchronize()
                graphs[0] += 1
            assert a.unique().numel() == 1 and a[0].item() == 10 * graphs[0], "what the graphs computed"
        except Exception as e:  # noqa: BLE001
            failures.append(e)

    x, y, z = (torch.zeros(512, 256, device=where) for _ in range(3))
    torch.cuda.synchronize()
    run.bind("x", x)
    run.bind("y", y)
    tenon.context_use_stream(run.context, text(device), ctypes.c_void_p(stream.cuda_stream))
    thread = threading.Thread(target=capture)
    thread.start()
    try:
        with torch.cuda.stream(stream):
            for k in range(rounds):
                x.fill_(float(k))
                run.run_async()
                torch.add(y, 1, out=z)
                y.fill_(-1.0)
                if k % 25 == 0 or k == rounds - 1:
                    with lock:
                        stream.synchronize()
                        assert bool((z == 2.0 * k + 2).all()), f"round {k}"
                run.wait()
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    stream.synchronize()
    assert moved(slices(tenon, runtime, run.run)) == 0, "nothing is moved"
    run.close()
    print(f"{device}: {rounds} rounds on PyTorch's stream ({'graph' if mode == 2 else 'default'} mode), "
          f"{graphs[0]} graphs captured and replayed beside them: right")


def main():
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu:0"
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    where = "cpu" if device.startswith("cpu") else device
    if where != "cpu" and not torch.cuda.is_available():
        print(f"skipped: PyTorch has no device {device}")
        return 77
    tenon = Tenon(sys.argv[1])
    runtime = tenon.made("runtime_create", None)
    in_place(tenon, runtime, device, where)
    timed(tenon, runtime, device, where)
    if where != "cpu":
        on_stream(tenon, runtime, device, where, rounds, 0)
        on_stream(tenon, runtime, device, where, rounds, 2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
