#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of ONNX beside ONNX Runtime on one machine in one run: latency, the first run of a new shape, memory.

onnx_models.py LIBTENON FOLDER [--rounds 5] [--only REGEX] [--threads 2] [--seconds 1] [--device cpu:0] [--skip-memory]
FOLDER: the cases of tests/onnx/models.py, which BUILD_DIR/tests/onnx_models/cases has once the test onnx.models has run.
Each round times ONNX Runtime and tenon by turns. A ratio is tenon's time over that of ONNX Runtime (below 1 tenon is
faster): the median of the rounds, and the geometric mean over the models in the last line. A run sets the inputs, runs and
copies the outputs out. "first" is the time from the file to the first result, in a process that has loaded the library;
"new shape" the first run with another batch or length, for models that have one. Memory is the peak of a process
that loads the model and runs it, less that of a process that only loads the library. Needs onnxruntime, onnx and NumPy."""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
FLOAT = r"^(rapidocr_|ocr4_|ddddocr_|silero_vad|light_.*_random|wakeword_|orientation|dnsmos|pitch|captcha)"


def feed_of(case):
    import onnx
    graph = onnx.load(case / "model.onnx", load_external_data=False).graph
    defaults = {t.name for t in graph.initializer}
    names = [i.name for i in graph.input if i.name not in defaults]
    feed = {}
    for k, name in enumerate(names):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((case / "test_data_set_0" / f"input_{k}.pb").read_bytes())
        feed[name] = onnx.numpy_helper.to_array(tensor)
    return feed


class Ours:
    def __init__(self, options):
        import binding
        self.tenon, self.device = binding.Tenon(options.library, options.threads), options.device

    def load(self, case):
        model = self.tenon.load(case / "model.onnx", device=self.device)
        return lambda feed: model.run({name: feed[name] for name in model.inputs})


class Theirs:
    def __init__(self, options):
        import onnxruntime
        self.runtime, self.options = onnxruntime, onnxruntime.SessionOptions()
        self.options.intra_op_num_threads, self.options.inter_op_num_threads = options.threads, 1
        self.options.log_severity_level = 4

    def load(self, case):
        session = self.runtime.InferenceSession(case / "model.onnx", self.options, providers=["CPUExecutionProvider"])
        return lambda feed: dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))


def seconds(function, feed):
    start = time.perf_counter()
    function(feed)
    return time.perf_counter() - start


def measure(function, feed, least):
    """The median time of a run."""
    seconds(function, feed)
    times, end = [], time.perf_counter() + least
    while len(times) < 3 or time.perf_counter() < end:
        times.append(seconds(function, feed))
    return statistics.median(times)


def peak():
    """Of this process, in MiB."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def in_process(options, which, case):
    """[peak of the library alone, peak with the model, seconds from the file to the first result] in a fresh process."""
    command = [sys.executable, __file__, str(options.library), str(options.folder), "--threads", str(options.threads),
               "--device", options.device, "--process", which, "--only", case.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{case.name} on {which}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def process(options):
    case = options.folder / options.only
    feed = feed_of(case)
    peer = {"tenon": Ours, "onnxruntime": Theirs}[options.process](options)
    before = peak()
    start = time.perf_counter()
    function = peer.load(case)
    function(feed)
    first = time.perf_counter() - start
    for _ in range(3):
        function(feed)
    print(json.dumps([before, peak(), first]))


def other_shape(cases, case):
    """A case of the same model with other shapes, or None."""
    content = (case / "model.onnx").read_bytes()
    for other in cases:
        if other != case and other.name.rsplit("_", 1)[0] == case.name.rsplit("_", 1)[0] and (
                other / "model.onnx").stat().st_size == len(content) and (other / "model.onnx").read_bytes() == content:
            return other
    return None


def mean(values):
    return math.exp(statistics.mean(map(math.log, values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=FLOAT, help="cases whose name matches (the float models)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--skip-memory", action="store_true", help="neither memory nor the first run")
    parser.add_argument("--process", choices=["tenon", "onnxruntime"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        return process(options)
    import numpy
    import onnxruntime
    cases = [c for c in sorted(options.folder.iterdir()) if (c / "model.onnx").exists() and re.search(options.only, c.name)]
    if not cases:
        parser.error(f"{options.folder} has no case that matches {options.only}")
    print(f"ONNX Runtime {onnxruntime.__version__}, {options.threads} threads, {options.rounds} rounds, load "
          f"{os.getloadavg()[0]:.1f}")
    print(f"{'model':28} {'tenon ms':>9} {'ORT ms':>9} {'ratio':>6} {'new shape ms':>13} {'ORT':>8} {'first ms':>9} {'ORT':>8} "
          f"{'MiB':>7} {'ORT':>7}")
    ours, theirs, ratios, shapes, firsts, memories = Ours(options), Theirs(options), [], [], [], []
    for case in cases:
        feed = feed_of(case)
        mine, other = ours.load(case), theirs.load(case)
        got, want = mine(feed), other(feed)
        for name, value in want.items():
            if value.dtype.kind == "f" and value.size:
                apart = float(numpy.abs(got[name] - value).max())
                if not apart <= 1e-3 * float(numpy.abs(value).max()):
                    raise RuntimeError(f"{case.name}: output {name} is {apart} from that of ONNX Runtime")
        times = [(measure(other, feed, options.seconds), measure(mine, feed, options.seconds)) for _ in range(options.rounds)]
        ratio = statistics.median(m / t for t, m in times)
        ratios.append(ratio)
        row = (f"{case.name:28} {1e3 * statistics.median(m for _, m in times):9.3f} "
               f"{1e3 * statistics.median(t for t, _ in times):9.3f} {ratio:6.2f}")
        second = other_shape(cases, case)
        if second:
            again = feed_of(second)
            new = seconds(mine, again), seconds(other, again)
            shapes.append(new[0] / new[1])
            row += f" {1e3 * new[0]:13.1f} {1e3 * new[1]:8.1f}"
        else:
            row += f" {'-':>13} {'-':>8}"
        if not options.skip_memory:
            both = [in_process(options, which, case) for which in ("tenon", "onnxruntime")]
            used = [max(0.1, after - before) for before, after, _ in both]
            firsts.append(both[0][2] / both[1][2])
            memories.append(used[0] / used[1])
            row += f" {1e3 * both[0][2]:9.1f} {1e3 * both[1][2]:8.1f} {used[0]:7.1f} {used[1]:7.1f}"
        print(row, flush=True)
    line = f"geometric means of {len(ratios)} models: latency {mean(ratios):.2f}, worst {max(ratios):.2f}"
    for name, values in (("new shape", shapes), ("first run", firsts), ("memory", memories)):
        if values:
            line += f"; {name} {mean(values):.2f}"
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
