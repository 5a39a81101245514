# SPDX-License-Identifier: Apache-2.0
"""The extension where callers are many, late, interrupted or wrong."""

import asyncio
import ctypes
import gc
import os
import threading
import unittest
import weakref

import numpy as np
import programs

import tenon


class Waiting(unittest.TestCase):
    def test_threads_wait_for_one_run(self):
        m = programs.counting(20_000)
        for _ in range(10):
            run, results = m.run_async(0), []
            threads = [threading.Thread(target=lambda: results.append(run.wait())) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual([float(y) for y in results], [20_000] * 4)

    def test_tasks_await_one_run(self):
        async def main():
            run = programs.counting(200_000).run_async(0)

            async def one():
                return float(await run)

            tasks = [asyncio.create_task(one()) for _ in range(3)]
            return await asyncio.wait_for(asyncio.gather(*tasks), 60)

        self.assertEqual(asyncio.run(main()), [200_000] * 3)

    def test_a_task_that_is_cancelled_leaves_the_run_to_the_others(self):
        async def main():
            run = programs.counting(200_000).run_async(0)

            async def one():
                return float(await run)

            first, second = asyncio.create_task(one()), asyncio.create_task(one())
            await asyncio.sleep(0.01)
            first.cancel()
            return await asyncio.wait_for(second, 60), first.cancelled()

        self.assertEqual(asyncio.run(main()), (200_000, True))

    def test_a_failure_is_raised_each_time(self):
        run = programs.counting(1 << 40).run_async(0)
        run.cancel()
        codes = []
        for _ in range(2):
            with self.assertRaises(tenon.Error) as caught:
                run.wait()
            codes.append(caught.exception.code)
        self.assertEqual(codes, ["cancelled"] * 2)

    def test_ctrl_c_ends_a_long_run_after_quick_ones(self):
        text = programs.python(
            """
import os, signal, threading, time
import programs
m = programs.counting_to()
for _ in range(5):
    m(2)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    m(1 << 40)
except KeyboardInterrupt:
    print(time.monotonic() - begin < 60, m(3).item())
""",
            timeout=20,
        )
        self.assertEqual(text, "True 3\n")

    def test_daemon_threads_that_run_for_ever(self):
        text = programs.python(
            """
import threading, time
import numpy as np, programs
m, x = programs.double((50_000,)), np.ones(50_000, np.float32)
def work():
    while True:
        m(x)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("end")
"""
        )
        self.assertEqual(text, "end\n")


class Arguments(unittest.TestCase):
    def test_an_argument_that_clears_the_dict(self):
        m = programs.model("unary", (100,), attributes={"kind": "neg"})

        class Producer:
            def __dlpack__(self, **options):
                given.clear()
                return np.ones(100, np.float32).__dlpack__(**options)

            def __dlpack_device__(self):
                return (1, 0)

        for _ in range(20):
            given = {"out": [np.zeros(100, np.float32)], "x": Producer()}
            out = given["out"]
            m(given)
            self.assertEqual(float(out[0].sum()), -100)
            given = {"out": [np.zeros(100, np.float32)], "x": Producer()}
            m(given)  # nobody else has the memory

    def test_objects_without_init(self):
        text = programs.python(
            """
import numpy as np, tenon
from tenon import _tenon
runtime = tenon.Runtime()
class Bare(tenon.Graph):
    def __init__(self): pass
for action in (
    lambda: _tenon.Runner(tenon.Executable.__new__(tenon.Executable), runtime, tenon.Graph()),
    lambda: _tenon.Runner.__new__(_tenon.Runner)._start(1),
    lambda: Bare().input("x", "f32", [1]),
    lambda: memoryview(tenon.Tensor.__new__(tenon.Tensor)),
    lambda: tenon.asarray(tenon.Tensor.__new__(tenon.Tensor)),
):
    try:
        action()
    except (tenon.InvalidArgument, BufferError) as e:
        print("__init__() was not called" in str(e) or "__init__() of its" in str(e))
"""
        )
        self.assertEqual(text.split("\n")[:-1], ["True"] * 5)

    def test_dims_are_no_numbers_of_symbols(self):
        g = tenon.Graph()
        g.input("x", "f32", ["N"])
        for dim in (-1, -2, None, 2.5):
            with self.assertRaisesRegex(tenon.ShapeMismatch, f"dim {dim}; expected an integer"):
                g.input("y", "f32", [dim])

    def test_operands_and_attributes_of_wrong_types(self):
        g = tenon.Graph()
        x = g.input("x", "f32", [2])
        with self.assertRaisesRegex(tenon.InvalidArgument, "binary: operand 1: got an object of type float"):
            g.add("binary", [x, 1.0], {"kind": "add"})
        with self.assertRaisesRegex(tenon.InvalidArgument, "operand 0: got an object of type ndarray"):
            g.add("unary", [np.ones(2)], {"kind": "neg"})
        with self.assertRaisesRegex(tenon.InvalidArgument, "attribute 1: its name is of type int"):
            g.add("unary", [x], {1: "neg"})
        with self.assertRaises(TypeError):
            tenon.tensor([1.0]).__dlpack__(max_version="x")

    def test_numbers(self):
        m = programs.double((), "u64")
        self.assertEqual(m((1 << 63) - 1).item(), (1 << 64) - 2)
        large = programs.model("reshape", (), "u64", {"shape": [1]})
        self.assertEqual(large((1 << 64) - 1).tolist(), [(1 << 64) - 1])
        for number in (-1, 1 << 64, 10**400):
            with self.assertRaisesRegex(tenon.InvalidArgument, f"{number} is no u64"):
                m(number)
        with self.assertRaisesRegex(tenon.InvalidArgument, "is no f32"):
            programs.double(())(10**400)
        with self.assertRaisesRegex(tenon.InvalidArgument, "an integer of many digits is no f32"):
            programs.double(())(10**5000)

    def test_what_lends_no_memory(self):
        with self.assertRaisesRegex(tenon.InvalidArgument, "input 'x': ndarray lends no memory"):
            programs.double()(np.zeros(4, "datetime64[s]"))

    def test_memory_that_the_host_lacks(self):
        with self.assertRaises(tenon.OutOfMemory):
            tenon.empty((1 << 55,), "f32")

    def test_threads_beyond_the_processors(self):
        most = len(os.sched_getaffinity(0))
        with self.assertRaisesRegex(tenon.InvalidArgument, f"threads: 100000; expected at most {most}"):
            tenon.Runtime(threads=100_000)
        tenon.Runtime(threads=most)


class Buffers(unittest.TestCase):
    def test_the_order_that_was_asked_for(self):
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        ways = {"strided": a[::2, ::2], "rows": a, "columns": a.T}
        flags = {"row_major": 0x38, "column_major": 0x58, "either": 0x98, "any strides": 0x18}
        get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
        get.argtypes, release.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], [ctypes.c_void_p]
        for way, array in ways.items():
            granted = []
            for given in (array, tenon.asarray(array)):
                for flag in flags.values():
                    buffer = ctypes.create_string_buffer(128)
                    try:
                        get(given, buffer, flag)
                    except (BufferError, ValueError):
                        granted.append(False)
                    else:
                        granted.append(True)
                        release(buffer)
            self.assertEqual(granted[:4], granted[4:], way)


class Cycles(unittest.TestCase):
    def test_a_graph_that_keeps_its_values(self):
        class Net(tenon.Graph):
            def __init__(self):
                super().__init__()
                self.x = self.input("x", "f32", [4])
                self.token = Token()

        self.assertTrue(freed(Net))

    def test_a_model_that_keeps_its_run(self):
        class Keeping(tenon.Model):
            pass

        def make():
            graph = tenon.Graph()
            graph.output("y", graph.input("x", "f32", [4]))
            m = Keeping(graph, device="cpu")
            m.token = Token()
            m.last = m.run_async(np.ones(4, np.float32))
            m.last.wait()
            return m

        self.assertTrue(freed(make))


class Token:
    """What weak references can watch."""


def freed(make):
    made = make()
    token = weakref.ref(made.token)
    del made
    gc.collect()
    return token() is None


if __name__ == "__main__":
    unittest.main()
