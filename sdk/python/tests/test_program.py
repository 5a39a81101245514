# SPDX-License-Identifier: Apache-2.0
"""Traced functions: results, trees, the cache, operators, eager ops, errors."""

import dataclasses
import enum
import threading
import time
import unittest
from typing import NamedTuple

import numpy as np
from programs import torch_or_skip

import tenon
from tenon import ops
from tenon._trace import tracing

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Layer:
    w: object
    b: object


def assert_equal(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-6, atol=1e-6)


class Functions(unittest.TestCase):
    def test_a_function_computes_what_it_says(self):
        @tenon.function
        def layer(params, x):
            return ops.tanh(x @ params["w"] + params["b"])

        w, b = np.full((3, 4), 0.1, np.float32), np.ones(4, np.float32)
        assert_equal(layer({"w": w, "b": b}, X), np.tanh(X @ w + b))
        self.assertEqual(layer.__name__, "layer")

    def test_one_trace_for_each_set_of_types(self):
        traces = []

        @tenon.function
        def double(x, scale=2.0):
            traces.append(x.shape)
            return x * scale

        for _ in range(3):
            assert_equal(double(X), X * 2)
        assert_equal(double(X, 3.0), X * 3)  # a number that is given is an argument: another trace
        assert_equal(double(X, 4.0), X * 4)
        assert_equal(double(X, scale=4.0), X * 4)
        self.assertEqual(len(traces), 3)
        assert_equal(double(X.astype(np.float64)), X * 2)
        assert_equal(double(X[:1]), X[:1] * 2)
        assert_equal(double(tenon.tensor(X)), X * 2)
        self.assertEqual((double.trace_count, len(traces)), (5, 5))  # a tensor and an array are of one type
        double.clear()
        double(X)
        self.assertEqual(double.trace_count, 1)

    def test_static_arguments(self):
        @tenon.function(static=("times",))
        def repeat(x, times, negative=False):
            for _ in range(times):
                x = x + x
            return -x if negative else x

        assert_equal(repeat(X, 2), X * 4)
        assert_equal(repeat(X, times=2), X * 4)
        self.assertEqual(repeat.trace_count, 1)
        assert_equal(repeat(X, 3), X * 8)
        assert_equal(repeat(X, 3, True), X * -8)
        self.assertEqual(repeat.trace_count, 3)
        with self.assertRaisesRegex(tenon.InvalidArgument, "no parameter 'none'; it has .*x"):
            tenon.function(lambda x: x, static="none")
        with self.assertRaisesRegex(tenon.InvalidArgument, "no hash"):
            repeat(X, [1])

    def test_enums_are_static(self):
        Times = enum.IntEnum("Times", {"TWO": 2, "FOUR": 4})
        f = tenon.function(lambda x, n: x * float(n))
        assert_equal(f(X, Times.TWO), X * 2)
        assert_equal(f(X, Times.FOUR), X * 4)

    def test_static_values_that_are_equal_but_differ_in_type(self):
        @tenon.function(static="s")
        def kind(x, s):
            return x * (2.0 if type(s) is bool else 3.0 if type(s) is int else 5.0)

        assert_equal(kind(X, True), X * 2)
        assert_equal(kind(X, 1), X * 3)
        assert_equal(kind(X, 1.0), X * 5)

    def test_keywords_are_no_dict(self):
        @tenon.function
        def either(*args, **kwargs):
            return args[0]["x"] + 1.0 if args else kwargs["x"] + 2.0

        assert_equal(either({"x": X}), X + 1)
        assert_equal(either(x=X), X + 2)

    def test_trees_go_in_and_out(self):
        @tenon.function
        def swap(tree):
            a, (b, c) = tree["a"], tree["rest"]
            return Pair(left=[b.left, {"r": b.right}], right=(Layer(c.b, c.w), a, None))

        out = swap({"rest": (Pair(X, X + 1), Layer(X + 2, X + 3)), "a": X + 4})
        self.assertIsInstance(out, Pair)
        assert_equal(out.left[0], X)
        assert_equal(out.left[1]["r"], X + 1)
        self.assertIsInstance(out.right[0], Layer)
        assert_equal(out.right[0].w, X + 3)
        assert_equal(out.right[0].b, X + 2)
        assert_equal(out.right[1], X + 4)
        self.assertIsNone(out.right[2])

    def test_the_order_of_dict_entries_does_not_count(self):
        @tenon.function
        def difference(p):
            return p["a"] - p["b"]

        assert_equal(difference({"a": X, "b": X * 3}), X * -2)
        assert_equal(difference({"b": X * 3, "a": X}), X * -2)
        self.assertEqual(difference.trace_count, 1)

    def test_constants_and_numbers_as_results(self):
        @tenon.function
        def mixed(x):
            return {"x": x, "again": x, "three": 3.0, "table": np.array([1, 2])}

        out = mixed(X)
        assert_equal(out["x"], X)
        assert_equal(out["again"], X)
        assert_equal(out["three"], 3)
        assert_equal(out["table"], [1, 2])
        self.assertIsNone(tenon.function(lambda x: None)(X))

    def test_a_function_in_a_function_is_a_part_of_it(self):
        inner = tenon.function(lambda x: x + 1.0)
        outer = tenon.function(lambda x: inner(inner(x)))
        assert_equal(outer(X), X + 2)
        self.assertEqual((outer.trace_count, inner.trace_count), (1, 0))

    def test_methods(self):
        class Model:
            scale = 3.0

            @tenon.function
            def run(self, x):
                return x * self.scale

        assert_equal(Model().run(X), X * 3)

    def test_the_model_of_a_call(self):
        f = tenon.function(lambda params, x: {"y": x * params["w"]})
        model = f.model({"w": X}, X)
        self.assertEqual(list(model.inputs), ["params.w", "x"])
        self.assertEqual(list(model.outputs), ["y"])
        self.assertIn("native", str(f.report({"w": X}, X)))

    def test_nodes_carry_the_line(self):
        f = tenon.function(lambda x: ops.exp(x))
        self.assertIn("test_program.py:", str(f.model(X).graph))

    def test_threads_trace_once(self):
        f = tenon.function(lambda x: ops.exp(x) + 1.0)
        results = []
        threads = [threading.Thread(target=lambda: results.append(np.asarray(f(X)))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual((f.trace_count, len(results)), (1, 8))
        for r in results:
            assert_equal(r, np.exp(X) + 1)

    def test_tensors_of_pytorch(self):
        torch = torch_or_skip()
        f = tenon.function(lambda p: p["x"] + 1.0)
        y = f({"x": torch.from_numpy(X)})
        assert_equal(y.torch().numpy(), X + 1)

    def test_tracing_is_linear(self):
        def seconds(layers):
            begin = time.thread_time()
            with tracing("deep") as trace:
                x = trace.input("x", tenon.f32, (4,))
                for _ in range(layers):
                    x = ops.tanh(x) + x
            return time.thread_time() - begin

        self.assertLess(min(seconds(2000) for _ in range(3)), 40 * min(seconds(200) for _ in range(3)))


class Operators(unittest.TestCase):
    def check(self, function, *arrays, dtype=None):
        """The same for tensors, for traced values, and for NumPy."""
        expected = function(*arrays)
        for actual in (function(*map(tenon.tensor, arrays)), tenon.function(function)(*arrays)):
            np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-6)
            self.assertEqual(np.asarray(actual).dtype, dtype or expected.dtype)

    def test_arithmetic(self):
        a, b = X + 1, X[::-1].copy() - 2.5
        for f in (
            lambda x, y: x + y - 2,
            lambda x, y: 2 - x * 3.5 * y,
            lambda x, y: x / y + 1 / x,
            lambda x, y: x // y,
            lambda x, y: x % y,
            lambda x, y: x**2.0 + 2.0**x,
            lambda x, y: -x + abs(y),
        ):
            self.check(f, a, b)
        self.check(lambda x, y: x @ y.T, a, b)

    def test_integers_and_bools(self):
        i, j = np.array([-7, 5, 9]), np.array([2, -3, 4])
        self.check(lambda x, y: x // y, i, j)
        self.check(lambda x, y: x % y + (x & y) + (x | 8) + (x ^ y) + ~x, i, j)
        self.check(lambda x, y: (abs(x) << 2) + (abs(x) >> 1), i, j)
        self.check(lambda x, y: (x < y) | ~(x >= y) & (x > 0) ^ (y <= 4), i, j)
        self.check(lambda x: ~x, np.array([1, 200], np.uint8))
        f = tenon.function(lambda x, y: ((x == y), (x != y)))
        assert_equal(f(i, np.array([-7, 0, 9]))[0], [True, False, True])
        assert_equal(f(i, np.array([-7, 0, 9]))[1], [False, True, False])

    def test_numpy_on_the_left(self):
        f = tenon.function(lambda x: X + x - (X - x) + X / (x + 1.0) + (X < x).astype("f32") + X @ x.T @ X)
        assert_equal(f(X + 1), X + X + 1 + 1 + X / (X + 2) + (X < X + 1) + X @ (X + 1).T @ X)

    def test_reductions_and_shapes(self):
        x = X + 0.5
        self.check(lambda x: x.sum(), x)
        self.check(lambda x: x.mean(0) + x.max(0) * x.min(0), x)
        self.check(lambda x: x.prod(axis=1, keepdims=True), x)
        self.check(lambda x: x.sum((0, 1)), x)
        self.check(lambda x: x.reshape(3, 2).T.transpose(1, 0).reshape((-1,)), x)
        self.check(lambda x: (x > 1).any(1) & (x > 0).all(1), x)
        self.check(lambda x: x.astype(np.int32), x, dtype=np.int32)

    def test_indices(self):
        x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        rows = np.array([2, 0, -1])
        f = tenon.function
        for key in (
            0,
            -1,
            (1, 2, 3),
            (slice(None), 1),
            (..., 2),
            (1, ..., slice(1, 4)),
            (slice(None, None, -1), slice(3, 0, -2)),
            (None, 1, None),
            (slice(2, 1),),
            rows,
            (slice(None), rows),
            (1, rows),
            (slice(0, 2), rows, 3),
        ):
            with self.subTest(key=key):
                assert_equal(f(lambda x, key=key: x[key])(x), x[key])
        assert_equal(f(lambda x, i: x[i])(x, 2), x[2])
        _, _, c = f(lambda x: tuple(x))(x)
        assert_equal(c, x[2])
        for key, message in (
            (3, "3 on axis 0; expected -3 to 2"),
            ((0, 0, 0, 0), "4 indices for an array of rank 3"),
            ((rows, rows), "2 arrays of indices"),
            (np.array([True, False, True]), "by bools"),
        ):
            with self.subTest(key=key), self.assertRaisesRegex(tenon.Error, message):
                f(lambda x, key=key: x[key])(x)

    def test_numbers_take_the_dtype_of_arrays(self):
        for dtype in (np.float16, np.float64, np.int32, np.uint8):
            x = np.array([1, 2], dtype)
            self.assertEqual(tenon.function(lambda x: x * 2 + 1)(x).numpy().dtype, dtype)
            self.assertEqual(tenon.function(lambda x, n: x * n)(x, 3).numpy().dtype, dtype)
            self.assertEqual((tenon.tensor(x) * 2).numpy().dtype, dtype)
        self.assertEqual(
            tenon.function(lambda x, lr: x * (lr * 2.0))(X.astype(np.float64), 0.5).numpy().dtype, np.float64
        )
        with self.assertRaisesRegex(tenon.DtypeMismatch, "2.5 beside an operand of dtype i64"):
            tenon.function(lambda x: x * 2.5)(np.array([1]))
        with self.assertRaisesRegex(tenon.DtypeMismatch, "expected a whole number"):
            tenon.function(lambda x, n: x * n)(np.array([1]), 0.5)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "300: it is no u8"):
            tenon.function(lambda x: x + 300)(np.array([1], np.uint8))

    def test_ops_without_a_trace(self):
        assert_equal(ops.softmax(X), np.exp(X) / np.exp(X).sum(1, keepdims=True))
        y, lse = ops.cross_entropy(X, np.array([0, 2]), reduction="none", all_outputs=True)
        assert_equal(lse, np.log(np.exp(X).sum(1)))
        assert_equal(y, np.log(np.exp(X).sum(1)) - X[[0, 1], [0, 2]])
        assert_equal(ops.concat([X, X], 1), np.concatenate([X, X], 1))
        assert_equal(ops.concat([[[1.0, 2.0, 3.0]], X]), [[1, 2, 3], [0, 1, 2], [3, 4, 5]])  # lists of floats are f32
        assert_equal(tenon.function(lambda x: ops.concat([[1.0, 2.0], x]) + [1.0, 2.0, 3.0])(X[0, :1]), [2, 4, 3])
        assert_equal(ops.iota([3], dtype="f32"), [0, 1, 2])
        values, indices = ops.topk(X, k=2)
        assert_equal(values, X[:, :0:-1])
        assert_equal(indices, [[2, 1], [2, 1]])
        assert_equal(ops.layer_norm(X), (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5))

    def test_every_function_has_a_docstring(self):
        for name in ops.__all__:
            self.assertGreater(len(getattr(ops, name).__doc__), 20, name)
        self.assertIn("e^x", ops.exp.__doc__)
        self.assertIn("max(x, 0)", ops.relu.__doc__)
        self.assertIn("label_smoothing", ops.cross_entropy.__doc__)


class Errors(unittest.TestCase):
    def refuses(self, message, function, *args, error=tenon.TraceError):
        with self.assertRaisesRegex(error, message):
            tenon.function(function)(*args)

    def test_what_only_a_run_knows(self):
        self.refuses(
            r"the truth of a traced value, Traced\(bool\[\]\).*test_program.py:\d+.*tenon.cond",
            lambda x: 1.0 if x.sum() > 0 else 2.0,
            X,
        )
        self.refuses(r"float\(\) of a traced value", lambda x: float(x.sum()), X)
        self.refuses(r"int\(\) of a traced value", lambda x: int(x.sum()), X)
        self.refuses("index for Python", lambda x: [1, 2][x.sum().astype("i64")], X)
        self.refuses(r"numpy\(\) of a traced value", lambda x: x.numpy(), X)
        self.refuses(r"a NumPy array of a traced value", lambda x: np.asarray(x), X)
        self.refuses(r"numpy.sin\(\).*hint: tenon.ops.sin\(\)", lambda x: np.sin(x), X)

    def test_a_write_to_an_array(self):
        def write(x):
            out = np.zeros(2)
            out[0] = x[0, 0]
            return out

        with self.assertRaises(ValueError):
            tenon.function(write)(X)

    def test_a_value_that_leaves_its_trace(self):
        kept = []
        keep = tenon.function(lambda x: kept.append(x) or x * 2.0)
        keep(X)
        for use in (lambda: kept[0] + 1.0, lambda: tenon.function(lambda x: x + kept[0])(X), lambda: keep(kept[0])):
            with self.assertRaisesRegex(tenon.TraceError, "used outside of its trace, at test_program.py"):
                use()

    def test_the_op_and_the_line(self):
        with self.assertRaisesRegex(
            tenon.ShapeMismatch, r"matmul.*operand b: expected .*3.* got 2 .*; at test_program.py:\d+: .*x @ x"
        ):
            tenon.function(lambda x: x @ x)(X)
        with self.assertRaisesRegex(tenon.DtypeMismatch, r"operand b: expected f32 .* got f64\[2,3\]"):
            tenon.function(lambda x, y: x + y)(X, X.astype(np.float64))
        with self.assertRaisesRegex(tenon.InvalidArgument, r"axis 4 is outside .*test_program.py"):
            ops.softmax(X, axis=4)
        with self.assertRaisesRegex(tenon.IndexOutOfRange, r"gather.*index 7.*test_program.py"):
            tenon.function(lambda x, i: ops.gather(x, i))(X, np.array([7]))

    def test_arguments_and_results(self):
        self.refuses("set as an argument", lambda x: x, {1}, error=tenon.InvalidArgument)
        self.refuses("it returns str as a", lambda x: {"a": "b"}, X, error=tenon.InvalidArgument)
        with self.assertRaisesRegex(TypeError, "missing 1 required positional argument"):
            tenon.function(lambda x, y: x)(X)

    def test_a_failed_trace_leaves_nothing(self):
        f = tenon.function(lambda x: x @ x)
        with self.assertRaises(tenon.ShapeMismatch):
            f(X)
        self.assertEqual(f.trace_count, 0)
        assert_equal(ops.exp(X), np.exp(X))  # no trace is current
        assert_equal(f(X[:, :2].copy()), X[:, :2] @ X[:, :2])


class Trees(unittest.TestCase):
    def test_map(self):
        assert tenon.tree.map(lambda a, b: a + b, {"a": 1, "b": (2, [3])}, {"a": 10, "b": (20, [30])}) == {
            "a": 11,
            "b": (22, [33]),
        }
        with self.assertRaisesRegex(tenon.InvalidArgument, r"tree 2: expected the structure \{a: \*\}, got \[\*, \*\]"):
            tenon.tree.map(max, {"a": 1}, [1, 2])

    def test_flatten(self):
        tree = {"b": Layer(1, 2), "a": (3, None, Pair(4, [5]))}
        leaves, structure = tenon.tree.flatten(tree)
        self.assertEqual(leaves, [3, 4, 5, 1, 2])
        self.assertEqual(tenon.tree.paths(structure), ["a.0", "a.2.left", "a.2.right.0", "b.w", "b.b"])
        self.assertEqual(tenon.tree.unflatten(structure, leaves), tree)


if __name__ == "__main__":
    unittest.main()
