# SPDX-License-Identifier: Apache-2.0
"""One instruction set for both sides of a comparison, at most: for figures that hold for other processors than this one."""
import os

# PyTorch's own loops, oneDNN and MKL each read a variable of their own.
CAPS = {
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def add_option(parser):
    parser.add_argument("--isa", choices=list(CAPS), help="let both sides use at most this instruction set")


def cap(isa):
    """Caps this process, before it loads a library, and those that it starts. Returns the words for a title."""
    if not isa:
        return ""
    os.environ.update(CAPS[isa], TENON_CPU_ISA=isa)
    return f", at most {isa}"
