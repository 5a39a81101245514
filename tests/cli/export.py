# SPDX-License-Identifier: Apache-2.0
"""export.py TENON: tenon export writes ONNX models that give what the graph gives, and leaves no file behind where it
refuses one."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

TENON = sys.argv[1]
failures = 0


def run(*words):
    return subprocess.run([TENON, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=600)


def check(name, good, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": {said}"))


def expect(name, done, status, *words):
    said = done.stdout + done.stderr
    missing = [w for w in words if w not in said]
    check(name, done.returncode == status and not missing, f"status {done.returncode}, expected {status}; missing {missing}; said:\n{said[:1500]}")


GRAPH = """graph "dense" {
  symbols N
  input x: f32[N,8]
  weight w: f32[8,64]
  weight b: f32[64]
  y = linear(x, w, b) {act="gelu_tanh"}
  z = softmax(y)
  output "hidden" = y
  output "z" = z
}
"""
RANDOM = """graph "random" {
  input rng: i64[2]
  drawn = random_normal(rng) {shape=[4]}
  output "y" = drawn
}
"""


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dims, values) in tensors.items():
        content = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": dims, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def outputs(work, name, model, *words):
    """The outputs of a run with random inputs, which the seed decides: {name: bytes}."""
    folder = work / name
    done = run("run", model, "--device", "cpu", "--bind", "N=5", "--output", folder, *words)
    if done.returncode:
        done = run("run", model, "--device", "cpu", "--output", folder, *words)
    check(f"{name}: it runs", done.returncode == 0, done.stdout + done.stderr)
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.npy"))}


with tempfile.TemporaryDirectory() as where:
    work = pathlib.Path(where)
    graph, weights = work / "dense.tng", work / "w.safetensors"
    graph.write_text(GRAPH)
    safetensors(weights, {"w": ([8, 64], [((7 * k) % 23 - 11) / 16 for k in range(512)]),
                          "b": ([64], [(k % 5 - 2) / 4 for k in range(64)])})
    inside, beside, fixed, part = (work / f"{n}.onnx" for n in ("inside", "beside", "fixed", "part"))

    expect("without weights", run("export", graph, inside), 1, "w")
    check("no file is left", not inside.exists() and len(list(work.iterdir())) == 2, list(work.iterdir()))
    expect("weights inside", run("export", graph, inside, "--weights", weights), 0, "wrote")
    check("one file", not (work / "inside.onnx.data").exists())
    expect("weights beside", run("export", graph, beside, "--weights", weights, "--external-data"), 0)
    data = work / "beside.onnx.data"
    check("the large weight is in the file beside", data.exists() and data.stat().st_size == 2048)
    expect("numbers for symbols", run("export", graph, fixed, "--weights", weights, "--bind", "N=5"), 0)
    expect("one output", run("export", inside, part, "--output", "hidden"), 0)

    wanted = outputs(work, "graph", graph, "--weights", weights)
    check("the graph has both outputs", sorted(wanted) == ["hidden.npy", "z.npy"], sorted(wanted))
    for name, model in (("inside", inside), ("beside", beside), ("fixed", fixed)):
        check(f"{name}: the same outputs", outputs(work, name, model) == wanted)
    got = outputs(work, "part", part)
    check("part: the same output alone", got == {"hidden.npy": wanted["hidden.npy"]}, sorted(got))

    (work / "random.tng").write_text(RANDOM)
    before = inside.read_bytes()
    expect("random numbers", run("export", work / "random.tng", inside), 1, "1 node has no form in ONNX", "random_normal", "random_bits")
    check("the file that was there stays", inside.read_bytes() == before)
    expect("an unknown output", run("export", graph, inside, "--weights", weights, "--output", "nothing"), 1, "'nothing'")
    expect("one word", run("export", graph), 2, "the file to write")
    expect("a folder", run("export", work, inside), 2, "got a folder")
sys.exit(1 if failures else 0)
