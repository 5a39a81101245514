#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""8-bit models of ONNX beside ONNX Runtime and beside their floats, on one machine in one run.

quantized_models.py LIBTENON MODEL.onnx:DIMS... [--rounds 5] [--threads 2] [--seconds 1] [--device cpu:0]
MODEL.onnx has one input of f32; DIMS is its shape, as in det.onnx:1,3,320,320. The model becomes one of 8 bits with
`dequantize` and `quantize` around its products (quantize_static of onnxruntime: u8 activations, i8 weights per channel,
ranges from four random inputs). Each round times both models in ONNX Runtime and in tenon by turns. A ratio is a time of
tenon over that of ONNX Runtime, or of 8 bits over floats in tenon: the median of the rounds. "apart": the largest
difference of the first outputs of both 8-bit runs, through their largest number. Needs onnxruntime, onnx and NumPy."""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "peers"))


class Draws:
    """Inputs for the ranges, as onnxruntime asks for them."""

    def __init__(self, name, dims, numpy):
        random = numpy.random.default_rng(0)
        self.left = [{name: random.uniform(-1, 1, dims).astype(numpy.float32)} for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantized(path, name, dims, folder, numpy, onnx):
    """The files of the model in floats and in 8 bits."""
    from onnxruntime.quantization import QuantFormat, QuantType, quant_pre_process, quantize_static
    model = onnx.load(path)
    least = 13  # the first opset with a scale per channel
    if model.opset_import[0].version < least:
        model = onnx.version_converter.convert_version(model, 17)
    given, floats, bytes_ = (str(folder / f"{path.stem}_{part}.onnx") for part in ("given", "floats", "bytes"))
    onnx.save(model, given)
    quant_pre_process(given, floats, skip_symbolic_shape=True)
    quantize_static(floats, bytes_, Draws(name, dims, numpy), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return floats, bytes_


def median_of(run, seconds):
    run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--device", default="cpu:0")
    options = parser.parse_args()
    import numpy
    import onnx
    import onnx.version_converter
    import onnxruntime
    import binding
    tenon = binding.Tenon(options.library, options.threads)
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads, session_options.inter_op_num_threads = options.threads, 1
    session_options.log_severity_level = 4
    print(f"onnxruntime {onnxruntime.__version__}, {options.threads} threads, {options.rounds} rounds")
    print(f"{'model':32}{'bytes/ORT':>10}{'floats/ORT':>11}{'bytes/floats':>13}{'ORT bytes':>11}{'apart':>9}")
    for text in options.models:
        file, _, dims = text.rpartition(":")
        path, dims = pathlib.Path(file), [int(d) for d in dims.split(",")]
        name = onnx.load(path, load_external_data=False).graph.input[0].name
        feed = {name: numpy.random.default_rng(1).uniform(-1, 1, dims).astype(numpy.float32)}
        with tempfile.TemporaryDirectory() as folder:
            runs = []
            for part in quantized(path, name, dims, pathlib.Path(folder), numpy, onnx):
                session = onnxruntime.InferenceSession(part, session_options, providers=["CPUExecutionProvider"])
                model = tenon.load(part, device=options.device)
                runs += [lambda s=session: s.run(None, feed)[0], lambda m=model: next(iter(m.run(feed).values()))]
            theirs, ours = runs[2](), runs[3]()
            apart = abs(theirs.astype(float) - ours).max() / max(abs(theirs.astype(float)).max(), 1e-30)
            ratios = []
            for _ in range(options.rounds):
                t = [median_of(run, options.seconds) for run in runs]  # floats of both, then bytes of both
                ratios.append((t[3] / t[2], t[1] / t[0], t[3] / t[1], t[2]))
        byte, floats, gain, milliseconds = (statistics.median(r) for r in zip(*ratios))
        print(f"{path.stem[:31]:32}{byte:10.2f}{floats:11.2f}{gain:13.2f}{milliseconds * 1e3:8.2f} ms{apart:9.1e}", flush=True)


if __name__ == "__main__":
    main()
