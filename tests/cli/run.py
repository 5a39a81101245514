# SPDX-License-Identifier: Apache-2.0
"""run.py TENON: tenon run on ONNX files, graph files, arrays and pictures, and what is wrong with them. The files are made here,
byte by byte; NumPy, where it is installed, reads and writes arrays too."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

TENON = sys.argv[1]
CPU = ["--device", "cpu"]
failures = 0
sys.path.pop(0)  # this folder, whose inspect.py NumPy would take for Python's own
try:
    import numpy
except ImportError:
    numpy = None


def run(*words):
    return subprocess.run([TENON, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=3600)


def check(name, good, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": {said}"))


def expect(name, done, status, *words):
    said = done.stdout + done.stderr
    missing = [w for w in words if w not in said]
    check(name, done.returncode == status and not missing, f"status {done.returncode}, expected {status}; missing {missing}; said:\n{said[:1500]}")
    return done


# ---- Files


def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7F | 0x80])
        v >>= 7
    return out + bytes([v])


def field(number, value):
    """A number, or bytes: text or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


FLOAT, INT64 = 1, 7


def tensor(name, dims, values, element=FLOAT):
    raw = struct.pack(f"<{len(values)}{'f' if element == FLOAT else 'q'}", *values)
    return b"".join(field(1, d) for d in dims) + field(2, element) + field(8, name) + field(9, raw)


def value(name, dims, element=FLOAT):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


def node(op, inputs, outputs, name="", domain=""):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op) +
            (field(7, domain) if domain else b""))


def model(nodes, inputs, outputs, tensors=()):
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in tensors) +
             b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def affine(dims=(2, 3)):
    """y = x * w + b, with w = 1 2 3 and b = 0.5"""
    return model([node("Mul", "xw", "p", "scale"), node("Add", "pb", "y", "shift")], [value("x", dims)], [value("y", dims)],
                 [tensor("w", [3], [1, 2, 3]), tensor("b", [1], [0.5])])


def npy(descr, dims, values, code):
    shape = "(" + "".join(f"{d}, " for d in dims) + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{code}", *values)


def read_npy(path):
    """dtype, shape and the bytes"""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack_from("<H", data, 8)
    header = eval(data[10:10 + size])  # a literal that tenon wrote
    return header["descr"], header["shape"], data[10 + size:]


def png(width, height, pixels, color=2, depth=8, more=b""):
    """pixels: bytes of all rows. color: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA"""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = len(pixels) // height
    lines = b"".join(b"\0" + pixels[y * row:(y + 1) * row] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)) + more +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def palette(*colors):
    data = b"".join(bytes(c) for c in colors)
    return struct.pack(">I", len(data)) + b"PLTE" + data + struct.pack(">I", zlib.crc32(b"PLTE" + data))


# ---- Cases


def arrays(work):
    path, x = work / "affine.onnx", work / "x.npy"
    path.write_bytes(affine())
    x.write_bytes(npy("<f4", [2, 3], [1, 1, 1, 2, 2, 2], "f"))
    done = expect("a model on an array", run("run", path, "--input", f"x={x}", "--output", work / "out", *CPU), 0,
                  "f32[2,3]", "x.npy", "min 1.5, max 6.5, mean 3.5", "first run")
    check("inputs, outputs and the time are listed", re.search(r"^input +x .*^output +y .*^time ", done.stdout, re.M | re.S), done.stdout)
    out = work / "out" / "y.npy"
    check("the output is stored", read_npy(out) == ("<f4", (2, 3), struct.pack("<6f", 1.5, 2.5, 3.5, 2.5, 4.5, 6.5)), read_npy(out))
    check("nothing but the output is stored", [p.name for p in (work / "out").iterdir()] == ["y.npy"])
    expect("the only input needs no name", run("run", path, "--input", x, *CPU), 0, "max 6.5")
    f8 = work / "x8.npy"
    f8.write_bytes(npy("<f8", [2, 3], [1, 1, 1, 2, 2, 2], "d"))
    expect("doubles become floats, and it is said", run("run", path, "--input", f8, *CPU), 0, "converted from f64", "max 6.5")
    expect("zeros", run("run", path, "--input", "x=zeros", *CPU), 0, "min 0.5, max 0.5, mean 0.5")
    drawn = [run("run", path, *CPU, *more).stdout for more in ([], [], ["--seed", "2"])]
    drawn = [re.search(r"^output.*", d, re.M)[0] for d in drawn]
    check("random inputs depend on the seed alone", drawn[0] == drawn[1] != drawn[2], drawn)
    expect("many runs", run("run", path, "--repeat", "5", *CPU), 0, "then median", "of 4 runs")
    if numpy is None:
        return print("skipped: no numpy")
    numpy.savez_compressed(work / "x.npz", x=numpy.full((2, 3), 2, "f4"))
    expect("an archive gives all inputs that it names", run("run", path, "--input", work / "x.npz", *CPU), 0, "max 6.5")
    expect("an archive by the input's name", run("run", path, "--input", f"x={work / 'x.npz'}", *CPU), 0, "max 6.5")
    stored = numpy.load(out)
    check("NumPy reads the output", stored.dtype == numpy.float32 and stored[1, 2] == 6.5, stored)


def symbols(work):
    path = work / "rows.onnx"
    path.write_bytes(affine(["N", 3]))
    x = work / "x.npy"
    expect("a file gives a symbol its number", run("run", path, "--input", x, *CPU), 0, "f32[2,3]", "max 6.5")
    expect("--bind gives one to random inputs", run("run", path, "--bind", "N=4", *CPU), 0, "f32[4,3]")
    expect("a symbol without a number", run("run", path, *CPU), 2, "input 'x' f32[N,3]", "expected --bind N=N")
    expect("a symbol that is not there", run("run", path, "--bind", "M=4", *CPU), 2, "no symbol 'M'")
    expect("a number that the file contradicts", run("run", path, "--bind", "N=4", "--input", x, *CPU), 1, "expected f32[N,3] with N=4, got f32[2,3]")
    report = json.loads(run("inspect", path, "--bind", "N=4", "--json", *CPU).stdout)
    check("inspect lists the nodes of the model", any("shift" in n["name"] or "scale" in n["name"] for n in report["nodes"]), report["nodes"])
    timed = json.loads(run("bench", path, "--bind", "N=4", "--seconds", "0.05", "--no-ceilings", "--json", *CPU).stdout)
    check("bench times the model", timed[0]["runs"] >= 3 and timed[0]["name"] == str(path), timed)


def compares(work):
    path, data = work / "affine.onnx", work / "data"
    for number, scale in ((0, 1), (1, 2)):
        folder = data / f"test_data_set_{number}"
        folder.mkdir(parents=True)
        (folder / "input_0.pb").write_bytes(tensor("", [2, 3], [scale] * 6))
        (folder / "output_0.pb").write_bytes(tensor("y", [2, 3], [scale * w + 0.5 for w in (1, 2, 3)] * 2))
    expect("stored outputs that are equal", run("run", path, "--compare", data, *CPU), 0, "test_data_set_0", "test_data_set_1", "all outputs of 2 sets are equal")
    expect("one set", run("run", path, "--compare", data / "test_data_set_1", *CPU), 0, "all outputs of 1 set are equal")
    wrong = data / "test_data_set_1" / "output_0.pb"
    wrong.write_bytes(tensor("y", [2, 3], [2.5, 4.5, 6.5, 2.5, 4.501, 6.6]))
    expect("a stored output that differs", run("run", path, "--compare", data, *CPU), 1, "DIFFERS", "1 of 6 numbers differ", "[1,2]: expected 6.6, got 6.5",
           "1 output differs")
    expect("tolerances", run("run", path, "--compare", data, "--rtol", "0", "--atol", "1e-6", *CPU), 1, "2 of 6 numbers differ", "[1,2]")
    expect("a wide tolerance", run("run", path, "--compare", data, "--atol", "0.2", *CPU), 0, "are equal")
    wrong.write_bytes(tensor("y", [6], [0] * 6))
    expect("a stored output of another shape", run("run", path, "--compare", data, *CPU), 1, "expected f32[6], got f32[2,3]")
    wrong.write_bytes(tensor("y", [2, 3], [float("nan")] * 6))
    expect("NaN where a number is", run("run", path, "--compare", data, *CPU), 1, "6 of 6 numbers differ")
    wrong.rename(wrong.with_name("output_1.pb"))
    expect("a file that is left out", run("run", path, "--compare", data, *CPU), 1, "expected output_0.pb")
    expect("a folder without outputs", run("run", path, "--compare", work / "out", *CPU), 1, "has no stored outputs")
    expect("a folder that is not there", run("run", path, "--compare", work / "none", *CPU), 1, "none")


def pictures(work):
    path = work / "picture.onnx"
    path.write_bytes(model([node("Identity", "x", "y")], [value("x", [1, 3, 2, 2])], [value("y", [1, 3, 2, 2])]))
    rgb = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 51, 102, 153])  # red, green, blue and a mixture

    def seen(data, *more, model=path):
        (work / "p.png").write_bytes(data)
        done = run("run", model, "--input", f"x={work / 'p.png'}", "--output", work / "pixels", *CPU, *more)
        if done.returncode != 0:
            return done.stderr
        raw = read_npy(work / "pixels" / "y.npy")[2]
        return [round(v, 3) for v in struct.unpack(f"<{len(raw) // 4}f", raw)]

    planes = [1, 0, 0, 0.2, 0, 1, 0, 0.4, 0, 0, 1, 0.6]
    check("RGB", seen(png(2, 2, rgb)) == planes, seen(png(2, 2, rgb)))
    check("BGR", seen(png(2, 2, rgb), "--channels", "bgr") == planes[8:] + planes[4:8] + planes[:4])
    check("scale, mean and deviation", seen(png(2, 2, rgb), "--scale", "1", "--mean", "0,55,5", "--std", "1,2,0.5") ==
          [255, 0, 0, 51, -27.5, 100, -27.5, 23.5, -10, -10, 500, 296], seen(png(2, 2, rgb), "--scale", "1", "--mean", "0,55,5", "--std", "1,2,0.5"))
    rgba = b"".join(rgb[i:i + 3] + b"\x80" for i in range(0, 12, 3))
    check("alpha is dropped", seen(png(2, 2, rgba, color=6)) == planes)
    deep = b"".join(bytes([v, v]) for v in rgb)
    check("16 bits", seen(png(2, 2, deep, depth=16)) == planes, seen(png(2, 2, deep, depth=16)))
    check("grey", seen(png(2, 2, bytes([0, 51, 102, 255]), color=0)) == [0, 0.2, 0.4, 1] * 3)
    colors = palette((255, 0, 0), (0, 255, 0), (0, 0, 255), (51, 102, 153))
    check("a palette of two bits", seen(png(2, 2, bytes([0b00010000, 0b10110000]), color=3, depth=2, more=colors)) == planes)
    last = work / "last.onnx"
    last.write_bytes(model([node("Identity", "x", "y")], [value("x", [1, "H", "W", 3])], [value("y", [1, "H", "W", 3])]))
    check("channels last, with symbols", seen(png(2, 2, rgb), model=last) == [round(v / 255, 3) for v in rgb], seen(png(2, 2, rgb), model=last))
    one = work / "grey.onnx"
    one.write_bytes(model([node("Identity", "x", "y")], [value("x", [1, 1, 2, 2])], [value("y", [1, 1, 2, 2])]))
    check("colour to grey", seen(png(2, 2, rgb), model=one) == [0.299, 0.587, 0.114, 0.363], seen(png(2, 2, rgb), model=one))
    said = seen(png(4, 1, rgb))
    check("a picture of another size", "height 1, the input expects 2" in said and "f32[1,3,2,2]" in said, said)
    whole = png(2, 2, rgb)
    for name, data in (("cut", whole[:50]), ("damaged", whole[:45] + b"x" + whole[46:]), ("no picture", b"hello"),
                       ("empty", b""), ("huge", png(2, 2, rgb).replace(struct.pack(">II", 2, 2), struct.pack(">II", 1 << 30, 1 << 30)))):
        said = seen(data)
        check(f"a picture that is {name}", isinstance(said, str) and "p.png: " in said, said)
    expect("numbers that are none", run("run", path, "--input", work / "p.png", "--mean", "a", *CPU), 2, "--mean a: expected numbers")
    expect("a deviation of 0", run("run", path, "--input", work / "p.png", "--std", "0", *CPU), 2, "--std 0")
    expect("options of pictures without one", run("run", path, "--mean", "1", *CPU), 2, "applies to pictures")


def graph_files(work):
    path, weights = work / "line.tng", work / "w.safetensors"
    path.write_text('graph "g" {\n  input x: f32[2,3]\n  weight w: f32[3]\n  y = binary(x, w) {kind="mul"}\n  output "y" = y\n}\n')
    header = json.dumps({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}).encode()
    weights.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<3f", 1, 2, 3))
    expect("a graph file with weights", run("run", path, "--weights", weights, "--input", work / "x.npy", *CPU), 0, "max 6, ")
    expect("a graph file without its weights", run("run", path, "--input", work / "x.npy", *CPU), 1, "weight 'w' f32[3]", "--weights")
    shift = work / "b.npy"
    shift.write_bytes(npy("<f4", [1], [2], "f"))
    two = work / "two.onnx"
    two.write_bytes(model([node("Add", "xb", "y")], [value("x", [2, 3]), value("b", [1])], [value("y", [2, 3])]))
    expect("an input that becomes a constant", run("run", two, "--constant", f"b={shift}", "--input", f"x={work / 'x.npy'}", *CPU), 0, "min 3, max 4")
    text = run("inspect", two, "--constant", f"b={shift}", "--text").stdout
    check("inspect shows the constant", "input b" not in text and "input x" in text, text)


def wrong(work):
    path = work / "affine.onnx"
    x = work / "x.npy"
    expect("no model", run("run"), 2, "expected a model")
    expect("a model that is not there", run("run", work / "none.onnx", *CPU), 1, "none.onnx: open")
    expect("a folder", run("run", work), 2, "is a folder")
    expect("an input that is not there", run("run", path, "--input", f"z={x}", *CPU), 2, "there is no input 'z'; the inputs are 'x'")
    expect("an input twice", run("run", path, "--input", x, "--input", "x=zeros", *CPU), 2, "has a value already")
    expect("a file that is not there", run("run", path, "--input", "x=none.npy", *CPU), 1, "input 'x': ", "none.npy")
    (work / "short.npy").write_bytes(x.read_bytes()[:-1])
    expect("an array that is cut", run("run", path, "--input", f"x={work / 'short.npy'}", *CPU), 1, "short.npy", "has 24 bytes, the file has 23")
    (work / "i.npy").write_bytes(npy("<i8", [2, 3], [1] * 6, "q"))
    expect("an array of another dtype", run("run", path, "--input", work / "i.npy", *CPU), 1, "expected f32, got i64")
    (work / "v.npy").write_bytes(npy("<f4", [6], [1] * 6, "f"))
    expect("an array of another shape", run("run", path, "--input", work / "v.npy", *CPU), 1, "expected f32[2,3], got f32[6]")
    expect("inputs and stored ones", run("run", path, "--compare", work, "--input", x, *CPU), 2, "--input: cannot be combined with --compare")
    expect("tolerances without a comparison", run("run", path, "--rtol", "1", *CPU), 2, "--rtol: needs --compare")
    expect("an output folder that is a file", run("run", path, "--output", x, *CPU), 1, "x.npy")
    (work / "cut.onnx").write_bytes(affine()[:-9])
    expect("a model that is cut", run("run", work / "cut.onnx", *CPU), 1, "cut.onnx: ", "byte ")
    (work / "text.onnx").write_text("hello")
    expect("a text", run("run", work / "text.onnx", *CPU), 1, "text.onnx: ")
    unknown = model([node("Fly", "x", "a", "first", "my"), node("Swim", "a", "y", "second", "my")], [value("x", [2])], [value("y", [2])])
    (work / "unknown.onnx").write_bytes(unknown)
    expect("nodes that tenon lacks, all at once", run("run", work / "unknown.onnx", *CPU), 1, "Fly", "first", "Swim", "second")
    external = field(1, 3) + field(2, FLOAT) + field(8, "w") + field(14, 1) + field(13, field(1, "location") + field(2, "../secret"))
    (work / "out.onnx").write_bytes(model([node("Mul", "xw", "y")], [value("x", [3])], [value("y", [3])], [external]))
    expect("data outside of the folder", run("run", work / "out.onnx", *CPU), 1, "tensor 'w'", "leaves the model's folder")


with tempfile.TemporaryDirectory() as folder:
    for case in (arrays, symbols, compares, pictures, graph_files, wrong):
        case(pathlib.Path(folder))
sys.exit(failures != 0)
