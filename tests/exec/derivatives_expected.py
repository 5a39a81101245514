#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints derivatives_expected.hpp: what torch.func gives for the network of derivatives_test.cpp, in float64.

derivatives_expected.py > derivatives_expected.hpp
Needs torch for this Python."""
import torch
from torch.func import grad, hessian, jacrev, jvp, vmap

BATCH, IN, HIDDEN, OUT = 4, 3, 5, 2


def values(salt, *dims):
    """As in derivatives_test.cpp: numbers from -0.5 to 0.5, rounded to float."""
    k = torch.arange(torch.Size(dims).numel(), dtype=torch.float64)
    return (((k * 37 + salt * 53) % 101) / 101 - 0.5).to(torch.float32).to(torch.float64).reshape(dims)


X, TARGET, W1, B1, W2 = (values(k, *d) for k, d in enumerate(
    [(BATCH, IN), (BATCH, OUT), (IN, HIDDEN), (HIDDEN,), (HIDDEN, OUT)]))
TX, TW1 = values(5, BATCH, IN), values(6, IN, HIDDEN)


def net(x, w1):
    hidden = torch.nn.functional.layer_norm(torch.tanh(x @ w1 + B1), (HIDDEN,), eps=1e-5)
    return torch.softmax(hidden @ W2, -1)


def loss(x, target, w1):
    return ((net(x, w1) - target) ** 2).sum()


def main():
    results = {
        # Of each example: its gradients.
        "each dx": vmap(grad(loss, 0), (0, 0, None))(X, TARGET, W1),
        "each dw1": vmap(grad(loss, 2), (0, 0, None))(X, TARGET, W1),
        # Forward: outputs of the batch along tangents of x and w1.
        "jvp": jvp(lambda x, w: vmap(net, (0, None))(x, w), (X, W1), (TX, TW1))[1],
        # The Hessian of each example's loss by x, and that of the batch by w1 times a vector.
        "each hessian": vmap(hessian(loss, 0), (0, 0, None))(X, TARGET, W1),
        "hvp": jvp(grad(lambda w: vmap(loss, (0, 0, None))(X, TARGET, w).sum()), (W1,), (TW1,))[1],
        # The Jacobian of each example's outputs by x.
        "each jacobian": vmap(jacrev(net, 0), (0, None))(X, W1),
    }
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// What torch.func of PyTorch {torch.__version__.split('+')[0]} gives in float64. Printed by "
          "derivatives_expected.py.")
    print("#pragma once\n\n#include <map>\n#include <string>\n#include <vector>\n\nnamespace tenon::test {\n")
    print("// clang-format off")
    print("inline const std::map<std::string, std::vector<double>> kDerivativesExpected = {")
    for name, tensor in results.items():
        numbers = [f"{v:.15g}" for v in tensor.flatten().tolist()]
        print(f'  {{"{name}", {{')
        for k in range(0, len(numbers), 5):
            print("    " + ", ".join(numbers[k:k + 5]) + ",")
        print("  }},")
    print("};\n// clang-format on\n\n}  // namespace tenon::test")


main()
