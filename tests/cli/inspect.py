# SPDX-License-Identifier: Apache-2.0
"""inspect.py TENON LANES_PLUGIN: the nodes that tenon inspect lists say what they were made of, or why not; its JSON
says the same."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

tenon, plugin = sys.argv[1:]
CPU = ["--device", "cpu"]
LANES = ["--plugin", plugin, "--device", "lanes:0"]
LINE = """graph "line" {
  input x: f32[4,6]
  weight w: f32[6,8]
  weight b: f32[8]
  p = matmul(x, w)
  z = binary(p, b) {kind="add"}
  y = unary(z) {kind="relu"}
  output "y" = y
}
"""
SOFTMAX = """graph "softmax" {
  input x: f32[4,6]
  m = reduce(x) {kind="max", axes=[1], keepdims=true}
  d = binary(x, m) {kind="sub"}
  e = unary(d) {kind="exp"}
  s = reduce(e) {kind="sum", axes=[1], keepdims=true}
  y = binary(e, s) {kind="div"}
  output "y" = y
}
"""


def run(*words):
    done = subprocess.run([tenon, "inspect", *words], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def listed(text):
    """Verdict, device, op, name and the remarks in brackets of each line below "nodes:"."""
    lines = text.split("nodes:\n")[1].split("verdicts:")[0].splitlines()
    return [(*line.split()[:4], re.findall(r"  \((.*?)\)(?=  \(|$)", line)) for line in lines]


with tempfile.TemporaryDirectory() as folder:
    def nodes(graph, *device):
        """What is listed, checked against the JSON."""
        path = pathlib.Path(folder) / "graph.tng"
        path.write_text(graph)
        seen = listed(run(str(path), *device))
        report = json.loads(run(str(path), *device, "--json"))
        assert seen == [(*(n[k] for k in ("verdict", "device", "op", "name")),
                         [n[k] for k in ("reason", "note") if n[k]]) for n in report["nodes"]], (seen, report)
        return seen

    assert nodes(LINE, *CPU) == [("native", "cpu:0", "linear", "y", ["joined: matmul + binary add + unary relu"])]
    assert nodes(SOFTMAX, *CPU) == [
        ("native", "cpu:0", "softmax", "y",
         ["raised to softmax: reduce max + binary sub + unary exp + reduce sum + binary div"])]

    # A device of primitives alone.
    apart = nodes(LINE, *LANES)
    assert [n[2] for n in apart] == ["matmul", "binary", "unary"], apart
    assert apart[1] == ("native", "lanes:0", "binary", "z",
                        ["not joined into linear: no kernel for op linear version 1"]), apart
    assert apart[2] == ("decomposed", "lanes:0", "unary", "y",
                        ["attribute kind=relu is not supported",
                         "not joined into linear: no kernel for op linear version 1; "
                         "not joined into elementwise_region: no kernel for op elementwise_region version 1"]), apart
    (softmax,) = nodes(SOFTMAX, *LANES)
    assert softmax[0] == "decomposed" and softmax[4][0] == "no kernel for op softmax version 1", softmax
    assert softmax[4][1].startswith("raised to softmax: reduce max + "), softmax
print("good")

# In primitives, as text that is a graph again; one op, and a graph with a symbol.
flat = run("--op", "softmax(f32[4,6])", "--unfuse")
assert "softmax" not in flat and flat.count("reduce(") == 2 and flat.startswith('graph "op" {'), flat
assert "softmax" in run("--op", "softmax(f32[4,6])", *CPU) and "softmax(in0)" in run("--op", "softmax(f32[4,6])", "--text")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "flat.tng"
    path.write_text(flat)
    assert run(str(path), "--unfuse") == flat
    path.write_text("graph { symbols N input x: f32[N,6] y = softmax(x) {axis=1} output \"y\" = y }")
    assert "f32[3,6]" in run(str(path), "--bind", "N=3", "--unfuse")
    for words, why in (([str(path), "--unfuse"], "'N'"), (["--op", "softmax(f32[4,6])", str(path)], "--op: expected no graph beside it"),
                       ([str(path), "--unfuse", "--json"], "--json: with --unfuse"), (["--op", "nonsense(f32[2])", "--unfuse"], "nonsense")):
        done = subprocess.run([tenon, "inspect", *words], capture_output=True, text=True, timeout=3600)
        assert done.returncode != 0 and why in done.stderr, (words, done.stdout, done.stderr)
# Weights stay in blocks: decoded ones would take up to eight times the memory.
for blocks in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_k", "iq4_nl", "mxfp4"):
    for rows in (1, 512):
        for compute in ("f32", "int8"):
            op = f'dequant_matmul(f32[{rows},1024], {blocks}[2048,1024]) {{compute="{compute}"}}'
            ((verdict, *rest),) = listed(run("--op", op, *CPU))
            assert verdict == "native", (op, verdict, rest)
