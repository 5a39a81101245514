# SPDX-License-Identifier: Apache-2.0
"""A module of PyTorch before and after tenon.from_torch: the same outputs and gradients, and the time of a training step.

python torch_module.py      # needs torch
"""

# mypy: disable-error-code="misc,unused-ignore"

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch

import tenon


class Block(torch.nn.Module):
    """Attention and a feed-forward network, as transformers repeat them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


def seconds(step: Callable[[], Any], repeat: int) -> float:
    """The shortest time of a call, after two that warm up."""
    times = []
    for _ in range(repeat + 2):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return min(times[2:])


def main() -> float:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=4, help="blocks [4]")
    parser.add_argument("--repeat", type=int, default=5, help="steps that are timed [5]")
    options = parser.parse_args()
    torch.manual_seed(1)
    before = torch.nn.Sequential(*[Block(128, 4) for _ in range(options.layers)])
    x = torch.randn(4, 64, 128)

    twin = copy.deepcopy(before)
    after = tenon.from_torch(twin, (x,))  # has the parameters of twin, in their memory

    def train(module: Any) -> torch.Tensor:
        loss: torch.Tensor = module(x).square().mean()
        loss.backward()
        return loss

    losses = train(before), train(after)
    apart = max(float((p.grad - q.grad).abs().max()) for p, q in zip(before.parameters(), twin.parameters()))  # type: ignore[operator]
    print(f"loss: {losses[0]:.6f} by PyTorch, {losses[1]:.6f} by tenon; gradients are at most {apart:.1e} apart")

    torch.optim.SGD(twin.parameters(), lr=0.1).step()  # changes what tenon reads
    print(f"loss after a step of torch.optim: {train(after):.6f}")

    for name, module in (("PyTorch", before), ("tenon", after)):
        took = seconds(lambda module=module: train(module), options.repeat)
        print(f"{name}: {1e3 * took:.1f} ms for a forward and a backward pass")
    return apart


if __name__ == "__main__":
    main()
