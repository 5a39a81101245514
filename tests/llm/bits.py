# SPDX-License-Identifier: Apache-2.0
"""The logits of a sequence are the same bits however its prompt is cut and whoever else is served (bits.cpp).

bits.py TENON LLM_BITS sse4|avx2|avx512      on the cpu
bits.py TENON LLM_BITS DEVICE [TYPE...]      on another device, with weights of these types [F16 BF16 Q8_0 Q4_K_M];
                                             JOBS [4] runs at a time; prints a table last"""
import concurrent.futures, os, pathlib, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

TENON, BITS, ISA = sys.argv[1:4]
NEEDS = {"sse4": {"sse4_2"}, "avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512vl", "avx512bw", "avx512dq"}}
# Products have sums of 32 to 1536 terms, more than one part of a sum; heads share keys, or have their own.
MODELS = {
    "tiny": {"context": 1024, "deviation": 0.3},
    "shared": {"hidden": 512, "heads": 8, "kv_heads": 2, "ffn": 1536},
    "own": {"hidden": 192, "heads": 3, "kv_heads": 3, "ffn": 320},
}
# The products of a format have kernels of their own; the models differ in shapes.
FORMATS = {"tiny": ["F32"], "shared": ["F32", "F16", "BF16", "Q5_0", "Q8_0", "Q4_K_M"], "own": ["F32"]}
SOME = {"tiny": ["F32"], "shared": ["F32", "Q4_K_M"]}  # with fewer lanes
# On a GPU: heads of 64 and 128 elements. The weights of a product have 1/4 to 4 Mi elements.
LARGE = {
    "heads of 64": {"hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 4096},
    "heads of 128": {"hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 4096, "layers": 3},
    # With 16 sequences more key heads than an H200 has multiprocessors: they have another kernel than few.
    "own keys": {"hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 1536},
}
# In F16 alone: what else attention and products have beside each other.
RELATIVES = {
    "windows": {"hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 2048,
                "config": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 300}},
    "heads of 96": {"hidden": 768, "heads": 8, "kv_heads": 4, "ffn": 2048},
    "heads of 80": {"hidden": 640, "heads": 8, "kv_heads": 8, "ffn": 2048},
    "one key head": {"hidden": 1024, "heads": 32, "kv_heads": 1, "ffn": 2048},
    "norms of heads": {"hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 2048,
                       "config": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 128},
                       "of_layers": {"self_attn.q_norm.weight": [128], "self_attn.k_norm.weight": [128]}},
    "biases": {"hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 2048,
               "config": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
               "of_layers": {"self_attn.q_proj.bias": [1024], "self_attn.k_proj.bias": [256], "self_attn.v_proj.bias": [256]}},
    "capped": {"hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 2048,
               "config": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 128,
                          "query_pre_attn_scalar": 128, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 30.0,
                          "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "sliding_window": 300,
                          "tie_word_embeddings": True},
               "of_layers": {"pre_feedforward_layernorm.weight": [1024], "post_feedforward_layernorm.weight": [1024]}},
}
# Activations and products, with weights of a type. Blocks whose products may round (compute) are there to see what differs.
BLOCKS = [(compute, products) for compute in ("f16", "bf16") for products in ("f32", "compute")]
RUNS = {"F16": [("f16", "f32")], "BF16": [("bf16", "f32")], "Q8_0": BLOCKS, "Q4_K_M": BLOCKS}
failures = []


def convert(folder, kind, end=".gguf"):
    """A GGUF file, or a folder, which has what not all GGUF files have: windows."""
    target = pathlib.Path(f"{folder}.{kind}{end}")
    subprocess.run([TENON, "llm", "convert", folder, target, "--type", kind], check=True, capture_output=True)
    return target


def run_bits(what, model, *options, **env):
    """The exit status and the lines of llm_bits, which are printed too."""
    done = subprocess.run([BITS, model, *options], capture_output=True, text=True, env={**os.environ, **env})
    sys.stdout.write(f"{'ok ' if done.returncode == 0 else 'BAD'} {what}\n{done.stdout}{done.stderr}")
    sys.stdout.flush()
    return done.returncode, (done.stdout + done.stderr).splitlines()


def bits(what, model, products="f32", *cache):
    what = " ".join([what, products, *cache])
    options = ["--products", products, *(["--cache", *cache] if cache else [])]
    if run_bits(what, model, *options, TENON_CPU_ISA=ISA)[0] != 0:
        failures.append(what)


def on_cpu():
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split())
    if not NEEDS[ISA] <= flags:
        print(f"this processor has no {ISA}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        for name, shape in MODELS.items():
            folder = pathlib.Path(place, name)
            tiny_model.make(folder, **{"context": 1024, "deviation": 0.06, **shape})
            for kind in FORMATS[name] if ISA == "avx512" else SOME.get(name, []):
                file = convert(folder, kind)
                bits(f"{name} {kind}", file)
                if kind.startswith("Q"):
                    bits(f"{name} {kind}", file, "int8")
                if name == "shared" and kind in ("F32", "Q4_K_M") or name == "own":
                    bits(f"{name} {kind}", file, "f32", "q8_0")


def on_device(device, kinds):
    """A row is printed when its run ends, and in the table: a time limit may end the others."""
    row = "{:13} {:7} {:8} {:9} {:58} {:>7}".format
    with tempfile.TemporaryDirectory() as place:
        folders = {name: tiny_model.make(pathlib.Path(place, name.replace(" ", "_")), context=1024, deviation=0.04, logits=4096,
                                         distinct=65521, **shape) for name, shape in (LARGE | RELATIVES).items()}
        # Products with biases and gelu_tanh behind them.
        folders["gelu"] = pathlib.Path(place, "gelu")
        tiny_model.make_gpt2(folders["gelu"], width=1024, heads=16, layers=2, context=1024, deviation=0.2, distinct=65521)

        def run(name, kind, file, compute, products):
            start = time.time()
            code, lines = run_bits(f"{name} {kind} {compute} {products}", file, "--device", device, "--compute", compute,
                                   "--cache", compute, "--products", products)
            rounds = code == 1 and kind not in ("F16", "BF16") and products == "compute"  # nothing is promised then
            if code != 0 and not rounds:
                failures.append(name)
            result = f"{'ok' if code == 0 else 'rounds' if rounds else f'BAD {code}'} {lines[-1] if lines else ''}"
            line = row(name, kind, compute, products, result[:58], f"{time.time() - start:.0f}")
            print(line, flush=True)
            return line

        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", 4))) as pool:
            runs = []
            for kind in kinds:
                for name, folder in folders.items():
                    if name in RELATIVES and kind != "F16":
                        continue
                    file = convert(folder, kind, "_folder" if name in RELATIVES else ".gguf")
                    runs += [pool.submit(run, name, kind, file, *how) for how in RUNS[kind]]
            lines = [r.result() for r in runs]
    print(row("model", "type", "compute", "products", "result", "seconds"), *lines, sep="\n")


if ISA in NEEDS:
    on_cpu()
else:
    on_device(ISA, sys.argv[4:] or list(RUNS))
if failures:
    sys.exit(f"{len(failures)} failed")
