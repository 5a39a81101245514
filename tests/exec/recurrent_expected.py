#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints recurrent_expected.hpp: what PyTorch's LSTM and GRU give for the inputs of recurrent_test.cpp, in float64.

recurrent_expected.py > recurrent_expected.hpp
Needs torch for this Python."""
import torch

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6


def values(salt, *dims):
    """As in recurrent_test.cpp: numbers from -0.5 to 0.5, rounded to float."""
    k = torch.arange(torch.Size(dims).numel(), dtype=torch.float64)
    return (((k * 37 + salt * 53) % 101) / 101 - 0.5).to(torch.float32).to(torch.float64).reshape(dims)


def recurrent(kind, gates):
    module = kind(INPUT, HIDDEN, dtype=torch.float64)
    weights = {"w_ih": (gates * HIDDEN, INPUT), "w_hh": (gates * HIDDEN, HIDDEN), "b_ih": (gates * HIDDEN,),
               "b_hh": (gates * HIDDEN,)}
    parameters = dict(zip(weights, module.parameters()))
    with torch.no_grad():
        for salt, (name, dims) in enumerate(weights.items()):
            parameters[name].copy_(values(4 + salt, *dims))
    inputs = {"xs": values(1, STEPS, BATCH, INPUT), "h0": values(2, BATCH, HIDDEN), "c0": values(3, BATCH, HIDDEN)}
    if gates == 3:
        del inputs["c0"]
    for tensor in inputs.values():
        tensor.requires_grad_()
    state = [inputs[n].unsqueeze(0) for n in ("h0", "c0") if n in inputs]
    ys, last = module(inputs["xs"], tuple(state) if len(state) == 2 else state[0])
    last = last if isinstance(last, tuple) else (last,)
    results = {"ys": ys, "h": last[0]} | ({"c": last[1]} if len(last) == 2 else {})
    loss = (ys * ys).sum() / 2 + sum(v.sum() for v in last)
    wanted = inputs | parameters
    return results | {f"d_{n}": g for n, g in zip(wanted, torch.autograd.grad(loss, list(wanted.values())))}


def main():
    print(f"""// SPDX-License-Identifier: Apache-2.0
// What PyTorch {torch.__version__.split("+")[0]} gives for an LSTM and a GRU in float64. Printed by recurrent_expected.py.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tenon::test {{

using Expected = std::map<std::string, std::vector<float>>;
// clang-format off""")
    for name, kind, gates in (("kLstmExpected", torch.nn.LSTM, 4), ("kGruExpected", torch.nn.GRU, 3)):
        print(f"inline const Expected {name} = {{")
        for result, tensor in recurrent(kind, gates).items():
            numbers = [f"{x:.9g}" for x in tensor.flatten().tolist()]
            rows = [", ".join(numbers[i:i + 6]) for i in range(0, len(numbers), 6)]
            print(f'  {{"{result}", {{\n    ' + ",\n    ".join(rows) + "}},")
        print("};")
    print("""// clang-format on

}  // namespace tenon::test""")


if __name__ == "__main__":
    main()
