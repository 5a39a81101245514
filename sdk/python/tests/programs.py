# SPDX-License-Identifier: Apache-2.0
"""Models that the tests run, and what they need to know of this machine."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

import tenon
from tenon._runtime import default_runtime

EXAMPLES = Path(os.environ.get("TENON_EXAMPLES", Path(__file__).resolve().parents[2] / "examples"))


def page():
    """The examples of the package's page, as one script."""
    text = (EXAMPLES.parent / "python" / "README.md").read_text()
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))


def store():
    return tenon.Store(default_runtime())


def model(op, shape=(4,), dtype="f32", attributes=None, operands=1, **options):
    """One node over inputs x (and t), as output y."""
    graph = tenon.Graph("one")
    names = ["x", "t"][:operands]
    values = [graph.input(name, dtype, shape) for name in names]
    (y, *_) = graph.add(op, values, attributes or {})
    graph.output("y", y)
    return tenon.Model(graph, store(), device="cpu", **options)


def double(shape=(4,), dtype="f32", **options):
    """y = x + x."""
    graph = tenon.Graph("double")
    x = graph.input("x", dtype, shape)
    graph.output("y", graph.add("binary", [x, x], {"kind": "add"})[0])
    return tenon.Model(graph, store(), device="cpu", **options)


def two_outputs():
    """sum = x + t, product = x * t."""
    graph = tenon.Graph("two")
    x, t = graph.input("x", "f32", [3]), graph.input("t", "f32", [3])
    graph.output("sum", graph.add("binary", [x, t], {"kind": "add"})[0])
    graph.output("product", graph.add("binary", [x, t], {"kind": "mul"})[0])
    return tenon.Model(graph, store(), device="cpu")


def counting(trips):
    """x + trips, one at a time, in a loop of that many trips: it takes long and can be cancelled between trips."""
    test = tenon.Graph("test")
    i = test.input("i", "i64", [])
    test.input("x", "f32", [])
    test.output("more", test.add("compare", [i, test.constant(np.array(trips))], {"kind": "lt"})[0])
    body = tenon.Graph("body")
    i, x = body.input("i", "i64", []), body.input("x", "f32", [])
    body.output("i", body.add("binary", [i, body.constant(np.array(1))], {"kind": "add"})[0])
    body.output("x", body.add("binary", [x, body.constant(np.array(1, np.float32))], {"kind": "add"})[0])
    graph = tenon.Graph("counting")
    x = graph.input("x", "f32", [])
    start = graph.constant(np.array(0))
    _, y = graph.add("while", [[start, x], []], {"cond": test, "body": body}, want=[True, True])
    graph.output("y", y)
    return tenon.Model(graph, store(), device="cpu")


def counting_to():
    """n, counted one at a time: the time of a run depends on its input."""
    test = tenon.Graph("test")
    i, n = test.input("i", "i64", []), test.input("n", "i64", [])
    test.output("more", test.add("compare", [i, n], {"kind": "lt"})[0])
    body = tenon.Graph("body")
    i, n = body.input("i", "i64", []), body.input("n", "i64", [])
    body.output("i", body.add("binary", [i, body.constant(np.array(1))], {"kind": "add"})[0])
    body.output("n", n)
    graph = tenon.Graph("counting_to")
    n = graph.input("n", "i64", [])
    i, _ = graph.add("while", [[graph.constant(np.array(0)), n], []], {"cond": test, "body": body}, want=[True, True])
    graph.output("y", i)
    return tenon.Model(graph, store(), device="cpu")


def python(script, *, timeout=120, code=0, **environment):
    """Runs a script in a process of its own. Returns what it wrote."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), **environment},
    )
    if run.returncode != code:
        raise AssertionError(f"exit status {run.returncode}, expected {code}\n{run.stdout}\n{run.stderr}")
    return run.stdout + run.stderr


def torch_or_skip():
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("needs PyTorch") from None
    return torch


def ml_dtypes_or_skip():
    try:
        import ml_dtypes
    except ImportError:
        raise unittest.SkipTest("needs ml_dtypes") from None
    return ml_dtypes
