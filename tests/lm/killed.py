# SPDX-License-Identifier: Apache-2.0
"""killed.py TENON: a training that saves as it goes and is killed again and again, in the middle of steps and of saves, ends
with every byte that one ends with which nobody touched; after each kill the folder holds one whole model."""
import json, pathlib, random, subprocess, sys, tempfile, time

TENON = sys.argv[1]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 2 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --warmup 2 --seed 3 --steps 400".split()
KILLS = 6
random.seed(11)


def command(*args):
    return [TENON, "lm", "train", *map(str, args), "--save-every", "2", "--eval-every", "100"]


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        sys.exit(f"{words}: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def steps_done(folder):
    """Of the newest whole save: its files are in .saved until they have their places."""
    for file in (folder / ".saved" / "training.json", folder / "training.json"):
        if file.exists():
            return json.loads(file.read_text())["done_steps"]
    return None


def check(work, *more):
    straight, killed = work / "straight", work / "killed"
    begin = ("--text", TEXT, *SIZES, *more)
    run(command(*begin, "--out", straight))
    cut_saves, seen = 0, []
    for _ in range(KILLS):
        before = steps_done(killed)
        words = command("--resume", killed) if before is not None else command(*begin, "--out", killed)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 3600
        while process.poll() is None and steps_done_or_none(killed) in (None, before) and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        if process.wait() == 0:
            break  # it was done before the signal came
        cut_saves += any(p.name.startswith(".sav") for p in killed.iterdir())
        seen.append(steps_done(killed))
        if seen[-1] is not None:
            run([TENON, "lm", "generate", "--model", str(killed), "--prompt", "a", "--tokens", "1"])
    if len(seen) < 3 or seen != sorted(seen):
        sys.exit(f"expected several kills at rising steps, got {seen}")
    run(command("--resume", killed))
    for name in ("model.safetensors", "optimizer.safetensors", "training.json", "config.json", "loss.svg"):
        if (straight / name).read_bytes() != (killed / name).read_bytes():
            sys.exit(f"{name} differs from that of a training that nobody killed")
    left = [p.name for p in killed.iterdir() if p.name.startswith(".")]
    if left:
        sys.exit(f"left behind: {left}")
    print(f"ok: {' '.join(more) or 'one batch a step'}: killed at steps {seen}, {cut_saves} times inside a save")
    return cut_saves


def steps_done_or_none(folder):
    try:
        return steps_done(folder)
    except (OSError, ValueError):  # moved in between
        return None


with tempfile.TemporaryDirectory() as temporary:
    cuts = 0
    for number, more in enumerate(((), ("--accumulate", "2", "--dtype", "bf16"))):
        work = pathlib.Path(temporary) / str(number)
        work.mkdir()
        cuts += check(work, *more)
    if cuts == 0:
        sys.exit("no kill fell inside a save")
