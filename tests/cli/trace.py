# SPDX-License-Identifier: Apache-2.0
"""trace.py TENON: --trace of lm train and bench writes a trace of all their runs, or says why it cannot."""
import json
import pathlib
import subprocess
import sys
import tempfile

tenon = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    text = folder / "text"
    text.write_bytes(b"a small text to learn from, over and over. " * 40)
    train = [tenon, "lm", "train", "--text", str(text), "--out", str(folder / "model"), "--steps", "3",
             "--batch", "2", "--dim", "32", "--layers", "2", "--heads", "2", "--kv-heads", "1",
             "--ffn", "48", "--context", "16"]

    nowhere = subprocess.run(train + ["--trace", str(folder / "none" / "t.json")],
                             capture_output=True, text=True)
    assert nowhere.returncode == 1, nowhere
    assert "none/t.json" in nowhere.stderr, nowhere.stderr
    assert not (folder / "model" / "model.safetensors").exists()

    path = folder / "trace.json"
    done = subprocess.run(train + ["--trace", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trace = json.loads(path.read_text())
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    runs = [e for e in slices if e["cat"] == "run"]
    steps = [e for e in slices if e["cat"] == "step"]
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in slices)
    assert sum(e["name"].startswith("run ") for e in runs) == len(runs) >= 3 + 2, len(runs)
    ops = {e["args"]["op"] for e in steps}
    assert {"attention_backward", "adamw", "cross_entropy"} <= ops, ops
    assert any(e["args"]["node"].startswith("model.layers.1.self_attn") for e in steps)
    # What a step moves: its batch and rate go to the device, the loss comes back.
    trained = [e["args"]["run"] for e in runs if e["name"] == "run lm.train"]
    assert len(trained) == 3, trained
    for k, run in enumerate(trained):
        moved = sorted((e["name"], e["args"]["bytes"]) for e in slices
                       if e["args"]["run"] == run and e["cat"] in ("write", "read", "copy", "fill"))
        if k > 0:
            assert moved == [("read loss", 4), ("write lr", 4), ("write tokens", 4 * 2 * 17)], moved
    for run in {e["args"]["run"] for e in runs}:
        whole = sum(e["dur"] for e in runs if e["args"]["run"] == run)
        parts = sum(e["dur"] for e in steps if e["args"]["run"] == run)
        assert 0 < parts <= whole + 0.001 * len(steps), (run, parts, whole)

    bench = [tenon, "bench", "--op", "softmax(f32[8,32])", "--seconds", "0.01", "--json", "--trace"]
    done = subprocess.run(bench + [str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    timed = json.loads(done.stdout)[0]["runs"]
    steps = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X" and e["cat"] == "step"]
    # Two runs warm up. What the ceilings are measured with is not there.
    assert {e["args"]["op"] for e in steps} == {"softmax"} and len(steps) == timed + 2, (len(steps), timed)
    nowhere = subprocess.run(bench + [str(folder / "none" / "t.json")], capture_output=True, text=True)
    assert nowhere.returncode == 1 and "none/t.json" in nowhere.stderr, nowhere
print("good")
