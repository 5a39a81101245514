#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions over a batch and forward derivatives, beside torch.func on one machine in one run.

derivatives.py BIN_DIR [--rounds N] [--only REGEX] [--threads N] [--seconds X] [--isa NAME] [--keep DIR]
each_gradient: the gradients of all weights of a network, for each example. each_hessian: the Hessian of each example's loss by
its input. jvp: the outputs of a batch along tangents of input and weights. hvp: the Hessian of the batch's loss by the first
weight, times a vector. Each round times torch.func eager, torch.func compiled, and tenon. A ratio is tenon's time over the
better of the two (below 1 tenon is faster); the table shows the medians of the rounds. Needs torch for this Python."""
import pathlib, re, statistics, tempfile

import isa
import peer_rounds
from compare_lm import cpu_model
from compare_torch import bench, load_peer

SIZES = [(16, 64, 64, 10), (128, 256, 512, 10)]  # batch, input, hidden, classes

# x is one example or, for jvp and hvp, a batch: products broadcast.
NET = """{p}h1 = matmul(x, w1)
{p}s1 = binary(h1, b1) {{kind="add"}}
{p}a1 = unary(s1) {{kind="tanh"}}
{p}h2 = matmul(a1, w2)
{p}s2 = binary(h2, b2) {{kind="add"}}
{p}a2 = unary(s2) {{kind="tanh"}}
{p}y = matmul(a2, w3)
"""
LOSS = """{p}off = binary(y, target) {{kind="sub"}}
{p}loss = reduce(off) {{kind="sum_square"}}
"""


def weights(i, h, o):
    return {"w1": f"f32[{i},{h}]", "b1": f"f32[{h}]", "w2": f"f32[{h},{h}]", "b2": f"f32[{h}]", "w3": f"f32[{h},{o}]"}


def inputs(types, p):
    return "".join(f"{p}input {n}: {t}\n" for n, t in types.items())


def each(body, name, size, outputs):
    """A body over the batch."""
    b, i, h, o = size
    shared = weights(i, h, o)
    one = {"x": f"f32[{i}]", "target": f"f32[{o}]"}
    return (f'graph "{name}" {{\n' + inputs({n: t.replace("[", f"[{b},", 1) for n, t in one.items()} | shared, "  ")
            + f"  ({', '.join(outputs)}) = vmap([x, target], [{', '.join(shared)}]) {{body=graph {{\n"
            + inputs(one | shared, "    ") + body + "  }}\n" + "".join(f'  output "{n}" = {n}\n' for n in outputs) + "}\n")


def each_gradient(size):
    wrt = list(weights(*size[1:]))
    outputs = ["d_" + n for n in wrt]
    body = NET.format(p="    ") + LOSS.format(p="    ") + f"    ({', '.join(outputs)}) = grad(loss, {', '.join(wrt)})\n"
    return each(body + "".join(f'    output "{n}" = {n}\n' for n in outputs), "each gradient", size, outputs)


def each_hessian(size):
    """Rows of the identity, each multiplied by the Hessian: the gradient of <gradient, row>."""
    i = size[1]
    shared = weights(*size[1:])
    row = (inputs({"t": f"f32[{i}]", "x": f"f32[{i}]", "target": f"f32[{size[3]}]"} | shared, "      ")
           + NET.format(p="      ") + LOSS.format(p="      ")
           + '      dx = grad(loss, x)\n      along = binary(dx, t) {kind="mul"}\n      slope = reduce(along) {kind="sum"}\n'
           + '      row = grad(slope, x)\n      output "row" = row\n')
    body = (f"    first = iota() {{shape=[{i},1], dtype=i64}}\n    second = iota() {{shape=[1,{i}], axis=1, dtype=i64}}\n"
            + '    same = compare(first, second) {kind="eq"}\n    identity = cast(same) {to=f32}\n'
            + f"    (h) = vmap([identity], [x, target, {', '.join(shared)}]) {{body=graph {{\n{row}    }}}}\n"
            + '    output "h" = h\n')
    return each(body, "each hessian", size, ["h"])


def batch(size, more):
    b, i, h, o = size
    return {"x": f"f32[{b},{i}]", "target": f"f32[{b},{o}]"} | weights(i, h, o) | more


def hvp(size):
    """The gradient of <gradient, t>."""
    _, i, h, _ = size
    return ('graph "hvp" {\n' + inputs(batch(size, {"t": f"f32[{i},{h}]"}), "  ") + NET.format(p="  ") + LOSS.format(p="  ")
            + '  d = grad(loss, w1)\n  along = binary(d, t) {kind="mul"}\n  slope = reduce(along) {kind="sum"}\n'
            + '  product = grad(slope, w1)\n  output "product" = product\n}\n')


def jvp(size):
    """As tenon_graph_jvp writes it: the reverse mode twice."""
    b, i, h, o = size
    more = {"tx": f"f32[{b},{i}]", "tw": f"f32[{i},{h}]"}
    return ('graph "jvp" {\n' + inputs(batch(size, more), "  ") + "  const no: bool[] = {0}\n  const zero: f32[] = {0}\n"
            + NET.format(p="  ") + "  u = where(no, y, zero)\n"
            + '  yu = binary(y, u) {kind="mul"}\n  first = reduce(yu) {kind="sum"}\n  (gx, gw) = grad(first, x, w1)\n'
            + '  px = binary(gx, tx) {kind="mul"}\n  pw = binary(gw, tw) {kind="mul"}\n  sx = reduce(px) {kind="sum"}\n'
            + '  sw = reduce(pw) {kind="sum"}\n  second = binary(sx, sw) {kind="add"}\n  moved = grad(second, u)\n'
            + '  output "moved" = moved\n}\n')


CASES = {"each_gradient": each_gradient, "each_hessian": each_hessian, "jvp": jvp, "hvp": hvp}


def peers(torch, case, size):
    """The function of torch.func, eager and compiled."""
    from torch.func import grad, hessian, jvp as forward, vmap
    b, i, h, o = size
    x, target = torch.randn(b, i), torch.randn(b, o)
    w1, b1, w2, b2, w3 = (torch.randn(*d) / 10 for d in [(i, h), (h,), (h, h), (h,), (h, o)])
    tx, tw = torch.randn(b, i), torch.randn(i, h)

    def net(x, w1, b1, w2, b2, w3):
        return torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2) @ w3

    def loss(x, target, *w):
        return ((net(x, *w) - target) ** 2).sum()
    shared = (None,) * 5
    functions = {
        "each_gradient": vmap(grad(loss, tuple(range(2, 7))), (0, 0, *shared)),
        "each_hessian": vmap(hessian(loss, 0), (0, 0, *shared)),
        "jvp": lambda x, target, w1, *w: forward(lambda x, w1: net(x, w1, *w), (x, w1), (tx, tw))[1],
        "hvp": lambda x, target, w1, *w: forward(lambda w1: grad(lambda v: loss(x, target, v, *w))(w1), (w1,), (tw,))[1],
    }
    function, arguments = functions[case], (x, target, w1, b1, w2, b2, w3)
    compiled = torch.compile(function)
    try:
        compiled(*arguments)
    except Exception as e:  # a form that the compiler of this version does not take
        print(f"(not compiled: {case}: {str(e).splitlines()[0][:100]})")
        compiled = function
    return [lambda f=f: f(*arguments) for f in (function, compiled)]


def main():
    a = peer_rounds.parser(__doc__, "jvp_16x64x64x10").parse_args()
    capped = isa.cap(a.isa)
    peer = load_peer(a.threads)
    print(f"{cpu_model()}{capped}, {a.threads} threads, f32; PyTorch {peer.torch.__version__}; {a.rounds} rounds; times in ms\n\n"
          "| case | tenon | eager | compiled | tenon / better |\n| --- | ---: | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, size in ((n, s) for n in CASES for s in SIZES):
            case = f"{name}_{'x'.join(map(str, size))}"
            if not re.search(a.only, case):
                continue
            file = folder / f"{case}.tng"
            file.write_text(CASES[name](size))
            functions, rounds = peers(peer.torch, name, size), []
            for _ in range(a.rounds):
                ours = bench(a, ["--no-ceilings", "--seconds", str(a.seconds), str(file)])[0]["median_us"]
                rounds.append([ours] + [peer_rounds.measure(f, a.seconds)[0] for f in functions])
            times = [statistics.median(r[side] for r in rounds) / 1e3 for side in range(3)]
            ratio = statistics.median(r[0] / min(r[1:]) for r in rounds)
            print(f"| {case} | {' | '.join(f'{t:.3f}' for t in times)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
