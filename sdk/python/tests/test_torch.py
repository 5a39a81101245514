# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch in tenon: outputs, gradients, shared memory, dims that change, refusals, torch.compile."""

import unittest
import warnings

from programs import python, torch_or_skip

torch = torch_or_skip()

from torch.utils import _pytree as pytree
from torch_modules import modules

import tenon
import tenon.torch

warnings.filterwarnings("ignore", module="torch")
F = torch.nn.functional


def floats(outputs):
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def gradients(function, module, args):
    """Outputs, and the gradients of a loss that reads all of them."""
    inputs = [t.requires_grad_() for t in floats(args)]
    outputs = function(*args)
    torch.manual_seed(1)
    loss = sum((y * torch.randn(y.shape)).sum() for y in floats(outputs) if y.requires_grad)
    wrt = [p for p in module.parameters() if p.requires_grad] + inputs
    found = torch.autograd.grad(loss, wrt, allow_unused=True)
    return outputs, [torch.zeros_like(w) if g is None else g for w, g in zip(wrt, found)]


class Case(unittest.TestCase):
    def assertClose(self, got, want, most=1e-4):
        self.assertEqual(got.shape, want.shape)
        self.assertEqual(got.dtype, want.dtype)
        error = (got.double() - want.double()).abs().max().item() if got.numel() else 0
        scale = max(1, want.double().abs().max().item()) if got.numel() else 1
        self.assertLessEqual(error, most * scale)

    def assertSame(self, module, args, most=1e-4, **options):
        """Outputs and gradients are those of PyTorch, in the same structure."""
        converted = tenon.from_torch(module, args, device="cpu", **options)
        want, want_gradients = gradients(module, module, args)
        got, got_gradients = gradients(converted, module, args)
        self.assertEqual(pytree.tree_structure(got), pytree.tree_structure(want))
        for g, w in zip(pytree.tree_leaves(got), pytree.tree_leaves(want)):
            self.assertClose(g, w, most)
        for g, w in zip(got_gradients, want_gradients):
            self.assertClose(g, w, most)
        return converted


class TwelveModules(Case):
    """Each is one test: see below."""


def _add(name, module, args):
    def test(self):
        self.assertSame(module, args)

    setattr(TwelveModules, f"test_{name}", test)


for _name, _module, _args in modules():
    _add(_name, _module, _args)


class Sharing(Case):
    def test_weights_are_those_of_the_module(self):
        module = torch.nn.Linear(64, 64)
        converted = tenon.from_torch(module, (torch.zeros(2, 64),), device="cpu")
        self.assertIs(converted.module, module)
        x = torch.randn(2, 64)
        with torch.no_grad():
            module.weight.fill_(0.5)
            module.bias.zero_()
            self.assertClose(converted(x), x.sum(1, keepdim=True).expand(2, 64) * 0.5)
            module.weight = torch.nn.Parameter(torch.zeros(64, 64))
            self.assertEqual(converted(x).abs().max().item(), 0)
        self.assertEqual(converted.model.store.names(), [])

    def test_training_is_that_of_pytorch(self):
        def trained(convert):
            torch.manual_seed(0)
            module = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            x = torch.randn(32, 4)
            y = x.prod(1, keepdim=True)
            call = tenon.from_torch(module, (x,), device="cpu") if convert else module
            optimizer = torch.optim.Adam(call.parameters(), 0.01)
            for _ in range(30):
                optimizer.zero_grad()
                loss = F.mse_loss(call(x), y)
                loss.backward()
                optimizer.step()
            return loss.detach(), module[0].weight.detach()

        for got, want in zip(trained(True), trained(False)):
            self.assertClose(got, want)

    def test_tied_weights_get_one_gradient(self):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.b(self.a(x).relu())

        self.assertSame(Tied(), (torch.randn(3, 8),))

    def test_buffers_are_written(self):
        class Counter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", torch.zeros(3))

            def forward(self, x):
                self.count += x.sum(0)
                return x * self.count

        module = Counter()
        converted = tenon.from_torch(module, (torch.ones(2, 3),), device="cpu")
        converted(torch.ones(2, 3))
        y = converted(torch.ones(2, 3))
        self.assertEqual(module.count.tolist(), [4, 4, 4])
        self.assertEqual(y[0].tolist(), [4, 4, 4])

    def test_batch_norm_in_training_mode(self):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4)).train()
        x = torch.randn(3, 2, 6, 6)
        state = {k: v.clone() for k, v in module.state_dict().items()}
        want, want_gradients = gradients(module, module, (x,))
        after = {k: v.clone() for k, v in module.state_dict().items()}
        module.load_state_dict(state)
        converted = tenon.from_torch(module, (x,), device="cpu")
        got, got_gradients = gradients(converted, module, (x,))
        for g, w in zip([got, *got_gradients], [want, *want_gradients]):
            self.assertClose(g, w)
        for name, value in module.state_dict().items():
            self.assertClose(value, after[name])


class Calls(Case):
    def test_modes_of_submodules_stay(self):
        module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        module[0].eval()
        converted = tenon.from_torch(module, (torch.randn(4, 3),), device="cpu")
        self.assertTrue(converted.training)
        self.assertEqual([m.training for m in module], [False, True])

    def test_symbols(self):
        module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Softmax(-1)).eval()
        n = torch.export.Dim("n", min=2, max=32)
        converted = tenon.from_torch(module, (torch.randn(4, 5),), dynamic_shapes=({0: n},), device="cpu")
        for rows in (2, 7, 32):
            x = torch.randn(rows, 5)
            self.assertClose(converted(x), module(x))
        with self.assertRaisesRegex(tenon.ShapeMismatch, "33; expected 2 to 32"):
            converted(torch.randn(33, 5))

    def test_wrong_arguments(self):
        converted = tenon.from_torch(torch.nn.Linear(5, 3), (torch.randn(4, 5),), device="cpu")
        with self.assertRaisesRegex(tenon.ShapeMismatch, r"expected \[4, 5\], got \[3, 5\].*dynamic_shapes"):
            converted(torch.randn(3, 5))
        with self.assertRaisesRegex(tenon.DtypeMismatch, "expected torch.float32, got torch.float64"):
            converted(torch.randn(4, 5).double())
        with self.assertRaisesRegex(tenon.InvalidArgument, "another structure"):
            converted(torch.randn(4, 5), torch.randn(1))

    def test_keywords_and_numbers(self):
        class Keywords(torch.nn.Module):
            def forward(self, x, *, scale, flag=True, rest=None):
                return {"y": x * scale if flag else x, "none": rest, "n": 3}

        x, scale = torch.randn(3), torch.randn(3)
        converted = tenon.from_torch(Keywords(), (x,), {"scale": scale, "flag": True}, device="cpu")
        found = converted(x, flag=True, scale=scale)
        self.assertClose(found["y"], x * scale)
        self.assertEqual((found["none"], found["n"]), (None, 3))
        with self.assertRaisesRegex(tenon.InvalidArgument, "expected True"):
            converted(x, scale=scale, flag=False)

    def test_strided_arguments(self):
        module = torch.nn.Linear(4, 3)
        converted = tenon.from_torch(module, (torch.randn(5, 4),), device="cpu")
        x = torch.randn(4, 5).t()
        self.assertClose(converted(x), module(x))

    def test_gradients_stop(self):
        class Stops(torch.nn.Module):
            def forward(self, x, y):
                with torch.no_grad():
                    z = x.exp()
                return x * x.detach() + z * y, (y.detach() * y), x.detach()

        x = torch.tensor([1e-45, 1e-40, -0.1, 88, 7])
        self.assertSame(Stops(), (x.clone(), torch.randn(5)))
        self.assertSame(
            Stops(), (torch.tensor([5e-324, 1e-31, 1.1, -700, 7], dtype=torch.float64), torch.randn(5).double())
        )
        converted = tenon.from_torch(Stops(), (x, x + 1), device="cpu")
        x[3] = 3e38
        results = converted(x.clone().requires_grad_(), x)
        self.assertEqual([r.requires_grad for r in results], [True, False, False])
        self.assertTrue(torch.equal(results[2], x))

    def test_loss_alone_is_computed_with_its_gradients(self):
        module = {n: (m, a) for n, m, a in modules()}["autoencoder"]
        converted = tenon.from_torch(*module, device="cpu")
        (converted(*module[1]) * 3).backward()
        got = module[0].decode[1].weight.grad.clone()
        module[0].zero_grad()
        (module[0](*module[1]) * 3).backward()
        self.assertClose(got, module[0].decode[1].weight.grad)

    def test_all_that_is_not_covered_is_named_at_once(self):
        class Part(torch.nn.Module):
            def forward(self, x):
                return torch.linalg.eigvals(x).real

        class Whole(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part()

            def forward(self, x):
                return self.part(x) + torch.linalg.svdvals(x)

        with self.assertRaises(tenon.Unsupported) as caught:
            tenon.from_torch(Whole(), (torch.randn(3, 3),), device="cpu")
        text = str(caught.exception)
        self.assertIn("linalg_eig.default in part: no rule", text)
        self.assertIn("linalg_svd", text)

    def test_dropout_in_training_mode_is_refused(self):
        with self.assertRaisesRegex(tenon.Unsupported, r"dropout.default in 1: training mode. hint: module.eval\(\)"):
            tenon.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()), (torch.randn(2, 2),))

    def test_tenon_alone_does_not_import_torch(self):
        python("import sys, tenon; assert 'torch' not in sys.modules; tenon.from_torch; assert 'torch' in sys.modules")


class Compile(Case):
    def test_backend(self):
        for name, module, args in modules():
            if name not in ("mlp", "vit", "lstm", "masked"):
                continue
            with self.subTest(name), torch.no_grad():
                torch._dynamo.reset()
                compiled = torch.compile(module, backend="tenon", options={"device": "cpu"})
                for got, want in zip(floats(compiled(*args)), floats(module(*args))):
                    self.assertClose(got, want)

    def test_training_is_refused(self):
        torch._dynamo.reset()
        compiled = torch.compile(torch.nn.Linear(3, 3), backend="tenon")
        with self.assertRaisesRegex(Exception, "the graph needs gradients"):
            compiled(torch.randn(2, 3))


if __name__ == "__main__":
    unittest.main()
