#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transforms.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random transforms beside NumPy, which computes in f64, and PyTorch: fft of any length and axes, rfft, irfft, stft, istft,
fft_conv1d, their gradients, orders of bins, and arithmetic of complex numbers. Each case has a seed of its
own, which a failure names, with its graph. Exits with 77 without PyTorch."""
import math
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import exact
from exact import attributes

NORMS = ["backward", "ortho", "forward"]
EPSILON = 1.2e-7


def numbers(case, dims, kind=numpy.complex64):
    source = numpy.random.default_rng(case.rng.randrange(1 << 30))
    x = source.standard_normal(dims)
    return (x + 1j * source.standard_normal(dims) if numpy.dtype(kind).kind == "c" else x).astype(kind)


def length(rng):
    """Short ones, powers of two, products of small primes, primes."""
    which = rng.randrange(4)
    if which == 0:
        return rng.randint(1, 40)
    if which == 1:
        return 1 << rng.randint(0, 14)
    if which == 2:
        return math.prod(rng.choice([2, 2, 3, 5, 7, 11, 13]) for _ in range(rng.randint(1, 4)))
    return rng.choice([17, 19, 97, 127, 131, 257, 509, 1009, 2003, 4099, 10007])


def changed(rng, n):
    return n if rng.random() < 0.6 else max(1, n + rng.randint(-n // 2, n // 2))


def gradient(case, y, x, op, weights, forward):
    """The gradient of the weighed sum of y's parts for x, by PyTorch in f64."""
    w = case.input("weights", weights)
    view = "view_as_real(y)" if numpy.iscomplexobj(y) else "copy(y)"
    case.lines += [f"y = {op}", f"parts = {view}", 'weighed = binary(parts, weights) {kind="mul"}',
                   'loss = reduce(weighed) {kind="sum"}', "dx = grad(loss, [x])"]
    t = torch.tensor(x.astype(numpy.complex128 if numpy.iscomplexobj(x) else numpy.float64), requires_grad=True)
    out = forward(t)
    parts = torch.view_as_real(out) if out.is_complex() else out
    case.output("y", y)
    case.output("dx", torch.autograd.grad((parts * torch.tensor(w, dtype=torch.float64)).sum(), t)[0].numpy())


def weights_of(case, y):
    shape = list(y.shape) + ([2] if numpy.iscomplexobj(y) else [])
    return numbers(case, shape, numpy.float32)


def fft(case):
    rng = case.rng
    rank = rng.randint(1, 3)
    dims = [rng.randint(1, 5) for _ in range(rank)]
    axes = rng.sample(range(rank), rng.randint(1, rank))
    for axis in axes:
        dims[axis] = length(rng) if len(axes) == 1 else rng.randint(1, 30)
    n = [changed(rng, dims[axis]) for axis in axes]
    norm, inverse = rng.choice(NORMS), rng.random() < 0.5
    x = case.input("x", numbers(case, dims))
    of = "ifftn" if inverse else "fftn"
    y = getattr(numpy.fft, of)(x.astype(numpy.complex128), n, axes, norm)
    gradient(case, y, x, "fft(x) " + attributes(axes=axes, n=n, norm=norm, inverse=inverse), weights_of(case, y),
             lambda t: getattr(torch.fft, of)(t, n, axes, norm))


def rfft(case):
    rng = case.rng
    dims = [rng.randint(1, 20) for _ in range(rng.randint(1, 2))]
    axis = rng.randrange(len(dims))
    dims[axis] = length(rng)
    n, norm = changed(rng, dims[axis]), rng.choice(NORMS)
    x = case.input("x", numbers(case, dims, numpy.float32))
    y = numpy.fft.rfft(x.astype(numpy.float64), n, axis, norm)
    gradient(case, y, x, "rfft(x) " + attributes(axis=axis, n=n, norm=norm), weights_of(case, y),
             lambda t: torch.fft.rfft(t, n, axis, norm))


def irfft(case):
    rng = case.rng
    dims = [rng.randint(1, 20) for _ in range(rng.randint(1, 2))]
    axis = rng.randrange(len(dims))
    dims[axis] = length(rng) // 2 + 1
    n, norm = changed(rng, max(1, 2 * dims[axis] - rng.randint(1, 2))), rng.choice(NORMS)
    x = case.input("x", numbers(case, dims))
    y = numpy.fft.irfft(x.astype(numpy.complex128), n, axis, norm)
    gradient(case, y, x, "irfft(x) " + attributes(axis=axis, n=n, norm=norm), weights_of(case, y),
             lambda t: torch.fft.irfft(t, n, axis, norm))


def frames(case):
    rng = case.rng
    size = rng.choice([2, 3, 8, 15, 30, 64, 400, 512])
    hop, window = rng.randint(max(1, size // 5), max(1, size // 2)), rng.randint(max(1, size * 3 // 4), size)
    center, normalized, onesided = (rng.random() < 0.5 for _ in range(3))
    mode = rng.choice(["reflect", "constant"])
    x = case.input("x", numbers(case, [rng.randint(1, 3), rng.randint(2 * size, 6 * size)], numpy.float32))
    w = case.input("window", numpy.random.default_rng(rng.randrange(1 << 30)).uniform(0.5, 1, window).astype(numpy.float32))

    def forward(t):
        return torch.stft(t, size, hop, window, torch.tensor(w, dtype=torch.float64), center, mode, normalized, onesided,
                          return_complex=True)
    y = forward(torch.tensor(x, dtype=torch.float64))
    options = {"n_fft": size, "hop": hop, "win_length": window, "center": center, "normalized": normalized,
               "onesided": onesided}
    gradient(case, y.numpy(), x, "stft(x, window) " + attributes(pad_mode=mode, **options), weights_of(case, y.numpy()), forward)
    if center or window == size:  # PyTorch refuses others
        case.lines.append("back = istft(y, window) " + attributes(**options))
        case.output("back", torch.istft(y, size, hop, window, torch.tensor(w, dtype=torch.float64), center, normalized,
                                        onesided).numpy())


def arithmetic(case):
    rng = case.rng
    dims, dtype = case.dims(rng.randint(0, 3), 9), rng.choice([numpy.complex64, numpy.complex128])
    a, b = (case.input(name, numbers(case, [d if rng.random() < 0.7 else 1 for d in dims[rng.randint(0, len(dims)):]], dtype))
            for name in "ab")
    for kind, y in (("add", a + b), ("sub", a - b), ("mul", a * b)):
        case.lines.append(f"{kind} = binary(a, b) " + attributes(kind=kind))
        case.output(kind, y)
    for op, y in (("conj", a.conj()), ("complex_abs", abs(a)), ("complex_norm_sq", abs(a) ** 2)):
        case.lines.append(f"{op} = {op}(a)")
        case.output(op, y)
    if dtype == numpy.complex64:  # where the terms of a gradient cancel, f32 is not close
        return
    ta, tb = (torch.tensor(v.astype(numpy.complex128), requires_grad=True) for v in (a, b))
    loss = (ta * tb.conj()).abs().sum() + ((ta - tb) * ta).real.sum()
    case.lines += ["cb = conj(b)", 'acb = binary(a, cb) {kind="mul"}', "length = complex_abs(acb)",
                   'one = reduce(length) {kind="sum"}', 'square = binary(sub, a) {kind="mul"}',
                   "pairs = view_as_real(square)", "last = narrow(pairs) " + attributes(
                       start=[0] * (ta - tb).ndim + [0], len=list((ta - tb).shape) + [1]),
                   'two = reduce(last) {kind="sum"}', 'loss = binary(one, two) {kind="add"}', "(da, db) = grad(loss, [a, b])"]
    for name, g in zip(("da", "db"), torch.autograd.grad(loss, [ta, tb])):
        case.output(name, g.numpy())


def convolution(case):
    rng = case.rng
    a, b = length(rng) % 600 + 1, length(rng) % 600 + 1
    lead = case.dims(rng.randint(0, 2), 4)
    kind = rng.choice([numpy.float32, numpy.complex64])
    x, w = (case.input(name, numbers(case, [d if rng.random() < 0.7 else 1 for d in lead[rng.randint(0, len(lead)):]] + [n], kind))
            for name, n in (("x", a), ("w", b)))
    mode = rng.choice(["full", "same", "valid"])
    start, count = {"full": (0, a + b - 1), "same": ((b - 1) // 2, a), "valid": (min(a, b) - 1, abs(a - b) + 1)}[mode]
    wide = numpy.complex128 if kind == numpy.complex64 else numpy.float64
    batch = numpy.broadcast_shapes(x.shape[:-1], w.shape[:-1])
    rows = [numpy.broadcast_to(v.astype(wide), batch + v.shape[-1:]).reshape(-1, v.shape[-1]) for v in (x, w)]
    y = numpy.array([numpy.convolve(*pair) for pair in zip(*rows)]).reshape(batch + (a + b - 1,))[..., start:start + count]

    def forward(t):
        product = torch.fft.fft(t + 0j, a + b) * torch.fft.fft(torch.tensor(w.astype(wide)) + 0j, a + b)
        full = torch.fft.ifft(product)[..., start:start + count]
        return full if kind == numpy.complex64 else full.real
    gradient(case, y, x, "fft_conv1d(x, w) " + attributes(mode=mode), weights_of(case, y), forward)


def order(case):
    rng = case.rng
    n, d, onesided = length(rng), rng.choice([1.0, 0.25, -2.0, 1e-3]), rng.random() < 0.5
    case.lines.append("f = fftfreq() " + attributes(n=n, d=d, onesided=onesided))
    case.output("f", (numpy.fft.rfftfreq if onesided else numpy.fft.fftfreq)(n, d))
    dims = case.dims(rng.randint(1, 3), 9)
    axes = rng.sample(range(len(dims)), rng.randint(1, len(dims)))
    x = case.input("x", numbers(case, dims, rng.choice([numpy.float32, numpy.complex64])))
    for name, inverse in (("fftshift", False), ("ifftshift", True)):
        case.lines.append(f"{name} = fftshift(x) " + attributes(axes=axes, inverse=inverse))
        case.output(name, getattr(numpy.fft, name)(x, axes))


KINDS = {"fft": fft, "rfft": rfft, "irfft": irfft, "frames": frames, "convolution": convolution, "order": order,
         "arithmetic": arithmetic}


def difference(got, want):
    """Relative to the length of the result as a vector."""
    if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    norm = numpy.linalg.norm(want)
    error = numpy.linalg.norm(got - want) / (norm if norm > 0 else 1)
    bound = EPSILON * (2 + math.log2(max(2, want.size)))
    return "" if error <= bound else f"off by {error:.2e}, expected at most {bound:.2e}"


if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, difference))
