# SPDX-License-Identifier: Apache-2.0
"""Complex numbers and Fourier transforms of PyTorch in tenon: results, dtypes and gradients."""

import math
import re
import unittest
import unittest.mock
import warnings

from programs import torch_or_skip

torch = torch_or_skip()

import tenon
import test_torch_ops
from tenon.torch._build import RULES

warnings.filterwarnings("ignore", module="torch")
FFT = torch.fft


class Complex(unittest.TestCase):
    check = test_torch_ops.Ops.check

    def test_parts(self):
        torch.manual_seed(0)
        x, y = torch.randn(3, 5), torch.randn(3, 5)
        functions = {
            "complex": torch.complex,
            "polar": lambda x, y: torch.polar(x.abs(), y),
            "as_complex": lambda x, y: torch.view_as_complex(torch.stack([x, y], -1)),
            "mixed": lambda x, y: [x + 1j * y, x.to(torch.complex64) - 2, (3 - 2j) * x],
            "angle": lambda x, y: torch.angle(x),
            "of real": lambda x, y: [x / (1 + 1j), 1j / x, x + 1j],
        }
        self.check(functions, x, y)
        widened = {"sums": lambda x: [x.sum(dtype=torch.complex64), x.mean(0, dtype=torch.complex64)]}
        self.check(widened, x.detach(), wrt=False)

    def test_arithmetic(self):
        torch.manual_seed(0)
        x, y = (torch.randn(4, 6, dtype=torch.complex64) for _ in range(2))
        functions = {
            "parts": lambda x, y: [x.real, x.imag, torch.view_as_real(x), x.conj().imag, x.conj().real],
            "conj": lambda x, y: [x.conj() * y, torch.conj_physical(x), x.conj().resolve_conj(), x.mH @ y],
            "polar": lambda x, y: [x.abs(), torch.angle(x), torch.sgn(x)],
            "ring": lambda x, y: [x + y, x - 1, x * y, x * 2, x * (1 + 2j), -x, x * x.real, 1 - x, x.add(y, alpha=2j)],
            "field": lambda x, y: [x / y, x / 2, x / (1 + 1j), 1 / x, x / (y.real.abs() + 1), y.imag / x],
            "powers": lambda x, y: [x.square(), x**2, x**3, x.exp(), x.log()],
            "sums": lambda x, y: [x.sum(), x.sum(0), x.mean(), x.mean(1, keepdim=True), (x * y).sum((0, 1))],
            "moves": lambda x, y: [x.T, x.reshape(3, 8), torch.cat([x, y]), x[1:, ::2], x.flip(1), torch.where(x.real > 0, x, y)],
            "products": lambda x, y: [x @ y.T, x.unsqueeze(0) @ y.T.unsqueeze(0), torch.einsum("ij,kj->ik", x, y)],
            "vectors": lambda x, y: [x @ y[0], x[:, 0] @ y, x.mv(y[0]), x[0].dot(y[0]), torch.vdot(x[0], y[0])],
            "plus": lambda x, y: [
                torch.addmm(x[:, :4], x, y.T, beta=0.5, alpha=2j),
                torch.baddbmm(x[None, :, :4], x[None], y.T[None]),
                torch.addmv(x[:, 0], x, y[0]),
                torch.nn.functional.linear(x, y, y[:, 0]),
            ],
            "norms": lambda x, y: [torch.linalg.norm(FFT.fft(x)), x.norm(1, 0), torch.linalg.vector_norm(x, 3, 1, keepdim=True)],
            "one": lambda x, y: [x[0, 0].sum(0), x[0, 0].mean(0), x[0, 0].sum()],
            "inverse powers": lambda x, y: [x**-1, x**0, x.reciprocal()],
        }  # fmt: skip
        self.check(functions, x, y)
        self.check({"wide": lambda x: [x * x, x.abs(), FFT.fft(x)]}, torch.randn(3, 4, dtype=torch.complex128))
        converted = tenon.from_torch(test_torch_ops.Many({"y": lambda x: x + 1}), (x.detach(),), device="cpu")
        lazy = torch.randn(4, 6, dtype=torch.complex64).conj()  # PyTorch has not negated its imaginary parts yet
        torch.testing.assert_close(converted(lazy)["y"], lazy + 1)

    def test_sgn_of_zero(self):
        self.check({"sgn": torch.sgn, "abs": torch.abs}, torch.tensor([0, 3 + 4j, -2j]))

    def test_not_finite(self):
        inf, nan = float("inf"), float("nan")
        parts = [1, nan, inf, 1, 1, nan, -inf], [1, 1, 1, nan, inf, inf, 0]
        x = torch.complex(torch.tensor(parts[0]), torch.tensor(parts[1]))
        functions = {n: getattr(torch, n) for n in ("isnan", "isinf", "isfinite")}
        self.check(functions, x, wrt=False)

    def test_angle_of_zero(self):
        x = torch.complex(torch.tensor([0.0, -0.0, 0.0, 1.0, -1.0]), torch.tensor([0.0, 0.0, 2.0, 0.0, 0.0]))
        self.check({"angle": torch.angle}, x)
        self.check({"angle": torch.angle}, torch.tensor([-0.0, 0.0, -1.0, 2.0, float("nan")]))

    def test_refusals(self):
        x = torch.randn(3, dtype=torch.complex64)
        functions = {"sin": torch.sin, "tanh": torch.tanh, "cumsum": lambda x: x.cumsum(0)}
        for power in (0.5, 9, math.inf, math.nan, 2 + 1j):
            functions[f"pow[^:]*: power {re.escape(str(power))} of complex"] = lambda x, p=power: x**p
        for pattern, f in functions.items():
            with self.subTest(pattern), self.assertRaisesRegex(tenon.Unsupported, pattern):
                tenon.from_torch(test_torch_ops.Many({"y": f}), (x,), device="cpu")

    def test_unexpected_exceptions_name_the_op(self):
        def broken(b, x):
            raise ZeroDivisionError("of the rule")

        with unittest.mock.patch.dict(RULES, {"sin.default": broken}):
            with self.assertRaisesRegex(tenon.Unsupported, "sin.default: ZeroDivisionError: of the rule") as caught:
                tenon.from_torch(test_torch_ops.Many({"y": torch.sin}), (torch.randn(3),), device="cpu")
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)

    def test_indices(self):
        torch.manual_seed(0)
        x, at = torch.randn(3, 5, dtype=torch.complex64), torch.tensor([[2, 0], [1, 4], [3, 3]])
        functions = {
            "index": lambda x, i: [x[:, [0, 2]], x[i[0]], x[[0, 2], [1, 1]]],
            "select": lambda x, i: [x.index_select(1, i[2]), x.index_select(-2, i[0])],
            "gather": lambda x, i: [x.gather(1, i), x.gather(-1, i), torch.take_along_dim(x, i, 1)],
            "unfold": lambda x, i: x.unfold(1, 3, 2),
        }
        self.check(functions, x, at)

    def test_comparisons(self):
        x = torch.tensor([0, 1 + 1j, 1, 1j, complex("nan")])
        y = torch.tensor([0, 1 + 1j, 1j, 1j, 1])
        functions = {
            "eq": lambda x, y: [x == y, x == 1, x == 1j, x == y.real, x[:, None] == y],
            "any": lambda x, y: [x.any(), x[:, None].all(1), x[:1].any(), x.logical_not(), x.view(5, 1).any((0, 1))],
            "ne": lambda x, y: [x != y, x != 0, x.count_nonzero()],
        }
        self.check(functions, x, y, wrt=False)

    def test_limits(self):
        inf, nan = math.inf, math.nan
        parts = [0.0, inf, 1, inf, nan, inf, 1e-30, 3e38], [0.0, 1, -inf, nan, 1, inf, 1e-30, 3e38]
        x = torch.complex(torch.tensor(parts[0]), torch.tensor(parts[1]))
        y = torch.tensor([1 + 2j, 1j, 0])
        functions = {
            "reciprocal": lambda x, y: [x.reciprocal(), torch.ones_like(x) / x],
            "by zero": lambda x, y: [y / 0, y / 0j, y / torch.zeros(3), y / torch.zeros_like(y)],
            "log": lambda x, y: x.log(),
        }
        self.check(functions, x, y, wrt=False)
        parts = [inf, -inf, inf, 1, -inf], [0.0, 0, 1, 0, 1]
        exponents = torch.complex(torch.tensor(parts[0]), torch.tensor(parts[1]))
        self.check({"exp": torch.exp}, exponents, wrt=False)
        finite = torch.tensor([1e-30 + 1e-30j, 3 + 0j, 2j, 1e25 + 1j])
        self.check({"reciprocal": lambda x: [x[1:].reciprocal(), x[1:].log(), x[1:3].exp()]}, finite)

    def test_transforms(self):
        torch.manual_seed(0)
        r, c = torch.randn(4, 6), torch.randn(4, 6, dtype=torch.complex64)
        for norm in ("backward", "ortho", "forward"):
            functions = {}
            for n in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"):
                functions[n] = lambda r, c, f=getattr(FFT, n): [f(c, norm=norm), f(r, norm=norm)]
            for n in ("rfft", "ihfft", "rfft2", "rfftn"):
                functions[n] = lambda r, c, f=getattr(FFT, n): f(r, norm=norm)
            for n in ("irfft", "hfft", "irfft2", "irfftn"):
                functions[n] = lambda r, c, f=getattr(FFT, n): f(c, norm=norm)
            functions["lengths"] = lambda r, c: [FFT.fft(c, 9, 0), FFT.rfft(r, 4), FFT.irfft(c, 7), FFT.fft2(c, (3, 8))]
            self.check(functions, r, c)
        for n, d in ((1, 1.0), (2, 0.5), (5, 2.0)):
            functions = {"any": lambda r: [r[0, 0] + FFT.fftfreq(n, d), r[0, 0] + FFT.rfftfreq(n, d)]}
            self.check(functions, r.detach())
        self.check({"shift": lambda r: [FFT.fftshift(r), r + FFT.fftfreq(6, 0.5), r[:, :4] * FFT.rfftfreq(6)]}, r.detach())

    def test_frames(self):
        torch.manual_seed(0)
        x, window = torch.randn(2, 200), torch.hann_window(32)
        for options in ({}, {"normalized": True}, {"center": False}, {"onesided": False}):
            self.check({"stft": lambda x, w: torch.stft(x, 32, 8, window=w, return_complex=True, **options)}, x, window)
        self.check({"wide": lambda x, w: torch.stft(x, 32, 8, window=w, return_complex=True)}, x.detach().double(), window)
        self.check({"short": lambda x: torch.stft(x[0], 32, 8, 20, torch.hann_window(20), return_complex=True).abs()}, x)
        spectrum = torch.stft(x.detach(), 32, 8, window=window.detach(), return_complex=True)
        for length in (None, 190):
            self.check({"istft": lambda s, w: torch.istft(s, 32, 8, window=w, length=length)}, spectrum.detach(), window)
        self.check({"wide": lambda s, w: torch.istft(s, 32, 8, window=w)}, spectrum.detach().to(torch.complex128), window)
        twosided = torch.randn(32, 26, dtype=torch.complex64)  # its halves disagree
        functions = {
            "told": lambda s: torch.istft(s, 32, 8, window=torch.hann_window(32), onesided=False),
            "inferred": lambda s: torch.istft(s, 32, 8, window=torch.hann_window(32)),
        }
        self.check(functions, twosided)
        self.check({"one": lambda s: torch.istft(s[0], 32, 8, window=torch.hann_window(32))}, spectrum.detach())


if __name__ == "__main__":
    unittest.main()
