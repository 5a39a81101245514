# SPDX-License-Identifier: Apache-2.0
"""What concerns the process: asynchronous runs, Ctrl-C, forks, the order of imports, the command."""

import asyncio
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path

import numpy as np
import programs

import tenon


class Async(unittest.TestCase):
    def test_await(self):
        m = programs.double((100_000,))

        async def one(k):
            y = await m.run_async(np.full(100_000, k, np.float32))
            return float(y[0]), float(y[-1])

        async def many():
            return await asyncio.gather(*[one(k) for k in range(20)])

        self.assertEqual(asyncio.run(many()), [(2.0 * k, 2.0 * k) for k in range(20)])

    def test_the_loop_goes_on_during_a_run(self):
        async def main():
            run = programs.counting(300_000).run_async(0)
            steps = 0
            while not run.done():
                steps += 1
                await asyncio.sleep(0.001)
            return steps, float(await run), float(await run)

        steps, *result = asyncio.run(main())
        self.assertEqual(result, [300_000, 300_000])
        self.assertGreater(steps, 3)

    def test_failures(self):
        m = programs.double()

        async def wrong():
            await m.run_async(np.ones(5, np.float32))

        with self.assertRaises(tenon.ShapeMismatch):
            asyncio.run(wrong())

    def test_cancel(self):
        endless = programs.counting(1 << 40)
        run = endless.run_async(0)
        self.assertFalse(run.done())
        run.cancel()
        with self.assertRaises(tenon.Error) as caught:
            run.wait()
        self.assertEqual(caught.exception.code, "cancelled")

        del run
        run = endless.run_async(0)
        del run  # a run that nobody can wait for ends

        async def late():
            await asyncio.wait_for(endless.run_async(0), 0.1)

        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(late())


class Process(unittest.TestCase):
    def test_ctrl_c_ends_a_long_run(self):
        text = programs.python(
            """
import os, signal, threading, time
import programs, tenon
m = programs.counting(1 << 40)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    m(0)
except KeyboardInterrupt:
    print("interrupted after", round(time.monotonic() - begin, 2))
print("then", float(programs.counting(10)(1)))
"""
        )
        self.assertRegex(text, r"interrupted after [0-4]\.\d+\nthen 11.0")

    def test_a_handler_that_goes_on_does_not_end_the_run(self):
        text = programs.python(
            """
import os, signal, threading
import programs
signal.signal(signal.SIGINT, lambda *_: print("handled"))
m = programs.counting(3_000_000)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
print(float(m(0)))
"""
        )
        self.assertEqual(text, "handled\n3000000.0\n")

    def test_a_forked_child_is_refused_and_ends_well(self):
        text = programs.python(
            """
import os, sys
import numpy as np, programs, tenon
m = programs.double()
x = np.ones(4, np.float32)
y = m(x)
for use in (lambda: m(x), lambda: tenon.devices(), lambda: programs.double(), lambda: tenon.Runtime()):
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            use()
        except tenon.Error as e:
            print(e.code, "spawn" in str(e), y.tolist())
            sys.exit(0)
        sys.exit(1)
    assert os.wait()[1] == 0
print(m(x).tolist())
"""
        )
        self.assertEqual(text, "unsupported True [2.0, 2.0, 2.0, 2.0]\n" * 4 + "[2.0, 2.0, 2.0, 2.0]\n")

    def test_a_child_that_was_forked_before_runs(self):
        text = programs.python(
            """
import os, numpy as np, programs
if os.fork() == 0:
    assert programs.double()(np.ones(4, np.float32)).tolist() == [2] * 4
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
        )
        self.assertEqual(text, "7\n")

    def test_pytorch_and_tenon_are_imported_in_either_order(self):
        programs.torch_or_skip()
        script = """
import {0}, {1}
import torch, tenon, numpy as np, programs
torch.set_num_threads(1)
m = programs.model("matmul", (64, 64), operands=2)
a = torch.rand(64, 64)
y = m(a, a).torch()
assert torch.allclose(y, a @ a, atol=1e-4)
assert torch.get_num_threads() == 1
print("ok")
"""
        for first, second in (("torch", "tenon"), ("tenon", "torch")):
            self.assertEqual(programs.python(script.format(first, second)), "ok\n")

    def test_threads(self):
        text = programs.python(
            """
import tenon
tenon.set_threads(1)
import numpy as np, os, programs
m = programs.model("matmul", (512, 512), operands=2)
x = np.ones((512, 512), np.float32)
m(x, x)
print(sum(open(f"/proc/self/task/{t}/comm").read().startswith("tbb") for t in os.listdir("/proc/self/task")))
"""
        )
        self.assertEqual(text, "0\n")

    def test_nothing_is_written_when_a_script_ends_with_objects_alive(self):
        text = programs.python(
            """
import numpy as np, programs, tenon
m = programs.double((50_000,))
x = np.ones(50_000, np.float32)
y, z = m(x), m(x).numpy()
run = m.run_async(x)
"""
        )
        self.assertEqual(text, "")

    def test_the_command(self):
        command = Path(sysconfig.get_path("scripts")) / "tenon"
        if not command.exists():
            self.skipTest("the wheel is not installed")
        run = subprocess.run([command, "devices"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("cpu:0", run.stdout)


class Types(unittest.TestCase):
    def test_star_imports_need_no_pytorch(self):
        program = "import sys; sys.modules['torch'] = None\nfrom tenon import *\nprint(load.__name__)"
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((run.stdout, run.stderr), ("load\n", ""))

    def test_stubs_are_complete(self):
        import ast

        from tenon import _tenon

        stub = ast.parse((Path(tenon.__file__).parent / "_tenon.pyi").read_text())
        operators = ast.parse((Path(tenon.__file__).parent / "_operators.py").read_text())
        shared = {n.name for n in ast.walk(operators) if isinstance(n, ast.FunctionDef)}
        there = {n.name: n for n in stub.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual({n for n in vars(_tenon) if not n.startswith("__")}, set(there))
        for name, node in there.items():
            if isinstance(node, ast.ClassDef):
                stated = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
                stated |= shared if any(isinstance(b, ast.Name) and b.id == "Operators" for b in node.bases) else set()
                real = {m for m in vars(getattr(_tenon, name)) if not m.startswith("__")}
                self.assertLessEqual(real, stated, name)
                self.assertLessEqual({m for m in stated if not m.startswith("__")}, real, name)

    def test_the_package_and_the_examples_of_its_page_are_typed(self):
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("needs mypy")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "page.py").write_text(programs.page())
            modules = ["-m", "page"]
            for example in sorted((programs.EXAMPLES / "python").glob("*.py")):
                (Path(folder) / example.name).write_text(example.read_text())
                modules += ["-m", example.stem]
            strict = ["--strict", "--ignore-missing-imports", "--no-incremental", "--config-file", ""]
            run = subprocess.run(
                [sys.executable, "-m", "mypy", *strict, "-p", "tenon", *modules],
                capture_output=True,
                text=True,
                cwd=folder,
            )
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
