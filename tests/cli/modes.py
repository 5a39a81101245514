# SPDX-License-Identifier: Apache-2.0
"""modes.py TENON LANES_PLUGIN: --exec and --compile of the commands that run: the same numbers in every mode, lanes in
inspect, a line of progress on a terminal only, Ctrl-C while code is made."""
import errno
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

tenon, plugin = sys.argv[1:]
LANES = ["--plugin", plugin, "--device", "lanes:0"]
SIZES = "--dim 32 --layers 2 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --steps 3 --warmup 1".split()


def run(*words, status=0):
    done = subprocess.run([tenon, *words], capture_output=True, text=True, errors="replace", timeout=3600)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def on_terminal(*words, interrupt_at=None):
    """Status and what was said on a terminal; Ctrl-C when the text is seen."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(tenon, [tenon, *words])
    said, sent = "", False
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            data = os.read(terminal, 4096)
        except OSError as e:
            assert e.errno == errno.EIO, e
            break
        if not data:
            break
        said += data.decode(errors="replace")
        if interrupt_at and interrupt_at in said and not sent:
            os.kill(process, signal.SIGINT)
            sent = True
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), said


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    text = folder / "text"
    text.write_bytes(b"a small text to learn from, over and over. " * 40)

    def train(name, *more, status=0):
        return run("lm", "train", "--text", str(text), "--out", str(folder / name), "--force", *SIZES, *more, status=status)

    for wrong in ("fast", "multi-stream:0", "multi-stream:99", "multi-stream:x", "graph:2", "eager:"):
        said = run("bench", "--op", "softmax(f32[8,32])", "--exec", wrong, status=2).stderr
        assert f"--exec {wrong}" in said, said
    assert "--compile later" in run("bench", "--compile", "later", status=2).stderr
    for command in (["bench"], ["lm", "train"], ["lm", "generate"], ["inspect"]):
        said = run(*command, "--help").stdout
        assert "--exec MODE" in said and "multi-stream[:N]" in said, said
        assert ("--compile MODE" in said) == (command != ["inspect"]), said

    # On the device with lanes.
    train("stream", *LANES, "--exec", "stream")
    weights = [(folder / "stream" / f).read_bytes() for f in ("model.safetensors", "optimizer.safetensors")]
    for mode in ("graph", "eager", "multi-stream", "multi-stream:3"):
        for compile_mode in ("jit", "aot"):
            done = train("other", *LANES, "--exec", mode, "--compile", compile_mode)
            assert done.stderr == "", done.stderr  # no line of progress where no terminal is
            other = [(folder / "other" / f).read_bytes() for f in ("model.safetensors", "optimizer.safetensors")]
            assert other == weights, mode
    said = run("lm", "generate", *LANES, "--model", str(folder / "other"), "--prompt", "a s", "--tokens", "4",
               "--temperature", "0").stdout
    assert said == run("lm", "generate", *LANES, "--model", str(folder / "other"), "--prompt", "a s", "--tokens", "4",
                       "--temperature", "0", "--exec", "multi-stream:2", "--compile", "aot").stdout

    # On the cpu, which takes one lane and says so.
    for mode in ("stream", "multi-stream:4"):
        done = train(f"cpu_{mode[:5]}", "--device", "cpu", "--exec", mode)
        assert ("cpu:0 runs one" in done.stderr) == (mode != "stream"), done.stderr
    assert (folder / "cpu_strea" / "model.safetensors").read_bytes() == \
        (folder / "cpu_multi" / "model.safetensors").read_bytes()

    model = str(folder / "stream")
    inspect = ["inspect", model, "--part", "train", *LANES]
    plain = run(*inspect, "--steps").stdout
    assert "  lane " not in plain and " lanes, " not in plain, plain
    said = run(*inspect, "--exec", "multi-stream:3", "--steps").stdout
    assert "3 lanes, " in said and "  lane 2  " in said and "  after " in said, said
    report = json.loads(run(*inspect, "--exec", "multi-stream:3", "--json").stdout)
    assert report["regions"][0]["waits"] == sum(len(s["after"]) for s in report["steps"]) > 0
    said = run("inspect", model, "--device", "cpu", "--exec", "multi-stream:3")
    assert "1 lane, 0 waits  (plugin cpu runs its steps in one lane)" in said.stdout, said.stdout

    # On a terminal: progress, and Ctrl-C. Each of about a thousand parts takes half a millisecond.
    bench = ["bench", model, "--part", "train", *LANES, "--seconds", "0.01", "--no-ceilings", "--threads", "1"]
    status, said = on_terminal(*bench, "--compile", "aot")
    assert status == 0 and "parts compiled" in said, (status, said)
    status, said = on_terminal(*bench)
    assert status == 0 and "parts compiled" not in said, (status, said)
    status, said = on_terminal(*bench, "--compile", "aot", interrupt_at="parts compiled")
    assert status == 130 and "compiling ahead was stopped" in said, (status, said)
print("good")
