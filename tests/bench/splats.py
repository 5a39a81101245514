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


def scene(seed=1):
    """All in view, radii around 8 pixels, opacities from .1 to .99."""
    numbers = numpy.random.default_rng(seed)
    z = numbers.uniform(2, 6, POINTS)
    focal = 500.0
    means = numpy.stack([numbers.uniform(-0.5, 0.5, POINTS) * WIDTH / focal * z,
                         numbers.uniform(-0.5, 0.5, POINTS) * HEIGHT / focal * z, z], 1)
    scales = (z * numbers.uniform(1.2, 3.2, POINTS) / focal)[:, None] * numbers.uniform(0.4, 1.3, [POINTS, 3])
    ks = numpy.array([[[focal, 0, WIDTH / 2], [0, focal, HEIGHT / 2], [0, 0, 1]]])
    arrays = {"means": means, "quats": numbers.standard_normal([POINTS, 4]), "scales": scales,
              "opacities": numbers.uniform(0.1, 0.99, POINTS), "coeffs": numbers.uniform(-0.3, 0.4, [POINTS, 16, 3]),
              "viewmats": numpy.eye(4)[None], "intrinsics": ks, "weights": numbers.standard_normal([1, HEIGHT, WIDTH, 3])}
    return {k: v.astype(numpy.float32) for k, v in arrays.items()}


def graph(inputs, lines, outputs):
    head = [f"input {k}: {'i32' if v.dtype == numpy.int32 else 'i64' if v.dtype == numpy.int64 else 'f32'}"
            f"[{','.join(map(str, v.shape))}]" for k, v in inputs.items()]
    lines = [*head, *lines, *(f'output "{o}" = {o}' for o in outputs)]
    return 'graph "g" {\n' + "".join(f"  {line}\n" for line in lines) + "}\n"


SIZE = f"width={WIDTH}, height={HEIGHT}"
PROJECT = f"(radii, means2d, depths, conics) = splat_project(means, quats, scales, viewmats, intrinsics) {{{SIZE}}}"
COLORS = "colors = splat_sh(means, viewmats, coeffs) {degree=3}"
SORT = f"(ids, offsets) = splat_sort(keys, entries) {{{SIZE}}}"
BLEND = f"(image, alpha, last) = splat_rasterize(means2d, conics, colors, opacities, offsets, ids) {{{SIZE}}}"
OPERANDS = ["means", "quats", "scales", "opacities", "coeffs", "viewmats", "intrinsics"]


def bin_line(capacity):
    return f"(keys, entries, count) = splat_bin(radii, means2d, depths) {{{SIZE}, max_intersections={capacity}}}"


def run(tenon, inputs, lines, outputs):
    with tenon.parse(graph(inputs, lines, outputs)) as model:
        return model.run(inputs)


def visited(offsets, last):
    """Pairs of an entry and a pixel, up to the last entry that some pixel of a tile uses."""
    tiles = last[0].reshape(HEIGHT // TILE, TILE, WIDTH // TILE, TILE).max((1, 3))
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
    inputs = scene()
    capacity = 1 << 20
    made = run(tenon, {k: inputs[k] for k in OPERANDS}, [PROJECT, COLORS, bin_line(capacity), SORT, BLEND],
               ["radii", "means2d", "depths", "conics", "colors", "keys", "entries", "ids", "offsets", "last", "count"])
    pairs, rate = visited(made["offsets"], made["last"]), flops_per_us(tenon, a)
    shown = made["radii"] > 0
    print(f"{a.threads} threads, {rate / 1e3:.0f} Gflop/s in products; {shown.sum()} Gaussians of mean radius "
          f"{made['radii'][shown].mean():.1f}, {int(made['count'])} entries, {pairs / 1e6:.1f} million visited pairs")

    def case(name, operands, lines, outputs, flops=0):
        if not re.search(a.only, name): return
        given = {k: inputs.get(k, made.get(k)) for k in operands}
        with tenon.parse(graph(given, lines, outputs)) as model:
            model.set(given)
            times = [peer_rounds.measure(model.start, a.seconds)[0] for _ in range(a.rounds)]
        time = statistics.median(times)
        limit = flops / rate
        print(f"{name:24} {time / 1e3:9.2f} ms" + (f"  {100 * limit / time:5.1f} % of the limit" if limit else ""), flush=True)

    render = f"(image, alpha) = splat_render({', '.join(OPERANDS)}) {{{SIZE}, max_intersections={capacity}}}"
    loss = ['weighed = binary(image, weights) {kind="mul"}', 'loss = reduce(weighed) {kind="sum"}']
    each = PAIR_FLOPS + EXP_FLOPS
    names = OPERANDS[:5]
    case("render", OPERANDS, [render], ["image", "alpha"], pairs * each)
    case("render with backward", [*OPERANDS, "weights"],
         [render, *loss, f"({', '.join('d_' + n for n in names)}) = grad(loss, [{', '.join(names)}])"],
         ["image", *("d_" + n for n in names)], pairs * 4 * each)
    case("project", [n for n in OPERANDS if n not in ("opacities", "coeffs")], [PROJECT], ["means2d", "conics"])
    case("sh", ["means", "viewmats", "coeffs"], [COLORS], ["colors"])
    case("bin", ["radii", "means2d", "depths"], [bin_line(capacity)], ["keys", "entries"])
    case("sort", ["keys", "entries"], [SORT], ["ids", "offsets"])
    operands = ["means2d", "conics", "colors", "opacities", "offsets", "ids"]
    case("rasterize", operands, [BLEND], ["image"], pairs * each)
    case("rasterize backward", [*operands, "last", "weights"],
         [f"(dmeans, dconics, dcolors, dopacities) = splat_rasterize_backward(weights, means2d, conics, colors, opacities, offsets, "
          f"ids, last) {{{SIZE}}}"], ["dmeans", "dconics", "dcolors", "dopacities"], pairs * 3 * each)


if __name__ == "__main__":
    sys.exit(main())
