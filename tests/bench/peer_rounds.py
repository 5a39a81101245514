# SPDX-License-Identifier: Apache-2.0
"""What benchmarks that time tenon and functions of PyTorch in alternating rounds have in common."""
import argparse
import statistics
import time

import isa


def parser(doc, example):
    """example: the name of a case."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("bin_dir")
    out.add_argument("--rounds", type=int, default=5)
    out.add_argument("--only", default=".*", help=f"cases whose name matches: {example}")
    out.add_argument("--threads", type=int, default=2)
    out.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    out.add_argument("--keep", help="write the graphs to this folder and keep them")
    isa.add_option(out)
    return out


def measure(function, seconds):
    """Median and best time of a call, in us."""
    for _ in range(2):
        function()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times), min(times)
