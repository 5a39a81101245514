#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selective_scan, gated_delta_rule and knn on one GPU, over the limit that binds; knn beside PyTorch's cdist and topk.

gpu_scans.py BIN_DIR [--only REGEX] [--rounds N] [--seconds X] [--rows N] [--clock HZ] [--processors N]
Times are device time with a cold L2 (tenon bench --cold), the median of the rounds. The limit is the largest of
- bytes of inputs and outputs, at the rate of a copy that is measured first,
- exponentials, 16 a clock of each multiprocessor: one for each step of a state, two for the gradient, which computes the
  states again,
- flops of the chunked form of gated_delta_rule (chunks of 64), at the rate of a bf16 product of 8192 that is measured first;
  the gradient has twice as many and those of the forward form,
- flops of all distances, 2 for each coordinate of a pair, at the rate of f32 FMAs (128 a clock of each multiprocessor).
Columns: case, tenon us, limit us, tenon over the limit, the goal; for knn also PyTorch us and the ratio. PyTorch's distances
are made in slices of --rows points. It takes part if this Python has it."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

SCAN = (8, 2048, 4096, 16)  # B, D, L, N
DELTA = (8, 4096, 16, 128)  # B, T, heads, keys and values
KNN = (200000, 128, 15)     # points, coordinates, neighbours


def scan(backward):
    b, d, l, n = SCAN
    u, a, s = f"bf16[{b},{d},{l}]", f"f32[{d},{n}]", f"bf16[{b},{n},{l}]"
    # With a gate, a bias and the input added: what a layer of Mamba has.
    operands = f"{u}, {u}, {a}, {s}, {s}, f32[{d}], {u}, f32[{d}]"
    options = "{dt_softplus=true}"
    if backward:
        text = f"(du, ddt, da, db, dc, dd, dz, dbias) = selective_scan_backward({u}, {operands}) {options}"
        return text, ["in3=-1:-0.1"], (7 * b * d * l + 4 * b * n * l) * 2, 2 * b * d * l * n
    return f"selective_scan({operands}) {options}", ["in2=-1:-0.1"], (4 * b * d * l + 2 * b * n * l) * 2, b * d * l * n


def delta(backward):
    b, t, h, k = DELTA
    key, row = f"bf16[{b},{t},{h},{k}]", f"[{b},{t},{h}]"
    operands = f"{key}, {key}, {key}, f32{row}, bf16{row}"
    chunk = 64
    flops = b * h * t / chunk * (4 * chunk**2 * k + chunk**3 / 3 + 2 * chunk**2 * 3 * k + 6 * chunk * k * k)
    bytes_ = (4 + (4 if backward else 0)) * b * t * h * k * 2
    if backward:
        text = f"(dq, dk, dv, dg, dbeta) = gated_delta_rule_backward({key}, {operands}) {{qk_l2norm=true}}"
        return text, ["in4=-0.2:-0.01", "in5=0.1:0.9"], bytes_, 3 * flops
    return f"gated_delta_rule({operands}) {{qk_l2norm=true}}", ["in3=-0.2:-0.01", "in4=0.1:0.9"], bytes_, flops


def knn():
    n, d, k = KNN
    return f"(index, distance) = knn(f32[{n},{d}]) {{k={k}}}", [], 4 * n * d + 8 * n * k, 2 * n * n * d


# Name: (text, fills, bytes, operations), their unit, the goal over the limit or, for knn, over PyTorch.
CASES = {"selective_scan": (scan(False), "exp", 1.5), "selective_scan_backward": (scan(True), "exp", 2.0),
         "gated_delta_rule": (delta(False), "product", 3.0), "gated_delta_rule_backward": (delta(True), "product", 5.0),
         "knn": (knn(), "fma", 0.3)}


class Bench:
    def __init__(self, a):
        self.a = a
        paths = [str(a.bin_dir / "../lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths)))

    def microseconds(self, op, fills=()):
        command = [self.a.bin_dir / "tenon", "bench", "--device", self.a.device, "--no-ceilings", "--json", "--cold",
                   "--seconds", str(self.a.seconds), *(w for f in fills for w in ("--fill", f)), "--op", op]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env)
        if done.returncode or "fallback" in done.stderr:
            raise RuntimeError(done.stderr.strip()[-400:])
        return json.loads(done.stdout)[0]["median_us"]


def torch_knn(rows):
    """Microseconds of cdist and topk of all points, in slices. The point itself is among the neighbours."""
    import torch
    n, d, k = KNN
    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.randn(n, d, device="cuda")

    def run():
        for begin in range(0, n, rows):
            torch.topk(torch.cdist(x[begin:begin + rows], x), k + 1, largest=False)
    run()
    times = []
    for _ in range(3):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record(), run(), end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--only", default=".*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement")
    parser.add_argument("--rows", type=int, default=8192, help="points of a slice of PyTorch's distances")
    parser.add_argument("--clock", type=float, default=1.98e9, help="of the multiprocessors")
    parser.add_argument("--processors", type=int, default=132)
    parser.add_argument("--device", default="cuda:0")
    a = parser.parse_args()
    bench = Bench(a)
    copy = 4 * (1 << 28) / bench.microseconds('unary(bf16[268435456]) {kind="neg"}')  # bytes in a us
    product = 2 * 8192**3 / bench.microseconds("matmul(bf16[8192,8192], bf16[8192,8192])")
    each = a.processors * a.clock / 1e6
    rates = {"exp": 16 * each, "product": product, "fma": 256 * each}
    print(f"copy {copy / 1e6:.2f} TB/s, bf16 product {product / 1e6:.0f} TFLOP/s")
    for name, ((text, fills, bytes_, work), unit, goal) in CASES.items():
        if not re.search(a.only, name):
            continue
        try:
            us = statistics.median(bench.microseconds(text, fills) for _ in range(a.rounds))
        except RuntimeError as failure:
            print(f"{name:28} FAILED {failure}", flush=True)
            continue
        limits = {"bytes": bytes_ / copy, unit: work / rates[unit]}
        binds = max(limits, key=limits.get)
        line = f"{name:28} {us:11.1f} us  limit {limits[binds]:10.1f} ({binds})  over it {us / limits[binds]:6.2f}"
        if name != "knn":
            line += f"  goal {goal}"
        else:
            try:
                peer = torch_knn(a.rows)
                line += f"  PyTorch {peer:11.1f} us  ratio {us / peer:5.2f}  goal {goal}"
            except ImportError:
                line += "  (no PyTorch here)"
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
