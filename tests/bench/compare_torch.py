#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Side by side with PyTorch on one machine in one run: the cases of torch_cpu.py, forward and backward, but for the language
models (compare_lm.py has these).

compare_torch.py BIN_DIR [--rounds N] [--only REGEX] [--threads N] [--seconds X] [--isa NAME] [--no-compile] [--json FILE]
Each round times PyTorch eager, PyTorch compiled (where torch_cpu.py compiles) and tenon, one after the other; the ratio is
that of tenon over the better of the two, the table shows the median of the rounds' ratios (below 1 tenon is faster). GB/s
counts inputs and outputs once each, GFLOP/s products alone. Needs torch for this Python."""
import argparse, json, math, os, pathlib, re, statistics, subprocess, sys, tempfile

import isa
from compare_lm import cpu_model

HERE = pathlib.Path(__file__).resolve().parent
X, V = "f32[4096,1024]", "f32[1024]"
IMAGE, ROPE, QKV, NORMS = "f32[8,128,64,64]", "f32[1024,32]", "f32[2,8,1024,64]", "f32[8,32]"
LOGITS, LABELS = "f32[512,32000]", "i64[512]"
GRID, PICTURES = "f32[8,64,64,2]", "f32[8,3,640,640]"
SCANNED = "f32[2,1024,2048], f32[2,1024,2048], f32[1024,16], f32[2,16,2048], f32[2,16,2048]"
HEADS = "f32[2,2048,8,128]"
DELTA = f"{HEADS}, {HEADS}, {HEADS}, f32[2,2048,8], f32[2,2048,8]"
NEAREST, SMOOTH = 'coordinates="asymmetric", nearest_mode="floor"', "antialias=true, exclude_outside=true"
CHAIN = f"""graph "chain" {{
  input p: {X}
  input q: {X}
  const scale: f32[] = {{1.5}}
  const shift: f32[] = {{0.25}}
  a = binary(p, scale) {{kind="mul"}}
  b = binary(a, shift) {{kind="add"}}
  c = unary(b) {{kind="gelu"}}
  d = binary(c, q) {{kind="mul"}}
  output "y" = d
}}
"""
DEFINITE = """graph "cholesky" {
  input x: f32[64,128,1]
  const large: f32[] = {1000}
  row = iota() {shape=[128, 1]}
  column = iota() {shape=[1, 128], axis=1}
  diagonal = compare(row, column) {kind="eq"}
  a = where(diagonal, large, x)
  l = cholesky(a)
  output "l" = l
}
"""
# Name: the op, or a graph's text, and what its integer inputs are filled with.
CASES = {
    "add": (f'binary({X}, {X}) {{kind="add"}}',),
    "gelu": (f'unary({X}) {{kind="gelu"}}',),
    "chain_mul_add_gelu_mul": (CHAIN,),
    "reduce_sum_rows": (f'reduce({X}) {{kind="sum", axes=[1]}}',),
    "reduce_sum_cols": (f'reduce({X}) {{kind="sum", axes=[0]}}',),
    "transpose2d": ("transpose(f32[2048,2048]) {perm=[1, 0]}",),
    "softmax": (f"softmax({X})",),
    "softmax_bwd": (f"softmax_backward({X}, {X})",),
    "layer_norm": (f"layer_norm({X}, {V}, {V})",),
    "layer_norm_bwd": (f"(dx, dw, db) = layer_norm_backward({X}, {X}, {V}, f32[4096,1], f32[4096,1])",),
    "rms_norm": (f"rms_norm({X}, {V})",),
    "rms_norm_bwd": (f"(dx, dw) = rms_norm_backward({X}, {X}, {V}, f32[4096,1])",),
    "group_norm": (f"group_norm({IMAGE}, f32[128], f32[128]) {{groups=32}}",),
    "group_norm_bwd": (f"(dx, dw, db) = group_norm_backward({IMAGE}, {IMAGE}, f32[128], {NORMS}, {NORMS}) {{groups=32}}",),
    "rope": (f'rope(f32[4,16,1024,64], {ROPE}, {ROPE}) {{layout="bhsd"}}',),
    "rope_bwd": (f'rope(f32[4,16,1024,64], {ROPE}, {ROPE}) {{layout="bhsd", inverse=true}}',),
    "cumsum": (f"cumsum({X})",),
    "cumsum_bwd": (f"cumsum({X}) {{reverse=true}}",),
    "gather_rows": ("gather(f32[32768,256], i64[16384])", "in1=0:32768"),
    "gather_rows_bwd": ("gather_backward(f32[16384,256], i64[16384]) {dim=32768}", "in1=0:32768"),
    "scatter_add_rows": ("scatter_add(f32[16384,256], i64[16384]) {dim=4096}", "in1=0:4096"),
    "cross_entropy": (f"cross_entropy({LOGITS}, {LABELS})", "in1=0:32000"),
    "cross_entropy_bwd": (f"cross_entropy_backward(f32[], {LOGITS}, {LABELS}, _, f32[512])", "in2=0:32000"),
    "maxpool2d": (f"maxpool2d({IMAGE}) {{kernel=[2, 2], stride=[2, 2]}}",),
    "maxpool2d_bwd": (f"maxpool2d_backward(f32[8,128,32,32], {IMAGE}) {{kernel=[2, 2], stride=[2, 2]}}",),
    "resize_nearest_2x": (f'resize({IMAGE}) {{{NEAREST}, sizes=[128, 128]}}',),
    "resize_nearest_2x_bwd": (f'resize_backward(f32[8,128,128,128]) {{{NEAREST}, sizes=[128, 128], size=[64, 64]}}',),
    "resize_linear_2x": (f'resize({IMAGE}) {{mode="linear", sizes=[128, 128]}}',),
    "resize_linear_2x_bwd": ('resize_backward(f32[8,128,128,128]) {mode="linear", sizes=[128, 128], size=[64, 64]}',),
    "resize_linear_down": (f'resize({PICTURES}) {{mode="linear", sizes=[224, 224]}}',),
    "resize_cubic_2x": (f'resize({IMAGE}) {{mode="cubic", sizes=[128, 128]}}',),
    "resize_cubic_2x_bwd": ('resize_backward(f32[8,128,128,128]) {mode="cubic", sizes=[128, 128], size=[64, 64]}',),
    "resize_smooth_linear": (f'resize({PICTURES}) {{mode="linear", {SMOOTH}, sizes=[224, 224]}}',),
    "resize_smooth_cubic": (f'resize({PICTURES}) {{mode="cubic", cubic_a=-0.5, {SMOOTH}, sizes=[224, 224]}}',),
    "resize_volume": ('resize(f32[2,16,32,32,32]) {mode="linear", sizes=[64, 64, 64]}',),
    "grid_sample": (f"grid_sample({IMAGE}, {GRID})", "in1=-1:1"),
    "grid_sample_bwd": (f"(dx, dgrid) = grid_sample_backward({IMAGE}, {IMAGE}, {GRID})", "in2=-1:1"),
    "grid_sample_pictures": (f"grid_sample({PICTURES}, f32[8,640,640,2])", "in1=-1:1"),
    "grid_sample_cubic": (f'grid_sample({IMAGE}, {GRID}) {{mode="cubic"}}', "in1=-1:1"),
    "solve_16": ("dense_solve(f32[4096,16,16], f32[4096,16])",),
    "solve_128": ("dense_solve(f32[64,128,128], f32[64,128])",),
    "solve_128_matrices": ("dense_solve(f32[64,128,128], f32[64,128,128])",),
    "inverse_16": ("inverse(f32[4096,16,16])",),
    "cholesky_128": (DEFINITE,),
    "gate": ("(i, w) = group_limited_gate(f32[16384,256], f32[256])",),
    "selective_scan": (f"selective_scan({SCANNED})", "in1=0:1", "in2=-1:0"),
    "selective_scan_bwd": (
        f"(du, ddt, da, db, dc) = selective_scan_backward(f32[2,1024,2048], {SCANNED})", "in2=0:1", "in3=-1:0"),
    "delta_rule": (f"gated_delta_rule({DELTA})", "in1=-0.1:0.1", "in3=-1:0", "in4=0:1"),
    "delta_rule_bwd": (
        f"(dq, dk, dv, dg, dbeta) = gated_delta_rule_backward({HEADS}, {DELTA})", "in2=-0.1:0.1", "in4=-1:0", "in5=0:1"),
    "knn": ("(i, d) = knn(f32[20000,64]) {k=15}",),
    "argmax": (f"argmax({X})",),
    "topk_50_of_128k": ("(v, i) = topk(f32[8,131072]) {k=50}",),
    "sort_rows": (f"(v, i) = sort({X})",),
    "attention_causal": (f"attention({QKV}, {QKV}, {QKV}) {{causal=true}}",),
    "attention_causal_bwd": (
        f"(dq, dk, dv) = attention_backward({', '.join([QKV] * 5)}, f32[2,8,1024]) {{causal=true}}",),
    "attention_decode": ("attention(f32[8,16,1,64], f32[8,16,2048,64], f32[8,16,2048,64])",),
    "matmul_1024x1024x1024": ("matmul(f32[1024,1024], f32[1024,1024])",),
    "matmul_4096x512x1376": ("matmul(f32[4096,512], f32[512,1376])",),
    "matmul_128x4096x4096": ("matmul(f32[128,4096], f32[4096,4096])",),
    "matmul_1x4096x4096": ("matmul(f32[1,4096], f32[4096,4096])",),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=".*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--no-compile", action="store_true", help="PyTorch eager alone")
    parser.add_argument("--json", help="also write the rows to this file")
    isa.add_option(parser)
    return parser.parse_args()


def load_peer(threads):
    """torch_cpu.py as a module: its cases and its timer, none of its cases run."""
    keep = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}  # as it asks for
    if any(os.environ.get(k) != v for k, v in keep.items()):
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **keep})
    own, sys.argv = sys.argv, ["torch_cpu.py", "--threads", str(threads), "--only", "(?!)"]
    sys.path.insert(0, str(HERE))
    import torch_cpu
    sys.argv = own
    return torch_cpu


def peer_functions(peer, name, compile_too):
    """Eager and, where the peer's script compiles, compiled."""
    eager, _, how = peer.CASES[name]()
    functions = [eager]
    if isinstance(eager, peer.bwd):
        how = eager.compiled
    if how and compile_too:
        try:
            functions.append(how() if how is not True else peer.torch.compile(eager))
            functions[-1]()
        except Exception as error:
            functions = functions[:1]
            print(f"# {name}: compile failed: {str(error).splitlines()[0][:100]}", file=sys.stderr)
    return functions


def bench(a, words):
    command = [f"{a.bin_dir}/tenon", "bench", "--json", "--device", "cpu", "--threads", str(a.threads), *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def tenon(a, case):
    text, *fills = case
    words = ["--no-ceilings", "--seconds", str(a.seconds)]
    for fill in fills:
        words += ["--fill", fill]
    if not text.startswith("graph"):
        return bench(a, words + ["--op", text])[0]
    with tempfile.NamedTemporaryFile("w", suffix=".tng") as file:
        file.write(text)
        file.flush()
        return bench(a, words + [file.name])[0]


def measure(a, peer, name):
    functions = peer_functions(peer, name, not a.no_compile)
    rounds = []
    for _ in range(a.rounds):
        theirs = [peer.bench(f, seconds=a.seconds) for f in functions]
        rounds.append((tenon(a, CASES[name]), min(theirs)))
    ours = statistics.median(t["median_us"] for t, _ in rounds)
    flops, size = rounds[0][0]["flops"], rounds[0][0]["bytes"]
    return {"case": name, "tenon_us": ours, "torch_us": statistics.median(t for _, t in rounds),
            "ratio": statistics.median(t["median_us"] / them for t, them in rounds), "flops": flops, "bytes": size}


def rate(row, ceilings):
    """What is achieved and what the machine could do: products for what has many, else memory."""
    if row["flops"] > 20 * row["bytes"]:
        return f"{row['flops'] / row['tenon_us'] / 1e3:.0f} GFLOP/s", f"{ceilings['matmul_gflops_per_second']:.0f}"
    small = row["bytes"] <= 48 << 20
    top = ceilings["copy_16mib_gbytes_per_second" if small else "copy_128mib_gbytes_per_second"]
    return f"{row['bytes'] / row['tenon_us'] / 1e3:.1f} GB/s", f"{top:.1f}"


def main():
    a = arguments()
    capped = isa.cap(a.isa)
    peer = load_peer(a.threads)
    missing = [n for n in peer.CASES if not n.startswith("lm_") and n not in CASES]
    if missing:
        sys.exit(f"cases of torch_cpu.py without a graph here: {', '.join(missing)}")
    ceilings = bench(a, ["--seconds", "0.1", "--op", "unary(f32[4]) {kind=\"neg\"}"])[-1]
    print(f"{cpu_model()}{capped}, {a.threads} threads, f32; PyTorch {peer.torch.__version__}, the better of eager and compiled; "
          f"{a.rounds} rounds; ceilings: copy {ceilings['copy_16mib_gbytes_per_second']:.0f} GB/s (16 MiB), "
          f"{ceilings['copy_128mib_gbytes_per_second']:.0f} GB/s (128 MiB), matmul "
          f"{ceilings['matmul_gflops_per_second']:.0f} GFLOP/s\n", flush=True)
    print("| case | tenon us | PyTorch us | ratio | achieved | ceiling |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    rows = []
    for name in (n for n in peer.CASES if n in CASES and re.search(a.only, n)):
        row = measure(a, peer, name)
        rows.append(row)
        achieved, ceiling = rate(row, ceilings)
        print(f"| {name} | {row['tenon_us']:.1f} | {row['torch_us']:.1f} | {row['ratio']:.2f} | {achieved} | {ceiling} |",
              flush=True)
    if rows:
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in rows))
        print(f"\ngeometric mean of the ratios: {mean:.2f}; above 1.05: "
              f"{', '.join(r['case'] for r in rows if r['ratio'] > 1.05) or 'none'}")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({"ceilings": ceilings, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
