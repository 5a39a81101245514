# SPDX-License-Identifier: Apache-2.0
"""Adds an op of one's own, softcap, and fits a line through it.

python custom_op.py         # an instant; ends with the line that was found
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon
from tenon import ops


def softcap_shape(x: tenon.Spec, *, cap: float) -> tenon.Spec:
    """The type of the result. What a rule raises reaches the caller."""
    if cap <= 0:
        raise ValueError(f"cap: expected a number above 0, got {cap}")
    return x


def softcap_gradient(dy: Any, y: Any, x: Any, *, cap: float) -> Any:
    """The gradient of x, from that of y. Without this rule, tenon differentiates the decomposition."""
    return dy * (1.0 - (y / cap) ** 2.0)


@tenon.custom_op("my:softcap", shape=softcap_shape, gradient=softcap_gradient)
def softcap(x: Any, *, cap: float = 30.0) -> Any:
    """Keeps values between -cap and cap, as some language models do with their logits. This is the decomposition: devices
    without a kernel for my:softcap run it. The cpu joins its parts to one step."""
    return ops.tanh(x / cap) * cap


@tenon.function
def step(line: Any, x: Any, y: Any) -> tuple[Any, Any]:
    def loss_of(line: Any) -> Any:
        return ((softcap(x * line["slope"] + line["start"], cap=2.0) - y) ** 2.0).mean()

    loss, gradient = tenon.value_and_grad(loss_of)(line)
    return tenon.tree.map(lambda value, slope: value - 0.1 * slope, line, gradient), loss


def main() -> dict[str, float]:
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    y = 2 * np.tanh((1.5 * x - 0.5) / 2)  # what the slope 1.5 and the start -0.5 give
    line: Any = {"slope": np.float32(0), "start": np.float32(0)}
    for number in range(1, 301):
        line, loss = step(line, x, y)
        if number % 100 == 0:
            print(f"step {number}: loss {float(loss):.6f}")
    print(step.report(line, x, y))
    found = {name: round(float(value), 2) for name, value in line.items()}
    print(f"found {found}; expected slope 1.5 and start -0.5")
    try:
        softcap(x, cap=-1.0)
    except ValueError as e:
        print(f"refused: {e}")
    return found


if __name__ == "__main__":
    main()
