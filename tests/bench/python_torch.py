#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_torch.py [--scale N] [--threads N] [NAME...]: modules of PyTorch in tenon, next to torch.compile.

Needs the package tenon, PyTorch, and a C++ compiler for torch.compile. For each module: milliseconds of a pass without
gradients, and of a training step (forward and backward), of both, and the ratio. Below 1, tenon is faster.
"""

import argparse
import math
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sdk/python/tests"))
import torch
from torch.utils import _pytree as pytree
from torch_modules import modules

import tenon

warnings.filterwarnings("ignore")


def milliseconds(*functions, seconds=1.0, rounds=5):
    """The best time of each, measured by turns."""
    best = [math.inf] * len(functions)
    for function in functions:
        function(), function()
    for _ in range(rounds):
        for k, function in enumerate(functions):
            runs, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < seconds / rounds:
                function()
                runs += 1
            best[k] = min(best[k], (time.perf_counter() - begin) / runs)
    return [1e3 * b for b in best]


def inference(call, args):
    def run():
        with torch.no_grad():
            call(*args)

    return run


def step(call, module, args):
    def run():
        module.zero_grad()
        outputs = [t for t in pytree.tree_leaves(call(*args)) if t.is_floating_point() and t.requires_grad]
        sum(t.sum() for t in outputs).backward()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tenon.set_threads(options.threads)
    print(f"{'module':14}{'tenon':>10}{'compile':>10}{'ratio':>8}{'  step: tenon':>14}{'compile':>10}{'ratio':>8}")
    ratios = [], []
    for name, module, args in modules(options.scale):
        if options.names and name not in options.names:
            continue
        ours, theirs = tenon.from_torch(module, args, device="cpu"), torch.compile(module)
        line = f"{name:14}"
        for kind, (a, b) in enumerate(
            ((inference(ours, args), inference(theirs, args)), (step(ours, module, args), step(theirs, module, args)))
        ):
            t, c = milliseconds(a, b)
            ratios[kind].append(t / c)
            line += f"{t:{14 if kind else 10}.3f}{c:10.3f}{t / c:8.2f}"
        print(line, flush=True)
    means = [math.exp(sum(map(math.log, r)) / len(r)) for r in ratios]
    print(f"{'geometric mean':34}{means[0]:8.2f}{'':24}{means[1]:8.2f}")


if __name__ == "__main__":
    main()
