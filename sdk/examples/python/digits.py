# SPDX-License-Identifier: Apache-2.0
"""Draws digits, and trains a small convolutional network that reads them.

python digits.py            # a few seconds on two cores; ends with the share of new digits that it reads
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tenon
from tenon import ops

FONT = [  # rows of five pixels, for 0 to 9
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
]
GLYPHS = np.array([[list(map(int, row)) for row in glyph.split()] for glyph in FONT], np.float32)
SIZE = 20
Params = dict[str, Any]


def draw(count: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Digits that are turned, stretched, moved and covered with noise: images [count, 1, 20, 20], labels [count]."""
    labels = rng.integers(0, 10, count)
    angle, stretch = rng.uniform(-0.35, 0.35, (count, 1, 1)), rng.uniform(0.36, 0.52, (2, count, 1, 1))
    moved = rng.uniform(-2, 2, (2, count, 1, 1))
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    y, x = y - moved[0], x - moved[1]
    row = (np.cos(angle) * y + np.sin(angle) * x) * stretch[0] + 3
    column = (np.cos(angle) * x - np.sin(angle) * y) * stretch[1] + 2
    image = np.zeros((count, SIZE, SIZE), np.float32)
    for dy in (0, 1):  # between the pixels of the font, by their distance
        for dx in (0, 1):
            r, c = np.floor(row).astype(int) + dy, np.floor(column).astype(int) + dx
            weight = (1 - abs(row - r)) * (1 - abs(column - c))
            inside = (r >= 0) & (r < 7) & (c >= 0) & (c < 5)
            image += np.where(inside, weight * GLYPHS[labels[:, None, None], r.clip(0, 6), c.clip(0, 4)], 0)
    image += rng.normal(0, 0.15, image.shape)
    return image[:, None].astype(np.float32), labels


def new_params(rng: np.random.Generator) -> Params:
    def normal(*shape: int) -> NDArray[np.float32]:
        scale = float(np.sqrt(2 / np.prod(shape[1:])))
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    return {
        "conv": [
            {"w": normal(12, 1, 3, 3), "b": np.zeros(12, np.float32)},
            {"w": normal(24, 12, 3, 3), "b": np.zeros(24, np.float32)},
        ],
        "head": {"w": normal(10, 24 * 5 * 5), "b": np.zeros(10, np.float32)},
    }


def logits_of(params: Params, images: tenon.Array) -> tenon.Array:
    x = images
    for layer in params["conv"]:
        x = ops.conv(x, layer["w"], layer["b"], pads=[1, 1, 1, 1], act="relu")
        x = ops.maxpool2d(x, kernel=[2, 2], stride=[2, 2])
    return ops.linear(x.reshape(x.shape[0], -1), params["head"]["w"], params["head"]["b"], trans_b=True)


def loss_of(params: Params, images: tenon.Array, labels: tenon.Array) -> tenon.Array:
    return ops.cross_entropy(logits_of(params, images), labels)


optimizer = tenon.optim.adamw(5e-3)


@tenon.function
def step(params: Params, state: Params, images: Any, labels: Any) -> tuple[Params, Params, Any]:
    loss, gradients = tenon.value_and_grad(loss_of)(params, images, labels)
    params, state = optimizer.update(params, gradients, state)
    return params, state, loss


@tenon.function
def read(params: Params, images: Any) -> Any:
    return ops.argmax(logits_of(params, images))


def main() -> float:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="training steps [200]")
    parser.add_argument("--batch", type=int, default=64, help="digits per step [64]")
    parser.add_argument("--seed", type=int, default=1, help="of digits and weights [1]")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)

    params = new_params(rng)
    state = optimizer.init(params)
    begin = time.perf_counter()
    for number in range(1, options.steps + 1):
        images, labels = draw(options.batch, rng)
        params, state, loss = step(params, state, images, labels)
        if number % 100 == 0:
            print(f"step {number}: loss {float(loss):.3f}")
    images, labels = draw(2000, rng)
    accuracy = float(np.mean(read(params, images).numpy() == labels))
    print(f"{accuracy:.1%} of new digits are read, after {time.perf_counter() - begin:.1f} s")
    return accuracy


if __name__ == "__main__":
    main()
