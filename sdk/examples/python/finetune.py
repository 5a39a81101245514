# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a small language model on a text file, and plots its loss.

python finetune.py my.txt --plot loss.png     # about two minutes on two cores, half a minute from the second time on

The model reads bytes. It first learns English from the docstrings of Python's standard library, and is kept in base.npz.
Then it learns the text. A tenth of the text is held back. Its loss shows what the model learned beyond memorizing.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tenon
from tenon import ops

WIDTH, HEADS, LAYERS, LENGTH = 128, 4, 3, 96
Params = dict[str, Any]


def docstrings(most: int = 2_000_000) -> bytes:
    """Docstrings of the standard library: English that each machine with Python has."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_bytes())
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found += [ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds)]
    return "\n\n".join(filter(None, found)).encode()[:most]


def new_params(rng: np.random.Generator) -> Params:
    def normal(*shape: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return drawn

    def layer() -> Params:
        return {
            "norm1": np.ones(WIDTH, np.float32),
            "qkv": normal(WIDTH, 3 * WIDTH),
            "out": normal(WIDTH, WIDTH),
            "norm2": np.ones(WIDTH, np.float32),
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH),
        }

    return {
        "bytes": normal(256, WIDTH),
        "places": 0.1 * normal(LENGTH, WIDTH),
        "layers": [layer() for _ in range(LAYERS)],
        "norm": np.ones(WIDTH, np.float32),
    }


def loss_of(params: Params, text: Any) -> Any:
    """The mean loss of a byte, given the bytes before it. text: [batch, LENGTH + 1]."""
    x = ops.gather(params["bytes"], text[:, :-1]) + params["places"]
    for layer in params["layers"]:
        qkv = (ops.rms_norm(x, layer["norm1"]) @ layer["qkv"]).reshape(-1, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        y = ops.attention(q, k, v, causal=True)
        x = x + y.transpose(0, 2, 1, 3).reshape(-1, LENGTH, WIDTH) @ layer["out"]
        x = x + ops.gelu(ops.rms_norm(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
    logits = ops.rms_norm(x, params["norm"]) @ params["bytes"].T * (WIDTH**-0.5)
    return ops.cross_entropy(logits, text[:, 1:])


optimizer = tenon.optim.adamw(2e-3, clip_norm=1.0)
loss = tenon.function(loss_of)


@tenon.function
def step(params: Params, state: Any, text: Any) -> tuple[Params, Any, Any]:
    value, gradients = tenon.value_and_grad(loss_of)(params, text)
    params, state = optimizer.update(params, gradients, state)
    return params, state, value


def batch(text: NDArray[np.uint8], count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    starts = rng.integers(0, len(text) - LENGTH, count)
    parts: NDArray[np.int32] = text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int32)
    return parts


def train(
    params: Params, text: NDArray[np.uint8], steps: int, rng: np.random.Generator
) -> tuple[Params, list[float]]:
    state, losses = optimizer.init(params), []
    for number in range(1, steps + 1):
        params, state, value = step(params, state, batch(text, 16, rng))
        losses.append(float(value))
        if number % 50 == 0:
            print(f"  step {number}: loss {losses[-1]:.3f}")
    return params, losses


def base(path: Path, steps: int, rng: np.random.Generator) -> Params:
    """The model that knows English: from the file, or else trained and written there."""
    params = new_params(rng)
    leaves, structure = tenon.tree.flatten(params)
    if path.exists():
        with np.load(path) as file:
            return tenon.tree.unflatten(structure, [file[f"w{i}"] for i in range(len(leaves))])  # type: ignore[no-any-return]
    print(f"no {path} yet: training it")
    params, _ = train(params, np.frombuffer(docstrings(), np.uint8), steps, rng)
    weights: Any = {f"w{i}": np.asarray(w) for i, w in enumerate(tenon.tree.flatten(params)[0])}
    np.savez(path, **weights)
    return params


def plot(path: str, losses: list[float], before: float, after: float) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot(range(1, len(losses) + 1), losses, label="text that is learned")
    axes.plot([0, len(losses)], [before, after], "o--", label="text that is held back")
    axes.set(xlabel="step", ylabel="loss of a byte, in nats", title="Fine-tuning")
    axes.legend()
    figure.savefig(path)
    print(f"wrote {path}")


def main() -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--base", type=Path, default=Path("base.npz"), help="the model to begin with [base.npz]")
    parser.add_argument("--base-steps", type=int, default=300, help="steps that make it, if it is missing [300]")
    parser.add_argument("--steps", type=int, default=150, help="steps of fine-tuning [150]")
    parser.add_argument("--plot", default="", help="a picture of the loss to write; needs matplotlib [none]")
    options = parser.parse_args()
    text = np.frombuffer(options.text.read_bytes(), np.uint8)
    learned, held = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    if len(held) <= LENGTH + 1:
        raise SystemExit(f"finetune.py: expected a text of {10 * LENGTH + 20} bytes or more, got {len(text)}")
    rng = np.random.default_rng(1)
    params = base(options.base, options.base_steps, rng)
    unseen = batch(held, 32, np.random.default_rng(2))
    before = float(loss(params, unseen))
    print(f"fine-tuning on {len(learned)} bytes")
    params, losses = train(params, learned, options.steps, rng)
    after = float(loss(params, unseen))
    print(f"loss of the text that was held back: {before:.3f} before, {after:.3f} after")
    if options.plot:
        plot(options.plot, losses, before, after)
    return before, after


if __name__ == "__main__":
    main()
