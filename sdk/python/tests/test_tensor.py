# SPDX-License-Identifier: Apache-2.0
"""Tensors: no copy in either direction, all dtypes, what is refused and why."""

import unittest

import numpy as np
import programs

import tenon
from tenon import DType


class NumPy(unittest.TestCase):
    def test_borrows_and_lends_the_same_memory(self):
        for dtype in "float32 float16 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split():
            with self.subTest(dtype):
                a = np.arange(12).reshape(3, 4).astype(dtype)
                t = tenon.asarray(a)
                self.assertEqual(t.data_ptr, a.ctypes.data)
                self.assertEqual((t.shape, t.strides, t.dtype.numpy), ((3, 4), (4, 1), a.dtype))
                back = t.numpy()
                self.assertEqual(back.ctypes.data, a.ctypes.data)
                self.assertEqual(back.dtype, a.dtype)
                np.testing.assert_array_equal(back, a)
                self.assertEqual(np.asarray(t).ctypes.data, a.ctypes.data)

    def test_a_change_is_seen_on_both_sides(self):
        a = np.zeros(3, np.float32)
        t = tenon.asarray(a)
        a[1] = 5
        self.assertEqual(t.tolist(), [0, 5, 0])
        t.numpy()[2] = 7
        self.assertEqual(a[2], 7)

    def test_strides_and_read_only_memory_stay_what_they_are(self):
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        t = tenon.asarray(a.T)
        self.assertFalse(t.contiguous)
        self.assertEqual(t.strides, (1, 4))
        np.testing.assert_array_equal(t.numpy(), a.T)
        np.testing.assert_array_equal(tenon.tensor(a.T).numpy(), a.T)
        np.testing.assert_array_equal(tenon.tensor(a[::-1, 1::2]).numpy(), a[::-1, 1::2])
        self.assertTrue(tenon.tensor(a.T).contiguous)
        a.flags.writeable = False
        t = tenon.asarray(a)
        self.assertTrue(t.readonly)
        self.assertFalse(t.numpy().flags.writeable)
        with self.assertRaises(BufferError):
            t.__dlpack__()
        t.__dlpack__(max_version=(1, 0))

    def test_empty_tensors_and_tensors_without_dims(self):
        for shape in [(0,), (2, 0, 3), ()]:
            a = np.ones(shape, np.float32)
            np.testing.assert_array_equal(tenon.asarray(a).numpy(), a)
            np.testing.assert_array_equal(tenon.tensor(a).numpy(), a)
        self.assertEqual(float(tenon.tensor(2.5)), 2.5)
        self.assertEqual(tenon.tensor(2.5).dtype, tenon.f32)
        self.assertEqual(int(tenon.tensor(3)), 3)
        self.assertEqual(tenon.tensor([[1, 2]], "f16").tolist(), [[1, 2]])

    def test_tensor_copies(self):
        a = np.ones(3, np.float32)
        t = tenon.tensor(a)
        a[:] = 2
        self.assertEqual(t.tolist(), [1, 1, 1])
        self.assertEqual(t.data_ptr % 64, 0)

    def test_other_buffers(self):
        import array

        t = tenon.asarray(array.array("d", [1, 2]))
        self.assertEqual((t.dtype, t.tolist()), (tenon.f64, [1, 2]))
        self.assertEqual(tenon.asarray(b"ab").tolist(), [97, 98])
        self.assertTrue(tenon.asarray(b"ab").readonly)
        self.assertEqual(tenon.asarray(memoryview(bytearray(b"abcd"))[::2]).tolist(), [97, 99])

    def test_dtypes_of_ml_dtypes(self):
        ml = programs.ml_dtypes_or_skip()
        for dtype, ours in [
            (ml.bfloat16, tenon.bf16),
            (ml.float8_e4m3fn, tenon.f8e4m3),
            (ml.float8_e5m2, tenon.f8e5m2),
        ]:
            a = np.array([1, -2, 0.5], dtype)
            t = tenon.asarray(a)
            self.assertEqual((t.dtype, t.data_ptr), (ours, a.ctypes.data))
            self.assertEqual(t.numpy().dtype, a.dtype)
            self.assertEqual(t.numpy().ctypes.data, a.ctypes.data)
            self.assertEqual(np.asarray(t).dtype, a.dtype)
            with self.assertRaises(BufferError):
                memoryview(t)
        with self.assertRaisesRegex(tenon.Unsupported, "int4 has a byte per element"):
            tenon.asarray(np.zeros(2, ml.int4))

    def test_what_is_refused(self):
        refused = [
            (np.array([1, 2], ">f4"), tenon.DtypeMismatch, "bytes in the other order"),
            (np.array([1 + 2j], np.clongdouble), tenon.DtypeMismatch, "no dtype in tenon"),
            (np.array(["a"]), tenon.DtypeMismatch, "no dtype in tenon"),
            (np.zeros(1, "f4,i4"), tenon.DtypeMismatch, "no dtype in tenon"),
            (np.zeros([1] * 9, np.float32), tenon.Unsupported, "rank 9; expected 0 to 8"),
            (np.zeros(2, "f4,i1")["f0"], tenon.Unsupported, "stride of 5 bytes"),
            (object(), tenon.InvalidArgument, "got an object of type object"),
            ([1.0], tenon.InvalidArgument, "numpy.asarray"),
        ]
        for data, error, text in refused:
            with self.subTest(text), self.assertRaisesRegex(error, text):
                tenon.asarray(data)
        with self.assertRaisesRegex(tenon.Unsupported, "two elements per byte"):
            tenon.i4.numpy
        with self.assertRaisesRegex(tenon.DtypeMismatch, "no such dtype"):
            DType.of("float128x")
        with self.assertRaisesRegex(tenon.ShapeMismatch, "negative"):
            tenon.empty([-1])
        with self.assertRaises(tenon.Error):
            tenon.empty([1 << 40, 1 << 40])

    def test_dtypes_by_their_names(self):
        for name in ("f32", "float32", np.float32, np.dtype("float32"), tenon.f32):
            self.assertIs(DType.of(name), tenon.f32)
        self.assertEqual([str(d) for d in DType][:4], ["f32", "f16", "bf16", "f64"])
        self.assertEqual((tenon.bf16.bits, tenon.i4.bits, repr(tenon.bf16)), (16, 4, "tenon.bf16"))

    def test_text(self):
        self.assertEqual(repr(tenon.tensor([1.0, 2.0])), "tenon.Tensor(f32[2], cpu, [1., 2.])")
        self.assertIn("f32[2,2], cpu,\n", repr(tenon.tensor([[1.0, 2], [3, 4]])))
        self.assertIn("tenon.Tensor(i64[1000]", repr(tenon.tensor(np.arange(1000))))

    def test_indices_and_lengths(self):
        t = tenon.tensor(np.arange(6).reshape(2, 3))
        self.assertEqual((len(t), t[1].tolist(), int(t[1, 2]), t.size, t.nbytes, t.ndim), (2, [3, 4, 5], 5, 6, 48, 2))
        self.assertEqual(t[1].data_ptr, t.data_ptr + 24)
        with self.assertRaises(TypeError):
            len(tenon.tensor(1))
        with self.assertRaisesRegex(tenon.InvalidArgument, "one element, got 6"):
            t.item()


class PyTorch(unittest.TestCase):
    def setUp(self):
        self.torch = programs.torch_or_skip()

    def test_borrows_and_lends_the_same_memory(self):
        torch = self.torch
        for dtype in "float32 float16 bfloat16 float64 int8 int16 int32 int64 uint8 bool complex64 complex128".split():
            with self.subTest(dtype):
                a = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
                t = tenon.asarray(a)
                self.assertEqual(t.data_ptr, a.data_ptr())
                self.assertIs(t.dtype, DType.of(a.dtype))
                back = t.torch()
                self.assertEqual(back.data_ptr(), a.data_ptr())
                self.assertTrue(torch.equal(back, a))

    def test_a_tensor_with_gradient_is_refused_by_torch(self):
        with self.assertRaisesRegex((tenon.InvalidArgument, RuntimeError), "require"):
            tenon.asarray(self.torch.ones(2, requires_grad=True))

    def test_strides(self):
        a = self.torch.arange(6.0).reshape(2, 3).T
        self.assertEqual(tenon.asarray(a).strides, (1, 3))
        with self.assertRaisesRegex(tenon.Unsupported, "strides"):
            programs.double((3, 2))(a)

    def test_runs(self):
        x = self.torch.arange(4.0)
        y = programs.double()(x)
        self.assertEqual(y.torch().tolist(), [0, 2, 4, 6])
        self.assertEqual(y.torch().data_ptr(), y.data_ptr)
        x = self.torch.tensor([1, 2.5], dtype=self.torch.bfloat16)
        y = programs.double((2,), "bf16")(x).torch()
        self.assertEqual((y.dtype, y.tolist()), (self.torch.bfloat16, [2, 5]))


if __name__ == "__main__":
    unittest.main()
