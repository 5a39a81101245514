# SPDX-License-Identifier: Apache-2.0
"""bad_input.py TENON BAD_PLUGIN_DIR: what a user, a file or a plugin does wrong ends with a message that names the culprit and
an exit status that is not 0, and loses nothing. Each case runs the command; none may die of a signal."""
import json, os, pathlib, random, resource, shutil, signal, struct, subprocess, sys, tempfile

TENON, BAD_PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2])
TEXT = "/usr/share/common-licenses/Apache-2.0"
SIZES = "--dim 32 --layers 1 --heads 2 --kv-heads 1 --ffn 48 --context 16 --batch 2 --steps 4 --warmup 1".split()
failures = 0


def run(*args, **more):
    return subprocess.run([TENON, *map(str, args)], capture_output=True, text=True, errors="replace", timeout=3600, **more)


def expect(name, result, status, *words):
    """The exit status, and every word in what was said."""
    global failures
    said = result.stdout + result.stderr
    missing = [w for w in words if w not in said]
    good = result.returncode == status and not missing
    failures += not good
    if not good:
        print(f"BAD {name}: status {result.returncode}, expected {status}; missing {missing}; said:\n{said[:800]}")
    else:
        print(f"ok  {name}")


def as_nobody():
    """Permission checks do not bind root."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def small_files():
    """Writes beyond 16 KiB fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))


def usage():
    expect("no command", run(), 2, "usage: tenon")
    expect("unknown command", run("fly"), 2, "unknown command 'fly'")
    expect("unknown option", run("devices", "--wings"), 2, "--wings")
    expect("a number that is none", run("lm", "train", "--text", TEXT, "--out", "x", "--steps", "many"), 2, "--steps", "'many'")
    expect("a number out of range", run("lm", "train", "--text", TEXT, "--out", "x", "--layers", "0"), 2, "--layers")
    expect("a value is missing", run("lm", "train", "--text", TEXT, "--out"), 2, "--out")
    expect("an option twice", run("devices", "--threads", "1", "--threads", "2"), 2, "--threads")
    expect("text is missing", run("lm", "train", "--out", "x"), 2, "--text")
    expect("sizes that do not fit", run("lm", "train", "--text", TEXT, "--out", "x", "--dim", "30", "--heads", "4"), 2, "30", "4")
    graph = pathlib.Path(MODEL) / "symbolic.tng"
    graph.write_text('graph "g" {\n  input x: f32[n]\n  %0 = unary(x) {kind="exp"}\n  output "y" = %0\n}\n')
    for number in ("-1", "x"):
        expect(f"a symbol bound to {number}", run("bench", graph, "--bind", f"n={number}"), 2, "--bind", number)
    expect("a symbol beyond memory", run("bench", graph, "--bind", f"n={1 << 60}"), 1, "tenon: ")
    expect("a fill of an input that is not there", run("bench", graph, "--bind", "n=4", "--fill", "y=0:4"), 2, "--fill", "'y'")
    expect("an op and a graph", run("bench", graph, "--op", "unary(f32[4]) {kind=\"exp\"}"), 2, "--op")
    graph.unlink()
    for fill in ("in0", "in0=3", "in0=3:3", "in0=4:x", "in0=0:1e300"):
        expect(f"fill {fill}", run("bench", "--op", "softmax(f32[4])", "--fill", fill), 2, "--fill", fill)
    expect("a fill of a dtype that has none", run("bench", "--op", "cumsum(u8[4])", "--fill", "in0=0:4"), 2, "--fill")
    for op in ("", "softmax", "softmax)(", "= softmax(f32[4]"):
        expect(f"op '{op}'", run("bench", "--op", op), 2, "--op")
    # Places are those of what was typed, whatever graph is made of it.
    for op, *words in (("fly(f32[4])", "--op: at character 1: there is no op 'fly'"), ("softmax(f32[4)", "at character 14: expected ',', got ')'"),
                       ("softmax()", "at character 1: softmax: operand x"), ("softmax(f32[-1])", "at character 13: expected a dim"),
                       ("softmax(f33[4])", "at character 9: expected a dtype", "'f33'"), ("softmax(f32[4] i64)", "at character 19: expected '='"),
                       ("matmul(f32[4,3], f32[4,3])", "at character 1: matmul: operand b"),
                       ("(y, z) = softmax(f32[4])", "at character 1: softmax: got 2 outputs"),
                       ("y z = softmax(f32[4])", "at character 3: expected '=', got 'z'"),
                       ("softmax(f32[4]) }", "at character 17: expected the end of the text, got '}'"),
                       ("softmax(f32[4]) {axis=x}", "at character 23: expected an integer, got 'x'"),
                       ("softmax(f32[4]) {axis=1", "at character 24: expected '}', got the end"),
                       ("topk(f32[8]) {k=5, q=3}", "at character 20: topk: has no attribute 'q'"),
                       ("softmax(f32[1152921504606846976])", "tenon: ")):
        expect(f"op '{op}'", run("bench", "--op", op), 1, *words)
    expect("an index that is outside", run("bench", "--op", "gather(f32[4,4], i64[8])", "--fill", "in1=4:9"), 1, "indices")
    timed = json.loads(run("bench", "--op", "matmul(f32[8,4], f32[4,2])", "--no-ceilings", "--seconds", "0.01", "--json").stdout)[0]
    expect("what a timed product costs", subprocess.CompletedProcess([], int((timed["flops"], timed["bytes"]) != (128, 224)), "", str(timed)), 0)
    cold = json.loads(run("bench", "--op", "matmul(f32[8,4], f32[4,2])", "--no-ceilings", "--cold", "--seconds", "0.01", "--json").stdout)[0]
    expect("the same of a cold one", subprocess.CompletedProcess([], int((cold["flops"], cold["bytes"]) != (128, 224)), "", str(cold)), 0)
    expect("cold language models", run("bench", "--only", "lm_s", "--cold"), 2, "--cold")
    expect("no such device", run("inspect", "--device", "tpu:0", MODEL), 1, "tpu")


def ignored(work):
    """Options that would say nothing where they stand are refused by name."""
    graph = work / "one.tng"
    graph.write_text('graph "g" {\n  input x: f32[4]\n  %0 = unary(x) {kind="exp"}\n  output "y" = %0\n}\n')
    op = ("bench", "--op", "softmax(f32[4])")
    for words, name, *said in (
            (("devices", "--device", "cpu"), "--device"),
            (("ops", "--device", "cpu"), "--device"), (("cache", "--plugin", "x.so"), "--plugin"), (("ops", "--json", "--markdown"), "--json"),
            (("inspect", MODEL, "--batch", "4"), "--batch", "expected with --part train", "decode"),
            (("inspect", MODEL, "--part", "apply", "--batch", "4"), "--batch", "apply"),
            (("inspect", MODEL, "--checkpoint"), "--checkpoint", "expected with --part train"),
            (("inspect", MODEL, "--part", "eval", "--checkpoint"), "--checkpoint", "eval"),
            (("inspect", MODEL, "--bind", "n=4"), "--bind"), (("inspect", graph, "--part", "train"), "--part", "one.tng"),
            (("inspect", graph, "--batch", "2"), "--batch"), (("inspect", graph, "--checkpoint"), "--checkpoint"),
            (("inspect", graph, "--text", "--json"), "--json", "--text"), (("inspect", graph, "--text", "--steps"), "--steps"),
            (("inspect", graph, "--text", "--device", "cpu"), "--device"), (("inspect", graph, "--text", "--no-fallback"), "--no-fallback"),
            (("inspect", graph, "--text", "--bind", "n=4"), "--bind"), (("inspect", graph, "--json", "--steps"), "--steps"),
            ((*op, "--only", "lm_s"), "--only"), ((*op, "--part", "train"), "--part"), ((*op, "--bind", "n=4"), "--bind"),
            (("bench", graph, "--only", "lm_s"), "--only"), (("bench", graph, "--part", "train"), "--part"),
            (("bench", MODEL, "--bind", "n=4"), "--bind"), (("bench", "--part", "train"), "--part"),
            (("bench", "--bind", "n=4"), "--bind"), (("bench", "--fill", "x=0:1"), "--fill"),
            (("lm", "generate", "--model", MODEL, "--prompt", "a", "--temperature", "0", "--top-k", "3"), "--top-k", "--temperature 0"),
            (("lm", "generate", "--model", MODEL, "--prompt", "a", "--temperature", "0", "--seed", "3"), "--seed"),
            (("lm", "train", "--text", TEXT, "--out", work / "o", "--config", MODEL / "config.json", "--tied"), "--tied", "--config"),
            (("lm", "train", "--text", TEXT, "--out", work / "o", "--config", MODEL / "config.json", "--dim", "64"), "--dim", "--config")):
        expect(f"ignored: {' '.join(map(str, words))}", run(*words), 2, name, *said)
    for words in (("inspect", MODEL, "--part", "train", "--batch", "2", "--checkpoint"), ("inspect", graph, "--steps"), ("inspect", MODEL, "--text", "--part", "eval", "--batch", "2")):
        expect(f"of use: {' '.join(map(str, words))}", run(*words), 0)
    graph.unlink()


def texts_and_out(work):
    expect("no such text", run("lm", "train", "--text", work / "none.txt", "--out", work / "o"), 1, "none.txt")
    expect("a folder as text", run("lm", "train", "--text", work, "--out", work / "o", *SIZES), 1, str(work))
    short = work / "short.txt"
    short.write_text("too short")
    expect("a text that is too short", run("lm", "train", "--text", short, "--out", work / "o", *SIZES), 1, "too short")
    expect("out under a file", run("lm", "train", "--text", TEXT, "--out", short / "x", *SIZES), 1, "short.txt")
    odd = os.fsencode(work) + b"/odd\xff.txt"
    shutil.copy(TEXT, odd)
    expect("a text whose name JSON cannot hold", run("lm", "train", "--text", os.fsdecode(odd), "--out", work / "o", *SIZES), 1, "UTF-8")
    folder = work / "diverged"
    shutil.copytree(MODEL, folder)
    before = (folder / "model.safetensors").read_bytes()
    expect("a training that diverges", run("lm", "train", "--text", TEXT, "--out", folder, "--force", *SIZES[:-4], "--steps", "60", "--lr", "1000"), 1, "not finite")
    expect("it leaves the checkpoint", subprocess.CompletedProcess([], int(before != (folder / "model.safetensors").read_bytes()), "", ""), 0)
    closed = work / "closed"
    closed.mkdir(mode=0o555)
    os.chmod(work, 0o755)
    expect("out that may not be written", run("lm", "train", "--text", TEXT, "--out", closed, *SIZES, preexec_fn=as_nobody), 1, "closed")


def full_disk(work):
    folder = work / "full"
    shutil.copytree(MODEL, folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    result = run("lm", "train", "--text", TEXT, "--out", folder, "--force", "--no-room-check", *SIZES, preexec_fn=small_files)
    after = {p.name: p.read_bytes() for p in folder.iterdir()}
    expect("a full disk while saving", result, 1, "safetensors")
    expect("the old checkpoint is whole", subprocess.CompletedProcess([], int(before != after), "", str(after.keys())), 0)


def with_file(work, name, content):
    folder = work / "broken"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MODEL, folder)
    (folder / name).write_bytes(content)
    return folder


def generate(folder):
    return run("lm", "generate", "--model", folder, "--prompt", "a", "--tokens", "1")


def safetensors(work):
    good = (MODEL / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", good[:8])[0]
    header = json.loads(good[8:8 + size])
    for cut in (0, 7, 8, 9, 8 + size // 2, 8 + size, len(good) - 1):
        expect(f"weights cut at {cut}", generate(with_file(work, "model.safetensors", good[:cut])), 1, "model.safetensors")
    expect("trailing bytes", generate(with_file(work, "model.safetensors", good + b"x")), 1, "model.safetensors")
    expect("a huge header", generate(with_file(work, "model.safetensors", struct.pack("<Q", 1 << 63) + good[8:])), 1, "header")

    def rewritten(change):
        changed = json.loads(json.dumps(header))
        change(changed)
        text = json.dumps(changed).encode()
        return with_file(work, "model.safetensors", struct.pack("<Q", len(text)) + text + good[8 + size:])
    name = "model.norm.weight"
    for case, change in {
        "offsets outside": lambda h: h[name].update(data_offsets=[0, 1 << 62]),
        "offsets backwards": lambda h: h[name].update(data_offsets=[8, 0]),
        "offsets that overlap": lambda h: h[name].update(data_offsets=h["lm_head.weight"]["data_offsets"]),
        "a negative dim": lambda h: h[name].update(shape=[-32]),
        "dims that overflow": lambda h: h[name].update(shape=[1 << 40, 1 << 40]),
        "an unknown dtype": lambda h: h[name].update(dtype="F128"),
        "a wrong dtype": lambda h: h[name].update(dtype="I32"),
        "a wrong shape": lambda h: h[name].update(shape=[16, 2]),
        "no offsets": lambda h: h[name].pop("data_offsets"),
        "an entry that is no object": lambda h: h.update({name: 3}),
    }.items():
        expect(f"weights with {case}", generate(rewritten(change)), 1, "model.safetensors", name)

    def rename(h):
        h["model.norm.weigth"] = h.pop(name)
    expect("a misspelt weight", generate(rewritten(rename)), 1, name, "missing")
    expect("a header that is no JSON", generate(with_file(work, "model.safetensors", struct.pack("<Q", 4) + b"{{{{")), 1, "model.safetensors")


def config(work):
    good = json.loads((MODEL / "config.json").read_text())
    expect("a config that is no JSON", generate(with_file(work, "config.json", b"{")), 1, "config.json")
    expect("an empty config", generate(with_file(work, "config.json", b"")), 1, "config.json")
    expect("deep JSON", generate(with_file(work, "config.json", b"[" * 100000)), 1, "config.json")
    for field, value in (("hidden_size", "wide"), ("hidden_size", -4), ("hidden_size", 0), ("hidden_size", 1 << 60), ("num_attention_heads", 5),
                         ("num_key_value_heads", 3), ("model_type", "gpt2"), ("vocab_size", 50000), ("rope_theta", -1.0),
                         ("max_position_embeddings", None), ("max_position_embeddings", 1 << 30), ("num_hidden_layers", 2.5),
                         ("num_hidden_layers", 1 << 30), ("num_hidden_layers", (1 << 63) + 1)):
        text = json.dumps({**good, field: value}).encode()
        expect(f"config with {field} {value}", generate(with_file(work, "config.json", text)), 1, "config.json", field)
    # What changes the result is honoured or refused by name.
    for field, value in (("rope_scaling", {"rope_type": "yarn", "factor": 2.0}), ("rope_parameters", {"rope_type": "dynamic", "factor": 2.0}),
                         ("rope_parameters", {"rope_type": "linear"}), ("rope_parameters", {"rope_type": "default", "rope_theta": 7.0}),
                         ("partial_rotary_factor", 0.5), ("sliding_window", 8), ("hidden_act", "quick_gelu"), ("torch_dtype", "float16"),
                         ("quantization_config", {"bits": 4}), ("architectures", ["LlamaModel"]), ("anything", 1), ("rope_scaling", [1])):
        text = json.dumps({**good, field: value}).encode()
        word = "rope_theta" if value == {"rope_type": "default", "rope_theta": 7.0} else field
        expect(f"config with {field} {value}", generate(with_file(work, "config.json", text)), 1, "config.json", word)
    for field, word in (("attention_bias", "q_proj.bias"), ("mlp_bias", "gate_proj.bias"), ("tie_word_embeddings", "lm_head.weight")):
        text = json.dumps({**good, field: True}).encode()
        expect(f"config with {field} that the weights lack", generate(with_file(work, "config.json", text)), 1, "model.safetensors", word)
    first = generate(with_file(work, "config.json", json.dumps(good).encode())).stdout
    for change in ({"rope_theta": 10.0}, {"rope_scaling": {"type": "linear", "factor": 8.0}}, {"hidden_act": "relu"}, {"rms_norm_eps": 10.0}):
        folder = with_file(work, "config.json", json.dumps({**good, **change}).encode())
        words = ("lm", "generate", "--prompt", "a", "--tokens", "3000", "--temperature", "1", "--seed", "5", "--model")
        expect(f"config with {change} is honoured", subprocess.CompletedProcess([], int(run(*words, folder).stdout == run(*words, MODEL).stdout), "", first), 0)
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["a"], tokenizer["model"]["vocab"]["b"] = tokenizer["model"]["vocab"]["b"], tokenizer["model"]["vocab"]["a"]
    expect("another tokenizer", generate(with_file(work, "tokenizer.json", json.dumps(tokenizer).encode())), 1, "tokenizer.json", "bytes")
    deep = json.dumps({**good, "model_type": "DEEP"}).replace('"DEEP"', "[" * 200000 + "]" * 200000).encode()
    expect("config with a deep model_type", generate(with_file(work, "config.json", deep)), 1, "config.json", "model_type")
    expect("config of more layers than weights", generate(with_file(work, "config.json", json.dumps({**good, "num_hidden_layers": 1 << 20}).encode())), 1,
           "model.safetensors", "1048576")
    expect("config that does not fit the weights", generate(with_file(work, "config.json", json.dumps({**good, "intermediate_size": 64}).encode())), 1,
           "model.safetensors", "mlp")
    missing = run("lm", "generate", "--model", work / "nowhere", "--prompt", "a")
    expect("no such model", missing, 1, "nowhere")


def resume(work):
    def go_on(name, content):
        return run("lm", "train", "--resume", with_file(work, name, content))
    state = json.loads((MODEL / "training.json").read_text())
    expect("training.json cut", go_on("training.json", b'{"total'), 1, "training.json")
    expect("training.json of another step", go_on("training.json", json.dumps({**state, "done_steps": 1}).encode()), 1, "model.safetensors")
    expect("training.json that makes no sense", go_on("training.json", json.dumps({**state, "batch": -1}).encode()), 1, "training.json")
    for field, value in (("batch", 1 << 62), ("lr", -1), ("lr", 1e300), ("losses", [[1e300, 1]]), ("seed", -1)):
        expect(f"training.json with {field} {value}", go_on("training.json", json.dumps({**state, field: value}).encode()), 1, "training.json", field)
    expect("optimizer state cut", go_on("optimizer.safetensors", b"12345678"), 1, "optimizer.safetensors")
    expect("other texts", run("lm", "train", "--resume", MODEL, "--text", "/usr/share/common-licenses/GPL-3"), 1, "texts")


def graph_text(work):
    file = work / "graph.tng"
    good = run("inspect", "--text", "--part", "decode", MODEL).stdout
    file.write_text(good)
    expect("a graph's text, unharmed", run("inspect", file, "--device", "cpu"), 0, "verdicts")
    expect("no such graph", run("inspect", work / "no.tng"), 1, "no.tng")
    random.seed(7)
    harmed = [good[:len(good) // 2], good.replace("rms_norm", "rms_nrom"), good.replace("f32", "f33"), "", "{" * 10000, "\0" * 100,
              good.replace("eps", "esp"), good.replace("[1,1]", "[1,99999999999999999999]")]
    for _ in range(25):
        at = random.randrange(len(good))
        harmed.append(good[:at] + random.choice("}{)(,=%\"@[]x9-\n") * random.randrange(1, 4) + good[at + random.randrange(3):])
    for i, text in enumerate(harmed):
        file.write_text(text)
        result = run("inspect", file, "--device", "cpu")
        if i < 8 and text != good:
            expect(f"harmed graph {i}", result, 1, "graph.tng")
        else:
            expect(f"harmed graph {i}", subprocess.CompletedProcess([], int(result.returncode not in (0, 1)), "", result.stderr), 0)


def plugins(work):
    folder = work / "plugins"
    folder.mkdir(mode=0o755)
    (folder / "text.so").write_text("not a plugin")
    os.chmod(folder / "text.so", 0o644)
    expect("a bad plugin in a searched folder", run("devices", "--plugin-dir", folder), 0, "text.so", "not loaded")
    expect("a bad plugin by name", run("devices", "--plugin", folder / "text.so"), 1, "text.so")
    expect("no such plugin", run("devices", "--plugin", folder / "none.so"), 1, "none.so")
    found = sorted(BAD_PLUGINS.glob("*.so"))
    expect("the bad plugins are there", subprocess.CompletedProcess([], int(not found), "", str(BAD_PLUGINS)), 0)
    for so in found:
        copy = folder / so.name
        shutil.copy(so, copy)
        os.chmod(copy, 0o755)
        result = run("devices", "--plugin", copy)
        good = result.returncode == 0 or (result.returncode == 1 and so.name in result.stderr)
        expect(f"plugin {so.name}", subprocess.CompletedProcess([], int(not good), "", f"{result.returncode} {result.stderr}"), 0)
    victim = folder / found[0].name
    os.chmod(victim, 0o777)
    expect("a plugin that others may write", run("devices", "--plugin", victim), 1, victim.name, "writ")
    os.chmod(victim, 0o000)
    for p in (folder, work):
        os.chmod(p, 0o755)
    if os.getuid() == 0 and subprocess.run([TENON, "--version"], preexec_fn=as_nobody, capture_output=True).returncode == 0:
        expect("a plugin that may not be read", run("devices", "--plugin", victim, preexec_fn=as_nobody), 1, victim.name)


with tempfile.TemporaryDirectory() as temporary:
    WORK = pathlib.Path(temporary)
    MODEL = WORK / "model"
    made = run("lm", "train", "--text", TEXT, "--out", MODEL, *SIZES)
    expect("a small model", made, 0, "saved")
    if made.returncode == 0:
        usage()
        ignored(WORK)
        texts_and_out(WORK)
        full_disk(WORK)
        safetensors(WORK)
        config(WORK)
        resume(WORK)
        graph_text(WORK)
        plugins(WORK)
print(f"{failures} failures")
sys.exit(1 if failures else 0)
