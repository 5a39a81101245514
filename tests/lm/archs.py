#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""archs.py TENON PROBE mamba|delta: the recurrent models as users run them. Training lowers the held-out loss, resumed ones end
with the same weights, and generation by steps gives what the whole sequence gives, far beyond the context of the training."""
import array, json, math, pathlib, re, signal, struct, subprocess, sys, tempfile, time

TENON, PROBE, ARCH = sys.argv[1:4]
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = {"mamba": ["--state", "4"], "delta": ["--heads", "2", "--ffn", "48"]}[ARCH]
TRAIN = ["--text", TEXT, "--arch", ARCH, "--dim", "32", "--layers", "2", "--context", "32", "--warmup", "5", "--lr", "1e-2",
         "--steps", "100", "--eval-every", "25", *SIZES]
BATCH = ["--batch", "4"]
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


class Plain:
    """The model in plain Python, a token at a time."""

    def __init__(self, folder):
        data = (folder / "model.safetensors").read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        self.w = {}
        for name, t in header(folder / "model.safetensors").items():
            if name != "__metadata__":
                low, high = t["data_offsets"]
                flat = array.array("f", data[start + low:start + high])
                columns = t["shape"][-1] if len(t["shape"]) > 1 else 0
                self.w[name] = [flat[i:i + columns] for i in range(0, len(flat), columns)] if columns else flat
        self.config = json.loads((folder / "config.json").read_text())
        self.windows, self.states = {}, {}

    def project(self, x, name):
        return [sum(a * b for a, b in zip(row, x)) for row in self.w[name + ".weight"]]

    def norm(self, x, name):
        scale = (sum(v * v for v in x) / len(x) + self.config["rms_norm_eps"]) ** -0.5
        return [v * scale * g for v, g in zip(x, self.w[name + ".weight"])]

    def convolved(self, x, name):
        taps = self.w[name + ".weight"]
        window = self.windows.setdefault(name, [[0.0] * len(x)] * (len(taps) - 1)) + [x]
        self.windows[name] = window[1:]
        return [silu(b + sum(tap[c] * row[c] for tap, row in zip(taps, window))) for c, b in enumerate(self.w[name + ".bias"])]

    def mamba(self, x, n):
        size, n = self.config["state_size"], n + "mixer."
        both = self.project(x, n + "in_proj")
        half = len(both) // 2
        u, z = self.convolved(both[:half], n + "conv1d"), both[half:]
        selected = self.project(u, n + "x_proj")
        b, c = selected[-2 * size:-size], selected[-size:]
        steps = self.project(selected[:-2 * size], n + "dt_proj")
        y = []
        for d in range(half):
            step = softplus(steps[d] + self.w[n + "dt_bias"][d])
            state = self.states.setdefault((n, d), [0.0] * size)
            for i in range(size):
                state[i] = math.exp(-step * math.exp(self.w[n + "A_log"][d * size + i])) * state[i] + step * b[i] * u[d]
            y.append((sum(a * h for a, h in zip(c, state)) + self.w[n + "D"][d] * u[d]) * silu(z[d]))
        return self.project(y, n + "out_proj")

    def delta(self, x, n):
        heads, n = self.config["num_attention_heads"], n + "linear_attn."
        k = self.config["hidden_size"] // heads
        v = k * self.config["expand"]
        qkv = self.convolved(self.project(x, n + "in_proj_qkv"), n + "conv1d")
        beta, steps, gate = (self.project(x, n + "in_proj_" + part) for part in "baz")
        y = []
        for h in range(heads):
            query, key = unit(qkv[h * k:][:k]), unit(qkv[(heads + h) * k:][:k])
            value = qkv[2 * heads * k + h * v:][:v]
            decay = math.exp(-math.exp(self.w[n + "A_log"][h]) * softplus(steps[h] + self.w[n + "dt_bias"][h]))
            state = self.states.setdefault((n, h), [[0.0] * v for _ in range(k)])
            for row in state:
                row[:] = [decay * s for s in row]
            rest = [value[j] - sum(state[i][j] * key[i] for i in range(k)) for j in range(v)]
            for i in range(k):
                state[i] = [s + key[i] * r / (1 + math.exp(-beta[h])) for s, r in zip(state[i], rest)]
            out = self.norm([k ** -0.5 * sum(state[i][j] * query[i] for i in range(k)) for j in range(v)], n + "norm")
            y += [o * silu(z) for o, z in zip(out, gate[h * v:])]
        return self.project(y, n + "out_proj")

    def logits(self, token):
        x = list(self.w["model.embed_tokens.weight"][token])
        for i in range(self.config["num_hidden_layers"]):
            n = f"model.layers.{i}."
            x = add(x, getattr(self, ARCH)(self.norm(x, n + "input_layernorm"), n))
            if ARCH == "delta":
                m = self.norm(x, n + "post_attention_layernorm")
                gated = [silu(g) * u for g, u in zip(self.project(m, n + "mlp.gate_proj"), self.project(m, n + "mlp.up_proj"))]
                x = add(x, self.project(gated, n + "mlp.down_proj"))
        return self.project(self.norm(x, "model.norm"), "lm_head")


def silu(x):
    return x / (1 + math.exp(-x))


def softplus(x):
    return math.log1p(math.exp(x))


def unit(x):
    return [v / math.sqrt(sum(u * u for u in x) + 1e-6) for v in x]


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def formulas(folder):
    text = pathlib.Path(TEXT).read_bytes()[200:260]
    (folder / "text").write_bytes(text)
    subprocess.run([PROBE, folder, folder / "text", folder / "logits"], check=True)
    got = array.array("f", (folder / "logits").read_bytes())
    plain = Plain(folder)
    expected = [v for token in text for v in plain.logits(token)]
    apart, most = max(abs(a - b) for a, b in zip(got, expected)), max(map(abs, expected))
    check("logits of the formulas in plain Python", len(got) == len(expected) and apart < 1e-4 * most, f"{apart:.1e} of {most:.1f}")


def same_text(name, folder, prompt, tokens, closest=1e-3):
    out = run("generate", "--model", folder, "--prompt", prompt, "--tokens", str(tokens), "--temperature", "0").stdout[:-1]
    text = out[len(prompt):]
    check(f"{name}: so many bytes", out.startswith(prompt.encode()) and len(text) == tokens, len(text))
    likely = whole(folder, out[:-1])[len(prompt) - 1:]
    ties = sum(margin < closest for _, margin in likely)
    wrong = [i for i, ((top, margin), byte) in enumerate(zip(likely, text)) if top != byte and margin >= closest]
    check(name, not wrong and ties < len(text) // 4, f"{len(text)} bytes, {ties} too close to tell, wrong: {wrong[:5]}")


def single_bytes():
    """The loss of the best model that looks at no other byte."""
    text = pathlib.Path(TEXT).read_bytes()
    return -sum(math.log(text.count(byte) / len(text)) for byte in text) / len(text)


def training(work):
    a, b = work / "straight", work / "parts"
    run("train", *TRAIN, *BATCH, "--out", a)
    losses = held_out(a)
    check("the held-out loss falls at each evaluation", all(x > y for x, y in zip(losses, losses[1:])), losses)
    check("and ends below that of single bytes", losses[-1] < single_bytes() - 0.2, (losses[-1], single_bytes()))
    run("train", *TRAIN, *BATCH, "--out", b, "--stop-after", "35")
    run("train", "--resume", b)
    for file in ("model.safetensors", "optimizer.safetensors", "config.json"):
        check(f"35 + 65 steps equal 100: {file}", (a / file).read_bytes() == (b / file).read_bytes())
    config = json.loads((a / "config.json").read_text())
    check("config.json names the architecture", config["model_type"] == f"tenon-{ARCH}", config)
    run("train", "--text", TEXT, "--config", a / "config.json", "--out", work / "again", "--steps", "100", *BATCH, "--warmup", "5", "--lr",
        "1e-2", "--eval-every", "25")
    check("--config trains the same model", (a / "model.safetensors").read_bytes() == (work / "again" / "model.safetensors").read_bytes())
    for options in ([*BATCH, "--checkpoint"], ["--batch", "2", "--accumulate", "2"]):
        out = work / options[-2]
        run("train", *TRAIN, "--out", out, *options)
        apart = abs(held_out(out)[-1] - losses[-1])
        check(f"{' '.join(options)} ends with the same loss", apart < 0.02, apart)
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
    run("train", *TRAIN, *BATCH, "--out", out, "--dtype", "bf16")
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
            refused(f"{option} {value}", ["train", "--text", TEXT, "--arch", ARCH, *out, option, value], f"{option}: expected", value)
    refused("sizes whose product is too large", ["train", *TRAIN, *out, "--expand", "1048576"], "expand * hidden_size", "33554432")
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
    formulas(folder)
    no_decay(folder)
    halves(work)
    generation(folder)
    interruption(work, folder)
    refusals(work, folder)
