#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dense.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random cases in f64 beside PyTorch, values and gradients: losses, dense linear algebra, the gate of a mixture of experts, and
nearest neighbours.
Each case has a seed of its own, which a failure names, with its graph. Exits with 77 without PyTorch."""
import sys

try:
    import numpy
    import torch
    from torch.nn import functional
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import exact

LIMIT = 1e-9  # of an error, over the largest number


class Draw:
    """A case over PyTorch's operands, with the gradients of a weighed result."""

    def __init__(self, case):
        self.case, self.rng = case, case.rng
        self.numbers = numpy.random.default_rng(case.rng.randrange(1 << 30))
        self.wrt = []

    def floats(self, name, array, wrt=True):
        tensor = torch.tensor(self.case.input(name, numpy.asarray(array, numpy.float64)), requires_grad=wrt)
        if wrt:
            self.wrt.append((name, tensor))
        return tensor

    def normal(self, name, shape, wrt=True):
        return self.floats(name, self.numbers.standard_normal(shape), wrt)

    def integers(self, name, array):
        dtype = self.rng.choice([numpy.int32, numpy.int64])
        return torch.tensor(self.case.input(name, numpy.asarray(array, dtype)).astype(numpy.int64))

    def finish(self, call, y):
        """call: of the op, whose result is y."""
        weights = self.numbers.standard_normal(tuple(y.shape))
        self.case.input("weights", weights)
        names = [name for name, _ in self.wrt]
        self.case.lines += [f"y = {call}", 'weighed = binary(y, weights) {kind="mul"}',
                            'loss = reduce(weighed) {kind="sum"}',
                            f"({', '.join('d_' + n for n in names)}) = grad(loss, [{', '.join(names)}])"]
        gradients = torch.autograd.grad((y * torch.tensor(weights)).sum(), [t for _, t in self.wrt])
        self.case.output("y", y.detach())
        for name, gradient in zip(names, gradients):
            self.case.output("d_" + name, gradient)


def reduction(rng):
    return rng.choice(["none", "sum", "mean"])


def pair_loss(case):
    d, rng = Draw(case), case.rng
    shape, how = case.dims(rng.randint(1, 3)), reduction(case.rng)
    kind = rng.choice(["mse", "l1", "smooth_l1", "huber"])
    x, target = d.normal("x", shape), d.normal("target", shape)
    knee = rng.choice([0.3, 1.0, 2.5])
    if kind == "smooth_l1":
        y, given = functional.smooth_l1_loss(x, target, reduction=how, beta=knee), {"beta": knee}
    elif kind == "huber":
        y, given = functional.huber_loss(x, target, reduction=how, delta=knee), {"delta": knee}
    else:
        y, given = getattr(functional, kind + "_loss")(x, target, reduction=how), {}
    d.finish(f"{kind}_loss(x, target) " + exact.attributes(reduction=how, **given), y)


def probability_loss(case):
    d, rng = Draw(case), case.rng
    shape, how = case.dims(2), reduction(case.rng)
    target = d.numbers.random(shape)
    kind = rng.choice(["bce", "logits", "kl", "kl_log"])
    if kind.startswith("kl"):
        how = rng.choice([how, "batchmean"])
        x, log = d.normal("x", shape), kind == "kl_log"
        t = d.floats("target", numpy.log(target + 0.01) if log else target)
        y = functional.kl_div(x, t, reduction=how, log_target=log)
        return d.finish("kl_div(x, target) " + exact.attributes(reduction=how, log_target=log), y)
    t = d.floats("target", target)
    operands, weight = ["x", "target", "_"], None
    if rng.random() < 0.5:
        operands[2], weight = "w", d.floats("w", d.numbers.random([shape[0], 1]), wrt=False)
    if kind == "bce":
        x = d.floats("x", d.numbers.random(shape) * 0.98 + 0.01)
        y = functional.binary_cross_entropy(x, t, weight, reduction=how)
        return d.finish(f"binary_cross_entropy({', '.join(operands)}) " + exact.attributes(reduction=how), y)
    x, positive = d.floats("x", d.numbers.standard_normal(shape) * 4), None
    if rng.random() < 0.5:
        operands.append("positive")
        positive = d.floats("positive", d.numbers.random([shape[1]]) * 3, wrt=False)
    y = functional.binary_cross_entropy_with_logits(x, t, weight, reduction=how, pos_weight=positive)
    d.finish(f"binary_cross_entropy_with_logits({', '.join(operands)}) " + exact.attributes(reduction=how), y)


def label_loss(case):
    d, rng = Draw(case), case.rng
    shape, how = case.dims(rng.randint(2, 4)), reduction(case.rng)
    x = d.normal("x", shape)
    labels = d.numbers.integers(0, shape[1], shape[:1] + shape[2:])
    ignored = rng.choice([-100, 0])
    labels = numpy.where(d.numbers.random(labels.shape) < 0.2, ignored, labels)
    labels.reshape(-1)[-1] = shape[1] - 1  # so that some item counts
    if shape[1] == 1:
        ignored = -100
        labels = numpy.zeros_like(labels)
    i, weight = d.integers("labels", labels), None
    if rng.random() < 0.5:
        weight = d.floats("w", d.numbers.random([shape[1]]) + 0.1, wrt=False)
    y = functional.nll_loss(x, i, weight, ignore_index=ignored, reduction=how)
    d.finish(f"nll_loss(x, labels, {'_' if weight is None else 'w'}) " +
             exact.attributes(axis=1, ignore_index=ignored, reduction=how), y)


def path_loss(case):
    d, rng = Draw(case), case.rng
    steps, batch, classes, length = rng.randint(1, 9), rng.randint(1, 4), rng.randint(2, 5), rng.randint(1, 4)
    how, blank, zero = reduction(rng), rng.choice([0, classes - 1]), rng.random() < 0.5
    logits = d.normal("logits", [steps, batch, classes])
    numbers = [c for c in range(classes) if c != blank]
    labels = d.integers("labels", d.numbers.choice(numbers, [batch, length]))
    most = d.integers("steps", d.numbers.integers(1, steps + 1, [batch]))
    counts = d.integers("counts", d.numbers.integers(0, length + 1, [batch]))
    x = functional.log_softmax(logits, 2)
    each = functional.ctc_loss(x, labels, most, counts, blank, "none", zero)
    finite = bool(torch.isfinite(each).all())
    y = functional.ctc_loss(x, labels, most, counts, blank, how, zero)
    case.lines.append("x = softmax(logits) {log=true}")
    call = "ctc_loss(x, labels, steps, counts) " + exact.attributes(blank=blank, zero_infinity=zero, reduction=how)
    if finite:
        return d.finish(call, y)
    case.lines.append(f"y = {call}")  # PyTorch's gradients of an infinite loss are NaN
    case.output("y", y.detach())


def square(d, name, batch, n):
    return d.normal(name, batch + [n, n])


def solution(case):
    d, rng = Draw(case), case.rng
    n, batch = rng.choice([1, 2, 3, 8, 17, 33]), case.dims(rng.randint(0, 2), 3)
    a = square(d, "a", [b if rng.random() < 0.8 else 1 for b in batch], n)
    if rng.random() < 0.4 and tuple(a.shape[:-2]) == tuple(batch):
        right = d.normal("b", batch + [n])
        y = torch.linalg.solve(a, right.unsqueeze(-1)).squeeze(-1)
    else:
        right = d.normal("b", batch + [n, rng.randint(1, 20)])
        y = torch.linalg.solve(a, right)
    d.finish("dense_solve(a, b)", y)


def triangle(case):
    d, rng = Draw(case), case.rng
    n, batch = rng.choice([1, 2, 5, 20]), case.dims(rng.randint(0, 2), 3)
    a = d.floats("a", d.numbers.standard_normal(batch + [n, n]) / n + 2 * numpy.eye(n))
    right = d.normal("b", batch + [n, rng.choice([1, 3, 70])])
    upper, trans, unit = (rng.random() < 0.5 for _ in range(3))
    given = a.mT if trans else a
    y = torch.linalg.solve_triangular(given, right, upper=upper != trans, unitriangular=unit)
    d.finish("triangular_solve(a, b) " + exact.attributes(upper=upper, trans_a=trans, unit_diagonal=unit), y)


def factor(case):
    d, rng = Draw(case), case.rng
    n, batch = rng.choice([1, 2, 3, 8, 17, 40]), case.dims(rng.randint(0, 2), 3)
    kind = rng.choice(["inverse", "det", "cholesky", "lu"])
    a = square(d, "a", batch, n)
    if kind == "cholesky":
        case.lines += ["square = matmul(a, a) {trans_b=true}", 'definite = binary(square, shift) {kind="add"}']
        shift = d.floats("shift", n * numpy.eye(n), wrt=False)
        return d.finish("cholesky(definite)", torch.linalg.cholesky(a @ a.mT + shift))
    if kind == "lu":
        y, pivots = torch.linalg.lu_factor(a)
        case.lines.append("(factors, order) = lu(a)")
        return d.finish("copy(factors)", y)
    d.finish(f"{kind}(a)", torch.linalg.inv(a) if kind == "inverse" else torch.linalg.det(a))


def gate(case):
    d, rng = Draw(case), case.rng
    groups, size, tokens = rng.choice([1, 2, 4, 8]), rng.randint(2, 9), rng.randint(1, 6)
    chosen = rng.randint(1, groups)
    count, experts = rng.randint(1, chosen * size), groups * size
    score, best = rng.choice(["sigmoid", "softmax", "identity"]), rng.choice(["top2_sum", "max"])
    normalize, scale = rng.random() < 0.5, rng.choice([1.0, 2.5])
    logits = d.floats("logits", d.numbers.random([tokens, experts]) + 0.5)
    bias = d.normal("bias", [experts], wrt=False)
    s = logits if score == "identity" else torch.sigmoid(logits) if score == "sigmoid" else torch.softmax(logits, 1)
    c = (s + bias).detach()
    grouped = c.view(tokens, groups, size)
    ranks = grouped.amax(2) if best == "max" else grouped.topk(2, dim=2).values.sum(2)
    kept = torch.zeros_like(ranks, dtype=torch.bool).scatter(1, ranks.topk(chosen, dim=1).indices, True)
    index = grouped.masked_fill(~kept.unsqueeze(2), -torch.inf).view(tokens, experts).topk(count, dim=1).indices
    y = s.gather(1, index)
    if normalize and count > 1:
        y = y / (y.sum(1, keepdim=True) + 1e-20)
    given = exact.attributes(n_group=groups, topk_group=chosen, top_k=count, routed_scaling=scale, score=score,
                             normalize=normalize, group_score=best)
    case.output("index", index.to(torch.int32))
    case.lines.append(f"(index, chosen) = group_limited_gate(logits, bias) {given}")
    d.finish("copy(chosen)", y * scale)


def neighbours(case):
    d, rng = Draw(case), case.rng
    metric, own = rng.choice(["euclidean", "sqeuclidean", "cosine", "inner"]), rng.random() < 0.5
    batch, coords = case.dims(rng.randint(0, 1), 3), rng.choice([2, 3, 17, 40])
    rows, count = rng.randint(2, 12), rng.randint(1, 30)
    excluded = own and rng.random() < 0.8
    x = d.normal("x", batch + [rows, coords])
    y = x if own else d.normal("others", batch + [count, coords])
    if metric == "inner":
        distances = -(x @ y.mT)
    elif metric == "cosine":
        distances = 1 - functional.normalize(x, dim=-1) @ functional.normalize(y, dim=-1).mT
    else:
        distances = ((x.unsqueeze(-2) - y.unsqueeze(-3)) ** 2).sum(-1)
    ranks = distances.detach().clone()
    if excluded:
        ranks.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    elif own and metric != "inner":
        ranks.diagonal(dim1=-2, dim2=-1).fill_(0)  # exact
    k = rng.randint(1, ranks.shape[-1] - excluded)
    index = ranks.sort(dim=-1, stable=True).indices[..., :k]
    near = distances.gather(-1, index)
    if metric == "euclidean":
        near = torch.where(near > 0, near, 1).sqrt() * (near > 0)
    case.output("index", index.to(torch.int32))
    operands = "x" if own else "x, others"
    case.lines.append(f"(index, near) = knn({operands}) " + exact.attributes(k=k, metric=metric, exclude_self=excluded))
    d.finish("copy(near)", near)


KINDS = {"losses of pairs": pair_loss, "losses of probabilities": probability_loss, "nll": label_loss, "ctc": path_loss,
         "solutions": solution, "triangles": triangle, "factors": factor, "gates": gate, "neighbours": neighbours}


def difference(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if want.dtype.kind != "f":
        return "" if numpy.array_equal(got, want) else "other numbers"
    finite = numpy.isfinite(want)
    if not numpy.array_equal(got[~finite], want[~finite], equal_nan=True):
        return "other infinities"
    size = max(1.0, float(numpy.abs(want[finite]).max(initial=0)))
    error = float(numpy.abs(got[finite] - want[finite]).max(initial=0)) / size
    return "" if error <= LIMIT else f"an error of {error:.1e}"


if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, difference))
