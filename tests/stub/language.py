# SPDX-License-Identifier: Apache-2.0
"""language.py TENON STUBS: the cache of keys and values of a language model on a GPU. With several sequences it is a pool of
blocks, which attention reads in place: no step copies keys, and no step launches more kernels than with memory of each
sequence. With one sequence that memory stays. An older GPU has kernels for this as well. And which models are batch invariant."""
import collections, json, os, pathlib, subprocess, sys, tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import tiny_model

TENON, STUBS = sys.argv[1:3]
failures = 0


def check(good, what, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {what}{'' if good else f': {said}'}")


def bench(model, settings, *options, prefill=0):
    """Tokens of a block of the cache, and the launches."""
    launches = pathlib.Path(f"{model}.launches")
    launches.unlink(missing_ok=True)
    env = dict(os.environ, TENON_CUDA_PATH=f"{STUBS}/all", TENON_CUDA_CACHE="", TENON_STUB_CUDA=settings,
               TENON_STUB_LAUNCHES=str(launches))
    done = subprocess.run([TENON, "llm", "bench", model, "--device", "cuda:0", "--prefill", str(prefill), "--repeat", "1", "--context", "300",
                           "--exec", "stream", "--json", *map(str, options)], capture_output=True, text=True, env=env)
    if done.returncode:
        check(False, f"{settings} {options}", done.stderr)
        return None, collections.Counter()
    lines = [line.split("\t") for line in launches.read_text().splitlines()]
    return json.loads(done.stdout)["cache_block"], collections.Counter(tuple(line[1:3]) for line in lines if line[0] == "launch")


def step(model, settings, *options):
    """The same, of one step."""
    (block, few), (_, many) = (bench(model, settings, "--decode", n, *options) for n in (2, 4))
    return block, {kernel: (count - few[kernel]) / 4 for kernel, count in many.items() if count > few[kernel]}


HOPPER, TURING = "major=9,minor=0,shared=232448,processors=132,emulate=0", "major=7,minor=5,shared=65536,processors=40,emulate=0"
AMPERE = "major=8,minor=0,shared=166912,processors=108,emulate=0"


def quantized_cache(folder):
    """A cache of q8_0: what a token adds is cast once, and decoding reads the blocks."""
    layers = 2
    tiny_model.make(folder, hidden=128, layers=layers)  # heads of 32 numbers
    half = "--compute", "f16", "--batch-invariant", "no"
    for batch in (1, 4):
        (block, few), (plain_block, plain) = (step(folder, HOPPER, "--batch", batch, *half, "--cache", dtype) for dtype in ("q8_0", "f16"))
        check(block == plain_block == (0 if batch == 1 else 96), f"q8_0, {batch} sequences: blocks of keys as with f16", (block, plain_block))
        texts = collections.Counter()
        for (text, _), count in few.items():
            texts[text] += count
        check(texts["attention_decode_q8_0.cu"] == layers and texts["cast_q8_0.cu"] == 2 * layers, f"q8_0, {batch} sequences: kernels", texts)
        check(not any("dequant" in text for text in texts), f"q8_0, {batch} sequences: nothing is decoded first", texts)
        # Of floats, rope, the rows of both caches and attention are one launch; of q8_0 each is one, and the casts, and copies of parts.
        own = {text: sum(n for (t, _), n in plain.items() if t == text) for text in ("decode_attention.cu", "rope.cu", "scatter.cu")}
        check(list(own.values()) == [layers, 0, 0], f"f16, {batch} sequences: one launch for rope, caches and attention", plain)
        check(sum(few.values()) <= sum(plain.values()) + 7 * layers, f"q8_0, {batch} sequences: launches", (few, plain))
    for settings, compute in (HOPPER, "f32"), (TURING, "f16"):
        env = dict(os.environ, TENON_CUDA_PATH=f"{STUBS}/all", TENON_CUDA_CACHE="", TENON_STUB_CUDA=settings)
        done = subprocess.run([TENON, "llm", "bench", folder, "--device", "cuda:0", "--compute", compute, "--cache", "q8_0"],
                              capture_output=True, text=True, env=env)
        check(done.returncode == 1 and f"no kernels for a cache of q8_0 beside activations of {compute}" in done.stderr,
              f"q8_0 beside {compute} on {settings[:15]} is refused", done.stderr)


def decoding(model, settings, *options, **env):
    """The texts that attend for a step of one token."""
    os.environ.update(env)
    _, kernels = step(model, settings, "--compute", "f16", *options)
    for name in env:
        del os.environ[name]
    return {text for (text, _) in kernels if text.startswith("decode_attention")}


def batch_invariance(folder):
    """Models of halves are batch invariant on sm_90, and with products that do not round those of blocks."""
    alike, fast = {"decode_attention_spans.cu"}, {"decode_attention.cu"}
    tiny_model.make(folder, hidden=128)
    blocks = f"{folder}.gguf"
    subprocess.run([TENON, "llm", "convert", folder, blocks, "--type", "Q8_0"], check=True, capture_output=True)
    for what, wanted, got in (
            ("halves", alike, decoding(folder, HOPPER)),
            ("halves, yes", alike, decoding(folder, HOPPER, "--batch-invariant", "yes")),
            ("halves, no", fast, decoding(folder, HOPPER, "--batch-invariant", "no")),
            ("halves, no, but the variable says 1", alike, decoding(folder, HOPPER, "--batch-invariant", "no", TENON_CUDA_BATCH_INVARIANT="1")),
            ("halves, yes, but the variable says 0", fast, decoding(folder, HOPPER, "--batch-invariant", "yes", TENON_CUDA_BATCH_INVARIANT="0")),
            ("halves on an older device", fast, decoding(folder, AMPERE)),
            ("blocks", fast, decoding(blocks, HOPPER)),
            ("blocks, f32", alike, decoding(blocks, HOPPER, "--products", "f32")),
            ("blocks, yes", alike, decoding(blocks, HOPPER, "--batch-invariant", "yes"))):
        check(got == wanted, f"batch invariance: {what}", got)
    # The sums of decoded weights have another order than those of few rows.
    for answer, decodes in ("no", True), ("yes", False):
        _, kernels = bench(blocks, HOPPER, "--decode", 0, "--compute", "f32", "--products", "f32", "--batch-invariant", answer, prefill=128)
        check(any(text == "dequant.cu" and entry == "dequantize" for text, entry in kernels) == decodes and kernels, f"batch invariance: many rows of f32, {answer}", kernels)
    env = dict(os.environ, TENON_CUDA_PATH=f"{STUBS}/all", TENON_CUDA_CACHE="", TENON_STUB_CUDA=HOPPER)
    done = subprocess.run([TENON, "llm", "bench", blocks, "--device", "cuda:0", "--batch-invariant", "yes", "--products", "compute"],
                          capture_output=True, text=True, env=env)
    check(done.returncode == 1 and "batch_invariant: expected products of f32, got compute" in done.stderr,
          "batch invariance: products that round are refused", done.stderr)


with tempfile.TemporaryDirectory() as folder:
    quantized_cache(pathlib.Path(folder, "wide"))
    batch_invariance(pathlib.Path(folder, "alike"))
    tiny_model.make(folder)
    for settings in (HOPPER, TURING):
        for batch, wanted in ((1, 0), (4, 96)):
            block, _ = bench(folder, settings, "--decode", 2, "--batch", batch)
            check(block == wanted, f"{settings}: {batch} sequences, blocks of {wanted}", block)
        for batch in (1, 4):
            (pool, paged), (own, apart) = (step(folder, settings, "--batch", batch, "--cache-memory", kind) for kind in ("blocks", "slots"))
            check((pool, own) == (96, 0), f"{batch} sequences: --cache-memory", (pool, own))
            attention = [count for (text, _), count in paged.items() if text.startswith("attention") and "merge" not in text]
            check(sum(attention) > 0, f"{batch} sequences: attention has a kernel", paged)
            copies = {kernel for kernel in paged if kernel not in apart or paged[kernel] > apart[kernel]}
            check(not copies and sum(paged.values()) <= sum(apart.values()), f"{batch} sequences: no step copies keys", copies)
sys.exit(failures > 0)
