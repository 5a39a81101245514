# SPDX-License-Identifier: Apache-2.0
"""devices.py TENON ADVERSARY: a model over a list of devices, with limits and pins, on the command line. ADVERSARY is a plugin
with two devices."""
import json, pathlib, re, subprocess, sys, tempfile

TENON, ADVERSARY = sys.argv[1:3]
BOTH = "adversary:0,adversary:1"
SIZES = "--dim 32 --layers 4 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --warmup 2 --seed 3".split()


def check(good, what):
    if not good:
        sys.exit(f"BAD: {what}")


def tenon(*words, status=0):
    done = subprocess.run([TENON, *map(str, words)], capture_output=True, text=True, timeout=3600)
    check(done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def train(out, *more, status=0):
    return tenon("lm", "train", "--text", "/usr/share/common-licenses/Apache-2.0", "--out", out, *SIZES, "--steps", 4, "--eval-every", 2,
                 "--plugin", ADVERSARY, *more, status=status)


def losses(text):
    return re.findall(r"(?:loss|held-out) ([\d.]+)", text)


def usage_of(words, *parts):
    said = tenon("inspect", model, "--device", "cpu", *words, status=2)
    for part in parts:
        check(part in said, f"{words}: expected {part!r} in {said}")


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    model = work / "model"
    one = train(model, "--device", "adversary:0")
    two = train(work / "two", "--device", BOTH)
    check(len(losses(one)) == 5 and losses(one) == losses(two), f"other losses on two devices:\n{one}\n{two}")
    for device in BOTH.split(","):
        check(f"device   {device}, " in two and f"memory   {device} " in two, f"nothing of {device}:\n{two}")
    print("ok: two devices train as one")

    report = json.loads(tenon("inspect", model, "--part", "train", "--batch", 2, "--plugin", ADVERSARY, "--device", BOTH, "--json"))
    memory = {m["device"]: m for m in report["memory"]}
    need = sum(memory["adversary:0"][k] for k in ("peak", "weights", "state", "derived_weights", "constants", "inputs", "outputs"))
    whole = train(work / "refused", "--device", "adversary:0", "--memory", need * 5 // 4, status=1)
    check("out_of_memory" in whole and "adversary:0: the graph needs" in whole, whole)
    check(losses(train(work / "limited", "--device", BOTH, "--memory", f"{need * 5 // 4},{need * 2}")) == losses(one), "limited")
    print("ok: limits")

    pinned = tenon("inspect", model, "--part", "eval", "--plugin", ADVERSARY, "--device", BOTH, "--pin", "model.layers.0.*=adversary:1",
                   "--pin", "*=adversary:0")
    seen = set()
    for line in pinned.splitlines():
        if match := re.match(r"  (?:native|decomposed) +(\S+) +\S+ +(model\.layers\.(\d)\S+)", line):
            check(match[1] == ("adversary:1" if match[3] == "0" else "adversary:0"), line)
            seen.add(match[3])
    check(seen == {"0", "1", "2", "3"}, f"nodes of layers {seen}:\n{pinned}")
    # What a training was begun with is kept, but not for other devices.
    kept = work / "kept"
    train(kept, "--device", BOTH, "--memory", "8MiB,9MiB", "--pin", "lm_head=adversary:0", "--stop-after", 2)
    options = json.loads((kept / "training.json").read_text())["options"]
    check("8MiB,9MiB" in options and "lm_head=adversary:0" in options, f"not kept: {options}")
    tenon("lm", "train", "--resume", kept, "--plugin", ADVERSARY, "--stop-after", 3)
    check(losses(tenon("lm", "train", "--resume", kept, "--device", "cpu"))[-1], "no loss after other devices")
    print("ok: pins, and options that are kept")

    usage_of(["--memory", "1.5GB"], "--memory 1.5GB: expected a size such as 512MiB or 1.5GiB")
    usage_of(["--memory", "0.2"], "--memory 0.2: expected a size")
    usage_of(["--memory", "1MiB,"], "--memory : expected a size")
    usage_of(["--memory", "-1"], "expected a size")
    usage_of(["--pin", "x"], "--pin x: expected PATTERN=DEVICE")
    usage_of(["--pin", "=cpu"], "--pin =cpu: expected PATTERN=DEVICE")
    usage_of(["--pin", "x="], "--pin x=: expected PATTERN=DEVICE")
    for words, part in ((["--device", "cpu,"], "an empty one"), (["--device", "cpu,cpu:0"], "cpu:0 is named twice"),
                        (["--device", "auto,cpu"], "stands alone"), (["--device", "cpu", "--pin", "x=cuda:9"], "got 'cuda:9'"),
                        (["--device", "cpu", "--memory", "1MiB,2MiB"], "1 devices, got 2")):
        said = tenon("inspect", model, *words, status=1)
        check(part in said, f"{words}: expected {part!r} in {said}")
    idle = tenon("inspect", model, "--device", "cpu", "--pin", "layer.*=cpu")
    check("pin 'layer.*': no node has a name that matches" in idle, idle)
    print("ok: wrong words")
