# SPDX-License-Identifier: Apache-2.0
"""Models: loading, calling, binding, reports, errors, the log."""

import logging
import tempfile
import unittest
from pathlib import Path

import numpy as np
import programs

import tenon

ONES = np.ones((3, 2), np.float32)


class Load(unittest.TestCase):
    def test_onnx(self):
        m = tenon.load(programs.EXAMPLES / "line.onnx")
        self.assertEqual([str(s) for s in (*m.inputs.values(), *m.outputs.values())], ["x: f32[3,2]", "y: f32[3,1]"])
        w = m.store.get("w").numpy() if "w" in m.store.names() else None
        y = m(ONES).numpy()
        self.assertEqual(y.shape, (3, 1))
        self.assertEqual(len({float(v) for v in y[:, 0]}), 1)
        np.testing.assert_array_equal(m(x=ONES).numpy(), y)
        np.testing.assert_array_equal(m({"x": ONES}).numpy(), y)
        if w is not None:
            np.testing.assert_allclose(y[0, 0], w.sum(), rtol=1e-6)

    def test_a_folder_that_was_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            m = tenon.load(programs.EXAMPLES / "line.onnx", trainable=["*"])
            m.save(folder)
            again = tenon.load(folder)
            self.assertEqual(str(again.graph), str(m.graph))
            np.testing.assert_array_equal(again(ONES).numpy(), m(ONES).numpy())
            m.save_onnx(Path(folder) / "again.onnx")
            again = tenon.load(Path(folder) / "again.onnx")
            np.testing.assert_array_equal(again(ONES).numpy(), m(ONES).numpy())

    def test_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "double.tng"
            path.write_text(str(programs.double().graph))
            self.assertEqual(tenon.load(path, device="cpu")(np.ones(4, np.float32)).tolist(), [2, 2, 2, 2])

    def test_what_is_refused(self):
        with self.assertRaisesRegex(tenon.NotFound, "no such file"):
            tenon.load("/nowhere.onnx")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(tenon.NotFound, "expected graph.tng or one file"):
                tenon.load(folder)
            (Path(folder) / "bad.onnx").write_bytes(b"\x08\xff\xff")
            with self.assertRaises(tenon.Error) as caught:
                tenon.load(folder)
            self.assertIn(caught.exception.code, ("corrupt", "unsupported"))
        with self.assertRaisesRegex(tenon.Error, "npu"):
            tenon.load(programs.EXAMPLES / "line.onnx", device="npu:3")


class Call(unittest.TestCase):
    def test_wrong_arguments(self):
        m = programs.double()
        x = np.ones(4, np.float32)
        refused = [
            ((x.astype("f8"),), {}, tenon.DtypeMismatch, r"input 'x': expected f32\[4\], got f64\[4\]"),
            ((np.ones(5, "f4"),), {}, tenon.ShapeMismatch, r"expected f32\[4\], got f32\[5\]"),
            ((np.ones(8, "f4")[::2],), {}, tenon.Unsupported, "strides.*ascontiguousarray"),
            ((1.0,), {}, tenon.ShapeMismatch, "expected 1 dims, got a number"),
            (([1, 2, 3, 4],), {}, tenon.InvalidArgument, "type list"),
            ((x, x), {}, tenon.InvalidArgument, "has 1 inputs, got 2"),
            ((x,), {"x": x}, tenon.InvalidArgument, "given twice"),
            ((), {"z": x}, tenon.NotFound, "no input 'z'; expected x"),
            ((), {}, tenon.InvalidArgument, "input 'x' is not set"),
        ]
        for args, kwargs, error, text in refused:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                m(*args, **kwargs)
        self.assertEqual(m(x).tolist(), [2, 2, 2, 2])

    def test_an_input_left_out_does_not_come_from_an_earlier_call(self):
        for size in (3, 100_000):
            m = programs.model("binary", (size,), attributes={"kind": "add"}, operands=2)
            x = np.ones(size, np.float32)
            m(x, x)
            with self.assertRaisesRegex(tenon.InvalidArgument, "'t' is not set"):
                m(x)

    def test_numbers(self):
        m = programs.double(())
        self.assertEqual((float(m(1.5)), float(m(2)), float(m(True))), (3, 4, 2))
        whole = programs.double((), "i8")
        self.assertEqual(int(whole(-4)), -8)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "expected i8, got a float"):
            whole(1.5)
        for number in (300, 1 << 70):
            with self.assertRaisesRegex(tenon.InvalidArgument, "is no i8"):
                whole(number)

    def test_read_only_inputs_are_taken(self):
        for size in (4, 100_000):
            x = np.ones(size, np.float32)
            x.flags.writeable = False
            self.assertEqual(programs.double((size,))(x).tolist()[:2], [2, 2])

    def test_several_outputs(self):
        m = programs.two_outputs()
        x, t = np.float32([1, 2, 3]), np.float32([4, 5, 6])
        out = m(x, t)
        self.assertEqual(out.names, ("sum", "product"))
        self.assertEqual((out["sum"].tolist(), out[1].tolist()), ([5, 7, 9], [4, 10, 18]))
        total, product = m(t=t, x=x)
        self.assertEqual(product.tolist(), [4, 10, 18])
        with self.assertRaisesRegex(tenon.NotFound, "no 'z'; expected one of sum, product"):
            out["z"]

    def test_outputs_in_memory_of_the_caller(self):
        for size in (4, 100_000):
            m = programs.double((size,))
            x, y = np.ones(size, np.float32), np.zeros(size, np.float32)
            self.assertIs(m(x, out=y), y)
            self.assertEqual(set(y), {2})
            self.assertEqual(m(y).tolist()[:2], [4, 4])  # the binding has ended
            self.assertEqual(y[0], 2)
        y.flags.writeable = False
        with self.assertRaisesRegex(tenon.InvalidArgument, "output 'y': the memory is read-only"):
            m(x, out=y)
        with self.assertRaisesRegex(tenon.ShapeMismatch, "output 'y'"):
            m(x, out=np.zeros(5, np.float32))
        with self.assertRaisesRegex(tenon.InvalidArgument, "overlaps"):
            m(x, out=x)
        with self.assertRaisesRegex(tenon.Unsupported, "strides"):
            m(x, out=np.zeros(2 * size, np.float32)[::2])
        a, b = np.zeros(3, np.float32), tenon.empty([3])
        programs.two_outputs()(np.ones(3, np.float32), np.ones(3, np.float32), out=(a, b))
        self.assertEqual((a.tolist(), b.tolist()), ([2, 2, 2], [1, 1, 1]))
        with self.assertRaisesRegex(tenon.InvalidArgument, "2 outputs"):
            programs.two_outputs()(a, a, out=[b])

    def test_results_stay_what_they_are(self):
        for size in (4, 100_000):
            m = programs.double((size,))
            results = [m(np.full(size, k, np.float32)) for k in range(6)]
            self.assertEqual([float(r[size - 1]) for r in results], [0, 2, 4, 6, 8, 10])

    def test_tensors_as_arguments(self):
        for size in (4, 100_000):
            m = programs.double((size,))
            self.assertEqual(float(m(m(m(np.ones(size, np.float32))))[0]), 8)


class Page(unittest.TestCase):
    def test_the_examples_of_the_page_run(self):
        code = programs.page()
        self.assertIn("tenon.load(", code)
        text = programs.python(f"import os; os.chdir({str(programs.EXAMPLES.parents[1])!r})\n" + code)
        self.assertRegex(text, r"^<tenon.Model on auto: \(x: f32\[3,2\]\) -> \(y: f32\[3,1\]\)>\n\[\[1.5\]\n")


class Bind(unittest.TestCase):
    def test_symbols(self):
        m = programs.double(("N", 2))
        self.assertEqual((m.symbols, m.inputs["x"].shape), (["N"], ("N", 2)))
        for n in (1, 3, 2, 3):
            self.assertEqual(m(np.ones((n, 2), np.float32)).shape, (n, 2))
        bound = m.bind(N=3)
        self.assertEqual((bound.symbols, bound.inputs["x"].shape), ([], (3, 2)))
        self.assertEqual(bound(np.ones((3, 2), np.float32)).tolist(), [[2, 2]] * 3)
        with self.assertRaisesRegex(tenon.ShapeMismatch, r"bound to N=3; got f32\[2,2\]"):
            bound(np.ones((2, 2), np.float32))
        with self.assertRaisesRegex(tenon.NotFound, "no symbol 'K'; it has N"):
            m.bind(K=1)
        with self.assertRaisesRegex(tenon.InvalidArgument, "N=-1; expected 0 or more"):
            m.bind(N=-1)
        with self.assertRaisesRegex(tenon.InvalidArgument, r"m.bind\(N=8\).report"):
            m.report
        self.assertEqual(bound.report.verdicts, {"native": 1})

    def test_buckets(self):
        m = programs.double(("N",), buckets={"N": "pow2"})
        for n in (3, 5, 6, 100_001):
            self.assertEqual(m(np.ones(n, np.float32)).tolist(), [2] * n)

    def test_another_device_shares_the_weights(self):
        m = tenon.load(programs.EXAMPLES / "line.onnx", device="cpu")
        other = m.to("cpu:0")
        self.assertIs(other.store, m.store)
        np.testing.assert_array_equal(other(ONES).numpy(), m(ONES).numpy())
        t = tenon.tensor([1.0])
        self.assertIs(t.to("cpu"), t)


class Report(unittest.TestCase):
    def test_text_and_table(self):
        report = programs.double().report
        self.assertEqual([(n.op, n.device, n.verdict) for n in report.nodes], [("binary", "cpu:0", "native")])
        self.assertRegex(str(report), r"1 nodes \(1 native\), 1 steps\nnode +op +device +verdict +why\n")
        self.assertIn("<td>binary</td><td>cpu:0</td><td>native</td>", report._repr_html_())
        self.assertIn("memory", report.data)

    def test_devices(self):
        cpu = next(d for d in tenon.devices() if d.id == "cpu:0")
        self.assertEqual((cpu.kind, cpu.reason), ("cpu", ""))
        self.assertIn("cpu", {p.name for p in tenon.plugins() if p.code == "ok"})
        self.assertGreater(tenon.available_memory(), 0)


class Errors(unittest.TestCase):
    def test_fields(self):
        graph = tenon.Graph("gather")
        x, i = graph.input("x", "f32", [3]), graph.input("i", "i64", [2])
        (y,) = graph.add("gather", [x, i], {"axis": 0}, provenance="the gather")
        graph.output("y", y)
        m = tenon.Model(graph, programs.store(), device="cpu")
        with self.assertRaises(tenon.IndexOutOfRange) as caught:
            m(np.ones(3, np.float32), np.array([0, 7]))
        e = caught.exception
        self.assertIsInstance(e, IndexError)
        self.assertEqual((e.code, e.op, e.device, e.index, e.retryable), ("index_out_of_range", "gather", "cpu:0", 1, False))
        self.assertGreater(e.run_id, 0)
        self.assertEqual(m(np.ones(3, np.float32), np.array([0, 1])).tolist(), [1, 1])

    def test_graphs(self):
        graph = tenon.Graph()
        x = graph.input("x", "f32", [3])
        with self.assertRaisesRegex(tenon.NotFound, "no_op"):
            graph.add("no_op", [x])
        with self.assertRaisesRegex(tenon.NotFound, "no attribute 'z'"):
            graph.add("binary", [x, x], {"z": 1})
        with self.assertRaisesRegex(tenon.InvalidArgument, "attribute 'axis': got 'a'"):
            graph.add("softmax", [x], {"axis": "a"})
        with self.assertRaisesRegex(tenon.ShapeMismatch, "binary"):
            graph.add("binary", [x, graph.input("t", "f32", [4])], {"kind": "add"})
        with self.assertRaisesRegex(tenon.InvalidArgument, "value of this graph"):
            tenon.Graph().output("y", x)
        with self.assertRaisesRegex(tenon.InvalidArgument, "'f33'"):
            graph.input("z", "f33", [1])

    def test_log(self):
        from tenon import _log

        with self.assertLogs("tenon", logging.WARNING) as caught:
            _log.log(2, "one line")
        self.assertEqual(caught.output, ["WARNING:tenon:one line"])
        with self.assertLogs("tenon", logging.WARNING) as caught:
            programs.double(pins=[("nothing*", "cpu")])
        self.assertRegex(caught.output[0], r"WARNING:tenon:.*nothing\*")


if __name__ == "__main__":
    unittest.main()
