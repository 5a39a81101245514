#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scans.py LIBTENON [--device cpu:0] [--count 300] [--seed 1]

Random linear recurrences in f64 and f32 beside loops of PyTorch, values and gradients: selective_scan as Mamba has it, and as
Mamba-2 has it beside the product of matrices that it equals; gated_delta_rule beside its form in chunks. Each case has a seed
of its own, which a failure names, with its graph. Exits with 77 without PyTorch."""
import sys

try:
    import numpy
    import torch
    from torch.nn import functional
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import exact

LIMITS = {"float64": 1e-9, "float32": 2e-5}  # of an error, over the largest number


class Draw:
    """A case whose results are computed in f64, over operands that are rounded to the case's dtype."""

    def __init__(self, case):
        self.case, self.rng = case, case.rng
        self.numbers = numpy.random.default_rng(case.rng.randrange(1 << 30))
        self.dtype = case.rng.choice([numpy.float64, numpy.float32])
        self.wrt = {}

    def floats(self, name, array):
        self.wrt[name] = torch.tensor(self.case.input(name, numpy.asarray(array, self.dtype)).astype(numpy.float64),
                                      requires_grad=True)
        return self.wrt[name]

    def normal(self, name, shape, scale=1):
        return self.floats(name, scale * self.numbers.standard_normal(shape))

    def maybe(self, name, shape):
        return self.normal(name, shape) if self.rng.random() < 0.5 else None

    def finish(self, call, results):
        """results: {name: tensor}, in the order of the op's outputs."""
        self.case.lines.append(f"({', '.join(results)}) = {call}")
        total, parts = 0, []
        for name, value in results.items():
            weights = self.numbers.standard_normal(tuple(value.shape)).astype(self.dtype)
            self.case.input("w_" + name, weights)
            self.case.lines += [f'p_{name} = binary({name}, w_{name}) {{kind="mul"}}',
                                f's_{name} = reduce(p_{name}) {{kind="sum"}}']
            parts.append("s_" + name)
            total = total + (value * torch.tensor(weights.astype(numpy.float64))).sum()
        while len(parts) > 1:
            self.case.lines.append(f'{parts[0]}_ = binary({parts[0]}, {parts.pop()}) {{kind="add"}}')
            parts[0] += "_"
        self.case.lines.append(f"({', '.join('d_' + n for n in self.wrt)}) = grad({parts[0]}, [{', '.join(self.wrt)}])")
        gradients = torch.autograd.grad(total, list(self.wrt.values()), materialize_grads=True)
        for name, value in results.items():
            self.case.output(name, value.detach().numpy().astype(self.dtype))
        for name, gradient in zip(self.wrt, gradients):
            self.case.output("d_" + name, gradient.numpy().astype(self.dtype))


def selective_loop(u, dt, a, b, c, h):
    """u, dt [B, D, L], b, c [B, D, N, L]."""
    outputs = []
    for t in range(u.shape[2]):
        step = dt[:, :, t, None]
        h = torch.exp(step * a) * h + step * b[..., t] * u[:, :, t, None]
        outputs.append((h * c[..., t]).sum(2))
    return (torch.stack(outputs, 2) if outputs else u), h


def selective(case):
    d, rng = Draw(case), case.rng
    groups, each = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 7, 16, 19])
    batch, channels, states = rng.randint(1, 3), groups * each, rng.choice([1, 2, 5, 16])
    steps = rng.choice([0, 1, 2, 5, 31, 33, 70])
    bdl, softplus = rng.random() < 0.5, rng.random() < 0.5
    grouped = groups > 1 or rng.random() < 0.5

    def rows(x):
        return x if bdl else x.transpose(1, 2)
    shape = [batch, channels, steps] if bdl else [batch, steps, channels]
    shared = [batch, groups, states, steps] if bdl else [batch, steps, groups, states]
    if not grouped:
        del shared[1 if bdl else 2]
    u = d.normal("u", shape)
    dt = d.normal("dt", shape) if softplus else d.floats("dt", 0.05 + 0.5 * d.numbers.random(shape))
    a = d.floats("a", -0.1 - d.numbers.random([channels, states]))
    b, c = d.normal("b", shared), d.normal("c", shared)
    skip, z, bias = d.maybe("d", [channels]), d.maybe("z", shape), d.maybe("dt_bias", [channels])
    h0 = d.maybe("h0", [batch, channels, states])

    def spread(x):  # [B, D, N, L]
        full = x if grouped else x.unsqueeze(1 if bdl else 2)
        return (full if bdl else full.permute(0, 2, 3, 1)).repeat_interleave(each, dim=1)
    delta = rows(dt) if bias is None else rows(dt) + bias[:, None]
    y, h = selective_loop(rows(u), functional.softplus(delta) if softplus else delta, a, spread(b), spread(c),
                          torch.zeros(batch, channels, states, dtype=torch.float64) if h0 is None else h0)
    if skip is not None:
        y = y + skip[:, None] * rows(u)
    if z is not None:
        y = y * functional.silu(rows(z))
    names = [n if n in d.wrt else "_" for n in ("u", "dt", "a", "b", "c", "d", "z", "dt_bias", "h0")]
    d.finish(f"selective_scan({', '.join(names)}) " +
             exact.attributes(dt_softplus=softplus, layout="bdl" if bdl else "bld"), {"y": rows(y), "h": h})


def heads(case):
    """Mamba-2: one a and one dt for each head. Its output is a masked product of matrices times the input."""
    d, rng = Draw(case), case.rng
    batch, count, width, states = rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 9)
    steps = rng.choice([1, 4, 40])
    u = d.normal("u", [batch, count, width, steps])
    dt = d.floats("dt", 0.05 + 0.5 * d.numbers.random([batch, count, 1, steps]))
    a = d.floats("a", -0.1 - d.numbers.random([count, 1, 1]))
    b, c = d.normal("b", [batch, states, steps]), d.normal("c", [batch, states, steps])
    total = torch.cumsum(dt[:, :, 0] * a[:, :, 0], 2)
    behind = torch.ones(steps, steps, dtype=torch.bool).tril()
    kept = torch.exp((total[..., :, None] - total[..., None, :]).masked_fill(~behind, -torch.inf))
    weights = kept * torch.einsum("bni,bnj->bij", c, b)[:, None] * dt
    y = torch.einsum("bhij,bhpj->bhpi", weights, u)
    flat = f"[{batch}, {count * width}, {steps}]"
    case.lines += [f"wide = expand(dt) {{shape=[{batch}, {count}, {width}, {steps}]}}",
                   f"steps = reshape(wide) {{shape={flat}}}", f"channels = reshape(u) {{shape={flat}}}",
                   f"rates = expand(a) {{shape=[{count}, {width}, {states}]}}",
                   f"rate = reshape(rates) {{shape=[{count * width}, {states}]}}"]
    d.finish("selective_scan(channels, steps, rate, b, c)", {"y": y.reshape(batch, count * width, steps)})


def delta_chunk(q, k, v, g, beta, state):
    """Some tokens of a head as products of matrices: q, k [T, K], v [T, V], g, beta [T], state [K, V]."""
    total = torch.cumsum(g, 0)
    behind = torch.ones(len(g), len(g), dtype=torch.bool).tril()
    kept = torch.exp((total[:, None] - total).masked_fill(~behind, -torch.inf))
    system = torch.eye(len(g), dtype=q.dtype) + (beta[:, None] * (k @ k.T) * kept).tril(-1)
    rest = v - torch.exp(total)[:, None] * (k @ state)
    e = torch.linalg.solve_triangular(system, beta[:, None] * rest, upper=False)
    o = torch.exp(total)[:, None] * (q @ state) + ((q @ k.T) * kept) @ e
    return o, torch.exp(total[-1]) * state + (k * torch.exp(total[-1] - total)[:, None]).T @ e


def delta_loop(q, k, v, g, beta, state):
    """The same token by token, with g [T, K]."""
    outputs = []
    for t in range(len(g)):
        state = torch.exp(g[t])[:, None] * state
        state = state + torch.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        outputs.append(state.T @ q[t])
    return torch.stack(outputs), state


def delta(case):
    d, rng = Draw(case), case.rng
    heads, each = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    keys, values, tokens = rng.choice([1, 3, 16, 33]), rng.choice([1, 4, 32, 37]), rng.choice([0, 1, 3, 9, 80])
    by_key, unit, packed = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.4
    batch = 1 if packed else rng.randint(1, 2)
    scale = rng.choice([None, 0.7])
    q = d.normal("q", [batch, tokens, heads, keys])
    k = d.normal("k", [batch, tokens, heads, keys], 1 if unit else 0.7 / keys**0.5)
    v = d.normal("v", [batch, tokens, heads * each, values])
    g = d.floats("g", -0.7 * d.numbers.random([batch, tokens, heads * each] + [keys] * by_key))
    beta = d.floats("beta", d.numbers.random([batch, tokens, heads * each]))
    bounds = [(b, 0, tokens) for b in range(batch)]
    operands, given = ["q", "k", "v", "g", "beta", "_", "_"], {"qk_l2norm": unit}
    if packed:
        ends = sorted([0, tokens] + [rng.randint(0, tokens) for _ in range(rng.randint(0, 3))])
        case.input("ends", numpy.asarray(ends, rng.choice([numpy.int32, numpy.int64])))
        operands[6], bounds = "ends", [(0, a, b) for a, b in zip(ends, ends[1:])]
    state = d.maybe("first", [len(bounds), heads * each, keys, values])
    if state is None:
        state = torch.zeros(len(bounds), heads * each, keys, values, dtype=torch.float64)
    else:
        operands[5] = "first"
    if scale is not None:
        given["scale"] = scale
    x, y = (t / torch.sqrt((t * t).sum(3, keepdim=True) + 1e-6) if unit else t for t in (q, k))
    x, y = ((t.repeat_interleave(each, dim=2)) for t in (x * (keys**-0.5 if scale is None else scale), y))
    rows, states = [[[] for _ in range(heads * each)] for _ in range(batch)], []
    for sequence, (b, begin, end) in enumerate(bounds):
        for h in range(heads * each):
            last = state[sequence, h]
            if end > begin:
                part = [t[b, begin:end, h] for t in (x, y, v, g, beta)]
                o, last = (delta_loop if by_key else delta_chunk)(*part, last)
                rows[b][h].append(o)
            states.append(last)
    o = v if tokens == 0 else torch.stack([torch.stack([torch.cat(r) for r in row], 1) for row in rows])
    d.finish(f"gated_delta_rule({', '.join(operands)}) " + exact.attributes(**given),
             {"o": o, "last": torch.stack(states).reshape(state.shape)})


KINDS = {"selective scans": selective, "scans of heads": heads, "delta rules": delta}


def difference(got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    size = max(1.0, float(numpy.abs(want).max(initial=0)))
    error = float(numpy.abs(got.astype(numpy.float64) - want).max(initial=0)) / size
    return "" if error <= LIMITS[want.dtype.name] else f"an error of {error:.1e}"


if __name__ == "__main__":
    sys.exit(exact.main(__doc__, KINDS, difference))
