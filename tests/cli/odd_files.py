# SPDX-License-Identifier: Apache-2.0
"""odd_files.py TENON: pipes, folders and devices where a file is expected: nothing hangs, what is read once may be a pipe, and
every complaint names its file."""
import json, os, pathlib, shutil, signal, subprocess, sys, tempfile, time

TENON = sys.argv[1]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --steps 4 --warmup 1".split()
GRAPH = 'graph "g" {\n  input x: f32[n,4]\n  mine = unary(x) {kind="exp"}\n  output "y" = mine\n}\n'
failures = 0


def run(*args, **more):
    try:
        return subprocess.run([TENON, *map(str, args)], capture_output=True, text=True, errors="replace", timeout=3600, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(args, "hangs", "", "")


def expect(name, result, status, *words):
    global failures
    said = result.stdout + result.stderr
    missing = [w for w in words if w not in said]
    good = result.returncode == status and not missing
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": status {result.returncode}, expected {status}; missing {missing}; said:\n{said[:600]}"))


def shell(line, **more):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, errors="replace", timeout=3600, **more)


with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(temporary)
    model = work / "model"
    expect("a model", run("lm", "train", "--text", TEXT, "--out", model, *SIZES, "--stop-after", 2), 0)
    (work / "g.tng").write_text(GRAPH)

    def spoiled(name, spoil):
        folder = work / "spoiled"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(model, folder)
        (folder / name).unlink()
        spoil(folder / name)
        return folder

    for what, spoil in {"a pipe": os.mkfifo, "a folder": os.mkdir, "an endless device": lambda p: p.symlink_to("/dev/zero"),
                        "a link to itself": lambda p: p.symlink_to(p)}.items():
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            expect(f"{what} as {name}", run("lm", "generate", "--model", spoiled(name, spoil), "--prompt", "a", "--tokens", 1), 1, name)
            expect(f"{what} as {name}, resumed", run("lm", "train", "--resume", spoiled(name, spoil)), 1, name)
        for name in ("training.json", "optimizer.safetensors"):
            expect(f"{what} as {name}", run("lm", "train", "--resume", spoiled(name, spoil)), 1, name)
        expect(f"{what} as config.json, inspected", run("inspect", spoiled("config.json", spoil)), 1, "config.json")
        odd = work / "odd"
        if odd.is_dir():
            odd.rmdir()
        odd.unlink(missing_ok=True)
        spoil(odd)
        expect(f"{what} as a text", run("lm", "train", "--text", odd, "--out", work / "o", *SIZES), 1, "odd" if what != "a pipe" else "too short")
        expect(f"{what} as --config", run("lm", "train", "--text", TEXT, "--out", work / "o", "--config", odd), 1, "odd")
        if what != "a folder":  # a folder is taken for a model's
            expect(f"{what} as a graph", run("bench", odd), 1, "odd")
        expect(f"{what} as a prompt", run("lm", "generate", "--model", model, "--prompt-file", odd), 2 if what == "a pipe" else 1, "odd")
        expect(f"{what} as a plugin", run("devices", "--plugin", odd), 1, "/dev/zero" if "device" in what else "odd")

    # Pipes are as good as files where a file is read once.
    expect("a graph from <(...)", shell(f"{TENON} inspect <(cat {work}/g.tng) --bind n=4"), 0, "native")
    expect("a graph from /dev/stdin", shell(f"{TENON} inspect /dev/stdin --bind n=4 < {work}/g.tng"), 0, "native")
    expect("a graph from a pipe to /dev/stdin", shell(f"(sleep 0.3; cat {work}/g.tng) | {TENON} inspect /dev/stdin --bind n=4"), 0, "native")
    expect("a graph from -", shell(f"cat {work}/g.tng | {TENON} inspect - --bind n=4"), 0, "native")
    expect("a config from <(...)", shell(f"{TENON} lm train --text {TEXT} --out {work}/piped --config <(cat {model}/config.json) --steps 2"), 0, "saved")
    expect("a prompt from <(...)", shell(f"{TENON} lm generate --model {model} --tokens 3 --prompt-file <(echo Once)"), 0, "Once")
    expect("a prompt from standard input", shell(f"echo Once | {TENON} lm generate --model {model} --tokens 3"), 0, "Once")
    expect("no prompt at all", shell(f"{TENON} lm generate --model {model} --tokens 3 < /dev/null"), 2, "--prompt")
    text = shell(f"{TENON} lm train --text <(cat {TEXT}) --out {work}/text {' '.join(SIZES)} --stop-after 2")
    expect("texts from <(...)", text, 0, "saved", "--text FILE...")
    expect("the path of a pipe is not suggested", subprocess.CompletedProcess([], "/dev/fd" in text.stdout, "", ""), 0)
    same = (work / "text" / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    expect("they give the same model", subprocess.CompletedProcess([], int(not same), "", ""), 0)
    expect("they are asked for again", run("lm", "train", "--resume", work / "text"), 1, "--text")
    expect("and taken", run("lm", "train", "--resume", work / "text", "--text", TEXT), 0, "saved")
    expect("texts from standard input", shell(f"cat {TEXT} | {TENON} lm train --text - --out {work}/dash {' '.join(SIZES)}"), 0, "saved")

    expect("two numbers for one symbol", run("bench", work / "g.tng", "--bind", "n=4", "--bind", "n=5"), 2, "--bind n=5", "4")
    secret = work / "secret"
    secret.mkdir(mode=0o700)
    os.chmod(work, 0o755)

    def as_nobody():
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
    if os.getuid() == 0 and subprocess.run([TENON, "--version"], preexec_fn=as_nobody, capture_output=True).returncode == 0:
        for words in (("inspect", secret / "g.tng"), ("lm", "generate", "--model", secret / "m", "--prompt", "a"),
                      ("lm", "train", "--text", secret / "t", "--out", "/tmp/never"), ("lm", "train", "--text", TEXT, "--out", secret / "o"),
                      ("lm", "train", "--resume", secret / "o"), ("devices", "--plugin", secret / "p.so"), ("inspect", model, "--plugin-dir", secret)):
            result = run(*words, preexec_fn=as_nobody)
            if words[0] == "inspect" and words[1] == model:
                expect("a folder of plugins that may not be read", result, result.returncode if result.returncode in (0, 1) else 0)
            else:
                expect(f"not allowed: {' '.join(map(str, words[:2]))}", result, 1, str(secret))
    long = "x" * 5000
    for words in (("inspect", long), ("lm", "generate", "--model", long, "--prompt", "a"), ("lm", "train", "--text", long, "--out", work / "o"),
                  ("lm", "train", "--text", TEXT, "--out", long), ("lm", "train", "--resume", long), ("devices", "--plugin", long)):
        result = run(*words)
        expect(f"a name of 5000 letters: {' '.join(words[:2] if words[0] == 'lm' else words[:1])}", result, 1, "xxx")
print(f"{failures} failures")
sys.exit(1 if failures else 0)
