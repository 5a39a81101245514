#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How planning grows with the graph: parse, verify, differentiate, plan and compile a chain, a diamond ladder, a wide
fan, products (a chain of them, a fan of them, and a fan of activations of one), and a chain with composites.

plan_scale.py BIN_DIR [--nodes N ...] [--device DEVICE]
With a device that refuses composites, and measured rates of it and the cpu (tenon calibrate), the last chain shows what
placement by price takes.
Prints the processor time of `tenon inspect` per forward node and, from one size to the next, by how much the time grew
for each doubling of the nodes."""
import argparse, math, os, pathlib, re, subprocess, tempfile


def chain(n):
    lines = [f'%{i} = unary({"x" if i == 0 else f"%{i - 1}"}) {{kind="tanh"}}' for i in range(n)]
    return lines, n - 1


def ladder(n):
    lines, last = [], "x"
    for i in range(0, n - n % 3, 3):
        lines += [f'%{i} = unary({last}) {{kind="tanh"}}', f'%{i + 1} = unary({last}) {{kind="sin"}}',
                  f'%{i + 2} = binary(%{i}, %{i + 1}) {{kind="mul"}}']
        last = f"%{i + 2}"
    return lines, len(lines) - 1


def fan(n):
    lines = [f'%{i} = unary(x) {{kind="leaky_relu", alpha={0.1 + 1e-6 * i!r}}}' for i in range(n // 2)]
    return sum_of(lines, n // 2, kind="mul")


def product(a, i):
    return f"matmul({a}, m{i})"


def product_chain(n):
    lines = []
    for i in range(0, n - n % 2, 2):
        lines += [f'%{i} = {product(f"%{i - 1}" if i else "rows", i // 2)}', f'%{i + 1} = unary(%{i}) {{kind="relu"}}']
    return lines, len(lines) - 1


def product_fan(n):
    lines = [f'%{i} = {product("rows", i)}' for i in range(n // 2)]
    return sum_of(lines, n // 2)


def activation_fan(n):
    lines = [f'%0 = {product("rows", 0)}']
    lines += [f'%{i + 1} = unary(%0) {{kind="leaky_relu", alpha={0.1 + 1e-6 * i!r}}}' for i in range(n // 2)]
    return sum_of(lines, n // 2, 1)


def composites(n):
    ops = ("softmax({}) {{axis=0}}", 'unary({}) {{kind="tanh"}}', 'unary({}) {{kind="sin"}}')
    return [f"%{i} = {ops[i % 3].format(f'%{i - 1}' if i else 'x')}" for i in range(n)], n - 1


def sum_of(lines, count, first=0, kind="add"):
    level = list(range(first, first + count))
    while len(level) > 1:
        next_level = []
        for a, b in zip(level[::2], level[1::2]):
            lines.append(f'%{len(lines)} = binary(%{a}, %{b}) {{kind="{kind}"}}')
            next_level.append(len(lines) - 1)
        level = next_level + level[len(level) - len(level) % 2:]
    return lines, len(lines) - 1


def seconds(binary, kind, n, device):
    lines, last = kind(n)
    head = ["weight x: f32[8] trainable"]
    if "rows" in lines[0]:
        matrices = 1 + max(int(m) for m in re.findall(r"\bm(\d+)", " ".join(l for l in lines if "matmul" in l)))
        head += [f"weight m{i}: f32[8,8]" for i in range(matrices)] + ["rows = expand(x) {shape=[16, 8]}"]
    lines += [f'%{len(lines)} = reduce(%{last}) {{kind="sum"}}', f"%{len(lines) + 1} = grad(%{len(lines)}, x)"]
    text = 'graph "scale" {\n  ' + "\n  ".join(head + lines)
    text += f'\n  output "loss" = %{len(lines) - 2}\n  output "d" = %{len(lines) - 1}\n}}\n'
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.tng"
        path.write_text(text)
        before = os.times()
        subprocess.run([binary, "inspect", path, "--device", device, "--json"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--nodes", type=int, nargs="+", default=[25000, 50000, 100000])
    parser.add_argument("--device", default="cpu", help="as of tenon inspect [cpu]")
    a = parser.parse_args()
    print(f"{'graph':14s} {'nodes':>8s} {'seconds':>8s} {'us/node':>8s} {'per doubling':>13s}")
    for kind in (chain, ladder, fan, product_chain, product_fan, activation_fan, composites):
        last = None
        for n in a.nodes:
            s = seconds(f"{a.bin_dir}/tenon", kind, n, a.device)
            growth = f"{(s / last[1]) ** (1 / math.log2(n / last[0])):.2f}" if last else ""
            print(f"{kind.__name__:14s} {n:8d} {s:8.2f} {1e6 * s / n:8.1f} {growth:>13s}", flush=True)
            last = (n, s)


if __name__ == "__main__":
    main()
