# SPDX-License-Identifier: Apache-2.0
"""A cache of keys and values in q8_0 on the cpu: logits next to those of a cache of f32, memory, and what is refused.

cache.py LLM_PROBE TENON"""
import array, json, pathlib, re, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

PROBE, TENON = sys.argv[1:]
IDS = [(i * i * 7 + i * 31) % 256 for i in range(240)]
# A level of q8_0 is rounded by up to half a step, which is the largest number of the block / 127. Of 32 normal numbers the
# largest is at about 2.1 times their deviation, so the error has (2.1 / 127)^2 / 12 = 2.3e-5 of their energy. Both keys and
# values have it in each layer, and the norms pass it on: a few times this much reaches the logits.
LARGEST = 1e-3
failures = []


def check(what, good, *seen):
    print(f"{'ok ' if good else 'BAD'} {what}", *seen if not good else [], flush=True)
    if not good:
        failures.append(what)


def probe(folder, mode, cache, *more):
    place = pathlib.Path(folder).parent
    (place / "ids").write_text(" ".join(map(str, IDS)))
    out = place / "logits"
    subprocess.run([PROBE, folder, place / "ids", out, "cpu", *mode, "--cache", cache, "--products", "f32", *more], check=True)
    return array.array("f", out.read_bytes())


def error(got, wanted):
    """Of the energy of the wanted numbers."""
    return sum((a - b) ** 2 for a, b in zip(got, wanted)) / sum(b * b for b in wanted)


def logits(folder, what):
    wanted, half, got = (probe(folder, ["prefill"], cache) for cache in ("f32", "f16", "q8_0"))
    check(f"{what}: as many logits", len(got) == len(wanted) == len(IDS) * 262, len(got))
    of_half, of_blocks = error(half, wanted), error(got, wanted)
    print(f"    {what}: errors {of_half:.2g} of f16, {of_blocks:.2g} of q8_0")
    check(f"{what}: logits with q8_0 are near those with f32", of_blocks <= LARGEST, of_blocks)
    check(f"{what}: the cache is rounded", of_blocks > 3 * of_half, of_blocks, of_half)
    check(f"{what}: one by one", probe(folder, ["decode"], "q8_0") == got)
    check(f"{what}: among others", probe(folder, ["company"], "q8_0") == got)


def memory(folder):
    trace = pathlib.Path(folder).parent / "trace.json"
    sizes = {}
    for dtype in ("f16", "q8_0"):
        subprocess.run([TENON, "llm", "bench", folder, "--device", "cpu", "--prefill", "4", "--decode", "0", "--context", "96",
                        "--repeat", "1", "--cache", dtype, "--trace", trace], check=True, capture_output=True)
        fills = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("name") == "fill cache.0.v"]
        sizes[dtype] = fills[0]["args"]["bytes"]
    check("34 bytes hold 32 numbers", sizes == {"f16": 96 * 2 * 32 * 2, "q8_0": 96 * 2 * 34}, sizes)


def text(folder):
    run = [TENON, "llm", "run", folder, "--device", "cpu", "--prompt", "Hello", "--tokens", "8", "--greedy", "--cache", "q8_0"]
    first, second = (subprocess.run(run, capture_output=True, text=True) for _ in range(2))
    check("a text", first.returncode == 0 and first.stdout == second.stdout, first.stdout, first.stderr)
    check("its tokens", re.search(r"8 tokens generated", first.stderr), first.stderr)


def refused(place):
    folder = tiny_model.make(place / "narrow")  # heads of 8 numbers
    done = subprocess.run([TENON, "llm", "run", folder, "--device", "cpu", "--prompt", "Hi", "--tokens", "1", "--cache", "q8_0"],
                          capture_output=True, text=True)
    check("heads that are no multiple of 32 are refused",
          done.returncode == 1 and "head_dim" in done.stderr and "q8_0, got 8" in done.stderr, done.stderr)
    (folder / "config.json").write_text(json.dumps({"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 262}))
    for cache in ["bench", "--prefill", "4"], ["run", "--prompt", "Hi"]:
        done = subprocess.run([TENON, "llm", cache[0], folder, "--device", "cpu", *cache[1:], "--cache", "q8_0"], capture_output=True, text=True)
        check(f"a model without keys and values: {cache[0]}",
              done.returncode == 1 and "(--cache)" in done.stderr and "'mamba' has none" in done.stderr, done.stderr)
    done = subprocess.run([TENON, "llm", "run", folder, "--device", "cpu", "--prompt", "Hi", "--compute", "q8_0"],
                          capture_output=True, text=True)
    check("activations have no blocks", done.returncode == 2 and "--compute" in done.stderr, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        folder = tiny_model.make(place / "model", hidden=128, heads=4, kv_heads=2, ffn=96, deviation=0.1)
        logits(folder, "heads of 32")
        memory(folder)
        text(folder)
        wide = tiny_model.make(place / "wide", hidden=192, heads=2, kv_heads=1, ffn=96, deviation=0.1)
        config = json.loads((wide / "config.json").read_text())
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 50}
        (wide / "config.json").write_text(json.dumps(config))
        logits(wide, "heads of 96, a window")
        refused(place)
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
