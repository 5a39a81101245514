#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exact.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random cases of ops whose results are exact, beside PyTorch and NumPy: scatters that multiply or keep the largest or smallest,
with ties, zeros and their gradients in f64; reductions, running sums, order and positions of bools; products of integers that
wrap. Each case has a seed of its own, which a failure names, with its graph. Exits with 77 without PyTorch."""
import argparse
import collections
import pathlib
import random
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import binding

NAMES = {numpy.dtype(kind): name for name, (_, kind) in binding.DTYPES.items() if name != "bf16"}
OF_TORCH = {"mul": "prod", "max": "amax", "min": "amin"}


def attributes(**values):
    def text(v):
        return f'"{v}"' if isinstance(v, str) else str(v).lower()
    return "{" + ", ".join(f"{k}={text(v)}" for k, v in values.items()) + "}"


class Case:
    """Inputs, lines of a graph over them, and the arrays that its outputs must be."""

    def __init__(self, rng):
        self.rng, self.inputs, self.lines, self.wanted = rng, {}, [], {}

    def input(self, name, array):
        self.inputs[name] = numpy.ascontiguousarray(array)
        return self.inputs[name]

    def dims(self, rank, most=6):
        return [self.rng.randint(1, most) for _ in range(rank)]

    def output(self, name, array):
        self.wanted[name] = numpy.asarray(array)

    def graph(self):
        lines = [f"input {n}: {NAMES[v.dtype]}[{','.join(map(str, v.shape))}]" for n, v in self.inputs.items()]
        lines += self.lines + [f'output "{name}" = {name}' for name in self.wanted]
        return 'graph "case" {\n' + "".join(f"  {line}\n" for line in lines) + "}\n"


def scatter(case, elements):
    """Few numbers, so that there are ties and zeros."""
    rng, kind = case.rng, case.rng.choice(list(OF_TORCH))
    shape = case.dims(rng.randint(1, 3))
    axis = rng.randrange(len(shape))
    if elements:
        at = [rng.randint(1, 9) if k == axis else rng.randint(1, d) for k, d in enumerate(shape)]
        updates = at
    else:
        at = [rng.randint(1, 9)]
        updates = shape[:axis] + at + shape[axis + 1:]
    numbers = numpy.random.default_rng(rng.randrange(1 << 30))
    base = case.input("base", numbers.integers(-2, 4, shape).astype(numpy.float64))
    index = numbers.integers(-shape[axis], shape[axis], at)
    case.input("indices", index.astype(rng.choice([numpy.int32, numpy.int64])))
    source = case.input("updates", numbers.integers(-2, 4, updates).astype(numpy.float64))
    weights = case.input("weights", numbers.integers(1, 9, shape).astype(numpy.float64))

    x, u = (torch.tensor(v, requires_grad=True) for v in (base, source))
    i = torch.tensor(index % shape[axis])
    y = getattr(x, "scatter_reduce" if elements else "index_reduce")(axis, i, u, OF_TORCH[kind], include_self=True)
    grads = torch.autograd.grad((y * torch.tensor(weights)).sum(), [x, u])
    op = "scatter_elements_reduce" if elements else "scatter_reduce"
    case.lines += [f"y = {op}(base, indices, updates) " + attributes(kind=kind, axis=axis),
                   'weighed = binary(y, weights) {kind="mul"}', 'loss = reduce(weighed) {kind="sum"}',
                   "(dbase, dupdates) = grad(loss, [base, updates])"]
    case.output("y", y.detach())
    case.output("dbase", grads[0])
    case.output("dupdates", grads[1])


def bools(case):
    rng = case.rng
    x = case.input("x", numpy.random.default_rng(rng.randrange(1 << 30)).random(case.dims(rng.randint(1, 3), 20)) < 0.6)
    t, axis = torch.tensor(x), rng.randrange(x.ndim)
    for kind, want in (("sum", t.sum(axis)), ("prod", t.prod(axis)), ("max", t.amax(axis)), ("min", t.amin(axis))):
        case.lines.append(f"{kind} = reduce(x) " + attributes(kind=kind, axes=[axis]))
        case.output(kind, want)
    for op in ("cumsum", "cumprod"):
        case.lines.append(f"{op} = {op}(x) " + attributes(axis=axis))
        case.output(op, getattr(t, op)(axis))
    for op in ("argmax", "argmin"):
        case.lines.append(f"{op} = {op}(x) " + attributes(axis=axis))
        case.output(op, getattr(numpy, op)(x, axis))
    descending = rng.random() < 0.5
    values, places = torch.sort(t, dim=axis, descending=descending, stable=True)
    k = rng.randint(1, x.shape[axis])
    case.lines += [f"(values, places) = sort(x) {attributes(axis=axis, descending=descending)}",
                   f"(top, top_places) = topk(x) {attributes(k=k, axis=axis, largest=descending)}"]
    case.output("values", values)
    case.output("places", places)
    case.output("top", values.narrow(axis, 0, k))
    case.output("top_places", places.narrow(axis, 0, k))


def product(case):
    rng = case.rng
    dtype = numpy.dtype(rng.choice([numpy.int32, numpy.int64, numpy.uint32, numpy.uint64]))
    m, n, k = (rng.choice([1, 2, 5, 17, 64, 65, 130, 300]) for _ in range(3))
    batch = case.dims(rng.randint(0, 2), 3)
    numbers, limits = numpy.random.default_rng(rng.randrange(1 << 30)), numpy.iinfo(dtype)

    def operand(name, rows, columns):
        own = batch[rng.randint(0, len(batch)):]
        own = [d if rng.random() < 0.7 else 1 for d in own]
        swapped = rng.random() < 0.5
        shape = own + ([columns, rows] if swapped else [rows, columns])
        a = case.input(name, numbers.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        return (a.swapaxes(-1, -2) if swapped else a), swapped

    (a, trans_a), (b, trans_b) = operand("a", m, k), operand("b", k, n)
    case.lines.append("y = matmul(a, b) " + attributes(trans_a=trans_a, trans_b=trans_b))
    case.output("y", numpy.matmul(a, b))


KINDS = {"scatter_reduce": lambda c: scatter(c, False), "scatter_elements_reduce": lambda c: scatter(c, True), "bools": bools,
         "integer products": product}


def difference(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    # A share of a gradient is rounded.
    if not (numpy.allclose(got, want, 1e-14, 0) if want.dtype.kind == "f" else numpy.array_equal(got, want)):
        at = tuple(numpy.argwhere(got != want)[0])
        return f"{list(map(int, at))}: expected {want[at]}, got {got[at]}"
    return ""


def main(doc=__doc__, kinds=KINDS, judge=difference):
    """doc: of the program. kinds: {name: what makes a case of it}."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    options = parser.parse_args()
    tenon = binding.Tenon(options.library)
    done, failed = collections.Counter(), 0
    for seed in range(options.seed, options.seed + options.count):
        kind = list(kinds)[seed % len(kinds)]
        case = Case(random.Random(seed))
        kinds[kind](case)
        try:
            with tenon.parse(case.graph(), device=options.device) as model:
                got = model.run(case.inputs)
            wrong = [f"{n}: {d}" for n, want in case.wanted.items() if (d := judge(got[n], want))]
        except binding.TenonError as e:
            wrong = [str(e)]
        done[kind] += 1
        if wrong:
            failed += 1
            print(f"FAIL seed {seed}, {kind}: " + "; ".join(wrong) + f"\n{case.graph()}", flush=True)
    print(f"PyTorch {torch.__version__}, {options.device}: " + ", ".join(f"{n} {k}" for k, n in done.items()) +
          f"; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
