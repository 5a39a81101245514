# SPDX-License-Identifier: Apache-2.0
"""`tenon llm tune` against PyTorch, for each architecture of architectures.py, with weights of folders and of GGUF files: losses and
gradients of some steps, each from the adapter that tenon had before it, and AdamW with these gradients. A model that runs with the
adapter has the loss that the training tells. If PEFT is installed, it reads an adapter of tenon, and tenon one of PEFT.

Two trainings are not compared by where they end: AdamW moves a number by the sign of its gradient in the first steps, even where that
is rounding, and experts are chosen or not. After 5 steps PyTorch in f32 and in f64 differ, in their own adapters, by 30% of the way for
qwen3_next, by 8% for qwen3_5_moe, and by 0.3% for qwen3_5, while gradients from the same adapter differ by less than 0.05%.

tune.py TENON LLM_PROBE [--only NAME ...] [--device cpu]
Exits with 77 (skip) where torch or transformers is absent."""
import argparse, json, math, os, pathlib, re, subprocess, sys, tempfile

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import numpy as np, torch, transformers as T
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))
import architectures

# Gradients of most models are exact to 1e-6. Those of gemma4_image and of models with the delta rule are off by up to 4e-4 in f32, here
# and in PyTorch, against PyTorch in f64: what the rule gives has a root mean square down to 1e-4, by which the norm behind it divides.
LIMIT, GRADIENT_LIMIT, WAY_LIMIT = 1e-4, 1e-3, 1e-5
SMALL, BETA1 = 1e-3, 0.9
STEPS, BATCH, ACCUMULATE, LENGTH, WARMUP, RATE, DECAY, CLIP = 5, 2, 2, 24, 2, 1e-2, 0.1, 0.5
RANK, ALPHA = 4, 8
TEXT = ("Gradients of a loss tell each number of an adapter which way to go; a step goes a little way. " * 4)[:300]
M64 = (1 << 64) - 1
# What transformers calls modules of Hy3, Laguna, EXAONE 3 and Sarvam, and their files call them.
RENAMED = [(".shared_experts.", ".shared_mlp."), (".shared_experts.", ".shared_expert."), ("model.layers.", "transformer.h."),
           (".self_attn.", ".attn.attention."), (".self_attn.", ".attention."), (".o_proj", ".out_proj"), (".o_proj", ".dense"),
           (".gate_proj", ".c_fc_0"), (".up_proj", ".c_fc_1"), (".down_proj", ".c_proj")]


def mix(seed, counter):
    z = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def order(seed, turn, count):
    out, key = list(range(count)), mix(seed, turn)
    for i in range(count, 1, -1):
        j = mix(key, i) % i
        out[i - 1], out[j] = out[j], out[i - 1]
    return out


def add_tokenizer(folder):
    """Each printable letter of ASCII is a token. Returns the ids of TEXT."""
    vocab = {letter: i for i, letter in enumerate([chr(c) for c in range(ord("!"), ord("~") + 1)] + ["\u0120"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}))
    return [vocab["\u0120" if c == " " else c] for c in TEXT]


def rows_of_linear(module, config):
    """Rows of in_proj_qkvz of which a GGUF file of Qwen3-Next makes in_proj_qkv or in_proj_z: a folder has those of q, k, v and z of a
    key head side by side, the file has all of q, then all of k, then all of v."""
    keys, wide = config.linear_key_head_dim, config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    rows = torch.arange(config.linear_num_key_heads * 2 * (keys + wide)).view(config.linear_num_key_heads, -1)
    parts = rows.split([keys, keys, wide, wide], 1)
    return torch.cat([p.flatten() for p in (parts[:3] if module.endswith("qkv") else parts[3:])])


def place_of(module, model, parameters):
    """(parameter, index, whether it has an axis of inputs before that of outputs) of a module. transformers keeps the experts of a
    layer in two parameters. It keeps gate and up of Granite's shared MLP in one parameter, while GGUF files have two."""
    prefixes = ("model.", "model.language_model.", "language_model.model.", "model.text_model.")
    # A GGUF file has the language model of one that reads images, too, without that one's names. Llama 4 is compared without the part
    # that reads images. transformers names the layers of Nemotron-H otherwise than files do.
    start = next((p for p in (*prefixes, "backbone.") if module.startswith(p + "layers.")), "")
    if start and not any(n.startswith(start + "layers.") for n in parameters):
        module = next(p for p in prefixes if any(n.startswith(p + "layers.") for n in parameters)) + module.removeprefix(start)
    renamed = module
    for theirs, ours in RENAMED:
        renamed = renamed.replace(ours, theirs)
    if renamed + ".weight" in parameters:
        module = renamed
    if (name := module + ".weight") in parameters:
        return name, ..., type(model.get_submodule(module)).__name__ == "Conv1D"
    mlp, _, which = module.rpartition(".")
    if (name := f"{mlp}.input_linear.weight") in parameters:
        half = parameters[name].shape[0] // 2
        return name, slice(0, half) if which == "gate_proj" else slice(half, None), False
    if (name := f"{mlp}.in_proj_qkvz.weight") in parameters:
        return name, rows_of_linear(module, model.config), False
    layer, _, rest = module.partition(".experts.")
    number, _, which = rest.partition(".")
    if f"{layer}.experts.down_proj" not in parameters:  # transformers renames it for Mixtral, but not for Granite
        layer = layer.replace("block_sparse_moe", "mlp")
    kind = model.config.get_text_config().model_type
    turned = kind in ("gpt_oss", "llama4_text")
    if which in ("w2", "down_proj"):
        return f"{layer}.experts.down_proj", int(number), turned
    if (name := f"{layer}.experts.up_proj") in parameters:  # no gate
        return name, int(number), turned
    name, second = f"{layer}.experts.gate_up_proj", which not in ("w1", "gate_proj")
    half = parameters[name].shape[-1 if turned else 1] // 2
    part = slice(int(second), None, 2) if kind == "gpt_oss" else slice(half * second, half * (second + 1))
    return name, (int(number), slice(None), part) if turned else (int(number), part), turned


def places_of(module, model, parameters):
    """place_of() of each part of a module, and the rows of the part. transformers keeps q, k and v of Sarvam apart."""
    before, fused, _ = module.partition(".attention.query_key_value")
    parts = [f"{before}.self_attn.{which}_proj.weight" for which in "qkv"]
    if not fused or parts[0] not in parameters:
        return [(*place_of(module, model, parameters), slice(None))]
    ends = np.cumsum([len(parameters[p]) for p in parts]).tolist()
    return [(p, ..., False, slice(start, end)) for p, start, end in zip(parts, [0, *ends], ends)]


def rate(step):
    return RATE * ((step + 1) / WARMUP if step < WARMUP else 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def gradients(model, ids, adapter, step):
    """Loss, and gradients behind the limit of their norm, of a step that begins with an adapter, by PyTorch."""
    factors = {name: torch.nn.Parameter(t.clone()) for name, t in adapter.items()}
    parameters = dict(model.named_parameters())
    for p in parameters.values():
        p.requires_grad_(False)
    by_parameter = {}
    for module in sorted({name[len("base_model.model."):-len(".lora_A.weight")] for name in factors}):
        for name, *place in places_of(module, model, parameters):
            by_parameter.setdefault(name, []).append((module, *place))

    def changed():
        out = {}
        for name, changes in by_parameter.items():
            w = parameters[name].clone()
            for module, at, turned, rows in changes:
                a, b = (factors[f"base_model.model.{module}.lora_{x}.weight"] for x in "AB")
                d = ALPHA / RANK * (b[rows] @ a)
                w[at] = w[at] + (d.T if turned else d)
            out[name] = w
        return out

    examples = [ids[at:at + LENGTH + 1] for at in range(0, len(ids) - 1, LENGTH)]
    drawn = range(step * BATCH * ACCUMULATE, (step + 1) * BATCH * ACCUMULATE)
    chosen = [examples[order(0, k // len(examples), len(examples))[k % len(examples)]] for k in drawn]
    total, loss = sum(len(e) - 1 for e in chosen), 0
    for e in chosen:
        t = torch.tensor([e])
        logits = torch.func.functional_call(model, changed(), (t,), {"use_cache": False}).logits[0, :-1]
        part = torch.nn.functional.cross_entropy(logits.float(), t[0, 1:], reduction="sum") / total
        part.backward()
        loss += part.item()
    for p in factors.values():
        if p.grad is None:  # of an expert that no token took
            p.grad = torch.zeros_like(p)
    torch.nn.utils.clip_grad_norm_(factors.values(), CLIP)
    return loss, {name: p.grad for name, p in factors.items()}


def moments(folder, names):
    """What AdamW has stored of gradients in a folder, by the names of the adapter. Experts of a layer are one tensor there. The text
    of a model that reads images has the names of one that does not, and q, k and v together may have that of a GGUF file."""
    stored, out = load_file(f"{folder}/optimizer.safetensors"), {}
    for name in names:
        own = re.sub(r"\.(language_model\.model|model\.language_model|model\.text_model)\.", ".model.", name)
        own = re.sub(r"\.experts\.\d+\.", ".experts.#.", own) + ".m"
        m = stored[own if own in stored else own.replace(".query_key_value.", ".qkv.")]
        expert = re.search(r"\.experts\.(\d+)\.", name)
        out[name] = (m[int(expert[1])] if expert else m).double()
    return out


class Run:
    """A training that stopped after each of its steps: adapters and losses, and gradients behind the limit of their norm."""

    def __init__(self, tenon, device, model, folder, out, *options):
        self.adapters = [tune(tenon, device, model, folder, f"{out}{k}", "--stop-after", str(k), *options) for k in range(STEPS + 1)]
        self.last = f"{out}{STEPS}"
        self.losses = [x for _, x in stored(self.last)["losses"]]
        sums = [{n: t.double() * 0 for n, t in self.adapters[0].items()}]
        sums += [moments(f"{out}{k}", sums[0]) for k in range(1, STEPS + 1)]
        self.gradients = [{n: (after[n] - BETA1 * before[n]) / (1 - BETA1) for n in after} for before, after in zip(sums, sums[1:])]

    def adamw_error(self):
        """How far the last adapter is from that of PyTorch's AdamW with the same gradients, as a part of the way from the first."""
        factors = {name: torch.nn.Parameter(t.double()) for name, t in self.adapters[0].items()}
        optimizer = torch.optim.AdamW(factors.values(), lr=RATE, betas=(BETA1, 0.999), eps=1e-8, weight_decay=DECAY)
        for step, gradients in enumerate(self.gradients):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            for name, p in factors.items():
                p.grad = gradients[name]
            optimizer.step()
        moved, off = (torch.cat([(x[n] - y[n]).detach().flatten() for n in x])
                      for x, y in ((factors, self.adapters[0]), (self.adapters[-1], factors)))
        assert moved.abs().max() > 1e-2
        return (off.norm() / moved.norm()).item()


def stored(folder):
    return json.loads(pathlib.Path(folder, "tuning.json").read_text())


def tune(tenon, device, model, folder, out, *options):
    done = subprocess.run([tenon, "llm", "tune", model, "--data", f"{folder}/data.txt", "--output", out, "--device", device,
                           "--batch", str(BATCH), "--accumulate", str(ACCUMULATE), "--length", str(LENGTH), "--steps", str(STEPS),
                           "--warmup", str(WARMUP), "--learning-rate", str(RATE), "--weight-decay", str(DECAY), "--clip", str(CLIP),
                           "--rank", str(RANK), "--alpha", str(ALPHA), *options], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return load_file(f"{out}/adapter_model.safetensors")


def loss_of_run(probe, device, model, folder, adapter, ids, options):
    """The loss of all examples by the logits of a model that runs with the adapter, token by token."""
    total, sum_ = len(ids) - 1, 0
    for at in range(0, total, LENGTH):
        e = ids[at:at + LENGTH + 1]
        logits = architectures.probe(probe, folder, e[:-1], device, "decode", "--lora", adapter, *options, model=model)
        sum_ += torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(e[1:]), reduction="sum").item()
    return sum_ / total


def compare(name, config, options, tenon, probe, device, folder):
    model = architectures.make(config, folder, spread=0.8)
    if name.endswith("mxfp4"):
        architectures.to_mxfp4(model, folder)
    if name.endswith("joint"):
        architectures.to_joint(folder)
    ids = add_tokenizer(folder)
    pathlib.Path(folder, "data.txt").write_text(TEXT)
    sources = {"folder": folder}
    if config.model_type in architectures.CONVERTED and name not in architectures.NOT_CONVERTED:
        sources["gguf"] = f"{folder}/model.gguf"
        subprocess.run([tenon, "llm", "convert", folder, sources["gguf"], "--type", "F32", "--pre", "gpt-2"], check=True,
                       capture_output=True)
    if config.model_type == "llama4":  # fails without images
        model = model.language_model
    good, names, known = True, None, {}

    def peer(adapter, step):
        """gradients(), which trainings with the same bits share."""
        key = step, *adapter, *(t.numpy().tobytes() for t in adapter.values())
        if key not in known:
            known[key] = gradients(model, ids, adapter, step)
        return known[key]

    for kind, source in sources.items():
        for more in ([], ["--checkpoint"]) if kind == "folder" else ([],):
            out = f"{folder}/{kind}{len(more)}_"
            if kind == "gguf" and config.model_type == "falcon_h1":
                # Its factors are in the weights of the file, so adapters of the file and of the folder are not the same.
                subprocess.run([tenon, "llm", "convert", source, f"{folder}/back"], check=True, capture_output=True)
                model = T.AutoModelForCausalLM.from_pretrained(f"{folder}/back", attn_implementation="eager")
                known.clear()
            run = Run(tenon, device, source, folder, out, "--validation", f"{folder}/data.txt", *more)
            names = names or run.adapters[0].keys()
            # Where the file splits a product of the folder, only the file can run this adapter.
            runs = source if run.adapters[0].keys() != names or config.model_type == "falcon_h1" else folder
            checked = stored(run.last)["checked"][-1][1]
            loss = checked if more else loss_of_run(probe, device, runs, folder, run.last, ids, [*options, "--cache", "f32"])
            # AdamW has gradients in the order of the weights, which is another one in files of GGUF.
            errors, worst = [abs(loss - checked), 0, 0 if kind == "gguf" else run.adamw_error()], ""
            for step in range(STEPS):
                expected, theirs = peer(run.adapters[step], step)
                errors[0] = max(errors[0], abs(run.losses[step] - expected))
                total = sum(g.norm() ** 2 for g in theirs.values()) ** 0.5
                assert run.adapters[step].keys() == theirs.keys()
                for n, g in theirs.items():
                    mine = run.gradients[step][n]
                    if kind == "gguf":
                        mine, g = mine.flatten().sort()[0], g.flatten().sort()[0]
                    # The gradient of a tensor that is much less than that of all may be rounding.
                    error = ((mine - g).norm() / (g.norm() + SMALL * total)).item()
                    if error > errors[1]:
                        errors[1], worst = error, f"{n} in step {step}"
            print(f"{name:22} {kind:6} {' '.join(more):12} {len(names):4} tensors; loss {run.losses[0]:.4f} to {run.losses[-1]:.4f}, "
                  f"differs {errors[0]:.1e}; gradients {errors[1]:.1e} ({worst}), AdamW {errors[2]:.1e} of its way", flush=True)
            good = good and errors[0] <= LIMIT and errors[1] <= GRADIENT_LIMIT and errors[2] <= WAY_LIMIT
    return good


def blocks(tenon, device, folder):
    """Weights in blocks against a folder of the numbers that they decode to."""
    wide = architectures.SIZES | dict(hidden_size=64, intermediate_size=128)
    good = True
    for name, config in (("llama", T.LlamaConfig(**wide)),
                         ("mixtral", T.MixtralConfig(**wide, num_local_experts=4, sliding_window=None))):
        at = f"{folder}/{name}"
        architectures.make(config, at, spread=0.8)
        add_tokenizer(at)
        for kind in ("Q8_0", "Q4_0"):
            file, decoded = f"{at}/{kind}.gguf", f"{at}/{kind}"
            for words in ([at, file, "--type", kind], [file, decoded, "--type", "F32"]):
                subprocess.run([tenon, "llm", "convert", *words], check=True, capture_output=True)
            pathlib.Path(decoded, "data.txt").write_text(TEXT)
            add_tokenizer(decoded)
            curves = []
            for i, source in enumerate((file, decoded)):
                tune(tenon, device, source, decoded, f"{decoded}/{i}")
                curves.append([x for _, x in json.loads(pathlib.Path(decoded, str(i), "tuning.json").read_text())["losses"]])
            error = max(abs(a - b) for a, b in zip(*curves, strict=True))
            print(f"{name:22} in {kind}: {curves[0][0]:.4f} to {curves[0][-1]:.4f}, differs {error:.1e}", flush=True)
            good = good and error <= LIMIT and curves[0][-1] < curves[0][0]
    return good


def with_peft(tenon, probe, device, folder):
    """Logits with adapters of the other one."""
    try:
        import peft
    except ImportError:
        print("PEFT is not installed: its files are not compared")
        return True
    model = architectures.make(T.LlamaConfig(**architectures.SIZES), folder)
    ids = add_tokenizer(folder)[:40]
    pathlib.Path(folder, "data.txt").write_text(TEXT)
    tune(tenon, device, folder, folder, f"{folder}/mine")
    torch.manual_seed(3)
    theirs = peft.get_peft_model(model, peft.LoraConfig(
        r=5, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "o_proj", "up_proj"], task_type="CAUSAL_LM",
        rank_pattern={"q_proj": 7}, alpha_pattern={r".*\.1\.self_attn\.o_proj": 9}))
    for n, p in theirs.named_parameters():
        if "lora_B" in n:
            p.data.normal_(0, 0.2)
    theirs.save_pretrained(f"{folder}/theirs", save_embedding_layers=False)
    theirs.load_adapter(f"{folder}/mine", "mine")
    good = True
    for adapter, folders in (("default", ["theirs"]), ("mine", ["mine"]), (["default", "mine"], ["mine", "theirs"])):
        theirs.base_model.set_adapter(adapter)
        with torch.no_grad():
            expected = theirs.eval()(torch.tensor([ids])).logits[0].numpy()
        options = sum((["--lora", f"{folder}/{f}"] for f in folders), [])
        got = architectures.probe(probe, folder, ids, device, "prefill", *options)
        error = np.abs(got - expected).max() / np.abs(expected).max()
        print(f"PEFT {'+'.join(folders):16} {error:.1e}")
        good = good and error < LIMIT
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("probe")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*")
    a = parser.parse_args()
    bad = []
    for name, (config, options) in architectures.cases().items():
        if a.only and name not in a.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if not compare(name, config, options, a.tenon, a.probe, a.device, folder):
                bad.append(name)
    with tempfile.TemporaryDirectory() as folder:
        if not blocks(a.tenon, a.device, folder):
            bad.append("blocks")
    with tempfile.TemporaryDirectory() as folder:
        if not with_peft(a.tenon, a.probe, a.device, folder):
            bad.append("PEFT")
    if bad:
        sys.exit(f"wrong: {', '.join(bad)}")


if __name__ == "__main__":
    main()
