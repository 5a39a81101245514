#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""archs.py TENON PROBE mamba|delta: the recurrent models as users run them. Training lowers the held-out loss, resumed ones end
with the same weights, and generation by steps gives what the whole sequence gives, far beyond the context of the training."""
import array, json, pathlib, re, signal, struct, subprocess, sys, tempfile, time

TENON, PROBE, ARCH = sys.argv[1:4]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = {"mamba": ["--state", "4"], "delta": ["--heads", "2", "--ffn", "48"]}[ARCH]
TRAIN = ["--text", TEXT, "--arch", ARCH, "--dim", "32", "--layers", "2", "--context", "32", "--batch", "4", "--warmup", "5", "--lr", "1e-2",
         *SIZES]
OTHER = {"mamba": ["--heads", "--kv-heads", "--ffn"], "delta": ["--kv-heads", "--state"]}[ARCH]


def run(*words, status=0):
    done = subprocess.run([TENON, "lm", *words], capture_output=True)
    assert done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done


def check(name, good, value=""):
    print(f"{'ok ' if good else 'BAD'} {name}: {value}")
    assert good, name


def refused(name, words, *says, status=2):
    text = run(*words, status=status).stderr.decode()
    check(name, all(word in text for word in says), text.strip().splitlines()[0])


def held_out(folder):
    return [loss for _, loss in json.loads((folder / "training.json").read_text())["held_out"]]


def header(file):
    data = file.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


def whole(folder, text):
    """The most likely byte after each prefix of the text, and by how much; all prefixes in one run."""
    (folder / "text").write_bytes(text)
    subprocess.run([PROBE, folder, folder / "text", folder / "logits"], check=True)
    logits = array.array("f", (folder / "logits").read_bytes())
    rows = [logits[i:i + 256] for i in range(0, len(logits), 256)]
    assert len(rows) == len(text)
    tops = [sorted(range(256), key=row.__getitem__)[-2:] for row in rows]
    return [(top, row[top] - row[second]) for row, (second, top) in zip(rows, tops)]


def same_text(name, folder, prompt, tokens, closest=1e-3):
    out = run("generate", "--model", folder, "--prompt", prompt, "--tokens", str(tokens), "--temperature", "0").stdout[:-1]
    text = out[len(prompt):]
    check(f"{name}: so many bytes", out.startswith(prompt.encode()) and len(text) == tokens, len(text))
    likely = whole(folder, out[:-1])[len(prompt) - 1:]
    ties = sum(margin < closest for _, margin in likely)
    wrong = [i for i, ((top, margin), byte) in enumerate(zip(likely, text)) if top != byte and margin >= closest]
    check(name, not wrong and ties < len(text) // 4, f"{len(text)} bytes, {ties} too close to tell, wrong: {wrong[:5]}")


def training(work):
    a, b = work / "straight", work / "parts"
    run("train", *TRAIN, "--out", a, "--steps", "60", "--eval-every", "20")
    losses = held_out(a)
    check("the held-out loss falls at each evaluation", all(x > y for x, y in zip(losses, losses[1:])), losses)
    check("and is below that of single bytes' frequencies", losses[-1] < 3.0, losses[-1])
    run("train", *TRAIN, "--out", b, "--steps", "60", "--eval-every", "20", "--stop-after", "25")
    run("train", "--resume", b)
    for file in ("model.safetensors", "optimizer.safetensors", "config.json"):
        check(f"25 + 35 steps equal 60: {file}", (a / file).read_bytes() == (b / file).read_bytes())
    config = json.loads((a / "config.json").read_text())
    check("config.json names the architecture", config["model_type"] == f"tenon-{ARCH}", config)
    run("train", "--text", TEXT, "--config", a / "config.json", "--out", work / "again", "--steps", "60", "--batch", "4", "--warmup", "5",
        "--lr", "1e-2", "--eval-every", "20")
    check("--config trains the same model", (a / "model.safetensors").read_bytes() == (work / "again" / "model.safetensors").read_bytes())
    for option, value in ((["--checkpoint"], 1e-6), (["--batch", "2", "--accumulate", "2"], 1e-4)):
        run("train", *TRAIN, "--out", work / option[0], "--steps", "60", "--eval-every", "20", *option)
        apart = abs(held_out(work / option[0])[-1] - losses[-1])
        check(f"{' '.join(option)} ends with the same loss", apart < value * 100, apart)
    return a


def no_decay(folder):
    """By the text of the graph: weight decay acts on matrices, but on no parameter of a recurrence."""
    text = subprocess.run([TENON, "inspect", folder, "--part", "train", "--text"], capture_output=True, text=True, check=True).stdout
    decay = {name: float(d) for name, d in re.findall(r"= adamw\(([\w.]+),.*weight_decay=([\d.]+)", text)}
    names = [n for n in decay if n.rsplit(".", 1)[-1] in ("A_log", "D", "dt_bias")]
    check("no weight decay of the recurrence", len(names) == (6 if ARCH == "mamba" else 4) and not any(decay[n] for n in names), names)
    check("weight decay of the projections", decay["model.layers.0." + ("mixer" if ARCH == "mamba" else "linear_attn") + ".out_proj.weight"] == 0.1)


def halves(work):
    out = work / "bf16"
    run("train", *TRAIN, "--out", out, "--steps", "60", "--eval-every", "20", "--dtype", "bf16")
    losses = held_out(out)
    check("bf16: the held-out loss falls", losses[-1] < losses[0] - 1.5, losses)
    dtypes = {name.rsplit(".", 1)[-1]: t["dtype"] for name, t in header(out / "model.safetensors").items() if name != "__metadata__"}
    check("bf16: parameters of the recurrence are f32", dtypes["A_log"] == dtypes["dt_bias"] == "F32" and dtypes["weight"] == "BF16", dtypes)
    check("bf16: generates", len(run("generate", "--model", out, "--prompt", "The", "--tokens", "20").stdout) == 24)


def generation(folder):
    text = pathlib.Path(TEXT).read_text()
    same_text("steps alone", folder, "The ", 150)
    same_text("a prompt of one piece", folder, text[100:116], 20)
    same_text("a prompt of long and short pieces and steps", folder, text[:512 + 3 * 16 + 7], 60)
    a, b = (run("generate", "--model", folder, "--prompt", "The", "--tokens", "40", "--seed", seed).stdout for seed in "12")
    check("seeds differ", a != b)
    check("the same seed gives the same text", a == run("generate", "--model", folder, "--prompt", "The", "--tokens", "40", "--seed", "1").stdout)
    # Random numbers do not depend on the pieces: the text after 15 + n tokens is that after 16 + n - 1.
    long = run("generate", "--model", folder, "--prompt", text[:15], "--tokens", "30", "--seed", "3").stdout[:-1]
    again = run("generate", "--model", folder, "--prompt", long[:16].decode(), "--tokens", "29", "--seed", "3").stdout[:-1]
    check("pieces of a prompt change no random number", long == again, (long[-20:], again[-20:]))


def interruption(work, folder):
    (work / "long").write_bytes(pathlib.Path(TEXT).read_bytes() * 400)
    p = subprocess.Popen([TENON, "lm", "generate", "--model", folder, "--prompt-file", work / "long"], stdout=subprocess.PIPE)
    p.stdout.read(1)  # the prompt is written before it is read by the model
    p.send_signal(signal.SIGINT)
    start = time.monotonic()
    p.stdout.read()
    check("Ctrl-C ends the reading of a long prompt", p.wait(60) == 130 and time.monotonic() - start < 30, p.returncode)


def refusals(work, folder):
    out = ["--out", work / "none"]
    for option in OTHER:
        refused(f"{option} of another architecture", ["train", *TRAIN, *out, option, "2"], option, ARCH)
        refused(f"{option} with --resume", ["train", "--resume", folder, option, "2"], option, ARCH)
    for option in ("--expand", "--dim", SIZES[0]):
        for value in ("0", "-1", "99999999999", "x"):
            refused(f"{option} {value}", ["train", *TRAIN, *out, option, value], option)
    for option in ("--expand", "--state"):
        refused(f"{option} without recurrence", ["train", "--text", TEXT, *out, option, "2"], option, "llama")
    refused("another architecture with --resume", ["train", "--resume", folder, "--arch", "llama"], "--arch llama", ARCH)
    refused("--arch with --config", ["train", "--text", TEXT, *out, "--config", folder / "config.json", "--arch", ARCH], "--arch", "--config")
    refused("an unknown architecture", ["train", "--text", TEXT, *out, "--arch", "rwkv"], "rwkv", "mamba")
    config = json.loads((folder / "config.json").read_text())
    for key, value in (("expand", 0), ("conv_kernel", 1), ("num_hidden_layers", -1), ("hidden_size", 1 << 40), ("model_type", "mamba"),
                       ("model_type", "tenon-rwkv"), ("vocab_size", 300), ("dtype", "float16"), ("rope_theta", 1.0), ("expand", "2"),
                       ("rms_norm_eps", None)):
        (work / "config.json").write_text(json.dumps({**config, key: value}))
        refused(f"config.json with {key} {value}", ["train", "--text", TEXT, *out, "--config", work / "config.json"], key, status=1)
    check("nothing was made", not (work / "none").exists())


with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(temporary)
    folder = training(work)
    no_decay(folder)
    halves(work)
    generation(folder)
    interruption(work, folder)
    refusals(work, folder)
