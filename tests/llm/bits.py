# SPDX-License-Identifier: Apache-2.0
"""The logits of a sequence on the cpu are the same bits however its prompt is cut and whoever else is served (bits.cpp).

bits.py TENON LLM_BITS sse4|avx2|avx512"""
import os, pathlib, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

TENON, BITS, ISA = sys.argv[1:]
NEEDS = {"sse4": {"sse4_2"}, "avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512vl", "avx512bw", "avx512dq"}}
FLAGS = set(pathlib.Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split())
# Products have sums of 32 to 1536 terms, more than one part of a sum; heads share keys, or have their own.
MODELS = {
    "tiny": {"context": 1024, "deviation": 0.3},
    "shared": {"hidden": 512, "heads": 8, "kv_heads": 2, "ffn": 1536},
    "own": {"hidden": 192, "heads": 3, "kv_heads": 3, "ffn": 320},
}
# The products of a format have kernels of their own; the models differ in shapes.
FORMATS = {"tiny": ["F32"], "shared": ["F32", "F16", "BF16", "Q5_0", "Q8_0", "Q4_K_M"], "own": ["F32"]}
SOME = {"tiny": ["F32"], "shared": ["F32", "Q4_K_M"]}  # with fewer lanes
failures = []


def bits(what, model, products="f32", *cache):
    what = " ".join([what, products, *cache])
    done = subprocess.run([BITS, model, products, *cache], capture_output=True, text=True, env={**os.environ, "TENON_CPU_ISA": ISA})
    print(f"{'ok ' if done.returncode == 0 else 'BAD'} {what}\n{done.stdout}{done.stderr}", end="", flush=True)
    if done.returncode != 0:
        failures.append(what)


def main():
    if not NEEDS[ISA] <= FLAGS:
        print(f"this processor has no {ISA}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as place:
        for name, shape in MODELS.items():
            folder = pathlib.Path(place, name)
            tiny_model.make(folder, **{"context": 1024, "deviation": 0.06, **shape})
            for kind in FORMATS[name] if ISA == "avx512" else SOME.get(name, []):
                file = pathlib.Path(place, "model.gguf")
                subprocess.run([TENON, "llm", "convert", folder, file, "--type", kind], check=True, capture_output=True)
                bits(f"{name} {kind}", file)
                if kind.startswith("Q"):
                    bits(f"{name} {kind}", file, "int8")
                if name == "shared" and kind in ("F32", "Q4_K_M") or name == "own":
                    bits(f"{name} {kind}", file, "f32", "q8_0")
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
