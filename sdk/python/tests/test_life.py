# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: objects dropped in any order and by any thread, and references that neither leak nor dangle."""

import gc
import itertools
import os
import random
import sys
import threading
import unittest
import weakref

import numpy as np
import programs

import tenon
from tenon._runtime import default_runtime

RUNS = int(os.environ.get("TENON_PYTHON_RUNS", "10000"))


def memory():
    """Bytes that the process has in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Owner(np.ndarray):
    """An array that weak references can watch."""


def watched(size):
    a = np.ones(size, np.float32).view(Owner)
    return a, weakref.ref(a)


class Order(unittest.TestCase):
    def test_objects_are_dropped_in_any_order(self):
        for order in itertools.permutations(range(6)):
            runtime = tenon.Runtime() if order[0] == 0 else default_runtime()
            graph = tenon.Graph("double")
            x = graph.input("x", "f32", [50_000])
            (y,) = graph.add("binary", [x, x], {"kind": "add"})
            graph.output("y", y)
            store = tenon.Store(runtime)
            model = tenon.Model(graph, store, device="cpu", runtime=runtime)
            result = model(np.ones(50_000, np.float32))
            view = result.numpy()
            objects = [runtime, graph, store, model, result, y]
            del runtime, graph, store, model, result, x, y
            for k in order:
                objects[k] = None
            gc.collect(0)
            self.assertEqual(float(view.sum()), 100_000)

    def test_weak_references_end_with_their_objects(self):
        graph = tenon.Graph("one")
        value = graph.input("x", "f32", [1])
        objects = [tenon.tensor([1.0]), value, graph, tenon.Store(default_runtime()), tenon.Runtime(threads=1)]
        watching = [weakref.ref(o) for o in objects]
        self.assertEqual([w() is o for w, o in zip(watching, objects)], [True] * 5)
        del value, graph
        objects.clear()
        gc.collect()
        self.assertEqual([w() for w in watching], [None] * 5)

    def test_graphs_that_keep_their_values_are_collected(self):
        class Own(tenon.Graph):
            pass

        graph = Own("cycle")
        graph.value = graph.input("x", "f32", [1])
        watching = weakref.ref(graph)
        del graph
        gc.collect()
        self.assertIsNone(watching())

    def test_a_tensor_keeps_what_it_borrows(self):
        a, alive = watched(1000)
        t = tenon.asarray(a)
        del a
        self.assertIsNotNone(alive())
        view = t.numpy()
        del t
        self.assertIsNotNone(alive())
        self.assertEqual(view.sum(), 1000)
        del view
        self.assertIsNone(alive())

    def test_a_result_outlives_the_next_runs(self):
        m = programs.double((20_000,))
        held = [m(np.full(20_000, k, np.float32)).numpy() for k in range(20)]
        del m
        self.assertEqual([float(h[-1]) for h in held], [2.0 * k for k in range(20)])


class References(unittest.TestCase):
    def test_a_call_keeps_no_argument(self):
        for size in (4, 100_000):
            m = programs.double((size,))
            a, alive = watched(size)
            before = sys.getrefcount(a)
            y = m(a)
            self.assertEqual(sys.getrefcount(a), before)
            out = np.zeros(size, np.float32)
            m(a, out=out)
            self.assertEqual(sys.getrefcount(out), 2)
            with self.assertRaises(tenon.Error):
                m(a, out=np.zeros(3, np.float32))
            self.assertEqual(sys.getrefcount(a), before)
            del a
            self.assertIsNone(alive())
            self.assertEqual(float(y[0]), 2)

    def test_counts_and_memory_stay_flat(self):
        m = programs.double((20_000,))
        two = programs.two_outputs()
        x, small = np.ones(20_000, np.float32), np.ones(3, np.float32)

        def use():
            for _ in range(300):
                y = m(x)
                y.numpy(), tenon.asarray(y), y.dtype, y.shape, memoryview(y), y.__dlpack__()
                m(x=y)
                two(small, t=small)
                tenon.tensor(x), tenon.asarray(x)
                for wrong in ((small,), (x, x), (object(),)):
                    try:
                        m(*wrong)
                    except tenon.Error:
                        pass

        watched_objects = [x, small, m, tenon.f32, tenon.Tensor, None]
        use()
        gc.collect()
        before = [sys.getrefcount(o) for o in watched_objects], len(gc.get_objects()), memory()
        use()
        gc.collect()
        after = [sys.getrefcount(o) for o in watched_objects], len(gc.get_objects()), memory()
        for k, (old, new) in enumerate(zip(before[0][:-1], after[0])):
            self.assertLessEqual(abs(new - old), 2, watched_objects[k])
        self.assertLess(abs(before[1] - after[1]), 50)
        if "ASAN_OPTIONS" not in os.environ:  # it keeps freed memory for a while
            self.assertLess(after[2] - before[2], 8 << 20)


class Threads(unittest.TestCase):
    def test_runs_in_four_threads_with_tensors_dropped_at_random(self):
        size = 20_000  # beyond what is copied
        m = programs.double((size,))
        shared, failures = [], []

        def work(seed):
            rng = random.Random(seed)
            held = []
            try:
                for k in range(RUNS // 4):
                    x = np.full(size, k % 1000, np.float32)
                    y = m(rng.choice([x, tenon.asarray(x)]))
                    held.append((y if rng.random() < 0.5 else y.numpy(), 2.0 * (k % 1000)))
                    del x, y
                    if rng.random() < 0.3:
                        shared.append(held.pop(rng.randrange(len(held))))
                    while len(held) > rng.randrange(8):
                        t, value = held.pop(rng.randrange(len(held)))
                        if float(t[0]) != value or float(t[size - 1]) != value:
                            failures.append((k, value, float(t[0])))
                    if len(shared) > 20:
                        t, value = shared.pop()
                        if float(t[0]) != value:
                            failures.append((k, value, float(t[0])))
            except Exception as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])

    def test_threads_compute_beside_each_other(self):
        m = programs.counting(20_000)
        done = []
        threads = [threading.Thread(target=lambda: done.append(float(m(0)))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(done, [20_000] * 3)


if __name__ == "__main__":
    unittest.main()
