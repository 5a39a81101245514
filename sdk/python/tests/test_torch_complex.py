# SPDX-License-Identifier: Apache-2.0
"""Complex numbers and Fourier transforms of PyTorch in tenon: results, dtypes and gradients."""

import unittest
import warnings

from programs import torch_or_skip

torch = torch_or_skip()

import tenon
import test_torch_ops

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
        }
        self.check(functions, x, y)

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

    def test_refusals(self):
        x = torch.randn(3, dtype=torch.complex64)
        for name, f in {"sin": torch.sin, "tanh": torch.tanh, "pow": lambda x: x**0.5, "cumsum": lambda x: x.cumsum(0)}.items():
            with self.subTest(name), self.assertRaisesRegex(tenon.Unsupported, name):
                tenon.from_torch(test_torch_ops.Many({"y": f}), (x,), device="cpu")

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
        self.check({"short": lambda x: torch.stft(x[0], 32, 8, 20, torch.hann_window(20), return_complex=True).abs()}, x)
        spectrum = torch.stft(x.detach(), 32, 8, window=window.detach(), return_complex=True)
        for length in (None, 190):
            self.check({"istft": lambda s, w: torch.istft(s, 32, 8, window=w, length=length)}, spectrum.detach(), window)
        twosided = torch.randn(32, 26, dtype=torch.complex64)  # its halves disagree
        functions = {
            "told": lambda s: torch.istft(s, 32, 8, window=torch.hann_window(32), onesided=False),
            "inferred": lambda s: torch.istft(s, 32, 8, window=torch.hann_window(32)),
        }
        self.check(functions, twosided)
        self.check({"one": lambda s: torch.istft(s[0], 32, 8, window=torch.hann_window(32))}, spectrum.detach())


if __name__ == "__main__":
    unittest.main()
