#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks: an LSTM and a GRU, beside PyTorch's eager loop of LSTMCell or GRUCell and its modules.

recurrent.py BIN_DIR [--rounds N] [--only REGEX] [--threads N] [--seconds X] [--isa NAME] [--keep DIR]
A case named step times forward, loss and the gradients of all weights; forward times forward alone. Column each: x is
multiplied by its weights in every step of a scan, as the cells do; column once: all x are multiplied in one product before
the scan; column op: the op lstm or gru in place of that scan. Each round times the forms of tenon, the loop, and
torch.nn.LSTM or GRU. A ratio is tenon's time over PyTorch's (below 1 tenon is faster), the table shows the medians of the
rounds. The last ratio compares the fastest run of tenon (of all forms) with the fastest run of the loop. On a machine with other work, PyTorch's threads lose much time waiting for each
other, unless OMP_WAIT_POLICY=PASSIVE and GOMP_SPINCOUNT=0 are set. Needs torch for this Python."""
import pathlib, re, statistics, tempfile

import isa
import peer_rounds
from compare_lm import cpu_model
from compare_torch import bench, load_peer

SIZES = [(64, 1, 128, 128), (64, 32, 256, 256), (64, 16, 512, 512)]  # steps, batch, input, hidden
KINDS = {"lstm": 4, "gru": 3}


def gate(name, of, index, b, h):
    return f"    {name} = narrow({of}) {{start=[0,{index * h}], len=[{b},{h}], step=[1,1]}}\n"


def lstm_body(b, h):
    return ('    gates = binary(from_x, from_h) {kind="add"}\n'
            + "".join(gate(f"{n}_sum", "gates", i, b, h) for i, n in enumerate("ifgo"))
            + """    i = unary(i_sum) {kind="sigmoid"}
    f = unary(f_sum) {kind="sigmoid"}
    g = unary(g_sum) {kind="tanh"}
    o = unary(o_sum) {kind="sigmoid"}
    kept = binary(f, c) {kind="mul"}
    added = binary(i, g) {kind="mul"}
    next_c = binary(kept, added) {kind="add"}
    shown = unary(next_c) {kind="tanh"}
    next_h = binary(o, shown) {kind="mul"}
    output "h" = next_h
    output "c" = next_c
    output "y" = next_h
""")


def gru_body(b, h):
    return ("".join(gate(f"{n}_{of[-1]}", of, i, b, h) for of in ("from_x", "from_h") for i, n in enumerate("rzn"))
            + """    r_sum = binary(r_x, r_h) {kind="add"}
    z_sum = binary(z_x, z_h) {kind="add"}
    r = unary(r_sum) {kind="sigmoid"}
    z = unary(z_sum) {kind="sigmoid"}
    n_part = binary(r, n_h) {kind="mul"}
    n_sum = binary(n_x, n_part) {kind="add"}
    n = unary(n_sum) {kind="tanh"}
    apart = binary(h, n) {kind="sub"}
    kept = binary(z, apart) {kind="mul"}
    next = binary(n, kept) {kind="add"}
    output "h" = next
    output "y" = next
""")


def layer(kind, h):
    """The op. What PyTorch adds to the product with h is added to x, but for the candidate of a GRU."""
    g = KINDS[kind] * h
    r = f"  r = reshape(w_hh) {{shape=[1,{g},{h}]}}\n"
    if kind == "lstm":
        return r + '  x = binary(from_x_all, b_hh) {kind="add"}\n  ys = lstm(x, r)\n'
    return (r + f"  gates = narrow(b_hh) {{start=[0], len=[{2 * h}], step=[1]}}\n"
            f"  candidate = narrow(b_hh) {{start=[{2 * h}], len=[{h}], step=[1]}}\n"
            '  none = binary(candidate, candidate) {kind="sub"}\n  bias = concat([gates, none]) {axis=0}\n'
            '  x = binary(from_x_all, bias) {kind="add"}\n'
            f"  n_bias = reshape(candidate) {{shape=[1,{h}]}}\n  ys = gru(x, r, n_bias)\n")


def graph(kind, size, form, step):
    """The text of a graph. form: each, once or op. step: with gradients."""
    t, b, i, h = size
    g = KINDS[kind] * h
    once = form != "each"
    types = {"h": f"f32[{b},{h}]", "c": f"f32[{b},{h}]", "x": f"f32[{b},{i}]", "from_x": f"f32[{b},{g}]",
             "w_ih": f"f32[{g},{i}]", "w_hh": f"f32[{g},{h}]", "b_ih": f"f32[{g}]", "b_hh": f"f32[{g}]"}
    state = ["h", "c"] if kind == "lstm" else ["h"]
    weights = ["w_ih", "w_hh", "b_ih", "b_hh"]
    product = '{0}xw = matmul({1}, w_ih) {{trans_b=true}}\n{0}from_x{2} = binary(xw, b_ih) {{kind="add"}}\n'
    captured = ["w_hh", "b_hh"] if once else weights
    text = f'graph "{kind}" {{\n  input xs: f32[{t},{b},{i}]\n'
    text += "".join(f"  input {n}: {types[n]}\n" for n in weights)
    if form != "op":
        text += "".join(f"  input {n}0: {types[n]}\n" for n in state)
    if once:
        text += product.format("  ", "xs", "_all")
    if form == "op":
        text += layer(kind, h)
    else:
        text += (f"  ({', '.join(n + '_last' for n in state)}, ys) = scan([{', '.join(n + '0' for n in state)}], "
                 f"[{'from_x_all' if once else 'xs'}], [{', '.join(captured)}]) {{body=graph {{\n")
        text += "".join(f"    input {n}: {types[n]}\n" for n in [*state, "from_x" if once else "x", *captured])
        if not once:
            text += product.format("    ", "x", "")
        text += '    hw = matmul(h, w_hh) {trans_b=true}\n    from_h = binary(hw, b_hh) {kind="add"}\n'
        text += (lstm_body(b, h) if kind == "lstm" else gru_body(b, h)) + "  }}\n"
    text += '  output "ys" = ys\n'
    if step:
        text += '  loss = reduce(ys) {kind="sum_square"}\n  output "loss" = loss\n'
        text += f"  ({', '.join('d_' + n for n in weights)}) = grad(loss, {', '.join(weights)})\n"
        text += "".join(f'  output "d_{n}" = d_{n}\n' for n in weights)
    return text + "}\n"


def peers(torch, kind, size, step):
    """The loop of cells, and the module that runs all steps."""
    t, b, i, h = size
    cell = (torch.nn.LSTMCell if kind == "lstm" else torch.nn.GRUCell)(i, h)
    module = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(i, h)
    xs, zeros = torch.randn(t, b, i), torch.zeros(b, h)

    def loop():
        state, ys = (zeros, zeros) if kind == "lstm" else zeros, []
        for x in xs.unbind():
            state = cell(x, state)
            ys.append(state[0] if kind == "lstm" else state)
        return torch.stack(ys)

    def whole():
        return module(xs)[0]

    def timed(forward, parameters):
        def with_gradients():
            ys = forward()
            return torch.autograd.grad((ys * ys).sum(), parameters)

        def without():
            with torch.inference_mode():
                return forward()
        return with_gradients if step else without
    return timed(loop, list(cell.parameters())), timed(whole, list(module.parameters()))


def ours(a, words):
    """Median and best, in us."""
    row = bench(a, ["--no-ceilings", "--seconds", str(a.seconds), *words])[0]
    return row["median_us"], row["best_us"]


def main():
    a = peer_rounds.parser(__doc__, "lstm_64x32x256x256_step").parse_args()
    capped = isa.cap(a.isa)
    peer = load_peer(a.threads)
    print(f"{cpu_model()}{capped}, {a.threads} threads, f32; PyTorch {peer.torch.__version__} eager; "
          f"{a.rounds} rounds; times in ms\n\n"
          "| case | each | once | op | loop | module | each / loop | once / loop | op / loop | op / module "
          "| best / best loop |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    above = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(a.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind, size, step in ((k, s, w) for k in KINDS for s in SIZES for w in (False, True)):
            case = f"{kind}_{'x'.join(map(str, size))}_{'step' if step else 'forward'}"
            if not re.search(a.only, case):
                continue
            files = []
            for form in ("each", "once", "op"):
                files.append(folder / f"{case}_{form}.tng")
                files[-1].write_text(graph(kind, size, form, step))
            most = size[3] ** -0.5  # as PyTorch begins
            fills = [w for n in ("w_ih", "w_hh", "b_ih", "b_hh") for w in ("--fill", f"{n}={-most}:{most}")]
            functions, rounds = peers(peer.torch, kind, size, step), []
            for _ in range(a.rounds):
                rounds.append([ours(a, [*fills, str(f)]) for f in files] + [peer_rounds.measure(f, a.seconds) for f in functions])
            times = [statistics.median(r[side][0] for r in rounds) / 1e3 for side in range(5)]
            ratio = [statistics.median(r[us][0] / r[them][0] for r in rounds)
                     for us, them in ((0, 3), (1, 3), (2, 3), (2, 4))]
            best = [min(r[side][1] for r in rounds) for side in range(5)]
            ratio.append(min(best[:3]) / best[3])
            print(f"| {case} | {' | '.join(f'{x:.2f}' for x in times)} | {' | '.join(f'{r:.2f}' for r in ratio)} |", flush=True)
            above += [case] if max(ratio[2], ratio[4]) > 1 else []
    print(f"\nslower than the loop of cells: {', '.join(above) or 'none'}")


if __name__ == "__main__":
    main()
