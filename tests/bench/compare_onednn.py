#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""f32 products side by side with oneDNN's best for each shape, on one machine in one run.

compare_onednn.py BIN_DIR [--rounds N] [--threads N] [--isa NAME] [--shapes MxNxK ...]
BIN_DIR/onednn_matmul (cmake --build ... --target onednn_matmul; needs libdnnl-dev) and tenon alternate. oneDNN's best is the
way with the least median of all rounds: the least of each round would be the luckiest of six measurements. The table shows
the median of the rounds' ratios: time of tenon over time of that way, below 1 tenon is faster."""
import argparse, json, re, statistics, subprocess

import isa
from compare_lm import cpu_model

SECONDS = "0.15"  # of one measurement
# m, n, k, and whether b lies as [n, k]: those of torch_cpu.py, then those of a training step of the language models.
SHAPES = [(1024, 1024, 1024, False), (4096, 1376, 512, False), (128, 4096, 4096, False), (1, 4096, 4096, False)]
for width, ffn in ((128, 344), (256, 688), (512, 1376)):
    SHAPES += [(2048, ffn, width, True), (2048, width, ffn, False), (ffn, width, 2048, False)]


def tenon_us(binary, shape, threads):
    m, n, k, turned = shape
    b = f"f32[{n},{k}]" if turned else f"f32[{k},{n}]"
    op = f"matmul(f32[{m},{k}], {b})" + (" {trans_b=true}" if turned else "")
    out = subprocess.run([binary, "bench", "--op", op, "--json", "--no-ceilings", "--seconds", SECONDS, "--threads", str(threads),
                          "--device", "cpu"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["median_us"]


def onednn_us(binary, shape, threads):
    """Microseconds of each way."""
    m, n, k, turned = shape
    out = subprocess.run([binary, str(threads), SECONDS, f"{m}x{n}x{k}" + ("t" if turned else "")], check=True,
                         capture_output=True, text=True).stdout
    return {way: float(us) for way, us in re.findall(r" (\w+) ([0-9.]+) us", out)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shapes", nargs="*", help="of those in this file")
    parser.add_argument("--threads", type=int, default=2)
    isa.add_option(parser)
    a = parser.parse_args()
    capped = isa.cap(a.isa)
    print(f"{cpu_model()}{capped}, {a.threads} threads, {a.rounds} rounds, f32", flush=True)
    print(f"{'m x n x k':20s} {'tenon us':>10s} {'oneDNN us':>10s} {'ratio':>6s} {'GFLOP/s':>8s}  oneDNN's way")
    for shape in SHAPES:
        m, n, k, turned = shape
        if a.shapes and f"{m}x{n}x{k}" not in a.shapes:
            continue
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(tenon_us(f"{a.bin_dir}/tenon", shape, a.threads))
            theirs.append(onednn_us(f"{a.bin_dir}/onednn_matmul", shape, a.threads))
        best, way = min((statistics.median(t[way] for t in theirs), way) for way in theirs[0])
        ratio = statistics.median(o / t[way] for o, t in zip(ours, theirs))
        us = statistics.median(ours)
        name = f"{m}x{n}x{k}" + (" b turned" if turned else "")
        print(f"{name:20s} {us:10.1f} {best:10.1f} {ratio:6.2f} {2e-3 * m * n * k / us:8.1f}  {way}", flush=True)


if __name__ == "__main__":
    main()
