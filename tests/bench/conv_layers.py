# SPDX-License-Identifier: Apache-2.0
"""Convolutions that compare_gpu.py and torch_gpu.py measure: layers of ResNet-50, MobileNet and a U-Net."""
import collections

Layer = collections.namedtuple("Layer", "batch channels size filters kernel stride pad groups")
LAYERS = {
    "7x7_s2_3_64": Layer(64, 3, 224, 64, 7, 2, 3, 1),
    "3x3_64": Layer(64, 64, 56, 64, 3, 1, 1, 1),
    "3x3_128_s2": Layer(64, 128, 56, 128, 3, 2, 1, 1),
    "3x3_256": Layer(64, 256, 14, 256, 3, 1, 1, 1),
    "3x3_512": Layer(64, 512, 7, 512, 3, 1, 1, 1),
    "1x1_64_256": Layer(64, 64, 56, 256, 1, 1, 0, 1),
    "1x1_1024_256": Layer(64, 1024, 14, 256, 1, 1, 0, 1),
    "1x1_512_2048": Layer(64, 512, 7, 2048, 1, 1, 0, 1),
    "unet_3x3_128": Layer(8, 128, 128, 128, 3, 1, 1, 1),
    "depthwise_3x3_144": Layer(64, 144, 56, 144, 3, 1, 1, 144),
    "depthwise_5x5_s2_240": Layer(64, 240, 28, 240, 5, 2, 2, 240),
    "one_3x3_256": Layer(1, 256, 14, 256, 3, 1, 1, 1),
}
# Name: (kind, layer, dtype). kind: forward, input or weight (gradients).
CASES = {f"conv_{layer}_{dtype}": ("forward", layer, dtype) for layer, dtype in
         [*((layer, "bf16") for layer in LAYERS), ("3x3_64", "f32"), ("3x3_256", "f32"), ("1x1_64_256", "f32"),
          ("3x3_256", "f16")]}
CASES |= {f"conv_{kind}_{layer}_bf16": (kind, layer, "bf16") for kind in ("input", "weight") for layer in
          ("3x3_64", "3x3_256", "3x3_512", "3x3_128_s2", "1x1_64_256", "unet_3x3_128", "depthwise_3x3_144")}


def windows(layer):
    return (layer.size + 2 * layer.pad - layer.kernel) // layer.stride + 1


def flops(layer):
    return 2 * layer.batch * layer.filters * windows(layer)**2 * layer.channels // layer.groups * layer.kernel**2


def elements(layer):
    """Of x, w and y."""
    return (layer.batch * layer.channels * layer.size**2, layer.filters * layer.channels // layer.groups * layer.kernel**2,
            layer.batch * layer.filters * windows(layer)**2)


def is_depthwise(layer):
    return layer.groups > 1


def op(name):
    """tenon's form of a case."""
    kind, layer, dtype = CASES[name]
    layer = LAYERS[layer]
    n, c, size, m, k, stride, pad, groups = layer
    x, w = f"{dtype}[{n},{c},{size},{size}]", f"{dtype}[{m},{c // groups},{k},{k}]"
    dy = f"{dtype}[{n},{m},{windows(layer)},{windows(layer)}]"
    attributes = f"stride=[{stride}, {stride}], pads=[{', '.join([str(pad)] * 4)}], groups={groups}"
    if kind == "forward": return f"conv({x}, {w}) {{{attributes}}}"
    if kind == "input": return f"conv_backward_input({dy}, {w}) {{{attributes}, size=[{size}, {size}]}}"
    return f"conv_backward_weight({dy}, {x}) {{{attributes}, kernel=[{k}, {k}]}}"
