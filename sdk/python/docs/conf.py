# SPDX-License-Identifier: Apache-2.0
"""Sphinx: the reference of the Python package, from its docstrings. README.md says how to build it."""

import importlib.util
import re

import tenon

project = "tenon"
author = "the tenon authors"
release = version = tenon.__version__
extensions = ["sphinx.ext.autodoc"]
html_theme = "alabaster"
html_theme_options = {"fixed_sidebar": True, "page_width": "1100px"}
html_copy_source = html_show_copyright = False
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True, "ignore-module-all": False}
autodoc_mock_imports = [] if importlib.util.find_spec("torch") else ["torch"]

_CODE = re.compile(r"^(\s*)\S")


def write_rst(app, what, name, obj, options, lines):
    """Docstrings are plain text. Indented blocks and tables become literal; marks of reStructuredText are escaped."""
    out = []
    begins, inside = True, False
    for line in lines:
        if line.startswith("|"):
            line = "    " + line
        indent = len(_CODE.match(line)[1]) if line.strip() else None
        if indent is None:
            begins = not inside
        elif indent >= 4 and (begins or inside):
            if not inside:
                out += ["::", ""]
            inside, begins = True, False
        else:
            if inside:
                out.append("")
            inside = begins = False
        if indent is not None and not inside:
            line = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line)
            line = re.sub(r"([*|])(?=\S)", r"\\\1", line)
            line = re.sub(r"^(\s*\d+)\.", r"\1\\.", line)
            line = re.sub(r"(\w)_(?=[\s,.;:)\]]|$)", r"\1\\_", line)
        out.append(line)
    lines[:] = out


def leave_out(app, what, name, obj, skip, options):
    """Members that are not tenon's: those of int, tuple, Exception."""
    module = getattr(obj, "__module__", None)
    return True if isinstance(module, str) and not module.startswith("tenon") else None


def setup(app):
    app.connect("autodoc-process-docstring", write_rst)
    app.connect("autodoc-skip-member", leave_out)
