#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images of Gaussians: 50,000 at 640 x 480, forward, and forward with backward, beside the limit by operations.

splats.py LIBTENON [--rounds N] [--only REGEX] [--threads N] [--seconds X]
The limit counts 25 operations and an exponential, as 10, for each visited pair of an entry and a pixel (three times as many
backward), at the rate of a product of f32 matrices on the same threads. A pair counts as visited up to the last entry of its
tile. Steps are those of splat_render."""
import re, statistics, sys, pathlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
import binding
import peer_rounds

POINTS, WIDTH, HEIGHT, TILE = 50_000, 640, 480, 16
PAIR_FLOPS, EXP_FLOPS = 25, 10


def scene(points=POINTS, width=WIDTH, height=HEIGHT, focal=500.0, size=1.0, seed=1):
    """All in view, radii around 8 pixels, opacities from .1 to .99."""
    numbers = numpy.random.default_rng(seed)
    z = numbers.uniform(2, 6, points)
    means = numpy.stack([numbers.uniform(-0.5, 0.5, points) * width / focal * z,
                         numbers.uniform(-0.5, 0.5, points) * height / focal * z, z], 1)
    scales = (z * numbers.uniform(1.2, 3.2, points) * size / focal)[:, None] * numbers.uniform(0.4, 1.3, [points, 3])
    ks = numpy.array([[[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]]])
    arrays = {"means": means, "quats": numbers.standard_normal([points, 4]), "scales": scales,
              "opacities": numbers.uniform(0.1, 0.99, points), "coeffs": numbers.uniform(-0.3, 0.4, [points, 16, 3]),
              "viewmats": numpy.eye(4)[None], "intrinsics": ks, "weights": numbers.standard_normal([1, height, width, 3])}
    return {k: v.astype(numpy.float32) for k, v in arrays.items()}


def graph(inputs, lines, outputs, kind="input"):
    head = [f"{kind} {k}: {'i32' if v.dtype == numpy.int32 else 'i64' if v.dtype == numpy.int64 else 'f32'}"
            f"[{','.join(map(str, v.shape))}]" for k, v in inputs.items()]
    lines = [*head, *lines, *(f'output "{o}" = {o}' for o in outputs)]
    return 'graph "g" {\n' + "".join(f"  {line}\n" for line in lines) + "}\n"


OPERANDS = ["means", "quats", "scales", "opacities", "coeffs", "viewmats", "intrinsics"]
LEARNED = OPERANDS[:5]
MADE = ["radii", "means2d", "depths", "conics", "colors", "keys", "entries", "ids", "offsets", "last", "count"]


class Lines:
    """The lines of graphs, for a size of the image and a capacity of the list of entries."""

    def __init__(self, width, height, capacity):
        size, room = f"width={width}, height={height}", f"max_intersections={capacity}"
        self.project = f"(radii, means2d, depths, conics) = splat_project(means, quats, scales, viewmats, intrinsics) {{{size}}}"
        self.colors = "colors = splat_sh(means, viewmats, coeffs) {degree=3}"
        self.bin = f"(keys, entries, count) = splat_bin(radii, means2d, depths) {{{size}, {room}}}"
        self.sort = f"(ids, offsets) = splat_sort(keys, entries) {{{size}}}"
        self.blend = f"(image, alpha, last) = splat_rasterize(means2d, conics, colors, opacities, offsets, ids) {{{size}}}"
        self.blend_backward = ("(dmeans, dconics, dcolors, dopacities) = splat_rasterize_backward(weights, means2d, conics, colors, "
                               f"opacities, offsets, ids, last) {{{size}}}")
        self.render = f"(image, alpha) = splat_render({', '.join(OPERANDS)}) {{{size}, {room}}}"
        self.steps = [self.project, self.colors, self.bin, self.sort, self.blend]
        self.gradients = ['weighed = binary(image, weights) {kind="mul"}', 'loss = reduce(weighed) {kind="sum"}',
                          f"({', '.join('d_' + n for n in LEARNED)}) = grad(loss, [{', '.join(LEARNED)}])"]


def cases(lines):
    """(name, operands, lines of the graph, outputs, how often each visited pair is computed)"""
    blended = ["means2d", "conics", "colors", "opacities", "offsets", "ids"]
    return [("render", OPERANDS, [lines.render], ["image", "alpha"], 1),
            ("render with backward", [*OPERANDS, "weights"], [lines.render, *lines.gradients],
             ["image", *("d_" + n for n in LEARNED)], 4),
            ("project", [n for n in OPERANDS if n not in ("opacities", "coeffs")], [lines.project],
             ["radii", "means2d", "depths", "conics"], 0),
            ("sh", ["means", "viewmats", "coeffs"], [lines.colors], ["colors"], 0),
            ("bin", ["radii", "means2d", "depths"], [lines.bin], ["keys", "entries"], 0),
            ("sort", ["keys", "entries"], [lines.sort], ["ids", "offsets"], 0),
            ("rasterize", blended, [lines.blend], ["image", "alpha", "last"], 1),
            ("rasterize backward", [*blended, "last", "weights"], [lines.blend_backward],
             ["dmeans", "dconics", "dcolors", "dopacities"], 3)]


def run(tenon, inputs, lines, outputs):
    with tenon.parse(graph(inputs, lines, outputs)) as model:
        return model.run(inputs)


def visited(offsets, last):
    """Pairs of an entry and a pixel, up to the last entry that some pixel of a tile uses."""
    rows, columns = offsets.shape[1:]
    padding = [(0, rows * TILE - last.shape[1]), (0, columns * TILE - last.shape[2])]
    tiles = numpy.pad(last[0], padding, constant_values=-1).reshape(rows, TILE, columns, TILE).max((1, 3))
    return int((tiles - offsets[0] + 1).clip(0).sum()) * TILE * TILE


def flops_per_us(tenon, options):
    n = 1024
    inputs = {k: numpy.random.default_rng(1).standard_normal([n, n]).astype(numpy.float32) for k in "ab"}
    with tenon.parse(graph(inputs, ["y = matmul(a, b)"], ["y"])) as model:
        model.set(inputs)
        return 2 * n ** 3 / peer_rounds.measure(model.start, options.seconds)[1]


def main():
    a = peer_rounds.library_parser(__doc__, '"render"').parse_args()
    tenon = binding.Tenon(a.library, threads=a.threads)
    inputs, lines = scene(), Lines(WIDTH, HEIGHT, 1 << 20)
    made = run(tenon, {k: inputs[k] for k in OPERANDS}, lines.steps, MADE)
    pairs, rate = visited(made["offsets"], made["last"]), flops_per_us(tenon, a)
    shown = made["radii"] > 0
    print(f"{a.threads} threads, {rate / 1e3:.0f} Gflop/s in products; {shown.sum()} Gaussians of mean radius "
          f"{made['radii'][shown].mean():.1f}, {int(made['count'])} entries, {pairs / 1e6:.1f} million visited pairs")
    for name, operands, steps, outputs, times in cases(lines):
        if not re.search(a.only, name): continue
        given = {k: inputs.get(k, made.get(k)) for k in operands}
        with tenon.parse(graph(given, steps, outputs)) as model:
            model.set(given)
            time = statistics.median(peer_rounds.measure(model.start, a.seconds)[0] for _ in range(a.rounds))
        limit = times * pairs * (PAIR_FLOPS + EXP_FLOPS) / rate
        print(f"{name:24} {time / 1e3:9.2f} ms" + (f"  {100 * limit / time:5.1f} % of the limit" if limit else ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
