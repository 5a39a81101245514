# SPDX-License-Identifier: Apache-2.0
"""`tenon llm tune` against PyTorch, for each architecture of architectures.py: losses and adapter after some steps of AdamW,
from the same first values and the same examples; weights of folders and of GGUF files. A model that runs with the adapter has the
loss that the training tells. If PEFT is installed, it reads an
adapter of tenon, and tenon one of PEFT.

tune.py TENON LLM_PROBE [--only NAME ...] [--device cpu]
Exits with 77 (skip) where torch or transformers is absent."""
import argparse, json, math, os, pathlib, subprocess, sys, tempfile

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

LIMIT, WAY_LIMIT = 1e-4, 1e-3
STEPS, BATCH, ACCUMULATE, LENGTH, WARMUP, RATE, DECAY, CLIP = 5, 2, 2, 24, 2, 1e-2, 0.1, 0.5
RANK, ALPHA = 4, 8
TEXT = ("Gradients of a loss tell each number of an adapter which way to go; a step goes a little way. " * 4)[:300]
M64 = (1 << 64) - 1
# What transformers calls modules of Hy3, Laguna and EXAONE 3, and their files call them.
RENAMED = [(".shared_experts.", ".shared_mlp."), (".shared_experts.", ".shared_expert."), ("model.layers.", "transformer.h."),
           (".self_attn.", ".attn.attention."), (".o_proj", ".out_proj"), (".gate_proj", ".c_fc_0"), (".up_proj", ".c_fc_1"),
           (".down_proj", ".c_proj")]


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


def place_of(module, parameters):
    """(parameter, index) of a module. transformers keeps the experts of a layer in two parameters. It keeps gate and up of Granite's
    shared MLP in one parameter, while GGUF files have two."""
    # A GGUF file has the language model of one that reads images, too, without that one's names.
    if module.startswith("model.layers."):
        module = next(p + module.removeprefix("model.") for p in ("model.", "model.language_model.", "language_model.model.",
                                                                  "model.text_model.")
                      if any(n.startswith(p + "layers.") for n in parameters))
    if module + ".weight" not in parameters:
        for theirs, ours in RENAMED:
            module = module.replace(ours, theirs)
    if module + ".weight" in parameters:
        return module + ".weight", ...
    mlp, _, which = module.rpartition(".")
    if (name := f"{mlp}.input_linear.weight") in parameters:
        half = parameters[name].shape[0] // 2
        return name, slice(0, half) if which == "gate_proj" else slice(half, None)
    layer, _, rest = module.partition(".experts.")
    number, _, which = rest.partition(".")
    if f"{layer}.experts.down_proj" not in parameters:  # transformers renames it for Mixtral, but not for Granite
        layer = layer.replace("block_sparse_moe", "mlp")
    down = which in ("w2", "down_proj")
    name = f"{layer}.experts.{'down_proj' if down else 'gate_up_proj'}"
    half = parameters[name].shape[1] // 2
    rows = slice(None) if down else slice(0, half) if which in ("w1", "gate_proj") else slice(half, None)
    return name, (int(number), rows)


def train(model, ids, first):
    """Losses, and the adapter, of the same training in PyTorch."""
    factors = {name: torch.nn.Parameter(t.clone()) for name, t in first.items()}
    modules = sorted({name[len("base_model.model."):-len(".lora_A.weight")] for name in factors})
    parameters = dict(model.named_parameters())
    linear_in_out = {name for name, m in model.named_modules() if type(m).__name__ == "Conv1D"}
    for p in parameters.values():
        p.requires_grad_(False)
    by_parameter = {}
    for module in modules:
        name, at = place_of(module, parameters)
        by_parameter.setdefault(name, []).append((module, at))

    def changed():
        out = {}
        for name, changes in by_parameter.items():
            w = parameters[name].clone()
            for module, at in changes:
                a, b = (factors[f"base_model.model.{module}.lora_{x}.weight"] for x in "AB")
                d = ALPHA / RANK * (b @ a)
                w[at] = w[at] + (d.T if module in linear_in_out else d)
            out[name] = w
        return out

    examples = [ids[at:at + LENGTH + 1] for at in range(0, len(ids) - 1, LENGTH)]
    optimizer = torch.optim.AdamW(factors.values(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=DECAY)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * ((step + 1) / WARMUP if step < WARMUP
                                  else 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))
        drawn = range(step * BATCH * ACCUMULATE, (step + 1) * BATCH * ACCUMULATE)
        chosen = [examples[order(0, k // len(examples), len(examples))[k % len(examples)]] for k in drawn]
        total, loss = sum(len(e) - 1 for e in chosen), 0
        optimizer.zero_grad()
        for e in chosen:
            t = torch.tensor([e])
            logits = torch.func.functional_call(model, changed(), (t,), {"use_cache": False}).logits[0, :-1]
            part = torch.nn.functional.cross_entropy(logits.float(), t[0, 1:], reduction="sum") / total
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(factors.values(), CLIP)
        optimizer.step()
        losses.append(loss)
    return losses, {name: t.detach() for name, t in factors.items()}


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
    ids = add_tokenizer(folder)
    pathlib.Path(folder, "data.txt").write_text(TEXT)
    sources = {"folder": folder}
    if config.model_type in architectures.CONVERTED and name not in architectures.NOT_CONVERTED:
        sources["gguf"] = f"{folder}/model.gguf"
        subprocess.run([tenon, "llm", "convert", folder, sources["gguf"], "--type", "F32", "--pre", "gpt-2"], check=True,
                       capture_output=True)
    good = True
    first = tune(tenon, device, folder, folder, f"{folder}/first", "--stop-after", "0")
    losses, factors = train(model, ids, first)
    for kind, source in sources.items():
        runs = folder
        if kind == "gguf":
            own = tune(tenon, device, source, folder, f"{folder}/own", "--stop-after", "0")
            if own.keys() != first.keys():  # the file splits a product of the folder: only the file can run this adapter
                first, runs = own, source
                losses, factors = train(model, ids, first)
        for more in ([], ["--checkpoint"]) if kind == "folder" else ([],):
            out = f"{folder}/{kind}{len(more)}"
            mine = tune(tenon, device, source, folder, out, "--validation", f"{folder}/data.txt", *more)
            stored = json.loads(pathlib.Path(out, "tuning.json").read_text())
            curve, checked = [x for _, x in stored["losses"]], stored["checked"][-1][1]
            run = checked if more else loss_of_run(probe, device, runs, folder, out, ids, [*options, "--cache", "f32"])
            assert mine.keys() == factors.keys(), mine.keys() ^ factors.keys()
            # AdamW moves a number by the sign of its gradient, even where that is rounding: so all numbers count together.
            moved, off = (torch.cat([(x[n] - y[n]).flatten() for n in mine]) for x, y in ((factors, first), (mine, factors)))
            errors = [max([abs(run - checked)] + [abs(a - b) for a, b in zip(curve, losses, strict=True)]),
                      (off.norm() / moved.norm()).item()]
            print(f"{name:22} {kind:6} {' '.join(more):12} {len(mine):4} tensors; loss {losses[0]:.4f} to {losses[-1]:.4f}, differs "
                  f"{errors[0]:.1e}; adapter differs {errors[1]:.1e} of its way, {off.abs().max().item():.1e} at most", flush=True)
            good = good and errors[0] <= LIMIT and errors[1] <= WAY_LIMIT
            assert moved.abs().max() > 1e-2
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
