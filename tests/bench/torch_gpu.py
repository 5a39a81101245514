#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peer figures on one GPU: PyTorch eager and torch.compile on the fixed workloads.

torch_gpu.py [--only REGEX] [--json FILE] [--no-compile] [--prepare K/N | --serve]
Each case prints: name, eager median us, compiled median us, ideal us (bytes or flops over the measured ceilings).
Time is the median of CUDA-event timings of one call each. Before each call 256 MiB are written, so that L2 is cold.
--prepare K/N times nothing. It calls the compiled forms of part K of N of the cases once, so that several processes fill
the compiler's cache at the same time. --serve measures on demand: each line of the input, "NAME SECONDS", gives one line
of JSON; a case stays in memory until the next one. Cases whose compiled form was measured to be no faster (within 1%)
than eager are not compiled: add, gelu, where, the long softmax, topk, matrix products, and those of cuDNN and cuFFT."""
import argparse, json, math, re, statistics, sys, time
import torch, torch.nn.functional as F

import conv_layers

ap = argparse.ArgumentParser()
ap.add_argument("--only", default=".*"); ap.add_argument("--json"); ap.add_argument("--no-compile", action="store_true")
ap.add_argument("--budget", type=float, default=540.0); ap.add_argument("--prepare")
ap.add_argument("--serve", action="store_true")
a = ap.parse_args()
dev = "cuda"; torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = True
t_start = time.time()
flush = torch.empty(256 << 20, dtype=torch.uint8, device=dev)

def bench(fn, n=20, warm=3, cold=True, seconds=0.0):
    for _ in range(warm): fn()
    torch.cuda.synchronize()
    ts, end = [], time.time() + seconds
    while len(ts) < n or time.time() < end:
        if cold: flush.zero_()
        s, e = torch.cuda.Event(True), torch.cuda.Event(True)
        s.record(); fn(); e.record(); torch.cuda.synchronize()
        ts.append(s.elapsed_time(e) * 1e3)
    return statistics.median(ts)

BW = FL_BF16 = FL_TF32 = FL_F32 = 1.0
def measure_ceilings():
    global BW, FL_BF16, FL_TF32, FL_F32
    x = torch.randn(1 << 28, device=dev); y = torch.empty_like(x)
    BW = 2 * x.numel() * 4 / (bench(lambda: y.copy_(x)) * 1e-6)
    del x, y
    A = torch.randn(8192, 8192, device=dev, dtype=torch.bfloat16); B = torch.randn_like(A)
    FL_BF16 = 2 * 8192**3 / (bench(lambda: A @ B) * 1e-6)
    Af, Bf = A.float(), B.float()
    FL_TF32 = 2 * 8192**3 / (bench(lambda: Af @ Bf) * 1e-6)
    torch.backends.cuda.matmul.allow_tf32 = False
    FL_F32 = 2 * 8192**3 / (bench(lambda: Af @ Bf, n=5) * 1e-6)
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"# {torch.cuda.get_device_name()} torch {torch.__version__} copy {BW/1e12:.2f} TB/s bf16 {FL_BF16/1e12:.0f} tf32 {FL_TF32/1e12:.0f} f32 {FL_F32/1e12:.0f} TFLOP/s", file=sys.stderr if a.serve else sys.stdout, flush=True)
if not a.prepare: measure_ceilings()
import gc
out = {"device": torch.cuda.get_device_name(), "copy_Bps": BW, "bf16_flops": FL_BF16, "tf32_flops": FL_TF32, "f32_flops": FL_F32, "cases": {}}
CASES = {}
def case(name):
    def deco(f): CASES[name] = f; return f
    return deco
R = lambda *s, dt=torch.float32, g=False: torch.randn(*s, device=dev, dtype=dt).requires_grad_(g)
bf = torch.bfloat16

def mem(nbytes): return nbytes / BW * 1e6
def fl(f, p=None): return f / (p or FL_BF16) * 1e6

# each case returns (fn, ideal_us, compile?)
@case("binary_add_f32")
def _(): a_, b_ = R(1 << 27), R(1 << 27); return (lambda: a_ + b_), mem(3 * 4 << 27), False
@case("unary_gelu_bf16")
def _(): a_ = R(1 << 28, dt=bf); return (lambda: F.gelu(a_)), mem(2 * 2 << 28), False
@case("chain_mul_add_gelu_mul_bf16")
def _():
    a_, r = R(1 << 27, dt=bf), R(1 << 27, dt=bf)
    return (lambda: F.gelu(a_ * 1.5 + 0.25) * r), mem(3 * 2 << 27), True
@case("cast_f32_to_bf16")
def _(): a_ = R(1 << 28); return (lambda: a_.to(bf)), mem(6 << 28), False
@case("where_f32")
def _(): a_, b_ = R(1 << 27), R(1 << 27); c = a_ > 0; return (lambda: torch.where(c, a_, b_)), mem(13 << 27), False
@case("transpose2d_f32")
def _(): a_ = R(16384, 16384); return (lambda: a_.t().contiguous()), mem(8 * 16384**2), True
@case("reduce_sum_rows_f32")
def _(): a_ = R(16384, 16384); return (lambda: a_.sum(1)), mem(4 * 16384**2), True
@case("reduce_sum_cols_f32")
def _(): a_ = R(16384, 16384); return (lambda: a_.sum(0)), mem(4 * 16384**2), True
@case("softmax_f32_4096")
def _(): a_ = R(32768, 4096); return (lambda: torch.softmax(a_, -1)), mem(8 * 32768 * 4096), True
@case("softmax_bwd_f32_4096")
def _():
    a_ = R(32768, 4096, g=True); dy = R(32768, 4096)
    return _bwd(lambda x: torch.softmax(x, -1), [a_], dy), mem(12 * 32768 * 4096), "own"
@case("softmax_bf16_50257")
def _(): a_ = R(8192, 50257, dt=bf); return (lambda: torch.softmax(a_, -1)), mem(4 * 8192 * 50257), False
@case("layernorm_fwd_bf16")
def _():
    a_, w, b_ = R(32768, 4096, dt=bf), R(4096, dt=bf), R(4096, dt=bf)
    return (lambda: F.layer_norm(a_, (4096,), w, b_)), mem(4 * 32768 * 4096), True
def _bwd(fwd, inputs, dy):
    """Times the backward pass alone; the compiled variant is the backward of the compiled forward."""
    def backward_of(forward):
        o = forward(*inputs)
        return lambda: torch.autograd.grad(o, inputs, dy, retain_graph=True)
    f = backward_of(fwd); f.compiled = lambda: backward_of(torch.compile(fwd))
    return f
@case("layernorm_bwd_bf16")
def _():
    a_, w, b_ = R(32768, 4096, dt=bf, g=True), R(4096, dt=bf, g=True), R(4096, dt=bf, g=True); dy = R(32768, 4096, dt=bf)
    return _bwd(lambda x, w, b: F.layer_norm(x, (4096,), w, b), [a_, w, b_], dy), mem(6 * 32768 * 4096), "own"
@case("rmsnorm_fwd_bf16")
def _():
    a_, w = R(32768, 4096, dt=bf), R(4096, dt=bf)
    return (lambda: F.rms_norm(a_, (4096,), w, 1e-6)), mem(4 * 32768 * 4096), True
@case("rmsnorm_bwd_bf16")
def _():
    a_, w = R(32768, 4096, dt=bf, g=True), R(4096, dt=bf, g=True); dy = R(32768, 4096, dt=bf)
    return _bwd(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), [a_, w], dy), mem(6 * 32768 * 4096), "own"
@case("rmsnorm_bwd_f32")
def _():
    a_, w = R(16384, 4096, g=True), R(4096, g=True); dy = R(16384, 4096)
    return _bwd(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), [a_, w], dy), mem(12 * 16384 * 4096), "own"
@case("residual_rmsnorm_bf16")
def _():
    a_, r, w = R(32768, 4096, dt=bf), R(32768, 4096, dt=bf), R(4096, dt=bf)
    def f():
        h = a_ + r
        return h, F.rms_norm(h, (4096,), w, 1e-6)
    return f, mem(8 * 32768 * 4096), True
@case("rope_fwd_bf16")
def _():
    q = R(4, 4096, 32, 128, dt=bf); c, s = R(4096, 1, 64), R(4096, 1, 64)
    def f():
        x1, x2 = q[..., :64], q[..., 64:]
        return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s], -1).to(bf)
    return f, mem(4 * q.numel()), True
@case("rope_bwd_bf16")
def _():
    q = R(4, 4096, 32, 128, dt=bf, g=True); c, s = R(4096, 1, 64), R(4096, 1, 64); dy = R(4, 4096, 32, 128, dt=bf)
    def rope(x, c, s):
        x1, x2 = x[..., :64], x[..., 64:]
        return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s], -1).to(bf)
    return _bwd(lambda x: rope(x, c, s), [q], dy), mem(4 * q.numel()), "own"
@case("cumsum_f32")
def _(): a_ = R(4096, 65536); return (lambda: torch.cumsum(a_, -1)), mem(8 * a_.numel()), True
@case("gather_rows_bf16")
def _():
    t = R(128256, 4096, dt=bf); i = torch.randint(0, 128256, (32768,), device=dev)
    return (lambda: F.embedding(i, t)), mem(4 * 32768 * 4096), True
@case("gather_bwd_f32")
def _():
    t = R(50257, 768, g=True); i = torch.randint(0, 50257, (65536,), device=dev); dy = R(65536, 768)
    return _bwd(lambda t: F.embedding(i, t), [t], dy), mem(4 * (65536 * 768 + 50257 * 768)), "own"
@case("scatter_add_f32")
def _():
    d = torch.zeros(50257, 768, device=dev); i = torch.randint(0, 50257, (65536,), device=dev); u = R(65536, 768)
    return (lambda: d.index_add_(0, i, u)), mem(4 * 65536 * 768 * 3), True
@case("cross_entropy_fwd_bwd_bf16")
def _():
    l = R(8192, 50257, dt=bf, g=True); t = torch.randint(0, 50257, (8192,), device=dev)
    def step_of(loss): return lambda: torch.autograd.grad(loss(l, t), l)
    loss = lambda l, t: F.cross_entropy(l.float(), t)
    f = step_of(loss); f.compiled = lambda: step_of(torch.compile(loss))
    return f, mem(6 * 8192 * 50257), "own"
@case("argmax_f32")
def _(): a_ = R(2048, 128256); return (lambda: a_.argmax(-1)), mem(4 * a_.numel()), True
@case("topk50_f32")
def _(): a_ = R(512, 128256); return (lambda: a_.topk(50)), mem(4 * a_.numel()), False
@case("groupnorm_fwd_f32")
def _():
    a_, w, b_ = R(32, 512, 64, 64), R(512), R(512)
    return (lambda: F.group_norm(a_, 32, w, b_)), mem(8 * a_.numel()), True
@case("groupnorm_bwd_f32")
def _():
    a_, w, b_ = R(32, 512, 64, 64, g=True), R(512, g=True), R(512, g=True); dy = R(32, 512, 64, 64)
    return _bwd(lambda x, w, b: F.group_norm(x, 32, w, b), [a_, w, b_], dy), mem(12 * a_.numel()), "own"
def norm2d(x, w, b): return F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, b, 1e-6).permute(0, 3, 1, 2)
@case("layernorm2d_fwd_f32")
def _():
    a_, w, b_ = R(32, 512, 64, 64), R(512), R(512)
    return (lambda: norm2d(a_, w, b_).contiguous()), mem(8 * a_.numel()), True
@case("layernorm2d_bwd_f32")
def _():
    a_, w, b_ = R(32, 512, 64, 64, g=True), R(512, g=True), R(512, g=True); dy = R(32, 512, 64, 64)
    return _bwd(norm2d, [a_, w, b_], dy), mem(12 * a_.numel()), "own"
@case("maxpool2d_fwd_f32")
def _(): a_ = R(64, 64, 224, 224); return (lambda: F.max_pool2d(a_, 3, 2, 1)), mem(5 * a_.numel()), True
@case("maxpool2d_bwd_f32")
def _():
    a_ = R(64, 64, 224, 224, g=True); dy = R(64, 64, 112, 112)
    return _bwd(lambda x: F.max_pool2d(x, 3, 2, 1), [a_], dy), mem(4 * a_.numel() * 1.25 + 4 * a_.numel()), "own"
@case("conv2d_3x3_bf16")
def _():
    a_, w = R(64, 256, 56, 56, dt=bf), R(256, 256, 3, 3, dt=bf)
    a_ = a_.to(memory_format=torch.channels_last); w = w.to(memory_format=torch.channels_last)
    return (lambda: F.conv2d(a_, w, padding=1)), fl(2 * 64 * 56 * 56 * 256 * 256 * 9), False
@case("conv2d_3x3_tf32_nchw")
def _():
    a_, w = R(64, 256, 56, 56), R(256, 256, 3, 3)
    return (lambda: F.conv2d(a_, w, padding=1)), fl(2 * 64 * 56 * 56 * 256 * 256 * 9, FL_TF32), False
@case("conv2d_bwd_tf32_nchw")
def _():
    a_, w = R(64, 256, 56, 56, g=True), R(256, 256, 3, 3, g=True); dy = R(64, 256, 56, 56)
    return _bwd(lambda x, w: F.conv2d(x, w, padding=1), [a_, w], dy), fl(4 * 64 * 56 * 56 * 256 * 256 * 9, FL_TF32), False
def conv_case(name):
    """The faster of contiguous and channels_last operands. f32 is computed in f32."""
    kind, layer, dtype = conv_layers.CASES[name]
    layer = conv_layers.LAYERS[layer]
    dt = {"f32": torch.float32, "bf16": bf, "f16": torch.float16}[dtype]
    def form(memory):
        x = R(layer.batch, layer.channels, layer.size, layer.size, dt=dt).to(memory_format=memory)
        w = R(layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel, dt=dt).to(memory_format=memory)
        last = conv_layers.windows(layer)
        dy = R(layer.batch, layer.filters, last, last, dt=dt).to(memory_format=memory)
        mask = (kind == "input", kind == "weight", False)
        def run():
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
                if kind == "forward": return F.conv2d(x, w, None, layer.stride, layer.pad, 1, layer.groups)
                return torch.ops.aten.convolution_backward(dy, x, w, None, [layer.stride] * 2, [layer.pad] * 2, [1, 1],
                                                           False, [0, 0], layer.groups, mask)
        return run
    best = min((form(memory) for memory in (torch.contiguous_format, torch.channels_last)), key=lambda fn: bench(fn, n=5))
    moved = mem(sum(conv_layers.elements(layer)) * dt.itemsize)
    return best, max(moved, fl(conv_layers.flops(layer), FL_F32 if dtype == "f32" else FL_BF16)), False
for conv in conv_layers.CASES:
    CASES[conv] = lambda conv=conv: conv_case(conv)
def fft_case(rows, points):
    a_ = torch.randn(rows, points, device=dev, dtype=torch.complex64)
    return (lambda: torch.fft.fft(a_)), mem(16 * a_.numel()), False
for name, rows, points in (("256", 1 << 18, 256), ("1000", 67108, 1000), ("1024", 1 << 16, 1024), ("4096", 1 << 14, 4096),
                           ("1M", 64, 1 << 20)):
    CASES["fft_c64_" + name] = lambda rows=rows, points=points: fft_case(rows, points)
@case("rfft_f32_1024")
def _(): a_ = R(131072, 1024); return (lambda: torch.fft.rfft(a_)), mem(131072 * (4 * 1024 + 8 * 513)), False
@case("irfft_c64_1024")
def _():
    a_ = torch.randn(131072, 513, device=dev, dtype=torch.complex64)
    return (lambda: torch.fft.irfft(a_)), mem(131072 * (4 * 1024 + 8 * 513)), False
def stft_case(size, hop):
    x, w = R(64, 960000), torch.hann_window(size, device=dev)
    f = lambda: torch.stft(x, size, hop, window=w, return_complex=True)
    return f, mem(4 * x.numel() + 8 * f().numel()), False
@case("stft_f32_400")
def _(): return stft_case(400, 160)
@case("stft_f32_1024")
def _(): return stft_case(1024, 256)
@case("log_mel_f32")
def _():
    x, w, bank = R(64, 480000), torch.hann_window(400, device=dev), torch.rand(80, 201, device=dev)
    def f():
        power = torch.stft(x, 400, 160, window=w, return_complex=True)[..., :-1].abs() ** 2
        log = torch.clamp(bank @ power, min=1e-10).log10()
        return (torch.maximum(log, log.amax((1, 2), keepdim=True) - 8) + 4) / 4
    return f, mem(4 * x.numel() + 4 * f().numel()), True
@case("matmul_bf16_8192")
def _(): a_, b_ = R(8192, 8192, dt=bf), R(8192, 8192, dt=bf); return (lambda: a_ @ b_), fl(2 * 8192**3), False
@case("matmul_bf16_4096")
def _(): a_, b_ = R(4096, 4096, dt=bf), R(4096, 4096, dt=bf); return (lambda: a_ @ b_), fl(2 * 4096**3), False
@case("matmul_tf32_4096")
def _(): a_, b_ = R(4096, 4096), R(4096, 4096); return (lambda: a_ @ b_), fl(2 * 4096**3, FL_TF32), False
@case("linear_gelu_bf16")
def _():
    a_, w, b_ = R(8192, 4096, dt=bf), R(16384, 4096, dt=bf), R(16384, dt=bf)
    return (lambda: F.gelu(F.linear(a_, w, b_), approximate="tanh")), fl(2 * 8192 * 4096 * 16384), False
@case("gemv_bf16")
def _(): a_, w = R(1, 8192, dt=bf), R(28672, 8192, dt=bf); return (lambda: F.linear(a_, w)), mem(2 * w.numel()), False
@case("attention_fwd_causal_bf16")
def _():
    q, k, v = (R(4, 32, 4096, 128, dt=bf) for _ in range(3))
    return (lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)), fl(4 * 4 * 32 * 4096 * 4096 * 128 / 2), False
@case("attention_bwd_causal_bf16")
def _():
    q, k, v = (R(4, 32, 4096, 128, dt=bf, g=True) for _ in range(3)); dy = R(4, 32, 4096, 128, dt=bf)
    return _bwd(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v], dy), fl(10 * 4 * 32 * 4096 * 4096 * 128 / 2), False
@case("attention_decode_gqa_bf16")
def _():
    q = R(32, 32, 1, 128, dt=bf); k, v = R(32, 8, 8192, 128, dt=bf), R(32, 8, 8192, 128, dt=bf)
    return (lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)), mem(2 * 2 * k.numel()), False
@case("attention_fwd_gpt2_bf16")
def _():
    q, k, v = (R(16, 12, 1024, 64, dt=bf) for _ in range(3))
    return (lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)), fl(4 * 16 * 12 * 1024 * 1024 * 64 / 2), False
@case("attention_bwd_gpt2_bf16")
def _():
    q, k, v = (R(16, 12, 1024, 64, dt=bf, g=True) for _ in range(3)); dy = R(16, 12, 1024, 64, dt=bf)
    return _bwd(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v], dy), fl(10 * 16 * 12 * 1024 * 1024 * 64 / 2), False

def attn(q, k, v, causal): return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
class Block(torch.nn.Module):
    def __init__(s, d, h, causal):
        super().__init__(); s.h, s.causal = h, causal
        s.ln1, s.ln2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
        s.qkv, s.o = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        s.f1, s.f2 = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)
    def forward(s, x):
        B, T, D = x.shape
        q, k, v = s.qkv(s.ln1(x)).view(B, T, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(attn(q, k, v, s.causal).transpose(1, 2).reshape(B, T, D))
        return x + s.f2(F.gelu(s.f1(s.ln2(x)), approximate="tanh"))
class GPT(torch.nn.Module):
    def __init__(s, V=50304, d=768, h=12, L=12, T=1024, causal=True):
        super().__init__()
        s.te, s.pe = torch.nn.Embedding(V, d), torch.nn.Embedding(T, d)
        s.bl = torch.nn.ModuleList([Block(d, h, causal) for _ in range(L)]); s.ln = torch.nn.LayerNorm(d)
    def forward(s, i, t=None):
        x = s.te(i) + s.pe(torch.arange(i.shape[1], device=i.device))
        for b in s.bl: x = b(x)
        x = s.ln(x)
        if t is None: return x
        return F.cross_entropy(F.linear(x, s.te.weight).float().view(-1, s.te.num_embeddings), t.view(-1))
@case("gpt2_124m_train_step_bf16_16x1024")
def _():
    m = GPT().to(dev); opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
    i = torch.randint(0, 50257, (16, 1024), device=dev)
    n = sum(p.numel() for p in m.parameters())
    def make(mm):
        def f():
            with torch.autocast("cuda", bf): loss = mm(i, i)
            loss.backward(); opt.step(); opt.zero_grad(set_to_none=True)
        return f
    f = make(m); f.compiled = lambda: make(torch.compile(m))
    return f, fl(16 * 1024 * (6 * n + 12 * 12 * 768 * 1024 / 2 * 1)), "own"
@case("encoder_minilm_f32_32x128")
def _():
    m = GPT(V=30522, d=384, h=12, L=6, T=512, causal=False).to(dev).eval(); i = torch.randint(0, 30522, (32, 128), device=dev)
    def f():
        with torch.inference_mode(): return m(i)
    def comp():
        mm = torch.compile(m, mode="reduce-overhead")
        def g():
            with torch.inference_mode(): return mm(i)
        return g
    f.compiled = comp
    return f, fl(2 * 32 * 128 * 6 * (12 * 384 * 384), FL_TF32), "own"
@case("encoder_minilm_f32_1x16")
def _():
    m = GPT(V=30522, d=384, h=12, L=6, T=512, causal=False).to(dev).eval(); i = torch.randint(0, 30522, (1, 16), device=dev)
    def f():
        with torch.inference_mode(): return m(i)
    def comp():
        mm = torch.compile(m, mode="reduce-overhead")
        def g():
            with torch.inference_mode(): return mm(i)
        return g
    f.compiled = comp
    return f, mem(4 * 6 * 12 * 384 * 384), "own"

chosen = [name for name in CASES if re.search(a.only, name)]
def compiled_of(fn, comp): return fn.compiled() if comp == "own" else torch.compile(fn)
def serve():
    held = None  # name, forms, ideal
    for line in sys.stdin:
        name, seconds = line.split()
        if not held or held[0] != name:
            held = None
            gc.collect(); torch.cuda.empty_cache()
            fn, ideal, comp = CASES[name]()
            forms = {"eager_us": fn}
            if comp and not a.no_compile:
                try: forms["compiled_us"] = compiled_of(fn, comp); bench(forms["compiled_us"], n=1, warm=5)
                except Exception as ex: forms.pop("compiled_us", None); print("# compile", name, type(ex).__name__, str(ex)[:120], file=sys.stderr)
            bench(fn, n=1)
            held = name, forms, ideal
        times = {"eager_us": None, "compiled_us": None}
        times.update({form: bench(fn, seconds=float(seconds)) for form, fn in held[1].items()})
        print(json.dumps({**times, "ideal_us": held[2]}), flush=True)
if a.serve:
    serve()
    sys.exit()
if a.prepare:
    k, n = map(int, a.prepare.split("/"))
    for name in chosen[k::n]:
        try:
            fn, _, comp = CASES[name]()
            if comp: compiled_of(fn, comp)()
        except Exception as ex: print("# prepare", name, type(ex).__name__, str(ex)[:200], flush=True)
    torch.cuda.synchronize()
    sys.exit()
for name in chosen:
    if time.time() - t_start > a.budget: print("# out of time before", name); break
    try:
        fn, ideal, comp = CASES[name]()
        e = bench(fn)
        c = None
        if comp and not a.no_compile:
            try:
                c = bench(compiled_of(fn, comp), warm=5)
            except Exception as ex: print("# compile", name, type(ex).__name__, str(ex)[:120])
        out["cases"][name] = {"eager_us": e, "compiled_us": c, "ideal_us": ideal}
        best = min(v for v in (e, c) if v)
        print(f"{name:36s} eager {e:10.1f}  compiled {c if c is None else round(c,1)!s:>10}  ideal {ideal:10.1f}  best/ideal {best/ideal:6.2f}", flush=True)
        if a.json: json.dump(out, open(a.json, "w"), indent=1)
        del fn
    except Exception as ex:
        print("# FAIL", name, type(ex).__name__, str(ex)[:200], flush=True)
    gc.collect(); torch.cuda.empty_cache()
