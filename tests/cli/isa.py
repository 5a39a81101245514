# SPDX-License-Identifier: Apache-2.0
"""isa.py TENON: TENON_CPU_ISA caps the instruction set of the cpu plugin, and `tenon devices` shows it."""
import os, pathlib, subprocess, sys

TENON = sys.argv[1]
FLAGS = set(pathlib.Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split())
failures = 0


def expect(isa, *words):
    global failures
    said = subprocess.run([TENON, "devices"], capture_output=True, text=True, env={**os.environ, "TENON_CPU_ISA": isa}).stdout
    good = all(w in said for w in words)
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {isa}" + ("" if good else f": no {words} in\n{said}"))


if "sse4_2" not in FLAGS:
    sys.exit(77)
expect("sse4", "TENON_CPU_ISA=sse4: kernels for SSE4")
if {"avx2", "fma", "bmi2"} <= FLAGS:
    expect("avx2", "TENON_CPU_ISA=avx2: kernels for AVX2")
if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= FLAGS:
    expect("avx512", "TENON_CPU_ISA=avx512: kernels for AVX3")  # Highway's name
expect("avx3", "expected sse4, avx2, avx512 or amx, got 'avx3'", "cpu:0")
expect("", "cpu:0")
sys.exit(failures != 0)
