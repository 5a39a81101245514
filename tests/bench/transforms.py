#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms beside PyTorch's (MKL) on one machine in one run.

transforms.py LIBTENON [--rounds N] [--only REGEX] [--threads N] [--seconds X]
Complex and real transforms of f32 parts, and frames of 60 s of sound at 16 kHz. Outputs of both are made once and written again.
Each round times PyTorch and tenon by turns. A ratio is tenon's time over PyTorch's (below 1 tenon is faster); the table shows the
medians of the rounds, the last line their geometric mean. Needs torch for this Python."""
import math, pathlib, re, statistics, sys

import numpy, torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
import binding
import peer_rounds

ROWS = ((64, 1 << 10), (64, 1 << 14), (4, 1 << 20), (64, 1000), (64, 4096), (64, 10007))
CASES = {f"{op} {b}x{n}": (op, b, n) for op in ("fft", "rfft", "irfft") for b, n in ROWS}
CASES |= {f"stft {n}": ("stft", 8, n) for n in (400, 1024)}


def case_of(op, rows, n):
    """Graph, input and the function of PyTorch."""
    if op == "stft":
        x, hop = torch.randn(rows, 60 * 16000), n // 4
        window = torch.hann_window(n)
        line = f"y = stft(x, window) {{n_fft={n}, hop={hop}}}"
        inputs = {"x": x, "window": window}
        peer = lambda: torch.stft(x, n, hop, window=window, return_complex=True)
    else:
        bins = n // 2 + 1
        x = torch.randn(rows, bins if op == "irfft" else n, dtype=torch.float32 if op == "rfft" else torch.complex64)
        out = torch.empty(rows, bins if op == "rfft" else n, dtype=torch.float32 if op == "irfft" else torch.complex64)
        options = {"n": n} if op == "irfft" else {}
        line = f"y = {op}(x)" + (f" {{n={n}}}" if options else "")
        inputs = {"x": x}
        peer = lambda: getattr(torch.fft, op)(x, **options, out=out)
    names = {torch.float32: "f32", torch.complex64: "c64"}
    lines = [f"input {name}: {names[v.dtype]}[{','.join(map(str, v.shape))}]" for name, v in inputs.items()]
    graph = 'graph "g" {\n' + "".join(f"  {line}\n" for line in [*lines, line, 'output "y" = y']) + "}\n"
    return graph, {name: v.numpy() for name, v in inputs.items()}, peer


def main():
    a = peer_rounds.library_parser(__doc__, '"fft .*"').parse_args()
    torch.set_num_threads(a.threads)
    tenon = binding.Tenon(a.library, threads=a.threads)
    print(f"PyTorch {torch.__version__}, {a.threads} threads")
    ratios = []
    for name, shape in CASES.items():
        if not re.search(a.only, name): continue
        graph, inputs, peer = case_of(*shape)
        with tenon.parse(graph) as model:
            model.set(inputs)
            ratios.append(peer_rounds.by_turns(name, model.start, [peer], a, "PyTorch"))
    if ratios: print(f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.2f}, worst {max(ratios):.2f}, {len(ratios)} cases")


if __name__ == "__main__":
    sys.exit(main())
