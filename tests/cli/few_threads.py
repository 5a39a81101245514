# SPDX-License-Identifier: Apache-2.0
"""few_threads.py TENON ASYNC_RUNS: where the system makes fewer threads than asked for (ulimit -u, the pids control group), work is done by
those that there are, with a remark, or ends with an error. Nothing hangs, nothing aborts. Skips (77) where no limit can be set."""
import os, pathlib, resource, subprocess, sys, tempfile

TENON, ASYNC_RUNS = map(os.path.abspath, sys.argv[1:3])
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 64 --layers 2 --heads 4 --kv-heads 2 --ffn 160 --context 32 --batch 4 --warmup 1 --steps 4 --device cpu".split()
BENCH = ["bench", "--op", "softmax(f32[4096,1024])", "--seconds", "0.05", "--no-ceilings", "--device", "cpu"]
USER = 61234  # nobody's processes count against it
failures = 0


def limited(processes=None):
    def set_up():
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(USER)
        if processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    return set_up


def run(words, program=TENON, **more):
    try:
        return subprocess.run([program, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=3600, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, "hangs", "", "")


def check(name, done, *said):
    global failures
    good = done.returncode == 0 and all(s in done.stdout + done.stderr for s in said)
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": status {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}"), flush=True)


if run(["--version"], preexec_fn=limited(1)).returncode != 0:
    print("skipped: the command cannot be run under a limit here")
    sys.exit(77)
remark = "cpu: expected"
for processes, threads in ((1, 8), (2, 8), (4, 8), (1, 2)):
    name = f"{processes} processes, --threads {threads}"
    if os.getuid() == 0:  # else other processes of the user count too
        remark = f"cpu: expected {threads} threads, got {processes}"
    check(f"{name}: bench", run([*BENCH, "--threads", threads], preexec_fn=limited(processes)), remark)
    check(f"{name}: compiled ahead", run([*BENCH, "--threads", threads, "--compile", "aot"], preexec_fn=limited(processes)), remark)
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o777)
        done = run(["lm", "train", "--text", TEXT, "--out", f"{work}/model", *SIZES, "--threads", threads], preexec_fn=limited(processes))
        check(f"{name}: training", done, "saved", remark)
# Four computing threads, the caller's included, and a thread for asynchronous runs. `late`: the limit is set when the runtime is there.
alone = os.getuid() == 0
for processes in range(1, 8):
    for when in ("early", "late"):
        done = run([processes, when], ASYNC_RUNS, preexec_fn=limited())
        if processes > 4 and alone:
            said = "ok"
        else:
            said = "asynchronous runs: the system makes no thread for them" if alone else ""
        check(f"{processes} processes, set {when}: asynchronous runs", done, said)
check("as many as are asked for", run([*BENCH, "--threads", "4"]))
if remark in run([*BENCH, "--threads", "4"]).stderr:
    failures += 1
    print("BAD a remark without a reason")

for mount in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/pids")):
    group = mount / f"tenon_test_{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        continue
    try:
        if not (group / "pids.max").exists():
            continue
        (group / "pids.max").write_text("2")
        join = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        check(f"pids of {mount}", run([*BENCH, "--threads", "8"], preexec_fn=join), "cpu: expected 8 threads, got 2")
        break
    finally:
        group.rmdir()
else:
    print("--  no control group of pids can be made here")
print(f"{failures} failures")
sys.exit(1 if failures else 0)
