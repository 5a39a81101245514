# SPDX-License-Identifier: Apache-2.0
"""unused.py TENON: a tensor that the model does not use is refused by name before contents are read. The tensor is a hole of
1 GiB in its file; how much memory the command took shows whether it was read."""
import json, os, pathlib, struct, subprocess, sys, tempfile

TENON = sys.argv[1]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --steps 4 --warmup 1".split()
HOLE = 1 << 30
failures = 0


def run(*args):
    """Status, what was said, and the most memory that was resident, in bytes."""
    child = subprocess.Popen([TENON, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), said, usage.ru_maxrss << 10


def add_hole(file):
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, content = json.loads(data[8 : 8 + size]), data[8 + size :]
    header["spare.0"] = {"dtype": "F32", "shape": [HOLE // 4], "data_offsets": [len(content), len(content) + HOLE]}
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + content)
        out.truncate(8 + len(text) + len(content) + HOLE)


with tempfile.TemporaryDirectory() as work:
    model = pathlib.Path(work) / "model"
    status, said, _ = run("lm", "train", "--text", TEXT, "--out", model, *SIZES, "--stop-after", 2)
    assert status == 0, said
    for name, kind, words in (("model.safetensors", "weight", ["generate", "--model", model, "--prompt", "a", "--tokens", 1]),
                              ("optimizer.safetensors", "state", ["train", "--resume", model])):
        kept = (model / name).read_bytes()
        add_hole(model / name)
        status, said, most = run("lm", *words)
        (model / name).write_bytes(kept)
        good = status == 1 and f"{name}: {kind} 'spare.0' is not used" in said and most < HOLE // 2
        failures += not good
        print(f"{'ok ' if good else 'BAD'} {name}: status {status}, {most >> 20} MiB: {said.strip()[-300:]}")
    status, said, _ = run("lm", "train", "--resume", model)
    failures += status != 0
    print(f"{'ok ' if status == 0 else 'BAD'} without it: status {status}: {said[-100:]}")
print(f"{failures} failures")
sys.exit(1 if failures else 0)
