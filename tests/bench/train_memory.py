#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of training the reference models: `tenon lm train` beside PyTorch eager, most resident bytes of each process.

train_memory.py BIN_DIR [--models s m l] [--steps N] [--modes "" "--checkpoint" ...]
The peer is the model of torch_cpu.py with its batch; both make the same number of steps, two threads each. Beside them:
the planned peak of the intermediates of a step and its lower bound. What PyTorch takes before it has a model is in its
figure (import torch), as it is in a user's. Without PyTorch the peer's column stays empty."""
import argparse, json, os, pathlib, subprocess, sys, tempfile

PEER = r"""
import pathlib, sys
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(2); torch.manual_seed(0)
source = pathlib.Path(sys.argv[1]).read_text()
part = lambda first, last: source[source.index(first):source.index(last)]
exec(part("def rope(", '@case("rope")'))
exec(part("class Block(", "def lm_flops("))
cfg, b = LMS[sys.argv[2]], BATCH[sys.argv[2]]
m = LM(**cfg); opt = torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=.1, fused=True)
i = torch.randint(0, 256, (b, cfg["ctx"] + 1))
for _ in range(int(sys.argv[3])):
    loss = F.cross_entropy(m(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten()); loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); opt.zero_grad(set_to_none=True)
"""
SIZES = {"s": dict(dim=128, layers=4, heads=4, kv_heads=2, ffn=344, context=128, batch=16),
         "m": dict(dim=256, layers=6, heads=8, kv_heads=4, ffn=688, context=256, batch=8),
         "l": dict(dim=512, layers=8, heads=8, kv_heads=4, ffn=1376, context=512, batch=4)}


def resident(words):
    """Most resident MiB of a process."""
    pid = os.posix_spawn(words[0], words, os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    return usage.ru_maxrss / 1024 if status == 0 else None


def planned(tenon, folder, size, mode):
    words = [tenon, "inspect", folder, "--part", "train", "--batch", str(size["batch"]), "--device", "cpu", "--json"]
    report = json.loads(subprocess.run(words + [w for w in mode if w == "--checkpoint"], check=True,
                                       capture_output=True, text=True).stdout)
    return report["memory"][0]["peak"] / 2**20, report["memory"][0]["bound"] / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--models", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--modes", nargs="+", default=["", "--checkpoint", "--dtype bf16"])
    a = parser.parse_args()
    tenon = f"{a.bin_dir}/tenon"
    peer = pathlib.Path(__file__).with_name("torch_cpu.py")
    print(f"{'model':6s} {'mode':24s} {'peak':>8s} {'bound':>8s} {'ratio':>6s} {'tenon':>8s} {'torch':>8s}   (MiB)")
    for name in a.models:
        torch = resident([sys.executable, "-c", PEER, str(peer), name, str(a.steps)])
        for mode in (m.split() for m in a.modes):
            sizes = [w for key, v in SIZES[name].items() for w in ("--" + key.replace("_", "-"), str(v))]
            with tempfile.TemporaryDirectory() as folder:
                text = pathlib.Path(folder) / "text"
                text.write_bytes(bytes(range(256)) * 400)
                tenon_size = resident([tenon, "lm", "train", "--text", str(text), "--out", f"{folder}/m", *sizes, "--steps",
                                       str(a.steps), "--threads", "2", "--device", "cpu", *mode])
                peak, bound = planned(tenon, f"{folder}/m", SIZES[name], mode)
            show = lambda v: f"{v:8.1f}" if v else f"{'-':>8s}"
            print(f"lm_{name:3s} {' '.join(mode):24s} {peak:8.1f} {bound:8.1f} {peak / bound:6.3f} {show(tenon_size)} "
                  f"{show(torch)}", flush=True)


if __name__ == "__main__":
    main()
