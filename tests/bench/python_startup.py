#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_startup.py [--layers N]: what a traced transformer takes before its first result, in two processes one after the
other: the import, tracing and compiling, the first run and a later one; then the same with gradients. The second process
finds the caches of the first. Needs the package tenon."""
import argparse
import subprocess
import sys
import time

BEGIN = time.perf_counter()
import numpy as np  # noqa: E402

import tenon  # noqa: E402
from tenon import ops  # noqa: E402

IMPORTED = time.perf_counter() - BEGIN
WIDTH, HEADS, LENGTH, WORDS = 768, 12, 128, 5000


def new_params(layers):
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32) * np.float32(0.02)

    def layer():
        return {"norm1": np.ones(WIDTH, np.float32), "qkv": normal(WIDTH, 3 * WIDTH), "out": normal(WIDTH, WIDTH),
                "norm2": np.ones(WIDTH, np.float32), "up": normal(WIDTH, 4 * WIDTH), "down": normal(4 * WIDTH, WIDTH)}
    return {"words": normal(WORDS, WIDTH), "layers": [layer() for _ in range(layers)]}


def loss_of(params, ids):
    x = ops.gather(params["words"], ids)
    for layer in params["layers"]:
        qkv = (ops.rms_norm(x, layer["norm1"]) @ layer["qkv"]).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        y = ops.attention(q, k, v, causal=True)
        x = x + y.transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH) @ layer["out"]
        x = x + ops.gelu(ops.rms_norm(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
    return ops.cross_entropy(x @ params["words"].T, ids)


def report(layers):
    print(f"  import {IMPORTED:.3f} s")
    params, ids = new_params(layers), np.arange(LENGTH, dtype=np.int32)[None]
    for name, traced in (("forward", tenon.function(loss_of)), ("gradients", tenon.function(tenon.grad(loss_of)))):
        times = []
        for step in (traced.model, traced, traced):
            begin = time.perf_counter()
            step(params, ids)
            times.append(time.perf_counter() - begin)
        print(f"  {name}: trace and compile {times[0]:.3f} s, first run {times[1]:.3f} s, next run {times[2]:.3f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        report(options.layers)
        return
    for process in ("first", "second"):
        print(f"{process} process", flush=True)
        subprocess.run([sys.executable, __file__, "--once", "--layers", str(options.layers)], check=True)


main()
