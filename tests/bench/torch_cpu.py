#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peer figures on the CPU: PyTorch eager and torch.compile on fixed workloads, f32, N threads.

Usage: torch_cpu.py [--threads N] [--only REGEX] [--json FILE] [--no-compile]
Each case prints: name, eager median us, compiled median us, ideal us (bytes or flops over the ceilings measured in the same run).
Sizes are about 16 MiB an operand, so that they come from memory or the shared cache and not from a core's own.
glibc is told to keep large blocks, so that PyTorch's fresh outputs are not timed as page faults: the peer at its best.
"""
import argparse, json, os, re, statistics, sys, time
KEEP = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
if any(os.environ.get(k) != v for k, v in KEEP.items()): os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **KEEP})
import torch, torch.nn as nn, torch.nn.functional as F
import torch._functorch.config
torch._functorch.config.donated_buffer = False

ap = argparse.ArgumentParser()
ap.add_argument("--threads", type=int, default=2); ap.add_argument("--only", default=".*")
ap.add_argument("--flops", type=float, help="f32 matmul ceiling in GFLOP/s where PyTorch's own BLAS is not the best of the machine")
ap.add_argument("--json"); ap.add_argument("--no-compile", action="store_true")
a = ap.parse_args()
torch.set_num_threads(a.threads); torch.manual_seed(0)


def bench(fn, seconds=1.0, most=200, warm=3):
    for _ in range(warm): fn()
    ts, end = [], time.perf_counter() + seconds
    while len(ts) < 5 or (time.perf_counter() < end and len(ts) < most):
        t = time.perf_counter(); fn(); ts.append((time.perf_counter() - t) * 1e6)
    return statistics.median(ts)


def copy_rate(n):
    x = torch.randn(n); y = torch.empty_like(x)
    return 2 * n * 4 / (bench(lambda: y.copy_(x)) * 1e-6)
BW, BW_CACHED = copy_rate(1 << 26), copy_rate(1 << 22)      # 256 MiB and 16 MiB buffers
A, B = torch.randn(2048, 2048), torch.randn(2048, 2048)
FL = 2 * 2048**3 / (bench(lambda: A @ B) * 1e-6)
del A, B
if a.flops: FL = a.flops * 1e9
print(f"# torch {torch.__version__} threads {a.threads} copy {BW/1e9:.1f} GB/s (16 MiB: {BW_CACHED/1e9:.1f}) f32 matmul {FL/1e9:.0f} GFLOP/s", flush=True)
out = {"torch": torch.__version__, "threads": a.threads, "copy_Bps": BW, "copy_16MiB_Bps": BW_CACHED, "f32_flops": FL, "cases": {}}
CASES = {}
def case(name):
    def deco(f): CASES[name] = f; return f
    return deco
R = lambda *s, g=False: torch.randn(*s).requires_grad_(g)
mem = lambda nbytes: nbytes / (BW_CACHED if nbytes <= 48 << 20 else BW) * 1e6
fl = lambda f: f / FL * 1e6
N, D = 4096, 1024          # 16 MiB of f32


class bwd:
    """Backward alone, the forward's results kept; compiled() gives the same over the compiled forward."""
    def __init__(s, f, *wrt): s.f, s.wrt = f, wrt; s.run = s.of(f)
    def of(s, f):
        o = f(); g = torch.randn_like(o)
        return lambda: torch.autograd.grad(o, s.wrt, g, retain_graph=True)
    def __call__(s): return s.run()
    def compiled(s): return s.of(torch.compile(s.f))


# each case returns (fn, ideal_us, compile? or a maker of the compiled fn)
@case("add")
def _(): p, q = R(N, D), R(N, D); return (lambda: p + q), mem(12 * N * D), False
@case("gelu")
def _(): p = R(N, D); return (lambda: F.gelu(p)), mem(8 * N * D), True
@case("chain_mul_add_gelu_mul")
def _(): p, q = R(N, D), R(N, D); return (lambda: F.gelu(p * 1.5 + 0.25) * q), mem(12 * N * D), True
@case("reduce_sum_rows")
def _(): p = R(N, D); return (lambda: p.sum(1)), mem(4 * N * D), False
@case("reduce_sum_cols")
def _(): p = R(N, D); return (lambda: p.sum(0)), mem(4 * N * D), False
@case("transpose2d")
def _(): p = R(2048, 2048); return (lambda: p.t().contiguous()), mem(8 * 2048**2), False
@case("softmax")
def _(): p = R(N, D); return (lambda: torch.softmax(p, -1)), mem(8 * N * D), True
@case("softmax_bwd")
def _(): p = R(N, D, g=True); return bwd(lambda: torch.softmax(p, -1), p), mem(12 * N * D), False
@case("layer_norm")
def _(): p, w, b = R(N, D), R(D), R(D); return (lambda: F.layer_norm(p, (D,), w, b)), mem(8 * N * D), True
@case("layer_norm_bwd")
def _():
    p, w, b = R(N, D, g=True), R(D, g=True), R(D, g=True)
    return bwd(lambda: F.layer_norm(p, (D,), w, b), p, w, b), mem(12 * N * D), False
@case("rms_norm")
def _(): p, w = R(N, D), R(D); return (lambda: F.rms_norm(p, (D,), w)), mem(8 * N * D), True
@case("rms_norm_bwd")
def _():
    p, w = R(N, D, g=True), R(D, g=True)
    return bwd(lambda: F.rms_norm(p, (D,), w), p, w), mem(12 * N * D), False
@case("group_norm")
def _(): p, w, b = R(8, 128, 64, 64), R(128), R(128); return (lambda: F.group_norm(p, 32, w, b)), mem(8 << 22), True
@case("group_norm_bwd")
def _():
    p, w, b = R(8, 128, 64, 64, g=True), R(128, g=True), R(128, g=True)
    return bwd(lambda: F.group_norm(p, 32, w, b), p, w, b), mem(12 << 22), False


def rope(p, c, s):
    h = p.shape[-1] // 2; u, v = p[..., :h], p[..., h:]
    return torch.cat((u * c - v * s, v * c + u * s), -1)
@case("rope")
def _(): p, c, s = R(4, 16, 1024, 64), R(1024, 32), R(1024, 32); return (lambda: rope(p, c, s)), mem(8 << 22), True
@case("rope_bwd")
def _():
    p, c, s = R(4, 16, 1024, 64, g=True), R(1024, 32), R(1024, 32)
    return bwd(lambda: rope(p, c, s), p), mem(8 << 22), False
@case("cumsum")
def _(): p = R(N, D); return (lambda: p.cumsum(1)), mem(8 * N * D), False
@case("cumsum_bwd")
def _(): p = R(N, D, g=True); return bwd(lambda: p.cumsum(1), p), mem(8 * N * D), False
@case("gather_rows")
def _(): t, i = R(32768, 256), torch.randint(0, 32768, (16384,)); return (lambda: t[i]), mem(8 * 16384 * 256), False
@case("gather_rows_bwd")
def _():
    t, i = R(32768, 256, g=True), torch.randint(0, 32768, (16384,))
    return bwd(lambda: F.embedding(i, t), t), mem(4 * (32768 + 2 * 16384) * 256), False
@case("scatter_add_rows")
def _():
    v, i = R(16384, 256), torch.randint(0, 4096, (16384,))
    return (lambda: torch.zeros(4096, 256).index_add_(0, i, v)), mem(4 * (16384 + 2 * 4096) * 256), False
@case("cross_entropy")
def _(): p, t = R(512, 32000), torch.randint(0, 32000, (512,)); return (lambda: F.cross_entropy(p, t)), mem(4 * 512 * 32000), True
@case("cross_entropy_bwd")
def _():
    p, t = R(512, 32000, g=True), torch.randint(0, 32000, (512,))
    return bwd(lambda: F.cross_entropy(p, t), p), mem(8 * 512 * 32000), False
@case("maxpool2d")
def _(): p = R(8, 128, 64, 64); return (lambda: F.max_pool2d(p, 2)), mem(5 << 22), False
@case("maxpool2d_bwd")
def _(): p = R(8, 128, 64, 64, g=True); return bwd(lambda: F.max_pool2d(p, 2), p), mem(5 << 22), False
def resize(name, x, size, bytes_, back=False, **how):
    """Forward and, with back, backward as NAME_bwd."""
    run = lambda p: F.interpolate(p, size=size, **how)
    @case(name)
    def _(): p = R(*x); return (lambda: run(p)), mem(bytes_), False
    if not back: return
    @case(name + "_bwd")
    def _(): p = R(*x, g=True); return bwd(lambda: run(p), p), mem(bytes_), False
IMAGE, PICTURES, TWICE, THUMB = (8, 128, 64, 64), (8, 3, 640, 640), (128, 128), (224, 224)
resize("resize_nearest_2x", IMAGE, TWICE, 5 << 24, True, mode="nearest")
resize("resize_linear_2x", IMAGE, TWICE, 5 << 24, True, mode="bilinear")
resize("resize_cubic_2x", IMAGE, TWICE, 5 << 24, True, mode="bicubic")
resize("resize_linear_down", PICTURES, THUMB, 44 << 20, mode="bilinear")
resize("resize_smooth_linear", PICTURES, THUMB, 44 << 20, mode="bilinear", antialias=True)
resize("resize_smooth_cubic", PICTURES, THUMB, 44 << 20, mode="bicubic", antialias=True)
resize("resize_volume", (2, 16, 32, 32, 32), (64, 64, 64), 9 << 22, mode="trilinear")
def positions(n, h, w, g=False): return (torch.rand(n, h, w, 2) * 2 - 1).requires_grad_(g)
def sample(p, q, mode="bilinear"): return F.grid_sample(p, q, mode=mode, align_corners=False)
@case("grid_sample")
def _(): p, q = R(*IMAGE), positions(8, 64, 64); return (lambda: sample(p, q)), mem(8 << 22), False
@case("grid_sample_bwd")
def _(): p, q = R(*IMAGE, g=True), positions(8, 64, 64, True); return bwd(lambda: sample(p, q), p, q), mem(12 << 22), False
@case("grid_sample_pictures")
def _(): p, q = R(*PICTURES), positions(8, 640, 640); return (lambda: sample(p, q)), mem(100 << 20), False
@case("grid_sample_cubic")
def _(): p, q = R(*IMAGE), positions(8, 64, 64); return (lambda: sample(p, q, "bicubic")), mem(8 << 22), False
def solve(count, n, columns=None):
    a, b = R(count, n, n), R(count, n, columns or 1)
    return (lambda: torch.linalg.solve(a, b)), fl(count * (2 / 3 * n**3 + 2 * n * n * (columns or 1))), False
@case("solve_16")
def _(): return solve(4096, 16)
@case("solve_128")
def _(): return solve(64, 128)
@case("solve_128_matrices")
def _(): return solve(64, 128, 128)
@case("inverse_16")
def _(): p = R(4096, 16, 16); return (lambda: torch.linalg.inv(p)), fl(4096 * 2 * 16**3), False
@case("cholesky_128")
def _(): p = R(64, 128, 128); q = p @ p.mT + 128 * torch.eye(128); return (lambda: torch.linalg.cholesky(q)), fl(64 * 128**3 / 3), False
@case("gate")
def _():  # 8 groups of 32, 4 of them kept, 8 experts
    p, bias = R(16384, 256), R(256)
    def gate():
        s = p.sigmoid(); c = s + bias
        groups = c.view(-1, 8, 32).topk(2, dim=2).values.sum(2).topk(4, dim=1).indices
        kept = torch.zeros(len(p), 8, dtype=torch.bool).scatter_(1, groups, True)
        i = c.view(-1, 8, 32).masked_fill(~kept.unsqueeze(2), -torch.inf).view(-1, 256).topk(8, dim=1).indices
        w = s.gather(1, i)
        return i, w / (w.sum(1, keepdim=True) + 1e-20) * 2.5
    return gate, mem(4 * 16384 * 272), True
def unrolled(step, state, *xs):
    """A loop over the steps in xs; its compiled form compiles the step."""
    def loop(step):
        def run():
            s, ys = state, []
            for x in zip(*xs): s, y = step(s, *x); ys.append(y)
            return torch.stack(ys)
        return run
    return loop(step), lambda: loop(torch.compile(step))
def selective(g):  # Mamba: 1024 channels, 2048 steps of 16 states
    u, dt = R(2048, 2, 1024, g=g), R(2048, 2, 1024).abs().requires_grad_(g); b, c = R(2048, 2, 1, 16, g=g), R(2048, 2, 1, 16, g=g)
    a = R(1024, 16).abs().neg().requires_grad_(g)
    def step(h, u, dt, b, c):
        h = torch.exp(dt[..., None] * a) * h + (dt * u)[..., None] * b
        return h, (h * c).sum(2)
    return unrolled(step, torch.zeros(2, 1024, 16), u, dt, b, c), (u, dt, a, b, c)
def delta(g):  # 8 heads of 128, 2048 tokens
    q, k, v = R(2048, 2, 8, 128, g=g), (R(2048, 2, 8, 128) / 128**.5).requires_grad_(g), R(2048, 2, 8, 128, g=g)
    w, beta = R(2048, 2, 8).abs().neg().requires_grad_(g), R(2048, 2, 8).sigmoid().requires_grad_(g)
    def step(s, q, k, v, w, beta):
        s = torch.exp(w)[..., None, None] * s
        e = beta[..., None] * (v - (k[..., None, :] @ s)[..., 0, :])
        s = s + k[..., None] * e[..., None, :]
        return s, (q[..., None, :] @ s)[..., 0, :]
    return unrolled(step, torch.zeros(2, 8, 128, 128), q, k, v, w, beta), (q, k, v, w, beta)
class bwd_loop(bwd):
    """The same over a loop."""
    def __init__(s, forms, *wrt): s.step_compiled = forms[1]; super().__init__(forms[0], *wrt)
    def compiled(s): return s.of(s.step_compiled())
@case("selective_scan")
def _(): (run, how), _ = selective(False); return run, mem(4 * 3 * 2048 * 2048), how
@case("selective_scan_bwd")
def _(): forms, wrt = selective(True); return bwd_loop(forms, *wrt), mem(4 * 5 * 2048 * 2048), True
@case("delta_rule")
def _(): (run, how), _ = delta(False); return run, fl(7 * 2 * 2048 * 8 * 128 * 128), how
@case("delta_rule_bwd")
def _(): forms, wrt = delta(True); return bwd_loop(forms, *wrt), fl(26 * 2 * 2048 * 8 * 128 * 128), True
@case("knn")
def _():
    p = R(20000, 64)
    return (lambda: torch.cdist(p, p).fill_diagonal_(torch.inf).topk(15, largest=False)), fl(2 * 20000**2 * 64), False
@case("argmax")
def _(): p = R(N, D); return (lambda: p.argmax(1)), mem(4 * N * D), False
@case("topk_50_of_128k")
def _(): p = R(8, 131072); return (lambda: p.topk(50)), mem(4 * 8 * 131072), False
@case("sort_rows")
def _(): p = R(N, D); return (lambda: p.sort(1)), mem(16 * N * D), False
@case("attention_causal")
def _():
    q, k, v = R(2, 8, 1024, 64), R(2, 8, 1024, 64), R(2, 8, 1024, 64)
    return (lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)), fl(2 * 2 * 8 * 1024 * 1024 * 64), False
@case("attention_causal_bwd")
def _():
    q, k, v = R(2, 8, 1024, 64, g=True), R(2, 8, 1024, 64, g=True), R(2, 8, 1024, 64, g=True)
    return bwd(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v), fl(5 * 2 * 8 * 1024 * 1024 * 64), False
@case("attention_decode")
def _():
    q, k, v = R(8, 16, 1, 64), R(8, 16, 2048, 64), R(8, 16, 2048, 64)
    return (lambda: F.scaled_dot_product_attention(q, k, v)), mem(8 * 8 * 16 * 2048 * 64), False
for m, k, n in ((1024, 1024, 1024), (4096, 512, 1376), (128, 4096, 4096), (1, 4096, 4096)):
    def _(m=m, k=k, n=n):
        p, q = R(m, k), R(k, n)
        return (lambda: p @ q), max(fl(2 * m * k * n), mem(4 * k * n) if m == 1 else 0), False
    case(f"matmul_{m}x{k}x{n}")(_)


class Block(nn.Module):
    def __init__(s, d, h, kv, f):
        super().__init__(); s.h, s.kv, s.hd = h, kv, d // h
        s.n1, s.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        s.q, s.k, s.v = nn.Linear(d, d, False), nn.Linear(d, kv * s.hd, False), nn.Linear(d, kv * s.hd, False)
        s.o, s.g, s.u, s.d = nn.Linear(d, d, False), nn.Linear(d, f, False), nn.Linear(d, f, False), nn.Linear(f, d, False)
    def forward(s, x, c, sn, cache=None, pos=0):
        b, t, d = x.shape; y = s.n1(x)
        q = rope(s.q(y).view(b, t, s.h, s.hd).transpose(1, 2), c, sn)
        k = rope(s.k(y).view(b, t, s.kv, s.hd).transpose(1, 2), c, sn); v = s.v(y).view(b, t, s.kv, s.hd).transpose(1, 2)
        if cache is not None:
            cache[0][:, :, pos:pos + t] = k; cache[1][:, :, pos:pos + t] = v
            k, v = cache[0][:, :, :pos + t], cache[1][:, :, :pos + t]
        z = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=s.h != s.kv)
        x = x + s.o(z.transpose(1, 2).reshape(b, t, d)); y = s.n2(x)
        return x + s.d(F.silu(s.g(y)) * s.u(y))
class LM(nn.Module):
    def __init__(s, d, layers, h, kv, f, ctx, vocab=256):
        super().__init__(); s.e = nn.Embedding(vocab, d); s.b = nn.ModuleList(Block(d, h, kv, f) for _ in range(layers))
        s.n, s.head = nn.RMSNorm(d, eps=1e-5), nn.Linear(d, vocab, False)
        ang = torch.arange(ctx)[:, None] / 10000 ** (torch.arange(0, d // h, 2) / (d // h))
        s.register_buffer("c", ang.cos()); s.register_buffer("sn", ang.sin())
    def forward(s, i, cache=None, pos=0):
        t = i.shape[1]; x = s.e(i); c, sn = s.c[pos:pos + t], s.sn[pos:pos + t]
        for n, b in enumerate(s.b): x = b(x, c, sn, cache and cache[n], pos)
        return s.head(s.n(x))
LMS = {"s": dict(d=128, layers=4, h=4, kv=2, f=344, ctx=128), "m": dict(d=256, layers=6, h=8, kv=4, f=688, ctx=256),
       "l": dict(d=512, layers=8, h=8, kv=4, f=1376, ctx=512)}
BATCH = {"s": 16, "m": 8, "l": 4}
def lm_flops(c, tokens):
    hd = c["d"] // c["h"]; w = c["layers"] * (c["d"] * (2 * c["d"] + 2 * c["kv"] * hd) + 3 * c["d"] * c["f"]) + 256 * c["d"]
    return 6 * tokens * w + 6 * tokens * c["layers"] * c["d"] * c["ctx"]      # causal half of scores and values
for size, cfg in LMS.items():
    def _(size=size, cfg=cfg):
        m = LM(**cfg); opt = torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=.1, fused=True); b = BATCH[size]
        i = torch.randint(0, 256, (b, cfg["ctx"] + 1)); loss_of = lambda: F.cross_entropy(m(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten())
        run = [loss_of]
        def step():
            loss = run[0](); loss.backward(); nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); opt.zero_grad(set_to_none=True)
        def compiled():
            c = torch.compile(m); run[0] = lambda: F.cross_entropy(c(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten()); return step
        return step, fl(lm_flops(cfg, b * cfg["ctx"])), compiled
    case(f"lm_{size}_train_step")(_)
    def _(cfg=cfg):
        m = LM(**cfg).eval(); kv, hd = cfg["kv"], cfg["d"] // cfg["h"]; half = cfg["ctx"] // 2
        cache = [(torch.zeros(1, kv, cfg["ctx"], hd), torch.zeros(1, kv, cfg["ctx"], hd)) for _ in range(cfg["layers"])]
        tok = torch.zeros(1, 1, dtype=torch.long)
        def step(f=m):
            with torch.inference_mode(): return f(tok, cache, half)[0, -1].argmax()
        def compiled(): c = torch.compile(m); return lambda: step(c)
        return step, mem(4 * sum(p.numel() for p in m.parameters())), compiled
    case(f"lm_{size}_decode_token")(_)

for name, make in CASES.items():
    if not re.search(a.only, name): continue
    try:
        fn, ideal, comp = make(); e = bench(fn); c = None
        if isinstance(fn, bwd): comp = fn.compiled
        if comp and not a.no_compile:
            try: c = bench(comp() if comp is not True else torch.compile(fn))
            except Exception as ex: print("# compile failed:", name, str(ex).splitlines()[0][:100])
        best = min(v for v in (e, c) if v)
        out["cases"][name] = {"eager_us": e, "compiled_us": c, "ideal_us": ideal, "best_over_ideal": best / ideal}
        print(f"{name:28s} eager {e:10.1f}  compiled {c or float('nan'):10.1f}  ideal {ideal:10.1f}  best/ideal {best/ideal:6.2f}", flush=True)
    except Exception as ex: print(f"{name:28s} failed: {type(ex).__name__}: {str(ex).splitlines()[0][:120]}", flush=True)
if a.json: json.dump(out, open(a.json, "w"), indent=1)
