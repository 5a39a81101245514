# SPDX-License-Identifier: Apache-2.0
"""Optimizers over trees: against PyTorch and NumPy. Training loops: no further trace, no copy of what is large."""

import unittest

import numpy as np
from programs import torch_or_skip

import tenon
from tenon import ops, optim

RNG = np.random.default_rng(3)
PARAMS = {"w": RNG.standard_normal((4, 3)), "layers": [{"b": RNG.standard_normal(3)}]}
GRADIENTS = [tenon.tree.map(lambda p: RNG.standard_normal(p.shape), PARAMS) for _ in range(4)]


def run(optimizer, rates=(None,) * 4):
    """The parameters after four steps, in a traced function."""

    @tenon.function
    def step(params, state, gradients, rate):
        return optimizer.update(params, gradients, state, rate)

    params, state = PARAMS, optimizer.init(PARAMS)
    for gradients, rate in zip(GRADIENTS, rates):
        params, state = step(params, state, gradients, rate)
    assert step.trace_count == 1, step.trace_count
    assert int(state["step"]) == 4
    return tenon.tree.map(np.asarray, params)


class Optimizers(unittest.TestCase):
    def check(self, ours, theirs, clip=None):
        torch = torch_or_skip()
        leaves, _ = tenon.tree.flatten(PARAMS)
        tensors = [torch.tensor(p, requires_grad=True) for p in leaves]
        optimizer = theirs(torch, tensors)
        for gradients in GRADIENTS:
            for t, g in zip(tensors, tenon.tree.flatten(gradients)[0]):
                t.grad = torch.tensor(g)
            if clip:
                torch.nn.utils.clip_grad_norm_(tensors, clip)
            optimizer.step()
        for a, b in zip(tenon.tree.flatten(run(ours))[0], tensors):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=3e-6, atol=3e-7)

    def test_sgd(self):
        self.check(optim.sgd(0.1, weight_decay=0.01), lambda t, p: t.optim.SGD(p, 0.1, weight_decay=0.01))
        self.check(optim.sgd(0.1, momentum=0.9), lambda t, p: t.optim.SGD(p, 0.1, momentum=0.9))
        self.check(
            optim.sgd(0.1, momentum=0.9, nesterov=True), lambda t, p: t.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)
        )

    def test_adam(self):
        self.check(optim.adam(0.1), lambda t, p: t.optim.Adam(p, 0.1))
        self.check(optim.adamw(0.1, weight_decay=0.2), lambda t, p: t.optim.AdamW(p, 0.1, weight_decay=0.2))

    def test_clipping(self):
        self.check(optim.sgd(0.1, clip_norm=0.5), lambda t, p: t.optim.SGD(p, 0.1), clip=0.5)

    def test_lion(self):
        def lion(w, gradients):
            m = np.zeros_like(w)
            for g in gradients:
                w = w - 0.1 * np.sign(0.9 * m + 0.1 * g)
                m = 0.99 * m + 0.01 * g
            return w

        out = run(optim.lion(0.1))
        np.testing.assert_allclose(out["w"], lion(PARAMS["w"], [g["w"] for g in GRADIENTS]), rtol=1e-6)

    def test_learning_rates(self):
        def sgd(rates):
            return PARAMS["w"] - sum(r * g["w"] for r, g in zip(rates, GRADIENTS))

        np.testing.assert_allclose(run(optim.sgd(9.0), (0.1, 0.2, 0.3, 0.4))["w"], sgd((0.1, 0.2, 0.3, 0.4)), rtol=1e-6)
        schedule = optim.sgd(lambda step: 0.5 / step.astype("f32"))
        np.testing.assert_allclose(run(schedule)["w"], sgd((0.5, 0.25, 0.5 / 3, 0.125)), rtol=1e-6)

    def test_decay_of_matrices_alone(self):
        out = run(optim.sgd(0.1, weight_decay=0.5, decay_min_rank=2))
        plain = run(optim.sgd(0.1))
        self.assertGreater(abs(out["w"] - plain["w"]).max(), 0.01)
        np.testing.assert_array_equal(out["layers"][0]["b"], plain["layers"][0]["b"])

    def test_state(self):
        state = optim.adamw().init({"h": np.ones((2,), np.float16), "w": np.ones((3,), np.float64)})
        self.assertEqual(set(state), {"step", "m", "v"})
        self.assertEqual((state["m"]["h"].dtype, state["v"]["w"].dtype), (np.float32, np.float64))
        with self.assertRaisesRegex(tenon.DtypeMismatch, r"expected parameters that are floats, got i64\[\]"):
            optim.adamw().init({"n": 3})

    def test_without_a_trace(self):
        optimizer = optim.adamw(0.1, weight_decay=0.2)
        params, state = PARAMS, optimizer.init(PARAMS)
        for gradients in GRADIENTS:
            params, state = optimizer.update(params, gradients, state)
        np.testing.assert_allclose(params["w"].numpy(), run(optimizer)["w"], rtol=1e-12)


class Loops(unittest.TestCase):
    def test_parameters_stay_where_they_are(self):
        """A loop passes results on: their memory is used by turns, and nothing is traced again."""
        optimizer = optim.adamw(0.01)

        @tenon.function
        def step(params, state, x):
            loss, gradients = tenon.value_and_grad(lambda p: ops.mean(ops.square(x @ p["w"])))(params)
            return *optimizer.update(params, gradients, state), loss

        params = {"w": RNG.standard_normal((256, 256)).astype(np.float32)}
        state, x, places, losses = optimizer.init(params), np.ones((8, 256), np.float32), set(), []
        for _ in range(40):
            params, state, loss = step(params, state, x)
            places.add(params["w"].data_ptr)
            losses.append(float(loss))
        self.assertEqual(step.trace_count, 1)
        self.assertLess(losses[-1], losses[0])
        self.assertLessEqual(len(places), 4)


if __name__ == "__main__":
    unittest.main()
