# SPDX-License-Identifier: Apache-2.0
"""own_ops.py TENON GUEST_PLUGIN OTHER_PLUGIN: ops of plugins in the command: listed, inspected, timed, refused."""
import json
import pathlib
import subprocess
import sys
import tempfile

tenon, guest, other = sys.argv[1:]
GUEST = ["--plugin", guest]
GRAPH = """graph {
  input x: i64[5]
  input a: f32[2,3]
  n = guest:collatz(x) {most=50} @ "walk"
  w = guest:weighted([a, a]) {weights=[2.0, -1.0]} @ "sum"
  output "n" = n
  output "w" = w
}
"""


def run(*words, status=0):
    done = subprocess.run([tenon, *words], capture_output=True, text=True, timeout=3600)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def has(text, *words):
    for word in words:
        assert word in text, (word, text)


has(run("ops", *GUEST), "\nguest\n", "  guest:collatz(x) {most=1000} -> (y)\n", "of plugin guest", "  softmax(x)")
assert "guest:" not in run("ops")
one = run("ops", "guest:weighted", *GUEST)
has(one, "guest:weighted(xs..., bias?) {weights=[], scale=1, kind=\"plain\"} -> (y, sum?)", "kind: plain negative",
    "core, version 1, gradient -, decomposition yes, of plugin guest")
assert one.count("->") == 1, one
listed = {(o["domain"], o["name"]): o for o in json.loads(run("ops", "--json", *GUEST))}
collatz = listed["guest", "collatz"]
assert (collatz["origin"], collatz["decomposition"], collatz["gradient"]) == ("guest", False, False), collatz
assert listed["tenon", "softmax"]["origin"] == "tenon"
has(run("ops", "guest:colatz", *GUEST, status=2), "there is no op 'guest:colatz'", "did you mean 'guest:collatz'?")

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "graph.txt")
    file.write_text(GRAPH)
    nodes = {n["name"]: n for n in json.loads(run("inspect", str(file), "--json", "--device", "cpu", *GUEST))["nodes"]}
    assert (nodes["walk"]["op"], nodes["walk"]["verdict"]) == ("guest:collatz", "native"), nodes
    assert nodes["sum"]["verdict"] == "decomposed", nodes
    has(run("inspect", str(file), status=1), "graph.txt:4:7: there is no op 'guest:collatz'; no loaded plugin has it")
    assert "runs" in run("bench", str(file), "--seconds", "0.01", "--no-ceilings", "--device", "cpu", "--fill", "x=1:9", *GUEST)
has(run("bench", "--op", "guest:weighted(f32[4]) {kind=\"odd\"}", *GUEST, status=1),
    "attribute kind: expected one of plain negative, given 'odd'")

# The second plugin describes an op otherwise: named, it is an error; in a folder, it is reported and left out.
has(run("ops", *GUEST, "--plugin", other, status=1), "op guest:collatz version 1 is registered already, by plugin guest; "
    "plugin guest_other describes it differently: part 0, most")
plugins = json.loads(run("devices", "--json", *GUEST, "--plugin-dir", str(pathlib.Path(other).parent)))["plugins"]
refused = next(p for p in plugins if p["name"] == "guest_other")
assert (refused["loaded"], refused["stage"], refused["code"]) == (False, "ops", "incompatible"), refused
