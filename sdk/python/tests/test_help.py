# SPDX-License-Identifier: Apache-2.0
"""help() of each public name: a docstring, and a signature that names the parameters."""

import enum
import inspect
import pydoc
import sys
import unittest

import tenon

MODULES = {"tenon": tenon, "tenon.llm": tenon.llm, "tenon.ops": tenon.ops, "tenon.optim": tenon.optim, "tenon.tree": tenon.tree}
MADE_BY_OTHERS = (tenon.Tensor, tenon.Value)  # they have no constructor
try:
    import tenon.torch

    MODULES["tenon.torch"] = tenon.torch
except ImportError:  # no PyTorch
    pass


def public():
    """Pairs of name and object: of all modules, with the methods and properties of classes."""
    for module_name, module in MODULES.items():
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module_name}.{name}", thing
            if not inspect.isclass(thing) or issubclass(thing, enum.Enum):
                continue
            for cls in thing.__mro__:
                if not cls.__module__.startswith("tenon"):
                    continue
                for own, member in vars(cls).items():
                    if not own.startswith("_"):
                        yield f"{module_name}.{name}.{own}", getattr(member, "__func__", member)


def parameters_of(thing):
    """The parameters. For classes of an extension, Python 3.10 looks at __new__ alone."""
    if inspect.isclass(thing) and sys.version_info < (3, 11):
        return list(inspect.signature(thing.__init__).parameters)[1:]
    return list(inspect.signature(thing).parameters)


class Help(unittest.TestCase):
    def test_each_public_name_is_explained(self):
        checked = 0
        for name, thing in public():
            described = callable(thing) or isinstance(thing, property) or inspect.isdatadescriptor(thing)
            if described and not isinstance(thing, enum.Enum) and not str(thing).startswith("typing."):
                self.assertTrue((inspect.getdoc(thing) or "").strip(), f"{name} has no docstring")
                checked += 1
        self.assertGreater(checked, 300)

    def test_each_function_shows_its_parameters(self):
        for name, thing in public():
            if inspect.isroutine(thing) or (inspect.isclass(thing) and thing not in MADE_BY_OTHERS):
                for parameter in parameters_of(thing):
                    self.assertNotIn(parameter, ("arg", "arg0", "arg1"), name)
                if inspect.isroutine(thing):
                    self.assertNotIn("(...)", pydoc.render_doc(thing, renderer=pydoc.plaintext), name)

    def test_functions_of_the_extension(self):
        self.assertEqual(
            str(inspect.signature(tenon.Store.set)),
            "(self, name: 'str', value: 'object', space: 'str' = 'weight') -> 'None'",
        )
        self.assertIn("add(self, op: 'str', operands: 'object'", pydoc.plain(pydoc.render_doc(tenon.Graph)))
        self.assertEqual(parameters_of(tenon.Graph), ["name"])
        with self.assertRaisesRegex(TypeError, r"Graph\.add\(\) missing 1 required positional argument: 'operands'"):
            tenon.Graph().add("unary")


if __name__ == "__main__":
    unittest.main()
