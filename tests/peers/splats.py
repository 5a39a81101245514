#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""splats.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random scenes in f64 beside the same formulas of 3D Gaussian splatting in PyTorch, written with matrices: projections of
Gaussians and their colors, with gradients. Each case has a seed of its own, which a failure names, with its graph. Exits with
77 without PyTorch."""
import math
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import dense
import exact


def rotations(q):
    """Matrices [.., 3, 3] of unit quaternions (w, x, y, z), from the products of quaternions."""
    w, v = q[..., 0], q[..., 1:]
    x, y, z = v.unbind(-1)
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*q.shape[:-1], 3, 3)
    one = torch.eye(3, dtype=q.dtype)
    return one + 2 * w[..., None, None] * cross + 2 * cross @ cross


def camera_views(d, images):
    """Cameras around the origin that look at it, from 3 to 8 away."""
    turns = rotations(torch.nn.functional.normalize(torch.tensor(d.numbers.standard_normal([images, 4])), dim=-1))
    views = numpy.zeros([images, 4, 4])
    views[:, :3, :3], views[:, 2, 3], views[:, 3, 3] = turns.numpy(), d.numbers.uniform(3, 8, images), 1
    return d.floats("viewmats", views)


BROKEN = [("means", numpy.nan), ("means", numpy.inf), ("quats", 0), ("quats", numpy.nan), ("scales", numpy.nan),
          ("scales", numpy.inf), ("means", 1e300), ("scales", 1e200)]


def add_broken(case, count):
    """Puts Gaussians between the others that no camera sees. They change no number, and their gradients are zero."""
    at = [case.rng.randint(0, len(case.inputs["means"])) for _ in range(count)]
    for k, (name, number) in enumerate(case.rng.sample(BROKEN, count)):
        for operand, width in (("means", 3), ("quats", 4), ("scales", 3)):
            row = numpy.full(width, number) if operand == name else numpy.ones(width)
            case.input(operand, numpy.insert(case.inputs[operand], at[k], row, 0))
            case.output("d_" + operand, numpy.insert(case.wanted["d_" + operand], at[k], 0, 0))
        case.input("weights", numpy.insert(case.inputs["weights"], at[k], 1, 1))
        for output in ("radii", "y"):
            case.output(output, numpy.insert(case.wanted[output], at[k], 0, 1))


def project(case):
    d, rng = dense.Draw(case), case.rng
    points, images, broken = rng.randint(1, 12), rng.randint(1, 3), rng.randint(0, 3)
    width, height = rng.randint(8, 90), rng.randint(8, 90)
    eps, clip, near = rng.choice([0.3, 0.1]), rng.choice([0, 3.0]), rng.choice([0.01, 2.0])
    far = rng.choice([1e10, 6.0])
    means = d.floats("means", d.numbers.standard_normal([points, 3]) * rng.choice([0.3, 3]))
    quats = d.floats("quats", d.numbers.standard_normal([points, 4]) * rng.choice([0.1, 1, 9]))
    scales = d.floats("scales", numpy.exp(d.numbers.uniform(-5, 0.5, [points, 3])))
    views = camera_views(d, images)
    ks = numpy.zeros([images, 3, 3])
    ks[:, 0, 0], ks[:, 1, 1] = d.numbers.uniform(20, 90, [2, images])
    ks[:, 0, 2], ks[:, 1, 2], ks[:, 2, 2] = width * d.numbers.uniform(0.3, 0.7), height * d.numbers.uniform(0.3, 0.7), 1
    intrinsics = d.floats("intrinsics", ks)

    spread = rotations(torch.nn.functional.normalize(quats, dim=-1)) @ torch.diag_embed(scales)
    turn, shift = views[:, None, :3, :3], views[:, None, :3, 3]
    x, y, z = ((turn @ means[None, :, :, None])[..., 0] + shift).unbind(-1)
    fx, fy = intrinsics[:, 0, 0, None], intrinsics[:, 1, 1, None]
    cx, cy = intrinsics[:, 0, 2, None], intrinsics[:, 1, 2, None]

    def near_picture(ratio, focal, centre, size):
        low, high = -(centre / focal + 0.15 * size / focal), (size - centre) / focal + 0.15 * size / focal
        return torch.maximum(torch.minimum(ratio, high), low)
    u, v = near_picture(x / z, fx, cx, width), near_picture(y / z, fy, cy, height)
    zero = torch.zeros_like(z)
    j = torch.stack([fx / z, zero, -fx * u / z, zero, fy / z, -fy * v / z], -1).reshape(images, points, 2, 3)
    world = spread @ spread.mT
    s = j @ turn @ world @ turn.mT @ j.mT + eps * torch.eye(2, dtype=torch.float64)
    centre = torch.stack([fx * x / z + cx, fy * y / z + cy], -1)
    det = torch.linalg.det(s)
    half = (s[..., 0, 0] + s[..., 1, 1]) / 2
    radius = torch.ceil(3 * torch.sqrt(half + torch.sqrt(torch.clamp(half ** 2 - det, min=0.01)))).detach()
    size = torch.tensor([width, height], dtype=torch.float64)
    inside = ((centre + radius[..., None] > 0) & (centre - radius[..., None] < size)).all(-1)
    seen = (z > near) & (z < far) & (radius > clip) & inside
    inverse = torch.linalg.inv(s)
    parts = [centre, z[..., None], inverse[..., 0, :], inverse[..., 1, 1:]]
    whole = torch.where(seen[..., None], torch.cat(parts, -1), 0)

    given = exact.attributes(width=width, height=height, eps2d=eps, near=near, far=far, radius_clip=float(clip))
    case.lines += [
        f"(radii, centres, depths, conics) = splat_project(means, quats, scales, viewmats, intrinsics) {given}",
        f"deep = reshape(depths) {{shape=[{images}, {points + broken}, 1]}}",
        "all = concat([centres, deep, conics]) {axis=2}"]
    case.output("radii", torch.where(seen, radius, 0).to(torch.int32))
    d.finish("copy(all)", whole)
    add_broken(case, broken)


def harmonics(direction, degree):
    """Real spherical harmonics by associated Legendre polynomials with the Condon-Shortley phase."""
    x, y, z = direction.unbind(-1)

    def legendre(l, m):
        """P_l^m(z) / sin(theta)^m."""
        value = torch.full_like(z, (-1) ** m * math.prod(range(2 * m - 1, 0, -2)))
        before = torch.zeros_like(z)
        for k in range(m + 1, l + 1):
            value, before = ((2 * k - 1) * z * value - (k + m - 1) * before) / (k - m), value
        return value
    out = []
    for l in range(degree + 1):
        for m in range(-l, l + 1):
            size = abs(m)
            factor = math.sqrt((2 * l + 1) / (4 * math.pi) * math.factorial(l - size) / math.factorial(l + size))
            turn = torch.ones_like(torch.complex(x, y))
            for _ in range(size):
                turn = turn * torch.complex(x, y)  # sin(theta)^m e^(i m phi)
            angular = turn.imag if m < 0 else turn.real
            out.append(factor * (math.sqrt(2) if m else 1) * angular * legendre(l, size))
    return torch.stack(out, -1) + 0 * z[..., None]  # degree 0 does not depend on the direction


def color(case):
    d, rng = dense.Draw(case), case.rng
    points, images, degree = rng.randint(1, 9), rng.randint(1, 3), rng.randint(0, 3)
    used = (degree + 1) ** 2
    means = d.normal("means", [points, 3])
    views = camera_views(d, images)
    coeffs = d.floats("coeffs", d.numbers.uniform(-0.5, 0.8, [points, rng.randint(used, 16), 3]))
    centre = -(views[:, :3, :3].mT @ views[:, :3, 3:])[..., 0]
    direction = torch.nn.functional.normalize(means[None] - centre[:, None], dim=-1)
    y = torch.relu(torch.einsum("ipk,pkc->ipc", harmonics(direction, degree), coeffs[:, :used]) + 0.5)
    d.finish("splat_sh(means, viewmats, coeffs) " + exact.attributes(degree=degree), y)


KINDS = {"projections": project, "colors": color}

if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, dense.difference))
