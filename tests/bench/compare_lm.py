#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Side by side with PyTorch on one machine in one run: training steps and decoding of the three reference models.

compare_lm.py BIN_DIR [--rounds N] [--only TEXT] [--threads N] [--isa NAME] [--no-compile]
tenon and PyTorch (the better of eager and compiled) alternate; each round times both, the table shows the median of the
rounds' ratios (time of tenon over time of PyTorch: below 1 tenon is faster). Needs torch for this Python."""
import argparse, json, math, pathlib, re, statistics, subprocess, sys, tempfile

import isa

HERE = pathlib.Path(__file__).resolve().parent
CASES = [f"lm_{size}_{what}" for size in "sml" for what in ("train_step", "decode_token")]
TOKENS = {"lm_s_train_step": 16 * 128, "lm_m_train_step": 8 * 256, "lm_l_train_step": 4 * 512}


def tenon_us(binary, case, threads):
    out = subprocess.run([binary, "bench", "--only", case, "--json", "--no-ceilings", "--seconds", "2", "--threads", str(threads), "--device",
                          "cpu"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["median_us"]


def torch_us(case, threads, compile_too):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ["--threads", str(threads), "--only", f"^{case}$", "--json", file.name]
        subprocess.run([sys.executable, HERE / "torch_cpu.py", *options, *([] if compile_too else ["--no-compile"])],
                       check=True, capture_output=True)
        times = json.loads(pathlib.Path(file.name).read_text())["cases"][case]
        if compile_too and not times["compiled_us"]:
            sys.exit(f"{case}: PyTorch did not compile it; --no-compile compares with eager")
        return min(times["eager_us"], times["compiled_us"] or math.inf)


def cpu_model():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="PyTorch eager alone")
    isa.add_option(parser)
    a = parser.parse_args()
    capped = isa.cap(a.isa)
    peer = "eager" if a.no_compile else "the better of eager and compiled"
    print(f"{cpu_model()}{capped}, {a.threads} threads, {a.rounds} rounds, f32; PyTorch {peer}", flush=True)
    print(f"{'case':22s} {'tenon us':>12s} {'PyTorch us':>12s} {'ratio':>7s} {'tenon tok/s':>12s} {'PyTorch tok/s':>14s}")
    for case in (c for c in CASES if a.only in c):
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(tenon_us(f"{a.bin_dir}/tenon", case, a.threads))
            theirs.append(torch_us(case, a.threads, not a.no_compile))
        ratio = statistics.median(o / t for o, t in zip(ours, theirs))
        us, them = statistics.median(ours), statistics.median(theirs)
        tokens = TOKENS.get(case, 1) * 1e6
        print(f"{case:22s} {us:12.1f} {them:12.1f} {ratio:7.2f} {tokens / us:12.0f} {tokens / them:14.0f}", flush=True)


if __name__ == "__main__":
    main()
