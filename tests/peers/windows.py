#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""windows.py LIBTENON [--device cpu:0] [--count 500] [--seed 1] [--only SEED] [--dtype f32] [--limit X] [--exec 0]

Random convolutions, transposed convolutions and pools of 1 to 3 axes, beside PyTorch's: results, indices, and gradients of
all operands. PyTorch in f64 on the cpu is the judge; the table also shows how far PyTorch in the same dtype on the same
device is from it. An error is the norm of the difference over the norm of the result; of a gradient that sums over all
windows, over the norm of its terms, if that is more.

Each case has a seed of its own, which a failure names; --only runs that case alone and prints its graphs. A convolution may
be followed by what fuses with it: bias, factor, residual, activation. The forward graph has filters as inputs, weights or
constants, and may have a symbol for the batch. Exits with 77 without PyTorch or without the device."""
import argparse
import collections
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys
import traceback

try:
    import numpy
    import torch
    from torch.nn import functional
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import binding

# The norm of the difference over the norm of the result.
LIMITS = {"f32": 2e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 1e-2}
TORCH = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
# Kinds of unary, and where their slope jumps.
ACTIVATIONS = {
    "relu": (torch.relu, [0.0]),
    "leaky_relu": (functional.leaky_relu, [0.0]),
    "elu": (functional.elu, []),
    "sigmoid": (torch.sigmoid, []),
    "tanh": (torch.tanh, []),
    "silu": (functional.silu, []),
    "gelu": (functional.gelu, []),
    "softplus": (functional.softplus, []),
    "hard_swish": (functional.hardswish, [-3.0, 3.0]),
    "mish": (functional.mish, []),
}
CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
CONV_TRANSPOSE = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
MAX_POOL = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVG_POOL = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
MOST_PRODUCTS = 20_000_000


def ints(values):
    return "[" + ", ".join(str(v) for v in values) + "]"


def flat_pads(before, after):
    """As torch.nn.functional.pad() wants them: the last axis first."""
    return [v for pair in zip(reversed(before), reversed(after)) for v in pair]


class Case:
    """A node over windows and what follows it. Operands are drawn by operand(); judged by result()."""

    def __init__(self, seed, kind, axes):
        self.seed, self.kind, self.axes = seed, kind, axes
        self.rng = random.Random(seed)
        self.shapes, self.after, self.variant = {}, [], {}

    def per_axis(self, choices):
        return [self.rng.choice(choices) for _ in range(self.axes)]

    def draw_axes(self, kernels, strides, dilations, longest):
        rng = self.rng
        self.size = [rng.randint(1, longest) for _ in range(self.axes)]
        self.kernel, self.stride = self.per_axis(kernels), self.per_axis(strides)
        self.dilation = self.per_axis(dilations)
        if rng.random() < 0.5:  # as most layers are
            self.kernel, self.stride, self.dilation = (v[:1] * self.axes for v in (self.kernel, self.stride, self.dilation))

    def extent(self, a):
        return self.dilation[a] * (self.kernel[a] - 1) + 1

    def symmetric(self):
        return self.before == self.after_pads

    def attributes(self, **more):
        out = {"stride": ints(self.stride), "pads": ints(self.before + self.after_pads), "dilation": ints(self.dilation)}
        out.update(more)
        return ", ".join(f"{k}={v}" for k, v in out.items())

    def operands(self, dtype):
        """In f64, as rounded to dtype."""
        draw = torch.Generator().manual_seed(self.seed)
        out = {}
        for name, shape in self.shapes.items():
            value = torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1
            if self.variant.get("ties") and name == "x":
                value = (value * 4).round()
            if self.variant.get("nan") and name == "x":
                value[torch.rand(shape, generator=draw) < 0.02] = math.nan
            if name == "w":
                value /= math.sqrt(max(1, math.prod(shape[1:])))
            out[name] = value.to(TORCH[dtype]).double()
        return out

    # ---- What follows the node

    def steps(self, value, operands):
        """Applies what follows. Also returns what each activation is applied to, with its kinks."""
        before = []
        for step, name in self.after:
            if step == "act":
                before.append((value, ACTIVATIONS[name][1]))
                value = ACTIVATIONS[name][0](value)
            elif step == "add":
                value = value + operands[name]
            else:
                value = value * operands[name]
        return value, before

    def step_lines(self, value):
        out = []
        for k, (step, name) in enumerate(self.after):
            kind = {"add": "add", "mul": "mul", "act": name}[step]
            out.append(f"t{k} = unary({value}) {{kind=\"{kind}\"}}" if step == "act" else
                       f"t{k} = binary({value}, {name}) {{kind=\"{kind}\"}}")
            value = f"t{k}"
        return out, value

    # ---- Graphs

    def graph(self, dtype, gradients, operands):
        """Also returns the names of the weights."""
        lines, weights = [], []
        symbol = self.variant.get("symbol") and not gradients
        if symbol:
            lines.append("symbols N")
        for name, shape in self.shapes.items():
            if name == "dy" and not gradients:
                continue
            dims = list(shape)
            space = "input"
            if not gradients and name not in ("x", "dy", "r"):
                space = self.variant.get("space", "input")
            elif symbol:
                dims[0] = "N"
            kind = f"{dtype}[{','.join(map(str, dims))}]"
            if space == "const":
                raw = operands[name].to(TORCH[dtype]).contiguous().view(torch.uint8).numpy().tobytes()
                lines.append(f"const {name}: {kind} = 0x{raw.hex()}")
            else:
                lines.append(f"{space} {name}: {kind}")
            if space == "weight":
                weights.append(name)
        lines += self.node_lines()
        more, last = self.step_lines("y0")
        lines += more
        outputs = [("y", last)] + [(i, i) for i in self.indices()]
        if gradients:
            wrt = [name for name in self.shapes if name != "dy"]
            lines += [f"weighed = binary({last}, dy) {{kind=\"mul\"}}",
                      f"loss = reduce(weighed) {{kind=\"sum\", axes={ints(range(self.axes + 2))}}}",
                      f"({', '.join('d' + w for w in wrt)}) = grad(loss, [{', '.join(wrt)}])"]
            outputs += [("d" + w, "d" + w) for w in wrt]
        lines += [f"output \"{name}\" = {value}" for name, value in outputs]
        return "graph \"case\" {\n" + "".join(f"  {line}\n" for line in lines) + "}\n", weights

    def indices(self):
        return []

    def judge(self, operands, dtype=torch.float64, where="cpu"):
        """The outputs that PyTorch gives; gradients of max and min are by the indices."""
        tensors = {name: v.detach().clone().to(where, dtype).requires_grad_(name != "dy") for name, v in operands.items()}
        y, indices = self.node(tensors)
        y, _ = self.steps(y, tensors)
        wrt = [name for name in tensors if name != "dy"]
        grads = torch.autograd.grad(y, [tensors[n] for n in wrt], tensors["dy"], allow_unused=True)
        out = {"y": y.detach(), "indices": indices}
        for name, g in zip(wrt, grads):
            out["d" + name] = torch.zeros_like(tensors[name]) if g is None else g
        return {name: v.cpu() for name, v in out.items() if v is not None}

    def sizes(self, operands):
        """Norms of the terms of gradients that sum over all windows, where the sum may be near 0."""
        y, _ = self.node(operands)
        y = y.detach().requires_grad_()
        spread = {name: operands[name].expand_as(y).clone().requires_grad_() for _, name in self.after if name in operands}
        last, _ = self.steps(y, spread)
        leaves = {"db": y} | {"d" + name: v for name, v in spread.items()}
        grads = torch.autograd.grad(last, list(leaves.values()), operands["dy"])
        return {name: g.norm().item() for name, g in zip(leaves, grads)}

    def weigh(self, operands):
        """No upstream gradient where the slope jumps: there, rounding decides."""
        with torch.no_grad():
            y, _ = self.node(operands)
            _, before = self.steps(y, operands)
            for value, kinks in before:
                for kink in kinks:
                    operands["dy"][(value - kink).abs() < 1e-2] = 0


class Convolution(Case):
    def __init__(self, seed, axes, transposed):
        super().__init__(seed, "conv_transpose" if transposed else "conv", axes)
        self.transposed = transposed
        while not self.draw():
            pass

    def draw(self):
        rng = self.rng
        self.shapes, self.after, self.variant = {}, [], {}
        self.draw_axes([1, 1, 2, 3, 3, 3, 4, 5, 7], [1, 1, 1, 2, 2, 3], [1, 1, 1, 2, 3], {1: 150, 2: 26, 3: 9}[self.axes])
        batch = rng.choice([0] + [1] * 16 + [2] * 12 + [3, 4, 5, 8] * 2)
        form = rng.random()
        wide = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 48]
        if form < 0.6:
            self.groups, c, m = 1, rng.choice(wide), rng.choice(wide)
        elif form < 0.8:  # depthwise
            self.groups, c, m = rng.choice(wide), 1, rng.choice([1, 1, 1, 2, 3])
        else:
            self.groups, c, m = rng.choice([2, 3, 4, 6]), rng.choice(wide[:9]), rng.choice(wide[:9])
        channels, filters = self.groups * c, self.groups * m
        pads = rng.random()
        self.before = [rng.randint(0, self.extent(a) // 2 if pads < 0.7 else self.extent(a) + 1) for a in range(self.axes)]
        self.after_pads = list(self.before) if pads < 0.5 else [rng.randint(0, self.extent(a)) for a in range(self.axes)]
        self.output_padding = [0] * self.axes
        if self.transposed:
            self.output_padding = [rng.randint(0, max(s, d) - 1) for s, d in zip(self.stride, self.dilation)]
            out = [self.stride[a] * (self.size[a] - 1) + self.extent(a) - self.before[a] - self.after_pads[a] +
                   self.output_padding[a] for a in range(self.axes)]
        else:
            room = [self.size[a] + self.before[a] + self.after_pads[a] - self.extent(a) for a in range(self.axes)]
            if min(room) < 0:
                return False
            out = [room[a] // self.stride[a] + 1 for a in range(self.axes)]
        if min(out) < 1:
            return False
        x, y = [batch, channels, *self.size], [batch, filters, *out]
        w = [channels, m, *self.kernel] if self.transposed else [filters, c, *self.kernel]
        if max(1, batch) * math.prod((x if self.transposed else y)[1:]) * math.prod(w[1:]) > MOST_PRODUCTS:
            return False
        self.shapes = {"x": x, "w": w}
        if rng.random() < 0.5:
            self.shapes["b"] = [filters]
        self.follow(y)
        self.shapes["dy"] = y
        self.variant = {"space": rng.choice(["input", "weight", "weight", "const"]), "symbol": rng.random() < 0.25}
        return True

    def follow(self, y):
        rng = self.rng
        if rng.random() < 0.35:
            return
        per_filter = [y[1]] + [1] * self.axes
        for step in rng.choice([["act"], ["r"], ["r", "act"], ["act", "r"], ["f"], ["f", "h"], ["f", "h", "act"],
                                ["f", "h", "r", "act"], ["h", "act"], ["h", "r"], ["act", "act"], ["act", "f"],
                                ["f", "act", "r"]]):
            if step == "act":
                self.after.append(("act", rng.choice(sorted(ACTIVATIONS))))
            else:
                self.after.append(("mul" if step == "f" else "add", step))
                self.shapes[step] = y if step == "r" else per_filter

    def node_lines(self):
        more = {"groups": self.groups}
        if self.transposed:
            more["output_padding"] = ints(self.output_padding)
        operands = "x, w, b" if "b" in self.shapes else "x, w"
        return [f"y0 = {self.kind}({operands}) {{{self.attributes(**more)}}}"]

    def node(self, t):
        x, w, b = t["x"], t["w"], t.get("b")
        if not self.transposed:
            if self.symmetric():
                return CONV[self.axes](x, w, b, self.stride, self.before, self.dilation, self.groups), None
            padded = functional.pad(x, flat_pads(self.before, self.after_pads))
            return CONV[self.axes](padded, w, b, self.stride, 0, self.dilation, self.groups), None
        if self.symmetric():
            return CONV_TRANSPOSE[self.axes](x, w, b, self.stride, self.before, self.output_padding, self.groups,
                                             self.dilation), None
        whole = CONV_TRANSPOSE[self.axes](x, w, None, self.stride, 0, 0, self.groups, self.dilation)
        cut = functional.pad(whole, flat_pads([-p for p in self.before],
                                              [o - p for o, p in zip(self.output_padding, self.after_pads)]))
        return cut if b is None else cut + b.reshape(-1, *[1] * self.axes), None


class Pool(Case):
    def __init__(self, seed, axes, kind):
        super().__init__(seed, f"{kind} pool", axes)
        self.reduce = kind
        while not self.draw():
            pass

    def draw(self):
        rng = self.rng
        self.draw_axes([1, 2, 2, 3, 3, 4, 5], [1, 1, 2, 2, 3, 4], [1, 1, 1, 2, 3], {1: 200, 2: 40, 3: 12}[self.axes])
        if rng.random() < 0.2:
            self.stride = list(self.kernel)
        if self.reduce == "avg" and rng.random() < 0.6:  # PyTorch's own op has no dilation
            self.dilation = [1] * self.axes
        pads = rng.random()
        self.before = [rng.randint(0, self.extent(a) // 2 if pads < 0.7 else self.extent(a) - 1) for a in range(self.axes)]
        self.after_pads = list(self.before) if pads < 0.6 else [rng.randint(0, self.extent(a) - 1) for a in range(self.axes)]
        if pads < 0.3:
            self.before, self.after_pads = [0] * self.axes, [0] * self.axes
        self.ceil = rng.random() < 0.4
        self.count_pads, self.divisor = False, 0
        if self.reduce == "avg":
            self.count_pads = rng.random() < 0.5
            self.divisor = rng.choice([0, 0, 0, 0, 3, 7])
        self.out = []
        for a in range(self.axes):
            room = self.size[a] + self.before[a] + self.after_pads[a] - self.extent(a)
            if room < 0:
                return False
            count = room // self.stride[a] + 1
            if self.ceil and room % self.stride[a] and count * self.stride[a] < self.size[a] + self.before[a]:
                count += 1
            self.out.append(count)
        batch, channels = rng.choice([0] + [1] * 15 + [2] * 10 + [3] * 5), rng.choice([1, 2, 3, 5, 8, 16, 19])
        self.shapes = {"x": [batch, channels, *self.size], "dy": [batch, channels, *self.out]}
        finds = self.reduce in ("max", "min")
        self.variant = {"ties": finds and rng.random() < 0.4, "nan": finds and rng.random() < 0.1,
                        "symbol": rng.random() < 0.25}
        # Two axes have ops of their own.
        self.own = self.axes == 2 and self.reduce in ("max", "avg") and rng.random() < 0.6
        return True

    def indices(self):
        return ["indices"] if self.reduce in ("max", "min") else []

    def node_lines(self):
        more = {"kernel": ints(self.kernel), "ceil_mode": str(self.ceil).lower()}
        if not self.own:
            more["kind"] = f'"{self.reduce}"'
        if self.reduce == "avg":
            more |= {"count_include_pad": str(self.count_pads).lower(), "divisor_override": self.divisor}
        results = "(y0, indices)" if self.indices() else "y0"
        return [f"{results} = {self.reduce + 'pool2d' if self.own else 'pool'}(x) {{{self.attributes(**more)}}}"]

    def cut(self, value):
        """PyTorch may have more windows: those that begin in the padding at the end."""
        for a, count in enumerate(self.out):
            value = value.narrow(a + 2, 0, count)
        return value

    def node(self, t):
        return self.extreme(t["x"]) if self.indices() else (self.total(t["x"]), None)

    def extreme(self, x):
        if self.reduce == "min":
            x = -x
        small = all(2 * p <= self.extent(a) and 2 * p <= self.kernel[a] for a, p in enumerate(self.before))
        pads = self.before if self.symmetric() and small else None
        if pads is None:
            x = functional.pad(x, flat_pads(self.before, self.after_pads), value=-math.inf)
        if x.shape[0] == 0:  # which max_pool1d refuses
            y = x.new_zeros([0, x.shape[1], *self.out]) + 0 * x.sum()
            return y, torch.zeros(y.shape, dtype=torch.int64)
        y, found = MAX_POOL[self.axes](x, self.kernel, self.stride, pads or 0, self.dilation, self.ceil, True)
        y, found = self.cut(y), self.cut(found)
        if pads is None:  # positions without the padding
            place, inside = 0, torch.isfinite(y) | torch.isnan(y)
            rest = found
            strides = [math.prod(x.shape[a + 3:]) for a in range(self.axes)]
            for a in range(self.axes):
                place = place * self.size[a] + rest // strides[a] - self.before[a]
                rest = rest % strides[a]
            found = torch.where(inside, place, -1)
        return (-y if self.reduce == "min" else y), found

    def total(self, x):
        plain = self.reduce == "avg" and self.symmetric() and set(self.dilation) == {1} and x.shape[0] > 0
        if plain and all(2 * p <= k for p, k in zip(self.before, self.kernel)) and not (self.divisor and self.axes == 1):
            more = () if self.axes == 1 else (self.divisor or None,)
            return AVG_POOL[self.axes](x, self.kernel, self.stride, self.before, self.ceil, self.count_pads, *more)
        ones = torch.ones(self.kernel, dtype=x.dtype, device=x.device)
        # As far as the last window goes.
        reach = [max(0, (self.out[a] - 1) * self.stride[a] + self.extent(a) - self.size[a] - self.before[a])
                 for a in range(self.axes)]
        def sums(value):
            channels = value.shape[1]
            padded = functional.pad(value, flat_pads(self.before, reach))
            return self.cut(CONV[self.axes](padded, ones.expand(channels, 1, *self.kernel), None, self.stride, 0,
                                            self.dilation, channels))
        if self.reduce == "sum":
            return sums(x)
        if self.divisor:
            return sums(x) / self.divisor
        inside = torch.ones([1, 1, *self.size], dtype=x.dtype, device=x.device)
        if self.count_pads:  # the padding counts, what lies beyond it does not
            whole = functional.pad(inside, flat_pads(self.before, self.after_pads), value=1)
            beyond = [max(0, r - p) for r, p in zip(reach, self.after_pads)]
            whole = functional.pad(whole, flat_pads([0] * self.axes, beyond))
            count = self.cut(CONV[self.axes](whole, ones[None, None], None, self.stride, 0, self.dilation))
        else:
            count = sums(inside)
        return sums(x) / count.clamp(min=1)


def case_of(seed):
    rng = random.Random(~seed)
    axes = rng.choice([1, 2, 2, 2, 3])
    kind = rng.choice(["conv"] * 9 + ["conv_transpose"] * 5 + ["max"] * 3 + ["avg"] * 3 + ["min", "sum"])
    if kind in ("conv", "conv_transpose"):
        return Convolution(seed, axes, kind == "conv_transpose")
    return Pool(seed, axes, kind)


def norm_error(got, want, least=0.0):
    """NaN in the place of NaN, and infinities in those of infinities, are right. least: the least norm to divide by."""
    if got.shape != want.shape:
        return math.inf
    got, want = got.double(), want.double()
    plain = torch.isfinite(want)
    if not torch.equal(torch.isnan(got), torch.isnan(want)) or not torch.equal(got[torch.isinf(want)], want[torch.isinf(want)]):
        return math.inf
    got, want = got[plain], want[plain]
    size = max(want.norm().item(), least)
    apart = (got - want).norm().item()
    return apart / size if size else apart


class Worker:
    def __init__(self, options):
        self.options = options
        self.tenon = binding.Tenon(options.library)
        self.where = "cpu" if options.device.startswith("cpu") else options.device
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False

    def run(self, case, gradients, operands):
        dtype = self.options.dtype
        text, weights = case.graph(dtype, gradients, operands)
        if self.options.only is not None:
            print(text if len(text) < 20000 else text[:20000] + "...", flush=True)
        arrays = {}
        for name, value in operands.items():
            value = value.to(TORCH[dtype])
            arrays[name] = (value.view(torch.int16).numpy().view(numpy.uint16) if dtype == "bf16" else value.numpy())
        codes = dict.fromkeys(arrays, dtype) if dtype == "bf16" else None
        with self.tenon.parse(text, {w: arrays[w] for w in weights}, device=self.options.device, codes=codes,
                              exec_mode=self.options.exec) as model:
            feed = {name: arrays[name] for name in model.inputs}
            for _ in range(2):  # the second run may be a recording
                got = model.run(feed)
            nodes = model.report(**({"N": case.shapes["x"][0]} if "symbols N" in text else {}))["nodes"]
        verdicts = collections.Counter(n["verdict"] for n in nodes)
        if dtype == "bf16":
            got = {name: torch.from_numpy(v.view(numpy.int16)).view(torch.bfloat16) if v.dtype == numpy.uint16 else
                   torch.from_numpy(v) for name, v in got.items()}
        else:
            got = {name: torch.from_numpy(v) for name, v in got.items()}
        return got, verdicts

    def judge(self, seed):
        case, options = case_of(seed), self.options
        operands = case.operands(options.dtype)
        case.weigh(operands)
        want = case.judge(operands)
        theirs = {}
        if options.dtype == "f32":
            theirs = case.judge(operands, torch.float32, self.where)
        errors, peer, wrong, verdicts = {}, {}, [], collections.Counter()
        sizes = case.sizes(operands)
        for gradients in (False, True):
            got, counts = self.run(case, gradients, operands)
            verdicts += counts
            for name, value in got.items():
                way = name if gradients or name != "y" else "forward y"
                if name == "indices":
                    exact = torch.equal(value, want[name])
                else:
                    errors[way] = norm_error(value, want[name], sizes.get(name, 0.0))
                    # What max and min give is an element of x.
                    limit = 0 if case.indices() and name == "y" else options.limit or LIMITS[options.dtype]
                    exact = errors[way] <= limit
                    if name in theirs:
                        peer[way] = norm_error(theirs[name], want[name], sizes.get(name, 0.0))
                if not exact:
                    wrong.append(f"{way}: " + ("positions differ" if name == "indices" else
                                               f"error {errors[way]:.2e}, PyTorch {peer.get(way, math.nan):.2e}, got "
                                               f"{list(value.shape)}, expected {list(want[name].shape)}"))
        return {"errors": errors, "peer": peer, "wrong": wrong, "verdicts": verdicts,
                "kind": f"{case.kind} {case.axes}d", "what": " ".join(case.node_lines() + [str(case.shapes), str(case.after),
                                                                                           str(case.variant)])}


def work(options):
    worker = Worker(options)
    for seed in options.seeds:
        try:
            out = worker.judge(seed)
        except binding.TenonError as e:
            out = {"wrong": [str(e)]}
        except Exception:  # of PyTorch: the case itself is to be seen
            out = {"wrong": [traceback.format_exc()]}
        if out["wrong"] and "kind" not in out:
            case = case_of(seed)
            out |= {"errors": {}, "peer": {}, "verdicts": {}, "kind": f"{case.kind} {case.axes}d",
                    "what": " ".join(case.node_lines() + [str(case.shapes), str(case.after), str(case.variant)])}
        print(json.dumps({"seed": seed, **out}), flush=True)


def answers(options, seeds):
    """Of a process that works on them. Where it dies, another one takes the rest."""
    while seeds:
        command = [sys.executable, __file__, str(options.library), "--device", options.device, "--dtype", options.dtype,
                   "--exec", str(options.exec), "--seeds", ",".join(map(str, seeds))]
        if options.limit:
            command += ["--limit", str(options.limit)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                out = json.loads(line)
                seeds.remove(out["seed"])
                yield out
        if seeds and child.returncode:
            case = case_of(seeds[0])
            yield {"seed": seeds.pop(0), "kind": f"{case.kind} {case.axes}d", "errors": {}, "peer": {}, "verdicts": {},
                   "wrong": [f"the process ended with status {child.returncode}"], "what": " ".join(case.node_lines())}


def print_table(results):
    """The median and the worst error of tenon, then those of PyTorch, and what became of the nodes."""
    print(f"{'kind':20} {'cases':>6} {'failed':>6} {'median':>8} {'worst':>8} {'PyTorch':>8} {'worst':>8} {'native':>7} "
          f"{'decomp.':>7} {'fallback':>8}")
    rows = collections.defaultdict(list)
    for r in results:
        rows[r["kind"]].append(r)
    for kind in [*sorted(rows), "all"]:
        some = results if kind == "all" else rows[kind]
        def numbers(what):
            all_of = sorted(itertools.chain.from_iterable(r[what].values() for r in some)) or [math.nan]
            return f"{all_of[len(all_of) // 2]:8.1e} {all_of[-1]:8.1e}"
        verdicts = sum((collections.Counter(r["verdicts"]) for r in some), collections.Counter())
        print(f"{kind:20} {len(some):6} {sum(bool(r['wrong']) for r in some):6} {numbers('errors')} {numbers('peer')} "
              f"{verdicts['native']:7} {verdicts['decomposed']:7} {verdicts['fallback']:8}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--only", type=int, help="the case of this seed, with its graphs")
    parser.add_argument("--dtype", choices=LIMITS, default="f32")
    parser.add_argument("--limit", type=float, help="largest error")
    parser.add_argument("--exec", type=int, default=0, help="execution mode, as in types.h")
    parser.add_argument("--seeds", type=lambda s: [int(v) for v in s.split(",")], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    if not options.device.startswith("cpu") and not torch.cuda.is_available():
        print(f"skipped: PyTorch has no device {options.device}")
        return 77
    if options.only is not None:
        options.seeds = [options.only]
    if options.seeds:
        work(options)
        return 0
    seeds = list(range(options.seed, options.seed + options.count))
    print(f"PyTorch {torch.__version__}, {options.device}, {options.dtype}, seeds {seeds[0]} to {seeds[-1]}, largest error "
          f"{options.limit or LIMITS[options.dtype]:.0e}", flush=True)
    results = []
    for out in answers(options, list(seeds)):
        results.append(out)
        if out["wrong"]:
            print(f"FAIL seed {out['seed']}: {out['what']}\n  " + "\n  ".join(out["wrong"]), flush=True)
    print_table(results)
    missing = sorted(set(seeds) - {r["seed"] for r in results})
    for seed in missing:
        print(f"FAIL seed {seed}: no answer")
    failed = sum(bool(r["wrong"]) for r in results) + len(missing)
    print(f"{len(seeds)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
