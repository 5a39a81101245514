# SPDX-License-Identifier: Apache-2.0
"""The extension where callers are many, late, interrupted or wrong."""

import asyncio
import threading
import unittest

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


if __name__ == "__main__":
    unittest.main()
