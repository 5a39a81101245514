#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""spectra.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random spectra in f64 and f32: log-mel spectrograms and their gradients beside a composition of PyTorch, banks of filters beside
librosa, power of segments and peaks beside SciPy. Kinds whose package is absent are left out, and said so. Each case has a seed
of its own, which a failure names, with its graph. Exits with 77 without PyTorch."""
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import scipy.signal
except ImportError:
    scipy = None
try:
    import librosa
except ImportError:
    librosa = None

import exact
from exact import attributes


def signals(case, dims, dtype=numpy.float64):
    return numpy.random.default_rng(case.rng.randrange(1 << 30)).standard_normal(dims).astype(dtype)


def mel_filters(sr, n_fft, n_mels, fmin, fmax, scale, norm):
    """As librosa has them, in f64."""
    def mel(f):
        if scale == "htk": return 2595 * numpy.log10(1 + f / 700)
        return numpy.where(f < 1000, 3 * f / 200, 15 + 27 * numpy.log(numpy.maximum(f, 1) / 1000) / numpy.log(6.4))

    def hertz(m):
        if scale == "htk": return 700 * (10 ** (m / 2595) - 1)
        return numpy.where(m < 15, 200 * m / 3, 1000 * numpy.exp((m - 15) * numpy.log(6.4) / 27))
    edges = hertz(numpy.linspace(mel(numpy.float64(fmin)), mel(numpy.float64(fmax)), n_mels + 2))
    f = numpy.arange(n_fft // 2 + 1) * sr / n_fft
    rise = (f - edges[:-2, None]) / numpy.diff(edges)[:-1, None]
    fall = (edges[2:, None] - f) / numpy.diff(edges)[1:, None]
    w = numpy.maximum(0, numpy.minimum(rise, fall))
    return w * (2 / (edges[2:] - edges[:-2]))[:, None] if norm == "slaney" else w


def filter_options(rng):
    sr = rng.choice([8000, 16000, 22050, 44100])
    fmin = rng.choice([0, 0, 20, 300])
    return {"sr": float(sr), "n_fft": rng.choice([16, 33, 64, 400, 512]), "n_mels": rng.randint(1, 90), "fmin": float(fmin),
            "fmax": rng.choice([sr / 2, sr / 3]), "scale": rng.choice(["slaney", "htk"]), "norm": rng.choice(["slaney", "none"])}


def bank(case):
    options = filter_options(case.rng)
    case.lines.append("w = mel_filterbank() " + attributes(dtype="f64").replace('"', "")[:-1] + ", " + attributes(**options)[1:])
    judge = mel_filters(**options)
    if librosa:
        judge = librosa.filters.mel(sr=options["sr"], n_fft=options["n_fft"], n_mels=options["n_mels"], fmin=options["fmin"],
                                    fmax=options["fmax"], htk=options["scale"] == "htk", dtype=numpy.float64,
                                    norm="slaney" if options["norm"] == "slaney" else None)
    case.output("w", judge)


def log_mel(case):
    rng, options = case.rng, filter_options(case.rng)
    size, scope = options["n_fft"], rng.choice(["example", "tensor", "frame"])
    hop, center, drop = rng.randint(max(1, size // 4), size), rng.random() < 0.5, rng.random() < 0.5
    mode, log, affine = rng.choice(["reflect", "constant"]), rng.choice(["log10", "log"]), rng.random() < 0.5
    reach, floor = rng.choice([0.0, 0.5, 2.0, 8.0]), rng.choice([1e-10, 1e-3])
    dtype = rng.choice([numpy.float32, numpy.float64])
    x = case.input("x", signals(case, [rng.randint(1, 3), rng.randint(2 * size, 6 * size)], dtype))
    w = torch.tensor(mel_filters(**options))
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    p = torch.stft(t, size, hop, window=torch.hann_window(size, dtype=torch.float64), center=center, pad_mode=mode,
                   return_complex=True).abs() ** 2
    if drop: p = p[..., :-1]
    m = (w @ p).clamp(min=floor)
    y = m.log10() if log == "log10" else m.log()
    if reach and y.numel():
        dims = {"example": (1, 2), "tensor": (0, 1, 2), "frame": (1,)}[scope]
        y = torch.maximum(y, y.amax(dims, keepdim=True) - reach)
    if affine: y = (y + 4) / 4
    weights = case.input("weights", signals(case, list(y.shape), dtype))
    case.lines += ["y = log_mel_spectrogram(x) " + attributes(
        **options, hop=hop, center=center, pad_mode=mode, drop_last=drop, floor=floor, log=log, dynamic_range=reach, affine=affine,
        max_scope=scope)]
    case.output("y", y.detach())
    if dtype == numpy.float64:  # in f32 the order of logarithms that are near may differ
        case.lines += ['weighed = binary(y, weights) {kind="mul"}', 'loss = reduce(weighed) {kind="sum"}', "dx = grad(loss, [x])"]
        case.output("dx", torch.autograd.grad((y * torch.tensor(weights)).sum(), t)[0])


def welch_options(rng, samples):
    size = rng.randint(1, min(samples, 300))
    points = size + rng.choice([0, 0, rng.randint(0, 40)])
    return {"fs": rng.choice([1.0, 16000.0]), "nperseg": size, "noverlap": rng.choice([size // 2, rng.randint(0, size - 1)]),
            "nfft": points, "detrend": rng.choice(["constant", "none", "linear"]), "onesided": rng.random() < 0.7,
            "scaling": rng.choice(["density", "spectrum"]), "average": rng.choice(["mean", "mean", "median"])}


def welch(case):
    rng = case.rng
    samples, dtype = rng.randint(2, 3000), rng.choice([numpy.float32, numpy.float64])
    options = welch_options(rng, samples)
    x = case.input("x", signals(case, [rng.randint(1, 4), samples], dtype))
    w = case.input("window", numpy.abs(signals(case, [options["nperseg"]], dtype)) + dtype(0.1))
    names = {"onesided": "return_onesided"}
    peer = {names.get(k, k): v for k, v in options.items()}
    peer["detrend"] = False if options["detrend"] == "none" else options["detrend"]
    _, p = scipy.signal.welch(x.astype(numpy.float64), window=w.astype(numpy.float64), **peer)
    case.lines.append("p = welch_psd(x, window) " + attributes(**options))
    case.output("p", p)


def peaks(case):
    rng = case.rng
    dims = [rng.randint(1, 3), rng.randint(1, 80)]
    source = numpy.random.default_rng(rng.randrange(1 << 30))
    dtype = rng.choice([numpy.float32, numpy.float64])
    x = case.input("x", (source.integers(0, 6, dims) if rng.random() < 0.6 else source.random(dims)).astype(dtype))
    options = {"k": rng.randint(1, 12)}
    if rng.random() < 0.5: options["height"] = float(numpy.float32(rng.random() * 3))
    if rng.random() < 0.5: options["min_distance"] = rng.randint(1, 7)
    if rng.random() < 0.5: options["prominence"] = float(numpy.float32(rng.random() * 2))
    index, power = numpy.full([dims[0], options["k"]], -1, numpy.int32), numpy.zeros([dims[0], options["k"]], dtype)
    count = numpy.zeros(dims[0], numpy.int32)
    for row, spectrum in enumerate(x):
        found, _ = scipy.signal.find_peaks(spectrum.astype(numpy.float64), height=options.get("height"))
        found = apart(spectrum, found, options.get("min_distance", 1))
        least = options.get("prominence", 0)
        found = [p for p in found if scipy.signal.peak_prominences(spectrum.astype(numpy.float64), [p])[0][0] >= least]
        best = sorted(found, key=lambda p: (-spectrum[p], p))[:options["k"]]
        index[row, :len(best)], power[row, :len(best)], count[row] = best, spectrum[best], len(best)
    case.lines.append("(index, power, count) = spectrum_peaks(x) " + attributes(**options))
    for name, want in (("index", index), ("power", power), ("count", count)):
        case.output(name, want)


def apart(x, found, distance):
    """What find_peaks keeps, whose order of equal peaks is that of an unstable sort: here the last one comes first."""
    kept = []
    for p in sorted(found, key=lambda p: (-x[p], -p)):
        if all(abs(p - other) >= distance for other in kept): kept.append(p)
    return sorted(kept)


KINDS = {"bank": bank, "log_mel": log_mel}
if scipy:
    KINDS |= {"welch": welch, "peaks": peaks}
else:
    print("without SciPy: no welch, no peaks")
if not librosa: print("without librosa: banks are judged by its formula")


def difference(got, want):
    """Integers exactly, floats relative to the largest number."""
    if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if want.dtype.kind == "i" or not want.size:
        return "" if (got == want).all() else f"expected {want.tolist()}, got {got.tolist()}"
    error, bound = abs(got - want).max() / max(1e-30, abs(want).max()), 1e-4 if got.dtype == numpy.float32 else 1e-9
    return "" if error <= bound else f"off by {error:.2e}, expected at most {bound:.2e}"


if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, difference))
