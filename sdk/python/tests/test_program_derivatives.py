# SPDX-License-Identifier: Apache-2.0
"""grad, value_and_grad, jvp, vjp, vmap and checkpoint: against finite differences and PyTorch, alone and combined."""

import unittest

import numpy as np
from programs import torch_or_skip

import tenon
from tenon import ops

RNG = np.random.default_rng(7)
X, W, B = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5)), RNG.standard_normal(5)


def net(params, x):
    h = ops.gelu(x @ params["layers"][0]["w"] + params["layers"][0]["b"])
    return ops.layer_norm(h) @ params["out"]


PARAMS = {"layers": [{"w": W, "b": B}], "out": RNG.standard_normal((5, 2))}


def loss(params, x):
    return ops.mean(ops.square(net(params, x)))


def torch_loss(torch):
    f = torch.nn.functional

    def loss(params, x):
        h = f.gelu(x @ params["layers"][0]["w"] + params["layers"][0]["b"])
        return (f.layer_norm(h, (5,)) @ params["out"]).square().mean()

    return loss


def torch_tree(torch, tree):
    return tenon.tree.map(lambda x: torch.tensor(x, requires_grad=True), tree)


def assert_close(actual, expected, tolerance=1e-9):
    ours, theirs = tenon.tree.flatten(actual), tenon.tree.flatten(expected)
    assert ours[1] == theirs[1], (ours[1], theirs[1])
    for a, e in zip(ours[0], theirs[0]):
        e = e.detach().numpy() if hasattr(e, "detach") else np.asarray(e)
        np.testing.assert_allclose(np.asarray(a), e, rtol=tolerance, atol=tolerance)


def differences(function, x, step=1e-6):
    """The gradient of a function of one array, by central differences."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (float(function(up)) - float(function(down))) / (2 * step)
    return out


class Gradients(unittest.TestCase):
    def test_against_differences(self):
        for f in (
            lambda x: ops.sum(ops.sin(x) * ops.exp(x * 0.3)),
            lambda x: (x @ W).max(1).sum(),
            lambda x: ops.logsumexp(ops.cumsum(x, 0)),
            lambda x: (x[1:, ::-2] ** 3.0 / (ops.abs(x[:3, :2]) + 1.0)).mean(),
            lambda x: ops.sum(ops.where(x > 0.0, x * x, -x)),
        ):
            traced = tenon.function(f)
            assert_close(tenon.grad(f)(X), differences(traced, X), 1e-6)

    def test_against_pytorch(self):
        torch = torch_or_skip()
        params, x = torch_tree(torch, PARAMS), torch.tensor(X, requires_grad=True)
        value = torch_loss(torch)(params, x)
        value.backward()
        ours, (of_params, of_x) = tenon.value_and_grad(loss, argnums=(0, 1))(PARAMS, X)
        assert_close(ours, value)
        assert_close(of_params, tenon.tree.map(lambda p: p.grad, params))
        assert_close(of_x, x.grad)

    def test_in_a_traced_function(self):
        @tenon.function
        def step(params, x):
            value, gradient = tenon.value_and_grad(loss)(params, x)
            return tenon.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value

        after, value = step(PARAMS, X)
        expected = tenon.grad(loss)(PARAMS, X)
        assert_close(after, tenon.tree.map(lambda p, g: p - 0.1 * g.numpy(), PARAMS, expected))
        self.assertLess(float(tenon.function(loss)(after, X)), float(value))
        step(after, X)
        self.assertEqual(step.trace_count, 1)

    def test_of_traced_functions(self):
        f = tenon.function(lambda x: ops.sin(x).sum())
        assert_close(tenon.grad(f)(X), np.cos(X))
        assert_close(tenon.vmap(f)(X), np.sin(X).sum(1))
        assert_close(tenon.jvp(f, (X,), (np.ones_like(X),))[1], np.cos(X).sum())
        self.assertEqual(f.trace_count, 0)

    def test_aux(self):
        def f(x):
            return (x * x).sum(), {"double": x * 2.0}

        gradient, aux = tenon.grad(f, has_aux=True)(X)
        assert_close(gradient, 2 * X)
        assert_close(aux, {"double": 2 * X})
        (value, aux), gradient = tenon.value_and_grad(f, has_aux=True)(X)
        assert_close(value, (X * X).sum())
        with self.assertRaisesRegex(tenon.InvalidArgument, "expected a pair of loss and aux"):
            tenon.grad(lambda x: x.sum(), has_aux=True)(X)

    def test_what_the_loss_does_not_use_has_zeros(self):
        assert_close(
            tenon.grad(lambda p: p["a"].sum())({"a": X, "b": B}), {"a": np.ones_like(X), "b": np.zeros_like(B)}
        )

    def test_captured_values_are_constants(self):
        """d/dv of v·w with w = 2·v captured is w alone."""

        @tenon.function
        def f(v):
            w = v * 2.0
            return tenon.grad(lambda u: (u * w).sum())(v)

        assert_close(f(X), 2 * X)

    def test_gradients_of_gradients(self):
        third = tenon.grad(lambda x: tenon.grad(lambda y: tenon.grad(lambda z: (z**4.0).sum())(y).sum())(x).sum())
        assert_close(third(X), 24 * X)

        def inner(x, a):  # the inner gradient uses the value of the outer one
            return tenon.grad(lambda y: (y * y * a * x).sum())(x)

        assert_close(tenon.grad(lambda x: inner(x, 3.0).sum())(X), 12 * X)

    def test_errors(self):
        for f, x, message in (
            (lambda x: x, X, r"expected a loss that is one float, got Traced\(f64\[4,3\]\).*hint: .sum\(\)"),
            (lambda x: x.sum(), X.astype(np.int32), r"argument 0: expected floats, got Traced\(i32\[4,3\]\)"),
            (lambda x: "no", X, "expected one float as its result, got str"),
        ):
            with self.assertRaisesRegex(tenon.Error, message):
                tenon.grad(f)(x)
        with self.assertRaisesRegex(tenon.InvalidArgument, "argnums: 3; expected numbers below 1"):
            tenon.grad(lambda x: x.sum(), argnums=3)(X)
        with self.assertRaisesRegex(tenon.Unsupported, "argmax"):  # no way to the loss has a gradient
            tenon.grad(lambda x: ops.argmax(x).astype("f64").sum())(X)

    def test_kept_between_calls(self):
        traces = []

        def f(x):
            traces.append(1)
            return (x * x).sum()

        g = tenon.grad(f)
        for _ in range(3):
            assert_close(g(X), 2 * X)
        self.assertEqual(len(traces), 1)

    def test_checkpoint(self):
        def layer(x, w):
            return ops.tanh(x @ w) @ w.T

        def f(x, w, mark):
            g = tenon.checkpoint(layer) if mark else layer
            return ops.sum(ops.square(g(g(x, w), w)))

        plain, marked = (tenon.grad(f, argnums=(0, 1))(X, W, mark) for mark in (False, True))
        assert_close(marked, plain, 0)
        text = str(tenon.function(lambda x, w: tenon.grad(f)(x, w, True)).model(X, W).graph)
        self.assertIn("recompute 2", text)


class Directional(unittest.TestCase):
    def test_jvp_against_pytorch(self):
        torch = torch_or_skip()
        along = tenon.tree.map(lambda p: RNG.standard_normal(p.shape), PARAMS)
        value, slope = tenon.jvp(net, (PARAMS, X), (along, X))

        def f(params, x):
            g = torch.nn.functional
            h = g.gelu(x @ params["layers"][0]["w"] + params["layers"][0]["b"])
            return g.layer_norm(h, (5,)) @ params["out"]

        def tensors(tree):
            return tenon.tree.map(torch.tensor, tree)

        expected, expected_slope = torch.func.jvp(
            f, (tensors(PARAMS), torch.tensor(X)), (tensors(along), torch.tensor(X))
        )
        assert_close(value, expected)
        assert_close(slope, expected_slope)

    def test_jvp_of_a_gradient_is_a_product_with_the_hessian(self):
        hvp = tenon.function(lambda x, v: tenon.jvp(tenon.grad(lambda y: (ops.sin(y) * y).sum()), (x,), (v,))[1])
        assert_close(hvp(X, np.ones_like(X)), 2 * np.cos(X) - X * np.sin(X))

    def test_errors(self):
        with self.assertRaisesRegex(tenon.ShapeMismatch, r"tangents: expected .*f64\[4,3\].*got .*f64\[5\]"):
            tenon.jvp(ops.sin, (X,), (B,))
        with self.assertRaisesRegex(tenon.InvalidArgument, r"tangents: expected the structure"):
            tenon.jvp(lambda p: p["a"], ({"a": X},), ({"b": X},))
        with self.assertRaisesRegex(tenon.InvalidArgument, "1 primals and 2 tangents"):
            tenon.jvp(ops.sin, (X,), (X, X))

    def test_vjp(self):
        @tenon.function
        def f(x, w, t):
            y, back = tenon.vjp(lambda x, w: {"y": ops.tanh(x @ w)}, x, w)
            return y, back({"y": t})

        t = RNG.standard_normal((4, 5))
        y, (dx, dw) = f(X, W, t)
        dz = t * (1 - np.tanh(X @ W) ** 2)
        assert_close(y, {"y": np.tanh(X @ W)})
        assert_close(dx, dz @ W.T)
        assert_close(dw, X.T @ dz)


class Batches(unittest.TestCase):
    def test_axes(self):
        f = tenon.vmap(lambda a, b: {"y": a @ b, "s": a.sum()}, in_axes=(1, None), out_axes={"y": 1, "s": 0})
        a = RNG.standard_normal((3, 7))
        out = f(a, W)
        assert_close(out, {"y": (a.T @ W).T, "s": a.sum(0)})
        assert_close(tenon.vmap(lambda a: a * 2.0, in_axes=-1, out_axes=-1)(a), 2 * a)

    def test_trees_and_keywords(self):
        f = tenon.vmap(lambda p, x, *, t: p["w"] * x + p["b"] + t, in_axes=({"w": 0, "b": None}, 0))
        w, b, x, t = (
            RNG.standard_normal((6, 2)),
            RNG.standard_normal(2),
            RNG.standard_normal((6, 2)),
            RNG.standard_normal((6, 2)),
        )
        assert_close(f({"w": w, "b": b}, x, t=t), w * x + b + t)

    def test_gradients_per_example_against_pytorch(self):
        torch = torch_or_skip()
        ours = tenon.vmap(tenon.grad(loss), in_axes=(None, 0))(PARAMS, X.reshape(2, 2, 3))
        tensors = tenon.tree.map(torch.tensor, PARAMS)
        theirs = torch.func.vmap(torch.func.grad(torch_loss(torch)), (None, 0))(
            tensors, torch.tensor(X.reshape(2, 2, 3))
        )
        assert_close(ours, theirs)

    def test_nested_and_differentiated(self):
        f = tenon.vmap(tenon.vmap(lambda a, b: a * b, in_axes=(0, None)), in_axes=(None, 0))
        assert_close(f(B, X[0]), X[0][:, None] * B)
        g = tenon.grad(lambda x: tenon.vmap(lambda row: ops.sum(row * row) * row[0])(x).sum())
        expected = 2 * X * X[:, :1]
        expected[:, 0] += (X * X).sum(1)
        assert_close(g(X), expected)

    def test_jacobian(self):
        def jacobian(x):
            return tenon.vmap(lambda t: tenon.jvp(lambda v: ops.sin(v) * v[0], (x,), (t,))[1])(np.eye(3))

        expected = np.diag(np.cos(X[0])) * X[0, 0]
        expected[0] += np.sin(X[0])
        assert_close(tenon.function(jacobian)(X[0]), expected)

    def test_captured_values(self):
        @tenon.function
        def f(x, w):
            scaled = w * 2.0
            return tenon.vmap(lambda row: tenon.vmap(lambda e: e * scaled.sum() + row[0])(row))(x)

        assert_close(f(X, W), X * W.sum() * 2 + X[:, :1])

    def test_errors(self):
        for axes, args, message in (
            (0, (X, W), "batches of 4 and 3 examples"),
            ((0,), (X, W), "in_axes: 1 entries; expected one for each of 2"),
            (None, (X,), "no argument has a batch"),
            (2, (X,), r"in_axes: 2; got Traced\(f64\[4,3\]\), which has no such axis"),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(tenon.Error, message):
                tenon.vmap(lambda *a: a[0], in_axes=axes)(*args)


class ControlFlow(unittest.TestCase):
    def test_cond(self):
        @tenon.function
        def f(x, y):
            return tenon.cond(x.sum() > 0.0, lambda a: {"r": a * y}, lambda a: {"r": a - x}, y)

        assert_close(f(abs(X), X), {"r": X * X})
        assert_close(f(-abs(X), X), {"r": X + abs(X)})
        gradient = tenon.grad(lambda x: tenon.cond(x.sum() > 0.0, lambda: (x * x).sum(), lambda: x.sum()))
        assert_close(gradient(abs(X)), 2 * abs(X))
        assert_close(gradient(-abs(X)), np.ones_like(X))
        assert_close(tenon.cond(True, lambda a: a, lambda a: -a, X), X)
        with self.assertRaisesRegex(
            tenon.ShapeMismatch, r"true_fun returns \* of f64\[4, 3\]; false_fun \* of f64\[3\]"
        ):
            tenon.cond(True, lambda a: a, lambda a: a[0], X)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "expected a bool of one element"):
            tenon.function(lambda x: tenon.cond(x, lambda: x, lambda: x))(X)

    def test_while_loop(self):
        @tenon.function
        def power(x, n):
            return tenon.while_loop(
                lambda c: c["i"] < n, lambda c: {"i": c["i"] + 1, "y": c["y"] * x}, {"i": np.array(0), "y": x}
            )["y"]

        assert_close(power(X, 3), X**4)
        assert_close(power(X, 0), X)
        self.assertEqual(power.trace_count, 1)
        f = tenon.grad(
            lambda x: tenon.while_loop(
                lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (np.array(0), x), max_trips=5
            )[1].sum()
        )
        assert_close(f(X), 4 * X**3)
        with self.assertRaisesRegex(tenon.ShapeMismatch, "the carry is .*, the function returns"):
            tenon.while_loop(lambda c: c.sum() < 3.0, lambda c: c[0], X)

    def test_scan(self):
        @tenon.function
        def sums(x, scale):
            return tenon.scan(lambda c, row: (c + row * scale, {"before": c}), np.zeros(3), x)

        last, ys = sums(X, np.full(3, 2.0))
        assert_close(last, 2 * X.sum(0))
        assert_close(ys, {"before": 2 * np.cumsum(X, 0) - 2 * X})
        assert_close(tenon.scan(lambda c, _: (c * 2.0, None), X, length=3), (8 * X, None))
        assert_close(
            tenon.scan(lambda c, row: (c + row, c), np.zeros(3), X, reverse=True)[1], np.cumsum(X[::-1], 0)[::-1] - X
        )
        f = tenon.grad(lambda x: tenon.scan(lambda c, row: (ops.tanh(c * row) + row, None), x[0], x)[0].sum())
        g = tenon.function(lambda x: tenon.scan(lambda c, row: (ops.tanh(c * row) + row, None), x[0], x)[0].sum())
        assert_close(f(X), differences(g, X), 1e-6)
        with self.assertRaisesRegex(tenon.ShapeMismatch, "expected 4 slices along axis 0"):
            tenon.scan(lambda c, r: (c, r), X, (X, X[:2]))
        with self.assertRaisesRegex(tenon.InvalidArgument, "expected a pair: carry and y"):
            tenon.scan(lambda c, r: c, X, X)


if __name__ == "__main__":
    unittest.main()
