# SPDX-License-Identifier: Apache-2.0
"""language.py TENON STUBS: the cache of keys and values of a language model on a GPU. With several sequences it is a pool of
blocks, which attention reads in place: no step copies keys, and no step launches more kernels than with memory of each
sequence. With one sequence that memory stays. An older GPU has kernels for this as well."""
import collections, json, os, pathlib, subprocess, sys, tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import tiny_model

TENON, STUBS = sys.argv[1:3]
failures = 0


def check(good, what, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {what}{'' if good else f': {said}'}")


def bench(model, settings, *options):
    """Tokens of a block of the cache, and the launches of decoding."""
    launches = pathlib.Path(model, "launches")
    launches.unlink(missing_ok=True)
    env = dict(os.environ, TENON_CUDA_PATH=f"{STUBS}/all", TENON_CUDA_CACHE="", TENON_STUB_CUDA=settings,
               TENON_STUB_LAUNCHES=str(launches))
    done = subprocess.run([TENON, "llm", "bench", model, "--device", "cuda:0", "--prefill", "0", "--repeat", "1", "--context", "300",
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


with tempfile.TemporaryDirectory() as folder:
    tiny_model.make(folder)
    for settings in ("major=9,minor=0,shared=232448,processors=132,emulate=0", "major=7,minor=5,shared=65536,processors=40,emulate=0"):
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
