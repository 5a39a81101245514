# SPDX-License-Identifier: Apache-2.0
"""Linear algebra of PyTorch in tenon: results, dtypes and gradients."""

import unittest
import warnings

from programs import torch_or_skip

torch = torch_or_skip()

import tenon
import test_torch_ops

warnings.filterwarnings("ignore", module="torch")
LINALG = torch.linalg


class Linalg(unittest.TestCase):
    check = test_torch_ops.Ops.check

    def test_systems(self):
        torch.manual_seed(0)
        a, b = torch.randn(3, 4, 4) + 4 * torch.eye(4), torch.randn(3, 4, 2)
        functions = {
            "inverse": lambda a, b: [LINALG.inv(a), torch.inverse(a[0]), *LINALG.inv_ex(a), LINALG.matrix_power(a, -2)],
            "solve": lambda a, b: [LINALG.solve(a, b), LINALG.solve(a, b[..., 0]), *LINALG.solve_ex(a, b)],
            "one": lambda a, b: [LINALG.solve(a[0], b[0]), LINALG.solve(a, b[0, :, 0]), LINALG.solve(a[0], b), LINALG.solve(a, b[0])],
            "right": lambda a, b: LINALG.solve(a, b.mT, left=False),
            "triangular": lambda a, b: [
                LINALG.solve_triangular(a, b, upper=True),
                LINALG.solve_triangular(a, b, upper=False, unitriangular=True),
                LINALG.solve_triangular(a, b.mT, upper=False, left=False),
                LINALG.solve_triangular(a, b.mT, upper=True, left=False),
                torch.triangular_solve(b, a, upper=False, transpose=True)[0],
            ],
            "broadcast": lambda a, b: [*torch.triangular_solve(b, a[0])],
            "tensorinv": lambda a, b: [LINALG.tensorinv(a[0].reshape(2, 2, 4), 2), LINALG.tensorinv(a[0].reshape(4, 2, 2), 1)],
            "tensorsolve": lambda a, b: LINALG.tensorsolve(a[0].reshape(2, 2, 4), b[0, :, 0].reshape(2, 2)),
        }
        self.check(functions, a, b, most=1e-4)

    def test_factors(self):
        torch.manual_seed(0)
        a, b = torch.randn(3, 4, 4) + 3 * torch.eye(4), torch.randn(3, 4, 2)
        functions = {
            "cholesky": lambda a, b: [LINALG.cholesky(a @ a.mT + torch.eye(4))],
            "upper": lambda a, b: [LINALG.cholesky(a @ a.mT + torch.eye(4), upper=True), *LINALG.cholesky_ex(a @ a.mT + torch.eye(4))],
            "solve": lambda a, b: [torch.cholesky_solve(b, a.tril() + 3 * torch.eye(4)), torch.cholesky_solve(b, a.triu() + 3 * torch.eye(4), upper=True)],
            "inverse": lambda a, b: torch.cholesky_inverse(a.tril() + 3 * torch.eye(4)),
            "det": lambda a, b: [LINALG.det(a), torch.det(a[0]), *LINALG.slogdet(a), torch.logdet(a @ a.mT)],
            "lu_factor": lambda a, b: [*LINALG.lu_factor(a.roll(1, -1)), *LINALG.lu_factor_ex(a[0].roll(2, -2))],
            "lu_solve": lambda a, b: [
                LINALG.lu_solve(*LINALG.lu_factor(a.roll(1, -1)), b),
                LINALG.lu_solve(*LINALG.lu_factor(a.roll(2, -1)), b, adjoint=True),
                LINALG.lu_solve(*LINALG.lu_factor(a.roll(1, -1)), b.mT, left=False),
                LINALG.lu_solve(*LINALG.lu_factor(a.roll(2, -1)), b.mT, left=False, adjoint=True),
            ],
            "lu": lambda a, b: [LINALG.lu(a.roll(1, -1))[0].detach(), *LINALG.lu(a.roll(1, -1))[1:]],
        }  # fmt: skip
        self.check(functions, a, b, most=2e-4)

    def test_no_rows(self):
        functions = {"none": lambda a: [*LINALG.lu_factor(a), *LINALG.lu_factor_ex(a), LINALG.inv_ex(a)[1]]}
        self.check(functions, torch.empty(2, 0, 0), wrt=False)

    def test_reports(self):
        a = torch.stack([torch.eye(3), torch.ones(3, 3), torch.diag(torch.tensor([2.0, 1, 0])), torch.zeros(3, 3)])
        functions = {
            "lu_factor": LINALG.lu_factor_ex,
            "inv": lambda a: LINALG.inv_ex(a)[1],
            "solve": lambda a: LINALG.solve_ex(a, a)[1],
        }
        self.check(functions, a, wrt=False)
        self.check({"lu_factor": LINALG.lu_factor_ex}, torch.ones(2, 2), wrt=False)
        self.check({"inv": lambda a: LINALG.inv_ex(a)[1]}, torch.full((2, 2), float("nan")), wrt=False)

    def test_compiled(self):
        import tenon.torch  # noqa: F401 - registers the backend

        torch.manual_seed(0)
        a = torch.randn(2, 3, 3) + 3 * torch.eye(3)
        functions = {
            "inv": LINALG.inv,
            "solve": lambda a: LINALG.solve(a, a + 1),
            "cholesky": lambda a: LINALG.cholesky(a @ a.mT),
            "twice": lambda a: LINALG.inv(LINALG.inv(a)),
        }
        for name, f in functions.items():
            with self.subTest(name), torch.no_grad():
                compiled = torch.compile(f, backend="tenon", options={"device": "cpu"})
                torch.testing.assert_close(compiled(a), f(a), rtol=1e-4, atol=1e-4)
                with self.assertRaises(tenon.Error):
                    compiled(torch.zeros(2, 3, 3))

    def test_singular(self):
        a = torch.zeros(2, 2)
        converted = tenon.from_torch(test_torch_ops.Many({"y": LINALG.inv}), (torch.eye(2),), device="cpu")
        with self.assertRaisesRegex(tenon.Error, "singular"):
            converted(a)
        converted = tenon.from_torch(test_torch_ops.Many({"y": LINALG.inv_ex}), (torch.eye(2),), device="cpu")
        self.assertGreater(converted(a)["y"][1].item(), 0)
        self.assertEqual(converted(torch.eye(2))["y"][1].item(), 0)


if __name__ == "__main__":
    unittest.main()
