# SPDX-License-Identifier: Apache-2.0
"""The examples: each script computes what it should; each cell of the notebook runs."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import runpy
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import tenon
from programs import EXAMPLES

FOLDER = EXAMPLES / "python"


def run(name, *args):
    """What main() of a script returns, and what the script prints."""
    printed = io.StringIO()
    before = sys.argv
    sys.argv = [name, *args]
    try:
        with contextlib.redirect_stdout(printed):
            result = runpy.run_path(str(FOLDER / name))["main"]()
    finally:
        sys.argv = before
    return result, printed.getvalue()


def needs(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise unittest.SkipTest(f"needs {package}")


class Scripts(unittest.TestCase):
    def test_digits(self):
        accuracy, _ = run("digits.py", "--steps", "100")
        self.assertGreaterEqual(accuracy, 0.97)

    def test_custom_op(self):
        found, printed = run("custom_op.py")
        self.assertEqual(found, {"slope": 1.5, "start": -0.5})
        self.assertIn("refused: cap: expected a number above 0, got -1.0", printed)

    def test_torch_module(self):
        needs("torch")
        apart, printed = run("torch_module.py", "--layers", "1", "--repeat", "1")
        self.assertLess(apart, 1e-5)
        self.assertIn("loss after a step of torch.optim", printed)

    def test_ocr(self):
        needs("rapidocr", "onnx", "PIL")
        for words in ("Plugins run tensor programs", "481 kernels, 2 backends"):
            (text, certainty), _ = run("ocr.py", words)
            self.assertEqual(text, words)
            self.assertGreater(certainty, 0.9)

    def test_finetune(self):
        with tempfile.TemporaryDirectory() as folder:
            text, base, picture = (Path(folder) / name for name in ("text", "base.npz", "loss.png"))
            text.write_text("".join(f"{k} bottles of water are on the wall. " for k in range(300)))
            plot = ["--plot", str(picture)] if importlib.util.find_spec("matplotlib") else []
            steps = ["--base-steps", "2", "--steps", "40"]
            (before, after), printed = run("finetune.py", str(text), "--base", str(base), *steps, *plot)
            self.assertIn(f"no {base} yet", printed)
            self.assertLess(after, 0.85 * before)
            self.assertEqual(picture.exists(), bool(plot))
            (again, _), printed = run("finetune.py", str(text), "--base", str(base), "--steps", "1")
            self.assertNotIn("yet", printed)
            self.assertLess(abs(again - before), 1e-4)


def execute(cells):
    """Runs cells as a notebook does: one namespace, and the value of a last expression is shown. Returns what is shown."""
    scope = {"__name__": "__main__"}
    shown = []
    for cell in cells:
        tree = ast.parse(cell)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), scope)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
            shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    return shown, scope


class Notebook(unittest.TestCase):
    def setUp(self):
        self.content = json.loads((FOLDER / "tour.ipynb").read_text())
        os.environ.setdefault("MPLBACKEND", "agg")

    def test_cells(self):
        code = ["".join(c["source"]) for c in self.content["cells"] if c["cell_type"] == "code"]
        with contextlib.redirect_stdout(io.StringIO()):
            shown, scope = execute(code)
        self.assertLess(scope["losses"][-1], 0.01)
        self.assertIn("array([ 1.   ,  0.54 , -0.416], dtype=float32)", shown)
        self.assertTrue(any("<table" in s for s in shown), shown)

    def test_it_is_kept_without_results(self):
        for cell in self.content["cells"]:
            self.assertEqual(cell.get("outputs", []), [])

    def test_in_a_kernel(self):
        needs("nbclient", "nbformat", "ipykernel")
        import nbclient
        import nbformat

        paths = [str(Path(tenon.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        notebook = nbformat.reads(json.dumps(self.content), as_version=4)
        with unittest.mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths))):
            nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
        outputs = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs]
        self.assertTrue(any("text/html" in o.get("data", {}) for o in outputs))


if __name__ == "__main__":
    unittest.main()
