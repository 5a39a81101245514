# SPDX-License-Identifier: Apache-2.0
"""kept.py TENON: whatever ends a training early, it is saved first; nothing that a user has is replaced or moved unasked; what
will not fit is refused before the first step. Each case runs the command as a user does."""
import json, os, pathlib, re, resource, shutil, signal, subprocess, sys, tempfile, time

TENON = sys.argv[1]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 2 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --warmup 2 --seed 3".split()
LONG = ["--steps", "1000000", "--eval-every", "200"]
failures = 0


def check(name, good, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": {said}"))


def train(out, *more, **how):
    return subprocess.run([TENON, "lm", "train", "--text", TEXT, "--out", str(out), *SIZES, *map(str, more)],
                          capture_output=True, text=True, errors="replace", timeout=3600, **how)


def resume(folder, *more, **how):
    return subprocess.run([TENON, "lm", "train", "--resume", str(folder), *map(str, more)],
                          capture_output=True, text=True, errors="replace", timeout=3600, **how)


def steps_done(folder):
    try:
        return json.loads((folder / "training.json").read_text())["done_steps"]
    except (OSError, ValueError):
        return None


def wait_until(condition, seconds=3600):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def words_of(out, *more):
    return [TENON, "lm", "train", "--text", TEXT, "--out", str(out), *SIZES, *map(str, more)]


def shell(line):
    """A pipeline in a process group of its own, as a terminal runs it."""
    return subprocess.Popen(["bash", "-c", "set -o pipefail; trap : INT; " + line], start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ended(process):
    try:
        return process.wait(3600)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "nothing within two minutes"


def pipes(work):
    # Ctrl-C goes to the whole group: tee dies first.
    for attempt in range(3):
        folder, log = work / f"tee{attempt}", work / f"tee{attempt}.log"
        p = shell(" ".join(words_of(folder, *LONG)) + f" | tee {log}")
        check(f"tee {attempt}: it trains", wait_until(lambda: log.exists() and "step 200/" in log.read_text()))
        os.killpg(p.pid, signal.SIGINT)
        status = ended(p)
        check(f"tee {attempt}: Ctrl-C for the whole pipeline saves", status == 130 and (steps_done(folder) or 0) >= 200, f"{status}, {steps_done(folder)} steps")
    folder = work / "head"
    p = shell(" ".join(words_of(folder, "--steps", 2000, "--eval-every", 100)) + " | head -n 7")
    status = ended(p)
    check("head: the training goes on to its end", status == 0 and steps_done(folder) == 2000, f"{status}, {steps_done(folder)} steps")
    folder = work / "both"
    p = shell(" ".join(words_of(folder, "--steps", 2000, "--eval-every", 100)) + " 2>&1 | true")
    status = ended(p)
    check("a reader of both streams that is gone", status == 0 and steps_done(folder) == 2000, f"{status}, {steps_done(folder)} steps")


def started(folder, *more, **how):
    log = folder.with_suffix(".log")
    with log.open("w") as out:
        p = subprocess.Popen(words_of(folder, *LONG, *more), stdout=out, stderr=subprocess.DEVNULL, **how)
    if not wait_until(lambda: "step 200/" in log.read_text()):
        check(f"{folder.name}: it trains", False, log.read_text())
    return p, log


def signals(work):
    for name in ("SIGHUP", "SIGTERM", "SIGINT"):
        folder = work / name
        p, log = started(folder)
        p.send_signal(getattr(signal, name))
        status = ended(p)
        done = steps_done(folder)
        check(f"{name} saves", status == 130 and (done or 0) >= 200, f"{status}, {done} steps")
        check(f"{name}: how to go on", f"continue with: tenon lm train --resume {folder} --eval-every 200" in log.read_text(), log.read_text()[-300:])
    # What closes a terminal sends SIGHUP twice, `timeout` SIGTERM twice: that is one request.
    for name in ("SIGHUP", "SIGTERM"):
        folder = work / (name + "2")
        p, _ = started(folder)
        until = time.monotonic() + 0.3  # also while it saves, and after
        while time.monotonic() < until and p.poll() is None:
            p.send_signal(getattr(signal, name))
            time.sleep(0.002)
        status = ended(p)
        check(f"{name} several times at once saves", status == 130 and (steps_done(folder) or 0) >= 200, f"{status}, {steps_done(folder)} steps")
    folder = work / "nohup"
    p, _ = started(folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    p.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    check("an ignored SIGHUP stays ignored", p.poll() is None)
    p.send_signal(signal.SIGTERM)
    check("and SIGTERM saves", ended(p) == 130 and (steps_done(folder) or 0) >= 200)


def full_disks(work):
    """Saves that fail while the training runs, by the process's limit for files."""
    folder = work / "limit"
    p, log = started(folder, "--save-every", 100)
    p.send_signal(signal.SIGTERM)
    ended(p)
    before = steps_done(folder)
    with log.open("w") as out:
        p = subprocess.Popen([TENON, "lm", "train", "--resume", str(folder), "--save-every", "50", "--eval-every", "100"],
                             stdout=out, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: log.read_text().count("step ") >= 2)
    resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    seen = log.read_text().count("step ")
    check("a save that fails does not end the training", wait_until(lambda: log.read_text().count("step ") >= seen + 5) and p.poll() is None)
    resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    p.send_signal(signal.SIGINT)
    status = ended(p)
    said = p.stderr.read()
    check("when there is room again it saves", status == 130 and steps_done(folder) > before, f"{status}: {said[-300:]}")
    check("the failed save is told", "was not saved" in said and "continues" in said, said[:300])

    folder = work / "limit2"
    p, _ = started(folder)
    resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    p.send_signal(signal.SIGINT)
    status = ended(p)
    check("a last save that fails is an error, not a signal", status == 1, status)

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))
    done = train(work / "limit3", "--steps", 4, preexec_fn=small)
    check("a save beyond the limit for files is refused before the first step",
          done.returncode == 1 and "safetensors" in done.stderr and "ulimit -f" in done.stderr and "step 0" not in done.stdout, done)
    done = subprocess.run([TENON, "ops"], stdout=(work / "ops").open("w"), stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    check("other output beyond it is an error", done.returncode == 1 and "write failed" in done.stderr, done)

    disk = work / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True).returncode:
        print("--  a full disk: no file system of its own can be mounted here")
        return
    try:
        done = train(disk / "model", "--steps", 4)
        check("a disk without room for a save is refused before the first step",
              done.returncode == 1 and "too full" in done.stderr and "--out" in done.stderr and "step 0" not in done.stdout, done)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def tree(folder):
    return {str(p.relative_to(folder)): p.is_symlink() or (p.read_bytes() if p.is_file() else None) for p in sorted(folder.rglob("*"))}


def replacing(work):
    model = work / "model"
    check("a model", train(model, "--steps", 6, "--save-every", 2, "--checkpoint", "--exec", "stream", "--device", "cpu").returncode == 0)
    before = tree(model)
    done = train(model, "--steps", 2)
    check("--out of a trained model is refused", done.returncode == 1 and "--resume" in done.stderr and "--force" in done.stderr, done.stderr)
    check("and it is as it was", tree(model) == before, sorted(tree(model)))
    anyones = work / "anyones"
    for name in ("config.json", "loss.svg", "tokenizer.json"):
        shutil.rmtree(anyones, ignore_errors=True)
        anyones.mkdir()
        (anyones / name).write_text("mine")
        done = train(anyones, "--steps", 2)
        check(f"--out over anyone's {name}", done.returncode == 1 and name in done.stderr and "--force" in done.stderr
              and "--resume" not in done.stderr and tree(anyones) == {name: b"mine"}, done.stderr)
    (anyones / "config.json").symlink_to(work / "nowhere")
    check("--out over a broken link", train(anyones, "--steps", 2).returncode == 1 and (anyones / "config.json").is_symlink())
    other = work / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    check("--out beside other files", train(other, "--steps", 2).returncode == 0 and (other / "notes.txt").read_text() == "mine")
    copy = work / "copy"
    shutil.copytree(model, copy)
    done = resume(model, "--out", copy)
    check("--resume into another model", done.returncode == 1 and "--force" in done.stderr and tree(copy) == before, done.stderr)
    check("--resume --out of the same folder", resume(model, "--out", f"{model}/.").returncode == 0)
    done = train(copy, "--steps", 2, "--force")
    check("--force replaces", done.returncode == 0 and steps_done(copy) == 2, done.stderr)
    done = resume(copy, "--force")
    check("--force that says nothing", done.returncode == 2 and "--force" in done.stderr, done.stderr)
    trace = work / "book.txt"
    trace.write_text("Once upon a time")
    done = train(work / "traced", "--steps", 2, "--trace", trace)
    check("--trace over anyone's file", done.returncode == 1 and trace.read_text() == "Once upon a time", done.stderr)
    for _ in range(2):
        done = train(work / "traced", "--steps", 2, "--trace", work / "t.json", "--force")
        check("--trace over a trace", done.returncode == 0, done.stderr)


def going_on(work):
    folder = work / "options"
    done = train(folder, "--steps", 30, "--save-every", 5, "--eval-every", 7, "--checkpoint", "--exec", "stream", "--device", "cpu",
                 "--stop-after", 10)
    wanted = f"continue with: tenon lm train --resume {folder} --save-every 5 --eval-every 7 --checkpoint --exec stream --device cpu"
    check("the full command to go on is printed", wanted in done.stdout, done.stdout[-400:])
    done = resume(folder, "--stop-after", 20)
    check("the options are kept by --resume alone", wanted in done.stdout and "step 14/30" in done.stdout, done.stdout[-400:])
    done = resume(folder, "--stop-after", 22, "--save-every", 4, "--checkpoint=off", "--exec", "graph")
    check("options that are given win", f"--resume {folder} --save-every 4 --eval-every 7 --exec graph --device cpu" in done.stdout, done.stdout[-400:])
    odd = work / "it's a folder"
    done = train(odd, "--steps", 4, "--stop-after", 2)
    command = done.stdout.split("continue with: ")[1].strip().replace("tenon", TENON, 1)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    check("the command can be pasted", done.returncode == 0 and steps_done(odd) == 4, done)
    done = resume(odd)
    check("a finished training says so", done.returncode == 0 and "--steps N extends it" in done.stdout, done)
    done = resume(odd, "--steps", 9)
    check("--steps extends it", done.returncode == 0 and steps_done(odd) == 9 and "9 instead of 4" in done.stderr, done)
    done = resume(odd, "--steps", 3)
    check("not backwards", done.returncode == 2 and "--steps 3" in done.stderr and "9" in done.stderr, done)
    state = json.loads((odd / "training.json").read_text())
    for bad in (["--plugin", "/tmp/x.so"], ["--force"], "--device", [1], ["--save-every"], ["--save-every", "x"]):
        (odd / "training.json").write_text(json.dumps({**state, "options": bad}))
        done = resume(odd)
        check(f"stored options {bad}", done.returncode in (1, 2) and ("options" in done.stderr or "--save-every" in done.stderr), done)


def hostile_folders(work):
    model = work / "base"
    check("a base", train(model, "--steps", 4, "--stop-after", 2).returncode == 0)
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    for name in ("config.json", "model.safetensors", "notes.txt"):
        (elsewhere / name).write_text("mine")
    kept = tree(elsewhere)

    def case(name, prepare, *said):
        folder = work / name.replace(" ", "_")
        shutil.copytree(model, folder, symlinks=True)
        prepare(folder)
        before = tree(folder)
        done = resume(folder)
        good = done.returncode == 1 and all(s in done.stderr for s in said) and tree(elsewhere) == kept and tree(folder) == before
        check(f".saved: {name}", good, f"{done.returncode} {done.stderr} {sorted(tree(elsewhere))} {sorted(tree(folder))}")
        done = subprocess.run([TENON, "lm", "generate", "--model", str(folder), "--prompt", "a", "--tokens", "2"], capture_output=True)
        check(f".saved: {name}: readers", done.returncode == 0, done.stderr)
        done = train(folder, "--steps", 2, "--force")
        check(f".saved: {name}: not even by force", done.returncode == 1 and tree(elsewhere) == kept, done.stderr)

    case("a link to another folder", lambda f: (f / ".saved").symlink_to(elsewhere), ".saved", "link")
    case("a link to nothing", lambda f: (f / ".saved").symlink_to(work / "nothing"), ".saved", "link")
    case("a file", lambda f: (f / ".saved").write_text("mine"), ".saved")

    def with_others(f):
        (f / ".saved").mkdir()
        (f / ".saved" / "notes.txt").write_text("mine")
    case("a folder with other files", with_others, "notes.txt")

    def with_link(f):
        (f / ".saved").mkdir()
        (f / ".saved" / "loss.svg").symlink_to(elsewhere / "notes.txt")
    case("a folder with a link", with_link, "loss.svg")

    folder = work / "stale"
    shutil.copytree(model, folder)
    (folder / ".saving-abcdef").symlink_to(elsewhere)
    (folder / ".saving-ghijkl").mkdir()
    (folder / ".saving-ghijkl" / "thesis.txt").write_text("mine")
    (folder / ".saving-mnopqr").mkdir()
    (folder / ".saving-mnopqr" / "config.json").write_text("cut off")
    (folder / ".saving-mnopqr" / "model.safetensors.12-0.tmp").write_text("cut off")
    done = resume(folder)
    check("what looks like a save that was cut off", done.returncode == 0 and tree(elsewhere) == kept and (folder / ".saving-abcdef").is_symlink()
          and (folder / ".saving-ghijkl" / "thesis.txt").read_text() == "mine" and not (folder / ".saving-mnopqr").exists(), done)

    # The place of a save is taken while the training runs: its bytes stay.
    folder = work / "taken"
    p, log = started(folder)
    (folder / ".saved").mkdir()
    (folder / ".saved" / "notes.txt").write_text("mine")
    p.send_signal(signal.SIGINT)
    status = ended(p)
    kept_in = list(folder.glob("saved-*"))
    check("a save whose place is taken stays", status == 1 and len(kept_in) == 1 and (steps_done(kept_in[0]) or 0) >= 200, f"{status} {sorted(folder.iterdir())}")
    if kept_in:
        done = resume(kept_in[0], "--stop-after", 100)
        check("and can be gone on with", done.returncode == 0, done)


def set_limit(file, bytes):
    """A limit below what the group uses is refused while its last process ends."""
    for _ in range(100):
        try:
            file.write_text(str(bytes))
            return
        except OSError:
            time.sleep(0.05)
    file.write_text(str(bytes))


def near_the_limit(work, limit, join):
    """Just above a limit that is refused, a training runs or is refused: it is never killed."""
    sizes = "--context 64 --dim 384 --layers 4 --heads 6 --kv-heads 6 --ffn 1024 --batch 2 --steps 2".split()
    variants = {"f32": [], "bf16": ["--dtype", "bf16"], "sums": ["--accumulate", "2"], "bf16-sums": ["--dtype", "bf16", "--accumulate", "2"],
                "recompute": ["--checkpoint"]}
    words = {name: ["train", "--text", TEXT, "--out", str(work / name), *sizes, *more] for name, more in variants.items()}
    words |= {f"resumed {name}": ["train", "--resume", str(work / name), "--steps", "4"] for name in ("f32", "bf16-sums")}
    for name, arguments in words.items():
        run = lambda: subprocess.run([TENON, "lm", *arguments], capture_output=True, text=True, errors="replace", timeout=3600, preexec_fn=join)
        set_limit(limit, 64 << 20)
        tried, done = 64, run()
        outcomes = [done]
        while done.returncode == 1 and "out_of_memory" in done.stderr and tried < 2048:
            least = float(re.search(r"expected at least ([\d.]+) MiB", done.stderr).group(1))
            tried = max(tried + 4, int(least) + 4)
            set_limit(limit, tried << 20)
            done = run()
            outcomes.append(done)
        good = len(outcomes) > 1 and done.returncode == 0
        check(f"near the limit: {name}, runs with {tried} MiB", good, [(o.returncode, o.stderr[-300:]) for o in outcomes])
    set_limit(limit, 60 << 20)
    done = subprocess.run([TENON, "lm", "generate", "--model", str(work / "f32"), "--prompt", "a", "--tokens", "1"], capture_output=True, preexec_fn=join)
    check("near the limit: a generation", done.returncode in (0, 1) and (done.returncode == 0 or b"out_of_memory" in done.stderr), done)
    config = json.loads((work / "f32" / "config.json").read_text())
    (work / "f32" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1 << 17}))
    set_limit(limit, 256 << 20)
    done = subprocess.run([TENON, "lm", "generate", "--model", str(work / "f32"), "--prompt", "a", "--tokens", "1"], capture_output=True, preexec_fn=join)
    check("a cache beyond the limit", done.returncode == 1 and b"max_position_embeddings" in done.stderr, done)


def others_use_it(work, limit, join):
    """What other processes of the control group use is not free."""
    set_limit(limit, 600 << 20)
    other = subprocess.Popen([sys.executable, "-c", "x = bytearray(400 << 20); x[::4096] = b'1' * (100 << 10); print('there', flush=True); input()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=join)
    try:
        other.stdout.readline()
        done = subprocess.run([TENON, "lm", "train", "--text", TEXT, "--out", str(work / "beside"), "--context", "64", "--dim", "512", "--layers", "6",
                               "--heads", "8", "--kv-heads", "8", "--ffn", "1376", "--batch", "2", "--steps", "2"],
                              capture_output=True, text=True, timeout=3600, preexec_fn=join)
        check("memory of others in the group", done.returncode == 1 and "out_of_memory" in done.stderr and other.poll() is None, (done, other.poll()))
    finally:
        other.kill()
        other.wait()


def memory(work):
    huge = "--dim 65536 --layers 400 --heads 64 --kv-heads 8 --ffn 262144 --context 64".split()
    done = subprocess.run([TENON, "lm", "train", "--text", TEXT, "--out", str(work / "huge"), *huge], capture_output=True, text=True, timeout=3600)
    check("weights beyond the memory", done.returncode == 1 and "out_of_memory" in done.stderr and "--dim" in done.stderr, done)
    check("nothing was made", not list((work / "huge").glob("*")) if (work / "huge").exists() else True)
    wide = "--dim 512 --layers 8 --heads 8 --kv-heads 8 --ffn 1376 --context 512 --batch 4096".split()
    done = subprocess.run([TENON, "lm", "train", "--text", *sorted(map(str, pathlib.Path("/usr/share/common-licenses").iterdir())),
                           "--out", str(work / "wide"), *wide], capture_output=True, text=True, timeout=3600)
    check("intermediates beyond the memory", done.returncode == 1 and "out_of_memory" in done.stderr and "step 0" not in done.stdout, done)
    for word in ("--batch 2048 --accumulate 2", "--checkpoint", "intermediates", "GiB"):
        check(f"it says {word}", word in done.stderr, done.stderr)
    for group, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(group) / f"tenon_test_{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit).exists():
                continue
            (group / limit).write_text(str(512 << 20))
            join = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
            devices = subprocess.run([TENON, "devices"], capture_output=True, text=True, preexec_fn=join).stdout
            check("a control group's memory is the device's", "512.0 MiB" in devices, devices)
            done = subprocess.run([TENON, "lm", "train", "--text", TEXT, "--out", str(work / "group"), "--batch", "64", "--steps", "2"],
                                  capture_output=True, text=True, timeout=3600, preexec_fn=join)
            check("a training beyond it is refused, not killed", done.returncode == 1 and "out_of_memory" in done.stderr and "--checkpoint" in done.stderr, done)
            done = train(work / "small", "--steps", 2, preexec_fn=join)
            check("one within it runs", done.returncode == 0, done)
            near_the_limit(work, group / limit, join)
            others_use_it(work, group / limit, join)
            break
        finally:
            group.rmdir()
    else:
        print("--  no control group of memory can be made here")


with tempfile.TemporaryDirectory() as temporary:
    parts = {f.__name__: f for f in (pipes, signals, full_disks, replacing, going_on, hostile_folders, memory)}
    named = sys.argv[2:]
    if named[:1] == ["--without"]:
        named = [name for name in parts if name not in named[1:]]
    for name in named or parts:
        work = pathlib.Path(temporary) / name
        work.mkdir()
        parts[name](work)
print(f"{failures} failures")
sys.exit(1 if failures else 0)
