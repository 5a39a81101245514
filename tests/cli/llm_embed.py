# SPDX-License-Identifier: Apache-2.0
"""`tenon llm embed`: vectors next to the same model in Python, pooling, files, errors. Oracle: the Llama of tiny_model, written
out below in floats of 64 bits.

llm_embed.py TENON"""
import array, ast, json, math, os, pathlib, shutil, struct, subprocess, sys, tempfile

import tiny_model

TENON = sys.argv[1]
failures = []


def check(what, good, more=""):
    print(f"{'ok ' if good else 'BAD'} {what}" + ("" if good else f": {more}"), flush=True)
    if not good:
        failures.append(what)


def run(*words, **more):
    return subprocess.run([TENON, "llm", "embed", *map(str, words), "--device", "cpu"], capture_output=True, text=True, timeout=600,
                          **more)


def vectors(*words, **more):
    done = run(*words, **more)
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- The model in Python

def weights_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + size]).items():
        begin, end = t["data_offsets"]
        flat = array.array("f", data[8 + size + begin:8 + size + end])
        width = t["shape"][-1]
        out[name] = list(flat) if len(t["shape"]) == 1 else [list(flat[i:i + width]) for i in range(0, len(flat), width)]
    return out


def times(matrix, x):
    return [sum(a * b for a, b in zip(row, x)) for row in matrix]


def norm(x, gamma):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + 1e-5)
    return [v * scale * g for v, g in zip(x, gamma)]


def turned(x, place):
    half = len(x) // 2
    out = list(x)
    for i in range(half):
        angle = place * 10000.0 ** (-2 * i / len(x))
        a, b = x[i], x[i + half]
        out[i], out[i + half] = a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle)
    return out


def hidden_states(w, tokens, heads=4, kv_heads=2, layers=2):
    xs = [list(w["model.embed_tokens.weight"][t]) for t in tokens]
    for layer in range(layers):
        at = f"model.layers.{layer}."
        dim = len(xs[0]) // heads
        cut = lambda x: [x[i:i + dim] for i in range(0, len(x), dim)]
        keys, values = [], []
        for place, x in enumerate(xs):
            n = norm(x, w[at + "input_layernorm.weight"])
            q = [turned(h, place) for h in cut(times(w[at + "self_attn.q_proj.weight"], n))]
            keys.append([turned(h, place) for h in cut(times(w[at + "self_attn.k_proj.weight"], n))])
            values.append(cut(times(w[at + "self_attn.v_proj.weight"], n)))
            mixed = []
            for h in range(heads):
                kv = h * kv_heads // heads
                scores = [sum(a * b for a, b in zip(q[h], k[kv])) / math.sqrt(dim) for k in keys]
                share = [math.exp(s - max(scores)) for s in scores]
                mixed += [sum(p * v[kv][i] for p, v in zip(share, values)) / sum(share) for i in range(dim)]
            x = [a + b for a, b in zip(x, times(w[at + "self_attn.o_proj.weight"], mixed))]
            n = norm(x, w[at + "post_attention_layernorm.weight"])
            gate, up = times(w[at + "mlp.gate_proj.weight"], n), times(w[at + "mlp.up_proj.weight"], n)
            inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
            xs[place] = [a + b for a, b in zip(x, times(w[at + "mlp.down_proj.weight"], inner))]
    return [norm(x, w["model.norm.weight"]) for x in xs]


def pooled(states, kind, normalize=True):
    v = {"mean": [sum(c) / len(states) for c in zip(*states)], "cls": states[0], "last": states[-1]}[kind]
    length = math.sqrt(sum(a * a for a in v)) if normalize else 1
    return [a / length for a in v]


def close(a, b, limit=1e-4):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= limit * max(map(abs, b))


# ---- Tests

def numbers(folder):
    w = weights_of(folder)
    texts = ["a", "Hello, world", "one longer text that takes more than one step of the model: 0123456789 0123456789"]
    states = [hidden_states(w, list(t.encode())) for t in texts]
    for kind in ("mean", "cls", "last"):
        for normalize in (True, False):
            made = vectors(folder, *texts, "--pooling", kind, *([] if normalize else ["--no-normalize"]))
            good = [close(m["embedding"], pooled(s, kind, normalize)) for m, s in zip(made, states)]
            check(f"{kind}, {'normalized' if normalize else 'as it is'}", good == [True] * 3, good)
    check("index and tokens", [(m["index"], m["tokens"]) for m in made] == [(i, len(t)) for i, t in enumerate(texts)], made)
    plain = vectors(folder, *texts)
    check("mean, normalized: without options", all(close(m["embedding"], pooled(s, "mean")) for m, s in zip(plain, states)))
    ids = vectors(folder, "--ids", ",".join(map(str, texts[1].encode())))
    check("token ids", ids[0]["embedding"] == plain[1]["embedding"])
    return texts, plain


def files(folder, texts, plain):
    listed = folder.parent / "texts.txt"
    for end in ("\n", "\r\n"):
        listed.write_text(end.join(texts) + end, newline="")
        check(f"a file with {end!r}", vectors(folder, "--file", listed) == plain)
    check("standard input", vectors(folder, "--file", "-", input=texts[0]) == plain[:1])
    npy = folder.parent / "out.npy"
    npy.write_bytes(b"old")
    done = run(folder, "--file", listed, "--output", npy)
    data = npy.read_bytes()
    size = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10:10 + size].decode())
    flat = list(array.array("f", data[10 + size:]))
    wanted = [v for m in plain for v in array.array("f", m["embedding"])]
    check(".npy", done.returncode == 0 and data[:6] == b"\x93NUMPY" and head == {"descr": "<f4", "fortran_order": False, "shape": (3, 32)}
          and flat == wanted, (done, head))
    check("nothing else is left", sorted(p.name for p in folder.parent.iterdir()) == ["out.npy", "texts.txt", "tiny"])
    full = run(folder, *texts, "--output", "/dev/full/x.npy")
    check("a place that cannot be written", full.returncode == 1 and "/dev/full/x.npy" in full.stderr, full.stderr)


def gguf(folder, texts, plain):
    """Pooling of a GGUF file."""
    file = folder.parent / "tiny.gguf"
    subprocess.run([TENON, "llm", "convert", folder, file, "--type", "F32"], check=True, capture_output=True)
    made = vectors(file, *texts)
    check("a GGUF file", all(close(m["embedding"], p["embedding"]) for m, p in zip(made, plain)))
    data = file.read_bytes()
    for number, kind in ((0, "mean"), (1, "mean"), (2, "cls"), (3, "last"), (4, None), (9, None)):
        # One more key of u32 behind the header, of version 3: count of tensors, count of keys.
        name = b"llama.pooling_type"
        entry = struct.pack("<Q", len(name)) + name + struct.pack("<II", 4, number)
        tensors, keys = struct.unpack("<QQ", data[8:24])
        other = folder.parent / "pooled.gguf"
        # Tensors begin at a multiple of 32 behind the keys: padding in a further key keeps their places.
        pad = b"tenon.test.padding"
        rest = -(len(entry) + 8 + len(pad) + 4 + 8) % 32
        entry += struct.pack("<Q", len(pad)) + pad + struct.pack("<IQ", 8, rest) + b"x" * rest
        other.write_bytes(data[:8] + struct.pack("<QQ", tensors, keys + 2) + entry + data[24:])
        if kind:
            asked = vectors(folder, texts[1], "--pooling", kind)[0]["embedding"]
            check(f"pooling_type {number}", close(vectors(other, texts[1])[0]["embedding"], asked))
        else:
            done = run(other, texts[1])
            check(f"pooling_type {number} is refused", done.returncode == 1 and "expected mean, cls or last" in done.stderr, done.stderr)
            check("unless an option names another one", run(other, texts[1], "--pooling", "last").returncode == 0)


def converted(folder, texts):
    """The pooling of a folder goes into a GGUF file and back."""
    for mode, kind in (("lasttoken", "last"), ("cls_token", "cls"), ("mean_tokens", "mean")):
        named = folder.parent / ("with_" + mode)
        shutil.copytree(folder, named)
        (named / "1_Pooling").mkdir()
        (named / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, "pooling_mode_" + mode: True}))
        wanted = vectors(folder, texts[1], "--pooling", kind)[0]["embedding"]
        file, back = named.with_suffix(".gguf"), folder.parent / ("back_" + mode)
        for a, b in ((named, file), (file, back)):
            subprocess.run([TENON, "llm", "convert", a, b, "--type", "F32"], check=True, capture_output=True)
        good = [close(vectors(m, texts[1])[0]["embedding"], wanted) for m in (named, file, back)]
        check(f"{mode}: a folder, a GGUF file of it, a folder of that", good == [True] * 3, good)


def headless(folder, texts, plain):
    """Models for embeddings are published without a head, and with other names."""
    base = shutil.copytree(folder, folder.parent / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaModel"]}))
    data = (base / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, content, kept = json.loads(data[8:8 + size]), b"", {}
    for name, t in header.items():
        if name != "lm_head.weight":
            part = data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
            kept[name.removeprefix("model.")] = t | {"data_offsets": [len(content), len(content) + len(part)]}
            content += part
    text = json.dumps(kept).encode()
    (base / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
    check("a model without a head", vectors(base, *texts) == plain)
    done = subprocess.run([TENON, "llm", "run", base, "--raw", "--prompt", "x", "--device", "cpu"], capture_output=True, text=True)
    check("which writes no text", done.returncode == 1 and "no head" in done.stderr, done.stderr)


def errors(folder):
    for words, code, said in ((["x", ""], 2, "text 2 is empty"), ([], 2, "expected texts"), (["x", "--ids", "1"], 2, "--ids"),
                              (["--ids", "1,900"], 1, "0 to 261, got 900"), (["--ids", "a"], 2, "--ids"),
                              (["x", "--pooling", "max"], 2, "mean"), (["x", "--output", "a.txt"], 2, ".npy"),
                              (["x", "y" * 600], 1, "text 2: expected at most 512 tokens"),
                              (["--file", folder / "none"], 1, "none"), (["x", "--file", "-"], 2, "--file")):
        done = run(folder, *words)
        check(f"refused: {[str(w)[:20] for w in words]}", done.returncode == code and said in done.stderr and not done.stdout,
              (done.returncode, done.stderr))
    bad = shutil.copytree(folder, folder.parent / "bad")
    (bad / "tokenizer.json").unlink()
    done = run(bad, "x")
    check("without a tokenizer", done.returncode == 1 and "--ids needs no tokenizer" in done.stderr, done.stderr)
    check("--ids without a tokenizer", len(vectors(bad, "--ids", "1,2")) == 1)


with tempfile.TemporaryDirectory() as place:
    tiny = tiny_model.make(pathlib.Path(place, "tiny"))
    texts, plain = numbers(tiny)
    files(tiny, texts, plain)
    gguf(tiny, texts, plain)
    converted(tiny, texts)
    headless(tiny, texts, plain)
    errors(tiny)
if failures:
    sys.exit(f"{len(failures)} failed")
