#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole models in f16 on one GPU beside torch.compile: ResNet-50, BERT-base and a U-Net with random weights.

gpu_models.py LIBTENON [--only REGEX] [--rounds 5] [--seconds 0.3] [--modes MODE,...] [--keep DIR] [--device cuda:0]
A model is made in PyTorch and exported to ONNX; tenon reads that file. Both get the same inputs, in memory of the GPU. The
outputs are compared with those of the model in f32: tenon may be as far away as PyTorch in f16, with a margin. Each round
times the modes of torch.compile and tenon by turns: runs behind each other on one stream, between two events.
Columns: case; microseconds of a run of tenon and of the fastest mode; the median of the rounds' ratios (below 1 tenon is
faster); what starting a run costs the host while the device is idle, for both; the distance from f32, for both, over the
largest number; then each mode. Calls of Python count on both sides. --keep leaves the files in DIR; a file that is there
is not written again. With --device cpu:0 the models are only compared, in f32. Needs torch; to export, onnx."""
import argparse
import ctypes
import pathlib
import re
import statistics
import sys
import tempfile
import time

import torch

import peer_models

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "peers"))
import binding  # noqa: E402

CODES = {torch.float32: 1, torch.float16: 2, torch.int64: 8}
FLIGHT = 4  # runs that are under way at the same time


def export(name, dtype, folder):
    """The path of a case's model."""
    path = folder / f"{name}_{str(dtype).split('.')[-1]}.onnx"
    if path.exists():
        return path
    where = "cuda" if torch.cuda.is_available() else "cpu"
    model = peer_models.make(name).to(where, dtype)
    given = peer_models.inputs(name, dtype, where)
    with torch.no_grad():
        torch.onnx.export(model, tuple(given.values()), str(path), dynamo=False, opset_version=17,
                          input_names=list(given), output_names=["y"])
    return path


class Ours:
    """A model of tenon, with several contexts on PyTorch's stream: one can be filled while another one runs."""

    def __init__(self, tenon, path, device, given, like):
        self.tenon, self.device = tenon, device
        self.model = tenon.load(path, device=device, deny_fallback=True)
        self.kept, self.runs, self.at = [], [], 0
        for _ in range(FLIGHT if like.is_cuda else 1):
            context, y = tenon.made("context_create", self.model.executable), torch.full_like(like, float("nan"))
            for key, value in (*given.items(), ("y", y)):
                self.bind(context, key, value)
            if like.is_cuda:
                stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                tenon.context_use_stream(context, binding.text(device), stream)
            self.runs.append((context, y))

    def bind(self, context, name, tensor):
        dims = (ctypes.c_int64 * max(1, tensor.dim()))(*tensor.shape)
        where = binding.text(self.device if tensor.is_cuda else "")
        described = binding.Tensor(dims=dims, data=tensor.data_ptr(), size=tensor.nbytes, rank=tensor.dim(),
                                   dtype=CODES[tensor.dtype], device=where)
        self.kept.append((dims, where, described, tensor))
        self.tenon.context_bind(context, binding.text(name), ctypes.byref(described))

    def __call__(self):
        context, y = self.runs[self.at]
        self.at = (self.at + 1) % len(self.runs)
        self.tenon.context_wait(context)  # for its last run
        self.tenon.context_run_async(context)
        return y

    def wait(self):
        for context, _ in self.runs:
            self.tenon.context_wait(context)

    def close(self):
        for context, _ in self.runs:
            self.tenon.destroy("context", context)
        self.model.close()


def microseconds(run, seconds):
    """Of a run on the device, with others before and behind it."""
    run()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    count, begin = 0, time.perf_counter()
    start.record()
    while count < 10 or time.perf_counter() - begin < seconds:
        run()
        count += 1
        if count % 64 == 0:
            end.record()
            end.synchronize()  # no long queue
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / count


def host_microseconds(run, count=100):
    """Of a call that finds the device idle."""
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def distance(y, reference, real):
    """The largest difference over the largest number."""
    y, reference = y.float()[real], reference.float()[real]
    return float((y - reference).abs().max() / reference.abs().max())


def compiled(name, model, given, modes):
    """{mode: a function that runs the model}."""
    out = {}
    for mode in modes:
        torch._dynamo.reset()
        began = time.perf_counter()
        function = model if mode == "eager" else torch.compile(model, mode=None if mode == "default" else mode)
        values = tuple(given.values())

        def run(function=function, values=values):
            torch.compiler.cudagraph_mark_step_begin()
            return function(*values)
        for _ in range(4):
            run()
        torch.cuda.synchronize()
        print(f"# {name}: {mode} ready in {time.perf_counter() - began:.0f} s", flush=True)
        out[mode] = run
    return out


def compare(name, tenon, options, folder):
    on_gpu = not options.device.startswith("cpu")
    where, dtype = (options.device, torch.float16) if on_gpu else ("cpu", torch.float32)
    given = peer_models.inputs(name, dtype, where)
    real = peer_models.is_real(name, given)
    model = peer_models.make(name).to(where)
    exact = peer_models.inputs(name, torch.float32, where)
    if "x" in given:
        exact["x"] = given["x"].float()  # as rounded
    reference = model(*exact.values())
    model = model.to(dtype)
    theirs = distance(model(*given.values()), reference, real)
    began = time.perf_counter()
    ours = Ours(tenon, export(name, dtype, folder), options.device, given, reference.to(dtype))
    try:
        y = ours()
        ours.wait()
        print(f"# {name}: tenon ready in {time.perf_counter() - began:.0f} s", flush=True)
        apart = distance(y, reference, real)
        if not apart <= max(1e-4, 2 * theirs):
            raise RuntimeError(f"{name}: tenon is {apart:.1e} from the model in f32, PyTorch {theirs:.1e}")
        if not on_gpu:
            print(f"{name:12} distance from PyTorch {apart:.1e}", flush=True)
            return None
        if peer_models.CASES[name].model != "bert":
            model = model.to(memory_format=torch.channels_last)
            given = {key: value.to(memory_format=torch.channels_last) for key, value in given.items()}
        runs = compiled(name, model, given, options.modes) | {"tenon": ours}
        times = {key: [] for key in runs}
        for k in range(options.rounds):
            for turn in range(len(runs)):
                key = list(runs)[(k + turn) % len(runs)]
                times[key].append(microseconds(runs[key], options.seconds))
        medians = {key: statistics.median(t) for key, t in times.items()}
        best = min(options.modes, key=medians.get)
        ratio = statistics.median(a / b for a, b in zip(times["tenon"], times[best]))
        line = (f"{name:12} {medians['tenon']:9.1f} {medians[best]:9.1f} {ratio:6.2f} {host_microseconds(ours):8.1f} "
                f"{host_microseconds(runs[best]):8.1f} {apart:9.1e} {theirs:9.1e}  ")
        print(line + ", ".join(f"{mode} {medians[mode]:.1f}" for mode in options.modes), flush=True)
        return ratio
    finally:
        ours.wait()
        ours.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--only", default=".*", help="cases whose name matches: " + ", ".join(peer_models.CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--modes", default="default,reduce-overhead,max-autotune", type=lambda text: text.split(","),
                        help="of torch.compile, or eager")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the models")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    tenon = binding.Tenon(options.library)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not options.device.startswith("cpu"):
            torch.cuda.set_stream(torch.cuda.Stream())
            print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {options.rounds} rounds")
            print(f"{'case':12} {'tenon us':>9} {'torch us':>9} {'ratio':>6} {'host us':>8} {'torch':>8} {'distance':>9} "
                  f"{'torch':>9}", flush=True)
        failed = 0
        for name in peer_models.CASES:
            if re.search(options.only, name):
                try:
                    compare(name, tenon, options, folder)
                except Exception as e:  # noqa: BLE001
                    failed += 1
                    print(f"{name:12} FAILED {type(e).__name__}: {str(e)[:600]}", flush=True)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
