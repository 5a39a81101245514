#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_overhead.py [--runs N]: what a call of a model from Python takes, the run included: graphs of one op and of 100,
arguments of several kinds and sizes. "held": the caller keeps the last result. Then calls of traced functions with dicts
of arrays. tenon_overhead (overhead.cpp) measures the same runs of models in C++. Needs the package tenon; uses PyTorch if
it is there."""
import argparse
import statistics
import time

import numpy as np

import tenon
from tenon._runtime import default_runtime


def chain(nodes, size):
    graph = tenon.Graph("chain")
    x = graph.input("x", "f32", [1, size])
    for _ in range(nodes):
        (x,) = graph.add("softmax", [x])
    graph.output("y", x)
    return tenon.Model(graph, tenon.Store(default_runtime()), device="cpu")


def median_us(runs, body):
    times = []
    for k in range(-runs // 10, runs):
        begin = time.perf_counter()
        body()
        if k >= 0:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20000)
    runs = parser.parse_args().runs
    try:
        import torch
    except ImportError:
        torch = None
    print(f"{'nodes':>5} {'bytes':>8}  argument   {'dropped':>9} {'held':>9}   medians, us")
    for nodes, size in ((1, 4), (1, 4096), (1, 65536), (100, 4), (100, 4096)):
        model = chain(nodes, size)
        array = np.ones((1, size), np.float32)
        arguments = {"NumPy": array, "Tensor": tenon.asarray(array)}
        if torch:
            arguments["PyTorch"] = torch.from_numpy(array)
        for kind, x in arguments.items():
            kept = [None]

            def hold():
                kept[0] = model(x)

            dropped, held = (median_us(runs // nodes, body) for body in (lambda: model(x), hold))
            print(f"{nodes:5} {size * 4:8}  {kind:9}  {dropped:9.2f} {held:9.2f}")
    for leaves in (1, 5, 25):
        x = np.ones(4, np.float32)
        params = {f"w{i}": x for i in range(leaves)}
        function = tenon.function(lambda p: sum(p.values(), start=0.0))
        model, given = function.model(params), [x] * leaves
        plain, traced = (median_us(runs // leaves, body) for body in (lambda: model(*given), lambda: function(params)))
        print(f"{leaves:5} arrays in a dict: model {plain:.2f}, traced function {traced:.2f}")
    print(f"a Python function that does nothing: {median_us(runs, lambda: None):.2f}")


if __name__ == "__main__":
    main()
