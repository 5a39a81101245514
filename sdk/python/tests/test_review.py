# SPDX-License-Identifier: Apache-2.0
"""What Python and NumPy have rules for: comparison, iteration, copies, numbers; and what the package checks itself."""

import copy
import os
import pickle
import tempfile
import unittest
from pathlib import Path

import numpy as np
import programs

import tenon
from tenon import ops

T = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


class Tensors(unittest.TestCase):
    def test_equality_is_elementwise(self):
        t = tenon.tensor([1.0, 2.0, 3.0])
        for left, right in ((t, 2.0), (2.0, t), (t, np.float32([0, 2, 0])), (t, tenon.tensor([0.0, 2, 0]))):
            self.assertEqual((left == right).tolist(), [False, True, False])
            self.assertEqual((left != right).tolist(), [True, False, True])
        self.assertIs(t == None, False)
        self.assertIs(t != "a", True)
        self.assertTrue(2.0 in t)
        self.assertFalse(5.0 in t)
        self.assertFalse("a" in t)
        with self.assertRaisesRegex(TypeError, "unhashable"):
            hash(t)
        with self.assertRaises(tenon.ShapeMismatch):
            self.assertTrue(t == tenon.tensor([1.0, 2.0]))
        self.assertEqual(tenon.function(lambda x: x == 2.0)(t).tolist(), [False, True, False])

    def test_iteration(self):
        self.assertEqual([row.tolist() for row in tenon.tensor(T)], T.tolist())
        with self.assertRaisesRegex(TypeError, "without dims"):
            list(tenon.tensor(1.0))
        with self.assertRaisesRegex(TypeError, "without dims"):
            len(tenon.tensor(1.0))

    def test_reductions_of_numpy(self):
        for name in ("sum", "mean", "max", "min", "prod"):
            function = getattr(np, name)
            for kwargs in ({}, {"axis": 1}, {"axis": (0, 1)}, {"axis": 0, "keepdims": True}):
                with self.subTest(name, **kwargs):
                    np.testing.assert_allclose(np.asarray(function(tenon.tensor(T), **kwargs)), function(T, **kwargs))
        y = np.sum(tenon.tensor(T), axis=0, dtype=np.float64)
        self.assertEqual((y.dtype, y.tolist()), (tenon.f64, [5, 7, 9]))
        b = np.array([[True, False], [True, True]])
        self.assertEqual(np.any(tenon.tensor(b), axis=1).tolist(), [True, True])
        self.assertEqual(np.all(tenon.tensor(b), axis=1).tolist(), [False, True])
        self.assertEqual(float(tenon.function(lambda x: np.sum(x))(T)), 21)
        with self.assertRaisesRegex(tenon.Unsupported, "sum: out: expected None, got ndarray"):
            np.sum(tenon.tensor(T), out=np.empty(()))

    def test_read_only_memory_is_not_lent_to_pytorch(self):
        torch = programs.torch_or_skip()
        a = np.ones(4, np.float32)
        a.flags.writeable = False
        t = tenon.asarray(a)
        with self.assertRaisesRegex(tenon.InvalidArgument, r"read-only.*tenon.tensor\(t\).torch\(\)"):
            t.torch()
        self.assertEqual(tenon.tensor(t).torch().add_(1).tolist(), [2] * 4)
        self.assertEqual(a.tolist(), [1] * 4)
        self.assertTrue(torch.equal(tenon.asarray(np.ones(2, np.float32)).torch(), torch.ones(2)))

    def test_copies(self):
        for a in (T, T.T, np.float64(2.5), np.zeros((0, 2), np.int8), np.array([True, False])):
            t = tenon.asarray(np.asarray(a))
            for u in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
                self.assertIs(type(u), tenon.Tensor)
                self.assertNotEqual(u.data_ptr, t.data_ptr)
                self.assertIs(u.dtype, t.dtype)
                np.testing.assert_array_equal(u.numpy(), a)

    def test_numbers(self):
        t = tenon.tensor([1.234, 2.0])
        self.assertEqual(f"{t[0]:.2f}", "1.23")
        self.assertEqual(f"{t}", str(t))
        with self.assertRaisesRegex(TypeError, "format string"):
            f"{t:.2f}"
        self.assertEqual(complex(t[1]), 2 + 0j)
        self.assertEqual(complex(tenon.tensor(np.complex64(1 + 2j))), 1 + 2j)

    def test_numbers_that_a_dtype_does_not_hold(self):
        for data, dtype, text in (
            ([300], "u8", "300 is no u8; expected 0 to 255"),
            ([1, -1], "u64", "-1 is no u64"),
            (1 << 70, "i64", f"{1 << 70} is no i64"),
            ([1e10], "i32", "no i32"),
            ([float("nan")], "i32", "nan is no i32"),
        ):
            with self.subTest(text), self.assertRaisesRegex(tenon.DtypeMismatch, text):
                tenon.tensor(data, dtype)
        self.assertEqual(tenon.tensor([255, 0], "u8").tolist(), [255, 0])
        self.assertEqual(tenon.tensor([(1 << 64) - 1], "u64").tolist(), [(1 << 64) - 1])
        self.assertEqual(tenon.tensor([], "i32").shape, (0,))
        self.assertEqual(tenon.tensor(np.array([300]), "u8").tolist(), [44])  # of arrays: as astype()

    def test_another_dtype_from_pytorch(self):
        torch = programs.torch_or_skip()
        programs.ml_dtypes_or_skip()
        t = tenon.tensor(torch.tensor([1.5, 2.0], dtype=torch.bfloat16), "f32")
        self.assertEqual((t.dtype, t.tolist()), (tenon.f32, [1.5, 2.0]))

    def test_devices_that_are_not_there(self):
        t = tenon.tensor([1.0])
        for device in ("cpu:7", "cpuxyz", "npu:0"):
            with self.subTest(device), self.assertRaisesRegex(tenon.Error, device):
                t.to(device)
        with self.assertRaisesRegex(tenon.InvalidArgument, "got int"):
            t.to(0)
        self.assertIs(t.to("cpu:0"), t)

    def test_help_names_the_methods(self):
        for cls in (tenon.Tensor, tenon.Traced):
            for name in ("__add__", "sum", "reshape", "__pos__", "__len__", "__eq__"):
                self.assertEqual(getattr(cls, name).__name__, name)
        for name in ("numpy", "to", "__float__"):
            self.assertEqual(getattr(tenon.Tensor, name).__name__, name)
        self.assertEqual((ops.negative.__name__, ops.abs.__name__), ("negative", "abs"))


class Models(unittest.TestCase):
    def test_a_folder_holds_one_model(self):
        graph = tenon.Graph("scaled")
        x, w = graph.input("x", "f32", [3]), graph.weight("w", "f32", [3])
        graph.output("y", graph.add("binary", [x, w], {"kind": "mul"})[0])
        store = programs.store()
        store.set("w", np.full(3, 2, np.float32))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            tenon.Model(graph, store, device="cpu").save(folder)
            self.assertEqual({p.name for p in path.iterdir()}, {"graph.tng", "weights.safetensors"})
            self.assertEqual(tenon.load(folder, device="cpu")(np.ones(3, np.float32)).tolist(), [2, 2, 2])
            programs.double().save(folder)
            self.assertEqual({p.name for p in path.iterdir()}, {"graph.tng"})
            self.assertEqual(tenon.load(folder, device="cpu").store.names(), [])

    def test_a_graph_that_changes(self):
        m = programs.double()
        m.graph.output("more", m.graph.outputs()[0][1])
        self.assertEqual(list(m.outputs), ["y"])
        self.assertIsInstance(m(np.ones(4, np.float32)), tenon.Tensor)
        for name, use in {"to": lambda: m.to("cpu"), "bind": m.bind, "save": lambda: m.save("/nowhere")}.items():
            with self.assertRaisesRegex(tenon.InvalidArgument, f"{name}: the graph has changed.*were y; now y, more"):
                use()
        self.assertEqual(list(tenon.Model(m.graph, m.store, device="cpu").outputs), ["y", "more"])

    def test_options_are_checked(self):
        for options, text in (
            ({"lane": 2}, "no option 'lane'; expected one of allow_fallback, .*, lanes"),
            ({"lanes": -1}, "lanes=-1; expected 0 or more"),
            ({"lanes": 1 << 40}, "lanes=1099511627776; expected 0 to 4294967295"),
            ({"lanes": 1.5}, "lanes: expected a whole number, got 1.5"),
            ({"fuse": "no"}, "fuse: expected True or False, got 'no'"),
            ({"exec_mode": 1}, "exec_mode: expected a str, got 1"),
            ({"pins": ["cpu"]}, "pins: expected a mapping or pairs"),
            ({"pins": {"*": 3}}, "pins: expected a str, got 3"),
            ({"memory_limits": [-1]}, "memory_limits=-1; expected 0 or more"),
            ({"buckets": {"N": 8}}, 'buckets: N: expected "pow2" or sizes, got 8'),
        ):
            with self.subTest(text), self.assertRaisesRegex(tenon.InvalidArgument, text):
                programs.double(("N",), **options)
        with self.assertRaisesRegex(tenon.InvalidArgument, "device: expected a str, got 0"):
            tenon.Model(programs.double().graph, device=0)
        for pins in ({"*": "cpu"}, [("*", "cpu")]):
            self.assertEqual(programs.double(pins=pins).report.nodes[0].device, "cpu:0")
        m = programs.double(("N",), buckets={"N": [4, 8]}, memory_limits=1 << 30, lanes=np.int64(0))
        self.assertEqual(m.to("cpu")(np.ones(3, np.float32)).tolist(), [2, 2, 2])

    def test_numbers_of_symbols_are_checked(self):
        m = programs.double(("N",))
        for number in (3.5, "3", None):
            with self.assertRaisesRegex(tenon.InvalidArgument, f"bind: N: expected a whole number, got {number!r}"):
                m.bind(N=number)
        with self.assertRaisesRegex(tenon.InvalidArgument, "bind: N=1180591620717411303424; expected 0 to"):
            m.bind(N=1 << 70)
        self.assertEqual(m.bind(N=np.int32(3)).inputs["x"].shape, (3,))

    def test_what_load_takes(self):
        one = tenon.load(programs.EXAMPLES / "line.onnx", trainable="w*", device="cpu")
        several = tenon.load(programs.EXAMPLES / "line.onnx", trainable=["w*"], device="cpu")
        trainable = [t for _, _, t in one.graph.named("weight")]
        self.assertEqual(trainable, [t for _, _, t in several.graph.named("weight")])
        self.assertIn(True, trainable)
        with tempfile.TemporaryDirectory() as folder:
            programs.double().save(folder)
            path = Path(folder) / "graph.tng"
            for options in ({"fixed": {"x": np.ones(4, np.float32)}}, {"trainable": "w"}):
                for given in (folder, path):
                    with self.assertRaisesRegex(
                        tenon.InvalidArgument, f"{next(iter(options))}: it is for models of ONNX"
                    ):
                        tenon.load(given, **options)
            path.write_bytes(b"graph \xff\xfe")
            with self.assertRaisesRegex(
                tenon.Error, "expected a graph as text, in UTF-8; got other bytes at 6"
            ) as caught:
                tenon.load(path)
            self.assertEqual(caught.exception.code, "corrupt")

    def test_threads(self):
        with self.assertRaisesRegex(tenon.InvalidArgument, "threads=-1; expected 0 or more"):
            tenon.set_threads(-1)
        with self.assertRaisesRegex(tenon.InvalidArgument, "expected a whole number, got 1.5"):
            tenon.set_threads(1.5)
        most = len(os.sched_getaffinity(0))
        with self.assertRaisesRegex(tenon.InvalidArgument, f"threads={most + 1}; expected 0 to {most}"):
            tenon.set_threads(most + 1)


class Functions(unittest.TestCase):
    def test_static_numbers_are_told_apart(self):
        @tenon.function(static=("y",))
        def add(x, y):
            return x * (y if isinstance(y, float) else y[0])

        x = np.ones(1, np.float32)
        for zero in (0.0, -0.0, (0.0,), (-0.0,), (0,), 0.0):
            sign = np.signbit(zero if isinstance(zero, float) else float(zero[0]))
            self.assertEqual(np.signbit(add(x, zero).numpy()[0]), sign)
        self.assertEqual(add.trace_count, 5)
        for _ in range(2):
            self.assertTrue(np.isnan(add(x, float("nan")).numpy()[0]))
        self.assertEqual(add.trace_count, 6)

    def test_the_graphs_that_are_kept(self):
        @tenon.function
        def double(x):
            return x + x

        for n in range(1, 71):
            double(np.ones(n, np.float32))
            double(np.ones(1, np.float32))
        self.assertEqual((double.trace_count, len(double._compiled)), (70, 64))
        double(np.ones(70, np.float32))
        self.assertEqual(double.trace_count, 70)
        self.assertEqual(double(np.ones(2, np.float32)).tolist(), [2, 2])
        self.assertEqual((double.trace_count, len(double._compiled)), (71, 64))
        double.clear()
        self.assertEqual((double.trace_count, len(double._compiled)), (0, 0))


if __name__ == "__main__":
    unittest.main()
