#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Factors, solutions and inverses of dense matrices beside torch.linalg, on one machine in one run.

dense.py LIBTENON [--rounds N] [--only REGEX] [--threads N] [--seconds X]
Each round times the peer and tenon by turns. A ratio is tenon's time over the peer's (below 1 tenon is faster); the table shows
the medians of the rounds. "4096 x 16" are 4096 matrices of 16 x 16. Needs torch for this Python."""
import pathlib, re, sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
import binding
import peer_rounds

SIZES = [(4096, 16), (64, 128), (8, 256), (1, 256), (1, 512), (1, 1024), (1, 2048)]
OPS = {  # tenon's lines, and the same by PyTorch
    "lu": ('(y, perm) = lu(a)', lambda a, b: torch.linalg.lu_factor(a)),
    "cholesky": ('y = cholesky(s)', lambda a, b: torch.linalg.cholesky(a)),
    "inverse": ('y = inverse(a)', lambda a, b: torch.linalg.inv(a)),
    "solve 1": ('y = dense_solve(a, b)', torch.linalg.solve),
    "solve 64": ('y = dense_solve(a, b)', torch.linalg.solve),
}


def case(op, count, n):
    line, peer = OPS[op]
    a = torch.randn(count, n, n)
    if op == "cholesky": a = a @ a.mT + n * torch.eye(n)
    b = torch.randn(count, n, int(op.split()[1]) if " " in op else 1)
    inputs = {"s" if op == "cholesky" else "a": a, **({"b": b} if "b)" in line else {})}
    return line, {k: v.numpy() for k, v in inputs.items()}, lambda: peer(a, b)


def main():
    a = peer_rounds.library_parser(__doc__, '"cholesky 1 x .*"').parse_args()
    torch.set_num_threads(a.threads)
    tenon = binding.Tenon(a.library, threads=a.threads)
    print(f"PyTorch {torch.__version__}, {a.threads} threads")
    for op in OPS:
        for count, n in SIZES:
            name = f"{op} {count} x {n}"
            if not re.search(a.only, name): continue
            line, inputs, peer = case(op, count, n)
            head = [f"input {k}: f32[{','.join(map(str, v.shape))}]" for k, v in inputs.items()]
            graph = 'graph "g" {\n' + "".join(f"  {text}\n" for text in [*head, line, 'output "y" = y']) + "}\n"
            with tenon.parse(graph) as model:
                model.set(inputs)
                peer_rounds.by_turns(name, model.start, [peer], a, "PyTorch")


if __name__ == "__main__":
    sys.exit(main())
