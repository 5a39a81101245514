#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""blocks.py LIBTENON [--blocks 500] [--seed 1]

The block formats of GGUF beside Python's package gguf: random bytes decode to the same bits, and numbers encode to the same
bytes where both use the same formula; the other encoders are compared by their error. Exits with 77 without gguf."""
import argparse
import ctypes
import sys

try:
    import numpy
    import gguf
    from gguf import quants
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

F32 = 1
PLAIN = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}
SAME_BYTES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16")
# Mean squared error of normal numbers of variance 1, at most.
ERRORS = {"Q2_K": 0.07, "Q3_K": 0.022, "Q4_K": 0.005, "Q5_K": 0.00125, "Q6_K": 0.0003, "IQ4_NL": 0.009, "MXFP4": 0.016}


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.tenon_status_text.restype = String
        for name in ("tenon_gguf_decode", "tenon_gguf_encode", "tenon_gguf_find_format", "tenon_gguf_format_at"):
            getattr(self.lib, name).restype = ctypes.c_void_p

    def check(self, status):
        if status:
            text = self.lib.tenon_status_text(ctypes.c_void_p(status))
            raise RuntimeError(ctypes.string_at(text.data, text.size).decode())

    def formats(self):
        for i in range(self.lib.tenon_gguf_format_count()):
            f = Format(struct_size=ctypes.sizeof(Format))
            self.check(self.lib.tenon_gguf_format_at(i, ctypes.byref(f)))
            yield f

    def decode(self, f, blocks):
        out = numpy.empty(blocks.size // f.bytes * f.elements, numpy.float32)
        self.check(self.lib.tenon_gguf_decode(f.type, pointer(blocks), ctypes.c_uint64(blocks.size), F32, pointer(out),
                                              ctypes.c_uint64(out.nbytes)))
        return out

    def encode(self, f, numbers):
        out = numpy.empty(numbers.size // f.elements * f.bytes, numpy.uint8)
        self.check(self.lib.tenon_gguf_encode(f.type, pointer(numbers), None, ctypes.c_uint64(numbers.size), pointer(out),
                                              ctypes.c_uint64(out.size)))
        return out


class String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_uint64)]


class Format(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("string", String), ("type", ctypes.c_uint32),
                ("elements", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("dtype", ctypes.c_uint16),
                ("reserved0", ctypes.c_uint16), ("decodes", ctypes.c_uint32), ("encodes", ctypes.c_uint32)]

    @property
    def name(self):
        return ctypes.string_at(self.string.data, self.string.size).decode()


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def same_bits(a, b):
    """NaN stands for NaN, whatever its bits."""
    return (a.view(numpy.uint32) == b.view(numpy.uint32)) | (numpy.isnan(a) & numpy.isnan(b))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--blocks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    lib, rng = Library(args.library), numpy.random.default_rng(args.seed)
    numpy.seterr(all="ignore")  # random scales overflow
    decoded = encoded = 0
    for f in lib.formats():
        kind = getattr(gguf.GGMLQuantizationType, f.name, None)
        if kind is None or f.name == "Q8_1":  # never in files: gguf lists the size that it had once
            continue
        size = gguf.GGML_QUANT_SIZES[kind]
        assert (f.elements, f.bytes, f.type) == (*size, kind.value), f"{f.name}: {f.elements}, {f.bytes}, {size}"
        if f.name in PLAIN and f.name != "BF16":
            continue
        if f.decodes and kind in quants._type_traits:
            blocks = rng.integers(0, 256, (args.blocks, f.bytes), dtype=numpy.uint8)
            ours, theirs = lib.decode(f, blocks), quants.dequantize(blocks, kind).astype(numpy.float32).ravel()
            same = same_bits(ours, theirs)
            assert same.all(), f"{f.name}: element {(~same).argmax()}: {ours[~same][0]!r}, gguf has {theirs[~same][0]!r}"
            decoded += 1
        numbers = rng.standard_normal((args.blocks, 256), dtype=numpy.float32)
        numbers *= numpy.exp2(rng.integers(-12, 4, (args.blocks, 1))).astype(numpy.float32)
        numbers[0] = 0
        if f.name in SAME_BYTES:
            ours, theirs = lib.encode(f, numbers), quants.quantize(numbers, kind).view(numpy.uint8).ravel()
            assert (ours == theirs).all(), f"{f.name}: byte {(ours != theirs).argmax()} of the blocks differs"
            encoded += 1
        elif f.name in ERRORS:
            numbers = rng.standard_normal(args.blocks * 256, dtype=numpy.float32)
            error = numpy.square(lib.decode(f, lib.encode(f, numbers)) - numbers).mean()
            print(f"{f.name}: mean squared error {error:.3g}")
            assert 0 < error <= ERRORS[f.name], f"{f.name}: mean squared error {error}; expected at most {ERRORS[f.name]}"
            encoded += 1
    assert decoded >= 16 and encoded == len(SAME_BYTES) + len(ERRORS), (decoded, encoded)
    print(f"{decoded} formats decode to the bits of gguf, {encoded} encoders are as expected")


main()
