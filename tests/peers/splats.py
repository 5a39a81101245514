#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""splats.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random scenes in f64 beside the same formulas of 3D Gaussian splatting in PyTorch, written with matrices: projections of
Gaussians, their colors, and images of them, with gradients. Each case has a seed of its own, which a failure names, with its graph. Exits with
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


def projected(means, quats, scales, views, intrinsics, width, height, eps, near=0.01, far=1e10, clip=0, response="ewa"):
    """Radii, which Gaussians are seen, and their centres, depths and conics [I, P, 6], 0 where not seen. With ray3d
    three numbers more: slopes of the way along the ray, and the inverse of the camera's squared distance."""
    images, points = len(views), len(means)
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

    def ellipse(u, v):
        j = torch.stack([fx / z, zero, -fx * u / z, zero, fy / z, -fy * v / z], -1).reshape(images, points, 2, 3)
        return j @ turn @ spread @ spread.mT @ turn.mT @ j.mT
    s = ellipse(u, v) + eps * torch.eye(2, dtype=torch.float64)
    centre = torch.stack([fx * x / z + cx, fy * y / z + cy], -1)
    det = torch.linalg.det(s)
    half = (s[..., 0, 0] + s[..., 1, 1]) / 2
    radius = torch.ceil(3 * torch.sqrt(half + torch.sqrt(torch.clamp(half ** 2 - det, min=0.01)))).detach()
    size = torch.tensor([width, height], dtype=torch.float64)
    inside = ((centre + radius[..., None] > 0) & (centre - radius[..., None] < size)).all(-1)
    seen = (z > near) & (z < far) & (radius > clip) & inside
    inverse = torch.linalg.inv(s)
    extra = []
    if response == "ray3d":
        inverse = torch.linalg.inv(ellipse(x / z, y / z))
        whiten = torch.linalg.inv(turn @ spread)  # from the camera's axes to standard deviations
        far_away = (whiten @ torch.stack([x / z, y / z, torch.ones_like(z)], -1)[..., None])[..., 0]
        square = (far_away ** 2).sum(-1)
        extra = [-(far_away * whiten[..., k]).sum(-1) / (focal * square) for k, focal in enumerate((fx, fy))]
        extra = [v[..., None] for v in (*extra, 1 / (z ** 2 * square))]
    parts = [centre, z[..., None], inverse[..., 0, :], inverse[..., 1, 1:], *extra]
    whole = torch.where(seen[..., None], torch.cat(parts, -1), 0)
    return torch.where(seen, radius, 0).to(torch.int32), seen, whole


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

    response = rng.choice(["ewa", "ray3d"])
    radii, seen, whole = projected(means, quats, scales, views, intrinsics, width, height, eps, near, far, clip, response)
    given = exact.attributes(width=width, height=height, eps2d=eps, near=near, far=far, radius_clip=float(clip),
                             response=response)
    case.lines += [
        f"(radii, centres, depths, conics) = splat_project(means, quats, scales, viewmats, intrinsics) {given}",
        f"deep = reshape(depths) {{shape=[{images}, {points + broken}, 1]}}",
        "all = concat([centres, deep, conics]) {axis=2}"]
    case.output("radii", radii)
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


def seen_colors(means, views, coeffs, degree):
    centre = -(views[:, :3, :3].mT @ views[:, :3, 3:])[..., 0]
    direction = torch.nn.functional.normalize(means[None] - centre[:, None], dim=-1)
    return torch.relu(torch.einsum("ipk,pkc->ipc", harmonics(direction, degree), coeffs[:, :(degree + 1) ** 2]) + 0.5)


def color(case):
    d, rng = dense.Draw(case), case.rng
    points, images, degree = rng.randint(1, 9), rng.randint(1, 3), rng.randint(0, 3)
    means = d.normal("means", [points, 3])
    views = camera_views(d, images)
    coeffs = d.floats("coeffs", d.numbers.uniform(-0.5, 0.8, [points, rng.randint((degree + 1) ** 2, 16), 3]))
    d.finish("splat_sh(means, viewmats, coeffs) " + exact.attributes(degree=degree), seen_colors(means, views, coeffs, degree))


def tiles_of(low, high, tile, size):
    """The pixels along an axis in the tiles that [low, high) touches."""
    count = math.ceil(size / tile)
    first, end = (min(max(v, 0), count) for v in (math.floor(low / tile), math.ceil(high / tile)))
    return slice(first * tile, min(end * tile, size)), max(end - first, 0)


def elliptic(conics, means):
    """The power of Gaussian p of image i at the centres x, y of pixels, and where it exists."""
    def power(i, p, x, y):
        dx, dy = means[i, p, 0] - x, means[i, p, 1] - y
        a, b, c, *rays = conics[i, p]
        form = a * dx ** 2 + c * dy ** 2 + 2 * b * dx * dy
        if not rays:
            return form / 2, form >= 0
        along = 1 + rays[0] * dx + rays[1] * dy
        return form / (along ** 2 + rays[2] * form) / 2, (form >= 0) & (along > 0)
    return power


def along_rays(means, quats, scales, views, intrinsics):
    """Likewise from the Gaussians in space: the ray through a pixel in units of a Gaussian's standard deviations."""
    axes = rotations(torch.nn.functional.normalize(quats, dim=-1))

    def power(i, p, x, y):
        turn, shift, k = views[i, :3, :3], views[i, :3, 3], intrinsics[i]
        whiten = torch.diag(1 / scales[p]) @ axes[p].mT @ torch.linalg.inv(turn)
        origin = whiten @ -(turn @ means[p] + shift)
        direction = torch.stack([(x - k[0, 2]) / k[0, 0], (y - k[1, 2]) / k[1, 1], torch.ones_like(x)], -1) @ whiten.mT
        along = direction @ origin
        square = origin @ origin - along ** 2 / (direction ** 2).sum(-1)
        return square.clamp(min=0) / 2, along < 0
    return power


def blended(radii, means, power_at, depths, colors, opacities, background, width, height, tile):
    """Images with their alphas as a last channel, and the number of entries. Gaussian by Gaussian, from front to back."""
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) + 0.5 for n in (height, width)), indexing="ij")
    images, entries = [], 0
    for i in range(len(radii)):
        light, color = torch.ones(height, width, dtype=torch.float64), torch.zeros(height, width, colors.shape[-1], dtype=torch.float64)
        goes = torch.ones(height, width, dtype=torch.bool)
        for p in torch.argsort(depths[i].detach().to(torch.float32), stable=True).tolist():
            r, (mx, my) = int(radii[i, p]), means[i, p].tolist()
            if r <= 0:
                continue
            columns, wide = tiles_of(mx - r, mx + r, tile, width)
            rows, high = tiles_of(my - r, my + r, tile, height)
            entries += wide * high
            inside = torch.zeros(height, width, dtype=torch.bool)
            inside[rows, columns] = True
            power, exists = power_at(i, p, x, y)
            raw = opacities[p] * torch.exp(-power)
            passes = inside & goes & exists & (raw >= 1 / 255)
            alpha = torch.where(passes, raw.clamp(max=0.999), 0)
            left = light * (1 - alpha)
            full = passes & (left <= 1e-4)
            adds = passes & ~full
            color = color + torch.where(adds, alpha * light, 0)[..., None] * colors[i, p]
            light, goes = torch.where(adds, left, light), goes & ~full
        if background is not None:
            color = color + light[..., None] * background[i]
        images.append(torch.cat([color, 1 - light[..., None]], -1))
    return torch.stack(images), entries


def listed(case, radii, means, depths, size, capacity, **more):
    given = exact.attributes(**size, **more)
    case.lines += [f"(keys, entries, count) = splat_bin({radii}, {means}, {depths}) "
                   + exact.attributes(**size, max_intersections=capacity),
                   "(ids, offsets) = splat_sort(keys, entries) " + exact.attributes(images=len(case.inputs[radii]), **size)]
    return given


def with_alpha(case, images, size):
    case.lines += [f"thin = reshape(alpha) {{shape=[{images}, {size['height']}, {size['width']}, 1]}}",
                   "all = concat([image, thin]) {axis=3}"]
    return "copy(all)"


def image_size(rng):
    return {"width": rng.randint(1, 40), "height": rng.randint(1, 40), "tile": rng.choice([1, 5, 8, 16, 16, 16, 64])}


def rasterize(case):
    d, rng = dense.Draw(case), case.rng
    points, images, channels, size = rng.randint(1, 25), rng.randint(1, 2), rng.choice([1, 3, 3, 4, 32]), image_size(rng)
    radii = case.input("radii", d.numbers.integers(-1, 20, [images, points]).astype(numpy.int32))
    depths = d.floats("depths", numpy.round(d.numbers.uniform(0.1, 3, [images, points]), 1), wrt=False)
    means = d.floats("means2d", d.numbers.uniform(-5, 5 + max(size["width"], size["height"]), [images, points, 2]))
    spread = d.numbers.standard_normal([images, points, 2, 2]) * rng.choice([1, 3, 9])
    inverse = numpy.linalg.inv(spread @ spread.swapaxes(-1, -2) + 0.3 * numpy.eye(2))
    numbers, response = inverse.reshape(images, points, 4)[..., [0, 1, 3]], rng.choice(["ewa", "ray3d"])
    if response == "ray3d":
        slopes = d.numbers.uniform(-0.1, 0.1, [images, points, 2])
        numbers = numpy.concatenate([numbers, slopes, d.numbers.uniform(0, 0.2, [images, points, 1])], -1)
    conics = d.floats("conics", numbers)
    colors = d.normal("colors", [images, points, channels])
    opacities = d.floats("opacities", d.numbers.uniform(-0.1, rng.choice([0.5, 1, 1.3]), points))
    background = d.normal("background", [images, channels]) if rng.random() < 0.5 else None
    y, entries = blended(radii, means, elliptic(conics, means), depths, colors, opacities, background, **size)
    case.output("count", numpy.int64(entries))
    given = listed(case, "radii", "means2d", "depths", size, max(entries, 1) + rng.choice([0, 7]), response=response)
    case.lines.append("(image, alpha, last) = splat_rasterize(means2d, conics, colors, opacities, offsets, ids"
                      + (", background) " if background is not None else ") ") + given)
    for _, tensor in d.wrt:
        y = y + 0 * tensor.sum()
    d.finish(with_alpha(case, images, size), y)


def render(case):
    d, rng = dense.Draw(case), case.rng
    points, images, degree, size = rng.randint(1, 20), rng.randint(1, 2), rng.randint(0, 3), image_size(rng)
    means = d.floats("means", d.numbers.standard_normal([points, 3]) * rng.choice([0.3, 1, 3]))
    quats, scales = d.normal("quats", [points, 4]), d.floats("scales", numpy.exp(d.numbers.uniform(-4, 0.3, [points, 3])))
    opacities = d.floats("opacities", d.numbers.uniform(0, 1, points))
    coeffs = d.floats("coeffs", d.numbers.uniform(-0.5, 0.8, [points, (degree + 1) ** 2, 3]))
    views = camera_views(d, images)
    ks = numpy.zeros([images, 3, 3])
    ks[:, 0, 0], ks[:, 1, 1], ks[:, 2, 2] = rng.uniform(20, 60), rng.uniform(20, 60), 1
    ks[:, 0, 2], ks[:, 1, 2] = size["width"] / 2, size["height"] / 2
    intrinsics = d.floats("intrinsics", ks)
    background = d.normal("background", [images, 3]) if rng.random() < 0.5 else None
    radii, _, whole = projected(means, quats, scales, views, intrinsics, size["width"], size["height"], 0.3)
    response = rng.choice(["ewa", "ray3d"])
    power = elliptic(whole[..., 3:], whole[..., :2])
    if response == "ray3d":
        power = along_rays(means, quats, scales, views, intrinsics)
    colors = seen_colors(means, views, coeffs, degree)
    y, entries = blended(radii, whole[..., :2], power, whole[..., 2], colors, opacities, background, **size)
    operands = ["means", "quats", "scales", "opacities", "coeffs", "viewmats", "intrinsics"]
    if background is not None:
        operands.append("background")
    case.lines.append(f"(image, alpha) = splat_render({', '.join(operands)}) "
                      + exact.attributes(degree=degree, max_intersections=max(entries, 1), response=response, **size))
    for _, tensor in d.wrt:
        y = y + 0 * tensor.sum()
    d.finish(with_alpha(case, images, size), y)


KINDS = {"projections": project, "colors": color, "images": rasterize, "renders": render}

if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, dense.difference))
