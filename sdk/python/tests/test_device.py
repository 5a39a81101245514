# SPDX-License-Identifier: Apache-2.0
"""Tensors and models on cuda:0: a GPU, or the stub of one that TENON_CUDA_PATH names."""

import unittest

import numpy as np
import programs

import tenon

SIZES = (4, 100_000)


def has_cuda():
    return any(d.id == "cuda:0" and not d.reason for d in tenon.devices())


class Producer:
    """Gives a tensor by DLPack alone, and notes what it was asked."""

    def __init__(self, tensor):
        self.tensor, self.asked = tensor, {}

    def __dlpack__(self, **options):
        self.asked = options
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@unittest.skipUnless(has_cuda(), "needs a GPU or its stub")
class Cuda(unittest.TestCase):
    def test_tensors_move(self):
        for size in SIZES:
            x = np.arange(size, dtype=np.float32)
            t = tenon.tensor(x).to("cuda:0")
            self.assertEqual((t.device, t.__dlpack_device__(), t.shape), ("cuda:0", (2, 0), (size,)))
            self.assertIs(t.to("cuda:0"), t)
            np.testing.assert_array_equal(t.to("cpu").numpy(), x)
            self.assertEqual(t.tolist(), x.tolist())
            self.assertIn("cuda:0", repr(t))
            for read in (t.numpy, lambda: np.asarray(t), lambda: memoryview(t)):
                with self.assertRaisesRegex((tenon.InvalidArgument, BufferError), r'to\("cpu"\)'):
                    read()

    def test_runs(self):
        for size in SIZES:
            m = programs.double((size,)).to("cuda:0")
            x = np.arange(size, dtype=np.float32)
            held = [m(x + k) for k in range(5)]
            again = m(held[2])
            self.assertEqual(again.device, "cuda:0")
            for k, y in enumerate(held):
                np.testing.assert_array_equal(y.to("cpu").numpy(), 2 * (x + k))
            np.testing.assert_array_equal(again.to("cpu").numpy(), 4 * (x + 2))
            out = np.zeros(size, np.float32)
            m(held[1], out=out)
            np.testing.assert_array_equal(out, 4 * (x + 1))

    def test_producers_are_told_the_stream(self):
        for size in SIZES:
            x = np.arange(size, dtype=np.float32)
            producer = Producer(tenon.tensor(x).to("cuda:0"))
            self.assertEqual(tenon.asarray(producer).data_ptr, producer.tensor.data_ptr)
            y = programs.double((size,)).to("cuda:0")(producer)
            np.testing.assert_array_equal(y.to("cpu").numpy(), 2 * x)
            self.assertGreater(producer.asked["stream"], 2)

    def test_the_wrong_device_is_refused(self):
        for size in SIZES:
            t = tenon.tensor(np.ones(size, np.float32)).to("cuda:0")
            for x in (t, Producer(t)):
                with self.assertRaisesRegex(tenon.InvalidArgument, "it is on cuda:0, which the model does not use.*hint"):
                    programs.double((size,))(x)

    def test_pytorch(self):
        torch = programs.torch_or_skip()
        if not torch.cuda.is_available():
            self.skipTest("needs a GPU")
        m = programs.double((100_000,)).to("cuda:0")
        x = torch.arange(100_000.0, device="cuda")
        self.assertEqual(tenon.asarray(x).data_ptr, x.data_ptr())
        y = m(x)
        self.assertEqual(y.torch().data_ptr(), y.data_ptr)
        self.assertTrue(torch.equal(y.torch(), 2 * x))
        for k in range(20):  # each in the order of PyTorch's stream
            x.add_(1)
            self.assertTrue(torch.equal(m(x).torch(), 2 * x), k)


if __name__ == "__main__":
    unittest.main()
