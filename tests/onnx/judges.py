#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judges.py BUILD_DIR [--family NAME] [--failed]

Shows exported models to outside judges. tenon_exported_cases writes the cases of the conformance kit as ONNX models with
their inputs and outputs. onnx.checker must accept each model, and ONNX Runtime must give the same outputs; ops or dtypes
that ONNX Runtime lacks are counted, as is what it computes in another way than ONNX says (OTHER). Skipped (exit status
77) without the packages numpy, onnx and onnxruntime."""
import argparse
import collections
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
# Patterns of cases in which ONNX Runtime 1.32 computes otherwise, or refuses what ONNX allows.
OTHER = {
    "binary-div*.[iu]*": "integers divided by 0", "binary-mod*.[iu]*": "likewise", "binary-fmod*.[iu]*": "likewise",
    "binary-pow.[iu]*": "integers to negative powers", "unary-sign*.f16": "NaN",
    "log-softmax-specials*": "infinities", "arg*-nan*": "NaN", "reduce-*-specials*": "NaN",
    "reduce-l[12]-noop.f16": "the sign of NaN", "maxpool2d-known-nan*": "NaN", "resize-known-linear-skip*": "NaN of weight 0",
    "reduce-mean-empty*": "means of nothing", "reduce-mean-identity*": "likewise", "layer-norm2d-no-channels*": "likewise",
    "fused-fold-none*": "likewise", "qmatmul-none-*": "sums of nothing, which it leaves unwritten",
    "reduce-a*-identity.bool": "reductions of nothing", "reduce-m*-bool.bool": "likewise", "layer-norm-empty*": "rows of nothing",
    "matmul-no-terms-wraps.u*": "sums of nothing", "scatter-*-max-known*": "NaN",
    "reduce-prod-int*": "overflow", "reduce-sum-int*": "overflow", "reduce-sum_square-noop-int*": "overflow",
    "conv-transpose-dilation*": "output_padding of the stride or more", "conv-transpose-far*": "likewise",
    "*pool*-hole*": "padding of the kernel's length or more", "maxpool2d-integers*": "likewise", "pool-unsigned*": "likewise",
    "grid-sample-*nearest-reflection*": "mirrored more than once", "grid-sample-lost-*": "positions that are no numbers",
    "*pool2d-ceil-pads*-with-a-symbol-*": "the checker counts windows that begin in the padding",
    "resize-cubic-volume*": "cubic along three axes", "resize-known-cubic*.f32": "cubic along one axis",
    "resize-known-smooth-cubic.f32": "likewise", "resize-linear-inside*": "coordinates of a part",
}


def families(build):
    listed = subprocess.run([build / "bin" / "tenon_conform", "--list-families"], check=True, text=True, stdout=subprocess.PIPE)
    return listed.stdout.split()


def differs(got, want, name):
    import numpy
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name}: expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if want.dtype.kind != "f":
        return "" if numpy.array_equal(got, want) else f"{name}: other elements"
    limit = {"float64": 2e-6, "float32": 1e-4}.get(want.dtype.name, 1e-2)
    finite = want[numpy.isfinite(want)]
    most = max(1.0, float(numpy.abs(finite).max())) if finite.size else 1.0
    same = (got == want) | (numpy.isnan(got) & numpy.isnan(want))
    with numpy.errstate(invalid="ignore"):
        near = numpy.abs(got.astype(float) - want.astype(float)) <= limit * most
    if (same | near).all():
        return ""
    at = tuple(int(i) for i in numpy.argwhere(~(same | near))[0])
    return f"{name}{list(at)}: expected {want[at]}, got {got[at]}"


def judge(folder):
    """The verdict and a remark."""
    import numpy
    import onnx
    import onnxruntime
    try:
        onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    except Exception as e:  # the checker has several kinds of errors
        return "wrong", f"checker: {e}"
    inputs, outputs = numpy.load(folder / "inputs.npz"), numpy.load(folder / "outputs.npz")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, ["CPUExecutionProvider"])
    except Exception as e:
        text = str(e)
        return ("absent" if "NOT_IMPLEMENTED" in text or "opset 21 is under development" in text else "wrong"), text
    names = [o.name for o in session.get_outputs()]
    try:
        got = session.run(names, {i.name: inputs[i.name] for i in session.get_inputs()})
    except Exception as e:
        text = str(e)
        return ("absent" if "NOT_IMPLEMENTED" in text or "not supported" in text else "wrong"), text
    for name, y in zip(names, got):
        if text := differs(y, outputs[name], name):
            return "wrong", text
    return "pass", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--family", default="")
    parser.add_argument("--failed", action="store_true", help="list all that ONNX Runtime does not pass")
    options = parser.parse_args()
    build = options.build.resolve()
    try:
        import numpy  # noqa: F401
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(SKIP)
    onnxruntime.set_default_logger_severity(4)
    template = build / "lib" / "tenon" / "test_plugins" / "tenon_plugin_template.so"
    template = template if template.exists() else next((build / "lib" / "tenon").rglob("tenon_plugin_template.so"))
    failed = passed = 0
    unused = set(OTHER)
    for family in [options.family] if options.family else families(build):
        counts = collections.Counter()
        with tempfile.TemporaryDirectory() as work:
            subprocess.run([build / "bin" / "tenon_exported_cases", template, family], check=True,
                           env={**os.environ, "TENON_EXPORT_FOLDER": work}, stdout=subprocess.DEVNULL)
            for folder in sorted(pathlib.Path(work).iterdir()):
                word, remark = judge(folder)
                excuse = next((p for p in OTHER if word == "wrong" and fnmatch.fnmatch(folder.name, p)), None)
                if excuse:
                    word = "other"
                    unused.discard(excuse)
                counts[word] += 1
                if word == "wrong" or (options.failed and word != "pass"):
                    print(f"{word} {folder.name}: {' '.join(remark.split())[:300]}")
        print(f"{family:16} " + "  ".join(f"{counts[w]:5} {w}" for w in ("pass", "other", "absent", "wrong")))
        failed += counts["wrong"]
        passed += counts["pass"]
    for pattern in sorted(unused) if not options.family else ():
        print(f"OTHER: no case of {pattern} is computed otherwise")
        failed += 1
    sys.exit(1 if failed or not passed else 0)


main()
