#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the cuda plugin with PyTorch on one machine in one run: the cases of torch_gpu.py, except
convolutions in tf32, which tenon does not have.

compare_gpu.py BIN_DIR [--only REGEX] [--rounds N] [--seconds X] [--before DIR] [--json FILE] [--torch FILE] ...
Both sides report device time with a cold L2: the median of at least 20 calls that take at least --seconds in all. For each
case the sides run by turns, --rounds times, so that both see the same clocks; the other side begins each round. The
result is the median of the rounds.
- PyTorch: events around one call, after 256 MiB were written. The better of eager and compiled counts.
- tenon (bench --cold): the time of a run that also overwrites 256 MiB, minus the time of a run that only overwrites them.
  The difference contains no host time.
First all code is compiled into caches, --workers processes at a time.
Columns: case; tenon us; PyTorch us; ratio; limit of the ratio; tenon over the copy limit. The copy limit is the least time
for the bytes of inputs and outputs (or for the products) at the rate of PyTorch's copy (or product of 8192). MISS: the
ratio is above its limit, or a case that moves memory takes more than 1.25 times the copy limit (or its own bound).
--before DIR measures an earlier build by turns as well. --torch FILE takes PyTorch's figures from a file of torch_gpu.py
--json and measures tenon alone. Needs torch."""
import argparse, concurrent.futures, json, os, pathlib, re, statistics, subprocess, sys, tempfile, time

import conv_layers

HERE = pathlib.Path(__file__).resolve().parent
X, V, S = "bf16[32768,4096]", "bf16[4096]", "f32[32768,1]"
LONG, IMAGE, NORMS = "f32[134217728]", "f32[32,512,64,64]", "f32[32,32]"
LOGITS, LABELS = "bf16[8192,50257]", "i64[8192]"
ROPE, ROPE_TABLE = "bf16[4,4096,32,128]", "f32[4096,64]"
QKV, GPT_QKV = "bf16[4,32,4096,128]", "bf16[16,12,1024,64]"
POOL = "kernel=[3, 3], stride=[2, 2], pads=[1, 1, 1, 1]"
CHAIN = """graph "chain" {
  input p: bf16[134217728]
  input q: bf16[134217728]
  const scale: bf16[] = {1.5}
  const shift: bf16[] = {0.25}
  a = binary(p, scale) {kind="mul"}
  b = binary(a, shift) {kind="add"}
  c = unary(b) {kind="gelu"}
  d = binary(c, q) {kind="mul"}
  output "y" = d
}
"""
SCATTER = """graph "scatter" {
  state d: f32[50257,768]
  input u: f32[65536,768]
  input i: i64[65536]
  y = scatter_add(u, i, d)
  update d = y
}
"""
LOSS = f"""graph "loss" {{
  input x: {LOGITS}
  input t: {LABELS}
  input one: f32[]
  (loss, lse) = cross_entropy(x, t)
  dx = cross_entropy_backward(one, x, t, _, lse)
  output "loss" = loss
  output "dx" = dx
}}
"""
def attention(types): return f"attention({types}, {types}, {types}) {{causal=true}}"
def attention_back(types, lse): return f"(dq, dk, dv) = attention_backward({', '.join([types] * 5)}, {lse}) {{causal=true}}"

# Name: (op, or a graph's text, or arguments of tenon_gpt; contents of inputs; limit of the ratio; moves memory: no, yes, or
# how many times the copy limit it may take)
CASES = {
    "binary_add_f32": (f'binary({LONG}, {LONG}) {{kind="add"}}', [], 1, True),
    "unary_gelu_bf16": ('unary(bf16[268435456]) {kind="gelu"}', [], 1, True),
    "chain_mul_add_gelu_mul_bf16": (CHAIN, [], 1, True),
    "cast_f32_to_bf16": ("cast(f32[268435456]) {to=bf16}", [], 1, True),
    "where_f32": (f"where(bool[134217728], {LONG}, {LONG})", ["in0=0:2"], 1, True),
    "transpose2d_f32": ("transpose(f32[16384,16384]) {perm=[1, 0]}", [], 1, True),
    "reduce_sum_rows_f32": ('reduce(f32[16384,16384]) {kind="sum", axes=[1]}', [], 1, True),
    "reduce_sum_cols_f32": ('reduce(f32[16384,16384]) {kind="sum", axes=[0]}', [], 1, True),
    "softmax_f32_4096": ("softmax(f32[32768,4096])", [], 1, True),
    "softmax_bwd_f32_4096": ("softmax_backward(f32[32768,4096], f32[32768,4096])", [], 1, True),
    "softmax_bf16_50257": (f"softmax({LOGITS})", [], 0.65, True),
    "layernorm_fwd_bf16": (f"layer_norm({X}, {V}, {V})", [], 1, True),
    "layernorm_bwd_bf16": (f"(dx, dw, db) = layer_norm_backward({X}, {X}, {V}, {S}, {S})", [], 0.65, True),
    "rmsnorm_fwd_bf16": (f"rms_norm({X}, {V})", [], 1, True),
    "rmsnorm_bwd_bf16": (f"(dx, dw) = rms_norm_backward({X}, {X}, {V}, {S})", [], 0.8, True),
    "rmsnorm_bwd_f32": (
        "(dx, dw) = rms_norm_backward(f32[16384,4096], f32[16384,4096], f32[4096], f32[16384,1])", [], 0.8, True),
    "residual_rmsnorm_bf16": (f"(y, sum) = residual_rms_norm({X}, {X}, _, {V})", [], 1, True),
    "rope_fwd_bf16": (f"rope({ROPE}, {ROPE_TABLE}, {ROPE_TABLE})", [], 1, True),
    "rope_bwd_bf16": (f"rope({ROPE}, {ROPE_TABLE}, {ROPE_TABLE}) {{inverse=true}}", [], 1, True),
    "cumsum_f32": ("cumsum(f32[4096,65536])", [], 0.85, True),
    "gather_rows_bf16": ("gather(bf16[128256,4096], i64[32768])", ["in1=0:128256"], 1, True),
    "gather_bwd_f32": ("gather_backward(f32[65536,768], i64[65536]) {dim=50257}", ["in1=0:50257"], 0.9, False),
    "scatter_add_f32": (SCATTER, ["i=0:50257"], 1.2, False),
    "cross_entropy_fwd_bwd_bf16": (LOSS, ["t=0:50257"], 0.5, True),
    "argmax_f32": ("argmax(f32[2048,128256])", [], 1, True),
    "topk50_f32": ("(v, i) = topk(f32[512,128256]) {k=50}", [], 0.25, False),
    "groupnorm_fwd_f32": (f"group_norm({IMAGE}, f32[512], f32[512]) {{groups=32}}", [], 0.75, True),
    "groupnorm_bwd_f32": (
        f"(dx, dw, db) = group_norm_backward({IMAGE}, {IMAGE}, f32[512], {NORMS}, {NORMS}) {{groups=32}}", [], 0.6, True),
    "layernorm2d_fwd_f32": (f"layer_norm2d({IMAGE}, f32[512], f32[512])", [], 1, True),
    "layernorm2d_bwd_f32": (
        f"(dx, dw, db) = layer_norm2d_backward({IMAGE}, {IMAGE}, f32[512], f32[32,1,64,64], f32[32,1,64,64])", [], 1, True),
    "maxpool2d_fwd_f32": (f"maxpool2d(f32[64,64,224,224]) {{{POOL}}}", [], 1, True),
    "maxpool2d_bwd_f32": (f"maxpool2d_backward(f32[64,64,112,112], f32[64,64,224,224]) {{{POOL}}}", [], 0.25, True),
    "fft_c64_256": ("fft(c64[262144,256])", [], 1, 1.15),
    "fft_c64_1000": ("fft(c64[67108,1000])", [], 1, 1.15),
    "fft_c64_1024": ("fft(c64[65536,1024])", [], 1, 1.15),
    "fft_c64_4096": ("fft(c64[16384,4096])", [], 1, 1.15),
    "fft_c64_1M": ("fft(c64[64,1048576])", [], 0.85, False),
    "rfft_f32_1024": ("rfft(f32[131072,1024])", [], 1, True),
    "irfft_c64_1024": ("irfft(c64[131072,513])", [], 1, True),
    "stft_f32_400": ("stft(f32[64,960000], f32[400]) {n_fft=400, hop=160}", [], 0.35, False),
    "stft_f32_1024": ("stft(f32[64,960000], f32[1024]) {n_fft=1024, hop=256}", [], 0.35, False),
    "log_mel_f32": ("log_mel_spectrogram(f32[64,480000])", [], 0.35, False),
    "matmul_bf16_8192": ("matmul(bf16[8192,8192], bf16[8192,8192])", [], 1.03, False),
    "matmul_bf16_4096": ("matmul(bf16[4096,4096], bf16[4096,4096])", [], 1.03, False),
    "matmul_tf32_4096": ('matmul(f32[4096,4096], f32[4096,4096]) {f32_precision="tf32"}', [], 1.03, False),
    "linear_gelu_bf16": (
        'linear(bf16[8192,4096], bf16[16384,4096], bf16[16384]) {trans_b=true, act="gelu_tanh"}', [], 1.03, False),
    "gemv_bf16": ("matmul(bf16[1,8192], bf16[28672,8192]) {trans_b=true}", [], 1.03, True),
    "attention_fwd_causal_bf16": (attention(QKV), [], 1.5, False),
    "attention_bwd_causal_bf16": (attention_back(QKV, "f32[4,32,4096]"), ["in5=7:9"], 1.5, False),
    "attention_decode_gqa_bf16": (
        "attention(bf16[32,32,1,128], bf16[32,8,8192,128], bf16[32,8,8192,128])", [], 1.05, True),
    "attention_fwd_gpt2_bf16": (attention(GPT_QKV), [], 1.5, False),
    "attention_bwd_gpt2_bf16": (attention_back(GPT_QKV, "f32[16,12,1024]"), ["in5=7:9"], 1.5, False),
    "gpt2_124m_train_step_bf16_16x1024": (["train", "16", "1024"], ["tokens=0:50257", "labels=0:50257"], 1.1, False),
    "encoder_minilm_f32_32x128": (["encode", "32", "128"], ["tokens=0:30522"], 0.7, False),
    "encoder_minilm_f32_1x16": (["encode", "1", "16"], ["tokens=0:30522"], 0.6, False),
}
for conv in conv_layers.CASES:
    CASES[conv] = (conv_layers.op(conv), [], 0.7 if "depthwise" in conv else 1.3, False)
COPY_LIMIT = 1.25


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--only", default=".*")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement")
    parser.add_argument("--json", help="also write the rows to this file, PyTorch's side to FILE.torch")
    parser.add_argument("--before", type=pathlib.Path, help="BIN_DIR of an earlier build, measured by turns as well")
    parser.add_argument("--torch", help="PyTorch's side, measured before")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--device", default="cuda:0")
    return parser.parse_args()


class Tenon:
    def __init__(self, args, bin_dir, work):
        self.args, self.bin_dir, self.work = args, bin_dir, pathlib.Path(work)
        paths = [str(bin_dir / "../lib"), str(bin_dir / "../system"), os.environ.get("LD_LIBRARY_PATH", "")]
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths)))

    def command(self, name, seconds):
        what, fills, _, _ = CASES[name]
        command = [self.bin_dir / "tenon", "bench", "--device", self.args.device, "--no-ceilings", "--json", "--cold",
                   "--seconds", str(seconds)]
        for fill in fills: command += ["--fill", fill]
        if isinstance(what, str) and not what.startswith("graph"): return command + ["--op", what]
        path = self.work / f"{name}.tng"
        if isinstance(what, list):
            what = subprocess.run([self.bin_dir / "tenon_gpt", *what], check=True, capture_output=True, text=True,
                                  env=self.env).stdout
        path.write_text(what)
        return command + [path]

    def microseconds(self, name, seconds):
        done = subprocess.run(self.command(name, seconds), capture_output=True, text=True, env=self.env)
        if done.returncode or "fallback" in done.stderr: raise RuntimeError(f"{name}: {done.stderr.strip()[-300:]}")
        return json.loads(done.stdout)[0]["median_us"]


class Peer:
    """torch_gpu.py --serve, which keeps a case in memory from round to round."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, HERE / "torch_gpu.py", "--serve"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def times(self, name, seconds):
        self.process.stdin.write(f"{name} {seconds}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line: raise RuntimeError(f"{name}: PyTorch ended with {self.process.wait()}")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def by_turns(tenons, peer, name, args):
    """Medians over the rounds, of each of tenons and of the peer; another side begins each round."""
    ours, theirs = [[] for _ in tenons], []
    peer.times(name, 0)  # makes the case, which takes seconds
    sides = len(tenons) + 1
    for k in range(args.rounds):
        for side in ((k + i) % sides for i in range(sides)):
            if side < len(tenons): ours[side].append(tenons[side].microseconds(name, args.seconds))
            else: theirs.append(peer.times(name, args.seconds))
    best = {form: statistics.median(t[form] for t in theirs) if theirs[0][form] else None
            for form in ("eager_us", "compiled_us")}
    return [statistics.median(times) for times in ours], {**best, "ideal_us": theirs[0]["ideal_us"]}


def peer_command(args, *more):
    only = "^(" + "|".join(name for name in CASES if re.search(args.only, name)) + ")$"
    return [sys.executable, HERE / "torch_gpu.py", "--only", only, *more]


def prepare(args, tenons, names):
    peers = [] if args.torch else [
        subprocess.Popen(peer_command(args, "--prepare", f"{k}/{args.workers}"), stdout=sys.stdout, stderr=subprocess.DEVNULL)
        for k in range(args.workers)]

    def compile_kernels(name):
        for tenon in tenons:
            try: tenon.microseconds(name, 0.01)
            except RuntimeError: pass  # told when it is timed
    with concurrent.futures.ThreadPoolExecutor(max(args.workers // 2, 1)) as pool: list(pool.map(compile_kernels, names))
    for peer in peers: peer.wait()


def row(name, us, peer):
    _, _, limit, memory = CASES[name]
    best = min(t for t in (peer["eager_us"], peer["compiled_us"]) if t)
    ratio, over_copy = us / best, us / peer["ideal_us"]
    missed = ratio > limit or memory and over_copy > (COPY_LIMIT if memory is True else memory)
    return {"case": name, "tenon_us": us, "torch_us": best, "ratio": ratio, "limit": limit, "over_copy": over_copy,
            "memory": memory, "missed": missed}


def main():
    args = arguments()
    names = [name for name in CASES if re.search(args.only, name)]
    rows = []
    with tempfile.TemporaryDirectory() as work:
        tenon = Tenon(args, args.bin_dir, work)
        tenons = [tenon] + ([Tenon(args, args.before, work)] if args.before else [])
        start = time.monotonic()
        prepare(args, tenons, names)
        print(f"# prepared in {time.monotonic() - start:.0f} s", flush=True)
        peers = json.loads(pathlib.Path(args.torch).read_text())["cases"] if args.torch else {}
        peer = None if args.torch else Peer()
        print(f"{'case':36s} {'tenon us':>10s} {'torch us':>10s} {'ratio':>6s} {'limit':>6s} {'/copy':>6s}", flush=True)
        for name in names:
            if args.torch and name not in peers:
                print(f"{name:36s} no figure of PyTorch", flush=True)
                rows.append({"case": name, "missed": True})
                continue
            try:
                if args.torch: us = [tenon.microseconds(name, args.seconds)]
                else:
                    if peer.process.poll() is not None: peer = Peer()
                    us, peers[name] = by_turns(tenons, peer, name, args)
                r = row(name, us[0], peers[name])
                if args.before: r["before_us"] = us[1]
                before = f"  before {us[1]:10.1f}" if args.before else ""
            except RuntimeError as failure:
                print(f"{name:36s} FAILED {failure}", flush=True)
                rows.append({"case": name, "missed": True})
                continue
            rows.append(r)
            print(f"{name:36s} {r['tenon_us']:10.1f} {r['torch_us']:10.1f} {r['ratio']:6.2f} {r['limit']:6.2f} "
                  f"{r['over_copy']:6.2f}{before}{'  MISS' if r['missed'] else ''}", flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
                pathlib.Path(args.json + ".torch").write_text(json.dumps({"cases": peers}, indent=1))
        if peer: peer.end()
    return sum(r["missed"] for r in rows) > 0


if __name__ == "__main__":
    sys.exit(main())
