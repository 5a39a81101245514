# SPDX-License-Identifier: Apache-2.0
"""Models whose layers have a state of constant size, except some with keys and values: Qwen3.5, Qwen3-Next and LFM2. Logits of
the formulas in plain Python; cuts of a prompt and other sequences; GGUF files; caches; what is refused.

hybrid.py LLM_PROBE TENON"""
import array, json, math, pathlib, random, subprocess, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import tiny_model

PROBE, TENON = sys.argv[1:]
VOCAB, DIM, FFN, HEADS, KV, HEAD, ROTATED = 262, 64, 48, 2, 1, 32, 8
KEY_HEADS, VALUE_HEADS, KEY, VALUE, WIDTH = 2, 4, 8, 8, 4
IDS = [(i * i * 7 + i * 31) % 256 for i in range(24)]
LIMIT = 1e-5  # of the largest logit: numbers are f32 here, and doubles in the formulas
failures = []


def check(what, good, *seen):
    print(f"{'ok ' if good else 'BAD'} {what}", *seen if not good else [], flush=True)
    if not good:
        failures.append(what)


def silu(x):
    return x / (1 + math.exp(-x))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def unit(x):
    return [v / math.sqrt(sum(u * u for u in x) + 1e-6) for v in x]


def pieces(x, size):
    return [x[i:i + size] for i in range(0, len(x), size)]


class Plain:
    """A model in plain Python, a token at a time."""

    def __init__(self, tensors, recurrent, plus_one):
        self.w, self.recurrent, self.plus_one = tensors, recurrent, plus_one
        self.windows, self.states, self.keys, self.values, self.position = {}, {}, {}, {}, 0

    def project(self, x, name):
        shape, numbers = self.w[name + ".weight"]
        return [sum(a * b for a, b in zip(row, x)) for row in pieces(numbers, shape[1])]

    def norm(self, x, name, more=None):
        more = self.plus_one if more is None else more
        scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
        return [v * scale * (g + more) for v, g in zip(x, self.w[name + ".weight"][1])]

    def convolved(self, x, name):
        shape, numbers = self.w[name + ".weight"]
        width = shape[2]
        window = self.windows.setdefault(name, [[0.0] * len(x)] * (width - 1)) + [x]
        self.windows[name] = window[1:]
        return [sum(numbers[c * width + k] * window[k][c] for k in range(width)) for c in range(len(x))]

    def rotated(self, x, dims):
        half, out = dims // 2, list(x)
        for i in range(half):
            angle = self.position * 1e4 ** (-2 * i / dims)
            out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return out

    def attention(self, x, n, gated, norms, output, dims):
        q = pieces(self.project(x, n + "q_proj"), HEAD * (2 if gated else 1))
        keys, values = self.keys.setdefault(n, []), self.values.setdefault(n, [])
        keys.append(self.rotated(self.norm(self.project(x, n + "k_proj"), n + "k_" + norms), dims))
        values.append(self.project(x, n + "v_proj"))
        out = []
        for head in q:
            query = self.rotated(self.norm(head[:HEAD], n + "q_" + norms), dims)
            scores = [math.exp(HEAD ** -0.5 * sum(a * b for a, b in zip(query, key))) for key in keys]
            mixed = [sum(s * v[j] for s, v in zip(scores, values)) / sum(scores) for j in range(HEAD)]
            out += [m * sigmoid(g) for m, g in zip(mixed, head[HEAD:])] if gated else mixed
        return self.project(out, n + output)

    def linear_attention(self, x, n):
        keys = KEY_HEADS * KEY
        qkv = [silu(v) for v in self.convolved(self.project(x, n + "in_proj_qkv"), n + "conv1d")]
        beta, steps, gate = (self.project(x, n + "in_proj_" + part) for part in "baz")
        out = []
        for h in range(VALUE_HEADS):
            at = h // (VALUE_HEADS // KEY_HEADS)
            query, key = unit(qkv[at * KEY:][:KEY]), unit(qkv[keys + at * KEY:][:KEY])
            value = qkv[2 * keys + h * VALUE:][:VALUE]
            decay = math.exp(-math.exp(self.w[n + "A_log"][1][h]) * math.log1p(math.exp(steps[h] + self.w[n + "dt_bias"][1][h])))
            state = self.states.setdefault((n, h), [[0.0] * VALUE for _ in range(KEY)])
            state[:] = [[decay * s for s in row] for row in state]
            rest = [value[j] - sum(state[i][j] * key[i] for i in range(KEY)) for j in range(VALUE)]
            state[:] = [[s + key[i] * r * sigmoid(beta[h]) for s, r in zip(state[i], rest)] for i in range(KEY)]
            read = [KEY ** -0.5 * sum(state[i][j] * query[i] for i in range(KEY)) for j in range(VALUE)]
            out += [o * silu(z) for o, z in zip(self.norm(read, n + "norm", 0), gate[h * VALUE:])]
        return self.project(out, n + "out_proj")

    def short_convolution(self, x, n):
        first, second, inner = pieces(self.project(x, n + "in_proj"), DIM)
        y = self.convolved([a * b for a, b in zip(first, inner)], n + "conv")
        return self.project([a * b for a, b in zip(second, y)], n + "out_proj")

    def mlp(self, x, n, gate, up, down):
        inner = [silu(g) * u for g, u in zip(self.project(x, n + gate), self.project(x, n + up))]
        return self.project(inner, n + down)

    def logits(self, token):
        lfm2 = self.plus_one == 0
        x = self.w["model.embed_tokens.weight"][1][token * DIM:][:DIM]
        for i, recurrent in enumerate(self.recurrent):
            n = f"model.layers.{i}."
            y = self.norm(x, n + ("operator_norm" if lfm2 else "input_layernorm"))
            if lfm2:
                y = self.short_convolution(y, n + "conv.") if recurrent else self.attention(
                    y, n + "self_attn.", False, "layernorm", "out_proj", HEAD)
            else:
                y = self.linear_attention(y, n + "linear_attn.") if recurrent else self.attention(
                    y, n + "self_attn.", True, "norm", "o_proj", ROTATED)
            x = [a + b for a, b in zip(x, y)]
            m = self.norm(x, n + ("ffn_norm" if lfm2 else "post_attention_layernorm"))
            y = self.mlp(m, n + "feed_forward.", "w1", "w3", "w2") if lfm2 else self.mlp(
                m, n + "mlp.", "gate_proj", "up_proj", "down_proj")
            x = [a + b for a, b in zip(x, y)]
        self.position += 1
        last = self.norm(x, "model.embedding_norm" if lfm2 else "model.norm")
        return self.project(last, "model.embed_tokens" if lfm2 else "lm_head")


def random_tensors(shapes):
    source, out = random.Random(7), {}
    for name, shape in shapes.items():
        count = math.prod(shape)
        if len(shape) == 1:
            out[name] = (shape, [source.gauss(0, 0.2) + (1 if "norm" in name else 0) for _ in range(count)])
        else:
            out[name] = (shape, [source.gauss(0, 1) * (0.5 if "embed" in name else shape[-1] ** -0.5) for _ in range(count)])
    return out


def write(folder, config, tensors):
    tiny_model.make(folder)  # its tokenizer
    tiny_model.write_tensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": FFN, "num_attention_heads": HEADS,
        "num_key_value_heads": KV, "head_dim": HEAD, "max_position_embeddings": 512, "rope_theta": 1e4, "eos_token_id": 257} | config))
    return folder


RECURRENT = [True, False, True]
KINDS = ["linear_attention" if r else "full_attention" for r in RECURRENT]
LINEAR = {"num_hidden_layers": 3, "rms_norm_eps": 1e-5, "layer_types": KINDS, "linear_key_head_dim": KEY,
          "linear_value_head_dim": VALUE, "linear_num_key_heads": KEY_HEADS, "linear_num_value_heads": VALUE_HEADS,
          "linear_conv_kernel_dim": WIDTH, "partial_rotary_factor": ROTATED / HEAD}


def qwen35(folder):
    keys, values = KEY_HEADS * KEY, VALUE_HEADS * VALUE
    shapes = {"model.embed_tokens.weight": [VOCAB, DIM], "model.norm.weight": [DIM], "lm_head.weight": [VOCAB, DIM]}
    for i, recurrent in enumerate(RECURRENT):
        n = f"model.layers.{i}."
        shapes |= {n + "input_layernorm.weight": [DIM], n + "post_attention_layernorm.weight": [DIM],
                   n + "mlp.gate_proj.weight": [FFN, DIM], n + "mlp.up_proj.weight": [FFN, DIM], n + "mlp.down_proj.weight": [DIM, FFN]}
        if recurrent:
            n += "linear_attn."
            shapes |= {n + "in_proj_qkv.weight": [2 * keys + values, DIM], n + "in_proj_z.weight": [values, DIM],
                       n + "in_proj_b.weight": [VALUE_HEADS, DIM], n + "in_proj_a.weight": [VALUE_HEADS, DIM],
                       n + "conv1d.weight": [2 * keys + values, 1, WIDTH], n + "A_log": [VALUE_HEADS], n + "dt_bias": [VALUE_HEADS],
                       n + "norm.weight": [VALUE], n + "out_proj.weight": [DIM, values]}
        else:
            n += "self_attn."
            shapes |= {n + "q_proj.weight": [2 * HEADS * HEAD, DIM], n + "k_proj.weight": [KV * HEAD, DIM],
                       n + "v_proj.weight": [KV * HEAD, DIM], n + "o_proj.weight": [DIM, HEADS * HEAD],
                       n + "q_norm.weight": [HEAD], n + "k_norm.weight": [HEAD]}
    tensors = random_tensors(shapes)
    for name, (_, numbers) in tensors.items():
        if "norm" in name and "linear_attn" not in name:
            numbers[:] = [v - 1 for v in numbers]
    # Layers that predict further tokens are in the files, and are not used.
    extra = {"mtp.norm.weight": ([DIM], [0.0] * DIM)}
    write(folder, {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1} | LINEAR, tensors | extra)
    return tensors


def qwen3_next(folder, tensors):
    """The same model, with the rows of each key head side by side."""
    out, each = dict(tensors), VALUE_HEADS // KEY_HEADS
    for i in [i for i, recurrent in enumerate(RECURRENT) if recurrent]:
        n = f"model.layers.{i}.linear_attn."
        rows = {part: pieces(out.pop(f"{n}in_proj_{part}.weight")[1], DIM) for part in ("qkv", "z", "b", "a")}
        both, factors, keys = [], [], KEY_HEADS * KEY
        for h in range(KEY_HEADS):
            wide = each * VALUE
            both += rows["qkv"][h * KEY:][:KEY] + rows["qkv"][keys + h * KEY:][:KEY]
            both += rows["qkv"][2 * keys + h * wide:][:wide] + rows["z"][h * wide:][:wide]
            factors += rows["b"][h * each:][:each] + rows["a"][h * each:][:each]
        for name, all_rows in (("qkvz", both), ("ba", factors)):
            out[f"{n}in_proj_{name}.weight"] = ([len(all_rows), DIM], sum(all_rows, []))
    write(folder, {"model_type": "qwen3_next", "mlp_only_layers": [0, 1, 2]} | LINEAR, out)


def lfm2(folder):
    shapes = {"model.embed_tokens.weight": [VOCAB, DIM], "model.embedding_norm.weight": [DIM]}
    for i, recurrent in enumerate(RECURRENT):
        n = f"model.layers.{i}."
        shapes |= {n + "operator_norm.weight": [DIM], n + "ffn_norm.weight": [DIM], n + "feed_forward.w1.weight": [FFN, DIM],
                   n + "feed_forward.w3.weight": [FFN, DIM], n + "feed_forward.w2.weight": [DIM, FFN]}
        if recurrent:
            n += "conv."
            shapes |= {n + "in_proj.weight": [3 * DIM, DIM], n + "conv.weight": [DIM, 1, WIDTH], n + "out_proj.weight": [DIM, DIM]}
        else:
            n += "self_attn."
            shapes |= {n + "q_proj.weight": [HEADS * HEAD, DIM], n + "k_proj.weight": [KV * HEAD, DIM],
                       n + "v_proj.weight": [KV * HEAD, DIM], n + "out_proj.weight": [DIM, HEADS * HEAD],
                       n + "q_layernorm.weight": [HEAD], n + "k_layernorm.weight": [HEAD]}
    tensors = random_tensors(shapes)
    # 48 is 2/3 of 72, and a multiple of 16.
    write(folder, {"model_type": "lfm2", "num_hidden_layers": 3, "norm_eps": 1e-5, "full_attn_idxs": [1], "conv_L_cache": WIDTH,
                   "block_ff_dim": 72, "block_multiple_of": 16}, tensors)
    return tensors


def probe(model, *mode):
    place = pathlib.Path(model).parent
    (place / "ids").write_text(" ".join(map(str, IDS)))
    subprocess.run([PROBE, model, place / "ids", place / "logits", "cpu", *mode], check=True)
    return array.array("f", (place / "logits").read_bytes())


def error(got, wanted):
    return max(abs(a - b) for a, b in zip(got, wanted, strict=True)) / max(map(abs, wanted))


def formulas(what, folder, plain):
    wanted = [v for token in IDS for v in plain.logits(token)]
    for mode in (["prefill"], ["decode"], ["company"]):
        off = error(probe(folder, *mode), wanted)
        check(f"{what}: {mode[0]} gives the logits of the formulas", off <= LIMIT, off)
    behind = sum((wanted[i * VOCAB:][:VOCAB] for i in range(6, len(IDS), 7)), [])
    off = error(probe(folder, "pieces", "7"), behind)
    check(f"{what}: pieces of 7 tokens", off <= LIMIT, off)
    off = error(probe(folder, "prefill", "--cache", "q8_0"), wanted)
    check(f"{what}: a cache of q8_0 is near, and rounded", LIMIT < off < 0.1, off)
    return wanted


def convert(what, folder, wanted):
    place = folder.parent
    run = lambda *words: subprocess.run([TENON, "llm", "convert", *words], check=True, capture_output=True)
    run(folder, place / f"{what}.gguf", "--type", "F32")
    off = error(probe(place / f"{what}.gguf", "prefill"), wanted)
    check(f"{what}: the GGUF file", off <= LIMIT, off)
    run(place / f"{what}.gguf", place / f"{what}-back")
    first, last = (tiny_model.read_tensors(f / "model.safetensors") for f in (folder, place / f"{what}-back"))
    first = {k: v for k, v in first.items() if not k.startswith("mtp.")}
    check(f"{what}: the names that come back", first.keys() == last.keys(), first.keys() ^ last.keys())
    # 1 was added and taken away; a logarithm of an exponent.
    near = all(shape == last[k][0] and max(abs(a - b) for a, b in zip(numbers, last[k][1])) <= (
        1e-6 if "norm" in k or "A_log" in k else 0) for k, (shape, numbers) in first.items())
    check(f"{what}: the numbers that come back", near)
    off = error(probe(place / f"{what}-back", "prefill"), wanted)
    check(f"{what}: the folder that came back", off <= LIMIT, off)
    run(folder, place / f"{what}-Q8_0.gguf", "--type", "Q8_0")
    off = error(probe(place / f"{what}-Q8_0.gguf", "prefill"), wanted)
    check(f"{what}: a quantized file is near", LIMIT < off < 0.1, off)


def adapter(folder, tensors):
    """Beside a folder and beside a GGUF file, whose heads have another order, as in merged weights."""
    place, source = folder.parent, random.Random(9)
    parts = ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", "q_proj", "o_proj"]
    merged, factors = dict(tensors), {}
    for name, (shape, numbers) in tensors.items():
        module = name.removesuffix(".weight")
        if module.split(".")[-1] not in parts:
            continue
        a, b = ([source.gauss(0, 0.1) for _ in range(2 * size)] for size in (shape[1], shape[0]))
        factors[f"base_model.model.{module}.lora_A.weight"] = ([2, shape[1]], a)
        factors[f"base_model.model.{module}.lora_B.weight"] = ([shape[0], 2], b)
        merged[name] = (shape, [v + sum(b[2 * (i // shape[1]) + r] * a[r * shape[1] + i % shape[1]] for r in range(2))
                                for i, v in enumerate(numbers)])
    (place / "lora").mkdir()
    tiny_model.write_tensors(place / "lora" / "adapter_model.safetensors", factors)
    (place / "lora" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": parts}))
    write(place / "merged", json.loads((folder / "config.json").read_text()), merged)
    wanted = probe(place / "merged", "prefill")
    for model in (folder, place / "qwen35.gguf"):
        off = error(probe(model, "prefill", "--lora", place / "lora"), wanted)
        check(f"an adapter beside {model.name}", off <= LIMIT, off)
    check("the adapter changes something", error(probe(folder, "prefill"), wanted) > 0.01)


def refused(what, folder, changes, *says):
    path = folder / "config.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | changes))
    done = subprocess.run([TENON, "llm", "run", folder, "--device", "cpu", "--prompt", "Hi", "--tokens", "1"],
                          capture_output=True, text=True)
    path.write_text(text)
    check(f"refused: {what}", done.returncode == 1 and all(s in done.stderr for s in says), done.stderr)


def chat(folder):
    """The same prompt has the same answer."""
    for prompt in ("Hello", "Hello there"):
        run = [TENON, "llm", "run", folder, "--device", "cpu", "--prompt", prompt, "--tokens", "8", "--greedy"]
        first, second = (subprocess.run(run, capture_output=True, text=True) for _ in range(2))
        check(f"a text behind '{prompt}'", first.returncode == 0 and first.stdout == second.stdout, first.stderr)


def main():
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        tensors = qwen35(place / "qwen35")
        wanted = formulas("qwen35", place / "qwen35", Plain(tensors, RECURRENT, 1))
        convert("qwen35", place / "qwen35", wanted)
        adapter(place / "qwen35", tensors)
        qwen3_next(place / "qwen3next", tensors)
        off = error(probe(place / "qwen3next", "prefill"), wanted)
        check("qwen3next: the same model with joint weights", off <= LIMIT, off)
        tensors = lfm2(place / "lfm2")
        wanted = formulas("lfm2", place / "lfm2", Plain(tensors, RECURRENT, 0))
        convert("lfm2", place / "lfm2", wanted)
        chat(place / "qwen35")
        refused("a kind of layer", place / "qwen35", {"layer_types": ["linear_attention", "sliding_attention", "full_attention"]},
                "'layer_types'", "'linear_attention' and 'full_attention'")
        refused("value heads that do not divide", place / "qwen35", {"linear_num_value_heads": 3}, "'linear_num_value_heads'",
                "a multiple of the 2 of linear_num_key_heads")
        refused("an unknown key", place / "qwen35", {"linear_rank": 3}, "'linear_rank'")
        refused("attention without a gate", place / "qwen35", {"attn_output_gate": False}, "'attn_output_gate'")
        refused("a convolution of one tap", place / "lfm2", {"conv_L_cache": 1}, "'conv_L_cache'", "2 to 64")
        refused("another width", place / "lfm2", {"block_ff_dim": 144}, "feed_forward.w1.weight", "[96, 64]")
    if failures:
        sys.exit(f"{len(failures)} failed")


main()
