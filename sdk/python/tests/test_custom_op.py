# SPDX-License-Identifier: Apache-2.0
"""Ops whose rules are functions of Python: values, gradients, batches, errors, threads, references."""

import gc
import sys
import tempfile
import threading
import traceback
import unittest
from typing import Literal

import numpy as np

import tenon
from tenon import ops

F = np.float32
X = np.linspace(-3, 3, 7).astype(F)


def softcap_shape(x, *, cap):
    if x.dtype is not tenon.f32:
        raise tenon.DtypeMismatch(f"operand x: expected f32, got {x.dtype}")
    if cap <= 0:
        raise ValueError(f"cap: expected > 0, got {cap}")
    return x


def softcap_gradient(dy, y, x, *, cap):
    share = y / cap
    return dy * (1.0 - share * share)


@tenon.custom_op("tests:softcap", shape=softcap_shape, gradient=softcap_gradient)
def softcap(x, *, cap: float = 2.0):
    """cap · tanh(x / cap)"""
    return ops.tanh(x / cap) * cap


@tenon.custom_op("tests:parts", outputs=("total", "twice"))
def parts(a, b=None, *rest, scale: float = 1.0):
    total = a * scale
    for x in ([] if b is None else [b]) + list(rest):
        total = total + x
    return total, a * 2.0


class Values(unittest.TestCase):
    def test_alone_and_traced(self):
        expected = 2 * np.tanh(X / 2)
        np.testing.assert_allclose(softcap(X).numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(tenon.function(softcap)(X).numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(softcap(X, cap=0.5).numpy(), np.tanh(X * 2) / 2, rtol=1e-5)
        self.assertEqual(softcap.__doc__, "cap · tanh(x / cap)")
        self.assertEqual(repr(softcap), "<tenon.custom_op tests:softcap>")

    def test_optional_operands_lists_and_outputs(self):
        self.assertEqual([t.tolist() for t in parts(F([1, 2]))], [[1, 2], [2, 4]])
        total, twice = parts(F([1, 2]), F([10, 10]), F([5, 6]), F([7, 8]), scale=3)
        self.assertEqual((total.tolist(), twice.tolist()), ([25, 30], [2, 4]))

    def test_attributes_of_all_types(self):
        seen = []

        @tenon.custom_op("tests:attributes", shape=lambda x, **a: (seen.append(a), x)[1])
        def attributes(
            x,
            *,
            flag: bool = True,
            count=3,
            word: Literal["a", "b"] = "a",
            axes: tuple[int, ...] = (1, 2),
            weights=(0.5,),
            to=tenon.f16,
        ):
            return ops.copy(x)

        self.assertEqual(attributes(X, word="b", axes=[4]).tolist(), X.tolist())
        wanted = {"flag": True, "count": 3, "word": "b", "axes": (4,), "weights": (0.5,), "to": tenon.f16}
        self.assertEqual(seen[0], wanted)
        with self.assertRaisesRegex(tenon.InvalidArgument, "word.*expected one of a b, given 'c'"):
            attributes(X, word="c")
        with self.assertRaisesRegex(TypeError, "tests:attributes: .*'nothing'"):
            attributes(X, nothing=1)

    def test_text(self):
        graph = tenon.function(softcap).model(X).graph
        again = tenon.Graph.parse(str(graph))
        self.assertIn("tests:softcap(x)", str(again))
        self.assertEqual(str(again), str(graph))

    def test_control_flow_in_a_rule(self):
        @tenon.custom_op("tests:repeated")
        def repeated(x, *, times: int):
            return tenon.scan(lambda c, _: (ops.tanh(c) + x, None), x, length=times)[0]

        np.testing.assert_allclose(repeated(X, times=2).numpy(), np.tanh(np.tanh(X) + X) + X, rtol=1e-5)

    def test_a_second_definition_has_the_new_rules(self):
        for factor in (2.0, 3.0):

            @tenon.custom_op("tests:again")
            def again(x):
                return x * factor

            self.assertEqual(again(F([1])).tolist(), [factor])
        with self.assertRaisesRegex(tenon.Error, "tests:again version 1 is registered already.*part 0"):

            @tenon.custom_op("tests:again")
            def other(y):
                return y


class Derivatives(unittest.TestCase):
    def test_gradients(self):
        slope = 1 - np.tanh(X / 2) ** 2
        np.testing.assert_allclose(tenon.grad(lambda x: softcap(x).sum())(X).numpy(), slope, rtol=1e-4)
        second = tenon.grad(lambda x: tenon.grad(lambda x: softcap(x).sum())(x).sum())(X)
        np.testing.assert_allclose(second.numpy(), -np.tanh(X / 2) * slope, rtol=1e-3, atol=1e-6)
        _, tangent = tenon.jvp(softcap, (X,), (X,))
        np.testing.assert_allclose(tangent.numpy(), slope * X, rtol=1e-4)
        rows = tenon.vmap(lambda x: softcap(x).sum())(np.stack([X, X + 1]))
        np.testing.assert_allclose(rows.numpy(), [softcap(X).numpy().sum(), softcap(X + 1).numpy().sum()], atol=1e-5)

    def test_without_a_rule_the_decomposition_is_differentiated(self):
        a, b = F([1, 2]), F([3, 4])
        gradients = tenon.grad(lambda a, b: (parts(a, b, a, scale=3)[0] * b).sum(), argnums=(0, 1))(a, b)
        self.assertEqual(gradients[0].tolist(), (4 * b).tolist())
        self.assertEqual(gradients[1].tolist(), (4 * a + 2 * b).tolist())

    def test_the_rule_counts(self):
        def gradient(dy, y, a, b):
            for of_dy, of_y in zip(dy, y):
                self.assertEqual((of_dy.shape, of_dy.dtype), (of_y.shape, of_y.dtype))
            return dy[0] * 10.0 + dy[1] * 100.0, None

        @tenon.custom_op("tests:ruled", gradient=gradient, outputs=("y", "z"))
        def ruled(a, b):
            return a + b, a * b

        # The loss does not depend on z: its gradient is zero.
        gradients = tenon.grad(lambda a, b: ruled(a, b)[0].sum(), argnums=(0, 1))(X, X)
        self.assertEqual([g.tolist() for g in gradients], [[10.0] * 7, [0.0] * 7])

    def test_the_gradient_of_an_integer_output_is_zeros(self):
        def gradient(dy, y, a):
            self.assertEqual((dy[1].dtype, dy[1].shape), (tenon.i32, y[1].shape))
            return (dy[0] * 3.0,)

        @tenon.custom_op("tests:signed", gradient=gradient, outputs=("y", "positive"))
        def signed(a):
            return a + a, tenon.ops.cast(a > 0, "i32")

        self.assertEqual(tenon.grad(lambda a: signed(a)[0].sum())(X).tolist(), [3.0] * 7)
        self.assertEqual(signed(X)[1].tolist(), (X > 0).astype(np.int32).tolist())

    def test_stop_gradient(self):
        f = lambda x: (x * tenon.stop_gradient(x * x)).sum()
        self.assertEqual(tenon.grad(f)(F([2, 3])).tolist(), [4, 9])
        self.assertEqual(f(F([2, 3])).tolist(), 35)
        self.assertEqual(tenon.jvp(tenon.stop_gradient, (X,), (X,))[1].tolist(), [0] * 7)
        rows = tenon.vmap(tenon.grad(f))(F([[2, 3], [1, 0]]))
        self.assertEqual(rows.tolist(), [[4, 9], [1, 0]])
        self.assertEqual(tenon.stop_gradient(np.int64([1, 2])).tolist(), [1, 2])

    def test_stop_gradient_in_files_and_buckets(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.onnx"
            tenon.function(lambda x: tenon.stop_gradient(ops.tanh(x)) + x).model(X).save_onnx(path)
            np.testing.assert_allclose(tenon.load(path, device="cpu")(X).numpy(), np.tanh(X) + X, rtol=1e-6)
        graph = tenon.Graph("buckets")
        x = graph.input("x", "f32", ["N"])
        (stopped,) = graph.add("stop_gradient", [x])
        (product,) = graph.add("binary", [stopped, x], {"kind": "mul"})
        (loss,) = graph.add("reduce", [product], {"kind": "sum"})
        graph.output("dx", graph.gradients(loss, [x])[0])
        self.assertEqual(tenon.Model(graph, device="cpu", buckets={"N": "pow2"})(X).tolist(), X.tolist())


class Mine(Exception):
    pass


class Failures(unittest.TestCase):
    def test_exceptions_reach_the_caller_as_themselves(self):
        try:
            softcap(X, cap=-1.0)
            self.fail("no exception")
        except ValueError as e:
            self.assertEqual(str(e), "cap: expected > 0, got -1.0")
            self.assertEqual(traceback.extract_tb(e.__traceback__)[-1].name, "softcap_shape")
        with self.assertRaisesRegex(tenon.DtypeMismatch, "operand x: expected f32, got f64"):
            softcap(X.astype(np.float64))

        mine = Mine("once")

        def fails(*args):
            raise mine

        @tenon.custom_op("tests:fails", shape=lambda x: x, gradient=fails)
        def late(x):
            fails()

        with self.assertRaises(Mine) as caught:  # when it is compiled, in a thread of the library
            late(X)
        self.assertIs(caught.exception, mine)
        with self.assertRaises(Mine) as caught:
            tenon.grad(lambda x: late(x).sum())(X)
        self.assertIs(caught.exception, mine)

        @tenon.custom_op("tests:interrupted")
        def interrupted(x):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            interrupted(X)

    def test_wrong_results(self):
        @tenon.custom_op("tests:wrong", shape=lambda x: (x.dtype, (3,)))
        def wrong(x):
            return x

        with self.assertRaisesRegex(tenon.Error, r"tests:wrong.*gives output y as f32\[7\], expected f32\[3\]"):
            wrong(X)

        @tenon.custom_op("tests:two", shape=lambda x: x, gradient=lambda dy, y, x: (dy, dy))
        def two(x):
            return x, x

        with self.assertRaisesRegex(tenon.ShapeMismatch, "its decomposition returns 2 results; expected 1"):
            two(X)
        with self.assertRaisesRegex(tenon.ShapeMismatch, "its gradient returns 2 results; expected 1"):
            tenon.grad(lambda x: two(x).sum())(X)

        @tenon.custom_op("tests:refused", shape=lambda x: x)
        def refused(x):
            return x @ x[:2]

        with self.assertRaisesRegex(tenon.ShapeMismatch, "tests:refused.*its decomposition.*matmul"):
            refused(np.ones((3, 3), F))

    def test_no_decomposition(self):
        @tenon.custom_op("tests:kernel", shape=lambda x: x)
        def kernel(x):
            return NotImplemented

        with self.assertRaisesRegex(tenon.Error, "tests:kernel"):
            kernel(X)

        @tenon.custom_op("tests:typeless")
        def typeless(x):
            return NotImplemented

        with self.assertRaisesRegex(tenon.InvalidArgument, "it has no decomposition; expected shape="):
            typeless(X)

    def test_values_do_not_outlive_their_rule(self):
        kept = []

        @tenon.custom_op("tests:keeps", shape=lambda x: x)
        def keeps(x):
            kept.append(x)
            return x

        keeps(X)
        with self.assertRaisesRegex(tenon.TraceError, "used outside of its trace"):
            kept[0] + 1.0
        with self.assertRaisesRegex(tenon.InvalidArgument, "its rule has returned"):
            kept[0]._trace.graph.add("copy", [kept[0]._value])

    def test_descriptions(self):
        for name, function, message in (
            ("noname", lambda x: x, "expected a domain and a name"),
            ("tests:a", lambda x=3: x, "operand x: expected no default"),
            ("tests:b", lambda x, *, a: x, "attribute a: expected an annotation"),
            ("tests:c", lambda x, **a: x, "expected attributes by name"),
            ("tenon:d", lambda x: x, "expected a domain other than tenon"),
        ):
            with self.assertRaisesRegex(tenon.InvalidArgument, message):
                tenon.custom_op(name)(function)
        with self.assertRaisesRegex(tenon.InvalidArgument, "outputs"):
            tenon.custom_op("tests:e", outputs=())(lambda x: x)


class Life(unittest.TestCase):
    def test_threads(self):
        failures = []

        def work(k):
            try:
                for n in range(8):
                    x = np.full(8 * k + n + 1, n, F)
                    got = tenon.grad(lambda x: softcap(x).sum())(x).numpy()
                    np.testing.assert_allclose(got, 1 - np.tanh(x / 2) ** 2, rtol=1e-4)
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])

    def test_symbols_planned_in_threads(self):
        graph = tenon.Graph("symbols")
        x = graph.input("x", "f32", ["N"])
        graph.output("y", graph.add("softcap", [x], {"cap": 2.0}, domain="tests")[0])
        m = tenon.Model(graph, device="cpu")
        failures = []

        def work(k):
            for n in range(1, 12):
                x = np.full(n, k, F)
                if not np.allclose(m(x).numpy(), 2 * np.tanh(x / 2), rtol=1e-4):
                    failures.append((k, n))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])

    def test_references_stay_the_same(self):
        class Payload(Exception):
            pass

        alive = Payload("x")
        fails = False

        @tenon.custom_op("tests:counted", shape=lambda x: x)
        def counted(x):
            if fails:
                raise alive
            return x * 2.0

        def once(n):
            try:
                counted(np.ones(n, F))
            except Payload:
                alive.__traceback__ = None

        for fails in (False, True):
            once(1)
            gc.collect()
            before = sys.getrefcount(alive), sys.getrefcount(counted)
            for n in range(2, 40):
                once(n)
            gc.collect()
            self.assertEqual((sys.getrefcount(alive), sys.getrefcount(counted)), before)


if __name__ == "__main__":
    unittest.main()
