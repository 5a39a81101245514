#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log-mel spectrograms beside a composition of PyTorch, power of segments and peaks beside SciPy, on one machine in one run.

spectra.py LIBTENON [--rounds N] [--only REGEX] [--threads N] [--seconds X]
Each round times the peer and tenon by turns. A ratio is tenon's time over the peer's (below 1 tenon is faster); the table shows
the medians of the rounds. SciPy has one thread; its fft gets as many as tenon. PyTorch is its best of eager and compiled.
Needs torch and scipy for this Python."""
import pathlib, re, sys

import numpy, scipy.fft, scipy.signal, torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
import binding
import peer_rounds
import spectra as judge


def log_mel(batch, seconds, mels, grad=False):
    """Whisper's, of sound at 16 kHz."""
    x, window = torch.randn(batch, seconds * 16000), torch.hann_window(400)
    w = torch.tensor(judge.mel_filters(16000, 400, mels, 0, 8000, "slaney", "slaney"), dtype=torch.float32)

    def compute(x):
        p = torch.stft(x, 400, 160, window=window, return_complex=True)[..., :-1].abs() ** 2
        y = (w @ p).clamp(min=1e-10).log10()
        return (torch.maximum(y, y.amax((1, 2), keepdim=True) - 8) + 4) / 4
    x.requires_grad_(grad)
    weights = torch.randn(batch, mels, seconds * 100)

    def step(f):
        if not grad: return lambda: f(x)
        return lambda: torch.autograd.grad(f(x), x, weights)
    lines = [f"y = log_mel_spectrogram(x) {{n_mels={mels}}}"]
    inputs = {"x": x.detach().numpy()}
    if grad:
        lines += ['weighed = binary(y, weights) {kind="mul"}', 'loss = reduce(weighed) {kind="sum"}', "dx = grad(loss, [x])"]
        inputs["weights"] = weights.numpy()
    return lines, "dx" if grad else "y", inputs, [step(compute), step(torch.compile(compute))]


def welch(batch, samples, size, threads):
    x = numpy.random.default_rng(1).standard_normal([batch, samples]).astype(numpy.float32)

    def peer():
        with scipy.fft.set_workers(threads): scipy.signal.welch(x, nperseg=size)
    return [f"y = welch_psd(x) {{nperseg={size}}}"], "y", {"x": x}, [peer]


def peaks(batch, samples, size, threads):
    x = numpy.random.default_rng(1).standard_normal([batch, samples]).astype(numpy.float32)

    def peer():
        with scipy.fft.set_workers(threads): _, p = scipy.signal.welch(x, nperseg=size)
        for row in p:
            found, _ = scipy.signal.find_peaks(row, distance=4)
            found[numpy.argsort(-row[found])[:8]]
    return [f"(y, power, count) = welch_peaks(x) {{nperseg={size}, k=8, min_distance=4}}"], "y", {"x": x}, [peer]


def cases(threads):
    return {"log_mel 8x30s": lambda: log_mel(8, 30, 80), "log_mel 1x30s 128": lambda: log_mel(1, 30, 128),
            "log_mel gradient 8x30s": lambda: log_mel(8, 30, 80, True),
            "welch 64x65536": lambda: welch(64, 1 << 16, 256, threads),
            "welch 4x2^20 4096": lambda: welch(4, 1 << 20, 4096, threads),
            "welch_peaks 64x65536": lambda: peaks(64, 1 << 16, 256, threads)}


def main():
    a = peer_rounds.library_parser(__doc__, '"welch .*"').parse_args()
    torch.set_num_threads(a.threads)
    tenon = binding.Tenon(a.library, threads=a.threads)
    print(f"PyTorch {torch.__version__}, SciPy {scipy.__version__}, {a.threads} threads")
    for name, make in cases(a.threads).items():
        if not re.search(a.only, name): continue
        lines, out, inputs, peers = make()
        head = [f"input {k}: f32[{','.join(map(str, v.shape))}]" for k, v in inputs.items()]
        graph = 'graph "g" {\n' + "".join(f"  {line}\n" for line in [*head, *lines, f'output "y" = {out}']) + "}\n"
        with tenon.parse(graph) as model:
            model.set(inputs)
            peer_rounds.by_turns(name, model.start, peers, a, "peer")


if __name__ == "__main__":
    sys.exit(main())
