# SPDX-License-Identifier: Apache-2.0
"""locked.py TENON: one training to a folder: another process is refused at once and changes nothing, readers are not hindered,
and one that was killed leaves nothing that holds."""
import os, pathlib, signal, subprocess, sys, tempfile, time

TENON = sys.argv[1]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 2 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --warmup 2 --seed 3 --steps 1000000".split()
BEGIN = [TENON, "lm", "train", "--text", TEXT, *SIZES, "--save-every", "5", "--eval-every", "100000"]


def resume(folder, *more):
    return [TENON, "lm", "train", "--resume", str(folder), *map(str, more)]


def check(good, what):
    if not good:
        sys.exit(what)


def run(words, status=0):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=3600)
    check(done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return done


def wait_for(process, condition, what):
    until = time.monotonic() + 3600
    while not condition():
        check(process.poll() is None, f"{what}: the training ended with {process.returncode}")
        check(time.monotonic() < until, f"{what}: not within an hour")
        time.sleep(0.01)


def saved(folder):
    return (folder / "training.json").exists()


def refused(words, folder, process):
    began = time.monotonic()
    done = run(words, 1)
    said = done.stderr
    for part in (f"{folder}: another training, process {process.pid} on ", "--out"):
        check(part in said, f"{words}: expected {part!r} in: {said}")
    check("step 0" not in done.stdout, f"{words}: it began: {done.stdout}")
    check(time.monotonic() - began < 60, f"{words}: refused late")


with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(temporary)
    model, other, link = work / "model", work / "other", work / "link"
    running = []
    try:
        first = subprocess.Popen([*BEGIN, "--out", model], stdout=subprocess.DEVNULL)
        running.append(first)
        wait_for(first, lambda: saved(model), "the first save")
        link.symlink_to(model)
        refused([*BEGIN, "--out", str(model)], model, first)
        refused(resume(model), model, first)
        refused(resume(link), link, first)
        check(first.poll() is None, "the first training ended")
        for _ in range(3):
            run([TENON, "lm", "generate", "--model", str(model), "--prompt", "a", "--tokens", "2"])
            run([TENON, "inspect", str(model)])
        # From its folder to another one: that is a reader too, and saves come in between.
        for _ in range(8):
            run(resume(model, "--out", other, "--stop-after", 1, "--force"))
        refused(resume(other, "--out", model), model, first)
        print("ok: refused beside a running training, which others may read")

        first.kill()
        first.wait()
        check((model / ".tenon.lock").exists(), "the killed training left no lock file: what follows would show nothing")
        # Several at once at what a killed one left: one of them has it.
        several = [subprocess.Popen(resume(model, "--save-every", 5), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for _ in range(4)]
        running += several
        until = time.monotonic() + 3600
        while sum(p.poll() is None for p in several) > 1:
            check(time.monotonic() < until, "several trainings of one folder run")
            time.sleep(0.01)
        alive = [p for p in several if p.poll() is None]
        check(len(alive) == 1, "all of several were refused")
        for process in several:
            if process is alive[0]:
                continue
            said = process.stderr.read()
            check(process.returncode == 1 and "another training" in said, f"status {process.returncode}: {said}")
        # The first may be what the killed one left to finish; at the second the one trains, and hears Ctrl-C.
        seen = set()
        wait_for(alive[0], lambda: saved(model) and (seen.add((model / "training.json").stat().st_mtime_ns) or len(seen) > 2),
                 "saves of the one")
        alive[0].send_signal(signal.SIGINT)
        check(alive[0].wait(120) == 130, f"Ctrl-C: status {alive[0].returncode}, expected 130")
        left = [p.name for p in model.iterdir() if p.name.startswith(".")]
        check(not left, f"left behind: {left}")
        run(resume(model, "--stop-after", 1))
        print("ok: after a kill one of several goes on, and leaves no lock")

        # A user's own file of the lock's name, or a second name of one, stays as it is.
        for own in (False, True):
            folder = work / f"own{own}"
            folder.mkdir()
            notes = folder / ".tenon.lock"
            notes.write_text("process of my notes\n" if own else "my notes\n")
            if own:
                os.link(notes, work / "notes")
            before = notes.read_bytes()
            said = run([*BEGIN, "--out", str(folder)], 1).stderr
            check("is not a lock file" in said and notes.read_bytes() == before, f"a user's .tenon.lock: {said}")
        print("ok: a user's .tenon.lock is refused and kept")

        # What is missing is not made, and said as ever.
        said = run(resume(work / "missing"), 1).stderr
        check("missing" in said and not (work / "missing").exists(), f"--resume of a missing folder: {said}")
        print("ok: --resume of a missing folder makes none")
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
