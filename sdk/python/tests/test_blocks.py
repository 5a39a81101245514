# SPDX-License-Identifier: Apache-2.0
"""Tensors of blocks: how they are made, shown and refused, and what the ops of family dequant make of them."""

import struct
import unittest

import numpy as np

import tenon
from tenon import DType, ops


def q8_0(levels, scale):
    """Rows of 32 levels each, all with this scale, as blocks of q8_0."""
    levels = np.asarray(levels, np.int8).reshape(-1, 32)
    return b"".join(struct.pack("<e", scale) + row.tobytes() for row in levels)


class Blocks(unittest.TestCase):
    def test_numbers_names_and_sizes(self):
        self.assertEqual(DType.of("q4_k").value, 0x10C)
        self.assertEqual((DType.of("f8e4m3_128").value, DType.f8e4m3_128.block), (0x180, (128, 132)))
        self.assertEqual((DType.q4_k.block, DType.q4_k.bits, DType.f32.block), ((256, 144), 0, None))
        self.assertEqual(repr(DType.q8_0), "tenon.DType.q8_0")
        with self.assertRaisesRegex(tenon.Unsupported, "q8_0: it consists of blocks"):
            DType.q8_0.numpy

    def test_borrows_bytes(self):
        data = bytearray(q8_0(np.arange(128), 0.5))
        w = tenon.blocks(data, "q8_0", (2, 64))
        self.assertEqual((w.dtype, w.shape, w.nbytes, w.size), (DType.q8_0, (2, 64), 136, 128))
        self.assertEqual(repr(w), "tenon.Tensor(q8_0[2,64], cpu)")
        with self.assertRaisesRegex(BufferError, "blocks of q8_0"):
            memoryview(w)
        with self.assertRaisesRegex(BufferError, "q8_0"):
            w.__dlpack__()
        for bad, shape, why in [
            (data, (64, 2), "multiple of 32"),
            (data[:-1], (2, 64), "136 bytes, got 135"),
            (data, (), "multiple of 32"),
        ]:
            with self.assertRaisesRegex(tenon.ShapeMismatch, why):
                tenon.blocks(bad, "q8_0", shape)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "expected a dtype of blocks"):
            tenon.blocks(data, "f32", (2, 17))

    def test_fp8(self):
        codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
        codes[:, 127] = 0  # in place of NaN
        w = tenon.blocks(b"".join(struct.pack("<f", 0.5) + row.tobytes() for row in codes), "f8e4m3_128", (2, 128))
        exponent, mantissa = codes >> 3 & 15, codes & 7
        sizes = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
        whole = (0.5 * np.where(codes < 128, sizes, -sizes)).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(ops.dequantize_blocks(w)), whole)

    def test_products_and_rows(self):
        levels = (np.arange(128).reshape(2, 64) * 37 + 11) % 256 - 128
        w = tenon.blocks(q8_0(levels, 0.25), "q8_0", (2, 64))
        x = np.linspace(-1, 1, 192, dtype=np.float32).reshape(3, 64)
        whole = (levels * 0.25).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(ops.dequantize_blocks(w)), whole)
        np.testing.assert_array_equal(np.asarray(ops.dequant_rows(w, np.array([1, -2]))), whole[[1, 0]])
        np.testing.assert_allclose(np.asarray(ops.dequant_matmul(x, w)), x @ whole.T, rtol=1e-4, atol=1e-4)
        near = np.asarray(ops.dequant_matmul(x, w, compute="int8"))
        np.testing.assert_allclose(near, x @ whole.T, atol=1)
        with self.assertRaisesRegex(tenon.DtypeMismatch, "q8_0"):
            ops.transpose(w)


if __name__ == "__main__":
    unittest.main()
