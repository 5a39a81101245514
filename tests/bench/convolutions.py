#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convolutions beside PyTorch's (oneDNN) on one machine in one run: forward, gradient of x, gradient of the filters.

convolutions.py BIN_DIR [--rounds N] [--only REGEX] [--threads N] [--seconds X] [--isa NAME] [--keep DIR]
Layers of ResNet-50 and MobileNet-v3, grouped, dilated, long and transposed ones; batch 1 and 16. f32. The forward filters are
weights that no run changes. Each round times PyTorch and tenon by turns. A ratio is tenon's time over PyTorch's (below 1 tenon
is faster); the table shows the medians of the rounds, the last line their geometric mean. Needs torch for this Python."""
import math, pathlib, re, statistics, sys, tempfile

import isa
import peer_rounds
from compare_lm import cpu_model
from compare_torch import bench, load_peer

# name: channels, size, filters, kernel, stride, pads, dilation, groups
LAYERS = {
    "resnet_7x7_s2": (3, 224, 64, 7, 2, 3, 1, 1),
    "resnet_1x1_64_256": (64, 56, 256, 1, 1, 0, 1, 1),
    "resnet_1x1_256_64": (256, 56, 64, 1, 1, 0, 1, 1),
    "resnet_3x3_64": (64, 56, 64, 3, 1, 1, 1, 1),
    "resnet_3x3_s2_128": (128, 56, 128, 3, 2, 1, 1, 1),
    "resnet_3x3_128": (128, 28, 128, 3, 1, 1, 1, 1),
    "resnet_1x1_s2_512_1024": (512, 28, 1024, 1, 2, 0, 1, 1),
    "resnet_3x3_256": (256, 14, 256, 3, 1, 1, 1, 1),
    "resnet_1x1_1024_256": (1024, 14, 256, 1, 1, 0, 1, 1),
    "resnet_3x3_512": (512, 7, 512, 3, 1, 1, 1, 1),
    "resnet_1x1_512_2048": (512, 7, 2048, 1, 1, 0, 1, 1),
    "mobile_3x3_s2": (3, 224, 16, 3, 2, 1, 1, 1),
    "depthwise_3x3_16": (16, 112, 16, 3, 1, 1, 1, 16),
    "depthwise_3x3_s2_64": (64, 112, 64, 3, 2, 1, 1, 64),
    "depthwise_5x5_s2_72": (72, 56, 72, 5, 2, 2, 1, 72),
    "depthwise_5x5_120": (120, 28, 120, 5, 1, 2, 1, 120),
    "depthwise_3x3_480": (480, 14, 480, 3, 1, 1, 1, 480),
    "depthwise_5x5_960": (960, 7, 960, 5, 1, 2, 1, 960),
    "mobile_1x1_16_64": (16, 112, 64, 1, 1, 0, 1, 1),
    "mobile_1x1_160_960": (160, 7, 960, 1, 1, 0, 1, 1),
    "mobile_1x1_squeeze": (960, 1, 240, 1, 1, 0, 1, 1),
    "grouped_3x3_32x4": (128, 56, 128, 3, 1, 1, 1, 32),
    "grouped_3x3_2": (64, 28, 64, 3, 1, 1, 1, 2),
    "dilated_3x3_256": (256, 28, 256, 3, 1, 2, 2, 1),
}
LINES = {"line_k128": (8, 16000, 64, 128, 64, 64, 1, 1), "line_k3_512": (512, 400, 512, 3, 1, 1, 1, 1)}
TRANSPOSED = {"transposed_k2_s2": (256, 32, 128, 2, 2, 0, 1, 1), "transposed_k4_s2": (128, 32, 64, 4, 2, 1, 1, 1)}
BATCHES = (1, 16)


def dims(*d):
    return "[" + ",".join(map(str, d)) + "]"


class Case:
    def __init__(self, name, batch, way):
        self.name, self.way = f"{name} n{batch} {way}", way
        axes = 1 if name in LINES else 2
        self.transposed = name in TRANSPOSED
        c, size, m, k, s, p, d, g = (LAYERS | LINES | TRANSPOSED)[name]
        self.out = (s * (size - 1) + k - 2 * p) if self.transposed else (size + 2 * p - d * (k - 1) - 1) // s + 1
        self.x = (batch, c) + (size,) * axes
        self.w = ((c, m // g) if self.transposed else (m, c // g)) + (k,) * axes
        self.y = (batch, m) + (self.out,) * axes
        self.kernel, self.axes, self.s, self.p, self.d, self.g = k, axes, s, p, d, g
        self.flops = 2 * math.prod(self.x if self.transposed else self.y) * math.prod(self.w[1:])

    def graph(self):
        a = self.axes
        attrs = f"stride={dims(*[self.s] * a)}, pads={dims(*[self.p] * 2 * a)}, dilation={dims(*[self.d] * a)}, groups={self.g}"
        x, w, y = (f"f32{dims(*t)}" for t in (self.x, self.w, self.y))
        if self.way == "forward":
            op = "conv_transpose" if self.transposed else "conv"
            lines = f"  input x: {x}\n  weight w: {w}\n  y = {op}(x, w) {{{attrs}}}\n"
        elif self.way == "dx":
            lines = f"  input dy: {y}\n  input w: {w}\n  y = conv_backward_input(dy, w) {{{attrs}, size={dims(*self.x[2:])}}}\n"
            if self.transposed:
                lines = f"  input dy: {y}\n  input w: {w}\n  y = conv(dy, w) {{{attrs}}}\n"
        else:
            first, second = ("dy", "x") if not self.transposed else ("x", "dy")
            lines = (f"  input dy: {y}\n  input x: {x}\n  y = conv_backward_weight({first}, {second}) "
                     f"{{{attrs}, kernel={dims(*self.w[2:])}}}\n")
        return f'graph "conv" {{\n{lines}  output "y" = y\n}}\n'

    def peer(self, torch):
        x, w = torch.randn(self.x), torch.randn(self.w)
        a = self.axes
        def run(x, w, mask=None, dy=None):
            args = ([self.s] * a, [self.p] * a, [self.d] * a, self.transposed, [0] * a, self.g)
            if dy is None: return torch.convolution(x, w, None, *args)
            return torch.ops.aten.convolution_backward(dy, x, w, None, *args, mask)
        if self.way == "forward":
            def forward():
                with torch.inference_mode(): return run(x, w)
            return forward
        dy = torch.randn(self.y)
        mask = [self.way == "dx", self.way == "dw", False]
        return lambda: run(x, w, mask, dy)


def main():
    a = peer_rounds.parser(__doc__, '"depthwise.* n1 forward"').parse_args()
    isa.cap(a.isa)
    peer = load_peer(a.threads)
    torch = peer.torch
    print(f"{cpu_model()}, {a.threads} threads, PyTorch {torch.__version__}")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(a.keep or folder)
        folder.mkdir(exist_ok=True)
        for case in [Case(n, b, w) for n in LAYERS | LINES | TRANSPOSED for b in BATCHES for w in ("forward", "dx", "dw")]:
            if not re.search(a.only, case.name): continue
            path = folder / f"{case.name.replace(' ', '_')}.tng"
            path.write_text(case.graph())
            theirs, ours = [], []
            function = case.peer(torch)
            for _ in range(a.rounds):
                theirs.append(peer_rounds.measure(function, a.seconds)[0])
                ours.append(bench(a, ["--no-ceilings", "--seconds", str(a.seconds), str(path)])[0]["median_us"])
            ratio = statistics.median(o / t for o, t in zip(ours, theirs))
            ratios.append(ratio)
            time = statistics.median(ours)
            print(f"{case.name:36} {time:10.1f} us  {case.flops / time / 1e3:7.1f} GFLOP/s  PyTorch {statistics.median(theirs):10.1f} us"
                  f"  ratio {ratio:5.2f}", flush=True)
    if ratios: print(f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.2f}, worst {max(ratios):.2f}, {len(ratios)} cases")


if __name__ == "__main__":
    sys.exit(main())
