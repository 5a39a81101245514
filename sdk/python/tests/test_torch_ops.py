# SPDX-License-Identifier: Apache-2.0
"""Ops of PyTorch in tenon, many in one module: their results, dtypes and gradients are those of PyTorch."""

import math
import unittest
import warnings

from programs import torch_or_skip

torch = torch_or_skip()

import tenon

warnings.filterwarnings("ignore", module="torch")
F = torch.nn.functional
NAN = float("nan")


class Many(torch.nn.Module):
    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *args):
        return {name: function(*args) for name, function in self.functions.items()}


def flat(found):
    return [found] if isinstance(found, torch.Tensor) else [t for f in found for t in flat(f)]


def parts(t):
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


class Ops(unittest.TestCase):
    def check(self, functions, *args, most=2e-5, wrt=True):
        module = Many(functions)
        converted = tenon.from_torch(module, args, device="cpu")
        inputs = [a.requires_grad_() for a in args if wrt and (a.is_floating_point() or a.is_complex())]
        want, got = module(*args), converted(*args)
        for name in functions:
            for w, g in zip(flat(want[name]), flat(got[name])):
                with self.subTest(name):
                    self.assertEqual((g.dtype, g.shape), (w.dtype, w.shape))
                    torch.testing.assert_close(g, w, rtol=most, atol=most, equal_nan=True)
        gradients = []
        for results in (want, got):
            torch.manual_seed(3)
            terms = {}
            for name in functions:
                for r in map(parts, flat(results[name])):
                    if r.requires_grad and r.is_floating_point():
                        terms[name] = terms.get(name, 0) + (r * torch.randn(r.shape)).sum()
            loss = sum(terms.values())
            gradients.append(torch.autograd.grad(loss, inputs, allow_unused=True) if terms and inputs else ())
        for w, g in zip(*gradients):
            if w is not None:
                torch.testing.assert_close(g, w, rtol=10 * most, atol=10 * most * len(functions))

    def test_elementwise(self):
        torch.manual_seed(0)
        x = torch.rand(3, 5) * 1.6 - 0.8
        names = """abs neg exp expm1 sin cos tan asin acos atan sinh cosh tanh asinh atanh erf erfc square relu sigmoid
            exp2 floor ceil trunc round sign reciprocal isnan isinf logical_not isfinite deg2rad frac sinc""".split()
        functions = {n: getattr(torch, n) for n in names}
        functions |= {
            "positive": lambda x: [f(x.abs() + 0.1) for f in (torch.log, torch.log1p, torch.log2, torch.log10, torch.sqrt, torch.rsqrt)],
            "acosh": lambda x: torch.acosh(x.abs() + 1.5),
            "gelu": F.gelu,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
            "elu": lambda x: [F.elu(x, 0.5), F.selu(x), F.celu(x, 0.7)],
            "hard": lambda x: [F.hardsigmoid(8 * x), F.hardswish(8 * x), F.hardtanh(x, -0.3, 0.4), F.relu6(9 * x)],
            "soft": lambda x: [F.softplus(x, 3, 1), F.softsign(x), F.mish(x), F.silu(x), F.logsigmoid(x), F.tanhshrink(x)],
            "shrink": lambda x: [F.softshrink(x, 0.2), F.hardshrink(x, 0.2), F.threshold(x, 0.1, 2.0)],
            "glu": lambda x: F.glu(torch.cat([x, x + 1], 1)),
            "clamp": lambda x: [x.clamp(-0.2, 0.3), x.clamp(min=0.1), x.clamp(max=0.1), x.clamp(x * 0.5, x + 0.1)],
            "pow": lambda x: [x**2, x**3, (x.abs() + 1) ** 0.5, (x.abs() + 1) ** -0.5, 2**x, (x.abs() + 1) ** x, x**-1],
            "lerp": lambda x: [torch.lerp(x, x * 2, 0.3), torch.addcmul(x, x, x, value=0.5), torch.addcdiv(x, x, x + 3)],
            "round": lambda x: torch.round(x, decimals=2),
        }  # fmt: skip
        self.check(functions, x)

    def test_arithmetic_and_dtypes(self):
        torch.manual_seed(0)
        x, i = torch.randn(4, 3), torch.randint(-7, 8, (4, 3))
        k, mask = torch.tensor([[3, -2, 5]]), torch.tensor([True, False, True])
        functions = {
            "add": lambda x, i, k, m: [x + i, i + k, x + 1, i + 1.5, torch.add(x, i, alpha=2), m + m, m + i, 1 - x, x - i],
            "mul": lambda x, i, k, m: [x * i, i * k, i * m, m * m, x * 2, i * 0.5],
            "div": lambda x, i, k, m: [x / 3, i / k, i / 2, torch.div(i, k, rounding_mode="trunc")],
            "floor": lambda x, i, k, m: [i // k, torch.div(x, 0.3, rounding_mode="floor"), i // 2, x.detach() // 0.7],
            "mod": lambda x, i, k, m: [i % k, torch.fmod(i, k), x % 0.7, torch.fmod(x, 0.7), i % 3],
            "compare": lambda x, i, k, m: [x > 0.5, i == k, x < i, i >= 1.5, m == (i > 0), i != 2],
            "bits": lambda x, i, k, m: [i & k, i | 3, i ^ k, ~i, ~m, m & m, m | (i > 0), i << 2, i >> 1],
            "logical": lambda x, i, k, m: [torch.logical_and(x, m), torch.logical_or(i, m), torch.logical_xor(m, i > 0)],
            "where": lambda x, i, k, m: [torch.where(m, x, 0.0), torch.where(x > 0, i, x), x.masked_fill(m, -1), x.masked_fill(~m, NAN)],
            "cast": lambda x, i, k, m: [x.double(), x.half(), x.bfloat16(), x.long(), i.float(), m.float(), i.bool(), x.to(torch.int8), i.int()],
            "max": lambda x, i, k, m: [torch.maximum(x, x * 2), torch.minimum(i, k), torch.atan2(x, x + 3)],
        }  # fmt: skip
        self.check(functions, x, i, k, mask)

    def test_reductions_and_order(self):
        torch.manual_seed(0)
        x, i = torch.randn(3, 4, 5), torch.randint(-3, 4, (3, 4))
        functions = {
            "sum": lambda x, i: [x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), i.sum(), (i > 0).sum(1), x.sum(0, dtype=torch.float64)],
            "mean": lambda x, i: [x.mean(), x.mean(-1), i.mean(0, dtype=torch.float32)],
            "prod": lambda x, i: [x.prod(1), i.prod(), x.prod()],
            "extremes": lambda x, i: [x.amax(1), x.amin((0, 1)), x.max(), i.min(), *x.max(1), *x.min(-1, keepdim=True), *i.max(0)],
            "any": lambda x, i: [(x > 1).any(), (x > 1).all(1), i.any(0), (x > 5).any((0, 1))],
            "variance": lambda x, i: [x.var(1), x.std(), x.var((0, 2), correction=0), *torch.var_mean(x, -1), *torch.std_mean(x, 0, keepdim=True)],
            "norm": lambda x, i: [x.norm(), x.norm(1, -1), x.norm(3, 1), torch.linalg.vector_norm(x, math.inf, 1), F.normalize(x, dim=1)],
            "logsumexp": lambda x, i: [x.logsumexp(1), x.softmax(1), x.log_softmax(-1), F.softmin(x, 0), torch.log_softmax(x, 0)],
            "arg": lambda x, i: [x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True)],
            "order": lambda x, i: [*x.topk(2, 1), *x.sort(-1, descending=True), x.argsort(0), *x.topk(3, largest=False)],
            "running": lambda x, i: [x.cumsum(1), i.cumsum(0), x.cumprod(-1), (i > 0).cumsum(1)],
            "losses": lambda x, i: [F.l1_loss(x, x * 2), F.smooth_l1_loss(x, x * 3), F.huber_loss(x, x * 3), F.kl_div(x.log_softmax(1), x.softmax(0))],
            "distance": lambda x, i: [F.cosine_similarity(x, x + 1, dim=1), F.pairwise_distance(x, x + 1)],
        }  # fmt: skip
        self.check(functions, x, i, most=1e-4)

    def test_shapes(self):
        torch.manual_seed(0)
        x = torch.randn(2, 3, 4, 6)
        functions = {
            "view": lambda x: [x.view(6, -1), x.reshape(2, 12, 6), x.flatten(1), x.unflatten(3, (2, -1)), x[:, None].squeeze(1)],
            "order": lambda x: [x.permute(3, 0, 2, 1), x.transpose(1, -1), x.mT, x.movedim(0, 2), x.swapaxes(0, 1)],
            "parts": lambda x: [x[0], x[:, 1:], x[..., ::2], x[:, -1], x[:, :, 1:-1, -3:], x.narrow(2, 1, 2), x.select(1, 2)],
            "split": lambda x: [*x.split(2, 3), *x.chunk(3, 2), *x.split([1, 2], 1), *x.unbind(0), *x.tensor_split(4, 3)],
            "join": lambda x: [torch.cat([x, x], 1), torch.stack([x, x], 2), torch.cat([x[:, :1], x[:, :2]], 1), torch.hstack([x, x])],
            "repeat": lambda x: [x.repeat(2, 1, 1, 3), x[:, :1].expand(2, 5, 4, 6), x.repeat_interleave(2, 1), x.tile(2), x.repeat(2, 1, 1, 1, 1)],
            "move": lambda x: [x.flip(1, 3), x.roll(2, 1), x.roll((1, -2), (2, 3)), x.roll(3), torch.rot90(x, 1, (2, 3))],
            "pad": lambda x: [F.pad(x, (1, 2)), F.pad(x, (1, -1, 2, 0), value=3.0), F.pad(x, (1, 2, 1, 0), mode="reflect"), F.pad(x, (2, 1, 0, 3), mode="replicate"), F.pad(x, (1, 1, 2, 0), mode="circular")],
            "band": lambda x: [x.tril(), x.triu(1), x.tril(-1), x.diagonal(0, 2, 3), x.diagonal(-1, 1, 3), torch.diag_embed(x[0, 0])],
            "unfold": lambda x: [x.unfold(3, 3, 2), F.unfold(x, (2, 3), padding=1), F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), F.pixel_unshuffle(x, 2)],
            "create": lambda x: [torch.zeros(2, 3), torch.ones_like(x[0]), torch.full((2,), 7), torch.arange(5), torch.arange(1, 4, 0.5), torch.eye(3, 4), torch.linspace(0, 1, 5), x.new_full((2,), 4), torch.tensor([1.5, 2]), torch.meshgrid(torch.arange(3), torch.arange(2), indexing="ij")],
        }  # fmt: skip
        self.check(functions, x)

    def test_indices(self):
        torch.manual_seed(0)
        x, i, m = torch.randn(4, 5, 3), torch.tensor([2, 0, -1]), torch.rand(4, 5) > 0.5
        e = torch.randint(0, 4, (2, 5, 3))

        def written(x, change):
            y = x.clone()
            change(y)
            return y

        def put(y, i):
            y[i, 1] = 2.0
            y[:, 2:4] = 5.0
            y[..., 0] += 1
            y[1, i] = y[2, i] * 2
            y[0, :2] = y[3, 3:] - 1
            y[:, 1, 1:].copy_(y[2, :2, 0])
            y.transpose(0, 1)[4] = y[0, :4, :1].double()

        functions = {
            "index": lambda x, i, m, e: [x[i], x[:, i], x[i, i], x[i, :, i.abs()], x[1, i], x[i[:, None], i], x[:, i, i]],
            "select": lambda x, i, m, e: [x.index_select(1, i.abs()), torch.take_along_dim(x, e, 0), x.gather(0, e)],
            "put": lambda x, i, m, e: [written(x, lambda y: put(y, i)), x.index_put((i.abs(),), x[:3] * 2, accumulate=True)],
            "masks": lambda x, i, m, e: [written(x, lambda y: y.__setitem__(m, 0.0)), x.masked_fill(m[..., None], 1.0), torch.where(m[..., None], x, 0)],
            "scatter": lambda x, i, m, e: [x.scatter(0, e[:1], x[:1] * 2), x.scatter(0, e, 1.0), x.scatter_add(0, e, x[:2] * 3)],
            "index_add": lambda x, i, m, e: [x.index_add(0, i.abs(), x[:3], alpha=2), x.index_copy(1, torch.tensor([0, 3]), x[:, :2] * 2), x.index_fill(0, i.abs(), 3.0)],
            "slices": lambda x, i, m, e: [torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 5, 2), torch.select_scatter(x, x[:, 0] * 2, 1, 3)],
            "one_hot": lambda x, i, m, e: F.one_hot(i.abs(), 4),
            "embedding": lambda x, i, m, e: F.embedding(i.abs(), x[:, 0]),
        }  # fmt: skip
        self.check(functions, x, i, m, e)

    def test_ranks_and_running_extrema(self):
        torch.manual_seed(0)
        x, t = torch.randn(3, 4, 5), torch.tensor([[3.0, 1, 1, 2, 3], [0, 0, 0, 0, 0], [1, NAN, 4, NAN, 5]])
        functions = {
            "ranks": lambda x, t: [*x.kthvalue(2, 1), *x.kthvalue(5, -1, True), *x.median(1), *x.median(2, True), x.median()],
            "running": lambda x, t: [*x.cummax(1), *x.cummin(2), x.logcumsumexp(1), (x * 100).logcumsumexp(0)],
        }  # fmt: skip
        self.check(functions, x, t)
        nans = {"nan": lambda t: [*t.median(1), t.median(), *t.cummax(1), *t.cummin(1), *t.cummax(0), t[:2].logcumsumexp(0)]}
        self.check(nans, t, wrt=False)

    def test_searches_and_distances(self):
        torch.manual_seed(0)
        x, y, s = torch.randn(3, 4, 5), torch.randn(3, 6, 5), torch.tensor([0.0, 1, 1, 2])
        search = torch.searchsorted
        functions = {
            "search": lambda x, y, s: [search(x.sort(-1)[0], y[:, :4], right=True), search(s, x), search(s, y, side="right", out_int32=True)],
            "sorter": lambda x, y, s: search(x, y[:, :4], sorter=x.argsort(-1)),
            "bucketize": lambda x, y, s: [torch.bucketize(x, s), torch.bucketize((x * 2).int(), s, right=True)],
            "cdist": lambda x, y, s: [torch.cdist(x, y, p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)] + [torch.cdist(x, x)],
            "dist": lambda x, y, s: [torch.dist(x, x + 1, p) for p in (1, 2, math.inf)],
            "hypot": lambda x, y, s: torch.hypot(x, x.exp()),
        }  # fmt: skip
        self.check(functions, x, y, s)
        self.check({"at 0": lambda x: [torch.cdist(x, x, 3.0), torch.linalg.vector_norm(x * 0, 3.0)]}, x)
        functions = {
            "half": lambda x: [torch.linalg.vector_norm(x, 0.5), torch.linalg.vector_norm(x * 0, 0.5), torch.cdist(x, x, 0.5)],
            "below 0": lambda x: [torch.linalg.vector_norm(x, -1), torch.linalg.vector_norm(x, -2, 0)],
        }
        self.check(functions, torch.tensor([[0.0, 1, 2], [1, 0, -3]]))
        count = {"count": lambda x: [torch.linalg.vector_norm(x, 0), torch.cdist(x, x, 0.0)]}
        self.check(count, torch.tensor([[0.0, 1, 2], [1, 0, -3]]))
        far = torch.tensor([0.0, 3e30, math.inf, math.inf])
        self.check({"hypot": lambda a, b: torch.hypot(a, b)}, far, torch.tensor([0.0, 4e30, 1.0, NAN]), wrt=False)
        self.check({"hypot": lambda a, b: [torch.hypot(a, b), torch.hypot(a, b[0]), torch.hypot(b[0], a)]}, torch.rand(3, 4) + 1, torch.rand(4) + 1)
        rows, x = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([NAN, 1.0, 2.5, math.inf, -math.inf])
        functions = {"nan": lambda r, x: [f(x) for s in (False, True) for f in (lambda x: torch.bucketize(x, r, right=s), lambda x: torch.searchsorted(r, x, right=s))]}
        self.check(functions, rows, x, wrt=False)
        self.check(functions, torch.tensor([1.0, 2.0, NAN]), x, wrt=False)
        wide = {"wide rows": lambda i, r: [torch.bucketize(i, r), torch.searchsorted(r, i.float())]}
        self.check(wide, torch.tensor([5], dtype=torch.int32), torch.tensor([2**33, 2**34]), wrt=False)

    def test_reductions_by_indices(self):
        torch.manual_seed(0)
        x, y, i = torch.randn(3, 4, 5), torch.randn(3, 4, 5), torch.randint(0, 4, (3, 4, 5))
        at = torch.tensor([0, 2, 0, 3])
        for kind in ("sum", "mean", "prod", "amax", "amin"):
            for own in (True, False):
                functions = {"scatter": lambda x, y, i: x.scatter_reduce(1, i, y, kind, include_self=own)}
                if kind != "sum":
                    functions["index"] = lambda x, y, i: x.index_reduce(1, at, y, kind, include_self=own)
                self.check(functions, x, y, i)
        whole = {
            "integers": lambda x, y, i: [(x * 9).long().scatter_reduce(1, i, (y * 9).long(), k, include_self=False) for k in ("amax", "amin")],
            "bools": lambda x, y, i: [(x > 0).scatter_reduce(1, i, y > 0, k, include_self=False) for k in ("amax", "amin")],
            "part": lambda x, y, i: x.scatter_reduce(1, i[:2, :3, :4], y, "amax"),
        }  # fmt: skip
        self.check(whole, x, y, i, wrt=False)

    def test_bins_of_several_sizes(self):
        torch.manual_seed(0)
        for n, x in enumerate((torch.randn(2, 3, 10), torch.randn(2, 3, 7, 9), torch.randn(1, 2, 5, 6, 7)), 1):
            pool = getattr(F, f"adaptive_max_pool{n}d")
            self.check({"max": lambda x: pool(x, 4, return_indices=True)}, x)
        self.check({"one axis": lambda x: F.adaptive_max_pool2d(x, (3, None))}, torch.randn(2, 3, 7, 9))
        self.check({"rrelu": lambda x: F.rrelu(x)}, torch.randn(3, 4))

    def test_embedding_gradients(self):
        torch.manual_seed(0)
        weight, ids = torch.randn(6, 3), torch.tensor([[2, 0, 2, 5], [1, 2, 2, 0]])
        functions = {
            "padding": lambda w, i: [F.embedding(i, w, padding_idx=2), F.embedding(i[0, 0], w, padding_idx=-4)],
            "frequency": lambda w, i: F.embedding(i, w, scale_grad_by_freq=True),
            "both": lambda w, i: F.embedding(i, w, padding_idx=0, scale_grad_by_freq=True),
        }
        for name, function in functions.items():
            self.check({name: function}, weight, ids)
        weight.data[5, 1] = math.inf
        module = Many({"infinite": functions["frequency"]})
        got = tenon.from_torch(module, (weight, ids), device="cpu")(weight.requires_grad_(), ids)["infinite"]
        torch.testing.assert_close(got, module(weight, ids)["infinite"])

    def test_experts(self):
        torch.manual_seed(0)
        x, w, ends = torch.randn(9, 8), torch.randn(3, 8, 16), torch.tensor([2, 2, 9], dtype=torch.int32)
        counted = torch.tensor([0.0, 3, 1, 1, 7, 7, -1, 9])
        bins = [(8, 0, 8), (5,), (4, -1, 1), (3, 1, 1)]
        self.check({"rows": lambda x, w, e: torch._grouped_mm(x, w, offs=e)}, x, w, ends)
        self.check({"batch": lambda x, w: torch._grouped_mm(x, w)}, torch.randn(3, 4, 8), w)
        self.check({"histc": lambda c: [torch.histc(c, *b) for b in bins] + [torch.histc(c[:1] + 2, 4)]}, counted, wrt=False)

    def test_products(self):
        torch.manual_seed(0)
        a, b, v = torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(4)
        functions = {
            "matmul": lambda a, b, v: [a @ b, a @ v, v @ b, v @ v, a[0] @ b[0], torch.mv(a[0], v), a[:, None] @ b],
            "linear": lambda a, b, v: [F.linear(a, b[0].T), F.linear(a, b[0].T, b[1, 0]), F.linear(a, v), F.bilinear(a[0], a[1], b.new_ones(2, 4, 4))],
            "add": lambda a, b, v: [torch.addmm(b[0, 0], a[0], b[0]), torch.addmm(b[0, :3], a[0], b[0], beta=0.5, alpha=2), torch.baddbmm(b[:, :1], a, b)],
            "einsum": lambda a, b, v: [torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij,j->bi", a, v), torch.einsum("bij,bij->b", a, a), torch.outer(v, v), torch.tensordot(a, b, ([2], [1])), torch.einsum("bij,cjk->bcik", a, b)],
            "others": lambda a, b, v: [torch.kron(a[0], a[1]), torch.linalg.norm(a[0]), torch.trace(a[0] @ b[0, :, :3]), torch.cross(a[..., :3], a[..., 1:], dim=-1)],
        }  # fmt: skip
        self.check(functions, a, b, v)

    def test_images(self):
        torch.manual_seed(0)
        x, w, k = torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 3), torch.randn(4, 3, 3, 2)
        functions = {
            "conv": lambda x, w, k: [F.conv2d(x, w, stride=2, padding=1, groups=2), F.conv2d(x, w, x[0, 0, 0, :6], padding="same", dilation=2, groups=2), F.conv2d(x[0], w, groups=2)],
            "conv1d": lambda x, w, k: [F.conv1d(x[:, :, 0], w[:, :, 0], groups=2, padding=1), F.conv3d(x[:, None], w[:2, :1, None], padding=(0, 1, 1))],
            "transposed": lambda x, w, k: [F.conv_transpose2d(x, k, stride=2, padding=1, output_padding=1), F.conv_transpose2d(x, k, x[0, 0, 0, :6], groups=2, dilation=2), F.conv_transpose1d(x[:, :, 0], k[:, :, 0], stride=3)],
            "max": lambda x, w, k: [F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (2, 3), ceil_mode=True), F.max_pool1d(x[:, :, 0], 2), F.max_pool2d(x, 2, return_indices=True), F.max_pool3d(x, 2), F.adaptive_max_pool2d(x, (3, 2))],
            "avg": lambda x, w, k: [F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, count_include_pad=False), F.avg_pool1d(x[:, :, 0], 2, ceil_mode=True), F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool1d(x[:, :, 0], 4), F.lp_pool2d(x, 2, 2)],
            "nearest": lambda x, w, k: [F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 13)), F.interpolate(x, size=(5, 13), mode="nearest-exact"), F.interpolate(x, scale_factor=1.7), F.interpolate(x[:, :, 0], scale_factor=3)],
            "linear": lambda x, w, k: [F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(5, 13), mode="bilinear", align_corners=True), F.interpolate(x, scale_factor=1.7, mode="bilinear"), F.interpolate(x, size=(12, 5), mode="bicubic"), F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True)],
            "norms": lambda x, w, k: [F.group_norm(x, 2), F.instance_norm(x), F.layer_norm(x, (9, 8)), F.layer_norm(x, (8,), x[0, 0, 0], x[0, 0, 1]), F.rms_norm(x, (8,)), F.rms_norm(x, (8,), x[0, 0, 0], 1e-3), F.local_response_norm(x, 2)],
            "batch_norm": lambda x, w, k: [F.batch_norm(x, x[0, :, 0, 0].detach(), x[0, :, 0, 1].detach() ** 2, x[0, :, 1, 0], x[0, :, 1, 1])],
            "grid": lambda x, w, k: [F.grid_sample(x, x[..., :2].permute(0, 2, 3, 1)[..., :2].tanh(), align_corners=a, mode=m, padding_mode=p) for a, m, p in ((False, "bilinear", "zeros"), (True, "nearest", "border"), (False, "bilinear", "reflection"))],
        }  # fmt: skip
        self.check(functions, x, w, k, most=1e-4)

    def test_attention_and_losses(self):
        torch.manual_seed(0)
        q, m, labels = torch.randn(2, 4, 6, 8), torch.rand(6, 6) > 0.3, torch.randint(0, 4, (2, 6, 8))
        m |= torch.eye(6, dtype=torch.bool)
        sdpa = F.scaled_dot_product_attention
        functions = {
            "attention": lambda q, m, y: [sdpa(q, q, q), sdpa(q, q * 2, q, is_causal=True), sdpa(q, q, q, attn_mask=m), sdpa(q, q, q, attn_mask=m.float(), scale=0.2), sdpa(q[0], q[1], q[0]), sdpa(q[0, 0], q[0, 1], q[0, 0], is_causal=True)],
            "grouped": lambda q, m, y: [sdpa(q, q[:, :2], q[:, 2:], enable_gqa=True), sdpa(q, q[:, :1], q[:, :1], enable_gqa=True)],
            "cross_entropy": lambda q, m, y: [F.cross_entropy(q, y), F.cross_entropy(q, y, reduction="none", label_smoothing=0.1), F.cross_entropy(q, y, ignore_index=1, reduction="sum"), F.cross_entropy(q, q.softmax(1)), F.cross_entropy(q, y, weight=q[0, :, 0, 0].detach().abs())],
            "nll": lambda q, m, y: [F.nll_loss(q.log_softmax(1), y), F.nll_loss(q[:, :, 0, 0], y[:, 0, 0], weight=q[0, :, 0, 0].detach().abs(), ignore_index=2)],
            "binary": lambda q, m, y: [F.binary_cross_entropy(q.sigmoid(), q.sigmoid().detach()), F.binary_cross_entropy_with_logits(q, m[:, :1].float().expand(2, 4, 6, 8)), F.mse_loss(q, q * 2), F.triplet_margin_loss(q, q + 1, q * 2)],
        }  # fmt: skip
        self.check(functions, q, m, labels, most=1e-4)

    def test_bags(self):
        torch.manual_seed(0)
        w, i, o = torch.randn(7, 3), torch.tensor([1, 4, 4, 0, 6, 2]), torch.tensor([0, 2, 2, 5])
        bag = F.embedding_bag
        functions = {
            "bags": lambda w, i, o: [bag(i, w, o, mode=m) for m in ("sum", "mean", "max")],
            "rest": lambda w, i, o: [bag(i, w, o, mode="sum", per_sample_weights=w[:6, 0]), bag(i.view(2, 3), w), bag(i, w, o + (o > 4), mode="mean", include_last_offset=True), bag(i, w, o, mode="sum", padding_idx=4)],
        }  # fmt: skip
        self.check(functions, w, i, o)

    def test_recurrent_layers(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU):
            for options in ({}, {"bias": False, "bidirectional": True}, {"num_layers": 2, "batch_first": True}):
                with self.subTest(kind.__name__, **options):
                    torch.manual_seed(0)
                    layer, x = kind(3, 4, **options), torch.randn(5, 2, 3)
                    converted = tenon.from_torch(layer, (x,), device="cpu")
                    for got, want in zip(flat(converted(x)), flat(layer(x))):
                        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
                    want = torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))
                    got = torch.autograd.grad(converted(x)[0].square().sum(), list(layer.parameters()))
                    for g, w in zip(got, want):
                        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
