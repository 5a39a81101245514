# SPDX-License-Identifier: Apache-2.0
"""Graphs: everything that programs are built from, and the catalog of ops."""

import tempfile
import unittest
from pathlib import Path

import numpy as np
import programs

import tenon
from tenon import _tenon

F = np.float32


class Values(unittest.TestCase):
    def test_types(self):
        g = tenon.Graph("g")
        x = g.input("x", tenon.f32, ["N", 4])
        w = g.weight("w", "bf16", [4])
        (y,) = g.add("binary", [x, x], {"kind": "add"})
        self.assertEqual((x.shape, x.dtype, w.shape, w.dtype, y.dtype), (("N", 4), tenon.f32, (4,), tenon.bf16, tenon.f32))
        self.assertEqual([g.input(str(d), d, []).dtype for d in (F, np.dtype("int8"))], [tenon.f32, tenon.i8])
        self.assertEqual(repr(x), f"<tenon.Value {x.id}: f32[N,4]>")
        self.assertIs(x.graph, g)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "no such dtype"):
            g.input("z", object(), [])
        self.assertEqual(len({x, g.named("input")[0][1]}), 1)
        self.assertNotEqual(x, y)
        self.assertFalse(x == 3)
        g.output("y", y)
        self.assertEqual([(n, v) for n, v in g.outputs()], [("y", y)])
        self.assertEqual(g.named("weight"), [("w", w, True)])
        self.assertEqual(str(tenon.Graph.parse(str(g))), str(g))

    def test_operands_of_all_kinds(self):
        g = tenon.Graph()
        x, t = g.input("x", "f32", [2, 3]), g.input("t", "f32", [1, 3])
        (joined,) = g.add("concat", [[x, t]], {"axis": 0})
        y, inv = g.add("rms_norm", [joined, g.constant(np.ones(3, F)), None], {"eps": 0.0}, want=[True, True])
        self.assertEqual((joined.shape, y.shape, inv.dtype), ((3, 3), (3, 3), tenon.f32))
        left_out = g.add("rms_norm", [joined, g.constant(np.ones(3, F))])
        self.assertIsNone(left_out[1])
        (half,) = g.add("cast", [y], {"to": tenon.f16})
        self.assertEqual(half.dtype, tenon.f16)
        g.output("y", y)
        ones = np.ones((2, 3), F)
        np.testing.assert_allclose(tenon.Model(g, device="cpu")(ones, ones[:1]).numpy(), np.ones((3, 3)), rtol=1e-6)

    def test_functions(self):
        self.assertEqual(float(programs.counting(5)(2)), 7)


class Derivatives(unittest.TestCase):
    def test_gradients(self):
        g = tenon.Graph()
        x = g.input("x", "f32", [3])
        (square,) = g.add("unary", [x], {"kind": "square"})
        (loss,) = g.add("reduce", [square], {"kind": "sum", "axes": [0]})
        (dx,) = g.gradients(loss, [x])
        g.output("dx", dx)
        self.assertEqual(tenon.Model(g, device="cpu")(F([1, 2, 3])).tolist(), [2, 4, 6])

    def test_jvp(self):
        g = tenon.Graph()
        x, t = g.input("x", "f32", [3]), g.input("t", "f32", [3])
        (square,) = g.add("unary", [x], {"kind": "square"})
        g.output("dy", g.jvp([square], [x], [t])[0])
        self.assertEqual(tenon.Model(g, device="cpu")(F([1, 2, 3]), F([1, 0, 2])).tolist(), [2, 0, 12])

    def test_training(self):
        g = tenon.Graph("line")
        x, t = g.input("x", "f32", [4, 2]), g.input("t", "f32", [4, 1])
        w = g.weight("w", "f32", [2, 1])
        (error,) = g.add("binary", [g.add("matmul", [x, w])[0], t], {"kind": "sub"})
        g.checkpoint([w], [error])
        (square,) = g.add("unary", [error], {"kind": "square"})
        (loss,) = g.add("reduce", [square], {"kind": "mean", "axes": [0, 1]})
        g.output("loss", loss)
        g.output("norm", g.minimize(loss, g.constant(F(0.1)), kind="adamw", weight_decay=0.0))
        store = programs.store()
        store.set("w", np.zeros((2, 1), F))
        store.add_missing(g)
        self.assertEqual(store.names(), ["w"])
        self.assertIn("w.m", store.names("state"))
        step = tenon.Model(g, store, device="cpu")
        data = F([[1, 0], [0, 1], [1, 1], [2, 1]]), F([[2], [-1], [1], [3]])
        losses = [float(step(*data)["loss"]) for _ in range(200)]
        self.assertAlmostEqual(losses[0], 3.75, places=5)
        self.assertLess(losses[-1], 1e-3)
        np.testing.assert_allclose(store.get("w").numpy(), [[2], [-1]], atol=0.05)

    def test_updates(self):
        g = tenon.Graph()
        n = g.state("n", "i64", [])
        (more,) = g.add("binary", [n, g.constant(np.array(1))], {"kind": "add"})
        g.update(n, more)
        g.output("n", more)
        store = programs.store()
        store.add_missing(g)
        m = tenon.Model(g, store, device="cpu")
        self.assertEqual([int(m()) for _ in range(3)], [1, 2, 3])
        self.assertEqual(int(store.get("n", "state")), 3)


class Weights(unittest.TestCase):
    def test_store(self):
        store = programs.store()
        a = np.arange(6, dtype=F).reshape(2, 3)
        store.set("a", a.T)
        np.testing.assert_array_equal(store.get("a").numpy(), a.T)
        store.set("n", np.array(3), "state")
        self.assertEqual((store.names(), store.names("state")), (["a"], ["n"]))
        with self.assertRaisesRegex(tenon.NotFound, "'b'"):
            store.get("b")
        with self.assertRaisesRegex(tenon.InvalidArgument, 'expected "weight" or "state"'):
            store.names("input")
        store.remove("a")
        self.assertEqual(store.names(), [])

    def test_fixed_inputs(self):
        ones = np.ones((3, 2), F)
        m = tenon.load(programs.EXAMPLES / "line.onnx", fixed={"x": ones})
        self.assertEqual(m.inputs, {})
        np.testing.assert_array_equal(m().numpy(), tenon.load(programs.EXAMPLES / "line.onnx")(ones).numpy())

    def test_unknown_names(self):
        path = programs.EXAMPLES / "line.onnx"
        with self.assertRaisesRegex(tenon.NotFound, r"fixed input 'z': expected an input of the model \('x'\)"):
            tenon.load(path, fixed={"z": np.ones((3, 2), F)})
        with self.assertRaisesRegex(tenon.NotFound, r"trainable weight 'v\*': expected a weight .* \('w'"):
            tenon.load(path, trainable="v*")
        with self.assertRaisesRegex(tenon.NotFound, "no symbol 'N'; it has none"):
            tenon.load(path, bind={"N": 3})

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "w.safetensors")
            store = programs.store()
            store.set("a", F([1, 2]))
            store._save(path)
            other = programs.store()
            other._load(path)
            self.assertEqual(other.get("a").tolist(), [1, 2])
            with self.assertRaises(tenon.Error):
                other._load(str(Path(folder) / "none"))


class Catalog(unittest.TestCase):
    def test_ops(self):
        ops = {op["name"]: op for op in _tenon._ops() if op["domain"] == "tenon"}
        parts = {p["name"]: p for p in ops["rms_norm"]["parts"]}
        self.assertEqual(
            [(n, parts[n]["kind"]) for n in ("x", "gamma", "beta", "eps", "y", "inv_rms")],
            [
                ("x", "operand"),
                ("gamma", "operand"),
                ("beta", "optional_operand"),
                ("eps", "attribute"),
                ("y", "output"),
                ("inv_rms", "optional_output"),
            ],
        )
        self.assertEqual((parts["eps"]["type"], parts["axis"]["default"]), ("f64", -1))
        kinds = next(p for p in ops["reduce"]["parts"] if p["name"] == "kind")
        self.assertIn("mean", kinds["values"])
        self.assertGreater(len(ops), 100)


if __name__ == "__main__":
    unittest.main()
