#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One million Gaussians at 1920 x 1080 on a GPU: forward, forward with backward, and each part, beside the limits.

gpu_splats.py LIBTENON [--points N] [--rounds N] [--seconds X] [--only REGEX] [--device cuda:0] [--clock HZ] [--processors N]
The scene is in memory of the GPU. Times include starting a run and waiting for it, which the line "start" shows alone. Limits:
- bytes: operands and results of each op once, at the rate of a copy that is measured first,
- operations: 25 for each visited pair of an entry and a pixel (three times as many backward) at 256 a clock of each
  multiprocessor, or its exponentials at 16 a clock, whichever is longer. A pair counts as visited up to the last entry of
  its tile.
Each case runs twice, and the results must have equal bits. Exits with 1 where they have not."""
import pathlib
import re
import statistics
import sys

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
import binding
import peer_rounds
import splats

WIDTH, HEIGHT, CAPACITY = 1920, 1080, 6 << 20
PAIR_FLOPS = 25
CHAIN = ["project", "sh", "bin", "sort", "rasterize"]


def read_once(case, known):
    """Bytes of operands and results of an op."""
    _, operands, _, outputs, _ = case
    alike = {"dmeans": "means2d", "dconics": "conics", "dcolors": "colors", "dopacities": "opacities"}
    return sum(known[alike.get(n, n)].nbytes for n in [*operands, *outputs])


def main():
    parser = peer_rounds.library_parser(__doc__, '"render"')
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--clock", type=float, default=1.98e9, help="of the multiprocessors")
    parser.add_argument("--processors", type=int, default=132)
    a = parser.parse_args()
    tenon = binding.Tenon(a.library, threads=a.threads)
    inputs, lines = splats.scene(a.points, WIDTH, HEIGHT, 1500.0, 1.08), splats.Lines(WIDTH, HEIGHT, CAPACITY)

    def compiled(given, steps, outputs):
        # Weights stay on the device.
        return tenon.parse(splats.graph(given, steps, outputs, "weight"), weights=given, device=a.device, deny_fallback=True)

    def timed(model):
        return statistics.median(peer_rounds.measure(model.start, a.seconds)[0] for _ in range(a.rounds))

    def copied(count):
        given = {"x": numpy.zeros(count, numpy.float32)}
        with compiled(given, ['y = unary(x) {kind="neg"}'], ["y"]) as model:
            return timed(model)

    start = copied(1)
    copy = 8 * 2**26 / (copied(2**26) - start)  # bytes in a us
    with compiled({k: inputs[k] for k in splats.OPERANDS}, lines.steps, [*splats.MADE, "image", "alpha"]) as model:
        made = model.run({})
    known, pairs, shown = inputs | made, splats.visited(made["offsets"], made["last"]), made["radii"] > 0
    print(f"start {start:.0f} us, copy {copy / 1e6:.2f} TB/s; {shown.sum()} Gaussians in view, mean radius "
          f"{made['radii'][shown].mean():.1f}, {int(made['count'])} entries, {pairs / 1e6:.0f} million visited pairs")
    cycles = a.processors * a.clock / 1e6  # in a us, of all multiprocessors
    pair = max(PAIR_FLOPS / 256, 1 / 16) / cycles
    cases = {case[0]: case for case in splats.cases(lines)}
    bytes_of = {name: read_once(cases[name], known) for name in [*CHAIN, "rasterize backward"]}
    bytes_of["render"] = sum(bytes_of[name] for name in CHAIN)
    # The gradients of the parts read at least what the parts do, and write the gradients.
    learned = sum(inputs[n].nbytes for n in splats.LEARNED)
    bytes_of["render with backward"] = bytes_of["render"] + bytes_of["rasterize backward"] + 2 * learned
    times, same = {}, True
    for name, operands, steps, outputs, each in cases.values():
        if not re.search(a.only, name):
            continue
        given = {k: known[k] for k in operands}
        with compiled(given, steps, outputs) as model:
            first, second = model.run({}), model.run({})
            equal = all(first[n].tobytes() == second[n].tobytes() for n in outputs)
            us = times[name] = timed(model)
        same = same and equal
        limits = {"bytes": bytes_of[name] / copy, "operations": each * pairs * pair}
        binds = max(limits, key=limits.get)
        print(f"{name:24} {us / 1e3:9.3f} ms  limit {limits[binds] / 1e3:7.3f} ms ({binds})  over it {us / limits[binds]:6.2f}  "
              f"{'equal bits' if equal else 'DIFFERENT BITS'}", flush=True)
    if {"render", "render with backward"} <= times.keys():
        forward, both = times["render"], times["render with backward"]
        print(f"{1e6 / forward:.0f} frames a second (goal 200); backward over forward {(both - forward) / forward:.2f} (goal 3)")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
