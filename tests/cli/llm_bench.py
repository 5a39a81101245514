# SPDX-License-Identifier: Apache-2.0
"""`tenon llm bench`: what it runs and prints. With numpy, also on the files that tests/bench/random_gguf.py writes.

llm_bench.py TENON"""
import json, math, pathlib, re, subprocess, sys, tempfile

import tiny_model

# inspect.py of this folder would hide Python's own, which numpy imports.
sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent / "bench")
try:
    import random_fp8, random_gguf
except ImportError as missing:
    random_gguf = None
    print(f"not tested, files with random weights: {missing}")

TENON = sys.argv[1]
failures = []


def check(what, good, more=""):
    if not good:
        failures.append(what)
        print(f"FAIL {what} {more}", flush=True)


def run(model, *options):
    return subprocess.run([TENON, "llm", "bench", model, "--device", "cpu", *map(str, options)], capture_output=True, text=True)


def result(model, *options):
    done = run(model, *options, "--json")
    check(f"{options} ends well", done.returncode == 0, done.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def weight_bytes(folder):
    """Of the tensors in the file."""
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    return len(data) - 8 - int.from_bytes(data[:8], "little")


def folders(folder):
    tiny_model.make(folder)
    out = result(folder, "--prefill", 40, "--decode", 12, "--repeat", 3, "--batch", 2, "--depth", 5)
    for name, tokens in (("prefill", 80), ("decode", 24)):
        part = out.get(name, {})
        check(f"{name}: tokens of all sequences", part.get("tokens") == tokens, part)
        times = part.get("seconds", [])
        check(f"{name}: the runs", len(times) == 3 and times == sorted(times) and times[0] > 0, part)
        rate, best = part.get("tokens_per_second", 0), part.get("best_tokens_per_second", 0)
        check(f"{name}: rates", abs(rate * times[1] / tokens - 1) < 1e-6 and abs(best * times[0] / tokens - 1) < 1e-6, part)
        check(f"{name}: compiles first", part.get("first_seconds", 0) > times[0], part)
    check("the context has room for the longer one", out.get("context") == 45, out)
    tables = out.get("weight_bytes", 0) - weight_bytes(folder)
    check("bytes of the weights, and of rope's tables", 0 <= tables <= 4096, tables)
    check("memory", out.get("peak_resident_bytes", 0) > weight_bytes(folder), out)
    few, many = (result(folder, "--prefill", 0, "--decode", n) for n in (4, 200))
    check("many tokens take longer", many["decode"]["median_seconds"] > 4 * few["decode"]["median_seconds"], (few, many))
    check("no prompt, no result of it", "prefill" not in few and "decode" not in result(folder, "--decode", 0))
    text = run(folder, "--decode", 8, "--prefill", 16).stdout
    for line in (r"^model +llama, [\d.]+ KiB of weights$", r"^load +[\d.]+ s$", r"^prefill +16 tokens  median +[\d.]+ tokens/s",
                 r"^decode +8 tokens  median +[\d.]+ tokens/s .* ms per step$", r"^memory +[\d.]+ MiB"):
        check(line, re.search(line, text, re.M), text)
    for options, code, word in [(("--prefill", 0, "--decode", 0), 2, "expected one of them above 0"),
                                (("--batch", 0), 2, "--batch: expected"), (("--repeat", 0), 2, "--repeat: expected"),
                                (("--context", 16), 2, "--context 16: expected room"),
                                (("--depth", 500), 1, "expected a context of at most 512")]:
        done = run(folder, *options)
        check(f"{options} is refused", done.returncode == code and word in done.stderr, done.stderr)


def steps(folder):
    """The pieces that prompts are read in."""
    trace = pathlib.Path(folder, "trace.json")
    for tokens, pieces in [(1, [1]), (2, [1, 1]), (3, [4]), (16, [16]), (17, [16, 1]), (129, [128, 1]), (350, [256, 64, 32]),
                           (384, [512]), (512, [512])]:
        result(folder, "--prefill", tokens, "--decode", 0, "--repeat", 1, "--trace", trace)
        names = re.findall(r"run llm\.step\.1x(\d+)", trace.read_text())
        check(f"pieces of {tokens} tokens", list(map(int, names)) == 2 * pieces, names)


def cache(folder):
    """Its dtype, by the bytes of its states."""
    trace = pathlib.Path(folder, "trace.json")
    sizes = {}
    for dtype in ("f32", "f16", "bf16"):
        result(folder, "--prefill", 4, "--decode", 0, "--context", 96, "--repeat", 1, "--cache", dtype, "--trace", trace)
        fills = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("name") == "fill cache.0.k"]
        sizes[dtype] = fills[0]["args"]["bytes"]
    for memory, block in (("", 96), ("blocks", 96), ("slots", 0)):
        kind = ("--cache-memory", memory) if memory else ()
        out = result(folder, "--prefill", 4, "--decode", 2, "--batch", 3, "--repeat", 1, *kind)
        check(f"memory of the cache: {memory or 'default'}", out.get("cache_block") == block, out)
    check("the cache has its dtype", sizes == {"f32": 96 * 2 * 8 * 4, "f16": 96 * 2 * 8 * 2, "bf16": 96 * 2 * 8 * 2}, sizes)


def random_files(folder):
    for mix in random_gguf.FILE_TYPES:
        file = pathlib.Path(folder, f"{mix}.gguf")
        random_gguf.write(file, "tiny", mix)
        out = result(file, "--prefill", 8, "--decode", 4)
        tables = out.get("weight_bytes", 0) - content_bytes(random_gguf.SHAPES["tiny"], mix)
        check(f"{mix}: bytes of the weights", 0 <= tables <= 4096, tables)
    file = pathlib.Path(folder, "experts.gguf")
    random_gguf.write(file, "moe-8x2", "Q4_K_M", layers=1)
    out = result(file, "--prefill", 4, "--decode", 2)
    check("experts", out.get("model_type") == "mixtral", out)
    tables = out.get("weight_bytes", 0) - content_bytes(random_gguf.SHAPES["moe-8x2"] | {"layers": 1}, "Q4_K_M")
    check("experts stay in blocks", 0 <= tables <= 1 << 23, tables)
    for shape in ("tiny", "moe-8x2"):
        file = pathlib.Path(folder, f"fp8-{shape}")
        random_fp8.write(file, shape, layers=2, shard=0.001)
        check("files of about a MiB", len([*file.glob("model-*.safetensors")]) > 1, [*file.iterdir()])
        out = result(file, "--prefill", 4, "--decode", 2)
        tables = out.get("weight_bytes", 0) - f8_bytes(random_gguf.SHAPES[shape] | {"layers": 2})
        check(f"{shape}: fp8 weights stay fp8, those of experts too", 0 <= tables <= 1 << 23, (tables, out))
    done = subprocess.run([TENON, "llm", "run", pathlib.Path(folder, "F32.gguf"), "--device", "cpu", "--raw", "--prompt", "Hi you",
                           "--tokens", "3", "--greedy"], capture_output=True, text=True)
    check("a token for each byte", done.returncode == 0 and done.stderr.startswith("6 tokens read"), done.stderr)


def content_bytes(shape, mix):
    size = 0
    for _, form, dims in random_gguf.tensors(shape, mix):
        _, elements, of_block = random_gguf.FORMATS[form]
        size += math.prod(dims) // elements * of_block
    return size


def f8_bytes(shape):
    """Of blocks of 128 numbers with a scale, and of all else in bf16."""
    size = 0
    for _, dtype, dims in random_fp8.tensors(shape):
        size += {"F8_E4M3": math.prod(dims) // 128 * 132, "BF16": 2 * math.prod(dims)}.get(dtype, 0)
    return size


def main():
    with tempfile.TemporaryDirectory() as folder:
        folders(folder)
        steps(folder)
        cache(folder)
        if random_gguf:
            random_files(folder)
    if failures:
        sys.exit(f"{len(failures)} failed")
    print("ok")


main()
