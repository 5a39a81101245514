# SPDX-License-Identifier: Apache-2.0
"""What benchmarks that time tenon and functions of PyTorch in alternating rounds have in common."""
import argparse
import pathlib
import statistics
import time

import isa


def library_parser(doc, example):
    """Of a benchmark that runs libtenon in this process. example: the name of a case."""
    out = rounds_parser(doc, example)
    out.add_argument("library", type=pathlib.Path)
    return out


def parser(doc, example):
    """Of a benchmark that runs the commands in a folder. example: the name of a case."""
    out = rounds_parser(doc, example)
    out.add_argument("bin_dir")
    out.add_argument("--keep", help="write the graphs to this folder and keep them")
    isa.add_option(out)
    return out


def rounds_parser(doc, example):
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--rounds", type=int, default=5)
    out.add_argument("--only", default=".*", help=f"cases whose name matches: {example}")
    out.add_argument("--threads", type=int, default=2)
    out.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
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


def by_turns(name, own, peers, options, of_peer):
    """Times the best of `peers` and tenon's `own` by turns, prints the medians, and returns the median of the ratios."""
    theirs, ours = [], []
    for _ in range(options.rounds):
        theirs.append(min(measure(peer, options.seconds)[0] for peer in peers))
        ours.append(measure(own, options.seconds)[0])
    ratio = statistics.median(o / t for o, t in zip(ours, theirs))
    print(f"{name:24} {statistics.median(ours):10.1f} us  {of_peer} {statistics.median(theirs):10.1f} us  ratio {ratio:5.2f}",
          flush=True)
    return ratio
