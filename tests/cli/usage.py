# SPDX-License-Identifier: Apache-2.0
"""usage.py TENON: help, suggestions, shell completions, and what a terminal sees. Terminals are real ones (pty), shells too where
they are installed."""
import fcntl, json, os, pathlib, pty, re, select, shutil, struct, subprocess, sys, tempfile, termios, time

TENON = os.path.abspath(sys.argv[1])
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --warmup 1".split()
COMMANDS = ["devices", "ops", "run", "inspect", "bench", "calibrate", "cache", "lm train", "lm generate", "completions"]
failures = 0


def check(name, good, said=""):
    global failures
    failures += not good
    print(f"{'ok ' if good else 'BAD'} {name}" + ("" if good else f": {said}"))


def run(*words, **more):
    return subprocess.run([TENON, *map(str, words)], capture_output=True, text=True, errors="replace", timeout=3600, **more)


def on_terminal(words, columns, stdin=subprocess.DEVNULL):
    """What a terminal of so many columns receives on stdout and stderr."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen([TENON, *map(str, words)], stdin=stdin, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    until = time.monotonic() + 3600
    while time.monotonic() < until:
        if select.select([master], [], [], 0.2)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:
                piece = b""
            if not piece:
                break
            seen += piece
    p.wait(3600)
    os.close(master)
    return seen


def suggestions():
    for words, meant in ((["lm", "trian"], "lm train"), (["train"], "lm train"), (["benhc"], "bench"), (["generate"], "lm generate"), (["device"], "devices"),
                         (["help", "inspct"], "inspect"), (["lm", "train", "--stepz", "3"], "--steps"), (["bench", "--sconds", "1"], "--seconds"),
                         (["ops", "sofmax"], "softmax"), (["inspect", "m", "--part", "trian"], "train"), (["completions", "bsh"], "bash"),
                         (["lm", "train", "--dtype", "bf61"], "bf16"), (["--verson"], "--version"), (["--hlep"], "--help")):
        done = run(*words)
        check(f"did you mean: {' '.join(words)}", done.returncode == 2 and f"did you mean '" in done.stderr and meant + "'?" in done.stderr, done.stderr)
    for words in (["zzz"], ["bench", "--zzzzzz"], ["ops", "zzzzzz"]):
        done = run(*words)
        check(f"nothing near: {' '.join(words)}", done.returncode == 2 and "did you mean" not in done.stderr, done.stderr)
    done = run("bench", "--op", "sofmax(f32[4])")
    check("did you mean: an op in a text", done.returncode == 1 and "did you mean 'softmax'?" in done.stderr, done.stderr)
    done = run("lm", "train", "--text", TEXT, "--out", "--steps", "3")
    check("an option where a value is missing", done.returncode == 2 and "--out" in done.stderr and "--steps" in done.stderr, done.stderr)
    for words in (["bench", "-x"], ["lm", "train", "-x", "3"], ["ops", "-v"], ["-x"]):
        done = run(*words)
        check(f"unknown option: {' '.join(words)}", done.returncode == 2 and f"unknown option '{words[-2 if words[-1] == '3' else -1]}'" in done.stderr, done.stderr)
    for words, last in ((["lm", "train", "--nonsense"], "tenon lm train --help"), (["bench", "--seconds", "x"], "tenon bench --help"), (["inspect"], "tenon inspect --help"),
                        (["zzz"], "tenon --help")):
        done = run(*words)
        check(f"errors end with the command's help: {' '.join(words)}", done.returncode == 2 and done.stderr.strip().endswith(last) and "usage: tenon" in done.stderr, done.stderr)


def helps():
    overview = run("--help").stdout
    check("-h, help and no word", run("-h").stdout == overview == run("help").stdout and run().returncode == 2 and run().stderr == overview, overview)
    check("-V", run("-V").stdout == run("--version").stdout != "" and run("-V").returncode == 0)
    check("lm --version", run("lm", "--version").stdout == run("lm", "-V").stdout == run("-V").stdout)
    missing = run("devices", "--plugin", "/nonexistent/plugin.so")
    check("a plugin file that does not exist", missing.returncode == 1 and missing.stderr.strip().endswith("cannot load /nonexistent/plugin.so: No such file or directory"), missing.stderr)
    for command in COMMANDS:
        words = command.split()
        wanted = run(*words, "--help")
        others = [run("help", *words), run(*words, "-h"), run(*words, "--nonsense", "-h")]
        check(f"help of {command}", command in overview and wanted.returncode == 0 and f"usage: tenon {command}" in wanted.stdout
              and all(o.stdout == wanted.stdout and o.returncode == 0 for o in others), wanted)
        for columns in (60, 80, 100, 200):
            text = run(*words, "--help", env={**os.environ, "COLUMNS": str(columns)}).stdout.split("examples:")[0]
            wide = [l for l in text.splitlines() if len(l) > columns]
            check(f"help of {command} fits {columns} columns", not wide, wide)
        seen = on_terminal([*words, "--help"], 66).decode().split("examples:")[0]
        check(f"help of {command} fits its terminal", max(len(l.rstrip("\r")) for l in seen.split("\n")) <= 66, seen)
    check("lm alone", run("lm").returncode == 2 and "lm train" in run("lm").stderr and run("help", "lm").stdout == run("lm", "--help").stdout)
    check("what a command refuses is not in its help", "--device" not in run("devices", "--help").stdout and "--plugin" not in run("completions", "--help").stdout)
    train = " ".join(run("lm", "train", "--help").stdout.split())
    check("defaults in brackets, values named", "[300]" in train and "f32, bf16 [f32]" in train and "jit, aot [jit]" in train, train)
    texts = run("ops", "--json").stdout
    values = {o["name"]: o["values"] for o in json.loads(texts)}
    check("ops name the values that they take", "logsumexp" in values["reduce"]["kind"] and values["rope"]["layout"] == ["bshd", "bhsd", "bsh"]
          and "gelu_tanh" in values["unary"]["kind"] and values["gather"]["oob"] == ["error", "clamp", "skip"] and "atan2" in values["binary"]["kind"]
          and values["pad"]["mode"][0] == "constant" and "tf32" in values["matmul"]["f32_precision"], values)
    check("ops name the values of every operand form", values["batch_linear"]["f32_precision"] == ["ieee", "tf32"] and values["attention_backward"]["layout"] == ["bhsd", "bshd"]
          and values["dynamic_update_slice"]["oob"] == ["error", "clamp"] and values["scatter_elements_add"]["oob"] == ["error", "clamp", "skip"]
          and values["linear"]["act"][:2] == ["none", "neg"], values)
    check("ops name dtypes", "bf16" in values["cast"]["to"] and "none" in values["linear"]["out_dtype"] and values["random_normal"]["dtype"] == ["f32", "f64"], values)
    # A default in quotes, or one that is required, belongs to a string; each has its values, and the default is one of them.
    # "*" stands for any text.
    for o in json.loads(texts):
        for name, default in re.findall(r'(\w+)=("[^"]*"|\?)', o["signature"]):
            if default == "?" and name not in ("kind", "to"):
                continue
            given = o["values"].get(name, [])
            check(f"values of {o['name']}.{name}", given and (default == "?" or given == ["*"] or default.strip('"') in given), o)
    check("one op", run("ops", "reduce").stdout.count("->") == 1)
    check("sample has no gradient", not [o for o in json.loads(texts) if o["name"] == "sample"][0]["gradient"])
    seen = on_terminal(["ops"], 72).decode()
    check("ops fit the terminal", max(len(l.rstrip("\r")) for l in seen.split("\n")) <= 72, max(seen.split("\n"), key=len))
    check("ops in a pipe are whole lines", max(map(len, run("ops").stdout.splitlines())) > 150)


def terminals(work):
    model = work / "model"
    seen = on_terminal(["lm", "train", "--text", TEXT, "--out", model, *SIZES, "--steps", "3000"], 50)
    lines = [re.sub(rb"\x1b\[K", b"", l) for l in re.split(rb"[\r\n]+", seen) if b"[" in l and b"left" in l]
    check("progress is cut to the terminal", lines and max(map(len, lines)) <= 50, lines[:3])
    for columns in (12, 24):
        seen = on_terminal(["lm", "train", "--text", TEXT, "--out", work / f"m{columns}", *SIZES, "--steps", "2000"], columns)
        lines = [re.sub(rb"\x1b\[K", b"", l) for l in re.split(rb"[\r\n]+", seen) if b"/2000 " in l and b"step" not in l]
        check(f"progress is cut to {columns} columns", lines and max(map(len, lines)) <= columns, lines[:3])
    done = run("lm", "train", "--text", TEXT, "--out", work / "said", *SIZES, "--steps", "2")
    for word in ("device   cpu:0", "model    24160 parameters in f32", "memory ", "weights 94.4 KiB", "optimizer 188.8 KiB", "disk ", "free"):
        check(f"before training: {word}", word in done.stdout.split("step 0/")[0], done.stdout)
    words = ["lm", "generate", "--model", model, "--prompt", "a\x1b[2J\x07\xc2\x9b é ü", "--tokens", "300", "--temperature", "4"]
    seen = on_terminal(words, 80)
    text = seen.decode("utf-8")  # nothing but whole characters
    bad = [c for c in text if (ord(c) < 32 and c not in "\r\n\t") or 127 <= ord(c) < 160]
    check("a terminal gets no control bytes", not bad and "\\x1B[2J\\x07" in text and "é ü" in text, bad)
    done = subprocess.run([TENON, *map(str, words)], capture_output=True, timeout=3600)
    check("a file gets the bytes as they are", b"a\x1b[2J\x07" in done.stdout)
    check("tokens per second are told on stderr", re.search(rb"\d+ tokens, \d+ tokens/s", done.stderr), done.stderr)
    for count, told in ((20, rb"^20 tokens, \d+ tokens/s\n$"), (1, rb"^1 token\n$")):
        done = subprocess.run([TENON, "lm", "generate", "--model", model, "--prompt", "ab", "--tokens", str(count)], capture_output=True)
        check(f"{count} tokens are counted", re.search(told, done.stderr), done.stderr)
    done = run("lm", "generate", "--model", model, "--prompt", "x" * 40, "--tokens", "1")
    check("a prompt that is cut is told", "40 bytes" in done.stderr and "last 16" in done.stderr and done.returncode == 0, done.stderr)
    done = subprocess.run(["bash", "-c", f"{TENON} bench --only lm_s --seconds 0.2 --no-ceilings | while read -r l; do date +%s%N; done"], capture_output=True, text=True)
    times = [int(t) for t in done.stdout.split()]
    check("bench prints results as they come", len(times) == 2 and times[1] - times[0] > 50_000_000, times)
    check("bench --json is JSON", [t["name"] for t in json.loads(run("bench", "--only", "lm_s", "--seconds", "0.05", "--no-ceilings", "--json").stdout)]
          == ["lm_s_train_step", "lm_s_decode_token"])


BASH = """
source <({tenon} completions bash)
complete_words() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tenon 2>/dev/null; echo "${{COMPREPLY[*]}}"; }}
"""


def completions(work):
    (work / "some_text.txt").write_text("x")
    (work / "some_folder").mkdir()

    def bash(*words):
        line = BASH.format(tenon=TENON) + "complete_words " + " ".join(f"'{w}'" for w in words)
        return set(subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=work).stdout.split())
    check("bash: commands", bash("tenon", "") >= {"devices", "ops", "lm", "help", "bench"}, bash("tenon", ""))
    check("bash: a beginning", bash("tenon", "ins") == {"inspect"})
    check("bash: lm", bash("tenon", "lm", "") == {"train", "generate", "--help"}, bash("tenon", "lm", ""))
    check("bash: options", bash("tenon", "lm", "train", "--st") == {"--steps", "--stop-after", "--state"}, bash("tenon", "lm", "train", "--st"))
    check("bash: values", bash("tenon", "lm", "train", "--dtype", "") == {"f32", "bf16"} and bash("tenon", "inspect", "m", "--part", "e") == {"eval"})
    check("bash: values after =", bash("tenon", "lm", "train", "--dtype", "=", "b") == {"bf16"}, bash("tenon", "lm", "train", "--dtype", "=", "b"))
    check("bash: files", bash("tenon", "lm", "train", "--text", "some") == {"some_text.txt", "some_folder"}, bash("tenon", "lm", "train", "--text", "some"))
    check("bash: more texts", "some_text.txt" in bash("tenon", "lm", "train", "--text", "a", "some"))
    check("bash: folders", bash("tenon", "lm", "train", "--out", "some") == {"some_folder"}, bash("tenon", "lm", "train", "--out", "some"))
    check("bash: nothing for numbers", bash("tenon", "lm", "train", "--steps", "") == set())
    check("bash: help", bash("tenon", "help", "lm", "") == {"train", "generate"}, bash("tenon", "help", "lm", ""))
    check("bash: hidden options", not bash("tenon", "devices", "--dev"))
    for command in COMMANDS:
        text = run(*command.split(), "--help").stdout
        wanted = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.M))
        got = bash("tenon", *command.split(), "--")
        check(f"bash: all options of {command}", wanted <= got, wanted - got)
    if shutil.which("zsh"):
        (work / "_tenon").write_text(run("completions", "zsh").stdout)
        check("zsh: takes the script", subprocess.run(["zsh", "-n", str(work / "_tenon")], capture_output=True).returncode == 0)
        line = f"autoload -Uz compinit; compinit -u -D; source {work}/_tenon; print -r -- $_comps[tenon]"
        done = subprocess.run(["zsh", "-f", "-c", line], capture_output=True, text=True)
        check("zsh: the command has a completion", done.stdout.strip() == "_tenon", done)
        # _arguments is replaced by one that prints what it was given.
        line = f"""autoload -Uz compinit; compinit -u -D; source {work}/_tenon
_arguments() {{ print -rl -- "$@" }}; words=(tenon lm train --dtype ''); CURRENT=5; _tenon"""
        done = subprocess.run(["zsh", "-f", "-c", line], capture_output=True, text=True)
        check("zsh: options", "--dtype=[" in done.stdout and "(f32 bf16)" in done.stdout and "--text=[" in done.stdout and "_files -/" in done.stdout, done)
    else:
        print("--  zsh is not installed")
    if shutil.which("fish"):
        (work / "tenon.fish").write_text(run("completions", "fish").stdout)

        def fish(line):
            out = subprocess.run(["fish", "-N", "-c", f"source {work}/tenon.fish; complete -C '{line}'"], capture_output=True, text=True, cwd=work)
            return {l.split("\t")[0] for l in out.stdout.splitlines()}
        check("fish: commands", fish("tenon ") >= {"devices", "ops", "lm", "help"} and "train" not in fish("tenon "), fish("tenon "))
        check("fish: lm", fish("tenon lm ") >= {"train", "generate"} and "devices" not in fish("tenon lm "), fish("tenon lm "))
        check("fish: options", fish("tenon lm train --st") == {"--steps", "--stop-after", "--state"}, fish("tenon lm train --st"))
        check("fish: values", fish("tenon lm train --dtype ") == {"f32", "bf16"}, fish("tenon lm train --dtype "))
        check("fish: files", "some_text.txt" in fish("tenon lm train --text some"), fish("tenon lm train --text some"))
        check("fish: help", fish("tenon help ") >= {"bench", "lm"}, fish("tenon help "))
    else:
        print("--  fish is not installed")


with tempfile.TemporaryDirectory() as temporary:
    suggestions()
    helps()
    for part in (terminals, completions):
        folder = pathlib.Path(temporary) / part.__name__
        folder.mkdir()
        part(folder)
print(f"{failures} failures")
sys.exit(1 if failures else 0)
