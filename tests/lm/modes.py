#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ways to train by the command: layers computed again, batches in parts, bf16, nodes joined or each by itself.

modes.py TENON checkpoint|accumulate|bf16|fusion
modes.py TENON fusion full   as fusion, over 100 steps of the model and the texts of peer.py"""
import json, pathlib, re, signal, struct, subprocess, sys, tempfile, time

TEXT = ["/usr/share/common-licenses/Apache-2.0"]
SIZES = "--dim 64 --layers 3 --heads 4 --kv-heads 2 --ffn 160 --context 48 --seed 5 --lr 1e-3 --warmup 20".split()


def run(*words, status=0):
    done = subprocess.run([TENON, "lm", *words], capture_output=True, text=True)
    assert done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done


def train(folder, *more):
    out = run("train", "--text", *TEXT, "--out", folder, *SIZES, *more).stdout
    size, unit = re.search(r"intermediates ([\d.]+) (\w+)", out).groups()
    return losses(folder), float(size) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]


def losses(folder):
    return [loss for _, loss in json.loads(pathlib.Path(folder, "training.json").read_text())["losses"]]


def ops(trace):
    """Of the steps that ran."""
    events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
    return [e["args"]["op"] for e in events if e["ph"] == "X" and e["cat"] == "step"]


def furthest(a, b):
    assert len(a) == len(b) > 0, (len(a), len(b))
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def same_files(a, b, names=("model.safetensors", "optimizer.safetensors")):
    for name in names:
        assert pathlib.Path(a, name).read_bytes() == pathlib.Path(b, name).read_bytes(), f"{name} of {a} and {b} differ"


def header(file):
    data = pathlib.Path(file).read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


def check(name, good, value):
    print(f"{'ok ' if good else 'BAD'} {name}: {value}")
    assert good, name


def interrupted(folder, *more):
    """Ctrl-C in a training without end; then two steps more. Gives the steps that were done."""
    log = pathlib.Path(folder + ".log")
    with log.open("w") as out:
        p = subprocess.Popen([TENON, "lm", "train", "--text", *TEXT, "--out", folder, *SIZES, "--steps", "100000",
                              "--eval-every", "50000", *more], stdout=out)
    while "step 0" not in log.read_text():
        time.sleep(0.05)
        assert p.poll() is None, log.read_text()
    time.sleep(0.7)
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 130, p.returncode
    state = json.loads(pathlib.Path(folder, "training.json").read_text())
    run("train", "--resume", folder, "--stop-after", str(state["done_steps"] + 2))
    return state["done_steps"]


def checkpoint(work):
    steps = ["--steps", "12", "--batch", "4"]
    plain, high = train(f"{work}/plain", *steps)
    again, low = train(f"{work}/again", *steps, "--checkpoint")
    check("losses bit by bit", plain == again, f"{len(plain)} steps, last {plain[-1]}")
    same_files(f"{work}/plain", f"{work}/again")
    check("a lower peak", low < 0.8 * high, f"{low} of {high} MiB")
    train(f"{work}/part", *steps, "--stop-after", "5", "--checkpoint")
    run("train", "--resume", f"{work}/part", "--checkpoint=off")
    same_files(f"{work}/plain", f"{work}/part")
    print("ok  a training may go on without --checkpoint")


def accumulate(work):
    steps = ["--steps", "20"]
    whole, high = train(f"{work}/whole", *steps, "--batch", "8")
    parts, low = train(f"{work}/parts", *steps, "--batch", "2", "--accumulate", "4")
    apart = furthest(parts, whole)
    check("losses equal one batch of 4 times the size", apart < 1e-5, f"{apart:.2e} apart at most, limit 1e-5")
    check("a lower peak", low < 0.6 * high, f"{low} of {high} MiB")
    names = header(f"{work}/parts/optimizer.safetensors")
    check("no sums are saved", set(names) == set(header(f"{work}/whole/optimizer.safetensors")), len(names))
    train(f"{work}/stop", *steps, "--batch", "2", "--accumulate", "4", "--stop-after", "9")
    done = run("train", "--resume", f"{work}/stop", "--accumulate", "2")
    assert "--accumulate 2 differs from the stored 4" in done.stderr, done.stderr
    same_files(f"{work}/parts", f"{work}/stop")
    print("ok  9 + 11 steps equal 20, bit by bit")
    both, _ = train(f"{work}/both", *steps, "--batch", "2", "--accumulate", "4", "--checkpoint")
    check("with --checkpoint bit by bit", both == parts, len(both))
    count = interrupted(f"{work}/ctrl", "--batch", "2", "--accumulate", "4")
    straight, _ = train(f"{work}/straight", "--steps", "100000", "--stop-after", str(count + 2), "--batch", "2",
                        "--accumulate", "4")
    check("Ctrl-C between parts loses nothing", losses(f"{work}/ctrl") == straight, f"after {count} steps")


def bf16(work):
    steps = ["--steps", "100", "--batch", "8"]
    wide, _ = train(f"{work}/f32", *steps)
    half, _ = train(f"{work}/bf16", *steps, "--dtype", "bf16")
    apart = furthest(half, wide)
    check("losses follow f32's", apart < 0.01, f"{apart:.2e} apart at most, limit 1e-2; last {half[-1]:.4f}, {wide[-1]:.4f}")
    check("it learns", half[-1] < 0.8 * half[0], f"{half[0]:.3f} to {half[-1]:.3f}")
    weights, state = header(f"{work}/bf16/model.safetensors"), header(f"{work}/bf16/optimizer.safetensors")
    del weights["__metadata__"]
    check("weights are bf16", all(w["dtype"] == "BF16" for w in weights.values()), len(weights))
    for name, w in weights.items():
        for part in ("master", "m", "v"):
            s = state[f"{name}.{part}"]
            assert s["dtype"] == "F32" and s["shape"] == w["shape"], (name, part, s)
    print("ok  masters and moments are f32")
    config = json.loads(pathlib.Path(work, "bf16/config.json").read_text())
    check("config.json says so", config["torch_dtype"] == "bfloat16", config["torch_dtype"])
    train(f"{work}/stop", *steps, "--dtype", "bf16", "--stop-after", "40")
    done = run("train", "--resume", f"{work}/stop", "--dtype", "f32")
    assert "--dtype f32 differs" in done.stderr, done.stderr
    same_files(f"{work}/bf16", f"{work}/stop")
    print("ok  40 + 60 steps equal 100, bit by bit")
    parts, _ = train(f"{work}/parts", "--steps", "20", "--batch", "2", "--accumulate", "4", "--dtype", "bf16", "--checkpoint")
    whole, _ = train(f"{work}/whole", "--steps", "20", "--batch", "8", "--dtype", "bf16")
    apart = furthest(parts, whole)
    check("parts of a batch follow the whole", apart < 0.01, f"{apart:.2e}")
    words = ["generate", "--model", f"{work}/bf16", "--prompt", "the ", "--tokens", "40", "--temperature", "0"]
    first = run(*words).stdout
    check("generates", first == run(*words).stdout and len(first) >= 44, repr(first))
    pathlib.Path(work, "bf16/config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}))
    told = run(*words, status=1).stderr
    check("a config of another dtype is told", "of float32 that config.json asks for" in told, told.strip())
    run("train", "--text", *TEXT, "--out", f"{work}/x", "--dtype", "f16", status=2)


def fusion(work):
    """The same losses with and without fusion, in f32 and in bf16."""
    global TEXT, SIZES
    steps = ["--steps", "30", "--batch", "4"]
    if sys.argv[3:] == ["full"]:
        TEXT = sorted(str(p) for p in pathlib.Path("/usr/share/common-licenses").iterdir())
        SIZES = "--dim 128 --layers 4 --heads 4 --kv-heads 2 --ffn 344 --context 128 --seed 3 --lr 1e-3 --warmup 20".split()
        steps = ["--steps", "100", "--batch", "16"]
    fused, _ = train(f"{work}/fused", *steps, "--trace", f"{work}/fused.json")
    plain, _ = train(f"{work}/plain", *steps, "--no-fuse", "--trace", f"{work}/plain.json")
    apart = furthest(fused, plain)
    check("f32 losses agree", apart < 1e-4, f"{apart:.2e} apart at most over {len(fused)} steps, limit 1e-4")
    joined, single = (sum("elementwise_region" in op for op in ops(f"{work}/{name}.json")) for name in ("fused", "plain"))
    check("fusion was on in one of them", joined > 0 == single, f"{joined} and {single} regions ran")
    half, _ = train(f"{work}/half", *steps, "--dtype", "bf16")
    apart = furthest(half, plain)
    check("bf16 losses with fusion follow f32's", apart < 0.01, f"{apart:.2e} apart at most, limit 1e-2")
    alone, _ = train(f"{work}/alone", *steps, "--dtype", "bf16", "--no-fuse")
    apart = furthest(alone, plain)
    check("bf16 losses without it too", apart < 0.01, f"{apart:.2e} apart at most, limit 1e-2")


TENON = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    {"checkpoint": checkpoint, "accumulate": accumulate, "bf16": bf16, "fusion": fusion}[sys.argv[2]](folder)
